//! A push lexer for the two relevant JSON shapes: an answer, which is an object with an array `data` of objects with
//! `b64_json`, and an event, which is an object with `b64_json` itself.
//!
//! It takes the upstream's body as it arrives, in pieces cut anywhere, and keeps almost nothing: the base64 goes to an
//! [`AnswerSink`] as slices of the pieces themselves; every other member is small and is captured whole, up to a bound
//! on all of them. `serde_json` parses the captured values. The beginning of the base64 is checked byte by byte, the
//! rest only for ASCII without line ends: nothing in it can end a string, a line or an event.

use bytes::Bytes;
use memchr::memchr2;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Members that are not image data are small; larger ones, alone or together, are dropped instead of held.
const CAPTURE_MAX: usize = 128 * 1024;
const CAPTURE_ALL_MAX: usize = 256 * 1024;
/// The number of bytes of each image that are checked one by one.
const ALPHABET_SEEN: usize = 64;
/// Members that decide if there is an image, its kind and its cost: they must be JSON.
const MUST_PARSE_KEYS: [&str; 4] = ["data", "error", "type", "usage"];
/// The longest key that is kept. No member that is read has a longer one.
const KEY_MAX: usize = 256;

/// Receives the content that the lexer finds, in the order of the body. An item is an element of `data`, or an event.
pub(super) trait AnswerSink {
    /// Receives a member of the answer itself, other than the images.
    fn member(&mut self, key: String, value: Value);
    /// Announces an event as the next item, with the name that is outside its data, if there is one.
    fn announce_event(&mut self, name: Option<String>);
    /// Begins an item.
    fn item_start(&mut self);
    /// Receives a member of the current item, other than the image.
    fn item_member(&mut self, key: String, value: Value);
    /// Notes a member of the current item that is too large to hold, or cannot be held.
    fn item_member_dropped(&mut self, key: &str) {
        let _ = key;
    }
    /// Receives some bytes of the current item's base64, at least one.
    fn image(&mut self, base64: Bytes);
    /// Ends the base64 of the current item.
    fn image_end(&mut self);
    /// Ends the current item.
    fn item_end(&mut self);
    /// Ends the event of the current item; only now its name outside the data is known, if it has one.
    fn event_end(&mut self, name: Option<String>) {
        let _ = name;
    }
}

/// The body is not the promised JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerSyntaxError {
    #[error("the body is not a JSON object")]
    NotAnObject,
    #[error("unexpected byte 0x{0:02x} between values")]
    Unexpected(u8),
    #[error("a key or value is not JSON")]
    Value,
    #[error("the data of an image is not base64")]
    Base64,
    #[error("bytes after the end of the object")]
    Surplus,
    #[error("the body ended within the object")]
    Truncated,
}

/// The part of the body that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerLexerState {
    /// Before the opening brace.
    Start,
    /// After `{` or a comma: a key, or (after `{` only) the end.
    Key { level: AnswerLexerLevel, first: bool },
    /// Inside a key.
    InKey { level: AnswerLexerLevel, escaped: bool },
    /// Between a key and its colon.
    Colon { level: AnswerLexerLevel },
    /// Before a value.
    Value { level: AnswerLexerLevel },
    /// Inside a value that is captured.
    Capture { level: AnswerLexerLevel, kind: AnswerCaptureKind },
    /// After a value: a comma or the end of the level.
    After { level: AnswerLexerLevel },
    /// Inside `data`: an element, or (after `[` only) the end.
    Element { first: bool },
    /// Inside the base64.
    Image { escaped: bool },
    /// After the closing brace.
    Done,
}

/// The object whose members are being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerLexerLevel {
    /// The body itself.
    Top,
    /// An element of `data`.
    Item,
    /// `data` itself: its elements have no keys.
    Array,
}

/// The kind of a captured value, which determines its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerCaptureKind {
    /// A string: an unescaped quote.
    Text { escaped: bool },
    /// An object or array: its own closing bracket.
    Nested { depth: u32, in_text: bool, escaped: bool },
    /// A number or word: ends before the first byte that cannot be part of it.
    Literal,
}

