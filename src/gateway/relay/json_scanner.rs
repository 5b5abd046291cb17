//! A push scanner for JSON of any shape: it names each value by its path, and keeps only the wanted ones.
//!
//! A long text that is not wanted costs one search for its end. Wanted values are small and captured whole, up to a
//! bound; of an image text, the pieces themselves are handed on to be read.

use memchr::memchr2;
use serde_json::Value;

use crate::gateway::relay::lexer::{AnswerSyntaxError, parse_captured};

/// The largest value that is kept. Of a larger one only the path is known.
const CAPTURE_MAX: usize = 64 * 1024;
/// The greatest depth, as for the other parsers of the crate.
const DEPTH_MAX: usize = 128;
/// The greatest depth of a path. No wanted value is deeper.
const PATH_DEPTH: usize = 5;
/// The length at which a key is cut. No wanted key has this length or more.
pub(super) const KEY_MAX: usize = 64;

/// The part of a value that a visitor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueInterest {
    Nothing,
    /// All of the value.
    Value,
    /// All of the value if it can be read. An unreadable value is left out.
    Optional,
    /// The bytes of the value, if it is a text: it is an image.
    Image,
}

/// Receives the wanted values. A path is `response.output[].result`.
pub(super) trait JsonVisitor {
    fn interest_in(&self, path: &str) -> ValueInterest;
    fn value(&mut self, path: &str, value: Value);
    /// Receives a piece of an image: at least one byte, and a slice of the piece that was pushed.
    fn image(&mut self, path: &str, base64: &[u8]);
    fn image_end(&mut self, path: &str);
    /// Notes that an image contains characters that base64 does not have.
    fn invalid_base64(&mut self) {}
    /// Ends an object or array.
    fn container_end(&mut self, path: &str) {
        let _ = path;
    }
}

/// The scanner. Each value needs its own.
#[derive(Debug)]
pub(super) struct JsonScanner {
    state: JsonScannerState,
    /// The open levels, outermost first.
    stack: Vec<JsonScannerLevel>,
    path: String,
    key: Vec<u8>,
    capture: Option<JsonScannerCapture>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonScannerState {
    /// Before a value.
    Value,
    /// After `{`: a key or the end. After a comma: a key.
    Key { first: bool },
    /// Inside a key.
    InKey { escaped: bool },
    /// Between a key and its colon.
    Colon,
    /// After `[`: a value or the end.
    Element,
    /// Inside a text.
    Text { image: bool, escaped: bool },
    /// Inside a number or word.
    Literal,
    /// After a value: a comma or an end.
    After,
    /// After the outermost value.
    Done,
}

#[derive(Clone, Copy, Debug)]
struct JsonScannerLevel {
    array: bool,
    /// The length of its own path.
    path: usize,
}

#[derive(Debug)]
struct JsonScannerCapture {
    /// The number of levels that were open when it began.
    depth: usize,
    /// True if the value may be unreadable without an error.
    optional: bool,
    bytes: Vec<u8>,
    dropped: bool,
}

// === impl JsonScanner ===

impl JsonScanner {
    /// Makes a scanner for an object whose members have their own names as paths.
    pub(super) fn new() -> Self {
        Self::at_path("")
    }

    /// Makes a scanner for an object at this path.
    pub(super) fn at_path(path: &str) -> Self {
        Self {
            state: JsonScannerState::Value,
            stack: Vec::new(),
            path: path.to_owned(),
            key: Vec::new(),
            capture: None,
        }
    }

    /// True if the value is complete.
    pub(super) fn is_done(&self) -> bool {
        self.state == JsonScannerState::Done
    }

    /// Reads the character after a backslash.
    fn read_escaped(&mut self, byte: &[u8], image: bool, visitor: &mut impl JsonVisitor) {
        self.extend_capture(byte);
        // `\/` is the one escape that base64 can carry.
        match byte {
            b"/" if image => visitor.image(&self.path, byte),
            _ if image => visitor.invalid_base64(),
            _ => {}
        }
        self.state = JsonScannerState::Text { image, escaped: false };
    }

