//! Writes images as the JSON answer or the events of the contract, piece by piece.
//!
//! The base64 of images is passed on unchanged. The members around it are small: they are collected and written anew
//! after the image, with missing fields added and `auto` replaced by the real value. Images beyond the requested number
//! are left out. Nothing is written before the first image has begun, so until then the answer can still become an
//! error.
//!
//! The caller gets what it requested, whatever the upstream sends. In a JSON answer, the final image of an event becomes
//! an element of `data`. In a stream, the image of a JSON answer becomes the final event. An event has an `event:` line
//! and a `data:` line with JSON, and no `[DONE]` ends the stream; intermediate images are numbered from 0, and events of
//! other kinds are not passed on, because the official SDKs parse every event as an image.
//!
//! An event is written while its image arrives, so it may break off. Its `type` therefore follows the image: an event that
//! breaks off has the type `error` and no other, and its text is no base64 ([`spoil_base64`]).

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::answer_members::{self, RequestedAnswer};
use super::answer_usage;
use super::event::{
    AnswerEncoder, AnswerForm, AnswerSummary, AnswerWithoutImage, DeliveredImage, FrameContent, MemberScope,
    RelayEvent, RelayEventSink,
};
use super::image_item::{ImageItem, ImageItemKind, spoil_base64};
use super::relay_error::RelayError;
use super::undocumented_members;
use crate::image::{ImageProperties, OtherContent};
use crate::wire::escape_line_ends;

/// The bytes with which an answer begins, before the first element of `data`.
pub(super) const ANSWER_PREFIX: &[u8] = br#"{"data":["#;
/// A comment that keeps the connection open, also through proxies. Clients ignore comments.
pub(crate) const HEARTBEAT: &[u8] = b": keep-alive\n\n";

/// The encoder of one answer.
#[derive(Debug, Default)]
pub(super) struct ImageEncoder {
    requested: RequestedAnswer,
    /// Pieces that can be sent to the caller.
    ready: VecDeque<Bytes>,
    /// Text that is written before the next bytes of an image, or at the end.
    pending_text: Vec<u8>,
    /// The members of the answer. In a JSON answer, those of the events that became its elements are among them.
    members: Map<String, Value>,
    /// The current item. In a stream, the final one stays until the members after it have arrived.
    item: ImageItem,
    has_image_begun: bool,
    /// The properties of the first image that began, intermediate or not, once it is complete.
    first_properties: Option<ImageProperties>,
    /// The content of the first image, if it is in none of the formats that a request can name.
    first_other_content: Option<OtherContent>,
    partials_sent: u32,
    /// One element for each final image that was passed on: its properties, if its first bytes stated them.
    delivered: Vec<Option<ImageProperties>>,
    /// True if all requested images came in events.
    is_complete: bool,
    /// True if the `event:` line of the current frame follows its data.
    is_named_last: bool,
    /// The members of an event that reported an error, or of a final event without an image.
    without_image: Option<Map<String, Value>>,
    has_failed: bool,
    /// True if an item had another value in place of its image, such as a URL, or if a final event had neither an image
    /// nor a reason: an image may have been made.
    has_image_substitute: bool,
}

// === impl ImageEncoder ===

impl ImageEncoder {
    pub(super) fn new(requested: RequestedAnswer) -> Self {
        Self { requested, ..Self::default() }
    }

    /// True if every final image is there, so that further items do not count.
    fn has_all_images(&self) -> bool {
        self.delivered.len() >= if self.requested.stream { 1 } else { self.requested.count }
    }

    /// True if the image of the current item is to be passed on.
    fn is_relayed(&self) -> bool {
        let is_stream = self.requested.stream;
        if self.item.has_ended {
            return false;
        }
        match self.item.kind() {
            ImageItemKind::Partial => is_stream && self.partials_sent < self.requested.partials,
            // If no intermediate images were requested, the image of an event without a type is the final image.
            ImageItemKind::Completed | ImageItemKind::Unknown => true,
            ImageItemKind::Error | ImageItemKind::Other => false,
        }
    }

