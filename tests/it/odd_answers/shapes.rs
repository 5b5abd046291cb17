//! The answers of the matrix.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::codings::{coded, gzip};
use super::{ExpectedOutcome, OddAnswer, OddProtocol};
use crate::kit::image_file;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers with status 200 that state no failure and have no image, and the reason.
const IMAGELESS: [(&str, &str); 34] = [
    ("{}", "no_image_data"),
    (r#"{"created":1,"data":null}"#, "no_image_data"),
    (r#"{"created":1,"data":[]}"#, "no_image_data"),
    (r#"{"created":1,"data":[{}]}"#, "no_image_data"),
    (r#"{"created":1,"data":""}"#, "no_image_data"),
    (r#"{"created":1,"data":{}}"#, "no_image_data"),
    (r#"{"created":1,"images":[]}"#, "no_image_data"),
    (r#"{"created":1,"data":[{"b64_json":null}]}"#, "no_image_data"),
    (r#"{"created":1,"data":[{"b64_json":""}]}"#, "no_image_data"),
    (r#"{"created":1,"data":[{"b64_json":"PGh0bWw+ZXJyb3I8L2h0bWw+"}]}"#, "no_image_data"),
    (
        r#"{"created":1,"data":[{"b64_json":"PCFET0NUWVBFIGh0bWw+PGh0bWw+PGhlYWQ+PHRpdGxlPjUwMiBCYWQgR2F0ZXdheTwvdGl0bGU+PC9oZWFkPjxib2R5PjwvYm9keT48L2h0bWw+"}]}"#,
        "no_image_data",
    ),
    (r#"{"created":1,"data":[{"b64_json":"eyJlcnJvciI6ImJ1c3kifQ=="}]}"#, "no_image_data"),
    (r#"{"success":true}"#, "no_image_data"),
    (r#"{"code":0,"message":"ok","data":{}}"#, "no_image_data"),
    (r#"{"status":"completed","output":[]}"#, "no_image_data"),
    (r#"{"data":[{"b64_json":"#, "no_image_data"),
    ("", "no_image_data"),
    ("null", "no_image_data"),
    ("[]", "no_image_data"),
    ("ok", "no_image_data"),
    ("Great, the image is being drawn.", "no_image_data"),
    ("<!doctype html><html><body>Welcome</body></html>", "no_image_data"),
    (r#"{"task_id":"t1","status":"queued"}"#, "async_upstream"),
    (r#"{"id":"job_1","status":"pending"}"#, "async_upstream"),
    (r#"{"id":"job_1","status":"in_progress"}"#, "async_upstream"),
    (r#"{"code":0,"data":{"task_id":"t1"}}"#, "async_upstream"),
    (r#"{"created":1,"data":[{"task_id":"t1","status":"submitted"}]}"#, "async_upstream"),
    (r#"{"data":[{"url":"https://files.example/x.png"}]}"#, "image_by_address"),
    (r#"{"data":["https://files.example/x.png"]}"#, "image_by_address"),
    (r#"{"images":[{"url":"https://files.example/x.png"}]}"#, "image_by_address"),
    (r#"{"data":{"url":"https://files.example/x.png"}}"#, "image_by_address"),
    (r#"{"output":["https://files.example/x.png"]}"#, "image_by_address"),
    (r#"{"image_url":"https://files.example/x.png"}"#, "image_by_address"),
    (r#"{"choices":[{"message":{"content":"Here: ![x](https://files.example/x.png)"}}]}"#, "image_by_address"),
];
/// Errors: the status, the body and the verdict.
const ERRORS: [(u16, &str, ExpectedOutcome); 6] = [
    (200, r#"{"error":{"message":"The server had an error.","type":"server_error"}}"#, ExpectedOutcome::Failed),
    (500, r#"{"error":{"message":"The server had an error.","type":"server_error"}}"#, ExpectedOutcome::Failed),
    (503, r#"{"error":{"message":"The server had an error.","type":"server_error"}}"#, ExpectedOutcome::Failed),
    (
        400,
        r#"{"error":{"message":"Your request was rejected by the safety system.","type":"image_generation_user_error","code":"moderation_blocked"}}"#,
        ExpectedOutcome::Refused,
    ),
    (
        200,
        r#"{"error":{"message":"Your request was rejected by the safety system.","type":"image_generation_user_error","code":"moderation_blocked"}}"#,
        ExpectedOutcome::Refused,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid quality.","type":"invalid_request_error","param":"quality","code":"invalid_value"}}"#,
        ExpectedOutcome::Rejected("quality"),
    ),
];

/// The bytes of an image whose base64 has letters of both alphabets, and padding.
fn image() -> Vec<u8> {
    let mut image = image_file(1024, 1024, "png").to_vec();
    image.extend([0xfb, 0xff, 0xfe, 0xfb, 0xef, 0xbe]);
    image.extend(vec![0; (4 - image.len() % 3) % 3]);
    assert_eq!(image.len() % 3, 1);
    image
}

fn usage() -> Value {
    json!({"input_tokens": 10, "output_tokens": 100, "total_tokens": 110,
           "input_tokens_details": {"text_tokens": 10, "image_tokens": 0}})
}

/// The answer of the contract.
pub(super) fn good(protocol: OddProtocol) -> OddAnswer {
    let base64 = STANDARD.encode(image());
    match protocol {
        OddProtocol::Images => {
            row(protocol, "good, usage", JSON, json!({"created": 1, "data": [{"b64_json": base64}], "usage": usage()}))
        }
        OddProtocol::Responses => {
            let item = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": base64});
            let response = json!({"id": "resp_1", "object": "response", "status": "completed", "output": [item]});
            let events = format!(
                "event: response.output_item.done\ndata: {}\n\nevent: response.completed\ndata: {}\n\n",
                json!({"type": "response.output_item.done", "item": item}),
                json!({"type": "response.completed", "response": response})
            );
            row(protocol, "good", EVENTS, events)
        }
    }
}

/// A row with status 200 whose image is delivered.
fn row(protocol: OddProtocol, name: impl Into<String>, content_type: &'static str, body: impl ToString) -> OddAnswer {
    let (name, body) = (name.into(), body.to_string().into_bytes());
    let verdict = ExpectedOutcome::Image(image());
    OddAnswer { name, protocol, status: 200, content_type, coding: None, body, verdict }
}

/// Every row, for plain and streamed requests alike.
pub(super) fn rows() -> Vec<OddAnswer> {
    let mut rows = Vec::new();
    for protocol in [OddProtocol::Images, OddProtocol::Responses] {
        rows.extend(common_images().into_iter().map(|(name, body)| row(protocol, name, JSON, body)));
        rows.extend(spelled_images(protocol));
        rows.extend(raw_images(protocol));
        rows.extend(IMAGELESS.map(|(body, reason)| imageless(protocol, body, reason)));
        rows.extend(errors(protocol));
        rows.extend(statuses(protocol));
        rows.extend(codings(protocol));
        rows.extend(unreadable_codings(protocol));
    }
    rows.extend(images_only());
    rows.extend(responses_only());
    rows
}

/// The shapes that are understood with both protocols.
fn common_images() -> Vec<(&'static str, Value)> {
    let base64 = STANDARD.encode(image());
    let url = format!("data:image/png;base64,{base64}");
    let chat = |message: Value| json!({"object": "chat.completion", "choices": [{"index": 0, "message": message}]});
    vec![
        ("data, b64_json", json!({"created": 1, "data": [{"b64_json": base64}]})),
        ("data, b64_json with prefix", json!({"data": [{"b64_json": url}]})),
        ("data, b64", json!({"data": [{"b64": base64}]})),
        ("data, base64", json!({"data": [{"base64": base64, "mime": "image/png"}]})),
        ("data, image_base64", json!({"data": [{"image_base64": base64}]})),
        ("data, image", json!({"data": [{"image": base64}]})),
        ("data, url", json!({"data": [{"url": url}]})),
        ("data, image_url", json!({"data": [{"image_url": {"url": url}}]})),
        ("data, texts", json!({"data": [base64]})),
        ("data, URLs", json!({"data": [url]})),
        ("data, text", json!({"data": base64})),
        ("data, URL", json!({"data": url})),
        ("data, object", json!({"data": {"b64_json": base64}})),
        ("data, images", json!({"success": true, "data": {"images": [{"b64_json": base64}]}})),
        ("images, b64_json", json!({"created": 1, "data": [], "images": [{"b64_json": base64}]})),
        ("images, texts", json!({"images": [base64]})),
        ("images, url", json!({"images": [{"url": url, "content_type": "image/png"}]})),
        ("image", json!({"image": base64})),
        ("image, object", json!({"image": {"data": base64}})),
        ("root b64_json", json!({"b64_json": base64})),
        ("root base64", json!({"base64": base64})),
        ("root image_base64", json!({"image_base64": base64})),
        ("result", json!({"result": {"image": base64}})),
        ("output, URLs", json!({"output": [url]})),
        ("artifacts", json!({"artifacts": [{"base64": base64, "finishReason": "SUCCESS"}]})),
        ("chat, images", chat(json!({"content": "", "images": [{"type": "image_url", "image_url": {"url": url}}]}))),
        ("chat, markdown", chat(json!({"content": format!("Here it is:\n\n![image]({url})\n\nEnjoy!")}))),
        ("chat, URL", chat(json!({"content": url}))),
        ("chat, parts", chat(json!({"content": [{"type": "image_url", "image_url": {"url": url}}]}))),
        ("an echo of the request", json!({"input": "data:image/png;base64,AAAA", "data": [{"b64_json": base64}]})),
    ]
}

/// The base64 of the documented place, written in other ways.
fn spelled_images(protocol: OddProtocol) -> Vec<OddAnswer> {
    let image = image();
    let whole = STANDARD.encode(&image);
    let lines = whole.as_bytes().chunks(76).map(String::from_utf8_lossy).collect::<Vec<_>>();
    let texts = [
        ("without padding", STANDARD_NO_PAD.encode(&image)),
        ("for URLs", URL_SAFE_NO_PAD.encode(&image)),
        ("in lines", lines.join("\\n")),
        ("in lines with returns", lines.join("\\r\\n")),
        ("with blanks", lines.join(" ")),
        ("with escapes", whole.replace('/', "\\/")),
        ("as a URL without padding", format!("data:image\\/png;base64,{}", STANDARD_NO_PAD.encode(&image))),
    ];
    let mut rows = Vec::new();
    for (name, text) in texts {
        let body = match protocol {
            OddProtocol::Images => format!("{{\"data\":[{{\"b64_json\":\"{text}\"}}]}}"),
            OddProtocol::Responses => format!(
                "{{\"object\":\"response\",\"status\":\"completed\",\"output\":[{{\"type\":\"image_generation_call\",\
                 \"status\":\"completed\",\"result\":\"{text}\"}}]}}"
            ),
        };
        rows.push(row(protocol, format!("base64 {name}"), JSON, &body));
        rows.push(row(protocol, format!("base64 {name}, after a mark"), TEXT, format!("\u{feff} \n{body}")));
        rows.push(row(
            protocol,
            format!("base64 {name}, in an event"),
            EVENTS,
            format!("data: {body}\n\ndata: [DONE]\n\n"),
        ));
    }
    rows
}

/// The bytes of an image as the body.
fn raw_images(protocol: OddProtocol) -> Vec<OddAnswer> {
    let mut rows = Vec::new();
    for format in ["png", "jpeg", "webp"] {
        for content_type in ["image/png", "application/octet-stream"] {
            let file = image_file(1024, 1024, format).to_vec();
            let verdict = ExpectedOutcome::Image(file.clone());
            let name = format!("raw {format} as {content_type}");
            rows.push(OddAnswer { name, protocol, status: 200, content_type, coding: None, body: file, verdict });
        }
    }
    rows
}

pub(super) fn imageless(protocol: OddProtocol, body: &str, reason: &'static str) -> OddAnswer {
    OddAnswer { verdict: ExpectedOutcome::Unknown(reason), ..row(protocol, format!("imageless {body}"), JSON, body) }
}

fn errors(protocol: OddProtocol) -> Vec<OddAnswer> {
    let error = |(status, body, verdict): (u16, &str, ExpectedOutcome)| {
        let plain = OddAnswer { status, verdict, ..row(protocol, format!("error {status} {body}"), JSON, body) };
        coded_rows(&plain, status != 503)
    };
    ERRORS.into_iter().flat_map(error).collect()
}

/// The row, and, if wanted, the row in every coding.
fn coded_rows(plain: &OddAnswer, is_coded: bool) -> Vec<OddAnswer> {
    let codings = if is_coded { coded(&plain.body) } else { Vec::new() };
    let coded = codings.into_iter().map(|(coding, body)| {
        let name = format!("{}, {coding}", plain.name);
        OddAnswer { name, coding: Some(coding), body, ..plain.clone() }
    });
    let mut rows: Vec<OddAnswer> = coded.collect();
    rows.push(plain.clone());
    rows
}

/// Every code of success, with an image, with a task, and with nothing.
fn statuses(protocol: OddProtocol) -> Vec<OddAnswer> {
    let mut rows = Vec::new();
    for status in [201, 202, 203, 206, 207, 299] {
        let good = good(protocol);
        rows.push(OddAnswer { name: format!("{status}, {}", good.name), status, ..good });
        for (body, reason) in [("{}", "no_image_data"), (r#"{"task_id":"t","status":"queued"}"#, "async_upstream")] {
            let imageless = imageless(protocol, body, reason);
            rows.push(OddAnswer { name: format!("{status}, {}", imageless.name), status, ..imageless });
        }
    }
    rows.push(OddAnswer { status: 204, ..imageless(protocol, "", "no_image_data") });
    rows
}

fn codings(protocol: OddProtocol) -> Vec<OddAnswer> {
    let base64 = STANDARD.encode(image());
    let image = raw_images(protocol).swap_remove(0);
    let answers = [
        good(protocol),
        image,
        row(
            protocol,
            "chat",
            JSON,
            json!({"choices": [{"message": {"content": format!("![](data:image/png;base64,{base64})")}}]}),
        ),
        imageless(protocol, r#"{"task_id":"t1"}"#, "async_upstream"),
        imageless(protocol, r#"{"data":[]}"#, "no_image_data"),
    ];
    answers.iter().flat_map(|answer| coded_rows(answer, true)).collect()
}

/// Codings that are not what they say, damaged, or unknown.
fn unreadable_codings(protocol: OddProtocol) -> Vec<OddAnswer> {
    let base64 = STANDARD.encode(image());
    let plain = || row(protocol, "plain", JSON, json!({"data": [{"b64_json": base64}]}));
    let mut rows = Vec::new();
    for coding in ["gzip", "br", "zstd", "deflate", "identity", "", "gzip, zstd"] {
        rows.push(OddAnswer { name: format!("not in {coding}"), coding: Some(coding), ..plain() });
    }
    for coding in ["compress", "x-unknown", "gzip, snappy", "gzip, gzip, gzip, gzip"] {
        let verdict = ExpectedOutcome::Unknown("unknown_coding");
        rows.push(OddAnswer { name: format!("unknown coding {coding}"), coding: Some(coding), verdict, ..plain() });
    }
    let mut damaged = gzip(b"{}");
    damaged[8] ^= 0xff;
    damaged.truncate(14);
    let verdict = ExpectedOutcome::Unknown("no_image_data");
    rows.push(OddAnswer { name: "damaged gzip".to_owned(), coding: Some("gzip"), body: damaged, verdict, ..plain() });
    rows
}

/// Answers that only an upstream of the image endpoints gives.
fn images_only() -> Vec<OddAnswer> {
    let (base64, protocol) = (STANDARD.encode(image()), OddProtocol::Images);
    let url = format!("data:image/png;base64,{base64}");
    let event = |data: Value| format!("data: {data}\n\ndata: [DONE]\n\n");
    let call = json!({"type": "image_generation_call", "status": "completed", "result": base64});
    let response = json!({"object": "response", "status": "completed", "output": [call]});
    let chunk = json!({"choices": [{"delta": {"images": [{"image_url": {"url": url}}]}}]});
    let part = json!({"choices": [{"delta": {"content": format!("![]({url}")}}]});
    let by_address =
        r#"{"data":[{"url":"https://files.example/x.png"}],"usage":"#.to_owned() + &usage().to_string() + "}";
    vec![
        row(
            protocol,
            "an event with the whole answer, usage",
            EVENTS,
            event(json!({"created": 1, "data": [{"b64_json": base64}], "usage": usage()})),
        ),
        row(protocol, "an event with data as texts", EVENTS, event(json!({"data": [base64]}))),
        row(protocol, "an event without a type", EVENTS, event(json!({"b64_json": base64}))),
        row(protocol, "an event with images", EVENTS, event(json!({"images": [{"b64_json": base64}]}))),
        row(protocol, "a chunk of a chat", EVENTS, event(chunk)),
        row(protocol, "a response", JSON, &response),
        row(
            protocol,
            "a response in an event",
            EVENTS,
            event(json!({"type": "response.completed", "response": response})),
        ),
        OddAnswer {
            verdict: ExpectedOutcome::Unknown("image_by_address"),
            ..row(protocol, "by address, usage", JSON, by_address)
        },
        OddAnswer {
            verdict: ExpectedOutcome::Unknown("no_image_data"),
            ..row(protocol, "a part of a chat", EVENTS, event(part))
        },
    ]
}

/// Answers that only an upstream of responses gives.
fn responses_only() -> Vec<OddAnswer> {
    let (base64, protocol) = (STANDARD.encode(image()), OddProtocol::Responses);
    let url = format!("data:image/png;base64,{base64}");
    let response = |item: Value| json!({"object": "response", "status": "completed", "output": [item]});
    let message =
        |part: Value| json!({"type": "message", "role": "assistant", "status": "completed", "content": [part]});
    let call = |result: Value| json!({"type": "image_generation_call", "status": "completed", "result": result});
    let items = [
        ("a URL as the result", call(json!(url))),
        ("an object as the result", call(json!({"b64_json": base64}))),
        ("a list as the result", call(json!([base64]))),
        ("an image in a message", message(json!({"type": "output_image", "image_url": url}))),
        ("base64 in a message", message(json!({"type": "output_image", "image_base64": base64}))),
        ("Markdown in a message", message(json!({"type": "output_text", "text": format!("![x]({url})")}))),
    ];
    let mut rows = Vec::new();
    for (name, item) in items {
        rows.push(row(protocol, name, JSON, response(item.clone())));
        let event = json!({"type": "response.completed", "response": response(item)});
        rows.push(row(protocol, format!("{name}, in an event"), EVENTS, format!("data: {event}\n\n")));
    }
    rows
}
