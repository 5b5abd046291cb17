//! Decodes the base64 text of an image that comes in pieces: with or without padding or white space, also as a data URL.

use super::{Error, decode};
use crate::image::Base64Decoder;

const SCHEME: &[u8] = b"data:";
/// The most characters before the comma of a data URL (our choice).
const HEAD_MAX: usize = 256;

/// The decoder of one image.
#[derive(Debug)]
pub(super) struct ImageDecoder {
    /// The first characters, until it is known whether they are those of a data URL.
    head: Option<Vec<u8>>,
    base64: Base64Decoder,
}

// === impl ImageDecoder ===

impl ImageDecoder {
    pub(super) fn new() -> Self {
        Self { head: Some(Vec::new()), base64: Base64Decoder::default() }
    }

    /// Decodes the next characters and appends the bytes to `output`.
    pub(super) fn push(&mut self, text: &[u8], output: &mut Vec<u8>) -> Result<(), Error> {
        let Some(head) = &mut self.head else { return self.decode(text, output) };
        head.extend_from_slice(text);
        match payload_start(head) {
            None if head.len() < HEAD_MAX => Ok(()),
            start => {
                let text = self.head.take().unwrap_or_default();
                self.decode(&text[start.unwrap_or(0)..], output)
            }
        }
    }

    /// Ends the text, and appends its last bytes to `output`.
    pub(super) fn finish(&mut self, output: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(text) = self.head.take() {
            self.decode(&text, output)?;
        }
        // Padding may be missing: at most two characters.
        for _ in 0..2 {
            if self.base64.finish().is_err() {
                self.decode(b"=", output)?;
            }
        }
        self.base64.finish().map_err(|_| decode::not_base64())
    }

    fn decode(&mut self, text: &[u8], output: &mut Vec<u8>) -> Result<(), Error> {
        let mut push = |text| self.base64.push(text, output).map_err(|_| decode::not_base64());
        if !decode::has_white_space(text) {
            return push(text);
        }
        text.split(u8::is_ascii_whitespace).try_for_each(push)
    }
}

/// Returns the position of the base64 text; `None` if more characters are needed.
fn payload_start(head: &[u8]) -> Option<usize> {
    let length = head.len().min(SCHEME.len());
    if head[..length] != SCHEME[..length] {
        return Some(0);
    }
    head.iter().position(|byte| *byte == b',').map(|comma| comma + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str, piece: usize) -> Result<Vec<u8>, Error> {
        let (mut decoder, mut output) = (ImageDecoder::new(), Vec::new());
        text.as_bytes().chunks(piece).try_for_each(|piece| decoder.push(piece, &mut output))?;
        decoder.finish(&mut output)?;
        Ok(output)
    }

    #[test]
    fn every_form_of_the_text_is_decoded_wherever_it_is_cut() {
        for text in [
            "aGVsbG8=",
            "aGVsbG8",
            "aGVs\nbG8=\n",
            " aG Vs\r\n\tbG8\n",
            "data:image/png;base64,aGVsbG8=",
            "data:,\naGVsbG8",
        ] {
            for piece in 1..text.len() {
                assert_eq!(decode(text, piece).unwrap(), b"hello", "{text} {piece}");
            }
        }
        assert_eq!(decode("data", 1).unwrap().len(), 3, "these are characters of base64");
        assert_eq!(decode("aGVsbA", 3).unwrap(), b"hell");
        assert!(decode("", 1).unwrap().is_empty());
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["aGVsb", "!", "data:", "data:image/png;base64", "aGVsbG8=aGVs", &"data:".repeat(100)] {
            for piece in [1, 1000] {
                assert!(decode(text, piece).is_err(), "{text}");
            }
        }
    }
}
