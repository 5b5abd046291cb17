//! JSON that is kept unchanged: the order of members, the spelling of numbers, and everything that this version does
//! not know.
//!
//! Parts of a value share its text, so that an answer with megabytes of images is in memory only once.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Error;

/// The maximum number of characters that debug output shows (our choice).
const DEBUG_MAX_CHARS: usize = 200;

/// A JSON value, exactly as it was received or written. Cloning is cheap.
///
/// ```
/// use imagate::client::Json;
///
/// let json = Json::parse(r#"{"b": 1.0, "a": 1e2}"#)?;
/// assert_eq!(json.text(), r#"{"b": 1.0, "a": 1e2}"#);
/// assert_eq!(json.member("a").map(|a| a.text().to_owned()).as_deref(), Some("1e2"));
/// assert_eq!(serde_json::to_string(&json).unwrap(), json.text());
/// # Ok::<(), imagate::client::Error>(())
/// ```
#[derive(Clone)]
pub struct Json {
    source: Arc<String>,
    range: Range<usize>,
}

/// A text that is not a JSON object.
pub(super) struct UnreadableText {
    pub(super) error: serde_json::Error,
    pub(super) text: String,
}

/// The members of an object, in their original order.
#[derive(Clone, Debug, Default)]
pub(super) struct RawJsonObject(Vec<(String, Json)>);

/// The body of a request for which the document has the type `T`: its text is sent unchanged, with members and words that
/// the document does not name.
#[doc(hidden)]
pub struct JsonRequestBody<T> {
    text: Arc<str>,
    of: PhantomData<fn(T)>,
}

// === impl Json ===

impl Json {
    /// Checks that a text is JSON, and keeps it unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not JSON.
    pub fn parse(text: impl Into<String>) -> Result<Self, Error> {
        Self::read_text(text.into()).map_err(|error| Error::request("json", format!("this is not JSON: {error}")))
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.source.get(self.range.clone()).unwrap_or_default()
    }

    /// Reads the value as another type; returns `None` if it does not have that type.
    #[must_use]
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.text()).ok()
    }

    /// Returns the member of an object with this name; `None` if there is none, or if the value is not an object. If
    /// the name occurs more than once, the last member counts.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<Self> {
        let [member] = self.members([name]);
        member
    }

    /// Returns the elements of a list; none if the value is not a list.
    #[must_use]
    pub fn elements(&self) -> Vec<Self> {
        let elements = serde_json::from_str::<Vec<&RawValue>>(self.text());
        elements.map(|elements| elements.into_iter().map(|raw| self.slice(raw)).collect()).unwrap_or_default()
    }

    /// Creates the value at this position of a text.
    pub(super) fn part(source: &Arc<String>, range: Range<usize>) -> Self {
        Self { source: Arc::clone(source), range }
    }

    pub(super) fn read_text(text: String) -> serde_json::Result<Self> {
        let range = value_range(&text)?;
        Ok(Self { source: Arc::new(text), range })
    }

    /// Reads an object and several of its members, in one pass. Returns the text again if it is not an object.
    pub(super) fn read_object<const COUNT: usize>(
        text: String,
        names: [&str; COUNT],
    ) -> Result<(Self, [Option<Self>; COUNT]), UnreadableText> {
        let ranges = match serde_json::from_str::<BorrowedMembers<'_>>(&text) {
            Ok(members) => members.positions(names, text.as_ptr().addr()),
            Err(error) => return Err(UnreadableText { error, text }),
        };
        let start = text.len() - text.trim_ascii_start().len();
        let range = start..text.trim_ascii_end().len();
        let json = Self { source: Arc::new(text), range };
        let members = json.shared(ranges);
        Ok((json, members))
    }

    /// Returns several members of each element of a list, in one pass if all of them are objects; an element that is not
    /// an object has no members.
    pub(super) fn members_of_elements<const COUNT: usize>(&self, names: [&str; COUNT]) -> Vec<[Option<Self>; COUNT]> {
        match serde_json::from_str::<Vec<BorrowedMembers<'_>>>(self.text()) {
            Ok(elements) => {
                elements.into_iter().map(|members| self.shared(members.positions(names, self.address()))).collect()
            }
            Err(_) => self.elements().iter().map(|element| element.members(names)).collect(),
        }
    }

    /// Keeps a text that is JSON, and makes a JSON string of any other.
    pub(super) fn from_text_or_string(text: String) -> Self {
        match value_range(&text) {
            Ok(range) => Self { source: Arc::new(text), range },
            Err(_) => text.as_str().into(),
        }
    }

    /// Returns several members, in one pass.
    pub(super) fn members<const COUNT: usize>(&self, names: [&str; COUNT]) -> [Option<Self>; COUNT] {
        // A value that is not an object has no members.
        let Ok(members) = serde_json::from_str::<BorrowedMembers<'_>>(self.text()) else {
            return [const { None }; COUNT];
        };
        self.shared(members.positions(names, self.address()))
    }

    /// Returns the values at these positions of the source.
    fn shared<const COUNT: usize>(&self, positions: [Option<Range<usize>>; COUNT]) -> [Option<Self>; COUNT] {
        positions.map(|range| range.map(|range| Self { source: Arc::clone(&self.source), range }))
    }

    /// The address of the first byte of the source.
    fn address(&self) -> usize {
        self.source.as_ptr().addr()
    }

    pub(super) fn is_null(&self) -> bool {
        self.text() == "null"
    }

    /// Returns the content of a JSON string, such as base64; `None` if the value is no string, or if it has escapes.
    pub(super) fn unescaped_text(&self) -> Option<&str> {
        let text = self.text().strip_prefix('"')?.strip_suffix('"')?;
        (!text.contains('\\')).then_some(text)
    }

    /// Returns the value of a part that was borrowed from this text.
    fn slice(&self, raw: &RawValue) -> Self {
        let start = self.range.start + (raw.get().as_ptr().addr() - self.text().as_ptr().addr());
        Self { source: Arc::clone(&self.source), range: start..start + raw.get().len() }
    }
}

