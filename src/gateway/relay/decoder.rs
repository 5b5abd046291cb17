//! Finds the content of an upstream's answer: of one JSON object or of events, with images or with a response.
//!
//! The base64 of an image goes on as slices of the pieces that arrive; every other member is small and is parsed whole.
//! Between the first and the last piece of an image, one search through each piece proves that nothing in it ends the
//! image, its line or its event, and neither framer nor reader sees it.

mod ciphertext;
mod image_text;
mod json_visitor;
mod picture_places;
mod picture_search;
mod picture_text;

use bytes::{Buf as _, Bytes, BytesMut};

pub(super) use self::ciphertext::CIPHERTEXT;
use self::ciphertext::CiphertextHash;
use self::image_text::ImageText;
use self::json_visitor::{DecoderVisitor, event_name};
use self::picture_search::PictureSearch;
use super::event::{AnswerForm, FrameContent, ImagePlace, MemberScope, RelayEvent, RelayEventSink};
use super::image_tool::ImageToolContent;
use super::relay_error::MalformedAnswer;
use crate::image::{Base64Encoder, FORMAT_BYTES, has_known_format};
use crate::stream::json::{CaptureLimits, JsonReader, JsonSyntaxError};
use crate::stream::sse::{SseFramer, SseSpan};

/// The limits of the members other than the image. A member that is larger, alone or with those before it, is not held.
const IMAGE_LIMITS: CaptureLimits = CaptureLimits { value: 128 * 1024, total: 256 * 1024 };
/// The limits of the members of a response, whose sum is not limited.
const RESPONSE_LIMITS: CaptureLimits = CaptureLimits { value: 64 * 1024, total: u64::MAX };
/// The byte order mark of UTF-8, with which some upstreams begin their answer.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The decoder of one answer.
#[derive(Debug)]
pub(super) struct AnswerDecoder {
    schema: AnswerSchema,
    input: DecoderInput,
    text: ImageText,
    ciphertext: CiphertextHash,
    pictures: PictureSearch,
    /// The first bytes of an answer that may be an image.
    head: BytesMut,
    has_progressed: bool,
}

/// The API whose answer is read.
#[derive(Debug)]
pub(super) enum AnswerSchema {
    /// The image endpoints.
    Images,
    /// A response that was requested for one image.
    ImageTool(Box<ImageToolContent>),
    /// A response whose bytes are passed on.
    Response,
}

#[derive(Debug)]
enum DecoderInput {
    Unknown,
    Json(JsonReader),
    /// The answer is an image.
    Raw(Base64Encoder),
    Events {
        framer: SseFramer,
        data: EventData,
    },
}

/// The data of the current event.
#[derive(Debug, Default)]
enum EventData {
    /// Only white space has come.
    #[default]
    Blank,
    Object(Box<JsonReader>),
    /// Another value, such as the `[DONE]` at the end of other APIs' streams.
    Other,
}

// === impl AnswerDecoder ===

impl AnswerDecoder {
    pub(super) fn new(schema: AnswerSchema) -> Self {
        Self {
            schema,
            input: DecoderInput::Unknown,
            text: ImageText::default(),
            ciphertext: CiphertextHash::default(),
            pictures: PictureSearch::default(),
            head: BytesMut::new(),
            has_progressed: false,
        }
    }

    /// Makes a decoder for an answer of an upstream. It also finds images at other places than those of the contract,
    /// unless the answer is passed on.
    pub(super) fn for_upstream(schema: AnswerSchema) -> Self {
        let is_enabled = !matches!(schema, AnswerSchema::Response);
        Self { pictures: PictureSearch { is_enabled, ..PictureSearch::default() }, ..Self::new(schema) }
    }

    /// The web addresses that stood in place of images.
    pub(super) fn image_addresses(&self) -> &[String] {
        &self.pictures.addresses
    }

    pub(super) const fn form(&self) -> AnswerForm {
        match self.input {
            DecoderInput::Unknown => AnswerForm::Unknown,
            DecoderInput::Json(_) | DecoderInput::Raw(_) => AnswerForm::Json,
            DecoderInput::Events { .. } => AnswerForm::Events,
        }
    }

    /// The part that picks the image out of a response, if the answer is a response that was requested for one image.
    pub(super) fn image_tool(&self) -> Option<&ImageToolContent> {
        match &self.schema {
            AnswerSchema::ImageTool(tool) => Some(tool),
            AnswerSchema::Images | AnswerSchema::Response => None,
        }
    }

