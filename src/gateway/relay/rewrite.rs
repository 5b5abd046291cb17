//! The upstream's answer becomes the answer of the contract while it passes.
//!
//! Images go out as the very bytes that came in; everything around them is small and is written anew at the end, so
//! that missing fields are there, `auto` is resolved, and nothing goes out that the caller did not ask for. Nothing at
//! all is written before the first image has begun: until then the answer can still become an error.
//! It carries the response table of the specification.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::fill::{self, Asked, Usage};
use super::lexer::Sink;
use crate::image::{Facts, probe};

/// So much base64 is looked at to find size and format; a JPEG can carry kilobytes before it tells.
const HEAD_BASE64: usize = 16 * 1024;
/// Most files tell within this much.
const HEAD_FIRST: usize = 64;

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
    delivered: Vec<Option<Facts>>,
}

/// The element of `data` that is being read.
#[derive(Debug, Default)]
struct Item {
    members: Map<String, Value>,
    head: Vec<u8>,
    facts: Option<Facts>,
    begun: bool,
    ended: bool,
}

/// What an answer held, once it is complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// Each image passed on; `None` where its head did not tell.
    pub(crate) delivered: Vec<Option<Facts>>,
    /// The token counts, where the upstream reported any that can be read.
    pub(crate) usage: Option<Usage>,
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
            delivered: Vec::new(),
        }
    }

    /// Whether a first image has begun.
    pub(super) fn proven(&self) -> bool {
        !self.delivered.is_empty() || self.item.begun
    }

    /// The pieces that can go out now.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.ready)
    }

    /// The members of the answer, where no image was in it.
    pub(super) fn members(&self) -> &Map<String, Value> {
        &self.members
    }

    /// The end of the answer: closes the images and writes every member.
    pub(super) fn finish(&mut self) -> Bytes {
        let facts = self.delivered.first().copied().flatten();
        let mut tail = std::mem::take(&mut self.text);
        tail.push(b']');
        let members = fill::members(&self.asked, std::mem::take(&mut self.members), facts);
        write_members(&mut tail, &members);
        tail.push(b'}');
        Bytes::from(tail)
    }

    /// What the answer held so far.
    pub(super) fn summary(&self) -> Summary {
        Summary { delivered: self.delivered.clone(), usage: self.members.get("usage").and_then(fill::usage) }
    }

    /// More images than were asked for are not passed on.
    fn surplus(&self) -> bool {
        self.delivered.len() >= self.asked.count
    }

    fn look(&mut self, base64: &[u8]) {
        let item = &mut self.item;
        if item.facts.is_some() || item.head.len() >= HEAD_BASE64 {
            return;
        }
        let room = HEAD_BASE64 - item.head.len();
        let before = item.head.len();
        item.head.extend_from_slice(&base64[..base64.len().min(room)]);
        // Looked at twice at most: when the usual head is there, and when no more will be kept.
        let crossed = |mark: usize| before < mark && item.head.len() >= mark;
        if crossed(HEAD_FIRST) || crossed(HEAD_BASE64) {
            item.facts = fill::facts(&item.head, probe);
        }
    }

    fn write(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
    }
}

impl Sink for Rewrite {
    fn member(&mut self, key: String, value: Value) {
        self.members.insert(key, value);
    }

    fn item_start(&mut self) {
        self.item = Item::default();
    }

    fn item_member(&mut self, key: String, value: Value) {
        self.item.members.insert(key, value);
    }

    fn image(&mut self, base64: Bytes) {
        if self.item.ended || self.surplus() {
            return;
        }
        if !self.item.begun {
            self.item.begun = true;
            let opening: &[u8] = if self.delivered.is_empty() { br#"{"data":["# } else { b"," };
            self.write(opening);
            self.write(br#"{"b64_json":""#);
        }
        self.look(&base64);
        if !self.text.is_empty() {
            self.ready.push(Bytes::from(std::mem::take(&mut self.text)));
        }
        self.ready.push(base64);
    }

    fn image_end(&mut self) {
        if !self.item.begun || self.item.ended {
            return;
        }
        self.item.ended = true;
        self.write(b"\"");
        if self.item.facts.is_none() {
            self.item.facts = fill::facts(&self.item.head, probe);
        }
    }

    fn item_end(&mut self) {
        if !self.item.begun {
            return;
        }
        let item = std::mem::take(&mut self.item);
        let members = fill::item_members(&self.asked, item.members);
        write_members(&mut self.text, &members);
        self.write(b"}");
        self.delivered.push(item.facts);
    }
}

/// Writes `,"key":value` for each member.
fn write_members(out: &mut Vec<u8>, members: &Map<String, Value>) {
    for (key, value) in members {
        out.push(b',');
        out.extend_from_slice(Value::from(key.as_str()).to_string().as_bytes());
        out.push(b':');
        out.extend_from_slice(value.to_string().as_bytes());
    }
}
