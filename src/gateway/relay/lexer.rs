//! Reads the two JSON shapes that hold images: an answer, which is an object with an array `data` of objects with
//! `b64_json`, and an event, which is an object with `b64_json` itself.
//!
//! The base64 goes to an [`AnswerSink`] as slices of the pieces that arrive; every other member is small and is parsed
//! whole. The beginning of the base64 is checked byte by byte, the rest only for ASCII without line ends: nothing in it
//! can end a string, a line or an event.

use bytes::Bytes;
use memchr::memchr2;
use serde_json::Value;

use crate::stream::json::{CaptureLimits, JsonPosition, JsonReader, JsonSyntaxError, JsonVisitor, ValueInterest};

/// The limits of the members other than the image. A member that is larger, alone or with those before it, is not held.
pub(super) const CAPTURE_LIMITS: CaptureLimits = CaptureLimits { value: 128 * 1024, total: 256 * 1024 };
/// The limits of the members of a response, whose sum is not limited.
pub(super) const RESPONSE_CAPTURE_LIMITS: CaptureLimits = CaptureLimits { value: 64 * 1024, total: u64::MAX };
/// The number of bytes of each image that are checked one by one.
const BASE64_BYTES_CHECKED: usize = 64;
/// Members that state whether there is an image, of which kind it is, or what it costs. An answer is refused if one of
/// their values cannot be parsed.
const MUST_PARSE_KEYS: [&str; 4] = ["data", "error", "type", "usage"];
/// The member with the image.
const IMAGE_KEY: &str = "b64_json";
/// The number of objects and arrays around an element of `data`.
const ELEMENT_DEPTH: usize = 2;

/// Receives the content that the lexer finds, in the order of the body. An item is an element of `data`, or an event.
pub(super) trait AnswerSink {
    /// Receives a member of the answer itself, other than the images.
    fn member(&mut self, key: String, value: Value);
    /// Announces an event as the next item, with the name in its `event` line if that line came before the data.
    fn announce_event(&mut self, name: Option<String>);
    /// Begins an item.
    fn item_start(&mut self);
    /// Receives a member of the current item, other than the image.
    fn item_member(&mut self, key: String, value: Value);
    /// Notes a member of the current item that is too large to hold, or whose value cannot be parsed.
    fn item_member_dropped(&mut self, key: &str) {
        let _ = key;
    }
    /// Receives some bytes of the current item's base64, at least one.
    fn image(&mut self, base64: Bytes);
    /// Ends the base64 of the current item.
    fn image_end(&mut self);
    /// Ends the current item.
    fn item_end(&mut self);
    /// Ends the event of the current item. Only now is the name in its `event` line final, because that line may follow
    /// the data.
    fn event_end(&mut self, name: Option<String>) {
        let _ = name;
    }
}

/// The body is not the promised JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerSyntaxError {
    #[error(transparent)]
    Json(#[from] JsonSyntaxError),
    #[error("the data of an image is not base64")]
    Base64,
}

/// The lexer of an answer. Each body needs its own.
#[derive(Debug)]
pub(super) struct AnswerLexer {
    reader: JsonReader,
    /// The base64 bytes seen so far, of the current image.
    base64_seen: usize,
}

/// Reads one piece.
pub(super) struct AnswerVisitor<'a, S> {
    /// The base64 bytes seen so far, of the current image.
    pub(super) base64_seen: &'a mut usize,
    /// True if the outermost object is an item itself.
    pub(super) is_event: bool,
    pub(super) piece: &'a Bytes,
    pub(super) sink: &'a mut S,
}

// === impl AnswerLexer ===

impl AnswerLexer {
    pub(super) fn new() -> Self {
        Self { reader: JsonReader::new("", CAPTURE_LIMITS), base64_seen: 0 }
    }

    /// Reads the next piece of the body.
    pub(super) fn push(&mut self, piece: &Bytes, sink: &mut impl AnswerSink) -> Result<(), AnswerSyntaxError> {
        let base64_seen = &mut self.base64_seen;
        self.reader.push_last(piece, &mut AnswerVisitor { base64_seen, is_event: false, piece, sink })
    }

    /// Checks that the body may end here.
    pub(super) fn finish(&self) -> Result<(), AnswerSyntaxError> {
        Ok(self.reader.finish()?)
    }
}

