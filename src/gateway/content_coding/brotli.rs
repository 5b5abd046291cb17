//! The coding `br` (RFC 7932), whose first byte states the window.

use std::io;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf as _, Bytes};

use super::{DecodedChunk, OUTPUT_BUFFER_BYTES};
use crate::gateway::admission::ByteShare;

/// The memory of the decoder besides its window, in bytes (our choice): its tables, of which the largest grow with the
/// number of trees, and the output buffer.
const BROTLI_DECODER_BYTES: u64 = 1024 * 1024;

/// The decoder of one body.
pub(super) struct BrotliDecoder {
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    buffer: Box<[u8]>,
    memory: ByteShare,
    /// True if the window has been charged.
    has_begun: bool,
    /// True if the decoder holds more output than the buffer could take.
    has_more_output: bool,
    has_ended: bool,
}

// === impl BrotliDecoder ===

impl BrotliDecoder {
    pub(super) fn new(mut memory: ByteShare) -> io::Result<Self> {
        memory.set_bytes(BROTLI_DECODER_BYTES)?;
        let alloc = StandardAlloc::default;
        Ok(Self {
            // The strict decoder accepts the windows of RFC 7932, of at most 16 MiB, and no larger ones.
            state: Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())),
            buffer: vec![0; OUTPUT_BUFFER_BYTES].into(),
            memory,
            has_begun: false,
            has_more_output: false,
            has_ended: false,
        })
    }

    /// True if the data are complete.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Decodes the next step; `None` if more bytes must arrive first. Bytes after the end are ignored.
    pub(super) fn next(&mut self, encoded: &mut Bytes) -> io::Result<Option<DecodedChunk>> {
        if let (false, Some(first)) = (self.has_begun, encoded.first()) {
            self.memory.set_bytes(BROTLI_DECODER_BYTES + window_bytes(*first))?;
            self.has_begun = true;
        }
        if self.has_ended {
            encoded.clear();
        }
        while self.has_more_output || !encoded.is_empty() {
            let (mut available, mut read) = (encoded.len(), 0);
            let (mut room, mut written, mut total) = (self.buffer.len(), 0, 0);
            let result = BrotliDecompressStream(
                &mut available,
                &mut read,
                encoded,
                &mut room,
                &mut written,
                &mut self.buffer,
                &mut total,
                &mut self.state,
            );
            encoded.advance(read);
            self.has_ended = matches!(result, BrotliResult::ResultSuccess);
            self.has_more_output = matches!(result, BrotliResult::NeedsMoreOutput);
            if matches!(result, BrotliResult::ResultFailure) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.has_ended || written > 0 {
                let bytes = Bytes::copy_from_slice(&self.buffer[..written]);
                return Ok(Some(DecodedChunk { bytes, ends_part: self.has_ended }));
            }
        }
        Ok(None)
    }
}

/// Returns the window that the first byte states (RFC 7932, section 9.1).
fn window_bytes(first: u8) -> u64 {
    let (middle, high) = (first >> 1 & 7, first >> 4 & 7);
    let log = match (first & 1, middle, high) {
        (0, ..) => 16,
        (_, 0, 0) => 17,
        (_, 0, high) => 8 + high,
        (_, middle, _) => 17 + middle,
    };
    1 << log
}
