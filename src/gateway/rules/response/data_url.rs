//! An image in a request body, given as a base64 data URL. The image stays in the body: it is decoded once to check it,
//! and later again in windows, when it is read. The decoded image is never in memory as a whole.

use std::cell::RefCell;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::body_members::ValueSpan;
use super::json_walker::JsonWalker;
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;
use crate::image::{Base64Decoder, ByteSource, DataUrlError, starts_with};

/// The most bytes of the prefix before the comma (our choice).
const HEAD_MAX: usize = 256;
/// The least number of base64 characters between two known positions (our choice).
const POSITION_INTERVAL: u64 = 4 * 1024;
/// The number of bytes of the image that are decoded at once: a multiple of three, so that no group of base64 is cut.
/// Their base64 has the size of one piece of the walker.
const WINDOW: u64 = 48 * 1024;

/// An image in a request body, readable at any offset.
#[derive(Debug)]
pub(super) struct DataUrl<'a> {
    body: &'a SpooledBytes,
    span: ValueSpan,
    /// Known positions in the base64: the number of base64 characters before each position, and its offset in the body.
    /// Because of JSON escapes, the offset cannot be computed.
    positions: Vec<(u64, u64)>,
    /// The length of the decoded image in bytes.
    length: u64,
    /// The bytes that were decoded last, with their offset in the image: a check of an image makes many small reads in
    /// sequence.
    window: RefCell<(u64, Vec<u8>)>,
}

/// Checks a data URL piece by piece.
#[derive(Default)]
struct DataUrlReader {
    /// The text before the comma, as far as it has been read, cut at `HEAD_MAX`.
    head: String,
    is_in_data: bool,
    /// The number of characters after the comma that have been read.
    characters: u64,
    base64: Base64Decoder,
    scratch: Vec<u8>,
    decoded: u64,
    fault: Option<DataUrlError>,
}

// === impl DataUrl ===

impl<'a> DataUrl<'a> {
    /// Reads the string at `url` once, and checks it. The inner error is a fault of the data URL; the outer error is a
    /// failure to read the body.
    pub(super) fn read(body: &'a SpooledBytes, url: ValueSpan) -> Result<Result<Self, DataUrlError>, Error> {
        let mut walker = JsonWalker::between(body, url.start + 1, url.end);
        let (mut reader, mut positions) = (DataUrlReader::default(), Vec::new());
        while walker.visit_text_piece(&mut |text| reader.push(text))? {
            if let Some(fault) = reader.fault {
                return Ok(Err(fault));
            }
            let next_position = positions.last().map_or(0, |(characters, _)| characters + POSITION_INTERVAL);
            if !reader.is_in_data || (reader.characters < next_position && !positions.is_empty()) {
                continue;
            }
            // The first position is that of the first character after the comma, which may be within the piece just
            // read.
            let data_in_piece = if positions.is_empty() { reader.characters } else { 0 };
            positions.push((reader.characters - data_in_piece, walker.offset() - data_in_piece));
        }
        let window = RefCell::new((0, Vec::new()));
        Ok(reader.finish().map(|length| Self { body, span: url, positions, length, window }))
    }
}

impl ByteSource for DataUrl<'_> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let start = offset / WINDOW * WINDOW;
        let mut window = self.window.borrow_mut();
        if window.0 != start || window.1.is_empty() {
            *window = (start, self.decode(start)?);
        }
        let skipped = usize::try_from(offset - start).unwrap_or(usize::MAX);
        let available = window.1.get(skipped..).unwrap_or_default();
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        Ok(count)
    }
}

