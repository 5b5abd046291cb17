//! Finds the content of an upstream's answer: of one JSON object or of events, with images or with a response.
//!
//! The base64 of an image goes on as slices of the pieces that arrive; every other member is small and is parsed whole.
//! Between the first and the last piece of an image, one search through each piece proves that nothing in it ends the
//! image, its line or its event, and neither framer nor reader sees it.

use bytes::Bytes;
use memchr::memchr2;
use serde_json::Value;

use super::event::{AnswerForm, FrameContent, ImagePlace, MemberScope, RelayEvent, RelayEventSink};
use super::image_tool::ImageTool;
use super::relay_error::MalformedAnswer;
use crate::stream::json::{CaptureLimits, JsonPosition, JsonReader, JsonSyntaxError, JsonVisitor, ValueInterest};
use crate::stream::sse::{SseFramer, SseSpan};

/// The limits of the members other than the image. A member that is larger, alone or with those before it, is not held.
const IMAGE_LIMITS: CaptureLimits = CaptureLimits { value: 128 * 1024, total: 256 * 1024 };
/// The limits of the members of a response, whose sum is not limited.
const RESPONSE_LIMITS: CaptureLimits = CaptureLimits { value: 64 * 1024, total: u64::MAX };
/// The number of bytes of each image that are checked one by one.
const BASE64_BYTES_CHECKED: usize = 64;
/// The number of bytes that are searched at once for the end of an image.
const SEARCH_BLOCK: usize = 256;
/// The number of objects and arrays around an element of `data`.
const ELEMENT_DEPTH: usize = 2;

/// The decoder of one answer.
#[derive(Debug)]
pub(super) struct AnswerDecoder {
    schema: AnswerSchema,
    input: DecoderInput,
    text: ImageText,
    has_progressed: bool,
}

/// The API whose answer is read.
#[derive(Debug)]
pub(super) enum AnswerSchema {
    /// The image endpoints.
    Images,
    /// A response that was requested for one image.
    ImageTool(Box<ImageTool>),
    /// A response whose bytes are passed on.
    Response,
}

#[derive(Debug)]
enum DecoderInput {
    Unknown,
    Json(JsonReader),
    Events { framer: SseFramer, data: EventData },
}

/// The data of the current event.
#[derive(Debug, Default)]
enum EventData {
    /// Only white space has come.
    #[default]
    Blank,
    Object(JsonReader),
    /// Another value, such as the `[DONE]` at the end of other APIs' streams.
    Other,
}

/// The image that is being read.
#[derive(Debug, Default)]
struct ImageText {
    /// The number of its bytes so far.
    length: usize,
    /// Its place, if the last piece ended within its text and outside of an escape.
    open: Option<ImagePlace>,
}

/// Reads the JSON in one piece.
struct DecoderVisitor<'a> {
    schema: &'a mut AnswerSchema,
    text: &'a mut ImageText,
    /// The name of the event so far, if the JSON is that of an event.
    event_name: Option<&'a [u8]>,
    piece: &'a Bytes,
    sink: &'a mut dyn RelayEventSink,
}

// === impl AnswerDecoder ===

impl AnswerDecoder {
    pub(super) fn new(schema: AnswerSchema) -> Self {
        Self { schema, input: DecoderInput::Unknown, text: ImageText::default(), has_progressed: false }
    }

    pub(super) const fn form(&self) -> AnswerForm {
        match self.input {
            DecoderInput::Unknown => AnswerForm::Unknown,
            DecoderInput::Json(_) => AnswerForm::Json,
            DecoderInput::Events { .. } => AnswerForm::Events,
        }
    }

    /// The part that picks the image out of a response, if the answer is a response that was requested for one image.
    pub(super) fn image_tool(&self) -> Option<&ImageTool> {
        match &self.schema {
            AnswerSchema::ImageTool(tool) => Some(tool),
            AnswerSchema::Images | AnswerSchema::Response => None,
        }
    }

