//! `POST /v1/images/edits`: both encodings, every spelling of the names, and the same bytes at the upstream.
//!
//! Module `large` tests limits, spool files and memory, `hostile` malformed forms, and `matrix` single fields.

mod hostile;
mod large;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kit::{
    Account, Answer, Attempt, Call, FakeUpstream, Form, Gateway, RefusingPort, alpha_png, format_and_size, image_file,
    sha256,
};

/// A data URL of these bytes, with the type PNG.
pub(crate) fn data_url(bytes: &[u8]) -> String {
    format!("data:image/png;base64,{}", STANDARD.encode(bytes))
}

/// Distinct images, so that a wrong order is detected.
fn distinct_images(count: u32) -> Vec<Arc<Vec<u8>>> {
    (1..=count).map(|number| image_file(64 + number, 64, ["png", "jpeg", "webp"][number as usize % 3])).collect()
}

/// The attempt must have these images in this order, and this mask.
#[track_caller]
fn check_files(attempt: &Attempt, images: &[Arc<Vec<u8>>], mask: Option<&[u8]>) {
    let found: Vec<_> = attempt.files().into_iter().map(|part| part.digest.clone()).collect();
    let expected: Vec<_> = images.iter().map(|image| sha256(image)).collect();
    assert_eq!(found, expected, "{} files of {}", found.len(), expected.len());
    assert_eq!(attempt.mask().map(|part| part.digest.clone()), mask.map(sha256));
    for part in &attempt.parts {
        if part.is_file() {
            // The gateway derives the name and the content type from the bytes.
            let format = format_and_size(&part.head).0;
            assert_eq!(part.content_type.as_deref(), Some(format!("image/{format}").as_str()));
            let name = part.filename.as_deref().expect("a file name");
            assert!(name.is_ascii() && !name.contains(['/', '\\', ':']), "{name}");
        }
    }
}

/// The body of an answer with status 200, which must have an image and usage.
#[track_caller]
fn check_answer(answer: &Answer) -> Value {
    let answer = answer.ok_json();
    let file = STANDARD.decode(answer["data"][0]["b64_json"].as_str().expect("base64")).expect("base64");
    format_and_size(&file);
    assert!(answer["usage"]["input_tokens_details"]["image_tokens"].is_u64(), "{}", answer["usage"]);
    answer
}

#[test]
fn every_spelling_of_the_names_reaches_the_upstream_in_the_order_of_the_parts() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let images = distinct_images(4);
    for names in [
        &["image"] as &[&str],
        &["image[]"],
        &["image[0]"],
        &["image[]", "image[]", "image[]"],
        &["image", "image"],
        &["image[0]", "image[1]", "image[2]"],
        &["image[2]", "image[0]", "image[1]"],
        &["image", "image[]", "image[0]", "image[7]"],
    ] {
        let files = names.iter().zip(&images);
        let form = files.fold(Form::with_required_fields(), |form, (name, image)| form.file(name, image));
        check_answer(&gateway.edit(form));
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        println!("{names:?}");
        assert_eq!((attempt.method.as_str(), attempt.path.as_str()), ("POST", "/v1/images/edits"));
        check_files(&attempt, &images[..names.len()], None);
    }
    let records = gateway.final_records(8);
    assert!(records.iter().all(|record| record["state"] == "succeeded" && record["operation"] == "edit_image"));
}

#[test]
fn the_order_of_fields_files_and_mask_is_free() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let (first, second, mask) = (alpha_png(64, 48), image_file(80, 80, "jpeg"), alpha_png(64, 48));
    let text = |form: Form| form.text("size", "1536x1024").text("prompt", "add a hat").text("model", "gpt-image-2");
    let files = |form: Form| form.file("image[]", &first).file("image[]", &second);
    for form in [
        files(text(Form::new())).file("mask", &mask),
        files(Form::new().file("mask", &mask))
            .text("prompt", "add a hat")
            .text("model", "gpt-image-2")
            .text("size", "1536x1024"),
        text(files(Form::new()).file("mask", &mask)),
        files(text(Form::new().file("mask", &mask))),
    ] {
        let answer = check_answer(&gateway.edit(form));
        assert_eq!(answer["size"], "1536x1024");
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        check_files(&attempt, &[Arc::clone(&first), Arc::clone(&second)], Some(&mask));
        let fields = attempt.fields();
        assert_eq!((&fields["prompt"], &fields["model"]), (&json!("add a hat"), &json!("gpt-image-2")));
    }
}