    /// Reads a first part of the piece, at least one byte, and returns its length.
    pub(super) fn read(&mut self, piece: &Bytes, sink: &mut dyn RelayEventSink) -> Result<usize, MalformedAnswer> {
        self.text.begin_piece();
        if let Some((place, length)) = self.text.read_plain(piece) {
            self.has_progressed = true;
            self.schema.push(RelayEvent::ImageBytes { place, base64: piece.slice(..length) }, sink);
            return Ok(length);
        }
        if let DecoderInput::Unknown = self.input {
            let mark_length = piece.iter().take_while(|byte| BYTE_ORDER_MARK.contains(byte)).count();
            if mark_length > 0 {
                return Ok(mark_length);
            }
            let Some(first) = piece.iter().find(|byte| !byte.is_ascii_whitespace()) else {
                self.has_progressed |= matches!(self.schema, AnswerSchema::Images);
                return Ok(piece.len());
            };
            if self.pictures.is_enabled && (!self.head.is_empty() || may_begin_image(piece[0])) {
                return self.read_head(piece, sink);
            }
            self.input = self.schema.begin_input(*first);
        }
        if let DecoderInput::Raw(image) = &mut self.input {
            self.has_progressed = true;
            let base64 = image.push(piece).into();
            self.push_raw(base64, sink);
            return Ok(piece.len());
        }
        if let DecoderInput::Events { .. } = self.input {
            return self.read_events(piece, sink);
        }
        let Self { schema, input: DecoderInput::Json(reader), text, ciphertext, pictures, .. } = self else {
            return Ok(piece.len());
        };
        self.has_progressed = true;
        if reader.is_done() {
            let is_blank = piece.iter().all(u8::is_ascii_whitespace);
            return if is_blank { Ok(piece.len()) } else { Err(JsonSyntaxError::Surplus.into()) };
        }
        let length = reader
            .push(piece, &mut DecoderVisitor { schema, text, ciphertext, framer: None, pictures, piece, sink })?;
        if reader.is_done() {
            schema.push(RelayEvent::AnswerEnded, sink);
        }
        Ok(length)
    }

    fn read_events(&mut self, piece: &Bytes, sink: &mut dyn RelayEventSink) -> Result<usize, MalformedAnswer> {
        let limits = self.schema.limits();
        let Self { schema, input: DecoderInput::Events { framer, data }, text, ciphertext, pictures, .. } = self else {
            return Ok(0);
        };
        let (length, span) = framer.next(piece);
        let content = match span {
            SseSpan::Data => {
                self.has_progressed = true;
                if let Some(reader) = data.begin_object(&piece[..length], limits) {
                    let framer = Some(&*framer);
                    let mut visitor = DecoderVisitor { schema, text, ciphertext, framer, pictures, piece, sink };
                    reader.push_last(&piece[..length], &mut visitor)?;
                }
                return Ok(length);
            }
            SseSpan::EventEnd if std::mem::take(data).finish()? => FrameContent::Object,
            SseSpan::EventEnd => FrameContent::Fields,
            SseSpan::CommentEnd => FrameContent::Comments,
            SseSpan::DataLineEnd | SseSpan::Other => return Ok(length),
        };
        schema.push(RelayEvent::FrameEnded { name: event_name(framer), content }, sink);
        Ok(length)
    }

    /// Reads the first bytes of an answer that may be an image.
    fn read_head(&mut self, piece: &Bytes, sink: &mut dyn RelayEventSink) -> Result<usize, MalformedAnswer> {
        let length = piece.len().min(FORMAT_BYTES - self.head.len());
        self.head.extend_from_slice(&piece[..length]);
        if self.head.len() < FORMAT_BYTES {
            return Ok(length);
        }
        let mut head = std::mem::take(&mut self.head).freeze();
        if has_known_format(&head) {
            self.input = DecoderInput::Raw(Base64Encoder::default());
            if let AnswerSchema::Images = self.schema {
                self.schema.push(RelayEvent::ItemBegun { event: None }, sink);
            }
        } else {
            self.input = self.schema.begin_input(head[0]);
        }
        while !head.is_empty() {
            let length = self.read(&head, sink)?;
            head.advance(length);
        }
        Ok(length)
    }

    fn push_raw(&mut self, base64: Bytes, sink: &mut dyn RelayEventSink) {
        if !base64.is_empty() {
            self.schema.push(RelayEvent::ImageBytes { place: ImagePlace::Item, base64 }, sink);
        }
    }

    /// Ends the body: an answer that is an image ends with it.
    pub(super) fn end_body(&mut self, sink: &mut dyn RelayEventSink) {
        let DecoderInput::Raw(image) = &mut self.input else { return };
        let base64 = image.finish().into();
        self.push_raw(base64, sink);
        self.schema.push(RelayEvent::ImageEnded { place: ImagePlace::Item }, sink);
        if let AnswerSchema::Images = self.schema {
            self.schema.push(RelayEvent::Ended { scope: MemberScope::Item }, sink);
        }
        self.schema.push(RelayEvent::AnswerEnded, sink);
    }

    /// Checks that the body may end here, as far as its JSON is concerned.
    pub(super) fn finish(&self) -> Result<(), JsonSyntaxError> {
        match &self.input {
            DecoderInput::Unknown => Err(JsonSyntaxError::Truncated),
            DecoderInput::Json(reader) => reader.finish(),
            DecoderInput::Raw(_) | DecoderInput::Events { .. } => Ok(()),
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
            DecoderInput::Unknown | DecoderInput::Json(_) | DecoderInput::Raw(_) | DecoderInput::Events { .. } => None,
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
            *self = if *first == b'{' { Self::Object(Box::new(JsonReader::new("", limits))) } else { Self::Other };
        }
        if let Self::Object(reader) = self { Some(reader) } else { None }
    }

    /// Ends the event. Returns true if it held an object, which must be complete.
    fn finish(self) -> Result<bool, JsonSyntaxError> {
        if let Self::Object(reader) = self { reader.finish().map(|()| true) } else { Ok(false) }
    }
}

/// True if an image, but no other answer, may begin with this byte: PNG, JPEG, WebP and GIF.
const fn may_begin_image(first: u8) -> bool {
    matches!(first, 0x89 | 0xff | b'R' | b'G')
}

#[cfg(test)]
mod tests;
