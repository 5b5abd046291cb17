//! The places of an answer at which upstreams put images besides those of the contract, and the members in which such
//! places are: they are visited value by value, and put together again if they have no image.

use serde_json::{Map, Value};

use crate::gateway::relay::event::MemberScope;
use crate::stream::json::{JsonPosition, PATH_DEPTH};
use crate::words::lines_of;

/// The objects and arrays that may contain an image. A member that repeats the request, such as `input` or `tools`, is not
/// among them.
const CONTAINERS: &[&str] = lines_of!("picture_places/containers.txt");
/// The members that may be an image.
const PICTURES: [&str; 17] = [
    "b64",
    "b64_image",
    "b64_json",
    "base64",
    "base64_image",
    "bytesBase64Encoded",
    "content",
    "data",
    "image",
    "image_b64",
    "image_base64",
    "image_url",
    "images",
    "output",
    "result",
    "text",
    "url",
];
/// The members with text for people.
const PROSE: [&str; 2] = ["content", "text"];
/// The most bytes of one member that is put together again (our choice).
const REBUILT_MAX: usize = 256 * 1024;

/// A member that is put together from the values in it.
#[derive(Debug)]
pub(super) struct RebuiltMember {
    pub(super) scope: MemberScope,
    pub(super) name: String,
    /// The open objects and arrays, outermost first, with their keys.
    levels: Vec<(String, Value)>,
    bytes: usize,
    has_image: bool,
    is_dropped: bool,
}

/// A member that has ended.
#[derive(Debug)]
pub(super) enum RebuiltValue {
    Whole(Value),
    /// It has an image, which is all that is wanted of it.
    HasImage,
    Dropped,
}

// === impl RebuiltMember ===

impl RebuiltMember {
    /// Begins with an object or array.
    pub(super) fn new(scope: MemberScope, name: &str, first: u8) -> Self {
        let levels = vec![(String::new(), empty_container(first))];
        Self { scope, name: name.to_owned(), levels, bytes: 0, has_image: false, is_dropped: false }
    }

    pub(super) fn open(&mut self, key: &str, first: u8) {
        self.bytes += key.len();
        self.levels.push((key.to_owned(), empty_container(first)));
    }

    pub(super) fn note_image(&mut self) {
        self.has_image = true;
    }

    /// Adds a value; `None` if it cannot be held.
    pub(super) fn add(&mut self, key: &str, value: Option<Value>) {
        let Some(value) = value else { return self.is_dropped = true };
        // Objects and arrays have been counted by their values.
        self.bytes += key.len() + value.as_str().map_or(8, str::len);
        self.is_dropped |= self.bytes > REBUILT_MAX;
        if self.is_dropped {
            return;
        }
        match self.levels.last_mut() {
            Some((_, Value::Object(members))) => drop(members.insert(key.to_owned(), value)),
            Some((_, Value::Array(elements))) => elements.push(value),
            Some(_) | None => {}
        }
    }

    /// Ends an object or array. Returns the member if it was the outermost one.
    pub(super) fn close(&mut self) -> Option<RebuiltValue> {
        let (key, value) = self.levels.pop()?;
        if !self.levels.is_empty() {
            self.add(&key, Some(value));
            return None;
        }
        Some(if self.has_image {
            RebuiltValue::HasImage
        } else if self.is_dropped {
            RebuiltValue::Dropped
        } else {
            RebuiltValue::Whole(value)
        })
    }
}

fn empty_container(first: u8) -> Value {
    if first == b'[' { Value::Array(Vec::new()) } else { Value::Object(Map::new()) }
}

/// True if the object or array at this position may contain an image, and the values in it can be visited.
pub(super) fn may_contain_picture(at: JsonPosition<'_>) -> bool {
    at.depth < PATH_DEPTH && steps(at.path).all(|step| CONTAINERS.contains(&step))
}

/// True if the text at this position may be an image.
pub(super) fn may_be_picture(at: JsonPosition<'_>) -> bool {
    let (parents, last) = split_last(at.path);
    // A delta is only a part of its text.
    let is_part = PROSE.contains(&last) && steps(parents).any(|step| step == "delta");
    !is_part && PICTURES.contains(&last) && steps(parents).all(|step| CONTAINERS.contains(&step))
}

/// True if the text at this position is for people.
pub(super) fn is_prose(at: JsonPosition<'_>) -> bool {
    PROSE.contains(&split_last(at.path).1)
}

fn split_last(path: &str) -> (&str, &str) {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    (parents, last.trim_end_matches("[]"))
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|step| !step.is_empty()).map(|step| step.trim_end_matches("[]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> JsonPosition<'_> {
        JsonPosition { path, key: "", depth: path.split('.').count() }
    }

    #[test]
    fn an_echo_of_the_request_is_no_place_of_an_image() {
        for path in
            ["data[]", "images[].url", "choices[].message.images[].image_url.url", "image", "response.output[].result"]
        {
            assert!(may_be_picture(at(path)), "{path}");
        }
        for path in [
            "input",
            "tools[].input_image_mask.image_url",
            "response.input[].content[].image_url",
            "id",
            "delta",
            "choices[].delta.content",
        ] {
            assert!(!may_be_picture(at(path)), "{path}");
        }
        assert!(may_contain_picture(at("choices[].message")));
        assert!(!may_contain_picture(at("response.tools[]")));
    }

    #[test]
    fn a_member_is_put_together_again() {
        let mut member = RebuiltMember::new(MemberScope::Answer, "choices", b'[');
        member.open("", b'{');
        member.add("index", Some(0.into()));
        member.open("message", b'{');
        member.add("content", Some("no".into()));
        assert!(member.close().is_none() && member.close().is_none());
        let whole = member.close();
        assert!(
            matches!(&whole, Some(RebuiltValue::Whole(value)) if *value == serde_json::json!([{"index": 0, "message": {"content": "no"}}])),
            "{whole:?}"
        );
    }
}
