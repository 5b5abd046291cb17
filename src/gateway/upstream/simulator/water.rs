//! Water: what is above it upside down, broken by waves.
//!
//! Decides how waves grow towards us and where light glitters.
//! Refuses to know what it mirrors; it reads the pixels above.

use super::canvas::Canvas;
use super::colour::Palette;
use super::number::{Dice, floor, mix, ramp, smooth, surface};
use super::sky::Light;

/// Waves repeat after this many steps; a power of two, so the index is a mask.
const TABLE: usize = 256;

/// A sheet of water from `shore` down to the lower edge.
pub(super) struct Water<'a> {
    pub(super) palette: &'a Palette,
    pub(super) light: Light,
    pub(super) shore: i32,
    /// 0 a mirror, 1 a sea.
    pub(super) rough: f32,
}

impl Water<'_> {
    /// Paints the water over whatever is below the shore.
    pub(super) fn paint(&self, canvas: &mut Canvas, dice: &mut Dice) {
        let seed = dice.seed();
        for y in self.shore.max(1)..canvas.height {
            self.row(canvas, y, seed);
        }
    }

    fn row(&self, canvas: &mut Canvas, y: i32, seed: u32) {
        let (unit, below) = (canvas.unit, (y - self.shore) as f32 + 0.5);
        let depth = below / (canvas.height - self.shore).max(1) as f32;
        // Seen at a slant, waves are many and thin far away, few and wide near by.
        let distance = 1.0 / (depth + 0.045);
        let waves = table(seed, distance * 14.0);
        let pitch = distance * 0.055 / unit;
        let height = (0.6 + 26.0 * depth * (0.35 + 0.65 * self.rough)) * unit;
        // A sky that is higher than the water is squeezed into it, so that the light is mirrored too.
        let squeeze = (self.shore as f32 / (canvas.height - self.shore).max(1) as f32).clamp(1.0, 1.5);
        let mirror = self.shore as f32 - below * squeeze;
        let deep = mix(0.16, 0.5, depth * (0.6 + 0.4 * self.rough));
        let glitter = if self.palette.night { 0.5 } else { 0.75 };
        let path = (34.0 + 120.0 * depth) * unit;
        for x in 0..canvas.width {
            let swell = sample(&waves, x as f32 * pitch);
            let (sx, sy) = (x + floor(swell * height * 0.35), floor(mirror + swell * height));
            let mut colour = canvas.get(sx, sy.min(self.shore - 1)).mix(self.palette.water, deep);
            let crest = smooth(0.18, 0.5, swell) * (1.0 - depth * 0.5);
            colour = colour.mix(self.palette.sky[3], crest * 0.2 * self.rough);
            let along = 1.0 - ramp(0.0, path, (x as f32 - self.light.x).abs());
            colour = colour.mix(self.palette.light, ramp(0.1, 0.34, swell) * along * glitter);
            canvas.set(x, y, colour);
        }
    }
}

/// One row of waves, from about -0.5 to 0.5.
fn table(seed: u32, v: f32) -> [f32; TABLE] {
    let mut waves = [0.0; TABLE];
    for (index, wave) in waves.iter_mut().enumerate() {
        let u = index as f32;
        let fine = surface(seed ^ 21, u * 0.61, v * 2.3 + u * 0.07);
        *wave = surface(seed, u * 0.25, v + u * 0.02) * 0.65 + fine * 0.35 - 0.5;
    }
    // Without this the seam of the repetition would show as a vertical line.
    for index in 0..16 {
        let share = index as f32 / 16.0;
        waves[index] = mix(waves[TABLE - 1 - index], waves[index], 0.5 + 0.5 * share);
    }
    waves
}

fn sample(waves: &[f32; TABLE], at: f32) -> f32 {
    let cell = floor(at);
    let (here, next) = (cell as usize & (TABLE - 1), (cell + 1) as usize & (TABLE - 1));
    mix(waves[here], waves[next], at - cell as f32)
}
