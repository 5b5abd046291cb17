//! A matrix of odd answers of upstreams: shapes, bytes, codes and codings, with both protocols, plain and streamed. The
//! verdict of each was decided from the contract: an image that is unmistakable is delivered, a stated failure is one, and
//! everything else may have been paid for, so it is asked for at no other account.
//!
//! `shapes` has the answers, `codings` what a server between makes of them, `upstream` the server that gives them, `fetched`
//! the images that are fetched from the addresses of answers.

mod codings;
mod fetched;
mod shapes;
mod upstream;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use self::upstream::OddUpstream;
use crate::kit::{Account, Answer, Call, Gateway};

/// The number of threads for each protocol. Each has accounts and keys of its own, so that the failures of one say nothing
/// about the accounts of another.
const WORKERS: usize = 3;

/// The API that the account of a row offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OddProtocol {
    Images,
    Responses,
}

/// An answer, and its expected outcome.
#[derive(Clone, Debug)]
struct OddAnswer {
    name: String,
    protocol: OddProtocol,
    status: u16,
    content_type: &'static str,
    coding: Option<&'static str>,
    body: Vec<u8>,
    verdict: ExpectedOutcome,
}

/// The expected outcome of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpectedOutcome {
    /// The caller gets this image.
    Image(Vec<u8>),
    /// An image may have been paid for (class X): the reason.
    Unknown(&'static str),
    /// The upstream states that it failed (class F), so that the other account is asked.
    Failed,
    /// The content is refused (class R).
    Refused,
    /// The request is refused because of this parameter (class R).
    Rejected(&'static str),
}

/// The answer that the caller of a row got.
struct CallerAnswer {
    answer: Answer,
    calls: usize,
}

/// The keys of one worker.
struct WorkerKeys {
    /// For the rows: both accounts serve it.
    both: String,
    /// For a request that the first, or the second, account must serve.
    each: [String; 2],
}

// === impl ExpectedOutcome ===

impl ExpectedOutcome {
    /// The upstream calls, the status, the reason or code, and the advice to retry.
    fn expected(&self) -> (usize, u16, &'static str, Option<&'static str>) {
        match self {
            Self::Image(_) => (1, 200, "", None),
            Self::Unknown(reason) => (1, 502, reason, Some("false")),
            Self::Failed => (2, 502, "upstream_failed", Some("true")),
            Self::Refused => (1, 502, "content_refused", Some("false")),
            Self::Rejected(_) => (1, 400, "upstream_rejected", Some("false")),
        }
    }

    /// The state of the record, and the class of its last call.
    const fn record(&self) -> (&'static str, &'static str) {
        match self {
            Self::Image(_) => ("succeeded", ""),
            Self::Unknown(_) => ("interrupted", "X"),
            Self::Failed => ("failed", "F"),
            Self::Refused => ("refused", "R"),
            Self::Rejected(_) => ("failed", "R"),
        }
    }
}

// === impl CallerAnswer ===

impl CallerAnswer {
    /// Returns what is wrong with the answer; empty if nothing is.
    fn faults(&self, verdict: &ExpectedOutcome) -> String {
        let (calls, status, reason, retry) = verdict.expected();
        let (answer, mut faults) = (&self.answer, String::new());
        let mut check = |what: &str, is_right: bool, found: &dyn std::fmt::Debug| {
            if !is_right {
                let _ = write!(faults, " {what}: {found:?};");
            }
        };
        check("calls", self.calls == calls, &self.calls);
        check("status", answer.status == status, &answer.status);
        if let ExpectedOutcome::Image(image) = verdict {
            check("image", delivered(answer).as_ref() == Some(image), &shortened(&answer.text()));
            return faults;
        }
        let error = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default()["error"].clone();
        check("reason", error["reason"] == reason, &error);
        check("retry", answer.should_retry() == retry, &answer.should_retry());
        if let ExpectedOutcome::Rejected(param) = verdict {
            check("param", error["param"] == *param, &error);
        }
        faults
    }
}

/// The image that a caller got, in a plain answer or in the final event of a stream.
fn delivered(answer: &Answer) -> Option<Vec<u8>> {
    let text = answer.text();
    let image = if answer.header("content-type")?.starts_with("text/event-stream") {
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
        let mut finals = events.filter(|event| event["type"] == "image_generation.completed");
        finals.next()?["b64_json"].clone()
    } else {
        serde_json::from_str::<Value>(&text).ok()?["data"][0]["b64_json"].clone()
    };
    STANDARD.decode(image.as_str()?).ok()
}

fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Returns what is wrong with the record of a row; empty if nothing is.
fn record_faults(record: Option<&Value>, row: &OddAnswer) -> String {
    let Some(record) = record else { return " no record;".to_owned() };
    let (state, class) = row.verdict.record();
    let mut faults = String::new();
    let mut check = |what: &str, is_right: bool| {
        if !is_right {
            let _ = write!(faults, " {what}: {record};");
        }
    };
    check("state", record["state"] == state);
    let last = record["attempts"].as_array().and_then(|attempts| attempts.last()).cloned().unwrap_or_default();
    check("class", last["class"].as_str().unwrap_or_default() == class);
    if let ExpectedOutcome::Unknown(reason) = row.verdict {
        check("record reason", record["error_reason"] == reason);
    }
    // Nothing was made, or the upstream has stated the tokens of what was delivered; otherwise nobody knows the cost.
    let is_known = match row.verdict {
        ExpectedOutcome::Image(_) => row.name.contains("usage"),
        ExpectedOutcome::Unknown(_) => false,
        ExpectedOutcome::Failed | ExpectedOutcome::Refused | ExpectedOutcome::Rejected(_) => true,
    };
    if row.protocol == OddProtocol::Images || !is_known {
        check("cost", (record["cost_basis"] == "exact") == is_known);
    }
    faults
}

fn accounts(upstream: &OddUpstream) -> Vec<Account> {
    let mut accounts = Vec::new();
    for (protocol, worker) in workers() {
        for side in ["a", "b"] {
            let name = worker_name(protocol, worker);
            let groups = format!("groups = [\"{name}\", \"{name}{side}\"]");
            let account = Account::with_base_url(&format!("{name}{side}"), upstream.base_url()).with_line(&groups);
            accounts.push(match protocol {
                OddProtocol::Images => account,
                OddProtocol::Responses => account.with_responses_protocol(),
            });
        }
    }
    accounts
}

fn workers() -> impl Iterator<Item = (OddProtocol, usize)> {
    [OddProtocol::Images, OddProtocol::Responses]
        .into_iter()
        .flat_map(|protocol| (0..WORKERS).map(move |at| (protocol, at)))
}

fn worker_name(protocol: OddProtocol, worker: usize) -> String {
    format!("{}{worker}", if protocol == OddProtocol::Images { "i" } else { "r" })
}

fn open_gateway(upstream: &OddUpstream) -> (Gateway, HashMap<(OddProtocol, usize), WorkerKeys>) {
    let mut groups = String::new();
    for (protocol, worker) in workers() {
        for side in ["", "a", "b"] {
            let _ = writeln!(groups, "[[groups]]\nname = \"{}{side}\"", worker_name(protocol, worker));
        }
    }
    let gateway = Gateway::with(&groups, &accounts(upstream)).with_quiet_log();
    let secret = |group: &str| {
        let words = ["key", "create", "--name", group, "--user", "it", "--group", group, "--json"];
        gateway.run_command(&words).json()["secret"].as_str().expect("a secret").to_owned()
    };
    let keys = workers().map(|(protocol, worker)| {
        let name = worker_name(protocol, worker);
        let each = ["a", "b"].map(|side| secret(&format!("{name}{side}")));
        ((protocol, worker), WorkerKeys { both: secret(&name), each })
    });
    let keys = keys.collect();
    (gateway, keys)
}

/// Asks for the answer of one row, and makes both accounts healthy again if it failed.
fn ask(gateway: &Gateway, upstream: &OddUpstream, keys: &WorkerKeys, row: usize, is_stream: bool) -> CallerAnswer {
    let call = |key: &str, prompt: &str, is_stream: bool| {
        let body = json!({"model": "gpt-image-2", "prompt": prompt, "size": "1024x1024", "stream": is_stream});
        Call::generation().key(key).json(&body).send(gateway.address())
    };
    let side = if is_stream { "s" } else { "p" };
    let answer = call(&keys.both, &format!("row-{row}{side}-"), is_stream);
    let calls = upstream.calls_of(&format!("{row}{side}"));
    if answer.status != 200 {
        keys.each.iter().for_each(|key| drop(call(key, "a red cube", false).ok_json()));
    }
    CallerAnswer { answer, calls }
}

#[test]
fn every_odd_answer_gets_its_verdict_and_none_is_paid_for_twice() {
    let rows = shapes::rows();
    let upstream = OddUpstream::start(rows.clone());
    let (gateway, keys) = open_gateway(&upstream);
    let (outcomes, next) = (Mutex::new(Vec::new()), Mutex::new(HashMap::<OddProtocol, usize>::new()));
    std::thread::scope(|scope| {
        for (protocol, worker) in workers() {
            let (gateway, upstream, keys) = (&gateway, &upstream, &keys[&(protocol, worker)]);
            let (rows, outcomes, next) = (&rows, &outcomes, &next);
            let next_row = move || {
                let mut next = next.lock().expect("no panic");
                let next = next.entry(protocol).or_default();
                let at = std::mem::replace(next, *next + 1);
                rows.iter().enumerate().filter(|(_, row)| row.protocol == protocol).nth(at).map(|(row, _)| row)
            };
            let ask_both = move |row| {
                let both =
                    [false, true].map(|is_stream| (row, is_stream, ask(gateway, upstream, keys, row, is_stream)));
                outcomes.lock().expect("no panic").extend(both);
            };
            scope.spawn(move || std::iter::from_fn(next_row).for_each(ask_both));
        }
    });
    let outcomes = outcomes.into_inner().expect("no panic");
    let records: HashMap<String, Value> = gateway
        .final_records(outcomes.len())
        .into_iter()
        .map(|record| (record["request_id"].as_str().unwrap_or_default().to_owned(), record))
        .collect();
    let mut faults = Vec::new();
    for (row, is_stream, outcome) in &outcomes {
        let row = &rows[*row];
        let record = outcome.answer.header("x-request-id").and_then(|id| records.get(id));
        let found = outcome.faults(&row.verdict) + &record_faults(record, row);
        if !found.is_empty() {
            let kind = if *is_stream { "stream" } else { "plain" };
            faults.push(format!("{:?}, {kind}, {}:{found}", row.protocol, row.name));
        }
    }
    println!("odd answers: {}, wrong: {}", outcomes.len(), faults.len());
    assert!(outcomes.len() >= 300, "{}", outcomes.len());
    assert!(faults.is_empty(), "{} wrong:\n{}", faults.len(), faults.join("\n"));
}
