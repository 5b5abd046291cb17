//! A text that may be an image: base64 of a known format, as it is or in a data URL, alone or in Markdown.
//!
//! The beginning is held until it shows what the text is. An image then goes on piece by piece; any other text is collected
//! up to a limit, because it may state why there is no image.

use std::mem;

use bytes::Bytes;

use super::image_text::{is_base64, standard_letter};
use crate::gateway::relay::answer_members::decode_base64_head;
use crate::image::{absent_padding, has_known_format};
use crate::stream::json::TextDecoder;

/// The characters of base64 whose bytes show the format.
const MAGIC_LENGTH: usize = 16;
/// The most bytes of another text that are kept, as of other members.
const TEXT_MAX: usize = 128 * 1024;
/// The beginning of the data URL of an image.
const DATA_URL: &[u8] = b"data:image/";
/// The end of the part of a data URL before the base64.
const DATA_URL_COMMA: &[u8] = b";base64,";
/// The most bytes of a data URL before its comma (our choice).
const PREFIX_MAX: usize = 256;

/// The text that is being read.
#[derive(Debug, Default)]
pub(super) struct PictureText {
    /// True if the name of the member says that it is an image, so that its format need not be known.
    is_declared: bool,
    state: TextState,
    /// The bytes of a text that is no image so far.
    text: Vec<u8>,
    /// True if the text does not begin like base64.
    is_prose: bool,
    /// The place in the text at which the search for a data URL continues.
    searched: usize,
    is_cut: bool,
    escapes: TextDecoder,
    /// The characters of base64 that were passed on.
    length: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum TextState {
    /// No image has been found so far.
    #[default]
    Text,
    /// An image goes on. It is the whole text, or it ends at the first character that is no base64.
    Image { is_whole: bool },
    /// An image was found, and has ended.
    Over,
}

/// A text that is no image.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OtherText {
    Whole(String),
    /// It is too long to be kept.
    TooLong,
}

/// The text has a character that is no base64.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoBase64;

// === impl PictureText ===

impl PictureText {
    pub(super) fn new(is_declared: bool) -> Self {
        Self { is_declared, ..Self::default() }
    }

    /// Takes the next bytes, which are a slice of `piece`. Returns the base64 of an image in them.
    pub(super) fn push(&mut self, bytes: &[u8], piece: &Bytes) -> Result<Bytes, NoBase64> {
        match self.state {
            TextState::Text => {
                self.collect(bytes);
                self.find_image()
            }
            TextState::Image { .. } => self.pass_on(piece.slice_ref(bytes)),
            TextState::Over => Ok(Bytes::new()),
        }
    }

    /// Takes a UTF-16 code unit that is written as an escape.
    pub(super) fn push_escaped(&mut self, unit: u16) -> Result<Bytes, NoBase64> {
        let (mut bytes, is_text) = (Vec::new(), self.state == TextState::Text);
        // A text with half of a surrogate pair may still have an image behind it.
        if self.escapes.push_escaped(unit, |text| bytes.extend_from_slice(text.as_bytes())).is_err() {
            self.escapes = TextDecoder::default();
        }
        if !is_text {
            let bytes = Bytes::from(bytes);
            return self.push(&bytes, &bytes);
        }
        self.collect(&bytes);
        self.find_image()
    }

    /// Ends the text. Returns the rest of the image and its padding, or the text.
    pub(super) fn finish(&mut self) -> Result<Bytes, OtherText> {
        if self.state == TextState::Text && self.is_declared && self.is_base64_text() {
            let text = mem::take(&mut self.text);
            self.state = TextState::Image { is_whole: true };
            let rest = self.pass_on(text.into()).unwrap_or_default();
            return Ok([&rest[..], absent_padding(self.length)].concat().into());
        }
        match self.state {
            TextState::Text if self.is_cut => Err(OtherText::TooLong),
            TextState::Text => Err(OtherText::Whole(String::from_utf8_lossy(&self.text).into_owned())),
            TextState::Image { .. } | TextState::Over => Ok(Bytes::from_static(absent_padding(self.length))),
        }
    }

