//! Tests of the kit itself: a script must do what it says, or every other test proves nothing.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kit::{
    Answer, Call, Events, FakeUpstream, Form, RecordingProxy, alpha_png, base64_filler, concat, format_and_size,
    request, sha256, stretched_png,
};

/// A call to a fake upstream, which is not checked against the document.
fn generation() -> Call {
    Call::generation().for_upstream()
}

fn send_scripted(upstream: &FakeUpstream, script: &str, with: Value) -> Answer {
    let mut body = request(with);
    body["prompt"] = json!(format!("a cube [[{script}]]"));
    generation().key("sk-upstream-kit").json(&body).send(upstream.address())
}

#[test]
fn the_good_answer_is_an_image_of_the_size_and_format_asked() {
    let upstream = FakeUpstream::start();
    for (format, size) in [("png", "3840x2160"), ("jpeg", "1024x640"), ("webp", "640x1024")] {
        let answer = send_scripted(&upstream, "", json!({"output_format": format, "size": size, "n": 2})).ok_json();
        assert_eq!(answer["data"].as_array().map(Vec::len), Some(2));
        let file = STANDARD.decode(answer["data"][1]["b64_json"].as_str().expect("base64")).expect("base64");
        assert_eq!(format_and_size(&file), (format.to_owned(), size.to_owned()));
    }
    // The caller may have the last byte before the ledger notes it.
    upstream.wait_until("all answers are written", |attempts| {
        attempts.iter().all(|attempt| attempt.completed && !attempt.peer_left)
    });
    assert_eq!((upstream.attempt_count(), upstream.accepted()), (3, 3));
    assert!(upstream.received_attempts().iter().all(|attempt| attempt.token == "sk-upstream-kit"));
}

#[test]
fn a_cut_body_never_looks_whole() {
    let upstream = FakeUpstream::start();
    for script in ["cut=50%", "cut=50% framing=chunked", "cut=50% how=reset", "cut=50% framing=chunked how=reset"] {
        let answer = send_scripted(&upstream, script, json!({}));
        assert_eq!((answer.status, answer.complete), (200, false), "{script}");
    }
    assert!(upstream.received_attempts().iter().all(|attempt| !attempt.completed && !attempt.peer_left));
    // These bodies look whole, but are not.
    for script in ["clip=100", "lack=1", "lack=40% framing=chunked", "cut=50% framing=close"] {
        let answer = send_scripted(&upstream, script, json!({}));
        assert!(answer.complete && serde_json::from_slice::<Value>(&answer.body).is_err(), "{script}");
    }
    let silent = generation().json(&request(json!({"prompt": "[[hang-up]]"}))).try_send(upstream.address());
    assert!(silent.is_err());
}

#[test]
fn every_shape_of_json_is_json() {
    let upstream = FakeUpstream::start();
    let plain = send_scripted(&upstream, "", json!({})).ok_json();
    for script in [
        "shape=pretty",
        "shape=spaced",
        "shape=usage-first",
        "shape=nested",
        "drip",
        "framing=chunked drip",
        "framing=close",
    ] {
        let answer = send_scripted(&upstream, script, json!({})).ok_json();
        assert_eq!(answer["data"][0]["b64_json"], plain["data"][0]["b64_json"], "{script}");
        assert!(answer["usage"]["total_tokens"].is_u64(), "{script}");
    }
    let text = send_scripted(&upstream, "shape=usage-first", json!({})).text();
    assert!(text.find("\"usage\"") < text.find("\"data\""));
    assert_eq!(send_scripted(&upstream, "data=null", json!({})).ok_json()["data"][0]["b64_json"], Value::Null);
    assert_eq!(send_scripted(&upstream, "omit=model,size auto=quality", json!({})).ok_json()["quality"], "auto");
    assert_eq!(
        send_scripted(&upstream, "status=429 body=usage-limit resets-in=9", json!({})).json()["error"]["resets_in_seconds"],
        9
    );
}

#[test]
fn a_huge_image_is_exactly_as_long_as_asked_and_begins_like_a_file() {
    let upstream = FakeUpstream::start();
    let answer = send_scripted(&upstream, "b64=400000", json!({})).ok_json();
    let image = answer["data"][0]["b64_json"].as_str().expect("base64");
    assert_eq!(image.len(), 400_000);
    let expected: Vec<u8> = base64_filler(400_000).flat_map(|piece| piece.to_vec()).collect();
    assert_eq!(image.as_bytes(), expected);
    let file = STANDARD.decode(image).expect("valid base64 all the way");
    assert_eq!(format_and_size(&file), ("png".to_owned(), "3840x2160".to_owned()));
}

