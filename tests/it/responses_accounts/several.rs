//! Jobs for several images on accounts that make one image for each call: as many calls as images, one record, and one
//! answer that states how many images are missing.

use serde_json::{Value, json};

use super::{assert_usage_recorded, start_gateway};
use crate::kit::{Account, FakeUpstream, Gateway};

/// The classes of the attempts of a record, sorted; `-` for an attempt that made an image.
fn classes(record: &Value) -> Vec<String> {
    let attempts = record["attempts"].as_array().expect("attempts").iter();
    let mut classes: Vec<String> =
        attempts.map(|attempt| attempt["class"].as_str().unwrap_or("-").to_owned()).collect();
    classes.sort();
    classes
}

#[test]
fn each_image_is_one_call_and_all_images_are_one_answer() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    upstream.script_sequence("sk-upstream-only", &["format=webp", "format=jpeg", "plain format=png"]);
    let answer = gateway.generate(json!({"n": 3, "size": "1024x640"}));
    let json = answer.ok_json();
    let attempts = upstream.received_attempts();
    assert_eq!(attempts.len(), 3);
    assert!(attempts.iter().all(|attempt| attempt.json()["tools"][0].get("n").is_none()));
    let mut made: Vec<&str> = attempts.iter().map(|attempt| attempt.images[0].as_str()).collect();
    let data = json["data"].as_array().expect("images");
    let mut found: Vec<&str> = data.iter().map(|image| image["b64_json"].as_str().expect("an image")).collect();
    made.sort_unstable();
    found.sort_unstable();
    assert!(made == found && made[0] != made[1], "the answer does not have the images that the upstream made");
    assert!(data.iter().all(|image| image["revised_prompt"] == "revised: a red cube"));
    assert_eq!(json["usage"]["output_tokens"], 3 * 196);
    assert_eq!((&json["model"], answer.header("x-imagate-missing")), (&json!("gpt-image-2"), None));
    let records = gateway.final_records(1);
    assert_eq!((records.len(), &records[0]["state"], &records[0]["n"]), (1, &json!("succeeded"), &json!(3)));
    assert_eq!(records[0]["delivered"].as_array().map(Vec::len), Some(3));
    assert_eq!(classes(&records[0]), ["-", "-", "-"]);
    assert_usage_recorded(&records[0], &attempts, &json);
}

#[test]
fn the_calls_of_one_job_wait_for_free_slots() {
    let upstream = FakeUpstream::start();
    let gateway =
        Gateway::with("", &[Account::for_upstream("only", &upstream).with_responses_protocol().with_slots(2)]);
    let answer = std::thread::scope(|scope| {
        let request = scope.spawn(|| gateway.generate(json!({"n": 5, "prompt": "a cube [[gate=go]]"})));
        upstream.wait_until("two calls are under way", |attempts| attempts.len() == 2);
        crate::kit::pause(std::time::Duration::from_millis(300));
        assert_eq!(upstream.attempt_count(), 2, "a third call was made although both slots are in use");
        upstream.open_gate("go");
        request.join().expect("an answer")
    });
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(5));
    assert_eq!(upstream.attempt_count(), 5);
}

#[test]
fn a_partial_answer_states_how_many_images_are_missing() {
    for (script, class) in [
        ("status=400 body=policy", "R"),
        ("tale=created,failed-policy", "R"),
        ("tale=created,half,cut", "X"),
        ("tale=created,added,item-failed,c", "X"),
        ("status=502 body=html", "X"),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = start_gateway(&upstream);
        upstream.script_sequence("sk-upstream-only", &["", script, ""]);
        let answer = gateway.generate(json!({"n": 3}));
        let json = answer.ok_json();
        assert_eq!(json["data"].as_array().map(Vec::len), Some(2), "{script}");
        assert_eq!(answer.header("x-imagate-missing"), Some("1"), "{script}");
        assert_eq!(json["usage"]["output_tokens"], 2 * 196, "{script}");
        assert_eq!(upstream.attempt_count(), 3, "a call was made again: {script}");
        let record = gateway.final_records(1).pop().expect("a record");
        assert_eq!((&record["state"], record["delivered"].as_array().map(Vec::len)), (&json!("succeeded"), Some(2)));
        assert_eq!(record["missing"], 1, "{script}: {record}");
        assert_eq!(classes(&record), ["-", "-", class], "{script}: {record}");
    }
}