/// The text is serialized here, so it is always valid JSON.
impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        let text = value.to_string();
        let range = 0..text.len();
        Self { source: Arc::new(text), range }
    }
}

/// Converts a plain value. A floating-point number that JSON cannot express becomes `null`.
macro_rules! from_plain_values {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Json {
            fn from(value: $kind) -> Self {
                serde_json::Value::from(value).into()
            }
        }
    )*};
}

from_plain_values!(bool, i32, i64, u32, u64, f64, String);

/// Converts a text to a JSON string.
impl From<&str> for Json {
    fn from(text: &str) -> Self {
        serde_json::Value::from(text).into()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Json {}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.text()).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::from(Box::<str>::from(Box::<RawValue>::deserialize(deserializer)?));
        let range = 0..text.len();
        Ok(Self { source: Arc::new(text), range })
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text is shortened, because megabytes of base64 are of no use in debug output.
        let text = self.text();
        match text.char_indices().nth(DEBUG_MAX_CHARS) {
            Some((end, _)) => write!(f, "{}… ({} bytes)", &text[..end], text.len()),
            None => f.write_str(text),
        }
    }
}

/// Returns the part of a text that is its only value, without the spaces around it.
fn value_range(text: &str) -> serde_json::Result<Range<usize>> {
    let raw: &RawValue = serde_json::from_str(text)?;
    let start = raw.get().as_ptr().addr() - text.as_ptr().addr();
    Ok(start..start + raw.get().len())
}

/// The members of an object, borrowed from its text.
struct BorrowedMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for BorrowedMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

// === impl BorrowedMembers ===

impl BorrowedMembers<'_> {
    /// Returns the position of each of these members in the text that begins at this address. If a name occurs more
    /// than once, the last member counts.
    fn positions<const COUNT: usize>(self, names: [&str; COUNT], source: usize) -> [Option<Range<usize>>; COUNT] {
        let mut positions = [const { None }; COUNT];
        for (name, raw) in self.0 {
            if let Some(index) = names.iter().position(|requested| *requested == name) {
                let start = raw.get().as_ptr().addr() - source;
                positions[index] = Some(start..start + raw.get().len());
            }
        }
        positions
    }
}

/// Collects every member, also those with the same name.
struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = BorrowedMembers<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(BorrowedMembers(members))
    }
}

// === impl RawJsonObject ===

impl RawJsonObject {
    /// Returns the members of an object; `None` if the value is not an object.
    pub(super) fn from_json(json: &Json) -> Option<Self> {
        let BorrowedMembers(members) = serde_json::from_str(json.text()).ok()?;
        Some(Self(members.into_iter().map(|(name, raw)| (name, json.slice(raw))).collect()))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().rev().find(|(member, _)| member == name).map(|(_, json)| json)
    }

