//! Small things that make a place inhabited: birds, balloons, a boat, a cabin.
//!
//! Decides their outlines.
//! Refuses to know why they are there.

use super::canvas::Canvas;
use super::colour::{Colour, Palette};
use super::number::{Dice, floor, ramp, wave};

/// A loose flock around a place.
pub(super) fn birds(canvas: &mut Canvas, (x, y): (f32, f32), colour: Colour, dice: &mut Dice) {
    let unit = canvas.unit;
    for _ in 0..5 + dice.pick(5) {
        let at = (x + dice.between(-120.0, 120.0) * unit, y + dice.between(-50.0, 50.0) * unit);
        let size = dice.between(7.0, 15.0) * unit;
        let lift = dice.between(0.25, 0.6);
        for side in [-1.0, 1.0] {
            for bead in 0..16 {
                let t = bead as f32 / 15.0;
                let bow = lift * 4.0 * t * (0.82 - t * 0.62);
                let place = (at.0 + side * size * t, at.1 - size * bow * 0.6);
                canvas.disc(place, size * 0.09 * (1.15 - t), |_, _| colour);
            }
        }
    }
}

/// A few hot-air balloons, the nearest largest.
pub(super) fn balloons(
    canvas: &mut Canvas,
    (left, right): (f32, f32),
    (top, bottom): (f32, f32),
    palette: &Palette,
    dice: &mut Dice,
) {
    let unit = canvas.unit;
    let count = 2 + dice.pick(3);
    for order in 0..count {
        let radius = (13.0 + 15.0 * order as f32 + dice.between(0.0, 8.0)) * unit;
        let slot = (order as f32 + dice.between(0.25, 0.75)) / count as f32;
        let place = (left + (right - left) * slot, dice.between(top, bottom));
        let paints = [0xd8463c, 0xe9a13a, 0x3b7fb8, 0x54936a, 0x8a5aa8, 0xf0e6d2].map(Colour::hex);
        let first = dice.pick(6);
        let pair = [paints[first], paints[(first + 1 + dice.pick(5)) % 6]];
        let far = 0.5 - 0.14 * order as f32;
        let dim = if palette.night { 0.45 } else { 0.94 };
        balloon(canvas, place, radius, pair.map(|paint| paint.times(dim).mix(palette.mist, far.max(0.08))));
    }
}

fn balloon(canvas: &mut Canvas, (x, y): (f32, f32), radius: f32, [one, two]: [Colour; 2]) {
    let skirt = y + radius * 1.35;
    let half = |at: f32| {
        if at < y + radius * 0.35 {
            (radius * radius - (at - y) * (at - y)).max(0.0).sqrt()
        } else {
            let t = (at - y - radius * 0.35) / radius;
            radius * (0.937 - 0.42 * t - 0.34 * t * t)
        }
    };
    let rope = radius * 0.025;
    for side in [-0.16, 0.16] {
        let middle = x + side * radius;
        canvas.shape((skirt, skirt + radius * 0.3), |_| (middle - rope, middle + rope), |_, _| two.times(0.4));
    }
    canvas.shape(
        (y - radius, skirt),
        |at| (x - half(at), x + half(at)),
        |px, py| {
            let width = half(py as f32 + 0.5).max(0.5);
            let across = ((px as f32 + 0.5 - x) / width).clamp(-1.0, 1.0);
            // Panels look narrower towards the sides, as on a sphere.
            let panel = floor((across * (1.5 - 0.5 * across * across) + 1.0) * 3.5);
            let paint = if panel % 2 == 0 { one } else { two };
            paint.times(1.06 - 0.34 * ramp(-0.2, 1.0, across))
        },
    );
    let basket = skirt + radius * 0.28;
    canvas.shape((basket, basket + radius * 0.24), |_| (x - radius * 0.17, x + radius * 0.17), |_, _| two.times(0.45));
}

/// A sailing boat whose water line is at (`x`, `y`), with its reflection.
pub(super) fn boat(canvas: &mut Canvas, (x, y): (f32, f32), size: f32, palette: &Palette) {
    let sail = palette.cloud[0].mix(palette.light, if palette.night { 0.1 } else { 0.6 });
    let hull = palette.ground[1].mix(Colour::hex(0x7a2e28), 0.45);
    let dim = |colour: Colour| colour.mix(palette.water, 0.55);
    for (flip, sail, hull) in [(-1.0, dim(sail), dim(hull)), (1.0, sail, hull)] {
        let row = |t: f32| y - flip * t * size;
        let ordered = |a: f32, b: f32| (a.min(b), a.max(b));
        // The reflection trembles, the boat does not.
        let sway = |at: f32| if flip < 0.0 { wave(at / (size * 0.09)) * size * 0.018 } else { 0.0 };
        let up = |at: f32| flip * (y - at) / size;
        let main = |at: f32| (x - 0.02 * size + sway(at), x + size * 0.36 * (1.0 - up(at)) + sway(at));
        let jib =
            |at: f32| (x - size * 0.05 - size * 0.3 * (0.86 - up(at)).max(0.0) + sway(at), x - size * 0.05 + sway(at));
        let body = |at: f32| (x - size * (0.34 + up(at) * 0.9) + sway(at), x + size * (0.38 + up(at) * 0.5) + sway(at));
        canvas.shape(ordered(row(0.1), row(1.0)), main, |_, _| sail);
        canvas.shape(ordered(row(0.13), row(0.84)), jib, |_, _| sail.times(0.86));
        canvas.shape(ordered(row(0.0), row(0.085)), body, |_, _| hull);
    }
}

