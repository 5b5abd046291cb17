//! Answers of images that do not have the form of the document: from another service, or of a later version.
//!
//! The images are paid for, so nothing that is said about them makes the answer unreadable. What is not understood
//! stands in `extra` under its own name, so that it is written as it came.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::wire::types::{Image, ImagesResponse};

pub(super) type Members = Map<String, Value>;

/// The members of an event that belong to its image; the others belong to the answer.
const OF_IMAGE: [&str; 3] = ["b64_json", "revised_prompt", "url"];

/// The answer with these members.
pub(super) fn answer(mut members: Members) -> ImagesResponse {
    let data = match members.remove("data") {
        Some(Value::Array(images)) => images.into_iter().map(image).collect(),
        _ => Vec::new(),
    };
    ImagesResponse {
        background: take(&mut members, "background"),
        created: time(members.remove("created").as_ref()),
        data,
        model: take(&mut members, "model"),
        output_format: take(&mut members, "output_format"),
        quality: take(&mut members, "quality"),
        size: take(&mut members, "size"),
        usage: take(&mut members, "usage"),
        extra: members,
    }
}

/// An event with an image as the answer that the same request would have had without a stream.
pub(super) fn event(mut members: Members) -> ImagesResponse {
    let image: Members = OF_IMAGE.iter().filter_map(|name| members.remove_entry(*name)).collect();
    members.remove("type");
    members.remove("partial_image_index");
    if let Some(created) = members.remove("created_at") {
        members.insert("created".to_owned(), created);
    }
    members.insert("data".to_owned(), Value::Array(vec![Value::Object(image)]));
    answer(members)
}

/// An image that comes as an address has no bytes, but has been paid for too.
fn image(image: Value) -> Image {
    let Value::Object(mut members) = image else {
        return Image { b64_json: String::new(), revised_prompt: None, extra: Map::new() };
    };
    let b64_json = match members.remove("b64_json") {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    Image { b64_json, revised_prompt: take(&mut members, "revised_prompt"), extra: members }
}

/// Takes what is understood out of the members, and leaves the rest.
fn take<T: DeserializeOwned>(members: &mut Members, name: &str) -> Option<T> {
    let value = T::deserialize(members.get(name)?).ok()?;
    members.remove(name);
    Some(value)
}

/// Some services count parts of seconds.
fn time(created: Option<&Value>) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "the whole seconds are wanted")]
    let whole = |created: &Value| created.as_i64().or_else(|| created.as_f64().map(|seconds| seconds as i64));
    created.and_then(whole).unwrap_or(0)
}
