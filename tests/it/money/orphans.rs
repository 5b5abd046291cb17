//! Orphans: if a caller leaves before its answer, the answer goes to marked retries of the same caller.

use std::io::Read as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{paid, pool, pool_with};
use crate::kit::{Answer, Call, FakeUpstream, Form, Gateway, alpha_png, eventually};

/// The header that the official clients send with their first automatic retry.
const RETRY: (&str, &str) = ("x-stainless-retry-count", "1");

/// A generation that waits upstream until the test opens the gate.
fn gated(user: &str) -> Value {
    json!({"prompt": "a cube [[gate=open]]", "user": user})
}

/// The same request as the client's own retry.
fn retry(gateway: &Gateway, with: Value) -> Call {
    gateway.call(with).header(RETRY.0, RETRY.1)
}

/// Sends, waits until the upstream has it, and leaves.
#[track_caller]
fn leave(call: Call, gateway: &Gateway, upstream: &FakeUpstream) {
    let before = upstream.attempt_count();
    let stream: TcpStream = call.dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt has begun", |attempts| attempts.len() > before);
    drop(stream);
}

/// Sends all calls at once, opens the gate when the upstream has this many attempts and the gateway has every request,
/// and returns the answers.
fn at_once(gateway: &Gateway, calls: Vec<Call>, upstream: &FakeUpstream, attempts: usize) -> Vec<Answer> {
    let address = gateway.address();
    std::thread::scope(|scope| {
        let threads: Vec<_> = calls.into_iter().map(|call| scope.spawn(move || call.send(address))).collect();
        upstream.wait_until("the attempts have begun", |received| received.len() >= attempts);
        // A retry that arrives after the orphan was delivered would find nothing, so the gate opens only when the
        // gateway has all calls.
        eventually("the gateway has every request", || {
            let text = Call::get("/metrics").send(gateway.metrics_address()).text();
            let busy =
                text.lines().find_map(|line| line.strip_prefix("imagate_connections{state=\"busy\"} ")?.parse().ok());
            busy.filter(|busy: &usize| *busy >= threads.len())
        });
        upstream.open_gate("open");
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    })
}

#[test]
fn a_retry_takes_over_what_is_still_being_made() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    leave(gateway.call(gated("a")), &gateway, &upstream);
    let answers = at_once(&gateway, vec![retry(&gateway, gated("a"))], &upstream, 1);
    let image = answers[0].ok_json()["data"][0]["b64_json"].clone();
    assert_eq!(image, json!(upstream.received_attempts()[0].images[0]));
    assert_eq!((upstream.attempt_count(), paid(&upstream)), (1, 1));
    let records = gateway.final_records(1);
    assert_eq!(super::recorded_attempts(&records), 1, "{records:#?}");
}

#[test]
fn a_retry_takes_over_what_is_finished() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    leave(gateway.call(gated("a")), &gateway, &upstream);
    upstream.open_gate("open");
    upstream.wait_until("the image is made", |attempts| attempts[0].completed);
    gateway.final_records(1);
    retry(&gateway, gated("a")).send(gateway.address()).ok_json();
    assert_eq!(upstream.attempt_count(), 1);
}

/// A client that closes its socket before it has read all of the answer resets the connection.
#[test]
fn a_retry_gets_an_answer_that_its_client_did_not_read() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    let ask = |retries: &str| gateway.call(json!({"prompt": "a cube", "user": "a"})).header(RETRY.0, retries);
    for reads_some in [false, true] {
        let before = upstream.attempt_count();
        let mut stream = ask("0").dispatch(gateway.address()).expect("a connection");
        let mut answer = vec![0; 1024 * 1024];
        eventually("the answer has come", || {
            let length = stream.peek(&mut answer).expect("bytes");
            let text = answer[..length].trim_ascii_end();
            (text.ends_with(b"}") || text.ends_with(b"\r\n0")).then_some(())
        });
        if reads_some {
            stream.read_exact(&mut answer[..100]).expect("the head");
        }
        drop(stream);
        let image = ask("1").send(gateway.address()).ok_json()["data"][0]["b64_json"].clone();
        assert_eq!(image, json!(upstream.received_attempts()[before].images[0]));
        assert_eq!(upstream.attempt_count(), before + 1);
    }
}

/// What was read is not given to the next request, even if it is marked as a retry.
#[test]
fn an_answer_that_was_read_is_delivered() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    for (retries, attempts) in [("0", 1), ("1", 2)] {
        let call = gateway.call(json!({"prompt": "a cube", "user": "a"})).header(RETRY.0, retries);
        call.send(gateway.address()).ok_json();
        assert_eq!(upstream.attempt_count(), attempts);
        // After this time, the gateway knows that the connection was not reset.
        crate::kit::pause(std::time::Duration::from_millis(1_200));
    }
}

/// A stream of an official client, which counts its retries.
fn stream(gateway: &Gateway, retries: &str) -> Call {
    let stream = json!({"prompt": "a cube [[gate=open]]", "user": "a", "stream": true});
    gateway.call(stream).header(RETRY.0, retries)
}

#[test]
fn a_retry_takes_over_a_stream_that_had_not_begun() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    leave(stream(&gateway, "0"), &gateway, &upstream);
    let answers = at_once(&gateway, vec![stream(&gateway, "1")], &upstream, 1);
    let text = answers[0].text();
    assert!(answers[0].status == 200 && text.contains("event: image_generation.completed"), "{text:.200}");
    assert!(text.contains(&upstream.received_attempts()[0].images[0]));
    assert_eq!((upstream.attempt_count(), paid(&upstream)), (1, 1));
    let records = gateway.final_records(1);
    assert_eq!(super::recorded_attempts(&records), 1, "{records:#?}");
}