    fn add_image(&mut self, base64: Bytes) {
        if !self.is_relayed() {
            return;
        }
        if !self.item.has_begun {
            (self.item.has_begun, self.has_image_begun) = (true, true);
            let opening = if self.requested.stream { self.frame_opening() } else { self.element_opening() };
            self.pending_text.extend_from_slice(opening.as_bytes());
        }
        self.item.probe.add(&base64);
        self.item.base64_length += base64.len();
        if !self.pending_text.is_empty() {
            self.ready.push_back(Bytes::from(std::mem::take(&mut self.pending_text)));
        }
        self.ready.push_back(base64);
    }

    /// Begins the next image of an event. The members before it belong to the first, those after it to the last.
    fn begin_element(&mut self) {
        if self.item.has_ended && !self.requested.stream {
            let event_name = self.item.event_name.clone();
            self.end_item();
            self.item = ImageItem { event_name, ..ImageItem::default() };
        }
    }

    fn end_image(&mut self) {
        if self.item.has_begun && !self.item.has_ended {
            self.item.has_ended = true;
            self.item.probe.finish();
            if self.delivered.is_empty() {
                self.first_other_content = self.item.probe.other_content;
            }
            self.first_properties = self.first_properties.or(self.item.probe.properties);
            self.pending_text.push(b'"');
        }
    }

    fn end_item(&mut self) {
        match (self.item.kind(), self.item.has_begun, self.requested.stream) {
            (kind @ (ImageItemKind::Error | ImageItemKind::Completed), false, _) => self.end_without_image(kind),
            (_, true, false) => self.end_element(),
            (ImageItemKind::Partial, true, true) => self.end_partial(),
            (ImageItemKind::Completed, true, true) => self.note_final(),
            _ => {}
        }
    }

    /// Keeps the members of an item without an image, which may state why there is none.
    fn end_without_image(&mut self, kind: ImageItemKind) {
        let members = std::mem::take(&mut self.item.members);
        if self.item.event_name.is_some() {
            self.has_failed |= kind == ImageItemKind::Error;
            self.has_image_substitute |= kind == ImageItemKind::Completed && !answer_members::states_reason(&members);
            self.without_image = Some(members);
        } else if !members.is_empty() {
            self.members.insert("data".to_owned(), Value::Array(vec![members.into()]));
        }
    }

    fn note_final(&mut self) {
        self.delivered.push(self.item.probe.properties);
        // A JSON answer may have needed members after its last image, such as `usage`.
        self.is_complete = self.item.event_name.is_some() && self.has_all_images();
    }
}

// === impl ImageEncoder: a JSON answer ===

impl ImageEncoder {
    fn element_opening(&self) -> String {
        let separator = match self.delivered.is_empty() {
            true if self.requested.is_single_element => "",
            true => str::from_utf8(ANSWER_PREFIX).unwrap_or_default(),
            false => ",",
        };
        format!(r#"{separator}{{"b64_json":""#)
    }

    fn end_element(&mut self) {
        self.note_final();
        let ImageItem { mut members, event_name, .. } = std::mem::take(&mut self.item);
        let is_event = event_name.is_some();
        // In a fan-out, one answer combines several: the undocumented members of an event then stay with its image.
        let undocumented = if is_event && self.requested.is_single_element {
            undocumented_members::from_answer(&members)
        } else if is_event {
            Map::new()
        } else {
            undocumented_members::from_image(&members)
        };
        let mut written = answer_members::item_members(&self.requested, &members);
        written.extend(undocumented);
        if is_event {
            // In an answer the members of an event are beside `data`, except for the prompt.
            members.remove("revised_prompt");
            self.members.append(&mut members);
        }
        write_members(&mut self.pending_text, &written);
        self.pending_text.push(b'}');
    }
}

// === impl ImageEncoder: events ===

impl ImageEncoder {
    fn frame_opening(&mut self) -> String {
        // If no intermediate images were requested, an event with an image is the final event.
        self.is_named_last = self.item.kind() == ImageItemKind::Unknown && self.requested.partials > 0;
        let line = if self.is_named_last { String::new() } else { format!("event: {}\n", self.event_name()) };
        format!("{line}data: {{\"b64_json\":\"")
    }

