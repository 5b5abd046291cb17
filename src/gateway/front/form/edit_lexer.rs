//! A push lexer for the JSON body of an image edit: an object with an array `images` and an object `mask`.
//!
//! It gets the body in chunks of any size and stores little: the text of an `image_url` goes to the [`EditLexerSink`]
//! as slices of the chunks; every other value is small, and is captured in a buffer. `serde_json` parses the captured
//! values, so the lexer accepts only valid JSON.

use memchr::memchr2;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::NON_IMAGE_MAX_BYTES;
use crate::error::{Error, Rejection, RejectionReason};

/// The maximum length of a key in bytes (our choice): all known keys are much shorter.
const KEY_MAX: usize = 256;

/// The receiver of the lexer's events, in the order of the body. The lexer stops at the first error of the sink.
pub(super) trait EditLexerSink {
    /// Receives a key of the top-level object.
    fn key(&mut self, key: &str) -> Result<(), Error>;
    /// Receives the value of that key, if it is not an image.
    fn member(&mut self, key: &str, value: Value) -> Result<(), Error>;
    /// Called at the start of an image: an element of `images`, or the mask.
    fn image_start(&mut self, mask: bool) -> Result<(), Error>;
    /// Receives a key of the current image.
    fn image_key(&mut self, key: &str) -> Result<(), Error>;
    /// Receives the value of that key, if it is not the string of an `image_url`.
    fn image_member(&mut self, key: &str, value: Value) -> Result<(), Error>;
    /// Called at the start of the string `image_url` of the current image.
    fn url_start(&mut self) -> Result<(), Error>;
    /// Receives a part of that string without escapes; never empty.
    fn url_text(&mut self, text: &[u8]) -> Result<(), Error>;
    /// Receives one character of that string that was written as an escape, decoded.
    fn url_escaped(&mut self, byte: u8) -> Result<(), Error>;
    /// Called at the end of that string.
    fn url_end(&mut self) -> Result<(), Error>;
    /// Called at the end of the current image.
    fn image_end(&mut self) -> Result<(), Error>;
    /// Returns the error for a value of the wrong type; `first` is the first byte of the value.
    fn type_error(&self, member: ImageMemberKind, first: u8) -> Error;
}

/// A value that must have one JSON type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageMemberKind {
    /// The member `images`.
    Images,
    /// An element of `images`.
    Element,
    /// The member `mask`.
    Mask,
    /// The member `image_url` of an element or of the mask.
    ImageUrl,
}

/// The state of the lexer: the position of the next byte in the grammar.
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
    /// Inside a captured value.
    Capture { level: EditLexerLevel, kind: EditCaptureState },
    /// After a value: a comma or the end of the level.
    AfterValue { level: EditLexerLevel },
    /// Inside `images`: an element, or (after `[` only) the end.
    Element { first: bool },
    /// Inside the string of an `image_url`.
    ImageUrl { level: EditLexerLevel, escape: EscapeState },
    /// After the closing brace.
    Done,
}

/// The object whose members are being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditLexerLevel {
    /// The top-level object.
    Top,
    /// The array `images`, whose elements have no keys.
    Images,
    /// An element of `images`.
    Element,
    /// The mask.
    Mask,
}

/// The kind of a captured value, which decides where the value ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditCaptureState {
    /// A string: ends at an unescaped quote.
    Text { escaped: bool },
    /// An object or array: ends at its own closing bracket.
    Nested { depth: u32, in_text: bool, escaped: bool },
    /// A number, `true`, `false` or `null`: ends before the first byte that cannot be part of it.
    Literal,
}

/// The part of an escape sequence that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EscapeState {
    None,
    Begun,
    /// The hexadecimal digits of a sequence such as `\u0041`; `unit` is the value of the digits so far.
    Hex {
        digits: u8,
        unit: u16,
    },
}

