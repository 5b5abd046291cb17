//! The fallback `always`: a smaller image is also made if the larger image failed but may have been paid for. An image
//! that was made is neither discarded nor paid for again, and the record shows whether two images may have been paid
//! for.

use super::*;
use crate::kit::{Events, env_setting};

/// Scripts of failures after which an image may have been paid for.
pub(super) const MAYBE_PAID_FAILURES: [&str; 11] = [
    "stall=head",
    "stall=body",
    "status=502 body=html",
    "status=502",
    "status=504 body=html",
    "status=524 body=html",
    "hang-up",
    "hang-up how=reset",
    "cut=30",
    "clip=30",
    "data=empty tokens=9",
];
/// Settings with a short deadline for an image.
const SHORT_DEADLINE: &str = "[deadlines]\nimage = \"6s\"\n";
/// The token of the only account.
const ONLY: &str = "sk-upstream-only";
/// The header by which a client marks a retry.
const RETRY: (&str, &str) = ("x-stainless-retry-count", "1");

/// A generation of the largest size in the best quality, with the fallback `always`.
fn always(gateway: &Gateway, overrides: Value) -> Call {
    largest(gateway, overrides).header(HEADER, "always")
}

/// A gateway with a short deadline and one account.
fn short_deadline(upstream: &FakeUpstream) -> Gateway {
    Gateway::with(SHORT_DEADLINE, &[Account::for_upstream("only", upstream)])
}

/// A gateway with a short deadline and one account, which makes each image in a separate call.
fn one_by_one(upstream: &FakeUpstream) -> Gateway {
    Gateway::with(SHORT_DEADLINE, &[Account::for_upstream("only", upstream).with_responses_protocol()])
}

/// The classes of the attempts of a record, with `-` for an attempt that made an image.
fn classes(record: &Value) -> Vec<&str> {
    let attempts = record["attempts"].as_array().expect("attempts").iter();
    attempts.map(|attempt| attempt["class"].as_str().unwrap_or("-")).collect()
}

#[test]
fn a_possibly_paid_image_has_a_fallback_with_always() {
    for script in MAYBE_PAID_FAILURES {
        let upstream = FakeUpstream::start();
        let gateway = short_deadline(&upstream);
        upstream.script_next(script);
        let answer = always(&gateway, json!({})).send(gateway.address());
        println!("{script}");
        let body = answer.ok_json();
        assert_eq!((&body["size"], &body["quality"]), (&json!("3840x2160"), &json!("medium")));
        assert_eq!(body["data"][0]["b64_json"], json!(upstream.received_attempts()[1].images[0]));
        assert_eq!(requested_steps(&upstream), steps(&LADDER[..2]));
        check_fallback(&answer, &gateway, Some(LADDER[1]));
        let record = gateway.final_records(1).pop().expect("a record");
        assert_eq!((&record["state"], &record["maybe_paid_twice"]), (&json!("succeeded"), &json!(true)), "{record}");
        assert_eq!(classes(&record), ["X", "-"]);
        let images = [&record["attempts"][0]["fallback"], &record["attempts"][1]["fallback"]];
        assert_eq!(images, [&Value::Null, &json!("3840x2160 medium")], "{record}");
    }
}

#[test]
fn a_group_can_set_always_for_its_callers() {
    let upstream = FakeUpstream::start();
    let settings = "[[groups]]\nname = \"default\"\nfallback = \"always\"\n";
    let gateway = Gateway::with(settings, &[Account::for_upstream("only", &upstream)]);
    upstream.script_sequence(ONLY, &["status=502", "", "status=502"]);
    let answer = largest(&gateway, json!({})).send(gateway.address());
    answer.ok_json();
    check_fallback(&answer, &gateway, Some(LADDER[1]));
    // The header of a request overrides the policy of the group.
    largest(&gateway, json!({})).header(HEADER, "unpaid").send(gateway.address()).error_object(502);
    assert_eq!(upstream.attempt_count(), 3);
}

