//! The upstream's answer becomes the JSON of the contract while it passes.
//!
//! Images go out as the very bytes that came in; everything around them is small and is written anew at the end, so
//! that missing fields are there, `auto` is resolved, and no image goes out that the caller did not ask for. Nothing at
//! all is written before the first image has begun: until then the answer can still become an error.
//! An upstream that sends events although none were asked for is read too: its final image becomes the answer.
//! It carries the response table of the specification.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::fill::{self, Asked, Usage};
use super::item::{Item, Kind};
use super::lexer::Sink;
use super::unlisted;
use crate::error::one_line;
use crate::image::Facts;

/// How an answer begins before its first image.
pub(super) const BEGIN: &[u8] = br#"{"data":["#;

/// Turns what the lexer finds into the pieces of the answer.
#[derive(Debug)]
pub(super) struct Rewrite {
    asked: Asked,
    /// Pieces that are ready to go out.
    ready: Vec<Bytes>,
    /// Text that goes out before the next image bytes.
    text: Vec<u8>,
    members: Map<String, Value>,
    item: Item,
    next_event: Option<Option<String>>,
    something: bool,
    /// An event has said that there is no image.
    said: bool,
    delivered: Vec<Option<Facts>>,
    complete: bool,
}

/// The content of an answer, once it is complete. A name is that of the upstream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// Each image passed on.
    pub(crate) delivered: Vec<DeliveredImage>,
    /// The token counts, where the upstream reported any that can be read.
    pub(crate) usage: Option<Usage>,
    /// The model that makes images.
    pub(crate) image_model: Option<String>,
    /// The text model beside it.
    pub(crate) host_model: Option<String>,
    /// The id of the response, if it has one.
    pub(crate) response_id: Option<String>,
}

/// An image that was passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeliveredImage {
    /// Its format and size, if its head named them.
    pub(crate) facts: Option<Facts>,
    /// The quality that the upstream names.
    pub(crate) quality: Option<String>,
}

// === impl Rewrite ===

impl Rewrite {
    pub(super) fn new(asked: Asked) -> Self {
        Self {
            asked,
            ready: Vec::new(),
            text: Vec::new(),
            members: Map::new(),
            item: Item::default(),
            next_event: None,
            something: false,
            said: false,
            delivered: Vec::new(),
            complete: false,
        }
    }

    /// Whether a first image has begun.
    pub(super) fn proven(&self) -> bool {
        !self.delivered.is_empty() || self.item.begun
    }

    /// Whether everything that was asked for is there, although the upstream has not ended.
    pub(super) const fn complete(&self) -> bool {
        self.complete
    }

    /// What the first image is, and whether more bytes could still tell.
    pub(super) fn first(&self) -> (Option<Facts>, bool) {
        match self.delivered.first() {
            Some(facts) => (*facts, false),
            None => (self.item.facts, self.item.may_still_tell()),
        }
    }

    /// Where an image should be there was something else.
    pub(super) const fn something(&self) -> bool {
        self.something
    }

    /// An event has said that there is no image.
    pub(super) const fn said(&self) -> bool {
        self.said
    }

