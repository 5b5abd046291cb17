//! Server-sent events as they arrive, in pieces cut anywhere: line ends, fields and comments go, the data of each event
//! goes through the lexer as slices of the pieces themselves. An event of 30 MB costs no more memory than one of 30 bytes.

use bytes::Bytes;
use memchr::memchr2;

use super::lexer::{Lexer, Malformed, Sink};

/// Longer field names and event names are none that anybody reads.
const NAME_MAX: usize = 64;

/// Reads a stream of events.
#[derive(Debug)]
pub(super) struct Sse {
    line: Line,
    field: Vec<u8>,
    name: Vec<u8>,
    data: Data,
    lexer: Lexer,
    /// A line feed here belongs to the line end before it.
    after_return: bool,
    progressed: bool,
}

/// Where the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// At the beginning of a line.
    Start,
    /// Inside the name of a field.
    Field,
    /// After the colon of a field that is read: one space may follow.
    Colon(Field),
    /// Inside its value.
    Value(Field),
    /// Inside what nobody reads: a comment or another field.
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Event,
    Data,
}

/// The data of the current event so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    None,
    /// An object, which is read.
    Object,
    /// Something else, such as the end mark of other APIs.
    Other,
}

// === impl Sse ===

impl Sse {
    pub(super) const fn new() -> Self {
        Self {
            line: Line::Start,
            field: Vec::new(),
            name: Vec::new(),
            data: Data::None,
            lexer: Lexer::event(),
            after_return: false,
            progressed: false,
        }
    }

    /// Reads the next piece.
    pub(super) fn push(&mut self, piece: &Bytes, sink: &mut impl Sink) -> Result<(), Malformed> {
        let mut at = 0;
        while at < piece.len() {
            let byte = piece[at];
            if std::mem::take(&mut self.after_return) && byte == b'\n' {
                at += 1;
                continue;
            }
            at = match self.line {
                _ if matches!(byte, b'\r' | b'\n') => {
                    self.after_return = byte == b'\r';
                    self.end_of_line(sink)?;
                    at + 1
                }
                Line::Colon(Field::Data) => {
                    self.line = Line::Value(Field::Data);
                    at + usize::from(byte == b' ')
                }
                Line::Value(Field::Data) => self.data(piece, at, sink)?,
                Line::Skip => end_of(piece, at),
                _ => {
                    self.byte(byte);
                    at + 1
                }
            };
        }
        Ok(())
    }

    /// Whether anything but comments has come since this was last asked: a heartbeat is no progress.
    pub(super) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// Whether the data of an event has begun and is not whole.
    pub(super) fn in_event(&self) -> bool {
        self.data == Data::Object
    }

    /// The stream has ended. An event that is whole counts even if the blank line after it is missing.
    pub(super) fn finish(&self) -> Result<(), Malformed> {
        if self.data == Data::Object { self.lexer.finish() } else { Ok(()) }
    }

    fn byte(&mut self, byte: u8) {
        self.line = match self.line {
            Line::Start if byte == b':' => Line::Skip,
            // Of a byte order mark and of names that are too long nothing is kept.
            Line::Start => {
                self.field.clear();
                self.keep_field(byte);
                Line::Field
            }
            Line::Field if byte == b':' => match self.field.as_slice() {
                b"data" | b"\xef\xbb\xbfdata" => Line::Colon(Field::Data),
                b"event" | b"\xef\xbb\xbfevent" => {
                    self.name.clear();
                    Line::Colon(Field::Event)
                }
                _ => Line::Skip,
            },
            Line::Field => {
                self.keep_field(byte);
                Line::Field
            }
            Line::Colon(field) if byte == b' ' => Line::Value(field),
            Line::Colon(field) | Line::Value(field) => {
                if self.name.len() < NAME_MAX {
                    self.name.push(byte);
                }
                Line::Value(field)
            }
            Line::Skip => Line::Skip,
        };
    }

    fn keep_field(&mut self, byte: u8) {
        if self.field.len() < NAME_MAX {
            self.field.push(byte);
        }
    }

    /// A stretch of the current line of data.
    fn data(&mut self, piece: &Bytes, at: usize, sink: &mut impl Sink) -> Result<usize, Malformed> {
        let end = end_of(piece, at);
        self.progressed = true;
        if self.data == Data::None {
            let Some(first) = piece[at..end].iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(end) };
            self.data = if *first == b'{' { Data::Object } else { Data::Other };
            if self.data == Data::Object {
                sink.event(self.known_name());
            }
        }
        if self.data == Data::Object {
            self.lexer.push(&piece.slice(at..end), sink)?;
        }
        Ok(end)
    }

    fn known_name(&self) -> Option<String> {
        String::from_utf8(self.name.clone()).ok().filter(|name| !name.is_empty())
    }

    fn end_of_line(&mut self, sink: &mut impl Sink) -> Result<(), Malformed> {
        let blank = self.line == Line::Start;
        self.line = Line::Start;
        if blank {
            self.finish()?;
            if self.data == Data::Object {
                sink.event_end(self.known_name());
            }
            self.data = Data::None;
            self.lexer = Lexer::event();
            self.name.clear();
        }
        Ok(())
    }
}

/// Where the line ends, or the piece.
fn end_of(piece: &Bytes, at: usize) -> usize {
    memchr2(b'\r', b'\n', &piece[at..]).map_or(piece.len(), |found| at + found)
}

#[cfg(test)]
mod tests;
