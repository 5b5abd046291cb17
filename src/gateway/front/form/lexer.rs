//! A push lexer for the body of an edit as JSON: an object with an array `images` and an object `mask`.
//!
//! It is handed the body in pieces cut anywhere and keeps almost nothing: the text of an `image_url` goes to the
//! [`EditLexerSink`] as slices of the pieces; everything else is small and is captured. `serde_json` reads the captured
//! values, so a body that passes is JSON from its first byte to its last.

use memchr::memchr2;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::TEXT_MAX;
use crate::error::{Error, Rejection, RejectionReason};

/// The maximum length of a key: no known key is longer.
const KEY_MAX: usize = 256;

/// The receiver of the lexer's events, in the order of the body. An error of the sink ends the reading.
pub(super) trait EditLexerSink {
    /// Receives a key of the body itself.
    fn key(&mut self, key: &str) -> Result<(), Error>;
    /// Receives the value of that key, if it is not an image.
    fn member(&mut self, key: &str, value: Value) -> Result<(), Error>;
    /// Begins an image: an element of `images`, or the mask.
    fn image(&mut self, mask: bool) -> Result<(), Error>;
    /// Receives a key of the current image.
    fn image_key(&mut self, key: &str) -> Result<(), Error>;
    /// Receives the value of that key, if it is not an address.
    fn image_member(&mut self, key: &str, value: Value) -> Result<(), Error>;
    /// Begins the address of the current image, which is a text.
    fn address(&mut self) -> Result<(), Error>;
    /// Receives a part of that text, as it is written in the body; never empty.
    fn address_text(&mut self, text: &[u8]) -> Result<(), Error>;
    /// Receives one character of it that was escaped.
    fn address_escaped(&mut self, byte: u8) -> Result<(), Error>;
    /// Ends that text.
    fn address_end(&mut self) -> Result<(), Error>;
    /// Ends the current image.
    fn image_end(&mut self) -> Result<(), Error>;
    /// The error for a wrong kind of value in place of an image, of the list of images, or of an address.
    fn misplaced(&self, place: ImageMemberKind, first: u8) -> Error;
}

/// A member that takes only one kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageMemberKind {
    /// The member `images`.
    Images,
    /// An element of `images`.
    Element,
    /// The member `mask`.
    Mask,
    /// The member `image_url` of an element or of the mask.
    Address,
}

/// The position of the next byte in the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditLexerState {
    /// Before the opening brace.
    Start,
    /// After `{` or a comma: a key, or (after `{` only) the end.
    Key { level: EditLexerLevel, first: bool },
    /// Inside a key.
    InKey { level: EditLexerLevel, escaped: bool },
    /// Between a key and its colon.
    Colon { level: EditLexerLevel },
    /// Before a value.
    Value { level: EditLexerLevel },
    /// Inside a value that is captured.
    Capture { level: EditLexerLevel, kind: EditCaptureState },
    /// After a value: a comma or the end of the level.
    After { level: EditLexerLevel },
    /// Inside `images`: an element, or (after `[` only) the end.
    Element { first: bool },
    /// Inside the text of an address.
    Address { level: EditLexerLevel, escape: EscapeState },
    /// After the closing brace.
    Done,
}

/// The object whose members are being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditLexerLevel {
    /// The body itself.
    Top,
    /// `images`: its elements have no keys.
    Images,
    /// An element of `images`.
    Element,
    /// The mask.
    Mask,
}

/// The rule that ends a captured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditCaptureState {
    /// A string: an unescaped quote.
    Text { escaped: bool },
    /// An object or array: its own closing bracket.
    Nested { depth: u32, in_text: bool, escaped: bool },
    /// A number or word: ended by the first byte that cannot be part of it.
    Bare,
}

/// The part of an escape that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EscapeState {
    None,
    Begun,
    /// The digits of `\u0041`.
    Hex {
        digits: u8,
        unit: u16,
    },
}

/// The lexer. Each body has its own.
#[derive(Debug)]
pub(super) struct EditLexer {
    state: EditLexerState,
    key: Vec<u8>,
    name: String,
    captured: Vec<u8>,
    /// Everything captured so far, keys included.
    kept: u64,
}

