//! Requests that the gateway refuses before it calls an upstream.

use serde_json::{Value, json};

use super::{call, response_body, start_gateway};
use crate::kit::{Call, FakeUpstream};

#[test]
fn a_broken_rule_names_its_parameter_and_costs_nothing() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let tool = |fields: Value| {
        let mut tool = json!({"type": "image_generation"});
        tool.as_object_mut().expect("an object").extend(fields.as_object().cloned().unwrap_or_default());
        json!({"tools": [{"type": "web_search"}, tool]})
    };
    for (patch, param) in [
        (json!({"model": "gpt-image-2"}), "model"),
        (json!({"model": "gpt-image-2-2026-04-21"}), "model"),
        (json!({"model": null}), "model"),
        (json!({"input": 5}), "input"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"background": true}), "background"),
        (json!({"background": true, "stream": true}), "background"),
        (json!({"previous_response_id": 5}), "previous_response_id"),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [{"name": "f"}]}), "tools[0].type"),
        (tool(json!({"size": "1000x1000"})), "tools[1].size"),
        (tool(json!({"quality": "hd"})), "tools[1].quality"),
        (tool(json!({"output_format": "gif"})), "tools[1].output_format"),
        (tool(json!({"output_compression": 5})), "tools[1].output_compression"),
        (tool(json!({"background": "transparent"})), "tools[1].background"),
        (tool(json!({"moderation": "none"})), "tools[1].moderation"),
        (tool(json!({"partial_images": 4})), "tools[1].partial_images"),
        (tool(json!({"input_fidelity": "high"})), "tools[1].input_fidelity"),
        (tool(json!({"model": "dall-e-3"})), "tools[1].model"),
        (tool(json!({"n": 2})), "tools[1].n"),
        (tool(json!({"input_image_mask": {"file_id": "file-1"}})), "tools[1].input_image_mask.file_id"),
    ] {
        let error = call(&gateway).json(&response_body(&patch)).send(gateway.address()).error_object(400);
        assert_eq!((&error["code"], &error["param"]), (&json!("invalid_request_error"), &json!(param)), "{patch}");
    }
    for body in ["", "[]", "{", "null"] {
        let sent = call(&gateway).header("content-type", "application/json").bytes(body);
        assert_eq!(sent.send(gateway.address()).error_object(400)["reason"], "invalid_json", "{body}");
    }
    assert_eq!(upstream.accepted(), 0);
    assert_eq!(gateway.records(), Vec::<Value>::new());
}

#[test]
fn the_key_is_checked_first_and_the_body_size_is_limited() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let no_key = Call::post("/v1/responses").header("content-encoding", "zstd").bytes("not looked at");
    assert_eq!(no_key.send(gateway.address()).error_object(401)["code"], "INVALID_API_KEY");
    let oversized = call(&gateway).header("content-type", "application/json").announcing_only(67_108_865);
    assert_eq!(oversized.send(gateway.address()).error_object(413)["code"], "request_too_large");
    let text = call(&gateway).header("content-type", "text/plain").bytes("{}");
    assert_eq!(text.send(gateway.address()).error_object(415)["code"], "unsupported_media_type");
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn a_websocket_handshake_is_a_426_with_or_without_a_key() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let key = format!("Bearer {}", gateway.secret());
    for authorization in [None, Some("Bearer eyJ.eyJ.sig"), Some(key.as_str())] {
        let get = || {
            let call = Call::get("/v1/responses").header("openai-beta", "responses_websockets=2026-02-06");
            authorization.map_or(call.clone(), |value| call.header("authorization", value))
        };
        for protocol in ["websocket", "WebSocket", "WEBSOCKET", "h2c, websocket", "websocket , h2c"] {
            let call = get().header("upgrade", protocol).header("sec-websocket-version", "13");
            let answer = call.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==").send(gateway.address());
            assert_eq!(answer.error_object(426)["code"], "method_not_allowed", "{protocol}");
        }
        for call in [get(), get().header("upgrade", "h2c"), get().header("upgrade", "websockets")] {
            let answer = call.send(gateway.address());
            assert_eq!(answer.error_object(405)["code"], "method_not_allowed");
            assert_eq!(answer.header("allow"), Some("POST"));
        }
    }
    assert_eq!(upstream.accepted(), 0);
}
