//! What an upstream's error means for the money: its class and its cause.
//!
//! Pure. The class table is that of the money rules; the shapes of refusals and usage limits are those of the contract.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};

use super::reply::{Cause, Class, Failure};
use crate::tables::IMAGE_EDIT_FIELDS;

/// Words by which upstreams name a refusal by content policy, in `code` or `type`.
const REFUSALS: &[&str] = &[
    "moderation_blocked",
    "content_policy_violation",
    "image_content_policy_violation",
    "content_filter",
    "safety_violation",
    "invalid_prompt",
];

/// Words by which upstreams name a limit of the account.
const LIMITS: &[&str] = &["usage_limit_reached", "rate_limit_exceeded", "rate_limit_error", "insufficient_quota"];

/// No cooling is longer than this, whatever an upstream states: a week and a day.
const WAIT_MAX: Duration = Duration::from_secs(8 * 24 * 3600);

/// The failure behind a status that is no success.
pub(super) fn status(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
    let error = serde_json::from_slice::<Value>(body).ok();
    let (class, cause) = classify(status, headers, error.as_ref());
    Failure { class, cause, status: Some(status.as_u16()) }
}

/// The failure behind an answer of status 200 that is whole and holds no image. `something` says that it holds what can
/// stand for one, such as an address.
pub(crate) fn error_in_answer(members: &Map<String, Value>, something: bool) -> Failure {
    let detail = members.get("error").and_then(Value::as_object);
    let paid = something || has_usage(members);
    let (class, cause) = match detail {
        Some(detail) if is_refusal(detail) => (Class::R, Cause::Refused),
        Some(detail) if !paid && is_limit(detail) => (Class::N, throttled(&HeaderMap::new(), Some(detail))),
        Some(detail) if !paid && names_parameter(detail) => rejected(Some(detail)),
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
        400 | 413 | 415 | 422 => rejected(detail),
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

/// A 4xx that names one of the caller's parameters is the caller's; any other is between the account and its upstream,
/// and another account may do better. Either way nothing was made.
fn rejected(detail: Option<&Map<String, Value>>) -> (Class, Cause) {
    let text = |key: &str| detail.and_then(|detail| detail.get(key)).and_then(Value::as_str);
    let Some(param) = text("param").filter(|_| detail.is_some_and(names_parameter)) else {
        return (Class::N, Cause::Unreachable);
    };
    let said = text("message").map(|message| clip(message, 1000)).filter(|message| speaks_of_parameters(message));
    let message = said.unwrap_or_else(|| format!("The upstream rejected the parameter '{param}'."));
    (Class::R, Cause::Rejected { param: Some(param.to_owned()), message })
}

/// Whether an error names a parameter that callers know.
fn names_parameter(detail: &Map<String, Value>) -> bool {
    let param = detail.get("param").and_then(Value::as_str);
    param.is_some_and(|param| param == "image" || IMAGE_EDIT_FIELDS.iter().any(|field| field.name == param))
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

fn is_refusal(detail: &Map<String, Value>) -> bool {
    let named = |key: &str| detail.get(key).and_then(Value::as_str).is_some_and(|word| REFUSALS.contains(&word));
    named("code") || named("type")
}

/// What an upstream that has already answered 200 says instead of 429.
fn is_limit(detail: &Map<String, Value>) -> bool {
    let named = |key: &str| detail.get(key).and_then(Value::as_str).is_some_and(|word| LIMITS.contains(&word));
    named("code") || named("type")
}

/// Tokens above zero: whatever the answer is, it was paid for.
fn has_usage(body: &Map<String, Value>) -> bool {
    let Some(usage) = body.get("usage").and_then(Value::as_object) else { return false };
    usage.values().any(|count| count.as_f64().is_some_and(|count| count > 0.0))
}

/// At most so many characters, none of them a control character: this text is shown to callers.
fn clip(text: &str, most: usize) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(most).collect()
}

fn throttled(headers: &HeaderMap, detail: Option<&Map<String, Value>>) -> Cause {
    let word = |key: &str| detail.and_then(|detail| detail.get(key)).and_then(Value::as_str);
    let number = |key: &str| detail.and_then(|detail| detail.get(key)).and_then(Value::as_f64);
    let wait = number("resets_in_seconds")
        .or_else(|| number("resets_at").map(|at| at - unix_now()))
        .or_else(|| advised(headers))
        .filter(|seconds| *seconds >= 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds.ceil().min(WAIT_MAX.as_secs_f64())).ok());
    if word("type") == Some("usage_limit_reached") || word("code") == Some("usage_limit_reached") {
        Cause::Exhausted { wait }
    } else {
        Cause::Throttled { wait }
    }
}

/// `retry-after-ms`, or `Retry-After` in seconds or as a date: seconds from now.
fn advised(headers: &HeaderMap) -> Option<f64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(milliseconds) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Some(milliseconds / 1000.0);
    }
    let stated = text(RETRY_AFTER.as_str())?;
    let date = || chrono::DateTime::parse_from_rfc2822(stated).ok().map(|date| seconds(date.timestamp()) - unix_now());
    stated.parse::<f64>().ok().or_else(date)
}

