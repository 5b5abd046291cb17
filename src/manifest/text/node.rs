//! The tree of JSON values.

use std::collections::HashMap;
use std::ops::Range;

use super::pointer;

/// A value and the bytes from which it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonNode {
    /// The range of its bytes in the file; `0..0` for a value that was not read from a file.
    pub span: Range<usize>,
    /// The value itself.
    pub value: JsonValue,
}

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonValue {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, in its original spelling.
    Number(String),
    /// A string, with escapes resolved.
    String(String),
    /// An array.
    Array(Vec<JsonNode>),
    /// An object: all members as they were written, including those with a repeated key.
    Object(Vec<JsonMember>),
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonMember {
    /// The key, with escapes resolved.
    pub key: String,
    /// The range of the key in the file, including its quotes; `0..0` if it was not read from a file.
    pub key_span: Range<usize>,
    /// The value of the member.
    pub node: JsonNode,
}

/// The number of members above which repeated keys are searched with a hash table (our choice).
const LINEAR_SEARCH_LIMIT: usize = 16;

// === impl JsonNode ===

impl JsonNode {
    /// Creates a value that was not read from a file.
    #[must_use]
    pub fn new(value: JsonValue) -> Self {
        Self { span: 0..0, value }
    }

    /// Returns the value under a key of an object. If the key is repeated, its last member counts, as in most parsers.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.member(key).map(|member| &member.node)
    }

    /// Returns the member of an object with this key; the last one if the key is repeated.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<&JsonMember> {
        self.members().iter().rev().find(|member| member.key == key)
    }

    /// Returns the members of an object; empty for other values.
    #[must_use]
    pub fn members(&self) -> &[JsonMember] {
        match &self.value {
            JsonValue::Object(members) => members,
            _ => &[],
        }
    }

    /// Returns the elements of an array; empty for other values.
    #[must_use]
    pub fn elements(&self) -> &[Self] {
        match &self.value {
            JsonValue::Array(elements) => elements,
            _ => &[],
        }
    }

    /// Returns the text of a string; `None` for other values.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            JsonValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value at a JSON pointer, if there is one.
    #[must_use]
    pub fn at(&self, pointer: &str) -> Option<&Self> {
        pointer::steps(pointer).try_fold(self, |node, step| match &node.value {
            JsonValue::Object(_) => node.get(&step),
            JsonValue::Array(elements) => elements.get(step.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// Returns each member whose key an earlier member of this object has, together with the first member of that key.
    pub(crate) fn repeated_members(&self) -> Vec<(&JsonMember, &JsonMember)> {
        let members = self.members();
        if members.len() <= LINEAR_SEARCH_LIMIT {
            let first_of =
                |(at, member): (usize, &JsonMember)| members[..at].iter().position(|earlier| earlier.key == member.key);
            let pairs = members.iter().enumerate().filter_map(|(at, member)| Some((member, first_of((at, member))?)));
            return pairs.map(|(member, first)| (member, &members[first])).collect();
        }
        let mut seen: HashMap<&str, &JsonMember> = HashMap::with_capacity(members.len());
        let repeated = members.iter().filter_map(|member| match seen.get(member.key.as_str()) {
            Some(first) => Some((member, *first)),
            None => {
                seen.insert(&member.key, member);
                None
            }
        });
        repeated.collect()
    }

    /// Converts the value to a `serde_json` value. Locations, the order of members and the spelling of numbers are
    /// lost, and of several members with the same key only the last is kept.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            JsonValue::Null => Json::Null,
            JsonValue::Bool(value) => Json::Bool(*value),
            JsonValue::Number(text) => number(text),
            JsonValue::String(text) => Json::String(text.clone()),
            JsonValue::Array(elements) => Json::Array(elements.iter().map(Self::to_json).collect()),
            JsonValue::Object(members) => {
                Json::Object(members.iter().map(|member| (member.key.clone(), member.node.to_json())).collect())
            }
        }
    }
}

impl From<&serde_json::Value> for JsonNode {
    fn from(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        Self::new(match json {
            Json::Null => JsonValue::Null,
            Json::Bool(value) => JsonValue::Bool(*value),
            Json::Number(number) => JsonValue::Number(number.to_string()),
            Json::String(text) => JsonValue::String(text.clone()),
            Json::Array(elements) => JsonValue::Array(elements.iter().map(Self::from).collect()),
            Json::Object(members) => JsonValue::Object(members.iter().map(|(key, value)| member(key, value)).collect()),
        })
    }
}

fn member(key: &str, value: &serde_json::Value) -> JsonMember {
    JsonMember { key: key.to_owned(), key_span: 0..0, node: JsonNode::from(value) }
}

/// Returns the nearest number that `serde_json` can represent: a number beyond the range of `f64` becomes `f64::MAX` or
/// `f64::MIN`.
fn number(text: &str) -> serde_json::Value {
    let exact = text.parse::<serde_json::Number>().ok();
    let nearest = || {
        let bound = if text.starts_with('-') { f64::MIN } else { f64::MAX };
        serde_json::Number::from_f64(text.parse::<f64>().unwrap_or(bound).clamp(f64::MIN, f64::MAX))
    };
    exact.or_else(nearest).map_or(serde_json::Value::Null, serde_json::Value::Number)
}
