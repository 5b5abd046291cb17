//! Splits JSON in pieces cut anywhere into tokens: the one grammar of everything that reads JSON in pieces.
//!
//! It is as strict as `serde_json` about structure, keys, numbers, words, escapes and depth. Two decisions are left to
//! the layer above: a [`TextDecoder`] checks the content of texts, and [`JsonTokenizer::skip_value`] searches only for
//! the end of a value. Numbers may be out of the range of every type.

use memchr::memchr2;

use super::JsonSyntaxError;
use super::scalar::{Escape, EscapeStep, Literal, is_literal_byte};
use super::text_decoder::TextDecoder;

/// The greatest depth of nested objects and arrays, the same as in `serde_json`.
const DEPTH_MAX: u32 = 127;
/// The number of bytes at which a key is cut. No key that a reader knows is longer.
pub(super) const KEY_MAX: usize = 256;

/// The tokenizer of one value. The next value needs a new tokenizer.
#[derive(Debug, Default)]
pub(crate) struct JsonTokenizer {
    state: State,
    /// The number of open objects and arrays.
    depth: u32,
    /// The kinds of these: an array has a bit of 1, and the innermost has the lowest bit.
    arrays: u128,
    key: String,
    key_decoder: TextDecoder,
}

/// A token, with the bytes that were read for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonToken {
    /// A value begins with this byte. It has been read if it is a bracket or a quote, but not if a number or word begins.
    Start(u8),
    /// The key of the next value: [`JsonTokenizer::key`].
    Key,
    /// The bytes are a part of a text, as it is written.
    Text,
    /// A UTF-16 code unit of a text that is written as an escape.
    Escaped(u16),
    /// The bytes are a part of a number, a word or a skipped value.
    Raw,
    /// The innermost value that has begun ends.
    End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before a value.
    #[default]
    Value,
    /// After `[`: before a value or the end of the array.
    Element,
    /// Before a key. If it is the first, after `{`, the end of the object may come instead.
    Key { is_first: bool },
    /// Between a key and its colon.
    Colon,
    /// Inside a text or key.
    Text { is_key: bool, escape: Option<Escape> },
    /// Inside a number or word.
    Literal(Literal),
    /// Inside a value of which only the end is searched for.
    Skipped(SkippedPlace),
    /// After such a value, whose end has not been reported.
    SkippedEnd,
    /// After a value: before a comma or the end of the object or array around it.
    After,
    /// After the outermost value.
    Done,
}

/// The place inside an object, array or text of which only the end is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SkippedPlace {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

type Step = Result<(usize, Option<JsonToken>), JsonSyntaxError>;

// === impl JsonTokenizer ===

impl JsonTokenizer {
    /// Reads the beginning of the input. Returns the number of bytes read, and the token if they complete one. Returns
    /// neither if more input is needed, or after the outermost value. An error is that of the first byte not read.
    pub(crate) fn next(&mut self, input: &[u8]) -> Step {
        let byte = match (self.state, input.first()) {
            (State::SkippedEnd, _) => return Ok((0, Some(self.end_value()))),
            (State::Done, _) | (_, None) => return Ok((0, None)),
            (_, Some(byte)) => *byte,
        };
        match self.state {
            State::Text { is_key, escape: None } => self.read_text(input, is_key),
            State::Text { is_key, escape: Some(escape) } => self.read_escape(byte, is_key, escape),
            State::Literal(literal) => self.read_literal(input, literal),
            State::Skipped(place) => Ok(self.skip(input, place)),
            _ => match input.iter().position(|byte| !is_space(*byte)) {
                Some(0) => self.read_structure(byte),
                spaces => Ok((spaces.unwrap_or(input.len()), None)),
            },
        }
    }

    /// Searches only for the end of the value that has just begun: what is in it comes as [`JsonToken::Raw`], unchecked.
    /// Its brackets must be as many as needed, whatever their kinds.
    pub(crate) fn skip_value(&mut self) {
        let place = SkippedPlace { depth: 0, in_text: true, is_escaped: false };
        self.state = match self.state {
            State::Literal(_) => State::Literal(Literal::Skipped),
            State::Text { .. } => State::Skipped(place),
            _ => {
                self.leave_container();
                State::Skipped(SkippedPlace { depth: 1, in_text: false, ..place })
            }
        };
    }

    /// Ends the input. A number or word may end with it, if it is the outermost value.
    #[cfg(feature = "gateway")]
    pub(crate) fn finish(&mut self) -> Result<(), JsonSyntaxError> {
        match self.state {
            State::Literal(literal) if self.depth == 0 && literal.is_complete() => self.state = State::Done,
            State::Done => {}
            _ => return Err(JsonSyntaxError::Truncated),
        }
        Ok(())
    }

    /// True after the end of the outermost value.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// True inside a text that is not skipped, and not inside an escape.
    #[cfg(feature = "gateway")]
    pub(crate) fn is_in_text(&self) -> bool {
        self.state == State::Text { is_key: false, escape: None }
    }

    /// The last key, decoded, and cut at [`KEY_MAX`].
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    fn read_text(&mut self, input: &[u8], is_key: bool) -> Step {
        match memchr2(b'"', b'\\', input) {
            Some(0) if input[0] == b'\\' => {
                self.state = State::Text { is_key, escape: Some(Escape::Begun) };
                Ok((1, None))
            }
            Some(0) if is_key => {
                self.key_decoder.finish()?;
                self.state = State::Colon;
                Ok((1, Some(JsonToken::Key)))
            }
            Some(0) => Ok((1, Some(self.end_value()))),
            end => {
                let length = end.unwrap_or(input.len());
                if !is_key {
                    return Ok((length, Some(JsonToken::Text)));
                }
                self.key_decoder.push(&input[..length], |text| extend_key(&mut self.key, text))?;
                Ok((length, None))
            }
        }
    }

