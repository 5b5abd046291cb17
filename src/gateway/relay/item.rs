//! One image on its way, whatever it came in: its members, and what its first bytes tell.

use serde_json::{Map, Value};

use super::fill;
use crate::image::{Facts, probe};

/// So much base64 is looked at to find size and format; a JPEG can carry kilobytes before it tells.
const HEAD_BASE64: usize = 16 * 1024;
/// Most files tell within this much.
const HEAD_FIRST: usize = 64;

/// An element of `data`, or an event.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) members: Map<String, Value>,
    pub(super) facts: Option<Facts>,
    /// Some of its image has gone out.
    pub(super) begun: bool,
    /// Its image is complete.
    pub(super) ended: bool,
    head: Vec<u8>,
    /// It is an event, with the name outside its data.
    event: Option<Option<String>>,
}

/// What an event says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An intermediate image.
    Partial,
    /// A final image. An element of `data` is always one.
    Completed,
    /// The upstream has failed.
    Error,
    /// Something that nobody asked for.
    Other,
    /// It has not said so yet.
    Unknown,
}

// === impl Item ===

impl Item {
    pub(super) fn new(event: Option<Option<String>>) -> Self {
        Self { event, ..Self::default() }
    }

    /// The name that stands outside the data, which may come after it.
    pub(super) fn call(&mut self, name: Option<String>) {
        self.event = Some(name);
    }

    pub(super) const fn is_event(&self) -> bool {
        self.event.is_some()
    }

    /// What it is, as far as has been read: the type in the data counts before the name outside it.
    pub(super) fn kind(&self) -> Kind {
        let Some(name) = &self.event else { return Kind::Completed };
        let kind = self.members.get("type").and_then(Value::as_str).or(name.as_deref()).unwrap_or_default();
        if kind.is_empty() && !self.members.contains_key("error") {
            return Kind::Unknown;
        }
        match kind.rsplit('.').next().unwrap_or_default() {
            "partial_image" => Kind::Partial,
            "completed" => Kind::Completed,
            // A response that failed, or was cut off by a filter, says so under another name.
            "error" | "failed" | "incomplete" => Kind::Error,
            _ if self.members.get("error").is_some_and(Value::is_object) => Kind::Error,
            _ => Kind::Other,
        }
    }

    /// Looks at base64 that passes by.
    pub(super) fn look(&mut self, base64: &[u8]) {
        if self.facts.is_some() || self.head.len() >= HEAD_BASE64 {
            return;
        }
        let (before, room) = (self.head.len(), HEAD_BASE64 - self.head.len());
        self.head.extend_from_slice(&base64[..base64.len().min(room)]);
        // Looked at twice at most: when the usual head is there, and when no more will be kept.
        let crossed = |mark: usize| before < mark && self.head.len() >= mark;
        if crossed(HEAD_FIRST) || crossed(HEAD_BASE64) {
            self.facts = fill::facts(&self.head, probe);
        }
    }

    /// The image is complete: the last chance to know what it is.
    pub(super) fn end(&mut self) {
        self.ended = true;
        if self.facts.is_none() {
            self.facts = fill::facts(&self.head, probe);
        }
        self.head = Vec::new();
    }

    /// Whether more bytes could still tell what the image is.
    pub(super) fn may_still_tell(&self) -> bool {
        self.begun && !self.ended && self.facts.is_none() && self.head.len() < HEAD_BASE64
    }
}
