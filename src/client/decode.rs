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
const CHUNK_CHARS: usize = 256 * 1024;
const CHUNK_BYTES: usize = CHUNK_CHARS / 4 * 3;

/// The number of letters that suffices to find the size of an image; the metadata of a camera may come before it.
const HEAD_CHARS: usize = 128 * 1024;

/// Decodes the whole text.
pub(super) fn decode_all(text: &str) -> Result<Vec<u8>, Error> {
    ENGINE.decode(text).map_err(|_| not_base64())
}

/// Decodes the text piece by piece, and passes on each piece before the next is decoded.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn decode_chunks(text: &str, mut sink: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut pieces = text.as_bytes().chunks(CHUNK_CHARS).peekable();
    while let Some(piece) = pieces.next() {
        let length = ENGINE.decode_slice(piece, &mut buffer).map_err(|_: DecodeSliceError| not_base64())?;
        // Padding may only end the whole text, and the decoder of one piece cannot know that its piece is not the last.
        if pieces.peek().is_some() && length < CHUNK_BYTES {
            return Err(not_base64());
        }
        sink(&buffer[..length])?;
    }
    Ok(())
}

/// Returns the format and pixel size of the file, read from its first bytes.
pub(super) fn image_properties(text: &str) -> Option<ImageProperties> {
    let letters = text.as_bytes();
    let head = letters.get(..HEAD_CHARS).unwrap_or(letters);
    probe(&ENGINE.decode(head).ok()?)
}

fn not_base64() -> Error {
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
        for length in [0, 1, 2, 3, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7] {
            let text = ENGINE.encode(bytes(length));
            let mut joined = Vec::new();
            decode_chunks(&text, |piece| {
                joined.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
            assert!(joined == bytes(length) && decode_all(&text).unwrap() == joined, "{length}");
        }
    }

    #[test]
    fn what_is_no_base64_is_refused_in_both_ways() {
        let padded = ENGINE.encode(bytes(CHUNK_BYTES - 1));
        for text in
            ["!", "a", "aa", "aaa", "aaaa=", "aa aaaa=", "aaaa\n", "data:image/png;base64,aaaa", &(padded + "aaaa")]
        {
            assert!(decode_all(text).is_err() && decode_chunks(text, |_| Ok(())).is_err(), "{}", text.len());
        }
    }

    #[test]
    fn format_and_size_are_read_from_the_first_bytes() {
        let of = |bytes: &[u8]| {
            image_properties(&ENGINE.encode(bytes)).map(|facts| (facts.format, facts.width, facts.height))
        };
        let png = crate::client::tests::test_images::png(16, 32, true);
        assert_eq!(of(&png), Some((Format::Png, 16, 32)));
        // Longer than the part that is examined, which is cut in the middle of a byte.
        let long = [png, bytes(HEAD_CHARS)].concat();
        assert_eq!(of(&long), Some((Format::Png, 16, 32)));
        assert_eq!(of(b"RIFF\x24\0\0\0WAVEfmt "), None);
        assert_eq!(of(b"\x89PNG"), None);
    }
}
