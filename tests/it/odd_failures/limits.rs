//! Limits, missing payment and missing capacity: at every status, as codes, sentences, members and headers.

use chrono::{SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

use super::{OddFailure, RequestKind};

fn said(message: &str) -> Value {
    json!({"error": {"message": message}})
}

/// Sentences without a code, and their verdicts.
const SENTENCES: &[(&str, &str)] = &[
    ("You've hit your usage limit. Try again in 2 hours.", "exhausted 7200"),
    ("The usage limit has been reached", "exhausted"),
    ("Rate limit reached for gpt-image-2. Please try again in 1m30s.", "throttled 90"),
    ("Too many requests, retry after 120 seconds", "throttled 120"),
    ("The engine is currently overloaded, please try again later", "throttled"),
    ("No available accounts", "throttled"),
    ("You exceeded your current quota, please check your plan and billing details.", "unpaid"),
    ("用户额度不足, 剩余额度: 0", "unpaid"),
    ("請求過於頻繁，請在 100 秒後重試", "throttled 100"),
    ("当前分组上游负载已饱和，请稍后再试", "throttled"),
    ("Sorry, come back tomorrow (wait 200s)", "exhausted 200"),
];
/// The statuses at which they are seen.
const STATUSES: [u16; 7] = [400, 403, 429, 500, 502, 503, 529];

/// Members that state a wait.
const MEMBERS: &[(&str, &str)] = &[
    (r#""resets_in_seconds":3600"#, "exhausted 3600"),
    (r#""resets_in_seconds":2586687"#, "exhausted 2586687"),
    (r#""retry_after":700"#, "exhausted 700"),
    (r#""retryAfter":"701""#, "exhausted 701"),
    (r#""retry_after_ms":702000"#, "exhausted 702"),
    (r#""details":[{"retryDelay":"703s"}]"#, "exhausted 703"),
    (r#""metadata":{"reset_after":"1h2m"}"#, "exhausted 3720"),
];
/// Header lines that state a wait.
const HEADERS: &[(&str, &str)] = &[
    ("retry-after: 300", "throttled 300"),
    ("retry-after: 5000", "throttled 5000"),
    ("retry-after-ms: 301000", "throttled 301"),
    ("x-ratelimit-reset-requests: 5m2s", "throttled 302"),
    ("ratelimit-reset: 303", "throttled 303"),
];

pub(super) fn rows() -> Vec<OddFailure> {
    let mut rows = Vec::new();
    for (index, (sentence, expected)) in SENTENCES.iter().enumerate() {
        for (place, status) in STATUSES.into_iter().enumerate() {
            let asked = [RequestKind::Image, RequestKind::Tool, RequestKind::ImageStream][(index + place) % 3];
            rows.push(OddFailure::json(asked, status, &said(sentence), expected));
        }
        rows.push(OddFailure::json(RequestKind::Image, 200, &said(sentence), expected));
        rows.push(OddFailure::json(RequestKind::Response, 429, &said(sentence), expected));
    }
    for (member, expected) in MEMBERS {
        let body = format!(r#"{{"error":{{"type":"usage_limit_reached","message":"m",{member}}}}}"#);
        let body: Value = serde_json::from_str(&body).expect("JSON");
        for (asked, status) in [(RequestKind::Image, 429), (RequestKind::Tool, 500), (RequestKind::Response, 403)] {
            rows.push(OddFailure::json(asked, status, &body, expected));
        }
        let wrapped = json!({"error": {"message": body.to_string(), "type": "upstream_error"}});
        rows.push(OddFailure::json(RequestKind::Image, 500, &wrapped, expected));
    }
    for (line, expected) in HEADERS {
        rows.push(OddFailure::json(RequestKind::Image, 429, &said("slow down"), expected).with_header(line));
        let overloaded = json!({"error": {"type": "overloaded_error", "message": "Overloaded"}});
        rows.push(OddFailure::json(RequestKind::Tool, 529, &overloaded, expected).with_header(line));
    }
    let now = Utc::now();
    let later = now + TimeDelta::seconds(900);
    // With the clock of the upstream, the wait does not depend on the time at which the row is sent.
    let date = format!("date: {}", now.format("%a, %d %b %Y %H:%M:%S GMT"));
    for form in ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"] {
        let line = format!("retry-after: {}", later.format(form));
        rows.push(
            OddFailure::json(RequestKind::Image, 429, &json!({}), "throttled 900")
                .with_header(&line)
                .with_header(&date),
        );
        rows.push(
            OddFailure::json(RequestKind::Response, 503, &said("server is busy"), "throttled 900")
                .with_header(&line)
                .with_header(&date),
        );
    }
    let text = format!("Your usage limit resets at {}.", later.to_rfc3339_opts(SecondsFormat::Secs, true));
    rows.push(OddFailure::json(RequestKind::Image, 403, &said(&text), "exhausted 900").with_header(&date));
    rows
}
