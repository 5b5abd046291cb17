//! Writes small image files without a library, so that the stub server adds no crate to a program.

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";
/// A zlib header without compression (RFC 1950).
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];
/// The most bytes of a block that is not compressed (RFC 1951).
const BLOCK_MAX_BYTES: usize = 0xffff;

/// Returns a valid PNG file of this width and height in pixels, in one shade of gray from 0 (black) to 255 (white). It is
/// not compressed.
#[must_use]
pub fn png(width: u16, height: u16, shade: u8) -> Vec<u8> {
    // 8 bits for each pixel, and only gray.
    let header = [&u32::from(width).to_be_bytes()[..], &u32::from(height).to_be_bytes(), &[8, 0, 0, 0, 0]].concat();
    // Each row begins with the number of its filter: none.
    let row = [&[0][..], &vec![shade; width.into()]].concat();
    let chunks = [chunk(b"IHDR", &header), chunk(b"IDAT", &zlib(&row.repeat(height.into()))), chunk(b"IEND", b"")];
    [SIGNATURE.to_vec(), chunks.concat()].concat()
}

/// Returns the bytes as a zlib stream without compression.
fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut stream = ZLIB_HEADER.to_vec();
    let mut blocks = bytes.chunks(BLOCK_MAX_BYTES).peekable();
    while let Some(block) = blocks.next() {
        stream.push(u8::from(blocks.peek().is_none()));
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        stream.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        stream.extend(block);
    }
    stream.extend(adler32(bytes).to_be_bytes());
    stream
}

fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
    let name_and_content = [&name[..], content].concat();
    [&length[..], &name_and_content, &crc32(&name_and_content).to_be_bytes()].concat()
}

/// Returns the CRC-32 with which a chunk ends (ISO 3309), computed bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |sum: u32| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| bit(sum)))
}

/// Returns the checksum with which a zlib stream ends (RFC 1950).
fn adler32(bytes: &[u8]) -> u32 {
    let next = |(low, high): (u32, u32), byte: &u8| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    };
    let (low, high) = bytes.iter().fold((1, 0), next);
    (high << 16) | low
}
