//! Checks a request for a response: a task for a text model that may use the image tool.
//!
//! Only a few members are read (`MEMBERS`). Image tools are checked by the rules of the image endpoints. Everything
//! else is not checked: the body is sent upstream byte for byte, except that the gateway may add an image tool, or change
//! one as a dialect demands. A large body stays on disk and is parsed in place, never held in memory as a whole.

mod agent;
mod body_members;
mod body_reader;
mod data_url;
mod forwarded_headers;
mod job;
mod mask;
mod request_text;
mod tool;

pub(crate) use job::{ImageTool, ResponseJob};

use chrono::{DateTime, Utc};
use http::HeaderMap;
use serde_json::Value;

use self::body_members::{BodyMember, JsonType, KnownMembers, ValueSpan};
use self::body_reader::BodyReader;
use self::job::{BodyLayout, ToolSummary};
use super::{ImageModels, fields};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::dialects::ToolChanges;
use crate::gateway::spool::SpooledBytes;

/// The prefix of the ids of OpenAI's image models. An image model cannot make a response, and neither can one that the
/// operator has added, whatever its id.
const IMAGE_MODEL_PREFIX: &str = "gpt-image-";
/// The members of a request that the gateway reads.
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
    "max_output_tokens",
];
/// The optional members whose types are checked. `null` counts as absent.
const OPTIONAL_MEMBERS: [(&str, JsonType); 8] = [
    ("instructions", JsonType::Text),
    ("stream", JsonType::Boolean),
    ("store", JsonType::Boolean),
    ("parallel_tool_calls", JsonType::Boolean),
    ("previous_response_id", JsonType::Text),
    ("background", JsonType::Boolean),
    ("user", JsonType::Text),
    ("safety_identifier", JsonType::Text),
];

/// Checks a request for a response. The job keeps only those headers that are forwarded upstream.
///
/// # Errors
///
/// Returns the first broken rule, with the invalid parameter, or an error if the body cannot be read from disk.
pub(super) fn check_response(
    models: &ImageModels,
    body: SpooledBytes,
    (headers, received): (&HeaderMap, DateTime<Utc>),
    changes: &mut ToolChanges,
) -> Result<ResponseJob, Error> {
    let known = body_members::read_body(&body, MEMBERS)?;
    let model = check_model(models, &known)?;
    let input = check_input(&body, &known)?;
    for (name, expected) in OPTIONAL_MEMBERS {
        check_optional(&known, name, expected)?;
    }
    refuse_background(&known)?;
    let previous_response_id = previous_response_id(&known)?;
    let tools = check_tools(models, &body, &known, changes)?;
    let text = |name: &str| known.get(name).and_then(BodyMember::parse::<String>);
    let tool_choice = parse_tool_choice(&known)?;
    Ok(ResponseJob {
        model,
        is_stream: known.get("stream").and_then(BodyMember::parse).unwrap_or(false),
        end_user: text("safety_identifier").or_else(|| text("user")),
        received_at: received,
        layout: BodyLayout { object_start: known.span.start, input, tools: known.get("tools").map(|tools| tools.span) },
        tool_choice,
        headers: forwarded_headers::select_forwarded(headers),
        is_agent: agent::is_official(headers),
        has_stored_prompt: known.get("prompt").is_some_and(|prompt| prompt.json_type() != JsonType::Null),
        is_tool_injected: false,
        previous_response_id,
        // The upstream checks it: a value that is no count is no limit here.
        max_output_tokens: known.get("max_output_tokens").and_then(BodyMember::parse),
        only_account: None,
        turn: None,
        adapted: changes.text(),
        body_pieces: tools.upstream_pieces(&body),
        tools,
        body,
    })
}

