//! A push lexer for the two JSON shapes that matter here: an answer, which is an object with an array `data` of objects
//! with `b64_json`, and an event, which is an object with `b64_json` itself.
//!
//! It is handed the upstream's body as it arrives, in pieces cut anywhere, and keeps almost nothing: the base64 goes
//! to a [`Sink`] as slices of the pieces themselves, every other member is small and is captured whole, up to a bound on
//! all of them. What is captured is parsed by `serde_json`. Of the base64 itself the beginning is looked at byte by byte,
//! and of the rest that it is ASCII without line ends: nothing in it can end a string, a line or an event.

use bytes::Bytes;
use memchr::memchr2;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Members that are not image data are small; what is larger, alone or together, is dropped instead of held.
const CAPTURE_MAX: usize = 128 * 1024;
const CAPTURE_ALL_MAX: usize = 256 * 1024;
/// So much of each image is looked at byte by byte.
const ALPHABET_SEEN: usize = 64;
/// Members that decide if there is an image, what it is and what it costs: they must be JSON.
const DECISIVE: [&str; 4] = ["data", "error", "type", "usage"];
/// A key longer than this is none that anybody reads.
const KEY_MAX: usize = 256;

/// What the lexer finds, in the order of the body. An item is an element of `data`, or an event.
pub(super) trait Sink {
    /// A member of the answer itself, other than the images.
    fn member(&mut self, key: String, value: Value);
    /// The next item is an event, with the name that stands outside its data, if one does.
    fn event(&mut self, name: Option<String>);
    /// An item begins.
    fn item_start(&mut self);
    /// A member of the current item, other than the image.
    fn item_member(&mut self, key: String, value: Value);
    /// A member of the current item that is too large to hold, or cannot be held.
    fn item_unheld(&mut self, key: &str) {
        let _ = key;
    }
    /// Some bytes of the current item's base64; never empty.
    fn image(&mut self, base64: Bytes);
    /// The base64 of the current item is complete.
    fn image_end(&mut self);
    /// The current item is complete.
    fn item_end(&mut self);
    /// The event of the current item is over; only now is it known whether it has a name outside its data.
    fn event_end(&mut self, name: Option<String>) {
        let _ = name;
    }
}

/// The body is not the JSON that was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("the body is no JSON object")]
    NotAnObject,
    #[error("unexpected byte 0x{0:02x} between values")]
    Unexpected(u8),
    #[error("a key or value is no JSON")]
    Value,
    #[error("what should be an image is no base64")]
    Base64,
    #[error("bytes after the end of the object")]
    Surplus,
    #[error("the body ended in the middle of the object")]
    Truncated,
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
    /// Inside `data`: an element, or (after `[` only) the end.
    Element { first: bool },
    /// Inside the base64.
    Image { escaped: bool },
    /// After the closing brace.
    Done,
}

/// Whose members are being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// The body itself.
    Top,
    /// An element of `data`.
    Item,
    /// `data` itself: its elements have no keys.
    Array,
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

/// The lexer. One for each body.
#[derive(Debug)]
pub(super) struct Lexer {
    state: State,
    key: Vec<u8>,
    captured: Vec<u8>,
    /// The value being captured is too large to keep.
    dropped: bool,
    /// Bytes captured so far, of all values.
    kept: usize,
    /// Base64 seen so far, of the current image.
    seen: usize,
    /// The outermost object is an item itself.
    event: bool,
}

// === impl Lexer ===

impl Lexer {
    /// For an answer.
    pub(super) const fn new() -> Self {
        Self {
            state: State::Start,
            key: Vec::new(),
            captured: Vec::new(),
            dropped: false,
            kept: 0,
            seen: 0,
            event: false,
        }
    }

    /// For an event.
    pub(super) const fn event() -> Self {
        let mut lexer = Self::new();
        lexer.event = true;
        lexer
    }

    /// Reads the next piece of the body.
    pub(super) fn push(&mut self, piece: &Bytes, sink: &mut impl Sink) -> Result<(), Malformed> {
        let mut at = 0;
        while at < piece.len() {
            at = match self.state {
                State::Image { escaped } => self.image(piece, at, escaped, sink)?,
                State::Capture { level, kind } => match kind.text_in(&piece[at..]) {
                    0 => at + usize::from(self.capture(piece[at], level, kind, sink)?),
                    text => {
                        self.keep(&piece[at..at + text]);
                        at + text
                    }
                },
                State::InKey { level, escaped } => self.key(piece, at, level, escaped)?,
                _ => self.between(piece[at], at, sink)?,
            };
        }
        Ok(())
    }

