//! Failures of responses: an ordinary error before the answer has begun, a pair of error events after that, and never a
//! second call.

use std::io::Read as _;

use serde_json::{Value, json};

use super::{call, gateway_with_two_accounts, image_response_body, response_body, start_gateway};
use crate::kit::{FakeUpstream, before_error_frame, eventually};

#[test]
fn a_failure_before_the_first_output_is_an_ordinary_error() {
    for (script, stream, status, code, state) in [
        ("status=500", false, 502, "upstream_error", "failed"),
        ("status=429 body=usage-limit resets-in=3600", false, 429, "usage_limit_reached", "failed"),
        ("status=400 body=parameter", false, 400, "invalid_request_error", "failed"),
        ("status=400 body=policy", true, 502, "upstream_error", "refused"),
        ("status=401", true, 502, "upstream_error", "failed"),
        ("status=524 body=html", true, 502, "upstream_error", "interrupted"),
        ("body=html", false, 502, "upstream_error", "interrupted"),
        ("body=none", false, 502, "upstream_error", "interrupted"),
        ("body=error", false, 502, "upstream_error", "failed"),
        ("hang-up", true, 502, "upstream_error", "interrupted"),
        ("cut=40", false, 502, "upstream_error", "interrupted"),
        ("events=created,progress,eof", true, 502, "upstream_error", "interrupted"),
        ("events=created,cut", true, 502, "upstream_error", "interrupted"),
        ("events=created,failed", true, 502, "upstream_error", "failed"),
        ("events=created,failed-policy", true, 502, "upstream_error", "refused"),
        ("events=e", true, 502, "upstream_error", "failed"),
        ("events=e-usage-limit", true, 429, "usage_limit_reached", "failed"),
        ("sse", false, 502, "upstream_error", "interrupted"),
        ("plain", true, 502, "upstream_error", "interrupted"),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = start_gateway(&upstream);
        let answer = call(&gateway).json(&image_response_body(script, stream)).send(gateway.address());
        assert_eq!(answer.error_object(status)["code"], code, "{script}");
        assert!(!answer.text().contains("provider-canary"), "{script}: {}", answer.text());
        let record = gateway.final_records(1).remove(0);
        assert_eq!((&record["state"], &record["error_code"]), (&json!(state), &json!(code)), "{script}: {record:#}");
        assert_eq!(upstream.attempt_count(), 1, "{script}");
    }
}

#[test]
fn another_account_is_asked_only_if_no_output_was_made() {
    for (script, attempts) in
        [("status=429", 2), ("status=500", 2), ("hang-up", 1), ("status=502", 1), ("status=400 body=policy", 1)]
    {
        let upstream = FakeUpstream::start();
        let gateway = gateway_with_two_accounts(&upstream);
        upstream.always_for_token("sk-upstream-first", script);
        let answer = call(&gateway).json(&response_body(&json!({}))).send(gateway.address());
        assert_eq!((answer.status == 200, upstream.attempt_count()), (attempts == 2, attempts), "{script}");
    }
}

/// Splits a stream before the pair of error events at its end; returns the part before them and `response.failed`.
#[track_caller]
fn split_error_events(text: &str) -> (&str, Value) {
    let (before_failed, failed) =
        text.rsplit_once("event: response.failed\ndata: ").expect("the failed response at the end");
    let failed: Value = serde_json::from_str(failed.strip_suffix("\n\n").expect("an end")).expect("JSON");
    (before_error_frame(before_failed), failed)
}

#[test]
fn a_failure_after_the_first_output_is_a_pair_of_error_events() {
    for (script, code) in [
        ("events=created,added,eof", "server_error"),
        ("events=created,added,cut", "server_error"),
        ("events=created,added,cut how=reset", "server_error"),
        ("events=created,added,p,half,eof", "server_error"),
        ("events=created,added,half,cut b64=2000000", "server_error"),
        ("events=created,added,item,eof", "server_error"),
        ("events=created,added,failed", "server_error"),
        ("events=created,added,e", "server_error"),
        ("events=created,added,failed-policy", "invalid_prompt"),
        ("events=created,added,e-policy-old", "invalid_prompt"),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = gateway_with_two_accounts(&upstream);
        let answer = call(&gateway).json(&image_response_body(script, true)).send(gateway.address());
        assert_eq!(answer.status, 200, "{script}: {:.300}", answer.text());
        assert!(answer.complete, "{script}: the body must be complete");
        let text = answer.text();
        let (before, failed) = split_error_events(&text);
        assert!(before.starts_with("event: response.created\n"), "{script}: {before:.300}");
        assert!(!text.contains("provider-canary"), "{script}: the answer has the upstream's error text");
        assert_eq!(
            failed["response"]["error"],
            json!({"code": code, "message": "Upstream request failed"}),
            "{script}"
        );
        assert_eq!((&failed["response"]["id"], &failed["response"]["status"]), (&json!("resp_0"), &json!("failed")));
        assert_eq!(upstream.attempt_count(), 1, "{script}: never a second attempt");
        let record = gateway.final_records(1).remove(0);
        assert_eq!(
            (&record["state"], &record["attempts"][0]["class"]),
            (&json!("interrupted"), &json!("O")),
            "{script}"
        );
    }
}

#[test]
fn a_plain_response_that_breaks_in_its_image_is_truncated() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let answer = call(&gateway).json(&image_response_body("b64=3000000 cut=50%", false)).send(gateway.address());
    assert!(answer.status == 200 && !answer.complete, "a truncated answer must not look complete");
    assert_eq!(gateway.final_records(1)[0]["state"], "interrupted");
}

#[test]
fn a_caller_who_leaves_a_stream_ends_the_upstream_call() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let mut reply = call(&gateway)
        .json(&image_response_body("events=created,added,stall", true))
        .open(gateway.address())
        .expect("an answer");
    reply.read_exact(&mut [0; 10]).expect("the start of the answer");
    drop(reply);
    upstream.wait_until("the upstream sees its caller leave", |attempts| attempts[0].peer_left);
    assert_eq!(gateway.final_records(1)[0]["state"], "cancelled");
}

#[test]
fn the_response_of_a_plain_caller_who_left_is_recorded() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let stream = call(&gateway).json(&image_response_body("gate=go", false)).dispatch(gateway.address()).expect("sent");
    upstream.wait_until("the attempt has arrived", |attempts| attempts.len() == 1);
    drop(stream);
    upstream.open_gate("go");
    let record = gateway.final_records(1).remove(0);
    assert_eq!(
        (&record["state"], &record["host_usage"]["output_tokens"]),
        // The gateway reads the answer to its end, so that a retry of the client gets it, as on the image endpoints.
        (&json!("succeeded"), &json!(50))
    );
}

#[test]
fn an_answer_of_the_wrong_kind_is_logged_and_not_asked_for_again() {
    for (script, stream, log_text) in
        [("sse", false, "answered with events"), ("plain", true, "answered with one response")]
    {
        let upstream = FakeUpstream::start();
        let gateway = gateway_with_two_accounts(&upstream);
        let answer = call(&gateway).json(&image_response_body(script, stream)).send(gateway.address());
        assert_eq!(answer.error_object(502)["reason"], "no_image_data", "{script}");
        assert_eq!(answer.should_retry(), Some("false"), "{script}: the answer may have been paid for");
        assert_eq!(upstream.attempt_count(), 1, "{script}");
        eventually("the log names the mismatch", || gateway.output().contains(log_text).then_some(()));
        assert_eq!(gateway.final_records(1)[0]["attempts"][0]["class"], json!("X"), "{script}");
    }
}
