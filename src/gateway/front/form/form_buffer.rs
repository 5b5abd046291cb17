//! Collects the pieces of an upload, so that every write is large however small the pieces are.

use bytes::{Bytes, BytesMut};

/// The number of bytes that are written at once.
const WRITE_THRESHOLD: usize = 64 * 1024;

/// The bytes that wait for their write.
#[derive(Debug, Default)]
pub(super) struct FormBuffer(BytesMut);

// === impl FormBuffer ===

impl FormBuffer {
    /// The number of bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a piece. Returns all bytes if they are enough for a write.
    pub(super) fn push(&mut self, piece: Bytes) -> Option<Bytes> {
        if self.0.is_empty() && piece.len() >= WRITE_THRESHOLD {
            return Some(piece);
        }
        self.0.extend_from_slice(&piece);
        if self.0.len() >= WRITE_THRESHOLD { self.take_rest() } else { None }
    }

    /// The bytes that wait, if there are any.
    pub(super) fn take_rest(&mut self) -> Option<Bytes> {
        let bytes = std::mem::take(&mut self.0).freeze();
        (!bytes.is_empty()).then_some(bytes)
    }
}
