//! What an upstream's error means for the money: its class and its cause.
//!
//! Pure. The class table is that of the money rules; the shapes of refusals and usage limits are those of the contract.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};

use super::reply::{Cause, Class, Failure};

/// Words by which upstreams name a refusal by content policy, in `code` or `type`.
const REFUSALS: &[&str] = &[
    "moderation_blocked",
    "content_policy_violation",
    "image_content_policy_violation",
    "content_filter",
    "safety_violation",
    "invalid_prompt",
];

/// No cooling is longer than this, whatever an upstream states: a week and a day.
const WAIT_MAX: Duration = Duration::from_secs(8 * 24 * 3600);

/// The failure behind a status that is no success.
pub(super) fn status(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
    let error = serde_json::from_slice::<Value>(body).ok();
    let (class, cause) = classify(status, headers, error.as_ref());
    Failure { class, cause, status: Some(status.as_u16()) }
}

/// The failure behind an answer of status 200 that is whole and holds no image.
pub(crate) fn error_in_answer(members: &Map<String, Value>) -> Failure {
    let detail = members.get("error").and_then(Value::as_object);
    let paid = has_usage(members);
    let (class, cause) = match detail {
        Some(detail) if is_refusal(detail) => (Class::R, Cause::Refused),
        _ if paid => (Class::X, Cause::NoImage),
        Some(_) => (Class::F, Cause::Failed),
        None => (Class::F, Cause::NoImage),
    };
    Failure { class, cause, status: Some(200) }
}

fn classify(status: StatusCode, headers: &HeaderMap, body: Option<&Value>) -> (Class, Cause) {
    let detail = body.and_then(|body| body.get("error")).and_then(Value::as_object);
    if detail.is_some_and(is_refusal) {
        return (Class::R, Cause::Refused);
    }
    match status.as_u16() {
        400 | 409 | 413 | 415 | 422 => (Class::R, rejected(detail)),
        401..=404 => (Class::N, Cause::Unreachable),
        429 => (Class::N, throttled(headers, detail)),
        // Well-formed and without tokens: the upstream itself says that nothing was made.
        500 | 503 if detail.is_some() && !body.and_then(Value::as_object).is_some_and(has_usage) => {
            (Class::F, Cause::Failed)
        }
        504 | 524 => (Class::X, Cause::Timeout),
        _ => (Class::X, Cause::Broken),
    }
}

fn is_refusal(detail: &Map<String, Value>) -> bool {
    let named = |key: &str| detail.get(key).and_then(Value::as_str).is_some_and(|word| REFUSALS.contains(&word));
    named("code") || named("type")
}

/// Tokens above zero: whatever the answer is, it was paid for.
fn has_usage(body: &Map<String, Value>) -> bool {
    let Some(usage) = body.get("usage").and_then(Value::as_object) else { return false };
    usage.values().any(|count| count.as_f64().is_some_and(|count| count > 0.0))
}

fn rejected(detail: Option<&Map<String, Value>>) -> Cause {
    let text = |key: &str| detail.and_then(|detail| detail.get(key)).and_then(Value::as_str);
    Cause::Rejected {
        param: text("param").filter(|param| !param.is_empty()).map(|param| clip(param, 100)),
        message: clip(
            text("message").filter(|message| !message.is_empty()).unwrap_or("The upstream rejected the request."),
            1000,
        ),
    }
}

/// At most so many characters, none of them a control character: this text is shown to callers.
fn clip(text: &str, most: usize) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(most).collect()
}

fn throttled(headers: &HeaderMap, detail: Option<&Map<String, Value>>) -> Cause {
    let word = |key: &str| detail.and_then(|detail| detail.get(key)).and_then(Value::as_str);
    let stated =
        detail.and_then(|detail| detail.get("resets_in_seconds")).and_then(Value::as_u64).map(Duration::from_secs);
    let advised = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim().parse().ok())
        .map(Duration::from_secs);
    let wait = stated.or(advised).map(|wait| wait.min(WAIT_MAX));
    if word("type") == Some("usage_limit_reached") || word("code") == Some("usage_limit_reached") {
        Cause::Exhausted { wait }
    } else {
        Cause::Throttled { wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(code: u16, body: &Value, class: Class, cause: &Cause) {
        let found =
            status(StatusCode::from_u16(code).expect("a status"), &HeaderMap::new(), body.to_string().as_bytes());
        assert_eq!((found.class, &found.cause), (class, cause), "{code} {body}");
    }

    #[test]
    fn each_status_has_its_class() {
        let plain = json!({"error": {"message": "no", "type": "server_error"}});
        for code in [401, 402, 403, 404] {
            check(code, &plain, Class::N, &Cause::Unreachable);
        }
        for code in [500, 503] {
            check(code, &plain, Class::F, &Cause::Failed);
            check(code, &json!("oops"), Class::X, &Cause::Broken);
            check(code, &json!({"error": {"message": "no"}, "usage": {"total_tokens": 3}}), Class::X, &Cause::Broken);
        }
        for code in [502, 520, 301, 204] {
            check(code, &plain, Class::X, &Cause::Broken);
        }
        check(524, &plain, Class::X, &Cause::Timeout);
        check(429, &plain, Class::N, &Cause::Throttled { wait: None });
    }

    #[test]
    fn a_refusal_is_known_in_every_status() {
        for code in [400, 403, 500] {
            check(code, &json!({"error": {"message": "m", "code": "moderation_blocked"}}), Class::R, &Cause::Refused);
            check(
                code,
                &json!({"error": {"message": "m", "type": "content_policy_violation"}}),
                Class::R,
                &Cause::Refused,
            );
        }
    }

    #[test]
    fn a_rejected_parameter_is_passed_on_without_control_characters() {
        let cause = Cause::Rejected { param: Some("size".to_owned()), message: "Invalid size.".to_owned() };
        check(
            400,
            &json!({"error": {"message": "Invalid\r\n size.", "param": "size"}}),
            Class::R,
            &Cause::Rejected { param: Some("size".to_owned()), message: "Invalid size.".to_owned() },
        );
        check(422, &json!({"error": {"message": "Invalid size.", "param": "size"}}), Class::R, &cause);
    }

    #[test]
    fn the_usage_limit_says_when_it_ends_and_absurd_waits_are_capped() {
        let body = |seconds: Value| json!({"error": {"type": "usage_limit_reached", "message": "m", "resets_in_seconds": seconds}});
        check(429, &body(json!(3600)), Class::N, &Cause::Exhausted { wait: Some(Duration::from_secs(3600)) });
        check(429, &body(json!(1_000_000_000_000_u64)), Class::N, &Cause::Exhausted { wait: Some(WAIT_MAX) });
        check(429, &body(json!(-1)), Class::N, &Cause::Exhausted { wait: None });
    }

    #[test]
    fn a_whole_answer_without_an_image_is_ambiguous_only_when_it_was_paid() {
        let class = |body: Value| error_in_answer(body.as_object().expect("an object")).class;
        assert_eq!(class(json!({"data": []})), Class::F);
        assert_eq!(class(json!({"usage": {"total_tokens": 0}})), Class::F);
        assert_eq!(class(json!({"usage": {"total_tokens": 1700}})), Class::X);
        assert_eq!(class(json!({"error": {"code": "moderation_blocked"}, "usage": {"total_tokens": 1700}})), Class::R);
    }
}