    /// Reads a first part of the piece, at least one byte, and returns its length.
    pub(super) fn read(&mut self, piece: &Bytes, sink: &mut dyn RelayEventSink) -> Result<usize, MalformedAnswer> {
        if let Some(place) = self.text.open.take() {
            let length = self.text.read_plain(piece);
            if length > 0 {
                self.text.open = (length == piece.len()).then_some(place);
                self.has_progressed = true;
                self.schema.push(RelayEvent::ImageBytes { place, base64: piece.slice(..length) }, sink);
                return Ok(length);
            }
        }
        if let DecoderInput::Unknown = self.input {
            let Some(first) = piece.iter().find(|byte| !byte.is_ascii_whitespace()) else {
                self.has_progressed |= matches!(self.schema, AnswerSchema::Images);
                return Ok(piece.len());
            };
            self.input = self.schema.begin_input(*first);
        }
        let limits = self.schema.limits();
        let Self { schema, input, text, has_progressed } = self;
        match input {
            DecoderInput::Unknown => Ok(piece.len()),
            DecoderInput::Json(reader) if reader.is_done() => {
                let is_blank = piece.iter().all(u8::is_ascii_whitespace);
                if is_blank { Ok(piece.len()) } else { Err(JsonSyntaxError::Surplus.into()) }
            }
            DecoderInput::Json(reader) => {
                *has_progressed = true;
                let length = reader.push(piece, &mut DecoderVisitor { schema, text, event_name: None, piece, sink })?;
                if reader.is_done() {
                    schema.push(RelayEvent::AnswerEnded, sink);
                }
                Ok(length)
            }
            DecoderInput::Events { framer, data } => {
                let (length, span) = framer.next(piece);
                if span == SseSpan::Data {
                    *has_progressed = true;
                    if let Some(reader) = data.begin_object(&piece[..length], limits) {
                        let event_name = Some(framer.event_name());
                        let mut visitor = DecoderVisitor { schema, text, event_name, piece, sink };
                        reader.push_last(&piece[..length], &mut visitor)?;
                    }
                }
                if matches!(span, SseSpan::EventEnd | SseSpan::CommentEnd) {
                    let is_object = std::mem::take(data).finish()?;
                    let content = match span {
                        SseSpan::EventEnd if is_object => FrameContent::Object,
                        SseSpan::EventEnd => FrameContent::Fields,
                        _ => FrameContent::Comments,
                    };
                    let name = to_text(framer.event_name());
                    schema.push(RelayEvent::FrameEnded { name, content }, sink);
                }
                Ok(length)
            }
        }
    }

    /// Checks that the body may end here, as far as its JSON is concerned.
    pub(super) fn finish(&self) -> Result<(), JsonSyntaxError> {
        match &self.input {
            DecoderInput::Unknown => Err(JsonSyntaxError::Truncated),
            DecoderInput::Json(reader) => reader.finish(),
            DecoderInput::Events { .. } => Ok(()),
        }
    }

    /// Pushes the rest of an image of a response that is complete, even if the rest of the response is missing.
    pub(super) fn finish_image(&mut self, sink: &mut dyn RelayEventSink) {
        if let AnswerSchema::ImageTool(tool) = &mut self.schema {
            tool.finish_image(sink);
        }
    }

    /// True if the object of an event has begun and is not complete.
    pub(super) const fn is_in_event(&self) -> bool {
        matches!(self.input, DecoderInput::Events { data: EventData::Object(_), .. })
    }

    /// True if data has come since the last call: a heartbeat is not progress.
    pub(super) const fn take_progress(&mut self) -> bool {
        std::mem::replace(&mut self.has_progressed, false)
    }

    /// Returns the text that completes the object of an event that ends within an image, except for its last brace.
    pub(super) fn closing_text(&self) -> Option<String> {
        match &self.input {
            DecoderInput::Events { data: EventData::Object(reader), .. } => reader.closing_text(),
            DecoderInput::Unknown | DecoderInput::Json(_) | DecoderInput::Events { .. } => None,
        }
    }
}

// === impl AnswerSchema ===

impl AnswerSchema {
    const fn limits(&self) -> CaptureLimits {
        match self {
            Self::Images => IMAGE_LIMITS,
            Self::ImageTool(_) | Self::Response => RESPONSE_LIMITS,
        }
    }

    fn begin_input(&self, first: u8) -> DecoderInput {
        let root = if let Self::Images = self { "" } else { "response" };
        match first {
            // The reader refuses a list (`[`) and HTML (`<`), which are not answers.
            b'{' | b'[' | b'<' => DecoderInput::Json(JsonReader::new(root, self.limits())),
            _ => DecoderInput::Events { framer: SseFramer::default(), data: EventData::Blank },
        }
    }

    fn push(&mut self, event: RelayEvent<'_>, sink: &mut dyn RelayEventSink) {
        match self {
            Self::ImageTool(tool) => tool.push(event, sink),
            Self::Images | Self::Response => sink.push(event),
        }
    }
}

// === impl EventData ===