    fn read_escape(&mut self, byte: u8, is_key: bool, escape: Escape) -> Step {
        let (escape, token) = match escape.after(byte).ok_or(JsonSyntaxError::Escape)? {
            EscapeStep::Open(escape) => (Some(escape), None),
            EscapeStep::Complete(unit) if is_key => {
                self.key_decoder.push_escaped(unit, |text| extend_key(&mut self.key, text))?;
                (None, None)
            }
            EscapeStep::Complete(unit) => (None, Some(JsonToken::Escaped(unit))),
        };
        self.state = State::Text { is_key, escape };
        Ok((1, token))
    }

    /// Reads a number or word. It ends before the first byte that cannot be part of it.
    fn read_literal(&mut self, input: &[u8], literal: Literal) -> Step {
        let length = input.iter().position(|byte| !is_literal_byte(*byte)).unwrap_or(input.len());
        if length > 0 {
            self.state = State::Literal(input[..length].iter().fold(literal, |literal, byte| literal.after(*byte)));
            return Ok((length, Some(JsonToken::Raw)));
        }
        if literal.is_complete() { Ok((0, Some(self.end_value()))) } else { Err(JsonSyntaxError::Literal) }
    }

    /// Reads a part of an object, array or text of which only the end is searched for.
    fn skip(&mut self, input: &[u8], mut place: SkippedPlace) -> (usize, Option<JsonToken>) {
        let mut at = place.plain_length(input);
        while let Some(byte) = input.get(at) {
            place = place.after(*byte);
            at += 1;
            if place.depth == 0 && !place.in_text {
                self.state = State::SkippedEnd;
                return (at, Some(JsonToken::Raw));
            }
            at += place.plain_length(&input[at..]);
        }
        self.state = State::Skipped(place);
        (input.len(), Some(JsonToken::Raw))
    }

    /// Reads punctuation or the beginning of a value.
    fn read_structure(&mut self, byte: u8) -> Step {
        let in_array = self.arrays & 1 == 1;
        self.state = match (self.state, byte) {
            (State::Key { .. }, b'"') => {
                self.key.clear();
                State::Text { is_key: true, escape: None }
            }
            (State::Colon, b':') => State::Value,
            (State::After, b',') if in_array => State::Value,
            (State::After, b',') => State::Key { is_first: false },
            (State::After | State::Element, b']') if in_array => return Ok((1, Some(self.end_container()))),
            (State::After | State::Key { is_first: true }, b'}') if !in_array => {
                return Ok((1, Some(self.end_container())));
            }
            (State::Value | State::Element, _) => return self.start_value(byte),
            _ => return Err(JsonSyntaxError::Unexpected(byte)),
        };
        Ok((1, None))
    }

    fn start_value(&mut self, byte: u8) -> Step {
        self.state = match byte {
            b'{' | b'[' if self.depth == DEPTH_MAX => return Err(JsonSyntaxError::TooDeep),
            b'{' | b'[' => {
                let is_array = byte == b'[';
                self.depth += 1;
                self.arrays = self.arrays << 1 | u128::from(is_array);
                if is_array { State::Element } else { State::Key { is_first: true } }
            }
            b'"' => State::Text { is_key: false, escape: None },
            _ if is_literal_byte(byte) => {
                self.state = State::Literal(Literal::Begun);
                return Ok((0, Some(JsonToken::Start(byte))));
            }
            _ => return Err(JsonSyntaxError::Unexpected(byte)),
        };
        Ok((1, Some(JsonToken::Start(byte))))
    }

    /// Ends the innermost object or array.
    fn end_container(&mut self) -> JsonToken {
        self.leave_container();
        self.end_value()
    }

    fn leave_container(&mut self) {
        self.depth -= 1;
        self.arrays >>= 1;
    }

    /// Ends a value.
    fn end_value(&mut self) -> JsonToken {
        self.state = if self.depth == 0 { State::Done } else { State::After };
        JsonToken::End
    }
}

fn extend_key(key: &mut String, text: &str) {
    let remaining = KEY_MAX.saturating_sub(key.len());
    // `str::floor_char_boundary` needs a newer Rust than the SDK promises.
    let end = (0..=remaining.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    key.push_str(&text[..end]);
}

/// True if the bytes are only white space.
#[cfg(feature = "gateway")]
pub(crate) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| is_space(*byte))
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

// === impl SkippedPlace ===

impl SkippedPlace {
    /// Returns the number of these bytes that do not change the place.
    fn plain_length(self, rest: &[u8]) -> usize {
        let next = match self {
            Self { is_escaped: true, .. } => Some(0),
            Self { in_text: true, .. } => memchr2(b'"', b'\\', rest),
            Self { in_text: false, .. } => rest.iter().position(|byte| b"\"{}[]".contains(byte)),
        };
        next.unwrap_or(rest.len())
    }

    /// Returns the place after this byte.
    const fn after(self, byte: u8) -> Self {
        let Self { depth, in_text, is_escaped } = self;
        if is_escaped {
            return Self { is_escaped: false, ..self };
        }
        match byte {
            b'"' => Self { in_text: !in_text, ..self },
            b'\\' if in_text => Self { is_escaped: true, ..self },
            b'{' | b'[' if !in_text => Self { depth: depth.saturating_add(1), ..self },
            b'}' | b']' if !in_text => Self { depth: depth - 1, ..self },
            _ => self,
        }
    }
}
