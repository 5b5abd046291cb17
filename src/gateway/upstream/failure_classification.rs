//! Classifies an upstream's error under the money rules: its cause, and with it its class.
//!
//! The module does no I/O except reading the clock. The table of classes is that of the money rules. The forms of
//! refusals and usage limits are those of the contract, and those that real upstreams and compatible servers were seen
//! to send (`answer_signals`, `code_meaning`, `sentences`, `stated_wait`). It implements the cases U11, U14 to U21 and
//! U31 of the failure catalogue.

mod answer_signals;
mod code_meaning;
mod imageless_answer;
mod message_redaction;
mod model_text;
mod sentences;
mod stated_wait;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};

use super::failure_cause::{AttemptFailure, BoundContext, FailureCause};
use crate::gateway::config::FailurePhrases;
use crate::tables::IMAGE_EDIT_FIELDS;
use answer_signals::AnswerSignals;
pub(crate) use imageless_answer::classify_imageless_answer;

/// The messages for a caller if the upstream's own message cannot be passed on.
const REJECTED_MESSAGE: &str = "The upstream rejected the request without naming a parameter.";
const TOO_LARGE_MESSAGE: &str = "The request is too large for the limits of the upstream.";
const UNUSABLE_IMAGE_MESSAGE: &str = "The upstream cannot use an image of the request.";
/// The members of a call for an image that only the gateway writes. The protocol `images` has some of them as parameters
/// of the caller; [`FaultScope::written`] names those that the gateway writes all the same.
const GATEWAY_MEMBERS: [&str; 8] =
    ["model", "tools", "tool_choice", "parallel_tool_calls", "stream", "store", "instructions", "include"];
/// The codes that some upstreams send with every success.
const SUCCESS_CODES: [&str; 4] = ["0", "200", "ok", "success"];
/// The status of an upstream that is overloaded. It is not one of HTTP, but widely used.
const OVERLOADED_STATUS: u16 = 529;
/// The longest name of a parameter that is accepted from an upstream, in bytes (our choice).
const MAX_PARAM_LENGTH: usize = 200;
/// The most characters of an upstream's message that a caller gets (our choice).
const MAX_MESSAGE_CHARS: usize = 1000;
/// The prefix of the fields of the image tool in the messages of an upstream.
const TOOL_PREFIX: &str = "tools[0].";

/// Decides which errors of an upstream are the fault of the caller, and which sentences of an account count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultScope<'a> {
    /// True if the caller wrote the body, and so chose its model, files and tools.
    is_body_from_caller: bool,
    /// The parameters of callers that the gateway has written or checked: an upstream that rejects one does not offer it.
    written: &'static [&'static str],
    /// The phrases that the operator has added for the account.
    phrases: &'a FailurePhrases,
}

// === impl FaultScope ===

impl<'a> FaultScope<'a> {
    /// Returns the scope of an image job at an upstream that offers the image endpoints: the rules have checked its model.
    pub(crate) const fn for_images(has_renamed_user: bool, phrases: &'a FailurePhrases) -> Self {
        let written: &[&str] = if has_renamed_user { &["model", "user"] } else { &["model"] };
        Self { is_body_from_caller: false, written, phrases }
    }

    /// Returns the scope of an image job as a response with the image tool: the gateway writes the whole body.
    pub(crate) const fn for_image_tool(has_renamed_user: bool, phrases: &'a FailurePhrases) -> Self {
        let written: &[&str] =
            if has_renamed_user { &["model", "n", "stream", "user"] } else { &["model", "n", "stream"] };
        Self { is_body_from_caller: false, written, phrases }
    }

    /// Returns the scope of a response, whose body the caller wrote.
    pub(crate) const fn for_response(phrases: &'a FailurePhrases) -> Self {
        Self { is_body_from_caller: true, written: &[], phrases }
    }

    /// True if the caller knows a parameter of this name, and has written it.
    fn is_parameter(self, param: &str) -> bool {
        if self.is_body_from_caller {
            is_response_parameter(param)
        } else {
            let field = param.strip_prefix(TOOL_PREFIX).unwrap_or(param);
            is_image_parameter(field) && !self.written.contains(&param_root(field))
        }
    }

    /// True if only the gateway has written a member of this name.
    fn is_written_by_gateway(self, member: &str) -> bool {
        let is_field = |field: &str| self.written.contains(&field) || GATEWAY_MEMBERS.contains(&field);
        let field = member.strip_prefix(TOOL_PREFIX).unwrap_or(member);
        !self.is_body_from_caller && !self.is_parameter(member) && (is_field(param_root(member)) || is_field(field))
    }
}