fn check_model(models: &ImageModels, known: &KnownMembers) -> Result<String, Rejection> {
    let member = known.get("model").ok_or_else(|| fields::missing_parameter("model".to_owned()))?;
    if member.json_type() != JsonType::Text {
        return Err(fields::wrong_type("model", "a string", member.json_type().as_str()));
    }
    let model: String = member.parse().ok_or_else(|| tool::too_long("model"))?;
    if model.is_empty() {
        let message = "Invalid 'model': empty string. Expected the name of a text or agent model.";
        return Err(Rejection::new("model", RejectionReason::StringBelowMin, message));
    }
    if model.starts_with(IMAGE_MODEL_PREFIX) || models.contains(&model) {
        let message = format!(
            "Invalid value: '{}'. Image models are not allowed here: name a text or agent model, and the image model in \
             the 'image_generation' tool.",
            fields::clip(&model)
        );
        return Err(Rejection::new("model", RejectionReason::InvalidValue, message));
    }
    Ok(model)
}

/// Checks the input, which is a string or an array of objects, and returns its span. The upstream checks the objects.
fn check_input(body: &SpooledBytes, known: &KnownMembers) -> Result<ValueSpan, Error> {
    let input = known.get("input").ok_or_else(|| fields::missing_parameter("input".to_owned()))?.span;
    match input.json_type {
        JsonType::Text => {}
        JsonType::Array => {
            let (mut items, _) = BodyReader::over_span(body, input)?;
            let mut index = 0;
            while let Some(item) = items.next_value()? {
                let found = items.skip(item)?.json_type;
                if found != JsonType::Object {
                    return Err(fields::wrong_type(&format!("input[{index}]"), "an object", found.as_str()).into());
                }
                index += 1;
            }
        }
        found => return Err(fields::wrong_type("input", "a string or an array", found.as_str()).into()),
    }
    Ok(input)
}

fn check_optional(known: &KnownMembers, name: &str, expected: JsonType) -> Result<(), Rejection> {
    match known.get(name).map(BodyMember::json_type) {
        None | Some(JsonType::Null) => Ok(()),
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(fields::wrong_type(name, expected.as_str(), found.as_str())),
    }
}

/// Rejects a response in the background: the gateway could not record its tokens, and the caller could not fetch it.
fn refuse_background(known: &KnownMembers) -> Result<(), Rejection> {
    if known.get("background").and_then(BodyMember::parse) == Some(true) {
        let message = "Invalid value: 'background' cannot be true: this API does not run responses in the background. Use 'stream' or wait for the plain response.";
        return Err(Rejection::new("background", RejectionReason::InvalidValue, message));
    }
    Ok(())
}

/// Returns the id of the response that the request continues, if it names one.
fn previous_response_id(known: &KnownMembers) -> Result<Option<String>, Rejection> {
    let name = "previous_response_id";
    match known.get(name).filter(|member| member.json_type() == JsonType::Text) {
        Some(member) => member.parse().map(Some).ok_or_else(|| tool::too_long(name)),
        None => Ok(None),
    }
}

/// Returns the `tool_choice`. One that cannot be read is rejected, because it may name a tool that the group does not
/// allow.
fn parse_tool_choice(known: &KnownMembers) -> Result<Option<Value>, Rejection> {
    let name = "tool_choice";
    let Some(member) = known.get(name) else { return Ok(None) };
    if member.raw().is_none() {
        return Err(tool::too_long(name));
    }
    let message = "Invalid 'tool_choice': a number is out of range.";
    member.parse().map(Some).ok_or_else(|| Rejection::new(name, RejectionReason::InvalidValue, message))
}

/// Checks the tools: each must be an object with a type, and image tools must follow the image rules.
fn check_tools(
    models: &ImageModels,
    body: &SpooledBytes,
    known: &KnownMembers,
    changes: &mut ToolChanges,
) -> Result<ToolSummary, Error> {
    let mut tools = ToolSummary::default();
    let Some(span) = known.get("tools").map(|member| member.span) else { return Ok(tools) };
    match span.json_type {
        JsonType::Null => {}
        JsonType::Array => {
            let (mut reader, _) = BodyReader::over_span(body, span)?;
            while let Some(tool) = reader.next_value()? {
                let known = body_members::read_members(&mut reader, tool, tool::members(changes))?;
                tool::check_tool(models, body, &known, &mut tools, changes)?;
            }
        }
        found => return Err(fields::wrong_type("tools", "an array", found.as_str()).into()),
    }
    Ok(tools)
}

#[cfg(test)]
mod tests;