    /// The body has ended.
    pub(super) fn finish(&self) -> Result<(), Malformed> {
        if self.state == State::Done { Ok(()) } else { Err(Malformed::Truncated) }
    }

    /// Base64: found by its closing quote alone, so that megabytes cost next to nothing.
    fn image(&mut self, piece: &Bytes, at: usize, escaped: bool, sink: &mut impl Sink) -> Result<usize, Malformed> {
        if escaped {
            // `\/` is the one escape that base64 can carry; it means the same on the way out.
            if piece[at] != b'/' {
                return Err(Malformed::Base64);
            }
            sink.image(piece.slice(at..=at));
            self.state = State::Image { escaped: false };
            return Ok(at + 1);
        }
        let end = memchr2(b'"', b'\\', &piece[at..]).map_or(piece.len(), |found| at + found);
        let quote = piece.get(end) == Some(&b'"');
        let until = if end < piece.len() && !quote { end + 1 } else { end };
        if until > at {
            check_base64(&mut self.seen, &piece[at..end])?;
            sink.image(piece.slice(at..until));
        }
        if quote {
            sink.image_end();
            self.state = State::After { level: Level::Item };
            return Ok(end + 1);
        }
        self.state = State::Image { escaped: end < piece.len() };
        Ok(until)
    }

    fn key(&mut self, piece: &Bytes, at: usize, level: Level, escaped: bool) -> Result<usize, Malformed> {
        let byte = piece[at];
        if self.key.len() > KEY_MAX {
            return Err(Malformed::Value);
        }
        self.key.push(byte);
        self.state = match (escaped, byte) {
            (false, b'"') => State::Colon { level },
            (false, b'\\') => State::InKey { level, escaped: true },
            _ => State::InKey { level, escaped: false },
        };
        Ok(at + 1)
    }

    /// One byte of a captured value; whether it was part of it.
    fn capture(&mut self, byte: u8, level: Level, kind: Capture, sink: &mut impl Sink) -> Result<bool, Malformed> {
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
        self.keep(&[byte]);
        match next {
            Some(kind) => self.state = State::Capture { level, kind },
            None => self.value(level, sink)?,
        }
        Ok(true)
    }

