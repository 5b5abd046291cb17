//! `Idempotency-Key`: requests with the same key and the same body are paid for once, whatever happens in between.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::kit::{Answer, Call, Events, FakeUpstream, Form, Gateway, alpha_png};

const KEY: &str = "order-4711";

/// A generation with an idempotency key.
fn keyed(gateway: &Gateway, key: &str, with: Value) -> Call {
    gateway.call(with).header("idempotency-key", key)
}

#[track_caller]
fn send(gateway: &Gateway, call: Call) -> Answer {
    call.send(gateway.address())
}

/// Sends the call five times at once, opens the gate when the first attempt has begun, and returns the answers.
fn five_at_once(gateway: &Gateway, upstream: &FakeUpstream, call: &Call) -> Vec<Answer> {
    let address = gateway.address();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..5).map(|_| scope.spawn(|| call.clone().send(address))).collect();
        upstream.wait_until("the attempt has begun", |attempts| !attempts.is_empty());
        upstream.open_gate("open");
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    })
}

/// Checks that `again` has the status, the content type and every byte of the body of `first`, and an id of its own.
#[track_caller]
fn is_replay(first: &Answer, again: &Answer) {
    assert_eq!(again.status, first.status, "{:.300}", again.text());
    assert!(again.complete && again.body == first.body, "another body: {:.300}", again.text());
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_ne!(again.header("x-request-id"), first.header("x-request-id"), "each request has its own id");
    assert_ne!(again.header("x-request-id"), first.header("x-request-id"), "each request has its own id");
}

/// How many attempts and how many tokens all records have together.
fn recorded(gateway: &Gateway) -> (usize, u64) {
    let records = gateway.final_records(1);
    let attempts = |record: &Value| record["attempts"].as_array().map_or(0, Vec::len);
    let tokens = |record: &Value| record["usage"]["total_tokens"].as_u64().unwrap_or(0);
    (records.iter().map(attempts).sum(), records.iter().map(tokens).sum())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_repeat_after_the_end_is_the_same_answer_in_every_byte() {
    for script in ["", "shape=pretty framing=chunked", "b64=6000000", "shape=nested omit=model,quality"] {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with_upstream(&upstream);
        let with = json!({"prompt": format!("a cube [[{script}]]"), "n": 2});
        let first = send(&gateway, keyed(&gateway, KEY, with.clone()));
        first.ok_json();
        for _ in 0..3 {
            is_replay(&first, &send(&gateway, keyed(&gateway, KEY, with.clone())));
        }
        assert_eq!(upstream.attempt_count(), 1, "{script}");
        let tokens = upstream.received_attempts()[0].usage.as_ref().expect("usage")["total_tokens"].as_u64();
        assert_eq!(recorded(&gateway), (1, tokens.expect("tokens")), "{script}: paid once, so recorded once");
    }
}

#[test]
fn five_at_once_share_one_attempt() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let call = keyed(&gateway, KEY, json!({"prompt": "a cube [[gate=open b64=2000000]]"}));
    let answers = five_at_once(&gateway, &upstream, &call);
    answers[0].ok_json();
    answers[1..].iter().for_each(|answer| is_replay(&answers[0], answer));
    is_replay(&answers[0], &send(&gateway, call));
    assert_eq!(upstream.attempt_count(), 1);
    assert_eq!(recorded(&gateway).0, 1);
}