/// Classifies an answer whose status is not a success; `body` is its JSON value, if it has one.
pub(super) fn classify_status(
    status: StatusCode,
    headers: &HeaderMap,
    body: Option<&Value>,
    fault_scope: FaultScope<'_>,
) -> AttemptFailure {
    let error = body.and_then(error_object);
    let cause = classify_error(status, headers, error, fault_scope);
    let upstream_message =
        error.and_then(|error| message_redaction::redact_message(&cause, error_detail(error).as_deref()));
    AttemptFailure { upstream_message, ..AttemptFailure::new(cause).with_status(status.as_u16()) }
}

/// Returns the body of an error as an object; some upstreams send a list that contains it.
fn error_object(body: &Value) -> Option<&Map<String, Value>> {
    body.as_object().or_else(|| body.as_array()?.first()?.as_object())
}

fn classify_error(
    status: StatusCode,
    headers: &HeaderMap,
    body: Option<&Map<String, Value>>,
    fault_scope: FaultScope<'_>,
) -> FailureCause {
    let mut signals = body.map(|body| AnswerSignals::from_members(body, fault_scope.phrases)).unwrap_or_default();
    if signals.is_refused {
        return FailureCause::ContentRefused;
    }
    let (status, detail) = (status.as_u16(), body.and_then(error_detail));
    // A 401 is about the credentials alone, and a server error with tokens may have made an image.
    let codes_count = status >= 400 && status != 401 && !(status >= 500 && body.is_some_and(has_usage));
    if codes_count {
        if let Some(kind) = signals.bound_context
            && fault_scope.is_body_from_caller
            && !signals.unknown_model
            && matches!(status, 400 | 404 | 422)
        {
            return bound_context_failure(kind, detail.as_deref(), fault_scope);
        }
        signals.overloaded |= status == OVERLOADED_STATUS && detail.is_some();
        let is_oversized = signals.oversized && matches!(status, 413 | 429);
        if let Some(failure) = classify_codes(&signals, headers, body, is_oversized, fault_scope) {
            return failure;
        }
    }
    match status {
        // A 401 is about the account's own credentials, whatever the body says.
        401 => FailureCause::CredentialsRefused,
        429 => classify_account_limit(&signals, headers, body),
        400 | 403 | 413 | 415 | 422 | 500 | 503 if signals.reads_like_refusal() => FailureCause::ContentRefused,
        400 | 413 | 415 | 422 => classify_rejection(detail.as_deref(), &signals, fault_scope),
        402 => FailureCause::AccountUnpaid,
        // A file, a store or an earlier response does not exist at this account; another account may have it.
        404 if fault_scope.is_body_from_caller && body.is_some() => {
            match classify_rejection(detail.as_deref(), &signals, fault_scope) {
                FailureCause::InvalidRequest { param: None, message } => rejected_by_account(&message),
                failure => failure,
            }
        }
        404 | 410 => FailureCause::NotOffered,
        405 if body.is_some() => FailureCause::NotOffered,
        // The account may not use this model. A caller who names it must not cause a cooldown of the account.
        403 if signals.mentions_account() && signals.mentions_model => unknown_model_cause(fault_scope),
        403 if signals.mentions_account() => FailureCause::CredentialsRefused,
        403 if body.is_some() => FailureCause::ForbiddenToAccount,
        // A page that does not come from the upstream's API: a firewall in front of the API blocks the request.
        403 | 405 => FailureCause::BlockedByFirewall,
        451 => FailureCause::ContentRefused,
        // A well-formed error without tokens: the upstream itself states that nothing was made.
        500 | 503 if detail.is_some() && !body.is_some_and(has_usage) => FailureCause::Failed,
        504 | 524 => FailureCause::Timeout,
        _ => FailureCause::Broken,
    }
}

/// Classifies an answer by its codes, which count more than its status. The upstream has made nothing. Returns `None` if
/// no code is known.
fn classify_codes(
    signals: &AnswerSignals,
    headers: &HeaderMap,
    body: Option<&Map<String, Value>>,
    is_oversized: bool,
    fault_scope: FaultScope<'_>,
) -> Option<FailureCause> {
    if signals.unknown_model && !signals.is_account_limit() {
        Some(unknown_model_cause(fault_scope))
    } else if is_oversized {
        Some(rejected_by_account(TOO_LARGE_MESSAGE))
    } else if signals.is_account_limit() || signals.overloaded {
        Some(classify_account_limit(signals, headers, body))
    } else if signals.misses_tool && !fault_scope.is_body_from_caller {
        Some(FailureCause::NotOffered)
    } else if signals.forbidden {
        Some(FailureCause::ForbiddenToAccount)
    } else if signals.picture_fault {
        Some(unusable_image(body.and_then(error_detail).as_deref(), fault_scope))
    } else {
        None
    }
}

