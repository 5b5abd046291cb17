//! The event `retry` of `--progress jsonl`: it comes while the command waits, not at its end.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{batch, run};
use crate::kit::{FakeUpstream, Gateway, Program, TEST_TIMEOUT, ends_within};

#[test]
fn a_retry_is_reported_while_its_request_runs() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.script_next("status=500");
    upstream.script_next("gate=seen");
    let (base_url, key) = (gateway.base_url(), gateway.secret());
    let words = ["generate", "a boat", "-o", "boat.png", "--base-url", &base_url, "--api-key", key];
    let program = Program::new(gateway.home()).args(words).args(["--progress", "jsonl"]);
    let mut child = program.spawn_with(Stdio::null(), Stdio::null(), Stdio::piped());
    let mut events = BufReader::new(child.stderr.take().expect("standard error")).lines();
    let mut next = || -> Value {
        let line = events.next().expect("another event").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(next()["event"], "started");
    // The second attempt waits at the gate until this has been read.
    let retry = next();
    upstream.open_gate("seen");
    assert_eq!((&retry["event"], &retry["attempt"], retry.get("line")), (&json!("retry"), &json!(2), None), "{retry}");
    assert!(retry["reason"].as_str().is_some_and(|reason| reason.contains("status 502")), "{retry}");
    assert!(retry["wait_seconds"].as_f64().is_some_and(|wait| (0.25..=60.0).contains(&wait)), "{retry}");
    let rest: Vec<Value> = std::iter::repeat_with(&mut next).take(3).collect();
    let names: Vec<_> = rest.iter().map(|event| event["event"].as_str()).collect();
    assert_eq!(names, [Some("arrived"), Some("saved"), Some("summary")], "{rest:?}");
    assert_eq!(rest[2]["attempts"], 2);
    assert!(ends_within(&mut child, TEST_TIMEOUT));
    assert!(child.wait().expect("a status").success());
}

#[test]
fn a_retry_of_a_batch_has_the_number_of_its_line() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let lines = [json!({"prompt": "a boat"}), json!({"prompt": "a ship [[status=500]]"}), json!({"prompt": "a raft"})];
    let input = lines.map(|line| line.to_string()).join("\n");
    let done = run(&gateway, &input, &["--progress", "jsonl"]);
    let events = done.stderr.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    let retries: Vec<Value> = events.filter(|event| event["event"] == "retry").collect();
    let facts: Vec<_> = retries.iter().map(|retry| (retry["line"].as_u64(), retry["attempt"].as_u64())).collect();
    assert_eq!(facts, [(Some(2), Some(2)), (Some(2), Some(3))], "{done:#?}");
    let text = batch(&gateway, &["batch.jsonl", "-o", "again"]).run();
    assert!(!text.stderr.contains("attempt"), "only programs get events: {text:#?}");
}