// === impl EditLexer ===

impl EditLexer {
    pub(super) const fn new() -> Self {
        Self { state: EditLexerState::Start, key: Vec::new(), name: String::new(), captured: Vec::new(), kept: 0 }
    }

    /// The number of bytes captured so far, which bounds the memory that they hold.
    pub(super) const fn kept(&self) -> u64 {
        self.kept
    }

    /// Reads the next piece of the body.
    pub(super) fn push(&mut self, piece: &[u8], sink: &mut impl EditLexerSink) -> Result<(), Error> {
        let mut at = 0;
        while at < piece.len() {
            at += match self.state {
                EditLexerState::Address { level, escape: EscapeState::None } => {
                    self.address(level, &piece[at..], sink)?
                }
                EditLexerState::Address { level, escape } => self.escape(level, escape, piece[at], sink)?,
                EditLexerState::Capture { level, kind } => usize::from(self.capture(piece[at], level, kind, sink)?),
                EditLexerState::InKey { level, escaped } => self.key(piece[at], level, escaped, sink)?,
                _ => self.between(piece[at], sink)?,
            };
        }
        Ok(())
    }

    /// Checks at the end of the body that it is complete.
    pub(super) fn finish(&self) -> Result<(), Error> {
        if self.state == EditLexerState::Done { Ok(()) } else { Err(malformed("it ends too early")) }
    }

    /// Reads the text of an address. Only the quote ends it, so megabytes cost almost nothing.
    fn address(&mut self, level: EditLexerLevel, text: &[u8], sink: &mut impl EditLexerSink) -> Result<usize, Error> {
        let end = memchr2(b'"', b'\\', text).unwrap_or(text.len());
        if end > 0 {
            sink.address_text(&text[..end])?;
        }
        match text.get(end) {
            None => return Ok(end),
            Some(b'"') => {
                sink.address_end()?;
                self.state = EditLexerState::After { level };
            }
            Some(_) => self.state = EditLexerState::Address { level, escape: EscapeState::Begun },
        }
        Ok(end + 1)
    }

    /// Reads one byte of an escape. An address has only ASCII characters, escaped or not.
    fn escape(
        &mut self,
        level: EditLexerLevel,
        escape: EscapeState,
        byte: u8,
        sink: &mut impl EditLexerSink,
    ) -> Result<usize, Error> {
        let plain = match (escape, byte) {
            (EscapeState::Begun, b'u') => {
                self.state = EditLexerState::Address { level, escape: EscapeState::Hex { digits: 0, unit: 0 } };
                return Ok(1);
            }
            (EscapeState::Begun, b'"' | b'\\' | b'/') => byte,
            (EscapeState::Begun, b'n') => b'\n',
            (EscapeState::Begun, b'r') => b'\r',
            (EscapeState::Begun, b't') => b'\t',
            (EscapeState::Begun, b'b' | b'f') => 0,
            (EscapeState::Hex { digits, unit }, _) => {
                let digit =
                    char::from(byte).to_digit(16).ok_or_else(|| malformed("it has an invalid escape sequence"))?;
                let unit = unit << 4 | u16::try_from(digit).unwrap_or(0);
                if digits < 3 {
                    self.state =
                        EditLexerState::Address { level, escape: EscapeState::Hex { digits: digits + 1, unit } };
                    return Ok(1);
                }
                // An address has only ASCII characters.
                u8::try_from(unit).unwrap_or(u8::MAX)
            }
            _ => return Err(malformed("it has an invalid escape sequence")),
        };
        self.state = EditLexerState::Address { level, escape: EscapeState::None };
        sink.address_escaped(plain)?;
        Ok(1)
    }

