//! The stop of the gateway: requests that end within the drain timeout are completed, the others get an error.

mod many;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::{Account, Call, FakeUpstream, Gateway, Reply, TEST_TIMEOUT, eventually};

/// A gateway with this drain timeout.
fn with_drain(upstream: &FakeUpstream, drain: &str) -> Gateway {
    Gateway::with(&format!("drain_timeout = \"{drain}\""), &[Account::for_upstream("only", upstream)])
}

#[test]
fn a_request_that_cannot_finish_gets_an_error_without_retry() {
    let upstream = FakeUpstream::start();
    let mut gateway = with_drain(&upstream, "500ms");
    let address = gateway.address();
    let call = gateway.call(json!({"prompt": "a cube [[gate=never]]"}));
    let caller = std::thread::spawn(move || call.try_send(address));
    upstream.wait_until("the job runs", |attempts| attempts.len() == 1);
    gateway.terminate();
    let answer = caller.join().expect("a caller").expect("an answer");
    assert_eq!((answer.status, answer.header("x-should-retry")), (502, Some("false")), "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!((&error["code"], &error["reason"]), (&json!("upstream_error"), &json!("outcome_unknown")), "{error}");
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    // The records are read before the next start, because a start closes open records.
    let records = gateway.records();
    let [record] = records.as_slice() else { panic!("not exactly one record: {records:?}") };
    assert_eq!((&record["state"], &record["error_code"]), (&json!("interrupted"), &json!("upstream_error")));
}

#[test]
fn a_job_without_its_caller_is_recorded_when_it_is_cut_off() {
    let upstream = FakeUpstream::start();
    let mut gateway = with_drain(&upstream, "500ms");
    let scripts = ["gate=never", "gate-middle=never b64=4000000"];
    for (at, script) in scripts.iter().enumerate() {
        let call = gateway.call(json!({"prompt": format!("a cube [[{script}]]")}));
        let stream = call.dispatch(gateway.address()).expect("a connection");
        upstream.wait_until("the job runs", |attempts| attempts.len() == at + 1);
        drop(stream);
    }
    gateway.terminate();
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    let records = gateway.records();
    let states: Vec<_> = records.iter().map(|record| record["state"].as_str().expect("a state")).collect();
    assert_eq!(states, ["interrupted", "interrupted"], "{records:#?}");
}

#[test]
fn a_stream_that_cannot_finish_ends_with_an_error_event() {
    let upstream = FakeUpstream::start();
    let mut gateway = with_drain(&upstream, "500ms");
    let address = gateway.address();
    let fields = json!({"prompt": "a cube [[events=p,@never,c]]", "stream": true, "partial_images": 1});
    let reply = gateway.call(fields).open(address).expect("an answer");
    assert_eq!(reply.status, 200);
    gateway.terminate();
    let answer = reply.finish().expect("the end of the answer");
    assert!(answer.complete && answer.text().contains("event: error"), "{}", answer.text().len());
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    let records = gateway.records();
    assert_eq!(records[0]["state"], "interrupted", "{records:#?}");
}

#[test]
fn a_second_signal_cuts_off_at_once() {
    let upstream = FakeUpstream::start();
    let mut gateway = with_drain(&upstream, "10m");
    let address = gateway.address();
    let call = gateway.call(json!({"prompt": "a cube [[gate=never]]"}));
    let caller = std::thread::spawn(move || call.try_send(address));
    upstream.wait_until("the job runs", |attempts| attempts.len() == 1);
    gateway.terminate();
    eventually("the port is closed", || TcpStream::connect(address).is_err().then_some(()));
    gateway.server().signal("TERM");
    let answer = caller.join().expect("a caller").expect("an answer");
    assert_eq!((answer.status, answer.header("x-should-retry")), (502, Some("false")), "{}", answer.text());
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    assert_eq!(gateway.records()[0]["state"], "interrupted");
}

#[test]
fn readyz_fails_before_the_port_closes() {
    let upstream = FakeUpstream::start();
    let mut gateway =
        Gateway::with("shutdown_delay = \"10m\"\ndrain_timeout = \"1m\"", &[Account::for_upstream("only", &upstream)]);
    let address = gateway.address();
    assert_eq!(Call::get("/readyz").send(address).status, 200);
    gateway.terminate();
    eventually("the gateway is not ready", || (Call::get("/readyz").send(address).status == 503).then_some(()));
    gateway.generate(json!({})).ok_json();
    gateway.server().signal("TERM");
    eventually("the port is closed", || TcpStream::connect(address).is_err().then_some(()));
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
}

#[test]
fn a_kept_alive_connection_gets_connection_close() {
    let upstream = FakeUpstream::start();
    let mut gateway = with_drain(&upstream, "1m");
    let address = gateway.address();
    let body = json!({"model": "gpt-image-2", "prompt": "a cube [[gate=end]]"}).to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    let head = format!(
        "POST /v1/images/generations HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        gateway.secret(),
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("a request");
    upstream.wait_until("the job runs", |attempts| attempts.len() == 1);
    gateway.terminate();
    eventually("the port is closed", || TcpStream::connect(address).is_err().then_some(()));
    upstream.open_gate("end");
    let mut reader = BufReader::new(stream);
    let mut closes = false;
    for line in reader.by_ref().lines() {
        let line = line.expect("a line of the head").to_ascii_lowercase();
        closes |= line == "connection: close";
        if line.is_empty() {
            break;
        }
    }
    assert!(closes, "the head has no `connection: close`");
    let mut body = Vec::new();
    reader.read_to_end(&mut body).expect("the connection is closed after the answer");
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
}

#[test]
fn a_request_whose_body_is_still_arriving_is_finished() {
    let upstream = FakeUpstream::start();
    let mut gateway = with_drain(&upstream, "1m");
    let address = gateway.address();
    let body = json!({"model": "gpt-image-2", "prompt": "a cube"}).to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    let head = format!(
        "POST /v1/images/generations HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        gateway.secret(),
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("the head of a request");
    let mut interim = *b"HTTP/1.1 100 Continue\r\n\r\n";
    stream.read_exact(&mut interim).expect("the gateway waits for the body");
    assert!(interim.starts_with(b"HTTP/1.1 100"));
    gateway.terminate();
    eventually("the port is closed", || TcpStream::connect(address).is_err().then_some(()));
    stream.write_all(body.as_bytes()).expect("the body");
    let answer = Reply::read(stream).expect("an answer").finish().expect("the end of the answer");
    answer.ok_json();
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    assert_eq!(gateway.records()[0]["state"], "succeeded");
}

#[test]
fn a_sighup_does_not_end_the_process() {
    let upstream = FakeUpstream::start();
    let mut gateway = with_drain(&upstream, "1m");
    let address = gateway.address();
    let call = gateway.call(json!({"prompt": "a cube [[gate=end]]"}));
    let caller = std::thread::spawn(move || call.try_send(address));
    upstream.wait_until("the job runs", |attempts| attempts.len() == 1);
    gateway.server().signal("HUP");
    Call::get("/healthz").send(address);
    // A SIGHUP during the stop does not end the process early either.
    gateway.terminate();
    eventually("the port is closed", || TcpStream::connect(address).is_err().then_some(()));
    gateway.server().signal("HUP");
    upstream.open_gate("end");
    caller.join().expect("a caller").expect("an answer").ok_json();
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    assert_eq!(gateway.records()[0]["state"], "succeeded");
}

#[test]
fn an_idle_connection_does_not_delay_the_stop() {
    let upstream = FakeUpstream::start();
    let mut gateway = with_drain(&upstream, "10m");
    gateway.generate(json!({})).ok_json();
    let _idle = TcpStream::connect(gateway.address()).expect("a connection");
    let start = Instant::now();
    gateway.terminate();
    gateway.server().signal("HUP");
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    assert!(start.elapsed() < Duration::from_secs(30), "the stop waited for an idle connection");
}