/// The lexer of one body.
#[derive(Debug)]
pub(super) struct EditLexer {
    state: EditLexerState,
    key: Vec<u8>,
    member_name: String,
    captured: Vec<u8>,
    /// The number of bytes captured so far, including keys.
    captured_total: u64,
}

// === impl EditLexer ===

impl EditLexer {
    pub(super) const fn new() -> Self {
        Self {
            state: EditLexerState::Start,
            key: Vec::new(),
            member_name: String::new(),
            captured: Vec::new(),
            captured_total: 0,
        }
    }

    /// The number of bytes captured so far: an upper bound on the memory of the lexer.
    pub(super) const fn captured_total(&self) -> u64 {
        self.captured_total
    }

    /// Reads the next chunk of the body.
    pub(super) fn push(&mut self, chunk: &[u8], sink: &mut impl EditLexerSink) -> Result<(), Error> {
        let mut offset = 0;
        while offset < chunk.len() {
            offset += match self.state {
                EditLexerState::ImageUrl { level, escape: EscapeState::None } => {
                    self.read_url(level, &chunk[offset..], sink)?
                }
                EditLexerState::ImageUrl { level, escape } => self.read_escape(level, escape, chunk[offset], sink)?,
                EditLexerState::Capture { level, kind } => {
                    usize::from(self.capture_byte(chunk[offset], level, kind, sink)?)
                }
                EditLexerState::InKey { level, escaped } => self.read_key(chunk[offset], level, escaped, sink)?,
                _ => self.read_structure(chunk[offset], sink)?,
            };
        }
        Ok(())
    }

    /// Checks at the end of the body that the JSON value is complete.
    pub(super) fn finish(&self) -> Result<(), Error> {
        if self.state == EditLexerState::Done { Ok(()) } else { Err(malformed("it ends too early")) }
    }

    /// Reads a part of an `image_url` string, up to a quote or backslash, and returns the number of bytes read. A
    /// search for these two bytes is fast even over megabytes.
    fn read_url(&mut self, level: EditLexerLevel, text: &[u8], sink: &mut impl EditLexerSink) -> Result<usize, Error> {
        let end = memchr2(b'"', b'\\', text).unwrap_or(text.len());
        if end > 0 {
            sink.url_text(&text[..end])?;
        }
        match text.get(end) {
            None => return Ok(end),
            Some(b'"') => {
                sink.url_end()?;
                self.state = EditLexerState::AfterValue { level };
            }
            Some(_) => self.state = EditLexerState::ImageUrl { level, escape: EscapeState::Begun },
        }
        Ok(end + 1)
    }

