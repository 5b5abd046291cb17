//! The content filter of a group sees everything of a response request that a text model reads.

use serde_json::{Value, json};

use super::{call, response_body};
use crate::kit::{Account, Answer, FLAGGED, FakeModerator, FakeUpstream, Gateway};

const WORD: &str = "zeppelin";

fn start_gateway(upstream: &FakeUpstream, filter: &str) -> Gateway {
    let settings = format!("[[groups]]\nname = \"default\"\n{filter}\n");
    Gateway::with(&settings, &[Account::for_upstream("only", upstream).with_responses_protocol()])
}

fn words() -> String {
    format!("[groups.filter]\nwords = [\"{WORD}\"]")
}

fn moderation(moderator: &FakeModerator) -> String {
    format!("[groups.filter.moderation]\nbase_url = \"{}\"\non_error = \"closed\"", moderator.base_url())
}

fn send(gateway: &Gateway, patch: &Value) -> Answer {
    call(gateway).json(&response_body(patch)).send(gateway.address())
}

/// Returns requests with this text, each at another place.
fn places(text: &str) -> Vec<Value> {
    let function = |fields: Value| {
        let mut tool = json!({"type": "function", "name": "f"});
        tool.as_object_mut().expect("an object").extend(fields.as_object().cloned().unwrap_or_default());
        json!({ "tools": [tool] })
    };
    let item = |item: Value| json!({"input": [item, {"role": "user", "content": "go on"}]});
    vec![
        json!({ "input": text }),
        json!({ "instructions": text }),
        function(json!({ "description": text })),
        function(json!({"parameters": {"properties": {"a": {"type": "string", "description": text}}}})),
        function(json!({"parameters": {"enum": [text]}})),
        json!({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f", "description": text}]}]}),
        json!({"metadata": { "note": text }}),
        json!({"later": [[{"deep": {"deeper": {"still": [{"more": [text]}]}}}]]}),
        json!({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"description": text}}}}),
        item(json!({"role": "developer", "content": text})),
        item(json!({"role": "user", "content": [{"type": "input_text", "text": text}]})),
        item(json!({"role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]})),
        item(
            json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": json!({ "x": text }).to_string()}),
        ),
        item(json!({"type": "function_call_output", "call_id": "c", "output": text})),
        item(json!({"type": "not_known_yet", "payload": {"note": text}})),
        item(json!({"type": "additional_tools", "tools": [{"type": "custom", "name": "c", "description": text}]})),
        item(json!({"type": "image_generation_call", "id": "ig_1", "result": format!("{} {text}", "QUJD".repeat(50))})),
    ]
}

#[test]
fn a_forbidden_word_is_found_at_every_place_with_and_without_an_image_tool() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream, &words());
    for patch in places(&format!("a {WORD} at night")) {
        assert_eq!(send(&gateway, &patch).error_object(502)["reason"], "content_refused", "{patch}");
    }
    let key = json!({"tools": [{"type": "function", "name": "f", "parameters": {"properties": {"a zeppelin": {}}}}]});
    assert_eq!(send(&gateway, &key).error_object(502)["reason"], "content_refused");
    let with_tool = json!({"input": "a zeppelin", "tools": [{"type": "image_generation"}]});
    assert_eq!(send(&gateway, &with_tool).error_object(502)["reason"], "content_refused");
    assert_eq!(upstream.accepted(), 0);
    for patch in places("an airship at night") {
        assert_eq!(send(&gateway, &patch).status, 200, "{patch}");
    }
}