    /// Replaces the member of this name, or appends one.
    pub(super) fn set(&mut self, name: &str, json: Json) {
        match self.0.iter_mut().rev().find(|(member, _)| member == name) {
            Some((_, value)) => *value = json,
            None => self.0.push((name.to_owned(), json)),
        }
    }

    /// Sets all members of another object.
    pub(super) fn extend(&mut self, other: Self) {
        for (name, json) in other.0 {
            self.set(&name, json);
        }
    }

    /// Returns each member as the text of a field of a form: the content of a text, and any other value as JSON.
    pub(super) fn into_form_fields(self) -> impl Iterator<Item = (String, String)> {
        let text = |json: &Json| json.read::<String>().unwrap_or_else(|| json.text().to_owned());
        self.0.into_iter().filter(|(_, json)| !json.is_null()).map(move |(name, json)| (name, text(&json)))
    }

    /// Returns the object as the body of a request of type `T`.
    pub(super) fn into_body<T>(self) -> JsonRequestBody<T> {
        JsonRequestBody { text: self.text().into(), of: PhantomData }
    }

    /// Returns the object as JSON text.
    pub(super) fn text(&self) -> String {
        let members = self.0.iter().map(|(name, json)| format!("{}:{}", serde_json::Value::from(&**name), json.text()));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

impl From<&RawJsonObject> for Json {
    fn from(members: &RawJsonObject) -> Self {
        let text = members.text();
        let range = 0..text.len();
        Self { source: Arc::new(text), range }
    }
}

impl Serialize for RawJsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, json) in &self.0 {
            map.serialize_entry(name, json)?;
        }
        map.end()
    }
}

// === impl JsonRequestBody ===

impl<T> JsonRequestBody<T> {
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl<T> Serialize for JsonRequestBody<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.text).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Returns bytes as text, in which those that are not UTF-8 are replaced.
pub(super) fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a JSON list of the values.
pub(super) fn json_list<'a>(items: impl Iterator<Item = &'a Json>) -> Json {
    let text = format!("[{}]", items.map(Json::text).collect::<Vec<_>>().join(","));
    let range = 0..text.len();
    Json { source: Arc::new(text), range }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// JSON with the spellings that JSON parsers tend to normalize.
    const UNUSUAL: &str = r#" {"z": 1.0, "a": 1e2, "n": 123456789012345678901234567890.10, "a": {"\u0062": [ -0, 0.1000 ]}, "e\n": null } "#;

    #[test]
    fn a_value_is_written_unchanged() {
        let json = Json::parse(UNUSUAL).unwrap();
        assert_eq!(json.text(), UNUSUAL.trim());
        assert_eq!(serde_json::to_string(&json).unwrap(), UNUSUAL.trim());
        assert_eq!(serde_json::from_str::<Json>(UNUSUAL).unwrap(), json);
    }

    #[test]
    fn members_and_elements_keep_their_spelling() {
        let json = Json::parse(UNUSUAL).unwrap();
        let text = |json: Option<Json>| json.map(|json| json.text().to_owned());
        assert_eq!(text(json.member("n")).as_deref(), Some("123456789012345678901234567890.10"));
        let last = json.member("a").unwrap();
        assert_eq!(last.text(), r#"{"\u0062": [ -0, 0.1000 ]}"#, "the last of two");
        let elements = last.member("b").unwrap().elements();
        assert_eq!(elements.iter().map(Json::text).collect::<Vec<_>>(), ["-0", "0.1000"]);
        assert!(json.member("x").is_none() && elements[0].member("x").is_none() && json.elements().is_empty());
    }

    #[test]
    fn members_keep_their_order_and_their_spelling() {
        let mut members = RawJsonObject::from_json(&Json::parse(UNUSUAL).unwrap()).unwrap();
        members.set("z", true.into());
        members.set("new", "x\"".into());
        let expected = concat!(
            r#"{"z":true,"a":1e2,"n":123456789012345678901234567890.10,"a":{"\u0062": [ -0, 0.1000 ]},"#,
            r#""e\n":null,"new":"x\""}"#
        );
        assert_eq!(
            (members.text(), serde_json::to_string(&members).unwrap()),
            (expected.to_owned(), expected.to_owned())
        );
        assert!(RawJsonObject::from_json(&"x".into()).is_none());
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        for text in ["", "{", "{} {}", "nul", "{\"a\":}"] {
            assert!(Json::parse(text).unwrap_err().is_invalid_request(), "{text}");
        }
    }
}
