//! Content codings of request bodies. A body is decoded as it comes, one chunk at a time, so that a small body that
//! decodes to a very large one takes little memory before the size limit stops it.
//!
//! Coding agents send `zstd`, other clients `gzip`. No known client applies two codings, and a body with two is
//! refused.

use std::io::{self, Write as _};

use bytes::{Buf as _, Bytes};
use flate2::write::GzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use zstd::stream::raw::{DParameter, Decoder, Operation as _};

use crate::error::Error;

/// The size of the output buffer of the zstd decoder: at most this many bytes are decoded in one step (our choice).
const OUTPUT_BUFFER_BYTES: usize = 64 * 1024;
/// The maximum window size of a zstd body, as a power of two: the 8 MiB that RFC 9659 sets as the maximum for HTTP.
/// Only a malicious body needs more.
const WINDOW_LOG: u32 = 23;

/// The number of parts (gzip members or zstd frames) that a body may have, whatever they contain (our choice): more
/// than any known client makes.
const PARTS_ALLOWANCE: u64 = 64;
/// The minimum average of decoded bytes for each part beyond that number (our choice). Each part resets the decoder,
/// which costs far more than the sender's ten or twenty bytes; clients that compress in parallel make parts of many
/// kilobytes.
const BYTES_PER_FURTHER_PART: u64 = 1024;

/// The decoder of one body.
pub(super) struct BodyDecoder {
    /// The received bytes that are not decoded yet.
    encoded: Bytes,
    format: ContentCoding,
    /// The number of finished gzip members or zstd frames.
    parts: u64,
    /// The number of bytes decoded so far.
    decoded_bytes: u64,
}

enum ContentCoding {
    Gzip(Box<GzDecoder<Vec<u8>>>),
    Zstd(ZstdDecoder),
}

