//! Upstreams that repeat the secrets of their account, in every place and spelling: none leaves, and none is stored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kit::{Account, Call, Gateway, StubServer, VerbatimUpstream};

/// The key of the account, which is random like a real one.
const KEY: &str = "sk-proj-T3xQ9vLm2Zr8Wk4Yb7Nc1Hd6";
/// A secret header of the account.
const HEADER: &str = "hdr/Pw5Jt8Rq3Vx9Mz";

/// A secret in each spelling, with the whole of it or a part of at least eight characters.
fn spellings(secret: &str) -> Vec<String> {
    vec![
        secret.to_owned(),
        secret[3..13].to_owned(),
        secret[secret.len() - 8..].to_owned(),
        secret.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        secret.bytes().map(|byte| format!("\\u{byte:04x}")).collect(),
        STANDARD.encode(format!("Bearer {secret}")),
    ]
}

fn gateway_with(base_url: String, protocol: &str) -> Gateway {
    let account = Account::with_base_url("only", base_url)
        .with_line(&format!("protocol = \"{protocol}\"\nheaders = {{ x-gateway-key = {{ env = \"IT_HEADER\" }} }}"));
    Gateway::with_secrets("", &[account.with_token(KEY)], &[("IT_HEADER", HEADER)])
}

/// Everything that callers and admins see, and everything that is stored.
fn everything(gateway: &Gateway, answers: &str) -> String {
    let mut seen = format!("{answers}\n{:?}\n{}", gateway.records(), gateway.output());
    for file in ["imagate.db", "imagate.db-wal"] {
        let bytes = std::fs::read(gateway.home().join("data").join(file)).unwrap_or_default();
        seen.push_str(&String::from_utf8_lossy(&bytes));
    }
    seen
}

/// Panics if a text has a part of a secret.
#[track_caller]
fn assert_hidden(seen: &str, secret: &str, spelling: &str) {
    for part in [spelling.as_bytes(), secret.as_bytes()].iter().flat_map(|text| text.windows(8)) {
        let part = String::from_utf8_lossy(part);
        // The beginning of a key is that of all keys, and escapes have a form of their own.
        let is_secret = part.bytes().any(|byte| byte.is_ascii_digit()) && !part.contains(['%', '\\']);
        assert!(!is_secret || !seen.contains(part.as_ref()), "'{part}' of '{spelling}' is visible");
    }
}

#[test]
fn no_error_of_an_upstream_repeats_a_secret_of_its_account() {
    let upstream = VerbatimUpstream::start();
    let gateway = gateway_with(upstream.base_url(), "images");
    for secret in [KEY, HEADER] {
        for spelling in spellings(secret) {
            let text = spelling.replace('"', "");
            let headers = format!("content-type: application/json\r\nx-request-id: req_{}\r\n", text.replace('\\', ""));
            let mut answers = String::new();
            for (status, body) in [
                (401, format!(r#"{{"error":{{"message":"wrong {text}","code":"{text}","type":"{text}"}}}}"#)),
                (400, format!(r#"{{"error":{{"message":"bad {text} here","param":"size","code":"invalid_value"}}}}"#)),
                (400, format!(r#"{{"error":{{"message":"bad","param":"{text}","code":"invalid_request_error"}}}}"#)),
                (500, format!(r#"{{"error":{{"message":"failed with {text}","type":"server_error"}}}}"#)),
                (200, format!(r#"{{"data":[],"error":{{"message":"no {text}","code":"server_error"}}}}"#)),
                (200, format!(r#"{{"created":1,"id":"{text}","data":[{{"b64_json":"","revised_prompt":"{text}"}}]}}"#)),
            ] {
                upstream.set_response(status, &headers, body);
                let answer = gateway.generate(json!({}));
                answers.push_str(&format!("{:?}{}", answer.headers, answer.text()));
                gateway.run_command(&["account", "enable", "only"]);
            }
            assert_hidden(&everything(&gateway, &answers), secret, &text);
        }
    }
}

#[test]
fn no_response_repeats_a_secret_of_its_account() {
    let upstream = VerbatimUpstream::start();
    let gateway = gateway_with(upstream.base_url(), "responses");
    for spelling in spellings(KEY) {
        let response = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5.5", "output":
            [{"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "hi SECRET"}]}]});
        let body = response.to_string().replace("SECRET", &spelling).replace("resp_1", &format!("resp_{spelling}"));
        let event =
            format!("event: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":{body}}}\n\n");
        for (content_type, body, stream) in
            [("application/json", body.clone(), false), ("text/event-stream", event, true)]
        {
            upstream.set_response(200, &format!("content-type: {content_type}\r\n"), body);
            let call = Call::post("/v1/responses").without_document_check().key(gateway.secret());
            let answer =
                call.json(&json!({"model": "gpt-5.5", "input": "hi", "stream": stream})).send(gateway.address());
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(answer.text().contains("hi "), "{}", answer.text());
            assert_hidden(&everything(&gateway, &answer.text()), KEY, &spelling);
        }
    }
}

#[test]
fn no_list_of_models_repeats_a_secret_of_its_account() {
    let server = StubServer::start(|request| {
        let key = request.header("authorization").unwrap_or_default().replace("Bearer ", "");
        Some((200, json!({"object": "list", "data": [{"id": format!("gpt-{key}"), "owned_by": key}]}).to_string()))
    });
    let gateway = gateway_with(format!("http://{}/v1", server.address()), "responses");
    let listed = Call::get("/v1/models").key(gateway.secret()).send(gateway.address()).ok_json();
    assert_hidden(&listed.to_string(), KEY, KEY);
    let ids: Vec<&Value> = listed["data"].as_array().expect("a list").iter().map(|model| &model["id"]).collect();
    assert!(
        ids.iter().any(|id| id.as_str().is_some_and(|id| id.starts_with("gpt-") && id.ends_with("****"))),
        "{listed}"
    );
}