#[test]
fn the_ledger_shows_that_a_peer_has_left() {
    let upstream = FakeUpstream::start();
    for script in ["stall=head", "stall=body", "stall=middle", "gate=never"] {
        let body = request(json!({"prompt": format!("[[{script}]]")}));
        let before = upstream.attempt_count();
        let mut stream = generation().json(&body).dispatch(upstream.address()).expect("a connection");
        upstream.wait_until("the attempt", |attempts| attempts.len() > before);
        if script == "stall=middle" {
            stream.read_exact(&mut [0; 200]).expect("the first half");
        }
        drop(stream);
        upstream.wait_until("the peer has left", |attempts| attempts[before].peer_left && !attempts[before].completed);
    }
}

/// Everything that a streaming request gets from the upstream, as text.
fn stream(upstream: &FakeUpstream, script: &str) -> String {
    send_scripted(upstream, script, json!({"stream": true, "partial_images": 2})).text()
}

#[test]
fn the_good_stream_is_one_of_the_contract() {
    let upstream = FakeUpstream::start();
    let body =
        json!({"stream": true, "partial_images": 2, "model": "gpt-image-2", "prompt": "[[type=text/event-stream;]]"});
    let answer = generation().key("kit").json(&body).send(upstream.address());
    assert!(answer.complete);
    let text = answer.text();
    let events: Vec<&str> = text.lines().filter(|line| line.starts_with("event")).collect();
    assert_eq!(
        events,
        [
            "event: image_generation.partial_image",
            "event: image_generation.partial_image",
            "event: image_generation.completed"
        ]
    );
    upstream.wait_until("the last byte", |attempts| attempts[0].completed);
    let attempt = &upstream.received_attempts()[0];
    assert_eq!((attempt.images.len(), attempt.sent.len(), attempt.written), (3, 3, text.len() as u64));
}

#[test]
fn every_word_about_streams_does_what_it_says() {
    let upstream = FakeUpstream::start();
    let text = stream(&upstream, "events=p,k,x,p7,c,c,done frames=no-event,no-space,extra,bom lines=crlf reads=7");
    assert!(
        text.starts_with('\u{feff}') && !text.contains("event:image_gen") && !text.replace("\r\n", "").contains('\n')
    );
    assert_eq!(text.matches("data:{").count(), 5);
    for part in
        ["\"partial_image_index\":7", "id: 7\r\n", ": keep-alive\r\n", "data: [DONE]\r\n", "\"total_tokens\":999999"]
    {
        assert!(text.contains(part), "{part}");
    }
    let halves = stream(&upstream, "events=p,half,eof");
    assert!(halves.matches("event: ").count() == 2 && !halves.ends_with('\n'), "{}", &halves[halves.len() - 20..]);
    assert!(!send_scripted(&upstream, "events=p,cut", json!({"stream": true})).complete);
    assert!(stream(&upstream, "events=e-policy").contains("\"code\":\"moderation_blocked\""));
    assert!(stream(&upstream, "events=c shape=pretty").matches("\ndata: ").count() > 5);
    assert!(stream(&upstream, "plain").starts_with('{'));
    assert!(send_scripted(&upstream, "sse", json!({})).text().starts_with("event: "));
    assert_eq!(send_scripted(&upstream, "status=429", json!({"stream": true})).json()["error"]["type"], "server_error");
    let omitted = stream(&upstream, "partials=0 omit=created_at,usage auto=size");
    assert!(!omitted.contains("created_at") && !omitted.contains("usage") && omitted.contains("\"size\":\"auto\""));
    let huge = stream(&upstream, "events=c b64=400000 reads=1460");
    assert!(huge.len() > 400_000 && huge.ends_with("}\n\n"));
}

#[test]
fn a_gate_between_events_holds_the_next_one_back() {
    let upstream = FakeUpstream::start();
    let body = request(json!({"stream": true, "prompt": "[[events=p,@next,c type=text/event-stream;]]"}));
    let mut reply = generation().json(&body).open(upstream.address()).expect("an answer");
    let mut first = [0; 100];
    reply.read_exact(&mut first).expect("the first event");
    upstream.wait_until("the first event has left", |attempts| attempts[0].sent.len() == 1);
    assert!(!upstream.received_attempts()[0].completed);
    upstream.open_gate("next");
    assert!(reply.finish().expect("the rest").complete);
}

