//! Parses text into the tree, with an explanation of the first error. The grammar is exactly that of RFC 8259, except
//! that the escape of an unpaired surrogate is an error.

use std::ops::Range;

use super::node::{JsonMember, JsonNode, JsonValue};

/// The limits for reading JSON.
#[derive(Clone, Copy, Debug)]
pub struct JsonLimits {
    /// The maximum size of the file, in bytes.
    pub bytes: usize,
    /// The maximum number of arrays and objects around a value.
    pub depth: usize,
}

/// The reason why a text cannot be read: it is not JSON, or exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// The error, and what was expected.
    pub message: String,
    /// The range of the error in the text.
    pub span: Range<usize>,
    /// Advice on how to fix the error, if it is known.
    pub help: Option<String>,
    /// The start of an array, object or string that contains the error; it need not be the innermost one.
    pub opened: Option<Range<usize>>,
    /// True if the text exceeds a limit.
    pub is_limit: bool,
}

impl Default for JsonLimits {
    /// Returns 64 MiB and 128 levels.
    fn default() -> Self {
        Self { bytes: 64 << 20, depth: 128 }
    }
}

/// Reads one value with only white space around it.
///
/// # Errors
///
/// Returns the first syntax error, or an error if a limit is exceeded.
pub fn read(text: &str, limits: JsonLimits) -> Result<JsonNode, SyntaxError> {
    if text.len() > limits.bytes {
        let message = format!("this is {} bytes long; at most {} are read", text.len(), limits.bytes);
        return Err(SyntaxError { message, span: 0..0, help: None, opened: None, is_limit: true });
    }
    let mut reader = JsonParser { text, position: 0, depth: 0, limits };
    reader.skip_space();
    let node = reader.value("a value")?;
    reader.skip_space();
    if reader.position < text.len() {
        let error = reader.unexpected("nothing after the value");
        return Err(error.with_help("a manifest is one JSON value"));
    }
    Ok(node)
}

struct JsonParser<'a> {
    text: &'a str,
    position: usize,
    depth: usize,
    limits: JsonLimits,
}

// === impl JsonParser ===

