//! Checks a request for a response: a task for a text model that may use the image tool.
//!
//! Every value is visited once, so that what is judged is what is sent ([`body_visitor`]). Image tools are checked by the
//! rules of the image endpoints, wherever they stand. Everything else is not checked: the body is sent upstream byte for byte, except that the gateway may add an image tool, or change
//! one as a dialect demands. A large body stays on disk and is parsed in place, never held in memory as a whole.

mod agent;
mod body_contents;
mod body_edits;
mod body_members;
mod body_path;
mod body_reader;
mod body_visitor;
mod data_filter;
mod data_url;
mod forwarded_headers;
mod item_kind;
mod job;
mod mask;
mod member_name;
mod request_text;
mod serving_accounts;
mod tool;
mod tool_summary;

pub(crate) use body_contents::{StoredId, StoredKind, UnjudgedPart};
pub(crate) use job::ResponseJob;
pub(crate) use request_text::{TextScope, TextWindows};
pub(crate) use serving_accounts::{ContextValue, ServingAccounts};
pub(crate) use tool_summary::ImageTool;

use chrono::{DateTime, Utc};
use http::HeaderMap;
use serde_json::Value;

use self::body_members::{BodyMember, JsonType, KnownMembers, ValueSpan};
use self::body_visitor::{VisitedBody, visit_body};
use self::job::BodyLayout;
use self::tool::ToolRules;
use super::{ImageModels, fields};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::dialects::ToolChanges;
use crate::gateway::spool::SpooledBytes;
use crate::tables::{FieldKind, RESPONSE_FIELDS};
use crate::wire::types::ResponseRequest;

/// The prefix of the ids of OpenAI's image models. An image model cannot make a response, and neither can one that the
/// operator has added, whatever its id.
const IMAGE_MODEL_PREFIX: &str = "gpt-image-";
/// The most bytes of a `tool_choice` (our choice).
const CHOICE_BYTES_MAX: usize = 64 * 1024;
/// Checks a request for a response. The job keeps only those headers that are forwarded upstream.
///
/// # Errors
///
/// Returns the first broken rule, with the invalid parameter, or an error if the body cannot be read from disk.
pub(super) fn check_response(
    models: &ImageModels,
    body: SpooledBytes,
    headers: &HeaderMap,
    received: DateTime<Utc>,
    changes: &mut ToolChanges,
) -> Result<ResponseJob, Error> {
    let VisitedBody { known, contents, rejection } = visit_body(ToolRules { models, body: &body, changes })?;
    check_model(models, &known)?;
    let input = check_input(&known)?;
    check_optional_members(&known)?;
    refuse_background(&known)?;
    check_previous_response(&known)?;
    check_tool_list(&known)?;
    rejection.map_or(Ok(()), Err)?;
    let tool_choice = parse_tool_choice(&body, &known)?;
    let request: ResponseRequest = known.read().ok_or_else(|| tool::too_long("model"))?;
    // The upstream checks it: a value that is no count is no limit here, and neither is zero.
    let count = |name: &str| known.get(name).and_then(BodyMember::parse).filter(|count| *count > 0);
    let span = |name: &str| known.get(name).map(|member| member.span);
    let mut job = ResponseJob {
        model: request.model.into(),
        is_stream: request.stream.unwrap_or(false),
        end_user: request.safety_identifier.or(request.user),
        prompt_cache_key: known.get("prompt_cache_key").and_then(BodyMember::parse),
        received_at: received,
        layout: BodyLayout {
            object_start: known.span.start,
            input,
            tools: span("tools"),
            max_output_tokens: span("max_output_tokens"),
            max_tool_calls: span("max_tool_calls"),
        },
        tool_choice,
        headers: forwarded_headers::select_forwarded(headers),
        is_agent: agent::is_official(headers),
        has_stored_prompt: known.get("prompt").is_some_and(|prompt| prompt.json_type() != JsonType::Null),
        injection: None,
        max_output_tokens: count("max_output_tokens"),
        max_tool_calls: count("max_tool_calls"),
        accounts: ServingAccounts::default(),
        turn: None,
        adapted: changes.text(),
        edits: contents.tools.edits.clone(),
        body_pieces: Vec::new(),
        contents,
        body,
    };
    job.join_pieces();
    Ok(job)
}

fn check_model(models: &ImageModels, known: &KnownMembers) -> Result<(), Rejection> {
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
    Ok(())
}

/// Checks the input, which is a string or an array of objects, and returns its span. The upstream checks the objects.
fn check_input(known: &KnownMembers) -> Result<ValueSpan, Rejection> {
    let input = known.get("input").ok_or_else(|| fields::missing_parameter("input".to_owned()))?.span;
    match input.json_type {
        JsonType::Text | JsonType::Array => Ok(input),
        found => Err(fields::wrong_type("input", "a string or an array", found.as_str())),
    }
}

fn check_tool_list(known: &KnownMembers) -> Result<(), Rejection> {
    match known.get("tools").map(BodyMember::json_type) {
        None | Some(JsonType::Null | JsonType::Array) => Ok(()),
        Some(found) => Err(fields::wrong_type("tools", "an array", found.as_str())),
    }
}

/// Checks the types of the optional members. `null` counts as absent.
fn check_optional_members(known: &KnownMembers) -> Result<(), Rejection> {
    check_optional(known, "instructions", JsonType::Text)?;
    check_optional(known, "background", JsonType::Boolean)?;
    for field in RESPONSE_FIELDS.iter().filter(|field| !field.required) {
        let is_flag = field.kind == FieldKind::Boolean;
        check_optional(known, field.name, if is_flag { JsonType::Boolean } else { JsonType::Text })?;
    }
    Ok(())
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

/// Rejects a text that is too long for the id of a response.
fn check_previous_response(known: &KnownMembers) -> Result<(), Rejection> {
    let name = "previous_response_id";
    let is_too_long = known.get(name).is_some_and(|member| member.raw().is_none());
    if is_too_long { Err(tool::too_long(name)) } else { Ok(()) }
}

/// Returns the `tool_choice`. One that cannot be read is rejected: the gateway could not tell the tools that it allows.
fn parse_tool_choice(body: &SpooledBytes, known: &KnownMembers) -> Result<Option<Value>, Rejection> {
    let name = "tool_choice";
    let Some(member) = known.get(name) else { return Ok(None) };
    let raw = body_members::read_span(body, member.span, CHOICE_BYTES_MAX).ok_or_else(|| tool::too_long(name))?;
    let message = "Invalid 'tool_choice': a number is out of range.";
    let parsed = serde_json::from_slice(&raw);
    parsed.map(Some).map_err(|_| Rejection::new(name, RejectionReason::InvalidValue, message))
}

#[cfg(test)]
mod tests;
