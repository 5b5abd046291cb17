//! A push lexer for the body of an edit as JSON: an object with an array `images` and an object `mask`.
//!
//! It is handed the body in pieces cut anywhere and keeps almost nothing: the text of an `image_url` goes to the
//! [`Sink`] as slices of the pieces, everything else is small and is captured. What is captured is read by
//! `serde_json`, so a body that passes is JSON from its first byte to its last.

use memchr::memchr2;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::TEXT_MAX;
use crate::error::{Error, Reason, Rejection};

/// A key longer than this is none that anybody reads.
const KEY_MAX: usize = 256;

/// What the lexer finds, in the order of the body. Whatever the sink refuses ends the reading.
pub(super) trait Sink {
    /// A key of the body itself.
    fn key(&mut self, key: &str) -> Result<(), Error>;
    /// The value of it, where it is none of the images.
    fn member(&mut self, key: &str, value: Value) -> Result<(), Error>;
    /// An image begins: an element of `images`, or the mask.
    fn image(&mut self, mask: bool) -> Result<(), Error>;
    /// A key of the current image.
    fn image_key(&mut self, key: &str) -> Result<(), Error>;
    /// The value of it, where it is no address.
    fn image_member(&mut self, key: &str, value: Value) -> Result<(), Error>;
    /// The current image has a text as its address.
    fn address(&mut self) -> Result<(), Error>;
    /// Some of that text, as it stands in the body; never empty.
    fn address_text(&mut self, text: &[u8]) -> Result<(), Error>;
    /// One character of it that was escaped.
    fn address_escaped(&mut self, byte: u8) -> Result<(), Error>;
    /// That text is complete.
    fn address_end(&mut self) -> Result<(), Error>;
    /// The current image is complete.
    fn image_end(&mut self) -> Result<(), Error>;
    /// Something else stands where an image, or the list of them, must.
    fn misplaced(&self, place: Place, first: u8) -> Error;
}

/// Where only one kind of value may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `images`.
    Images,
    /// An element of it.
    Element,
    /// `mask`.
    Mask,
    /// `image_url` of one of them.
    Address,
}

/// Where the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the opening brace.
    Start,
    /// After `{` or a comma: a key, or (after `{` only) the end.
    Key { level: Level, first: bool },
    /// Inside a key.
    InKey { level: Level, escaped: bool },
    /// Between a key and its colon.
    Colon { level: Level },
    /// Before a value.
    Value { level: Level },
    /// Inside a value that is captured.
    Capture { level: Level, kind: Capture },
    /// After a value: a comma or the end of the level.
    After { level: Level },
    /// Inside `images`: an element, or (after `[` only) the end.
    Element { first: bool },
    /// Inside the text of an address.
    Address { level: Level, escape: Escape },
    /// After the closing brace.
    Done,
}

/// Whose members are being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// The body itself.
    Top,
    /// `images`: its elements have no keys.
    Images,
    /// An element of `images`.
    Element,
    /// The mask.
    Mask,
}

/// How the end of a captured value is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capture {
    /// A string: an unescaped quote.
    Text { escaped: bool },
    /// An object or array: its own closing bracket.
    Nested { depth: u32, in_text: bool, escaped: bool },
    /// A number or word: whatever cannot be part of it.
    Bare,
}

/// How much of an escape has come.
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

/// The lexer. One for each body.
#[derive(Debug)]
pub(super) struct Lexer {
    state: State,
    key: Vec<u8>,
    name: String,
    captured: Vec<u8>,
    /// Everything captured so far, keys included.
    kept: u64,
}

// === impl Lexer ===

impl Lexer {
    pub(super) const fn new() -> Self {
        Self { state: State::Start, key: Vec::new(), name: String::new(), captured: Vec::new(), kept: 0 }
    }

    /// The number of bytes captured so far, which bounds the memory that they hold.
    pub(super) const fn kept(&self) -> u64 {
        self.kept
    }

