//! Finds a member that an object states twice.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::tokenizer::KEY_MAX;
use super::{JsonToken, JsonTokenizer};

/// An object or array that is open.
#[derive(Debug)]
enum Level {
    /// The keys that have occurred, and the current one.
    Object(HashSet<Box<str>>, Box<str>),
    /// The number of elements that have begun.
    Array(usize),
}

/// Returns the path of the first member that has the key of an earlier one in the same object, such as `limits.models`.
/// Keys are compared decoded. Returns `None` if there is none, or if the text is not JSON.
pub(crate) fn find_duplicate(json: &[u8]) -> Option<String> {
    let (mut tokens, mut at, mut levels) = (JsonTokenizer::default(), 0, Vec::new());
    loop {
        let (length, token) = tokens.next(&json[at..]).ok()?;
        at += length;
        match (token, levels.last_mut()) {
            (Some(JsonToken::Key), Some(Level::Object(keys, current))) => {
                *current = tokens.key().into();
                // Longer keys are cut, and no such member is read.
                if current.len() < KEY_MAX - 3 && !keys.insert(current.clone()) {
                    return Some(path(&levels));
                }
            }
            (Some(JsonToken::Start(first)), level) => {
                if let Some(Level::Array(elements)) = level {
                    *elements += 1;
                }
                levels.push(match first {
                    b'{' => Level::Object(HashSet::new(), Box::default()),
                    _ => Level::Array(0),
                });
            }
            (Some(JsonToken::End), _) => drop(levels.pop()),
            (None, _) if length == 0 => return None,
            _ => {}
        }
    }
}

fn path(levels: &[Level]) -> String {
    let mut path = String::new();
    for level in levels {
        // Writing to a text cannot fail.
        let _ = match level {
            Level::Object(_, key) if path.is_empty() => write!(path, "{key}"),
            Level::Object(_, key) => write!(path, ".{key}"),
            Level::Array(elements) => write!(path, "[{}]", elements.saturating_sub(1)),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_stated_twice_is_found() {
        for (json, path) in [
            (r#"{"a":1,"b":2,"a":3}"#, Some("a")),
            (r#"{"to\u006fls":1,"tools":2}"#, Some("tools")),
            (r#"{"x":[{"y":1},{"y":{"z":[],"z":0}}]}"#, Some("x[1].y.z")),
            (r#"{"":1,"":2}"#, Some("")),
            (r#"{"a":{"a":{"a":"a"}},"b":[["a","a"],{"a":1}]}"#, None),
            (r#"{"a":1,"A":2}"#, None),
            (r#"[1,1,"a","a"]"#, None),
            (r#"{"a":1,"#, None),
            ("no JSON", None),
        ] {
            assert_eq!(find_duplicate(json.as_bytes()).as_deref(), path, "{json}");
        }
        let long = "k".repeat(300);
        assert_eq!(find_duplicate(format!(r#"{{"{long}1":1,"{long}2":2}}"#).as_bytes()), None);
    }
}
