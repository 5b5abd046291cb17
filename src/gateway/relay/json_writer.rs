//! Rewrites the upstream's answer as the JSON of the contract, piece by piece.
//!
//! The base64 of images is passed on unchanged. The members around it are small: they are collected and written anew
//! after the images, with missing fields added and `auto` replaced by the real value. Images beyond the requested
//! number are left out. Nothing is written before the first image has begun, so until then the answer can still become
//! an error. If an upstream sends events although none were requested, the final image in them becomes the answer.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::answer_members::{self, AnswerUsage, RequestedAnswer};
use super::image_item::{ImageItem, ImageItemKind};
use super::lexer::AnswerSink;
use super::undocumented_members;
use crate::image::ImageProperties;
use crate::wire::escape_line_ends;

/// The bytes with which an answer begins, before the first element of `data`.
pub(super) const ANSWER_PREFIX: &[u8] = br#"{"data":["#;

/// Writes the content that the lexer finds as the pieces of the answer.
#[derive(Debug)]
pub(super) struct JsonAnswerWriter {
    requested: RequestedAnswer,
    /// Pieces that can be sent to the caller.
    ready: Vec<Bytes>,
    /// JSON that is written before the next bytes of an image.
    pending_text: Vec<u8>,
    members: Map<String, Value>,
    item: ImageItem,
    /// `Some` if the next item is an event: the value of its `event:` line, if there is one.
    next_event_name: Option<Option<String>>,
    /// True if an item had another value in place of `b64_json`, such as a URL, or if a final event had neither an
    /// image nor a reason: an image may have been made.
    has_image_substitute: bool,
    /// True if a final event had no image, or an event reported an error.
    has_reported_no_image: bool,
    /// One element for each image that was passed on: the properties of the image, if its first bytes stated them.
    delivered_properties: Vec<Option<ImageProperties>>,
    is_complete: bool,
}

/// The content of an answer, for its record. Models, ids and qualities are those that the upstream named.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerSummary {
    /// Each image that was passed on.
    pub(crate) delivered: Vec<DeliveredImage>,
    /// The token counts, if the upstream reported any that can be read.
    pub(crate) usage: Option<AnswerUsage>,
    /// The model that makes images.
    pub(crate) image_model: Option<String>,
    /// The text model, if one ran the image tool.
    pub(crate) host_model: Option<String>,
    /// The id of the response, if it has one.
    pub(crate) response_id: Option<String>,
}

/// An image that was passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeliveredImage {
    /// The format and size of the image, if its first bytes stated them.
    pub(crate) properties: Option<ImageProperties>,
    /// The quality that the upstream names.
    pub(crate) quality: Option<String>,
}

// === impl JsonAnswerWriter ===

impl JsonAnswerWriter {
    pub(super) fn new(requested: RequestedAnswer) -> Self {
        Self {
            requested,
            ready: Vec::new(),
            pending_text: Vec::new(),
            members: Map::new(),
            item: ImageItem::default(),
            next_event_name: None,
            has_image_substitute: false,
            has_reported_no_image: false,
            delivered_properties: Vec::new(),
            is_complete: false,
        }
    }

    /// True if a first image has begun.
    pub(super) fn is_proven(&self) -> bool {
        !self.delivered_properties.is_empty() || self.item.has_begun
    }

    /// True if all requested images came in events, so that the rest of the upstream's answer is not needed.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the properties of the first image, and true if more bytes may still state them.
    pub(super) fn first_image(&self) -> (Option<ImageProperties>, bool) {
        match self.delivered_properties.first() {
            Some(properties) => (*properties, false),
            None => (self.item.properties, self.item.may_find_properties()),
        }
    }

    /// True if something in the answer suggests that an image was made, such as a URL in place of `b64_json`.
    pub(super) const fn has_image_substitute(&self) -> bool {
        self.has_image_substitute
    }

    /// True if a final event had no image, or an event reported an error.
    pub(super) const fn has_reported_no_image(&self) -> bool {
        self.has_reported_no_image
    }