/// Returns the failure for an image of the caller that no account could use.
fn unusable_image(detail: Option<&Map<String, Value>>, fault_scope: FaultScope<'_>) -> FailureCause {
    let stated = detail.and_then(|detail| detail.get("param")).and_then(Value::as_str);
    let pictures = if fault_scope.is_body_from_caller { "input" } else { "image" };
    let param = Some(stated.filter(|param| fault_scope.is_parameter(param)).unwrap_or(pictures).to_owned());
    let message = safe_message(detail).unwrap_or_else(|| UNUSABLE_IMAGE_MESSAGE.to_owned());
    FailureCause::InvalidRequest { param, message }
}

/// Classifies the rejection of context that belongs to another account: the upstream has read it before it did anything.
fn bound_context_failure(
    kind: BoundContext,
    detail: Option<&Map<String, Value>>,
    fault_scope: FaultScope<'_>,
) -> FailureCause {
    let text = |key: &str| detail.and_then(|detail| detail.get(key)).and_then(Value::as_str);
    let param = text("param").filter(|param| fault_scope.is_parameter(param)).map(str::to_owned);
    let message = safe_message(detail).unwrap_or_else(|| REJECTED_MESSAGE.to_owned());
    FailureCause::BoundElsewhere { kind, param, message }
}

fn rejected_by_account(message: &str) -> FailureCause {
    FailureCause::RejectedByAccount { message: message.to_owned() }
}

/// Returns the cause for an unknown model. The rules have checked the model of an image job, but not that of a
/// response, which the caller chooses.
const fn unknown_model_cause(fault_scope: FaultScope<'_>) -> FailureCause {
    if fault_scope.is_body_from_caller { FailureCause::UnknownModel } else { FailureCause::NotOffered }
}

/// Classifies an answer that states that the account is not paid for, is used up, or got too many requests.
fn classify_account_limit(
    signals: &AnswerSignals,
    headers: &HeaderMap,
    body: Option<&Map<String, Value>>,
) -> FailureCause {
    let wait = || stated_wait::parse_wait(headers, body, stated_wait::unix_now());
    match (signals.unpaid, signals.exhausted) {
        (true, _) => FailureCause::AccountUnpaid,
        (false, true) => FailureCause::Exhausted { wait: wait() },
        (false, false) => FailureCause::Throttled { wait: wait() },
    }
}

/// Returns the object that describes the error: under `error`, under `response`, or the whole body if it is flat.
fn error_detail(members: &Map<String, Value>) -> Option<Cow<'_, Map<String, Value>>> {
    match members.get("error") {
        Some(Value::Object(detail)) if !detail.is_empty() => return Some(Cow::Borrowed(detail)),
        Some(Value::String(message)) if !message.is_empty() => {
            let mut detail = members.clone();
            detail.entry("message").or_insert_with(|| message.as_str().into());
            return Some(Cow::Owned(detail));
        }
        _ => {}
    }
    if let Some(response) = members.get("response").and_then(Value::as_object) {
        return error_detail(response)
            .or(imageless_answer::has_failed_status(response).then_some(Cow::Borrowed(response)));
    }
    let flat = members.contains_key("message") && (members.contains_key("code") || members.contains_key("type"));
    (flat && !members.get("code").is_some_and(is_success_code)).then_some(Cow::Borrowed(members))
}

/// True if the code of a flat answer is that of a success.
fn is_success_code(code: &Value) -> bool {
    let code = code.as_str().map_or_else(|| code.to_string(), str::to_ascii_lowercase);
    SUCCESS_CODES.contains(&code.as_str())
}

/// Classifies a rejection: an error with a 4xx status, or an answer with status 200 that names a parameter instead of
/// containing an image. In each case, nothing was made. If the answer has a code for an invalid
/// request, or names a parameter of the request, the caller is at fault: every account would answer the same. Otherwise
/// the account may be the cause, so one more account may be asked. An account that rejects a member that only the gateway
/// has written does not offer the call.
fn classify_rejection(
    detail: Option<&Map<String, Value>>,
    signals: &AnswerSignals,
    fault_scope: FaultScope<'_>,
) -> FailureCause {
    let text = |key: &str| detail.and_then(|detail| detail.get(key)).and_then(Value::as_str);
    let safe_message = safe_message(detail);
    let reject =
        |param: Option<&str>, message| FailureCause::InvalidRequest { param: param.map(str::to_owned), message };
    match text("param") {
        Some(param) if fault_scope.is_parameter(param) => {
            let message = safe_message.unwrap_or_else(|| format!("The upstream rejected the parameter '{param}'."));
            reject(Some(param), message)
        }
        param if signals.mentions_account() || param.is_some_and(is_account_parameter) => FailureCause::AccountFault,
        _ if detail.is_some_and(|detail| names_gateway_member(detail, fault_scope)) => FailureCause::NotOffered,
        None if signals.invalid_request => reject(None, safe_message.unwrap_or_else(|| REJECTED_MESSAGE.to_owned())),
        Some(_) | None => rejected_by_account(safe_message.as_deref().unwrap_or(REJECTED_MESSAGE)),
    }
}

