//! The kit against itself: a script must do what it says, or every other test proves nothing.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kit::{Answer, Call, FakeUpstream, facts, filler, request};

fn ask(upstream: &FakeUpstream, script: &str, with: Value) -> Answer {
    let mut body = request(with);
    body["prompt"] = json!(format!("a cube [[{script}]]"));
    Call::generation().key("sk-upstream-kit").json(&body).send(upstream.address())
}

#[test]
fn the_good_answer_is_an_image_of_the_size_and_format_asked() {
    let upstream = FakeUpstream::start();
    for (format, size) in [("png", "3840x2160"), ("jpeg", "1024x640"), ("webp", "640x1024")] {
        let answer = ask(&upstream, "", json!({"output_format": format, "size": size, "n": 2})).good();
        assert_eq!(answer["data"].as_array().map(Vec::len), Some(2));
        let file = STANDARD.decode(answer["data"][1]["b64_json"].as_str().expect("base64")).expect("base64");
        assert_eq!(facts(&file), (format.to_owned(), size.to_owned()));
    }
    // The caller can have the last byte before the ledger says so.
    upstream.wait_until("all are told", |ledger| ledger.iter().all(|attempt| attempt.completed && !attempt.peer_left));
    assert_eq!((upstream.attempts(), upstream.accepted()), (3, 3));
    assert!(upstream.ledger().iter().all(|attempt| attempt.token == "sk-upstream-kit"));
}

#[test]
fn a_cut_body_never_looks_whole() {
    let upstream = FakeUpstream::start();
    for script in ["cut=50%", "cut=50% framing=chunked", "cut=50% how=reset", "cut=50% framing=chunked how=reset"] {
        let answer = ask(&upstream, script, json!({}));
        assert_eq!((answer.status, answer.complete), (200, false), "{script}");
    }
    assert!(upstream.ledger().iter().all(|attempt| !attempt.completed && !attempt.peer_left));
    // And the ones that do look whole, but are not.
    for script in ["clip=100", "lack=1", "lack=40% framing=chunked", "cut=50% framing=close"] {
        let answer = ask(&upstream, script, json!({}));
        assert!(answer.complete && serde_json::from_slice::<Value>(&answer.body).is_err(), "{script}");
    }
    let silent = Call::generation().json(&request(json!({"prompt": "[[hang-up]]"}))).try_send(upstream.address());
    assert!(silent.is_err());
}

#[test]
fn every_shape_of_json_is_json() {
    let upstream = FakeUpstream::start();
    let plain = ask(&upstream, "", json!({})).good();
    for script in [
        "shape=pretty",
        "shape=spaced",
        "shape=usage-first",
        "shape=nested",
        "drip",
        "framing=chunked drip",
        "framing=close",
    ] {
        let answer = ask(&upstream, script, json!({})).good();
        assert_eq!(answer["data"][0]["b64_json"], plain["data"][0]["b64_json"], "{script}");
        assert!(answer["usage"]["total_tokens"].is_u64(), "{script}");
    }
    let text = ask(&upstream, "shape=usage-first", json!({})).text();
    assert!(text.find("\"usage\"") < text.find("\"data\""));
    assert_eq!(ask(&upstream, "data=null", json!({})).good()["data"][0]["b64_json"], Value::Null);
    assert_eq!(ask(&upstream, "omit=model,size auto=quality", json!({})).good()["quality"], "auto");
    assert_eq!(
        ask(&upstream, "status=429 body=usage-limit resets-in=9", json!({})).json()["error"]["resets_in_seconds"],
        9
    );
}

#[test]
fn a_huge_image_is_exactly_as_long_as_asked_and_begins_like_a_file() {
    let upstream = FakeUpstream::start();
    let answer = ask(&upstream, "b64=400000", json!({})).good();
    let image = answer["data"][0]["b64_json"].as_str().expect("base64");
    assert_eq!(image.len(), 400_000);
    let expected: Vec<u8> = filler(400_000).flat_map(|piece| piece.to_vec()).collect();
    assert_eq!(image.as_bytes(), expected);
    let file = STANDARD.decode(image).expect("valid base64 all the way");
    assert_eq!(facts(&file), ("png".to_owned(), "3840x2160".to_owned()));
}

#[test]
fn a_peer_that_leaves_is_written_down() {
    let upstream = FakeUpstream::start();
    for script in ["stall=head", "stall=body", "stall=middle", "gate=never"] {
        let body = request(json!({"prompt": format!("[[{script}]]")}));
        let before = upstream.attempts();
        let mut stream = Call::generation().json(&body).dispatch(upstream.address()).expect("a connection");
        upstream.wait_until("the attempt", |ledger| ledger.len() > before);
        if script == "stall=middle" {
            stream.read_exact(&mut [0; 200]).expect("the first half");
        }
        drop(stream);
        upstream.wait_until("the peer has left", |ledger| ledger[before].peer_left && !ledger[before].completed);
    }
}