    fn key(
        &mut self,
        byte: u8,
        level: EditLexerLevel,
        escaped: bool,
        sink: &mut impl EditLexerSink,
    ) -> Result<usize, Error> {
        if self.key.len() > KEY_MAX {
            return Err(malformed("a key is too long"));
        }
        self.keep_one()?;
        self.key.push(byte);
        self.state = match (escaped, byte) {
            (false, b'"') => {
                self.name = serde_json::from_slice(&self.key).map_err(|error| malformed(&error))?;
                match level {
                    EditLexerLevel::Top => sink.key(&self.name)?,
                    EditLexerLevel::Images | EditLexerLevel::Element | EditLexerLevel::Mask => {
                        sink.image_key(&self.name)?;
                    }
                }
                EditLexerState::Colon { level }
            }
            (false, b'\\') => EditLexerState::InKey { level, escaped: true },
            _ => EditLexerState::InKey { level, escaped: false },
        };
        Ok(1)
    }

    /// Reads one byte of a captured value; returns true if the byte was part of it.
    fn capture(
        &mut self,
        byte: u8,
        level: EditLexerLevel,
        kind: EditCaptureState,
        sink: &mut impl EditLexerSink,
    ) -> Result<bool, Error> {
        let next = match kind {
            EditCaptureState::Bare if is_bare(byte) => Some(EditCaptureState::Bare),
            EditCaptureState::Bare => {
                // This byte is not part of the value: it is read again as the byte after it.
                self.value(level, sink)?;
                return Ok(false);
            }
            EditCaptureState::Text { escaped: true } => Some(EditCaptureState::Text { escaped: false }),
            EditCaptureState::Text { .. } if byte == b'"' => None,
            EditCaptureState::Text { .. } => Some(EditCaptureState::Text { escaped: byte == b'\\' }),
            EditCaptureState::Nested { depth, in_text, escaped } => nested(byte, depth, in_text, escaped),
        };
        self.keep_one()?;
        self.captured.push(byte);
        match next {
            Some(kind) => self.state = EditLexerState::Capture { level, kind },
            None => self.value(level, sink)?,
        }
        Ok(true)
    }

