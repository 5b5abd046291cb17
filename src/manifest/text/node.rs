//! The tree.

use std::collections::HashMap;
use std::ops::Range;

use super::pointer;

/// A value and the bytes that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it stands in the file; an empty range for what was never in one.
    pub span: Range<usize>,
    /// What it is.
    pub value: Value,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, spelled as it was written.
    Number(String),
    /// A string, without its escapes.
    String(String),
    /// An array.
    Array(Vec<Node>),
    /// An object: every member as it was written, also those whose key stands twice.
    Object(Vec<Member>),
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The key, without its escapes.
    pub key: String,
    /// Where the key stands, with its quotes.
    pub key_span: Range<usize>,
    /// What it holds.
    pub node: Node,
}

/// Objects with more members than this are searched through a table.
const FEW: usize = 16;

// === impl Node ===

impl Node {
    /// A value that was never in a file.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self { span: 0..0, value }
    }

    /// What an object holds under a key. Of several, the last counts, as for most readers.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.member(key).map(|member| &member.node)
    }

    /// The member of an object with this key; of several the last.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<&Member> {
        self.members().iter().rev().find(|member| member.key == key)
    }

    /// The members of an object; nothing has none.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        match &self.value {
            Value::Object(members) => members,
            _ => &[],
        }
    }

    /// The elements of an array; nothing has none.
    #[must_use]
    pub fn elements(&self) -> &[Self] {
        match &self.value {
            Value::Array(elements) => elements,
            _ => &[],
        }
    }

    /// The text of a string.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// What a JSON pointer names.
    #[must_use]
    pub fn at(&self, pointer: &str) -> Option<&Self> {
        pointer::steps(pointer).try_fold(self, |node, step| match &node.value {
            Value::Object(_) => node.get(&step),
            Value::Array(elements) => elements.get(step.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// The members of this object whose key stood there before, each with the member that was first.
    pub(crate) fn repeated(&self) -> Vec<(&Member, &Member)> {
        let members = self.members();
        if members.len() <= FEW {
            let first_of = |(at, member): (usize, &Member)| members[..at].iter().position(|one| one.key == member.key);
            let pairs = members.iter().enumerate().filter_map(|(at, member)| Some((member, first_of((at, member))?)));
            return pairs.map(|(member, first)| (member, &members[first])).collect();
        }
        let mut seen: HashMap<&str, &Member> = HashMap::with_capacity(members.len());
        let again = members.iter().filter_map(|member| match seen.get(member.key.as_str()) {
            Some(first) => Some((member, *first)),
            None => {
                seen.insert(&member.key, member);
                None
            }
        });
        again.collect()
    }

    /// The same for whoever speaks serde. Places and spellings are lost, and of a repeated key all but the last.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(text) => number(text),
            Value::String(text) => Json::String(text.clone()),
            Value::Array(elements) => Json::Array(elements.iter().map(Self::to_json).collect()),
            Value::Object(members) => {
                Json::Object(members.iter().map(|member| (member.key.clone(), member.node.to_json())).collect())
            }
        }
    }
}

impl From<&serde_json::Value> for Node {
    fn from(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        Self::new(match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => Value::Number(number.to_string()),
            Json::String(text) => Value::String(text.clone()),
            Json::Array(elements) => Value::Array(elements.iter().map(Self::from).collect()),
            Json::Object(members) => Value::Object(members.iter().map(|(key, value)| member(key, value)).collect()),
        })
    }
}

fn member(key: &str, value: &serde_json::Value) -> Member {
    Member { key: key.to_owned(), key_span: 0..0, node: Node::from(value) }
}

/// The nearest number that serde can hold: one beyond its range is the largest.
fn number(text: &str) -> serde_json::Value {
    let within = text.parse::<serde_json::Number>().ok();
    let nearest = || {
        let bound = if text.starts_with('-') { f64::MIN } else { f64::MAX };
        serde_json::Number::from_f64(text.parse::<f64>().unwrap_or(bound).clamp(f64::MIN, f64::MAX))
    };
    within.or_else(nearest).map_or(serde_json::Value::Null, serde_json::Value::Number)
}