    /// Continues to read. Stops after the end of the value, and returns the number of bytes read.
    pub(super) fn push(&mut self, piece: &[u8], visitor: &mut impl JsonVisitor) -> Result<usize, AnswerSyntaxError> {
        let mut at = 0;
        while at < piece.len() && self.state != JsonScannerState::Done {
            at += match self.state {
                JsonScannerState::Text { image, escaped: false } => self.read_text(&piece[at..], image, visitor)?,
                JsonScannerState::Text { image, escaped: true } => {
                    self.read_escaped(&piece[at..=at], image, visitor);
                    1
                }
                JsonScannerState::InKey { escaped } => {
                    self.read_key_byte(piece[at], escaped)?;
                    1
                }
                JsonScannerState::Literal if is_literal_byte(piece[at]) => {
                    self.extend_capture(&piece[at..=at]);
                    1
                }
                JsonScannerState::Literal => {
                    // This byte is read again as the start of the next part.
                    self.end_value(visitor)?;
                    0
                }
                _ => {
                    self.read_structure(piece[at], visitor)?;
                    1
                }
            };
        }
        Ok(at)
    }

    /// Returns the text that completes an object that ends in the middle of an image, except for its last brace.
    pub(super) fn closing_text(&self) -> Option<String> {
        if self.state != (JsonScannerState::Text { image: true, escaped: false }) {
            return None;
        }
        let mut text = "\"".to_owned();
        text.extend(self.stack.iter().skip(1).rev().map(|level| if level.array { ']' } else { '}' }));
        Some(text)
    }

    fn read_text(
        &mut self,
        rest: &[u8],
        image: bool,
        visitor: &mut impl JsonVisitor,
    ) -> Result<usize, AnswerSyntaxError> {
        let end = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        if image && end > 0 {
            visitor.image(&self.path, &rest[..end]);
        }
        let Some(mark) = rest.get(end) else {
            self.extend_capture(rest);
            return Ok(end);
        };
        self.extend_capture(&rest[..=end]);
        if *mark == b'\\' {
            self.state = JsonScannerState::Text { image, escaped: true };
        } else {
            if image {
                visitor.image_end(&self.path);
            }
            self.end_value(visitor)?;
        }
        Ok(end + 1)
    }

    fn read_key_byte(&mut self, byte: u8, escaped: bool) -> Result<(), AnswerSyntaxError> {
        self.extend_capture(&[byte]);
        if self.key.len() < KEY_MAX {
            self.key.push(byte);
        }
        self.state = match (escaped, byte) {
            (false, b'"') => {
                self.push_member_path();
                JsonScannerState::Colon
            }
            (false, b'\\') => JsonScannerState::InKey { escaped: true },
            (_, b'\r' | b'\n') => return Err(AnswerSyntaxError::Value),
            _ => JsonScannerState::InKey { escaped: false },
        };
        Ok(())
    }

    /// Sets the path of the member whose key has just ended.
    fn push_member_path(&mut self) {
        self.path.truncate(self.stack.last().map_or(0, |level| level.path));
        if self.stack.len() <= PATH_DEPTH {
            let key = self.key.strip_suffix(b"\"").unwrap_or(&self.key);
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(std::str::from_utf8(key).unwrap_or("?"));
        }
    }

    /// Reads white space, punctuation and the first byte of values.
    fn read_structure(&mut self, byte: u8, visitor: &mut impl JsonVisitor) -> Result<(), AnswerSyntaxError> {
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            return Ok(());
        }
        let array = self.stack.last().is_some_and(|level| level.array);
        match (self.state, byte) {
            (JsonScannerState::Key { .. }, b'"') => {
                self.extend_capture(&[byte]);
                self.key.clear();
                self.state = JsonScannerState::InKey { escaped: false };
            }
            (JsonScannerState::Colon, b':') => self.set_state(byte, JsonScannerState::Value),
            (JsonScannerState::After, b',') => {
                self.set_state(
                    byte,
                    if array { JsonScannerState::Value } else { JsonScannerState::Key { first: false } },
                );
            }
            (JsonScannerState::After, b']') if array => self.close_container(byte, visitor)?,
            (JsonScannerState::Element, b']') => self.close_container(byte, visitor)?,
            (JsonScannerState::After, b'}') if !array => self.close_container(byte, visitor)?,
            (JsonScannerState::Key { first: true }, b'}') => self.close_container(byte, visitor)?,
            (JsonScannerState::Value | JsonScannerState::Element, _) => self.start_value(byte, visitor)?,
            _ => return Err(AnswerSyntaxError::Unexpected(byte)),
        }
        Ok(())
    }

