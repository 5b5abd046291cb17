//! Many stops in a row with jobs in flight: nothing is paid for twice, and a graceful stop loses nothing that was paid
//! for.
//!
//! `IT_STOPS` sets the number of stops; the default is small for the test run. Each test prints a table.

use std::collections::BTreeMap;
use std::net::TcpStream;

use serde_json::json;

use crate::kit::{
    Account, Answer, Call, FakeUpstream, Gateway, TEST_TIMEOUT, env_setting, eventually, heavy_test_lock,
};

/// The number of jobs in flight at each stop, with an idempotency key and without one.
const KEYED: usize = 20;
const PLAIN: usize = 20;
const FEW: usize = 3;

/// One job from its caller's point of view.
#[derive(Clone)]
struct Job {
    user: String,
    keyed: bool,
    /// True if the caller hangs up before the stop.
    leaves: bool,
    gate: String,
}

/// The number of jobs for each outcome.
#[derive(Default)]
struct Tally(BTreeMap<String, usize>);

fn stops() -> usize {
    env_setting("IT_STOPS").and_then(|count| count.to_str()?.parse().ok()).unwrap_or(FEW)
}

fn jobs(round: usize) -> Vec<Job> {
    let job = |at: usize| Job {
        user: format!("r{round}-j{at}"),
        keyed: at < KEYED,
        leaves: at.is_multiple_of(2),
        gate: format!("g{round}"),
    };
    (0..KEYED + PLAIN).map(job).collect()
}

// === impl Job ===

impl Job {
    fn call(&self, gateway: &Gateway) -> Call {
        let Self { user, gate, keyed, .. } = self;
        let call = gateway.call(json!({"prompt": format!("{user} [[gate={gate}]]"), "user": user}));
        if *keyed { call.header("idempotency-key", user) } else { call }
    }

    /// Sends the same request again, as the official clients retry it by themselves.
    fn again(&self, gateway: &Gateway) -> Answer {
        self.call(gateway).header("x-stainless-retry-count", "1").send(gateway.address())
    }
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    fn of(&self, what: &str) -> usize {
        self.0.get(what).copied().unwrap_or_default()
    }

    fn print(&self, title: &str) {
        println!("{title}");
        self.0.iter().for_each(|(what, count)| println!("  {count:>6}  {what}"));
    }
}

/// Sends all jobs, waits until the upstream has them, and hangs up those whose callers leave. The others keep waiting.
fn begin(
    gateway: &Gateway,
    upstream: &FakeUpstream,
    jobs: &[Job],
) -> Vec<(Job, std::thread::JoinHandle<std::io::Result<Answer>>)> {
    let before = upstream.attempts();
    let address = gateway.address();
    let mut leaving: Vec<TcpStream> = Vec::new();
    let mut staying = Vec::new();
    for job in jobs {
        let call = job.call(gateway);
        if job.leaves {
            leaving.push(call.dispatch(address).expect("a connection"));
        } else {
            staying.push((job.clone(), std::thread::spawn(move || call.try_send(address))));
        }
    }
    upstream.wait_until("all are running", |ledger| ledger.len() == before + jobs.len());
    drop(leaving);
    staying
}

/// The number of attempts beyond the first for each job, summed up.
fn second_payments(upstream: &FakeUpstream) -> usize {
    let mut attempts = BTreeMap::<String, usize>::new();
    for attempt in upstream.ledger() {
        *attempts.entry(attempt.user()).or_default() += 1;
    }
    attempts.values().map(|count| count - 1).sum()
}

#[test]
fn nothing_is_lost_or_paid_twice_over_many_graceful_ends() {
    let _turn = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("drain_timeout = \"60s\"", &[Account::for_upstream("only", &upstream)]);
    let mut tally = Tally::default();
    for round in 0..stops() {
        let jobs = jobs(round);
        let staying = begin(&gateway, &upstream, &jobs);
        let address = gateway.address();
        gateway.terminate();
        eventually("the port is closed", || TcpStream::connect(address).is_err().then_some(()));
        upstream.open_gate(&format!("g{round}"));
        for (_, caller) in staying {
            let answer = caller.join().expect("a caller");
            let good = answer.is_ok_and(|answer| answer.status == 200 && answer.complete);
            tally.add(if good { "waited, and got the image" } else { "waited, and got no image" });
        }
        assert!(gateway.server().wait(TEST_TIMEOUT).success());
        gateway.start_again();
        for job in jobs.iter().filter(|job| job.keyed || job.leaves) {
            let kind = if job.keyed { "keyed" } else { "plain" };
            let answer = job.again(&gateway);
            tally.add(&format!("asked again, {kind}: {}", answer.status));
        }
    }
    tally.0.insert("second payments".to_owned(), second_payments(&upstream));
    tally.print(&format!("{} graceful ends", stops()));
    let ends = stops();
    assert_eq!(tally.of("second payments"), 0);
    assert_eq!(tally.of("waited, and got the image"), ends * (KEYED + PLAIN) / 2);
    assert_eq!(tally.of("asked again, keyed: 200"), ends * KEYED);
    assert_eq!(tally.of("asked again, plain: 200"), ends * PLAIN / 2);
}

#[test]
fn nothing_is_paid_twice_over_many_kills() {
    let _turn = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let mut tally = Tally::default();
    for round in 0..stops() {
        let jobs = jobs(round);
        let staying = begin(&gateway, &upstream, &jobs);
        gateway.kill();
        upstream.open_gate(&format!("g{round}"));
        staying.into_iter().for_each(|(_, caller)| drop(caller.join()));
        gateway.start();
        for job in &jobs {
            let kind = if job.keyed { "keyed" } else { "plain" };
            let answer = job.again(&gateway);
            let reason = answer.json()["error"]["reason"].as_str().unwrap_or("-").to_owned();
            tally.add(&format!("asked again, {kind}: {} {reason}", answer.status));
        }
    }
    tally.0.insert("second payments".to_owned(), second_payments(&upstream));
    tally.print(&format!("{} kills", stops()));
    let ends = stops();
    assert_eq!(tally.of("second payments"), 0);
    assert_eq!(tally.of("asked again, keyed: 502 outcome_unknown"), ends * KEYED);
    assert_eq!(tally.of("asked again, plain: 502 outcome_unknown"), ends * PLAIN);
}
