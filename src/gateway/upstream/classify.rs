//! What an upstream's error means for the money: its class and its cause.
//!
//! Pure but for the clock. The class table is that of the money rules; the shapes of refusals and usage limits are those
//! of the contract and of what real upstreams and compatible servers were seen to send (`said`, `wait`).
//! It carries U11, U14 to U21 and U31 of the failure catalogue as far as they are about meaning.

mod said;
mod wait;
mod words;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};

use super::reply::{Cause, Class, Failure};
use crate::tables::IMAGE_EDIT_FIELDS;
use said::Said;

/// The messages for a caller if the upstream's own words cannot be passed on.
const DECLINED: &str = "The upstream rejected the request, and names no parameter.";
const TOO_LARGE: &str = "The request is too large for the limits of the upstream.";
/// A longer name of a parameter is none.
const PARAM_MAX: usize = 200;

/// The parts of a request for which its caller can be blamed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blame {
    /// True if the caller wrote the body, and so chose its model, files and tools.
    pub(super) body: bool,
    /// Returns whether the caller knows a parameter of this name.
    pub(super) is_parameter: fn(&str) -> bool,
}

/// For an image job: the rules have checked its model, and the gateway wrote the body.
pub(super) const IMAGE_BLAME: Blame = Blame { body: false, is_parameter: is_image_parameter };
/// For a response, which passes as the caller wrote it.
pub(super) const RESPONSE_BLAME: Blame = Blame { body: true, is_parameter: is_response_parameter };

/// The failure behind a status that is no success.
pub(super) fn status(status: StatusCode, headers: &HeaderMap, body: &[u8], blame: Blame) -> Failure {
    let error = serde_json::from_slice::<Value>(body).ok();
    let error = error.as_ref().and_then(object);
    let (class, cause) = classify(status, headers, error, blame);
    let words = error.and_then(|error| words::shown(&cause, detail(error).as_deref()));
    Failure { words, ..Failure::new(class, cause).with_status(status.as_u16()) }
}

/// The failure behind an answer of status 200 that is whole and holds no image: the members of the answer, of its error
/// event, or of a whole response object. `something` says that it holds what can stand for an image, such as an address.
pub(crate) fn error_in_answer(members: &Map<String, Value>, something: bool) -> Failure {
    let said = Said::of(members);
    let paid = something || has_usage(members);
    let (class, cause) = match (detail(members), paid) {
        _ if said.refused => (Class::R, Cause::Refused),
        (_, false) if said.unknown_model => (Class::N, Cause::Missing),
        (_, false) if said.oversized && said.is_of_account() => declined(TOO_LARGE),
        (_, false) if said.is_of_account() => of_account(&said, &HeaderMap::new(), Some(members)),
        _ if said.reads_refused() => (Class::R, Cause::Refused),
        (Some(detail), false) if names_parameter(&detail, IMAGE_BLAME) => {
            rejected(Some(detail.as_ref()), &said, IMAGE_BLAME)
        }
        // A model that answers with words has decided against an image; another account has the same model.
        _ if said.text && !something && !has_failed_call(members) => (Class::R, Cause::Refused),
        (_, true) => (Class::X, Cause::NoImage),
        (Some(_), false) => (Class::F, Cause::Failed),
        (None, false) => (Class::F, Cause::NoImage),
    };
    let words = words::shown(&cause, detail(members).as_deref());
    Failure { words, ..Failure::new(class, cause).with_status(200) }
}

/// The model has tried to draw, and its tool has failed: what it says about that is no refusal.
fn has_failed_call(members: &Map<String, Value>) -> bool {
    let output = members.get("output").and_then(Value::as_array);
    let failed = |item: &Value| item["type"] == "image_generation_call" && item["status"] == "failed";
    output.is_some_and(|output| output.iter().any(failed))
}

/// An error as an object; some upstreams put theirs into a list.
fn object(body: &Value) -> Option<&Map<String, Value>> {
    body.as_object().or_else(|| body.as_array()?.first()?.as_object())
}

