//! Encodes pixels as sixel graphics: bands of six rows, and for each band one line of each color.
//!
//! The colors are those of a cube of six levels for each channel, mixed by ordered dithering. That is enough for a
//! preview, and needs no palette of the image.

use std::fmt::Write as _;

/// The number of levels of a channel. 6 x 6 x 6 colors are fewer than the 256 that terminals keep.
const LEVELS: u32 = 6;
const COLORS: usize = (LEVELS * LEVELS * LEVELS) as usize;
/// The number of rows of a band.
const BAND: u32 = 6;
/// The thresholds of ordered dithering with a matrix of 4 x 4, in sixteenths.
const THRESHOLDS: [[u32; 4]; 4] = [[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]];
/// A pixel below this opacity shows the background of the terminal.
const OPAQUE: u8 = 128;

/// Returns the sequence that draws the picture. `rgba` has four bytes for each pixel, row by row.
pub(super) fn encode(width: u32, height: u32, rgba: &[u8]) -> String {
    let pixels = rgba.as_chunks().0;
    let colors: Vec<Option<usize>> =
        (0..).zip(pixels).map(|(index, pixel)| color_at(index % width.max(1), index / width.max(1), *pixel)).collect();
    // The 1 keeps the background where no pixel is drawn.
    let mut text = format!("\x1bP0;1;0q\"1;1;{width};{height}");
    for index in (0..COLORS).filter(|index| colors.contains(&Some(*index))) {
        let [red, green, blue] = levels(index).map(|level| level * 100 / (LEVELS - 1));
        // Writing into a string cannot fail.
        let _ = write!(text, "#{index};2;{red};{green};{blue}");
    }
    let band_length = (width * BAND) as usize;
    for (number, band) in colors.chunks(band_length.max(1)).enumerate() {
        if number > 0 {
            text.push('-');
        }
        push_band(&mut text, width as usize, band);
    }
    text.push_str("\x1b\\");
    text
}

fn push_band(text: &mut String, width: usize, band: &[Option<usize>]) {
    // One bit for each row of a column, for each color.
    let mut columns: Vec<Vec<u8>> = vec![Vec::new(); COLORS];
    for (position, color) in band.iter().enumerate() {
        let Some(color) = *color else { continue };
        let bits = &mut columns[color];
        if bits.is_empty() {
            bits.resize(width, 0);
        }
        bits[position % width] |= 1 << (position / width);
    }
    let mut is_first = true;
    for (color, bits) in columns.iter().enumerate().filter(|(_, bits)| !bits.is_empty()) {
        let _ = write!(text, "{}#{color}", if is_first { "" } else { "$" });
        is_first = false;
        for run in bits.chunk_by(|one, other| one == other) {
            let character = char::from(b'?' + run[0]);
            match run.len() {
                length @ 1..=3 => text.extend(std::iter::repeat_n(character, length)),
                length => drop(write!(text, "!{length}{character}")),
            }
        }
    }
}

/// Returns the color of a pixel, or `None` if it is transparent.
fn color_at(x: u32, y: u32, [red, green, blue, alpha]: [u8; 4]) -> Option<usize> {
    if alpha < OPAQUE {
        return None;
    }
    let threshold = THRESHOLDS[(y % 4) as usize][(x % 4) as usize];
    // The value is between two levels; the threshold decides which of them the pixel gets.
    let level = |value: u8| (u32::from(value) * (LEVELS - 1) * 16 + threshold * 255 + 127) / (255 * 16);
    let [red, green, blue] = [red, green, blue].map(|value| level(value).min(LEVELS - 1));
    Some(((red * LEVELS + green) * LEVELS + blue) as usize)
}

fn levels(index: usize) -> [u32; 3] {
    let index = u32::try_from(index).unwrap_or(0);
    [index / (LEVELS * LEVELS), index / LEVELS % LEVELS, index % LEVELS]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the palette index of each pixel that a terminal would draw.
    fn decode(text: &str) -> (usize, usize, Vec<Option<usize>>) {
        let body = text.strip_prefix("\x1bP0;1;0q\"1;1;").unwrap().strip_suffix("\x1b\\").unwrap();
        let start = body.find('#').unwrap_or(body.len());
        let (width, height) = body[..start].split_once(';').unwrap();
        let (width, height): (usize, usize) = (width.parse().unwrap(), height.parse().unwrap());
        let mut pixels = vec![None; width * height];
        let (mut x, mut y, mut color, mut count) = (0, 0, 0, 1);
        let mut rest = &body[start..];
        while let Some(character) = rest.chars().next() {
            rest = &rest[1..];
            let digits = rest.len() - rest.trim_start_matches(|next: char| next.is_ascii_digit() || next == ';').len();
            match character {
                '#' => color = first_number(&rest[..digits]),
                '!' => count = first_number(&rest[..digits]),
                '$' => x = 0,
                '-' => (x, y) = (0, y + 6),
                bits => {
                    let bits = u8::try_from(bits).unwrap() - b'?';
                    let rows = (0..6).filter(|row| bits & (1 << row) != 0);
                    let drawn = rows.flat_map(|row| (x..x + count).map(move |column| (y + row) * width + column));
                    drawn.for_each(|pixel| assert_eq!(pixels[pixel].replace(color), None, "drawn twice"));
                    (x, count) = (x + count, 1);
                }
            }
            rest = &rest[digits..];
        }
        (width, height, pixels)
    }

    fn first_number(numbers: &str) -> usize {
        numbers.split(';').next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_picture_can_be_decoded_to_its_colors() {
        let (width, height) = (50_u32, 21_u32);
        let rgba: Vec<u8> = (0..height)
            .flat_map(|y| (0..width).flat_map(move |x| [x * 5, y * 12, 255 - x * 5, if x < 4 { 0 } else { 255 }]))
            .map(|value| u8::try_from(value).unwrap())
            .collect();
        let (decoded_width, decoded_height, pixels) = decode(&encode(width, height, &rgba));
        assert_eq!((decoded_width, decoded_height), (50, 21));
        let mut error = [0_i64; 3];
        for (index, (pixel, drawn)) in rgba.as_chunks::<4>().0.iter().zip(&pixels).enumerate() {
            assert_eq!(drawn.is_none(), index % 50 < 4, "transparent pixels are not drawn");
            let Some(drawn) = drawn else { continue };
            for (channel, level) in levels(*drawn).into_iter().enumerate() {
                let difference = i64::from(level * 51) - i64::from(pixel[channel]);
                assert!(difference.abs() <= 51, "{index} {channel}: {difference}");
                error[channel] += difference;
            }
        }
        assert!(error.iter().all(|error| error.abs() / (46 * 21) <= 4), "the colors are right on average: {error:?}");
    }

    #[test]
    fn runs_are_shortened_and_bands_have_six_rows() {
        let red = [255, 0, 0, 255].repeat(5 * 7);
        assert_eq!(encode(5, 7, &red), "\x1bP0;1;0q\"1;1;5;7#180;2;100;0;0#180!5~-#180!5@\x1b\\");
    }
}
