//! Many stops in a row with jobs in flight: nothing is paid for twice, and a graceful stop loses nothing that was paid
//! for.
//!
//! `IT_STOPS` sets the number of stops; the default is [`DEFAULT_STOPS`]. Each test prints a table.

use std::collections::BTreeMap;
use std::net::TcpStream;

use serde_json::json;

use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, TEST_TIMEOUT, env_setting, eventually};

/// The number of jobs with an idempotency key in flight at each stop.
const KEYED: usize = 20;
/// The number of jobs without an idempotency key in flight at each stop.
const PLAIN: usize = 20;
const DEFAULT_STOPS: usize = 3;

/// One job from its caller's point of view.
#[derive(Clone)]
struct Job {
    user: String,
    keyed: bool,
    /// True if the caller hangs up before the stop.
    caller_leaves: bool,
    gate: String,
}

/// The number of jobs for each outcome.
#[derive(Default)]
struct Tally(BTreeMap<String, usize>);

fn stops() -> usize {
    env_setting("IT_STOPS").and_then(|count| count.to_str()?.parse().ok()).unwrap_or(DEFAULT_STOPS)
}

fn jobs(round: usize) -> Vec<Job> {
    let job = |index: usize| Job {
        user: format!("r{round}-j{index}"),
        keyed: index < KEYED,
        caller_leaves: index.is_multiple_of(2),
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
    fn retry(&self, gateway: &Gateway) -> Answer {
        self.call(gateway).header("x-stainless-retry-count", "1").send(gateway.address())
    }
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    fn count(&self, what: &str) -> usize {
        self.0.get(what).copied().unwrap_or_default()
    }

    fn print(&self, title: &str) {
        println!("{title}");
        self.0.iter().for_each(|(what, count)| println!("  {count:>6}  {what}"));
    }
}

/// Sends all jobs, waits until the upstream has them, and closes the connections of the callers who leave. Returns the
/// other jobs with their threads, which wait for the answers.
fn start_jobs(
    gateway: &Gateway,
    upstream: &FakeUpstream,
    jobs: &[Job],
) -> Vec<(Job, std::thread::JoinHandle<std::io::Result<Answer>>)> {
    let before = upstream.attempt_count();
    let address = gateway.address();
    let mut leaving: Vec<TcpStream> = Vec::new();
    let mut waiting_callers = Vec::new();
    for job in jobs {
        let call = job.call(gateway);
        if job.caller_leaves {
            leaving.push(call.dispatch(address).expect("a connection"));
        } else {
            waiting_callers.push((job.clone(), std::thread::spawn(move || call.try_send(address))));
        }
    }
    upstream.wait_until("all are running", |attempts| attempts.len() == before + jobs.len());
    drop(leaving);
    waiting_callers
}

/// The number of attempts beyond the first for each job, summed up.
fn second_payments(upstream: &FakeUpstream) -> usize {
    let mut attempts = BTreeMap::<String, usize>::new();
    for attempt in upstream.received_attempts() {
        *attempts.entry(attempt.user()).or_default() += 1;
    }
    attempts.values().map(|count| count - 1).sum()
}

#[test]
fn graceful_stops_lose_nothing_and_pay_nothing_twice() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("drain_timeout = \"60s\"", &[Account::for_upstream("only", &upstream)]);
    let mut tally = Tally::default();
    for round in 0..stops() {
        let jobs = jobs(round);
        let waiting_callers = start_jobs(&gateway, &upstream, &jobs);
        let address = gateway.address();
        gateway.terminate();
        eventually("the port is closed", || TcpStream::connect(address).is_err().then_some(()));
        upstream.open_gate(&format!("g{round}"));
        for (_, caller) in waiting_callers {
            let answer = caller.join().expect("a caller");
            let got_image = answer.is_ok_and(|answer| answer.status == 200 && answer.complete);
            tally.add(if got_image { "waited, and got the image" } else { "waited, and got no image" });
        }
        assert!(gateway.server().wait(TEST_TIMEOUT).success());
        gateway.start_again();
        for job in jobs.iter().filter(|job| job.keyed || job.caller_leaves) {
            let kind = if job.keyed { "keyed" } else { "plain" };
            let answer = job.retry(&gateway);
            tally.add(&format!("retried, {kind}: {}", answer.status));
        }
    }
    tally.0.insert("second payments".to_owned(), second_payments(&upstream));
    tally.print(&format!("{} graceful stops", stops()));
    let stop_count = stops();
    assert_eq!(tally.count("second payments"), 0);
    assert_eq!(tally.count("waited, and got the image"), stop_count * (KEYED + PLAIN) / 2);
    assert_eq!(tally.count("retried, keyed: 200"), stop_count * KEYED);
    assert_eq!(tally.count("retried, plain: 200"), stop_count * PLAIN / 2);
}

#[test]
fn kills_pay_nothing_twice() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let mut tally = Tally::default();
    for round in 0..stops() {
        let jobs = jobs(round);
        let waiting_callers = start_jobs(&gateway, &upstream, &jobs);
        gateway.kill();
        upstream.open_gate(&format!("g{round}"));
        waiting_callers.into_iter().for_each(|(_, caller)| drop(caller.join()));
        gateway.start();
        for job in &jobs {
            let kind = if job.keyed { "keyed" } else { "plain" };
            let answer = job.retry(&gateway);
            let reason = answer.json()["error"]["reason"].as_str().unwrap_or("-").to_owned();
            tally.add(&format!("retried, {kind}: {} {reason}", answer.status));
        }
    }
    tally.0.insert("second payments".to_owned(), second_payments(&upstream));
    tally.print(&format!("{} kills", stops()));
    let stop_count = stops();
    assert_eq!(tally.count("second payments"), 0);
    assert_eq!(tally.count("retried, keyed: 502 outcome_unknown"), stop_count * KEYED);
    assert_eq!(tally.count("retried, plain: 502 outcome_unknown"), stop_count * PLAIN);
}
