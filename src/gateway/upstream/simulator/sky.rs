//! The sky: gradient, glow, clouds, stars, northern lights, sun or moon.
//!
//! Decides everything above the horizon that is soft, on a coarse grid that is stretched smoothly:
//! a cloud costs one evaluation per cell instead of one per pixel.
//! Refuses to know land and water.

use super::canvas::Canvas;
use super::colour::{Colour, Mood, Palette};
use super::number::{Dice, curves, floor, mix, smooth, surfaces};

/// Where the light stands and how large it is, in pixels.
#[derive(Clone, Copy)]
pub(super) struct Light {
    pub(super) x: f32,
    pub(super) y: f32,
    pub(super) radius: f32,
}

/// What the sky has to know.
pub(super) struct Sky<'a> {
    pub(super) palette: &'a Palette,
    pub(super) mood: Mood,
    pub(super) light: Light,
    pub(super) horizon: f32,
    pub(super) clouds: f32,
    /// Cells across the picture.
    pub(super) cells: i32,
    pub(super) octaves: u32,
}

struct Grid {
    columns: i32,
    cell: f32,
    colours: Vec<Colour>,
}

impl Sky<'_> {
    /// Paints everything above the horizon.
    pub(super) fn paint(&self, canvas: &mut Canvas, dice: &Dice) {
        let grid = self.grid(canvas, &mut dice.fork(11));
        stretch(canvas, &grid, floor(self.horizon) + 1);
        if self.palette.night {
            self.stars(canvas, &mut dice.fork(12));
        }
        self.disc(canvas, dice.fork(13).seed());
    }

    fn grid(&self, canvas: &Canvas, dice: &mut Dice) -> Grid {
        let cell = (canvas.width as f32 / self.cells as f32).max(2.0);
        let columns = floor(canvas.width as f32 / cell) + 2;
        let rows = floor(self.horizon / cell) + 3;
        let (clouds, lights) = (dice.seed(), dice.seed());
        let mut colours = Vec::with_capacity((columns * rows) as usize);
        for row in 0..rows {
            for column in 0..columns {
                let (x, y) = (column as f32 * cell, row as f32 * cell);
                let place = (x / canvas.unit, y / self.horizon);
                let air = self.northern_light(self.air(x, y, canvas.unit), lights, place);
                colours.push(self.cloud(air, clouds, place));
            }
        }
        Grid { columns, cell, colours }
    }

    /// Gradient and the glow around the light.
    fn air(&self, x: f32, y: f32, unit: f32) -> Colour {
        let base = self.palette.sky_at((y / self.horizon).clamp(0.0, 1.0));
        let (dx, dy) = ((x - self.light.x) / unit, (y - self.light.y) / unit);
        let squared = dx * dx + dy * dy;
        let reach = if self.palette.night { 5_000.0 } else { 14_000.0 };
        let near = 1.0 / (1.0 + squared / reach);
        let wide = 1.0 / (1.0 + (dx * dx * 0.35 + dy * dy * 1.6) / (reach * 6.0));
        let strength = if self.palette.night { 0.45 } else { 0.62 };
        let halo = self.palette.light.mix(self.palette.sky[3], 0.35);
        base.mix(halo, (near * near * 0.75 + wide * wide * 0.42) * strength)
    }

    /// Long soft clouds whose side towards the light is bright.
    fn cloud(&self, below: Colour, seed: u32, (x, t): (f32, f32)) -> Colour {
        let room = smooth(0.0, 0.12, t) * 0.5 + 0.5;
        let place = room * (1.0 - smooth(0.78, 1.0, t)) * self.clouds;
        if place <= 0.01 {
            return below;
        }
        // Rows close up towards the horizon, as a ceiling of clouds does.
        let depth = 1.0 / (1.35 - t);
        let (u, v) = (x * 0.0034 * (0.6 + 0.4 * depth), depth * 3.3);
        let bend = surfaces(seed ^ 77, u * 0.8, v * 0.8, 2) * 1.3;
        let density = surfaces(seed, u + bend, v + bend * 0.4, self.octaves);
        let cut = 0.72 - 0.34 * self.clouds;
        let alpha = smooth(cut, cut + 0.24, density) * place.min(0.8);
        if alpha <= 0.0 {
            return below;
        }
        // Thinner a step down towards the horizon's light than here: that side is lit.
        let ahead = surfaces(seed, u + bend, v + bend * 0.4 + 0.22, 3);
        let lit = (0.5 + (density - ahead) * 3.2).clamp(0.0, 1.0);
        let [bright, shade] = self.palette.cloud;
        below.mix(shade.mix(bright, lit), alpha)
    }

    /// Curtains of light: each hangs from a wandering line and fades upwards.
    fn northern_light(&self, below: Colour, seed: u32, (x, t): (f32, f32)) -> Colour {
        let mut colour = below;
        if self.mood != Mood::Aurora {
            return colour;
        }
        for curtain in 0..3_u32 {
            let key = seed.wrapping_add(curtain * 31);
            let order = curtain as f32;
            let foot = 0.42 + order * 0.13 + (curves(key, x * 0.0021, 2) - 0.5) * 0.55;
            let height = 0.24 + 0.3 * curves(key ^ 3, x * 0.004, 2);
            let up = (foot - t) / height;
            if up < -0.12 {
                continue;
            }
            let folds = 0.35 + 0.65 * curves(key ^ 5, x * 0.022, 3);
            let shine = smooth(-0.12, 0.05, up) * (1.0 - smooth(0.0, 1.0, up));
            let hue = Colour::hex(0x3dffa0).mix(Colour::hex(0x9a5cff), smooth(0.15, 0.8, up));
            colour = colour.plus(hue, shine * shine * folds * mix(0.62, 0.38, order * 0.5));
        }
        colour
    }

    fn stars(&self, canvas: &mut Canvas, dice: &mut Dice) {
        let (width, unit) = (canvas.width as f32, canvas.unit);
        let count = floor(width * self.horizon / (unit * unit) / 900.0);
        for _ in 0..count {
            let (x, t) = (dice.unit() * width, dice.unit());
            let rank = dice.unit();
            let fade = 1.0 - smooth(0.55, 1.0, t);
            let size = (0.75 + 1.9 * rank * rank * rank * rank * rank * rank) * unit;
            let warmth = Colour::hex(0xcfe0ff).mix(Colour::hex(0xfff0d0), dice.unit());
            canvas.glow((x, t * self.horizon), size.max(1.0), warmth, fade * (0.25 + 0.75 * rank));
        }
    }

    fn disc(&self, canvas: &mut Canvas, seed: u32) {
        let Light { x, y, radius } = self.light;
        let (night, light) = (self.palette.night, self.palette.light);
        if night {
            canvas.glow((x, y), radius * 5.0, light, 0.22);
        }
        let spots = light.mix(self.palette.sky[2], 0.32);
        canvas.disc((x, y), radius, |px, py| {
            if !night {
                return light;
            }
            let (u, v) = ((px as f32 - x) / radius, (py as f32 - y) / radius);
            let plain = smooth(0.5, 0.68, surfaces(seed, u * 1.7 + 5.0, v * 1.7 + 5.0, 3));
            light.mix(spots, plain * 0.75)
        });
    }
}

/// Spreads the grid over the picture, straight between its points.
fn stretch(canvas: &mut Canvas, grid: &Grid, bottom: i32) {
    let width = canvas.width;
    let mut line = vec![Colour([0.0; 3]); grid.columns as usize];
    for y in 0..bottom.min(canvas.height) {
        let at = y as f32 / grid.cell;
        let row = floor(at);
        let start = (row * grid.columns) as usize;
        let (upper, lower) = grid.colours.split_at((start + line.len()).min(grid.colours.len()));
        let upper = upper.get(start..).unwrap_or_default();
        for ((into, above), below) in line.iter_mut().zip(upper).zip(lower) {
            *into = above.mix(*below, at - row as f32);
        }
        for x in 0..width {
            let at = x as f32 / grid.cell;
            let column = floor(at);
            if let Some(&[left, right]) = line.get(column as usize..column as usize + 2) {
                canvas.set(x, y, left.mix(right, at - column as f32));
            }
        }
    }
}
