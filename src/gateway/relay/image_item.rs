//! One image on its way, from any kind of answer: its members, and the properties that its first bytes show.

use serde_json::{Map, Value};

use super::answer_members;
use crate::image::{ImageProperties, probe};

/// The most base64 that is searched for size and format; a JPEG can have kilobytes before them.
const HEAD_BASE64: usize = 16 * 1024;
/// The beginning in which most files state them.
const HEAD_FIRST: usize = 64;

/// An element of `data`, or an event.
#[derive(Debug, Default)]
pub(super) struct ImageItem {
    pub(super) members: Map<String, Value>,
    pub(super) properties: Option<ImageProperties>,
    /// True if some of its image has gone out.
    pub(super) begun: bool,
    /// True if its image is complete.
    pub(super) ended: bool,
    head: Vec<u8>,
    /// Set if the item is an event: the name outside its data.
    event: Option<Option<String>>,
}

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageItemKind {
    /// An intermediate image.
    Partial,
    /// A final image. An element of `data` is always one.
    Completed,
    /// The upstream has failed.
    Error,
    /// Another kind, which was not requested.
    Other,
    /// The item has not stated its kind yet.
    Unknown,
}

// === impl ImageItem ===

impl ImageItem {
    pub(super) fn new(event: Option<Option<String>>) -> Self {
        Self { event, ..Self::default() }
    }

    /// Sets the name that is outside the data, which may come after it.
    pub(super) fn set_event_name(&mut self, name: Option<String>) {
        self.event = Some(name);
    }

    pub(super) const fn is_event(&self) -> bool {
        self.event.is_some()
    }

    /// Returns the kind of the item, as far as it is known: the type in the data counts before the name outside it.
    pub(super) fn kind(&self) -> ImageItemKind {
        let Some(name) = &self.event else { return ImageItemKind::Completed };
        let kind = self.members.get("type").and_then(Value::as_str).or(name.as_deref()).unwrap_or_default();
        if kind.is_empty() && !self.members.contains_key("error") {
            return ImageItemKind::Unknown;
        }
        match kind.rsplit('.').next().unwrap_or_default() {
            "partial_image" => ImageItemKind::Partial,
            "completed" => ImageItemKind::Completed,
            // A response that failed, or was cut off by a filter, states so under another name.
            "error" | "failed" | "incomplete" => ImageItemKind::Error,
            _ if self.members.get("error").is_some_and(Value::is_object) => ImageItemKind::Error,
            _ => ImageItemKind::Other,
        }
    }

    /// Collects the beginning of the base64 that passes, and searches it for the properties.
    pub(super) fn probe_head(&mut self, base64: &[u8]) {
        if self.properties.is_some() || self.head.len() >= HEAD_BASE64 {
            return;
        }
        let (before, remaining) = (self.head.len(), HEAD_BASE64 - self.head.len());
        self.head.extend_from_slice(&base64[..base64.len().min(remaining)]);
        // Read at most twice: when the usual head is there, and when no more will be kept.
        let crossed = |mark: usize| before < mark && self.head.len() >= mark;
        if crossed(HEAD_FIRST) || crossed(HEAD_BASE64) {
            self.properties = answer_members::properties_from_base64(&self.head, probe);
        }
    }

    /// Ends the image, which is the last chance to find its properties.
    pub(super) fn finish_image(&mut self) {
        self.ended = true;
        if self.properties.is_none() {
            self.properties = answer_members::properties_from_base64(&self.head, probe);
        }
        self.head = Vec::new();
    }

    /// True if more bytes could still show the properties of the image.
    pub(super) fn may_find_properties(&self) -> bool {
        self.begun && !self.ended && self.properties.is_none() && self.head.len() < HEAD_BASE64
    }
}
