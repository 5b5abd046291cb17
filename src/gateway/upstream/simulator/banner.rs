//! The label along the lower edge.
//!
//! Decides that nobody can take the picture for the model's: every picture says what drew it.
//! Refuses to be switched off.

use super::canvas::Canvas;
use super::colour::Colour;
use super::font;
use super::number::{floor, smooth};

/// What every picture says.
pub(super) const LABEL: &str = "imagate simulator - not a model";

/// Writes the label and as much of the prompt as fits.
pub(super) fn paint(canvas: &mut Canvas, prompt: &str) {
    let (width, height) = (canvas.width as f32, canvas.height as f32);
    let letters = LABEL.len() as f32 * font::ADVANCE_CELLS;
    // A narrow picture gets a smaller label rather than a cut one.
    let cell = (2.8 * canvas.unit).min(width * 0.9 / letters);
    let small = cell * 0.8;
    let left = cell * 6.0;
    let second = height - small * (font::LINE_CELLS + 3.0);
    let first = second - cell * (font::LINE_CELLS + 1.5);
    shade(canvas, first - cell * 3.0, cell * 10.0);
    font::write(canvas, LABEL, (left, first), cell, Colour::hex(0xffffff));
    let room = (width - left * 2.0) / (font::ADVANCE_CELLS * small);
    let text = shorten(prompt, floor(room).max(0) as usize);
    font::write(canvas, &text, (left, second), small, Colour::hex(0xe3bd78));
}

/// Darkens the strip behind the letters, softly at its upper edge.
fn shade(canvas: &mut Canvas, top: f32, soft: f32) {
    let ink = Colour::hex(0x06080c);
    for y in floor(top - soft).max(0)..canvas.height {
        let alpha = smooth(top - soft, top + soft * 0.15, y as f32) * 0.8;
        for x in 0..canvas.width {
            canvas.blend(x, y, ink, alpha);
        }
    }
}

/// The prompt on one line of at most `room` letters.
fn shorten(prompt: &str, room: usize) -> String {
    let mut text = String::new();
    let mut length = 0;
    for word in prompt.split_whitespace() {
        for letter in word.chars().chain([' ']) {
            if length == room {
                let kept = text.trim_end().chars().count().min(room.saturating_sub(3));
                return text.chars().take(kept).chain("...".chars()).collect();
            }
            text.push(letter);
            length += 1;
        }
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prompt: &str, room: usize, expected: &str) {
        assert_eq!(shorten(prompt, room), expected);
    }

    #[test]
    fn a_prompt_is_cut_to_the_room_there_is() {
        check("a cat", 20, "a cat");
        check("  a\n\tcat  ", 20, "a cat");
        check("abcdefghij", 8, "abcde...");
        check("äöü äöü äöü", 6, "äöü...");
        check("", 10, "");
    }
}