#[test]
fn part_headers_of_all_clients_are_accepted_and_not_trusted() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let image = image_file(64, 64, "webp");
    for headers in [
        "Content-Disposition: form-data; name=\"image\"; filename=\"upload\"\r\nContent-Type: application/octet-stream",
        "content-disposition: form-data; name=\"image[]\"; filename=\"blob\"\r\ncontent-type: image/png",
        "content-disposition: form-data; name=\"image\"",
        "content-disposition: form-data; name=image; filename=a.png",
        "content-disposition: form-data; filename=\"a.gif\"; name=\"image\"\r\ncontent-type: image/gif",
        "CONTENT-TYPE: text/plain; charset=utf-8\r\nCONTENT-DISPOSITION: form-data;name=\"image\";filename=\"a\"",
        "content-disposition: form-data; name=\"image\"; filename=\"\"\r\ncontent-type: image/webp",
        "content-disposition: form-data; name=\"image\"; filename=\"/usr/share/pictures/a.png\"",
        "content-disposition: form-data; name=\"image\"; filename=\"..\\\\..\\\\x\"; filename*=UTF-8''%2e%2e%2fx",
        "content-disposition: form-data; name=\"image\"; filename=\"é漢.png\"\r\nx-unknown: 1\r\ncontent-length: 5",
        "content-disposition: form-data; name=\"image\"; filename=\"a\\\"; name=\\\"mask.png\"",
    ] {
        let form = Form::with_required_fields().part(headers, [Arc::clone(&image)]);
        println!("{headers}");
        check_answer(&gateway.edit(form));
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        check_files(&attempt, &[Arc::clone(&image)], None);
    }
}

#[test]
fn text_parts_of_a_form_mean_the_same_as_json_fields() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let form = Form::with_required_fields()
        .file("image", &image_file(64, 64, "png"))
        .text("n", "2")
        .text("output_format", "jpeg");
    let form = form.text("output_compression", "80").text("output_compression", "80").text("background", "opaque");
    let form = form.text("moderation", "low").text("quality", "high").text("user", "u-1").text("stream", "false");
    let form =
        form.text("size", "").text("partial_images", "").text("response_format", "b64_json").text("input_fidelity", "");
    let answer = check_answer(&gateway.edit(form));
    assert_eq!(answer["data"].as_array().map(Vec::len), Some(2));
    let fields = upstream.received_attempts().pop().expect("an attempt").fields();
    for (name, value) in [
        ("n", json!(2)),
        ("output_format", json!("jpeg")),
        ("output_compression", json!(80)),
        ("background", json!("opaque")),
        ("moderation", json!("low")),
        ("quality", json!("high")),
        ("user", json!("u-1")),
    ] {
        assert_eq!(fields[name], value, "{name}");
    }
    for name in ["response_format", "input_fidelity"] {
        assert!(fields.get(name).is_none(), "{name} must not be sent upstream");
    }
    let record = &gateway.final_records(1)[0];
    assert_eq!((&record["n"], &record["end_user"], &record["quality"]), (&json!(2), &json!("u-1"), &json!("high")));
}

#[test]
fn the_safety_identifier_wins_over_user_in_a_form_and_in_json() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let image = image_file(64, 64, "png");
    let form = || Form::with_required_fields().file("image", &image).text("user", "hidden");
    check_answer(&gateway.edit(form().text("safety_identifier", "of-the-form")));
    check_answer(&gateway.edit(form().text("safety_identifier", "")));
    let both = json!({"images": [{"image_url": data_url(&image)}], "user": "hidden", "safety_identifier": "of-json"});
    check_answer(&gateway.edit_json(both));
    let expected = ["of-the-form", "hidden", "of-json"];
    for ((record, attempt), end_user) in gateway.final_records(3).iter().zip(upstream.received_attempts()).zip(expected)
    {
        let fields = attempt.fields();
        assert_eq!((&record["end_user"], &fields["user"]), (&json!(end_user), &json!(end_user)));
        assert!(fields.get("safety_identifier").is_none(), "only `user` is sent upstream");
    }
}

#[test]
fn json_with_data_urls_is_the_same_edit() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let (first, second, mask) = (alpha_png(96, 64), image_file(80, 80, "webp"), alpha_png(96, 64));
    let image = |bytes: &[u8]| json!({"image_url": data_url(bytes)});
    let answer = gateway.edit_json(json!({
        "images": [image(&first), image(&second)], "mask": image(&mask), "background": "opaque", "quality": "auto",
        "size": "auto", "n": 1, "user": "u-2",
    }));
    check_answer(&answer);
    check_files(&upstream.received_attempts()[0], &[Arc::clone(&first), Arc::clone(&second)], Some(&mask));
    assert_eq!(upstream.received_attempts()[0].user(), "u-2");
    // The media type of a data URL is ignored, as is the content type of a part. `null` means absent.
    for url in [
        data_url(&second),
        data_url(&second).replace("image/png", "image/webp"),
        data_url(&second).replace("image/png;", "image/png;name=a.png;"),
        data_url(&second).replace("data:image/png;base64", "DATA:image/png;BASE64"),
    ] {
        println!("{url:.60}");
        check_answer(&gateway.edit_json(json!({"images": [{"image_url": url, "file_id": null}], "mask": null})));
        check_files(&upstream.received_attempts().pop().expect("an attempt"), &[Arc::clone(&second)], None);
    }
    assert!(gateway.final_records(5).iter().all(|record| record["operation"] == "edit_image"));
}

