//! A request for a response: a task for a text model that may draw.
//!
//! Only what the document lists is looked at, and of the tools only those that draw are judged, by the very rules of the
//! image endpoints. Everything else is open: the bytes that came go upstream, and lie meanwhile where they lie, on disk
//! where there are many of them. They are walked over and never held.
//! It carries the rules on the main model and on the image tool.

mod agent;
mod data_url;
mod headers;
mod job;
mod json;
mod mask;
mod tool;
mod walk;
mod words;

pub(crate) use job::{ImageTool, ResponseJob};

use chrono::{DateTime, Utc};
use http::HeaderMap;

use self::job::{Places, Tools};
use self::json::{Known, Member, Part, Shape};
use self::walk::Walk;
use super::{ImageModels, fields};
use crate::error::{Error, Reason, Rejection};
use crate::gateway::spool::Kept;

/// Models whose names begin like this draw, and hold no conversation; so do those that the operator has added.
const IMAGE_MODELS: &str = "gpt-image-";
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
    "background",
    "prompt",
    "user",
    "safety_identifier",
];
/// Fields that are read, and what they must be where they are there; `null` stands for an absent value.
const OPTIONAL: [(&str, Shape); 8] = [
    ("instructions", Shape::Text),
    ("stream", Shape::Boolean),
    ("store", Shape::Boolean),
    ("parallel_tool_calls", Shape::Boolean),
    ("previous_response_id", Shape::Text),
    ("background", Shape::Boolean),
    ("user", Shape::Text),
    ("safety_identifier", Shape::Text),
];

/// Checks a request for a response. Of its headers those are kept that an upstream needs.
///
/// # Errors
///
/// The first rule that is broken, with the parameter at fault; or the disk, where it does not give the body back.
pub(super) fn response(
    models: &ImageModels,
    body: Kept,
    headers: &HeaderMap,
    received: DateTime<Utc>,
) -> Result<ResponseJob, Error> {
    let (known, begin) = json::read(&body, MEMBERS)?;
    let model = model(models, &known)?;
    let input = input(&body, &known)?;
    for (name, expected) in OPTIONAL {
        optional(&known, name, expected)?;
    }
    refuse_background(&known)?;
    let previous = previous(&known)?;
    let tools = tools(models, &body, &known)?;
    let text = |name: &str| known.get(name).and_then(Member::parsed::<String>);
    let member = known.get("tool_choice").and_then(Member::raw);
    Ok(ResponseJob {
        model,
        stream: known.get("stream").and_then(Member::parsed).unwrap_or(false),
        end_user: text("safety_identifier").or_else(|| text("user")),
        received,
        tools,
        places: Places { begin, input, tools: known.get("tools").map(|tools| tools.part) },
        choice: member.map(<[u8]>::to_vec),
        headers: headers::select(headers),
        agent: agent::is_official(headers),
        kept_prompt: known.get("prompt").is_some_and(|prompt| prompt.shape() != Shape::Null),
        injected: false,
        previous,
        account: None,
        turn: None,
        pieces: vec![body.clone()],
        body,
    })
}

fn model(models: &ImageModels, known: &Known) -> Result<String, Rejection> {
    let member = known.get("model").ok_or_else(|| fields::missing("model".to_owned()))?;
    if member.shape() != Shape::Text {
        return Err(fields::wrong_type("model", "a string", member.shape().as_str()));
    }
    let model: String = member.parsed().ok_or_else(|| tool::too_long("model"))?;
    if model.is_empty() {
        let message = "Invalid 'model': empty string. Expected the name of a text or agent model.";
        return Err(Rejection::new("model", Reason::StringBelowMin, message));
    }
    if model.starts_with(IMAGE_MODELS) || models.contains(&model) {
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
fn input(body: &Kept, known: &Known) -> Result<Part, Error> {
    let part = known.get("input").ok_or_else(|| fields::missing("input".to_owned()))?.part;
    match part.shape {
        Shape::Text => {}
        Shape::Array => Walk::through(body, part).array(&mut |walk, index| match walk.value()?.shape {
            Shape::Object => Ok(()),
            other => Err(fields::wrong_type(&format!("input[{index}]"), "an object", other.as_str()).into()),
        })?,
        other => return Err(fields::wrong_type("input", "a string or an array", other.as_str()).into()),
    }
    Ok(part)
}

fn optional(known: &Known, name: &str, expected: Shape) -> Result<(), Rejection> {
    match known.get(name).map(Member::shape) {
        None | Some(Shape::Null) => Ok(()),
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(fields::wrong_type(name, expected.as_str(), found.as_str())),
    }
}

/// A response in the background is over before it is made: no record would hold its tokens, and nobody could fetch it.
fn refuse_background(known: &Known) -> Result<(), Rejection> {
    if known.get("background").and_then(Member::parsed) == Some(true) {
        let message = "Invalid value: 'background' cannot be true here: a response can only be had by waiting for it, plain or as events.";
        return Err(Rejection::new("background", Reason::InvalidValue, message));
    }
    Ok(())
}

/// The id of the response that the request continues.
fn previous(known: &Known) -> Result<Option<String>, Rejection> {
    let name = "previous_response_id";
    match known.get(name).filter(|member| member.shape() == Shape::Text) {
        Some(member) => member.parsed().map(Some).ok_or_else(|| tool::too_long(name)),
        None => Ok(None),
    }
}

/// Every tool has a type; those that draw are judged.
fn tools(models: &ImageModels, body: &Kept, known: &Known) -> Result<Tools, Error> {
    let mut tools = Tools::default();
    let Some(part) = known.get("tools").map(|member| member.part) else { return Ok(tools) };
    match part.shape {
        Shape::Null => {}
        Shape::Array => Walk::through(body, part).array(&mut |walk, index| {
            tools.count();
            tool::check(models, &format!("tools[{index}]"), body, walk, &mut tools)
        })?,
        other => return Err(fields::wrong_type("tools", "an array", other.as_str()).into()),
    }
    Ok(tools)
}

#[cfg(test)]
mod tests;
