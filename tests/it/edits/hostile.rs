//! Malformed and hostile forms: each is refused before the upstream is called, or its bytes are forwarded exactly.

use std::sync::Arc;

use crate::kit::{Call, FakeUpstream, Form, Gateway, alpha_png, eventually, image_file, sha256};

fn image() -> Arc<Vec<u8>> {
    image_file(64, 64, "png")
}

/// An edit with this content type and body.
fn raw(gateway: &Gateway, content_type: &str, body: impl Into<Vec<u8>>) -> Call {
    Call::edit().key(gateway.secret()).header("content-type", content_type).bytes(body)
}

/// A valid form with the boundary `x` and an image. `end` ends each line, and `tail` follows the last boundary.
fn form_body(end: &str, tail: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in [("model", "gpt-image-2"), ("prompt", "a red cube")] {
        body.extend(format!("--x{end}content-disposition: form-data; name=\"{name}\"{end}{end}{value}{end}").bytes());
    }
    body.extend(format!("--x{end}content-disposition: form-data; name=\"image\"{end}{end}").bytes());
    body.extend(image().iter());
    body.extend(format!("{end}--x{tail}").bytes());
    body
}

#[test]
fn a_malformed_form_is_a_400_without_an_upstream_call() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let good = form_body("\r\n", "--\r\n");
    let mut calls: Vec<(&str, Call)> = [
        ("no boundary parameter", "multipart/form-data", good.clone()),
        ("an empty boundary", "multipart/form-data; boundary=", good.clone()),
        ("an empty quoted boundary", "multipart/form-data; boundary=\"\"", good.clone()),
        ("another boundary", "multipart/form-data; boundary=y", good.clone()),
        ("no final boundary", "multipart/form-data; boundary=x", form_body("\r\n", "\r\n")),
        ("cut inside the boundary", "multipart/form-data; boundary=x", form_body("\r\n", "")),
        ("line feeds only", "multipart/form-data; boundary=x", form_body("\n", "--\n")),
        ("an empty body", "multipart/form-data; boundary=x", Vec::new()),
        ("only the end", "multipart/form-data; boundary=x", b"--x--\r\n".to_vec()),
        ("no form at all", "multipart/form-data; boundary=x", b"{\"model\":\"gpt-image-2\"}".to_vec()),
    ]
    .map(|(name, kind, body)| (name, raw(&gateway, kind, body)))
    .into();
    let long = "b".repeat(300);
    calls.push((
        "a boundary of 300 characters",
        raw(&gateway, &format!("multipart/form-data; boundary={long}"), good.clone()),
    ));
    let form = Form::with_required_fields;
    let with = |form: Form| form.file("image", &image()).call().key(gateway.secret());
    let empty: [Arc<Vec<u8>>; 0] = [];
    calls.extend([
        ("a part without a name", with(form().part("content-disposition: form-data", empty.clone()))),
        ("a part without headers", with(form().part("x-nothing: 1", empty.clone()))),
        ("a part header of 1 MB", with(form().part(&format!("x: {}", "y".repeat(1 << 20)), empty.clone()))),
        ("a thousand part headers", with(form().part(&"x: y\r\n".repeat(1000), empty))),
        (
            "text that is no UTF-8",
            with(form().part("content-disposition: form-data; name=\"user\"", [Arc::new(vec![0xff, 0xfe])])),
        ),
        ("two different prompts", with(form().text("prompt", "another"))),
        ("two different sizes", with(form().text("size", "1024x1024").text("size", "1536x1024"))),
        ("two masks", with(form().file("mask", &alpha_png(64, 64)).file("mask", &alpha_png(64, 64)))),
        (
            "a nested form",
            with(form().part(
                "content-disposition: form-data; name=\"files\"\r\ncontent-type: multipart/mixed; boundary=z",
                [image()],
            )),
        ),
    ]);
    let mut faults = Vec::new();
    for (name, call) in calls {
        let answer = call.send(gateway.address());
        if answer.status != 400 || answer.json()["error"]["code"] != "invalid_request_error" {
            faults.push(format!("{name}: {} {:.200}", answer.status, answer.text()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(upstream.accepted(), 0);
    assert_eq!(gateway.records().len(), 0);
}

#[test]
fn a_flood_of_parts_is_refused_with_bounded_memory() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    gateway.edit(Form::with_required_fields().file("image", &image())).ok_json();
    gateway.server().reset_peak();
    let before = gateway.server().peak_bytes();
    let empty: [Arc<Vec<u8>>; 0] = [];
    let part =
        |form: Form, name: &str| form.part(&format!("content-disposition: form-data; name=\"{name}\""), empty.clone());
    let parts = (0..50_000).fold(Form::with_required_fields(), |form, number| part(form, &format!("f{number}")));
    let users = (0..50_000).fold(Form::with_required_fields(), |form, _| part(form, "user"));
    let long = Form::with_required_fields()
        .part("content-disposition: form-data; name=\"prompt\"", [Arc::new(vec![b'x'; 40 << 20])]);
    for form in [parts, users, long] {
        let (_, answer) =
            form.file("image", &image()).call().key(gateway.secret()).upload(gateway.address()).expect("an answer");
        assert!([400, 413].contains(&answer.status), "{:.300}", answer.text());
        answer.error_object(answer.status);
    }
    let rise = gateway.server().peak_bytes().saturating_sub(before);
    assert!(rise < 32 << 20, "{rise} bytes");
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn boundary_like_bytes_in_a_file_belong_to_the_file() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for inside in
        ["--x", "\n--x\r\n", "\r\n--", "\r\n-x--", "\r--x--\r\n", "\r\n--\r\n--", "\r\r\n-", "\r\n\r\n--y--\r\n"]
    {
        let mut file = image().to_vec();
        // The bytes follow the end of the PNG. Most image decoders ignore them; a strict decoder may refuse the image.
        file.extend(inside.bytes());
        let mut body = form_body("\r\n", "\r\n");
        let start = memchr::memmem::find(&body, &image()).expect("the image");
        body.truncate(start);
        body.extend(&file);
        body.extend(b"\r\n--x--\r\n");
        for size in [usize::MAX, 1, 7] {
            let call = raw(&gateway, "multipart/form-data; boundary=x", body.clone());
            let answer = if size == usize::MAX { call } else { call.in_chunks_of(size) }.send(gateway.address());
            if answer.status == 200 {
                assert_eq!(
                    upstream.received_attempts().pop().expect("an attempt").files()[0].digest,
                    sha256(&file),
                    "{inside:?}"
                );
            } else {
                assert_eq!(answer.error_object(400)["param"], "image", "{inside:?}");
            }
        }
    }
}

#[test]
fn a_valid_form_is_read_in_chunks_of_any_size() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let body = form_body("\r\n", "--\r\n");
    let kinds = [
        "multipart/form-data; boundary=x",
        "multipart/form-data; boundary=\"x\"",
        "Multipart/Form-Data; charset=utf-8; Boundary=x",
        "multipart/form-data;boundary=x; foo=bar",
    ];
    for kind in kinds {
        println!("{kind}");
        raw(&gateway, kind, body.clone()).send(gateway.address()).ok_json();
    }
    for size in [1, 2, 3, 13, 63, 64, 65, 4096] {
        raw(&gateway, kinds[0], body.clone()).in_chunks_of(size).send(gateway.address()).ok_json();
    }
    let decorated = [b"a preamble\r\n".to_vec(), form_body("\r\n", "--\r\nan epilogue")].concat();
    raw(&gateway, kinds[0], decorated).send(gateway.address()).ok_json();
    // Some clients omit the last line break.
    raw(&gateway, kinds[0], form_body("\r\n", "--")).send(gateway.address()).ok_json();
    for attempt in upstream.received_attempts() {
        assert_eq!(attempt.files()[0].digest, sha256(&image()));
        assert_eq!(attempt.fields()["prompt"], "a red cube");
    }
    gateway.final_records(14);
}

#[test]
fn an_interrupted_upload_leaves_no_job() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let form = Form::with_required_fields().big_file("image", crate::kit::stretched_png(64, 64, 3 << 20));
    for _ in 0..8 {
        drop(form.clone().unfinished().header("x-cut", "1").key(gateway.secret()).dispatch(gateway.address()));
    }
    gateway.edit(Form::with_required_fields().file("image", &image())).ok_json();
    assert_eq!(upstream.attempt_count(), 1, "an incomplete form must not become a job");
    eventually("only the complete request is recorded", || (gateway.records().len() == 1).then_some(()));
}

