//! Parses JSON as a tree, and refuses a member that its object states twice: parsers differ in the one that counts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The reason why a body has no tree.
#[derive(Debug)]
pub(super) enum JsonBodyError {
    /// The body is not valid JSON.
    Syntax(serde_json::Error),
    /// An object states this member twice. The path is such as `tools[0].size`.
    Duplicate(String),
}

/// Parses a value. If a member occurs twice, its path grows from the inside as the error goes out.
struct UniqueMembers<'a> {
    duplicate: &'a mut Option<String>,
}

/// Parses a body. Keys are compared decoded.
pub(super) fn parse_unique(body: &[u8]) -> Result<Value, JsonBodyError> {
    let mut duplicate = None;
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let parsed = UniqueMembers { duplicate: &mut duplicate }.deserialize(&mut deserializer);
    match (parsed.and_then(|value| deserializer.end().map(|()| value)), duplicate) {
        (_, Some(path)) => Err(JsonBodyError::Duplicate(path)),
        (parsed, None) => parsed.map_err(JsonBodyError::Syntax),
    }
}

// === impl UniqueMembers ===

impl UniqueMembers<'_> {
    const fn reborrow(&mut self) -> UniqueMembers<'_> {
        UniqueMembers { duplicate: self.duplicate }
    }

    /// Puts the place of an object or array before the path of a duplicate that is in it.
    fn prepend(&mut self, place: impl FnOnce() -> String) {
        if let Some(path) = self.duplicate {
            let separator = if path.starts_with('[') { "" } else { "." };
            *path = format!("{}{separator}{path}", place());
        }
    }
}

impl<'de> DeserializeSeed<'de> for UniqueMembers<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueMembers<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut sequence: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            match sequence.next_element_seed(self.reborrow()) {
                Ok(Some(value)) => values.push(value),
                Ok(None) => return Ok(Value::Array(values)),
                Err(error) => {
                    self.prepend(|| format!("[{}]", values.len()));
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                *self.duplicate = Some(key);
                return Err(A::Error::custom("a member is stated twice"));
            }
            match members.next_value_seed(self.reborrow()) {
                Ok(value) => drop(object.insert(key, value)),
                Err(error) => {
                    self.prepend(|| key);
                    return Err(error);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_stated_twice_is_found() {
        let long = "k".repeat(300);
        for (json, expected) in [
            (r#"{"a":1,"b":2,"a":3}"#, "a"),
            (r#"{"to\u006fls":1,"tools":2}"#, "tools"),
            (r#"{"x":[{"y":1},{"y":{"z":[],"z":0}}]}"#, "x[1].y.z"),
            (r#"{"x":[[],[{"z":[],"z":0}]]}"#, "x[1][0].z"),
            (r#"{"":1,"":2}"#, ""),
            (&format!(r#"{{"{long}":1,"{long}":2}}"#), &long),
        ] {
            match parse_unique(json.as_bytes()) {
                Err(JsonBodyError::Duplicate(path)) => assert_eq!(path, expected, "{json}"),
                parsed => panic!("{json}: {parsed:?}"),
            }
        }
    }

    #[test]
    fn other_bodies_are_parsed_as_by_the_library() {
        for json in [
            r#"{"a":{"a":{"a":"a"}},"b":[["a","a"],{"a":1}]}"#,
            r#"{"a":1,"A":2}"#,
            r#"[1,-1,1.5,1e400,18446744073709551616,true,null,"a","\ud83d\ude00"]"#,
            r#"[1,-1,1.5,18446744073709551616,true,null,"a","\ud83d\ude00"]"#,
            r#"{"a":1,"#,
            "[] []",
            "no JSON",
            "",
            &"[".repeat(200),
        ] {
            match (parse_unique(json.as_bytes()), serde_json::from_str::<Value>(json)) {
                (Ok(parsed), Ok(expected)) => assert_eq!(parsed, expected, "{json}"),
                (Err(JsonBodyError::Syntax(error)), Err(expected)) => {
                    assert_eq!(error.to_string(), expected.to_string(), "{json}");
                }
                other => panic!("{json}: {other:?}"),
            }
        }
    }
}