    /// The pieces that can go out now.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.ready)
    }

    /// The members of the answer, where no image was in it.
    pub(super) const fn members(&self) -> &Map<String, Value> {
        &self.members
    }

    /// The same, for whoever writes them elsewhere.
    pub(super) fn take_members(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.members)
    }

    /// The end of the answer: closes the images and writes every member.
    pub(super) fn finish(&mut self) -> Bytes {
        let facts = self.delivered.first().copied().flatten();
        let mut tail = std::mem::take(&mut self.text);
        if !self.asked.part {
            let mut members = fill::members(&self.asked, &self.members, facts);
            members.extend(unlisted::of_answer(&self.members));
            write_end(&mut tail, &members);
        }
        Bytes::from(tail)
    }

    /// What the answer held so far.
    pub(super) fn summary(&self) -> Summary {
        let quality = fill::quality(&self.members, "quality").map(str::to_owned);
        let image = |facts| DeliveredImage { facts, quality: quality.clone() };
        Summary {
            delivered: self.delivered.iter().copied().map(image).collect(),
            usage: fill::of_answer(&self.members),
            image_model: fill::name(&self.members, "model").map(str::to_owned),
            host_model: None,
            // An answer of images has no id that a later request could continue from.
            response_id: None,
        }
    }

    /// More images than were asked for are not passed on, and of events only the final ones.
    fn passes(&self) -> bool {
        !self.item.ended && self.delivered.len() < self.asked.count
            // No intermediate images were asked for: an event that does not say what it is holds the final one.
            && matches!(self.item.kind(), Kind::Completed | Kind::Unknown)
    }

    fn write(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
    }

    /// What an event says of its image is what an answer says of all of them.
    fn take_event(&mut self) {
        let prompt = self.item.members.remove("revised_prompt");
        let members = std::mem::take(&mut self.item.members);
        self.members.extend(members);
        self.item.members.extend(prompt.map(|prompt| ("revised_prompt".to_owned(), prompt)));
    }
}

impl Sink for Rewrite {
    fn member(&mut self, key: String, value: Value) {
        self.members.insert(key, value);
    }

    fn event(&mut self, name: Option<String>) {
        self.next_event = Some(name);
    }

    fn item_start(&mut self) {
        self.item = Item::new(self.next_event.take());
    }

    fn item_member(&mut self, key: String, value: Value) {
        self.something |= fill::is_something(&key, &value);
        self.item.members.insert(key, value);
    }

    fn item_unheld(&mut self, key: &str) {
        self.something |= fill::is_something(key, &Value::Bool(true));
    }

    fn image(&mut self, base64: Bytes) {
        if !self.passes() {
            return;
        }
        if !self.item.begun {
            self.item.begun = true;
            let opening: &[u8] = match self.delivered.is_empty() {
                true if self.asked.part => b"",
                true => BEGIN,
                false => b",",
            };
            self.write(opening);
            self.write(br#"{"b64_json":""#);
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
            self.write(b"\"");
        }
    }

    fn item_end(&mut self) {
        if !self.item.begun {
            match self.item.kind() {
                kind @ (Kind::Error | Kind::Completed) if self.item.is_event() => {
                    self.something |= kind == Kind::Completed && !fill::says_why(&self.item.members);
                    self.take_event();
                    self.said = true;
                }
                // What an element says instead of holding an image may be why.
                Kind::Completed if !self.item.members.is_empty() => {
                    let said = std::mem::take(&mut self.item.members);
                    self.members.insert("data".to_owned(), Value::Array(vec![said.into()]));
                }
                _ => {}
            }
            return;
        }
        let event = self.item.is_event();
        // Of several answers that become one, each says something else of its own image.
        let own = (event && self.asked.part).then(|| unlisted::of_answer(&self.item.members));
        if event {
            self.take_event();
        }
        let item = std::mem::take(&mut self.item);
        let mut members = fill::item_members(&self.asked, &item.members);
        members.extend(own.unwrap_or_else(|| unlisted::of_image(&item.members)));
        write_members(&mut self.text, &members);
        self.text.push(b'}');
        self.delivered.push(item.facts);
        // In an answer the members that matter may come after the last image.
        self.complete = event && self.delivered.len() == self.asked.count;
    }
}

/// The end of an answer behind its images.
pub(super) fn write_end(out: &mut Vec<u8>, members: &Map<String, Value>) {
    out.push(b']');
    write_members(out, members);
    out.push(b'}');
}

/// Writes `,"key":value` for each member.
pub(super) fn write_members(out: &mut Vec<u8>, members: &Map<String, Value>) {
    for (key, value) in members {
        out.push(b',');
        out.extend_from_slice(one_line(Value::from(key.as_str()).to_string()).as_bytes());
        out.push(b':');
        out.extend_from_slice(one_line(value.to_string()).as_bytes());
    }
}
