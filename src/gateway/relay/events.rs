//! Turns the upstream's answer into the events of the contract while it passes.
//!
//! Each event has exactly two field lines, one line of JSON, and no end mark. At most the requested number of partial
//! images go out, numbered from 0, and exactly one final image. Other events are not passed on: official SDKs take any
//! event for an image. A plain JSON answer of an upstream is read too: its image becomes the final event.
//! It carries the event table of the specification.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::fill::{self, RequestedAnswer};
use super::item::{ImageItem, ImageItemKind};
use super::lexer::AnswerSink;
use super::rewrite::{AnswerSummary, DeliveredImage, write_members};
use super::unlisted;
use crate::image::ImageProperties;

/// A comment that keeps connections and proxies open; no client takes it for an event.
pub(crate) const HEARTBEAT: &[u8] = b": keep-alive\n\n";

/// Turns the content that the lexer finds into events.
#[derive(Debug)]
pub(super) struct SseAnswerWriter {
    asked: RequestedAnswer,
    ready: Vec<Bytes>,
    text: Vec<u8>,
    /// Members of a plain answer, which come before and after its image.
    members: Map<String, Value>,
    item: ImageItem,
    next_event: Option<Option<String>>,
    /// True if the name of the current frame has gone out before its data.
    named: bool,
    something: bool,
    partials: u32,
    /// The properties of the first image that began, partial or not.
    first: Option<ImageProperties>,
    begun: bool,
    /// The properties of the final image, once it is complete.
    done: Option<Option<ImageProperties>>,
    usage: Option<fill::AnswerUsage>,
    error: Option<Map<String, Value>>,
    /// The members of a final event without an image.
    blank: Option<Map<String, Value>>,
}

// === impl SseAnswerWriter ===

impl SseAnswerWriter {
    pub(super) fn new(asked: RequestedAnswer) -> Self {
        Self {
            asked,
            ready: Vec::new(),
            text: Vec::new(),
            members: Map::new(),
            item: ImageItem::default(),
            next_event: None,
            named: true,
            something: false,
            partials: 0,
            first: None,
            begun: false,
            done: None,
            usage: None,
            error: None,
            blank: None,
        }
    }

    /// True if a first image has begun.
    pub(super) const fn proven(&self) -> bool {
        self.begun
    }

    /// True if the final event is complete.
    pub(super) const fn complete(&self) -> bool {
        self.done.is_some() && self.item.is_event()
    }

    /// True if the upstream has stated that it failed.
    pub(super) const fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// True if an event has stated that there is no image.
    pub(super) const fn said(&self) -> bool {
        self.error.is_some() || self.blank.is_some()
    }

    /// Returns the properties of the first image, and true if more bytes could still show them.
    pub(super) fn first(&self) -> (Option<ImageProperties>, bool) {
        (self.first.or(self.item.facts), self.first.is_none() && self.item.may_still_tell())
    }

    /// True if there was another value in place of an image.
    pub(super) const fn something(&self) -> bool {
        self.something
    }