#[test]
fn a_caller_who_left_finds_the_image_under_the_key() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let call = keyed(&gateway, KEY, json!({"prompt": "a cube [[gate=open]]"}));
    let stream = call.clone().dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt has begun", |attempts| attempts.len() == 1);
    drop(stream);
    five_at_once(&gateway, &upstream, &call).iter().for_each(|answer| drop(answer.ok_json()));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_process_killed_while_it_waited_for_the_image_does_not_ask_again() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    let with = json!({"prompt": "a cube [[gate=open]]"});
    let stream = keyed(&gateway, KEY, with.clone()).dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt has begun", |attempts| attempts.len() == 1);
    gateway.kill();
    drop(stream);
    gateway.start();
    upstream.open_gate("open");
    // Nobody knows whether the image was made: each repeat gets an error that no client retries by itself.
    for _ in 0..2 {
        let answer = send(&gateway, keyed(&gateway, KEY, with.clone()));
        let error = answer.error_object(answer.status);
        assert!(answer.status >= 400 && answer.should_retry() == Some("false"), "{} {error}", answer.status);
    }
    assert_eq!(upstream.attempt_count(), 1);
    // Another key is another job.
    send(&gateway, keyed(&gateway, "order-4712", with)).ok_json();
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn a_process_killed_after_the_end_replays_from_disk() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    let with = json!({"prompt": "a cube [[b64=3000000]]"});
    let first = send(&gateway, keyed(&gateway, KEY, with.clone()));
    first.ok_json();
    for _ in 0..2 {
        gateway.kill();
        gateway.start();
        is_replay(&first, &send(&gateway, keyed(&gateway, KEY, with.clone())));
    }
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn the_same_key_with_another_body_is_a_clear_400() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    let first = send(&gateway, keyed(&gateway, KEY, json!({"prompt": "a cube"})));
    first.ok_json();
    for restart in [false, true] {
        if restart {
            gateway.kill();
            gateway.start();
        }
        for other in [json!({"prompt": "a sphere"}), json!({"prompt": "a cube", "n": 2}), json!({"user": "u"})] {
            let answer = send(&gateway, keyed(&gateway, KEY, other));
            let error = answer.error_object(400);
            assert_eq!((&error["type"], &error["code"]), (&json!("invalid_request_error"), &error["type"]), "{error}");
            assert_eq!(error["reason"], "idempotency_key_reused", "{error}");
            assert!(error["param"].is_null() || error["param"] == "Idempotency-Key", "{error}");
            assert!(error["message"].as_str().is_some_and(|text| text.contains("Idempotency-Key")), "{error}");
            assert_eq!(answer.should_retry(), Some("false"));
        }
    }
    assert_eq!(upstream.attempt_count(), 1);
    is_replay(&first, &send(&gateway, keyed(&gateway, KEY, json!({"prompt": "a cube"}))));
}

#[test]
fn another_body_while_the_first_is_being_made_is_a_400_as_well() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let address = gateway.address();
    let call = keyed(&gateway, KEY, json!({"prompt": "a cube [[gate=open]]"}));
    std::thread::scope(|scope| {
        let first = scope.spawn(move || call.send(address));
        upstream.wait_until("the attempt has begun", |attempts| attempts.len() == 1);
        send(&gateway, keyed(&gateway, KEY, json!({"prompt": "a sphere"}))).error_object(400);
        upstream.open_gate("open");
        first.join().expect("an answer").ok_json();
    });
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn the_same_string_under_another_api_key_is_another_job() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let other = gateway.make_key("other");
    let foreign = other["secret"].as_str().expect("a secret");
    send(&gateway, keyed(&gateway, KEY, json!({"prompt": "a cube"}))).ok_json();
    for prompt in ["a cube", "a cube"] {
        let body = crate::kit::request(json!({"prompt": prompt}));
        let call = Call::generation().key(foreign).json(&body).header("idempotency-key", KEY);
        send(&gateway, call).ok_json();
    }
    assert_eq!(upstream.attempt_count(), 2, "one for each API key");
}

#[test]
fn the_same_string_at_another_operation_is_another_job() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    send(&gateway, keyed(&gateway, KEY, json!({"prompt": "a cube"}))).ok_json();
    let form = || {
        let form = Form::with_required_fields().file("image", &alpha_png(96, 64));
        form.call().key(gateway.secret()).header("idempotency-key", KEY)
    };
    let first = send(&gateway, form());
    first.ok_json();
    is_replay(&first, &send(&gateway, form()));
    assert_eq!(upstream.attempt_count(), 2);
    // The same form with another file is another body.
    let changed = Form::with_required_fields().file("image", &alpha_png(64, 64)).call().key(gateway.secret());
    send(&gateway, changed.header("idempotency-key", KEY)).error_object(400);
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn a_form_with_another_boundary_is_the_same_body() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    // Clients choose a new random boundary for each request.
    let form = |boundary: &str| {
        let part = |head: &str, bytes: &[u8]| {
            let head = format!("--{boundary}\r\ncontent-disposition: form-data; name={head}\r\n\r\n");
            [head.as_bytes(), bytes, b"\r\n"].concat()
        };
        let body = [
            part("\"model\"", b"gpt-image-2"),
            part("\"prompt\"", b"a hat"),
            part("\"image\"; filename=\"a.png\"\r\ncontent-type: image/png", &alpha_png(96, 64)),
            format!("--{boundary}--\r\n").into_bytes(),
        ];
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let call = Call::edit().key(gateway.secret()).header("content-type", &content_type);
        call.bytes(body.concat()).header("idempotency-key", KEY)
    };
    let first = send(&gateway, form("one-boundary"));
    first.ok_json();
    is_replay(&first, &send(&gateway, form("another-boundary")));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_stream_is_replayed_event_by_event() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    let with = json!({"stream": true, "partial_images": 2});
    let events = |gateway: &Gateway| {
        let reply = keyed(gateway, KEY, with.clone()).open(gateway.address()).expect("an answer");
        Events::from_reply(reply).remaining()
    };
    let first = events(&gateway);
    assert_eq!(first.last().map(|event| event.name.as_str()), Some("image_generation.completed"));
    assert_eq!(events(&gateway), first);
    gateway.kill();
    gateway.start();
    assert_eq!(events(&gateway), first);
    assert_eq!(upstream.attempt_count(), 1);
    // A request for a plain answer has another body, which this key does not allow.
    send(&gateway, keyed(&gateway, KEY, json!({"partial_images": 2}))).error_object(400);
}

