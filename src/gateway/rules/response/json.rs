//! The body of a response request, read without being taken apart: it may be 64 MiB of replayed images.
//!
//! Nothing is built but what is asked for. All of it is read once as JSON, so that what goes upstream is JSON, and no
//! deeper than the parser's own limit.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::Rejection;
use crate::gateway::rules::fields;

/// The members of an object that somebody looks at, as they stand in the body. Of duplicates the last one.
#[derive(Debug, Default)]
pub(super) struct Known<'a> {
    members: BTreeMap<&'static str, &'a RawValue>,
    /// The first member of another name.
    other: Option<String>,
}

/// What a value is. Reading one builds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Null,
    Boolean,
    Integer,
    Decimal,
    Text,
    Array,
    Object,
}

/// The members of a request that are looked at.
const MEMBERS: &[&str] = &[
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "stream",
    "store",
    "parallel_tool_calls",
    "previous_response_id",
    "user",
    "safety_identifier",
];

/// Reads a request.
pub(super) fn read(body: &[u8]) -> Result<Known<'_>, Rejection> {
    let text = std::str::from_utf8(body).map_err(|error| fields::not_json(&serde_json::Error::custom(error)))?;
    if text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
        return members(text, MEMBERS).map_err(|error| fields::not_json(&error));
    }
    let shape: Shape = serde_json::from_str(text).map_err(|error| fields::not_json(&error))?;
    Err(fields::not_object(shape.as_str()))
}

/// These members of an object.
pub(super) fn members<'a>(text: &'a str, names: &'static [&'static str]) -> Result<Known<'a>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let known = deserializer.deserialize_map(Members(names))?;
    deserializer.end()?;
    Ok(known)
}

/// What a value is, all of it read.
pub(super) fn shape(raw: &RawValue) -> Result<Shape, Rejection> {
    serde_json::from_str(raw.get()).map_err(|error| fields::not_json(&error))
}

/// Looks at each element of an array.
pub(super) fn each<'a>(
    raw: &'a RawValue,
    look: impl FnMut(usize, &'a RawValue) -> Result<(), Rejection>,
) -> Result<(), Rejection> {
    let mut refused = None;
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    let read = deserializer.deserialize_seq(Each { look, refused: &mut refused });
    match (refused, read) {
        (Some(rejection), _) => Err(rejection),
        (None, read) => read.map_err(|error| fields::not_json(&error)),
    }
}

// === impl Known ===

impl<'a> Known<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.members.get(name).copied()
    }

    /// The first member of another name.
    pub(super) fn other(&self) -> Option<&str> {
        self.other.as_deref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &'a RawValue)> {
        self.members.iter().map(|(name, raw)| (*name, *raw))
    }
}

/// Keeps the members of these names, and reads the others.
struct Members(&'static [&'static str]);

impl<'de> Visitor<'de> for Members {
    type Value = Known<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Known<'de>, A::Error> {
        let mut known = Known::default();
        while let Some(key) = map.next_key::<String>()? {
            if let Some(name) = self.0.iter().find(|name| **name == key) {
                known.members.insert(*name, map.next_value()?);
            } else {
                map.next_value::<Shape>()?;
                known.other.get_or_insert(key);
            }
        }
        Ok(known)
    }
}

/// Looks at each element, until one is refused.
struct Each<'r, F> {
    look: F,
    refused: &'r mut Option<Rejection>,
}

impl<'de, F: FnMut(usize, &'de RawValue) -> Result<(), Rejection>> Visitor<'de> for Each<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(raw) = seq.next_element()? {
            if let Err(rejection) = (self.look)(index, raw) {
                *self.refused = Some(rejection);
                return Err(A::Error::custom("refused"));
            }
            index += 1;
        }
        Ok(())
    }
}

// === impl Shape ===

impl Shape {
    /// In the words of the rejections.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Integer => "an integer",
            Self::Decimal => "a decimal number",
            Self::Text => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `IgnoredAny`: with that the parser would neither hold its limit of depth nor look into texts.
        deserializer.deserialize_any(Look)
    }
}

/// Reads a value and keeps only what it is.
struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Boolean)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Integer)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Integer)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Decimal)
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        while seq.next_element::<Shape>()?.is_some() {}
        Ok(Shape::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
        while map.next_entry::<Shape, Shape>()?.is_some() {}
        Ok(Shape::Object)
    }
}
