//! Each job has exactly one durable record: after a graceful stop, and if the caller hangs up. `soak::sigkills` has the
//! kills.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, FakeUpstream, Gateway, eventually};

/// The records by their end user.
fn by_user(records: &[Value]) -> BTreeMap<String, Vec<&Value>> {
    let mut by_end_user = BTreeMap::<_, Vec<_>>::new();
    for record in records {
        by_end_user.entry(record["end_user"].as_str().unwrap_or("nobody").to_owned()).or_default().push(record);
    }
    by_end_user
}

/// A gateway with this drain timeout, and `count` requests that wait upstream at the gate `end`.
fn start_with_waiting_requests(
    upstream: &FakeUpstream,
    drain: &str,
    count: usize,
) -> (Gateway, Vec<JoinHandle<std::io::Result<Answer>>>) {
    let gateway = Gateway::with(&format!("drain_timeout = \"{drain}\""), &[Account::for_upstream("only", upstream)]);
    let address = gateway.address();
    let callers = (0..count).map(|at| {
        let fields = json!({"prompt": "a cube [[gate=end b64=1000000]]", "user": format!("u-{at}")});
        let call = gateway.call(fields);
        std::thread::spawn(move || call.try_send(address))
    });
    let callers = callers.collect();
    upstream.wait_until("all are running", |attempts| attempts.len() == count);
    (gateway, callers)
}

#[test]
fn a_graceful_stop_lets_running_requests_finish() {
    let upstream = FakeUpstream::start();
    let (mut gateway, callers) = start_with_waiting_requests(&upstream, "20s", 8);
    let before = gateway.output();
    gateway.terminate();
    eventually("the log shows the stop", || (gateway.output() != before).then_some(()));
    upstream.open_gate("end");
    for caller in callers {
        caller.join().expect("a caller").expect("an answer").ok_json();
    }
    let status = gateway.server().wait(Duration::from_secs(20));
    assert!(status.success(), "{status}");
    let records = gateway.records();
    assert_eq!(records.len(), 8);
    assert!(records.iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn a_stopping_gateway_accepts_no_new_connection() {
    let upstream = FakeUpstream::start();
    let (mut gateway, callers) = start_with_waiting_requests(&upstream, "20s", 1);
    let address = gateway.address();
    gateway.terminate();
    eventually("the port is closed", || std::net::TcpStream::connect(address).is_err().then_some(()));
    let still_running = !callers[0].is_finished();
    upstream.open_gate("end");
    let answer = callers.into_iter().map(|caller| caller.join().expect("a caller")).next().expect("one caller");
    assert!(still_running, "the port was closed only after the last request");
    answer.expect("an answer").ok_json();
}

#[test]
fn a_graceful_stop_ends_after_the_drain_timeout() {
    let upstream = FakeUpstream::start();
    let (mut gateway, callers) = start_with_waiting_requests(&upstream, "1s", 1);
    gateway.terminate();
    gateway.server().wait(Duration::from_secs(15));
    for caller in callers {
        let answer = caller.join().expect("a caller");
        assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status != 200 || !answer.complete));
    }
    gateway.start_again();
    let records = gateway.records();
    let [record] = records.as_slice() else { panic!("not exactly one record: {records:?}") };
    assert!(["interrupted", "cancelled"].contains(&record["state"].as_str().expect("a state")), "{record}");
}

#[test]
fn a_caller_who_hangs_up_leaves_exactly_one_record() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let scripts =
        ["gate=go", "gate=go b64=4000000", "gate-middle=go b64=4000000", "gate-middle=go framing=chunked b64=4000000"];
    for (at, script) in scripts.iter().enumerate() {
        let call = gateway.call(json!({"prompt": format!("a cube [[{script}]]"), "user": format!("u-{at}")}));
        let stream = call.dispatch(gateway.address()).expect("a connection");
        upstream.wait_until("the attempt runs", |attempts| attempts.len() > at);
        drop(stream);
    }
    upstream.open_gate("go");
    let records = gateway.final_records(scripts.len());
    let by_end_user = by_user(&records);
    assert_eq!(by_end_user.len(), scripts.len());
    for (user, records) in by_end_user {
        let [record] = records.as_slice() else { panic!("{user} has {} records", records.len()) };
        assert!(
            ["succeeded", "cancelled", "interrupted"].contains(&record["state"].as_str().expect("a state")),
            "{record}"
        );
    }
    // The slots of the callers who left are free again.
    gateway.generate(json!({})).ok_json();
}