    /// Returns the pieces that can be sent now.
    pub(super) fn take_ready(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.ready)
    }

    /// Returns the members of an answer without an image.
    pub(super) const fn members(&self) -> &Map<String, Value> {
        &self.members
    }

    /// Takes the members out, for code that writes the end of the answer itself.
    pub(super) fn take_members(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.members)
    }

    /// Returns the end of the answer: closes the images and writes every member. A single element has no such members.
    pub(super) fn finish(&mut self) -> Bytes {
        let properties = self.delivered_properties.first().copied().flatten();
        let mut tail = std::mem::take(&mut self.pending_text);
        if !self.requested.is_single_element {
            let mut members = answer_members::answer_members(&self.requested, &self.members, properties);
            members.extend(undocumented_members::from_answer(&self.members));
            write_end(&mut tail, &members);
        }
        Bytes::from(tail)
    }

    /// Returns the content of the answer so far.
    pub(super) fn summary(&self) -> AnswerSummary {
        let quality = answer_members::quality(&self.members, "quality").map(str::to_owned);
        let to_image = |properties| DeliveredImage { properties, quality: quality.clone() };
        AnswerSummary {
            delivered: self.delivered_properties.iter().copied().map(to_image).collect(),
            usage: answer_members::usage_from_answer(&self.members),
            image_model: answer_members::model_name(&self.members, "model").map(str::to_owned),
            host_model: None,
            // An answer of images has no id that a later request could continue from.
            response_id: None,
        }
    }

    /// True if the image of the current item is to be passed on: it is a final image, and within the requested number.
    fn is_relayed(&self) -> bool {
        !self.item.has_ended && self.delivered_properties.len() < self.requested.count
            // No intermediate images were requested, so the image of an event without a type is the final image.
            && matches!(self.item.kind(), ImageItemKind::Completed | ImageItemKind::Unknown)
    }

    fn write(&mut self, text: &[u8]) {
        self.pending_text.extend_from_slice(text);
    }

    /// Moves the members of an event, except `revised_prompt`, to the answer: in an answer they are beside `data`,
    /// not in its elements.
    fn merge_event_members(&mut self) {
        let prompt = self.item.members.remove("revised_prompt");
        let members = std::mem::take(&mut self.item.members);
        self.members.extend(members);
        self.item.members.extend(prompt.map(|prompt| ("revised_prompt".to_owned(), prompt)));
    }
}

impl AnswerSink for JsonAnswerWriter {
    fn member(&mut self, key: String, value: Value) {
        self.members.insert(key, value);
    }

    fn announce_event(&mut self, name: Option<String>) {
        self.next_event_name = Some(name);
    }

    fn item_start(&mut self) {
        self.item = ImageItem::new(self.next_event_name.take());
    }

    fn item_member(&mut self, key: String, value: Value) {
        self.has_image_substitute |= answer_members::is_image_substitute(&key, &value);
        self.item.members.insert(key, value);
    }

    fn item_member_dropped(&mut self, key: &str) {
        self.has_image_substitute |= answer_members::is_image_substitute(key, &Value::Bool(true));
    }

    fn image(&mut self, base64: Bytes) {
        if !self.is_relayed() {
            return;
        }
        if !self.item.has_begun {
            self.item.has_begun = true;
            let separator: &[u8] = match self.delivered_properties.is_empty() {
                true if self.requested.is_single_element => b"",
                true => ANSWER_PREFIX,
                false => b",",
            };
            self.write(separator);
            self.write(br#"{"b64_json":""#);
        }
        self.item.probe_head(&base64);
        if !self.pending_text.is_empty() {
            self.ready.push(Bytes::from(std::mem::take(&mut self.pending_text)));
        }
        self.ready.push(base64);
    }

    fn image_end(&mut self) {
        if self.item.has_begun && !self.item.has_ended {
            self.item.finish_image();
            self.write(b"\"");
        }
    }

    fn item_end(&mut self) {
        if !self.item.has_begun {
            match self.item.kind() {
                kind @ (ImageItemKind::Error | ImageItemKind::Completed) if self.item.is_event() => {
                    self.has_image_substitute |=
                        kind == ImageItemKind::Completed && !answer_members::states_reason(&self.item.members);
                    self.merge_event_members();
                    self.has_reported_no_image = true;
                }
                // The members of an element without an image may state why there is none, so they are kept.
                ImageItemKind::Completed if !self.item.members.is_empty() => {
                    let item_members = std::mem::take(&mut self.item.members);
                    self.members.insert("data".to_owned(), Value::Array(vec![item_members.into()]));
                }
                _ => {}
            }
            return;
        }
        let is_event = self.item.is_event();
        // In a fan-out, one answer combines several: the undocumented members of an event then stay with its image.
        let own_members = (is_event && self.requested.is_single_element)
            .then(|| undocumented_members::from_answer(&self.item.members));
        if is_event {
            self.merge_event_members();
        }
        let item = std::mem::take(&mut self.item);
        let mut members = answer_members::item_members(&self.requested, &item.members);
        members.extend(own_members.unwrap_or_else(|| undocumented_members::from_image(&item.members)));
        write_members(&mut self.pending_text, &members);
        self.pending_text.push(b'}');
        self.delivered_properties.push(item.properties);
        // A JSON answer may have needed members after its last image, such as `usage`.
        self.is_complete = is_event && self.delivered_properties.len() == self.requested.count;
    }
}

/// Writes the end of an answer after its images.
pub(super) fn write_end(out: &mut Vec<u8>, members: &Map<String, Value>) {
    out.push(b']');
    write_members(out, members);
    out.push(b'}');
}

/// Writes `,"key":value` for each member.
pub(super) fn write_members(out: &mut Vec<u8>, members: &Map<String, Value>) {
    for (key, value) in members {
        out.push(b',');
        out.extend_from_slice(escape_line_ends(Value::from(key.as_str()).to_string()).as_bytes());
        out.push(b':');
        out.extend_from_slice(escape_line_ends(value.to_string()).as_bytes());
    }
}
