//! The fallback ladder of the specification: 4K at high, 4K at medium, 1536x1024 at medium. Only for those who ask for it,
//! after a failure that may have been paid for only for those who accept that ([`always`]), and never in silence.

mod always;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, alpha_png};

const HEADER: &str = "x-imagate-fallback";
const LADDER: [(&str, &str); 3] = [("3840x2160", "high"), ("3840x2160", "medium"), ("1536x1024", "medium")];

/// A generation of the largest size in the best quality that may be made smaller.
fn opted_in(gateway: &Gateway, with: Value) -> Call {
    largest(gateway, with).header(HEADER, "ladder")
}

/// A generation of the largest size in the best quality.
fn largest(gateway: &Gateway, with: Value) -> Call {
    let mut fields = json!({"size": "3840x2160", "quality": "high"});
    for (name, value) in with.as_object().expect("fields") {
        fields[name] = value.clone();
    }
    gateway.call(fields)
}

/// What was asked for in each attempt.
fn asked(upstream: &FakeUpstream) -> Vec<(String, String)> {
    let ledger = upstream.ledger();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ledger.iter().map(|attempt| (word(&attempt.fields()["size"]), word(&attempt.fields()["quality"]))).collect()
}

fn steps(steps: &[(&str, &str)]) -> Vec<(String, String)> {
    steps.iter().map(|(size, quality)| ((*size).to_owned(), (*quality).to_owned())).collect()
}

/// The answer and the record say the same: what was really made instead.
#[track_caller]
fn is_told(answer: &Answer, gateway: &Gateway, step: Option<(&str, &str)>) {
    let told = step.map(|(size, quality)| format!("{size} {quality}"));
    assert_eq!(answer.header(HEADER), told.as_deref());
    let record = gateway.final_records(1).pop().expect("a record");
    assert_eq!(record["fallback"].as_str(), told.as_deref(), "{record}");
    if let Some((size, _)) = step {
        assert_eq!(record["delivered"][0]["size"], size, "{record}");
        assert_eq!((&record["size"], &record["quality"]), (&json!("3840x2160"), &json!("high")), "what was requested");
    }
}

#[test]
fn a_failure_that_made_nothing_goes_one_step_down() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("status=500");
    let answer = opted_in(&gateway, json!({})).send(gateway.address());
    let body = answer.ok_json();
    assert_eq!((&body["size"], &body["quality"]), (&json!("3840x2160"), &json!("medium")));
    assert_eq!(asked(&upstream), steps(&LADDER[..2]));
    is_told(&answer, &gateway, Some(LADDER[1]));
}

#[test]
fn several_images_of_one_call_each_go_one_step_down_together() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream).with_responses_protocol()]);
    upstream.in_turn("sk-upstream-only", &[&["status=500"; 4][..], &[""]].concat());
    let answer = opted_in(&gateway, json!({"n": 4})).send(gateway.address());
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(4));
    assert_eq!(upstream.attempts(), 8);
    is_told(&answer, &gateway, Some(LADDER[1]));
}

#[test]
fn the_ladder_ends_at_its_last_step() {
    for failures in [2, 3] {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with_upstream(&upstream);
        (0..failures).for_each(|_| upstream.script_next("status=503"));
        let answer = opted_in(&gateway, json!({})).send(gateway.address());
        assert_eq!(asked(&upstream), steps(&LADDER));
        if failures == 2 {
            assert_eq!(answer.ok_json()["size"], "1536x1024");
            is_told(&answer, &gateway, Some(LADDER[2]));
        } else {
            answer.error_object(502);
            assert_eq!(answer.header(HEADER), None);
        }
    }
}

#[test]
fn another_account_is_asked_for_the_same_before_anything_is_made_smaller() {
    let upstream = FakeUpstream::start();
    let accounts =
        [Account::for_upstream("first", &upstream), Account::for_upstream("second", &upstream).with_free_tier()];
    let gateway = Gateway::with("", &accounts);
    upstream.script_next("status=500");
    let answer = opted_in(&gateway, json!({})).send(gateway.address());
    assert_eq!(answer.ok_json()["quality"], "high");
    assert_eq!(asked(&upstream), steps(&[LADDER[0], LADDER[0]]));
    is_told(&answer, &gateway, None);
}

