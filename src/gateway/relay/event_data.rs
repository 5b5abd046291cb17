//! The data of one event: an object, which is read, or another value, such as the `[DONE]` at the end of other APIs'
//! streams.

use crate::stream::json::{CaptureLimits, JsonReader, JsonSyntaxError, JsonVisitor};

/// The data of the current event. It serves one event after the other.
#[derive(Debug)]
pub(super) struct EventData {
    kind: EventDataKind,
    reader: JsonReader,
    limits: CaptureLimits,
}

/// The type of the data so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventDataKind {
    /// Only white space has come.
    Unknown,
    Object,
    Other,
}

// === impl EventData ===

impl EventData {
    pub(super) fn new(limits: CaptureLimits) -> Self {
        Self { kind: EventDataKind::Unknown, reader: JsonReader::new("", limits), limits }
    }

    /// True if an object has begun.
    pub(super) fn is_object(&self) -> bool {
        self.kind == EventDataKind::Object
    }

    /// Decides the type of the data by its beginning. Returns true if an object begins here.
    pub(super) fn detect_object(&mut self, part: &[u8]) -> bool {
        let first = part.iter().find(|byte| !byte.is_ascii_whitespace());
        let Some(first) = first.filter(|_| self.kind == EventDataKind::Unknown) else { return false };
        self.kind = if *first == b'{' { EventDataKind::Object } else { EventDataKind::Other };
        self.is_object()
    }

    /// Reads the next part of the data.
    pub(super) fn push<V: JsonVisitor>(&mut self, part: &[u8], visitor: &mut V) -> Result<(), V::Error> {
        self.detect_object(part);
        if self.is_object() { self.reader.push_last(part, visitor) } else { Ok(()) }
    }

    /// Returns the text that completes an object that ends in the middle of a wanted text, except for its last brace.
    pub(super) fn closing_text(&self) -> Option<String> {
        self.reader.closing_text()
    }

    /// Ends the event. Returns true if it held an object, which must be complete.
    pub(super) fn finish(&mut self) -> Result<bool, JsonSyntaxError> {
        let Self { kind, reader, .. } = std::mem::replace(self, Self::new(self.limits));
        if kind == EventDataKind::Object { reader.finish().map(|()| true) } else { Ok(false) }
    }
}