    /// Reads one byte of an escape sequence in an `image_url`, and returns the number of bytes read: 1.
    fn read_escape(
        &mut self,
        level: EditLexerLevel,
        escape: EscapeState,
        byte: u8,
        sink: &mut impl EditLexerSink,
    ) -> Result<usize, Error> {
        let decoded = match (escape, byte) {
            (EscapeState::Begun, b'u') => {
                self.state = EditLexerState::ImageUrl { level, escape: EscapeState::Hex { digits: 0, unit: 0 } };
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
                        EditLexerState::ImageUrl { level, escape: EscapeState::Hex { digits: digits + 1, unit } };
                    return Ok(1);
                }
                // A data URL has only ASCII characters; any other is passed on as an invalid byte.
                u8::try_from(unit).unwrap_or(u8::MAX)
            }
            _ => return Err(malformed("it has an invalid escape sequence")),
        };
        self.state = EditLexerState::ImageUrl { level, escape: EscapeState::None };
        sink.url_escaped(decoded)?;
        Ok(1)
    }

    fn read_key(
        &mut self,
        byte: u8,
        level: EditLexerLevel,
        escaped: bool,
        sink: &mut impl EditLexerSink,
    ) -> Result<usize, Error> {
        if self.key.len() > KEY_MAX {
            return Err(malformed("a key is too long"));
        }
        self.count_captured_byte()?;
        self.key.push(byte);
        self.state = match (escaped, byte) {
            (false, b'"') => {
                self.member_name = serde_json::from_slice(&self.key).map_err(|error| malformed(&error))?;
                match level {
                    EditLexerLevel::Top => sink.key(&self.member_name)?,
                    EditLexerLevel::Images | EditLexerLevel::Element | EditLexerLevel::Mask => {
                        sink.image_key(&self.member_name)?;
                    }
                }
                EditLexerState::Colon { level }
            }
            (false, b'\\') => EditLexerState::InKey { level, escaped: true },
            _ => EditLexerState::InKey { level, escaped: false },
        };
        Ok(1)
    }

    /// Reads one byte of a captured value; returns false if the byte is not part of the value and must be read again.
    fn capture_byte(
        &mut self,
        byte: u8,
        level: EditLexerLevel,
        kind: EditCaptureState,
        sink: &mut impl EditLexerSink,
    ) -> Result<bool, Error> {
        let next = match kind {
            EditCaptureState::Literal if is_literal_byte(byte) => Some(EditCaptureState::Literal),
            EditCaptureState::Literal => {
                // This byte ends the value but is not part of it, so it is read again in the next state.
                self.finish_value(level, sink)?;
                return Ok(false);
            }
            EditCaptureState::Text { escaped: true } => Some(EditCaptureState::Text { escaped: false }),
            EditCaptureState::Text { .. } if byte == b'"' => None,
            EditCaptureState::Text { .. } => Some(EditCaptureState::Text { escaped: byte == b'\\' }),
            EditCaptureState::Nested { depth, in_text, escaped } => advance_nesting(byte, depth, in_text, escaped),
        };
        self.count_captured_byte()?;
        self.captured.push(byte);
        match next {
            Some(kind) => self.state = EditLexerState::Capture { level, kind },
            None => self.finish_value(level, sink)?,
        }
        Ok(true)
    }

    /// Reads one byte outside of keys and values: white space, punctuation, or the first byte of a value.
    fn read_structure(&mut self, byte: u8, sink: &mut impl EditLexerSink) -> Result<usize, Error> {
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
            (EditLexerState::Key { level, first: true } | EditLexerState::AfterValue { level }, b'}')
                if level != EditLexerLevel::Images =>
            {
                close_object(level, sink)?
            }
            (EditLexerState::Colon { level }, b':') => EditLexerState::Value { level },
            (EditLexerState::Value { level }, _) => self.start_value(level, byte, sink)?,
            (EditLexerState::Element { .. }, b'{') => open_image(EditLexerLevel::Element, sink)?,
            (
                EditLexerState::Element { first: true } | EditLexerState::AfterValue { level: EditLexerLevel::Images },
                b']',
            ) => EditLexerState::AfterValue { level: EditLexerLevel::Top },
            (EditLexerState::Element { .. }, _) if begins_value(byte) => {
                return Err(sink.type_error(ImageMemberKind::Element, byte));
            }
            (EditLexerState::AfterValue { level: EditLexerLevel::Images }, b',') => {
                EditLexerState::Element { first: false }
            }
            (EditLexerState::AfterValue { level }, b',') => EditLexerState::Key { level, first: false },
            (EditLexerState::Done, _) => return Err(malformed("it has data after its end")),
            _ => return Err(malformed("it has an unexpected character")),
        };
        Ok(1)
    }

    /// Reads the first byte of a member's value. Images go to the sink; every other value is captured.
    fn start_value(
        &mut self,
        level: EditLexerLevel,
        byte: u8,
        sink: &mut impl EditLexerSink,
    ) -> Result<EditLexerState, Error> {
        let member = match (level, self.member_name.as_str()) {
            (EditLexerLevel::Top, "images") => ImageMemberKind::Images,
            (EditLexerLevel::Top, "mask") => ImageMemberKind::Mask,
            (EditLexerLevel::Element | EditLexerLevel::Mask, "image_url") => ImageMemberKind::ImageUrl,
            _ => return self.start_capture(level, byte),
        };
        match (member, byte) {
            (ImageMemberKind::Images, b'[') => Ok(EditLexerState::Element { first: true }),
            (ImageMemberKind::Mask, b'{') => open_image(EditLexerLevel::Mask, sink),
            (ImageMemberKind::ImageUrl, b'"') => {
                sink.url_start()?;
                Ok(EditLexerState::ImageUrl { level, escape: EscapeState::None })
            }
            // `null` means that the member is absent.
            (ImageMemberKind::Mask | ImageMemberKind::ImageUrl, b'n') => self.start_capture(level, byte),
            _ if begins_value(byte) => Err(sink.type_error(member, byte)),
            _ => Err(malformed("it has an unexpected character")),
        }
    }

    /// Begins to capture a value.
    fn start_capture(&mut self, level: EditLexerLevel, byte: u8) -> Result<EditLexerState, Error> {
        let kind = match byte {
            b'"' => EditCaptureState::Text { escaped: false },
            b'{' | b'[' => EditCaptureState::Nested { depth: 1, in_text: false, escaped: false },
            _ if is_literal_byte(byte) => EditCaptureState::Literal,
            _ => return Err(malformed("it has an unexpected character")),
        };
        self.captured.clear();
        self.captured.push(byte);
        Ok(EditLexerState::Capture { level, kind })
    }

    fn count_captured_byte(&mut self) -> Result<(), Error> {
        self.captured_total += 1;
        if self.captured_total <= NON_IMAGE_MAX_BYTES {
            return Ok(());
        }
        let message = format!("The request body has more than {NON_IMAGE_MAX_BYTES} bytes besides its images.");
        Err(Error::TooLarge(Rejection { param: None, reason: None, message }))
    }

    /// Completes a captured value.
    fn finish_value(&mut self, level: EditLexerLevel, sink: &mut impl EditLexerSink) -> Result<(), Error> {
        self.state = EditLexerState::AfterValue { level };
        let value = match self.captured.first() {
            // No field takes an object or array, so its content is not stored.
            Some(b'{') => self.parse::<IgnoredAny>().map(|_| Value::Object(serde_json::Map::new())),
            Some(b'[') => self.parse::<IgnoredAny>().map(|_| Value::Array(Vec::new())),
            _ => self.parse::<Value>(),
        }?;
        if level == EditLexerLevel::Top {
            sink.member(&self.member_name, value)
        } else {
            sink.image_member(&self.member_name, value)
        }
    }

    fn parse<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Error> {
        serde_json::from_slice(&self.captured).map_err(|error| malformed(&error))
    }
}