#[test]
fn a_moderation_service_gets_the_whole_conversation() {
    let (upstream, moderator) = (FakeUpstream::start(), FakeModerator::start());
    let gateway = start_gateway(&upstream, &moderation(&moderator));
    for patch in places(&format!("always draw {FLAGGED} at night")) {
        assert_eq!(send(&gateway, &patch).error_object(502)["reason"], "content_refused", "{patch}");
    }
    // Longer than one piece, and than a body that is held in memory.
    let long = format!("{} {FLAGGED} {}", "lorem ipsum ".repeat(9_000), "dolor sit ".repeat(9_000));
    assert_eq!(send(&gateway, &json!({ "input": long })).error_object(502)["reason"], "content_refused");
    assert_eq!(upstream.accepted(), 0);
    assert_eq!(send(&gateway, &json!({"input": "a quiet harbour", "instructions": "answer tersely"})).status, 200);
    // A piece of the long text can still arrive after another one was refused.
    let mut asked = moderator.calls();
    asked.retain(|call| {
        ["a quiet harbour", "answer tersely"].iter().any(|text| call.body["input"].to_string().contains(text))
    });
    assert_eq!(asked.len(), 1, "a short conversation is one piece");
    let input = asked[0].body["input"].as_str().expect("a text");
    assert!(input.contains("a quiet harbour") && input.contains("answer tersely"), "{input}");
}

#[test]
fn a_conversation_that_is_too_long_to_be_moderated_is_refused() {
    let (upstream, moderator) = (FakeUpstream::start(), FakeModerator::start());
    let gateway = start_gateway(&upstream, &moderation(&moderator));
    let answer = send(&gateway, &json!({"input": "lorem ipsum ".repeat(400_000)}));
    assert_eq!(answer.error_object(400)["param"], "input");
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn what_a_filter_cannot_see_is_refused_unless_the_group_lets_it_pass() {
    let part =
        |part: Value| json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}, part]}]});
    let hidden = [
        (
            part(json!({"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="})),
            "input[0].content[1].file_data",
        ),
        (part(json!({"type": "input_file", "file_url": "https://example.com/a.txt"})), "input[0].content[1].file_url"),
        (part(json!({"type": "input_file", "file_id": "file-1"})), "input[0].content[1]"),
        (part(json!({"type": "input_image", "file_id": "file-1"})), "input[0].content[1].file_id"),
        (json!({"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}), "tools[0].vector_store_ids[0]"),
        (json!({"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}), "tools[0].container"),
        (json!({"prompt": {"id": "pmpt_1"}}), "prompt.id"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"input": [{"type": "item_reference", "id": "msg_1"}]}), "input[0].id"),
        (json!({"input": [{"id": "msg_1"}]}), "input[0].id"),
    ];
    let (upstream, moderator) = (FakeUpstream::start(), FakeModerator::start());
    for filter in [words(), moderation(&moderator), "[groups.filter]\npatterns = [\"z+\"]".to_owned()] {
        let gateway = start_gateway(&upstream, &filter);
        for (patch, param) in &hidden {
            assert_eq!(send(&gateway, patch).error_object(400)["param"], *param, "{patch}");
        }
        assert_eq!((upstream.accepted(), gateway.records().len()), (0, 0));
    }
    let image = part(json!({"type": "input_image", "image_url": "data:image/png;base64,QUJD"}));
    assert_eq!(send(&start_gateway(&upstream, &words()), &image).status, 200);
    let passing = start_gateway(&upstream, &format!("filter_files = \"allow\"\n{}", words()));
    let unfiltered = start_gateway(&upstream, "");
    for (patch, _) in &hidden[..7] {
        assert_eq!(send(&passing, patch).status, 200, "{patch}");
        assert_eq!(send(&unfiltered, patch).status, 200, "{patch}");
    }
}

#[test]
fn a_conversation_that_was_screened_goes_on() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream, &words());
    let first = send(&gateway, &json!({"input": "an airship at night"})).ok_json();
    assert_eq!(send(&gateway, &json!({"previous_response_id": first["id"], "input": "go on"})).status, 200);
    let next =
        json!({"previous_response_id": first["id"], "input": "a zeppelin", "tools": [{"type": "image_generation"}]});
    assert_eq!(send(&gateway, &next).error_object(502)["reason"], "content_refused");
    assert_eq!(
        send(&gateway, &json!({"previous_response_id": "resp_of_nobody"})).error_object(400)["param"],
        "previous_response_id"
    );
    assert_eq!(upstream.attempt_count(), 2);
}
