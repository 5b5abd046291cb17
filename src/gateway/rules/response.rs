//! Checks a request for a response: a task for a text model that may draw.
//!
//! Only the members that the document lists are read. Of the tools, those that draw are checked by the very rules of
//! the image endpoints. Everything else is open: the bytes that came go upstream, and stay in place until then, on disk
//! if there are many of them. They are walked over and never held in memory. This module carries the rules on the main
//! model and on the image tool.

mod agent;
mod body_members;
mod data_url;
mod forwarded_headers;
mod job;
mod json_walker;
mod mask;
mod request_text;
mod tool;

pub(crate) use job::{ImageTool, ResponseJob};

use chrono::{DateTime, Utc};
use http::HeaderMap;

use self::body_members::{BodyMember, JsonType, KnownMembers, ValueSpan};
use self::job::{BodyLayout, ToolSummary};
use self::json_walker::JsonWalker;
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
pub(super) fn check_response(
    models: &ImageModels,
    body: SpooledBytes,
    headers: &HeaderMap,
    received: DateTime<Utc>,
) -> Result<ResponseJob, Error> {
    let (known, begin) = body_members::read_members(&body, MEMBERS)?;
    let model = check_model(models, &known)?;
    let input = check_input(&body, &known)?;
    for (name, expected) in OPTIONAL {
        check_optional(&known, name, expected)?;
    }
    refuse_background(&known)?;
    let previous = previous_response_id(&known)?;
    let tools = check_tools(models, &body, &known)?;
    let text = |name: &str| known.get(name).and_then(BodyMember::parsed::<String>);
    let member = known.get("tool_choice").and_then(BodyMember::raw);
    Ok(ResponseJob {
        model,
        is_stream: known.get("stream").and_then(BodyMember::parsed).unwrap_or(false),
        end_user: text("safety_identifier").or_else(|| text("user")),
        received_at: received,
        tools,
        layout: BodyLayout { object_start: begin, input, tools: known.get("tools").map(|tools| tools.span) },
        tool_choice: member.map(<[u8]>::to_vec),
        headers: forwarded_headers::select_forwarded(headers),
        is_agent: agent::is_official(headers),
        has_stored_prompt: known.get("prompt").is_some_and(|prompt| prompt.json_type() != JsonType::Null),
        is_tool_injected: false,
        previous_response_id: previous,
        only_account: None,
        turn: None,
        body_pieces: vec![body.clone()],
        body,
    })
}

fn check_model(models: &ImageModels, known: &KnownMembers) -> Result<String, Rejection> {
    let member = known.get("model").ok_or_else(|| fields::missing_parameter("model".to_owned()))?;
    if member.json_type() != JsonType::Text {
        return Err(fields::wrong_type("model", "a string", member.json_type().as_str()));
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
fn check_input(body: &SpooledBytes, known: &KnownMembers) -> Result<ValueSpan, Error> {
    let part = known.get("input").ok_or_else(|| fields::missing_parameter("input".to_owned()))?.span;
    match part.json_type {
        JsonType::Text => {}
        JsonType::Array => {
            JsonWalker::over_span(body, part).visit_array(&mut |walk, index| match walk.skip_value()?.json_type {
                JsonType::Object => Ok(()),
                other => Err(fields::wrong_type(&format!("input[{index}]"), "an object", other.as_str()).into()),
            })?;
        }
        other => return Err(fields::wrong_type("input", "a string or an array", other.as_str()).into()),
    }
    Ok(part)
}

fn check_optional(known: &KnownMembers, name: &str, expected: JsonType) -> Result<(), Rejection> {
    match known.get(name).map(BodyMember::json_type) {
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
fn previous_response_id(known: &KnownMembers) -> Result<Option<String>, Rejection> {
    let name = "previous_response_id";
    match known.get(name).filter(|member| member.json_type() == JsonType::Text) {
        Some(member) => member.parsed().map(Some).ok_or_else(|| tool::too_long(name)),
        None => Ok(None),
    }
}

/// Checks the tools: every tool has a type, and those that draw follow the image rules.
fn check_tools(models: &ImageModels, body: &SpooledBytes, known: &KnownMembers) -> Result<ToolSummary, Error> {
    let mut tools = ToolSummary::default();
    let Some(part) = known.get("tools").map(|member| member.span) else { return Ok(tools) };
    match part.json_type {
        JsonType::Null => {}
        JsonType::Array => JsonWalker::over_span(body, part).visit_array(&mut |walk, index| {
            tools.count();
            tool::check_tool(models, &format!("tools[{index}]"), body, walk, &mut tools)
        })?,
        other => return Err(fields::wrong_type("tools", "an array", other.as_str()).into()),
    }
    Ok(tools)
}

#[cfg(test)]
mod tests;
