mod body_contents;
mod tool_places;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::image::{ByteSource as _, Format};

fn body_with(patch: &Value) -> Value {
    let mut base = json!({"model": "gpt-5.5", "input": "Draw a red square."});
    for (key, value) in patch.as_object().expect("an object") {
        base[key] = value.clone();
    }
    base
}

/// Checks a body in memory and on disk. Both must give the same error, or none.
fn check_body(body: impl Into<Bytes>) -> Result<ResponseJob, Rejection> {
    let body = body.into();
    let (in_memory, on_disk) = (check_spooled(body.clone().into()), check_spooled(SpooledBytes::on_disk(&body)));
    assert_eq!(in_memory.as_ref().err(), on_disk.as_ref().err());
    on_disk
}

fn check_spooled(body: SpooledBytes) -> Result<ResponseJob, Rejection> {
    crate::gateway::rules::check_response(body, &HeaderMap::new(), Utc::now()).map_err(|error| match error {
        Error::Invalid(rejection) => rejection,
        error => panic!("{error:?}"),
    })
}

/// Returns the bytes that are sent upstream.
fn upstream_body(job: &ResponseJob) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in job.body_pieces() {
        let mut bytes = vec![0; usize::try_from(piece.len()).expect("a length")];
        assert_eq!(piece.read_at(0, &mut bytes).expect("readable"), bytes.len());
        all.extend(bytes);
    }
    all
}

/// Returns the texts of the request, each on a line.
fn texts(job: &ResponseJob, scope: TextScope) -> String {
    let (windows, mut all) = (TextWindows { length: 256 * 1024, overlap: 32 * 1024 }, String::new());
    job.visit_texts(scope, windows, |window| {
        all.push_str(window);
        false
    })
    .expect("readable");
    all
}

#[track_caller]
fn check_refused(patch: &Value, param: &str, reason: RejectionReason) {
    let body = body_with(patch).to_string();
    let rejection = check_body(body.clone()).expect_err(&body);
    let found = (rejection.param.as_deref(), rejection.reason);
    assert_eq!(found, (Some(param), Some(reason)), "{body}: {}", rejection.message);
}

#[track_caller]
fn check_accepted(patch: &Value) -> ResponseJob {
    let body = body_with(patch).to_string();
    check_body(body.clone()).unwrap_or_else(|rejection| panic!("{body}: {rejection:?}"))
}

/// Checks that a request is refused because of this field of its second tool, an image tool with `fields`.
#[track_caller]
fn check_tool_refused(fields: &Value, field: &str, reason: RejectionReason) {
    let mut tool = json!({"type": "image_generation"});
    tool.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
    check_refused(&json!({"tools": [{"type": "function", "name": "f"}, tool]}), &format!("tools[1].{field}"), reason);
}

#[test]
fn the_body_is_sent_upstream_byte_for_byte() {
    let body =
        "\r\n{ \"model\" :\"gpt-5.5\",\"x\":1e2 , \"x\":[ ],\"input\":\"\\u0061\\/\",\"z\":{\"b\":1,\"a\":2.50} }\n";
    assert_eq!(upstream_body(&check_body(body).expect("a job")), body.as_bytes());
}

#[test]
fn undocumented_members_are_not_checked() {
    let job = check_accepted(&json!({
        "stream": true, "store": false, "reasoning": {"effort": "high"}, "metadata": {"n": 11}, "n": 99, "size": "1x1",
        "include": ["reasoning.encrypted_content"], "tool_choice": {"type": "function", "name": "size"}, "background": false,
        "instructions": null, "previous_response_id": null, "tools": [
            {"type": "function", "name": "size", "parameters": {"size": "1x1"}}, {"type": "namespace", "n": 2},
            {"type": "image_generation_2", "size": "1x1"}],
    }));
    assert!(job.is_stream() && job.image_tool().is_none());
    let replayed = json!({"input": [
        {"type": "image_generation_call", "id": "ig_1", "result": "AAAA"}, {"type": "image_generation_call", "id": "ig_1"},
        {"type": "item_reference", "id": "ig_1"}, {"type": "function_call_output", "output": [{"type": "input_image"}]},
        {"role": "user", "content": "go on", "internal_chat_message_metadata_passthrough": {"a": [1]}}, {},
    ]});
    assert_eq!(check_accepted(&replayed).prompt(), Ok("go on".to_owned()));
}