/// The lexer. Each body needs its own.
#[derive(Debug)]
pub(super) struct AnswerLexer {
    state: AnswerLexerState,
    key: Vec<u8>,
    captured: Vec<u8>,
    /// True if the value being captured is too large to keep.
    dropped: bool,
    /// The bytes captured so far, of all values.
    captured_total: usize,
    /// The base64 bytes seen so far, of the current image.
    base64_seen: usize,
    /// True if the outermost object is an item itself.
    event: bool,
}

// === impl AnswerLexer ===

impl AnswerLexer {
    /// Makes a lexer for an answer.
    pub(super) const fn new() -> Self {
        Self {
            state: AnswerLexerState::Start,
            key: Vec::new(),
            captured: Vec::new(),
            dropped: false,
            captured_total: 0,
            base64_seen: 0,
            event: false,
        }
    }

    /// Makes a lexer for an event.
    pub(super) const fn for_event() -> Self {
        let mut lexer = Self::new();
        lexer.event = true;
        lexer
    }

    /// Reads the next piece of the body.
    pub(super) fn push(&mut self, piece: &Bytes, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        let mut at = 0;
        while at < piece.len() {
            at = match self.state {
                AnswerLexerState::Image { escaped } => self.read_image(piece, at, escaped, sink)?,
                AnswerLexerState::Capture { level, kind } => match kind.plain_text_length(&piece[at..]) {
                    0 => at + usize::from(self.capture_byte(piece[at], level, kind, sink)?),
                    text => {
                        self.extend_capture(&piece[at..at + text]);
                        at + text
                    }
                },
                AnswerLexerState::InKey { level, escaped } => self.read_key(piece, at, level, escaped)?,
                _ => self.read_structure(piece[at], at, sink)?,
            };
        }
        Ok(())
    }

    /// Checks that the body may end here.
    pub(super) fn finish(&self) -> Result<(), AnswerSyntaxError> {
        if self.state == AnswerLexerState::Done { Ok(()) } else { Err(AnswerSyntaxError::Truncated) }
    }

    /// Reads base64, of which only the closing quote is searched for, so that megabytes cost next to nothing.
    fn read_image(
        &mut self,
        piece: &Bytes,
        at: usize,
        escaped: bool,
        sink: &mut impl AnswerSink,
    ) -> Result<usize, AnswerSyntaxError> {
        if escaped {
            // `\/` is the one escape that base64 can carry; it means the same on the way out.
            if piece[at] != b'/' {
                return Err(AnswerSyntaxError::Base64);
            }
            sink.image(piece.slice(at..=at));
            self.state = AnswerLexerState::Image { escaped: false };
            return Ok(at + 1);
        }
        let end = memchr2(b'"', b'\\', &piece[at..]).map_or(piece.len(), |found| at + found);
        let quote = piece.get(end) == Some(&b'"');
        let until = if end < piece.len() && !quote { end + 1 } else { end };
        if until > at {
            check_base64(&mut self.base64_seen, &piece[at..end])?;
            sink.image(piece.slice(at..until));
        }
        if quote {
            sink.image_end();
            self.state = AnswerLexerState::After { level: AnswerLexerLevel::Item };
            return Ok(end + 1);
        }
        self.state = AnswerLexerState::Image { escaped: end < piece.len() };
        Ok(until)
    }

    fn read_key(
        &mut self,
        piece: &Bytes,
        at: usize,
        level: AnswerLexerLevel,
        escaped: bool,
    ) -> Result<usize, AnswerSyntaxError> {
        let byte = piece[at];
        if self.key.len() > KEY_MAX {
            return Err(AnswerSyntaxError::Value);
        }
        self.key.push(byte);
        self.state = match (escaped, byte) {
            (false, b'"') => AnswerLexerState::Colon { level },
            (false, b'\\') => AnswerLexerState::InKey { level, escaped: true },
            _ => AnswerLexerState::InKey { level, escaped: false },
        };
        Ok(at + 1)
    }

