//! An answer that is the bytes of an image: passes them on as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};

/// The number of bytes that show the format of an image.
pub(super) const MAGIC_LENGTH: usize = 12;

/// The bytes of the last group that is not complete.
#[derive(Debug, Default)]
pub(super) struct RawImage(BytesMut);

// === impl RawImage ===

impl RawImage {
    /// Returns the base64 of the next bytes, as far as it is certain.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Bytes {
        self.0.extend_from_slice(bytes);
        let complete = self.0.split_to(self.0.len() / 3 * 3);
        STANDARD.encode(&complete).into()
    }

    /// Returns the base64 of the last bytes.
    pub(super) fn finish(&mut self) -> Bytes {
        STANDARD.encode(self.0.split()).into()
    }
}

/// True if an image, but no other answer, may begin with this byte: PNG, JPEG, WebP and GIF.
pub(super) const fn may_begin_with(first: u8) -> bool {
    matches!(first, 0x89 | 0xff | b'R' | b'G')
}
