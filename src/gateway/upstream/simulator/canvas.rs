//! The pixels, and the few ways to put paint on them.
//!
//! Decides how shapes become pixels without stairs and gradients without bands.
//! Refuses to know what the shapes mean.

use super::colour::Colour;
use super::number::{byte, floor, ramp};
use super::skyline::Skyline;

/// An 8 by 8 order of thresholds: adding it before rounding hides the bands of a gradient,
/// and being periodic it still compresses well, which random noise would not.
const DITHER: [[u8; 8]; 8] = [
    [0, 32, 8, 40, 2, 34, 10, 42],
    [48, 16, 56, 24, 50, 18, 58, 26],
    [12, 44, 4, 36, 14, 46, 6, 38],
    [60, 28, 52, 20, 62, 30, 54, 22],
    [3, 35, 11, 43, 1, 33, 9, 41],
    [51, 19, 59, 27, 49, 17, 57, 25],
    [15, 47, 7, 39, 13, 45, 5, 37],
    [63, 31, 55, 23, 61, 29, 53, 21],
];

/// One RGB picture in the making.
pub(super) struct Canvas {
    pub(super) width: i32,
    pub(super) height: i32,
    /// Pixels in a unit; a picture is about 1000 units wide and high, so it looks alike at every size.
    pub(super) unit: f32,
    /// Sub-samples across an edge.
    pub(super) samples: i32,
    pixels: Vec<u8>,
    cover: Vec<f32>,
}

impl Canvas {
    /// A black picture. `width` times `height` times 3 has to fit, which the caller has checked.
    pub(super) fn new(width: i32, height: i32, samples: i32) -> Self {
        let area = width as usize * height as usize;
        Self {
            width,
            height,
            unit: (width as f32 * height as f32).sqrt() / 1000.0,
            samples,
            pixels: vec![0; area * 3],
            cover: vec![0.0; width as usize],
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.pixels
    }

    /// One row of pixels, three bytes each.
    fn row(&mut self, y: i32) -> &mut [u8] {
        let stride = self.width as usize * 3;
        let start = y.max(0) as usize * stride;
        self.pixels.get_mut(start..start + stride).unwrap_or_default()
    }

    /// The colour at a place, the nearest one at the edge.
    pub(super) fn get(&self, x: i32, y: i32) -> Colour {
        let (x, y) = (x.clamp(0, self.width - 1), y.clamp(0, self.height - 1));
        let at = (y as usize * self.width as usize + x as usize) * 3;
        match self.pixels.get(at..at + 3) {
            Some(&[red, green, blue]) => Colour([f32::from(red), f32::from(green), f32::from(blue)]),
            _ => Colour([0.0; 3]),
        }
    }

    pub(super) fn set(&mut self, x: i32, y: i32, colour: Colour) {
        self.blend(x, y, colour, 1.0);
    }

    /// Puts `colour` over what is there; outside the picture nothing happens.
    pub(super) fn blend(&mut self, x: i32, y: i32, colour: Colour, alpha: f32) {
        if x < 0 || y < 0 || x >= self.width || y >= self.height {
            return;
        }
        let at = (y as usize * self.width as usize + x as usize) * 3;
        if let Some(pixel) = self.pixels.get_mut(at..at + 3) {
            lay(pixel, colour, alpha, threshold(x, y));
        }
    }

    /// Fills everything under a skyline down to `bottom` with `paint(x, y, depth below the line)`.
    pub(super) fn under(&mut self, line: &Skyline, bottom: i32, paint: impl Fn(i32, i32, f32) -> Colour) {
        let top = floor(line.top).max(0);
        for y in top..bottom.min(self.height) {
            fill(self.row(y), y, line, &paint);
        }
    }

    /// Fills a shape that has one stretch per row: `span(y)` gives its left and right end.
    pub(super) fn shape(
        &mut self,
        (top, bottom): (f32, f32),
        span: impl Fn(f32) -> (f32, f32),
        paint: impl Fn(i32, i32) -> Colour,
    ) {
        for y in floor(top).max(0)..=floor(bottom).min(self.height - 1) {
            let Some((first, last)) = self.gather(y, (top, bottom), &span) else { continue };
            for x in first..=last {
                let alpha = self.cover.get_mut(x as usize).map_or(0.0, std::mem::take);
                self.blend(x, y, paint(x, y), alpha);
            }
        }
    }

    /// Adds up how much of each pixel of row `y` the shape covers.
    fn gather(&mut self, y: i32, (top, bottom): (f32, f32), span: impl Fn(f32) -> (f32, f32)) -> Option<(i32, i32)> {
        let (mut first, mut last) = (self.width, -1);
        let share = 1.0 / self.samples as f32;
        for sample in 0..self.samples {
            let at = y as f32 + (sample as f32 + 0.5) * share;
            if at < top || at >= bottom {
                continue;
            }
            let (left, right) = span(at);
            let (left, right) = (left.max(0.0), right.min(self.width as f32));
            if right <= left {
                continue;
            }
            let (from, to) = (floor(left), floor(right).min(self.width - 1));
            first = first.min(from);
            last = last.max(to);
            let columns = self.cover.get_mut(from as usize..=to as usize).unwrap_or_default();
            for (x, cover) in (from..).zip(columns) {
                let inside = (right - x as f32).min(1.0) - (left - x as f32).max(0.0);
                *cover = (*cover + inside.max(0.0) * share).min(1.0);
            }
        }
        (last >= first).then_some((first, last))
    }

    /// A filled circle.
    pub(super) fn disc(&mut self, (cx, cy): (f32, f32), radius: f32, paint: impl Fn(i32, i32) -> Colour) {
        let span = |y: f32| {
            let half = (radius * radius - (y - cy) * (y - cy)).max(0.0).sqrt();
            (cx - half, cx + half)
        };
        self.shape((cy - radius, cy + radius), span, paint);
    }

    /// A spot of light that fades outwards.
    pub(super) fn glow(&mut self, (cx, cy): (f32, f32), radius: f32, colour: Colour, strength: f32) {
        for y in floor(cy - radius)..=floor(cy + radius) {
            for x in floor(cx - radius)..=floor(cx + radius) {
                let (dx, dy) = (x as f32 + 0.5 - cx, y as f32 + 0.5 - cy);
                let fade = 1.0 - ramp(0.0, radius, (dx * dx + dy * dy).sqrt());
                self.blend(x, y, colour, fade * fade * strength);
            }
        }
    }
}

fn fill(row: &mut [u8], y: i32, line: &Skyline, paint: impl Fn(i32, i32, f32) -> Colour) {
    for (x, pixel) in (0..).zip(row.chunks_exact_mut(3)) {
        let (alpha, depth) = line.coverage(x, y as f32);
        if alpha > 0.0 {
            lay(pixel, paint(x, y, depth), alpha, threshold(x, y));
        }
    }
}

fn threshold(x: i32, y: i32) -> f32 {
    let line = DITHER.get((y & 7) as usize).copied().unwrap_or_default();
    let level = line.get((x & 7) as usize).copied().unwrap_or_default();
    f32::from(level) / 64.0
}

fn lay(pixel: &mut [u8], colour: Colour, alpha: f32, threshold: f32) {
    for (old, new) in pixel.iter_mut().zip(colour.0) {
        let below = f32::from(*old);
        *old = byte(below + (new - below) * alpha + threshold);
    }
}