#[test]
fn file_names_of_callers_are_not_used() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let before = paths_below_home(&gateway);
    for name in [
        "../../escape.png",
        "/tmp/escape.png",
        "a\\r\\nx-injected: 1",
        "C:\\\\escape.png",
        "file-name-canary",
        &"n".repeat(4000),
    ] {
        let headers = format!("content-disposition: form-data; name=\"image\"; filename=\"{name}\"");
        let answer = gateway.edit(Form::with_required_fields().part(&headers, [image()]));
        if answer.status != 200 {
            answer.error_object(400);
            continue;
        }
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        assert!(!format!("{attempt:?}").contains("canary") && !format!("{:?}", attempt.parts).contains("escape"));
        assert_eq!(attempt.header("x-injected"), None);
    }
    assert!(!gateway.output().contains("canary"));
    assert_eq!(paths_below_home(&gateway), before);
}

/// The paths of all files and folders below the gateway's home folder, sorted.
pub(super) fn paths_below_home(gateway: &Gateway) -> Vec<String> {
    fn walk(folder: &std::path::Path, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, names);
            }
            names.push(path.display().to_string());
        }
    }
    let mut names = Vec::new();
    walk(gateway.home(), &mut names);
    // SQLite creates and deletes these files beside the database at any time.
    names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm") && !name.ends_with("-journal"));
    names.sort();
    names
}

#[test]
fn malformed_json_is_refused() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for body in [
        String::new(),
        "[]".to_owned(),
        "[".repeat(200_000),
        "{\"images\":".repeat(100_000),
        "{\"model\":\"gpt-image-2\",\"prompt\":\"a\",\"images\":[{\"image_url\":\"data:image/png;base64,".to_owned(),
    ] {
        let answer = raw(&gateway, "application/json", body).send(gateway.address());
        let error = answer.error_object(400);
        assert_eq!(error["code"], "invalid_request_error", "{error}");
        assert!(error["param"].is_null() || error["param"] == "images", "{error}");
    }
    assert_eq!(upstream.accepted(), 0);
}