#[test]
fn streams_at_once_share_one_attempt() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let call = keyed(&gateway, KEY, json!({"prompt": "a cube [[gate=open]]", "stream": true, "partial_images": 1}));
    let answers = five_at_once(&gateway, &upstream, &call);
    for answer in &answers {
        assert_eq!((answer.status, answer.complete), (200, true), "{:.300}", answer.text());
        assert_eq!(answer.text().matches("event: image_generation.completed\n").count(), 1);
    }
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_refusal_is_kept_and_a_failure_that_cost_nothing_is_not() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for script in ["status=400 body=policy", "status=524 body=html", "cut=30"] {
        let before = upstream.attempt_count();
        for _ in 0..2 {
            let answer = send(&gateway, keyed(&gateway, script, json!({"prompt": format!("a cube [[{script}]]")})));
            answer.error_object(502);
            assert_eq!(answer.should_retry(), Some("false"), "{script}");
        }
        assert_eq!(upstream.attempt_count(), before + 1, "{script}");
    }
    // The upstream said itself that nothing was made: the same request may be sent again.
    upstream.script_next("status=500");
    send(&gateway, keyed(&gateway, "again", json!({"prompt": "a cube"}))).error_object(502);
    let before = upstream.attempt_count();
    send(&gateway, keyed(&gateway, "again", json!({"prompt": "a cube"}))).ok_json();
    assert_eq!(upstream.attempt_count(), before + 1);
}

#[test]
fn a_request_that_breaks_a_rule_does_not_use_its_key_up() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    send(&gateway, keyed(&gateway, KEY, json!({"size": "1000x1000"}))).error_object(400);
    assert_eq!(upstream.accepted(), 0);
    send(&gateway, keyed(&gateway, KEY, json!({"size": "1024x1024"}))).ok_json();
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn stored_answers_on_disk_can_be_read_by_nobody_else() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let answer = send(&gateway, keyed(&gateway, KEY, json!({"prompt": "a cube"})));
    let image = answer.ok_json()["data"][0]["b64_json"].as_str().expect("an image").as_bytes()[..200].to_vec();
    is_replay(&answer, &send(&gateway, keyed(&gateway, KEY, json!({"prompt": "a cube"}))));
    for file in files(&gateway.home().join("data")) {
        let bytes = std::fs::read(&file).expect("a file");
        let holds = bytes.windows(image.len()).any(|window| window == image);
        let mode = std::fs::metadata(&file).expect("a file").mode();
        assert!(!holds || mode & 0o077 == 0, "{} is open to others: {mode:o}", file.display());
        let named = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        assert!(!named || mode & 0o077 == 0, "{}: {mode:o}", file.display());
    }
}

#[test]
fn stored_answers_have_a_size_limit() {
    let upstream = FakeUpstream::start();
    let gateway =
        Gateway::with("[replay]\nmax_megabytes = 4\n", &[crate::kit::Account::for_upstream("only", &upstream)]);
    for number in 0..8 {
        let with = json!({"prompt": "a cube [[b64=1500000]]", "user": format!("u-{number}")});
        send(&gateway, keyed(&gateway, &format!("key-{number}"), with)).ok_json();
    }
    crate::kit::eventually("the stored answers are within the limit", || {
        let kept =
            |path: &PathBuf| !path.to_string_lossy().contains("spool") && !path.to_string_lossy().contains(".db");
        let sizes = files(&gateway.home().join("data")).into_iter().filter(kept);
        let total: u64 = sizes.map(|path| std::fs::metadata(path).map_or(0, |facts| facts.len())).sum();
        (total <= 5 << 20).then_some(())
    });
    // The newest stored answer is still there.
    let with = json!({"prompt": "a cube [[b64=1500000]]", "user": "u-7"});
    send(&gateway, keyed(&gateway, "key-7", with)).ok_json();
    assert_eq!(upstream.attempt_count(), 8);
}
