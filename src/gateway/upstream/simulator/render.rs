//! The pixels of the test image, row by row: a gradient, a grid, a circle and colour bars, and the text over them.
//!
//! The module decides how the image looks. It must not know how a file is encoded. All values are integers, so the same
//! request gives the same image on every machine.

use super::TestImage;
use super::text::TextPanel;

/// The number of bytes of a pixel, one each for red, green and blue.
pub(super) const BYTES_PER_PIXEL: usize = 3;

/// The width of the margins around the text and beside and below the bars, in units.
pub(super) const MARGIN_UNITS: usize = 12;

/// The number of hues: red is 0, green 512, blue 1024, and 1536 would be red again.
const HUES: usize = 1536;

/// The distance between the hues of the upper left and the lower right corner.
const CORNER_HUE_DISTANCE: usize = 300;

/// The bars from left to right: white, yellow, cyan, green, magenta, red, blue and black. Each has one bit for red, one
/// for green and one for blue.
const BAR_COLOURS: [u8; 8] = [0b111, 0b110, 0b011, 0b010, 0b101, 0b100, 0b001, 0b000];

/// The number of grey steps below the bars.
const GREY_STEPS: usize = 16;

/// A test image that can return any of its rows.
pub(super) struct RowRenderer {
    pub(super) width: usize,
    pub(super) height: usize,
    /// The length of one unit, in pixels. Margins and lines are multiples or fractions of it, so that the image looks
    /// alike at every size.
    unit: usize,
    /// The distance between the lines of the grid, in pixels.
    grid_spacing: usize,
    /// The side length of the squares that make up an intermediate image, in pixels; 1 for a finished image.
    block_size: usize,
    /// The gradient, twice as wide as the image. Each row of the background is a section of it, which begins further to
    /// the right in lower rows.
    gradient: Vec<u8>,
    /// One row of pixels of the colour bars, and one of the grey steps.
    bars: [Vec<u8>; 2],
    pub(super) panel: TextPanel,
}

// === impl RowRenderer ===

impl RowRenderer {
    /// Prepares an image. Neither its width nor its height may be 0.
    pub(super) fn new(image: &TestImage<'_>) -> Self {
        let (width, height) = (image.width as usize, image.height as usize);
        let short_side = width.min(height);
        // With this unit, the label (31 letters of 6 cells) and its margins fit, unless the image is too small for any
        // text.
        let unit = (width / 222).min(height / 150).max(1);
        let hue = usize::try_from(image.seed() % HUES as u64).unwrap_or_default();
        let (first, last) = (colour_of_hue(hue, 70, 225), colour_of_hue(hue + CORNER_HUE_DISTANCE, 30, 130));
        let gradient = (0..width * 2).flat_map(|x| mix_colours(first, last, x, width * 2));
        let inner_width = width.saturating_sub(2 * MARGIN_UNITS * unit).max(1);
        let bar = |x: usize| {
            [4, 2, 1].map(|bit| if BAR_COLOURS[x * BAR_COLOURS.len() / inner_width] & bit == 0 { 0 } else { 191 })
        };
        let grey = |x: usize| {
            [u8::try_from(x * GREY_STEPS / inner_width * 255 / (GREY_STEPS - 1)).unwrap_or(u8::MAX); BYTES_PER_PIXEL]
        };
        Self {
            width,
            height,
            unit,
            grid_spacing: (short_side / image.quality.choose(8, 16, 32)).max(1),
            // The first intermediate image has 4 squares along its short side, and each one after it twice as many.
            block_size: image.partial.map_or(1, |partial| (short_side >> partial.saturating_add(2).min(31)).max(2)),
            gradient: gradient.collect(),
            bars: [(0..inner_width).flat_map(bar).collect(), (0..inner_width).flat_map(grey).collect()],
            panel: TextPanel::new(image, unit),
        }
    }

