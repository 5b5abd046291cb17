//! An image in a request body, given as a base64 data URL. The image stays in the body: it is decoded once to check it,
//! and again as far as it is read. The decoded image is never in memory as a whole.

use std::cell::RefCell;
use std::io;

use super::body_members::ValueSpan;
use super::body_reader::BodyReader;
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;
use crate::image::{ByteSource, DataUrlDecoder, DataUrlError};
use crate::stream::json::JsonToken;

/// The number of bytes that stay in the window when the next ones are decoded (our choice): a check of an image reads
/// forwards, and in a few places some bytes back.
const OVERLAP: usize = 32;

/// An image in a request body. It is meant to be read forwards: a read before the window decodes it from the beginning.
#[derive(Debug)]
pub(super) struct DataUrl<'a> {
    body: &'a SpooledBytes,
    span: ValueSpan,
    /// The length of the decoded image in bytes.
    length: u64,
    window: RefCell<DecodedWindow<'a>>,
}

/// The bytes of the image that were decoded last.
#[derive(Debug)]
struct DecodedWindow<'a> {
    reader: BodyReader<'a>,
    decoder: DataUrlDecoder,
    /// The offset of the window in the image.
    start: u64,
    bytes: Vec<u8>,
}

/// The reason why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum DataUrlFault {
    /// The data URL is invalid.
    #[error(transparent)]
    Invalid(#[from] DataUrlError),
    /// The body could not be read back from the disk, which has been logged.
    #[error("the body could not be read back")]
    Unreadable(Error),
}

// === impl DataUrl ===

impl<'a> DataUrl<'a> {
    /// Reads the string at `url` once, and checks it.
    pub(super) fn read(body: &'a SpooledBytes, url: ValueSpan) -> Result<Self, DataUrlFault> {
        let mut window = DecodedWindow::new(body, url)?;
        while window.advance()? {}
        let length = window.end();
        Ok(Self { body, span: url, length, window: DecodedWindow::new(body, url)?.into() })
    }
}

impl ByteSource for DataUrl<'_> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if offset >= self.length {
            return Ok(0);
        }
        let mut window = self.window.borrow_mut();
        if offset < window.start {
            *window = DecodedWindow::new(self.body, self.span).map_err(DataUrlFault::from)?;
        }
        while offset >= window.end() && window.advance()? {}
        let skipped = usize::try_from(offset - window.start).unwrap_or(usize::MAX);
        let available = window.bytes.get(skipped..).unwrap_or_default();
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        Ok(count)
    }
}

impl From<Error> for DataUrlFault {
    fn from(error: Error) -> Self {
        Self::Unreadable(error)
    }
}

impl From<DataUrlFault> for io::Error {
    fn from(fault: DataUrlFault) -> Self {
        Self::other(fault)
    }
}

// === impl DecodedWindow ===

impl<'a> DecodedWindow<'a> {
    /// Makes the empty window at the beginning of the image.
    fn new(body: &'a SpooledBytes, url: ValueSpan) -> Result<Self, Error> {
        let (reader, _) = BodyReader::over_span(body, url)?;
        Ok(Self { reader, decoder: DataUrlDecoder::new(), start: 0, bytes: Vec::new() })
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Moves the window over the next bytes. Returns false at the end of the image.
    fn advance(&mut self) -> Result<bool, DataUrlFault> {
        let dropped = self.bytes.len().saturating_sub(OVERLAP);
        self.bytes.drain(..dropped);
        self.start += dropped as u64;
        match self.reader.next_token()? {
            JsonToken::Text => self.decoder.push(self.reader.bytes(), &mut self.bytes)?,
            JsonToken::Escaped(unit) => self.decoder.push_escaped(unit, &mut self.bytes)?,
            _ => {
                self.decoder.finish()?;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::gateway::rules::response::body_members::{self, JsonType};

    /// Returns pseudo-random bytes of this length.
    fn file(length: u32) -> Vec<u8> {
        (0..length).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    fn read(url: &str) -> Result<Vec<u8>, DataUrlError> {
        let body = SpooledBytes::from(bytes::Bytes::from(format!(r#"{{"image_url":"{url}"}}"#)));
        let (mut reader, value) = BodyReader::over_body(&body).expect("JSON");
        let known = body_members::read_members(&mut reader, value, &["image_url"]).expect("JSON");
        let image = match DataUrl::read(&body, known.get("image_url").expect("a member").span) {
            Err(DataUrlFault::Invalid(error)) => return Err(error),
            image => image.expect("readable"),
        };
        let (mut all, mut buffer) = (Vec::new(), [0; 97]);
        loop {
            let count = image.read_at(all.len() as u64, &mut buffer).expect("readable");
            if count == 0 {
                assert_eq!(image.len(), all.len() as u64);
                return Ok(all);
            }
            all.extend_from_slice(&buffer[..count]);
            assert!(all.len() as u64 <= image.len(), "more bytes than the length states");
        }
    }

    #[test]
    fn an_image_is_read_in_place_with_any_escapes() {
        for length in [0, 1, 2, 3, 100, 49_152, 150_000] {
            let text = STANDARD.encode(file(length));
            for text in [text.clone(), text.replace('/', "\\/"), text.replace('A', "\\u0041 \\r\\n")] {
                let found = read(&format!("data:image\\/png;base64,{text}")).expect("an image");
                assert!(found == file(length), "{length}");
            }
        }
    }

    #[test]
    fn an_image_can_be_read_backwards() {
        let body = SpooledBytes::from(bytes::Bytes::from(format!(
            r#""data:image/png;base64,{}""#,
            STANDARD.encode(file(150_000))
        )));
        let span = ValueSpan { start: 0, end: body.len(), json_type: JsonType::Text };
        let image = DataUrl::read(&body, span).expect("an image");
        for offset in [149_990, 70_000, 60_000, 3, 0] {
            let (mut buffer, expected) = ([0; 7], &file(150_000)[offset..offset + 7]);
            assert_eq!(
                (image.read_at(offset as u64, &mut buffer).expect("readable"), &buffer[..]),
                (7, expected),
                "{offset}"
            );
        }
    }

    #[test]
    fn the_error_states_why_a_data_url_is_invalid() {
        let message = |url: &str| read(url).map(|_| ()).expect_err(url).to_string();
        assert!(message("https:\\/\\/example.com/mask.png").contains("remote"));
        for text in ["", "mask.png", "data:image/png,AAAA", &"x".repeat(1000)] {
            assert!(message(text).contains("expected a base64 data URL"), "{text}");
        }
        for damaged in ["A", "AAA", "AA==AAAA", "AA=A", "AA-_", "AB=="] {
            assert!(message(&format!("data:image/png;base64,{damaged}")).contains("not valid base64"), "{damaged}");
        }
    }
}
