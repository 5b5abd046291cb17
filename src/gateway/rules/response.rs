//! Checks a request for a response: a task for a text model that may draw.
//!
//! Only the members that the document lists are read. Of the tools, those that draw are checked by the very rules of
//! the image endpoints. Everything else is open: the bytes that came go upstream, and stay in place until then, on disk
//! if there are many of them. They are walked over and never held in memory. This module carries the rules on the main
//! model and on the image tool.

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

use self::job::{BodyLayout, ToolSummary};
use self::json::{BodyMember, JsonType, KnownMembers, ValueSpan};
use self::walk::JsonWalker;
use super::{ImageModels, fields};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::spool::SpooledBytes;

/// The prefix of models that draw and hold no conversation. The models that the operator has added do the same.
const IMAGE_MODELS: &str = "gpt-image-";
/// The members of a request that are read.
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
/// The optional fields that are read, and the types that they must have; `null` stands for an absent value.
const OPTIONAL: [(&str, JsonType); 8] = [
    ("instructions", JsonType::Text),
    ("stream", JsonType::Boolean),
    ("store", JsonType::Boolean),
    ("parallel_tool_calls", JsonType::Boolean),
    ("previous_response_id", JsonType::Text),
    ("background", JsonType::Boolean),
    ("user", JsonType::Text),
    ("safety_identifier", JsonType::Text),
];

/// Checks a request for a response. Of its headers, those that an upstream needs are kept.
///
/// # Errors
///
/// Returns the first broken rule, with the parameter at fault, or an error if the body cannot be read back from disk.
pub(super) fn response(
    models: &ImageModels,
    body: SpooledBytes,
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
    let text = |name: &str| known.get(name).and_then(BodyMember::parsed::<String>);
    let member = known.get("tool_choice").and_then(BodyMember::raw);
    Ok(ResponseJob {
        model,
        stream: known.get("stream").and_then(BodyMember::parsed).unwrap_or(false),
        end_user: text("safety_identifier").or_else(|| text("user")),
        received,
        tools,
        places: BodyLayout { begin, input, tools: known.get("tools").map(|tools| tools.part) },
        choice: member.map(<[u8]>::to_vec),
        headers: headers::select(headers),
        agent: agent::is_official(headers),
        kept_prompt: known.get("prompt").is_some_and(|prompt| prompt.shape() != JsonType::Null),
        injected: false,
        previous,
        account: None,
        turn: None,
        pieces: vec![body.clone()],
        body,
    })
}

fn model(models: &ImageModels, known: &KnownMembers) -> Result<String, Rejection> {
    let member = known.get("model").ok_or_else(|| fields::missing("model".to_owned()))?;
    if member.shape() != JsonType::Text {
        return Err(fields::wrong_type("model", "a string", member.shape().as_str()));
    }
    let model: String = member.parsed().ok_or_else(|| tool::too_long("model"))?;
    if model.is_empty() {
        let message = "Invalid 'model': empty string. Expected the name of a text or agent model.";
        return Err(Rejection::new("model", RejectionReason::StringBelowMin, message));
    }
    if model.starts_with(IMAGE_MODELS) || models.contains(&model) {
        let message = format!(
            "Invalid value: '{}'. Image models are not allowed here: name a text or agent model, and the image model in \
             the 'image_generation' tool.",
            fields::clip(&model)
        );
        return Err(Rejection::new("model", RejectionReason::InvalidValue, message));
    }
    Ok(model)
}

/// Checks the input: a text, or a conversation of objects. The upstream checks the content of these objects.
fn input(body: &SpooledBytes, known: &KnownMembers) -> Result<ValueSpan, Error> {
    let part = known.get("input").ok_or_else(|| fields::missing("input".to_owned()))?.part;
    match part.shape {
        JsonType::Text => {}
        JsonType::Array => JsonWalker::through(body, part).array(&mut |walk, index| match walk.value()?.shape {
            JsonType::Object => Ok(()),
            other => Err(fields::wrong_type(&format!("input[{index}]"), "an object", other.as_str()).into()),
        })?,
        other => return Err(fields::wrong_type("input", "a string or an array", other.as_str()).into()),
    }
    Ok(part)
}

fn optional(known: &KnownMembers, name: &str, expected: JsonType) -> Result<(), Rejection> {
    match known.get(name).map(BodyMember::shape) {
        None | Some(JsonType::Null) => Ok(()),
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(fields::wrong_type(name, expected.as_str(), found.as_str())),
    }
}

/// Rejects a response in the background: no record would hold its tokens, and no caller could fetch it.
fn refuse_background(known: &KnownMembers) -> Result<(), Rejection> {
    if known.get("background").and_then(BodyMember::parsed) == Some(true) {
        let message = "Invalid value: 'background' cannot be true: this API does not run responses in the background. Use 'stream' or wait for the plain response.";
        return Err(Rejection::new("background", RejectionReason::InvalidValue, message));
    }
    Ok(())
}

/// Returns the id of the response that the request continues.
fn previous(known: &KnownMembers) -> Result<Option<String>, Rejection> {
    let name = "previous_response_id";
    match known.get(name).filter(|member| member.shape() == JsonType::Text) {
        Some(member) => member.parsed().map(Some).ok_or_else(|| tool::too_long(name)),
        None => Ok(None),
    }
}

/// Checks the tools: every tool has a type, and those that draw follow the image rules.
fn tools(models: &ImageModels, body: &SpooledBytes, known: &KnownMembers) -> Result<ToolSummary, Error> {
    let mut tools = ToolSummary::default();
    let Some(part) = known.get("tools").map(|member| member.part) else { return Ok(tools) };
    match part.shape {
        JsonType::Null => {}
        JsonType::Array => JsonWalker::through(body, part).array(&mut |walk, index| {
            tools.count();
            tool::check(models, &format!("tools[{index}]"), body, walk, &mut tools)
        })?,
        other => return Err(fields::wrong_type("tools", "an array", other.as_str()).into()),
    }
    Ok(tools)
}

#[cfg(test)]
mod tests;
