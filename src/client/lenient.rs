//! Reads answers that hold images but do not match the API document, from another service or a later version.
//!
//! The images are paid for, so no unexpected metadata makes the answer unreadable. Members that are not understood are
//! kept in `extra` under their own names, so that they are written back unchanged.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::wire::types::{Image, ImagesResponse};

pub(super) type JsonMap = Map<String, Value>;

/// The members of an event that belong to its image; the others belong to the answer.
const IMAGE_MEMBERS: [&str; 3] = ["b64_json", "revised_prompt", "url"];

/// The levels at which a member that cannot be read leaves the others readable: the answer, its list of images, an image.
const READABLE_LEVELS: u32 = 3;

/// Reads an object. A part of it that no [`Value`] can hold, such as the number `1e999`, becomes a string of its JSON text.
pub(super) fn read_object(text: &[u8]) -> serde_json::Result<JsonMap> {
    serde_json::from_slice(text).or_else(|error| {
        let raw: &RawValue = serde_json::from_slice(text)?;
        match read_value(raw, READABLE_LEVELS) {
            Value::Object(members) => Ok(members),
            _ => Err(error),
        }
    })
}

fn read_value(raw: &RawValue, levels: u32) -> Value {
    let text = raw.get();
    if let Ok(value) = serde_json::from_str(text) {
        return value;
    }
    let Some(levels) = levels.checked_sub(1) else { return text.into() };
    if let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
        return members.into_iter().map(|(name, raw)| (name, read_value(raw, levels))).collect();
    }
    match serde_json::from_str::<Vec<&RawValue>>(text) {
        Ok(elements) => elements.into_iter().map(|raw| read_value(raw, levels)).collect(),
        Err(_) => text.into(),
    }
}

/// Builds an answer from its JSON members. A member that is missing or of an unexpected type does not affect the others.
pub(super) fn response_from_answer(mut members: JsonMap) -> ImagesResponse {
    let data = match members.remove("data") {
        Some(Value::Array(images)) => images.into_iter().map(read_image).collect(),
        _ => Vec::new(),
    };
    ImagesResponse {
        background: take_member(&mut members, "background"),
        created: whole_seconds(members.remove("created").as_ref()),
        data,
        model: take_member(&mut members, "model"),
        output_format: take_member(&mut members, "output_format"),
        quality: take_member(&mut members, "quality"),
        size: take_member(&mut members, "size"),
        usage: take_member(&mut members, "usage"),
        extra: members,
    }
}

/// Converts an event with an image to the answer that the same request would have received without a stream.
pub(super) fn response_from_event(mut members: JsonMap) -> ImagesResponse {
    let image: JsonMap = IMAGE_MEMBERS.iter().filter_map(|name| members.remove_entry(*name)).collect();
    members.remove("type");
    members.remove("partial_image_index");
    if let Some(created) = members.remove("created_at") {
        members.insert("created".to_owned(), created);
    }
    members.insert("data".to_owned(), Value::Array(vec![Value::Object(image)]));
    response_from_answer(members)
}

/// Reads an image. An image that comes only as an address has no bytes; it is kept, because it was paid for too.
fn read_image(image: Value) -> Image {
    let Value::Object(mut members) = image else {
        return Image { b64_json: String::new(), revised_prompt: None, extra: Map::new() };
    };
    let b64_json = match members.remove("b64_json") {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    Image { b64_json, revised_prompt: take_member(&mut members, "revised_prompt"), extra: members }
}

/// Removes the named member and returns it if it is understood; otherwise leaves it in place.
fn take_member<T: DeserializeOwned>(members: &mut JsonMap, name: &str) -> Option<T> {
    let value = T::deserialize(members.get(name)?).ok()?;
    members.remove(name);
    Some(value)
}

/// Returns the time in whole seconds, because some services send fractions; 0 if there is no number.
fn whole_seconds(created: Option<&Value>) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "only the whole seconds are needed")]
    let to_seconds = |created: &Value| created.as_i64().or_else(|| created.as_f64().map(|seconds| seconds as i64));
    created.and_then(to_seconds).unwrap_or(0)
}
