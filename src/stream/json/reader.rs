//! The reader of one JSON object, which names each value by its path.

use super::capture::Capture;
use super::{
    CaptureLimits, JsonPosition, JsonSyntaxError, JsonToken, JsonTokenizer, JsonVisitor, ValueInterest, is_blank,
};

/// The greatest depth of a path. No visitor wants a deeper value: the deepest is the address in
/// `choices[].message.images[].image_url.url`.
pub(crate) const PATH_DEPTH: usize = 7;

/// The reader of one JSON object. The next object needs a new reader.
#[derive(Debug)]
pub(crate) struct JsonReader {
    tokens: JsonTokenizer,
    /// The open objects and arrays that are visited, outermost first.
    levels: Vec<Level>,
    path: String,
    /// False for an element of an array, and at the end of an object or array.
    has_key: bool,
    current: CurrentValue,
    captured_total: u64,
    limits: CaptureLimits,
}

/// The value that has begun last and not ended.
#[derive(Debug)]
enum CurrentValue {
    /// An object or array whose values are visited.
    Visited,
    /// A text that the visitor receives.
    Text,
    Captured(Capture),
    Skipped {
        is_container: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Level {
    is_array: bool,
    /// The length of the path of this object or array.
    path: usize,
}

// === impl JsonReader ===

impl JsonReader {
    /// Makes a reader for an object whose path is `path`. The paths of its members begin with `path`, or with their own
    /// keys if `path` is empty.
    pub(crate) fn new(path: &str, limits: CaptureLimits) -> Self {
        Self {
            tokens: JsonTokenizer::default(),
            levels: Vec::new(),
            path: path.to_owned(),
            has_key: false,
            current: CurrentValue::Visited,
            captured_total: 0,
            limits,
        }
    }

    /// True if the object is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.tokens.is_done()
    }

    /// Returns an error if the input ends before the object is complete.
    pub(crate) fn finish(&self) -> Result<(), JsonSyntaxError> {
        if self.is_done() { Ok(()) } else { Err(JsonSyntaxError::Truncated) }
    }

    /// The number of bytes captured so far.
    pub(crate) const fn captured_total(&self) -> u64 {
        self.captured_total
    }

    /// Reads the next piece. Bytes of it that follow the end of the object may only be white space.
    pub(crate) fn push_last<V: JsonVisitor>(&mut self, piece: &[u8], visitor: &mut V) -> Result<(), V::Error> {
        let read = self.push(piece, visitor)?;
        if is_blank(&piece[read..]) { Ok(()) } else { Err(JsonSyntaxError::Surplus.into()) }
    }

    /// Reads the next piece up to the end of the object, and returns the number of bytes read.
    pub(crate) fn push<V: JsonVisitor>(&mut self, piece: &[u8], visitor: &mut V) -> Result<usize, V::Error> {
        let mut at = 0;
        loop {
            let (length, token) = match self.tokens.next(&piece[at..]) {
                Ok(step) => step,
                Err(_) if self.levels.is_empty() => return Err(JsonSyntaxError::NotAnObject.into()),
                Err(error) => return Err(error.into()),
            };
            let bytes = &piece[at..at + length];
            at += length;
            match token {
                Some(JsonToken::Start(first)) => self.start_value(first, bytes, visitor)?,
                Some(JsonToken::Key) => self.enter_member(),
                Some(JsonToken::Text) => visitor.text(self.position(), bytes)?,
                Some(JsonToken::Escaped(unit)) => visitor.escaped(self.position(), unit)?,
                Some(JsonToken::Raw) => self.extend_capture(bytes, visitor)?,
                Some(JsonToken::End) => self.end_value(visitor)?,
                None if length == 0 => return Ok(at),
                None => {}
            }
        }
    }

    /// Returns the text that, followed by `}`, completes an object that breaks off in the middle of a wanted text.
    /// Returns `None` if it breaks off anywhere else, also within an escape of such a text.
    pub(crate) fn closing_text(&self) -> Option<String> {
        if !self.tokens.is_in_text() {
            return None;
        }
        let mut text = "\"".to_owned();
        text.extend(self.levels.iter().skip(1).rev().map(|level| if level.is_array { ']' } else { '}' }));
        Some(text)
    }

    fn position(&self) -> JsonPosition<'_> {
        let key = if self.has_key { self.tokens.key() } else { "" };
        JsonPosition { path: &self.path, key, depth: self.levels.len() }
    }

    /// Sets the path of a member after its key.
    fn enter_member(&mut self) {
        let key = self.tokens.key();
        self.has_key = true;
        self.path.truncate(self.levels.last().map_or(0, |level| level.path));
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(if key.contains(['.', '[', ']']) { "?" } else { key });
    }

    /// Decides on a value that begins with these bytes.
    fn start_value<V: JsonVisitor>(&mut self, first: u8, bytes: &[u8], visitor: &mut V) -> Result<(), V::Error> {
        let is_container = matches!(first, b'{' | b'[');
        let Some(level) = self.levels.last() else {
            if first != b'{' {
                return Err(JsonSyntaxError::NotAnObject.into());
            }
            visitor.begin()?;
            self.open(first);
            return Ok(());
        };
        if level.is_array {
            self.path.truncate(level.path);
            self.path.push_str("[]");
            self.has_key = false;
        }
        let interest = visitor.start(self.position(), first)?;
        self.current = match interest {
            ValueInterest::Value | ValueInterest::Optional | ValueInterest::Scalar => {
                CurrentValue::Captured(Capture { interest, bytes: Vec::new(), is_dropped: false })
            }
            ValueInterest::Text if first == b'"' => CurrentValue::Text,
            _ if is_container && self.levels.len() < PATH_DEPTH => {
                self.open(first);
                CurrentValue::Visited
            }
            _ => CurrentValue::Skipped { is_container },
        };
        if matches!(self.current, CurrentValue::Captured(_) | CurrentValue::Skipped { .. }) {
            self.tokens.skip_value();
        }
        self.extend_capture(bytes, visitor)
    }

    fn open(&mut self, bracket: u8) {
        self.levels.push(Level { is_array: bracket == b'[', path: self.path.len() });
    }

    fn end_value<V: JsonVisitor>(&mut self, visitor: &mut V) -> Result<(), V::Error> {
        match std::mem::replace(&mut self.current, CurrentValue::Visited) {
            CurrentValue::Captured(capture) => visitor.value(self.position(), capture.parse()?),
            CurrentValue::Text => visitor.text_end(self.position()),
            CurrentValue::Skipped { is_container: false } => Ok(()),
            CurrentValue::Skipped { is_container: true } => {
                self.has_key = false;
                visitor.end(self.position())
            }
            CurrentValue::Visited => {
                self.path.truncate(self.levels.pop().map_or(0, |level| level.path));
                self.has_key = false;
                visitor.end(self.position())
            }
        }
    }

    fn extend_capture<V: JsonVisitor>(&mut self, bytes: &[u8], visitor: &mut V) -> Result<(), V::Error> {
        let CurrentValue::Captured(capture) = &mut self.current else { return Ok(()) };
        if capture.is_dropped {
            return Ok(());
        }
        let length = bytes.len() as u64;
        let exceeds_total = length > self.limits.total - self.captured_total;
        if exceeds_total || length > self.limits.value - capture.bytes.len() as u64 {
            capture.is_dropped = true;
            self.captured_total -= std::mem::take(&mut capture.bytes).len() as u64;
            return if exceeds_total { visitor.exceeded() } else { Ok(()) };
        }
        capture.bytes.extend_from_slice(bytes);
        self.captured_total += length;
        Ok(())
    }
}
