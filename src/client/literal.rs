//! Sizes as literals, checked while the program is compiled.

use crate::image::{Size, SizeError};

/// A [`Size`](crate::image::Size) from a literal, checked while the program is compiled.
///
/// ```
/// let size = imagate::size!("1536x1024");
/// assert_eq!(size.width(), 1536);
/// ```
///
/// A size that breaks one of the four size rules (see [`SizeError`](crate::image::SizeError)) does not compile:
///
/// ```compile_fail
/// let size = imagate::size!("1000x1000");
/// ```
#[macro_export]
macro_rules! size {
    ($text:literal) => {
        const { $crate::client::literal::size($text) }
    };
}

/// The function behind [`size!`](crate::size); only useful in a constant.
///
/// # Panics
///
/// Panics if the text is not a legal size; in a constant that is a compile error.
#[doc(hidden)]
#[must_use]
#[expect(clippy::panic, reason = "evaluated by the compiler, where a panic is the error message")]
pub const fn size(text: &str) -> Size {
    let bytes = text.as_bytes();
    let (width, separator) = parse_edge(bytes, 0);
    assert!(
        separator > 0 && separator < bytes.len() && bytes[separator] == b'x',
        "expected `<width>x<height>`, such as \"1536x1024\""
    );
    let (height, end) = parse_edge(bytes, separator + 1);
    assert!(end > separator + 1 && end == bytes.len(), "expected `<width>x<height>`, such as \"1536x1024\"");
    match Size::new(width, height) {
        Ok(size) => size,
        Err(SizeError::Edge) => panic!("size rule 1: an edge is too long"),
        Err(SizeError::Grid) => panic!("size rule 2: width or height is not a multiple of 16"),
        Err(SizeError::Ratio) => panic!("size rule 3: the long edge is too long for the short one"),
        Err(SizeError::Pixels) => panic!("size rule 4: too few or too many pixels"),
        Err(SizeError::Grammar) => panic!("expected `<width>x<height>`, such as \"1536x1024\""),
    }
}

/// Returns the number that begins at `start` and the index after its last digit. A leading zero is not read as a digit.
/// A number that exceeds `u32` becomes `u32::MAX`, which is too long for any edge as well.
const fn parse_edge(bytes: &[u8], start: usize) -> (u32, usize) {
    let mut value: u32 = 0;
    let mut index = start;
    while index < bytes.len() && bytes[index].is_ascii_digit() && !(index == start && bytes[index] == b'0') {
        value = value.saturating_mul(10).saturating_add((bytes[index] - b'0') as u32);
        index += 1;
    }
    (value, index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_equals_the_parsed_size() {
        for text in ["1024x640", "3840x2160", "2880x2880", "1536x864"] {
            assert_eq!(text.parse(), Ok(size(text)));
        }
    }

    #[test]
    fn a_text_that_parsing_refuses_panics() {
        for text in [
            "",
            "x",
            "1024",
            "1024x",
            "x1024",
            "01024x1024",
            "1024x1024 ",
            "1024X1024",
            "1000x1000",
            "99999999999x16",
            "512x512",
            "3088x1024",
        ] {
            assert!(text.parse::<Size>().is_err());
            assert!(std::panic::catch_unwind(|| size(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn missing_digits_are_reported_as_an_error_of_the_form() {
        for text in ["x1024", "1024x", "x", "01024x1024", "1024x01024"] {
            let message = std::panic::catch_unwind(|| size(text)).unwrap_err();
            let message = message.downcast_ref::<&str>().unwrap();
            assert!(message.starts_with("expected `<width>x<height>`"), "{text}: {message}");
        }
    }
}