#[test]
fn the_last_step_is_reached_although_the_upstream_stays_silent() {
    let upstream = FakeUpstream::start();
    let gateway = short_deadline(&upstream);
    upstream.script_sequence(ONLY, &["stall=head", "stall=body", ""]);
    let answer = always(&gateway, json!({})).send(gateway.address());
    assert_eq!(answer.ok_json()["size"], "1536x1024");
    assert_eq!(requested_steps(&upstream), steps(&LADDER));
    check_fallback(&answer, &gateway, Some(LADDER[2]));
}

#[test]
fn the_possibly_paid_failure_determines_the_error() {
    for (scripts, reasons) in [
        (&["status=502"; 3][..], ["network", "no_image_data"]),
        (&["status=504 body=html", "status=500", "status=500"], ["network", "timeout"]),
        (&["status=504 body=html", "status=429 retry-after=30", "status=429 retry-after=30"], ["network", "timeout"]),
        (&["status=504 body=html", "status=400 body=policy"], ["network", "timeout"]),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = short_deadline(&upstream);
        upstream.script_sequence(ONLY, scripts);
        let answer = always(&gateway, json!({})).send(gateway.address());
        let error = answer.error_object(502);
        assert!(reasons.iter().any(|reason| error["reason"] == *reason), "{scripts:?}: {error}");
        assert_eq!((answer.should_retry(), answer.header(HEADER)), (Some("false"), None), "{scripts:?}");
        assert!(
            upstream.attempt_count() >= 2 && requested_steps(&upstream) == steps(&LADDER[..upstream.attempt_count()]),
            "{scripts:?}"
        );
        let record = gateway.final_records(1).pop().expect("a record");
        assert_eq!((&record["state"], &record["fallback"]), (&json!("interrupted"), &Value::Null), "{record}");
        assert_eq!(record["maybe_paid_twice"], true, "{record}");
    }
}

#[test]
fn a_refused_or_invalid_request_has_no_fallback() {
    for (script, status) in [
        ("status=400 body=policy", 502),
        ("status=400 body=policy-old", 502),
        ("status=451", 502),
        ("status=400 body=parameter", 400),
        ("status=422 body=parameter", 400),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = short_deadline(&upstream);
        upstream.script_next(script);
        let answer = always(&gateway, json!({})).send(gateway.address());
        assert_eq!(answer.status, status, "{script}: {:.300}", answer.text());
        assert_eq!((answer.should_retry(), upstream.attempt_count()), (Some("false"), 1), "{script}");
        assert_eq!(gateway.final_records(1)[0]["maybe_paid_twice"], false, "{script}");
    }
}

#[test]
fn only_sizes_of_the_ladder_are_made_again() {
    for (size, quality) in [("1024x1024", "high"), ("3840x2160", "low"), ("1536x1024", "medium")] {
        let upstream = FakeUpstream::start();
        let gateway = short_deadline(&upstream);
        upstream.script_next("status=502");
        always(&gateway, json!({"size": size, "quality": quality})).send(gateway.address()).error_object(502);
        assert_eq!(upstream.attempt_count(), 1, "{size} {quality}");
    }
}

#[test]
fn tokens_of_both_images_are_recorded() {
    let upstream = FakeUpstream::start();
    let gateway = short_deadline(&upstream);
    upstream.script_next("data=empty tokens=1700");
    let answer = always(&gateway, json!({})).send(gateway.address());
    assert_eq!(answer.ok_json()["usage"]["output_tokens"], 196);
    assert_eq!(gateway.final_records(1)[0]["usage"]["output_tokens"], 1700 + 196);
}

