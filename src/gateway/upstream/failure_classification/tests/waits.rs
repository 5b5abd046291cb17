//! Tests of the waits that upstreams state, in every notation.

use std::time::Duration;

use super::*;

#[test]
fn the_wait_of_a_usage_limit_is_read() {
    let limit = |key: &str, value: Value| json!({"error": {"type": "usage_limit_reached", "message": "m", key: value}});
    let exhausted = |wait: Option<u64>| FailureCause::Exhausted { wait: wait.map(Duration::from_secs) };
    for (value, wait) in [
        (json!(5), Some(5)),
        (json!(354_089), Some(354_089)),
        (json!("3600"), Some(3600)),
        (json!(0.2), Some(1)),
        (json!(10_000_000), Some(10_000_000)),
        (json!(0), None),
        (json!(-1), None),
        (json!(1e18), None),
        (json!(1_000_000_000_000_u64), None),
        (json!("soon"), None),
        (json!("NaN"), None),
        (json!("inf"), None),
        (json!(null), None),
        (json!([7]), None),
    ] {
        let body = limit("resets_in_seconds", value);
        check(429, &body, AttemptClass::NothingDone, &exhausted(wait));
        check_answer(&body, AttemptClass::NothingDone, &exhausted(wait));
        check(403, &body, AttemptClass::NothingDone, &exhausted(wait));
    }
    let code_only =
        json!({"error": {"type": "rate_limit_error", "code": "usage_limit_reached", "resets_in_seconds": 7}});
    check(429, &code_only, AttemptClass::NothingDone, &exhausted(Some(7)));
    check_answer(
        &json!({"error": {"code": "rate_limit_exceeded"}}),
        AttemptClass::NothingDone,
        &FailureCause::Throttled { wait: None },
    );
    let event = json!({"type": "error", "code": "usage_limit_reached", "message": "m", "resets_in_seconds": 7});
    check_answer(&event, AttemptClass::NothingDone, &exhausted(Some(7)));
    let at = limit("resets_at", json!(chrono::Utc::now().timestamp() + 50));
    let cause = classify_image_error(429, &at.to_string()).cause;
    assert!(
        matches!(cause, FailureCause::Exhausted { wait: Some(wait) } if (45..=50).contains(&wait.as_secs())),
        "{cause:?}"
    );
}

/// 2026-11-21T00:00:00Z.
const NOW: f64 = 1_795_219_200.0;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a valid header value")))
        .collect()
}

