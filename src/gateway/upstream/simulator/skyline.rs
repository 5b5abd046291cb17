//! The upper edge of a piece of land: one height for every column.
//!
//! Decides how mountains, hills, dunes and tree lines run, and how far an edge covers a pixel.
//! Refuses to know colours.

use super::canvas::Canvas;
use super::number::{curve, curves, floor, layered, zigzag};

/// Heights are pixel rows, so a smaller number is higher up.
pub(super) struct Skyline {
    /// The highest point of the whole line.
    pub(super) top: f32,
    columns: Vec<Column>,
    samples: Vec<f32>,
    per_column: usize,
}

#[derive(Clone, Copy, Default)]
struct Column {
    high: f32,
    low: f32,
}

impl Skyline {
    /// `height(x)` gives the row of the edge; `x` is in units from the left.
    pub(super) fn new(canvas: &Canvas, height: impl Fn(f32) -> f32) -> Self {
        let scale = 1.0 / (canvas.samples as f32 * canvas.unit);
        let samples: Vec<f32> =
            (0..canvas.width * canvas.samples).map(|index| height((index as f32 + 0.5) * scale)).collect();
        let per_column = canvas.samples.max(1) as usize;
        let columns: Vec<Column> = samples.chunks_exact(per_column).map(Column::of).collect();
        let top = columns.iter().fold(f32::MAX, |top, column| top.min(column.high));
        Self { top, columns, samples, per_column }
    }

    /// How far the pixel in column `x` whose upper edge is at `y` is covered, and how deep it lies.
    pub(super) fn coverage(&self, x: i32, y: f32) -> (f32, f32) {
        let column = self.columns.get(x as usize).copied().unwrap_or_default();
        let depth = y + 0.5 - column.high;
        if y >= column.low {
            return (1.0, depth);
        }
        if y + 1.0 <= column.high {
            return (0.0, depth);
        }
        let start = x as usize * self.per_column;
        let samples = self.samples.get(start..start + self.per_column).unwrap_or_default();
        let covered: f32 = samples.iter().map(|edge| (y + 1.0 - edge).clamp(0.0, 1.0)).sum();
        (covered / self.per_column as f32, depth)
    }

    /// The row of the edge at pixel column `x`, the nearest one outside.
    pub(super) fn at(&self, x: f32) -> f32 {
        let last = self.columns.len().saturating_sub(1);
        let index = (floor(x).max(0) as usize).min(last);
        self.columns.get(index).map_or(0.0, |column| column.high)
    }
}

impl Column {
    fn of(samples: &[f32]) -> Self {
        let high = samples.iter().fold(f32::MAX, |most, sample| most.min(*sample));
        let low = samples.iter().fold(f32::MIN, |most, sample| most.max(*sample));
        Self { high, low }
    }
}

/// Peaks: ridges folded up out of a soft curve, roughened with corners. 0 to about 1.
pub(super) fn peaks(seed: u32, x: f32, octaves: u32) -> f32 {
    let folded = |octave: u32, scale: f32| {
        let value = zigzag(seed.wrapping_add(octave), x * scale) * 2.0 - 1.0;
        1.0 - value.abs()
    };
    let sharp = layered(octaves, 0.42, folded);
    let massif = curve(seed ^ 0x51, x * 0.45 + 7.3);
    sharp * 0.62 + massif * 0.55 - 0.17
}

/// Soft hills, 0 to 1.
pub(super) fn hills(seed: u32, x: f32, octaves: u32) -> f32 {
    curves(seed, x, octaves)
}

/// Dunes: long backs with one sharp crest each, 0 to about 1.
pub(super) fn dunes(seed: u32, x: f32) -> f32 {
    let back = |seed: u32, x: f32| {
        let value = curve(seed, x) * 2.0 - 1.0;
        1.0 - value.abs()
    };
    let large = back(seed, x);
    large * large * 0.75 + back(seed ^ 9, x * 2.1) * 0.14 + curve(seed ^ 5, x * 0.5) * 0.2
}