#[test]
fn a_form_is_parsed_and_its_files_are_digested() {
    let upstream = FakeUpstream::start();
    let (small, big) = (alpha_png(64, 64), stretched_png(1024, 1024, 3 << 20));
    let form = Form::with_required_fields()
        .file("image[]", &small)
        .big_file("mask", big.clone())
        .text("n", "2")
        .text("user", "")
        .file("image", b"--not\r\n--a\r\n\r\n--boundary");
    let (taken, answer) = form.call().key("kit").upload(upstream.address()).expect("an answer");
    assert_eq!(answer.ok_json()["data"].as_array().map(Vec::len), Some(2));
    assert!(taken > 3 << 20);
    let attempt = &upstream.received_attempts()[0];
    let names: Vec<&str> = attempt.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["model", "prompt", "image[]", "mask", "n", "user", "image"]);
    let files = attempt.files();
    assert_eq!((files[0].length, &files[0].digest), (small.len() as u64, &sha256(&small)));
    assert_eq!(files[0].head, *small);
    assert_eq!(
        (files[0].filename.as_deref(), files[0].content_type.as_deref()),
        (Some("picture.png"), Some("image/png"))
    );
    assert_eq!(files[1].text(), "--not\r\n--a\r\n\r\n--boundary");
    let mask = attempt.mask().expect("a mask");
    assert_eq!((mask.length, &mask.digest), (3 << 20, &sha256(&concat(&big))));
    assert_eq!(attempt.fields()["user"], "");
}

#[test]
fn a_stretched_file_is_a_whole_png_of_the_exact_length() {
    for length in [20_000, 1 << 20, (1 << 20) + 5_004, 3_000_001] {
        let bytes = concat(&stretched_png(64, 64, length));
        assert_eq!(bytes.len(), length);
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a header");
        let mut pixels = vec![0; 64 * 64 * 4];
        reader.next_frame(&mut pixels).expect("pixels");
        reader.finish().expect("every chunk has its checksum");
    }
}

#[test]
fn an_account_that_answers_early_has_not_read_the_body() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("kit", "early status=401");
    // The head alone is sent: an account that read the body first would never answer.
    let announced = Form::with_required_fields().call().key("kit").announcing_only(40 << 20);
    assert_eq!(announced.send(upstream.address()).status, 401);
    assert!(upstream.received_attempts()[0].parts.is_empty());
}

#[test]
fn the_reader_of_events_accepts_only_the_shape_of_the_contract() {
    let upstream = FakeUpstream::start();
    for (frames, good) in
        [("", true), ("no-event", false), ("no-space", false), ("extra", false), ("data-first", false)]
    {
        let script = format!("[[events=c,k frames={frames} type=text/event-stream;]]");
        let body = request(json!({"stream": true, "prompt": script}));
        let mut reply = generation().json(&body).open(upstream.address()).expect("an answer");
        reply.headers.retain(|(name, _)| name != "content-type");
        reply.headers.push(("content-type".to_owned(), "text/event-stream; charset=utf-8".to_owned()));
        let read =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Events::from_reply(reply).remaining().len()));
        assert_eq!(read.ok(), good.then_some(1), "{frames}");
    }
}

#[test]
fn a_recording_proxy_changes_nothing_and_records_every_request() {
    let upstream = FakeUpstream::start();
    let proxy = RecordingProxy::in_front_of(upstream.address());
    let body = request(json!({})).to_string();
    let call = || generation().key("sk-upstream-kit").header("content-type", "application/json");
    let plain = call().bytes(body.clone()).send(upstream.address());
    for call in [call().bytes(body.clone()), call().bytes(body.clone()).in_chunks_of(7)] {
        let answer = call.send(proxy.address());
        assert_eq!((answer.status, answer.body.len()), (plain.status, plain.body.len()));
    }
    let sent = proxy.requests_to("POST", "/v1/images/generations");
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|request| request.body == body.as_bytes()), "{sent:?}");
    assert_eq!(sent[1].header("transfer-encoding"), Some("chunked"));
    assert!(upstream.received_attempts().iter().all(|attempt| attempt.body == body.as_bytes()));
}