    fn set_state(&mut self, byte: u8, state: JsonScannerState) {
        self.extend_capture(&[byte]);
        self.state = state;
    }

    /// Reads the first byte of a value.
    fn start_value(&mut self, byte: u8, visitor: &impl JsonVisitor) -> Result<(), AnswerSyntaxError> {
        if self.stack.is_empty() && byte != b'{' {
            return Err(AnswerSyntaxError::NotAnObject);
        }
        if self.stack.last().is_some_and(|level| level.array) && self.stack.len() <= PATH_DEPTH {
            self.path.truncate(self.stack.last().map_or(0, |level| level.path));
            self.path.push_str("[]");
        }
        let known = !self.stack.is_empty() && self.stack.len() <= PATH_DEPTH && self.capture.is_none();
        let want = if known { visitor.interest_in(&self.path) } else { ValueInterest::Nothing };
        if matches!(want, ValueInterest::Value | ValueInterest::Optional) {
            let (depth, optional) = (self.stack.len(), want == ValueInterest::Optional);
            self.capture = Some(JsonScannerCapture { depth, optional, bytes: Vec::new(), dropped: false });
        }
        self.extend_capture(&[byte]);
        self.state = match byte {
            b'{' | b'[' if self.stack.len() == DEPTH_MAX => return Err(AnswerSyntaxError::Value),
            b'{' | b'[' => {
                self.stack.push(JsonScannerLevel { array: byte == b'[', path: self.path.len() });
                if byte == b'[' { JsonScannerState::Element } else { JsonScannerState::Key { first: true } }
            }
            b'"' => JsonScannerState::Text { image: want == ValueInterest::Image, escaped: false },
            _ if is_literal_byte(byte) => JsonScannerState::Literal,
            _ => return Err(AnswerSyntaxError::Unexpected(byte)),
        };
        Ok(())
    }

    /// Ends an object or array.
    fn close_container(&mut self, byte: u8, visitor: &mut impl JsonVisitor) -> Result<(), AnswerSyntaxError> {
        self.extend_capture(&[byte]);
        if let Some(level) = self.stack.pop() {
            self.path.truncate(level.path);
        }
        visitor.container_end(&self.path);
        self.end_value(visitor)
    }

    /// Ends a value.
    fn end_value(&mut self, visitor: &mut impl JsonVisitor) -> Result<(), AnswerSyntaxError> {
        if let Some(capture) = self.capture.take_if(|capture| capture.depth == self.stack.len())
            && !capture.dropped
        {
            let value = parse_captured(&capture.bytes)
                .or_else(|malformed| if capture.optional { Ok(None) } else { Err(malformed) })?;
            value.into_iter().for_each(|value| visitor.value(&self.path, value));
        }
        self.state = if self.stack.is_empty() { JsonScannerState::Done } else { JsonScannerState::After };
        Ok(())
    }

    fn extend_capture(&mut self, bytes: &[u8]) {
        let Some(capture) = &mut self.capture else { return };
        capture.dropped |= capture.bytes.len() + bytes.len() > CAPTURE_MAX;
        if !capture.dropped {
            capture.bytes.extend_from_slice(bytes);
        }
    }
}