    /// Reads the next piece of the body.
    pub(super) fn push(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<(), Error> {
        let mut at = 0;
        while at < piece.len() {
            at += match self.state {
                State::Address { level, escape: Escape::None } => self.address(level, &piece[at..], sink)?,
                State::Address { level, escape } => self.escape(level, escape, piece[at], sink)?,
                State::Capture { level, kind } => usize::from(self.capture(piece[at], level, kind, sink)?),
                State::InKey { level, escaped } => self.key(piece[at], level, escaped, sink)?,
                _ => self.between(piece[at], sink)?,
            };
        }
        Ok(())
    }

    /// The body has ended.
    pub(super) fn finish(&self) -> Result<(), Error> {
        if self.state == State::Done { Ok(()) } else { Err(malformed("it ends too early")) }
    }

    /// The text of an address: its end is found by the quote alone, so that megabytes cost next to nothing.
    fn address(&mut self, level: Level, text: &[u8], sink: &mut impl Sink) -> Result<usize, Error> {
        let end = memchr2(b'"', b'\\', text).unwrap_or(text.len());
        if end > 0 {
            sink.address_text(&text[..end])?;
        }
        match text.get(end) {
            None => return Ok(end),
            Some(b'"') => {
                sink.address_end()?;
                self.state = State::After { level };
            }
            Some(_) => self.state = State::Address { level, escape: Escape::Begun },
        }
        Ok(end + 1)
    }

    /// One byte of an escape. Only characters of ASCII can be part of an address, escaped or not.
    fn escape(&mut self, level: Level, escape: Escape, byte: u8, sink: &mut impl Sink) -> Result<usize, Error> {
        let plain = match (escape, byte) {
            (Escape::Begun, b'u') => {
                self.state = State::Address { level, escape: Escape::Hex { digits: 0, unit: 0 } };
                return Ok(1);
            }
            (Escape::Begun, b'"' | b'\\' | b'/') => byte,
            (Escape::Begun, b'n') => b'\n',
            (Escape::Begun, b'r') => b'\r',
            (Escape::Begun, b't') => b'\t',
            (Escape::Begun, b'b' | b'f') => 0,
            (Escape::Hex { digits, unit }, _) => {
                let digit = char::from(byte).to_digit(16).ok_or_else(|| malformed("an escape is wrong"))?;
                let unit = unit << 4 | u16::try_from(digit).unwrap_or(0);
                if digits < 3 {
                    self.state = State::Address { level, escape: Escape::Hex { digits: digits + 1, unit } };
                    return Ok(1);
                }
                // No address has any other character than those of ASCII.
                u8::try_from(unit).unwrap_or(u8::MAX)
            }
            _ => return Err(malformed("an escape is wrong")),
        };
        self.state = State::Address { level, escape: Escape::None };
        sink.address_escaped(plain)?;
        Ok(1)
    }

    fn key(&mut self, byte: u8, level: Level, escaped: bool, sink: &mut impl Sink) -> Result<usize, Error> {
        if self.key.len() > KEY_MAX {
            return Err(malformed("a key is too long"));
        }
        self.keep_one()?;
        self.key.push(byte);
        self.state = match (escaped, byte) {
            (false, b'"') => {
                self.name = serde_json::from_slice(&self.key).map_err(|error| malformed(&error))?;
                match level {
                    Level::Top => sink.key(&self.name)?,
                    Level::Images | Level::Element | Level::Mask => sink.image_key(&self.name)?,
                }
                State::Colon { level }
            }
            (false, b'\\') => State::InKey { level, escaped: true },
            _ => State::InKey { level, escaped: false },
        };
        Ok(1)
    }

    /// One byte of a captured value; whether it was part of it.
    fn capture(&mut self, byte: u8, level: Level, kind: Capture, sink: &mut impl Sink) -> Result<bool, Error> {
        let next = match kind {
            Capture::Bare if is_bare(byte) => Some(Capture::Bare),
            Capture::Bare => {
                // This byte is not part of the value: it is read again as what follows it.
                self.value(level, sink)?;
                return Ok(false);
            }
            Capture::Text { escaped: true } => Some(Capture::Text { escaped: false }),
            Capture::Text { .. } if byte == b'"' => None,
            Capture::Text { .. } => Some(Capture::Text { escaped: byte == b'\\' }),
            Capture::Nested { depth, in_text, escaped } => nested(byte, depth, in_text, escaped),
        };
        self.keep_one()?;
        self.captured.push(byte);
        match next {
            Some(kind) => self.state = State::Capture { level, kind },
            None => self.value(level, sink)?,
        }
        Ok(true)
    }

    /// White space, punctuation and the first byte of values.
    fn between(&mut self, byte: u8, sink: &mut impl Sink) -> Result<usize, Error> {
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            return Ok(1);
        }
        self.state = match (self.state, byte) {
            (State::Start, b'{') => State::Key { level: Level::Top, first: true },
            (State::Start, _) => return Err(malformed("it is no object")),
            (State::Key { level, .. }, b'"') => {
                self.key.clear();
                self.key.push(b'"');
                State::InKey { level, escaped: false }
            }
            (State::Key { level, first: true } | State::After { level }, b'}') if level != Level::Images => {
                close(level, sink)?
            }
            (State::Colon { level }, b':') => State::Value { level },
            (State::Value { level }, _) => self.open(level, byte, sink)?,
            (State::Element { .. }, b'{') => open_image(Level::Element, sink)?,
            (State::Element { first: true } | State::After { level: Level::Images }, b']') => {
                State::After { level: Level::Top }
            }
            (State::Element { .. }, _) if begins_value(byte) => return Err(sink.misplaced(Place::Element, byte)),
            (State::After { level: Level::Images }, b',') => State::Element { first: false },
            (State::After { level }, b',') => State::Key { level, first: false },
            (State::Done, _) => return Err(malformed("something follows its end")),
            _ => return Err(malformed("a character stands where it must not")),
        };
        Ok(1)
    }