    /// White space, punctuation and the first byte of values.
    fn between(&mut self, byte: u8, at: usize, sink: &mut impl Sink) -> Result<usize, Malformed> {
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            return Ok(at + 1);
        }
        self.state = match (self.state, byte) {
            (State::Start, b'{') => self.begin_object(sink),
            (State::Start, _) => return Err(Malformed::NotAnObject),
            (State::Key { level, .. }, b'"') => {
                self.key.clear();
                self.key.push(b'"');
                State::InKey { level, escaped: false }
            }
            (State::Key { level, first: true }, b'}') => self.close(level, sink),
            (State::Colon { level }, b':') => State::Value { level },
            (State::Value { level }, _) => self.open(level, byte)?,
            (State::Element { .. }, b'{') => {
                sink.item_start();
                State::Key { level: Level::Item, first: true }
            }
            (State::Element { first: true } | State::After { level: Level::Array }, b']') => {
                State::After { level: Level::Top }
            }
            (State::Element { .. }, _) => self.begin(Level::Array, byte)?,
            (State::After { level: Level::Array }, b',') => State::Element { first: false },
            (State::After { level }, b',') => State::Key { level, first: false },
            (State::After { level }, b'}') if level != Level::Array => self.close(level, sink),
            (State::Done, _) => return Err(Malformed::Surplus),
            (_, byte) => return Err(Malformed::Unexpected(byte)),
        };
        Ok(at + 1)
    }

    /// The outermost object begins.
    fn begin_object(&self, sink: &mut impl Sink) -> State {
        if self.event {
            sink.item_start();
        }
        State::Key { level: if self.event { Level::Item } else { Level::Top }, first: true }
    }

    /// The end of an object.
    fn close(&self, level: Level, sink: &mut impl Sink) -> State {
        if level == Level::Item {
            sink.item_end();
        }
        if level == Level::Item && !self.event { State::After { level: Level::Array } } else { State::Done }
    }

    /// The first byte of a member's value: images are passed on, the rest is captured.
    fn open(&mut self, level: Level, byte: u8) -> Result<State, Malformed> {
        match (level, self.key.as_slice(), byte) {
            (Level::Top, br#""data""#, b'[') => Ok(State::Element { first: true }),
            (Level::Item, br#""b64_json""#, b'"') => {
                self.seen = 0;
                Ok(State::Image { escaped: false })
            }
            _ => self.begin(level, byte),
        }
    }

    /// Begins to capture a value.
    fn begin(&mut self, level: Level, byte: u8) -> Result<State, Malformed> {
        self.captured.clear();
        self.dropped = false;
        self.keep(&[byte]);
        let kind = match byte {
            b'"' => Capture::Text { escaped: false },
            b'{' | b'[' => Capture::Nested { depth: 1, in_text: false, escaped: false },
            _ if is_bare(byte) => Capture::Bare,
            _ => return Err(Malformed::Unexpected(byte)),
        };
        Ok(State::Capture { level, kind })
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.dropped {
            return;
        }
        let room = (CAPTURE_MAX - self.captured.len()).min(CAPTURE_ALL_MAX - self.kept);
        let kept = &bytes[..bytes.len().min(room)];
        self.captured.extend_from_slice(kept);
        self.kept += kept.len();
        self.dropped = kept.len() < bytes.len();
    }

    /// A captured value is complete.
    fn value(&mut self, level: Level, sink: &mut impl Sink) -> Result<(), Malformed> {
        self.state = State::After { level };
        let value = if self.dropped { Ok(None) } else { read(&self.captured) };
        let key: String = match level {
            // An element of `data` that is no object carries no image: there is nothing to pass on.
            Level::Array => return value.map(drop),
            Level::Item | Level::Top => serde_json::from_slice(&self.key).map_err(|_| Malformed::Value)?,
        };
        // What nobody can read costs no image that is paid for, unless it decides if there is one, or what it costs.
        let value =
            value.or_else(|malformed| if DECISIVE.contains(&key.as_str()) { Err(malformed) } else { Ok(None) })?;
        match (level, value) {
            (Level::Item, Some(value)) => sink.item_member(key, value),
            (Level::Item, None) => sink.item_unheld(&key),
            (_, Some(value)) => sink.member(key, value),
            (_, None) => {}
        }
        Ok(())
    }
}

// === impl Capture ===

impl Capture {
    /// How many of these bytes are nothing but text: found by what ends it alone, as with base64.
    fn text_in(self, bytes: &[u8]) -> usize {
        match self {
            Self::Text { escaped: false } | Self::Nested { in_text: true, escaped: false, .. } => {
                memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())
            }
            Self::Text { .. } | Self::Nested { .. } | Self::Bare => 0,
        }
    }
}

/// Reads a captured value. `None` if it is JSON that cannot be held, such as a number without a bound or too many levels,
/// or one of the words that some upstreams write for no number: the image beside it is paid for.
pub(super) fn read(json: &[u8]) -> Result<Option<Value>, Malformed> {
    const NO_NUMBERS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    match serde_json::from_slice(json) {
        Ok(value) => Ok(Some(value)),
        Err(_) if NO_NUMBERS.contains(&json) || serde_json::from_slice::<IgnoredAny>(json).is_ok() => Ok(None),
        Err(_) => Err(Malformed::Value),
    }
}

/// Looks at the next piece of an image of which so much has been `seen`. Neither the whole alphabet nor the padding is
/// checked: decoding is the caller's.
pub(super) fn check_base64(seen: &mut usize, base64: &[u8]) -> Result<(), Malformed> {
    let beginning = &base64[..base64.len().min(ALPHABET_SEEN.saturating_sub(*seen))];
    *seen = seen.saturating_add(base64.len());
    let in_alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let fine = beginning.iter().all(in_alphabet) && base64.is_ascii() && memchr2(b'\r', b'\n', base64).is_none();
    if fine { Ok(()) } else { Err(Malformed::Base64) }
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

#[cfg(test)]
mod tests;
