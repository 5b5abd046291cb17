//! Answers that are charged for more than their tokens: their cost is exact only if everything has a price.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{assert_estimated, assert_exact, open_at};
use crate::kit::{Account, Call, Gateway, VerbatimUpstream, alpha_png, request};

const PRICE: &str = "[[prices]]\nmodel = \"gpt-5.5\"\nfrom = \"2026-01-01\"\ntext_input = 2\ntext_output = 8\n";
const TERMS: &str = "cache_write = 2.5\ntools = { web_search = 0.01, file_search = 0.0025 }\n\
                     tiers = { flex = 0.5, priority = 2.0 }\n";

fn gateway(upstream: &VerbatimUpstream, prices: &str) -> Gateway {
    let accounts = [Account::with_base_url("only", upstream.base_url()).with_responses_protocol()];
    open_at(&accounts, prices)
}

/// An answer of the text model with these members: 500,000 input tokens and 100,000 output tokens, which cost 1.8 dollars.
fn answer(members: &Value) -> Value {
    let mut answer = json!({
        "id": "resp_1", "object": "response", "created_at": 1_790_000_000, "status": "completed", "model": "gpt-5.5",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "done", "annotations": []}]}],
        "usage": {"input_tokens": 500_000, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 100_000,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 600_000},
    });
    for (name, value) in members.as_object().expect("members") {
        match (answer[name].as_object_mut(), value.as_object()) {
            (Some(members), Some(more)) => members.extend(more.clone()),
            _ => answer[name] = value.clone(),
        }
    }
    answer
}

/// Sends a response request that is answered in this way, plain or as events; returns its record.
fn record_of(gateway: &Gateway, upstream: &VerbatimUpstream, members: &Value, stream: bool, count: usize) -> Value {
    let answer = answer(members);
    if stream {
        let events = ["response.created", "response.completed"].map(|kind| {
            let event = json!({"type": kind, "sequence_number": 0, "response": answer});
            format!("event: {kind}\ndata: {event}\n\n")
        });
        upstream.set_answer("text/event-stream", events.concat());
    } else {
        upstream.set_answer("application/json", answer.to_string());
    }
    let body = json!({"model": "gpt-5.5", "input": "hello", "stream": stream});
    // Some of the answers have members of a later contract.
    let sent =
        Call::post("/v1/responses").key(gateway.secret()).json(&body).without_document_check().send(gateway.address());
    assert_eq!(sent.status, 200, "{}", sent.text());
    gateway.final_records(count).pop().expect("a record")
}

/// Members of answers, with the cost in dollars if all of them have a price, and the reason if they have none.
fn cases() -> Vec<(Value, f64, &'static str)> {
    vec![
        (json!({"service_tier": "flex"}), 0.9, "unpriced_tier"),
        (json!({"service_tier": "priority"}), 3.6, "unpriced_tier"),
        (json!({"usage": {"input_tokens_details": {"cache_write_tokens": 400_000}}}), 2.0, "unpriced_cache_write"),
        (json!({"tool_usage": {"web_search": {"num_requests": 50}}}), 2.3, "unpriced_tool"),
        (
            json!({"output": [{"type": "file_search_call", "id": "fs_1", "status": "completed"}]}),
            1.8025,
            "unpriced_tool",
        ),
    ]
}

#[test]
fn whatever_changes_the_price_is_priced_or_the_cost_is_not_exact() {
    let upstream = VerbatimUpstream::start();
    let (bare, full) = (gateway(&upstream, PRICE), gateway(&upstream, &format!("{PRICE}{TERMS}")));
    let mut count = 0;
    for stream in [false, true] {
        for (members, usd, reason) in cases() {
            count += 1;
            assert_exact(&record_of(&full, &upstream, &members, stream, count), usd);
            let record = record_of(&bare, &upstream, &members, stream, count);
            assert_eq!(
                (&record["cost_basis"], &record["cost_reason"]),
                (&json!("estimated"), &json!(reason)),
                "{record}"
            );
        }
    }
    for gateway in [&bare, &full] {
        assert_exact(&record_of(gateway, &upstream, &json!({"service_tier": "default"}), true, count + 1), 1.8);
        for (number, members) in [
            json!({"tool_usage": {"later_tool": {"num_requests": 1}}}),
            json!({"usage": {"search_units": 3}}),
            json!({"output": [{"type": "later_call", "id": "x"}]}),
        ]
        .iter()
        .enumerate()
        {
            let record = record_of(gateway, &upstream, members, false, count + 2 + number);
            assert_eq!(record["cost_basis"], "estimated", "{record}");
        }
    }
}

#[test]
fn the_tokens_of_an_image_count_by_the_names_of_other_apis() {
    let upstream = VerbatimUpstream::start();
    let gateway = open_at(&[Account::with_base_url("only", upstream.base_url())], "");
    let base64 = STANDARD.encode(&*alpha_png(64, 64));
    let mut count = 0;
    let mut cost_of = |usage: Value| {
        let answer = json!({"created": 1_790_000_000, "data": [{"b64_json": base64}], "usage": usage});
        upstream.set_answer("application/json", answer.to_string());
        let sent = Call::generation().json(&request(json!({"prompt": "a cube"}))).key(gateway.secret());
        assert_eq!(sent.send(gateway.address()).status, 200);
        count += 1;
        gateway.final_records(count).pop().expect("a record")
    };
    // 20 x 5 + 4175 x 30
    assert_exact(&cost_of(json!({"prompt_tokens": 20, "completion_tokens": 4175, "cost": 0.04})), 0.125_35);
    assert_estimated(&cost_of(json!({"input_tokens": 20, "output_tokens": 100, "cost": 0.04})), 0.04, "stated_cost");
}