/// The decoder of a body that consists of zstd frames.
struct ZstdDecoder {
    decoder: Decoder<'static>,
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
    /// The decoder for a body with these headers; `None` if the body has no coding.
    ///
    /// # Errors
    ///
    /// Returns 415 for an unsupported coding, and for more than one.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, Error> {
        let values = headers.get_all(CONTENT_ENCODING).iter();
        let mut format = None;
        for word in values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
            if word.is_empty() || word.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            if format.replace(ContentCoding::parse(word)?).is_some() {
                return Err(Error::UnsupportedEncoding);
            }
        }
        Ok(format.map(|format| Self { encoded: Bytes::new(), format, parts: 0, decoded_bytes: 0 }))
    }

    /// Sets the next received bytes; all earlier ones must have been decoded.
    pub(super) fn feed(&mut self, encoded: Bytes) {
        self.encoded = encoded;
    }

    /// Returns the next decoded bytes, which are empty if a part ends without output; `None` if more bytes must arrive
    /// first. No step goes beyond the end of a part, so that the caller can yield to other tasks between parts.
    ///
    /// # Errors
    ///
    /// Returns an error for damaged data, and for too many parts with little content.
    pub(super) fn next(&mut self) -> io::Result<Option<Bytes>> {
        let chunk = match &mut self.format {
            ContentCoding::Gzip(decoder) => gunzip(decoder, &mut self.encoded)?,
            ContentCoding::Zstd(zstd) => zstd.next(&mut self.encoded)?,
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
    pub(super) fn finish(self) -> io::Result<Option<Bytes>> {
        let remaining = match self.format {
            ContentCoding::Gzip(decoder) => decoder.finish()?,
            ContentCoding::Zstd(zstd) if zstd.is_at_frame_end => Vec::new(),
            ContentCoding::Zstd(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
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
    fn parse(word: &[u8]) -> Result<Self, Error> {
        if word.eq_ignore_ascii_case(b"gzip") || word.eq_ignore_ascii_case(b"x-gzip") {
            return Ok(Self::Gzip(Box::new(GzDecoder::new(Vec::new()))));
        }
        if word.eq_ignore_ascii_case(b"zstd") {
            let decoder = ZstdDecoder::new().map_err(|error| {
                tracing::error!(%error, "a zstd decoder could not be created");
                Error::Internal
            })?;
            return Ok(Self::Zstd(decoder));
        }
        Err(Error::UnsupportedEncoding)
    }
}

// === impl ZstdDecoder ===

impl ZstdDecoder {
    fn new() -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
        Ok(Self {
            decoder,
            buffer: vec![0; OUTPUT_BUFFER_BYTES].into(),
            is_at_frame_end: false,
            has_more_output: false,
        })
    }

    fn next(&mut self, encoded: &mut Bytes) -> io::Result<Option<DecodedChunk>> {
        while self.has_more_output || !encoded.is_empty() {
            let status = self.decoder.run_on_buffers(encoded, &mut self.buffer)?;
            let (read, written) = (status.bytes_read, status.bytes_written);
            if read == 0 && written == 0 && !encoded.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            encoded.advance(read);
            self.has_more_output = written == OUTPUT_BUFFER_BYTES;
            let ends_part = status.remaining == 0 && (read > 0 || written > 0);
            // A decoder that is asked for more output at the end of a frame begins the next frame. If it read no byte
            // of that frame, the body may still end here.
            self.is_at_frame_end = status.remaining == 0 || (self.is_at_frame_end && read == 0);
            if ends_part || written > 0 {
                return Ok(Some(DecodedChunk { bytes: Bytes::copy_from_slice(&self.buffer[..written]), ends_part }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (CONTENT_ENCODING, HeaderValue::from_static(value))).collect()
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).expect("encoded");
        encoder.finish().expect("encoded")
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
        // Without a checksum, zstd does not detect damaged content.
        encoder.include_checksum(true).expect("a checksum");
        encoder.write_all(text).expect("encoded");
        encoder.finish().expect("encoded")
    }

    /// Decodes a body that arrives in chunks of this size; returns the size of the largest decoded chunk, and the whole
    /// output.
    fn decode(coding: &'static str, encoded: &[u8], chunk_size: usize) -> io::Result<(usize, Vec<u8>)> {
        let mut decoder = BodyDecoder::from_headers(&headers(&[coding])).expect("a known coding").expect("a decoder");
        let (mut largest, mut output) = (0, Vec::new());
        let mut add = |chunk: &Bytes| {
            largest = largest.max(chunk.len());
            output.extend_from_slice(chunk);
        };
        for chunk in encoded.chunks(chunk_size) {
            decoder.feed(Bytes::copy_from_slice(chunk));
            while let Some(chunk) = decoder.next()? {
                add(&chunk);
            }
        }
        decoder.finish()?.iter().for_each(add);
        Ok((largest, output))
    }

    fn text() -> Vec<u8> {
        (0..300_000_u32).flat_map(|number| (number.wrapping_mul(number) % 977).to_string().into_bytes()).collect()
    }

    #[test]
    fn a_body_is_decoded_in_chunks_of_any_size() {
        let text = text();
        for (coding, encoded) in [("gzip", gzip(&text)), ("ZSTD", zstd(&text)), ("X-Gzip", gzip(&text))] {
            for chunk_size in [1, 7, 4096, usize::MAX] {
                let (_, decoded) = decode(coding, &encoded, chunk_size).expect("a complete body");
                assert!(decoded == text, "{coding}, in chunks of {chunk_size}");
            }
        }
    }

    #[test]
    fn consecutive_members_or_frames_form_one_body() {
        for (coding, encode) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
            let parts = [encode(b"{\"a\":"), encode(b""), encode(b"1}")].concat();
            for chunk_size in [1, 5, usize::MAX] {
                assert_eq!(
                    decode(coding, &parts, chunk_size).expect("a complete body").1,
                    b"{\"a\":1}",
                    "{coding}, in chunks of {chunk_size}"
                );
            }
        }
    }

    #[test]
    fn a_body_of_many_almost_empty_parts_is_refused() {
        for (coding, encode) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
            for (content, chunk_size) in [(&b""[..], 1), (b"", 16 * 1024), (b"1", 1), (b"0123456789", 16 * 1024)] {
                let many_parts = encode(content).repeat(5_000);
                let refused = decode(coding, &many_parts, chunk_size).is_err();
                assert!(
                    refused,
                    "{coding}: {} bytes in {} bytes, in chunks of {chunk_size}",
                    content.len(),
                    many_parts.len()
                );
            }
            let few_parts = [encode(b"").repeat(16), encode(b"{}")].concat();
            assert_eq!(decode(coding, &few_parts, usize::MAX).expect("a complete body").1, b"{}", "{coding}");
            let text = text();
            let large_parts: Vec<u8> = text.chunks(2048).flat_map(encode).collect();
            assert!(decode(coding, &large_parts, 4096).expect("a complete body").1 == text, "{coding}");
        }
    }

    #[test]
    fn a_decoded_chunk_is_small_whatever_the_expansion_ratio() {
        let zeros = vec![0; 40_000_000];
        for (coding, encoded) in [("gzip", gzip(&zeros)), ("zstd", zstd(&zeros))] {
            let (largest, decoded) = decode(coding, &encoded, usize::MAX).expect("a complete body");
            assert!(decoded.len() == zeros.len() && largest <= 2 * OUTPUT_BUFFER_BYTES, "{coding}: {largest}");
        }
    }

    #[test]
    fn truncated_and_damaged_bodies_are_refused() {
        for (coding, encoded) in [("gzip", gzip(&text())), ("zstd", zstd(&text()))] {
            let mut damaged = encoded.clone();
            damaged[encoded.len() / 2] ^= 0x55;
            let surplus = [&encoded[..], b"surplus"].concat();
            let cases = [
                ("empty", &[][..]),
                ("its first bytes", &encoded[..3]),
                ("a half", &encoded[..encoded.len() / 2]),
                ("all but a byte", &encoded[..encoded.len() - 1]),
                ("damaged", &damaged),
                ("surplus", &surplus),
                ("plain", b"{\"model\":\"gpt-5.5\"}"),
            ];
            for (case, body) in cases {
                assert!(decode(coding, body, 1).is_err(), "{coding}, {case}, byte by byte");
                assert!(decode(coding, body, usize::MAX).is_err(), "{coding}, {case}");
            }
        }
    }

    #[test]
    fn a_zstd_window_above_the_limit_is_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
        encoder.window_log(27).expect("a window");
        encoder.write_all(&vec![7; 1 << 24]).expect("encoded");
        let encoded = encoder.finish().expect("encoded");
        assert!(decode("zstd", &encoded, usize::MAX).is_err());
    }

    #[test]
    fn only_a_single_supported_coding_is_accepted() {
        for identity in [&[][..], &["identity"], &["Identity", ""]] {
            assert!(BodyDecoder::from_headers(&headers(identity)).expect("plain").is_none(), "{identity:?}");
        }
        assert!(BodyDecoder::from_headers(&headers(&["identity, gzip"])).expect("encoded").is_some());
        for unsupported in [&["br"][..], &["deflate"], &["gzip, zstd"], &["gzip", "gzip"], &["g zip"], &["compress"]] {
            assert_eq!(
                BodyDecoder::from_headers(&headers(unsupported)).err(),
                Some(Error::UnsupportedEncoding),
                "{unsupported:?}"
            );
        }
    }
}
