//! Decodes base64 to bytes, whole or piece by piece.

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
use std::sync::LazyLock;

#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
use base64::engine::{GeneralPurpose, general_purpose};
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
use base64::engine::{Simd, general_purpose};
use base64::{DecodeSliceError, Engine as _};

use super::Error;
use crate::image::{ImageProperties, probe};

/// Several times as fast as the default engine of the crate.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
static ENGINE: LazyLock<Simd> = LazyLock::new(|| Simd::standard(general_purpose::PAD));
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
static ENGINE: GeneralPurpose = general_purpose::STANDARD;

/// The number of letters in a piece: a multiple of four, and small enough to stay in the cache.
const LETTERS: usize = 256 * 1024;
const BYTES: usize = LETTERS / 4 * 3;

/// The number of letters that suffices to find the size of an image; the metadata of a camera may come before it.
const HEAD_LETTERS: usize = 128 * 1024;

/// Decodes the whole text.
pub(super) fn all(text: &str) -> Result<Vec<u8>, Error> {
    ENGINE.decode(text).map_err(|_| broken())
}

/// Decodes the text piece by piece, and passes on each piece before the next is decoded.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn pieces(text: &str, mut sink: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut buffer = vec![0; BYTES];
    let mut pieces = text.as_bytes().chunks(LETTERS).peekable();
    while let Some(piece) = pieces.next() {
        let length = ENGINE.decode_slice(piece, &mut buffer).map_err(|_: DecodeSliceError| broken())?;
        // Padding may only end the whole text, and the decoder of one piece cannot know that its piece is not the last.
        if pieces.peek().is_some() && length < BYTES {
            return Err(broken());
        }
        sink(&buffer[..length])?;
    }
    Ok(())
}

/// Returns the format and pixel size of the file, read from its first bytes.
pub(super) fn facts(text: &str) -> Option<ImageProperties> {
    let letters = text.as_bytes();
    let head = letters.get(..HEAD_LETTERS).unwrap_or(letters);
    probe(&ENGINE.decode(head).ok()?)
}

fn broken() -> Error {
    Error::unintelligible("the image is not base64", None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Format;

    /// Returns bytes whose length is not a multiple of the piece length.
    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|index| u8::try_from(index * 31 % 251).unwrap_or(0)).collect()
    }

    #[test]
    fn the_pieces_are_the_whole() {
        for length in [0, 1, 2, 3, BYTES - 1, BYTES, BYTES + 1, 3 * BYTES + 7] {
            let text = ENGINE.encode(bytes(length));
            let mut joined = Vec::new();
            pieces(&text, |piece| {
                joined.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
            assert!(joined == bytes(length) && all(&text).unwrap() == joined, "{length}");
        }
    }

    #[test]
    fn what_is_no_base64_is_refused_in_both_ways() {
        let padded = ENGINE.encode(bytes(BYTES - 1));
        for text in
            ["!", "a", "aa", "aaa", "aaaa=", "aa aaaa=", "aaaa\n", "data:image/png;base64,aaaa", &(padded + "aaaa")]
        {
            assert!(all(text).is_err() && pieces(text, |_| Ok(())).is_err(), "{}", text.len());
        }
    }

    #[test]
    fn format_and_size_are_read_from_the_first_bytes() {
        let of = |bytes: &[u8]| facts(&ENGINE.encode(bytes)).map(|facts| (facts.format, facts.width, facts.height));
        let png = crate::client::tests::pictures::png(16, 32, true);
        assert_eq!(of(&png), Some((Format::Png, 16, 32)));
        // Longer than the part that is examined, which is cut in the middle of a byte.
        let long = [png, bytes(HEAD_LETTERS)].concat();
        assert_eq!(of(&long), Some((Format::Png, 16, 32)));
        assert_eq!(of(b"RIFF\x24\0\0\0WAVEfmt "), None);
        assert_eq!(of(b"\x89PNG"), None);
    }
}