#[test]
fn a_call_that_failed_without_cost_goes_to_another_account() {
    let upstream = FakeUpstream::start();
    let account = |name| Account::for_upstream(name, &upstream).with_responses_protocol();
    let gateway = Gateway::with("", &[account("first"), account("second").with_free_tier()]);
    upstream.script_sequence("sk-upstream-first", &["", "status=500", ""]);
    let json = gateway.generate(json!({"n": 3})).ok_json();
    assert_eq!(json["data"].as_array().map(Vec::len), Some(3));
    assert_eq!(classes(&gateway.final_records(1)[0]), ["-", "-", "-", "F"]);
}

#[test]
fn without_an_image_the_answer_is_the_worst_failure() {
    for (scripts, code, reason, state) in [
        (&["status=400 body=policy"; 3][..], 502, "content_refused", "refused"),
        (&["status=400 body=policy", "tale=created,half,cut", "tale=created,half,cut"], 502, "network", "interrupted"),
        (&["tale=created,half,cut"; 3], 502, "network", "interrupted"),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = start_gateway(&upstream);
        upstream.script_sequence("sk-upstream-only", scripts);
        let answer = gateway.generate(json!({"n": 3}));
        assert_eq!(
            (&answer.error_object(code)["reason"], answer.should_retry()),
            (&json!(reason), Some("false")),
            "{scripts:?}"
        );
        assert_eq!(gateway.final_records(1)[0]["state"], state, "{scripts:?}");
        assert!(upstream.attempt_count() <= 3, "{scripts:?}");
    }
}

#[test]
fn no_call_is_made_without_a_spool_file_for_its_image() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    // The spool has prepared one file; the gateway cannot create another.
    std::fs::remove_dir_all(gateway.home().join("data").join("spool")).expect("a folder");
    let answer = gateway.generate(json!({"n": 3}));
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(answer.header("x-imagate-missing"), Some("2"));
    assert_eq!(upstream.attempt_count(), 1);
    assert_eq!(classes(&gateway.final_records(1)[0]), ["-"]);
}

#[test]
fn the_calls_of_one_job_share_one_budget() {
    let upstream = FakeUpstream::start();
    let account = |name| Account::for_upstream(name, &upstream).with_responses_protocol().with_slots(1);
    for script in ["status=500", "status=502 body=html"] {
        let gateway = Gateway::with("", &[account("first"), account("second")]);
        let before = upstream.attempt_count();
        ["first", "second"].iter().for_each(|name| upstream.always_for_token(&format!("sk-upstream-{name}"), script));
        gateway.generate(json!({"n": 10})).error_object(502);
        let made = upstream.attempt_count() - before;
        assert!(
            (4..=5).contains(&made),
            "the budget is four failed calls, and one more may already be running: {made}, {script}"
        );
    }
}

#[test]
fn a_call_that_waits_for_a_slot_is_dropped_after_a_refusal() {
    let upstream = FakeUpstream::start();
    let gateway =
        Gateway::with("", &[Account::for_upstream("only", &upstream).with_responses_protocol().with_slots(1)]);
    upstream.script_sequence("sk-upstream-only", &["", "status=400 body=policy"]);
    let answer = gateway.generate(json!({"n": 6}));
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(1));
    assert_eq!((answer.header("x-imagate-missing"), upstream.attempt_count()), (Some("5"), 2));
}

#[test]
fn an_answer_of_several_calls_is_replayed_without_cost() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let call = || gateway.call(json!({"n": 2})).header("idempotency-key", "k-1").send(gateway.address());
    let (first, second) = (call(), call());
    assert_eq!(first.body, second.body);
    assert_eq!(second.header("x-imagate-replayed"), Some("true"));
    assert_eq!((upstream.attempt_count(), gateway.final_records(1).len()), (2, 1));
}
