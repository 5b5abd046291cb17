//! The main mountains of a picture: single summits with two faces and snow.
//!
//! Decides where summits stand and how light, gullies and snow run down their faces.
//! Refuses to know the ranges behind and the hills in front.

use super::canvas::Canvas;
use super::colour::Colour;
use super::land::{Haze, at};
use super::number::{Dice, curve, floor, layered, mix, ramp, smooth, zigzag};
use super::sky::Light;
use super::skyline::Skyline;

/// How the mountains are to look.
pub(super) struct Massif<'a> {
    pub(super) haze: Haze<'a>,
    pub(super) light: Light,
    /// The row they stand on and their height in units.
    pub(super) base: f32,
    pub(super) tall: f32,
    pub(super) snow: bool,
    pub(super) octaves: u32,
}

/// One summit; x and heights in units.
#[derive(Clone, Copy)]
struct Summit {
    x: f32,
    height: f32,
    /// Fall per unit to the left and to the right.
    fall: (f32, f32),
}

/// What is looked up for every pixel, worked out once.
struct Tables {
    /// The summit to which each column belongs.
    owner: Vec<usize>,
    /// How far ridges have wandered sideways at each depth.
    wander: Vec<f32>,
    /// Light and dark gullies, by slanted column.
    gully: Vec<f32>,
    /// How much lower or higher the snow ends, by slanted column.
    ragged: Vec<f32>,
    /// Columns a gully can start left of the picture.
    margin: i32,
}

struct Paints {
    body: Vec<Colour>,
    lit: Vec<Colour>,
    shade: Vec<Colour>,
    snow_lit: Vec<Colour>,
    snow_shade: Vec<Colour>,
}

impl Massif<'_> {
    /// Paints the mountains down to their base.
    pub(super) fn paint(&self, canvas: &mut Canvas, dice: &mut Dice) {
        let unit = canvas.unit;
        let summits = self.summits(canvas.width as f32 / unit, dice);
        let seed = dice.seed();
        let line = Skyline::new(canvas, |x| {
            let rough = layered(self.octaves, 0.5, |octave, scale| zigzag(seed.wrapping_add(octave), x * 0.03 * scale));
            self.base - (highest(&summits, x).1 + (rough - 0.5) * 34.0) * unit
        });
        let tables = Tables::new(canvas, &summits, seed);
        let paints = self.paints(canvas);
        let limit = mix(line.top, self.base, dice.between(0.36, 0.6));
        canvas.under(&line, floor(self.base) + 1, |x, y, depth| {
            let shift = at(&tables.wander, floor(depth));
            let owner = tables.owner.get((x + floor(shift * 0.6)).clamp(0, tables.last()) as usize);
            let Some(summit) = owner.and_then(|owner| summits.get(*owner)) else { return Colour([0.0; 3]) };
            self.face(&tables, &paints, (x, y, limit), (summit.x * unit, shift, unit))
        });
    }

    fn summits(&self, width: f32, dice: &mut Dice) -> Vec<Summit> {
        let mut summits = Vec::new();
        let mut x = -dice.between(20.0, 140.0);
        let major = dice.between(0.25, 0.75) * width;
        while x < width + 160.0 {
            // The mountains rise towards one place, so that one of them is the main one.
            let away = ((x - major) / (width * 0.45)).abs();
            let rank = (1.0 - 0.5 * away.min(1.0)) * dice.between(0.62, 1.0);
            let fall = (dice.between(0.62, 1.15), dice.between(0.62, 1.15));
            summits.push(Summit { x, height: self.tall * rank, fall });
            x += dice.between(70.0, 210.0);
        }
        summits
    }

    fn paints(&self, canvas: &Canvas) -> Paints {
        let palette = self.haze.palette;
        let ground = palette.ground_at(0.4);
        let (glow, glare) = if palette.night { (0.12, 0.14) } else { (0.4, 0.6) };
        let rows = |colour: Colour| self.haze.rows(canvas, colour);
        Paints {
            body: rows(palette.ground_at(self.haze.near)),
            lit: rows(ground.mix(palette.light, glow)),
            shade: rows(ground.mix(palette.ground[1], 0.34)),
            snow_lit: rows(palette.cloud[0].mix(palette.light, glare)),
            snow_shade: rows(palette.cloud[1].mix(palette.sky[1], 0.4)),
        }
    }

    /// The colour of one pixel of a face.
    fn face(
        &self,
        tables: &Tables,
        paints: &Paints,
        (x, y, limit): (i32, i32, f32),
        (tip, shift, unit): (f32, f32, f32),
    ) -> Colour {
        let left = ramp(tip + shift + 0.8, tip + shift - 0.8, x as f32);
        let towards = ((tip - self.light.x) / (110.0 * unit)).clamp(-1.0, 1.0);
        let own = 0.5 + towards * (left - 0.5);
        // Gullies run outwards from the ridge, down to the left on the left face.
        let slant = floor(y as f32 * 0.55);
        let slanted = if left > 0.5 { x + slant } else { x - slant } + tables.margin;
        let gully = smooth(0.44, 0.56, at(&tables.gully, slanted)) - 0.5;
        let side = (own + gully * 0.34).clamp(0.0, 1.0);
        let depth = ramp(0.0, 420.0 * unit, y as f32 - (self.base - self.tall * unit));
        let rock = at(&paints.shade, y).mix(at(&paints.lit, y), side).mix(at(&paints.body, y), 0.15 + 0.3 * depth);
        if !self.snow {
            return rock;
        }
        let edge = limit + at(&tables.ragged, slanted) * unit;
        let cover = ramp(edge + 0.8, edge - 0.8, y as f32);
        rock.mix(at(&paints.snow_shade, y).mix(at(&paints.snow_lit, y), side), cover * 0.95)
    }
}

