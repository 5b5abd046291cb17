//! Callers who take a long time to read: that is never the upstream's fault, and what was paid for is known.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::{Account, Call, FakeUpstream, Gateway, Reply, eventually, pause};

/// The number of failures that eject an account.
const READERS: usize = 3;
/// Characters of base64 of an image.
const IMAGE: usize = 30_000_000;
/// A request as a whole has so long, of which a caller's own time is no part.
const REQUEST_TOTAL: Duration = Duration::from_secs(imagate::tables::REQUEST_TOTAL_SECONDS);
/// The rate of a caller is averaged over half of it, and what was sent ahead counts for the first half.
const SOONEST: Duration = Duration::from_secs(60);
/// Between two pieces.
const PAUSE: Duration = Duration::from_millis(250);

fn two(upstream: &FakeUpstream) -> Gateway {
    Gateway::with(
        "",
        &[Account::for_upstream("first", upstream), Account::for_upstream("second", upstream).with_free_tier()],
    )
}

/// Says that it is over when it is dropped, also by a failure: whoever reads would read on for ever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads a piece of so many bytes again and again until it is over, then the rest at once: whether all of it came.
fn read_slowly(gateway: &Gateway, bytes: usize, is_over: impl Fn() -> bool) -> bool {
    read_call_slowly(gateway, wide(gateway), bytes, is_over)
}

/// A request for a large image.
fn wide(gateway: &Gateway) -> Call {
    let prompt = format!("a wide valley [[b64={IMAGE}]]");
    gateway.call(json!({"prompt": prompt, "size": "3840x2160"})).with_small_window()
}

fn read_call_slowly(gateway: &Gateway, call: Call, bytes: usize, is_over: impl Fn() -> bool) -> bool {
    let mut reply: Reply = call.open(gateway.address()).expect("an answer");
    assert_eq!(reply.status, 200);
    let mut piece = vec![0; bytes];
    while !is_over() {
        if reply.read_exact(&mut piece).is_err() {
            return false;
        }
        pause(PAUSE);
    }
    reply.finish().expect("the rest").complete
}

fn check(records: &[Value], state: &str) {
    for record in records {
        assert_eq!((&record["state"], &record["error_reason"]), (&json!(state), &Value::Null), "{record}");
        assert_eq!((&record["account"], &record["attempts"][0]["class"]), (&json!("first"), &Value::Null), "{record}");
        assert_eq!(record["delivered"].as_array().map(Vec::len), Some(1), "{record}");
        assert!(record["usage"]["total_tokens"].is_u64(), "the tokens that were paid for: {record}");
    }
}

#[track_caller]
fn nothing_is_held_against_the_account(gateway: &Gateway) {
    let account = gateway.account("first");
    assert_eq!((&account["state"], &account["cooling_cause"]), (&json!("enabled"), &Value::Null), "{account}");
    gateway.generate(json!({})).ok_json();
    assert_eq!(gateway.records().pop().expect("a record")["account"], "first");
}

#[test]
fn who_is_too_slow_has_left_and_who_keeps_the_rate_is_served() {
    let upstream = FakeUpstream::start();
    let gateway = two(&upstream);
    let (are_cut, is_checked) = (AtomicBool::new(false), AtomicBool::new(false));
    let (gateway, are_cut, is_checked) = (&gateway, &are_cut, &is_checked);
    std::thread::scope(|scope| {
        // Half as much again as the least rate, half of it, and nothing at all.
        let keeps = scope.spawn(move || read_slowly(gateway, 3_072, || is_checked.load(Ordering::Relaxed)));
        let slow: Vec<_> = [1_024, 1_024, 0]
            .map(|bytes| scope.spawn(move || read_slowly(gateway, bytes, || are_cut.load(Ordering::Relaxed))))
            .into();
        let (cutting, checking) = (Over(are_cut), Over(is_checked));
        pause(SOONEST);
        let begun = Instant::now();
        let records = eventually("those who are too slow are cut off", || {
            let over: Vec<Value> =
                gateway.records().into_iter().filter(|record| record["state"] != "running").collect();
            (over.len() == READERS).then_some(over)
        });
        println!("cut off after {:?}", SOONEST + begun.elapsed());
        check(&records, "cancelled");
        drop(cutting);
        assert!(slow.into_iter().all(|reader| !reader.join().expect("a reader")), "what they got is not whole");
        nothing_is_held_against_the_account(gateway);
        drop(checking);
        assert!(keeps.join().expect("a reader"), "who keeps the rate gets all of it");
    });
    let mut records = gateway.final_records(READERS + 2);
    records.retain(|record| record["state"] != "cancelled");
    assert_eq!(records.len(), 2);
    check(&records, "succeeded");
}

#[test]
fn who_reads_a_kept_answer_too_slowly_is_cut_off() {
    let upstream = FakeUpstream::start();
    let gateway = two(&upstream);
    let keyed = || wide(&gateway).header("idempotency-key", "a-wide-valley");
    let begun = Instant::now();
    let is_over = || begun.elapsed() > 3 * SOONEST;
    std::thread::scope(|scope| {
        let keeps = scope.spawn(|| read_call_slowly(&gateway, keyed(), 3_072, || begun.elapsed() > 2 * SOONEST));
        let slow = scope.spawn(|| read_call_slowly(&gateway, keyed(), 1_024, is_over));
        assert!(!slow.join().expect("a reader"), "what it got is not whole");
        assert!(keeps.join().expect("a reader"), "who keeps the rate gets all of it");
    });
    println!("over after {:?}", begun.elapsed());
    assert_eq!(upstream.attempts(), 1);
    check(&gateway.final_records(1), "succeeded");
}

/// Run it by name: `cargo test --test it -- --ignored slow_readers`.
#[test]
#[ignore = "minutes"]
fn who_keeps_the_rate_gets_all_of_it_after_the_time_of_the_upstream_is_over() {
    let upstream = FakeUpstream::start();
    let gateway = two(&upstream);
    let until = Instant::now() + REQUEST_TOTAL + SOONEST;
    std::thread::scope(|scope| {
        let readers = [(); READERS].map(|()| scope.spawn(|| read_slowly(&gateway, 10_240, || Instant::now() > until)));
        assert!(readers.into_iter().all(|reader| reader.join().expect("a reader")), "all of it comes");
    });
    check(&gateway.final_records(READERS), "succeeded");
    nothing_is_held_against_the_account(&gateway);
}
