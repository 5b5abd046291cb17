//! Compressed request bodies: the gateway sends them upstream decompressed, and refuses invalid ones.

use std::io::Write as _;

use serde_json::{Value, json};

use super::{call, response_body, start_gateway};
use crate::kit::{Call, FakeUpstream, Form, Gateway, Random, alpha_png, heavy_test_lock};

/// The largest decompressed body of this endpoint, in bytes.
const MAX_BODY: usize = 64 << 20;

fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::encode_all(body, 3).expect("compressed bytes")
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).expect("compressed bytes");
    encoder.finish().expect("compressed bytes")
}

type Compress = fn(&[u8]) -> Vec<u8>;
const CODINGS: [(&str, Compress); 2] = [("zstd", zstd), ("gzip", gzip)];

/// A response request with this `content-encoding`.
fn compressed_call(gateway: &Gateway, coding: &str, body: Vec<u8>) -> Call {
    call(gateway).header("content-type", "application/json").header("content-encoding", coding).bytes(body)
}

#[test]
fn a_compressed_body_reaches_the_upstream_decompressed() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let small = " {\"model\":\"gpt-5.5\",\"input\":\"caf\\u00e9\", \"x\":[1e2,-0.0,{}],\"x\":1 }\n".to_owned();
    let large =
        response_body(&json!({"input": [{"role": "user", "content": "0123456789abcdef".repeat(400_000)}]})).to_string();
    for body in [small, large] {
        for (coding, compress) in CODINGS {
            let sent = compressed_call(&gateway, coding, compress(body.as_bytes()));
            let answer = sent.clone().send(gateway.address());
            assert_eq!(answer.status, 200, "{coding}: {:.300}", answer.text());
            assert_eq!(sent.in_chunks_of(1000).send(gateway.address()).status, 200, "{coding}, in chunks");
            for attempt in &upstream.received_attempts()[upstream.attempt_count() - 2..] {
                assert!(attempt.body == body.as_bytes(), "{coding}: {:.300}", String::from_utf8_lossy(&attempt.body));
                assert_eq!(attempt.header("content-encoding"), None, "{coding}");
                assert_eq!(attempt.header("content-length"), Some(body.len().to_string().as_str()), "{coding}");
            }
        }
    }
}

#[test]
fn the_image_endpoints_accept_compressed_bodies() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for (coding, compress) in CODINGS {
        gateway.call(json!({"size": "1024x640"})).compressed(coding, compress).send(gateway.address()).ok_json();
        let form = Form::with_required_fields().file("image", &alpha_png(64, 64)).call().key(gateway.secret());
        form.compressed(coding, compress).send(gateway.address()).ok_json();
        assert_eq!(upstream.received_attempts().last().expect("an attempt").files().len(), 1);
    }
}

#[test]
fn a_decompression_bomb_is_a_413_and_takes_little_memory() {
    let _guard = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = start_gateway(&upstream);
    let body_of = |length: usize| padded(&json!({}), length);
    let largest = padded(&json!({"x": noise(MAX_BODY / 50)}), MAX_BODY);
    assert_eq!(compressed_call(&gateway, "zstd", zstd(largest.as_bytes())).send(gateway.address()).status, 200);
    gateway.server().reset_peak();
    let idle = gateway.server().peak_bytes();
    for (coding, compress) in CODINGS {
        for length in [MAX_BODY + 1, 10 * MAX_BODY] {
            let bomb = compress(body_of(length).as_bytes());
            assert!(bomb.len() < MAX_BODY / 100, "{coding}: {} bytes", bomb.len());
            let answer = compressed_call(&gateway, coding, bomb).send(gateway.address());
            assert_eq!(answer.error_object(413)["code"], "request_too_large", "{coding}");
            assert_eq!(answer.should_retry(), Some("false"));
        }
    }
    let grown = gateway.server().peak_bytes() - idle;
    println!("bodies that decompress to {} bytes: {:.1} MB more", 10 * MAX_BODY, grown as f64 / 1e6);
    assert!(grown < 24 << 20, "{grown} bytes");
    assert_eq!(upstream.attempt_count(), 1);
}

/// A response request, padded with spaces to `length` bytes.
fn padded(fields: &Value, length: usize) -> String {
    let task = response_body(fields).to_string();
    let spaces = " ".repeat(length - task.len());
    task + &spaces
}

/// Random letters, which hardly compress.
fn noise(length: usize) -> String {
    let mut random = Random::seeded(7);
    (0..length).map(|_| char::from(b'a' + u8::try_from(random.between(0, 26)).expect("a letter"))).collect()
}

#[test]
fn a_body_above_the_compression_ratio_is_a_413() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    for (coding, compress) in CODINGS {
        let small = compressed_call(&gateway, coding, compress(padded(&json!({}), 8 << 20).as_bytes()));
        assert_eq!(small.send(gateway.address()).status, 200, "{coding}: a small body may have any compression ratio");
        let body = padded(&json!({}), 48 << 20);
        let answer = compressed_call(&gateway, coding, compress(body.as_bytes())).send(gateway.address());
        assert_eq!(answer.error_object(413)["code"], "request_too_large", "{coding}");
        assert!(answer.text().contains("200 times"), "{coding}: {}", answer.text());
        // A conversation that repeats its text thirty times has an allowed compression ratio.
        let conversation =
            response_body(&json!({"input": [{"role": "user", "content": noise(400_000).repeat(30)}]})).to_string();
        let sent = compress(conversation.as_bytes());
        println!("{coding}: {} bytes in {}", conversation.len(), sent.len());
        assert_eq!(compressed_call(&gateway, coding, sent).send(gateway.address()).status, 200, "{coding}");
    }
}

#[test]
fn invalid_compression_is_a_400_and_an_unknown_coding_a_415() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream);
    let body = response_body(&json!({})).to_string();
    for (coding, compress) in CODINGS {
        let compressed = compress(body.as_bytes());
        for invalid in [&compressed[..compressed.len() - 1], &compressed[..5], body.as_bytes(), b""] {
            let error = compressed_call(&gateway, coding, invalid.to_vec()).send(gateway.address()).error_object(400);
            assert_eq!(
                (&error["reason"], &error["param"]),
                (&json!("invalid_json"), &Value::Null),
                "{coding}: {error}"
            );
        }
    }
    for coding in ["br", "deflate", "zstd, gzip", "gzip, gzip", "compress"] {
        let answer = compressed_call(&gateway, coding, zstd(body.as_bytes())).send(gateway.address());
        assert_eq!(answer.error_object(415)["code"], "unsupported_media_type", "{coding}");
        assert_eq!(answer.header("accept-encoding"), Some("zstd, gzip, identity"), "{coding}");
    }
    for (coding, compress) in CODINGS {
        let unauthorized = Call::post("/v1/responses").key("eyJ.eyJ.sig").header("content-encoding", coding);
        let answer = unauthorized.bytes(compress(body.as_bytes())).send(gateway.address());
        assert_eq!(answer.error_object(401)["code"], "INVALID_API_KEY", "the key must be checked before the body");
    }
    assert_eq!(upstream.accepted(), 0);
}