    /// Reads white space, punctuation and the first byte of values.
    fn between(&mut self, byte: u8, sink: &mut impl EditLexerSink) -> Result<usize, Error> {
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            return Ok(1);
        }
        self.state = match (self.state, byte) {
            (EditLexerState::Start, b'{') => EditLexerState::Key { level: EditLexerLevel::Top, first: true },
            (EditLexerState::Start, _) => return Err(malformed("it is not an object")),
            (EditLexerState::Key { level, .. }, b'"') => {
                self.key.clear();
                self.key.push(b'"');
                EditLexerState::InKey { level, escaped: false }
            }
            (EditLexerState::Key { level, first: true } | EditLexerState::After { level }, b'}')
                if level != EditLexerLevel::Images =>
            {
                close(level, sink)?
            }
            (EditLexerState::Colon { level }, b':') => EditLexerState::Value { level },
            (EditLexerState::Value { level }, _) => self.open(level, byte, sink)?,
            (EditLexerState::Element { .. }, b'{') => open_image(EditLexerLevel::Element, sink)?,
            (
                EditLexerState::Element { first: true } | EditLexerState::After { level: EditLexerLevel::Images },
                b']',
            ) => EditLexerState::After { level: EditLexerLevel::Top },
            (EditLexerState::Element { .. }, _) if begins_value(byte) => {
                return Err(sink.misplaced(ImageMemberKind::Element, byte));
            }
            (EditLexerState::After { level: EditLexerLevel::Images }, b',') => EditLexerState::Element { first: false },
            (EditLexerState::After { level }, b',') => EditLexerState::Key { level, first: false },
            (EditLexerState::Done, _) => return Err(malformed("it has data after its end")),
            _ => return Err(malformed("it has an unexpected character")),
        };
        Ok(1)
    }

    /// Reads the first byte of a member's value: images are passed on, everything else is captured.
    fn open(
        &mut self,
        level: EditLexerLevel,
        byte: u8,
        sink: &mut impl EditLexerSink,
    ) -> Result<EditLexerState, Error> {
        let place = match (level, self.name.as_str()) {
            (EditLexerLevel::Top, "images") => ImageMemberKind::Images,
            (EditLexerLevel::Top, "mask") => ImageMemberKind::Mask,
            (EditLexerLevel::Element | EditLexerLevel::Mask, "image_url") => ImageMemberKind::Address,
            _ => return self.begin(level, byte),
        };
        match (place, byte) {
            (ImageMemberKind::Images, b'[') => Ok(EditLexerState::Element { first: true }),
            (ImageMemberKind::Mask, b'{') => open_image(EditLexerLevel::Mask, sink),
            (ImageMemberKind::Address, b'"') => {
                sink.address()?;
                Ok(EditLexerState::Address { level, escape: EscapeState::None })
            }
            // `null` means that the member is absent.
            (ImageMemberKind::Mask | ImageMemberKind::Address, b'n') => self.begin(level, byte),
            _ if begins_value(byte) => Err(sink.misplaced(place, byte)),
            _ => Err(malformed("it has an unexpected character")),
        }
    }

    /// Begins to capture a value.
    fn begin(&mut self, level: EditLexerLevel, byte: u8) -> Result<EditLexerState, Error> {
        let kind = match byte {
            b'"' => EditCaptureState::Text { escaped: false },
            b'{' | b'[' => EditCaptureState::Nested { depth: 1, in_text: false, escaped: false },
            _ if is_bare(byte) => EditCaptureState::Bare,
            _ => return Err(malformed("it has an unexpected character")),
        };
        self.captured.clear();
        self.captured.push(byte);
        Ok(EditLexerState::Capture { level, kind })
    }

    fn keep_one(&mut self) -> Result<(), Error> {
        self.kept += 1;
        if self.kept <= TEXT_MAX {
            return Ok(());
        }
        let message = format!("The request body has more than {TEXT_MAX} bytes besides its images.");
        Err(Error::TooLarge(Rejection { param: None, reason: None, message }))
    }

    /// Completes a captured value.
    fn value(&mut self, level: EditLexerLevel, sink: &mut impl EditLexerSink) -> Result<(), Error> {
        self.state = EditLexerState::After { level };
        let value = match self.captured.first() {
            // No field takes an object or array, so its content is not kept.
            Some(b'{') => self.parse::<IgnoredAny>().map(|_| Value::Object(serde_json::Map::new())),
            Some(b'[') => self.parse::<IgnoredAny>().map(|_| Value::Array(Vec::new())),
            _ => self.parse::<Value>(),
        }?;
        if level == EditLexerLevel::Top { sink.member(&self.name, value) } else { sink.image_member(&self.name, value) }
    }

    fn parse<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Error> {
        serde_json::from_slice(&self.captured).map_err(|error| malformed(&error))
    }
}

fn open_image(level: EditLexerLevel, sink: &mut impl EditLexerSink) -> Result<EditLexerState, Error> {
    sink.image(level == EditLexerLevel::Mask)?;
    Ok(EditLexerState::Key { level, first: true })
}

/// Handles the end of an object.
fn close(level: EditLexerLevel, sink: &mut impl EditLexerSink) -> Result<EditLexerState, Error> {
    match level {
        EditLexerLevel::Top => return Ok(EditLexerState::Done),
        EditLexerLevel::Element | EditLexerLevel::Mask => sink.image_end()?,
        EditLexerLevel::Images => {}
    }
    Ok(EditLexerState::After {
        level: if level == EditLexerLevel::Element { EditLexerLevel::Images } else { EditLexerLevel::Top },
    })
}

/// Follows the brackets of a captured object or array; `None` at its end.
fn nested(byte: u8, depth: u32, in_text: bool, escaped: bool) -> Option<EditCaptureState> {
    let next = |depth, in_text, escaped| Some(EditCaptureState::Nested { depth, in_text, escaped });
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
const fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

const fn begins_value(byte: u8) -> bool {
    is_bare(byte) || matches!(byte, b'"' | b'{' | b'[')
}

fn malformed(what: &(impl std::fmt::Display + ?Sized)) -> Error {
    Rejection::whole(RejectionReason::InvalidJson, format!("The request body is not valid JSON: {what}.")).into()
}
