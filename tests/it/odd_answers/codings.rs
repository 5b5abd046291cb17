//! The content codings of the matrix.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

/// The value of `content-encoding`, and the bytes that stand for a body with it.
pub(super) fn coded(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("gzip", gzip(body)),
        ("X-GZIP", gzip(body)),
        ("deflate", zlib(body)),
        ("deflate", deflate(body)),
        ("br", brotli(body)),
        ("zstd", zstd(body)),
        ("gzip, br", brotli(&gzip(body))),
        ("zstd, identity, deflate", zlib(&zstd(body))),
    ]
}

pub(super) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("encoded");
    encoder.finish().expect("encoded")
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("encoded");
    encoder.finish().expect("encoded")
}

fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("encoded");
    encoder.finish().expect("encoded")
}

fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::encode_all(body, 3).expect("encoded")
}

/// Uncompressed blocks (RFC 7932, section 9.2).
fn brotli(body: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (at, block) in body.chunks(1 << 16).enumerate() {
        // The first block follows the bit that states the window.
        let head = (u32::try_from(block.len() - 1).expect("a short block") << 3 | 1 << 19) << u32::from(at == 0);
        encoded.extend_from_slice(&head.to_le_bytes()[..3]);
        encoded.extend_from_slice(block);
    }
    encoded.push(0b11);
    encoded
}