#[track_caller]
fn check_wait(pairs: &[(&'static str, &str)], body: &Value, seconds: Option<u64>) {
    let wait = stated_wait::parse_wait(&headers(pairs), body.as_object(), NOW);
    assert_eq!(wait.map(|wait| wait.as_secs()), seconds, "{pairs:?} {body}");
}

#[test]
fn every_header_form_of_a_wait_is_read() {
    for (name, value, seconds) in [
        ("retry-after", "7", Some(7)),
        ("retry-after", " 7.5 ", Some(8)),
        ("retry-after", "Sat, 21 Nov 2026 00:01:40 GMT", Some(100)),
        ("retry-after", "Saturday, 21-Nov-26 00:01:40 GMT", Some(100)),
        ("retry-after", "Sat Nov 21 00:01:40 2026", Some(100)),
        ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", None),
        ("retry-after", "0", None),
        ("retry-after", "-1", None),
        ("retry-after", "soon", None),
        ("retry-after", "NaN", None),
        ("retry-after", "1e18", None),
        ("retry-after", "99999999999999999999999", None),
        ("retry-after", "1000000", Some(1_000_000)),
        ("retry-after-ms", "1500", Some(2)),
        ("retry-after-ms", "0", None),
        ("x-ratelimit-reset-requests", "1s", Some(1)),
        ("x-ratelimit-reset-requests", "6m0s", Some(360)),
        ("x-ratelimit-reset-tokens", "120ms", Some(1)),
        ("x-ratelimit-reset-tokens", "1h2m3.5s", Some(3724)),
        ("x-ratelimit-reset-images", "1d", Some(86_400)),
        ("x-ratelimit-reset-images", "17", Some(17)),
        ("x-ratelimit-reset", "1795219260", Some(60)),
        ("x-ratelimit-reset", "1795219260000", Some(60)),
        ("x-ratelimit-reset", "2026-11-21T00:00:30Z", Some(30)),
        ("x-ratelimit-reset", "1795219100", None),
        ("x-ratelimit-reset-requests", "0", None),
        ("x-ratelimit-reset-requests", "-1", None),
        ("x-ratelimit-reset-requests", "", None),
        ("x-ratelimit-reset-requests", "1parsec", None),
        ("x-ratelimit-reset-requests", "1.2.3s", None),
        ("x-ratelimit-reset-requests", "s", None),
    ] {
        check_wait(&[(name, value)], &json!({}), seconds);
    }
}

#[test]
fn a_used_up_limit_determines_the_wait() {
    let (requests, tokens) = ("x-ratelimit-reset-requests", "x-ratelimit-reset-tokens");
    let (requests_left, tokens_left) = ("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens");
    for (pairs, seconds) in [
        (vec![(requests, "1s"), (requests_left, "9"), (tokens, "6m0s"), (tokens_left, "0")], 360),
        (vec![(requests, "9m"), (requests_left, "9"), (tokens, "2s"), (tokens_left, "0")], 2),
        (vec![(requests, "1s"), (requests_left, "0"), (tokens, "6m0s"), (tokens_left, "0")], 360),
        (vec![(requests, "5s"), (requests_left, "9"), (tokens, "6m0s"), (tokens_left, "7")], 5),
        (vec![(requests, "5s"), (tokens, "6m0s"), (tokens_left, "-1")], 5),
        (vec![(requests, "soon"), (requests_left, "0"), (tokens, "6m0s"), (tokens_left, "7")], 360),
    ] {
        check_wait(&pairs, &json!({}), Some(seconds));
    }
}

#[test]
fn the_most_exact_valid_wait_is_used() {
    let body = json!({"error": {"resets_in_seconds": 40, "resets_at": NOW + 50.0}});
    check_wait(&[("retry-after", "7"), ("x-ratelimit-reset", "1s")], &body, Some(40));
    let body = json!({"error": {"resets_in_seconds": -1, "resets_at": NOW + 50.0}});
    check_wait(&[("retry-after", "7")], &body, Some(50));
    check_wait(&[("retry-after", "7")], &json!({"error": {"resets_at": NOW - 50.0}}), Some(7));
    check_wait(&[("retry-after-ms", "2000"), ("retry-after", "7")], &json!({}), Some(2));
    check_wait(&[("retry-after-ms", "x"), ("retry-after", "7"), ("x-ratelimit-reset", "9s")], &json!({}), Some(7));
    check_wait(&[("retry-after", "0"), ("x-ratelimit-reset", "9s")], &json!({}), Some(9));
}

#[test]
fn a_wrong_clock_does_not_change_the_wait() {
    // The upstream's clock is a year behind the local one, and it writes both its date header and its wait by that
    // clock.
    let behind = NOW - 365.0 * 86_400.0;
    let date = ("date", "Fri, 21 Nov 2025 00:00:00 GMT");
    check_wait(&[date, ("retry-after", "Fri, 21 Nov 2025 00:01:00 GMT")], &json!({}), Some(60));
    check_wait(&[date], &json!({"error": {"resets_at": behind + 30.0}}), Some(30));
    check_wait(&[date], &json!({"error": {"resets_at": "2025-11-21T00:00:20Z"}}), Some(20));
    check_wait(&[date], &json!({"error": {"resets_at": (behind + 30.0) * 1000.0}}), Some(30));
    check_wait(&[("date", "yesterday")], &json!({"error": {"resets_at": NOW + 30.0}}), Some(30));
}