#[test]
fn an_image_model_cannot_be_the_main_model() {
    for model in ["gpt-image-2", "gpt-image-2-2026-04-21", "gpt-image-"] {
        check_refused(&json!({"model": model}), "model", RejectionReason::InvalidValue);
    }
    check_refused(&json!({"model": ""}), "model", RejectionReason::StringBelowMin);
    check_refused(&json!({"model": null}), "model", RejectionReason::InvalidType);
    check_refused(&json!({"model": 5}), "model", RejectionReason::InvalidType);
    assert_eq!(check_accepted(&json!({"model": "GPT-image-2"})).model(), "GPT-image-2");
}

#[test]
fn documented_members_must_have_their_types() {
    check_refused(&json!({"input": null}), "input", RejectionReason::InvalidType);
    check_refused(&json!({"input": {}}), "input", RejectionReason::InvalidType);
    check_refused(&json!({"input": [{}, "x"]}), "input[1]", RejectionReason::InvalidType);
    check_refused(&json!({"tools": {}}), "tools", RejectionReason::InvalidType);
    check_refused(&json!({"tools": [1]}), "tools[0]", RejectionReason::InvalidType);
    check_refused(&json!({"tools": [{}]}), "tools[0].type", RejectionReason::MissingParameter);
    check_refused(&json!({"tools": [{"type": null}]}), "tools[0].type", RejectionReason::InvalidType);
    check_refused(&json!({"background": true}), "background", RejectionReason::InvalidValue);
    for field in ["stream", "store", "parallel_tool_calls", "background"] {
        check_refused(&json!({field: "true"}), field, RejectionReason::InvalidType);
    }
    for field in ["instructions", "previous_response_id", "user", "safety_identifier"] {
        check_refused(&json!({field: 1}), field, RejectionReason::InvalidType);
    }
    for (body, param) in [(json!({"input": "x"}), "model"), (json!({"model": "m"}), "input")] {
        let rejection = check_body(body.to_string()).expect_err("a field is missing");
        assert_eq!(
            (rejection.param.as_deref(), rejection.reason),
            (Some(param), Some(RejectionReason::MissingParameter))
        );
    }
}

#[test]
fn a_tool_type_that_cannot_be_read_is_refused() {
    // The groups that allow only some tools would not see the type.
    let padded = json!({"type": "web_search", "x": "x".repeat(64 * 1024)});
    check_refused(&json!({"tool_choice": padded}), "tool_choice", RejectionReason::StringAboveMax);
    let nested = json!({"type": "namespace", "name": "n", "tools": [{"type": "x".repeat(64 * 1024)}]});
    check_refused(&json!({"tools": [nested]}), "tools[0].tools[0].type", RejectionReason::StringAboveMax);
    let body = r#"{"model": "gpt-5.5", "input": "Draw.", "tool_choice": {"type": "web_search", "x": 1e999}}"#;
    let rejection = check_body(body).expect_err("the number is out of range");
    assert_eq!(
        (rejection.param.as_deref(), rejection.reason),
        (Some("tool_choice"), Some(RejectionReason::InvalidValue))
    );
}

#[test]
fn every_field_of_an_image_tool_has_the_rules_of_the_image_endpoints() {
    check_tool_refused(&json!({"size": "1000x1000"}), "size", RejectionReason::InvalidValue);
    check_tool_refused(&json!({"size": 5}), "size", RejectionReason::InvalidType);
    check_tool_refused(&json!({"quality": "hd"}), "quality", RejectionReason::InvalidValue);
    check_tool_refused(&json!({"output_format": "gif"}), "output_format", RejectionReason::InvalidValue);
    check_tool_refused(&json!({"output_compression": 101}), "output_compression", RejectionReason::IntegerAboveMax);
    check_tool_refused(&json!({"output_compression": 99}), "output_compression", RejectionReason::InvalidValue);
    check_tool_refused(&json!({"output_compression": [1]}), "output_compression", RejectionReason::InvalidType);
    check_tool_refused(&json!({"background": "transparent"}), "background", RejectionReason::InvalidValue);
    check_tool_refused(&json!({"moderation": "off"}), "moderation", RejectionReason::InvalidValue);
    check_tool_refused(&json!({"partial_images": 4}), "partial_images", RejectionReason::IntegerAboveMax);
    check_tool_refused(&json!({"input_fidelity": "high"}), "input_fidelity", RejectionReason::InvalidValue);
    check_tool_refused(&json!({"model": "gpt-image-1"}), "model", RejectionReason::InvalidValue);
    check_tool_refused(&json!({"action": "draw"}), "action", RejectionReason::InvalidValue);
    check_tool_refused(&json!({"n": 1}), "n", RejectionReason::UnknownParameter);
    check_tool_refused(&json!({"strange": null}), "strange", RejectionReason::UnknownParameter);
    check_tool_refused(&json!({"style": "vivid"}), "style", RejectionReason::UnknownParameter);
}