fn unix_now() -> f64 {
    seconds(chrono::Utc::now().timestamp())
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^52")]
const fn seconds(timestamp: i64) -> f64 {
    timestamp as f64
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
    fn a_rejection_that_speaks_of_the_account_is_not_the_callers() {
        for error in [
            json!({"message": "Incorrect API key provided", "code": "invalid_api_key"}),
            json!({"code": "billing_hard_limit_reached"}),
            json!({"message": "no", "param": "organization"}),
        ] {
            check(400, &json!({ "error": error }), Class::N, &Cause::Unreachable);
        }
        check(413, &json!("<html>"), Class::N, &Cause::Unreachable);
        for message in [
            "Bearer sk-up is wrong",
            "see https://up.example/x",
            "sent to 10.0.0.1",
            "up.internal.example failed",
            "host:8080 failed",
        ] {
            let cause = Cause::Rejected {
                param: Some("size".to_owned()),
                message: "The upstream rejected the parameter 'size'.".to_owned(),
            };
            check(400, &json!({"error": {"message": message, "param": "size"}}), Class::R, &cause);
        }
        let message = "Invalid size '1792x936'. Width and height must both be divisible by 16.";
        let cause = Cause::Rejected { param: Some("size".to_owned()), message: message.to_owned() };
        check(400, &json!({"error": {"message": message, "param": "size"}}), Class::R, &cause);
    }

    #[test]
    fn every_way_to_state_a_wait_is_read() {
        let wait = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a value"));
            match throttled(&headers, None) {
                Cause::Throttled { wait } => wait.map(|wait| wait.as_secs()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(wait("retry-after", "7"), Some(7));
        assert_eq!(wait("retry-after-ms", "1500"), Some(2));
        let date = (chrono::Utc::now() + chrono::TimeDelta::seconds(100)).to_rfc2822();
        assert!(wait("retry-after", &date).is_some_and(|wait| (98..=100).contains(&wait)));
        assert_eq!(wait("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), None);
        assert_eq!(wait("retry-after", "soon"), None);
        let at = json!({"error": {"type": "usage_limit_reached", "resets_at": chrono::Utc::now().timestamp() + 50}});
        let found = status(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new(), at.to_string().as_bytes());
        assert!(matches!(found.cause, Cause::Exhausted { wait: Some(wait) } if (48..=50).contains(&wait.as_secs())));
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
        let class = |body: Value| error_in_answer(body.as_object().expect("an object"), false).class;
        assert_eq!(class(json!({"data": []})), Class::F);
        assert_eq!(class(json!({"usage": {"total_tokens": 0}})), Class::F);
        assert_eq!(error_in_answer(&Map::new(), true).class, Class::X);
        assert_eq!(class(json!({"usage": {"total_tokens": 1700}})), Class::X);
        assert_eq!(class(json!({"error": {"code": "moderation_blocked"}, "usage": {"total_tokens": 1700}})), Class::R);
    }
}
