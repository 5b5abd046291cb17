//! The image endpoints with accounts of the protocol `responses`: every job becomes calls that are forced to make one
//! image each, and the answer is the same as from an account of the image protocol.

mod failing;
mod memory;
mod several;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kit::{Account, Attempt, FakeUpstream, Form, Gateway, alpha_png, image_file};

/// A gateway with one account of the protocol `responses`.
fn start_gateway(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("", &[Account::for_upstream("only", upstream).with_responses_protocol()])
}

/// Asserts the fields of a call other than its tools, its input and its user: the call must make an image.
#[track_caller]
fn assert_image_is_forced(body: &Value, host_model: &str) {
    for (name, value) in [
        ("model", json!(host_model)),
        ("tool_choice", json!({"type": "image_generation"})),
        ("store", json!(false)),
        ("stream", json!(true)),
        ("parallel_tool_calls", json!(false)),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
    assert!(body["instructions"].as_str().is_some_and(|text| !text.is_empty()));
}

/// Asserts that a record has the tokens of the image and, apart from them, those of the text model.
#[track_caller]
fn assert_usage_recorded(record: &Value, attempts: &[Attempt], answer: &Value) {
    assert_eq!(record["usage"], answer["usage"], "{record}");
    for field in ["input_tokens", "output_tokens", "total_tokens"] {
        let counts = attempts.iter().map(|attempt| attempt.usage.as_ref().expect("tokens")[field].as_u64());
        assert_eq!(record["host_usage"][field], json!(counts.sum::<Option<u64>>()), "{field}: {record}");
    }
    assert_eq!((&record["image_model"], &record["host_model"]), (&answer["model"], &json!("gpt-5.5")), "{record}");
}

#[test]
fn a_generation_is_answered_as_by_an_account_of_the_image_protocol() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    for script in ["", "plain", "reads=7", "reads=1 plain"] {
        let answer = gateway.generate(json!({"prompt": format!("a cube [[{script}]]"), "size": "1536x1024",
            "quality": "medium", "output_format": "webp", "output_compression": 40, "background": "opaque",
            "moderation": "low", "user": "u-1"}));
        let json = answer.ok_json();
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        assert_eq!(attempt.path, "/v1/responses");
        let body = attempt.json();
        assert_image_is_forced(&body, "gpt-5.5");
        assert_eq!((&body["user"], attempt.prompt()), (&json!("u-1"), format!("a cube [[{script}]]")));
        assert_eq!(
            body["tools"],
            json!([{"type": "image_generation", "action": "generate", "model": "gpt-image-2", "size": "1536x1024",
                    "quality": "medium", "output_format": "webp", "output_compression": 40, "background": "opaque",
                    "moderation": "low"}])
        );
        assert_eq!(json["data"].as_array().map(Vec::len), Some(1), "{script}");
        assert!(json["data"][0]["b64_json"] == attempt.images[0].as_str(), "the image was changed: {script}");
        assert_eq!(json["data"][0]["revised_prompt"], format!("revised: a cube [[{script}]]"));
        let expected = json!({"model": "gpt-image-2", "size": "1536x1024", "quality": "medium", "output_format": "webp",
            "background": "opaque"});
        for (name, value) in expected.as_object().expect("members") {
            assert_eq!(&json[name], value, "{name}");
        }
        assert!(json["created"].as_u64() >= Some(1_776_000_000) && json["created"].as_u64() < Some(1_776_000_100));
        assert_eq!(json["usage"]["output_tokens_details"], json!({"image_tokens": 196, "text_tokens": 0}));
        assert_eq!(answer.header("x-imagate-delivered"), Some("1536x1024 webp"));
        let record = gateway.final_records(upstream.attempt_count()).pop().expect("a record");
        assert_eq!((&record["state"], &record["account"]), (&json!("succeeded"), &json!("only")));
        assert_eq!(record["delivered"], json!([{"size": "1536x1024", "output_format": "webp", "quality": "medium"}]));
        assert_usage_recorded(&record, &[attempt], &json);
    }
}

#[test]
fn an_answer_names_the_model_of_the_tool_not_the_text_model() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    for script in ["model=gpt-image-2-2026-04-21", "model=gpt-image-2-2026-04-21 plain"] {
        let answer = gateway.generate(json!({"prompt": format!("a cube [[{script}]]")})).ok_json();
        assert_eq!(answer["model"], "gpt-image-2-2026-04-21", "{script}");
        assert_usage_recorded(
            &gateway.final_records(upstream.attempt_count()).pop().expect("a record"),
            &upstream.received_attempts().split_off(upstream.attempt_count() - 1),
            &answer,
        );
    }
}