// === impl AnswerVisitor ===

impl<S: AnswerSink> JsonVisitor for AnswerVisitor<'_, S> {
    type Error = AnswerSyntaxError;

    fn begin(&mut self) -> Result<(), AnswerSyntaxError> {
        if self.is_event {
            self.sink.item_start();
        }
        Ok(())
    }

    fn start(&mut self, at: JsonPosition<'_>, first: u8) -> Result<ValueInterest, AnswerSyntaxError> {
        Ok(match (at.depth, at.key, first) {
            (1, "data", b'[') if !self.is_event => ValueInterest::Skip,
            (ELEMENT_DEPTH, _, b'{') if !self.is_event => {
                self.sink.item_start();
                ValueInterest::Skip
            }
            // An element that is not an object has no image: there is nothing to pass on.
            (ELEMENT_DEPTH, ..) if !self.is_event => ValueInterest::Value,
            (_, IMAGE_KEY, b'"') if self.is_in_item(at) => {
                *self.base64_seen = 0;
                ValueInterest::Text
            }
            // An unreadable value must not discard an image that is paid for, unless the value states whether there is
            // an image or what it costs.
            (_, key, _) if MUST_PARSE_KEYS.contains(&key) => ValueInterest::Value,
            _ => ValueInterest::Optional,
        })
    }

    fn value(&mut self, at: JsonPosition<'_>, value: Option<Value>) -> Result<(), AnswerSyntaxError> {
        match value {
            _ if at.depth == ELEMENT_DEPTH => {}
            Some(value) if self.is_in_item(at) => self.sink.item_member(at.key.to_owned(), value),
            Some(value) => self.sink.member(at.key.to_owned(), value),
            None if self.is_in_item(at) => self.sink.item_member_dropped(at.key),
            None => {}
        }
        Ok(())
    }

    fn text(&mut self, _: JsonPosition<'_>, base64: &[u8]) -> Result<(), AnswerSyntaxError> {
        check_base64(self.base64_seen, base64)?;
        self.sink.image(self.piece.slice_ref(base64));
        Ok(())
    }

    fn escaped(&mut self, _: JsonPosition<'_>, unit: u16) -> Result<(), AnswerSyntaxError> {
        self.sink.image(unescaped_base64(unit)?);
        Ok(())
    }

    fn text_end(&mut self, _: JsonPosition<'_>) -> Result<(), AnswerSyntaxError> {
        self.sink.image_end();
        Ok(())
    }

    fn end(&mut self, at: JsonPosition<'_>) -> Result<(), AnswerSyntaxError> {
        if at.depth == if self.is_event { 0 } else { ELEMENT_DEPTH } {
            self.sink.item_end();
        }
        Ok(())
    }
}

impl<S> AnswerVisitor<'_, S> {
    /// True for the members of an item; the others are those of the answer.
    const fn is_in_item(&self, at: JsonPosition<'_>) -> bool {
        self.is_event || at.depth > ELEMENT_DEPTH
    }
}

/// Checks the next piece of an image, of which `seen` bytes came before. Neither the whole alphabet nor the padding is
/// checked: the caller decodes it.
pub(super) fn check_base64(seen: &mut usize, base64: &[u8]) -> Result<(), AnswerSyntaxError> {
    let beginning = &base64[..base64.len().min(BASE64_BYTES_CHECKED.saturating_sub(*seen))];
    *seen = seen.saturating_add(base64.len());
    let fine =
        beginning.iter().all(|byte| is_base64(*byte)) && base64.is_ascii() && memchr2(b'\r', b'\n', base64).is_none();
    if fine { Ok(()) } else { Err(AnswerSyntaxError::Base64) }
}

/// Returns a base64 character that was written as an escape, such as `\/`.
pub(super) fn unescaped_base64(unit: u16) -> Result<Bytes, AnswerSyntaxError> {
    let byte = u8::try_from(unit).ok().filter(|byte| is_base64(*byte)).ok_or(AnswerSyntaxError::Base64)?;
    Ok(if byte == b'/' { Bytes::from_static(b"/") } else { Bytes::copy_from_slice(&[byte]) })
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

#[cfg(test)]
mod tests;