fn classify(
    status: StatusCode,
    headers: &HeaderMap,
    body: Option<&Map<String, Value>>,
    blame: Blame,
) -> (Class, Cause) {
    let said = body.map(Said::of).unwrap_or_default();
    if said.refused {
        return (Class::R, Cause::Refused);
    }
    match status.as_u16() {
        // Whatever else it says, it is about the account's own credentials.
        401 => (Class::N, Cause::Unreachable),
        400 | 403 | 404 | 422 if said.unknown_model && !said.is_of_account() => (Class::N, unknown_model(blame)),
        413 | 429 if said.oversized => declined(TOO_LARGE),
        400 | 403 | 413 | 415 | 422 if said.is_of_account() => of_account(&said, headers, body),
        429 => of_account(&said, headers, body),
        400 | 403 | 413 | 415 | 422 | 500 | 503 if said.reads_refused() => (Class::R, Cause::Refused),
        400 | 413 | 415 | 422 => rejected(body.and_then(detail).as_deref(), &said, blame),
        402 => (Class::N, Cause::Unfit),
        // A file, a store or an earlier response that does not exist here; another account may have it.
        404 if blame.body && body.is_some() => match rejected(body.and_then(detail).as_deref(), &said, blame) {
            (_, Cause::Rejected { param: None, message }) => declined(&message),
            rejected => rejected,
        },
        404 | 410 => (Class::N, Cause::Missing),
        405 if body.is_some() => (Class::N, Cause::Missing),
        // The account may not use this model; a caller who names it must not put the account to rest.
        403 if said.speaks_of_account() && said.model => (Class::N, unknown_model(blame)),
        403 if said.speaks_of_account() => (Class::N, Cause::Unreachable),
        403 if body.is_some() => (Class::N, Cause::Forbidden),
        // A page that is not from the upstream's API: a firewall in front of it blocks the request.
        403 | 405 => (Class::N, Cause::Blocked),
        451 => (Class::R, Cause::Refused),
        // Well-formed and without tokens: the upstream itself says that nothing was made.
        500 | 503 if body.is_some_and(|body| detail(body).is_some() && !has_usage(body)) => (Class::F, Cause::Failed),
        504 | 524 => (Class::X, Cause::Timeout),
        _ => (Class::X, Cause::Broken),
    }
}

fn declined(message: &str) -> (Class, Cause) {
    (Class::N, Cause::Declined { message: message.to_owned() })
}

/// The cause for an unknown model, which the operator chose for an image job, and the caller for a response.
const fn unknown_model(blame: Blame) -> Cause {
    if blame.body { Cause::UnknownModel } else { Cause::Missing }
}

/// The account is not paid for, used up, or asked too fast.
fn of_account(said: &Said, headers: &HeaderMap, body: Option<&Map<String, Value>>) -> (Class, Cause) {
    let wait = || wait::stated(headers, body, wait::unix_now());
    let cause = match (said.unfit, said.exhausted) {
        (true, _) => Cause::Unfit,
        (false, true) => Cause::Exhausted { wait: wait() },
        (false, false) => Cause::Throttled { wait: wait() },
    };
    (Class::N, cause)
}

/// The object that describes the error: under `error`, under `response`, or the whole where it is flat.
fn detail(members: &Map<String, Value>) -> Option<Cow<'_, Map<String, Value>>> {
    match members.get("error") {
        Some(Value::Object(detail)) => return Some(Cow::Borrowed(detail)),
        Some(Value::String(message)) => {
            let mut detail = members.clone();
            detail.entry("message").or_insert_with(|| message.as_str().into());
            return Some(Cow::Owned(detail));
        }
        _ => {}
    }
    if let Some(response) = members.get("response").and_then(Value::as_object) {
        let ended = response.get("status").and_then(Value::as_str);
        let failed = matches!(ended, Some("failed" | "incomplete")).then_some(Cow::Borrowed(response));
        return detail(response).or(failed);
    }
    let flat = members.contains_key("message") && (members.contains_key("code") || members.contains_key("type"));
    flat.then_some(Cow::Borrowed(members))
}

