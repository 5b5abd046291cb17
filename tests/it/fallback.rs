//! The fallback ladder of the specification: 4K at high, 4K at medium, 1536x1024 at medium. It applies only to requests
//! that opt in; after a failure that may have been paid for, only to requests that accept that ([`always`]). The answer
//! and the record always show it.

mod always;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, alpha_png};

const HEADER: &str = "x-imagate-fallback";
const LADDER: [(&str, &str); 3] = [("3840x2160", "high"), ("3840x2160", "medium"), ("1536x1024", "medium")];

/// A generation of the largest size in the best quality, with the fallback.
fn opted_in(gateway: &Gateway, overrides: Value) -> Call {
    largest(gateway, overrides).header(HEADER, "unpaid")
}

/// A generation of the largest size in the best quality.
fn largest(gateway: &Gateway, overrides: Value) -> Call {
    let mut fields = json!({"size": "3840x2160", "quality": "high"});
    for (name, value) in overrides.as_object().expect("fields") {
        fields[name] = value.clone();
    }
    gateway.call(fields)
}

/// The size and quality of each attempt.
fn requested_steps(upstream: &FakeUpstream) -> Vec<(String, String)> {
    let attempts = upstream.received_attempts();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    attempts.iter().map(|attempt| (word(&attempt.fields()["size"]), word(&attempt.fields()["quality"]))).collect()
}

/// These sizes and qualities, in the form of [`requested_steps`].
fn steps(steps: &[(&str, &str)]) -> Vec<(String, String)> {
    steps.iter().map(|(size, quality)| ((*size).to_owned(), (*quality).to_owned())).collect()
}

/// The answer and the record must show this step of the ladder, or no fallback.
#[track_caller]
fn check_fallback(answer: &Answer, gateway: &Gateway, step: Option<(&str, &str)>) {
    let expected = step.map(|(size, quality)| format!("{size} {quality}"));
    assert_eq!(answer.header(HEADER), expected.as_deref());
    let record = gateway.final_records(1).pop().expect("a record");
    assert_eq!(record["fallback"].as_str(), expected.as_deref(), "{record}");
    if let Some((size, _)) = step {
        assert_eq!(record["delivered"][0]["size"], size, "{record}");
        assert_eq!(
            (&record["size"], &record["quality"]),
            (&json!("3840x2160"), &json!("high")),
            "the record has the requested size and quality"
        );
    }
}

#[test]
fn a_failure_without_an_image_goes_one_step_down() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("status=500");
    let answer = opted_in(&gateway, json!({})).send(gateway.address());
    let body = answer.ok_json();
    assert_eq!((&body["size"], &body["quality"]), (&json!("3840x2160"), &json!("medium")));
    assert_eq!(requested_steps(&upstream), steps(&LADDER[..2]));
    check_fallback(&answer, &gateway, Some(LADDER[1]));
}

#[test]
fn images_of_separate_calls_go_one_step_down_together() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream).with_responses_protocol()]);
    upstream.script_sequence("sk-upstream-only", &[&["status=500"; 4][..], &[""]].concat());
    let answer = opted_in(&gateway, json!({"n": 4})).send(gateway.address());
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(4));
    assert_eq!(upstream.attempt_count(), 8);
    check_fallback(&answer, &gateway, Some(LADDER[1]));
}

#[test]
fn the_ladder_ends_at_its_last_step() {
    for failures in [2, 3] {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with_upstream(&upstream);
        (0..failures).for_each(|_| upstream.script_next("status=503"));
        let answer = opted_in(&gateway, json!({})).send(gateway.address());
        assert_eq!(requested_steps(&upstream), steps(&LADDER));
        if failures == 2 {
            assert_eq!(answer.ok_json()["size"], "1536x1024");
            check_fallback(&answer, &gateway, Some(LADDER[2]));
        } else {
            answer.error_object(502);
            assert_eq!(answer.header(HEADER), None);
        }
    }
}

#[test]
fn another_account_is_tried_before_the_fallback() {
    let upstream = FakeUpstream::start();
    let accounts =
        [Account::for_upstream("first", &upstream), Account::for_upstream("second", &upstream).with_free_tier()];
    let gateway = Gateway::with("", &accounts);
    upstream.script_next("status=500");
    let answer = opted_in(&gateway, json!({})).send(gateway.address());
    assert_eq!(answer.ok_json()["quality"], "high");
    assert_eq!(requested_steps(&upstream), steps(&[LADDER[0], LADDER[0]]));
    check_fallback(&answer, &gateway, None);
}

#[test]
fn an_account_that_rejects_a_size_may_make_the_smaller_image() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    // A 4xx that names no parameter concerns the account, not the request: class N.
    upstream.script_next("status=400");
    let answer = opted_in(&gateway, json!({})).send(gateway.address());
    answer.ok_json();
    assert_eq!(requested_steps(&upstream), steps(&LADDER[..2]));
    check_fallback(&answer, &gateway, Some(LADDER[1]));
}