/// The summit that is highest at `x`, and how high.
fn highest(summits: &[Summit], x: f32) -> (usize, f32) {
    let mut best = (0, f32::MIN);
    for (index, summit) in summits.iter().enumerate() {
        let off = x - summit.x;
        let fall = if off < 0.0 { -off * summit.fall.0 } else { off * summit.fall.1 };
        // Flanks get gentler towards the foot, as scree does.
        let height = summit.height - fall * (1.0 - 0.22 * ramp(0.0, 320.0, off.abs()));
        if height > best.1 {
            best = (index, height);
        }
    }
    best
}

impl Tables {
    fn new(canvas: &Canvas, summits: &[Summit], seed: u32) -> Self {
        let scale = 1.0 / canvas.unit;
        let margin = floor(canvas.height as f32 * 0.55) + 1;
        let slanted = |value: &dyn Fn(f32) -> f32| -> Vec<f32> {
            (-margin..canvas.width + margin).map(|x| value(x as f32 * scale)).collect()
        };
        Self {
            owner: (0..canvas.width).map(|x| highest(summits, x as f32 * scale).0).collect(),
            wander: (0..canvas.height).map(|depth| ridge(seed, depth as f32 * scale) * canvas.unit).collect(),
            gully: slanted(&|x| zigzag(seed ^ 7, x * 0.035) * 0.6 + zigzag(seed ^ 8, x * 0.11) * 0.4),
            ragged: slanted(&|x| zigzag(seed ^ 3, x * 0.05) * 70.0 + zigzag(seed ^ 4, x * 0.17) * 34.0 - 52.0),
            margin,
        }
    }

    fn last(&self) -> i32 {
        i32::try_from(self.owner.len()).unwrap_or(i32::MAX) - 1
    }
}

/// How far a ridge has wandered sideways `depth` units below its summit.
fn ridge(seed: u32, depth: f32) -> f32 {
    let coarse = zigzag(seed ^ 11, depth * 0.024) - 0.5;
    let fine = zigzag(seed ^ 12, depth * 0.09) - 0.5;
    let drift = curve(seed ^ 13, depth * 0.008) - 0.5;
    (coarse * 46.0 + fine * 15.0 + drift * 60.0) * ramp(0.0, 60.0, depth)
}