impl JsonParser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.position += 1;
        }
    }

    fn consume(&mut self, byte: u8) -> bool {
        let is_present = self.peek() == Some(byte);
        self.position += usize::from(is_present);
        is_present
    }

    fn value(&mut self, expected: &str) -> Result<JsonNode, SyntaxError> {
        let start = self.position;
        let value = match self.peek() {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => JsonValue::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => JsonValue::Number(self.number()?),
            _ => self.literal(expected)?,
        };
        Ok(JsonNode { span: start..self.position, value })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<JsonValue, SyntaxError>) -> Result<JsonValue, SyntaxError> {
        if self.depth == self.limits.depth {
            let message = format!("this is nested deeper than {} levels", self.limits.depth);
            let span = self.position..self.position + 1;
            return Err(SyntaxError { message, span, help: None, opened: None, is_limit: true });
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn array(&mut self) -> Result<JsonValue, SyntaxError> {
        let open = self.position;
        self.position += 1;
        let mut elements = Vec::new();
        self.skip_space();
        if self.consume(b']') {
            return Ok(JsonValue::Array(elements));
        }
        loop {
            elements.push(self.value("a value").map_err(|error| error.opened_at(open))?);
            if !self.has_next_element(open, b']')? {
                return Ok(JsonValue::Array(elements));
            }
        }
    }

    fn object(&mut self) -> Result<JsonValue, SyntaxError> {
        let open = self.position;
        self.position += 1;
        let mut members = Vec::new();
        self.skip_space();
        if self.consume(b'}') {
            return Ok(JsonValue::Object(members));
        }
        loop {
            members.push(self.member(open)?);
            if !self.has_next_element(open, b'}')? {
                return Ok(JsonValue::Object(members));
            }
        }
    }

    fn member(&mut self, open: usize) -> Result<JsonMember, SyntaxError> {
        if self.peek() != Some(b'"') {
            let error = self.unexpected("a key in double quotes").opened_at(open);
            return Err(match self.peek() {
                Some(b'/') => error.with_help("JSON has no comments"),
                Some(b'\'' | b'_' | b'a'..=b'z' | b'A'..=b'Z') => {
                    error.with_help("JSON requires keys in double quotes")
                }
                _ => error,
            });
        }
        let start = self.position;
        let key = self.string()?;
        let key_span = start..self.position;
        self.skip_space();
        if !self.consume(b':') {
            return Err(self.unexpected("`:` after the key").opened_at(open));
        }
        self.skip_space();
        let node = self.value("a value").map_err(|error| error.opened_at(open))?;
        Ok(JsonMember { key, key_span, node })
    }

    /// Reads the comma or closing bracket after an element or a member. Returns true after a comma.
    fn has_next_element(&mut self, open: usize, close: u8) -> Result<bool, SyntaxError> {
        self.skip_space();
        if self.consume(close) {
            return Ok(false);
        }
        let comma = self.position;
        if !self.consume(b',') {
            let expected = if close == b']' { "`,` or `]`" } else { "`,` or `}`" };
            return Err(self.unexpected(expected).opened_at(open));
        }
        self.skip_space();
        if self.peek() == Some(close) {
            let message = "there is a comma after the last element".to_owned();
            let help = Some("remove the comma: JSON allows none here".to_owned());
            return Err(SyntaxError { message, span: comma..comma + 1, help, opened: None, is_limit: false });
        }
        Ok(true)
    }

    fn literal(&mut self, expected: &str) -> Result<JsonValue, SyntaxError> {
        let remaining = &self.text[self.position..];
        for (word, value) in
            [("true", JsonValue::Bool(true)), ("false", JsonValue::Bool(false)), ("null", JsonValue::Null)]
        {
            if remaining.starts_with(word)
                && !remaining[word.len()..].starts_with(|next: char| next.is_ascii_alphanumeric())
            {
                self.position += word.len();
                return Ok(value);
            }
        }
        let error = self.unexpected(expected);
        Err(match remaining.chars().next() {
            Some('\'') => error.with_help("JSON requires strings in double quotes"),
            Some('/') => error.with_help("JSON has no comments"),
            Some('N' | 'I' | 'T' | 'F') => error.with_help("JSON has `true`, `false` and `null`, in lower case"),
            _ => error,
        })
    }

    fn number(&mut self) -> Result<String, SyntaxError> {
        let start = self.position;
        self.consume(b'-');
        let whole = self.digits("a digit")?;
        if whole > 1 && self.text.as_bytes()[self.position - whole] == b'0' {
            let span = self.position - whole..self.position;
            let message = "a number does not begin with a zero".to_owned();
            return Err(SyntaxError { message, span, help: None, opened: None, is_limit: false });
        }
        if self.consume(b'.') {
            self.digits("a digit after the point")?;
        }
        if self.consume(b'e') || self.consume(b'E') {
            let _signed = self.consume(b'+') || self.consume(b'-');
            self.digits("a digit of the exponent")?;
        }
        Ok(self.text[start..self.position].to_owned())
    }

    fn digits(&mut self, expected: &str) -> Result<usize, SyntaxError> {
        let start = self.position;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.position += 1;
        }
        if self.position == start { Err(self.unexpected(expected)) } else { Ok(self.position - start) }
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let open = self.position;
        self.position += 1;
        let mut text = String::new();
        loop {
            let plain = self.position;
            while self.peek().is_some_and(|byte| byte != b'"' && byte != b'\\' && byte >= b' ') {
                self.position += 1;
            }
            text.push_str(&self.text[plain..self.position]);
            match self.peek() {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return Err(self.bare_control(open)),
                None => return Err(self.unexpected("`\"` at the end of the string").opened_at(open)),
            }
        }
    }

    fn bare_control(&self, open: usize) -> SyntaxError {
        let message = match self.peek() {
            Some(b'\n' | b'\r') => "the line ends inside a string".to_owned(),
            byte => format!("a string contains the unescaped control character U+{:04X}", byte.unwrap_or(0)),
        };
        let help = Some("write it as an escape, such as `\\n`, or close the string".to_owned());
        let span = self.position..self.position + 1;
        SyntaxError { message, span, help, opened: Some(open..open + 1), is_limit: false }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let start = self.position;
        self.position += 1;
        let character = match self.peek() {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(start),
            _ => return Err(self.unexpected("one of `\"\\/bfnrtu` after the backslash")),
        };
        self.position += 1;
        Ok(character)
    }

    /// Reads `\uXXXX`, or a surrogate pair of two such escapes.
    fn unicode(&mut self, start: usize) -> Result<char, SyntaxError> {
        let unit = self.hex()?;
        let lone_surrogate = |end| {
            let message = format!("`\\u{unit:04x}` is one half of a surrogate pair, and the other half is missing");
            Err(SyntaxError { message, span: start..end, help: None, opened: None, is_limit: false })
        };
        if !(0xd800..0xe000).contains(&unit) {
            return char::from_u32(unit).map_or_else(|| lone_surrogate(self.position), Ok);
        }
        if unit >= 0xdc00 || !self.text[self.position..].starts_with("\\u") {
            return lone_surrogate(self.position);
        }
        let end = self.position;
        self.position += 1;
        let low = self.hex()?;
        if !(0xdc00..0xe000).contains(&low) {
            return lone_surrogate(end);
        }
        char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
            .map_or_else(|| lone_surrogate(self.position), Ok)
    }

    /// Reads `u` and four hexadecimal digits.
    fn hex(&mut self) -> Result<u32, SyntaxError> {
        self.position += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else { return Err(self.unexpected("four hexadecimal digits after `\\u`")) };
            unit = unit * 16 + digit;
            self.position += 1;
        }
        Ok(unit)
    }

    fn unexpected(&self, expected: &str) -> SyntaxError {
        let found = self.text[self.position..].chars().next();
        let (message, length) = match found {
            None => (format!("the file ends where {expected} is expected"), 0),
            Some(character) if character.is_control() || character == '`' => {
                (format!("expected {expected}, found U+{:04X}", u32::from(character)), character.len_utf8())
            }
            Some(character) => (format!("expected {expected}, found `{character}`"), character.len_utf8()),
        };
        SyntaxError { message, span: self.position..self.position + length, help: None, opened: None, is_limit: false }
    }
}

// === impl SyntaxError ===

impl SyntaxError {
    fn with_help(self, help: &str) -> Self {
        Self { help: Some(help.to_owned()), ..self }
    }

    /// Sets the opening bracket to show, unless a bracket or quote further inside has been set before.
    fn opened_at(self, open: usize) -> Self {
        Self { opened: self.opened.or(Some(open..open + 1)), ..self }
    }
}
