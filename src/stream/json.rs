//! Reads JSON in pieces cut anywhere. The reader names each value by its path, and a [`JsonVisitor`] decides on each
//! value: skip it, keep it, or receive its text as slices of the pieces.
//!
//! Kept values are small: they are captured whole, up to bounds, and parsed by `serde_json`. A long text costs one search
//! for its end. The grammar is checked as far as the reader has to follow it: the content of skipped numbers, words and
//! texts is not, nor the kind of brackets deeper than [`DEPTH_MAX`].

use std::str;

use memchr::memchr2;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// The greatest depth at which brackets are matched by their kind, as for the other parsers of the crate.
const DEPTH_MAX: usize = 128;
/// The greatest depth of a path. No visitor wants a deeper value.
const PATH_DEPTH: usize = 5;
/// The length at which a key is cut. No key that a visitor knows is longer.
pub(crate) const KEY_MAX: usize = 256;

/// The place of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonPosition<'a> {
    /// The keys and brackets that lead to the value, such as `response.output[].result`. A key with a dot or a bracket
    /// stands as `?`, so that no path has two meanings.
    pub(crate) path: &'a str,
    /// The key of the value, decoded; empty for an element of an array.
    pub(crate) key: &'a str,
    /// The number of objects and arrays around the value.
    pub(crate) depth: usize,
}

/// The part of a value that a visitor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueInterest {
    /// Nothing. The values in it are visited by themselves.
    Skip,
    /// All of the value. The reader fails if it is not JSON.
    Value,
    /// All of the value if it is JSON.
    Optional,
    /// Only the syntax of an object or array, which is handed on empty; all of any other value.
    Scalar,
    /// The text piece by piece, if the value is a string. Any other value is skipped.
    Text,
}

/// The most bytes that are captured. A value beyond them is not kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureLimits {
    /// For one value.
    pub(crate) value: u64,
    /// For all values together.
    pub(crate) total: u64,
}

/// The error of a text that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonSyntaxError {
    #[error("it is not a JSON object")]
    NotAnObject,
    #[error("unexpected byte 0x{0:02x} between values")]
    Unexpected(u8),
    #[error("a key or value is not JSON")]
    Value,
    #[error("bytes after the end of the object")]
    Surplus,
    #[error("it ended within the object")]
    Truncated,
}

/// Decides on values and receives them, in their order. An error ends the reading.
pub(crate) trait JsonVisitor {
    type Error: From<JsonSyntaxError>;

