//! Content codings of bodies. A body is decoded as it comes, one chunk at a time, so that a small body that decodes to a
//! very large one takes little memory before the size limit stops it. The memory of the decoder itself is charged before
//! the decoder gets the bytes that make it allocate: the head of each zstd frame states its window.
//!
//! The module decides how a body is decoded. It must not know which codings a reader accepts: requests have at most one
//! of two (`front::body`), answers of upstreams any ([`AnswerDecoder`]).

mod answer_decoder;
mod brotli;
mod inflate;
mod zstd_frame;

use std::io::{self, Write as _};

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::write::GzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use zstd::stream::raw::{DParameter, Decoder, Operation as _};

use super::admission::ByteShare;
pub(crate) use answer_decoder::{AnswerDecoder, DecodedStep, UnknownCoding};
use brotli::BrotliDecoder;
use inflate::InflateDecoder;
use zstd_frame::window_bytes;

/// The size of the output buffer of a decoder: at most this many bytes are decoded in one step (our choice).
const OUTPUT_BUFFER_BYTES: usize = 64 * 1024;
/// The maximum window of a zstd body, as a power of two: the 8 MiB that RFC 9659 sets as the maximum for HTTP. Only a
/// malicious body needs more.
const WINDOW_LOG: u32 = 23;
/// The maximum window of a body that is small or hardly compressible, in bytes (our choice).
const SMALL_WINDOW_BYTES: u64 = 1024 * 1024;
/// The memory of a gzip decoder with its window of 32 KiB, in bytes.
const GZIP_DECODER_BYTES: u64 = 64 * 1024;
/// The memory of a zstd decoder besides its window, in bytes: its tables, two blocks and the output buffer.
const ZSTD_DECODER_BYTES: u64 = 512 * 1024;

/// The number of parts (gzip members or zstd frames) that a body may have, whatever they contain (our choice): more
/// than any known client makes.
const PARTS_ALLOWANCE: u64 = 64;
/// The minimum average of decoded bytes for each part beyond that number (our choice). Each part resets the decoder,
/// which costs far more than the sender's ten or twenty bytes; clients that compress in parallel make parts of many
/// kilobytes.
const BYTES_PER_FURTHER_PART: u64 = 1024;

/// A content coding (RFC 9110, section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Gzip,
    /// With the frame of zlib, or without it, as some servers send it.
    Deflate,
    Brotli,
    Zstd,
}

/// The decoder of one body with one coding.
pub(crate) struct BodyDecoder {
    /// The received bytes that are not decoded yet.
    encoded: Bytes,
    format: CodedFormat,
    /// The number of finished gzip members or zstd frames.
    parts: u64,
    /// The number of bytes decoded so far.
    decoded_bytes: u64,
}

/// The window of a zstd frame is larger than the body may have.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the zstd window is larger than {max_bytes} bytes")]
pub(crate) struct WindowTooLarge {
    /// The largest window that the body may have.
    pub(crate) max_bytes: u64,
}

enum CodedFormat {
    Gzip { decoder: Box<GzDecoder<Vec<u8>>>, _memory: ByteShare },
    Deflate(InflateDecoder),
    Brotli(BrotliDecoder),
    Zstd(ZstdDecoder),
}

/// The decoder of a body that consists of zstd frames.
struct ZstdDecoder {
    decoder: Decoder<'static>,
    /// The memory of the decoder and of the largest window so far.
    memory: ByteShare,
    max_window: u64,
    /// The first bytes of a frame whose window is not known yet.
    frame_head: BytesMut,
    /// True if the next bytes are the first of a frame.
    is_at_frame_start: bool,
    /// The output buffer, which is allocated once for all frames.
    buffer: Box<[u8]>,
    /// True at the end of a frame, where the body may end.
    is_at_frame_end: bool,
    /// True if the last step filled the buffer, so that the decoder may hold more output.
    has_more_output: bool,
}

