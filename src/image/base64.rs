//! An image as base64 text that comes in pieces: the standard alphabet, padding to the last character, nothing behind it.

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

/// Why a text is no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoImage {
    /// An address to fetch from.
    #[error("remote images are not fetched here. Send the image itself as a base64 data URL.")]
    Remote,
    /// Some other text.
    #[error("expected a base64 data URL: 'data:image/png;base64,…'.")]
    NotData,
    /// A data URL that is cut or damaged.
    #[error("the data URL is not valid base64.")]
    NotBase64,
}

/// What stands between pieces.
#[derive(Debug, Default)]
pub(crate) struct Base64 {
    /// Characters that are not yet four.
    rest: Vec<u8>,
    /// Padding has come: nothing may follow.
    ended: bool,
    spaced: bool,
}

// === impl NoImage ===

impl NoImage {
    /// What to say of a text that begins so, and is no data URL of an image.
    pub(crate) fn beginning(head: &[u8]) -> Self {
        let remote = ["http:", "https:"].iter().any(|scheme| starts_with(head, scheme));
        if remote { Self::Remote } else { Self::NotData }
    }
}

/// Whether it begins with this word, in whatever case.
pub(crate) fn starts_with(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

// === impl Base64 ===

impl Base64 {
    /// Passes over spaces between the characters.
    pub(crate) fn spaced() -> Self {
        Self { spaced: true, ..Self::default() }
    }

    /// Appends what the next characters stand for.
    ///
    /// # Errors
    ///
    /// Where they are no base64, or follow its end.
    pub(crate) fn push(&mut self, mut text: &[u8], into: &mut Vec<u8>) -> Result<(), NoImage> {
        while let (false, [first, others @ ..]) = (self.rest.is_empty(), text) {
            self.take(*first, into)?;
            text = others;
        }
        let (whole, others) = text.split_at(text.len() / 4 * 4);
        if self.fours(whole, into).is_err() {
            if !self.spaced {
                return Err(NoImage::NotBase64);
            }
            // Spaces, perhaps: one by one it shows.
            whole.iter().try_for_each(|byte| self.take(*byte, into))?;
        }
        others.iter().try_for_each(|byte| self.take(*byte, into))
    }

    /// The text is complete.
    ///
    /// # Errors
    ///
    /// Where it was cut.
    pub(crate) fn finish(&self) -> Result<(), NoImage> {
        if self.rest.is_empty() { Ok(()) } else { Err(NoImage::NotBase64) }
    }

    /// One character.
    fn take(&mut self, byte: u8, into: &mut Vec<u8>) -> Result<(), NoImage> {
        if self.spaced && byte == b' ' {
            return Ok(());
        }
        self.rest.push(byte);
        if self.rest.len() == 4 {
            let four = std::mem::take(&mut self.rest);
            self.fours(&four, into)?;
        }
        Ok(())
    }

    /// Characters in groups of four, all of them or none.
    fn fours(&mut self, text: &[u8], into: &mut Vec<u8>) -> Result<(), NoImage> {
        if text.is_empty() {
            return Ok(());
        }
        let before = into.len();
        into.resize(before + text.len() / 4 * 3, 0);
        let count = ENGINE.decode_slice(text, &mut into[before..]).ok().filter(|_| !self.ended);
        into.truncate(before + count.unwrap_or(0));
        self.ended |= count.is_some() && text.ends_with(b"=");
        count.map(drop).ok_or(NoImage::NotBase64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(mut base64: Base64, text: &str, piece: usize) -> Result<Vec<u8>, NoImage> {
        let mut bytes = Vec::new();
        text.as_bytes().chunks(piece).try_for_each(|piece| base64.push(piece, &mut bytes))?;
        base64.finish()?;
        Ok(bytes)
    }

    #[test]
    fn pieces_of_every_length_make_the_same_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
        let spaced = text.replace('A', " A ");
        for piece in 1..text.len() {
            assert_eq!(decoded(Base64::default(), &text, piece).unwrap(), bytes, "{piece}");
            assert_eq!(decoded(Base64::spaced(), &spaced, piece).unwrap(), bytes, "{piece}");
            assert_eq!(decoded(Base64::default(), &spaced, piece), Err(NoImage::NotBase64), "{piece}");
        }
    }

    #[test]
    fn damage_is_seen_wherever_it_is() {
        for damaged in ["A", "AAA", "AA==AAAA", "AA=A", "AA-_", "AB==", "A\nAAA"] {
            for piece in [1, 3, 4, 100] {
                assert!(decoded(Base64::default(), damaged, piece).is_err(), "{damaged:?} by {piece}");
                assert!(decoded(Base64::spaced(), damaged, piece).is_err(), "{damaged:?} by {piece}");
            }
        }
        assert_eq!(decoded(Base64::default(), "", 1), Ok(Vec::new()));
    }

    #[test]
    fn an_address_is_told_from_other_texts() {
        assert_eq!(NoImage::beginning(b"HTTPS://example.com/a.png"), NoImage::Remote);
        for other in [&b"data:image/png,AAAA"[..], b"http", b"", b"a.png"] {
            assert_eq!(NoImage::beginning(other), NoImage::NotData);
        }
    }
}