impl DataUrl<'_> {
    /// Decodes the window that begins at this offset of the image. Only the last window may be shorter than `WINDOW`.
    fn decode(&self, start: u64) -> io::Result<Vec<u8>> {
        let wanted = usize::try_from(WINDOW / 3 * 4).unwrap_or(usize::MAX);
        let text = self.characters(start / 3 * 4, wanted)?;
        STANDARD.decode(text).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Returns `wanted` characters of the base64, beginning with number `first`; fewer at the end of the base64.
    fn characters(&self, first: u64, wanted: usize) -> io::Result<Vec<u8>> {
        let later_position = self.positions.partition_point(|(characters, _)| *characters <= first);
        let Some((mut characters_before, offset)) = later_position.checked_sub(1).map(|index| self.positions[index])
        else {
            return Ok(Vec::new());
        };
        let mut walker = JsonWalker::between(self.body, offset, self.span.end);
        let mut found = Vec::with_capacity(wanted);
        loop {
            let has_more = walker.visit_text_piece(&mut |text| {
                let skipped =
                    usize::try_from(first.saturating_sub(characters_before)).unwrap_or(usize::MAX).min(text.len());
                let new_text = &text.as_bytes()[skipped..];
                found.extend_from_slice(&new_text[..new_text.len().min(wanted - found.len())]);
                characters_before += text.len() as u64;
            });
            // The disk failed. The walker has logged the cause.
            if !has_more.map_err(|_| io::Error::other("the body could not be read back"))? || found.len() == wanted {
                return Ok(found);
            }
        }
    }
}

// === impl DataUrlReader ===

impl DataUrlReader {
    fn push(&mut self, text: &str) {
        let Some(data) = self.strip_head(text) else { return };
        self.characters += data.len() as u64;
        if let Err(fault) = self.decode(data.as_bytes()) {
            self.fault.get_or_insert(fault);
        }
    }

    /// Collects the characters before the comma, checks them once the comma is read, and returns those after the comma.
    /// Returns `None` before the comma is read, or if what precedes it is invalid or too long.
    fn strip_head<'text>(&mut self, text: &'text str) -> Option<&'text str> {
        if self.is_in_data {
            return Some(text);
        }
        let (head, data) = text.split_once(',').map_or((text, None), |(head, data)| (head, Some(data)));
        let remaining = HEAD_MAX.saturating_sub(self.head.len());
        self.head.push_str(&head[..head.floor_char_boundary(remaining)]);
        if data.is_none() && self.head.len() < HEAD_MAX {
            return None;
        }
        self.is_in_data =
            data.is_some() && starts_with(self.head.as_bytes(), "data:") && self.head.ends_with(";base64");
        if !self.is_in_data {
            self.fault = Some(DataUrlError::from_prefix(self.head.as_bytes()));
        }
        data.filter(|_| self.is_in_data)
    }

    fn decode(&mut self, text: &[u8]) -> Result<(), DataUrlError> {
        self.scratch.clear();
        self.base64.push(text, &mut self.scratch)?;
        self.decoded += self.scratch.len() as u64;
        Ok(())
    }

    /// Checks that the prefix and the base64 are complete, and returns the length of the image.
    fn finish(&self) -> Result<u64, DataUrlError> {
        if !self.is_in_data {
            return Err(DataUrlError::from_prefix(self.head.as_bytes()));
        }
        self.base64.finish()?;
        Ok(self.decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::rules::response::body_members;

    /// Returns pseudo-random bytes of this length.
    fn file(length: u32) -> Vec<u8> {
        (0..length).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    fn read(url: &str) -> Result<Vec<u8>, DataUrlError> {
        let body = SpooledBytes::from(bytes::Bytes::from(format!(r#"{{"image_url":"{url}"}}"#)));
        let (known, _) = body_members::read_members(&body, &["image_url"]).expect("JSON");
        let image = DataUrl::read(&body, known.get("image_url").expect("a member").span).expect("readable")?;
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
            for text in [text.clone(), text.replace('/', "\\/"), text.replace('A', "\\u0041")] {
                let found = read(&format!("data:image\\/png;base64,{text}")).expect("an image");
                assert!(found == file(length), "{length}");
            }
        }
    }

    #[test]
    fn the_error_states_why_a_data_url_is_invalid() {
        let message = |url: &str| read(url).map(|_| ()).expect_err(url).to_string();
        assert!(message("https:\\/\\/example.com/mask.png").contains("remote"));
        for text in ["", "mask.png", "data:image/png,AAAA", &"x".repeat(1000)] {
            assert!(message(text).contains("expected a base64 data URL"), "{text}");
        }
        for damaged in ["A", "AAA", "AA==AAAA", "AA=A", "AAAA AAAA", "AA-_", "AB=="] {
            assert!(message(&format!("data:;base64,{damaged}")).contains("not valid base64"), "{damaged}");
        }
    }
}
