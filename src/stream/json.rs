//! Reads JSON in pieces cut anywhere. The reader names each value by its path, and a [`JsonVisitor`] decides on each
//! value: skip it, capture it, or receive its text as slices of the pieces.
//!
//! Captured values are small: they are kept whole, up to bounds, and parsed by `serde_json`. A long text costs one
//! search for its end. The grammar is checked only as far as the reader has to follow it. Not checked are:
//! - the content of numbers, words and texts that are not captured, except escapes in texts that the visitor receives,
//! - the escapes of keys that are deeper than [`PATH_DEPTH`] or cut at [`KEY_MAX`],
//! - everything deeper than [`DEPTH_MAX`] that is not captured, except the number of brackets.

mod capture;
mod visitor;

use std::str;

use memchr::memchr2;

use capture::Capture;
pub(crate) use visitor::{CaptureLimits, JsonPosition, JsonSyntaxError, JsonVisitor, ValueInterest};

/// The greatest depth at which a closing bracket must match the kind of the opening one: the depth limit of
/// `serde_json`.
const DEPTH_MAX: usize = 128;
/// The greatest depth of a path. No visitor wants a deeper value.
const PATH_DEPTH: usize = 5;
/// The number of bytes at which a key is cut. No key that a visitor knows is longer.
pub(crate) const KEY_MAX: usize = 256;

/// The reader of one JSON object. The next object needs a new reader.
#[derive(Debug)]
pub(crate) struct JsonReader {
    state: State,
    /// The open objects and arrays, outermost first.
    levels: Vec<Level>,
    path: String,
    /// The key of the current member as it is written, cut at [`KEY_MAX`].
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
    /// Before a key. If it is the first, after `{`, the end of the object may come instead.
    Key { first: bool },
    /// Inside a key.
    InKey { escaped: bool },
    /// Between a key and its colon.
    Colon,
    /// After `[`: before a value or the end of the array.
    Element,
    /// Inside a text.
    Text { wanted: bool, escape: Escape },
    /// Inside an object or array that is captured or too deep, of which only the end is searched for.
    Nested(Nesting),
    /// Inside a number or word.
    Literal,
    /// After a value: before a comma or the end of the object or array around it.
    After,
    /// After the outermost object.
    Done,
}

/// The part of an escape that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    /// The digits of an escape such as `\u0041`: how many have been read, and their value.
    Hex {
        digits: u8,
        unit: u16,
    },
}

/// The place inside an object or array of which only the end is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Nesting {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    is_array: bool,
    /// The length of the path of this object or array.
    path: usize,
}

// === impl JsonReader ===

impl JsonReader {
    /// Makes a reader for an object whose path is `path`. The paths of its members begin with `path`, or with their own
    /// keys if `path` is empty.
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

    /// Returns an error if the input ends before the object is complete.
    pub(crate) fn finish(&self) -> Result<(), JsonSyntaxError> {
        if self.is_done() { Ok(()) } else { Err(JsonSyntaxError::Truncated) }
    }

    /// The number of bytes captured so far.
    pub(crate) const fn captured_total(&self) -> u64 {
        self.captured_total
    }

    /// Reads the next piece. Bytes of it that follow the end of the object may only be white space.
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
                State::Nested(nesting) => self.read_nested(rest, nesting, visitor)?,
                State::InKey { escaped } => self.read_key_byte(rest[0], escaped)?,
                State::Literal => self.read_literal(rest, visitor)?,
                _ => self.read_structure(rest[0], visitor)?,
            };
        }
        Ok(at)
    }

    /// Returns the text that, followed by `}`, completes an object that breaks off in the middle of a wanted text.
    /// Returns `None` if it breaks off anywhere else, also within an escape of such a text.
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
        nesting: Nesting,
        visitor: &mut V,
    ) -> Result<usize, V::Error> {
        let plain = nesting.plain_text_length(rest);
        if plain > 0 {
            self.extend_capture(&rest[..plain], visitor)?;
            return Ok(plain);
        }
        self.extend_capture(&rest[..1], visitor)?;
        let next = nesting.after(rest[0]);
        self.state = State::Nested(next);
        if next.depth == 0 {
            self.end_value(visitor)?;
        }
        Ok(1)
    }

    /// Reads a number or word. It ends before the first byte that cannot be part of it.
    fn read_literal<V: JsonVisitor>(&mut self, rest: &[u8], visitor: &mut V) -> Result<usize, V::Error> {
        let length = rest.iter().position(|byte| !is_literal_byte(*byte)).unwrap_or(rest.len());
        self.extend_capture(&rest[..length], visitor)?;
        if length < rest.len() {
            self.end_value(visitor)?;
        }
        Ok(length)
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

    /// Decodes the key, unless it was cut, and sets the path of its member. Does neither deeper than [`PATH_DEPTH`].
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
                self.state = State::Nested(Nesting { depth: 1, in_text: false, is_escaped: false });
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

// === impl Nesting ===

impl Nesting {
    /// Returns the number of these bytes that are only text.
    fn plain_text_length(self, rest: &[u8]) -> usize {
        if self.in_text && !self.is_escaped { memchr2(b'"', b'\\', rest).unwrap_or(rest.len()) } else { 0 }
    }

    /// Returns the place after this byte.
    const fn after(self, byte: u8) -> Self {
        let Self { depth, in_text, is_escaped } = self;
        match byte {
            _ if is_escaped => Self { is_escaped: false, ..self },
            b'"' => Self { in_text: !in_text, ..self },
            b'\\' if in_text => Self { is_escaped: true, ..self },
            b'{' | b'[' if !in_text => Self { depth: depth.saturating_add(1), ..self },
            b'}' | b']' if !in_text => Self { depth: depth - 1, ..self },
            _ => self,
        }
    }
}

// === impl Escape ===

impl Escape {
    /// Reads one byte. Returns the state before the next byte or, as `Err`, the code unit if the escape is complete.
    /// Returns `None` if this is not a valid escape.
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
