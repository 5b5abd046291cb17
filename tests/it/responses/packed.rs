//! Bodies that come packed: they go upstream as they were before, and nothing is lost by what only looks packed.

use std::io::Write as _;

use serde_json::{Value, json};

use super::{before, call, task};
use crate::kit::{Call, FakeUpstream, Form, Gateway, Random, alpha_png, heavy_test_lock};

/// What the largest body of this endpoint unpacks to.
const MOST: usize = 64 << 20;

fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::encode_all(body, 3).expect("packed")
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).expect("packed");
    encoder.finish().expect("packed")
}

type Pack = fn(&[u8]) -> Vec<u8>;
const CODINGS: [(&str, Pack); 2] = [("zstd", zstd), ("gzip", gzip)];

/// A task that says how it is packed.
fn packed(gateway: &Gateway, coding: &str, body: Vec<u8>) -> Call {
    call(gateway).header("content-type", "application/json").header("content-encoding", coding).bytes(body)
}

#[test]
fn a_packed_body_reaches_the_upstream_as_it_was_before() {
    let upstream = FakeUpstream::start();
    let gateway = before(&upstream);
    let small = " {\"model\":\"gpt-5.5\",\"input\":\"caf\\u00e9\", \"x\":[1e2,-0.0,{}],\"x\":1 }\n".to_owned();
    let large = task(&json!({"input": [{"role": "user", "content": "0123456789abcdef".repeat(400_000)}]})).to_string();
    for body in [small, large] {
        for (coding, pack) in CODINGS {
            let sent = packed(&gateway, coding, pack(body.as_bytes()));
            let answer = sent.clone().send(gateway.address());
            assert_eq!(answer.status, 200, "{coding}: {:.300}", answer.text());
            assert_eq!(sent.in_chunks_of(1000).send(gateway.address()).status, 200, "{coding}, in chunks");
            for attempt in &upstream.ledger()[upstream.attempts() - 2..] {
                assert!(attempt.body == body.as_bytes(), "{coding}: {:.300}", String::from_utf8_lossy(&attempt.body));
                assert_eq!(attempt.header("content-encoding"), None, "{coding}");
                assert_eq!(attempt.header("content-length"), Some(body.len().to_string().as_str()), "{coding}");
            }
        }
    }
}

#[test]
fn the_image_endpoints_read_packed_bodies_too() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for (coding, pack) in CODINGS {
        gateway.call(json!({"size": "1024x640"})).compressed(coding, pack).send(gateway.address()).ok_json();
        let form = Form::with_required_fields().file("image", &alpha_png(64, 64)).call().key(gateway.secret());
        form.compressed(coding, pack).send(gateway.address()).ok_json();
        assert_eq!(upstream.ledger().last().expect("an attempt").files().len(), 1);
    }
}

#[test]
fn a_small_body_that_unpacks_to_too_much_is_a_413_in_little_memory() {
    let _turn = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = before(&upstream);
    let room = |length: usize| padded(&json!({}), length);
    let largest = padded(&json!({"x": noise(MOST / 50)}), MOST);
    assert_eq!(packed(&gateway, "zstd", zstd(largest.as_bytes())).send(gateway.address()).status, 200);
    gateway.server().reset_peak();
    let idle = gateway.server().peak_bytes();
    for (coding, pack) in CODINGS {
        for length in [MOST + 1, 10 * MOST] {
            let bomb = pack(room(length).as_bytes());
            assert!(bomb.len() < MOST / 100, "{coding}: {} bytes", bomb.len());
            let answer = packed(&gateway, coding, bomb).send(gateway.address());
            assert_eq!(answer.error_object(413)["code"], "request_too_large", "{coding}");
            assert_eq!(answer.should_retry(), Some("false"));
        }
    }
    let grown = gateway.server().peak_bytes() - idle;
    println!("bombs that unpack to {} bytes: {:.1} MB more", 10 * MOST, grown as f64 / 1e6);
    assert!(grown < 24 << 20, "{grown} bytes");
    assert_eq!(upstream.attempts(), 1);
}

/// A task with blanks behind it.
fn padded(with: &Value, length: usize) -> String {
    let task = task(with).to_string();
    let blanks = " ".repeat(length - task.len());
    task + &blanks
}

/// A text that hardly shrinks.
fn noise(length: usize) -> String {
    let mut random = Random::seeded(7);
    (0..length).map(|_| char::from(b'a' + u8::try_from(random.between(0, 26)).expect("a letter"))).collect()
}

#[test]
fn a_body_that_shrinks_to_next_to_nothing_is_a_413_long_before_the_limit() {
    let upstream = FakeUpstream::start();
    let gateway = before(&upstream);
    for (coding, pack) in CODINGS {
        let small = packed(&gateway, coding, pack(padded(&json!({}), 8 << 20).as_bytes()));
        assert_eq!(small.send(gateway.address()).status, 200, "{coding}: a little may be as dense as it likes");
        let body = padded(&json!({}), 48 << 20);
        let answer = packed(&gateway, coding, pack(body.as_bytes())).send(gateway.address());
        assert_eq!(answer.error_object(413)["code"], "request_too_large", "{coding}");
        assert!(answer.text().contains("200 times"), "{coding}: {}", answer.text());
        // A conversation whose every part is there thirty times.
        let talk = task(&json!({"input": [{"role": "user", "content": noise(400_000).repeat(30)}]})).to_string();
        let sent = pack(talk.as_bytes());
        println!("{coding}: {} bytes in {}", talk.len(), sent.len());
        assert_eq!(packed(&gateway, coding, sent).send(gateway.address()).status, 200, "{coding}");
    }
}

#[test]
fn what_cannot_be_unpacked_is_a_400_and_an_unknown_packing_a_415_that_says_what_is_read() {
    let upstream = FakeUpstream::start();
    let gateway = before(&upstream);
    let body = task(&json!({})).to_string();
    for (coding, pack) in CODINGS {
        let whole = pack(body.as_bytes());
        for bad in [&whole[..whole.len() - 1], &whole[..5], body.as_bytes(), b""] {
            let error = packed(&gateway, coding, bad.to_vec()).send(gateway.address()).error_object(400);
            assert_eq!(
                (&error["reason"], &error["param"]),
                (&json!("invalid_json"), &Value::Null),
                "{coding}: {error}"
            );
        }
    }
    for coding in ["br", "deflate", "zstd, gzip", "gzip, gzip", "compress"] {
        let answer = packed(&gateway, coding, zstd(body.as_bytes())).send(gateway.address());
        assert_eq!(answer.error_object(415)["code"], "unsupported_media_type", "{coding}");
        assert_eq!(answer.header("accept-encoding"), Some("zstd, gzip, identity"), "{coding}");
    }
    for (coding, pack) in CODINGS {
        let stranger = Call::post("/v1/responses").key("eyJ.eyJ.sig").header("content-encoding", coding);
        let answer = stranger.bytes(pack(body.as_bytes())).send(gateway.address());
        assert_eq!(answer.error_object(401)["code"], "INVALID_API_KEY", "the key comes first");
    }
    assert_eq!(upstream.accepted(), 0);
}