/// True if an error names a parameter that callers know.
fn names_parameter(detail: &Map<String, Value>, fault_scope: FaultScope<'_>) -> bool {
    detail.get("param").and_then(Value::as_str).is_some_and(|param| fault_scope.is_parameter(param))
}

/// True if an error names a member that only the gateway has written, as its parameter or in quotation marks.
fn names_gateway_member(detail: &Map<String, Value>, fault_scope: FaultScope<'_>) -> bool {
    let text = |key: &str| detail.get(key).and_then(Value::as_str);
    match text("param").filter(|param| !param.is_empty()) {
        Some(param) => fault_scope.is_written_by_gateway(param),
        None => text("message").is_some_and(|message| {
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '[' | ']');
            let parts = message.split(['\'', '"', '`']).skip(1).step_by(2);
            parts.filter(|part| part.chars().all(is_name)).any(|part| fault_scope.is_written_by_gateway(part))
        }),
    }
}

/// True for the parameters of the image endpoints.
pub(crate) fn is_image_parameter(param: &str) -> bool {
    let root = param_root(param);
    root == "image" || IMAGE_EDIT_FIELDS.iter().any(|field| field.name == root)
}

/// True for the parameters of a response: any path into the body, unless it concerns the account.
fn is_response_parameter(param: &str) -> bool {
    let is_path_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'[' | b']' | b'-');
    !param_root(param).is_empty()
        && !is_account_parameter(param)
        && param.len() <= MAX_PARAM_LENGTH
        && param.bytes().all(is_path_byte)
}

/// True if a parameter concerns the account rather than the request.
fn is_account_parameter(param: &str) -> bool {
    ["organization", "project", "api_key", "authorization", "account"].contains(&param_root(param))
}

/// Returns the member of the body in which the path of a parameter begins.
fn param_root(param: &str) -> &str {
    param.split(['.', '[']).next().unwrap_or_default()
}

/// True if an error says that the same request fails again: its content was refused, in any wording, or it is invalid.
pub(crate) fn is_fault_of_request(members: &Map<String, Value>) -> bool {
    let phrases = FailurePhrases::default();
    let signals = AnswerSignals::from_members(members, &phrases);
    signals.is_refused || signals.reads_like_refusal() || signals.picture_fault || signals.invalid_request
}

/// Returns the upstream's message if it may go to the caller.
fn safe_message(detail: Option<&Map<String, Value>>) -> Option<String> {
    let message = clip(detail?.get("message")?.as_str()?, MAX_MESSAGE_CHARS);
    is_safe_for_caller(&message).then_some(message)
}

/// True if an upstream's message may go to the caller: it must not contain a credential, an address or an account.
fn is_safe_for_caller(message: &str) -> bool {
    let lowercase = message.to_ascii_lowercase();
    let sensitive_parts =
        ["sk-", "org-", "proj_", "bearer", "authorization", "api key", "api_key", "token", "://", "@"];
    !message.is_empty() && sensitive_parts.iter().all(|word| !lowercase.contains(word)) && !has_address(&lowercase)
}

/// True if the text has an address such as `10.0.0.1` or `host.example:443`.
fn has_address(text: &str) -> bool {
    text.split_whitespace().any(|word| {
        let word = word.trim_matches(|character: char| !character.is_ascii_alphanumeric());
        word.split('.').filter(|part| part.len() > 1 || part.parse::<u8>().is_ok()).count() > 2
            || word
                .rsplit_once(':')
                .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// True if a token count is above zero, which means that the answer was paid for.
fn has_usage(body: &Map<String, Value>) -> bool {
    let counts =
        |usage: &Map<String, Value>| usage.values().any(|count| count.as_f64().is_some_and(|count| count > 0.0));
    let object = |key: &str| body.get(key).and_then(Value::as_object);
    let tools = || object("tool_usage").and_then(|tools| tools.get("image_gen")).and_then(Value::as_object);
    object("usage").is_some_and(counts) || tools().is_some_and(counts) || object("response").is_some_and(has_usage)
}

/// Returns at most this number of characters without control characters, because callers see the text.
fn clip(text: &str, max_chars: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(max_chars).collect()
}