#[test]
fn sixteen_images_are_taken_and_seventeen_are_not() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let images = distinct_images(17);
    let form = |count: usize| {
        images[..count].iter().fold(Form::with_required_fields(), |form, image| form.file("image[]", image))
    };
    check_answer(&gateway.edit(form(16)));
    check_files(&upstream.received_attempts()[0], &images[..16], None);
    let list =
        |count: usize| -> Value { images[..count].iter().map(|image| json!({"image_url": data_url(image)})).collect() };
    check_answer(&gateway.edit_json(json!({"images": list(16)})));
    check_files(&upstream.received_attempts()[1], &images[..16], None);
    for (answer, param) in [
        (gateway.edit(form(17)), "image[]"),
        (gateway.edit_json(json!({"images": list(17)})), "images"),
        (gateway.edit(Form::with_required_fields()), "image"),
        (gateway.edit_json(json!({"images": []})), "images"),
        (gateway.edit_json(json!({})), "images"),
    ] {
        let error = answer.error_object(400);
        let found = error["param"].as_str().unwrap_or_default();
        assert!(found == param || found == param.trim_end_matches("[]"), "expected {param}: {error}");
    }
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn a_second_account_gets_the_same_bytes() {
    for script in ["status=401", "status=429", "early status=401", "early status=429 body=usage-limit", "status=500"] {
        let upstream = FakeUpstream::start();
        upstream.always_for_token("sk-upstream-first", script);
        let accounts =
            [Account::for_upstream("first", &upstream), Account::for_upstream("second", &upstream).with_free_tier()];
        let gateway = Gateway::with("", &accounts);
        let (image, mask) = (crate::kit::stretched_png(64, 64, 6 << 20), alpha_png(64, 64));
        let form = Form::with_required_fields()
            .big_file("image[]", image.clone())
            .file("image[]", &image_file(70, 70, "jpeg"));
        println!("{script}");
        check_answer(&gateway.edit(form.file("mask", &mask).text("user", "u-1")));
        let attempts = upstream.received_attempts();
        assert_eq!(attempts.len(), 2, "{script}");
        let large_image = Arc::new(crate::kit::concat(&image));
        check_files(&attempts[1], &[large_image, image_file(70, 70, "jpeg")], Some(&mask));
        if !script.contains("early") {
            assert_eq!(attempts[0].parts, attempts[1].parts, "{script}");
        }
        assert_eq!(
            (attempts[0].token.as_str(), attempts[1].token.as_str()),
            ("sk-upstream-first", "sk-upstream-second")
        );
        let records = gateway.final_records(1);
        assert_eq!((records.len(), &records[0]["state"]), (1, &json!("succeeded")), "{script}");
    }
}

#[test]
fn an_edit_survives_a_refused_connection() {
    let upstream = FakeUpstream::start();
    // The port stays bound, because another test could bind a closed port.
    let closed = RefusingPort::new();
    let accounts = [
        Account::with_base_url("first", closed.base_url()),
        Account::for_upstream("second", &upstream).with_free_tier(),
    ];
    let gateway = Gateway::with("", &accounts);
    check_answer(&gateway.edit(Form::with_required_fields().file("image", &image_file(64, 64, "png"))));
    check_files(&upstream.received_attempts()[0], &[image_file(64, 64, "png")], None);
}

#[test]
fn the_simulator_serves_edits_and_their_streams() {
    let gateway = Gateway::simulated();
    let form = || {
        Form::with_required_fields()
            .file("image", &alpha_png(64, 64))
            .file("mask", &alpha_png(64, 64))
            .text("size", "1024x1024")
    };
    let answer = check_answer(&gateway.edit(form()));
    assert_eq!((&answer["size"], &answer["output_format"]), (&json!("1024x1024"), &json!("png")));
    let call = form().text("stream", "true").text("partial_images", "1").call().key(gateway.secret());
    let events = crate::kit::Events::from_reply(call.open(gateway.address()).expect("an answer")).remaining();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names.last(), Some(&"image_edit.completed"));
    assert!(names.len() <= 2, "{names:?}");
    let records = gateway.final_records(2);
    assert!(records.iter().all(|record| record["state"] == "succeeded" && record["operation"] == "edit_image"));
}

#[test]
fn a_wrong_key_or_content_type_is_refused_before_the_body_is_read() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let kind = "multipart/form-data; boundary=x";
    let wrong = Call::edit().key("sk-img-nonsense").header("content-type", kind).announcing_only(500 << 20);
    assert_eq!(wrong.send(gateway.address()).error_object(401)["code"], "INVALID_API_KEY");
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/mixed; boundary=x", "image/png"] {
        let call = Call::edit().key(gateway.secret()).header("content-type", kind).announcing_only(1 << 20);
        let answer = call.send(gateway.address());
        // The contract's "neither encoding is a 400" and the error table's 415 say the same to a caller.
        assert_eq!(answer.error_object(415)["code"], "unsupported_media_type", "{kind}");
    }
    assert_eq!(
        Call::edit().key(gateway.secret()).bytes("x").send(gateway.address()).error_object(415)["param"],
        Value::Null
    );
    assert_eq!(upstream.accepted(), 0);
}