    /// Reads one byte of a captured value. Returns true if it was part of the value.
    fn capture_byte(
        &mut self,
        byte: u8,
        level: AnswerLexerLevel,
        kind: AnswerCaptureKind,
        sink: &mut impl AnswerSink,
    ) -> Result<bool, AnswerSyntaxError> {
        let next = match kind {
            AnswerCaptureKind::Literal if is_literal_byte(byte) => Some(AnswerCaptureKind::Literal),
            AnswerCaptureKind::Literal => {
                // This byte is not part of the value: it is read again as the start of the next part.
                self.finish_value(level, sink)?;
                return Ok(false);
            }
            AnswerCaptureKind::Text { escaped: true } => Some(AnswerCaptureKind::Text { escaped: false }),
            AnswerCaptureKind::Text { .. } if byte == b'"' => None,
            AnswerCaptureKind::Text { .. } => Some(AnswerCaptureKind::Text { escaped: byte == b'\\' }),
            AnswerCaptureKind::Nested { depth, in_text, escaped } => advance_nesting(byte, depth, in_text, escaped),
        };
        self.extend_capture(&[byte]);
        match next {
            Some(kind) => self.state = AnswerLexerState::Capture { level, kind },
            None => self.finish_value(level, sink)?,
        }
        Ok(true)
    }

    /// Reads white space, punctuation and the first byte of values.
    fn read_structure(&mut self, byte: u8, at: usize, sink: &mut impl AnswerSink) -> Result<usize, AnswerSyntaxError> {
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            return Ok(at + 1);
        }
        self.state = match (self.state, byte) {
            (AnswerLexerState::Start, b'{') => self.begin_object(sink),
            (AnswerLexerState::Start, _) => return Err(AnswerSyntaxError::NotAnObject),
            (AnswerLexerState::Key { level, .. }, b'"') => {
                self.key.clear();
                self.key.push(b'"');
                AnswerLexerState::InKey { level, escaped: false }
            }
            (AnswerLexerState::Key { level, first: true }, b'}') => self.close_object(level, sink),
            (AnswerLexerState::Colon { level }, b':') => AnswerLexerState::Value { level },
            (AnswerLexerState::Value { level }, _) => self.start_value(level, byte)?,
            (AnswerLexerState::Element { .. }, b'{') => {
                sink.item_start();
                AnswerLexerState::Key { level: AnswerLexerLevel::Item, first: true }
            }
            (
                AnswerLexerState::Element { first: true } | AnswerLexerState::After { level: AnswerLexerLevel::Array },
                b']',
            ) => AnswerLexerState::After { level: AnswerLexerLevel::Top },
            (AnswerLexerState::Element { .. }, _) => self.start_capture(AnswerLexerLevel::Array, byte)?,
            (AnswerLexerState::After { level: AnswerLexerLevel::Array }, b',') => {
                AnswerLexerState::Element { first: false }
            }
            (AnswerLexerState::After { level }, b',') => AnswerLexerState::Key { level, first: false },
            (AnswerLexerState::After { level }, b'}') if level != AnswerLexerLevel::Array => {
                self.close_object(level, sink)
            }
            (AnswerLexerState::Done, _) => return Err(AnswerSyntaxError::Surplus),
            (_, byte) => return Err(AnswerSyntaxError::Unexpected(byte)),
        };
        Ok(at + 1)
    }

    /// Begins the outermost object.
    fn begin_object(&self, sink: &mut impl AnswerSink) -> AnswerLexerState {
        if self.event {
            sink.item_start();
        }
        AnswerLexerState::Key {
            level: if self.event { AnswerLexerLevel::Item } else { AnswerLexerLevel::Top },
            first: true,
        }
    }

    /// Ends an object.
    fn close_object(&self, level: AnswerLexerLevel, sink: &mut impl AnswerSink) -> AnswerLexerState {
        if level == AnswerLexerLevel::Item {
            sink.item_end();
        }
        if level == AnswerLexerLevel::Item && !self.event {
            AnswerLexerState::After { level: AnswerLexerLevel::Array }
        } else {
            AnswerLexerState::Done
        }
    }

    /// Reads the first byte of a member's value: images are passed on, other values are captured.
    fn start_value(&mut self, level: AnswerLexerLevel, byte: u8) -> Result<AnswerLexerState, AnswerSyntaxError> {
        match (level, self.key.as_slice(), byte) {
            (AnswerLexerLevel::Top, br#""data""#, b'[') => Ok(AnswerLexerState::Element { first: true }),
            (AnswerLexerLevel::Item, br#""b64_json""#, b'"') => {
                self.base64_seen = 0;
                Ok(AnswerLexerState::Image { escaped: false })
            }
            _ => self.start_capture(level, byte),
        }
    }

    /// Begins to capture a value.
    fn start_capture(&mut self, level: AnswerLexerLevel, byte: u8) -> Result<AnswerLexerState, AnswerSyntaxError> {
        self.captured.clear();
        self.dropped = false;
        self.extend_capture(&[byte]);
        let kind = match byte {
            b'"' => AnswerCaptureKind::Text { escaped: false },
            b'{' | b'[' => AnswerCaptureKind::Nested { depth: 1, in_text: false, escaped: false },
            _ if is_literal_byte(byte) => AnswerCaptureKind::Literal,
            _ => return Err(AnswerSyntaxError::Unexpected(byte)),
        };
        Ok(AnswerLexerState::Capture { level, kind })
    }

    fn extend_capture(&mut self, bytes: &[u8]) {
        if self.dropped {
            return;
        }
        let remaining = (CAPTURE_MAX - self.captured.len()).min(CAPTURE_ALL_MAX - self.captured_total);
        let accepted = &bytes[..bytes.len().min(remaining)];
        self.captured.extend_from_slice(accepted);
        self.captured_total += accepted.len();
        self.dropped = accepted.len() < bytes.len();
    }

    /// Ends a captured value.
    fn finish_value(&mut self, level: AnswerLexerLevel, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        self.state = AnswerLexerState::After { level };
        let value = if self.dropped { Ok(None) } else { parse_captured(&self.captured) };
        let key: String = match level {
            // An element of `data` that is not an object has no image: there is nothing to pass on.
            AnswerLexerLevel::Array => return value.map(drop),
            AnswerLexerLevel::Item | AnswerLexerLevel::Top => {
                serde_json::from_slice(&self.key).map_err(|_| AnswerSyntaxError::Value)?
            }
        };
        // An unreadable value does not cost an image that is paid for, unless it decides if there is one, or its cost.
        let value = value
            .or_else(|malformed| if MUST_PARSE_KEYS.contains(&key.as_str()) { Err(malformed) } else { Ok(None) })?;
        match (level, value) {
            (AnswerLexerLevel::Item, Some(value)) => sink.item_member(key, value),
            (AnswerLexerLevel::Item, None) => sink.item_member_dropped(&key),
            (_, Some(value)) => sink.member(key, value),
            (_, None) => {}
        }
        Ok(())
    }
}

