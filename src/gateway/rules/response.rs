//! A request for a response: a task for a text model that may draw.
//!
//! Only what the document lists is looked at, and of the tools only those that draw are judged, by the very rules of the
//! image endpoints. Everything else is open: the body is kept as the bytes that came, and those go upstream.
//! It carries the rules on the main model and on the image tool.

mod headers;
mod job;
mod json;
mod mask;
mod tool;
mod words;

pub(crate) use job::{ImageTool, ResponseJob};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;
use serde_json::value::RawValue;

use self::job::Tools;
use self::json::{Known, Shape};
use super::fields;
use crate::error::{Reason, Rejection};

/// Models whose names begin like this draw, and hold no conversation.
const IMAGE_MODELS: &str = "gpt-image-";
/// Fields that are read, and what they must be where they are there; `null` stands for an absent value.
const OPTIONAL: [(&str, Shape); 7] = [
    ("instructions", Shape::Text),
    ("stream", Shape::Boolean),
    ("store", Shape::Boolean),
    ("parallel_tool_calls", Shape::Boolean),
    ("previous_response_id", Shape::Text),
    ("user", Shape::Text),
    ("safety_identifier", Shape::Text),
];

/// Checks a request for a response. Of its headers those are kept that an upstream needs.
///
/// # Errors
///
/// The first rule that is broken, with the parameter at fault.
pub(crate) fn response(body: Bytes, headers: &HeaderMap, received: DateTime<Utc>) -> Result<ResponseJob, Rejection> {
    let known = json::read(&body)?;
    let model = model(&known)?;
    input(&known)?;
    for (name, expected) in OPTIONAL {
        optional(&known, name, expected)?;
    }
    let tools = tools(&known)?;
    let text = |name: &str| known.get(name).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let end_user = text("user").or_else(|| text("safety_identifier"));
    let stream = known.get("stream").is_some_and(|raw| raw.get() == "true");
    let part = |name: &str| known.get(name).map(|raw| body.slice_ref(raw.get().as_bytes()));
    let (input, listed, choice) = (part("input").unwrap_or_default(), part("tools"), part("tool_choice"));
    let headers = headers::select(headers);
    Ok(ResponseJob { model, stream, end_user, received, tools, input, listed, choice, headers, body })
}

fn model(known: &Known<'_>) -> Result<String, Rejection> {
    let raw = known.get("model").ok_or_else(|| fields::missing("model".to_owned()))?;
    let model: String = serde_json::from_str(raw.get()).map_err(|_| wrong_type("model", "a string", raw))?;
    if model.is_empty() {
        let message = "Invalid 'model': empty string. Expected the name of a text or agent model.";
        return Err(Rejection::new("model", Reason::StringBelowMin, message));
    }
    if model.starts_with(IMAGE_MODELS) {
        let message = format!(
            "Invalid value: '{}'. Image models are not allowed here: name a text or agent model, and the image model in \
             the 'image_generation' tool.",
            fields::clip(&model)
        );
        return Err(Rejection::new("model", Reason::InvalidValue, message));
    }
    Ok(model)
}

/// A text, or the items of a conversation. What the items are is the upstream's to judge.
fn input(known: &Known<'_>) -> Result<(), Rejection> {
    let raw = known.get("input").ok_or_else(|| fields::missing("input".to_owned()))?;
    match json::shape(raw)? {
        Shape::Text => Ok(()),
        Shape::Array => json::each(raw, |index, item| match json::shape(item)? {
            Shape::Object => Ok(()),
            other => Err(fields::wrong_type(&format!("input[{index}]"), "an object", other.as_str())),
        }),
        other => Err(fields::wrong_type("input", "a string or an array", other.as_str())),
    }
}

fn optional(known: &Known<'_>, name: &str, expected: Shape) -> Result<(), Rejection> {
    let Some(raw) = known.get(name) else { return Ok(()) };
    match json::shape(raw)? {
        Shape::Null => Ok(()),
        found if found == expected => Ok(()),
        found => Err(fields::wrong_type(name, expected.as_str(), found.as_str())),
    }
}

/// Every tool has a type; those that draw are judged.
fn tools(known: &Known<'_>) -> Result<Tools, Rejection> {
    let mut tools = Tools::default();
    let Some(raw) = known.get("tools") else { return Ok(tools) };
    match json::shape(raw)? {
        Shape::Null => return Ok(tools),
        Shape::Array => {}
        other => return Err(fields::wrong_type("tools", "an array", other.as_str())),
    }
    json::each(raw, |index, raw| {
        if let Some(tool) = tool::check(&format!("tools[{index}]"), raw)? {
            tools.add(tool);
        }
        Ok(())
    })?;
    Ok(tools)
}

fn wrong_type(name: &str, expected: &str, raw: &RawValue) -> Rejection {
    json::shape(raw).map_or_else(|rejection| rejection, |found| fields::wrong_type(name, expected, found.as_str()))
}

#[cfg(test)]
mod tests;