/// A 4xx that calls the request wrong, or names one of its parameters, is the caller's fault: every account would say
/// the same. One that says neither may be due to the account, so one more account may be asked; the same holds for one
/// that names a parameter which the gateway has written. In each case nothing was made.
fn rejected(detail: Option<&Map<String, Value>>, said: &Said, blame: Blame) -> (Class, Cause) {
    let text = |key: &str| detail.and_then(|detail| detail.get(key)).and_then(Value::as_str);
    let words = text("message").map(|message| clip(message, 1000)).filter(|message| speaks_of_parameters(message));
    let reject =
        |param: Option<&str>, message| (Class::R, Cause::Rejected { param: param.map(str::to_owned), message });
    match text("param") {
        Some(param) if (blame.is_parameter)(param) => {
            let message = words.unwrap_or_else(|| format!("The upstream rejected the parameter '{param}'."));
            reject(Some(param), message)
        }
        param if said.speaks_of_account() || param.is_some_and(is_of_account) => (Class::N, Cause::Unreachable),
        None if said.invalid_request => reject(None, words.unwrap_or_else(|| DECLINED.to_owned())),
        Some(_) | None => declined(words.as_deref().unwrap_or(DECLINED)),
    }
}

/// Whether an error names a parameter that callers know.
fn names_parameter(detail: &Map<String, Value>, blame: Blame) -> bool {
    detail.get("param").and_then(Value::as_str).is_some_and(|param| (blame.is_parameter)(param))
}

/// The parameters of the image endpoints.
pub(super) fn is_image_parameter(param: &str) -> bool {
    let root = root(param);
    root == "image" || IMAGE_EDIT_FIELDS.iter().any(|field| field.name == root)
}

/// The parameters of a response, which is open: any path into the body, unless it is the account's own affair.
fn is_response_parameter(param: &str) -> bool {
    let path = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'[' | b']' | b'-');
    !root(param).is_empty() && !is_of_account(param) && param.len() <= PARAM_MAX && param.bytes().all(path)
}

/// True if a parameter is the account's own affair, not the request's.
fn is_of_account(param: &str) -> bool {
    ["organization", "project", "api_key", "authorization", "account"].contains(&root(param))
}

/// The member of the body in which the path of a parameter begins.
fn root(param: &str) -> &str {
    param.split(['.', '[']).next().unwrap_or_default()
}

/// Whether an error is a refusal of the content, in whatever words.
pub(crate) fn is_refusal(members: &Map<String, Value>) -> bool {
    let said = Said::of(members);
    said.refused || said.reads_refused()
}

/// An upstream's sentence goes to the caller only if it cannot hold a credential, an address or an account.
fn speaks_of_parameters(message: &str) -> bool {
    let low = message.to_ascii_lowercase();
    let telling = ["sk-", "org-", "proj_", "bearer", "authorization", "api key", "api_key", "token", "://", "@"];
    !message.is_empty() && telling.iter().all(|word| !low.contains(word)) && !has_address(&low)
}

/// `10.0.0.1`, `host.example:443`: anything with a dot or colon between a letter or digit and a digit.
fn has_address(text: &str) -> bool {
    text.split_whitespace().any(|word| {
        let word = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        word.split('.').filter(|part| part.len() > 1 || part.parse::<u8>().is_ok()).count() > 2
            || word
                .rsplit_once(':')
                .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Tokens above zero: whatever the answer is, it was paid for.
fn has_usage(body: &Map<String, Value>) -> bool {
    let counts =
        |usage: &Map<String, Value>| usage.values().any(|count| count.as_f64().is_some_and(|count| count > 0.0));
    let of = |key: &str| body.get(key).and_then(Value::as_object);
    let tools = || of("tool_usage").and_then(|tools| tools.get("image_gen")).and_then(Value::as_object);
    of("usage").is_some_and(counts) || tools().is_some_and(counts) || of("response").is_some_and(has_usage)
}

/// At most so many characters, none of them a control character: this text is shown to callers.
fn clip(text: &str, most: usize) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(most).collect()
}
