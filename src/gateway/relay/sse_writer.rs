//! Rewrites the upstream's answer as the events of the contract, piece by piece.
//!
//! Each event has an `event:` line and a `data:` line with JSON. No `[DONE]` ends the stream. At most the requested
//! number of partial images is sent, numbered from 0, and exactly one final image. Other events are not passed on,
//! because the official SDKs parse every event as an image. The image of a JSON answer becomes the final event.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::answer_members::{self, RequestedAnswer};
use super::image_item::{ImageItem, ImageItemKind};
use super::json_writer::{AnswerSummary, DeliveredImage, write_members};
use super::lexer::AnswerSink;
use super::undocumented_members;
use crate::image::ImageProperties;

/// A comment that keeps the connection open, also through proxies. Clients ignore comments.
pub(crate) const HEARTBEAT: &[u8] = b": keep-alive\n\n";

/// Writes the content that the lexer finds as events.
#[derive(Debug)]
pub(super) struct SseAnswerWriter {
    requested: RequestedAnswer,
    ready: Vec<Bytes>,
    pending_text: Vec<u8>,
    /// Members of a JSON answer, which come before and after its image.
    members: Map<String, Value>,
    item: ImageItem,
    next_event_name: Option<Option<String>>,
    /// True if the `event:` line of the current frame was written before its data.
    is_named_first: bool,
    has_image_substitute: bool,
    partials_sent: u32,
    /// The properties of the first image that began, partial or not.
    first_properties: Option<ImageProperties>,
    has_image_begun: bool,
    /// The properties of the final image, once it is complete.
    final_properties: Option<Option<ImageProperties>>,
    usage: Option<answer_members::AnswerUsage>,
    error: Option<Map<String, Value>>,
    /// The members of a final event without an image.
    final_without_image: Option<Map<String, Value>>,
}

// === impl SseAnswerWriter ===

impl SseAnswerWriter {
    pub(super) fn new(requested: RequestedAnswer) -> Self {
        Self {
            requested,
            ready: Vec::new(),
            pending_text: Vec::new(),
            members: Map::new(),
            item: ImageItem::default(),
            next_event_name: None,
            is_named_first: true,
            has_image_substitute: false,
            partials_sent: 0,
            first_properties: None,
            has_image_begun: false,
            final_properties: None,
            usage: None,
            error: None,
            final_without_image: None,
        }
    }

    /// True if a first image has begun.
    pub(super) const fn is_proven(&self) -> bool {
        self.has_image_begun
    }

    /// True if the final event is complete.
    pub(super) const fn is_complete(&self) -> bool {
        self.final_properties.is_some() && self.item.is_event()
    }

    /// True if the upstream has stated that it failed.
    pub(super) const fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// True if a final event had no image, or an event reported an error.
    pub(super) const fn has_reported_no_image(&self) -> bool {
        self.error.is_some() || self.final_without_image.is_some()
    }

    /// Returns the properties of the first image, and true if more bytes may still state them.
    pub(super) fn first_image(&self) -> (Option<ImageProperties>, bool) {
        (
            self.first_properties.or(self.item.properties),
            self.first_properties.is_none() && self.item.may_find_properties(),
        )
    }

    /// True if something in the answer suggests that an image was made, such as a URL in its place.
    pub(super) const fn has_image_substitute(&self) -> bool {
        self.has_image_substitute
    }