    fn is_base64_text(&self) -> bool {
        !self.text.is_empty() && self.text.iter().all(|byte| is_letter(*byte) || byte.is_ascii_whitespace())
    }

    fn collect(&mut self, bytes: &[u8]) {
        let room = TEXT_MAX - self.text.len();
        self.is_cut |= bytes.len() > room;
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Searches what has been collected for the beginning of an image, and returns its first base64.
    fn find_image(&mut self) -> Result<Bytes, NoBase64> {
        if !self.is_prose {
            match self.shows_image(0) {
                Some(true) => return self.begin_image(0, true),
                Some(false) => self.is_prose = true,
                None => return Ok(Bytes::new()),
            }
        }
        while let Some(at) = memchr::memmem::find(&self.text[self.searched..], DATA_URL) {
            self.searched += at;
            let head = &self.text[self.searched..self.text.len().min(self.searched + PREFIX_MAX)];
            let comma = memchr::memchr(b',', head);
            let shows_image = match comma {
                Some(comma) if is_base64_url(&head[..=comma]) => self.shows_image(self.searched + comma + 1),
                None if head.len() < PREFIX_MAX => None,
                _ => Some(false),
            };
            match (shows_image, comma) {
                (None, _) => return Ok(Bytes::new()),
                (Some(true), Some(comma)) => {
                    let is_whole = self.text[..self.searched].iter().all(u8::is_ascii_whitespace);
                    return self.begin_image(self.searched + comma + 1, is_whole);
                }
                (Some(_), _) => self.searched += DATA_URL.len(),
            }
        }
        self.searched = self.searched.max((self.text.len() + 1).saturating_sub(DATA_URL.len()));
        Ok(Bytes::new())
    }

    /// True if the text from `start` on is base64 of a known format; `None` if more of it must come first.
    fn shows_image(&self, start: usize) -> Option<bool> {
        let text = self.text.get(start..).unwrap_or_default();
        let head: Vec<u8> = text
            .iter()
            .filter(|byte| !byte.is_ascii_whitespace())
            .take_while(|byte| is_letter(**byte))
            .take(MAGIC_LENGTH)
            .map(|byte| standard_letter(*byte))
            .collect();
        if head.len() < MAGIC_LENGTH {
            let has_ended = text.iter().any(|byte| !byte.is_ascii_whitespace() && !is_letter(*byte));
            return has_ended.then_some(false);
        }
        let is_known = decode_base64_head(&head).is_some_and(|bytes| has_known_format(&bytes));
        Some(is_known || self.is_declared && start == 0)
    }

    fn begin_image(&mut self, start: usize, is_whole: bool) -> Result<Bytes, NoBase64> {
        let image = mem::take(&mut self.text).split_off(start);
        self.state = TextState::Image { is_whole };
        self.pass_on(image.into())
    }

    /// Returns the base64 in the next bytes of the image, in the standard alphabet.
    fn pass_on(&mut self, bytes: Bytes) -> Result<Bytes, NoBase64> {
        let is_part = |byte: &u8| is_letter(*byte) || byte.is_ascii_whitespace();
        let end = bytes.iter().position(|byte| !is_part(byte)).unwrap_or(bytes.len());
        if end < bytes.len() {
            if self.state == (TextState::Image { is_whole: true }) {
                return Err(NoBase64);
            }
            self.state = TextState::Over;
        }
        let base64 = bytes.slice(..end);
        let is_plain = base64.iter().all(|byte| is_base64(*byte));
        let letters = || base64.iter().filter(|byte| !byte.is_ascii_whitespace());
        let base64 = if is_plain { base64 } else { letters().map(|byte| standard_letter(*byte)).collect() };
        self.length += base64.len();
        Ok(base64)
    }
}

/// True for the part of a data URL with base64 up to its comma.
fn is_base64_url(prefix: &[u8]) -> bool {
    prefix.ends_with(DATA_URL_COMMA) && !prefix.iter().any(u8::is_ascii_whitespace)
}

/// True for the letters of both alphabets of base64 (RFC 4648), and its padding.
const fn is_letter(byte: u8) -> bool {
    is_base64(byte) || matches!(byte, b'-' | b'_')
}

/// Returns the web addresses of images that a text names: the text itself, or those of the images in its Markdown.
pub(super) fn image_addresses(text: &str, is_prose: bool) -> Vec<String> {
    let is_address = |text: &&str| {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        matches!(scheme, Some("http" | "https")) && !text.contains(|character: char| character.is_whitespace())
    };
    if !is_prose {
        return Some(text.trim()).filter(is_address).map(str::to_owned).into_iter().collect();
    }
    let images = text.split("![").skip(1).filter_map(|image| image.split_once("](")?.1.split([')', ' ']).next());
    images.filter(is_address).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB";

    /// Reads a text in pieces: the base64 of its image, or the text.
    fn read(text: &str, is_declared: bool, cut: usize) -> Result<String, String> {
        let (mut scan, mut image) = (PictureText::new(is_declared), Vec::new());
        for piece in text.as_bytes().chunks(cut) {
            let piece = Bytes::copy_from_slice(piece);
            image.extend_from_slice(&scan.push(&piece, &piece).map_err(|error| format!("{error:?}"))?);
        }
        match scan.finish() {
            Ok(rest) => Ok(String::from_utf8_lossy(&[&image[..], &rest].concat()).into_owned()),
            Err(OtherText::Whole(text)) => Err(text),
            Err(OtherText::TooLong) => Err("too long".to_owned()),
        }
    }

    #[test]
    fn an_image_is_found_however_its_text_is_cut() {
        let long = PNG.repeat(40);
        for (text, expected) in [
            (PNG.to_owned(), Ok(PNG.to_owned())),
            (format!("  {long}ab"), Ok(format!("{long}ab=="))),
            (format!("data:image/png;base64,{PNG}abc"), Ok(format!("{PNG}abc="))),
            (format!("{PNG}-_ \n{PNG}"), Ok(format!("{PNG}+/{PNG}=="))),
            (format!("Here: ![a](data:image/png;base64,{long}) Enjoy!"), Ok(long.clone())),
            (format!("data:image/x and data:image/png;base64,{PNG}\" />"), Ok(PNG.to_owned())),
            ("I cannot draw this.".to_owned(), Err("I cannot draw this.".to_owned())),
            ("iVBORw0KGgo".to_owned(), Err("iVBORw0KGgo".to_owned())),
            ("A data:image/png;base64, URL".to_owned(), Err("A data:image/png;base64, URL".to_owned())),
            (
                "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDov".to_owned(),
                Err("data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDov".to_owned()),
            ),
            (format!("{PNG}!"), Err("NoBase64".to_owned())),
            ("x ".repeat(70_000), Err("too long".to_owned())),
        ] {
            for cut in [1, 2, 5, 21, 64, 100_000] {
                assert_eq!(read(&text, false, cut), expected, "cut into {cut}: {text:.80}");
            }
        }
        assert_eq!(read("AAAA", true, 1), Ok("AAAA".to_owned()));
        assert_eq!(read("AAAAAAAAAAAAAAAAAAA", true, 3), Ok("AAAAAAAAAAAAAAAAAAA=".to_owned()));
        assert_eq!(read("none", false, 1), Err("none".to_owned()));
    }

    #[test]
    fn addresses_are_found_in_a_text() {
        let one = vec!["https://a.example/x.png?y=1".to_owned()];
        assert_eq!(image_addresses("https://a.example/x.png?y=1", false), one);
        assert_eq!(image_addresses("See ![x](https://a.example/x.png?y=1) and [y](https://b.example)", true), one);
        for text in ["file:///x", "https://a b", "no", ""] {
            assert_eq!(image_addresses(text, false), Vec::<String>::new());
            assert_eq!(image_addresses(text, true), Vec::<String>::new());
        }
    }
}