#[test]
fn a_stream_has_a_fallback_until_its_image_has_begun() {
    for script in ["stall=head", "status=502", "hang-up", "events=cut", "events=eof"] {
        let upstream = FakeUpstream::start();
        let gateway = short_deadline(&upstream);
        upstream.script_next(script);
        let answer = always(&gateway, json!({"stream": true})).send(gateway.address());
        assert_eq!((answer.status, answer.header(HEADER)), (200, Some("3840x2160 medium")), "{script}");
        let text = answer.text();
        assert!(text.contains("image_generation.completed") && text.contains("\"quality\":\"medium\""), "{script}");
        assert_eq!(requested_steps(&upstream), steps(&LADDER[..2]), "{script}");
        check_fallback(&answer, &gateway, Some(LADDER[1]));
    }
    let upstream = FakeUpstream::start();
    let gateway = short_deadline(&upstream);
    upstream.script_next("events=p,cut");
    let answer = always(&gateway, json!({"stream": true, "partial_images": 1})).send(gateway.address());
    assert!(answer.text().contains("event: error"), "{}", answer.text());
    assert_eq!(
        (upstream.attempt_count(), answer.header(HEADER)),
        (1, None),
        "the caller has received a part of the image"
    );
}

#[test]
fn an_early_stream_shows_the_fallback_in_its_event() {
    // The contract fixes the interval of the heartbeats, so this test is slow.
    if env_setting("IMAGATE_TEST_FAST").is_some() {
        return;
    }
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("gate=late status=504 body=html");
    let (heartbeat_sender, heartbeats) = std::sync::mpsc::channel();
    let call = always(&gateway, json!({"stream": true}));
    let events = std::thread::scope(|scope| {
        let listener = scope.spawn(|| {
            let mut events = Events::from_reply(call.open(gateway.address()).expect("an answer"));
            events.listener = Some(heartbeat_sender);
            events.remaining()
        });
        heartbeats.recv_timeout(crate::kit::TEST_TIMEOUT).expect("a heartbeat");
        upstream.open_gate("late");
        listener.join().expect("the events")
    });
    let last = events.last().expect("an event");
    assert_eq!(last.name, "image_generation.completed");
    assert_eq!((&last.data["size"], &last.data["quality"]), (&json!("3840x2160"), &json!("medium")));
    let record = gateway.final_records(1).pop().expect("a record");
    assert_eq!((&record["fallback"], &record["maybe_paid_twice"]), (&json!("3840x2160 medium"), &json!(true)));
}

#[test]
fn several_images_of_one_call_go_down_together() {
    let upstream = FakeUpstream::start();
    let gateway = short_deadline(&upstream);
    upstream.script_next("status=502");
    let answer = always(&gateway, json!({"n": 2})).send(gateway.address());
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(requested_steps(&upstream), steps(&LADDER[..2]));
    check_fallback(&answer, &gateway, Some(LADDER[1]));
}

#[test]
fn images_of_separate_calls_go_down_only_if_none_was_made() {
    let upstream = FakeUpstream::start();
    let gateway = one_by_one(&upstream);
    upstream.script_sequence(ONLY, &["status=502 body=html", "stall=head", "", ""]);
    let answer = always(&gateway, json!({"n": 2})).send(gateway.address());
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(2));
    assert_eq!((upstream.attempt_count(), answer.header("x-imagate-missing")), (4, None));
    check_fallback(&answer, &gateway, Some(LADDER[1]));
    assert_eq!(gateway.final_records(1)[0]["maybe_paid_twice"], true);
}

#[test]
fn an_image_that_was_made_is_answered_without_a_fallback() {
    let upstream = FakeUpstream::start();
    let gateway = one_by_one(&upstream);
    upstream.script_sequence(ONLY, &["", "status=502 body=html"]);
    let answer = always(&gateway, json!({"n": 2})).send(gateway.address());
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(1));
    assert_eq!((upstream.attempt_count(), answer.header("x-imagate-missing")), (2, Some("1")));
    check_fallback(&answer, &gateway, None);
    let record = gateway.final_records(1).pop().expect("a record");
    assert_eq!(record["maybe_paid_twice"], false, "{record}");
    assert_eq!(record["delivered"][0]["size"], "3840x2160");
}

