//! Large uploads: exact limits, refusal as soon as a limit is exceeded, bounded memory, and no file left on disk.

use std::sync::Arc;

use serde_json::{Value, json};

use super::hostile::paths_below_home;
use crate::kit::{
    Account, Answer, Call, FakeUpstream, Form, Gateway, Pieces, alpha_png, heavy_test_lock, stretched_png,
};

/// An image or a mask must have fewer bytes than this.
const LIMIT: usize = 52_428_800;
/// The number of bytes that the socket buffers of both sides may hold.
const IN_FLIGHT: u64 = 16 << 20;
/// The bound of resident memory, in bytes, during four edits of sixteen images of 49 MB.
const PEAK_BYTES: u64 = 256 << 20;

#[track_caller]
fn check_too_large(answer: &Answer, param: &str) {
    let error = answer.error_object(413);
    let expected = (&json!("invalid_request_error"), &json!("request_too_large"), &json!(param));
    assert_eq!((&error["type"], &error["code"], &error["param"]), expected, "{error}");
    assert_eq!(answer.should_retry(), Some("false"));
}

#[test]
fn the_size_limit_of_images_and_masks_is_exact() {
    let _lock = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let image = || Form::with_required_fields().file("image[]", &alpha_png(64, 64));
    for (length, param) in [(LIMIT - 1, None), (LIMIT, Some("image")), (LIMIT + 1, Some("image"))] {
        let form = Form::with_required_fields().big_file("image", stretched_png(64, 64, length));
        check_upload(&gateway, &upstream, form, length, param);
    }
    for (length, param) in [(LIMIT - 1, None), (LIMIT, Some("mask")), (LIMIT + 1, Some("mask"))] {
        let form = image().big_file("mask", stretched_png(64, 64, length));
        check_upload(&gateway, &upstream, form, length, param);
    }
    // An error names the second of two images, and a mask that comes first.
    check_upload(
        &gateway,
        &upstream,
        image().big_file("image[1]", stretched_png(64, 64, LIMIT)),
        LIMIT,
        Some("image[1]"),
    );
    let first =
        Form::with_required_fields().big_file("mask", stretched_png(64, 64, LIMIT)).file("image", &alpha_png(64, 64));
    check_upload(&gateway, &upstream, first, LIMIT, Some("mask"));
    assert_eq!(upstream.attempt_count(), 2);
}

/// Uploads the form. If `param` is given, the form must be refused with a 413 that names it.
#[track_caller]
fn check_upload(gateway: &Gateway, upstream: &FakeUpstream, form: Form, length: usize, param: Option<&str>) {
    println!("{length} {param:?}");
    let (_, answer) = form.call().key(gateway.secret()).upload(gateway.address()).expect("an answer");
    let Some(param) = param else {
        answer.ok_json();
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        assert!(attempt.parts.iter().any(|part| part.length == length as u64), "the whole file must be sent upstream");
        return;
    };
    check_too_large(&answer, param);
}

#[test]
fn a_file_is_refused_as_soon_as_it_is_too_large() {
    let _lock = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let names = paths_below_home(&gateway);
    for (name, before) in [("image", 0), ("mask", 1), ("image[]", 3)] {
        let form = (0..before).fold(Form::with_required_fields(), |form, _| form.file("image[]", &alpha_png(64, 64)));
        let form = form.big_file(name, stretched_png(64, 64, 400 << 20));
        let (sent, answer) = form.call().key(gateway.secret()).upload(gateway.address()).expect("an answer");
        println!("{name}: {sent} bytes were sent");
        check_too_large(&answer, name);
        assert!(sent >= LIMIT as u64 && sent < LIMIT as u64 + IN_FLIGHT, "{name}: {sent} bytes were sent");
    }
    assert_eq!(upstream.accepted(), 0);
    assert_eq!(paths_below_home(&gateway), names);
}

#[test]
fn a_request_over_the_sum_of_limits_is_refused_when_announced() {
    let gateway = Gateway::simulated();
    let kind = "multipart/form-data; boundary=x";
    for length in [20 * LIMIT as u64, u64::MAX / 2] {
        let call = Call::edit().key(gateway.secret()).header("content-type", kind).announcing_only(length);
        assert_eq!(call.send(gateway.address()).error_object(413)["code"], "request_too_large");
    }
}

#[test]
fn the_length_limit_of_a_data_url_is_exact() {
    let _lock = heavy_test_lock();
    const LONGEST: usize = 20_971_520;
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let head = "data:image/png;base64,";
    // The length of base64 is a multiple of four, so the media type is extended to get the exact length.
    let url = |length: usize| {
        let available = length - head.len();
        let (quartets, padding) = (available / 4, available % 4);
        let file = crate::kit::concat(&stretched_png(64, 64, quartets * 3));
        let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, file);
        format!("data:image/png{};base64,{base64}", "x".repeat(padding))
    };
    let ask = |length: usize| gateway.edit_json(json!({"images": [{"image_url": url(length)}]}));
    ask(LONGEST).ok_json();
    let answer = ask(LONGEST + 1);
    assert!([400, 413].contains(&answer.status), "{:.300}", answer.text());
    assert_eq!(answer.error_object(answer.status)["param"], "images[0].image_url");
    assert_eq!(upstream.attempt_count(), 1);
}

