//! Encodes an image that arrives in pieces, and decodes one from base64 text that arrives in pieces: the standard alphabet, full padding, and nothing after the
//! padding. Spaces between the characters are skipped.

use std::sync::LazyLock;

use base64::Engine as _;
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
use base64::engine::GeneralPurpose;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
use base64::engine::Simd;
use base64::engine::general_purpose::PAD;
#[cfg(feature = "gateway")]
use base64::engine::general_purpose::STANDARD;

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
static ENGINE: LazyLock<Simd> = LazyLock::new(|| Simd::standard(PAD));
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
static ENGINE: LazyLock<GeneralPurpose> = LazyLock::new(|| GeneralPurpose::new(&base64::alphabet::STANDARD, PAD));

/// The text is not base64, or is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotBase64;

/// The state of the decoder between pieces.
#[derive(Debug, Default)]
pub(crate) struct Base64Decoder {
    /// Characters of an incomplete group of four.
    partial_group: Vec<u8>,
    /// True after padding, which nothing may follow.
    has_ended: bool,
}

/// The state of the encoder between pieces: the bytes of an incomplete group of three.
#[cfg(feature = "gateway")]
#[derive(Debug, Default)]
pub(crate) struct Base64Encoder(Vec<u8>);

// === impl Base64Encoder ===

#[cfg(feature = "gateway")]
impl Base64Encoder {
    /// Returns the base64 of the next bytes, as far as it is certain.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let incomplete = self.0.split_off(self.0.len() / 3 * 3);
        STANDARD.encode(std::mem::replace(&mut self.0, incomplete))
    }

    /// Returns the base64 of the last bytes. The next image can follow.
    pub(crate) fn finish(&mut self) -> String {
        STANDARD.encode(std::mem::take(&mut self.0))
    }
}

/// Returns the padding that is absent after this many characters of base64.
#[cfg(feature = "gateway")]
pub(crate) const fn absent_padding(length: usize) -> &'static [u8] {
    match length % 4 {
        2 => b"==",
        3 => b"=",
        _ => b"",
    }
}

// === impl Base64Decoder ===

impl Base64Decoder {
    /// Decodes the next characters and appends the bytes to `output`.
    ///
    /// # Errors
    ///
    /// Returns an error if the characters are not base64, or if they follow the padding.
    pub(crate) fn push(&mut self, mut text: &[u8], output: &mut Vec<u8>) -> Result<(), NotBase64> {
        while let (false, [first, remaining @ ..]) = (self.partial_group.is_empty(), text) {
            self.push_char(*first, output)?;
            text = remaining;
        }
        let (groups, remaining) = text.split_at(text.len() / 4 * 4);
        if self.decode_groups(groups, output).is_err() {
            // The groups may contain spaces, so the characters are decoded one by one.
            groups.iter().try_for_each(|byte| self.push_char(*byte, output))?;
        }
        remaining.iter().try_for_each(|byte| self.push_char(*byte, output))
    }

    /// Ends the text.
    ///
    /// # Errors
    ///
    /// Returns an error if the text was truncated.
    pub(crate) fn finish(&self) -> Result<(), NotBase64> {
        if self.partial_group.is_empty() { Ok(()) } else { Err(NotBase64) }
    }

    /// Decodes one character.
    fn push_char(&mut self, byte: u8, output: &mut Vec<u8>) -> Result<(), NotBase64> {
        if byte == b' ' {
            return Ok(());
        }
        self.partial_group.push(byte);
        if self.partial_group.len() == 4 {
            let group = std::mem::take(&mut self.partial_group);
            self.decode_groups(&group, output)?;
        }
        Ok(())
    }

    /// Decodes characters in groups of four: all of them, or none if there is an error.
    fn decode_groups(&mut self, text: &[u8], output: &mut Vec<u8>) -> Result<(), NotBase64> {
        if text.is_empty() {
            return Ok(());
        }
        let before = output.len();
        output.resize(before + text.len() / 4 * 3, 0);
        let count = ENGINE.decode_slice(text, &mut output[before..]).ok().filter(|_| !self.has_ended);
        output.truncate(before + count.unwrap_or(0));
        self.has_ended |= count.is_some() && text.ends_with(b"=");
        count.map(drop).ok_or(NotBase64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str, piece: usize) -> Result<Vec<u8>, NotBase64> {
        let (mut base64, mut bytes) = (Base64Decoder::default(), Vec::new());
        text.as_bytes().chunks(piece).try_for_each(|piece| base64.push(piece, &mut bytes))?;
        base64.finish()?;
        Ok(bytes)
    }

    #[test]
    fn pieces_of_every_length_give_the_same_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = STANDARD.encode(&bytes);
        let spaced = text.replace('A', " A ");
        for piece in 1..text.len() {
            assert_eq!(decode(&text, piece).unwrap(), bytes, "{piece}");
            assert_eq!(decode(&spaced, piece).unwrap(), bytes, "{piece}");
        }
    }

    #[test]
    fn invalid_base64_is_refused_for_every_length_of_pieces() {
        for damaged in ["A", "AAA", "AA==AAAA", "AA=A", "AA-_", "AB==", "A\nAAA"] {
            for piece in [1, 3, 4, 100] {
                assert!(decode(damaged, piece).is_err(), "{damaged:?} by {piece}");
            }
        }
        assert_eq!(decode("", 1), Ok(Vec::new()));
    }
}
