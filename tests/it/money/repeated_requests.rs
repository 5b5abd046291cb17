//! A repeated request never pays a second time: it gets the answer that was paid for, or an error which says that the
//! outcome is unknown.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::paid;
use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, eventually};

/// The headers that the official clients send with their first try, and with their automatic retry.
const FIRST: (&str, &str) = ("x-stainless-retry-count", "0");
const RETRY: (&str, &str) = ("x-stainless-retry-count", "1");

/// A gateway with one account for the image endpoints and one for responses.
fn both(upstream: &FakeUpstream) -> Gateway {
    both_with("", upstream)
}

fn both_with(top: &str, upstream: &FakeUpstream) -> Gateway {
    let accounts = [
        Account::for_upstream("images", upstream),
        Account::for_upstream("text", upstream).with_responses_protocol().with_free_tier(),
    ];
    Gateway::with(top, &accounts)
}

/// The same request at the endpoints of generations and of responses, with a script for the upstream.
fn requests(gateway: &Gateway, script: &str) -> [Call; 2] {
    let input = format!("a red cube [[{script}]]");
    let body = json!({"model": "gpt-5.5", "input": input, "tools": [{"type": "image_generation", "size": "1024x640"}]});
    let response = Call::post("/v1/responses").key(gateway.secret()).json(&body);
    [gateway.call(json!({"prompt": input})), response]
}

fn with(call: &Call, header: (&str, &str)) -> Call {
    call.clone().header(header.0, header.1)
}

/// Sends a request, and leaves after `read` bytes of the body.
#[track_caller]
fn leave_within(call: Call, gateway: &Gateway, read: usize) {
    let mut reply = call.with_small_window().open(gateway.address()).expect("a head");
    assert_eq!(reply.status, 200);
    reply.read_exact(&mut vec![0; read]).expect("the first bytes");
}

/// Sends the first try of one of the requests, and waits until its attempt has begun.
#[track_caller]
fn begin(gateway: &Gateway, upstream: &FakeUpstream, at: usize, script: &str) -> (Call, TcpStream) {
    let call = requests(gateway, script)[at].clone();
    let stream = with(&call, FIRST).dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt has begun", |attempts| attempts.len() == 1);
    (call, stream)
}

/// Asserts a complete 200.
#[track_caller]
fn good(answer: &Answer) -> &Answer {
    assert!(answer.status == 200 && answer.complete, "{} {:.300}", answer.status, answer.text());
    answer
}

/// Asserts that two answers are equal, without printing bodies of megabytes.
#[track_caller]
fn same(one: &Answer, other: &Answer) {
    assert!(good(one).body == good(other).body, "{:.100}\n{:.100}", one.text(), other.text());
}

/// Asserts an error that no client retries by itself: the first try may have been paid for, but its result is lost.
#[track_caller]
fn unknown(answer: &Answer) {
    assert_eq!(answer.error_object(502)["reason"], "outcome_unknown", "{:.300}", answer.text());
    assert_eq!(answer.should_retry(), Some("false"));
}

#[test]
fn a_caller_who_leaves_within_the_body_gets_all_of_it_by_a_retry() {
    for at in 0..2 {
        let upstream = FakeUpstream::start();
        let gateway = both(&upstream);
        let call = &requests(&gateway, "b64=12000000")[at];
        leave_within(with(call, FIRST), &gateway, 1_000_000);
        let answer = with(call, RETRY).send(gateway.address());
        assert!(good(&answer).body.len() > 12_000_000);
        assert_eq!(answer.header("x-imagate-replayed"), Some("true"));
        assert_eq!(upstream.attempt_count(), 1, "{at}");
        // As in `what_an_orphan_has_made_survives_a_restart`, the caller has the answer a moment before that is noted.
        gateway.wait_until_busy(0);
        good(&with(call, RETRY).send(gateway.address()));
        assert_eq!(upstream.attempt_count(), 2, "{at}");
    }
}

