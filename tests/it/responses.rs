//! `POST /v1/responses`: the passthrough, refusals that cost nothing, failures, and records.

mod bound_context;
mod broken;
mod compressed;
mod continued;
mod declared;
mod injected;
mod long_bodies;
mod memory;
mod passing;
mod permitted;
mod refused;
mod screened;
mod simulated;
mod sticky;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kit::{Account, Call, FakeUpstream, Gateway, format_and_size};

/// The body of a response request: `model` and `input`, with these fields added or replaced.
fn response_body(fields: &Value) -> Value {
    let mut body = json!({"model": "gpt-5.5", "input": "a red cube"});
    for (name, value) in fields.as_object().expect("fields") {
        body[name] = value.clone();
    }
    body
}

/// A response request with an image tool and a script for the upstream.
fn image_response_body(script: &str, stream: bool) -> Value {
    response_body(&json!({
        "input": format!("a red cube [[{script}]]"), "stream": stream,
        "tools": [{"type": "image_generation", "size": "1024x640", "quality": "low", "partial_images": 1}],
    }))
}

fn call(gateway: &Gateway) -> Call {
    Call::post("/v1/responses").key(gateway.secret())
}

/// A gateway with one account of the protocol `responses`.
fn start_gateway(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("", &[Account::for_upstream("only", upstream).with_responses_protocol()])
}

/// A gateway with two such accounts; `first` is always asked first.
fn gateway_with_two_accounts(upstream: &FakeUpstream) -> Gateway {
    let account = |name| Account::for_upstream(name, upstream).with_responses_protocol();
    Gateway::with("", &[account("first"), account("second").with_free_tier()])
}

/// The size of the image in an image call.
#[track_caller]
fn size_of(call: &Value) -> String {
    format_and_size(&STANDARD.decode(call["result"].as_str().expect("an image")).expect("base64")).1
}
