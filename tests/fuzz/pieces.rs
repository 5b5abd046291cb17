//! Reads JSON that is cut at every byte, and compares the results with that of `serde_json`.
//!
//! The tokenizer must accept the same texts and give the same values, with one exception: it accepts numbers that are
//! out of the range of a double. The reader of objects on it must give the same values down to its depth. It also
//! accepts what no visitor wants and it need not follow; [`Excuse`] lists that.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::stream::json::{
    CaptureLimits, JsonPosition, JsonReader, JsonSyntaxError, JsonToken, JsonTokenizer, JsonVisitor, PATH_DEPTH,
    TextDecoder, ValueInterest, is_blank,
};

/// The greatest depth that `serde_json` accepts.
const DEPTH_MAX: usize = 127;
/// The length at which keys are cut, with room for a last character. The values of longer keys are not compared.
const KEY_MAX: usize = 250;
/// The most places at which an input is cut, one after the other.
const CUTS_MAX: usize = 600;
const LIMITS: CaptureLimits = CaptureLimits { value: u64::MAX, total: u64::MAX };

/// The reasons why a text that `serde_json` refuses may be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Excuse {
    /// A number that is out of range or, for the reader of objects, one of the words `NaN`, `Infinity` and `-Infinity`,
    /// or a captured value that is too deep.
    value_not_held: bool,
    /// A value that is deeper than the reader of objects visits, of which only the brackets are counted, or a captured
    /// value that is within the depth limit only because the objects and arrays around it do not count.
    too_deep: bool,
}

/// The value that is read, as far as it has been read.
#[derive(Debug, Default)]
struct ValueBuilder {
    /// The values that have begun: an object, an array, or an empty text or `null` in place of a scalar.
    open: Vec<Value>,
    keys: Vec<String>,
    text: String,
    decoder: TextDecoder,
    literal: Vec<u8>,
    whole: Option<Value>,
    excuse: Excuse,
    has_long_key: bool,
}

/// The result of one reading: the value and the excuses, or nothing if the text is refused.
type Reading = Option<(Value, Excuse, bool)>;

/// Returns whether `serde_json` accepts the input.
pub(crate) fn json(input: &[u8]) -> bool {
    let expected = serde_json::from_slice::<Value>(input).ok();
    check(input, expected.clone(), &read_tokens);
    let object = expected.clone().filter(Value::is_object);
    check(input, object.clone().map(|value| without_deep_values(value, 0)), &|pieces| read_object(pieces, visit_all));
    check(input, object.clone(), &|pieces| read_object(pieces, |_| ValueInterest::Value));
    check(input, object, &|pieces| read_object(pieces, |_| ValueInterest::Optional));
    expected.is_some()
}

/// Checks that a reading gives the expected value, wherever the input is cut.
fn check(input: &[u8], expected: Option<Value>, read: &dyn Fn(&[&[u8]]) -> Reading) {
    let whole = read(&[input]);
    let text = String::from_utf8_lossy(input);
    assert_eq!(read(&input.chunks(1).collect::<Vec<_>>()), whole, "byte by byte: {text}");
    for at in (0..input.len()).step_by(input.len() / CUTS_MAX + 1) {
        let (first, second) = input.split_at(at);
        assert_eq!(read(&[first, second]), whole, "cut at {at}: {text}");
    }
    match (whole, expected) {
        (Some((value, _, has_long_key)), Some(expected)) => {
            assert!(has_long_key || value == expected, "{value}: {text}");
        }
        (Some((value, excuse, _)), None) => assert_ne!(excuse, Excuse::default(), "accepted as {value}: {text}"),
        (None, Some(_)) => panic!("refused: {text}"),
        (None, None) => {}
    }
}

/// Reads any value with the tokenizer.
fn read_tokens(pieces: &[&[u8]]) -> Reading {
    let (mut tokens, mut builder) = (JsonTokenizer::default(), ValueBuilder::default());
    for piece in pieces {
        let mut at = 0;
        loop {
            let (length, token) = tokens.next(&piece[at..]).ok()?;
            let bytes = &piece[at..at + length];
            at += length;
            match token {
                Some(token) => builder.add(token, bytes, tokens.key()).ok()?,
                None if length > 0 => {}
                None if is_blank(&piece[at..]) => break,
                None => return None,
            }
        }
    }
    tokens.finish().ok()?;
    if builder.whole.is_none() {
        builder.end().ok()?;
    }
    builder.finish()
}

/// Reads an object with the reader. `choose` decides on values by their first byte.
fn read_object(pieces: &[&[u8]], choose: fn(u8) -> ValueInterest) -> Reading {
    let (mut reader, mut visitor) =
        (JsonReader::new("", LIMITS), ObjectVisitor { builder: ValueBuilder::default(), choose });
    pieces.iter().try_for_each(|piece| reader.push_last(piece, &mut visitor)).ok()?;
    reader.finish().ok()?;
    visitor.builder.finish()
}

/// The interest in texts and in the values inside of objects and arrays.
fn visit_all(first: u8) -> ValueInterest {
    match first {
        b'"' => ValueInterest::Text,
        b'{' | b'[' => ValueInterest::Skip,
        _ => ValueInterest::Value,
    }
}