#[test]
fn a_retry_joins_the_job_whose_first_connection_is_still_open() {
    for at in 0..2 {
        let upstream = FakeUpstream::start();
        let gateway = both(&upstream);
        let (call, address) = (&requests(&gateway, "gate=open b64=3000000")[at], gateway.address());
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let first = scope.spawn(|| with(call, FIRST).send(address));
            upstream.wait_until("the attempt has begun", |attempts| attempts.len() == 1);
            let retries: Vec<_> = (0..3).map(|_| scope.spawn(|| with(call, RETRY).send(address))).collect();
            gateway.wait_until_busy(4);
            // Longer than the time for which a retry waits for an orphan.
            crate::kit::pause(Duration::from_millis(1500));
            upstream.open_gate("open");
            [first].into_iter().chain(retries).map(|thread| thread.join().expect("an answer")).collect()
        });
        answers.iter().for_each(|answer| same(&answers[0], answer));
        assert_eq!(upstream.attempt_count(), 1, "{at}");
    }
}

#[test]
fn as_many_retries_as_jobs_get_an_image_each() {
    let upstream = FakeUpstream::start();
    let gateway = both(&upstream);
    let (call, address) = (&requests(&gateway, "gate=open")[0], gateway.address());
    std::thread::scope(|scope| {
        let firsts: Vec<_> = (0..3).map(|_| with(call, FIRST).dispatch(address).expect("a connection")).collect();
        upstream.wait_until("the attempts have begun", |attempts| attempts.len() == 3);
        drop(firsts);
        gateway.wait_until_busy(0);
        let retries: Vec<_> = (0..3).map(|_| scope.spawn(|| with(call, RETRY).send(address))).collect();
        gateway.wait_until_busy(3);
        upstream.open_gate("open");
        for thread in retries {
            good(&thread.join().expect("an answer"));
        }
    });
    assert_eq!((upstream.attempt_count(), paid(&upstream)), (3, 3));
}

#[test]
fn the_same_key_is_paid_once_at_the_responses_too() {
    for stream in [false, true] {
        let upstream = FakeUpstream::start();
        let mut gateway = both(&upstream);
        let body = |input: &str| json!({"model": "gpt-5.5", "input": input, "stream": stream});
        let keyed = |gateway: &Gateway, body: &Value| {
            Call::post("/v1/responses").key(gateway.secret()).header("idempotency-key", "order-1").json(body)
        };
        let first = keyed(&gateway, &body("a red cube")).send(gateway.address());
        let again = keyed(&gateway, &body("a red cube")).send(gateway.address());
        same(&first, &again);
        assert_eq!(
            (first.header("content-type"), again.header("x-imagate-replayed")),
            (again.header("content-type"), Some("true"))
        );
        assert_eq!(upstream.attempt_count(), 1, "stream: {stream}");
        let other = keyed(&gateway, &body("a blue cube")).send(gateway.address()).error_object(400);
        assert_eq!(other["reason"], "idempotency_key_reused");
        gateway.kill();
        gateway.start();
        same(&first, &keyed(&gateway, &body("a red cube")).send(gateway.address()));
        assert_eq!(upstream.attempt_count(), 1, "stream: {stream}");
    }
}

#[test]
fn a_retry_at_the_responses_gets_what_the_first_try_left_behind() {
    let upstream = FakeUpstream::start();
    let gateway = both(&upstream);
    let (call, stream) = begin(&gateway, &upstream, 1, "gate=open");
    drop(stream);
    upstream.open_gate("open");
    gateway.final_records(1);
    good(&with(&call, RETRY).send(gateway.address()));
    assert_eq!((upstream.attempt_count(), paid(&upstream)), (1, 1));
}

#[test]
fn a_graceful_stop_keeps_the_answers_that_nobody_waits_for() {
    let upstream = FakeUpstream::start();
    let mut gateway = both(&upstream);
    let keyed = |gateway: &Gateway, number: usize| {
        let body = json!({"prompt": format!("a cube {number} [[gate=open b64=2000000]]")});
        gateway.call(body).header("idempotency-key", &format!("order-{number}"))
    };
    let streams: Vec<_> = (0..8).map(|number| keyed(&gateway, number).dispatch(gateway.address())).collect();
    upstream.wait_until("the attempts have begun", |attempts| attempts.len() == 8);
    drop(streams);
    gateway.terminate();
    upstream.open_gate("open");
    eventually("it has ended", || (!gateway.server().is_running()).then_some(()));
    gateway.start_again();
    for number in 0..8 {
        let answer = keyed(&gateway, number).send(gateway.address());
        assert_eq!(good(&answer).header("x-imagate-replayed"), Some("true"), "{number}");
    }
    assert_eq!(upstream.attempt_count(), 8);
}

