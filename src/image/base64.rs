//! Decodes an image from base64 text that arrives in pieces: the standard alphabet, full padding, and nothing after the
//! padding.

use std::sync::LazyLock;

use base64::Engine as _;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use base64::engine::GeneralPurpose;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use base64::engine::Simd;
use base64::engine::general_purpose::PAD;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static ENGINE: LazyLock<Simd> = LazyLock::new(|| Simd::standard(PAD));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static ENGINE: LazyLock<GeneralPurpose> = LazyLock::new(|| GeneralPurpose::new(&base64::alphabet::STANDARD, PAD));

/// The reason why a text is not a data URL of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataUrlError {
    /// The text is an address of a remote image.
    #[error("remote images are not fetched here. Send the image itself as a base64 data URL.")]
    Remote,
    /// The text is neither an address nor a data URL.
    #[error("expected a base64 data URL: 'data:image/png;base64,…'.")]
    NotDataUrl,
    /// The text is a data URL that is truncated or damaged.
    #[error("the data URL is not valid base64.")]
    NotBase64,
}

/// The state of the decoder between pieces.
#[derive(Debug, Default)]
pub(crate) struct Base64Decoder {
    /// Characters of an incomplete group of four.
    partial_group: Vec<u8>,
    /// True after padding, which nothing may follow.
    has_ended: bool,
    skips_spaces: bool,
}

// === impl DataUrlError ===

impl DataUrlError {
    /// Returns the error for a text that begins with `head` and is not a data URL of an image.
    pub(crate) fn from_prefix(head: &[u8]) -> Self {
        let remote = ["http:", "https:"].iter().any(|scheme| starts_with(head, scheme));
        if remote { Self::Remote } else { Self::NotDataUrl }
    }
}

/// Returns true if the text begins with this word, in upper or lower case.
pub(crate) fn starts_with(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

// === impl Base64Decoder ===

impl Base64Decoder {
    /// Creates a decoder that skips spaces between the characters.
    pub(crate) fn skipping_spaces() -> Self {
        Self { skips_spaces: true, ..Self::default() }
    }

    /// Decodes the next characters and appends the bytes to `output`.
    ///
    /// # Errors
    ///
    /// Returns an error if the characters are not base64, or if they follow the padding.
    pub(crate) fn push(&mut self, mut text: &[u8], output: &mut Vec<u8>) -> Result<(), DataUrlError> {
        while let (false, [first, remaining @ ..]) = (self.partial_group.is_empty(), text) {
            self.push_char(*first, output)?;
            text = remaining;
        }
        let (groups, remaining) = text.split_at(text.len() / 4 * 4);
        if self.decode_groups(groups, output).is_err() {
            if !self.skips_spaces {
                return Err(DataUrlError::NotBase64);
            }
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
    pub(crate) fn finish(&self) -> Result<(), DataUrlError> {
        if self.partial_group.is_empty() { Ok(()) } else { Err(DataUrlError::NotBase64) }
    }

    /// Decodes one character.
    fn push_char(&mut self, byte: u8, output: &mut Vec<u8>) -> Result<(), DataUrlError> {
        if self.skips_spaces && byte == b' ' {
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
    fn decode_groups(&mut self, text: &[u8], output: &mut Vec<u8>) -> Result<(), DataUrlError> {
        if text.is_empty() {
            return Ok(());
        }
        let before = output.len();
        output.resize(before + text.len() / 4 * 3, 0);
        let count = ENGINE.decode_slice(text, &mut output[before..]).ok().filter(|_| !self.has_ended);
        output.truncate(before + count.unwrap_or(0));
        self.has_ended |= count.is_some() && text.ends_with(b"=");
        count.map(drop).ok_or(DataUrlError::NotBase64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(mut base64: Base64Decoder, text: &str, piece: usize) -> Result<Vec<u8>, DataUrlError> {
        let mut bytes = Vec::new();
        text.as_bytes().chunks(piece).try_for_each(|piece| base64.push(piece, &mut bytes))?;
        base64.finish()?;
        Ok(bytes)
    }

    #[test]
    fn pieces_of_every_length_give_the_same_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
        let spaced = text.replace('A', " A ");
        for piece in 1..text.len() {
            assert_eq!(decode(Base64Decoder::default(), &text, piece).unwrap(), bytes, "{piece}");
            assert_eq!(decode(Base64Decoder::skipping_spaces(), &spaced, piece).unwrap(), bytes, "{piece}");
            assert_eq!(decode(Base64Decoder::default(), &spaced, piece), Err(DataUrlError::NotBase64), "{piece}");
        }
    }

    #[test]
    fn invalid_base64_is_refused_for_every_length_of_pieces() {
        for damaged in ["A", "AAA", "AA==AAAA", "AA=A", "AA-_", "AB==", "A\nAAA"] {
            for piece in [1, 3, 4, 100] {
                assert!(decode(Base64Decoder::default(), damaged, piece).is_err(), "{damaged:?} by {piece}");
                assert!(decode(Base64Decoder::skipping_spaces(), damaged, piece).is_err(), "{damaged:?} by {piece}");
            }
        }
        assert_eq!(decode(Base64Decoder::default(), "", 1), Ok(Vec::new()));
    }

    #[test]
    fn a_web_address_is_distinguished_from_other_texts() {
        assert_eq!(DataUrlError::from_prefix(b"HTTPS://example.com/a.png"), DataUrlError::Remote);
        for other in [&b"data:image/png,AAAA"[..], b"http", b"", b"a.png"] {
            assert_eq!(DataUrlError::from_prefix(other), DataUrlError::NotDataUrl);
        }
    }
}
