//! Server-sent events: parses chunks of any size to whole events, and examines each byte once.
//!
//! This module does not know the meaning of the events. An image is one line of up to tens of megabytes, so nothing is
//! searched twice, and the line itself becomes the event without another copy. An event larger than [`EVENT_MAX_BYTES`]
//! is an error.

use bytes::{Buf as _, Bytes};
use memchr::memchr2;

/// The maximum size of an event (our choice): twice the base64 of the largest known image, and still acceptable in
/// memory.
pub(super) const EVENT_MAX_BYTES: usize = 64 << 20;

/// The number of bytes in which the colon after a field name is searched. No known name is longer, so a line of
/// megabytes without a colon need not be searched to its end.
const FIELD_MAX_BYTES: usize = 8;

/// The byte order mark, which may come before the first line and states that the text is UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// The type, empty if the event has none.
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// The event exceeds [`EVENT_MAX_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SseEventTooLarge;

/// Collects the lines of an event.
#[derive(Debug, Default)]
pub(super) struct SseEventReader {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    /// True if the last line ended in a carriage return, so that a line feed still belongs to that line end.
    is_after_carriage_return: bool,
    /// True after the end of the first line, which may begin with a byte order mark.
    has_begun: bool,
}

// === impl SseEventReader ===

impl SseEventReader {
    /// Returns the next event that is complete with `bytes`, and removes the bytes that were read.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<SseEvent>, SseEventTooLarge> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.is_after_carriage_return) && *first == b'\n' {
                bytes.advance(1);
                continue;
            }
            let end = memchr2(b'\n', b'\r', bytes);
            let chunk = bytes.split_to(end.unwrap_or(bytes.len()));
            if self.line.len() + self.event.data.len() + chunk.len() > EVENT_MAX_BYTES {
                return Err(SseEventTooLarge);
            }
            self.line.extend_from_slice(&chunk);
            if end.is_none() {
                break;
            }
            self.is_after_carriage_return = bytes.get_u8() == b'\r';
            let event = self.end_line();
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Returns the event that is unfinished at the end of the stream, so that an image is not lost if only the last
    /// empty line is missing.
    pub(super) fn finish(&mut self) -> Option<SseEvent> {
        self.end_line().or_else(|| self.end_event())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.has_begun, true) && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if line.is_empty() {
            return self.end_event();
        }
        let colon = line.iter().take(FIELD_MAX_BYTES).position(|byte| *byte == b':');
        let value_start = colon.map_or(line.len(), |colon| colon + 1 + usize::from(line.get(colon + 1) == Some(&b' ')));
        match &line[..colon.unwrap_or(line.len())] {
            b"data" => self.add_data(line, value_start),
            b"event" => self.event.name = String::from_utf8_lossy(&line[value_start..]).into_owned(),
            // This is a comment, such as a heartbeat, or a field that the client does not need.
            _ => {}
        }
        None
    }

    fn add_data(&mut self, mut line: Vec<u8>, value_start: usize) {
        if std::mem::replace(&mut self.has_data, true) {
            self.event.data.push(b'\n');
            self.event.data.extend_from_slice(&line[value_start..]);
        } else {
            line.drain(..value_start);
            self.event.data = line;
        }
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests;
