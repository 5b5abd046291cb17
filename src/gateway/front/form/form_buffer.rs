//! Collects the chunks of an upload, so that few of them go to a thread that may block.

use bytes::{Bytes, BytesMut};

/// The minimum number of bytes that are written together, except for the last ones (our choice). They count against the
/// memory budgets, which allow for many uploads at once.
const WRITE_THRESHOLD: usize = 64 * 1024;
/// The number of bytes below which a chunk is copied (our choice). A larger one is kept as it is.
const COPIED_BELOW: usize = 8 * 1024;

/// The bytes that are not written yet.
#[derive(Debug, Default)]
pub(super) struct FormBuffer {
    chunks: Vec<Bytes>,
    /// The small chunks after these.
    small: BytesMut,
    length: usize,
}

// === impl FormBuffer ===

impl FormBuffer {
    /// The number of buffered bytes.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Adds a chunk. Returns all buffered bytes if they are enough for a write.
    pub(super) fn push(&mut self, chunk: Bytes) -> Option<Vec<Bytes>> {
        self.length += chunk.len();
        if chunk.len() < COPIED_BELOW {
            self.small.extend_from_slice(&chunk);
        } else {
            self.end_small();
            self.chunks.push(chunk);
        }
        if self.length >= WRITE_THRESHOLD { self.take_all() } else { None }
    }

    /// Takes the buffered bytes, if there are any.
    pub(super) fn take_all(&mut self) -> Option<Vec<Bytes>> {
        self.end_small();
        self.length = 0;
        Some(std::mem::take(&mut self.chunks)).filter(|chunks| !chunks.is_empty())
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.chunks.push(std::mem::take(&mut self.small).freeze());
        }
    }
}
