//! Requests that no client would send: a seeded driver changes heads, framing, JSON, forms and options, and sends the
//! requests over several persistent connections.
//!
//! The tests check that the gateway keeps running and never panics, that no request causes a 5xx, that every request is
//! answered or its connection closed in time, that no refused request reaches an upstream, and that every error has the
//! documented shape. A normal test run sends 3000 requests; `IMAGATE_ABUSE_COUNT=1000000 IMAGATE_ABUSE_SEED=1` makes
//! the run long.

mod connection;
mod make;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::kit::{FakeUpstream, Gateway, Random, env_setting};
use connection::PersistentConnection;
use make::Request;

/// The number of concurrent connections.
const CONNECTIONS: u64 = 8;
/// A run ends early after this many faults.
const FAULTS_MAX: usize = 20;

/// The outcomes of the requests of one kind.
#[derive(Clone, Copy, Default)]
struct KindCounts {
    sent: u64,
    accepted: u64,
    refused: u64,
    /// The number of requests that the HTTP library refused because it could not parse them.
    unparsed: u64,
    closed: u64,
}

/// The outcomes on all connections.
#[derive(Default)]
struct RunResults {
    rows: BTreeMap<&'static str, KindCounts>,
    /// The number of answers with images.
    image_answers: u64,
    /// The ids of the requests that were refused.
    refused: BTreeSet<String>,
    faults: Vec<String>,
}

/// The state that the connections share.
struct Run {
    address: SocketAddr,
    secret: String,
    count: u64,
    seed: u64,
    next: AtomicU64,
    results: Mutex<RunResults>,
}

/// The number in an environment variable, or `default` if the variable is not set.
fn env_number(name: &str, default: u64) -> u64 {
    let value = env_setting(name).map(|text| text.into_string().expect("UTF-8").parse().expect("a number"));
    value.unwrap_or(default)
}

/// Sends `count` requests, and panics if anything went wrong.
fn run(count: u64, seed: u64) {
    let upstream = FakeUpstream::digesting();
    let mut gateway = Gateway::with_upstream(&upstream).with_quiet_log();
    let run = Run {
        address: gateway.address(),
        secret: gateway.secret().to_owned(),
        count,
        seed,
        next: AtomicU64::new(0),
        results: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| run.send_requests());
        }
    });
    let results = run.results.into_inner().expect("an unpoisoned lock");
    results.print(count, seed);
    assert!(gateway.server().is_running(), "the gateway has exited");
    assert!(!gateway.output().contains("panicked"), "{}", gateway.output());
    assert!(results.faults.is_empty(), "{} faults:\n{}", results.faults.len(), results.faults.join("\n"));
    results.assert_refused_have_no_record(&gateway, upstream.attempt_count());
}

// === impl Run ===

impl Run {
    /// Sends the next requests over one connection until all are sent or too many faults were seen.
    fn send_requests(&self) {
        let mut connection = PersistentConnection::new(self.address);
        let mut indices = std::iter::repeat_with(|| self.next.fetch_add(1, Ordering::Relaxed));
        while let Some(index) = indices.next().filter(|index| *index < self.count)
            && self.results.lock().expect("an unpoisoned lock").faults.len() < FAULTS_MAX
        {
            // A request depends only on the seed and its number, so it can be reproduced.
            let mut random = Random::seeded(self.seed.wrapping_mul(0x9e37) ^ index);
            let request = Request::make(&mut random, &self.secret);
            let outcome = connection.send(&request);
            self.results.lock().expect("an unpoisoned lock").add_outcome(index, &request, outcome);
        }
    }
}

// === impl RunResults ===

impl RunResults {
    fn add_outcome(&mut self, index: u64, request: &Request, outcome: Result<connection::Outcome, String>) {
        let row = self.rows.entry(request.kind).or_default();
        row.sent += 1;
        match outcome {
            Ok(connection::Outcome::Closed) => row.closed += 1,
            Ok(connection::Outcome::Unparsed) => row.unparsed += 1,
            Ok(connection::Outcome::Refused { id }) => {
                row.refused += 1;
                self.refused.extend(id);
            }
            Ok(connection::Outcome::Accepted { image }) => {
                row.accepted += 1;
                self.image_answers += u64::from(image);
            }
            Err(fault) => {
                let bytes = String::from_utf8_lossy(&request.bytes);
                let start: String = bytes.chars().take(1500).collect();
                self.faults.push(format!("request {index} ({}): {fault}\n{start:?}", request.kind));
            }
        }
    }

    /// Asserts that every upstream call has a record, and that no refused request has a record.
    fn assert_refused_have_no_record(&self, gateway: &Gateway, attempts: usize) {
        let records = gateway.final_records(attempts);
        assert_eq!(records.len(), attempts, "the numbers of records and of upstream calls differ");
        assert!(
            attempts as u64 >= self.image_answers && !self.refused.is_empty(),
            "{attempts} upstream calls for {} answers with images, or no request was refused",
            self.image_answers
        );
        let id = |record: &Value| record["request_id"].as_str().expect("an id").to_owned();
        let recorded: Vec<String> = records.iter().map(id).filter(|id| self.refused.contains(id)).collect();
        assert!(recorded.is_empty(), "refused requests have records: {recorded:?}");
    }

    fn print(&self, count: u64, seed: u64) {
        println!("{count} requests, seed {seed}, {CONNECTIONS} connections");
        println!("{:<24} {:>9} {:>9} {:>9} {:>9} {:>9}", "kind", "sent", "accepted", "refused", "unparsed", "closed");
        for (kind, row) in &self.rows {
            let KindCounts { sent, accepted, refused, unparsed, closed } = row;
            println!("{kind:<24} {sent:>9} {accepted:>9} {refused:>9} {unparsed:>9} {closed:>9}");
        }
        println!("{} answers with images, {} faults", self.image_answers, self.faults.len());
    }
}

#[test]
fn mutated_requests_are_refused_or_served_without_faults() {
    run(env_number("IMAGATE_ABUSE_COUNT", 3_000), env_number("IMAGATE_ABUSE_SEED", 1));
}
