//! Content codings of bodies. A body is unpacked as it comes, one piece at a time, so that a small body that unpacks to
//! a large one costs no memory and is stopped by the limit for any body.
//!
//! Agents send `zstd`, other clients `gzip`. No client packs twice, and a body that is packed twice is refused.

use std::io::{self, Write as _};

use bytes::{Buf as _, Bytes};
use flate2::write::GzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use zstd::stream::raw::{DParameter, Decoder, Operation as _};

use crate::error::Error;

/// The size of a piece that is unpacked at once.
const OUTPUT_BUFFER_BYTES: usize = 64 * 1024;
/// The largest distance that a zstd body may refer back, as a power of two: the 8 MiB that every HTTP reader must
/// support. Only a malicious body needs more.
const WINDOW_LOG: u32 = 23;

/// The number of parts that a body may have regardless of their content: more than any client makes.
const PARTS_ALLOWANCE: u64 = 64;
/// The average size of each part beyond that number. Each part makes a decoder start anew, which costs thousands of
/// times the ten or twenty bytes that it takes to send; clients that pack in parallel make parts of many kilobytes.
const BYTES_PER_FURTHER_PART: u64 = 1024;

/// The decoder of one body.
pub(super) struct BodyDecoder {
    /// The received bytes that are not unpacked yet.
    encoded: Bytes,
    format: ContentCoding,
    /// The finished members of gzip or frames of zstd, and the bytes unpacked from all of them.
    parts: u64,
    decoded_bytes: u64,
}

enum ContentCoding {
    Gzip(Box<GzDecoder<Vec<u8>>>),
    Zstd(ZstdDecoder),
}

/// Consecutive zstd frames.
struct ZstdDecoder {
    decoder: Decoder<'static>,
    /// The output buffer: it is allocated once and not for every frame.
    buffer: Box<[u8]>,
    /// True at the end of a frame: nothing is missing.
    is_at_frame_end: bool,
    /// True if the last piece was full, so that the decoder may hold more.
    has_more_output: bool,
}

/// The output of one step.
struct DecodedChunk {
    bytes: Bytes,
    /// True if a part has ended.
    ends_part: bool,
}

// === impl BodyDecoder ===

impl BodyDecoder {
    /// The decoder for a body with these headers; `None` for one that is not packed.
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

    /// Takes the received bytes; all earlier ones must have been unpacked.
    pub(super) fn feed(&mut self, encoded: Bytes) {
        self.encoded = encoded;
    }

    /// The next piece, which is empty if a part ends without output; `None` if more must arrive first. No step goes
    /// beyond the end of a part, so that other tasks run in between.
    ///
    /// # Errors
    ///
    /// Returns an error for damaged data, and for very many parts that hold almost nothing.
    pub(super) fn next(&mut self) -> io::Result<Option<Bytes>> {
        let chunk = match &mut self.format {
            ContentCoding::Gzip(decoder) => gunzip(decoder, &mut self.encoded)?,
            ContentCoding::Zstd(zstd) => zstd.next(&mut self.encoded)?,
        };
        let Some(DecodedChunk { bytes: piece, ends_part: over }) = chunk else { return Ok(None) };
        self.parts += u64::from(over);
        self.decoded_bytes += piece.len() as u64;
        if self.parts > PARTS_ALLOWANCE + self.decoded_bytes / BYTES_PER_FURTHER_PART {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Some(piece))
    }

