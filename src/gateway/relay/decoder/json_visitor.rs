//! Reads the JSON of an answer: decides which values are wanted, and pushes what they are.

use bytes::Bytes;
use serde_json::Value;

use super::AnswerSchema;
use super::ciphertext::CiphertextHash;
use super::image_text::{ImageText, unescaped_byte};
use super::picture_search::PictureSearch;
use crate::gateway::relay::event::{ImagePlace, MemberScope, RelayEvent, RelayEventSink};
use crate::gateway::relay::relay_error::MalformedAnswer;
use crate::stream::json::{JsonPosition, JsonVisitor, ValueInterest};
use crate::stream::sse::SseFramer;

/// The number of objects and arrays around an element of `data`.
pub(super) const ELEMENT_DEPTH: usize = 2;
/// The status of an image call that has not ended.
const UNFINISHED_STATUS: &[u8] = b"generating";

/// Reads the JSON in one piece.
pub(super) struct DecoderVisitor<'a> {
    pub(super) schema: &'a mut AnswerSchema,
    pub(super) text: &'a mut ImageText,
    pub(super) ciphertext: &'a mut CiphertextHash,
    /// The framer of the events, if the JSON is that of an event.
    pub(super) framer: Option<&'a SseFramer>,
    pub(super) pictures: &'a mut PictureSearch,
    pub(super) piece: &'a Bytes,
    pub(super) sink: &'a mut dyn RelayEventSink,
}

// === impl DecoderVisitor ===