/// True for bytes of numbers and of `true`, `false` and `null`.
const fn is_literal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct VisitLog {
        lines: Vec<String>,
        image: String,
    }

    impl JsonVisitor for VisitLog {
        fn interest_in(&self, path: &str) -> ValueInterest {
            match path.rsplit('.').next() {
                Some("image") => ValueInterest::Image,
                Some("usage" | "type" | "list[]") => ValueInterest::Value,
                Some("other") => ValueInterest::Optional,
                _ => ValueInterest::Nothing,
            }
        }
        fn value(&mut self, path: &str, value: Value) {
            self.lines.push(format!("{path}={value}"));
        }
        fn image(&mut self, _: &str, base64: &[u8]) {
            assert!(!base64.is_empty());
            self.image.push_str(std::str::from_utf8(base64).expect("text"));
        }
        fn image_end(&mut self, path: &str) {
            let image = std::mem::take(&mut self.image);
            self.lines.push(format!("{path}:{image}"));
        }
    }

    fn read(text: &str, cut: usize) -> Result<(Vec<String>, bool), AnswerSyntaxError> {
        let (mut scan, mut notes) = (JsonScanner::new(), VisitLog::default());
        for piece in text.as_bytes().chunks(cut) {
            if scan.push(piece, &mut notes)? < piece.len() {
                return Err(AnswerSyntaxError::Surplus);
            }
        }
        Ok((notes.lines, scan.is_done()))
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for cut in [1, 2, 3, 7, 4096] {
            let (lines, done) = read(text, cut).expect(text);
            assert_eq!(lines, expected, "cut into {cut}: {text}");
            assert!(done, "{text}");
        }
    }

    #[test]
    fn what_is_wanted_is_found_by_its_path() {
        check(
            r#"{"type":"a","x":{"type":"b","usage":{"n":[1,{"type":"no"}]}}}"#,
            &["type=\"a\"", "x.type=\"b\"", "x.usage={\"n\":[1,{\"type\":\"no\"}]}"],
        );
        check(
            r#"{"out":[{"image":"AAAA","type":1},null,[{"image":"BB\/B"}],{"image":null}],"z":-1.5e3}"#,
            &["out[].image:AAAA", "out[].type=1", "out[][].image:BB/B"],
        );
        check(
            r#"{ "list" : [ 1 , "a]}" , {"b":"\"}"} ] , "usage" : null }"#,
            &["list[]=1", "list[]=\"a]}\"", r#"list[]={"b":"\"}"}"#, "usage=null"],
        );
        check(r#"{"a\"type":1,"q":{"":{"type":2}},"e":{},"f":[],"usage":[]}"#, &["q..type=2", "usage=[]"]);
    }

    #[test]
    fn what_lies_too_deep_has_no_path_and_what_is_too_large_is_dropped() {
        check(r#"{"a":{"b":{"c":{"d":{"e":{"type":1}}}}},"type":2}"#, &["type=2"]);
        let large = format!(r#"{{"usage":"{}","type":1}}"#, "x".repeat(CAPTURE_MAX));
        check(&large, &["type=1"]);
    }

    #[test]
    fn a_value_that_cannot_be_read_is_left_out_where_nobody_depends_on_it() {
        for value in ["NaN", "1e999", "{\"a\":NaN}", "\"\\ud800\"", "-"] {
            check(&format!(r#"{{"other":{value},"type":1}}"#), &["type=1"]);
        }
        check(r#"{"other":{"a":[1]},"usage":1e999,"type":1}"#, &[r#"other={"a":[1]}"#, "type=1"]);
    }

    #[test]
    fn what_is_no_json_is_not_read_on() {
        for text in [
            "[]",
            "1",
            r#"{"a":1,}"#,
            r#"{"a" 1}"#,
            r#"{"a":1]"#,
            r#"{"a":[1}"#,
            r#"{,}"#,
            r#"{"a":}"#,
            "{}x",
            r#"{"usage":tru}"#,
        ] {
            assert!(read(text, 1).is_err(), "{text}");
        }
        assert!(read(&r#"{"a":"#.repeat(200), 64).is_err(), "too deep");
        assert!(!read(r#"{"a":"b"#, 3).expect("so far").1);
    }

    #[test]
    fn an_object_that_ends_within_an_image_can_be_made_whole() {
        let mut scan = JsonScanner::new();
        let begun = r#"{"type":"t","out":[1,{"image":"AAAA"#;
        scan.push(begun.as_bytes(), &mut VisitLog::default()).expect("so far");
        let whole = format!("{begun}{}}}", scan.closing_text().expect("in an image"));
        assert!(serde_json::from_str::<Value>(&whole).is_ok(), "{whole}");
        let mut scan = JsonScanner::new();
        scan.push(br#"{"type":"t"#, &mut VisitLog::default()).expect("so far");
        assert_eq!(scan.closing_text(), None);
    }
}