#[test]
fn common_values_of_clients_are_accepted() {
    let job = check_accepted(&json!({"user": "u", "safety_identifier": "s", "tools": [
        {"type": "web_search"},
        {"type": "image_generation", "action": "auto", "background": "auto", "moderation": "auto", "output_compression": 100,
         "output_format": "png", "partial_images": 3, "quality": "low", "size": "3840x2160", "input_fidelity": null,
         "model": "gpt-image-2", "input_image_mask": null},
        {"type": "image_generation", "output_format": "webp", "output_compression": 5.0},
    ]}));
    let tool = job.image_tool().expect("an image tool");
    assert_eq!((tool.size.to_string().as_str(), tool.format), ("3840x2160", Format::Png));
    assert_eq!((tool.quality.as_deref(), tool.partial_images, tool.compression), (Some("low"), 3, 100));
    assert!(job.is_large() && !job.is_stream());
    assert_eq!(job.end_user(), Some("s"));
}

#[test]
fn every_different_image_tool_is_kept_up_to_a_number() {
    let tool = |quality: &str, partials: u32, format: &str| json!({"type": "image_generation", "quality": quality, "partial_images": partials, "output_format": format});
    let equal: Vec<_> = (0..40).map(|number| tool("low", 0, ["png", "jpeg"][number % 2])).collect();
    let named = json!({"type": "image_generation", "model": "gpt-image-2-2026-04-21"});
    let tools = [equal, vec![json!({"type": "web_search"}), tool("low", 1, "png"), named]].concat();
    let job = check_accepted(&json!({ "tools": tools }));
    let kept: Vec<_> = job.image_tools().iter().map(|tool| (tool.path.as_str(), tool.model.as_str())).collect();
    let expected = [("tools[0]", "gpt-image-2"), ("tools[41]", "gpt-image-2"), ("tools[42]", "gpt-image-2-2026-04-21")];
    assert_eq!(kept, expected);
    // Four qualities and four numbers of intermediate images, and one more.
    let qualities = ["auto", "low", "medium", "high"];
    let mut tools: Vec<_> = qualities.iter().flat_map(|word| (0..4).map(|count| tool(word, count, "png"))).collect();
    assert_eq!(check_accepted(&json!({ "tools": tools })).image_tools().len(), 16);
    tools.push(json!({"type": "image_generation", "size": "1024x1024"}));
    check_refused(&json!({ "tools": tools }), "tools", RejectionReason::InvalidValue);
}

#[test]
fn a_mask_is_a_data_url_of_an_image_with_an_alpha_channel() {
    let url = |file: &[u8]| {
        use base64::Engine as _;
        format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(file))
    };
    let mask = |mask: Value| json!({ "input_image_mask": mask });
    let (alpha, opaque) = (png(true), png(false));
    check_accepted(&json!({"tools": [{"type": "image_generation", "input_image_mask": {"image_url": url(&alpha)}}]}));
    let name = "input_image_mask.image_url";
    for invalid in [&url(&opaque), &url(&alpha)[..60], "https://example.com/mask.png", "data:image/png,abc", "mask.png"]
    {
        check_tool_refused(&mask(json!({ "image_url": invalid })), name, RejectionReason::InvalidValue);
    }
    check_tool_refused(&mask(json!({})), name, RejectionReason::MissingParameter);
    check_tool_refused(&mask(json!({"image_url": 1})), name, RejectionReason::InvalidType);
    check_tool_refused(&mask(json!({"file_id": "file-1"})), "input_image_mask.file_id", RejectionReason::InvalidValue);
    check_tool_refused(
        &mask(json!({"image_url": url(&alpha), "x": 1})),
        "input_image_mask.x",
        RejectionReason::UnknownParameter,
    );
    check_tool_refused(&mask(json!("data:")), "input_image_mask", RejectionReason::InvalidType);
}

fn png(has_alpha: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 16, 16);
    encoder.set_color(if has_alpha { png::ColorType::Rgba } else { png::ColorType::Rgb });
    let pixels = vec![0; 16 * 16 * if has_alpha { 4 } else { 3 }];
    encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels)).expect("a file");
    file
}