impl DecoderVisitor<'_> {
    pub(super) fn push(&mut self, event: RelayEvent<'_>) {
        self.schema.push(event, self.sink);
    }

    pub(super) fn push_image(&mut self, place: ImagePlace, base64: Bytes) {
        if !base64.is_empty() {
            self.push(RelayEvent::ImageBytes { place, base64 });
        }
    }

    /// Returns the base64 in the next bytes of an image, after the prefix of a data URL. Passes on the base64 that was
    /// mistaken for such a prefix. The bytes of a response are returned as they are.
    fn skip_prefix<'t>(&mut self, place: ImagePlace, text: &'t [u8]) -> Result<&'t [u8], MalformedAnswer> {
        if matches!(self.schema, AnswerSchema::Response) {
            return Ok(text);
        }
        let (before, base64) = self.text.skip_prefix(text)?;
        self.pass_on_text(place, Bytes::from_static(before))?;
        Ok(base64)
    }

    /// Passes on the next bytes of an image: those of a response as they are, others in the standard alphabet of base64.
    fn pass_on_text(&mut self, place: ImagePlace, base64: Bytes) -> Result<(), MalformedAnswer> {
        if matches!(self.schema, AnswerSchema::Response) {
            self.push_image(place, base64);
            return Ok(());
        }
        let base64 = self.text.read(base64)?;
        self.push_image(place, base64);
        Ok(())
    }

    /// True for a JSON answer of the image endpoints, whose items are the elements of `data`.
    pub(super) const fn has_elements(&self) -> bool {
        matches!(self.schema, AnswerSchema::Images) && self.framer.is_none()
    }

    /// True if the value at this position is an encrypted content, of which only the hash is wanted.
    fn is_ciphertext(&self, at: JsonPosition<'_>) -> bool {
        matches!(self.schema, AnswerSchema::Response) && CiphertextHash::is_at(at)
    }

    /// True if the value at this position is the status of an item of a response.
    fn is_item_status(&self, at: JsonPosition<'_>) -> bool {
        matches!(self.schema, AnswerSchema::Response) && ["item.status", "response.output[].status"].contains(&at.path)
    }

    /// Returns the place of the image, if the value at this position is one.
    fn image_place(&self, at: JsonPosition<'_>) -> Option<ImagePlace> {
        if let AnswerSchema::Images = self.schema {
            let is_place =
                at.key == "b64_json" && self.scope(at).0 == MemberScope::Item && !self.pictures.is_in_member();
            return is_place.then_some(ImagePlace::Item);
        }
        match at.path {
            "partial_image_b64" => Some(ImagePlace::Partial),
            "response.output[].result" if self.framer.is_some() => Some(ImagePlace::Repeated),
            "item.result" | "response.output[].result" => Some(ImagePlace::Item),
            _ => None,
        }
    }

    /// Returns the object to which the value at this position belongs, and the name of the value in it.
    pub(super) fn scope<'k>(&self, at: JsonPosition<'k>) -> (MemberScope, &'k str) {
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
        if let (AnswerSchema::Images, Some(framer)) = (&self.schema, self.framer) {
            self.push(RelayEvent::ItemBegun { event: Some(event_name(framer)) });
        }
        Ok(())
    }

    fn start(&mut self, at: JsonPosition<'_>, first: u8) -> Result<ValueInterest, MalformedAnswer> {
        if let (Some(place), b'"') = (self.image_place(at), first) {
            let is_wanted =
                if let AnswerSchema::ImageTool(tool) = &self.schema { tool.wants_image(place) } else { true };
            if is_wanted {
                self.text.begin();
                return Ok(ValueInterest::Text);
            }
        }
        if first == b'"' && (self.is_ciphertext(at) || self.is_item_status(at)) {
            return Ok(ValueInterest::Text);
        }
        if let Some(interest) = self.start_picture(at, first) {
            return Ok(interest);
        }
        if self.has_elements() {
            match (at.depth, at.key, first) {
                (1, "data", b'[') => return Ok(ValueInterest::Skip),
                (1, "images", b'[') if self.pictures.is_enabled => return Ok(ValueInterest::Skip),
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
        if let Some(member) = &mut self.pictures.member {
            member.add(at.key, value);
            return Ok(());
        }
        let (scope, name) = self.scope(at);
        if !(self.has_elements() && at.depth == ELEMENT_DEPTH) {
            self.push(match value {
                Some(value) => RelayEvent::Member { scope, name, value },
                None => RelayEvent::MemberDropped { scope, name },
            });
        }
        Ok(())
    }

    fn text(&mut self, at: JsonPosition<'_>, text: &[u8]) -> Result<(), MalformedAnswer> {
        if let Some(picture_text) = &mut self.pictures.text {
            let found = picture_text.push(text, self.piece);
            return self.push_picture(at, found);
        }
        if self.is_ciphertext(at) {
            self.ciphertext.add(text);
        }
        // The text is a slice of the piece.
        let offset = text.as_ptr().addr() - self.piece.as_ptr().addr();
        let end = offset + text.len();
        // Of a status that the piece cuts in two, the beginning counts.
        if self.is_item_status(at) && UNFINISHED_STATUS.starts_with(text) {
            self.push(RelayEvent::UnfinishedStatus { offset });
        }
        let Some(place) = self.image_place(at) else { return Ok(()) };
        if end == self.piece.len() {
            self.text.leave_open(place);
        }
        if let AnswerSchema::Response = self.schema {
            self.text.read_unchanged(text, end);
        }
        let base64 = self.skip_prefix(place, text)?;
        self.pass_on_text(place, self.piece.slice_ref(base64))
    }

    fn escaped(&mut self, at: JsonPosition<'_>, unit: u16) -> Result<(), MalformedAnswer> {
        if let Some(text) = &mut self.pictures.text {
            let found = text.push_escaped(unit);
            return self.push_picture(at, found);
        }
        if self.is_ciphertext(at) {
            self.ciphertext.add_unit(unit);
        }
        let Some(place) = self.image_place(at) else { return Ok(()) };
        let byte = unescaped_byte(unit);
        if let AnswerSchema::Response = self.schema {
            // A response may have any character: one that is not base64 is no part of the image.
            let byte = byte.unwrap_or_default();
            self.text.read_unchanged_escape(byte);
            return self.pass_on_text(place, Bytes::copy_from_slice(byte.as_slice()));
        }
        let base64 = Bytes::copy_from_slice(self.skip_prefix(place, byte?.as_slice())?);
        self.pass_on_text(place, base64)
    }

    fn text_end(&mut self, at: JsonPosition<'_>) -> Result<(), MalformedAnswer> {
        if self.is_ciphertext(at) {
            let value = Value::String(self.ciphertext.finish());
            let (scope, name) = self.scope(at);
            self.push(RelayEvent::Member { scope, name, value });
        }
        if let Some(mut text) = self.pictures.text.take() {
            self.end_picture(at, &mut text);
            return Ok(());
        }
        if let Some(place) = self.image_place(at) {
            let before = self.text.end_scheme();
            self.pass_on_text(place, Bytes::from_static(before))?;
            if !matches!(self.schema, AnswerSchema::Response) {
                self.push_image(place, Bytes::from_static(self.text.absent_padding()));
            } else if let Some((offset, padding)) = self.text.absent_padding_of_unchanged() {
                self.push(RelayEvent::PaddingAbsent { offset, padding });
            }
            self.push(RelayEvent::ImageEnded { place });
        }
        Ok(())
    }

    fn end(&mut self, at: JsonPosition<'_>) -> Result<(), MalformedAnswer> {
        if self.pictures.is_in_member() {
            self.end_in_member();
            return Ok(());
        }
        let item_depth = if self.has_elements() { ELEMENT_DEPTH } else { 0 };
        let scope = match (&self.schema, at.path) {
            (AnswerSchema::Images, _) if at.depth == item_depth => MemberScope::Item,
            (AnswerSchema::ImageTool(_) | AnswerSchema::Response, "response.output[]") => MemberScope::Item,
            (AnswerSchema::ImageTool(_) | AnswerSchema::Response, "response.tools[]") => MemberScope::Tool,
            _ => return Ok(()),
        };
        self.push(RelayEvent::Ended { scope });
        Ok(())
    }
}

/// Returns the name of the current event; an unreadable name counts as none.
pub(super) fn event_name(framer: &SseFramer) -> String {
    str::from_utf8(framer.event_name()).unwrap_or_default().to_owned()
}