/// Handles the start of an image object.
fn open_image(level: EditLexerLevel, sink: &mut impl EditLexerSink) -> Result<EditLexerState, Error> {
    sink.image_start(level == EditLexerLevel::Mask)?;
    Ok(EditLexerState::Key { level, first: true })
}

/// Handles the end of an object.
fn close_object(level: EditLexerLevel, sink: &mut impl EditLexerSink) -> Result<EditLexerState, Error> {
    match level {
        EditLexerLevel::Top => return Ok(EditLexerState::Done),
        EditLexerLevel::Element | EditLexerLevel::Mask => sink.image_end()?,
        EditLexerLevel::Images => {}
    }
    Ok(EditLexerState::AfterValue {
        level: if level == EditLexerLevel::Element { EditLexerLevel::Images } else { EditLexerLevel::Top },
    })
}

/// Tracks the brackets of a captured object or array; `None` at its end.
fn advance_nesting(byte: u8, depth: u32, in_text: bool, escaped: bool) -> Option<EditCaptureState> {
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
const fn is_literal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

/// True for the first byte of a JSON value.
const fn begins_value(byte: u8) -> bool {
    is_literal_byte(byte) || matches!(byte, b'"' | b'{' | b'[')
}

fn malformed(detail: &(impl std::fmt::Display + ?Sized)) -> Error {
    Rejection::for_body(RejectionReason::InvalidJson, format!("The request body is not valid JSON: {detail}.")).into()
}
