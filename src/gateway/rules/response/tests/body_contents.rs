//! Members that occur twice, and what is found in a body besides its tools.

use super::*;
use crate::gateway::rules::StoredKind;

#[test]
fn a_member_that_is_stated_twice_is_refused() {
    let high = r#"[{"type":"image_generation","quality":"high"}]"#;
    for (members, param) in [
        (format!(r#""tools":{high},"tools":[]"#), "tools"),
        (format!(r#""to\u006fls":{high},"tools":[]"#), "tools"),
        (
            r#""tools":[{"type":"image_generation","size":"3840x2160","s\u0069ze":"1024x1024"}]"#.to_owned(),
            "tools[0].size",
        ),
        (r#""tools":[{"type":"web_search","type":"function"}]"#.to_owned(), "tools[0].type"),
        (r#""input":[{"type":"x","tools":[],"tools":[]}]"#.to_owned(), "input[0].tools"),
        (
            r#""input":[{"role":"user","content":[{"type":"input_text","text":"a","text":"b"}]}]"#.to_owned(),
            "input[0].content[0].text",
        ),
        (r#""tool_choice":{"type":"allowed_tools","tools":[],"tools":[]}"#.to_owned(), "tool_choice.tools"),
        (r#""previous_response_id":"a","previous_response_id":null"#.to_owned(), "previous_response_id"),
        (r#""max_output_tokens":16,"max_output_tokens":100000"#.to_owned(), "max_output_tokens"),
        (r#""conversation":{"id":"a","id":"b"}"#.to_owned(), "conversation.id"),
    ] {
        let input = if members.starts_with(r#""input""#) { "" } else { r#""input":"x","# };
        let body = format!(r#"{{"model":"gpt-5.5",{input}{members}}}"#);
        let rejection = check_body(body.clone()).expect_err(&body);
        let found = (rejection.param.as_deref(), rejection.reason);
        assert_eq!(found, (Some(param), Some(RejectionReason::InvalidValue)), "{body}");
    }
    // A name that differs by case only is the same name to some parsers.
    check_refused(&json!({"Model": "o1-pro"}), "Model", RejectionReason::UnknownParameter);
    check_accepted(&json!({"metadata": {"Model": "o1-pro", "model": "x"}}));
}

#[test]
fn the_ids_of_stored_things_are_found_with_their_paths() {
    let job = check_accepted(&json!({
        "previous_response_id": "resp_1", "conversation": {"id": "conv_1"}, "prompt": {"id": "pmpt_1"},
        "metadata": {"file_id": "mine"},
        "tools": [
            {"type": "file_search", "vector_store_ids": ["vs_1", "vs_2"]},
            {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file_1"]}},
            {"type": "code_interpreter", "container": "cntr_1"},
        ],
        "input": [
            {"type": "item_reference", "id": "msg_1"}, {"id": "msg_2"}, {"type": "image_generation_call", "id": "ig_1"},
            {"type": "image_generation_call", "id": "ig_2", "result": "AAAA"},
            {"type": "message", "id": "msg_3", "role": "assistant", "content": [
                {"type": "output_text", "text": "x", "annotations": [{"type": "file_citation", "file_id": "file_2"}]}]},
            {"role": "user", "content": [{"type": "input_image", "file_id": "file_3"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
            {"type": "compaction", "id": "cmp_1", "encrypted_content": "\u{e9}"},
        ],
    }));
    let mut stored: Vec<_> =
        job.contents().stored().iter().map(|id| (id.kind, id.path.as_str(), id.id.as_str())).collect();
    stored.sort_unstable_by_key(|id| id.1);
    assert_eq!(
        stored,
        [
            (StoredKind::Conversation, "conversation.id", "conv_1"),
            (StoredKind::Item, "input[0].id", "msg_1"),
            (StoredKind::Item, "input[1].id", "msg_2"),
            (StoredKind::Item, "input[2].id", "ig_1"),
            (StoredKind::File, "input[5].content[0].file_id", "file_3"),
            (StoredKind::Response, "previous_response_id", "resp_1"),
            (StoredKind::Prompt, "prompt.id", "pmpt_1"),
            (StoredKind::VectorStore, "tools[0].vector_store_ids[0]", "vs_1"),
            (StoredKind::VectorStore, "tools[0].vector_store_ids[1]", "vs_2"),
            (StoredKind::File, "tools[1].container.file_ids[0]", "file_1"),
            (StoredKind::Container, "tools[2].container", "cntr_1"),
        ]
    );
    let maker_ids: Vec<_> = job.contents().maker_ids().iter().map(|id| (id.kind, id.id.as_str())).collect();
    assert_eq!(
        maker_ids,
        [
            (StoredKind::Reasoning, "rs_1"),
            (StoredKind::Ciphertext, "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"),
            (StoredKind::Compaction, "cmp_1"),
            (StoredKind::Ciphertext, "SplVfkAzw1Od4utlRyAXytX5VX96BiWgnxw_biumnEw"),
        ]
    );
}

#[test]
fn more_ids_than_are_kept_cannot_be_judged() {
    let items =
        |count: usize| -> Vec<Value> { (0..count).map(|index| json!({"id": format!("msg_{index}")})).collect() };
    let job = check_accepted(&json!({"input": items(1_000)}));
    assert!(job.contents().unjudged().is_none());
    let job = check_accepted(&json!({"input": items(1_001)}));
    assert_eq!(job.contents().unjudged().map(|part| part.path.as_str()), Some("input[1000].id"));
    assert_eq!(job.contents().stored().len(), 1_000);
    for (patch, path) in [
        (json!({"conversation": "x".repeat(300)}), "conversation"),
        (json!({"conversation": {"id": "x".repeat(300)}}), "conversation.id"),
    ] {
        assert_eq!(check_accepted(&patch).contents().unjudged().map(|part| part.path.as_str()), Some(path));
    }
}

#[test]
fn inputs_that_the_body_does_not_show_are_found() {
    let part =
        |part: Value| json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}, part]}]});
    let job = check_accepted(&part(json!({"type": "input_image", "image_url": "DATA:image/png;base64,AAAA"})));
    assert_eq!(job.contents().inputs().inline_images, 1);
    assert!(job.contents().inputs().first_address.is_none() && job.contents().inputs().first_file.is_none());
    for (image, path) in [
        (json!({"type": "input_image", "image_url": "https://example.com/a.png"}), "image_url"),
        (json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}), "image_url.url"),
    ] {
        let job = check_accepted(&part(image));
        let found = job.contents().inputs().first_address.clone();
        assert_eq!(found, Some(format!("input[0].content[1].{path}")));
    }
    for (file, path) in [
        (json!({"type": "input_file", "filename": "a", "file_data": "QUFB"}), ".file_data"),
        (json!({"type": "input_file", "file_url": "https://example.com/a"}), ".file_url"),
        (json!({"type": "input_file", "file_id": "file_1"}), ""),
        (json!({"type": "input_file", "other_form": "x"}), ""),
    ] {
        let job = check_accepted(&part(file));
        assert_eq!(job.contents().inputs().first_file, Some(format!("input[0].content[1]{path}")));
    }
    let job = check_accepted(&json!({"max_output_tokens": 0, "max_tool_calls": 3}));
    assert_eq!((job.max_output_tokens(), job.max_tool_calls()), (None, Some(3)));
    let bounded = job.with_max_output_tokens(500).with_max_tool_calls(7);
    let sent: Value = serde_json::from_slice(&upstream_body(&bounded)).expect("JSON");
    assert_eq!((&sent["max_output_tokens"], &sent["max_tool_calls"]), (&json!(500), &json!(7)));
    let added = check_accepted(&json!({})).with_max_output_tokens(5).with_max_tool_calls(6);
    let sent: Value = serde_json::from_slice(&upstream_body(&added)).expect("JSON");
    assert_eq!((&sent["max_output_tokens"], &sent["max_tool_calls"]), (&json!(5), &json!(6)));
}
