//! The freedom of a client: the forms of answers, messages that cannot be read, and versions.

use serde_json::json;

use super::{first_image, message, result};
use crate::kit::{Call, Gateway};

/// A message without the header `Accept`.
fn bare(gateway: &Gateway, body: impl Into<Vec<u8>>) -> Call {
    Call::post("/mcp").key(gateway.secret()).header("content-type", "application/json").bytes(body)
}

#[test]
fn every_client_that_does_not_exclude_json_is_answered_in_json() {
    let gateway = Gateway::simulated();
    let ping = json!({"jsonrpc": "2.0", "id": "a", "method": "ping"}).to_string();
    let answered = |accept: Option<&str>| {
        let call = bare(&gateway, ping.clone());
        accept.into_iter().fold(call, |call, accept| call.header("accept", accept)).send(gateway.address())
    };
    for accept in [
        None,
        Some("*/*"),
        Some("application/*"),
        Some("application/json"),
        Some("application/json;q=0.9, text/event-stream"),
        Some("text/event-stream;q=0, application/json"),
        Some("text/html, */*;q=0.1"),
    ] {
        let answer = answered(accept);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{accept:?}");
        assert_eq!(answer.json(), json!({"jsonrpc": "2.0", "id": "a", "result": {}}), "{accept:?}");
    }
    let events = answered(Some("text/event-stream"));
    assert_eq!((events.status, events.header("content-type")), (200, Some("text/event-stream")));
    assert!(events.text().contains("data: {\"jsonrpc\":\"2.0\",\"id\":\"a\""), "{}", events.text());
    for accept in ["text/html", "application/json;q=0", "*/*;q=0.0"] {
        let refused = answered(Some(accept));
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (406, &json!(-32600)), "{accept}");
    }
    // A client that reads no events gets its result alone, although it asks for progress.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "generate_image", "arguments": {"prompt": "a cube"}, "_meta": {"progressToken": 1}}});
    let answer = bare(&gateway, call.to_string()).header("accept", "application/json").send(gateway.address());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    first_image(&result(&answer));
}

#[test]
fn what_is_no_message_gets_an_error_of_json_rpc() {
    let gateway = Gateway::simulated();
    let ping = |id: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}");
    for (body, code, id) in [
        (String::new(), -32700, json!(null)),
        ("{".to_owned(), -32700, json!(null)),
        ("not json".to_owned(), -32700, json!(null)),
        (format!("\u{feff}{}", ping("1")), -32700, json!(null)),
        (format!("[{}]", ping("1")), -32600, json!(null)),
        ("[]".to_owned(), -32600, json!(null)),
        ("7".to_owned(), -32600, json!(null)),
        (ping("1.5"), -32600, json!(null)),
        (ping("null"), -32600, json!(null)),
        (ping("{}"), -32600, json!(null)),
        (ping("99999999999999999999"), -32600, json!(null)),
        (ping("1,\"id\":2"), -32600, json!(null)),
        ("{\"id\":3,\"method\":\"ping\"}".to_owned(), -32600, json!(3)),
        ("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":[]}".to_owned(), -32600, json!(3)),
    ] {
        let answer = bare(&gateway, body.clone()).send(gateway.address());
        let error = answer.json();
        assert_eq!((answer.status, answer.header("content-type")), (400, Some("application/json")), "{body}");
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(code), &id), "{body}: {error}");
        assert!(error["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    }
    let invalid = bare(&gateway, [0x7b, 0x22, 0xff, 0x22, 0x7d]).send(gateway.address());
    assert_eq!((invalid.status, &invalid.json()["error"]["code"]), (400, &json!(-32700)));
    let unknown = bare(&gateway, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nothing\"}").send(gateway.address());
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (200, &json!(-32601)));
}

#[test]
fn a_version_with_batches_is_not_offered() {
    let gateway = Gateway::simulated();
    let negotiated = |version: &str| {
        let params =
            json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}});
        result(&message("initialize", params).key(gateway.secret()).send(gateway.address()))["protocolVersion"].clone()
    };
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        assert_eq!(negotiated(version), version);
    }
    for version in ["2025-03-26", "1999-01-01"] {
        assert_eq!(negotiated(version), "2025-11-25", "{version}");
    }
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}});
    let discover = message("server/discover", json!({"_meta": meta})).header("mcp-method", "server/discover");
    let discover = discover.header("mcp-protocol-version", "2026-07-28").key(gateway.secret());
    let offered = result(&discover.send(gateway.address()));
    assert!(offered.to_string().contains("2025-06-18") && !offered.to_string().contains("2025-03-26"), "{offered}");
}
