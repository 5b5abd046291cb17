//! Reads server-sent events in pieces cut anywhere: line ends, fields and comments are removed, and the data of each
//! event goes through the lexer as slices of the pieces. An event of 30 MB needs no more memory than one of 30 bytes.

use bytes::Bytes;
use memchr::memchr2;

use super::lexer::{AnswerLexer, AnswerSink, AnswerSyntaxError};

/// The longest field or event name that is kept. No name that is read is longer.
const NAME_MAX: usize = 64;

/// Reads a stream of events.
#[derive(Debug)]
pub(super) struct SseAnswerReader {
    line: SseLineState,
    field: Vec<u8>,
    name: Vec<u8>,
    data_kind: SseDataKind,
    lexer: AnswerLexer,
    /// True if a line feed here belongs to the line end before it.
    after_return: bool,
    progressed: bool,
}

/// The part of the stream that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SseLineState {
    /// At the beginning of a line.
    Start,
    /// Inside the name of a field.
    Field,
    /// After the colon of a field that is read: one space may follow.
    Colon(SseField),
    /// Inside its value.
    Value(SseField),
    /// Inside a part that is not read: a comment or another field.
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SseField {
    Event,
    Data,
}

/// The type of the current event's data so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SseDataKind {
    None,
    /// An object, which is read.
    Object,
    /// Another value, such as the end mark of other APIs.
    Other,
}

// === impl SseAnswerReader ===

impl SseAnswerReader {
    pub(super) const fn new() -> Self {
        Self {
            line: SseLineState::Start,
            field: Vec::new(),
            name: Vec::new(),
            data_kind: SseDataKind::None,
            lexer: AnswerLexer::for_event(),
            after_return: false,
            progressed: false,
        }
    }

    /// Reads the next piece.
    pub(super) fn push(&mut self, piece: &Bytes, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
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
                SseLineState::Colon(SseField::Data) => {
                    self.line = SseLineState::Value(SseField::Data);
                    at + usize::from(byte == b' ')
                }
                SseLineState::Value(SseField::Data) => self.push_data(piece, at, sink)?,
                SseLineState::Skip => line_end(piece, at),
                _ => {
                    self.push_byte(byte);
                    at + 1
                }
            };
        }
        Ok(())
    }

    /// True if anything but comments has come since the last call: a heartbeat is not progress.
    pub(super) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// True if the data of an event has begun and is not complete.
    pub(super) fn in_event(&self) -> bool {
        self.data_kind == SseDataKind::Object
    }

    /// Ends the stream. A complete event counts even if the blank line after it is missing.
    pub(super) fn finish(&self) -> Result<(), AnswerSyntaxError> {
        if self.data_kind == SseDataKind::Object { self.lexer.finish() } else { Ok(()) }
    }

    fn push_byte(&mut self, byte: u8) {
        self.line = match self.line {
            SseLineState::Start if byte == b':' => SseLineState::Skip,
            // A byte order mark and names that are too long are not kept.
            SseLineState::Start => {
                self.field.clear();
                self.keep_field(byte);
                SseLineState::Field
            }
            SseLineState::Field if byte == b':' => match self.field.as_slice() {
                b"data" | b"\xef\xbb\xbfdata" => SseLineState::Colon(SseField::Data),
                b"event" | b"\xef\xbb\xbfevent" => {
                    self.name.clear();
                    SseLineState::Colon(SseField::Event)
                }
                _ => SseLineState::Skip,
            },
            SseLineState::Field => {
                self.keep_field(byte);
                SseLineState::Field
            }
            SseLineState::Colon(field) if byte == b' ' => SseLineState::Value(field),
            SseLineState::Colon(field) | SseLineState::Value(field) => {
                if self.name.len() < NAME_MAX {
                    self.name.push(byte);
                }
                SseLineState::Value(field)
            }
            SseLineState::Skip => SseLineState::Skip,
        };
    }

    fn keep_field(&mut self, byte: u8) {
        if self.field.len() < NAME_MAX {
            self.field.push(byte);
        }
    }

    /// Reads a stretch of the current line of data.
    fn push_data(&mut self, piece: &Bytes, at: usize, sink: &mut impl AnswerSink) -> Result<usize, AnswerSyntaxError> {
        let end = line_end(piece, at);
        self.progressed = true;
        if self.data_kind == SseDataKind::None {
            let Some(first) = piece[at..end].iter().find(|byte| !byte.is_ascii_whitespace()) else { return Ok(end) };
            self.data_kind = if *first == b'{' { SseDataKind::Object } else { SseDataKind::Other };
            if self.data_kind == SseDataKind::Object {
                sink.announce_event(self.event_name());
            }
        }
        if self.data_kind == SseDataKind::Object {
            self.lexer.push(&piece.slice(at..end), sink)?;
        }
        Ok(end)
    }

    fn event_name(&self) -> Option<String> {
        String::from_utf8(self.name.clone()).ok().filter(|name| !name.is_empty())
    }

    fn end_of_line(&mut self, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        let blank = self.line == SseLineState::Start;
        self.line = SseLineState::Start;
        if blank {
            self.finish()?;
            if self.data_kind == SseDataKind::Object {
                sink.event_end(self.event_name());
            }
            self.data_kind = SseDataKind::None;
            self.lexer = AnswerLexer::for_event();
            self.name.clear();
        }
        Ok(())
    }
}

/// Returns the end of the line, or of the piece.
fn line_end(piece: &Bytes, at: usize) -> usize {
    memchr2(b'\r', b'\n', &piece[at..]).map_or(piece.len(), |found| at + found)
}

#[cfg(test)]
mod tests;
