//! Trees and grass.
//!
//! Decides their outlines and how they stand along a skyline.
//! Refuses to know which scene needs them.

use super::canvas::Canvas;
use super::colour::Colour;
use super::land::Haze;
use super::number::{Dice, curve, floor, mix, step, surface};
use super::skyline::Skyline;

/// How densely and how high something grows along a line.
#[derive(Clone, Copy)]
pub(super) struct Growth {
    /// Units from one to the next.
    pub(super) spacing: f32,
    /// Smallest and largest height in units.
    pub(super) height: (f32, f32),
    /// Share of the line that is wooded.
    pub(super) share: f32,
}

/// Conifers along a line, in groups with clearings.
pub(super) fn conifers(canvas: &mut Canvas, line: &Skyline, growth: Growth, haze: &Haze<'_>, dice: &mut Dice) {
    let unit = canvas.unit;
    let groups = dice.seed();
    let mut x = -20.0;
    while x * unit < canvas.width as f32 + 20.0 * unit {
        x += growth.spacing * dice.between(0.45, 1.5);
        let (size, shape) = (dice.unit(), dice.seed());
        let density = curve(groups, x * 0.011) * 0.7 + curve(groups ^ 8, x * 0.031) * 0.3;
        if density > growth.share {
            continue;
        }
        let (low, high) = growth.height;
        let height = mix(low, high, size * size) * unit * (1.15 - 0.3 * density);
        let foot = line.at(x * unit) + 3.0 * unit;
        conifer(canvas, (x * unit, foot), height, shape, haze);
    }
}

/// One conifer standing on `foot`.
pub(super) fn conifer(canvas: &mut Canvas, foot: (f32, f32), height: f32, shape: u32, haze: &Haze<'_>) {
    let (x, bottom) = foot;
    let top = bottom - height;
    let tiers = 6.0 + step(shape, 1.0, 0.0) * 5.0;
    let reach = height * (0.15 + 0.08 * step(shape, 2.0, 0.0));
    let span = |y: f32| {
        let t = (y - top) / height;
        if t > 0.93 {
            return (x - reach * 0.09, x + reach * 0.09);
        }
        let tier = t * tiers;
        let within = tier - floor(tier) as f32;
        let side = |key: f32| {
            let jitter = 0.78 + 0.44 * step(shape, tier, key);
            reach * (0.04 + t) * (0.42 + 0.58 * within) * jitter
        };
        (x - side(3.0), x + side(4.0))
    };
    let tint = 0.86 + 0.16 * step(shape, 9.0, 0.0);
    canvas.shape((top, bottom), span, |_, y| {
        let own = haze.palette.ground_at(haze.near).times(tint);
        haze.over(own, y as f32)
    });
}

/// Round trees along a line.
pub(super) fn broadleaves(
    canvas: &mut Canvas,
    line: &Skyline,
    growth: Growth,
    haze: &Haze<'_>,
    (light, dice): (f32, &mut Dice),
) {
    let unit = canvas.unit;
    let groups = dice.seed();
    let mut x = -20.0;
    while x * unit < canvas.width as f32 + 20.0 * unit {
        x += growth.spacing * dice.between(0.4, 1.6);
        let (size, mut shape) = (dice.unit(), dice.fork(u64::from(dice.clone().seed())));
        if curve(groups, x * 0.013) > growth.share {
            continue;
        }
        let (low, high) = growth.height;
        let foot = (x * unit, line.at(x * unit) + 2.0 * unit);
        broadleaf(canvas, foot, mix(low, high, size) * unit, haze, (light, &mut shape));
    }
}

fn broadleaf(
    canvas: &mut Canvas,
    (x, foot): (f32, f32),
    height: f32,
    haze: &Haze<'_>,
    (light, dice): (f32, &mut Dice),
) {
    let own = haze.palette.ground_at(haze.near);
    let crown = height * 0.36;
    let trunk = height * 0.035;
    let bark = haze.over(own.times(0.7), foot);
    canvas.shape((foot - height * 0.5, foot), |_| (x - trunk, x + trunk), |_, _| bark);
    let towards = if light < x { -1.0 } else { 1.0 };
    // Dark leaves first, then lighter ones on the side of the light.
    for (count, shade, shift) in [(9, 0.8, 0.0), (7, 1.06, 0.16), (5, 1.3, 0.3)] {
        for _ in 0..count {
            let (dx, dy) = (dice.between(-1.0, 1.0), dice.between(-1.0, 1.0));
            let radius = crown * dice.between(0.34, 0.6) * (1.15 - shift);
            let at =
                (x + crown * (dx * 0.62 + towards * shift), foot - height * 0.63 + crown * (dy * 0.5 - shift * 0.9));
            let leaves = haze.over(own.plus(haze.palette.light, (shade - 0.8) * 0.16).times(shade.min(1.0)), at.1);
            canvas.disc(at, radius, |_, _| leaves);
        }
    }
}

/// Blades of grass along a line, bent by one wind.
pub(super) fn grass(canvas: &mut Canvas, line: &Skyline, height: f32, colour: Colour, dice: &mut Dice) {
    let unit = canvas.unit;
    let wind = dice.between(-0.6, 0.6);
    let groups = dice.seed();
    let mut x = 0.0;
    while x * unit < canvas.width as f32 {
        x += dice.between(1.2, 4.5);
        let tuft = curve(groups, x * 0.05);
        let tall = height * (0.25 + 0.75 * tuft) * dice.between(0.4, 1.0) * unit;
        let lean = (wind + dice.between(-0.45, 0.45)) * tall;
        let (root, width) = (line.at(x * unit) + 3.0 * unit, 1.3 * unit);
        let top = root - tall;
        let span = |y: f32| {
            let up = (root - y) / tall;
            let middle = x * unit + lean * up * up;
            let half = width * (1.0 - up) + 0.15 * unit;
            (middle - half, middle + half)
        };
        canvas.shape((top, root), span, |_, _| colour);
    }
}

/// Flowers on the ground below a line, in drifts, larger towards us.
pub(super) fn flowers(canvas: &mut Canvas, line: &Skyline, bottom: f32, dim: f32, dice: &mut Dice) {
    let (unit, width) = (canvas.unit, canvas.width as f32);
    let paints = [0xfdf6ec, 0xf7cf4e, 0xf08aa8, 0xd9473f, 0xa986d8].map(|paint| Colour::hex(paint).times(dim));
    let (main, second, drifts) = (dice.pick(5), dice.pick(5), dice.seed());
    for _ in 0..floor(width / unit * 1.6) {
        let x = dice.unit() * width;
        let top = line.at(x) + 6.0 * unit;
        let deep = dice.unit();
        let (lot, shade) = (dice.unit(), dice.between(0.8, 1.0));
        let y = mix(top, bottom, deep);
        let near = y / bottom;
        if surface(drifts, x / unit * 0.008, y / unit * 0.022) < 0.5 {
            continue;
        }
        let radius = (0.7 + 2.6 * near * near * near * lot) * unit;
        let paint = if lot < 0.7 { paints[main] } else { paints[second] };
        canvas.disc((x, y), radius, |_, _| paint.times(shade));
    }
}