#[test]
fn an_edit_passes_its_images_and_mask_byte_for_byte() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let images = [image_file(96, 64, "png"), image_file(80, 80, "jpeg"), image_file(64, 96, "webp")];
    let first = alpha_png(96, 64);
    let form =
        Form::with_required_fields().text("size", "1024x1024").file("image[]", &first).file("mask", &alpha_png(96, 64));
    let form = images.iter().fold(form, |form, image| form.file("image[]", image));
    let answer = gateway.edit(form).ok_json();
    let attempt = upstream.received_attempts().pop().expect("an attempt");
    assert_eq!(answer["data"][0]["b64_json"], attempt.images[0].as_str());
    assert_eq!(answer["usage"]["input_tokens_details"]["image_tokens"], 323);
    let body = attempt.json();
    assert_image_is_forced(&body, "gpt-5.5");
    let url = |format: &str, bytes: &[u8]| json!(format!("data:image/{format};base64,{}", STANDARD.encode(bytes)));
    let tool = &body["tools"][0];
    assert_eq!((&tool["action"], &tool["size"]), (&json!("edit"), &json!("1024x1024")));
    assert_eq!(tool["input_image_mask"]["image_url"], url("png", &first));
    let content = body["input"][0]["content"].as_array().expect("a list");
    assert_eq!(content.len(), 5);
    let sent = [("png", &first), ("png", &images[0]), ("jpeg", &images[1]), ("webp", &images[2])];
    for (part, (format, bytes)) in content[1..].iter().zip(sent) {
        assert_eq!(part["type"], "input_image");
        assert_eq!(part["image_url"], url(format, bytes));
    }
    assert_eq!(gateway.final_records(1)[0]["operation"], "edit_image");
}

#[test]
fn a_stream_has_the_events_of_the_image_endpoints() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    for script in ["", "reads=3", "tale=created,k,added,p,k,p,x,item,text,c", "tale=p,p,item,eof", "tale=p,p,item,cut"]
    {
        let fields = json!({"prompt": format!("a cube [[{script}]]"), "partial_images": 2, "size": "1024x640"});
        let events = gateway.stream(fields).remaining();
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        let partial = "image_generation.partial_image";
        assert_eq!(names, [partial, partial, "image_generation.completed"], "{script}");
        for (index, event) in events.iter().enumerate() {
            assert!(event.data["b64_json"] == attempt.images[index].as_str(), "image {index} was changed: {script}");
            assert_eq!((&event.data["type"], &event.data["size"]), (&json!(names[index]), &json!("1024x640")));
            assert!(event.data["created_at"].is_u64());
        }
        assert_eq!(
            (&events[0].data["partial_image_index"], &events[1].data["partial_image_index"]),
            (&json!(0), &json!(1))
        );
        let has_usage = !script.ends_with("eof") && !script.ends_with("cut");
        assert_eq!(
            events[2].data["usage"]["output_tokens"] == json!(196),
            has_usage,
            "{script}: {}",
            events[2].data["usage"]
        );
        let record = gateway.final_records(upstream.attempt_count()).pop().expect("a record");
        assert_eq!((&record["state"], &record["stream"]), (&json!("succeeded"), &json!(true)), "{script}");
    }
    let form = Form::with_required_fields()
        .text("stream", "true")
        .text("partial_images", "1")
        .file("image", &alpha_png(64, 64));
    let text = gateway.edit(form).text();
    for name in ["image_edit.partial_image", "image_edit.completed"] {
        assert_eq!(text.matches(&format!("event: {name}\n")).count(), 1, "{text:.300}");
    }
}

#[test]
fn the_account_sets_the_text_model() {
    let upstream = FakeUpstream::start();
    let account =
        Account::for_upstream("only", &upstream).with_responses_protocol().with_line("host_model = \"gpt-5.4-mini\"");
    let gateway = Gateway::with("", &[account]);
    gateway.generate(json!({})).ok_json();
    assert_image_is_forced(&upstream.received_attempts()[0].json(), "gpt-5.4-mini");
    let shown = gateway.run_command(&["config", "show"]);
    assert!(shown.ok_stdout().contains("host_model = \"gpt-5.4-mini\""), "{}", shown.ok_stdout());
}

#[test]
fn config_check_reports_an_invalid_text_model() {
    let check = |lines: &str, problem: &str| {
        let gateway = Gateway::simulated();
        let account = format!(
            "[[accounts]]\nname = \"a\"\nkind = \"api_key\"\nbase_url = \"https://a.example/v1\"\n\
             api_key = {{ env = \"PATH\" }}\n{lines}\n"
        );
        std::fs::write(gateway.config(), account).expect("a configuration");
        let done = gateway.run_command(&["config", "check"]);
        assert!(done.stderr.contains(problem), "{lines}: {}", done.stderr);
    };
    check("host_model = \"gpt-5.5\"", "`host_model` has no meaning for an account without the protocol \"responses\"");
    check("protocol = \"responses\"\nhost_model = \"gpt-image-2\"", "`host_model` must be a text model");
    check("protocol = \"responses\"\nhost_model = \"a b\"", "`host_model` must be the id of a text model");
}
