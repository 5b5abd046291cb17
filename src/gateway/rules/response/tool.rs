//! One tool. What draws is judged like a request for images; everything else passes.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::job::ImageTool;
use super::{json, mask};
use crate::error::Rejection;
use crate::gateway::rules::{fields, image};
use crate::image::SizeRequest;
use crate::tables::IMAGE_TOOL_FIELDS;

const DRAWS: &str = "image_generation";
const MASK: &str = "input_image_mask";
/// The members of an image tool: those of the document's table.
const MEMBERS: [&str; IMAGE_TOOL_FIELDS.len()] = {
    let mut names = [""; IMAGE_TOOL_FIELDS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = IMAGE_TOOL_FIELDS[index].name;
        index += 1;
    }
    names
};

/// Checks a tool; what it asks for, if it draws.
pub(super) fn check(place: &str, raw: &RawValue) -> Result<Option<ImageTool>, Rejection> {
    let shape = json::shape(raw)?;
    if shape != json::Shape::Object {
        return Err(fields::wrong_type(place, "an object", shape.as_str()));
    }
    let kind = json::members(raw.get(), &["type"]).map_err(|error| fields::not_json(&error))?;
    let name = || format!("{place}.type");
    let kind = kind.get("type").ok_or_else(|| fields::missing(name()))?;
    match serde_json::from_str::<String>(kind.get()) {
        Ok(kind) if kind == DRAWS => draws(&format!("{place}."), raw).map(Some),
        Ok(_) => Ok(None),
        Err(_) => Err(fields::wrong_type(&name(), "a string", json::shape(kind)?.as_str())),
    }
}

fn draws(place: &str, raw: &RawValue) -> Result<ImageTool, Rejection> {
    let known = json::members(raw.get(), &MEMBERS).map_err(|error| fields::not_json(&error))?;
    let mut found = Map::new();
    for (name, raw) in known.iter().filter(|(name, _)| *name != MASK) {
        found.insert(name.to_owned(), scalar(raw)?);
    }
    image::fidelity(place, &mut found)?;
    image::transparency(place, &found)?;
    if let Some(other) = known.other() {
        return Err(fields::unknown(format!("{place}{other}")));
    }
    fields::check(place, IMAGE_TOOL_FIELDS, &mut found)?;
    let text = |key: &str| found.get(key).and_then(Value::as_str);
    let number = |key: &str| found.get(key).and_then(Value::as_i64);
    let (format, compression) = (text("output_format"), number("output_compression").unwrap_or(100));
    image::lossless(place, format, compression)?;
    known.get(MASK).map_or(Ok(()), |raw| mask::check(&format!("{place}{MASK}"), raw))?;
    // The table has held all of them to their bounds.
    Ok(ImageTool {
        size: text("size").and_then(|size| size.parse::<SizeRequest>().ok()).unwrap_or_default(),
        quality: text("quality").map(str::to_owned),
        format: format.and_then(|format| format.parse().ok()).unwrap_or_default(),
        compression: u8::try_from(compression).unwrap_or(100),
        partials: number("partial_images").and_then(|partials| u32::try_from(partials).ok()).unwrap_or(0),
    })
}

/// A value; of an array or object only that it is one, because no field of a tool but the mask may be one.
fn scalar(raw: &RawValue) -> Result<Value, Rejection> {
    match json::shape(raw)? {
        json::Shape::Array => Ok(Value::Array(Vec::new())),
        json::Shape::Object => Ok(Value::Object(Map::new())),
        _ => serde_json::from_str(raw.get()).map_err(|error| fields::not_json(&error)),
    }
}