#[test]
fn an_image_is_not_abandoned_if_another_of_the_job_was_made() {
    let upstream = FakeUpstream::start();
    let gateway = one_by_one(&upstream);
    // The delay is longer than half of the remaining time.
    upstream.script_sequence(ONLY, &["", "delay=4000"]);
    let answer = always(&gateway, json!({"n": 2})).send(gateway.address());
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(upstream.attempt_count(), 2);
    check_fallback(&answer, &gateway, None);
}

#[test]
fn an_image_is_not_abandoned_without_a_possible_fallback() {
    let upstream = FakeUpstream::start();
    let gateway = one_by_one(&upstream);
    // One image is refused, once both calls have begun, so no smaller image is made. The other takes longer than half of
    // the remaining time.
    upstream.script_sequence(ONLY, &["delay=500 status=400 body=policy", "delay=4000"]);
    let answer = always(&gateway, json!({"n": 2})).send(gateway.address());
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(1));
    assert_eq!((upstream.attempt_count(), answer.header("x-imagate-missing")), (2, Some("1")));
    check_fallback(&answer, &gateway, None);
}

#[test]
fn an_image_is_not_abandoned_for_a_caller_who_has_left() {
    let upstream = FakeUpstream::start();
    let gateway = short_deadline(&upstream);
    upstream.script_next("delay=4000");
    send_and_leave(&gateway, &upstream);
    let record = gateway.final_records(1).pop().expect("a record");
    assert_eq!((&record["state"], upstream.attempt_count()), (&json!("succeeded"), 1), "{record}");
    assert_eq!(record["delivered"][0]["quality"], "high", "{record}");
}

#[test]
fn there_is_no_fallback_in_the_last_eighth_of_the_time() {
    let upstream = FakeUpstream::start();
    let gateway = short_deadline(&upstream);
    upstream.script_next("delay=5500 status=500");
    largest(&gateway, json!({})).header(HEADER, "unpaid").send(gateway.address());
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn there_is_no_fallback_after_the_deadline() {
    let upstream = FakeUpstream::start();
    let gateway = one_by_one(&upstream);
    // The answers of both images have begun, so both may use all of the remaining time.
    upstream.always_for_token(ONLY, "tale=created,half,stall");
    let answer = always(&gateway, json!({"n": 2})).send(gateway.address());
    answer.error_object(502);
    assert_eq!((answer.should_retry(), upstream.attempt_count()), (Some("false"), 2));
    assert_eq!(gateway.final_records(1)[0]["maybe_paid_twice"], false);
}

#[test]
fn a_smaller_image_is_paid_once_per_idempotency_key() {
    let upstream = FakeUpstream::start();
    let gateway = short_deadline(&upstream);
    upstream.script_next("status=502");
    let call = || always(&gateway, json!({})).header("idempotency-key", "k-1").send(gateway.address());
    let answers = [call(), call(), call()];
    answers[0].ok_json();
    for replayed in &answers[1..] {
        assert_eq!((replayed.status, &replayed.body), (200, &answers[0].body));
        assert_eq!(replayed.header("x-imagate-replayed"), Some("true"));
        assert_eq!(replayed.header(HEADER), Some("3840x2160 medium"));
    }
    assert_eq!(upstream.attempt_count(), 2);
    assert_eq!(gateway.final_records(1).len(), 1);
}

#[test]
fn a_retry_after_in_progress_gets_the_smaller_image() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("answer_deadline = \"1s\"\n", &[Account::for_upstream("only", &upstream)]);
    upstream.script_next("gate=open status=502");
    let call = || always(&gateway, json!({})).send(gateway.address());
    call().error_object(409);
    upstream.open_gate("open");
    upstream.wait_until("the smaller image is requested", |attempts| attempts.len() == 2);
    let answer = call();
    answer.ok_json();
    assert_eq!((answer.header("x-imagate-replayed"), upstream.attempt_count()), (Some("true"), 2));
    check_fallback(&answer, &gateway, Some(LADDER[1]));
}

