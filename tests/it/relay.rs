//! The relay of answers with images: constant memory, unchanged image bytes, missing fields filled in, and a truncated
//! answer that never looks complete.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kit::{FakeUpstream, Gateway, PEAK_BYTES, base64_filler, heavy_test_lock};

/// The number of base64 characters of one image.
const IMAGE_CHARS: usize = 14_000_000;
const CALLERS: usize = 64;

/// Reads a huge answer in chunks, and compares every byte of the image with what the upstream sent.
fn read_huge(gateway: &Gateway, user: usize) {
    let prompt = format!(
        "a wide valley [[b64={IMAGE_CHARS} framing={}]]",
        if user.is_multiple_of(2) { "length" } else { "chunked" }
    );
    let call = gateway.call(json!({"prompt": prompt, "size": "3840x2160", "user": format!("u-{user}")}));
    let mut reply = call.open(gateway.address()).expect("an answer");
    assert_eq!(reply.status, 200);
    let mut head = Vec::new();
    while !head.ends_with(b"\"b64_json\":\"") {
        let mut byte = [0];
        reply.read_exact(&mut byte).expect("a head with an image");
        head.push(byte[0]);
    }
    let mut buffer = vec![0; 1 << 17];
    for chunk in base64_filler(IMAGE_CHARS) {
        let received = &mut buffer[..chunk.len()];
        reply.read_exact(received).expect("the image");
        assert!(received == chunk.as_slice(), "the image was changed");
    }
    let remaining = reply.finish().expect("the end of the body");
    assert!(remaining.complete);
    let without_image = [head.as_slice(), remaining.body.as_slice()].concat();
    let json: Value = serde_json::from_slice(&without_image).expect("JSON around the image");
    assert_eq!((&json["data"][0]["b64_json"], &json["size"]), (&json!(""), &json!("3840x2160")));
    assert!(json["usage"]["total_tokens"].is_u64());
}

#[test]
fn sixty_four_parallel_huge_images_take_little_memory() {
    let _guard = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    gateway.generate(json!({})).ok_json();
    gateway.server().reset_peak();
    std::thread::scope(|scope| {
        for user in 0..CALLERS {
            let gateway = &gateway;
            scope.spawn(move || read_huge(gateway, user));
        }
    });
    let peak = gateway.server().peak_bytes();
    println!("peak resident memory with {CALLERS} images of {IMAGE_CHARS} characters: {:.1} MB", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let records = gateway.final_records(CALLERS + 1);
    assert_eq!(records.len(), CALLERS + 1);
    assert!(records.iter().all(|record| record["state"] == "succeeded"));
    assert_eq!(records[CALLERS]["delivered"], json!([{"size": "3840x2160", "output_format": "png", "quality": "low"}]));
}

#[test]
fn a_body_that_breaks_in_the_image_never_looks_complete() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let mut sent = 0;
    for image in ["b64=2000000", "b64=2000000 shape=usage-first", ""] {
        for cut in [
            "cut=50%",
            "cut=50% framing=chunked",
            "cut=50% how=reset",
            "cut=50% framing=close",
            "lack=50%",
            "lack=50% framing=chunked",
            "cut=99%",
        ] {
            let answer = gateway.scripted(&format!("{image} {cut}"));
            sent += 1;
            let looks_complete = answer.status == 200 && answer.complete;
            assert!(!looks_complete, "{image} {cut}: a complete 200 of {} bytes", answer.body.len());
            if answer.status != 200 {
                assert_eq!(answer.error_object(502)["code"], "upstream_error", "{cut}");
            }
        }
    }
    let records = gateway.final_records(sent);
    assert_eq!((records.len(), upstream.attempt_count()), (sent, sent));
    for record in records {
        assert_eq!(
            (&record["state"], &record["error_code"]),
            (&json!("interrupted"), &json!("upstream_error")),
            "{record}"
        );
    }
}

