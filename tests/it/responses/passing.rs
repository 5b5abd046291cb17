//! The passthrough: the upstream gets the caller's body, and the caller gets the upstream's answer, byte for byte.

use serde_json::{Value, json};

use super::{call, gateway_with_two_accounts, image_response_body, response_body, size_of, start_gateway};
use crate::kit::{Account, Events, FakeUpstream, Gateway};

/// Bodies of agents that a JSON library would serialize differently.
const BODIES: [&str; 3] = [
    "{\"model\":\"gpt-5.5\",\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"caf\\u00e9 \\/ \u{1F980}\"}],\
     \"internal_chat_message_metadata_passthrough\":{\"z\":1,\"a\":2}}],\"stream\":false,\"store\":false,\"temperature\":1.0,\"top_p\":1e0,\
     \"client_metadata\":{\"x\":null},\"tools\":[{\"type\":\"namespace\",\"name\":\"image_gen\"},{\"type\":\"function\",\"name\":\"f\",\"strict\":true}]}",
    " {\r\n\t\"input\" : \"x\" ,\n \"model\":\"gpt-5.5\", \"unknown\" : [ 1.50 , 12345678901234567890 , -0.0 ] }\n\n",
    "{\"model\":\"gpt-5.5\",\"input\":[{\"type\":\"image_generation_call\",\"id\":\"ig_1\",\"status\":\"completed\",\"result\":\"AAAA\"},\
     {\"type\":\"item_reference\",\"id\":\"ig_2\"},{\"type\":\"image_generation_call\",\"id\":\"ig_3\"}],\"tools\":[{\"type\":\"image_generation\",\
     \"action\":\"auto\",\"background\":\"auto\",\"moderation\":\"auto\",\"output_compression\":100,\"output_format\":\"png\",\"partial_images\":0}]}",
];

#[test]
fn the_body_reaches_the_upstream_byte_for_byte() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    for body in BODIES {
        let answer = call(&gateway).header("content-type", "application/json").bytes(body).send(gateway.address());
        assert_eq!(answer.status, 200, "{:.300}", answer.text());
    }
    let large = response_body(&json!({"input": [{"role": "user", "content": "A".repeat(30_000_000)}]})).to_string();
    let sent = call(&gateway).header("content-type", "application/json").bytes(large.clone());
    assert_eq!(sent.send(gateway.address()).status, 200);
    let attempts = upstream.received_attempts();
    for (attempt, body) in attempts.iter().zip(BODIES.iter().copied().chain([large.as_str()])) {
        assert!(attempt.body == body.as_bytes(), "{:.300}", String::from_utf8_lossy(&attempt.body));
        assert_eq!((attempt.method.as_str(), attempt.path.as_str()), ("POST", "/v1/responses"));
    }
    assert_eq!(attempts.len(), BODIES.len() + 1);
}

#[test]
fn conversation_headers_reach_the_upstream_and_caller_headers_do_not() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let forwarded = [
        ("originator", "codex_exec"),
        ("session-id", "s-1"),
        ("session_id", "s-2"),
        ("thread-id", "t-1"),
        ("x-codex-window-id", "w-1"),
        ("openai-beta", "responses=experimental"),
        ("x-client-request-id", "r-1"),
    ];
    let mut sent = call(&gateway).json(&response_body(&json!({})));
    for (name, value) in forwarded {
        sent = sent.header(name, value);
    }
    for name in
        ["cookie", "openai-organization", "openai-project", "chatgpt-account-id", "x-forwarded-for", "idempotency-key"]
    {
        sent = sent.header(name, "caller-canary");
    }
    assert_eq!(sent.header("user-agent", "caller-canary").send(gateway.address()).status, 200);
    let attempt = upstream.received_attempts().remove(0);
    for (name, value) in forwarded {
        assert_eq!(attempt.header(name), Some(value), "{name}");
    }
    assert_eq!(attempt.token, "sk-upstream-only");
    assert!(!format!("{:?}", attempt.headers).contains("canary"), "{:?}", attempt.headers);
    assert!(!format!("{:?}", attempt.headers).contains(gateway.secret()));
}

#[test]
fn a_plain_response_comes_back_with_its_image_untouched() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    for script in ["", "framing=chunked", "reads=700", "framing=close"] {
        let answer = call(&gateway).json(&image_response_body(script, false)).send(gateway.address());
        let response = answer.ok_json();
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        let call = &response["output"][0];
        assert_eq!(call["result"].as_str(), attempt.images.first().map(String::as_str), "{script}");
        assert_eq!(size_of(call), "1024x640");
        assert_eq!(answer.header("x-imagate-delivered"), Some("1024x640 png"), "{script}");
        assert_eq!(answer.header("x-imagate-delivery"), Some("match"), "{script}");
        assert_eq!((&response["model"], &response["usage"]), (&json!("gpt-5.5"), &attempt.usage.unwrap_or_default()));
        assert!(!answer.text().contains("set-cookie") && answer.header("set-cookie").is_none());
    }
}

