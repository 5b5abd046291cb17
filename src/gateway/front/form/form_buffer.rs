//! Collects the chunks of an upload, so that writes to disk are large even if the chunks are small.

use bytes::{Bytes, BytesMut};

/// The minimum number of bytes of a write, except for the last one (our choice).
const WRITE_THRESHOLD: usize = 64 * 1024;

/// The bytes that are not written yet.
#[derive(Debug, Default)]
pub(super) struct FormBuffer(BytesMut);

// === impl FormBuffer ===

impl FormBuffer {
    /// The number of buffered bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a chunk. Returns all buffered bytes if they are enough for a write.
    pub(super) fn push(&mut self, chunk: Bytes) -> Option<Bytes> {
        if self.0.is_empty() && chunk.len() >= WRITE_THRESHOLD {
            return Some(chunk);
        }
        self.0.extend_from_slice(&chunk);
        if self.0.len() >= WRITE_THRESHOLD { self.take_all() } else { None }
    }

    /// Takes the buffered bytes, if there are any.
    pub(super) fn take_all(&mut self) -> Option<Bytes> {
        let bytes = std::mem::take(&mut self.0).freeze();
        (!bytes.is_empty()).then_some(bytes)
    }
}