/// Sixteen images of this length.
fn sixteen(length: usize) -> Form {
    let image = stretched_png(64, 64, length);
    (0..16).fold(Form::with_required_fields(), |form, _| form.big_file("image[]", image.clone()))
}

#[test]
fn four_concurrent_large_edits_use_bounded_memory() {
    let _lock = heavy_test_lock();
    const LENGTH: usize = 49_000_000;
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    gateway.edit(Form::with_required_fields().file("image", &alpha_png(64, 64))).ok_json();
    let names = paths_below_home(&gateway);
    let form = sixteen(LENGTH);
    let digest = digest(&stretched_png(64, 64, LENGTH));
    gateway.server().reset_peak();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let call = form.clone().call().key(gateway.secret());
            let address = gateway.address();
            scope.spawn(move || call.upload(address).expect("an answer").1.ok_json());
        }
    });
    let peak = gateway.server().peak_bytes();
    println!("peak resident memory with 4 edits of 16 images of {LENGTH} bytes: {:.1} MB", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let attempts = upstream.received_attempts();
    for attempt in &attempts[1..] {
        assert_eq!(attempt.files().len(), 16);
        assert!(attempt.files().iter().all(|part| part.length == LENGTH as u64 && part.digest == digest));
    }
    assert_eq!(attempts.len(), 5);
    assert_eq!(paths_below_home(&gateway), names);
    assert!(gateway.final_records(5).iter().all(|record| record["state"] == "succeeded"));
}

fn digest(pieces: &Pieces) -> Vec<u8> {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    pieces.iter().for_each(|piece| context.update(piece));
    context.finish().as_ref().to_vec()
}

#[test]
fn no_file_is_left_after_a_request_or_a_kill() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let names = paths_below_home(&gateway);
    let form = |script: &str| {
        let prompt = format!("a cube [[{script}]]");
        let form = Form::new().text("model", "gpt-image-2").text("prompt", &prompt);
        form.big_file("image[]", stretched_png(64, 64, 5 << 20)).big_file("image[]", stretched_png(80, 80, 3 << 20))
    };
    gateway.edit(form("")).ok_json();
    assert_eq!(paths_below_home(&gateway), names, "after success");
    gateway.edit(form("status=500")).error_object(502);
    gateway.edit(form("cut=50%"));
    assert_eq!(paths_below_home(&gateway), names, "after an error");
    gateway.edit(form("").text("size", "1x1")).error_object(400);
    assert_eq!(paths_below_home(&gateway), names, "after a refusal");
    // The caller disconnects during the upload, and while it waits for the answer.
    drop(form("").unfinished().key(gateway.secret()).dispatch(gateway.address()).expect("a connection"));
    let before = upstream.attempt_count();
    let waiting = form("stall=head").call().key(gateway.secret()).dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt", |attempts| attempts.len() > before && !attempts[before].parts.is_empty());
    assert_eq!(paths_below_home(&gateway), names, "no file has a name while the caller waits");
    drop(waiting);
    assert_eq!(paths_below_home(&gateway), names, "after the caller has left");

    for script in ["stall=head", "stall=middle", "gate-middle=never b64=400000"] {
        let before = upstream.attempt_count();
        let call = form(script).call().key(gateway.secret());
        let stream = call.dispatch(gateway.address()).expect("a connection");
        upstream.wait_until("the attempt", |attempts| attempts.len() > before && !attempts[before].parts.is_empty());
        gateway.kill();
        drop(stream);
        assert_eq!(paths_below_home(&gateway), names, "after a kill");
        gateway.start();
        assert_eq!(paths_below_home(&gateway), names, "after the next start");
    }
    let incomplete = form("").unfinished().key(gateway.secret()).dispatch(gateway.address()).expect("a connection");
    gateway.kill();
    drop(incomplete);
    assert_eq!(paths_below_home(&gateway), names, "after a kill in the middle of an upload");
    gateway.start();
    gateway.edit(form("")).ok_json();
    let states: Vec<Value> = gateway.records().iter().map(|record| record["state"].clone()).collect();
    assert!(states.contains(&json!("succeeded")), "{states:?}");
}

#[test]
fn repeated_uploads_do_not_increase_memory() {
    let _lock = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    let image: Arc<Vec<u8>> = alpha_png(512, 512);
    let form = || (0..16).fold(Form::with_required_fields(), |form, _| form.file("image[]", &image));
    for _ in 0..3 {
        gateway.edit(form()).ok_json();
    }
    gateway.server().reset_peak();
    let before = gateway.server().peak_bytes();
    for _ in 0..30 {
        gateway.edit(form()).ok_json();
    }
    let rise = gateway.server().peak_bytes().saturating_sub(before);
    assert!(rise < 16 << 20, "{rise} bytes");
    let descriptors = gateway.server().descriptors();
    assert!(descriptors < 128, "{descriptors} descriptors are open");
}
