//! Reads a JSON body in place, in memory or on disk: forwards, piece by piece, and with constant memory.
//!
//! All of the syntax is checked strictly, including texts and numbers, and the depth is limited as in common parsers.
//! A body that is accepted here is therefore valid JSON for every upstream. This module does not judge the content.

use super::body_members::{JsonType, ValueSpan};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::spool::SpooledBytes;
use crate::image::ByteSource as _;
use crate::stream::json::{JsonSyntaxError, JsonToken, JsonTokenizer, TextDecoder, is_blank};

/// The most bytes that are read at once (our choice).
const PIECE_BYTES: usize = 64 * 1024;
/// The most bytes of a value that [`BodyReader::capture`] returns (our choice).
const CAPTURE_MAX: usize = 64 * 1024;

/// A reader with one position in the body, which only moves forwards.
#[derive(Debug)]
pub(super) struct BodyReader<'a> {
    body: &'a SpooledBytes,
    tokens: JsonTokenizer,
    text: TextDecoder,
    /// The bytes that were read last from the body.
    piece: Vec<u8>,
    /// The offset after the piece.
    read_to: u64,
    /// The offset at which the reader stops.
    end: u64,
    /// The number of bytes of the piece before the current token.
    at: usize,
    /// The number of bytes of the current token.
    length: usize,
    /// The bytes that were read since a capture began; `None` without a capture, or if the value is too large.
    captured: Option<Vec<u8>>,
}

/// A value of which only the beginning has been read.
#[derive(Clone, Copy, Debug)]
pub(super) struct BegunValue {
    pub(super) first: u8,
    /// The offset of the first byte.
    start: u64,
}

// === impl BodyReader ===

impl<'a> BodyReader<'a> {
    /// Begins to read the body.
    pub(super) fn over_body(body: &'a SpooledBytes) -> Result<(Self, BegunValue), Error> {
        Self::between(body, 0, body.len())
    }

    /// Begins to read one value of the body.
    pub(super) fn over_span(body: &'a SpooledBytes, span: ValueSpan) -> Result<(Self, BegunValue), Error> {
        Self::between(body, span.start, span.end)
    }

    fn between(body: &'a SpooledBytes, start: u64, end: u64) -> Result<(Self, BegunValue), Error> {
        let (tokens, text, piece) = (JsonTokenizer::default(), TextDecoder::default(), Vec::new());
        let mut reader = Self { body, tokens, text, piece, read_to: start, end, at: 0, length: 0, captured: None };
        match reader.next_value()? {
            Some(value) => Ok((reader, value)),
            None => Err(reader.malformed(JsonSyntaxError::Truncated)),
        }
    }

    /// Begins the next member or element of the innermost object or array that has begun. Returns `None` at the end of
    /// the object or array. The value must be read to its end before the next call.
    pub(super) fn next_value(&mut self) -> Result<Option<BegunValue>, Error> {
        loop {
            match self.next_token()? {
                JsonToken::Start(first) => return Ok(Some(BegunValue { first, start: self.offset() })),
                JsonToken::End => return Ok(None),
                _ => {}
            }
        }
    }

    /// The key of the current member, cut at 256 bytes.
    pub(super) fn key(&self) -> &str {
        self.tokens.key()
    }

    /// Reads the value to its end, and returns its span.
    pub(super) fn skip(&mut self, value: BegunValue) -> Result<ValueSpan, Error> {
        let (mut open, mut is_decimal) = (1, false);
        while open > 0 {
            let token = self.next_token()?;
            self.decode(token, |_| {})?;
            match token {
                JsonToken::Start(_) => open += 1,
                JsonToken::End => open -= 1,
                JsonToken::Raw => is_decimal |= self.bytes().iter().any(|byte| b".eE".contains(byte)),
                _ => {}
            }
        }
        let mut span = self.end_span(value);
        if is_decimal && span.json_type == JsonType::Integer {
            span.json_type = JsonType::Decimal;
        }
        Ok(span)
    }

    /// Reads the value like [`Self::skip`], and also returns its bytes if they are at most `CAPTURE_MAX`.
    pub(super) fn capture(&mut self, value: BegunValue) -> Result<(ValueSpan, Option<Vec<u8>>), Error> {
        self.captured = Some(Vec::new());
        let span = self.skip(value)?;
        self.pass_token();
        Ok((span, self.captured.take()))
    }