    /// Returns the pieces that can be sent now.
    pub(super) fn take_ready(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.ready)
    }

    /// Returns the members that the upstream sent instead of an image.
    pub(super) fn members(&self) -> Map<String, Value> {
        self.error.as_ref().or(self.final_without_image.as_ref()).unwrap_or(&self.members).clone()
    }

    /// Returns the rest of the final frame.
    pub(super) fn finish(&mut self) -> Bytes {
        let mut tail = std::mem::take(&mut self.pending_text);
        let name = self.event_name();
        let mut item = std::mem::take(&mut self.item);
        // The members of a JSON answer, except for its images, belong to its only event.
        item.members.extend(std::mem::take(&mut self.members));
        self.write_frame_end(&mut tail, item, &name, None);
        Bytes::from(tail)
    }

    /// Returns the content of the answer so far.
    pub(super) fn summary(&self) -> AnswerSummary {
        let name = |key| {
            answer_members::model_name(&self.item.members, key)
                .or_else(|| answer_members::model_name(&self.members, key))
        };
        let quality = answer_members::quality(&self.item.members, "quality")
            .or_else(|| answer_members::quality(&self.members, "quality"));
        let to_image = |properties| DeliveredImage { properties, quality: quality.map(str::to_owned) };
        AnswerSummary {
            delivered: self.final_properties.map(to_image).into_iter().collect(),
            usage: self.usage.or_else(|| answer_members::usage_from_answer(&self.members)),
            image_model: name("model").map(str::to_owned),
            ..AnswerSummary::default()
        }
    }

    /// Returns the bytes that end the stream if the answer breaks off. A frame that has begun becomes an error event. A
    /// separate error event follows for clients that read only the last event.
    pub(super) fn finish_with_error(&mut self, error: &str) -> Bytes {
        // The closing quote of an image may still wait for the members after it.
        let mut text = std::mem::take(&mut self.pending_text);
        if self.item.has_begun {
            if !self.item.has_ended {
                text.push(b'"');
            }
            // The members of the error follow those of the image. Parsers use the last of the two members `type`.
            text.extend_from_slice(format!(",{}\nevent: error\n\n", &error[1..]).as_bytes());
        }
        text.extend_from_slice(format!("event: error\ndata: {error}\n\n").as_bytes());
        Bytes::from(text)
    }

    /// True if a comment may be sent here: between frames, never within one.
    pub(super) const fn is_between_frames(&self) -> bool {
        !self.item.has_begun
    }

    fn is_relayed(&self) -> bool {
        if self.item.has_ended || self.final_properties.is_some() {
            return false;
        }
        match self.item.kind() {
            ImageItemKind::Partial => self.partials_sent < self.requested.partials,
            ImageItemKind::Completed | ImageItemKind::Unknown => true,
            ImageItemKind::Error | ImageItemKind::Other => false,
        }
    }

    fn start_frame(&mut self) {
        self.item.has_begun = true;
        self.has_image_begun = true;
        // If no intermediate images were requested, an event with an image is the final event.
        self.is_named_first = self.item.kind() != ImageItemKind::Unknown || self.requested.partials == 0;
        let opening = if self.is_named_first {
            let name = self.event_name();
            format!("event: {name}\ndata: {{\"type\":\"{name}\",\"b64_json\":\"")
        } else {
            // The `event:` line follows the data. The order of the lines has no meaning.
            "data: {\"b64_json\":\"".to_owned()
        };
        self.pending_text.extend_from_slice(opening.as_bytes());
    }

    fn event_name(&self) -> String {
        let suffix = if self.item.kind() == ImageItemKind::Partial { "partial_image" } else { "completed" };
        format!("{}.{suffix}", self.requested.event_prefix)
    }

    /// Ends the frame of the current item, whose type is now known.
    fn end_frame(&mut self) {
        if self.item.kind() == ImageItemKind::Partial {
            let mut text = std::mem::take(&mut self.pending_text);
            let name = self.event_name();
            let item = std::mem::take(&mut self.item);
            self.write_frame_end(&mut text, item, &name, Some(self.partials_sent));
            self.ready.push(Bytes::from(text));
            self.partials_sent += 1;
        } else {
            self.usage = answer_members::usage_from_answer(&self.item.members);
            self.final_properties = Some(self.item.properties);
        }
    }

    /// Writes every member after the image, and the end of the frame.
    fn write_frame_end(&self, out: &mut Vec<u8>, item: ImageItem, name: &str, index: Option<u32>) {
        let (received, properties) = (item.members, item.properties);
        let mut members = answer_members::event_members(&self.requested, &received, properties);
        members.extend(undocumented_members::from_answer(&received));
        if let Some(index) = index {
            members.remove("usage");
            members.insert("partial_image_index".to_owned(), json!(index));
        }
        if self.is_named_first {
            write_members(out, &members);
            out.extend_from_slice(b"}\n\n");
        } else {
            members.insert("type".to_owned(), name.into());
            write_members(out, &members);
            out.extend_from_slice(format!("}}\nevent: {name}\n\n").as_bytes());
        }
    }
}

impl AnswerSink for SseAnswerWriter {
    fn member(&mut self, key: String, value: Value) {
        self.members.insert(key, value);
    }

    fn announce_event(&mut self, name: Option<String>) {
        self.next_event_name = Some(name);
    }

    fn item_start(&mut self) {
        // Further images are ignored. The item of a JSON answer stays until the members after it have arrived.
        if self.final_properties.is_none() {
            self.item = ImageItem::new(self.next_event_name.take());
        }
    }

    fn item_member(&mut self, key: String, value: Value) {
        self.has_image_substitute |= answer_members::is_image_substitute(&key, &value);
        if self.final_properties.is_none() {
            self.item.members.insert(key, value);
        }
    }

    fn item_member_dropped(&mut self, key: &str) {
        self.has_image_substitute |= answer_members::is_image_substitute(key, &Value::Bool(true));
    }

    fn image(&mut self, base64: Bytes) {
        if !self.is_relayed() {
            return;
        }
        if !self.item.has_begun {
            self.start_frame();
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
            self.first_properties = self.first_properties.or(self.item.properties);
            self.pending_text.push(b'"');
        }
    }

    fn item_end(&mut self) {
        if self.final_properties.is_some() {
            return;
        }
        match (self.item.kind(), self.item.has_begun) {
            (ImageItemKind::Error, false) => self.error = Some(std::mem::take(&mut self.item.members)),
            (ImageItemKind::Partial | ImageItemKind::Completed, true) => self.end_frame(),
            (ImageItemKind::Completed, false) if self.item.is_event() => {
                let members = std::mem::take(&mut self.item.members);
                self.has_image_substitute |= !answer_members::states_reason(&members);
                self.final_without_image = Some(members);
            }
            _ => {}
        }
    }

    fn event_end(&mut self, name: Option<String>) {
        if self.final_properties.is_none() && self.item.has_begun && self.item.kind() == ImageItemKind::Unknown {
            self.item.set_event_name(name);
            self.end_frame();
        }
    }
}
