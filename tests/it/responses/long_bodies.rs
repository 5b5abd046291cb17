//! Conversations of tens of megabytes: the gateway spools them to disk, and every attempt sends the complete body.

use std::sync::Arc;

use aws_lc_rs::digest;
use serde_json::json;

use super::{call, response_body};
use crate::kit::{Account, FakeUpstream, Gateway, Pieces, base64_filler, heavy_test_lock};

const CALLERS: usize = 32;
/// The size of the image in one conversation, in base64 characters: nearly the size of the body.
const IMAGE_CHARS: usize = 40 << 20;
/// The most bytes by which all conversations together may increase the resident memory.
const MAX_GROWTH_BYTES: u64 = 48 << 20;

/// A conversation with an image, as agents send it with every request.
fn conversation(caller: usize) -> Pieces {
    let head = format!(
        "{{ \"model\":\"gpt-5.5\",\"input\":[{{\"type\":\"image_generation_call\",\"id\":\"ig_{caller}\",\"result\":\""
    );
    let tail = "\"},{\"role\":\"user\",\"content\":\"smaller, please\"}],\"store\" : false}";
    let mut pieces = vec![Arc::new(head.into_bytes())];
    pieces.extend(base64_filler(IMAGE_CHARS));
    pieces.push(Arc::new(tail.as_bytes().to_vec()));
    pieces
}

#[test]
fn the_largest_body_is_a_setting() {
    let upstream = FakeUpstream::start();
    let account = Account::for_upstream("only", &upstream).with_responses_protocol();
    let gateway = Gateway::with("[uploads]\nresponse_body_megabytes = 1\n", &[account]);
    for (chars, status) in [(1_000_000, 200), (1_100_000, 413)] {
        let sent = call(&gateway).json(&json!({"model": "gpt-5.5", "input": "x".repeat(chars)}));
        let answer = sent.send(gateway.address());
        assert_eq!(answer.status, status, "{:.300}", answer.text());
        assert!(status == 200 || answer.text().contains("the limit of 1048576 bytes"), "{}", answer.text());
    }
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn many_parallel_long_conversations_take_little_memory() {
    let _guard = heavy_test_lock();
    let upstream = FakeUpstream::digesting();
    let account = |name| Account::for_upstream(name, &upstream).with_responses_protocol().with_slots(CALLERS);
    // Every conversation is sent upstream twice, because the first account refuses all requests.
    let mut gateway = Gateway::with("", &[account("first"), account("second").with_free_tier()]);
    upstream.always_for_token("sk-upstream-first", "status=429");
    call(&gateway).json(&response_body(&json!({}))).send(gateway.address());
    gateway.server().reset_peak();
    let idle = gateway.server().peak_bytes();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let gateway = &gateway;
            scope.spawn(move || {
                let sent = call(gateway).header("content-type", "application/json");
                let answer = sent.pieces(conversation(caller)).send(gateway.address());
                assert_eq!(answer.status, 200, "{:.300}", answer.text());
            });
        }
    });
    let growth = gateway.server().peak_bytes() - idle;
    println!("{CALLERS} bodies of {IMAGE_CHARS} characters at once: {:.1} MB more resident", growth as f64 / 1e6);
    assert!(growth < MAX_GROWTH_BYTES, "{growth} bytes");
    let arrived: Vec<Vec<u8>> = upstream.received_attempts().into_iter().map(|attempt| attempt.digest).collect();
    for caller in 0..CALLERS {
        let mut digest = digest::Context::new(&digest::SHA256);
        conversation(caller).iter().for_each(|chunk| digest.update(chunk));
        assert!(
            arrived.contains(&digest.finish().as_ref().to_vec()),
            "the conversation of caller {caller} was changed"
        );
    }
    assert_eq!(
        gateway.final_records(CALLERS + 1).iter().filter(|record| record["state"] == "succeeded").count(),
        CALLERS + 1
    );
}

#[test]
fn a_spooled_conversation_goes_to_the_next_account_unchanged() {
    let upstream = FakeUpstream::start();
    let account = |name| Account::for_upstream(name, &upstream).with_responses_protocol();
    let gateway = Gateway::with("", &[account("first"), account("second").with_free_tier()]);
    upstream.always_for_token("sk-upstream-first", "status=500");
    let body = response_body(&json!({"input": [{"role": "user", "content": "é".repeat(500_000)}]})).to_string();
    let sent = call(&gateway).header("content-type", "application/json").bytes(body.clone());
    assert_eq!(sent.send(gateway.address()).status, 200);
    let attempts = upstream.received_attempts();
    assert_eq!(attempts.len(), 2);
    assert!(attempts.iter().all(|attempt| attempt.body == body.as_bytes()));
}

#[test]
fn a_fault_at_the_end_of_a_long_conversation_costs_nothing() {
    let upstream = FakeUpstream::start();
    let gateway = super::start_gateway(&upstream);
    let long = "A".repeat(2_000_000);
    for (body, param) in [
        (format!("{{\"input\":\"{long}\",\"model\":\"gpt-image-2\"}}"), json!("model")),
        (format!("{{\"model\":\"m\",\"input\":[{{\"a\":\"{long}\"}},7]}}"), json!("input[1]")),
        (format!("{{\"model\":\"m\",\"input\":\"{long}\"}},"), json!(null)),
        (format!("{{\"model\":\"m\",\"input\":\"{long}\\ud800\"}}"), json!(null)),
        (format!("{{\"model\":\"m\",\"input\":\"{long}"), json!(null)),
    ] {
        let sent = call(&gateway).header("content-type", "application/json").bytes(body);
        assert_eq!(sent.send(gateway.address()).error_object(400)["param"], param);
    }
    assert_eq!(upstream.accepted(), 0);
}