#[test]
fn a_stream_that_had_begun_ends_when_its_caller_leaves_and_its_retry_is_a_new_job() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    let begun = json!({"prompt": "a cube [[events=p,murmur]]", "user": "a", "stream": true, "partial_images": 1});
    let call = gateway.call(begun).header(RETRY.0, "0");
    let mut events = crate::kit::Events::from_reply(call.open(gateway.address()).expect("an answer"));
    events.next().expect("an event").expect("a partial image");
    drop(events);
    upstream.wait_until("the upstream call is closed", |attempts| attempts[0].peer_left);
    assert_eq!(gateway.final_records(1)[0]["state"], "cancelled");
    upstream.open_gate("open");
    let answer = stream(&gateway, "1").send(gateway.address());
    assert!(answer.text().contains("event: image_generation.completed"));
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn an_edit_is_taken_over_as_well() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    let form = || {
        let form = Form::new().text("model", "gpt-image-2").text("prompt", "a hat [[gate=open]]");
        form.file("image", &alpha_png(96, 64)).call().key(gateway.secret())
    };
    leave(form(), &gateway, &upstream);
    at_once(&gateway, vec![form().header(RETRY.0, RETRY.1)], &upstream, 1)[0].ok_json();
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn retries_at_once_share_one_orphan() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    leave(gateway.call(gated("a")), &gateway, &upstream);
    let calls = (0..3).map(|_| retry(&gateway, gated("a"))).collect();
    for answer in at_once(&gateway, calls, &upstream, 1) {
        answer.ok_json();
    }
    assert_eq!((upstream.attempt_count(), paid(&upstream)), (1, 1));
    // The orphan has been delivered, so another retry is a new job.
    retry(&gateway, gated("a")).send(gateway.address()).ok_json();
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn nobody_else_gets_an_orphan() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    let other = gateway.make_key("other");
    let foreign = Call::generation().key(other["secret"].as_str().expect("a secret"));
    leave(gateway.call(gated("a")), &gateway, &upstream);
    let calls = vec![
        // Another key with the same body, another body, and a request that is no retry.
        foreign.json(&crate::kit::request(gated("a"))).header(RETRY.0, RETRY.1),
        retry(&gateway, gated("b")),
        gateway.call(gated("a")),
        gateway.call(gated("a")).header(RETRY.0, "0"),
    ];
    for answer in at_once(&gateway, calls, &upstream, 5) {
        answer.ok_json();
    }
    assert_eq!((upstream.attempt_count(), paid(&upstream)), (5, 5));
}

#[test]
fn a_caller_who_waits_shares_its_answer_with_its_own_retry() {
    let upstream = FakeUpstream::start();
    let gateway = pool(&upstream);
    let (address, first) = (gateway.address(), gateway.call(gated("a")));
    std::thread::scope(|scope| {
        let first = scope.spawn(move || first.send(address));
        upstream.wait_until("the attempt has begun", |attempts| attempts.len() == 1);
        // Both callers stay: a proxy may hold the connection of a client that has given up.
        let second = scope.spawn(|| retry(&gateway, gated("a")).send(address));
        gateway.wait_until_busy(2);
        // Longer than the time for which a retry waits for an orphan.
        crate::kit::pause(std::time::Duration::from_millis(1500));
        upstream.open_gate("open");
        let answers = [first, second].map(|thread| thread.join().expect("an answer"));
        assert_eq!(answers[0].ok_json(), answers[1].ok_json());
    });
    assert_eq!((upstream.attempt_count(), paid(&upstream)), (1, 1));
}

#[test]
fn a_retry_of_a_failed_orphan_gets_its_error_and_costs_nothing() {
    for (script, reason) in [("cut=30 gate=open", "network"), ("status=400 body=policy gate=open", "content_refused")] {
        let upstream = FakeUpstream::start();
        let gateway = pool(&upstream);
        let with = || json!({"prompt": format!("a cube [[{script}]]")});
        leave(gateway.call(with()), &gateway, &upstream);
        let answers = at_once(&gateway, vec![retry(&gateway, with())], &upstream, 1);
        assert_eq!(answers[0].should_retry(), Some("false"), "{script}");
        assert_eq!(answers[0].error_object(502)["reason"], reason, "{script}");
        assert_eq!(upstream.attempt_count(), 1, "{script}");
    }
}

#[test]
fn taking_over_orphans_can_be_switched_off() {
    let upstream = FakeUpstream::start();
    let gateway = pool_with("[replay]\norphans = false\n", &upstream);
    leave(gateway.call(gated("a")), &gateway, &upstream);
    at_once(&gateway, vec![retry(&gateway, gated("a"))], &upstream, 2)[0].ok_json();
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn an_orphan_is_forgotten_after_its_window() {
    let upstream = FakeUpstream::start();
    let gateway = pool_with("[replay]\norphan_window = \"1s\"\n", &upstream);
    leave(gateway.call(gated("a")), &gateway, &upstream);
    upstream.open_gate("open");
    gateway.final_records(1);
    crate::kit::pause(std::time::Duration::from_millis(2500));
    retry(&gateway, gated("a")).send(gateway.address()).ok_json();
    assert_eq!(upstream.attempt_count(), 2, "an image older than the window was delivered");
}
