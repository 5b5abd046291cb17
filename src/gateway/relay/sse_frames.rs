//! Finds the ends of the frames of an event stream, and the data in them, without keeping either.

use memchr::memchr2;

/// The longest field name that is kept. No field that is read has a longer one.
const NAME_MAX: usize = 8;

/// Scans a stream of events, in pieces cut anywhere.
#[derive(Debug)]
pub(super) struct SseFrameScanner {
    line: SseFrameLineState,
    name: Vec<u8>,
    /// True if a line feed here belongs to the line end before it.
    after_return: bool,
    /// True if the current frame contains anything but a comment.
    has_fields: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SseFrameLineState {
    /// At the beginning of a line.
    Start,
    /// Inside the name of a field.
    Name,
    /// After the colon before data: one space may follow.
    Colon,
    /// Inside data.
    Data,
    /// Inside a part that is not read.
    Skip,
}

/// The kind of a stretch of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SseFrameSpan {
    /// Part of the data of an event.
    Data,
    /// The end of a frame: of an event, or of comments alone.
    End {
        /// True if the frame was an event.
        event: bool,
    },
    /// Everything else.
    Other,
}

// === impl SseFrameScanner ===

impl SseFrameScanner {
    pub(super) const fn new() -> Self {
        Self { line: SseFrameLineState::Start, name: Vec::new(), after_return: false, has_fields: false }
    }

    /// Returns the length of the next stretch in `rest`, and its kind. `rest` must not be empty.
    pub(super) fn next(&mut self, rest: &[u8]) -> (usize, SseFrameSpan) {
        let Some(&byte) = rest.first() else { return (0, SseFrameSpan::Other) };
        if std::mem::take(&mut self.after_return) && byte == b'\n' {
            return (1, SseFrameSpan::Other);
        }
        if matches!(byte, b'\r' | b'\n') {
            self.after_return = byte == b'\r';
            return (1, self.end_of_line());
        }
        match self.line {
            SseFrameLineState::Data => (end_of_line(rest), SseFrameSpan::Data),
            SseFrameLineState::Colon => {
                self.line = SseFrameLineState::Data;
                if byte == b' ' { (1, SseFrameSpan::Other) } else { (end_of_line(rest), SseFrameSpan::Data) }
            }
            SseFrameLineState::Skip => (end_of_line(rest), SseFrameSpan::Other),
            SseFrameLineState::Start | SseFrameLineState::Name => {
                self.push_name_byte(byte);
                (1, SseFrameSpan::Other)
            }
        }
    }

    fn push_name_byte(&mut self, byte: u8) {
        if self.line == SseFrameLineState::Start {
            self.name.clear();
        }
        self.line = match byte {
            b':' if self.name.is_empty() => SseFrameLineState::Skip,
            b':' if matches!(self.name.as_slice(), b"data" | b"\xef\xbb\xbfdata") => SseFrameLineState::Colon,
            b':' => SseFrameLineState::Skip,
            _ => SseFrameLineState::Name,
        };
        self.has_fields |= byte != b':' || !self.name.is_empty();
        if byte != b':' && self.name.len() < NAME_MAX {
            self.name.push(byte);
        }
    }

    fn end_of_line(&mut self) -> SseFrameSpan {
        match std::mem::replace(&mut self.line, SseFrameLineState::Start) {
            SseFrameLineState::Start => SseFrameSpan::End { event: std::mem::take(&mut self.has_fields) },
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
            SseFrameSpan::End { event } => {
                ends.push(event);
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
