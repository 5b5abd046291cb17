//! Finds the data and the end of a body in the received bytes (RFC 9112, section 6 and 7). Pure.
//!
//! Rules: a body that ends otherwise than its framing states is an error, never an end (U06); what is not data, such as
//! the extensions of chunks and trailers, has a limited size and is skipped.

use bytes::{Buf as _, Bytes};

/// The most bytes of all chunk extensions of a body, and of its trailers (our choice).
const MAX_SKIPPED: usize = 16 * 1024;

/// The framing of a body, and the position in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerFraming {
    /// So many bytes are left.
    Length(u64),
    Chunked(ChunkedBody),
    /// The body ends with the connection.
    UntilClose,
}

/// The position in a chunked body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ChunkedBody {
    position: ChunkPosition,
    /// The number of skipped bytes.
    skipped: usize,
    trailers: Vec<u8>,
}

/// The next byte of a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkPosition {
    /// In the size of a chunk: the value of its digits so far, and true if there is one.
    Size(u64, bool),
    /// After the size of a chunk, before a `;` or the end of the line.
    AfterSize(u64),
    /// In the extensions of a chunk of this size.
    Extension(u64),
    /// At the line feed after the size.
    SizeEnd(u64),
    /// So many bytes of the chunk are left.
    Data(u64),
    /// At the carriage return after the data, or at the line feed after that.
    DataEnd,
    DataEndFeed,
    Trailers,
    End,
}

/// The bytes do not follow the framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct FramingError(&'static str);

/// Other readers differ in where such a line ends.
pub(super) const BARE_LINE_FEED: FramingError = FramingError("a line of the trailers ends with a bare line feed");

// === impl AnswerFraming ===

impl AnswerFraming {
    /// True if the body is complete.
    pub(super) fn is_end(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(body) => body.position == ChunkPosition::End,
            Self::UntilClose => false,
        }
    }

    /// The number of bytes that are left, if it is known.
    pub(super) const fn length(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }

    /// Returns the last data, which are empty, if the connection may end here; `None` if the body breaks off.
    pub(super) fn data_at_end_of_connection(&self) -> Option<Bytes> {
        (*self == Self::UntilClose).then(Bytes::new)
    }

    /// Takes the next data out of the received bytes, with the framing before and after them, so that the end is known as
    /// soon as it was received. Empty data mean that more bytes are needed, or that the body is complete.
    pub(super) fn take_data(&mut self, received: &mut Bytes) -> Result<Bytes, FramingError> {
        match self {
            Self::Length(left) => Ok(take_up_to(left, received)),
            Self::UntilClose => Ok(std::mem::take(received)),
            Self::Chunked(body) => {
                body.skip(received)?;
                let ChunkPosition::Data(left) = &mut body.position else { return Ok(Bytes::new()) };
                let data = take_up_to(left, received);
                if *left == 0 {
                    body.position = ChunkPosition::DataEnd;
                }
                // After an error, the next call finds it again: the data before it are not lost.
                let skipped = body.skip(received);
                if data.is_empty() { skipped.map(|()| data) } else { Ok(data) }
            }
        }
    }
}

fn take_up_to(left: &mut u64, received: &mut Bytes) -> Bytes {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(received.len());
    *left -= count as u64;
    received.split_to(count)
}

// === impl ChunkPosition ===

impl Default for ChunkPosition {
    fn default() -> Self {
        Self::Size(0, false)
    }
}

impl ChunkPosition {
    /// Returns the position after this byte, which is neither data nor part of the trailers.
    fn next(self, byte: u8) -> Result<Self, FramingError> {
        const SIZE: FramingError = FramingError("a chunk has no valid size");
        Ok(match (self, byte) {
            (Self::Size(size, _), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).map(u64::from).ok_or(SIZE)?;
                Self::Size(size.checked_mul(16).ok_or(SIZE)? | digit, true)
            }
            (Self::Size(size, true) | Self::AfterSize(size), b'\t' | b' ') => Self::AfterSize(size),
            (Self::Size(size, true) | Self::AfterSize(size), b';') => Self::Extension(size),
            (Self::Size(size, true) | Self::AfterSize(size) | Self::Extension(size), b'\r') => Self::SizeEnd(size),
            (Self::Size(..) | Self::AfterSize(_), _) => return Err(SIZE),
            (Self::Extension(_), b'\n') => return Err(FramingError("a chunk extension has a bare line feed")),
            (Self::Extension(size), _) => Self::Extension(size),
            (Self::SizeEnd(0), b'\n') => Self::Trailers,
            (Self::SizeEnd(size), b'\n') => Self::Data(size),
            (Self::DataEnd, b'\r') => Self::DataEndFeed,
            (Self::DataEndFeed, b'\n') => Self::default(),
            (Self::SizeEnd(_) | Self::DataEnd | Self::DataEndFeed, _) => {
                return Err(FramingError("a chunk does not end with a line end"));
            }
            (Self::Data(_) | Self::Trailers | Self::End, _) => self,
        })
    }
}

// === impl ChunkedBody ===

