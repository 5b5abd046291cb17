//! Where the frames of an event stream end, and where their data is. Nothing is kept of either.

use memchr::memchr2;

/// A longer field name is none that anybody reads.
const NAME_MAX: usize = 8;

/// Finds its way through a stream of events, in pieces cut anywhere.
#[derive(Debug)]
pub(super) struct Frames {
    line: Line,
    name: Vec<u8>,
    /// A line feed here belongs to the line end before it.
    after_return: bool,
    /// Anything but a comment stands in the current frame.
    spoken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// At the beginning of a line.
    Start,
    /// Inside the name of a field.
    Name,
    /// After the colon before data: one space may follow.
    Colon,
    /// Inside data.
    Data,
    /// Inside what nobody reads.
    Skip,
}

/// What a stretch of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stretch {
    /// Part of the data of an event.
    Data,
    /// The end of a frame: of an event, or of comments alone.
    End {
        /// Whether it was an event.
        event: bool,
    },
    /// Everything else.
    Other,
}

// === impl Frames ===

impl Frames {
    pub(super) const fn new() -> Self {
        Self { line: Line::Start, name: Vec::new(), after_return: false, spoken: false }
    }

    /// What comes next, and how many bytes of it are here. There must be some.
    pub(super) fn next(&mut self, rest: &[u8]) -> (usize, Stretch) {
        let Some(&byte) = rest.first() else { return (0, Stretch::Other) };
        if std::mem::take(&mut self.after_return) && byte == b'\n' {
            return (1, Stretch::Other);
        }
        if matches!(byte, b'\r' | b'\n') {
            self.after_return = byte == b'\r';
            return (1, self.end_of_line());
        }
        match self.line {
            Line::Data => (end_of_line(rest), Stretch::Data),
            Line::Colon => {
                self.line = Line::Data;
                if byte == b' ' { (1, Stretch::Other) } else { (end_of_line(rest), Stretch::Data) }
            }
            Line::Skip => (end_of_line(rest), Stretch::Other),
            Line::Start | Line::Name => {
                self.name(byte);
                (1, Stretch::Other)
            }
        }
    }

    fn name(&mut self, byte: u8) {
        if self.line == Line::Start {
            self.name.clear();
        }
        self.line = match byte {
            b':' if self.name.is_empty() => Line::Skip,
            b':' if matches!(self.name.as_slice(), b"data" | b"\xef\xbb\xbfdata") => Line::Colon,
            b':' => Line::Skip,
            _ => Line::Name,
        };
        self.spoken |= byte != b':' || !self.name.is_empty();
        if byte != b':' && self.name.len() < NAME_MAX {
            self.name.push(byte);
        }
    }

    fn end_of_line(&mut self) -> Stretch {
        match std::mem::replace(&mut self.line, Line::Start) {
            Line::Start => Stretch::End { event: std::mem::take(&mut self.spoken) },
            _ => Stretch::Other,
        }
    }
}

/// Where the line ends, or the piece.
fn end_of_line(rest: &[u8]) -> usize {
    memchr2(b'\r', b'\n', rest).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &str, cut: usize) -> (Vec<String>, Vec<bool>) {
        let (mut frames, mut data, mut ends) = (Frames::new(), vec![String::new()], Vec::new());
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

    fn take(stretch: Stretch, text: &str, data: &mut Vec<String>, ends: &mut Vec<bool>) {
        match stretch {
            Stretch::Data => data.last_mut().unwrap().push_str(text),
            Stretch::End { event } => {
                ends.push(event);
                data.push(String::new());
            }
            Stretch::Other => {}
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