impl EventData {
    /// Returns the reader of the object, which begins with this part if no other value has begun.
    fn begin_object(&mut self, part: &[u8], limits: CaptureLimits) -> Option<&mut JsonReader> {
        if let (Self::Blank, Some(first)) = (&self, part.iter().find(|byte| !byte.is_ascii_whitespace())) {
            *self = if *first == b'{' { Self::Object(JsonReader::new("", limits)) } else { Self::Other };
        }
        if let Self::Object(reader) = self { Some(reader) } else { None }
    }

    /// Ends the event. Returns true if it held an object, which must be complete.
    fn finish(self) -> Result<bool, JsonSyntaxError> {
        if let Self::Object(reader) = self { reader.finish().map(|()| true) } else { Ok(false) }
    }
}

// === impl ImageText ===

impl ImageText {
    /// Returns the number of bytes that only continue the text. It is 0 if they have to be checked one by one.
    fn read_plain(&mut self, piece: &[u8]) -> usize {
        let length = if self.length < BASE64_BYTES_CHECKED { 0 } else { plain_length(piece) };
        self.length = self.length.saturating_add(length);
        length
    }

    /// Checks the next bytes. Neither the whole alphabet nor the padding is checked: the caller decodes it.
    fn check(&mut self, base64: &[u8]) -> Result<(), MalformedAnswer> {
        let beginning = &base64[..base64.len().min(BASE64_BYTES_CHECKED.saturating_sub(self.length))];
        self.length = self.length.saturating_add(base64.len());
        let is_safe = beginning.iter().all(|byte| is_base64(*byte))
            && base64.is_ascii()
            && memchr2(b'\r', b'\n', base64).is_none();
        if is_safe { Ok(()) } else { Err(MalformedAnswer::Base64) }
    }
}

/// Returns the number of bytes before the first one that can end the text or its line, or that is not ASCII.
fn plain_length(bytes: &[u8]) -> usize {
    let mut plain = 0;
    for block in bytes.as_chunks::<SEARCH_BLOCK>().0 {
        // Without a branch for each byte, the compiler checks the block with vector instructions.
        let mut found = 0;
        for byte in block {
            found |= u8::from(is_special(*byte));
        }
        if found != 0 {
            break;
        }
        plain += SEARCH_BLOCK;
    }
    let rest = &bytes[plain..];
    plain + rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len())
}

/// True for control characters, bytes outside of ASCII, and the two characters with a meaning in a text of JSON.
const fn is_special(byte: u8) -> bool {
    // As a signed number, a byte outside of ASCII is negative.
    (byte.cast_signed() < 0x20) | (byte == b'"') | (byte == b'\\')
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Returns a base64 character that was written as an escape, such as `\/`.
fn unescaped_base64(unit: u16) -> Result<Bytes, MalformedAnswer> {
    let byte = u8::try_from(unit).ok().filter(|byte| is_base64(*byte)).ok_or(MalformedAnswer::Base64)?;
    Ok(if byte == b'/' { Bytes::from_static(b"/") } else { Bytes::copy_from_slice(&[byte]) })
}

/// Returns the name of an event; an unreadable name counts as none.
fn to_text(name: &[u8]) -> String {
    str::from_utf8(name).unwrap_or_default().to_owned()
}

// === impl DecoderVisitor ===

impl DecoderVisitor<'_> {
    fn push(&mut self, event: RelayEvent<'_>) {
        self.schema.push(event, self.sink);
    }

    /// True for a JSON answer of the image endpoints, whose items are the elements of `data`.
    const fn has_elements(&self) -> bool {
        matches!(self.schema, AnswerSchema::Images) && self.event_name.is_none()
    }

    /// Returns the place of the image, if the value at this position is one.
    fn image_place(&self, at: JsonPosition<'_>) -> Option<ImagePlace> {
        if let AnswerSchema::Images = self.schema {
            return (at.key == "b64_json" && self.scope(at).0 == MemberScope::Item).then_some(ImagePlace::Item);
        }
        match at.path {
            "partial_image_b64" => Some(ImagePlace::Partial),
            "response.output[].result" if self.event_name.is_some() => Some(ImagePlace::Repeated),
            "item.result" | "response.output[].result" => Some(ImagePlace::Item),
            _ => None,
        }
    }

    /// Returns the object to which the value at this position belongs, and the name of the value in it.
    fn scope<'k>(&self, at: JsonPosition<'k>) -> (MemberScope, &'k str) {
        if let AnswerSchema::Images = self.schema {
            let is_in_answer = self.has_elements() && at.depth <= ELEMENT_DEPTH;
            return (if is_in_answer { MemberScope::Answer } else { MemberScope::Item }, at.key);
        }
        [
            ("item.", MemberScope::Item),
            ("response.output[].", MemberScope::Item),
            ("response.tools[].", MemberScope::Tool),
            ("response.", MemberScope::Answer),
        ]
        .into_iter()
        .find_map(|(prefix, scope)| at.path.strip_prefix(prefix).map(|name| (scope, name)))
        .unwrap_or((MemberScope::Event, at.path))
    }
}