impl ChunkedBody {
    /// Takes the bytes before the next data.
    fn skip(&mut self, received: &mut Bytes) -> Result<(), FramingError> {
        let is_line =
            |position| !matches!(position, ChunkPosition::Data(_) | ChunkPosition::Trailers | ChunkPosition::End);
        while let Some(byte) = received.first().filter(|_| is_line(self.position)) {
            self.position = self.position.next(*byte)?;
            self.skipped += usize::from(matches!(self.position, ChunkPosition::Extension(_)));
            received.advance(1);
        }
        if self.position == ChunkPosition::Trailers {
            self.skip_trailers(received)?;
        }
        if self.skipped > MAX_SKIPPED {
            return Err(FramingError("the chunk extensions or trailers are too large"));
        }
        Ok(())
    }

    /// Takes the trailers, which no later code needs.
    fn skip_trailers(&mut self, received: &mut Bytes) -> Result<(), FramingError> {
        let before = self.trailers.len();
        let most = (MAX_SKIPPED + 1).saturating_sub(before).min(received.len());
        self.trailers.extend_from_slice(&received[..most]);
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let line_feeds = self.trailers.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        if line_feeds
            .map(|(index, _)| index)
            .any(|index| index.checked_sub(1).map(|before| self.trailers[before]) != Some(b'\r'))
        {
            return Err(BARE_LINE_FEED);
        }
        match httparse::parse_headers(&self.trailers, &mut headers) {
            Ok(httparse::Status::Complete((end, _))) => {
                received.advance(end - before);
                (self.position, self.trailers) = (ChunkPosition::End, Vec::new());
                Ok(())
            }
            Ok(httparse::Status::Partial) => {
                received.clear();
                self.skipped = self.trailers.len();
                Ok(())
            }
            Err(_) => Err(FramingError("the trailers are invalid")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body that arrives in pieces of this size. Returns its data, the surplus bytes, and whether it is complete.
    fn read(mut framing: AnswerFraming, input: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>, bool), FramingError> {
        let (mut data, mut received) = (Vec::new(), Bytes::new());
        for part in input.chunks(piece) {
            received = [&received[..], part].concat().into();
            while !framing.is_end() && !received.is_empty() {
                data.extend_from_slice(&framing.take_data(&mut received)?);
            }
        }
        Ok((data, received.to_vec(), framing.is_end()))
    }

    fn chunked() -> AnswerFraming {
        AnswerFraming::Chunked(ChunkedBody::default())
    }

    #[test]
    fn data_and_end_are_found_wherever_the_bytes_are_cut() {
        let (length, until_close) = (AnswerFraming::Length, AnswerFraming::UntilClose);
        for (framing, input, data, surplus, is_complete) in [
            (length(4), "datamore", "data", "more", true),
            (length(9), "data", "data", "", false),
            (until_close, "data", "data", "", false),
            (chunked(), "4\r\ndata\r\n0\r\n\r\nmore", "data", "more", true),
            (chunked(), "1;a=b;c\r\nd\r\n0003 \t;x\r\nata\r\n00\r\nt: 1\r\nu:\r\n\r\nmore", "data", "more", true),
            (chunked(), "1\r\nd\r\nA\r\n0123456789\r\n0\r\n\r\n", "d0123456789", "", true),
            (chunked(), "4\r\ndata\r\n0\r\n", "data", "", false),
            (chunked(), "5\r\ndata", "data", "", false),
        ] {
            for piece in 1..=input.len() {
                let expected = (data.as_bytes().to_vec(), surplus.as_bytes().to_vec(), is_complete);
                assert_eq!(
                    read(framing.clone(), input.as_bytes(), piece),
                    Ok(expected),
                    "{input} in pieces of {piece}"
                );
            }
        }
    }

    #[test]
    fn the_end_is_known_with_the_last_data() {
        let mut framing = chunked();
        let mut received = Bytes::from_static(b"4\r\ndata\r\n0\r\n\r\n");
        assert_eq!(framing.take_data(&mut received).unwrap(), "data");
        assert!(framing.is_end() && received.is_empty());
    }

    #[test]
    fn wrong_framing_is_an_error_wherever_the_bytes_are_cut() {
        let long = format!("1;{}", "x".repeat(MAX_SKIPPED + 1));
        let many = "1;x\r\nd\r\n".repeat(MAX_SKIPPED);
        let trailers = format!("0\r\nt: {}", "x".repeat(MAX_SKIPPED + 1));
        let short = [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            ";\r\n",
            " 1\r\n",
            "1 1\r\n",
            "1\n",
            "1\rx",
            "1\r\ndd",
            "1\r\nd\n",
            "1\r\nd\rx",
            "10000000000000000\r\n",
            "1;x\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\n: x\r\n\r\n",
            "0\r\n\n",
            "0\r\na: b\n\r\n",
        ];
        let cut_short = short.into_iter().flat_map(|input| [1, 2, 3, 7].map(|piece| (input, piece)));
        let cut_long =
            [&long, &many, &trailers].into_iter().flat_map(|input| [4096, 1 << 20].map(|piece| (&**input, piece)));
        for (input, piece) in cut_short.chain(cut_long) {
            assert!(read(chunked(), input.as_bytes(), piece).is_err(), "{input:.30} in pieces of {piece}");
        }
    }
}
