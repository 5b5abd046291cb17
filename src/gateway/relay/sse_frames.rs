//! Finds the frames of an event stream, the data in them and the names of the events, without keeping the data.

use memchr::memchr2;

/// The longest field name that is kept. No field that is read has a longer one.
const FIELD_MAX: usize = 8;
/// The longest event name that is kept. No name that is read is longer.
const NAME_MAX: usize = 64;

/// Scans a stream of events, in pieces cut anywhere.
#[derive(Debug)]
pub(super) struct SseFrameScanner {
    line: SseFrameLineState,
    field: Vec<u8>,
    event_name: Vec<u8>,
    /// True if a line feed here belongs to the line end before it.
    after_carriage_return: bool,
    /// True if the current frame contains anything but a comment.
    has_fields: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SseFrameLineState {
    /// At the beginning of a line.
    Start,
    /// Inside the name of a field.
    Field,
    /// After the colon before a value that is read: one space may follow.
    Colon(SseFrameField),
    /// Inside a value that is read.
    Value(SseFrameField),
    /// Inside a part that is not read.
    Skip,
}

/// A field that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SseFrameField {
    Data,
    EventName,
}

/// The kind of a stretch of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SseFrameSpan {
    /// Part of the data of an event.
    Data,
    /// The end of a frame: of an event, or of comments alone.
    End {
        /// True if the frame was an event.
        is_event: bool,
    },
    /// Everything else.
    Other,
}

// === impl SseFrameScanner ===

impl SseFrameScanner {
    pub(super) const fn new() -> Self {
        Self {
            line: SseFrameLineState::Start,
            field: Vec::new(),
            event_name: Vec::new(),
            after_carriage_return: false,
            has_fields: false,
        }
    }

    /// Returns the length of the next stretch in `rest`, and its kind. `rest` must not be empty.
    pub(super) fn next(&mut self, rest: &[u8]) -> (usize, SseFrameSpan) {
        let Some(&byte) = rest.first() else { return (0, SseFrameSpan::Other) };
        if std::mem::take(&mut self.after_carriage_return) && byte == b'\n' {
            return (1, SseFrameSpan::Other);
        }
        if matches!(byte, b'\r' | b'\n') {
            self.after_carriage_return = byte == b'\r';
            return (1, self.end_of_line());
        }
        if let SseFrameLineState::Colon(field) = self.line {
            self.line = SseFrameLineState::Value(field);
            if byte == b' ' {
                return (1, SseFrameSpan::Other);
            }
        }
        match self.line {
            SseFrameLineState::Value(SseFrameField::Data) => (end_of_line(rest), SseFrameSpan::Data),
            SseFrameLineState::Value(SseFrameField::EventName) => {
                let end = end_of_line(rest);
                self.event_name.extend_from_slice(&rest[..end.min(NAME_MAX - self.event_name.len())]);
                (end, SseFrameSpan::Other)
            }
            SseFrameLineState::Skip => (end_of_line(rest), SseFrameSpan::Other),
            SseFrameLineState::Start | SseFrameLineState::Field | SseFrameLineState::Colon(_) => {
                self.push_field_byte(byte);
                (1, SseFrameSpan::Other)
            }
        }
    }

    /// Returns the name of the current event, as far as it has come. A reader of names must call
    /// [`Self::take_event_name`] at the end of each frame.
    pub(super) fn event_name(&self) -> Option<String> {
        String::from_utf8(self.event_name.clone()).ok().filter(|name| !name.is_empty())
    }

    /// Removes the name of an event that has ended, and returns it.
    pub(super) fn take_event_name(&mut self) -> Option<String> {
        String::from_utf8(std::mem::take(&mut self.event_name)).ok().filter(|name| !name.is_empty())
    }

    fn push_field_byte(&mut self, byte: u8) {
        if self.line == SseFrameLineState::Start {
            self.field.clear();
        }
        self.has_fields |= byte != b':' || !self.field.is_empty();
        if byte != b':' {
            self.line = SseFrameLineState::Field;
            if self.field.len() < FIELD_MAX {
                self.field.push(byte);
            }
            return;
        }
        // A byte order mark may come before the first field.
        self.line = match self.field.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.field) {
            b"data" => SseFrameLineState::Colon(SseFrameField::Data),
            b"event" => {
                self.event_name.clear();
                SseFrameLineState::Colon(SseFrameField::EventName)
            }
            _ => SseFrameLineState::Skip,
        };
    }

    fn end_of_line(&mut self) -> SseFrameSpan {
        match std::mem::replace(&mut self.line, SseFrameLineState::Start) {
            SseFrameLineState::Start => SseFrameSpan::End { is_event: std::mem::take(&mut self.has_fields) },
            _ => SseFrameSpan::Other,
        }
    }
}

/// Returns the end of the line, or of the piece.
fn end_of_line(rest: &[u8]) -> usize {
    memchr2(b'\r', b'\n', rest).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &str, cut: usize) -> (Vec<String>, Vec<bool>) {
        let (mut frames, mut data, mut ends) = (SseFrameScanner::new(), vec![String::new()], Vec::new());
        for piece in stream.as_bytes().chunks(cut) {
            let mut at = 0;
            while at < piece.len() {
                let (length, stretch) = frames.next(&piece[at..]);
                let text = std::str::from_utf8(&piece[at..at + length]).unwrap();
                take(stretch, text, &mut data, &mut ends);
                at += length;
            }
        }
        (data, ends)
    }

    fn take(stretch: SseFrameSpan, text: &str, data: &mut Vec<String>, ends: &mut Vec<bool>) {
        match stretch {
            SseFrameSpan::Data => data.last_mut().unwrap().push_str(text),
            SseFrameSpan::End { is_event } => {
                ends.push(is_event);
                data.push(String::new());
            }
            SseFrameSpan::Other => {}
        }
    }

    #[test]
    fn frames_end_at_an_empty_line_in_every_spelling() {
        for end in ["\n", "\r\n", "\r"] {
            let stream =
                "event: a\ndata: {\"x\":\ndata:1}\n\n: alone\n\nretry: 5\ndata: y\nid: 7\n\n".replace('\n', end);
            for cut in [1, 2, 3, 100] {
                let (data, ends) = read(&stream, cut);
                assert_eq!(data, ["{\"x\":1}", "", "y", ""], "{end:?} cut into {cut}");
                assert_eq!(ends, [true, false, true], "{end:?} cut into {cut}");
            }
        }
    }
}