    /// Returns the span of a value that has just been read to its end. Every number counts as an integer.
    pub(super) fn end_span(&self, value: BegunValue) -> ValueSpan {
        let json_type = match value.first {
            b'{' => JsonType::Object,
            b'[' => JsonType::Array,
            b'"' => JsonType::Text,
            b't' | b'f' => JsonType::Boolean,
            b'n' => JsonType::Null,
            _ => JsonType::Integer,
        };
        ValueSpan { start: value.start, end: self.offset() + self.length as u64, json_type }
    }

    /// Reads the rest of a text, and passes it to `visit`, decoded and piece by piece.
    pub(super) fn visit_text(&mut self, mut visit: impl FnMut(&str)) -> Result<(), Error> {
        loop {
            let token = self.next_token()?;
            self.decode(token, &mut visit)?;
            if token == JsonToken::End {
                return Ok(());
            }
        }
    }

    /// Returns an error unless only white space follows the outermost value.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.pass_token();
        loop {
            if !is_blank(&self.piece[self.at..]) {
                return Err(self.malformed(JsonSyntaxError::Surplus));
            }
            if !self.fill()? {
                return Ok(());
            }
        }
    }

    /// Returns the next token. Texts are not checked.
    pub(super) fn next_token(&mut self) -> Result<JsonToken, Error> {
        loop {
            self.pass_token();
            let step = self.tokens.next(&self.piece[self.at..]);
            let (length, token) = step.map_err(|error| self.malformed(error))?;
            self.length = length;
            match token {
                Some(token) => return Ok(token),
                None if length > 0 || self.fill()? => {}
                // A number or word may end with the body.
                None => {
                    let finished = self.tokens.finish();
                    return finished.map(|()| JsonToken::End).map_err(|error| self.malformed(error));
                }
            }
        }
    }

    /// The bytes of the current token.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.piece[self.at..self.at + self.length]
    }

    /// Passes a token of a text on, decoded.
    fn decode(&mut self, token: JsonToken, visit: impl FnMut(&str)) -> Result<(), Error> {
        let decoded = match token {
            JsonToken::Text => self.text.push(&self.piece[self.at..self.at + self.length], visit),
            JsonToken::Escaped(unit) => self.text.push_escaped(unit, visit),
            JsonToken::End => self.text.finish(),
            _ => Ok(()),
        };
        decoded.map_err(|error| self.malformed(error))
    }

    /// The offset of the current token in the body.
    fn offset(&self) -> u64 {
        self.read_to - (self.piece.len() - self.at) as u64
    }

    fn pass_token(&mut self) {
        let bytes = &self.piece[self.at..self.at + self.length];
        match &mut self.captured {
            Some(captured) if captured.len() + bytes.len() <= CAPTURE_MAX => captured.extend_from_slice(bytes),
            captured => *captured = None,
        }
        self.at += std::mem::take(&mut self.length);
    }

    /// Reads the next piece. Returns false at the end.
    fn fill(&mut self) -> Result<bool, Error> {
        let count = usize::try_from(self.end - self.read_to).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        self.at = 0;
        self.piece.resize(count, 0);
        if count == 0 {
            return Ok(false);
        }
        let read = self.body.read_at(self.read_to, &mut self.piece).map_err(|error| unreadable(&error))?;
        if read == 0 {
            return Err(unreadable(&std::io::ErrorKind::UnexpectedEof.into()));
        }
        self.piece.truncate(read);
        self.read_to += read as u64;
        Ok(true)
    }

    fn malformed(&self, error: JsonSyntaxError) -> Error {
        let message = format!("The request body is not valid JSON: {error}, at byte {}.", self.offset());
        Rejection::for_body(RejectionReason::InvalidJson, message).into()
    }
}

/// Logs a failure to read the body, and returns the error for the caller. The fault is the disk's, so the request is
/// not rejected as invalid.
fn unreadable(error: &std::io::Error) -> Error {
    tracing::error!(%error, "a request body could not be read back from the spool");
    Error::Unavailable
}

#[cfg(test)]
mod tests;