    /// Begins the outermost object.
    fn begin(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Begins a value inside the outermost object, at most [`PATH_DEPTH`] deep; `first` is its first byte.
    fn start(&mut self, at: JsonPosition<'_>, first: u8) -> Result<ValueInterest, Self::Error>;

    /// Receives a wanted value. `None` means that it is too large to hold, cannot be held (such as a number out of range),
    /// or, if it is optional, is not JSON.
    fn value(&mut self, at: JsonPosition<'_>, value: Option<Value>) -> Result<(), Self::Error>;

    /// Receives a piece of a wanted text as it is written: at least one byte, and a slice of the piece that was pushed.
    fn text(&mut self, at: JsonPosition<'_>, text: &[u8]) -> Result<(), Self::Error>;

    /// Receives a UTF-16 code unit of a wanted text that is written as an escape.
    fn escaped(&mut self, at: JsonPosition<'_>, unit: u16) -> Result<(), Self::Error>;

    /// Ends a wanted text.
    fn text_end(&mut self, at: JsonPosition<'_>) -> Result<(), Self::Error>;

    /// Ends an object or array that was not captured. Its position has no key.
    fn end(&mut self, at: JsonPosition<'_>) -> Result<(), Self::Error> {
        let _ = at;
        Ok(())
    }

    /// Notes that the wanted values together exceed their limit.
    fn exceeded(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The reader. Each object needs its own.
#[derive(Debug)]
pub(crate) struct JsonReader {
    state: State,
    /// The open objects and arrays, outermost first.
    levels: Vec<Level>,
    path: String,
    /// The key of the current member, as it is written.
    raw_key: Vec<u8>,
    key: String,
    capture: Option<Capture>,
    captured_total: u64,
    limits: CaptureLimits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a value.
    Value,
    /// After `{`: a key or the end. After a comma: a key.
    Key { first: bool },
    /// Inside a key.
    InKey { escaped: bool },
    /// Between a key and its colon.
    Colon,
    /// After `[`: a value or the end.
    Element,
    /// Inside a text.
    Text { wanted: bool, escape: Escape },
    /// Inside an object or array that is captured or too deep, of which only the end is searched for.
    Nested { depth: usize, in_text: bool, escaped: bool },
    /// Inside a number or word.
    Literal,
    /// After a value: a comma or an end.
    After,
    /// After the outermost object.
    Done,
}

/// The part of an escape that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    /// The digits of `\u0041`.
    Hex {
        digits: u8,
        unit: u16,
    },
}

#[derive(Clone, Copy, Debug)]
struct Level {
    is_array: bool,
    /// The length of its own path.
    path: usize,
}

#[derive(Debug)]
struct Capture {
    interest: ValueInterest,
    bytes: Vec<u8>,
    is_dropped: bool,
}

// === impl JsonReader ===

impl JsonReader {
    /// Makes a reader for an object whose path is `path`; the path of its members begins with theirs if it is empty.
    pub(crate) fn new(path: &str, limits: CaptureLimits) -> Self {
        Self {
            state: State::Value,
            levels: Vec::new(),
            path: path.to_owned(),
            raw_key: Vec::new(),
            key: String::new(),
            capture: None,
            captured_total: 0,
            limits,
        }
    }

    /// True if the object is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Checks that the text may end here.
    pub(crate) fn finish(&self) -> Result<(), JsonSyntaxError> {
        if self.is_done() { Ok(()) } else { Err(JsonSyntaxError::Truncated) }
    }

    /// The number of bytes captured so far.
    pub(crate) const fn captured_total(&self) -> u64 {
        self.captured_total
    }

    /// Reads the next piece, after which only white space may follow the object.
    pub(crate) fn push_last<V: JsonVisitor>(&mut self, piece: &[u8], visitor: &mut V) -> Result<(), V::Error> {
        let read = self.push(piece, visitor)?;
        let is_surplus = piece[read..].iter().any(|byte| !is_space(*byte));
        if is_surplus { Err(JsonSyntaxError::Surplus.into()) } else { Ok(()) }
    }

    /// Reads the next piece up to the end of the object, and returns the number of bytes read.
    pub(crate) fn push<V: JsonVisitor>(&mut self, piece: &[u8], visitor: &mut V) -> Result<usize, V::Error> {
        let mut at = 0;
        while at < piece.len() && self.state != State::Done {
            let rest = &piece[at..];
            at += match self.state {
                State::Text { wanted, escape: Escape::None } => self.read_text(rest, wanted, visitor)?,
                State::Text { wanted, escape } => self.read_escape(rest[0], wanted, escape, visitor)?,
                State::Nested { depth, in_text, escaped } => {
                    self.read_nested(rest, depth, in_text, escaped, visitor)?
                }
                State::InKey { escaped } => self.read_key_byte(rest[0], escaped)?,
                State::Literal => {
                    let length = rest.iter().position(|byte| !is_literal_byte(*byte)).unwrap_or(rest.len());
                    self.extend_capture(&rest[..length], visitor)?;
                    if length < rest.len() {
                        self.end_value(visitor)?;
                    }
                    length
                }
                _ => self.read_structure(rest[0], visitor)?,
            };
        }
        Ok(at)
    }

    /// Returns the text that completes an object that ends in the middle of a wanted text, except for its last brace.
    pub(crate) fn closing_text(&self) -> Option<String> {
        if self.state != (State::Text { wanted: true, escape: Escape::None }) {
            return None;
        }
        let mut text = "\"".to_owned();
        text.extend(self.levels.iter().skip(1).rev().map(|level| if level.is_array { ']' } else { '}' }));
        Some(text)
    }

    fn position(&self) -> JsonPosition<'_> {
        JsonPosition { path: &self.path, key: &self.key, depth: self.levels.len() }
    }

    fn read_text<V: JsonVisitor>(&mut self, rest: &[u8], wanted: bool, visitor: &mut V) -> Result<usize, V::Error> {
        let end = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        if wanted && end > 0 {
            visitor.text(self.position(), &rest[..end])?;
        }
        let length = rest.len().min(end + 1);
        self.extend_capture(&rest[..length], visitor)?;
        match rest.get(end) {
            None => {}
            Some(b'\\') => self.state = State::Text { wanted, escape: Escape::Begun },
            Some(_) => {
                if wanted {
                    visitor.text_end(self.position())?;
                }
                self.end_value(visitor)?;
            }
        }
        Ok(length)
    }

    /// Reads one byte of an escape. Of a text that is not wanted, only the byte after the backslash matters.
    fn read_escape<V: JsonVisitor>(
        &mut self,
        byte: u8,
        wanted: bool,
        escape: Escape,
        visitor: &mut V,
    ) -> Result<usize, V::Error> {
        self.extend_capture(&[byte], visitor)?;
        let next = if wanted { escape.next(byte).ok_or(JsonSyntaxError::Value)? } else { Err(0) };
        let escape = match next {
            Ok(escape) => escape,
            Err(unit) => {
                if wanted {
                    visitor.escaped(self.position(), unit)?;
                }
                Escape::None
            }
        };
        self.state = State::Text { wanted, escape };
        Ok(1)
    }

    /// Reads a stretch of text, or one other byte, of an object or array of which only the end is searched for.
    fn read_nested<V: JsonVisitor>(
        &mut self,
        rest: &[u8],
        depth: usize,
        in_text: bool,
        escaped: bool,
        visitor: &mut V,
    ) -> Result<usize, V::Error> {
        let plain = if in_text && !escaped { memchr2(b'"', b'\\', rest).unwrap_or(rest.len()) } else { 0 };
        if plain > 0 {
            self.extend_capture(&rest[..plain], visitor)?;
            return Ok(plain);
        }
        let (depth, in_text, escaped) = match (in_text, rest[0]) {
            (true, _) if escaped => (depth, true, false),
            (true, byte) => (depth, byte != b'"', byte == b'\\'),
            (false, b'"') => (depth, true, false),
            (false, b'{' | b'[') => (depth.saturating_add(1), false, false),
            (false, b'}' | b']') => (depth - 1, false, false),
            (false, _) => (depth, false, false),
        };
        self.extend_capture(&rest[..1], visitor)?;
        self.state = State::Nested { depth, in_text, escaped };
        if depth == 0 {
            self.end_value(visitor)?;
        }
        Ok(1)
    }

    fn read_key_byte(&mut self, byte: u8, escaped: bool) -> Result<usize, JsonSyntaxError> {
        self.state = match (escaped, byte) {
            (false, b'"') => {
                self.end_key()?;
                return Ok(1);
            }
            (false, b'\\') => State::InKey { escaped: true },
            (_, ..b' ') => return Err(JsonSyntaxError::Value),
            _ => State::InKey { escaped: false },
        };
        if self.raw_key.len() < KEY_MAX {
            self.raw_key.push(byte);
        }
        Ok(1)
    }

    /// Decodes the key, and sets the path of its member.
    fn end_key(&mut self) -> Result<(), JsonSyntaxError> {
        self.state = State::Colon;
        if self.levels.len() > PATH_DEPTH {
            return Ok(());
        }
        self.key.clear();
        if self.raw_key.len() == KEY_MAX {
            self.key.push_str(&String::from_utf8_lossy(&self.raw_key));
        } else if self.raw_key.contains(&b'\\') {
            let quoted = [b"\"", self.raw_key.as_slice(), b"\""].concat();
            self.key = serde_json::from_slice(&quoted).map_err(|_| JsonSyntaxError::Value)?;
        } else {
            self.key.push_str(str::from_utf8(&self.raw_key).map_err(|_| JsonSyntaxError::Value)?);
        }
        self.path.truncate(self.levels.last().map_or(0, |level| level.path));
        if !self.path.is_empty() {
            self.path.push('.');
        }
        let is_ambiguous = self.key.contains(['.', '[', ']']);
        self.path.push_str(if is_ambiguous { "?" } else { &self.key });
        Ok(())
    }

    /// Reads white space, punctuation and the first byte of values.
    fn read_structure<V: JsonVisitor>(&mut self, byte: u8, visitor: &mut V) -> Result<usize, V::Error> {
        if is_space(byte) {
            return Ok(1);
        }
        let in_array = self.levels.last().is_some_and(|level| level.is_array);
        match (self.state, byte) {
            (State::Key { .. }, b'"') => {
                self.raw_key.clear();
                self.state = State::InKey { escaped: false };
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::After, b',') => self.state = if in_array { State::Value } else { State::Key { first: false } },
            (State::After, b']') if in_array => self.close(visitor)?,
            (State::After, b'}') if !in_array => self.close(visitor)?,
            (State::Element, b']') | (State::Key { first: true }, b'}') => self.close(visitor)?,
            (State::Value | State::Element, _) => self.start_value(byte, visitor)?,
            _ => return Err(JsonSyntaxError::Unexpected(byte).into()),
        }
        Ok(1)
    }

    /// Reads the first byte of a value.
    fn start_value<V: JsonVisitor>(&mut self, byte: u8, visitor: &mut V) -> Result<(), V::Error> {
        let Some(level) = self.levels.last() else {
            if byte != b'{' {
                return Err(JsonSyntaxError::NotAnObject.into());
            }
            visitor.begin()?;
            self.open(byte);
            return Ok(());
        };
        if !begins_value(byte) {
            return Err(JsonSyntaxError::Unexpected(byte).into());
        }
        let mut interest = ValueInterest::Skip;
        if self.levels.len() <= PATH_DEPTH {
            if level.is_array {
                self.path.truncate(level.path);
                self.path.push_str("[]");
                self.key.clear();
            }
            interest = visitor.start(self.position(), byte)?;
        }
        if matches!(interest, ValueInterest::Value | ValueInterest::Optional | ValueInterest::Scalar) {
            self.capture = Some(Capture { interest, bytes: Vec::new(), is_dropped: false });
            self.extend_capture(&[byte], visitor)?;
        }
        match byte {
            b'{' | b'[' if self.capture.is_some() || self.levels.len() == DEPTH_MAX => {
                self.state = State::Nested { depth: 1, in_text: false, escaped: false };
            }
            b'{' | b'[' => self.open(byte),
            b'"' => self.state = State::Text { wanted: interest == ValueInterest::Text, escape: Escape::None },
            _ => self.state = State::Literal,
        }
        Ok(())
    }

    fn open(&mut self, bracket: u8) {
        let is_array = bracket == b'[';
        self.levels.push(Level { is_array, path: self.path.len() });
        self.state = if is_array { State::Element } else { State::Key { first: true } };
    }

    /// Ends an object or array.
    fn close<V: JsonVisitor>(&mut self, visitor: &mut V) -> Result<(), V::Error> {
        if let Some(level) = self.levels.pop() {
            self.path.truncate(level.path);
        }
        self.key.clear();
        if self.levels.len() <= PATH_DEPTH {
            visitor.end(self.position())?;
        }
        self.end_value(visitor)
    }

    /// Ends a value.
    fn end_value<V: JsonVisitor>(&mut self, visitor: &mut V) -> Result<(), V::Error> {
        if let Some(capture) = self.capture.take() {
            visitor.value(self.position(), capture.parse()?)?;
        }
        self.state = if self.levels.is_empty() { State::Done } else { State::After };
        Ok(())
    }

    fn extend_capture<V: JsonVisitor>(&mut self, bytes: &[u8], visitor: &mut V) -> Result<(), V::Error> {
        let Some(capture) = self.capture.as_mut().filter(|capture| !capture.is_dropped) else { return Ok(()) };
        let length = bytes.len() as u64;
        let exceeds_total = length > self.limits.total - self.captured_total;
        if exceeds_total || length > self.limits.value - capture.bytes.len() as u64 {
            capture.is_dropped = true;
            return if exceeds_total { visitor.exceeded() } else { Ok(()) };
        }
        capture.bytes.extend_from_slice(bytes);
        self.captured_total += length;
        Ok(())
    }
}

// === impl Escape ===

impl Escape {
    /// Reads one byte: the rest of the escape, or (as `Err`) its code unit. `None` if this is no escape.
    fn next(self, byte: u8) -> Option<Result<Self, u16>> {
        Some(match (self, byte) {
            (Self::Begun, b'u') => Ok(Self::Hex { digits: 0, unit: 0 }),
            (Self::Begun, b'"' | b'\\' | b'/') => Err(byte.into()),
            (Self::Begun, b'b') => Err(8),
            (Self::Begun, b't') => Err(9),
            (Self::Begun, b'n') => Err(10),
            (Self::Begun, b'f') => Err(12),
            (Self::Begun, b'r') => Err(13),
            (Self::Hex { digits, unit }, _) => {
                let digit = u16::try_from(char::from(byte).to_digit(16)?).ok()?;
                let unit = unit << 4 | digit;
                if digits == 3 { Err(unit) } else { Ok(Self::Hex { digits: digits + 1, unit }) }
            }
            _ => return None,
        })
    }
}

// === impl Capture ===

impl Capture {
    fn parse(self) -> Result<Option<Value>, JsonSyntaxError> {
        match (self.interest, self.bytes.first()) {
            _ if self.is_dropped => Ok(None),
            (ValueInterest::Scalar, Some(b'{')) => check_syntax(&self.bytes).map(|()| Some(Map::new().into())),
            (ValueInterest::Scalar, Some(b'[')) => check_syntax(&self.bytes).map(|()| Some(Value::Array(Vec::new()))),
            (ValueInterest::Optional, _) => Ok(parse_captured(&self.bytes).unwrap_or_default()),
            _ => parse_captured(&self.bytes),
        }
    }
}

/// Reads a captured value. `None` if it is JSON that cannot be held, such as a number out of range or too many levels,
/// or one of the words that some upstreams write for no number: the image next to it is paid for.
fn parse_captured(json: &[u8]) -> Result<Option<Value>, JsonSyntaxError> {
    const NO_NUMBERS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    match serde_json::from_slice(json) {
        Ok(value) => Ok(Some(value)),
        Err(_) if NO_NUMBERS.contains(&json) => Ok(None),
        Err(_) => check_syntax(json).map(|()| None),
    }
}

fn check_syntax(json: &[u8]) -> Result<(), JsonSyntaxError> {
    serde_json::from_slice::<IgnoredAny>(json).map(drop).map_err(|_| JsonSyntaxError::Value)
}

/// True for the white space of JSON.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// True for bytes of numbers and of `true`, `false` and `null`.
const fn is_literal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

const fn begins_value(byte: u8) -> bool {
    is_literal_byte(byte) || matches!(byte, b'"' | b'{' | b'[')
}

#[cfg(test)]
mod tests;
