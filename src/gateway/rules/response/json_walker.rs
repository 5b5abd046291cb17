//! Parses a JSON body in place, in memory or on disk: forwards, piece by piece, and with constant memory.
//!
//! All of the syntax is checked strictly, including strings and numbers, and the depth is limited as in common parsers.
//! A body that is accepted here is therefore valid JSON for every upstream. This module does not judge the content.

use bytes::{Buf as _, BytesMut};
use memchr::memchr2;

use super::body_members::{JsonType, ValueSpan};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::spool::SpooledBytes;
use crate::image::ByteSource as _;

/// The most bytes that are read at once (our choice).
const PIECE_BYTES: usize = 64 * 1024;
/// The greatest depth of nested objects and arrays, the same as in `serde_json`.
const DEPTH_MAX: usize = 127;
/// The most bytes of a value that [`JsonWalker::capture_value`] returns (our choice).
const CAPTURE_MAX: usize = 64 * 1024;

/// A parser with one position in the body, which only moves forwards.
#[derive(Debug)]
pub(super) struct JsonWalker<'a> {
    body: &'a SpooledBytes,
    /// Bytes that were read from the body and not parsed yet.
    buffer: BytesMut,
    /// The offset up to which the body has been read.
    read_to: u64,
    /// The offset at which the parser stops.
    end: u64,
    depth: usize,
    /// The bytes that were parsed since the capture began; `None` if there is no capture, or if the value is too large.
    captured: Option<Vec<u8>>,
}

/// Handles a member of an object, with its name. The walker is before the value of the member, and the visitor must
/// move it past the value.
type MemberVisitor<'s, 'a> = &'s mut dyn FnMut(&mut JsonWalker<'a>, &str) -> Result<(), Error>;
/// Handles an element of an array, with its index, in the same way.
type ElementVisitor<'s, 'a> = &'s mut dyn FnMut(&mut JsonWalker<'a>, usize) -> Result<(), Error>;

// === impl JsonWalker ===

impl<'a> JsonWalker<'a> {
    pub(super) fn new(body: &'a SpooledBytes) -> Self {
        Self::between(body, 0, body.len())
    }

    /// Makes a walker for one value of the body.
    pub(super) fn over_span(body: &'a SpooledBytes, span: ValueSpan) -> Self {
        Self::between(body, span.start, span.end)
    }

    /// Makes a walker for the bytes from offset `start` up to, but not including, offset `end`.
    pub(super) fn between(body: &'a SpooledBytes, start: u64, end: u64) -> Self {
        Self { body, buffer: BytesMut::new(), read_to: start, end, depth: 0, captured: None }
    }

    /// Returns the position of the walker in the body.
    pub(super) fn offset(&self) -> u64 {
        self.read_to - self.buffer.len() as u64
    }

