//! Images that take longer than a plain request may wait: the caller is told to come back, and the image is paid once.

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, eventually};

/// The count of earlier tries that the official clients send.
const RETRY: &str = "x-stainless-retry-count";

/// A gateway that lets a plain request wait for a second.
fn impatient(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("answer_deadline = \"1s\"\n", &[Account::at("only", upstream)])
}

/// A generation that waits upstream until the test opens the gate.
fn gated(gateway: &Gateway) -> Call {
    gateway.call(json!({"prompt": "a cube [[gate=open]]"}))
}

#[track_caller]
fn is_in_progress(answer: &Answer) {
    let error = answer.error(409);
    assert_eq!((&error["code"], &error["type"]), (&json!("image_in_progress"), &json!("server_error")), "{error}");
    assert_eq!((answer.should_retry(), answer.header("retry-after")), (Some("true"), Some("1")));
}

/// The image of an answer that nobody paid for again.
#[track_caller]
fn is_the_image(answer: &Answer, upstream: &FakeUpstream) {
    let image: &Value = &answer.good()["data"][0]["b64_json"];
    assert_eq!(image, &json!(upstream.ledger()[0].images[0]));
    assert_eq!(answer.header("x-imagate-replayed"), Some("true"));
    assert_eq!(upstream.attempts(), 1);
}

#[test]
fn who_asks_again_gets_the_image_that_was_begun() {
    type Mark = fn(Call, u32) -> Call;
    let marks: [(&str, Mark); 3] = [
        ("nothing", |call, _| call),
        ("a count of tries", |call, tries| call.header(RETRY, &tries.to_string())),
        ("a key", |call, _| call.header("idempotency-key", "one")),
    ];
    for (name, mark) in marks {
        let upstream = FakeUpstream::start();
        let gateway = impatient(&upstream);
        for tries in 0..3 {
            is_in_progress(&mark(gated(&gateway), tries).send(gateway.address()));
        }
        assert_eq!(upstream.attempts(), 1, "{name}");
        upstream.open_gate("open");
        is_the_image(&mark(gated(&gateway), 3).send(gateway.address()), &upstream);
        let records = gateway.settled(1);
        assert_eq!((records.len(), &records[0]["state"]), (1, &json!("succeeded")), "{name}: {records:?}");
        if name == "nothing" {
            let another = gated(&gateway).send(gateway.address());
            assert_eq!((another.status, another.header("x-imagate-replayed")), (200, None), "another request");
            assert_eq!(upstream.attempts(), 2);
        }
    }
}

#[test]
fn an_edit_is_told_the_same() {
    let upstream = FakeUpstream::start();
    let gateway = impatient(&upstream);
    let edit = || {
        let form = Form::new().text("model", "gpt-image-2").text("prompt", "a hat [[gate=edit]]");
        let form = form.file("image", &crate::kit::specimen("png 96x64"));
        form.call().key(gateway.secret())
    };
    is_in_progress(&edit().send(gateway.address()));
    upstream.open_gate("edit");
    is_the_image(&edit().send(gateway.address()), &upstream);
}

#[test]
fn a_job_that_waits_for_a_place_goes_on_when_its_caller_was_told_to_come_back() {
    let upstream = FakeUpstream::start();
    let accounts = [Account::at("only", &upstream).with_places(1)];
    let gateway = Gateway::with("answer_deadline = \"1s\"\n", &accounts);
    let first = gated(&gateway).dispatch(gateway.address()).expect("a connection");
    eventually("the place is taken", || (upstream.attempts() > 0).then_some(()));
    let second = || gateway.call(json!({"prompt": "another cube"}));
    is_in_progress(&second().send(gateway.address()));
    upstream.open_gate("open");
    let answer = second().send(gateway.address());
    answer.good();
    assert_eq!(answer.header("x-imagate-replayed"), Some("true"));
    assert_eq!(upstream.attempts(), 2);
    drop(first);
}

#[test]
fn who_could_not_be_given_the_image_later_waits_for_it() {
    let upstream = FakeUpstream::start();
    let top = "answer_deadline = \"1s\"\n[replay]\norphans = false\n";
    let gateway = Gateway::with(top, &[Account::at("only", &upstream)]);
    gateway.call(json!({"prompt": "a cube [[delay=2500]]"})).send(gateway.address()).good();
    assert_eq!(upstream.attempts(), 1);
}