// === impl AnswerCaptureKind ===

impl AnswerCaptureKind {
    /// Returns the number of these bytes that are only text. Only the end of the text is searched for, as with base64.
    fn plain_text_length(self, bytes: &[u8]) -> usize {
        match self {
            Self::Text { escaped: false } | Self::Nested { in_text: true, escaped: false, .. } => {
                memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())
            }
            Self::Text { .. } | Self::Nested { .. } | Self::Literal => 0,
        }
    }
}

/// Reads a captured value. `None` if it is JSON that cannot be held, such as a number out of range or too many levels,
/// or one of the words that some upstreams write for no number: the image next to it is paid for.
pub(super) fn parse_captured(json: &[u8]) -> Result<Option<Value>, AnswerSyntaxError> {
    const NO_NUMBERS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    match serde_json::from_slice(json) {
        Ok(value) => Ok(Some(value)),
        Err(_) if NO_NUMBERS.contains(&json) || serde_json::from_slice::<IgnoredAny>(json).is_ok() => Ok(None),
        Err(_) => Err(AnswerSyntaxError::Value),
    }
}

/// Checks the next piece of an image, of which `seen` bytes came before. Neither the whole alphabet nor the padding is
/// checked: the caller decodes it.
pub(super) fn check_base64(seen: &mut usize, base64: &[u8]) -> Result<(), AnswerSyntaxError> {
    let beginning = &base64[..base64.len().min(ALPHABET_SEEN.saturating_sub(*seen))];
    *seen = seen.saturating_add(base64.len());
    let in_alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let fine = beginning.iter().all(in_alphabet) && base64.is_ascii() && memchr2(b'\r', b'\n', base64).is_none();
    if fine { Ok(()) } else { Err(AnswerSyntaxError::Base64) }
}

/// Follows the brackets of a captured object or array; `None` at its end.
fn advance_nesting(byte: u8, depth: u32, in_text: bool, escaped: bool) -> Option<AnswerCaptureKind> {
    let next = |depth, in_text, escaped| Some(AnswerCaptureKind::Nested { depth, in_text, escaped });
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

/// True for bytes of numbers and of `true`, `false` and `null`.
const fn is_literal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

#[cfg(test)]
mod tests;