#[test]
fn an_answer_that_breaks_after_its_image_is_not_complete() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    // The image is complete; only the last bytes of the JSON are missing.
    for missing in [1, 2, 20, 100] {
        for framing in ["length", "chunked", "close"] {
            let answer = gateway.scripted(&format!("b64=400000 lack={missing} framing={framing}"));
            assert!(answer.status == 502 || !answer.complete, "{missing} bytes are missing, {framing}");
        }
    }
}

#[test]
fn an_answer_without_an_image_is_the_502_of_the_contract() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in [
        "data=empty",
        "data=null",
        "data=blank",
        "data=missing",
        "data=none",
        "body=html",
        "body=text",
        "body=none",
        "clip=20",
        "clip=1",
        "body=html type=application/json",
        "data=empty shape=usage-first",
        "data=null shape=pretty",
        "data=empty framing=chunked drip",
        "body=error",
        "body=html framing=close",
        "cut=20",
        "cut=20 framing=chunked",
    ] {
        let answer = gateway.scripted(script);
        let error = answer.error_object(502);
        let expected =
            (&json!("Upstream request failed"), &json!("upstream_error"), &json!("upstream_error"), &Value::Null);
        assert_eq!((&error["message"], &error["type"], &error["code"], &error["param"]), expected, "{script}");
        // With an error object in a 200, the upstream states that it made no image, so a retry is allowed.
        assert!(script == "body=error" || answer.should_retry() == Some("false"), "{script}: {:?}", answer.headers);
        assert!(!answer.text().contains("<html"), "{script}");
    }
}

#[test]
fn images_pass_unchanged_in_every_shape_of_json() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for shape in [
        "shape=pretty",
        "shape=spaced",
        "shape=usage-first",
        "shape=nested",
        "drip",
        "framing=chunked",
        "framing=chunked drip",
        "framing=close",
        "revised=escapes",
        "shape=usage-first drip",
    ] {
        for format in ["png", "jpeg", "webp"] {
            let fields =
                json!({"prompt": format!("a cube [[{shape}]]"), "output_format": format, "n": 2, "quality": "medium"});
            let answer = gateway.generate(fields).ok_json();
            let sent = upstream.received_attempts().pop().expect("an attempt");
            let data = answer["data"].as_array().expect("data");
            assert_eq!(data.len(), 2, "{shape}");
            for (image, original) in data.iter().zip(&sent.images) {
                assert_eq!(image["b64_json"].as_str(), Some(original.as_str()), "{shape} {format}");
                assert!(image["revised_prompt"].as_str().is_some_and(|text| !text.is_empty()), "{shape}");
                STANDARD.decode(original).expect("base64");
            }
            assert_eq!(Some(&answer["usage"]), sent.usage.as_ref(), "{shape}");
            assert_eq!((&answer["output_format"], &answer["quality"]), (&json!(format), &json!("medium")), "{shape}");
            assert!(answer.get("x_data").is_none() || shape == "shape=nested");
        }
    }
    let records = gateway.final_records(30);
    let total = |record: &Value| record["usage"]["total_tokens"].clone();
    for (record, attempt) in records.iter().zip(upstream.received_attempts()) {
        assert_eq!(record["usage"], attempt.usage.expect("usage"), "{}", total(record));
    }
}

