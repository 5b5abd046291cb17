//! Small image files for tests. Their headers are valid, but their pixels cannot be decoded.

/// Returns a png of this size, with or without an alpha channel.
pub(in crate::client) fn png(width: u32, height: u32, alpha: bool) -> Vec<u8> {
    let color_type = if alpha { 6 } else { 2 };
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, color_type, 0, 0, 0]].concat();
    let chunks = [chunk(b"IHDR", &header), chunk(b"IDAT", &[0; 64]), chunk(b"IEND", b"")];
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunks.concat()].concat()
}

/// Returns a jpeg of this size, which has only the segments that the client examines.
pub(super) fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let frame = [&[0xff, 0xc0, 0, 11, 8][..], &height.to_be_bytes(), &width.to_be_bytes(), &[1, 1, 0x11, 0]].concat();
    [b"\xff\xd8".to_vec(), frame, b"\xff\xda\0\x08\x01\x01\0\0\x3f\0".to_vec(), vec![0; 64], b"\xff\xd9".to_vec()]
        .concat()
}

/// Appends zeros after the end of the image until the file has this length in bytes.
pub(in crate::client) fn padded(mut image: Vec<u8>, length: usize) -> Vec<u8> {
    image.resize(length, 0);
    image
}

fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    let name_and_content = [&name[..], content].concat();
    [&length[..], &name_and_content, &checksum(&name_and_content).to_be_bytes()].concat()
}

/// Returns the CRC-32 that a png chunk ends with (ISO 3309), computed bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let bit = |sum: u32| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| bit(sum)))
}
