//! One image during its relay: the JSON members beside it, and the properties that its first bytes state.

use serde_json::{Map, Value};

use super::answer_members;
use crate::image::{ImageProperties, OtherContent, has_known_format, other_content, probe};

/// The most characters of base64 that are searched for size and format (our choice): a JPEG can have kilobytes of other
/// segments before its size.
const HEAD_BASE64_MAX: usize = 16 * 1024;
/// The number of characters of base64 in which most files state size and format.
const HEAD_BASE64_USUAL: usize = 64;

/// Returns what follows the beginning of a base64 text, of this many characters, that breaks off: with it, the text is
/// base64 for no decoder. Strict decoders refuse the exclamation mark, and those that skip it refuse a text with one
/// character more than a multiple of four.
pub(super) const fn spoil_base64(length: usize) -> &'static str {
    match length % 4 {
        0 => "A!",
        1 => "!",
        2 => "AAA!",
        _ => "AA!",
    }
}

/// An element of `data` in a JSON answer, or an event.
#[derive(Debug, Default)]
pub(super) struct ImageItem {
    pub(super) members: Map<String, Value>,
    pub(super) probe: ImageProbe,
    /// True if a first piece of its image has been passed on.
    pub(super) has_begun: bool,
    /// True if its image is complete.
    pub(super) has_ended: bool,
    /// The number of characters of its image that have been passed on.
    pub(super) base64_length: usize,
    /// `None` if the item is an element of `data`. If it is an event: the value of the `event:` line, which may come
    /// after the data, or an empty text.
    pub(super) event_name: Option<String>,
}

/// Searches the first bytes of an image for its size and format.
#[derive(Debug, Default)]
pub(super) struct ImageProbe {
    pub(super) properties: Option<ImageProperties>,
    /// The content, if it is in none of the formats that a request can name.
    pub(super) other_content: Option<OtherContent>,
    base64_head: Vec<u8>,
    /// True if more bytes cannot state the properties: the image is complete, or its first bytes are of no known format.
    has_ended: bool,
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
    /// An event of a type that is not handled.
    Other,
    /// An event that has not stated its type, at least not yet.
    Unknown,
}

// === impl ImageItem ===

impl ImageItem {
    /// Returns the kind of the item, as far as it is known: `type` in the data has precedence over the `event:` line.
    pub(super) fn kind(&self) -> ImageItemKind {
        let Some(name) = &self.event_name else { return ImageItemKind::Completed };
        let kind = self.members.get("type").and_then(Value::as_str).unwrap_or(name);
        if kind.is_empty() && !self.members.contains_key("error") {
            return ImageItemKind::Unknown;
        }
        match kind.rsplit('.').next().unwrap_or_default() {
            "partial_image" => ImageItemKind::Partial,
            "completed" => ImageItemKind::Completed,
            // The Responses API reports a failure as `failed`, and a response that a filter cut off as `incomplete`.
            "error" | "failed" | "incomplete" => ImageItemKind::Error,
            _ if self.members.get("error").is_some_and(Value::is_object) => ImageItemKind::Error,
            _ => ImageItemKind::Other,
        }
    }
}

// === impl ImageProbe ===

impl ImageProbe {
    /// Collects the beginning of the image's base64 while it is relayed, and searches it for the properties.
    pub(super) fn add(&mut self, base64: &[u8]) {
        if self.properties.is_some() || self.has_ended || self.base64_head.len() >= HEAD_BASE64_MAX {
            return;
        }
        let (earlier_length, remaining) = (self.base64_head.len(), HEAD_BASE64_MAX - self.base64_head.len());
        self.base64_head.extend_from_slice(&base64[..base64.len().min(remaining)]);
        // The head is parsed when it reaches its usual length, its beginning first, and when it reaches its maximum.
        let crosses = |threshold: usize| earlier_length < threshold && self.base64_head.len() >= threshold;
        let (is_usual, is_max) = (crosses(HEAD_BASE64_USUAL), crosses(HEAD_BASE64_MAX));
        if is_usual {
            let beginning = answer_members::decode_base64_head(&self.base64_head[..HEAD_BASE64_USUAL]);
            self.other_content = beginning.as_deref().and_then(other_content);
            let Some(beginning) = beginning.filter(|bytes| has_known_format(bytes)) else { return self.end() };
            self.properties = probe(&beginning);
        }
        if self.properties.is_none() && (is_usual || is_max) {
            self.probe_head();
        }
    }

    /// Searches all of the collected head for the properties if they are still unknown: the image is complete.
    pub(super) fn finish(&mut self) {
        if !self.has_ended && self.properties.is_none() {
            self.probe_head();
        }
        self.end();
    }

    fn probe_head(&mut self) {
        let head = answer_members::decode_base64_head(&self.base64_head);
        self.properties = head.as_deref().and_then(probe);
        self.other_content = head.as_deref().and_then(other_content);
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.base64_head = Vec::new();
    }

    /// True if more bytes may still state the properties of the image.
    pub(super) fn may_find_properties(&self) -> bool {
        let is_receiving = !self.has_ended && !self.base64_head.is_empty();
        is_receiving && self.properties.is_none() && self.base64_head.len() < HEAD_BASE64_MAX
    }
}
