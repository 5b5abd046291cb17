//! Classifies a complete answer without an image: a refusal, text, a task, or a failure. An answer that states no failure
//! is ambiguous, because an image may have been made.

use http::HeaderMap;
use serde_json::{Map, Value};

use super::answer_signals::AnswerSignals;
use super::model_text::TextStatement;
use super::{
    FaultScope, bound_context_failure, classify_codes, classify_rejection, error_detail, has_usage, message_redaction,
    names_gateway_member, names_parameter,
};
use crate::gateway::upstream::failure_cause::{AttemptFailure, FailureCause};

/// The states of a task that has not ended.
const PENDING_STATES: [&str; 5] = ["queued", "pending", "processing", "in_progress", "submitted"];

/// Classifies a complete answer that states success and has no image, from the members of the answer, of its error event,
/// or of a complete response object. `has_possible_image` is true if the answer has a possible image, such as an
/// address. Only an answer that states a failure is one: any other may belong to an image that was made.
pub(crate) fn classify_imageless_answer(
    members: &Map<String, Value>,
    has_possible_image: bool,
    fault_scope: FaultScope<'_>,
) -> AttemptFailure {
    let signals = AnswerSignals::from_members(members, fault_scope.phrases);
    let detail = error_detail(members);
    let has_picture = has_possible_image || signals.has_picture;
    let is_failed_call = has_failed_call(members);
    let is_about_image = has_picture || is_failed_call || is_task(members) || has_image_tokens(members);
    let failure_of_text = || signals.text_statement().filter(|_| !is_about_image).map(text_failure);
    let unpaid_failure = || {
        let is_unpaid = !has_picture && !has_usage(members);
        is_unpaid.then(|| classify_unpaid_answer(members, &signals, detail.as_deref(), fault_scope)).flatten()
    };
    let cause = if signals.is_refused {
        FailureCause::ContentRefused
    } else if let Some(failure) = unpaid_failure() {
        failure
    } else if signals.reads_like_refusal() && !signals.has_picture {
        FailureCause::ContentRefused
    } else if let Some(failure) = failure_of_text() {
        failure
    } else if has_picture || has_usage(members) || !(is_failed_call || detail.is_some() || has_failed_status(members)) {
        // One image may be made, or may have been made.
        if is_task(members) { FailureCause::AsyncTask } else { FailureCause::NoImage }
    } else {
        FailureCause::Failed
    };
    let upstream_message = message_redaction::redact_message(&cause, detail.as_deref());
    let words = signals.first_words.as_deref().filter(|_| !signals.has_picture);
    let model_text = words.and_then(message_redaction::redact_text);
    AttemptFailure { upstream_message, model_text, ..AttemptFailure::new(cause).with_status(200) }
}

/// Classifies what an answer without an image and without tokens states about the account or the request; `None` if it
/// states nothing about them.
fn classify_unpaid_answer(
    members: &Map<String, Value>,
    signals: &AnswerSignals,
    detail: Option<&Map<String, Value>>,
    fault_scope: FaultScope<'_>,
) -> Option<FailureCause> {
    if let Some(kind) = signals.bound_context
        && fault_scope.is_body_from_caller
    {
        return Some(bound_context_failure(kind, detail, fault_scope));
    }
    let states_rejection = |detail: &&Map<String, Value>| {
        signals.invalid_request || names_parameter(detail, fault_scope) || names_gateway_member(detail, fault_scope)
    };
    let is_oversized = signals.oversized && signals.is_account_limit();
    classify_codes(signals, &HeaderMap::new(), Some(members), is_oversized, fault_scope).or_else(|| {
        let detail = detail.filter(states_rejection).filter(|_| !signals.reads_like_refusal())?;
        Some(classify_rejection(Some(detail), signals, fault_scope))
    })
}

/// Classifies text in place of an image. The model has decided against an image, and another account has the same model,
/// unless the text is about a missing or busy tool. A caller can make a model write anything, so a text counts against an
/// account only for a short time, and only if another account makes the image.
const fn text_failure(statement: TextStatement) -> FailureCause {
    match statement {
        TextStatement::Refusal => FailureCause::ContentRefused,
        TextStatement::MissingTool => FailureCause::NotOffered,
        TextStatement::Busy => FailureCause::DrawingUnavailable,
        TextStatement::Address => FailureCause::ImageByAddress,
        TextStatement::Other => FailureCause::TextInsteadOfImage,
    }
}

/// True if the answer or its envelope names a task. The items of `output` have ids and states of their own, so its list
/// is not read.
fn is_task(members: &Map<String, Value>) -> bool {
    let object = |key: &str| members.get(key).and_then(Value::as_object);
    let first = || members.get("data")?.as_array()?.first()?.as_object();
    let envelopes = ["data", "output", "response"].into_iter().filter_map(object);
    names_task(members) || envelopes.chain(first()).any(names_task)
}

/// True if the members name a task that has not ended: an id, and no other state.
fn names_task(members: &Map<String, Value>) -> bool {
    let is_named =
        |key: &str| members.get(key).is_some_and(|id| id.is_number() || id.as_str().is_some_and(|id| !id.is_empty()));
    let state = ["status", "task_status"].iter().find_map(|key| members.get(*key)?.as_str());
    let is_pending = state.map(|state| PENDING_STATES.iter().any(|pending| pending.eq_ignore_ascii_case(state)));
    is_named("task_id") && is_pending != Some(false) || is_named("id") && is_pending == Some(true)
}

/// True if tokens of an image were charged, so that a text is not all that was made.
fn has_image_tokens(members: &Map<String, Value>) -> bool {
    let object = |key: &str| members.get(key).and_then(Value::as_object);
    let is_charged = |count: Option<&Value>| count.and_then(Value::as_f64).is_some_and(|count| count > 0.0);
    let image_tokens = members.get("usage").and_then(|usage| usage.pointer("/output_tokens_details/image_tokens"));
    let tool = object("tool_usage").and_then(|tools| tools.get("image_gen")).and_then(Value::as_object);
    is_charged(image_tokens)
        || tool.is_some_and(|counts| counts.values().any(|count| is_charged(Some(count))))
        || object("response").is_some_and(has_image_tokens)
}

/// True if the state of the answer or of its response is that of a failure.
pub(super) fn has_failed_status(members: &Map<String, Value>) -> bool {
    let status = members.get("status").and_then(Value::as_str).unwrap_or_default();
    ["failed", "incomplete", "error"].iter().any(|failed| failed.eq_ignore_ascii_case(status))
}

/// True if the model has called its image tool and the tool has failed: its text about that is no refusal.
fn has_failed_call(members: &Map<String, Value>) -> bool {
    let output = members.get("output").and_then(Value::as_array);
    let failed = |item: &Value| item["type"] == "image_generation_call" && item["status"] == "failed";
    output.is_some_and(|output| output.iter().any(failed))
}
