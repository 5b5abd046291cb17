//! The letters of the test image: a bitmap font of 5 by 9 cells for printable ASCII.
//!
//! The table is part of this program and nothing is read from the system, so the text is the same on every machine.

use crate::words::lines_of;

/// The width of a letter and the gap after it, in cells.
pub(super) const ADVANCE_CELLS: usize = 6;
/// The height of a letter, from the top of a capital to the bottom of a `g`, in cells.
pub(super) const HEIGHT_CELLS: usize = 9;

const WIDTH_CELLS: usize = 5;
const LETTERS_PER_BLOCK: usize = 16;
/// The index of the glyph of a box, which stands for every character outside 32..=126.
const BOX_INDEX: usize = 95;

/// Returns one row of the cells of a letter, from the top. `#` is a filled cell.
pub(super) fn cells(letter: char, row: usize) -> &'static [u8] {
    let index = (letter as usize).checked_sub(' ' as usize).filter(|&index| index < BOX_INDEX).unwrap_or(BOX_INDEX);
    let line = index / LETTERS_PER_BLOCK * HEIGHT_CELLS + row;
    let start = index % LETTERS_PER_BLOCK * (WIDTH_CELLS + 1);
    GLYPHS.get(line).and_then(|line| line.as_bytes().get(start..start + WIDTH_CELLS)).unwrap_or_default()
}

/// Six blocks of sixteen letters, in the order of their code points, nine lines each: seven above the base line and two below it.
const GLYPHS: &[&str] = lines_of!("bitmap_font.txt");

#[cfg(test)]
mod tests {
    use super::*;

    fn glyph(letter: char) -> Vec<&'static [u8]> {
        (0..HEIGHT_CELLS).map(|row| cells(letter, row)).collect()
    }

    #[test]
    fn every_printable_letter_has_its_own_glyph() {
        let all: Vec<_> = (' '..='~').map(glyph).collect();
        for (index, glyph_rows) in all.iter().enumerate() {
            assert!(glyph_rows.iter().all(|row| row.len() == WIDTH_CELLS), "letter {index}");
            assert!(!all[..index].contains(glyph_rows), "letter {index} has the glyph of an earlier letter");
        }
    }

    #[test]
    fn a_character_without_a_glyph_is_a_box() {
        let expected = ["#####", "#...#", "#...#", "#...#", "#...#", "#...#", "#####", ".....", "....."];
        for letter in ['é', '漢', '\u{7f}', '\n', '🦊'] {
            assert_eq!(glyph(letter).concat(), expected.concat().as_bytes());
        }
    }
}
