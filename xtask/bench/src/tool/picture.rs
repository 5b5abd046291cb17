//! Images whose headers are real and whose pixels are noise, which nobody decodes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// 1024x1024 pixels with 8 bits for each of red, green, blue and alpha.
const HEADER: [u8; 13] = [0, 0, 4, 0, 0, 0, 4, 0, 8, 6, 0, 0, 0];
/// Length, type and checksum of a chunk.
const CHUNK_OVERHEAD: usize = 12;

/// A PNG file of this many bytes.
pub(crate) fn png_file(length: usize, seed: u64) -> Vec<u8> {
    let overhead = SIGNATURE.len() + HEADER.len() + 3 * CHUNK_OVERHEAD;
    let mut file = Vec::with_capacity(length);
    file.extend_from_slice(SIGNATURE);
    push_chunk(&mut file, *b"IHDR", &HEADER);
    push_chunk(&mut file, *b"IDAT", &noise(length.saturating_sub(overhead), seed));
    push_chunk(&mut file, *b"IEND", &[]);
    file
}

/// The base64 text of a PNG file, of this many characters: a multiple of four.
pub(crate) fn png_base64(length: usize) -> String {
    STANDARD.encode(png_file(length / 4 * 3, 7))
}

/// The bytes of a pseudorandom sequence (xorshift).
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn push_chunk(file: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    file.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    let start = file.len();
    file.extend_from_slice(&kind);
    file.extend_from_slice(data);
    let checksum = crc32(&file[start..]);
    file.extend_from_slice(&checksum.to_be_bytes());
}

/// The checksum of PNG, with a table of 256 entries because uploads are large.
fn crc32(bytes: &[u8]) -> u32 {
    let mut table = [0_u32; 256];
    for (index, entry) in (0_u32..).zip(table.iter_mut()) {
        *entry = (0..8).fold(index, |rest, _| if rest & 1 == 1 { (rest >> 1) ^ 0xEDB8_8320 } else { rest >> 1 });
    }
    let step = |rest: u32, byte: &u8| table[usize::from(rest.to_le_bytes()[0] ^ byte)] ^ (rest >> 8);
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_png() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b"IEND"), 0xAE42_6082);
    }

    #[test]
    fn a_file_has_the_wanted_length() {
        for length in [100, 1000, 65_536] {
            assert_eq!(png_file(length, 1).len(), length);
        }
        assert_eq!(png_base64(1000).len(), 1000);
        assert_ne!(png_file(100, 1), png_file(100, 2));
    }
}
