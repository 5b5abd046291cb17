//! Costs that are estimated: a call that broke off costs the most that it can. An image of 1024x1024 with high quality
//! has 7024 tokens, and each intermediate image 100. A byte of the prompt counts as one token, and 16 more may be counted.

use serde_json::{Value, json};

use super::{assert_estimated, assert_unknown, open, record_of};
use crate::kit::{Account, Call, FakeUpstream, Gateway, request};

/// A large image with this script for the upstream.
fn fields(user: &str, script: &str) -> Value {
    json!({"prompt": format!("a cube [[{script}]]"), "user": user, "size": "1024x1024", "quality": "high"})
}

/// As [`fields`], with one intermediate image.
fn stream_fields(user: &str, script: &str) -> Value {
    let mut fields = fields(user, script);
    fields["partial_images"] = json!(1);
    fields
}

fn cost_of_total(gateway: &Gateway) -> (Value, Value) {
    let total = gateway.run_command(&["usage", "--by", "day", "--json"]).json();
    (total["cost_usd"].clone(), total["cost_unknown"].clone())
}

#[test]
fn a_stream_that_its_caller_leaves_costs_the_most() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    let mut events = gateway.stream(stream_fields("left", "events=p,murmur"));
    events.next().expect("an event").expect("a partial image");
    drop(events);
    upstream.wait_until("the caller has left", |attempts| attempts[0].peer_left);
    let records = gateway.final_records(1);
    assert_eq!(records[0]["state"], "cancelled");
    // (26 + 16) x 5 + (7024 + 100) x 30
    assert_estimated(&records[0], 0.213_93, "interrupted");
    assert!(gateway.run_command(&["usage", "--cost"]).ok_stdout().contains(" ~0.21393 "));
    assert_eq!(cost_of_total(&gateway), (json!(0.213_93), json!(0)));
}

#[test]
fn an_answer_that_breaks_off_costs_the_most_once() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    let mut broken = gateway.stream(stream_fields("stream", "events=p,cut"));
    while broken.next().expect("the error is an event").is_some() {}
    let plain = gateway.call(fields("plain", "cut=50% b64=400000")).try_send(gateway.address());
    assert!(!plain.is_ok_and(|answer| answer.complete), "the answer breaks off");
    gateway.generate(fields("hung up", "hang-up")).error_object(502);
    let records = gateway.final_records(3);
    // (23 + 16) x 5 + (7024 + 100) x 30
    assert_estimated(record_of(&records, "stream"), 0.213_915, "interrupted");
    // (29 + 16) x 5 + 7024 x 30
    assert_estimated(record_of(&records, "plain"), 0.210_945, "interrupted");
    // (18 + 16) x 5 + 7024 x 30
    assert_estimated(record_of(&records, "hung up"), 0.210_89, "interrupted");
}

#[test]
fn an_answer_without_token_counts_costs_the_most() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    for usage in ["none", "zero"] {
        gateway.generate(fields(usage, &format!("usage={usage}"))).ok_json();
    }
    let records = gateway.final_records(2);
    // (21 + 16) x 5 + 7024 x 30
    for user in ["none", "zero"] {
        let record = record_of(&records, user);
        assert_eq!(record["state"], "succeeded", "{record}");
        assert_estimated(record, 0.210_905, "no_usage");
    }
}

#[test]
fn a_call_without_token_counts_among_others_makes_the_cost_an_estimate() {
    let upstream = FakeUpstream::start();
    let prices = "[[prices]]\nmodel = \"gpt-5.5\"\nfrom = \"2026-01-01\"\ntext_input = 0\ntext_output = 0\n";
    let account = Account::for_upstream("only", &upstream).with_responses_protocol();
    let gateway = Gateway::with(prices, &[account]);
    upstream.script_sequence("sk-upstream-only", &["", "usage=none", ""]);
    let fields = json!({"prompt": "a cube", "user": "some", "n": 3, "size": "1024x1024", "quality": "high"});
    gateway.generate(fields).ok_json();
    let record = &gateway.final_records(1)[0];
    assert_eq!(record["usage"]["output_tokens"], 2 * 196, "{record}");
    // Two calls with 13 x 5 + 196 x 30, and a third of the most: (6 + 16) x 5 + 7024 x 30
    assert_estimated(record, 0.222_72, "no_usage");
}

#[test]
fn huge_counts_neither_stop_the_gateway_nor_the_usage() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    let other = gateway.make_key("other");
    gateway.scripted("usage=huge").ok_json();
    let call = Call::generation().json(&request(json!({"prompt": "a cube [[usage=huge]]"})));
    call.key(other["secret"].as_str().expect("a secret")).send(gateway.address()).ok_json();
    gateway.final_records(2);
    assert_eq!(cost_of_total(&gateway).1, json!(0));
}

#[test]
fn a_request_whose_process_is_killed_costs_the_most() {
    let upstream = FakeUpstream::start();
    let mut gateway = open(&upstream, "");
    let call = gateway.call(fields("killed", "gate=never"));
    let running = call.dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt runs", |attempts| attempts.len() == 1);
    gateway.kill();
    drop(running);
    gateway.start();
    let records = gateway.final_records(1);
    assert_eq!(records[0]["state"], "interrupted");
    // (21 + 16) x 5 + 7024 x 30
    assert_estimated(&records[0], 0.210_905, "interrupted");
    assert_eq!(cost_of_total(&gateway), (json!(0.210_905), json!(0)));
}

#[test]
fn a_killed_request_without_a_price_has_an_unknown_cost() {
    let upstream = FakeUpstream::start();
    // A price that is not yet in force replaces those of the program.
    let mut gateway =
        open(&upstream, "[[prices]]\nmodel = \"gpt-image-2\"\nfrom = \"9999-01-01\"\nimage_output = 30\n");
    let running = gateway.call(fields("killed", "gate=never")).dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt runs", |attempts| attempts.len() == 1);
    gateway.kill();
    drop(running);
    gateway.start();
    assert_unknown(&gateway.final_records(1)[0], "interrupted");
    assert_eq!(cost_of_total(&gateway), (json!(0.0), json!(1)));
}