/// Removes what is in the objects and arrays at the greatest depth that is visited.
fn without_deep_values(value: Value, depth: usize) -> Value {
    let is_deep = depth >= PATH_DEPTH;
    match value {
        Value::Object(members) if is_deep => Map::with_capacity(members.len()).into(),
        Value::Array(_) if is_deep => Value::Array(Vec::new()),
        Value::Object(members) => {
            members.into_iter().map(|(key, value)| (key, without_deep_values(value, depth + 1))).collect()
        }
        Value::Array(elements) => elements.into_iter().map(|value| without_deep_values(value, depth + 1)).collect(),
        scalar => scalar,
    }
}

/// The number of objects and arrays in each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

// === impl ValueBuilder ===

impl ValueBuilder {
    fn add(&mut self, token: JsonToken, bytes: &[u8], key: &str) -> Result<(), JsonSyntaxError> {
        let text = &mut self.text;
        match token {
            JsonToken::Start(first) => self.start(first),
            JsonToken::Key => self.add_key(key),
            JsonToken::Text => self.decoder.push(bytes, |piece| text.push_str(piece))?,
            JsonToken::Escaped(unit) => self.decoder.push_escaped(unit, |piece| text.push_str(piece))?,
            JsonToken::Raw => self.literal.extend_from_slice(bytes),
            JsonToken::End => self.end()?,
        }
        Ok(())
    }

    fn add_key(&mut self, key: &str) {
        self.has_long_key |= key.len() > KEY_MAX;
        self.keys.push(key.to_owned());
    }

    fn start(&mut self, first: u8) {
        self.open.push(match first {
            b'{' => Map::new().into(),
            b'[' => Vec::<Value>::new().into(),
            b'"' => "".into(),
            _ => Value::Null,
        });
    }

    /// Ends the value that began last.
    fn end(&mut self) -> Result<(), JsonSyntaxError> {
        self.decoder.finish()?;
        let value = match self.open.pop().expect("a value has begun") {
            Value::String(_) => std::mem::take(&mut self.text).into(),
            Value::Null => {
                let literal = std::mem::take(&mut self.literal);
                serde_json::from_slice(&literal).unwrap_or_else(|_| self.number_out_of_range(&literal))
            }
            container => container,
        };
        self.insert(value);
        Ok(())
    }

    /// Notes a number that [`Value`] cannot hold.
    fn number_out_of_range(&mut self, literal: &[u8]) -> Value {
        let is_number = serde_json::from_slice::<IgnoredAny>(literal).is_ok();
        assert!(is_number, "{} is not a number", String::from_utf8_lossy(literal));
        self.excuse.value_not_held = true;
        Value::Null
    }

    /// Inserts a value into the innermost object or array.
    fn insert(&mut self, value: Value) {
        match self.open.last_mut() {
            Some(Value::Object(members)) => drop(members.insert(self.keys.pop().expect("a key"), value)),
            Some(Value::Array(elements)) => elements.push(value),
            Some(scalar) => panic!("a value in {scalar}"),
            None => self.whole = Some(value),
        }
    }

    fn finish(self) -> Reading {
        Some((self.whole?, self.excuse, self.has_long_key))
    }
}

/// Builds the value of the values that it receives.
struct ObjectVisitor {
    builder: ValueBuilder,
    choose: fn(u8) -> ValueInterest,
}

impl JsonVisitor for ObjectVisitor {
    type Error = JsonSyntaxError;

    fn begin(&mut self) -> Result<(), JsonSyntaxError> {
        self.builder.start(b'{');
        Ok(())
    }

    fn start(&mut self, at: JsonPosition<'_>, first: u8) -> Result<ValueInterest, JsonSyntaxError> {
        let interest = (self.choose)(first);
        if matches!(self.builder.open.last(), Some(Value::Object(_))) {
            self.builder.add_key(at.key);
        }
        if matches!(interest, ValueInterest::Text | ValueInterest::Skip) {
            self.builder.excuse.too_deep |= at.depth == PATH_DEPTH && first != b'"';
            self.builder.start(first);
        }
        Ok(interest)
    }

    fn value(&mut self, at: JsonPosition<'_>, value: Option<Value>) -> Result<(), JsonSyntaxError> {
        self.builder.excuse.value_not_held |= value.is_none();
        self.builder.excuse.too_deep |= value.as_ref().is_some_and(|value| at.depth + depth(value) > DEPTH_MAX);
        self.builder.insert(value.unwrap_or_default());
        Ok(())
    }

    fn text(&mut self, _: JsonPosition<'_>, text: &[u8]) -> Result<(), JsonSyntaxError> {
        self.builder.add(JsonToken::Text, text, "")
    }

    fn escaped(&mut self, _: JsonPosition<'_>, unit: u16) -> Result<(), JsonSyntaxError> {
        self.builder.add(JsonToken::Escaped(unit), &[], "")
    }

    fn text_end(&mut self, _: JsonPosition<'_>) -> Result<(), JsonSyntaxError> {
        self.builder.end()
    }

    fn end(&mut self, _: JsonPosition<'_>) -> Result<(), JsonSyntaxError> {
        self.builder.end()
    }
}