#[test]
fn each_response_event_is_passed_on_at_once() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let event_names = ["created", "progress", "added", "generating", "p", "k", "x", "item", "text", "c"];
    let script = event_names.map(|name| format!("@{name},{name}")).join(",");
    let body = image_response_body(&format!("events={script}"), true);
    // The gateway sends the status with the first event that proves work, so the events before it need open gates.
    for gate in ["created", "progress", "added"] {
        upstream.open_gate(gate);
    }
    let mut events = Events::from_reply(call(&gateway).json(&body).open(gateway.address()).expect("an answer"));
    let mut names = Vec::new();
    let mut receive = |events: &mut Events| names.push(events.next().expect("no break").expect("an event").name);
    for _ in 0..3 {
        receive(&mut events);
    }
    for gate in ["generating", "p", "k", "x", "item"] {
        upstream.open_gate(gate);
        if gate != "k" {
            receive(&mut events);
        }
    }
    upstream.open_gate("text");
    upstream.open_gate("c");
    names.extend(events.remaining().into_iter().map(|event| event.name));
    let expected = "created in_progress output_item.added image_generation_call.generating \
                    image_generation_call.partial_image web_search_call.searching output_item.done output_item.added \
                    content_part.added output_text.delta content_part.done output_item.done completed";
    let found: Vec<&str> = names.iter().map(|name| name.trim_start_matches("response.")).collect();
    assert_eq!(found.join(" "), expected);
}

#[test]
fn events_pass_unchanged_in_every_size_and_framing() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    for script in ["", "reads=700", "framing=close", "b64=200000", "b64=30000000"] {
        let answer = call(&gateway).json(&image_response_body(script, true)).send(gateway.address());
        assert_eq!(answer.status, 200, "{script}: {:.300}", answer.text());
        let text = answer.text();
        assert!(answer.complete && text.ends_with("\n\n"), "{script}");
        let written = upstream.received_attempts().pop().expect("an attempt").written;
        assert_eq!(text.len() as u64, written, "{script}: the caller must get as many bytes as the upstream wrote");
        assert_eq!(text.matches("event: response.completed\n").count(), 1, "{script}");
    }
}

#[test]
fn tokens_of_text_and_images_are_recorded_separately() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    for stream in [false, true] {
        assert_eq!(call(&gateway).json(&image_response_body("", stream)).send(gateway.address()).status, 200);
    }
    let text_request = response_body(&json!({"safety_identifier": "u-7", "user": "hidden"}));
    assert_eq!(call(&gateway).json(&text_request).send(gateway.address()).status, 200);
    let records = gateway.final_records(3);
    let attempts = upstream.received_attempts();
    for (record, attempt) in records.iter().zip(&attempts) {
        assert_eq!((&record["operation"], &record["state"]), (&json!("create_response"), &json!("succeeded")));
        assert_eq!((&record["model"], &record["n"]), (&json!("gpt-5.5"), &Value::Null));
        let text_usage = attempt.usage.as_ref().expect("tokens");
        for field in ["input_tokens", "output_tokens", "total_tokens"] {
            assert_eq!(record["host_usage"][field], text_usage[field], "{record}");
        }
        let has_image = !attempt.images.is_empty();
        assert_eq!(record["usage"].is_null(), !has_image, "{record}");
        assert!(!has_image || record["usage"]["output_tokens"] == 196, "{record}");
        assert_eq!((&record["host_model"], &record["missing"]), (&json!("gpt-5.5"), &Value::Null), "{record}");
        assert_eq!(record["attempts"][0]["account"], "only");
    }
    for record in &records[..2] {
        assert_eq!(record["delivered"], json!([{"size": "1024x640", "output_format": "png", "quality": "low"}]));
        assert_eq!(
            (&record["size"], &record["quality"], &record["output_format"]),
            (&json!("1024x640"), &json!("low"), &json!("png"))
        );
    }
    assert_eq!((&records[2]["size"], &records[2]["delivered"]), (&Value::Null, &json!([])));
    assert_eq!(records[2]["end_user"], "u-7");
    assert_eq!((&records[0]["stream"], &records[1]["stream"]), (&json!(false), &json!(true)));
}

#[test]
fn the_image_model_and_the_quality_of_its_images_are_recorded() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let image_model = "gpt-image-2-2026-04-21";
    for stream in [false, true] {
        let mut body = image_response_body(&format!("model={image_model}"), stream);
        let tool = body["tools"]
            .as_array_mut()
            .and_then(|tools| tools.iter_mut().find(|tool| tool["type"] == "image_generation"));
        tool.expect("an image tool")["quality"] = json!("auto");
        assert_eq!(call(&gateway).json(&body).send(gateway.address()).status, 200);
        let record = gateway.final_records(upstream.attempt_count()).pop().expect("a record");
        assert_eq!((&record["model"], &record["image_model"]), (&json!("gpt-5.5"), &json!(image_model)), "{record}");
        assert_eq!(
            (&record["quality"], &record["delivered"][0]["quality"]),
            (&json!("auto"), &json!("low")),
            "{record}"
        );
    }
}

#[test]
fn each_endpoint_prefers_accounts_of_its_own_protocol() {
    let upstream = FakeUpstream::start();
    let images = Gateway::with_upstream(&upstream);
    assert_eq!(
        call(&images).json(&response_body(&json!({}))).send(images.address()).error_object(503)["code"],
        "no_available_accounts"
    );
    assert_eq!(upstream.accepted(), 0);
    let both = Gateway::with(
        "",
        &[
            Account::for_upstream("responses", &upstream).with_responses_protocol(),
            Account::for_upstream("images", &upstream),
        ],
    );
    both.generate(json!({})).ok_json();
    assert_eq!(call(&both).json(&response_body(&json!({}))).send(both.address()).status, 200);
    let accounts: Vec<Value> = both.final_records(2).iter().map(|record| record["account"].clone()).collect();
    assert_eq!(accounts, ["images", "responses"]);
}

#[test]
fn a_delivery_that_differs_from_the_tool_options_is_a_mismatch() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_two_accounts(&upstream);
    let answer = call(&gateway).json(&image_response_body("size=640x1024", false)).send(gateway.address());
    answer.ok_json();
    assert_eq!(answer.header("x-imagate-delivery"), Some("mismatch"));
    assert_eq!(upstream.attempt_count(), 1);
}