#[test]
fn a_body_that_is_no_json_object_is_refused() {
    let (open, close) = ("[".repeat(200), "]".repeat(200));
    let deep = [
        format!(r#"{{"model":"m","input":"x","y":{open}{close}}}"#),
        format!(r#"{{"model":"m","input":"x","tools":[{{"type":"f","y":{open}{close}}}]}}"#),
        format!(r#"{{"model":"m","input":[{{"y":{open}{close}}}]}}"#),
        "[".repeat(5_000_000),
    ];
    let invalid =
        ["", "null", "[]", "1", "{", r#"{"model":"m","input":"x"} x"#, r#"{"model":"m","input":"x","y":"\ud800"}"#];
    for body in deep.iter().map(String::as_str).chain(invalid) {
        let rejection = check_body(body.to_owned()).expect_err("no request");
        assert_eq!(
            (rejection.param, rejection.reason),
            (None, Some(RejectionReason::InvalidJson)),
            "{:.80}",
            rejection.message
        );
    }
    assert!(check_body(&b"{\"model\":\"m\",\"input\":\"x\",\"y\":\"\xff\"}"[..]).is_err());
}

#[test]
fn the_last_text_of_the_user_is_found_in_every_form() {
    let prompt_of = |input: Value| check_accepted(&json!({ "input": input })).prompt().expect("readable");
    assert_eq!(prompt_of(json!("a cat")), "a cat");
    let parts = json!([{"type": "input_text", "text": "a dog"}, {"type": "input_image"}, {"type": "input_text", "text": "red"}]);
    assert_eq!(
        prompt_of(json!([{"role": "user", "content": parts}, {"role": "assistant", "content": "no"}])),
        "a dog\nred"
    );
    let turns = json!([{"role": "developer", "content": "d"}, {"role": "user", "content": "1"}, {"role": "user", "content": "2"}]);
    assert_eq!(prompt_of(turns), "2");
    assert_eq!(prompt_of(json!([])), "");
}

#[test]
fn every_text_is_visited() {
    let data = "QUJD".repeat(100);
    let job = check_accepted(&json!({
        "instructions": "one", "metadata": {"colour": "two"}, "later": [{"deep": [[["three"]]]}],
        "tools": [{"type": "function", "name": "four", "description": "five", "parameters": {
            "properties": {"a six": {"enum": ["seven"]}}}}],
        "input": [
            {"role": "developer", "content": "eight"},
            {"role": "user", "content": [{"type": "input_text", "text": "nine"}]},
            {"type": "function_call", "call_id": "c", "name": "ten", "arguments": "{\"eleven\":1}"},
            {"type": "function_call_output", "output": [{"type": "input_text", "text": "twelve"}]},
            {"type": "image_generation_call", "result": data, "revised_prompt": "thirteen"},
            {"role": "user", "content": [{"type": "input_image", "image_url": format!("data:image/png;base64,{data}")}]},
            {"type": "not_known_yet", "payload": {"state": "fourteen"}},
            {"type": "input_file", "filename": "fifteen", "file_data": "sixteen, no data"},
        ],
    }));
    let words = [
        "one", "two", "three", "four", "five", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
        "fourteen", "fifteen", "sixteen",
    ];
    let (all, sentences) = (texts(&job, TextScope::All), texts(&job, TextScope::Sentences));
    for word in words {
        assert!(all.contains(word) && sentences.contains(word), "{word}: {all}");
    }
    for word in ["a six", "colour", "function_call", "gpt-5.5"] {
        assert!(all.contains(word) && !sentences.contains(word), "{word}: {sentences}");
    }
    assert!(!all.contains("QUJD"), "{all}");
    // The conversation is not interrupted by the rest.
    assert!(all.contains("eight\nnine\n{\"eleven\":1}\ntwelve\nthirteen\n"), "{all}");
    assert_eq!(texts(&check_accepted(&json!({"input": "plain"})), TextScope::Sentences), "plain\n");
}

#[test]
fn a_long_conversation_is_visited_in_overlapping_windows() {
    let filler = "lorem ipsum ".repeat(50_000);
    let items: Vec<Value> = ["one zeppelin", &filler, "two zeppelins", &filler, "three"]
        .iter()
        .map(|text| json!({"role": "user", "content": text}))
        .collect();
    let job = check_accepted(&json!({ "input": items }));
    let (mut windows, mut longest) = (0, 0);
    let lengths = TextWindows { length: 200_000, overlap: 20_000 };
    for needle in ["one zeppelin\nlorem", "ipsum \ntwo zeppelins\nlorem", "ipsum \nthree\n"] {
        let mut found = false;
        job.visit_texts(TextScope::All, lengths, |window| {
            (windows, longest) = (windows + 1, longest.max(window.len()));
            found |= window.contains(needle);
            found
        })
        .expect("readable");
        assert!(found, "{needle}");
    }
    assert!(longest <= 200_004 && windows > 6, "{windows} windows of at most {longest} bytes");
}

#[test]
fn an_own_image_tool_is_recognized_under_any_name_and_with_any_separator() {
    for own in [
        "image_gen",
        "image-gen",
        "imagegen",
        "imageGeneration",
        "generate_image",
        "generate-images",
        "generateImage",
        "GenerateAnImage",
        "create_image",
        "edit_image",
        "draw-picture",
        "text_to_image",
        "txt2img_generate",
        "pictures_generate_image",
        "mcp__imagate__generate_image",
        "imagate.edit_image",
        "studio/image_generation",
        "studio:make_photo",
        "x.imagegen-2",
    ] {
        assert!(tool::names_image_tool(own), "{own}");
    }
    for other in ["view_image", "read_images", "draw", "create_file", "mcp__pictures__create_event", "web_search", ""] {
        assert!(!tool::names_image_tool(other), "{other}");
    }
}

#[test]
fn a_tool_is_injected_only_for_an_agent_without_one() {
    let agent = HeaderMap::from_iter([("originator".parse().expect("a name"), "codex_exec".parse().expect("a value"))]);
    let job = |body: &Value, headers: &HeaderMap| {
        crate::gateway::rules::check_response(SpooledBytes::on_disk(body.to_string().as_bytes()), headers, Utc::now())
            .expect("a valid request")
    };
    let plain = body_with(&json!({"tools": [{"type": "function", "name": "draw"}]}));
    assert!(job(&plain, &agent).may_inject_image_tool() && !job(&plain, &HeaderMap::new()).may_inject_image_tool());
    for patch in [
        json!({"tools": [{"type": "image_generation"}]}),
        json!({"tools": [{"type": "namespace", "name": "image_gen"}]}),
        json!({"tools": [{"type": "function", "name": "image_gen"}]}),
        json!({"tools": [{"type": "function", "name": "mcp__ImageGen__draw"}]}),
        json!({"tools": [{"type": "custom", "name": "studio/image_generation"}]}),
        json!({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "x.imagegen-2"}]}]}),
        json!({"input": [{"type": "additional_tools", "tools": [{"type": "namespace", "name": "image_gen"}]}]}),
        json!({"input": [{"type": "tool_search_output", "tools": [{"type": "image_generation"}]}]}),
        json!({"input": [{"type": "mcp_list_tools", "tools": [{"name": "imagegen", "input_schema": {}}]}]}),
        json!({"input": [{"role": "user", "content": "x"}, {"type": "compaction_trigger"}]}),
        json!({"input": [{"type": "compaction", "encrypted_content": "x"}, {"role": "user", "content": "x"}]}),
        json!({"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}),
        json!({"tool_choice": "none"}),
        json!({"tool_choice": {"type": "function", "name": "draw"}}),
        json!({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "draw"}]}}),
    ] {
        assert!(!job(&body_with(&patch), &agent).may_inject_image_tool(), "{patch}");
    }
    for patch in [
        json!({"tools": [{"type": "function", "name": "view_image"}, {"type": "web_search"}]}),
        json!({"tools": [{"type": "function", "name": "mcp__pictures__create_event"}]}),
        json!({"text": {"format": {"type": "text"}, "verbosity": "low"}, "tool_choice": "required"}),
    ] {
        assert!(job(&body_with(&patch), &agent).may_inject_image_tool(), "{patch}");
    }
    let injected = job(&plain, &agent).with_image_tool();
    let mut expected = plain.clone();
    expected["tools"].as_array_mut().expect("a list").push(json!({"type": "image_generation", "output_format": "png"}));
    assert_eq!(serde_json::from_slice::<Value>(&upstream_body(&injected)).expect("JSON"), expected);
    let tool = injected.image_tool().expect("the tool");
    assert_eq!((tool.path.as_str(), tool.model.as_str(), tool.format), ("tools[1]", "gpt-image-2", Format::Png));
    assert!(injected.is_tool_injected());
    let restored = injected.without_injected_tool();
    assert!(upstream_body(&restored) == plain.to_string().as_bytes(), "the original body");
    assert!(!restored.is_tool_injected() && restored.image_tool().is_none());
}
