//! The coding `deflate`: a zlib stream (RFC 1950), or the bare deflate data (RFC 1951) that some servers send under its
//! name.

use std::io;

use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};

use super::{DecodedChunk, GZIP_DECODER_BYTES, OUTPUT_BUFFER_BYTES};
use crate::gateway::admission::ByteShare;

/// The low half of the first byte of a zlib stream: the method `deflate` (RFC 1950, section 2.2). In deflate data, it would
/// be a stored block with padding bits that are not zero, which no known encoder writes.
const ZLIB_METHOD: u8 = 8;

/// The decoder of one body.
pub(super) struct InflateDecoder {
    /// `None` before the first byte, which shows whether the body is a zlib stream.
    decoder: Option<Decompress>,
    buffer: Box<[u8]>,
    /// True if the last step filled the buffer, so that the decoder may hold more output.
    has_more_output: bool,
    has_ended: bool,
    _memory: ByteShare,
}

// === impl InflateDecoder ===

impl InflateDecoder {
    pub(super) fn new(mut memory: ByteShare) -> io::Result<Self> {
        memory.set_bytes(GZIP_DECODER_BYTES + OUTPUT_BUFFER_BYTES as u64)?;
        let buffer = vec![0; OUTPUT_BUFFER_BYTES].into();
        Ok(Self { decoder: None, buffer, has_more_output: false, has_ended: false, _memory: memory })
    }

    /// True if the data are complete.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Decodes the next step; `None` if more bytes must arrive first. Bytes after the end are ignored.
    pub(super) fn next(&mut self, encoded: &mut Bytes) -> io::Result<Option<DecodedChunk>> {
        if self.has_ended {
            encoded.clear();
        }
        while self.has_more_output || !encoded.is_empty() {
            let is_zlib = encoded.first().is_some_and(|first| first & 0x0f == ZLIB_METHOD);
            let decoder = self.decoder.get_or_insert_with(|| Decompress::new(is_zlib));
            let (read_before, written_before) = (decoder.total_in(), decoder.total_out());
            let status = decoder.decompress(encoded, &mut self.buffer, FlushDecompress::None)?;
            let read = usize::try_from(decoder.total_in() - read_before).unwrap_or_default();
            let written = usize::try_from(decoder.total_out() - written_before).unwrap_or_default();
            encoded.advance(read);
            self.has_ended = status == Status::StreamEnd;
            self.has_more_output = written == OUTPUT_BUFFER_BYTES && !self.has_ended;
            if self.has_ended || written > 0 {
                let bytes = Bytes::copy_from_slice(&self.buffer[..written]);
                return Ok(Some(DecodedChunk { bytes, ends_part: self.has_ended }));
            }
            if read == 0 && !encoded.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(None)
    }
}