    fn event_name(&self) -> String {
        let suffix = if self.item.kind() == ImageItemKind::Partial { "partial_image" } else { "completed" };
        format!("{}.{suffix}", self.requested.event_prefix)
    }

    fn end_partial(&mut self) {
        self.write_frame_end(Some(self.partials_sent));
        self.ready.push_back(Bytes::from(std::mem::take(&mut self.pending_text)));
        self.partials_sent += 1;
    }

    /// Writes every member after the image, and the end of the frame.
    fn write_frame_end(&mut self, index: Option<u32>) {
        let name = self.event_name();
        let ImageItem { members: received, probe, .. } = std::mem::take(&mut self.item);
        let mut members = answer_members::event_members(&self.requested, &received, probe.properties);
        answer_members::state_other_format(&mut members, &received, probe.other_content);
        members.extend(undocumented_members::from_answer(&received));
        if let Some(index) = index {
            members.remove("usage");
            members.insert("partial_image_index".to_owned(), json!(index));
        }
        // The order of the lines has no meaning.
        let end = if self.is_named_last { format!("}}\nevent: {name}\n\n") } else { "}\n\n".to_owned() };
        members.remove("type");
        write_members(&mut self.pending_text, &Map::from_iter([("type".to_owned(), name.into())]));
        write_members(&mut self.pending_text, &members);
        self.pending_text.extend_from_slice(end.as_bytes());
    }
}

impl RelayEventSink for ImageEncoder {
    fn push(&mut self, event: RelayEvent<'_>) {
        match event {
            RelayEvent::Member { scope: MemberScope::Answer, name, value } => {
                self.members.insert(name.to_owned(), value);
            }
            _ if self.has_all_images() => {}
            RelayEvent::ItemBegun { event } => self.item = ImageItem { event_name: event, ..ImageItem::default() },
            RelayEvent::ElementBegun => self.begin_element(),
            RelayEvent::Member { name, value, .. } => {
                self.has_image_substitute |= answer_members::is_image_substitute(name, &value);
                self.item.members.insert(name.to_owned(), value);
            }
            RelayEvent::MemberDropped { scope, name } => {
                let may_be_image = answer_members::is_image_substitute(name, &Value::Bool(true));
                self.has_image_substitute |= scope == MemberScope::Item && may_be_image;
            }
            RelayEvent::ImageBytes { base64, .. } => self.add_image(base64),
            RelayEvent::ImageEnded { .. } => self.end_image(),
            RelayEvent::Ended { .. } => self.end_item(),
            RelayEvent::FrameEnded { name, content: FrameContent::Object }
                if self.item.has_begun && self.item.kind() == ImageItemKind::Unknown =>
            {
                self.item.event_name = Some(name);
                if self.item.kind() == ImageItemKind::Partial { self.end_partial() } else { self.note_final() }
            }
            RelayEvent::UnfinishedStatus { .. }
            | RelayEvent::PaddingAbsent { .. }
            | RelayEvent::FrameEnded { .. }
            | RelayEvent::AnswerEnded => {}
        }
    }
}

impl AnswerEncoder for ImageEncoder {
    fn pass_on(&mut self, _: Bytes, _: AnswerForm) -> Result<(), RelayError> {
        if self.requested.stream && self.has_failed { Err(RelayError::UpstreamFailed) } else { Ok(()) }
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    fn is_proven(&self) -> bool {
        self.has_image_begun
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// If events end without a final image, an image may have been made.
    fn finish_body(&mut self, form: AnswerForm) -> Result<(), RelayError> {
        if form == AnswerForm::Json { Ok(()) } else { Err(RelayError::Incomplete) }
    }

    fn finish(&mut self) -> Bytes {
        if self.requested.stream {
            // The members of a JSON answer, except for its images, belong to its only event.
            self.item.members.append(&mut self.members);
            self.write_frame_end(None);
        } else if !self.requested.is_single_element {
            let first = self.delivered.first().copied().flatten();
            let mut members = answer_members::answer_members(&self.requested, &self.members, first);
            answer_members::state_other_format(&mut members, &self.members, self.first_other_content);
            members.extend(undocumented_members::from_answer(&self.members));
            write_end(&mut self.pending_text, &members);
        }
        Bytes::from(std::mem::take(&mut self.pending_text))
    }

    /// A frame that has begun becomes an error event: its data gets the members of the error, and its name a second
    /// `event:` line, of which readers use the last. A separate error event follows for clients that read only the last
    /// event.
    fn finish_with_error(&mut self, error: &str, _: Option<String>) -> Option<Bytes> {
        if !self.requested.stream {
            return None;
        }
        let mut text = Vec::new();
        // The closing quote of an image may still wait for the members after it.
        let pending = std::mem::take(&mut self.pending_text);
        if self.item.has_begun {
            if !self.item.has_ended || pending.starts_with(b"\"") {
                text.extend_from_slice(spoil_base64(self.item.base64_length).as_bytes());
            }
            text.extend_from_slice(if self.item.has_ended { &pending } else { b"\"" });
            text.extend_from_slice(format!(",{}\nevent: error\n\n", &error[1..]).as_bytes());
        }
        text.extend_from_slice(format!("event: error\ndata: {error}\n\n").as_bytes());
        Some(Bytes::from(text))
    }

    /// Between frames, a comment. Between an image and the members after it, which may come minutes later: the closing
    /// quote of the image, or white space.
    fn heartbeat(&mut self, _: AnswerForm) -> Option<Bytes> {
        match (self.requested.stream, self.item.has_begun, self.item.has_ended) {
            (true, false, _) => Some(Bytes::from_static(HEARTBEAT)),
            (true, true, true) => {
                self.pending_text.push(b' ');
                Some(Bytes::from(std::mem::take(&mut self.pending_text)))
            }
            _ => None,
        }
    }

    fn first_image(&self) -> (Option<ImageProperties>, bool) {
        let properties = self.first_properties.or(self.item.probe.properties);
        (properties, properties.is_none() && self.item.probe.may_find_properties())
    }

    fn other_content(&self) -> Option<OtherContent> {
        self.first_other_content.or(self.item.probe.other_content.filter(|_| self.delivered.is_empty()))
    }

    fn summary(&self) -> AnswerSummary {
        // The members of the final event stay in its item until the stream ends.
        let item = (self.requested.stream && !self.delivered.is_empty()).then_some(&self.item.members);
        let members = || item.into_iter().chain([&self.members]);
        let quality = members().find_map(answer_members::quality).map(str::to_owned);
        let to_image = |properties| DeliveredImage { properties, quality: quality.clone() };
        AnswerSummary {
            delivered: self.delivered.iter().copied().map(to_image).collect(),
            other_content: self.other_content(),
            usage: answer_usage::usage_from_answer(&members().collect::<Vec<_>>()),
            image_model: members().find_map(answer_members::model_name).map(str::to_owned),
            element_members: if self.requested.is_single_element { self.members.clone() } else { Map::new() },
            ..AnswerSummary::default()
        }
    }

    /// If events end without a final image and without a reason, an image may have been made.
    fn without_image(&self, form: AnswerForm) -> Option<AnswerWithoutImage> {
        let members = match &self.without_image {
            Some(members) => members,
            None if form == AnswerForm::Json => &self.members,
            None => return None,
        };
        let usage = answer_usage::usage_from_answer(&[members]);
        let has_image_substitute = self.has_image_substitute;
        Some(AnswerWithoutImage { members: members.clone(), has_image_substitute, usage, addresses: Vec::new() })
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
    // A map of values does not fail to be serialized.
    let json = escape_line_ends(serde_json::to_string(members).unwrap_or_default());
    let without_braces = json.strip_prefix('{').and_then(|json| json.strip_suffix('}'));
    if let Some(written) = without_braces.filter(|written| !written.is_empty()) {
        out.push(b',');
        out.extend_from_slice(written.as_bytes());
    }
}