/// Sends a generation, waits until the upstream has received it, and disconnects.
fn send_and_leave(gateway: &Gateway, upstream: &FakeUpstream) {
    let stream = always(gateway, json!({})).dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt has begun", |attempts| attempts.len() == 1);
    drop(stream);
    gateway.wait_until_busy(0);
}

#[test]
fn nothing_more_is_paid_after_the_caller_has_left() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("gate=open status=502");
    send_and_leave(&gateway, &upstream);
    upstream.open_gate("open");
    let record = gateway.final_records(1).pop().expect("a record");
    assert_eq!((&record["state"], &record["maybe_paid_twice"]), (&json!("interrupted"), &json!(false)), "{record}");
    // A retry gets the outcome of the job.
    let retry = always(&gateway, json!({})).header(RETRY.0, RETRY.1).send(gateway.address());
    retry.error_object(502);
    assert_eq!((retry.should_retry(), upstream.attempt_count()), (Some("false"), 1));
}

#[test]
fn there_is_no_fallback_after_the_caller_has_left() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("gate=open status=500");
    send_and_leave(&gateway, &upstream);
    upstream.open_gate("open");
    assert_eq!((&gateway.final_records(1)[0]["state"], upstream.attempt_count()), (&json!("failed"), 1));
}

#[test]
fn nothing_is_paid_twice_if_no_account_can_make_the_smaller_image() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    upstream.script_sequence(ONLY, &["gate=open status=502", "status=429 retry-after=30"]);
    let answer = std::thread::scope(|scope| {
        let larger = scope.spawn(|| always(&gateway, json!({})).send(gateway.address()));
        upstream.wait_until("the larger image is requested", |attempts| attempts.len() == 1);
        gateway.call(json!({})).send(gateway.address());
        upstream.open_gate("open");
        larger.join().expect("an answer")
    });
    answer.error_object(502);
    let records = gateway.final_records(2);
    assert_eq!(upstream.attempt_count(), 2);
    assert!(records.iter().all(|record| record["maybe_paid_twice"] == false), "{records:?}");
}

#[test]
fn the_smaller_image_goes_to_the_retry_of_a_caller_who_has_left() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("gate=open status=502");
    send_and_leave(&gateway, &upstream);
    let retry = always(&gateway, json!({})).header(RETRY.0, RETRY.1);
    let answer = std::thread::scope(|scope| {
        let retry = scope.spawn(|| retry.send(gateway.address()));
        gateway.wait_until_busy(1);
        upstream.open_gate("open");
        retry.join().expect("an answer")
    });
    answer.ok_json();
    assert_eq!((answer.header("x-imagate-replayed"), upstream.attempt_count()), (Some("true"), 2));
    check_fallback(&answer, &gateway, Some(LADDER[1]));
}

#[test]
fn a_lost_ladder_costs_what_was_reserved_for_it() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let prompt = json!({"prompt": "a cube [[hang-up how=reset]]"});
    always(&gateway, prompt.clone()).send(gateway.address()).error_object(502);
    let record = gateway.final_records(1).remove(0);
    assert_eq!(classes(&record), ["X", "X", "X"], "{record}");
    let bounds =
        record["attempts"].as_array().expect("attempts").iter().filter_map(|attempt| attempt["max_cost_usd"].as_f64());
    let bounds: Vec<f64> = bounds.collect();
    assert!(bounds.len() == 2 && bounds[0] > bounds[1], "each smaller image has its own bound: {record}");
    let fields = json!({"model": "gpt-image-2", "prompt": prompt["prompt"], "size": "3840x2160", "quality": "high"});
    let call = Call::post("/v1/images/estimate").key(gateway.secret()).json(&fields).header(HEADER, "always");
    let estimate = call.send(gateway.address()).ok_json();
    assert_eq!(
        (&record["cost_usd"], &record["cost_reason"]),
        (&estimate["max_cost_usd"], &json!("interrupted")),
        "{record}"
    );
}