    /// The first byte of a member's value: images are passed on, the rest is captured.
    fn open(&mut self, level: Level, byte: u8, sink: &mut impl Sink) -> Result<State, Error> {
        let place = match (level, self.name.as_str()) {
            (Level::Top, "images") => Place::Images,
            (Level::Top, "mask") => Place::Mask,
            (Level::Element | Level::Mask, "image_url") => Place::Address,
            _ => return self.begin(level, byte),
        };
        match (place, byte) {
            (Place::Images, b'[') => Ok(State::Element { first: true }),
            (Place::Mask, b'{') => open_image(Level::Mask, sink),
            (Place::Address, b'"') => {
                sink.address()?;
                Ok(State::Address { level, escape: Escape::None })
            }
            // Absence, spelled out.
            (Place::Mask | Place::Address, b'n') => self.begin(level, byte),
            _ if begins_value(byte) => Err(sink.misplaced(place, byte)),
            _ => Err(malformed("a character stands where it must not")),
        }
    }

    /// Begins to capture a value.
    fn begin(&mut self, level: Level, byte: u8) -> Result<State, Error> {
        let kind = match byte {
            b'"' => Capture::Text { escaped: false },
            b'{' | b'[' => Capture::Nested { depth: 1, in_text: false, escaped: false },
            _ if is_bare(byte) => Capture::Bare,
            _ => return Err(malformed("a character stands where it must not")),
        };
        self.captured.clear();
        self.captured.push(byte);
        Ok(State::Capture { level, kind })
    }

    fn keep_one(&mut self) -> Result<(), Error> {
        self.kept += 1;
        if self.kept <= TEXT_MAX {
            return Ok(());
        }
        let message = format!("The request body has more than {TEXT_MAX} bytes beside its images.");
        Err(Error::TooLarge(Rejection { param: None, reason: None, message }))
    }

    /// A captured value is complete.
    fn value(&mut self, level: Level, sink: &mut impl Sink) -> Result<(), Error> {
        self.state = State::After { level };
        let value = match self.captured.first() {
            // No field is an object or an array: that it is one is all that anybody wants to know of it.
            Some(b'{') => self.parse::<IgnoredAny>().map(|_| Value::Object(serde_json::Map::new())),
            Some(b'[') => self.parse::<IgnoredAny>().map(|_| Value::Array(Vec::new())),
            _ => self.parse::<Value>(),
        }?;
        if level == Level::Top { sink.member(&self.name, value) } else { sink.image_member(&self.name, value) }
    }

    fn parse<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Error> {
        serde_json::from_slice(&self.captured).map_err(|error| malformed(&error))
    }
}

fn open_image(level: Level, sink: &mut impl Sink) -> Result<State, Error> {
    sink.image(level == Level::Mask)?;
    Ok(State::Key { level, first: true })
}

/// The end of an object.
fn close(level: Level, sink: &mut impl Sink) -> Result<State, Error> {
    match level {
        Level::Top => return Ok(State::Done),
        Level::Element | Level::Mask => sink.image_end()?,
        Level::Images => {}
    }
    Ok(State::After { level: if level == Level::Element { Level::Images } else { Level::Top } })
}

/// Follows the brackets of a captured object or array; `None` at its end.
fn nested(byte: u8, depth: u32, in_text: bool, escaped: bool) -> Option<Capture> {
    let next = |depth, in_text, escaped| Some(Capture::Nested { depth, in_text, escaped });
    match (in_text, escaped, byte) {
        (true, true, _) => next(depth, true, false),
        (true, false, b'"') => next(depth, false, false),
        (true, false, _) => next(depth, true, byte == b'\\'),
        (false, _, b'"') => next(depth, true, false),
        (false, _, b'{' | b'[') => next(depth.saturating_add(1), false, false),
        (false, _, b'}' | b']') if depth == 1 => None,
        (false, _, b'}' | b']') => next(depth - 1, false, false),
        (false, ..) => next(depth, false, false),
    }
}

/// Bytes of numbers and of `true`, `false` and `null`.
const fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

const fn begins_value(byte: u8) -> bool {
    is_bare(byte) || matches!(byte, b'"' | b'{' | b'[')
}

fn malformed(what: &(impl std::fmt::Display + ?Sized)) -> Error {
    Rejection::whole(Reason::InvalidJson, format!("The request body is not valid JSON: {what}.")).into()
}