/// The output of one decoding step.
struct DecodedChunk {
    bytes: Bytes,
    /// True if a gzip member or zstd frame has ended.
    ends_part: bool,
}

// === impl BodyDecoder ===

impl BodyDecoder {
    /// The decoder for a body with this coding. The memory of the decoder is charged to `memory`.
    ///
    /// # Errors
    ///
    /// Returns [`BudgetExceeded`](crate::gateway::admission::BudgetExceeded) if a budget does not allow the memory, and
    /// any error of the decoder's own library.
    pub(crate) fn new(coding: ContentCoding, mut memory: ByteShare) -> io::Result<Self> {
        let format = match coding {
            ContentCoding::Gzip => {
                memory.set_bytes(GZIP_DECODER_BYTES)?;
                CodedFormat::Gzip { decoder: Box::new(GzDecoder::new(Vec::new())), _memory: memory }
            }
            ContentCoding::Deflate => CodedFormat::Deflate(InflateDecoder::new(memory)?),
            ContentCoding::Brotli => CodedFormat::Brotli(BrotliDecoder::new(memory)?),
            ContentCoding::Zstd => {
                memory.set_bytes(ZSTD_DECODER_BYTES)?;
                CodedFormat::Zstd(ZstdDecoder::new(memory)?)
            }
        };
        Ok(Self { encoded: Bytes::new(), format, parts: 0, decoded_bytes: 0 })
    }

    /// Allows windows up to the maximum of HTTP.
    pub(crate) fn allow_large_windows(&mut self) {
        if let CodedFormat::Zstd(zstd) = &mut self.format {
            zstd.max_window = 1 << WINDOW_LOG;
        }
    }

    /// Sets the next received bytes; all earlier ones must have been decoded.
    pub(crate) fn feed(&mut self, encoded: Bytes) {
        self.encoded = encoded;
    }

    /// Returns the next decoded bytes, which are empty if a part ends without output; `None` if more bytes must arrive
    /// first. No step goes beyond the end of a part, so that the caller can yield to other tasks between parts.
    ///
    /// # Errors
    ///
    /// Returns an error for damaged data, and for too many parts with little content; [`WindowTooLarge`]; and
    /// [`BudgetExceeded`](crate::gateway::admission::BudgetExceeded) if a budget does not allow a window.
    pub(crate) fn next(&mut self) -> io::Result<Option<Bytes>> {
        let chunk = match &mut self.format {
            CodedFormat::Gzip { decoder, .. } => gunzip(decoder, &mut self.encoded)?,
            CodedFormat::Deflate(inflate) => inflate.next(&mut self.encoded)?,
            CodedFormat::Brotli(brotli) => brotli.next(&mut self.encoded)?,
            CodedFormat::Zstd(zstd) => zstd.next(&mut self.encoded)?,
        };
        let Some(DecodedChunk { bytes, ends_part }) = chunk else { return Ok(None) };
        self.parts += u64::from(ends_part);
        self.decoded_bytes += bytes.len() as u64;
        if self.parts > PARTS_ALLOWANCE + self.decoded_bytes / BYTES_PER_FURTHER_PART {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Some(bytes))
    }

