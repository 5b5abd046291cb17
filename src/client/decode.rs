//! Base64 to bytes, whole or piece by piece.

#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
use std::sync::LazyLock;

#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
use base64::engine::{GeneralPurpose, general_purpose};
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
use base64::engine::{Simd, general_purpose};
use base64::{DecodeSliceError, Engine as _};

use super::Error;
use crate::image::{Facts, probe};

/// Several times as fast as the engine that the crate uses by itself.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
static ENGINE: LazyLock<Simd> = LazyLock::new(|| Simd::standard(general_purpose::PAD));
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
static ENGINE: GeneralPurpose = general_purpose::STANDARD;

/// Letters for each piece: a multiple of four, and small enough to stay in the cache.
const LETTERS: usize = 256 * 1024;
const BYTES: usize = LETTERS / 4 * 3;

/// Letters that are enough to find the size of an image; a camera's remarks may stand before it.
const HEAD_LETTERS: usize = 128 * 1024;

/// The whole of it.
pub(super) fn all(text: &str) -> Result<Vec<u8>, Error> {
    ENGINE.decode(text).map_err(|_| broken())
}

/// Piece by piece, each handed on before the next is decoded.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn pieces(text: &str, mut sink: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut buffer = vec![0; BYTES];
    let mut pieces = text.as_bytes().chunks(LETTERS).peekable();
    while let Some(piece) = pieces.next() {
        let length = ENGINE.decode_slice(piece, &mut buffer).map_err(|_: DecodeSliceError| broken())?;
        // Padding belongs at the end of the whole, and a piece by itself does not know that it is not.
        if pieces.peek().is_some() && length < BYTES {
            return Err(broken());
        }
        sink(&buffer[..length])?;
    }
    Ok(())
}

/// Format and pixel size of the file, from its first bytes.
pub(super) fn facts(text: &str) -> Option<Facts> {
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

    /// Bytes of a length that no piece ends on.
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
        // More than what is looked at, and cut where no byte ends.
        let long = [png, bytes(HEAD_LETTERS)].concat();
        assert_eq!(of(&long), Some((Format::Png, 16, 32)));
        assert_eq!(of(b"RIFF\x24\0\0\0WAVEfmt "), None);
        assert_eq!(of(b"\x89PNG"), None);
    }
}
