//! Decodes base64 to bytes, at once or in chunks. White space is skipped: some encoders write lines of 76 characters.

use std::borrow::Cow;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
use std::sync::LazyLock;

#[cfg(not(target_arch = "wasm32"))]
use base64::DecodeSliceError;
use base64::Engine as _;
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
use base64::engine::GeneralPurpose;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
use base64::engine::Simd;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig, general_purpose};

use super::Error;
use crate::image::{ImageProperties, probe};

/// Text without padding is accepted: some services leave it out, and the image is paid for.
const CONFIG: GeneralPurposeConfig = general_purpose::PAD.with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// The base64 engine with SIMD instructions, several times as fast as the default engine of the crate.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
static ENGINE: LazyLock<Simd> = LazyLock::new(|| Simd::standard(CONFIG));
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
static ENGINE: GeneralPurpose = GeneralPurpose::new(&base64::alphabet::STANDARD, CONFIG);

/// The number of base64 characters in a chunk (our choice): a multiple of four, and small enough for the CPU cache.
#[cfg(not(target_arch = "wasm32"))]
const CHUNK_CHARS: usize = 256 * 1024;
#[cfg(not(target_arch = "wasm32"))]
const CHUNK_BYTES: usize = CHUNK_CHARS / 4 * 3;

/// The number of base64 characters that suffices to find the size of an image (our choice); the metadata of a camera
/// may come before the size.
const HEAD_CHARS: usize = 128 * 1024;

/// Decodes the whole text.
pub(super) fn decode_all(text: &str) -> Result<Vec<u8>, Error> {
    ENGINE.decode(characters(payload(text))).map_err(|_| not_base64())
}

/// Decodes the text in chunks, and passes each chunk to `sink` before it decodes the next.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn decode_chunks(text: &str, mut sink: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let characters = characters(payload(text));
    let mut chunks = characters.chunks(CHUNK_CHARS).peekable();
    while let Some(chunk) = chunks.next() {
        let length = ENGINE.decode_slice(chunk, &mut buffer).map_err(|_: DecodeSliceError| not_base64())?;
        // Padding is allowed only at the end of the text. The engine sees one chunk and cannot check that.
        if chunks.peek().is_some() && length < CHUNK_BYTES {
            return Err(not_base64());
        }
        sink(&buffer[..length])?;
    }
    Ok(())
}

/// Returns the format and pixel size of the file, read from its first bytes.
pub(super) fn image_properties(text: &str) -> Option<ImageProperties> {
    let text = payload(text);
    let Some(head) = text.get(..HEAD_CHARS) else { return probe(&ENGINE.decode(characters(text)).ok()?) };
    let characters = characters(head);
    // Only whole groups of four can be decoded.
    probe(&ENGINE.decode(&characters[..characters.len() / 4 * 4]).ok()?)
}

/// Returns the base64 text of a data URL, which some services send; any other text unchanged.
fn payload(text: &str) -> &str {
    let data = text.strip_prefix("data:").and_then(|data| data.split_once(','));
    data.filter(|(media_type, _)| media_type.ends_with(";base64")).map_or(text, |(_, payload)| payload)
}

/// Returns true if the text has white space or a control character.
pub(super) fn has_white_space(text: &[u8]) -> bool {
    // All bytes are examined, because the compiler vectorizes only a loop without an early exit. The characters of base64
    // come after the space.
    text.iter().fold(false, |has_space, byte| has_space | (*byte <= b' '))
}

/// Returns the characters without white space; the text itself if it has none.
fn characters(text: &str) -> Cow<'_, [u8]> {
    if !has_white_space(text.as_bytes()) {
        return Cow::Borrowed(text.as_bytes());
    }
    Cow::Owned(text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect())
}

pub(super) fn not_base64() -> Error {
    Error::unintelligible("the image is not base64", None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Format;

    /// Returns this number of bytes, with values that repeat every 251 bytes and so never line up with chunks.
    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|index| u8::try_from(index * 31 % 251).unwrap_or(0)).collect()
    }

    #[test]
    fn the_joined_chunks_are_the_whole_file() {
        for length in [0, 1, 2, 3, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7] {
            let text = ENGINE.encode(bytes(length));
            let mut joined = Vec::new();
            decode_chunks(&text, |chunk| {
                joined.extend_from_slice(chunk);
                Ok(())
            })
            .unwrap();
            assert!(joined == bytes(length) && decode_all(&text).unwrap() == joined, "{length}");
        }
    }

    #[test]
    fn invalid_base64_is_refused_at_once_and_in_chunks() {
        let padded = ENGINE.encode(bytes(CHUNK_BYTES - 1));
        for text in
            ["!", "a", "aaaa=", "aa==aaaa", "aaaa\u{b}", "aaaa\u{a0}", "data:image/png,aaaa", &(padded + "aaaa")]
        {
            assert!(decode_all(text).is_err() && decode_chunks(text, |_| Ok(())).is_err(), "{}", text.len());
        }
    }

    /// Breaks a text into lines, as mail and some libraries do.
    fn wrapped(text: &str, line_break: &str) -> String {
        let lines: Vec<&str> = text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
        lines.join(line_break) + line_break
    }

    #[test]
    fn lines_are_joined() {
        for line_break in ["\n", "\r\n", "\n\t "] {
            let text = wrapped(&ENGINE.encode(bytes(2 * CHUNK_BYTES + 1)), line_break);
            let mut joined = Vec::new();
            decode_chunks(&text, |chunk| {
                joined.extend_from_slice(chunk);
                Ok(())
            })
            .unwrap();
            assert!(joined == bytes(2 * CHUNK_BYTES + 1) && decode_all(&text).unwrap() == joined, "{line_break:?}");
            let long = [crate::client::tests::test_images::png(16, 32, true), bytes(HEAD_CHARS)].concat();
            let properties = image_properties(&wrapped(&ENGINE.encode(long), line_break)).unwrap();
            assert_eq!((properties.format, properties.width), (Format::Png, 16), "{line_break:?}");
        }
    }

    #[test]
    fn text_without_padding_and_data_urls_are_read() {
        for text in [
            "aGVsbG8=",
            "aGVsbG8",
            "aGVs\nbG8=\n",
            " aG Vs\r\nbG8",
            "data:image/png;base64,aGVsbG8=",
            "data:image/webp;base64,\naGVsbG8\n",
        ] {
            let mut joined = Vec::new();
            decode_chunks(text, |chunk| {
                joined.extend_from_slice(chunk);
                Ok(())
            })
            .unwrap();
            assert_eq!((decode_all(text).unwrap().as_slice(), joined.as_slice()), (&b"hello"[..], &b"hello"[..]));
        }
    }

    #[test]
    fn format_and_size_are_read_from_the_first_bytes() {
        let properties_of = |bytes: &[u8]| {
            image_properties(&ENGINE.encode(bytes))
                .map(|properties| (properties.format, properties.width, properties.height))
        };
        let png = crate::client::tests::test_images::png(16, 32, true);
        assert_eq!(properties_of(&png), Some((Format::Png, 16, 32)));
        // This file is longer than the part that is examined.
        let long = [png, bytes(HEAD_CHARS)].concat();
        assert_eq!(properties_of(&long), Some((Format::Png, 16, 32)));
        assert_eq!(properties_of(b"RIFF\x24\0\0\0WAVEfmt "), None);
        assert_eq!(properties_of(b"\x89PNG"), None);
    }
}
