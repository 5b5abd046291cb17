//! Conversations of tens of megabytes: they lie on disk while they are asked about, whole and for every attempt.

use std::sync::Arc;

use aws_lc_rs::digest;
use serde_json::json;

use super::{call, task};
use crate::kit::{Account, FakeUpstream, Gateway, Pieces, base64_filler, heavy_test_lock};

const CALLERS: usize = 32;
/// Bytes of one conversation, nearly.
const LENGTH: usize = 40 << 20;
/// How much more the program may hold with all of them than without.
const GROWTH_BYTES: u64 = 48 << 20;

/// A conversation with images in it, as agents send them again and again.
fn conversation(caller: usize) -> Pieces {
    let head = format!(
        "{{ \"model\":\"gpt-5.5\",\"input\":[{{\"type\":\"image_generation_call\",\"id\":\"ig_{caller}\",\"result\":\""
    );
    let tail = "\"},{\"role\":\"user\",\"content\":\"smaller, please\"}],\"store\" : false}";
    let mut pieces = vec![Arc::new(head.into_bytes())];
    pieces.extend(base64_filler(LENGTH));
    pieces.push(Arc::new(tail.as_bytes().to_vec()));
    pieces
}

#[test]
fn many_long_conversations_at_once_cost_little_memory_and_arrive_to_the_byte() {
    let _turn = heavy_test_lock();
    let upstream = FakeUpstream::digesting();
    let account = |name| Account::for_upstream(name, &upstream).with_responses_protocol().with_slots(CALLERS);
    // Every conversation is sent twice: the first account turns all of them away.
    let mut gateway = Gateway::with("", &[account("first"), account("second").with_free_tier()]);
    upstream.always_for_token("sk-upstream-first", "status=429");
    call(&gateway).json(&task(&json!({}))).send(gateway.address());
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
    let grown = gateway.server().peak_bytes() - idle;
    println!("{CALLERS} bodies of {LENGTH} bytes at once: {:.1} MB more resident", grown as f64 / 1e6);
    assert!(grown < GROWTH_BYTES, "{grown} bytes");
    let arrived: Vec<Vec<u8>> = upstream.ledger().into_iter().map(|attempt| attempt.digest).collect();
    for caller in 0..CALLERS {
        let mut digest = digest::Context::new(&digest::SHA256);
        conversation(caller).iter().for_each(|piece| digest.update(piece));
        assert!(
            arrived.contains(&digest.finish().as_ref().to_vec()),
            "the conversation of caller {caller} did not arrive as it was"
        );
    }
    assert_eq!(
        gateway.final_records(CALLERS + 1).iter().filter(|record| record["state"] == "succeeded").count(),
        CALLERS + 1
    );
}

#[test]
fn a_conversation_on_disk_goes_to_the_next_account_to_the_byte() {
    let upstream = FakeUpstream::start();
    let account = |name| Account::for_upstream(name, &upstream).with_responses_protocol();
    let gateway = Gateway::with("", &[account("first"), account("second").with_free_tier()]);
    upstream.always_for_token("sk-upstream-first", "status=500");
    let body = task(&json!({"input": [{"role": "user", "content": "é".repeat(500_000)}]})).to_string();
    let sent = call(&gateway).header("content-type", "application/json").bytes(body.clone());
    assert_eq!(sent.send(gateway.address()).status, 200);
    let ledger = upstream.ledger();
    assert_eq!(ledger.len(), 2);
    assert!(ledger.iter().all(|attempt| attempt.body == body.as_bytes()));
}

#[test]
fn what_is_wrong_at_the_end_of_a_long_conversation_costs_nothing_upstream() {
    let upstream = FakeUpstream::start();
    let gateway = super::before(&upstream);
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