    /// Returns the rest of the output at the end of the body.
    pub(super) fn finish(self) -> io::Result<Option<Bytes>> {
        let rest = match self.format {
            ContentCoding::Gzip(decoder) => decoder.finish()?,
            ContentCoding::Zstd(zstd) if zstd.is_at_frame_end => Vec::new(),
            ContentCoding::Zstd(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        Ok(Some(rest).filter(|rest| !rest.is_empty()).map(Bytes::from))
    }
}

fn gunzip(decoder: &mut GzDecoder<Vec<u8>>, encoded: &mut Bytes) -> io::Result<Option<DecodedChunk>> {
    while !encoded.is_empty() {
        // The decoder takes no more than fills its own small buffer, and nothing behind the end of its member.
        let taken = decoder.write(encoded)?;
        encoded.advance(taken);
        let over = taken == 0;
        if over {
            decoder.try_finish()?;
        }
        let piece = Bytes::from(std::mem::take(decoder.get_mut()));
        if over {
            *decoder = GzDecoder::new(Vec::new());
        }
        if over || !piece.is_empty() {
            return Ok(Some(DecodedChunk { bytes: piece, ends_part: over }));
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
                tracing::error!(%error, "a zstd decoder could not be made");
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

    fn next(&mut self, packed: &mut Bytes) -> io::Result<Option<DecodedChunk>> {
        while self.has_more_output || !packed.is_empty() {
            let status = self.decoder.run_on_buffers(packed, &mut self.buffer)?;
            let (read, written) = (status.bytes_read, status.bytes_written);
            if read == 0 && written == 0 && !packed.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            packed.advance(read);
            self.has_more_output = written == OUTPUT_BUFFER_BYTES;
            let over = status.remaining == 0 && (read > 0 || written > 0);
            // A decoder that is asked for more than it has begins the next frame, of which nothing has come.
            self.is_at_frame_end = status.remaining == 0 || (self.is_at_frame_end && read == 0);
            if over || written > 0 {
                return Ok(Some(DecodedChunk {
                    bytes: Bytes::copy_from_slice(&self.buffer[..written]),
                    ends_part: over,
                }));
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
        encoder.write_all(text).expect("packed");
        encoder.finish().expect("packed")
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
        // Without a checksum, damage to a text is not detected here.
        encoder.include_checksum(true).expect("a checksum");
        encoder.write_all(text).expect("packed");
        encoder.finish().expect("packed")
    }

    /// Unpacks a body in pieces of this size; returns the size of the largest output piece, and the whole output.
    fn unpack(coding: &'static str, packed: &[u8], cut: usize) -> io::Result<(usize, Vec<u8>)> {
        let mut unpacker = BodyDecoder::from_headers(&headers(&[coding])).expect("a known coding").expect("packed");
        let (mut largest, mut all) = (0, Vec::new());
        let mut take = |piece: &Bytes| {
            largest = largest.max(piece.len());
            all.extend_from_slice(piece);
        };
        for piece in packed.chunks(cut) {
            unpacker.feed(Bytes::copy_from_slice(piece));
            while let Some(piece) = unpacker.next()? {
                take(&piece);
            }
        }
        unpacker.finish()?.iter().for_each(take);
        Ok((largest, all))
    }

    fn text() -> Vec<u8> {
        (0..300_000_u32).flat_map(|number| (number.wrapping_mul(number) % 977).to_string().into_bytes()).collect()
    }

    #[test]
    fn what_was_packed_comes_out_wherever_it_is_cut() {
        let text = text();
        for (coding, packed) in [("gzip", gzip(&text)), ("ZSTD", zstd(&text)), ("X-Gzip", gzip(&text))] {
            for cut in [1, 7, 4096, usize::MAX] {
                let (_, unpacked) = unpack(coding, &packed, cut).expect("whole");
                assert!(unpacked == text, "{coding}, cut into {cut}");
            }
        }
    }

    #[test]
    fn members_and_frames_one_behind_the_other_are_one_body() {
        for (coding, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
            let both = [pack(b"{\"a\":"), pack(b""), pack(b"1}")].concat();
            for cut in [1, 5, usize::MAX] {
                assert_eq!(unpack(coding, &both, cut).expect("whole").1, b"{\"a\":1}", "{coding}, cut into {cut}");
            }
        }
    }

    #[test]
    fn a_body_of_many_members_that_hold_next_to_nothing_is_none() {
        for (coding, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
            for (little, cut) in [(&b""[..], 1), (b"", 16 * 1024), (b"1", 1), (b"0123456789", 16 * 1024)] {
                let many = pack(little).repeat(5_000);
                let refused = unpack(coding, &many, cut).is_err();
                assert!(refused, "{coding}: {} bytes in {} bytes, cut into {cut}", little.len(), many.len());
            }
            let few = [pack(b"").repeat(16), pack(b"{}")].concat();
            assert_eq!(unpack(coding, &few, usize::MAX).expect("whole").1, b"{}", "{coding}");
            let text = text();
            let fair: Vec<u8> = text.chunks(2048).flat_map(pack).collect();
            assert!(unpack(coding, &fair, 4096).expect("whole").1 == text, "{coding}");
        }
    }

    #[test]
    fn a_piece_stays_small_however_much_it_unpacks_to() {
        let zeros = vec![0; 40_000_000];
        for (coding, packed) in [("gzip", gzip(&zeros)), ("zstd", zstd(&zeros))] {
            let (largest, unpacked) = unpack(coding, &packed, usize::MAX).expect("whole");
            assert!(unpacked.len() == zeros.len() && largest <= 2 * OUTPUT_BUFFER_BYTES, "{coding}: {largest}");
        }
    }

    #[test]
    fn what_is_cut_or_damaged_is_no_body() {
        for (coding, packed) in [("gzip", gzip(&text())), ("zstd", zstd(&text()))] {
            let mut damaged = packed.clone();
            damaged[packed.len() / 2] ^= 0x55;
            let surplus = [&packed[..], b"surplus"].concat();
            let cases = [
                ("empty", &[][..]),
                ("its first bytes", &packed[..3]),
                ("a half", &packed[..packed.len() / 2]),
                ("all but a byte", &packed[..packed.len() - 1]),
                ("damaged", &damaged),
                ("surplus", &surplus),
                ("plain", b"{\"model\":\"gpt-5.5\"}"),
            ];
            for (what, bad) in cases {
                assert!(unpack(coding, bad, 1).is_err(), "{coding}, {what}, byte by byte");
                assert!(unpack(coding, bad, usize::MAX).is_err(), "{coding}, {what}");
            }
        }
    }

    #[test]
    fn a_window_that_no_client_needs_is_not_given() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
        encoder.window_log(27).expect("a window");
        encoder.write_all(&vec![7; 1 << 24]).expect("packed");
        let packed = encoder.finish().expect("packed");
        assert!(unpack("zstd", &packed, usize::MAX).is_err());
    }

    #[test]
    fn only_one_known_coding_is_read() {
        for plain in [&[][..], &["identity"], &["Identity", ""]] {
            assert!(BodyDecoder::from_headers(&headers(plain)).expect("plain").is_none(), "{plain:?}");
        }
        assert!(BodyDecoder::from_headers(&headers(&["identity, gzip"])).expect("packed").is_some());
        for unread in [&["br"][..], &["deflate"], &["gzip, zstd"], &["gzip", "gzip"], &["g zip"], &["compress"]] {
            assert_eq!(
                BodyDecoder::from_headers(&headers(unread)).err(),
                Some(Error::UnsupportedEncoding),
                "{unread:?}"
            );
        }
    }
}