impl JsonVisitor for DecoderVisitor<'_> {
    type Error = MalformedAnswer;

    fn begin(&mut self) -> Result<(), MalformedAnswer> {
        if let (AnswerSchema::Images, Some(name)) = (&self.schema, self.event_name) {
            self.push(RelayEvent::ItemBegun { event: Some(to_text(name)) });
        }
        Ok(())
    }

    fn start(&mut self, at: JsonPosition<'_>, first: u8) -> Result<ValueInterest, MalformedAnswer> {
        if let (Some(place), b'"') = (self.image_place(at), first) {
            let is_wanted =
                if let AnswerSchema::ImageTool(tool) = &self.schema { tool.wants_image(place) } else { true };
            if is_wanted {
                self.text.length = 0;
                return Ok(ValueInterest::Text);
            }
        }
        if self.has_elements() {
            match (at.depth, at.key, first) {
                (1, "data", b'[') => return Ok(ValueInterest::Skip),
                (ELEMENT_DEPTH, _, b'{') => {
                    self.push(RelayEvent::ItemBegun { event: None });
                    return Ok(ValueInterest::Skip);
                }
                // An element that is not an object has no image: there is nothing to pass on.
                (ELEMENT_DEPTH, ..) => return Ok(ValueInterest::Value),
                _ => {}
            }
        }
        let (scope, name) = self.scope(at);
        Ok(match &self.schema {
            AnswerSchema::ImageTool(tool) => tool.interest(scope, name),
            AnswerSchema::Images | AnswerSchema::Response => self.sink.interest(scope, name),
        })
    }

    fn value(&mut self, at: JsonPosition<'_>, value: Option<Value>) -> Result<(), MalformedAnswer> {
        let (scope, name) = self.scope(at);
        if !(self.has_elements() && at.depth == ELEMENT_DEPTH) {
            self.push(match value {
                Some(value) => RelayEvent::Member { scope, name, value },
                None => RelayEvent::MemberDropped { scope, name },
            });
        }
        Ok(())
    }

    fn text(&mut self, at: JsonPosition<'_>, base64: &[u8]) -> Result<(), MalformedAnswer> {
        if !matches!(self.schema, AnswerSchema::Response) {
            self.text.check(base64)?;
        }
        let Some(place) = self.image_place(at) else { return Ok(()) };
        if base64.as_ptr_range().end == self.piece.as_ptr_range().end {
            self.text.open = Some(place);
        }
        self.push(RelayEvent::ImageBytes { place, base64: self.piece.slice_ref(base64) });
        Ok(())
    }

    fn escaped(&mut self, at: JsonPosition<'_>, unit: u16) -> Result<(), MalformedAnswer> {
        let base64 = unescaped_base64(unit);
        let Some(place) = self.image_place(at) else { return Ok(()) };
        match (base64, &self.schema) {
            (Ok(base64), _) => self.push(RelayEvent::ImageBytes { place, base64 }),
            (Err(_), AnswerSchema::Response) => {}
            (Err(error), _) => return Err(error),
        }
        Ok(())
    }

    fn text_end(&mut self, at: JsonPosition<'_>) -> Result<(), MalformedAnswer> {
        if let Some(place) = self.image_place(at) {
            self.push(RelayEvent::ImageEnded { place });
        }
        Ok(())
    }

    fn end(&mut self, at: JsonPosition<'_>) -> Result<(), MalformedAnswer> {
        let scope = match (&self.schema, at.path) {
            (AnswerSchema::Images, _) if at.depth == if self.has_elements() { ELEMENT_DEPTH } else { 0 } => {
                MemberScope::Item
            }
            (AnswerSchema::ImageTool(_) | AnswerSchema::Response, "response.output[]") => MemberScope::Item,
            (AnswerSchema::ImageTool(_) | AnswerSchema::Response, "response.tools[]") => MemberScope::Tool,
            _ => return Ok(()),
        };
        self.push(RelayEvent::Ended { scope });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