#[test]
fn an_account_that_turns_the_size_away_may_take_the_smaller_one() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    // A 4xx without a parameter is between the account and its upstream: class N.
    upstream.script_next("status=400");
    let answer = opted_in(&gateway, json!({})).send(gateway.address());
    answer.ok_json();
    assert_eq!(asked(&upstream), steps(&LADDER[..2]));
    is_told(&answer, &gateway, Some(LADDER[1]));
}

#[test]
fn what_may_have_been_paid_or_was_refused_is_never_made_smaller() {
    for (word, script) in always::LOST.map(|script| ("unpaid", script)).into_iter().chain([
        ("ladder", "cut=30"),
        ("never", "cut=30"),
        ("off", "cut=30"),
        ("unpaid", "status=400 body=policy"),
        ("unpaid", "status=400 body=parameter"),
    ]) {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with("[deadlines]\nimage = \"1500ms\"\n", &[Account::for_upstream("only", &upstream)]);
        upstream.script_next(script);
        let answer = largest(&gateway, json!({})).header(HEADER, word).send(gateway.address());
        assert!([400, 502].contains(&answer.status), "{word} {script}: {}", answer.status);
        assert_eq!(answer.should_retry(), Some("false"), "{word} {script}");
        assert_eq!(asked(&upstream), steps(&LADDER[..1]), "{word} {script}");
        assert_eq!(answer.header(HEADER), None, "{word} {script}");
        assert_eq!(gateway.final_records(1)[0]["maybe_paid_twice"], false, "{word} {script}");
    }
}

#[test]
fn nothing_is_made_smaller_for_those_who_did_not_ask_for_it() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    // A rejection that names no parameter is blamed on the request.
    for (script, status) in [("status=500", 502), ("status=400", 400)] {
        let before = upstream.attempts();
        upstream.script_next(script);
        let answer = gateway.generate(json!({"size": "3840x2160", "quality": "high"}));
        answer.error_object(status);
        assert_eq!(upstream.attempts(), before + 1, "{script}");
    }
}

#[test]
fn only_what_stands_on_the_ladder_goes_down() {
    for (size, quality, then) in [
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
        expected.extend(then);
        assert_eq!(asked(&upstream), steps(&expected), "{size} {quality}");
        assert_eq!(answer.status == 200, then.is_some(), "{size} {quality}");
    }
}

#[test]
fn a_group_can_ask_for_all_of_its_callers() {
    let upstream = FakeUpstream::start();
    let top = "[[groups]]\nname = \"default\"\nfallback = \"unpaid\"\n";
    let gateway = Gateway::with(top, &[Account::for_upstream("only", &upstream)]);
    upstream.script_next("status=500");
    let answer = gateway.generate(json!({"size": "3840x2160", "quality": "high"}));
    answer.ok_json();
    is_told(&answer, &gateway, Some(LADDER[1]));
    assert_eq!(gateway.final_records(1)[0]["maybe_paid_twice"], false, "nothing was made before");
    // A request decides for itself.
    upstream.script_next("status=500");
    largest(&gateway, json!({})).header(HEADER, "never").send(gateway.address()).error_object(502);
}

#[test]
fn edits_and_streams_go_down_as_well() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("status=500");
    let form = Form::with_required_fields()
        .text("size", "3840x2160")
        .text("quality", "high")
        .file("image", &alpha_png(96, 64));
    let answer = form.call().key(gateway.secret()).header(HEADER, "ladder").send(gateway.address());
    answer.ok_json();
    assert_eq!(asked(&upstream), steps(&LADDER[..2]));
    is_told(&answer, &gateway, Some(LADDER[1]));
    upstream.script_next("status=500");
    let answer = opted_in(&gateway, json!({"stream": true})).send(gateway.address());
    assert_eq!((answer.status, answer.header(HEADER)), (200, Some("3840x2160 medium")));
    assert!(answer.text().contains("image_generation.completed"));
}

#[test]
fn another_word_in_the_header_is_a_400() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let answer = gateway.call(json!({})).header(HEADER, "rope").send(gateway.address());
    let error = answer.error_object(400);
    assert!(error["message"].as_str().is_some_and(|text| text.contains(HEADER)), "{error}");
    assert_eq!(upstream.accepted(), 0);
}