#[test]
fn fields_that_the_upstream_leaves_out_are_filled_in() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let base_fields =
        json!({"model": "gpt-image-2-2026-04-21", "size": "1536x1024", "quality": "high", "output_format": "webp"});
    for script in [
        "omit=model",
        "omit=quality",
        "omit=size",
        "omit=output_format",
        "omit=background",
        "omit=created",
        "omit=model,quality,size,output_format,background,created",
        "omit=model,quality,size,output_format,background,created shape=pretty",
        "omit=model,quality,size,output_format,background,created shape=usage-first",
        "auto=quality,size,background",
        "auto=quality,background shape=usage-first drip",
        "revised=none",
        "omit=model,size revised=none framing=chunked",
    ] {
        let mut fields = base_fields.clone();
        fields["prompt"] = json!(format!("a \"cube\" \\ é [[{script}]]"));
        let answer = gateway.generate(fields.clone()).ok_json();
        for (field, expected) in [
            ("model", "gpt-image-2-2026-04-21"),
            ("size", "1536x1024"),
            ("quality", "high"),
            ("output_format", "webp"),
            ("background", "opaque"),
        ] {
            assert_eq!(answer[field], expected, "{script}: {field}");
        }
        assert!(
            answer["created"].as_u64().is_some_and(|created| created > 1_700_000_000 && created <= u64::from(u32::MAX)),
            "{script}"
        );
        if script.contains("revised=none") {
            assert_eq!(answer["data"][0]["revised_prompt"], fields["prompt"], "{script}");
        }
    }
}

#[test]
fn automatic_values_are_resolved_from_the_image_itself() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in ["size=1254x1254 omit=size,quality", "size=1254x1254 auto=size,quality,background"] {
        let fields =
            json!({"prompt": format!("a cube [[{script}]]"), "size": "auto", "quality": "auto", "background": "auto"});
        let answer = gateway.generate(fields).ok_json();
        assert_eq!((&answer["size"], &answer["background"]), (&json!("1254x1254"), &json!("opaque")), "{script}");
        assert_eq!(answer.get("quality"), None, "neither the request nor the upstream names a quality: {script}");
    }
    for record in gateway.final_records(2) {
        let delivered = json!([{"size": "1254x1254", "output_format": "png"}]);
        assert_eq!((&record["size"], &record["delivered"]), (&json!("auto"), &delivered), "{record}");
    }
}

#[test]
fn the_model_and_quality_of_the_upstream_are_returned_and_recorded() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let named = "gpt-image-2-2026-04-21";
    let fields = json!({"prompt": format!("a cube [[model={named}]]"), "quality": "auto", "n": 2});
    let answer = gateway.generate(fields).ok_json();
    assert_eq!((&answer["model"], &answer["quality"]), (&json!(named), &json!("low")));
    gateway.generate(json!({"prompt": "a cube [[omit=model,quality]]", "quality": "high"})).ok_json();
    let records = gateway.final_records(2);
    for (record, asked, model, delivered_quality) in
        [(&records[0], "auto", named, "low"), (&records[1], "high", "gpt-image-2", "high")]
    {
        assert_eq!(
            (&record["model"], &record["quality"]),
            (&json!("gpt-image-2"), &json!(asked)),
            "the record must have the requested values"
        );
        assert_eq!((&record["image_model"], &record["host_model"]), (&json!(model), &Value::Null), "{record}");
        assert!(
            record["delivered"]
                .as_array()
                .is_some_and(|images| images.iter().all(|image| image["quality"] == delivered_quality))
        );
    }
}

#[test]
fn fewer_images_than_asked_for_are_recorded_as_missing() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for (script, delivered, missing) in
        [("images=1", 1, json!(2)), ("images=3", 3, Value::Null), ("images=5", 3, Value::Null)]
    {
        let answer = gateway.generate(json!({"prompt": format!("a cube [[{script}]]"), "n": 3}));
        assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(delivered), "{script}");
        // The headers are sent with the first image, when the number of images is still unknown.
        assert_eq!(answer.header("x-imagate-missing"), None, "{script}");
        let record = gateway.final_records(upstream.attempt_count()).pop().expect("a record");
        assert_eq!((&record["missing"], &record["state"]), (&missing, &json!("succeeded")), "{script}: {record}");
    }
}