/// A cabin with a lit window and smoke, standing on `foot`.
pub(super) fn cabin(canvas: &mut Canvas, (x, foot): (f32, f32), size: f32, palette: &Palette) {
    let wall = palette.ground[1].mix(Colour::hex(0x5a3626), 0.5);
    let roof = palette.ground[1].times(0.75);
    let smoke = palette.mist;
    for puff in 0..9 {
        let t = puff as f32 / 8.0;
        let drift = x + size * (0.3 + 0.35 * t * t) + wave(t * 1.4) * size * 0.06;
        canvas.glow((drift, foot - size * (1.1 + t * 0.9)), size * (0.12 + 0.2 * t), smoke, 0.55 * (1.0 - t * 0.85));
    }
    canvas.shape((foot - size * 1.08, foot - size * 0.7), |_| (x + size * 0.24, x + size * 0.36), |_, _| roof);
    canvas.shape((foot - size * 0.52, foot + size * 0.1), |_| (x - size * 0.5, x + size * 0.5), |_, _| wall);
    let ridge = foot - size;
    let slope = |y: f32| {
        let half = (y - ridge) / (size * 0.5) * size * 0.64;
        (x - half, x + half)
    };
    canvas.shape((ridge, foot - size * 0.48), slope, |_, _| roof);
    let lamp = Colour::hex(0xffcf7a);
    for window in [-0.3, 0.1] {
        let left = x + window * size;
        canvas.shape((foot - size * 0.36, foot - size * 0.14), |_| (left, left + size * 0.2), |_, _| lamp);
        canvas.glow((left + size * 0.1, foot - size * 0.25), size * 0.55, lamp, 0.35);
    }
}

/// A lighthouse on its rock; the rock stands on row `foot`.
pub(super) fn lighthouse(canvas: &mut Canvas, (x, foot): (f32, f32), size: f32, palette: &Palette) {
    let rock = palette.ground_at(0.72);
    let (white, red) = (Colour::hex(0xf4efe6), Colour::hex(0xc23b32));
    let dim = if palette.night { 0.42 } else { 0.96 };
    let (white, red) = (white.times(dim).mix(palette.mist, 0.12), red.times(dim).mix(palette.mist, 0.12));
    let ground = foot - size * 0.17;
    let top = ground - size * 0.8;
    let lamp = (x, top - size * 0.055);
    let shine = Colour::hex(0xffe9a8);
    canvas.glow(lamp, size * 0.55, shine, 0.4);
    let flank = |y: f32| {
        let down = ((y - ground) / (foot - ground)).clamp(0.0, 1.0);
        let uneven = wave(y / size * 9.0) * 0.03;
        (x - size * (0.2 + 0.42 * down + uneven), x + size * (0.16 + 0.3 * down * down - uneven))
    };
    canvas.shape((ground, foot), flank, |_, _| rock);
    let half = |y: f32| size * (0.062 + 0.05 * (y - top) / (ground - top));
    canvas.shape(
        (top, ground + 1.0),
        |y| (x - half(y), x + half(y)),
        |px, py| {
            let band = floor((py as f32 - top) / (ground - top) * 5.0);
            let across = (px as f32 + 0.5 - x) / half(py as f32);
            let paint = if band % 2 == 0 { white } else { red };
            paint.times(1.0 - 0.3 * ramp(-0.3, 1.0, across))
        },
    );
    let tiers = [(0.0, 0.02, 0.1, rock), (0.02, 0.1, 0.052, shine), (0.1, 0.12, 0.075, red)];
    for (low, high, wide, paint) in tiers {
        canvas.shape((top - size * high, top - size * low), |_| (x - size * wide, x + size * wide), |_, _| paint);
    }
    let tip = top - size * 0.19;
    canvas.shape((tip, top - size * 0.12), |y| (x - (y - tip) * 0.9, x + (y - tip) * 0.9), |_, _| red);
    canvas.glow(lamp, size * 0.16, Colour::hex(0xffffff), 0.8);
}
