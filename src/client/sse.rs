//! Collects the events of a stream from chunks of any size, and examines each byte once.
//!
//! This module does not know the meaning of the events. An image is one line of up to tens of megabytes, so nothing is
//! searched twice, and the data is copied only once. An event with more than [`EVENT_MAX_BYTES`] of data is an error.

use bytes::{Buf as _, Bytes};

use crate::stream::sse::{SseFramer, SseSpan};

/// The maximum size of the data of an event (our choice): twice the base64 of the largest known image, and still
/// acceptable in memory.
pub(super) const EVENT_MAX_BYTES: usize = 64 << 20;

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
    framer: SseFramer,
    data: Vec<u8>,
    /// True inside a line of data.
    is_in_line: bool,
    /// True if the event has a whole line of data.
    has_data: bool,
}

// === impl SseEventReader ===

impl SseEventReader {
    /// Returns the next event that is complete with `bytes`, and removes the bytes that were read.
    pub(super) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<SseEvent>, SseEventTooLarge> {
        while !bytes.is_empty() {
            let (length, span) = self.framer.next(bytes);
            let event = match span {
                SseSpan::Data => {
                    self.add_data(&bytes[..length])?;
                    None
                }
                SseSpan::DataLineEnd => {
                    self.end_line();
                    None
                }
                SseSpan::EventEnd => self.end_event(),
                SseSpan::CommentEnd | SseSpan::Other => None,
            };
            bytes.advance(length);
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Returns the event that is unfinished at the end of the stream, so that an image is not lost if only the last
    /// empty line is missing.
    pub(super) fn finish(&mut self) -> Option<SseEvent> {
        if self.framer.finish() {
            self.end_line();
        }
        self.end_event()
    }

    fn add_data(&mut self, data: &[u8]) -> Result<(), SseEventTooLarge> {
        self.begin_line();
        if self.data.len() + data.len() > EVENT_MAX_BYTES {
            return Err(SseEventTooLarge);
        }
        self.data.extend_from_slice(data);
        Ok(())
    }

    /// Begins a line of data, unless it has begun.
    fn begin_line(&mut self) {
        if !std::mem::replace(&mut self.is_in_line, true) && self.has_data {
            self.data.push(b'\n');
        }
    }

    fn end_line(&mut self) {
        self.begin_line();
        (self.is_in_line, self.has_data) = (false, true);
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let (data, has_data) = (std::mem::take(&mut self.data), std::mem::take(&mut self.has_data));
        let name = String::from_utf8_lossy(self.framer.event_name()).into_owned();
        has_data.then_some(SseEvent { name, data })
    }
}

#[cfg(test)]
mod tests;