    /// Skips white space, and returns the first byte after it; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, Error> {
        loop {
            match self.buffer.first().copied() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.advance(1),
                None if self.fill()? => {}
                found => return Ok(found),
            }
        }
    }

    /// Skips the next value, of any type, and returns its span.
    pub(super) fn skip_value(&mut self) -> Result<ValueSpan, Error> {
        let first = self.peek_required()?;
        let start = self.offset();
        let json_type = match first {
            b'{' => {
                self.visit_object(&mut |walker, _| walker.skip_value().map(drop))?;
                JsonType::Object
            }
            b'[' => {
                self.visit_array(&mut |walker, _| walker.skip_value().map(drop))?;
                JsonType::Array
            }
            b'"' => {
                self.visit_text(&mut |_| {})?;
                JsonType::Text
            }
            b't' => self.expect_literal(b"true", JsonType::Boolean)?,
            b'f' => self.expect_literal(b"false", JsonType::Boolean)?,
            b'n' => self.expect_literal(b"null", JsonType::Null)?,
            b'-' | b'0'..=b'9' => self.skip_number()?,
            _ => return Err(self.malformed("a value was expected")),
        };
        Ok(ValueSpan { start, end: self.offset(), json_type })
    }

    /// Skips a value like [`Self::skip_value`], and also returns its bytes if they are at most `CAPTURE_MAX`.
    pub(super) fn capture_value(&mut self) -> Result<(ValueSpan, Option<Vec<u8>>), Error> {
        self.peek_required()?;
        self.captured = Some(Vec::new());
        let span = self.skip_value()?;
        Ok((span, self.captured.take()))
    }

    /// Visits the members of an object, which must come next. Names of more than `NAME_MAX` bytes are cut.
    pub(super) fn visit_object(&mut self, member: MemberVisitor<'_, 'a>) -> Result<(), Error> {
        self.open_bracket(b'{')?;
        let mut name = String::new();
        let mut has_next = self.peek_required()? != b'}';
        while has_next {
            name.clear();
            self.visit_text(&mut |text| append_name(&mut name, text))?;
            self.expect_colon()?;
            member(self, &name)?;
            has_next = self.has_next(b'}')?;
        }
        self.close_bracket();
        Ok(())
    }

    /// Visits the elements of an array, which must come next.
    pub(super) fn visit_array(&mut self, element: ElementVisitor<'_, 'a>) -> Result<(), Error> {
        self.open_bracket(b'[')?;
        let (mut index, mut has_next) = (0, self.peek_required()? != b']');
        while has_next {
            element(self, index)?;
            index += 1;
            has_next = self.has_next(b']')?;
        }
        self.close_bracket();
        Ok(())
    }

    /// Reads a string, which must come next, and passes its decoded text to `visit` piece by piece.
    pub(super) fn visit_text(&mut self, visit: &mut dyn FnMut(&str)) -> Result<(), Error> {
        if self.peek_required()? != b'"' {
            return Err(self.malformed("a string was expected"));
        }
        self.advance(1);
        while self.visit_text_piece(visit)? {}
        Ok(())
    }

    /// Reads at most one piece of a string whose opening quote has been read: plain characters or one escape. Returns
    /// false once the closing quote has been read.
    pub(super) fn visit_text_piece(&mut self, visit: &mut dyn FnMut(&str)) -> Result<bool, Error> {
        self.fill_at_least(1)?;
        let end = memchr2(b'"', b'\\', &self.buffer);
        let plain = &self.buffer[..end.unwrap_or(self.buffer.len())];
        let text = match std::str::from_utf8(plain) {
            Ok(text) => text,
            // The piece ends within a character.
            Err(error) if end.is_none() && error.error_len().is_none() => {
                let valid = error.valid_up_to();
                if valid == 0 {
                    let length = plain.len();
                    self.fill_at_least(length + 1)?;
                    return Ok(true);
                }
                std::str::from_utf8(&plain[..valid]).unwrap_or_default()
            }
            Err(_) => return Err(self.malformed("a string is not UTF-8")),
        };
        if has_control(text.as_bytes()) {
            return Err(self.malformed("a string contains a control character"));
        }
        let length = text.len();
        if length > 0 {
            visit(text);
            self.advance(length);
            return Ok(true);
        }
        if self.buffer[0] == b'"' {
            self.advance(1);
            return Ok(false);
        }
        self.visit_escape(visit).map(|()| true)
    }

    /// Returns an error unless only white space is left.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => Err(self.malformed("it has data after its end")),
        }
    }

    fn visit_escape(&mut self, visit: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.fill_at_least(2)?;
        let character = match self.buffer[1] {
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.visit_unicode_escape(visit),
            _ => return Err(self.malformed("it has an invalid escape sequence")),
        };
        visit(character.encode_utf8(&mut [0; 4]));
        self.advance(2);
        Ok(())
    }

    /// Reads an escape such as `\u0061`, or two such escapes for one character.
    fn visit_unicode_escape(&mut self, visit: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.fill_at_least(6)?;
        let high = self.utf16_unit(0)?;
        let (length, character) = if (0xd800..0xdc00).contains(&high) {
            self.fill_at_least(12)?;
            let low = if self.buffer[6..8] == *b"\\u" { self.utf16_unit(6)? } else { 0 };
            let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400);
            (12, low.and_then(|low| char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)))
        } else {
            (6, char::from_u32(high))
        };
        let character = character.ok_or_else(|| self.malformed("a surrogate is escaped without its pair"))?;
        visit(character.encode_utf8(&mut [0; 4]));
        self.advance(length);
        Ok(())
    }

    /// Returns the UTF-16 unit of the escape that begins at this offset of the buffer.
    fn utf16_unit(&self, offset: usize) -> Result<u32, Error> {
        self.buffer[offset + 2..offset + 6].iter().try_fold(0, |unit, byte| match char::from(*byte).to_digit(16) {
            Some(digit) => Ok(unit << 4 | digit),
            None => Err(self.malformed("it has an invalid escape sequence")),
        })
    }

    fn expect_literal(&mut self, word: &[u8], json_type: JsonType) -> Result<JsonType, Error> {
        self.fill_at_least(word.len())?;
        if !self.buffer.starts_with(word) {
            return Err(self.malformed("a value was expected"));
        }
        self.advance(word.len());
        Ok(json_type)
    }

    fn skip_number(&mut self) -> Result<JsonType, Error> {
        let mut json_type = JsonType::Integer;
        if self.next_is(b"-")? {
            self.advance(1);
        }
        match self.skip_digits()? {
            (0, _) => return Err(self.malformed("a digit was expected")),
            (1, _) | (_, b'1'..=b'9') => {}
            _ => return Err(self.malformed("a number has a leading zero")),
        }
        if self.next_is(b".")? {
            self.advance(1);
            json_type = JsonType::Decimal;
            self.require_digits()?;
        }
        if self.next_is(b"eE")? {
            self.advance(1);
            json_type = JsonType::Decimal;
            if self.next_is(b"+-")? {
                self.advance(1);
            }
            self.require_digits()?;
        }
        Ok(json_type)
    }

    fn require_digits(&mut self) -> Result<(), Error> {
        if self.skip_digits()?.0 == 0 { Err(self.malformed("a digit was expected")) } else { Ok(()) }
    }

    /// Skips the next digits. Returns their number, and the first digit.
    fn skip_digits(&mut self) -> Result<(usize, u8), Error> {
        let (mut count, mut first) = (0, 0);
        while self.next_is(b"0123456789")? {
            first = if count == 0 { self.buffer[0] } else { first };
            count += 1;
            self.advance(1);
        }
        Ok((count, first))
    }

    /// True if the next byte is one of these.
    fn next_is(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        if self.buffer.is_empty() && !self.fill()? {
            return Ok(false);
        }
        Ok(self.buffer.first().is_some_and(|byte| bytes.contains(byte)))
    }

    fn open_bracket(&mut self, bracket: u8) -> Result<(), Error> {
        if self.peek_required()? != bracket {
            return Err(self.malformed("another value was expected"));
        }
        if self.depth == DEPTH_MAX {
            return Err(self.malformed("it is nested too deep"));
        }
        self.depth += 1;
        self.advance(1);
        Ok(())
    }

    fn expect_colon(&mut self) -> Result<(), Error> {
        if self.peek_required()? != b':' {
            return Err(self.malformed("a colon was expected"));
        }
        self.advance(1);
        Ok(())
    }

    fn close_bracket(&mut self) {
        self.depth -= 1;
        self.advance(1);
    }

    /// Skips a comma and returns true, or returns false if the closing bracket `end` follows, which is not skipped.
    fn has_next(&mut self, end: u8) -> Result<bool, Error> {
        match self.peek_required()? {
            b',' => {
                self.advance(1);
                Ok(true)
            }
            byte if byte == end => Ok(false),
            _ => Err(self.malformed("a comma or an end was expected")),
        }
    }

    fn peek_required(&mut self) -> Result<u8, Error> {
        match self.peek()? {
            Some(byte) => Ok(byte),
            None => Err(self.malformed("it ends too early")),
        }
    }

    /// Fills the buffer until it has at least this many bytes.
    fn fill_at_least(&mut self, count: usize) -> Result<(), Error> {
        while self.buffer.len() < count {
            if !self.fill()? {
                return Err(self.malformed("it ends too early"));
            }
        }
        Ok(())
    }

    /// Moves the position over bytes of the buffer.
    fn advance(&mut self, count: usize) {
        if let Some(captured) = &mut self.captured {
            if captured.len() + count <= CAPTURE_MAX {
                captured.extend_from_slice(&self.buffer[..count]);
            } else {
                self.captured = None;
            }
        }
        self.buffer.advance(count);
    }

    /// Reads more bytes into the buffer. Returns false at the end.
    fn fill(&mut self) -> Result<bool, Error> {
        let buffered = self.buffer.len();
        let count =
            usize::try_from(self.end - self.read_to).map_or(PIECE_BYTES, |remaining| remaining.min(PIECE_BYTES));
        if count == 0 {
            return Ok(false);
        }
        // After the first piece, space for a full piece is reserved, even for the last, so that the allocation is
        // reused.
        self.buffer.reserve(if self.buffer.capacity() == 0 { count } else { PIECE_BYTES });
        self.buffer.resize(buffered + count, 0);
        let read = self.body.read_at(self.read_to, &mut self.buffer[buffered..]).map_err(|error| unreadable(&error))?;
        if read == 0 {
            return Err(unreadable(&std::io::ErrorKind::UnexpectedEof.into()));
        }
        self.buffer.truncate(buffered + read);
        self.read_to += read as u64;
        Ok(true)
    }

    fn malformed(&self, problem: &str) -> Error {
        let message = format!("The request body is not valid JSON: {problem}, at byte {}.", self.offset());
        Rejection::for_body(RejectionReason::InvalidJson, message).into()
    }
}

/// The most bytes of a member name that are kept (our choice). No member that is read has a longer name.
const NAME_MAX: usize = 256;

fn append_name(name: &mut String, text: &str) {
    let remaining = NAME_MAX.saturating_sub(name.len());
    name.push_str(&text[..text.floor_char_boundary(remaining)]);
}

/// True if one of the bytes is below 0x20. Checks sixteen bytes at a time, because strings may be megabytes long.
fn has_control(bytes: &[u8]) -> bool {
    const ONES: u128 = u128::MAX / 0xff;
    let (chunks, remainder) = bytes.as_chunks::<16>();
    let chunk_has_control = |chunk: &[u8; 16]| {
        let word = u128::from_ne_bytes(*chunk);
        word.wrapping_sub(ONES * 0x20) & !word & (ONES * 0x80) != 0
    };
    chunks.iter().any(chunk_has_control) || remainder.iter().any(|byte| *byte < 0x20)
}

/// Logs a failure to read the body, and returns the error for the caller. The fault is the disk's, so the request is
/// not rejected as invalid.
fn unreadable(error: &std::io::Error) -> Error {
    tracing::error!(%error, "a request body could not be read back from the spool");
    Error::Unavailable
}

#[cfg(test)]
mod tests;
