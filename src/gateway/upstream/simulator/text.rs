//! The text of the test image: the name of the simulator, the properties of the image, and the prompt.
//!
//! The module ensures that no test image can be mistaken for an image of a model: every image that is large enough for
//! text names the simulator, and this cannot be disabled.

use super::TestImage;
use super::bitmap_font::{ADVANCE_CELLS, HEIGHT_CELLS, cells};
use super::render::{BYTES_PER_PIXEL, MARGIN_UNITS, pixels};

/// The first line of every image.
const LABEL: &str = "imagate simulator - not a model";

/// The distance from the top of a line to the top of the next line, in cells.
const PITCH_CELLS: usize = 11;

/// One line of text.
#[derive(Debug)]
pub(super) struct TextLine {
    pub(super) text: String,
    /// The upper left corner of the first letter.
    pub(super) corner: (usize, usize),
    /// The edge of a cell of the font, in pixels.
    pub(super) cell_size: usize,
    pub(super) ink: [u8; BYTES_PER_PIXEL],
}

/// The text on its dark background.
#[derive(Debug)]
pub(super) struct TextPanel {
    left: usize,
    right: usize,
    top: usize,
    bottom: usize,
    pub(super) lines: Vec<TextLine>,
}

// === impl TextPanel ===

impl TextPanel {
    pub(super) fn new(image: &TestImage<'_>, unit: usize) -> Self {
        let (width, height) = (image.width as usize, image.height as usize);
        let (left, right) = (MARGIN_UNITS * unit, width.saturating_sub(MARGIN_UNITS * unit));
        let (small, pitch) = ((unit * 3).div_ceil(4), PITCH_CELLS * unit);
        let properties = image_properties(image);
        let fixed_height = pitch + properties.len() * PITCH_CELLS * small + 16 * unit;
        // The panel ends above the colour bars.
        let available_height = (height - height / 10).saturating_sub(32 * unit);
        let columns = right.saturating_sub(left + 12 * unit) / (ADVANCE_CELLS * unit);
        let prompt = wrap(image.prompt, columns.max(4), (available_height.saturating_sub(fixed_height) / pitch).max(1));
        let size = fixed_height + prompt.len() * pitch;
        let top = MARGIN_UNITS * unit + available_height.saturating_sub(size) / 2;
        let mut panel = Self { left, right, top, bottom: top + size, lines: Vec::new() };
        let y = panel.write([LABEL.to_owned()], top + 6 * unit, unit, [255, 255, 255]);
        let y = panel.write(properties, y, small, [176, 190, 204]);
        panel.write(prompt, y + 6 * unit, unit, [255, 217, 138]);
        panel
    }

    /// Adds lines from `y` downwards, and returns the position of the line after them.
    fn write(
        &mut self,
        texts: impl IntoIterator<Item = String>,
        y: usize,
        cell: usize,
        ink: [u8; BYTES_PER_PIXEL],
    ) -> usize {
        texts.into_iter().fold(y, |y, text| {
            self.lines.push(TextLine { text, corner: (self.left + self.left / 2, y), cell_size: cell, ink });
            y + PITCH_CELLS * cell
        })
    }

    /// Draws row `y` of the panel over `row`.
    pub(super) fn render(&self, y: usize, row: &mut [u8]) {
        if !(self.top..self.bottom).contains(&y) {
            return;
        }
        for byte in pixels(row, self.left, self.right) {
            // The image shows through at an eighth of its brightness.
            *byte = *byte / 8 + 12;
        }
        for line in &self.lines {
            line.render(y, row);
        }
    }
}

// === impl TextLine ===

impl TextLine {
    fn render(&self, y: usize, row: &mut [u8]) {
        let (left, top) = self.corner;
        if !(top..top + HEIGHT_CELLS * self.cell_size).contains(&y) {
            return;
        }
        for (index, letter) in self.text.chars().enumerate() {
            let cells = cells(letter, (y - top) / self.cell_size).iter().enumerate();
            for (column, _) in cells.filter(|(_, cell)| **cell == b'#') {
                let x = left + (index * ADVANCE_CELLS + column) * self.cell_size;
                let ink = pixels(row, x, x + self.cell_size).chunks_exact_mut(BYTES_PER_PIXEL);
                ink.for_each(|pixel| pixel.copy_from_slice(&self.ink));
            }
        }
    }
}

/// Returns the properties of the image in two lines.
fn image_properties(image: &TestImage<'_>) -> [String; 2] {
    let (format, quality) = (image.format.as_str(), image.quality.as_str());
    let (kind, index) = image.partial.map_or(("image", image.index), |partial| ("partial", partial));
    [
        format!("{}x{} {format}, quality {quality}", image.width, image.height),
        format!("seed {:016x}, {kind} {}", image.seed(), index.saturating_add(1)),
    ]
}

/// Returns the text in at most `rows` lines of at most `columns` letters. Three dots replace text that does not fit.
fn wrap(text: &str, columns: usize, rows: usize) -> Vec<String> {
    let mut lines = vec![Vec::new()];
    for word in text.split_whitespace() {
        // At most one line more than fits is copied, because a word can be as long as a request.
        let letters: Vec<char> = word.chars().take(columns * (rows + 1)).collect();
        for part in letters.chunks(columns) {
            match lines.last_mut() {
                Some(line) if line.is_empty() => line.extend(part),
                Some(line) if line.len() + 1 + part.len() <= columns => line.extend([&[' '], part].concat()),
                _ => lines.push(part.to_vec()),
            }
        }
        if lines.len() > rows {
            break;
        }
    }
    if lines.len() > rows {
        lines.truncate(rows);
        if let Some(last) = lines.last_mut() {
            last.truncate(columns.saturating_sub(3));
            last.extend("...".chars());
        }
    }
    lines.into_iter().map(String::from_iter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prompt: &str, (columns, rows): (usize, usize), expected: &[&str]) {
        assert_eq!(wrap(prompt, columns, rows), expected);
    }

    #[test]
    fn a_prompt_is_wrapped_at_words_and_truncated() {
        check("a cat", (20, 3), &["a cat"]);
        check("  a\n\tcat  ", (20, 3), &["a cat"]);
        check("a cat on a mat", (6, 3), &["a cat", "on a", "mat"]);
        check("a cat on a mat", (6, 2), &["a cat", "on ..."]);
        check("abcdefghij", (8, 2), &["abcdefgh", "ij"]);
        check("abcdefghij", (8, 1), &["abcde..."]);
        check("äöü äöü äöü", (6, 1), &["äöü..."]);
        check("", (10, 2), &[""]);
    }
}