#[test]
fn another_size_or_format_than_asked_is_delivered_and_recorded() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let fields =
        json!({"prompt": "a cube [[size=1024x1024 format=jpeg]]", "size": "2048x2048", "output_format": "png"});
    gateway.generate(fields).ok_json();
    let record = &gateway.final_records(1)[0];
    assert_eq!((&record["size"], &record["output_format"]), (&json!("2048x2048"), &json!("png")));
    assert_eq!(record["delivered"], json!([{"size": "1024x1024", "output_format": "jpeg", "quality": "low"}]));
}

#[test]
fn odd_usage_neither_costs_the_image_nor_corrupts_the_record() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let usages = ["none", "null", "zero", "negative", "float", "text", "huge", "partial", "list"];
    for usage in usages {
        for shape in ["", "shape=usage-first"] {
            let answer = gateway.scripted(&format!("usage={usage} {shape}")).ok_json();
            let sent = upstream.received_attempts().pop().expect("an attempt");
            assert_eq!(answer["data"][0]["b64_json"].as_str(), Some(sent.images[0].as_str()), "{usage}");
        }
    }
    for record in gateway.final_records(usages.len() * 2) {
        assert_eq!(record["state"], "succeeded", "{record}");
        let tokens = &record["usage"]["total_tokens"];
        assert!(tokens.is_null() || tokens.is_u64(), "{record}");
    }
}

#[test]
fn surplus_images_of_the_upstream_are_not_delivered() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let answer = gateway.generate(json!({"prompt": "a cube [[extra=2]]", "n": 2})).ok_json();
    assert_eq!(answer["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(gateway.final_records(1)[0]["delivered"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_plain_body_labelled_as_compressed_is_readable_or_a_502() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let answer = gateway.scripted("label=gzip");
    assert_eq!(answer.header("content-encoding"), None);
    if answer.status == 200 {
        assert!(answer.ok_json()["data"][0]["b64_json"].is_string());
    } else {
        answer.error_object(502);
    }
}

#[test]
fn a_coding_that_is_no_compression_is_accepted() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for label in ["label=identity", "label=Identity", "label="] {
        gateway.scripted(label).ok_json();
    }
}

#[test]
fn headers_of_the_upstream_are_not_passed_on() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let answer = gateway.scripted("");
    for header in ["set-cookie", "openai-organization", "x-imagate-simulated"] {
        assert_eq!(answer.header(header), None, "{header}");
    }
    assert!(!answer.header("x-request-id").expect("an id").starts_with("req_upstream"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[test]
fn a_slow_reader_gets_the_complete_answer() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let mut reply =
        gateway.call(json!({"prompt": "a cube [[b64=6000000]]"})).open(gateway.address()).expect("an answer");
    let mut body = Vec::new();
    let mut buffer = [0; 4096];
    while body.len() < 200_000 {
        let received = reply.read(&mut buffer).expect("bytes");
        body.extend_from_slice(&buffer[..received]);
        std::thread::yield_now();
    }
    let remaining = reply.finish().expect("the end of the body");
    assert!(remaining.complete);
    body.extend(remaining.body);
    let json: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(json["data"][0]["b64_json"].as_str().map(str::len), Some(6_000_000));
}

#[test]
fn an_http_1_0_caller_gets_a_complete_answer_or_an_error() {
    use std::io::Write as _;
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for (script, status) in [("a cube [[b64=3000000 cut=80%]]", "502"), ("a cube [[b64=3000000]]", "200")] {
        let body = json!({"model": "gpt-image-2", "prompt": script}).to_string();
        let (secret, length) = (gateway.secret(), body.len());
        let mut stream = std::net::TcpStream::connect(gateway.address()).expect("a connection");
        write!(stream, "POST /v1/images/generations HTTP/1.0\r\nauthorization: Bearer {secret}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
            .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert_eq!(head.split(' ').nth(1), Some(status), "{script}: {head}");
        assert!(head.to_ascii_lowercase().contains(&format!("content-length: {}", body.len())), "{script}: {head}");
        assert!(serde_json::from_str::<Value>(body).is_ok(), "{script}: the body is not complete JSON");
    }
}
