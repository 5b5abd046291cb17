//! Tests of the directives of the fake upstream that the table uses: a case whose stimulus does not work proves
//! nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::kit::{Answer, Call, FakeUpstream, RefusingPort, UnresponsivePort, request};

fn call(script: &str) -> Call {
    Call::generation().key("sk-words").json(&request(json!({"prompt": format!("a cube [[{script}]]")})))
}

fn ask(upstream: &FakeUpstream, script: &str) -> Answer {
    call(script).for_upstream().send(upstream.address())
}

/// The bytes of the answer, at most `limit`.
fn raw(upstream: &FakeUpstream, script: &str, limit: u64) -> Vec<u8> {
    let stream = call(script).dispatch(upstream.address()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a limit");
    let mut bytes = Vec::new();
    drop(stream.take(limit).read_to_end(&mut bytes));
    bytes
}

fn address(base_url: &str) -> std::net::SocketAddr {
    base_url.trim_start_matches("http://").trim_end_matches("/v1").parse().expect("an address")
}

#[test]
fn scripts_of_a_token_are_used_in_order_and_the_last_is_kept() {
    let upstream = FakeUpstream::start();
    upstream.script_sequence("sk-words", &["status=429", "status=500", ""]);
    let statuses: Vec<u16> = (0..4).map(|_| ask(&upstream, "").status).collect();
    assert_eq!(statuses, [429, 500, 200, 200]);
}

#[test]
fn interim_answers_come_before_the_real_one() {
    let upstream = FakeUpstream::start();
    let text = String::from_utf8_lossy(&raw(&upstream, "interim=103,102", 1 << 20)).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("HTTP/1.1 ")).collect();
    assert_eq!(lines, ["HTTP/1.1 103 Interim", "HTTP/1.1 102 Interim", "HTTP/1.1 200 Scripted"]);
}

#[test]
fn a_coding_directive_compresses_the_body() {
    let upstream = FakeUpstream::start();
    let answer = ask(&upstream, "coding=gzip");
    assert_eq!((answer.header("content-encoding"), &answer.body[..3]), (Some("gzip"), &[0x1f, 0x8b, 8][..]));
    // A small answer is one stored block of deflate: the gzip frame has 18 bytes, and the header of the block has 5.
    let plain = ask(&upstream, "coding=gzip status=500");
    let inside = &plain.body[15..plain.body.len() - 8];
    assert!(serde_json::from_slice::<serde_json::Value>(inside).is_ok(), "{:?}", String::from_utf8_lossy(inside));
    assert!(ask(&upstream, "coding=bomb").body.len() > 9_000_000);
}

#[test]
fn flood_and_endless_answers_have_the_stated_size() {
    let upstream = FakeUpstream::start();
    assert!(ask(&upstream, "flood=10000").headers.len() > 10_000);
    assert!(raw(&upstream, "flood=wide", 6_000_000).len() > 5_000_000);
    assert!(raw(&upstream, "flood=bytes", 4096).windows(3).any(|bytes| bytes == [0xff, 0xfe, 0x80]));
    for script in ["endless=image", "endless=before", "endless=image b64=100000", "sse events=p,flood"] {
        assert_eq!(raw(&upstream, script, 5_000_000).len(), 5_000_000, "{script} ends");
    }
}

#[test]
fn a_still_body_stops_after_the_stated_bytes() {
    let upstream = FakeUpstream::start();
    let bytes = raw(&upstream, "still=7", 1 << 20);
    let body = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    assert_eq!(bytes.len() - body, 7);
}

#[test]
fn an_idle_connection_is_closed_and_a_sour_connection_is_reset() {
    let upstream = FakeUpstream::start();
    let body = request(json!({"prompt": "a cube"})).to_string();
    let message = format!(
        "POST /v1/images/generations HTTP/1.1\r\nauthorization: Bearer sk-words\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for (script, sends_second) in [("idle=50", false), ("sour", true)] {
        upstream.always_for_token("sk-words", script);
        let mut stream = TcpStream::connect(upstream.address()).expect("a connection");
        stream.write_all(message.as_bytes()).expect("a request");
        upstream.wait_until("the answer", |attempts| attempts.last().is_some_and(|attempt| attempt.completed));
        if sends_second {
            stream.write_all(message.as_bytes()).expect("another request");
        }
        // The first answer arrives, then the end or the reset. If the connection hangs, the read runs into the timeout.
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        let ended = stream.read_to_end(&mut Vec::new());
        let hangs = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!hangs, "{script}: the connection stays open");
    }
    assert_eq!(upstream.attempt_count(), 3);
}

#[test]
fn ports_accept_connections_only_after_they_are_opened() {
    let (refusing, unresponsive) = (RefusingPort::new(), UnresponsivePort::new());
    let (refusing_address, unresponsive_address) = (address(&refusing.base_url()), address(&unresponsive.base_url()));
    assert!(TcpStream::connect(refusing_address).is_err());
    assert!(TcpStream::connect_timeout(&unresponsive_address, Duration::from_millis(300)).is_err());
    let (refusing, unresponsive) = (refusing.open(), unresponsive.open());
    for upstream in [&refusing, &unresponsive] {
        assert_eq!(ask(upstream, "").status, 200);
    }
    assert_eq!((refusing.address(), unresponsive.address()), (refusing_address, unresponsive_address));
}
