//! An image in a request body, given as a base64 data URL. The image stays in the body; only the parts that are read
//! are decoded.

use std::cell::RefCell;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::body_members::ValueSpan;
use super::json_walker::JsonWalker;
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;
use crate::image::{Base64Decoder, ByteSource, DataUrlError, starts_with};

/// The most characters of the prefix, which ends at the comma.
const HEAD_MAX: usize = 256;
/// The least number of base64 characters between two known positions.
const POSITION_INTERVAL: u64 = 4 * 1024;
/// The number of bytes that are decoded at once: whole groups of three, and as much base64 as is read at once.
const WINDOW: u64 = 48 * 1024;

/// An image in a request body, readable at any offset.
#[derive(Debug)]
pub(super) struct DataUrl<'a> {
    body: &'a SpooledBytes,
    span: ValueSpan,
    /// Known positions in the base64: the number of base64 characters before each one, and its offset in the body. JSON
    /// escapes make the distances differ.
    positions: Vec<(u64, u64)>,
    length: u64,
    /// The offset of the bytes that were decoded last, and these bytes: a check of an image makes many small reads, one
    /// after the other.
    window: RefCell<(u64, Vec<u8>)>,
}

/// Checks a data URL piece by piece.
#[derive(Default)]
struct DataUrlReader {
    /// The text before the comma, until all of it has come.
    head: String,
    is_in_data: bool,
    /// The number of characters after the comma.
    characters: u64,
    base64: Base64Decoder,
    scratch: Vec<u8>,
    decoded: u64,
    fault: Option<DataUrlError>,
}

// === impl DataUrl ===

impl<'a> DataUrl<'a> {
    /// Reads the text once, and checks it. The inner error is a fault of the data URL; the outer one is a failure to
    /// read the body.
    pub(super) fn read(body: &'a SpooledBytes, url: ValueSpan) -> Result<Result<Self, DataUrlError>, Error> {
        let mut walk = JsonWalker::between(body, url.start + 1, url.end);
        let (mut reader, mut positions) = (DataUrlReader::default(), Vec::new());
        while walk.visit_text_piece(&mut |text| reader.push(text))? {
            if let Some(fault) = reader.fault {
                return Ok(Err(fault));
            }
            let next = positions.last().map_or(0, |(characters, _)| characters + POSITION_INTERVAL);
            if !reader.is_in_data || (reader.characters < next && !positions.is_empty()) {
                continue;
            }
            // The first position is that of the first character after the comma, in the middle of the piece just read.
            let data_in_piece = if positions.is_empty() { reader.characters } else { 0 };
            positions.push((reader.characters - data_in_piece, walk.offset() - data_in_piece));
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
        let begin = offset / WINDOW * WINDOW;
        let mut window = self.window.borrow_mut();
        if window.0 != begin || window.1.is_empty() {
            *window = (begin, self.decode(begin)?);
        }
        let skipped = usize::try_from(offset - begin).unwrap_or(usize::MAX);
        let found = window.1.get(skipped..).unwrap_or_default();
        let count = found.len().min(buffer.len());
        buffer[..count].copy_from_slice(&found[..count]);
        Ok(count)
    }
}

impl DataUrl<'_> {
    /// Decodes the window that begins at this offset. It is shorter only at the end.
    fn decode(&self, begin: u64) -> io::Result<Vec<u8>> {
        let wanted = usize::try_from(WINDOW / 3 * 4).unwrap_or(usize::MAX);
        let text = self.characters(begin / 3 * 4, wanted)?;
        STANDARD.decode(text).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Returns at most `wanted` characters of the base64, beginning with number `first`; fewer at its end.
    fn characters(&self, first: u64, wanted: usize) -> io::Result<Vec<u8>> {
        let known = self.positions.partition_point(|(characters, _)| *characters <= first);
        let Some((mut before, place)) = known.checked_sub(1).map(|index| self.positions[index]) else {
            return Ok(Vec::new());
        };
        let mut walk = JsonWalker::between(self.body, place, self.span.end);
        let mut found = Vec::with_capacity(wanted);
        loop {
            let has_more = walk.visit_text_piece(&mut |text| {
                let skipped = usize::try_from(first.saturating_sub(before)).unwrap_or(usize::MAX).min(text.len());
                let rest = &text.as_bytes()[skipped..];
                found.extend_from_slice(&rest[..rest.len().min(wanted - found.len())]);
                before += text.len() as u64;
            });
            // The disk failed; the cause has been logged.
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

    /// Keeps the characters before the comma, and returns those after it.
    fn strip_head<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        if self.is_in_data {
            return Some(text);
        }
        let (head, data) = text.split_once(',').map_or((text, None), |(head, data)| (head, Some(data)));
        let room = HEAD_MAX.saturating_sub(self.head.len());
        self.head.push_str(&head[..head.floor_char_boundary(room)]);
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

    /// Checks that the text is complete, and returns the length of the image.
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

    /// Returns a file of this length.
    fn file(length: u32) -> Vec<u8> {
        (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
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
            assert!(all.len() as u64 <= image.len(), "more than there is");
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
    fn the_error_states_why_a_text_is_no_data_url() {
        let message = |url: &str| read(url).map(|_| ()).expect_err(url).to_string();
        assert!(message("https:\\/\\/example.com/mask.png").contains("remote"));
        for other in ["", "mask.png", "data:image/png,AAAA", &"x".repeat(1000)] {
            assert!(message(other).contains("expected a base64 data URL"), "{other}");
        }
        for damaged in ["A", "AAA", "AA==AAAA", "AA=A", "AAAA AAAA", "AA-_", "AB=="] {
            assert!(message(&format!("data:;base64,{damaged}")).contains("not valid base64"), "{damaged}");
        }
    }
}
