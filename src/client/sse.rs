//! Server-sent events: bytes in any pieces become whole events, each byte looked at once.
//!
//! Refuses to know what the events mean. An image is one line of up to tens of megabytes, so nothing is ever searched
//! twice, and the line itself becomes the event without another copy. What grows beyond [`EVENT_MAX_BYTES`] is given up.

use bytes::{Buf as _, Bytes};
use memchr::memchr2;

/// Ours: twice the base64 of the largest image that anybody has seen, and still bearable in memory.
pub(super) const EVENT_MAX_BYTES: usize = 64 << 20;

/// No field has a longer name, and a line of megabytes without a colon need not be searched for one.
const FIELD_MAX_BYTES: usize = 8;

/// What may stand before the first line, to say that it is UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// The type, empty where the event has none.
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// An event is larger than anything that makes sense.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Collects the lines of an event.
#[derive(Debug, Default)]
pub(super) struct Reader {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// The last line ended in a carriage return, so a line feed still belongs to that end.
    after_return: bool,
    /// The first line, which may begin with a mark of the encoding, has ended.
    has_begun: bool,
}

// === impl Reader ===

impl Reader {
    /// The next event that `bytes` complete; what belongs to it is taken from them.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Event>, TooLarge> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                bytes.advance(1);
                continue;
            }
            let end = memchr2(b'\n', b'\r', bytes);
            let part = bytes.split_to(end.unwrap_or(bytes.len()));
            if self.line.len() + self.event.data.len() + part.len() > EVENT_MAX_BYTES {
                return Err(TooLarge);
            }
            self.line.extend_from_slice(&part);
            if end.is_none() {
                break;
            }
            self.after_return = bytes.get_u8() == b'\r';
            let event = self.end_line();
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// What the stream left unfinished. The last empty line of a service that ends too soon is not worth an image.
    pub(super) fn rest(&mut self) -> Option<Event> {
        self.end_line().or_else(|| self.end_event())
    }

    fn end_line(&mut self) -> Option<Event> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.has_begun, true) && line.starts_with(MARK) {
            line.drain(..MARK.len());
        }
        if line.is_empty() {
            return self.end_event();
        }
        let colon = line.iter().take(FIELD_MAX_BYTES).position(|byte| *byte == b':');
        let value = colon.map_or(line.len(), |colon| colon + 1 + usize::from(line.get(colon + 1) == Some(&b' ')));
        match &line[..colon.unwrap_or(line.len())] {
            b"data" => self.add_data(line, value),
            b"event" => self.event.name = String::from_utf8_lossy(&line[value..]).into_owned(),
            // A comment, which is all that a heartbeat is, or a field that images do without.
            _ => {}
        }
        None
    }

    fn add_data(&mut self, mut line: Vec<u8>, value: usize) {
        if std::mem::replace(&mut self.has_data, true) {
            self.event.data.push(b'\n');
            self.event.data.extend_from_slice(&line[value..]);
        } else {
            line.drain(..value);
            self.event.data = line;
        }
    }

    fn end_event(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests;
