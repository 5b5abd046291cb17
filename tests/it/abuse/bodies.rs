//! Small bodies that cost a decoder much.

use std::io::Write as _;

/// The bytes to which the bodies decode.
const DECODED: usize = 8 << 20;

/// A body of a few hundred bytes that decodes to 8 MiB with a small window.
pub(super) fn expanding_body() -> Vec<u8> {
    compressed(&vec![b' '; DECODED], 17)
}

/// The same with the largest window that HTTP allows, 8 MiB.
pub(super) fn large_window_body() -> Vec<u8> {
    compressed(&vec![b' '; DECODED], 23)
}

/// Compresses with a window of two to the power of `window_log`.
pub(super) fn compressed(body: &[u8], window_log: u32) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 19).expect("an encoder");
    encoder.window_log(window_log).expect("a window");
    encoder.write_all(body).expect("compressed bytes");
    encoder.finish().expect("compressed bytes")
}