#[test]
fn a_job_without_its_caller_is_recorded_with_its_tokens() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let stream =
        gateway.call(json!({"prompt": "a cube [[gate=go]]"})).dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt runs", |attempts| attempts.len() == 1);
    drop(stream);
    upstream.open_gate("go");
    upstream.wait_until("the upstream has sent all of its answer", |attempts| attempts[0].completed);
    let record = &gateway.final_records(1)[0];
    assert!(["succeeded", "cancelled"].contains(&record["state"].as_str().expect("a state")), "{record}");
    assert_eq!(Some(&record["usage"]), upstream.received_attempts()[0].usage.as_ref(), "{record}");
    assert_eq!(record["delivered"][0]["size"], "1024x1024");
}

#[test]
fn a_record_has_the_properties_of_its_request() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let fields = json!({"n": 2, "size": "1536x1024", "quality": "low", "output_format": "webp", "output_compression": 60, "user": "u-1"});
    let answer = gateway.generate(fields);
    answer.ok_json();
    let record = &gateway.final_records(1)[0];
    let image = json!({"size": "1536x1024", "output_format": "webp", "quality": "low"});
    let delivered = [&image, &image];
    // 17 text tokens and two images of 196 tokens: (17 x 5 + 2 x 196 x 30) / 1000000
    let expected = json!({
        "operation": "create_image", "model": "gpt-image-2", "stream": false, "state": "succeeded", "error_code": null,
        "size": "1536x1024", "quality": "low", "output_format": "webp", "n": 2, "delivered": delivered,
        "cost_usd": 0.011_845, "cost_basis": "exact", "cost_reason": null,
        "account": "only", "group": "default", "end_user": "u-1", "key": gateway.key_id(), "missing": null,
        "image_model": "gpt-image-2", "host_model": null, "host_usage": null,
    });
    for (field, value) in expected.as_object().expect("fields") {
        assert_eq!(&record[field], value, "{field}: {record}");
    }
    assert_eq!(record["request_id"].as_str(), answer.header("x-request-id"));
    assert_eq!(Some(&record["usage"]), upstream.received_attempts()[0].usage.as_ref());
    assert!(
        record["first_byte_ms"].as_u64() <= record["latency_ms"].as_u64() && record["latency_ms"].is_u64(),
        "{record}"
    );
    assert!(record["user"].as_str().is_some_and(|user| user.starts_with("usr_")), "{record}");
    assert!(record["created_at"].as_str().is_some_and(|at| at.ends_with('Z') && at.contains('T')), "{record}");
    let [attempt] = record["attempts"].as_array().expect("attempts").as_slice() else { panic!("{record}") };
    assert_eq!(
        (&attempt["account"], &attempt["class"], &attempt["status"]),
        (&json!("only"), &Value::Null, &json!(200))
    );
    assert!(attempt["latency_ms"].is_u64());
}

#[test]
fn records_of_parallel_requests_are_not_mixed_up() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    std::thread::scope(|scope| {
        for at in 0..24 {
            let gateway = &gateway;
            scope.spawn(move || {
                let prompt = format!("{} [[tokens={}]]", "x".repeat(at), 1000 + at);
                let answer = gateway.generate(json!({"prompt": prompt, "user": format!("u-{at}")})).ok_json();
                assert_eq!(answer["usage"]["output_tokens"], 1000 + at);
            });
        }
    });
    let records = gateway.final_records(24);
    assert_eq!(records.len(), 24);
    for record in records {
        let at: u64 = record["end_user"]
            .as_str()
            .and_then(|user| user.strip_prefix("u-"))
            .expect("a user")
            .parse()
            .expect("a number");
        assert_eq!(record["usage"]["output_tokens"], 1000 + at, "{record}");
    }
}
