//! How a response fails: an ordinary error before it has begun, the pair of events after that, and never a second answer.

use std::io::Read as _;

use serde_json::{Value, json};

use super::{before, call, drawing, task, two};
use crate::kit::{FakeUpstream, before_error_frame, eventually};

#[test]
fn a_failure_before_anything_was_done_is_an_ordinary_error_with_its_status() {
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
        let gateway = before(&upstream);
        let answer = call(&gateway).json(&drawing(script, stream)).send(gateway.address());
        assert_eq!(answer.error_object(status)["code"], code, "{script}");
        assert!(!answer.text().contains("upstream-canary"), "{script}: {}", answer.text());
        let record = gateway.final_records(1).remove(0);
        assert_eq!((&record["state"], &record["error_code"]), (&json!(state), &json!(code)), "{script}: {record:#}");
        assert_eq!(upstream.attempts(), 1, "{script}");
    }
}

#[test]
fn another_account_is_asked_only_where_nothing_was_made() {
    for (script, attempts) in
        [("status=429", 2), ("status=500", 2), ("hang-up", 1), ("status=502", 1), ("status=400 body=policy", 1)]
    {
        let upstream = FakeUpstream::start();
        let gateway = two(&upstream);
        upstream.always_for_token("sk-upstream-first", script);
        let answer = call(&gateway).json(&task(&json!({}))).send(gateway.address());
        assert_eq!((answer.status == 200, upstream.attempts()), (attempts == 2, attempts), "{script}");
    }
}

/// The pair at the end of a stream; what stands before it.
#[track_caller]
fn before_pair(text: &str) -> (&str, Value) {
    let (rest, failed) = text.rsplit_once("event: response.failed\ndata: ").expect("the failed response at the end");
    let failed: Value = serde_json::from_str(failed.strip_suffix("\n\n").expect("an end")).expect("JSON");
    (before_error_frame(rest), failed)
}

#[test]
fn a_failure_in_the_middle_is_the_pair_of_events_that_every_client_understands() {
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
        let gateway = two(&upstream);
        let answer = call(&gateway).json(&drawing(script, true)).send(gateway.address());
        assert_eq!(answer.status, 200, "{script}: {:.300}", answer.text());
        assert!(answer.complete, "{script}: the body has an end");
        let text = answer.text();
        let (before, failed) = before_pair(&text);
        assert!(before.starts_with("event: response.created\n"), "{script}: {before:.300}");
        assert!(!text.contains("upstream-canary"), "{script}: the upstream's own words came out");
        assert_eq!(
            failed["response"]["error"],
            json!({"code": code, "message": "Upstream request failed"}),
            "{script}"
        );
        assert_eq!((&failed["response"]["id"], &failed["response"]["status"]), (&json!("resp_0"), &json!("failed")));
        assert_eq!(upstream.attempts(), 1, "{script}: never a second attempt");
        let record = gateway.final_records(1).remove(0);
        assert_eq!(
            (&record["state"], &record["attempts"][0]["class"]),
            (&json!("interrupted"), &json!("O")),
            "{script}"
        );
    }
}

#[test]
fn a_plain_response_that_breaks_within_its_image_breaks_the_callers_too() {
    let upstream = FakeUpstream::start();
    let gateway = before(&upstream);
    let answer = call(&gateway).json(&drawing("b64=3000000 cut=50%", false)).send(gateway.address());
    assert!(answer.status == 200 && !answer.complete, "a cut answer must not look whole");
    assert_eq!(gateway.final_records(1)[0]["state"], "interrupted");
}

#[test]
fn a_caller_of_events_who_leaves_ends_the_upstreams_work() {
    let upstream = FakeUpstream::start();
    let gateway = before(&upstream);
    let mut reply =
        call(&gateway).json(&drawing("events=created,added,stall", true)).open(gateway.address()).expect("an answer");
    reply.read_exact(&mut [0; 10]).expect("its beginning");
    drop(reply);
    upstream.wait_until("the upstream sees its caller leave", |ledger| ledger[0].peer_left);
    assert_eq!(gateway.final_records(1)[0]["state"], "cancelled");
}

#[test]
fn a_plain_caller_who_leaves_has_paid_and_the_response_is_recorded() {
    let upstream = FakeUpstream::start();
    let gateway = before(&upstream);
    let stream = call(&gateway).json(&drawing("gate=go", false)).dispatch(gateway.address()).expect("sent");
    upstream.wait_until("the attempt has arrived", |ledger| ledger.len() == 1);
    drop(stream);
    upstream.open_gate("go");
    let record = gateway.final_records(1).remove(0);
    assert_eq!(
        (&record["state"], &record["host_usage"]["output_tokens"]),
        // The answer is read to its end for the client's own retry, as at the image endpoints.
        (&json!("succeeded"), &json!(50))
    );
}

#[test]
fn an_answer_in_the_other_shape_is_never_asked_for_again_and_the_operator_learns_of_it() {
    for (script, stream, said) in
        [("sse", false, "answered with events"), ("plain", true, "answered with one response")]
    {
        let upstream = FakeUpstream::start();
        let gateway = two(&upstream);
        let answer = call(&gateway).json(&drawing(script, stream)).send(gateway.address());
        assert_eq!(answer.error_object(502)["reason"], "no_image_data", "{script}");
        assert_eq!(answer.should_retry(), Some("false"), "{script}: it may have been paid for");
        assert_eq!(upstream.attempts(), 1, "{script}");
        eventually("the operator learns of it", || gateway.output().contains(said).then_some(()));
        assert_eq!(gateway.final_records(1)[0]["attempts"][0]["class"], json!("X"), "{script}");
    }
}