#[test]
fn a_retry_after_a_kill_gets_outcome_unknown() {
    for at in 0..2 {
        let upstream = FakeUpstream::start();
        let mut gateway = both(&upstream);
        let (call, stream) = begin(&gateway, &upstream, at, "gate=open");
        gateway.kill();
        drop(stream);
        gateway.start();
        upstream.open_gate("open");
        for _ in 0..2 {
            unknown(&with(&call, RETRY).send(gateway.address()));
        }
        assert_eq!(upstream.attempt_count(), 1, "{at}");
        // A request without a retry mark is a new job.
        good(&with(&call, FIRST).send(gateway.address()));
        assert_eq!(upstream.attempt_count(), 2, "{at}");
    }
}

#[test]
fn a_retry_after_a_drain_that_was_too_short_gets_outcome_unknown() {
    let upstream = FakeUpstream::start();
    let mut gateway = both_with("drain_timeout = \"1s\"\n", &upstream);
    let (call, stream) = begin(&gateway, &upstream, 0, "gate=open");
    gateway.terminate();
    eventually("it has ended", || (!gateway.server().is_running()).then_some(()));
    drop(stream);
    gateway.start_again();
    upstream.open_gate("open");
    unknown(&with(&call, RETRY).send(gateway.address()));
    assert_eq!(upstream.attempt_count(), 1);
}

/// Waits until the answer of an orphan is stored: its file is whole, and its row, which names the file, is committed.
fn wait_until_stored(gateway: &Gateway) {
    let data = gateway.home().join("data");
    let file = eventually("the file is whole", || {
        let mut files = std::fs::read_dir(data.join("replays")).expect("a folder").flatten();
        files.find_map(|file| file.file_name().into_string().ok().filter(|name| name.ends_with(".answer")))
    });
    let is_committed = || match gateway.run_database() {
        Some(database) => database.count("SELECT count(*) FROM replays WHERE file IS NOT NULL") > 0,
        None => {
            let mut parts =
                ["imagate.db", "imagate.db-wal"].iter().filter_map(|name| std::fs::read(data.join(name)).ok());
            parts.any(|part| memchr::memmem::find(&part, file.as_bytes()).is_some())
        }
    };
    eventually("the row is committed", || is_committed().then_some(()));
}

#[test]
fn what_an_orphan_has_made_survives_a_restart() {
    for (at, killed) in [(0, false), (1, false), (0, true)] {
        let upstream = FakeUpstream::start();
        let mut gateway = both(&upstream);
        let (call, stream) = begin(&gateway, &upstream, at, "gate=open b64=3000000");
        drop(stream);
        if killed {
            upstream.open_gate("open");
            wait_until_stored(&gateway);
            gateway.kill();
            gateway.start();
        } else {
            gateway.terminate();
            upstream.open_gate("open");
            eventually("it has ended", || (!gateway.server().is_running()).then_some(()));
            gateway.start_again();
        }
        let answer = with(&call, RETRY).send(gateway.address());
        assert_eq!(good(&answer).header("x-imagate-replayed"), Some("true"), "{at}");
        assert_eq!(upstream.attempt_count(), 1, "{at}");
        // The answer was delivered once, so the next request is a new job. The caller has it a moment before that is noted.
        gateway.wait_until_busy(0);
        good(&with(&call, RETRY).send(gateway.address()));
        assert_eq!(upstream.attempt_count(), 2, "{at}");
    }
}

#[test]
fn a_retry_of_what_cost_nothing_runs_after_an_older_twin_was_interrupted() {
    let upstream = FakeUpstream::start();
    let mut gateway = both(&upstream);
    let (call, stream) = begin(&gateway, &upstream, 0, "gate=open");
    gateway.kill();
    drop(stream);
    gateway.start();
    upstream.open_gate("open");
    // The user sends the request again, and it fails without cost; the client retries it by itself.
    (0..2).for_each(|_| upstream.script_next("status=500"));
    assert_eq!(with(&call, FIRST).send(gateway.address()).should_retry(), Some("true"));
    good(&with(&call, RETRY).send(gateway.address()));
}