    /// Returns the remaining output at the end of the body, if there is any.
    ///
    /// # Errors
    ///
    /// Returns an error if the body ends within a part.
    pub(crate) fn finish(self) -> io::Result<Option<Bytes>> {
        let remaining = match self.format {
            CodedFormat::Gzip { decoder, .. } => decoder.finish()?,
            CodedFormat::Deflate(inflate) if inflate.has_ended() => Vec::new(),
            CodedFormat::Brotli(brotli) if brotli.has_ended() => Vec::new(),
            CodedFormat::Zstd(zstd) if zstd.is_at_frame_end && zstd.frame_head.is_empty() => Vec::new(),
            CodedFormat::Deflate(_) | CodedFormat::Brotli(_) | CodedFormat::Zstd(_) => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        Ok(Some(remaining).filter(|remaining| !remaining.is_empty()).map(Bytes::from))
    }
}

/// Decodes the next step of a gzip body; `None` if more bytes must arrive first.
fn gunzip(decoder: &mut GzDecoder<Vec<u8>>, encoded: &mut Bytes) -> io::Result<Option<DecodedChunk>> {
    while !encoded.is_empty() {
        // One write takes at most as much as fills the decoder's small buffer, and nothing after the end of the member.
        let consumed = decoder.write(encoded)?;
        encoded.advance(consumed);
        let ends_part = consumed == 0;
        if ends_part {
            decoder.try_finish()?;
        }
        let bytes = Bytes::from(std::mem::take(decoder.get_mut()));
        if ends_part {
            *decoder = GzDecoder::new(Vec::new());
        }
        if ends_part || !bytes.is_empty() {
            return Ok(Some(DecodedChunk { bytes, ends_part }));
        }
    }
    Ok(None)
}

// === impl ContentCoding ===

impl ContentCoding {
    /// Returns the coding of this name, which is case-insensitive.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        let is = |known: &[&str]| known.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        match () {
            () if is(&["gzip", "x-gzip"]) => Some(Self::Gzip),
            () if is(&["deflate"]) => Some(Self::Deflate),
            () if is(&["br"]) => Some(Self::Brotli),
            () if is(&["zstd"]) => Some(Self::Zstd),
            () => None,
        }
    }
}

/// Returns the names of the codings of a body, in the order in which they were applied, without those that change
/// nothing.
pub(crate) fn coding_names(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(CONTENT_ENCODING).into_iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"))
}

// === impl ZstdDecoder ===

impl ZstdDecoder {
    fn new(memory: ByteShare) -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
        Ok(Self {
            decoder,
            memory,
            max_window: SMALL_WINDOW_BYTES,
            frame_head: BytesMut::new(),
            is_at_frame_start: true,
            buffer: vec![0; OUTPUT_BUFFER_BYTES].into(),
            is_at_frame_end: false,
            has_more_output: false,
        })
    }

    fn next(&mut self, encoded: &mut Bytes) -> io::Result<Option<DecodedChunk>> {
        while self.has_more_output || !encoded.is_empty() {
            if self.is_at_frame_start && !self.charge_window(encoded)? {
                return Ok(None);
            }
            let status = self.decoder.run_on_buffers(encoded, &mut self.buffer)?;
            let (read, written) = (status.bytes_read, status.bytes_written);
            if read == 0 && written == 0 && !encoded.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            encoded.advance(read);
            // At the end of a frame, the decoder holds no more output.
            let ends_part = status.remaining == 0;
            self.has_more_output = written == OUTPUT_BUFFER_BYTES && !ends_part;
            (self.is_at_frame_end, self.is_at_frame_start) = (ends_part, ends_part);
            if ends_part || written > 0 {
                return Ok(Some(DecodedChunk { bytes: Bytes::copy_from_slice(&self.buffer[..written]), ends_part }));
            }
        }
        Ok(None)
    }

    /// Charges the window of the frame that begins. Returns false if more bytes of its head must arrive first.
    fn charge_window(&mut self, encoded: &mut Bytes) -> io::Result<bool> {
        let window = match window_bytes(encoded) {
            Some(window) if self.frame_head.is_empty() => window,
            _ => {
                self.frame_head.extend_from_slice(encoded);
                encoded.clear();
                let Some(window) = window_bytes(&self.frame_head) else { return Ok(false) };
                *encoded = self.frame_head.split().freeze();
                window
            }
        };
        if window > self.max_window {
            return Err(io::Error::new(io::ErrorKind::InvalidData, WindowTooLarge { max_bytes: self.max_window }));
        }
        self.memory.set_bytes(self.memory.bytes().max(ZSTD_DECODER_BYTES + window))?;
        self.is_at_frame_start = false;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