    /// Returns the pieces that can go out now.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.ready)
    }

    /// Returns the members that the upstream sent instead of an image.
    pub(super) fn members(&self) -> Map<String, Value> {
        self.error.as_ref().or(self.blank.as_ref()).unwrap_or(&self.members).clone()
    }

    /// Returns the rest of the final frame.
    pub(super) fn finish(&mut self) -> Bytes {
        let mut tail = std::mem::take(&mut self.text);
        let name = self.name();
        let mut item = std::mem::take(&mut self.item);
        // The members of a plain answer, except for its images, belong to its only event.
        item.members.extend(std::mem::take(&mut self.members));
        self.write_rest(&mut tail, item, &name, None);
        Bytes::from(tail)
    }

    /// Returns the content of the answer so far.
    pub(super) fn summary(&self) -> AnswerSummary {
        let name = |key| fill::name(&self.item.members, key).or_else(|| fill::name(&self.members, key));
        let quality = fill::quality(&self.item.members, "quality").or_else(|| fill::quality(&self.members, "quality"));
        let image = |facts| DeliveredImage { facts, quality: quality.map(str::to_owned) };
        AnswerSummary {
            delivered: self.done.map(image).into_iter().collect(),
            usage: self.usage.or_else(|| fill::of_answer(&self.members)),
            image_model: name("model").map(str::to_owned),
            ..AnswerSummary::default()
        }
    }

    /// Returns the bytes that go out if the answer breaks off: the frame that has begun becomes one that every client
    /// takes for an error, and a separate frame repeats it for clients that only read the last one.
    pub(super) fn break_off(&mut self, error: &str) -> Bytes {
        // The end of an image may still wait for the members after it.
        let mut text = std::mem::take(&mut self.text);
        if self.item.begun {
            if !self.item.ended {
                text.push(b'"');
            }
            // The members of the error, and its end: of the two types in the object the last one counts.
            text.extend_from_slice(format!(",{}\nevent: error\n\n", &error[1..]).as_bytes());
        }
        text.extend_from_slice(format!("event: error\ndata: {error}\n\n").as_bytes());
        Bytes::from(text)
    }

    /// True if a comment may be sent here: between frames, never within one.
    pub(super) const fn between_frames(&self) -> bool {
        !self.item.begun
    }

    fn passes(&self) -> bool {
        if self.item.ended || self.done.is_some() {
            return false;
        }
        match self.item.kind() {
            ImageItemKind::Partial => self.partials < self.asked.partials,
            ImageItemKind::Completed | ImageItemKind::Unknown => true,
            ImageItemKind::Error | ImageItemKind::Other => false,
        }
    }

    fn begin(&mut self) {
        self.item.begun = true;
        self.begun = true;
        // Without intermediate images, an event with an image can be of one type only.
        self.named = self.item.kind() != ImageItemKind::Unknown || self.asked.partials == 0;
        let opening = if self.named {
            let name = self.name();
            format!("event: {name}\ndata: {{\"type\":\"{name}\",\"b64_json\":\"")
        } else {
            // Its name goes out after its data, which has the same effect.
            "data: {\"b64_json\":\"".to_owned()
        };
        self.text.extend_from_slice(opening.as_bytes());
    }

    fn name(&self) -> String {
        let end = if self.item.kind() == ImageItemKind::Partial { "partial_image" } else { "completed" };
        format!("{}.{end}", self.asked.events)
    }

    /// Ends the frame of the current item, whose type is now known.
    fn end_frame(&mut self) {
        if self.item.kind() == ImageItemKind::Partial {
            let mut text = std::mem::take(&mut self.text);
            let name = self.name();
            let item = std::mem::take(&mut self.item);
            self.write_rest(&mut text, item, &name, Some(self.partials));
            self.ready.push(Bytes::from(text));
            self.partials += 1;
        } else {
            self.usage = fill::of_answer(&self.item.members);
            self.done = Some(self.item.facts);
        }
    }

    /// Writes every member after the image, and the end of the frame.
    fn write_rest(&self, out: &mut Vec<u8>, item: ImageItem, name: &str, index: Option<u32>) {
        let (found, facts) = (item.members, item.facts);
        let mut members = fill::event_members(&self.asked, &found, facts);
        members.extend(unlisted::of_answer(&found));
        if let Some(index) = index {
            members.remove("usage");
            members.insert("partial_image_index".to_owned(), json!(index));
        }
        if self.named {
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

    fn event(&mut self, name: Option<String>) {
        self.next_event = Some(name);
    }

    fn item_start(&mut self) {
        // The image of a plain answer waits for the members that come after it.
        if self.done.is_none() {
            self.item = ImageItem::new(self.next_event.take());
        }
    }

    fn item_member(&mut self, key: String, value: Value) {
        self.something |= fill::is_something(&key, &value);
        if self.done.is_none() {
            self.item.members.insert(key, value);
        }
    }

    fn item_unheld(&mut self, key: &str) {
        self.something |= fill::is_something(key, &Value::Bool(true));
    }

    fn image(&mut self, base64: Bytes) {
        if !self.passes() {
            return;
        }
        if !self.item.begun {
            self.begin();
        }
        self.item.look(&base64);
        if !self.text.is_empty() {
            self.ready.push(Bytes::from(std::mem::take(&mut self.text)));
        }
        self.ready.push(base64);
    }

    fn image_end(&mut self) {
        if self.item.begun && !self.item.ended {
            self.item.end();
            self.first = self.first.or(self.item.facts);
            self.text.push(b'"');
        }
    }

    fn item_end(&mut self) {
        if self.done.is_some() {
            return;
        }
        match (self.item.kind(), self.item.begun) {
            (ImageItemKind::Error, false) => self.error = Some(std::mem::take(&mut self.item.members)),
            (ImageItemKind::Partial | ImageItemKind::Completed, true) => self.end_frame(),
            (ImageItemKind::Completed, false) if self.item.is_event() => {
                let members = std::mem::take(&mut self.item.members);
                self.something |= !fill::says_why(&members);
                self.blank = Some(members);
            }
            _ => {}
        }
    }

    fn event_end(&mut self, name: Option<String>) {
        if self.done.is_none() && self.item.begun && self.item.kind() == ImageItemKind::Unknown {
            self.item.call(name);
            self.end_frame();
        }
    }
}