    /// Writes row `y`, whose length is the width of the image.
    pub(super) fn render(&self, y: usize, row: &mut [u8]) {
        let start = (y - y % self.block_size) * self.width / self.height * BYTES_PER_PIXEL;
        if let Some(section) = self.gradient.get(start..start + row.len()) {
            row.copy_from_slice(section);
        }
        if self.block_size > 1 {
            for square in row.chunks_mut(self.block_size * BYTES_PER_PIXEL) {
                let (first, remaining) = square.split_at_mut(BYTES_PER_PIXEL);
                remaining.chunks_mut(BYTES_PER_PIXEL).for_each(|pixel| pixel.copy_from_slice(first));
            }
        } else {
            self.draw_lines(y, row);
        }
        let bar_height = self.height / 10;
        let rows_above_margin = (self.height - y).saturating_sub(MARGIN_UNITS * self.unit);
        if (1..=bar_height).contains(&rows_above_margin) {
            let bars = if rows_above_margin * 3 > bar_height { &self.bars[0] } else { &self.bars[1] };
            let inner_pixels = pixels(row, MARGIN_UNITS * self.unit, self.width);
            inner_pixels.iter_mut().zip(bars).for_each(|(byte, bar)| *byte = *bar);
        }
        self.panel.render(y, row);
    }

    /// Draws the grid, the circle in the middle and the frame.
    fn draw_lines(&self, y: usize, row: &mut [u8]) {
        let (centre_x, centre_y, line_width) = (self.width / 2, self.height / 2, (self.unit / 4).max(1));
        // The grid is aligned so that two of its lines cross in the centre of the image.
        if (y + self.grid_spacing - centre_y % self.grid_spacing) % self.grid_spacing < line_width {
            lighten(row, 7);
        } else {
            for x in (centre_x % self.grid_spacing..self.width).step_by(self.grid_spacing) {
                lighten(pixels(row, x, x + line_width), 7);
            }
        }
        let radius = self.width.min(self.height) * 7 / 16;
        let half_chord = |radius: usize| radius.pow(2).checked_sub(y.abs_diff(centre_y).pow(2)).map(usize::isqrt);
        if let Some(outer) = half_chord(radius) {
            let inner = half_chord(radius.saturating_sub(line_width * 2)).unwrap_or_default();
            lighten(pixels(row, centre_x - outer, centre_x - inner), 2);
            lighten(pixels(row, centre_x + inner, centre_x + outer), 2);
        }
        let (inset, end) = (4 * self.unit, self.width.saturating_sub(4 * self.unit));
        let edge_distance = y.min(self.height - 1 - y);
        if (inset..inset + line_width * 2).contains(&edge_distance) {
            lighten(pixels(row, inset, end), 1);
        } else if edge_distance >= inset {
            lighten(pixels(row, inset, inset + line_width * 2), 1);
            lighten(pixels(row, end.saturating_sub(line_width * 2), end), 1);
        }
    }
}

/// Returns the bytes of the pixels `start..end`, as far as the row has them.
pub(super) fn pixels(row: &mut [u8], start: usize, end: usize) -> &mut [u8] {
    let end = row.len().min(end * BYTES_PER_PIXEL);
    row.get_mut(start * BYTES_PER_PIXEL..end).unwrap_or_default()
}

/// Moves every channel of the pixels towards white, by `1 / share` of its distance to white.
fn lighten(pixels: &mut [u8], share: u8) {
    for byte in pixels {
        *byte += (u8::MAX - *byte) / share;
    }
}

/// Returns a colour of this hue, whose channels lie between `low` and `high`.
fn colour_of_hue(hue: usize, low: usize, high: usize) -> [usize; BYTES_PER_PIXEL] {
    [0, HUES * 2 / 3, HUES / 3].map(|channel_offset| {
        let from_cyan = ((hue + channel_offset) % HUES).abs_diff(HUES / 2);
        low + (high - low) * from_cyan.clamp(HUES / 6, HUES / 3).abs_diff(HUES / 6) / (HUES / 6)
    })
}

/// Mixes two colours: returns the colour at `part / whole` of the way from `first` to `last`.
fn mix_colours(
    first: [usize; BYTES_PER_PIXEL],
    last: [usize; BYTES_PER_PIXEL],
    part: usize,
    whole: usize,
) -> [u8; BYTES_PER_PIXEL] {
    [0, 1, 2].map(|channel| {
        let sum = first[channel] * (whole - part) + last[channel] * part;
        u8::try_from(sum / whole).unwrap_or(u8::MAX)
    })
}