#[test]
fn a_possibly_paid_or_refused_image_has_no_fallback() {
    for (word, script) in always::MAYBE_PAID_FAILURES.map(|script| ("unpaid", script)).into_iter().chain([
        ("unpaid", "cut=30"),
        ("never", "cut=30"),
        ("unpaid", "status=400 body=policy"),
        ("unpaid", "status=400 body=parameter"),
    ]) {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with("[deadlines]\nimage = \"1500ms\"\n", &[Account::for_upstream("only", &upstream)]);
        upstream.script_next(script);
        let answer = largest(&gateway, json!({})).header(HEADER, word).send(gateway.address());
        assert!([400, 502].contains(&answer.status), "{word} {script}: {}", answer.status);
        assert_eq!(answer.should_retry(), Some("false"), "{word} {script}");
        assert_eq!(requested_steps(&upstream), steps(&LADDER[..1]), "{word} {script}");
        assert_eq!(answer.header(HEADER), None, "{word} {script}");
        assert_eq!(gateway.final_records(1)[0]["maybe_paid_twice"], false, "{word} {script}");
    }
}

#[test]
fn a_request_that_did_not_opt_in_has_no_fallback() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    // A rejection that names no parameter is blamed on the request.
    for (script, status) in [("status=500", 502), ("status=400", 400)] {
        let before = upstream.attempt_count();
        upstream.script_next(script);
        let answer = gateway.generate(json!({"size": "3840x2160", "quality": "high"}));
        answer.error_object(status);
        assert_eq!(upstream.attempt_count(), before + 1, "{script}");
    }
}

#[test]
fn only_sizes_of_the_ladder_have_a_fallback() {
    for (size, quality, next) in [
        ("3840x2160", "medium", Some(("1536x1024", "medium"))),
        ("2160x3840", "high", Some(("2160x3840", "medium"))),
        ("2160x3840", "medium", Some(("1024x1536", "medium"))),
        ("2160x3840", "high", Some(("2160x3840", "medium"))),
        ("2160x3840", "medium", Some(("1024x1536", "medium"))),
        ("1536x1024", "medium", None),
        ("1024x1024", "high", None),
        ("2048x1152", "high", None),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with_upstream(&upstream);
        upstream.script_next("status=500");
        let answer = opted_in(&gateway, json!({"size": size, "quality": quality})).send(gateway.address());
        let mut expected = vec![(size, quality)];
        expected.extend(next);
        assert_eq!(requested_steps(&upstream), steps(&expected), "{size} {quality}");
        assert_eq!(answer.status == 200, next.is_some(), "{size} {quality}");
    }
}

#[test]
fn a_group_can_opt_in_for_its_callers() {
    let upstream = FakeUpstream::start();
    let settings = "[[groups]]\nname = \"default\"\nfallback = \"unpaid\"\n";
    let gateway = Gateway::with(settings, &[Account::for_upstream("only", &upstream)]);
    upstream.script_next("status=500");
    let answer = gateway.generate(json!({"size": "3840x2160", "quality": "high"}));
    answer.ok_json();
    check_fallback(&answer, &gateway, Some(LADDER[1]));
    assert_eq!(gateway.final_records(1)[0]["maybe_paid_twice"], false, "the first failure made no image");
    // The header of a request overrides the policy of the group.
    upstream.script_next("status=500");
    largest(&gateway, json!({})).header(HEADER, "never").send(gateway.address()).error_object(502);
}

#[test]
fn edits_and_streams_have_the_fallback_too() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("status=500");
    let form = Form::with_required_fields()
        .text("size", "3840x2160")
        .text("quality", "high")
        .file("image", &alpha_png(96, 64));
    let answer = form.call().key(gateway.secret()).header(HEADER, "unpaid").send(gateway.address());
    answer.ok_json();
    assert_eq!(requested_steps(&upstream), steps(&LADDER[..2]));
    check_fallback(&answer, &gateway, Some(LADDER[1]));
    upstream.script_next("status=500");
    let answer = opted_in(&gateway, json!({"stream": true})).send(gateway.address());
    assert_eq!((answer.status, answer.header(HEADER)), (200, Some("3840x2160 medium")));
    assert!(answer.text().contains("image_generation.completed"));
}

#[test]
fn an_unknown_value_of_the_header_is_a_400() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let answer = gateway.call(json!({})).header(HEADER, "rope").send(gateway.address());
    let error = answer.error_object(400);
    assert!(error["message"].as_str().is_some_and(|text| text.contains(HEADER)), "{error}");
    assert_eq!(upstream.accepted(), 0);
}
