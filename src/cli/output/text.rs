//! Fits text to a width. A character of an East Asian script can take two columns, and a combining character none.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The mark of a text that was shortened; it takes one column.
const ELLIPSIS: char = '…';

/// Returns the number of columns that the text takes.
pub(super) fn columns(text: &str) -> usize {
    text.width()
}

/// Returns the text, or its beginning and an ellipsis if it takes more columns than `width`.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut shortened = String::new();
    let mut used = 1;
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used > width {
            break;
        }
        shortened.push(character);
    }
    shortened.truncate(shortened.trim_end().len());
    shortened.push(ELLIPSIS);
    shortened
}

/// Appends spaces until the text takes `width` columns.
pub(super) fn pad(text: &mut String, used: usize, width: usize) {
    text.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
}

/// Breaks lines between words, so that none takes more columns than `width`. A word that is longer than a line, such as
/// an address, stays whole, and colors take no room. Continued lines are indented; the first line begins in the column `start`.
pub(super) fn wrap(text: &str, width: Option<usize>, start: usize, indentation: usize) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut wrapped = String::new();
    let mut used = start;
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            wrapped.push('\n');
            used = 0;
        }
        for (position, word) in line.split(' ').enumerate() {
            let length = columns(&anstream::adapter::strip_str(word).to_string());
            if position > 0 && used + 1 + length > width {
                wrapped.push('\n');
                pad(&mut wrapped, 0, indentation);
                used = indentation;
            } else if position > 0 {
                wrapped.push(' ');
                used += 1;
            }
            wrapped.push_str(word);
            used += length;
        }
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_text_takes_no_more_columns_than_there_are() {
        for (text, width, expected) in [
            ("lighthouse", 10, "lighthouse"),
            ("lighthouse", 6, "light…"),
            ("a light house", 9, "a light…"),
            ("灯台の絵", 8, "灯台の絵"),
            ("灯台の絵", 7, "灯台の…"),
            ("灯台の絵", 6, "灯台…"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
        ] {
            let shortened = shorten(text, width);
            assert_eq!((shortened.as_str(), columns(&shortened) <= width), (expected, true), "{text} {width}");
        }
    }

    #[test]
    fn lines_break_between_words_and_long_words_stay_whole() {
        let wrapped = wrap("one two three\nhttps://example.com/long/address four", Some(12), 2, 2);
        assert_eq!(wrapped, "one two\n  three\nhttps://example.com/long/address\n  four");
        assert_eq!(wrap("one two three", None, 2, 2), "one two three");
    }
}
