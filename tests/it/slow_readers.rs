//! Callers who read slowly: this is never counted as a failure of the account, and the record has what was paid for.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::{Account, Call, FakeUpstream, Gateway, Reply, pause};

/// The number of slow readers: as many failures would eject an account.
const READERS: usize = 3;
/// The number of base64 characters of one image.
const IMAGE_CHARS: usize = 30_000_000;
/// The time limit of a request. The time in which the gateway waits for the caller does not count.
const REQUEST_TOTAL: Duration = Duration::from_secs(imagate::tables::REQUEST_TOTAL_SECONDS);
/// The earliest time at which a slow caller can be cut off: the rate is an average over half of this time, and the
/// bytes in the socket buffers cover the other half.
const EARLIEST_CUT: Duration = Duration::from_secs(60);
/// The pause between two reads.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause between two looks at the records, each of which starts a command.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

fn gateway_with_two_accounts(upstream: &FakeUpstream) -> Gateway {
    Gateway::with(
        "",
        &[Account::for_upstream("first", upstream), Account::for_upstream("second", upstream).with_free_tier()],
    )
}

/// Sets its flag when it is dropped, also by a panic: without the flag the reader threads would never end.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads `bytes` bytes between pauses until `is_done`, then the remaining answer; true if the answer is complete.
fn read_slowly(gateway: &Gateway, bytes: usize, is_done: impl Fn() -> bool) -> bool {
    read_call_slowly(gateway, large_call(gateway), bytes, is_done)
}

/// A request for a large image.
fn large_call(gateway: &Gateway) -> Call {
    let prompt = format!("a wide valley [[b64={IMAGE_CHARS}]]");
    gateway.call(json!({"prompt": prompt, "size": "3840x2160"})).with_small_window()
}

fn read_call_slowly(gateway: &Gateway, call: Call, bytes: usize, is_done: impl Fn() -> bool) -> bool {
    let mut reply: Reply = call.open(gateway.address()).expect("an answer");
    assert_eq!(reply.status, 200);
    let mut buffer = vec![0; bytes];
    while !is_done() {
        if reply.read_exact(&mut buffer).is_err() {
            return false;
        }
        pause(PAUSE);
    }
    reply.finish().expect("the rest").complete
}

fn check_records(records: &[Value], state: &str) {
    for record in records {
        assert_eq!((&record["state"], &record["error_reason"]), (&json!(state), &Value::Null), "{record}");
        assert_eq!((&record["account"], &record["attempts"][0]["class"]), (&json!("first"), &Value::Null), "{record}");
        assert_eq!(record["delivered"].as_array().map(Vec::len), Some(1), "{record}");
        assert!(
            record["usage"]["total_tokens"].is_u64(),
            "the record must have the tokens that were paid for: {record}"
        );
    }
}

#[track_caller]
fn assert_account_is_blameless(gateway: &Gateway) {
    let account = gateway.account("first");
    assert_eq!((&account["state"], &account["cooling_cause"]), (&json!("enabled"), &Value::Null), "{account}");
    gateway.generate(json!({})).ok_json();
    assert_eq!(gateway.records().pop().expect("a record")["account"], "first");
}

/// Both ways wait for minutes, so they take one thread of the test program and not two.
#[test]
fn slow_readers_are_cut_off_and_a_reader_at_the_rate_is_served() {
    std::thread::scope(|scope| {
        scope.spawn(check_readers_of_a_stored_answer);
        check_readers();
    });
}

fn check_readers() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_two_accounts(&upstream);
    let (are_cut, is_checked) = (AtomicBool::new(false), AtomicBool::new(false));
    let (gateway, are_cut, is_checked) = (&gateway, &are_cut, &is_checked);
    std::thread::scope(|scope| {
        // The readers read at 1.5 times the minimum rate, at half of it, and not at all.
        let fast = scope.spawn(move || read_slowly(gateway, 3_072, || is_checked.load(Ordering::Relaxed)));
        let slow: Vec<_> = [1_024, 1_024, 0]
            .map(|bytes| scope.spawn(move || read_slowly(gateway, bytes, || are_cut.load(Ordering::Relaxed))))
            .into();
        let (cut_flag, check_flag) = (SetOnDrop(are_cut), SetOnDrop(is_checked));
        pause(EARLIEST_CUT);
        let start = Instant::now();
        let ended_records = || {
            let records = gateway.records().into_iter();
            let ended: Vec<Value> = records.filter(|record| record["state"] != "running").collect();
            (ended.len() == READERS).then_some(ended)
        };
        // With some congestion controls, the kernel takes enough bytes for a second period.
        let records = loop {
            match ended_records() {
                Some(records) => break records,
                None => assert!(start.elapsed() < 2 * EARLIEST_CUT, "the slow readers are not cut off"),
            }
            pause(POLL_INTERVAL);
        };
        println!("cut off after {:?}", EARLIEST_CUT + start.elapsed());
        check_records(&records, "cancelled");
        drop(cut_flag);
        assert!(
            slow.into_iter().all(|reader| !reader.join().expect("a reader")),
            "a slow reader got a complete answer"
        );
        assert_account_is_blameless(gateway);
        drop(check_flag);
        assert!(fast.join().expect("a reader"), "the reader at the minimum rate must get the complete answer");
    });
    let mut records = gateway.final_records(READERS + 2);
    records.retain(|record| record["state"] != "cancelled");
    assert_eq!(records.len(), 2);
    check_records(&records, "succeeded");
}

fn check_readers_of_a_stored_answer() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_two_accounts(&upstream);
    let keyed = || large_call(&gateway).header("idempotency-key", "a-wide-valley");
    let start = Instant::now();
    let is_done = || start.elapsed() > 3 * EARLIEST_CUT;
    std::thread::scope(|scope| {
        let fast = scope.spawn(|| read_call_slowly(&gateway, keyed(), 3_072, || start.elapsed() > 2 * EARLIEST_CUT));
        let slow = scope.spawn(|| read_call_slowly(&gateway, keyed(), 1_024, is_done));
        assert!(!slow.join().expect("a reader"), "the slow reader got a complete answer");
        assert!(fast.join().expect("a reader"), "the reader at the minimum rate must get the complete answer");
    });
    println!("ended after {:?}", start.elapsed());
    assert_eq!(upstream.attempt_count(), 1);
    check_records(&gateway.final_records(1), "succeeded");
}

/// Run it by name: `cargo test --test it -- --ignored slow_readers`.
#[test]
#[ignore = "takes several minutes"]
fn a_reader_at_the_rate_is_served_beyond_the_request_deadline() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_two_accounts(&upstream);
    let until = Instant::now() + REQUEST_TOTAL + EARLIEST_CUT;
    std::thread::scope(|scope| {
        let readers = [(); READERS].map(|()| scope.spawn(|| read_slowly(&gateway, 10_240, || Instant::now() > until)));
        assert!(
            readers.into_iter().all(|reader| reader.join().expect("a reader")),
            "every reader must get the complete answer"
        );
    });
    check_records(&gateway.final_records(READERS), "succeeded");
    assert_account_is_blameless(&gateway);
}
