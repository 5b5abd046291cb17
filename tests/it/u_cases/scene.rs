//! One case in its own group: sends requests, and compares every answer, attempt and record with each other.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::first_endpoint::EndpointKind;
use super::fixtures::{CaseFixture, PROMPT, SharedGateway, WARM_UP};
use super::operation::{CallerResult, Operation, base64_of_script};
use super::row::{AccountsAfter, ExpectedAnswer, Row};
use crate::kit::{Answer, Attempt, Call, FakeUpstream, Reply, TEST_TIMEOUT, eventually, pause};

/// The time within which a request must succeed once the upstream works again. The failure catalogue demands one
/// second, on a machine that does nothing else.
const RECOVERY_LIMIT: Duration = Duration::from_secs(20);

/// One row of the table while it runs for one operation.
pub(super) struct CaseRun<'a> {
    pub(super) shared: &'a SharedGateway,
    pub(super) fixture: &'a CaseFixture,
    /// The `user` of every request that was sent.
    users: Vec<String>,
    observations: Observations,
}

/// The observations that are written to the table of results.
#[derive(Default)]
pub(super) struct Observations {
    /// The script of the last stimulus.
    pub(super) stimulus: String,
    pub(super) attempts: BTreeSet<usize>,
    pub(super) statuses: BTreeSet<String>,
    pub(super) states: BTreeSet<String>,
}

/// One request and its answer.
pub(super) struct Exchange {
    pub(super) user: String,
    pub(super) answer: Answer,
    pub(super) verdict: CallerResult,
    pub(super) elapsed: Duration,
}

// === impl CaseRun ===

impl<'a> CaseRun<'a> {
    pub(super) fn new(shared: &'a SharedGateway, fixture: &'a CaseFixture) -> Self {
        Self { shared, fixture, users: Vec::new(), observations: Observations::default() }
    }

    pub(super) fn observations(&self) -> &Observations {
        &self.observations
    }

    pub(super) fn row(&self) -> &'static Row {
        self.fixture.row
    }

    pub(super) fn operation(&self) -> Operation {
        self.fixture.operation
    }

    pub(super) fn scripts(&self) -> &'static [&'static str] {
        self.row().scripts(self.operation()).expect("a row that makes sense")
    }

    /// Runs the whole row, and makes the assertions that hold for every row.
    #[track_caller]
    pub(super) fn run(&mut self) {
        match self.row().custom_steps {
            Some(play) => play(self),
            None => {
                for script in self.scripts() {
                    self.check_stimulus(script);
                    self.check_recovery();
                }
            }
        }
        self.all_slots_are_free();
        self.accounts_for_every_request();
    }

    /// Sends one request with this stimulus and checks its answer, its attempts and its record.
    #[track_caller]
    pub(super) fn check_stimulus(&mut self, script: &str) {
        script.clone_into(&mut self.observations.stimulus);
        let script = script.replace("{target}", &self.shared.target.address().to_string());
        let others = if self.row().other_accounts == "=" { &script } else { self.row().other_accounts };
        self.fixture.script(&script, others);
        let asked = self.send_request(json!({}));
        self.matches_expectation(&asked, &script);
        let (attempts, record) = (self.attempts(&asked.user), self.record(&asked.user));
        let calls = attempts.len();
        self.observations.attempts.insert(calls);
        self.observations.states.insert(record["state"].as_str().unwrap_or("?").to_owned());
        assert!(self.row().calls.contains(&calls), "{calls} attempts, not {:?}", self.row().calls);
        let state = record["state"].as_str().unwrap_or_default();
        assert!(self.row().states.contains(&state), "USE: the record says {state}: {record}");
        if self.row().charged {
            assert_eq!(Some(&record["usage"]), attempts[0].usage.as_ref(), "USE: {record}");
        }
        if !self.fixture.operation.streams() || state != "succeeded" {
            return;
        }
        assert_eq!(record["stream"], true, "{record}");
    }

    /// Sends one request and reads the whole answer.
    #[track_caller]
    pub(super) fn send_request(&mut self, with: Value) -> Exchange {
        let user = format!("{}-{}", self.fixture.key_id, self.users.len());
        self.users.push(user.clone());
        let asked = self.send(user, with);
        self.observations.statuses.insert(match asked.verdict {
            CallerResult::Broken => "200 broken".to_owned(),
            _ => asked.answer.status.to_string(),
        });
        asked
    }

    /// Returns the `user` of a request and the request, which the test sends and reads by itself.
    pub(super) fn prepare(&mut self) -> (String, Call) {
        let user = format!("{}-{}", self.fixture.key_id, self.users.len());
        self.users.push(user.clone());
        let call = self.operation().call(&self.fixture.secret, json!({"user": user, "prompt": PROMPT}));
        (user, call)
    }

    /// Like [`Scene::ask`], for `count` callers at once.
    #[track_caller]
    pub(super) fn send_requests(&mut self, count: usize) -> Vec<Exchange> {
        let first = self.users.len();
        let users: Vec<String> =
            (first..first + count).map(|index| format!("{}-{index}", self.fixture.key_id)).collect();
        self.users.extend(users.iter().cloned());
        let scene = &*self;
        std::thread::scope(|scope| {
            let callers: Vec<_> = users.into_iter().map(|user| scope.spawn(|| scene.send(user, json!({})))).collect();
            callers.into_iter().map(|caller| caller.join().expect("a caller")).collect()
        })
    }

    #[track_caller]
    fn send(&self, user: String, mut with: Value) -> Exchange {
        with["user"] = json!(user);
        with["prompt"] = json!(PROMPT);
        let call = self.operation().call(&self.fixture.secret, with);
        let begun = Instant::now();
        let stream = call.dispatch(self.fixture.address).expect("a connection");
        // Some limits of the gateway are as long as the timeout of the kit: one minute.
        stream.set_read_timeout(Some(TEST_TIMEOUT * 2)).expect("a limit");
        let answer = Reply::read(stream).and_then(Reply::finish).expect("an answer");
        let took = begun.elapsed();
        self.leaks_nothing(&answer);
        let told = self.operation().read(&answer);
        Exchange { user, answer, verdict: told, elapsed: took }
    }

    /// LEAK: checks the headers of an answer and the beginning and end of its body. The middle of a huge body is the
    /// image.
    #[track_caller]
    fn leaks_nothing(&self, answer: &Answer) {
        const EDGE: usize = 1 << 17;
        let body = &answer.body;
        let head = &body[..body.len().min(EDGE)];
        let tail = &body[body.len() - (body.len() - head.len()).min(EDGE)..];
        let text =
            format!("{:?}\n{}\n{}", answer.headers, String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        let found: Vec<_> = self.fixture.canaries().into_iter().filter(|canary| text.contains(canary)).collect();
        assert!(found.is_empty(), "LEAK: {found:?} in {text:.800}");
        assert_eq!(answer.header("content-encoding"), None, "LEAK: the upstream's coding");
        assert_eq!(answer.header("location"), None, "LEAK: the upstream's redirect");
    }

    #[track_caller]
    fn matches_expectation(&self, asked: &Exchange, script: &str) {
        let shown = || format!("{} {:.400}", asked.answer.status, asked.answer.text());
        match (self.row().expect, &asked.verdict) {
            (ExpectedAnswer::Good | ExpectedAnswer::GoodOrBroken, CallerResult::Complete { images, usage }) => {
                self.is_whole(&asked.user, script, images, usage);
            }
            (ExpectedAnswer::Error { status, code, reasons, retry }, CallerResult::Error(found)) => {
                let error = asked.answer.error_object(*found);
                assert!(status.contains(found) && (code.is_empty() || error["code"] == code), "ERR: {}", shown());
                let reason = error["reason"].as_str().unwrap_or_default();
                assert!(reasons.is_empty() || reasons.contains(&reason), "ERR: the reason is {reason:?}");
                assert!(retry.is_none() || asked.answer.should_retry() == retry, "ERR: {:?}", asked.answer.headers);
            }
            (ExpectedAnswer::Broken | ExpectedAnswer::GoodOrBroken, CallerResult::Broken) => {}
            (ExpectedAnswer::Broken | ExpectedAnswer::GoodOrBroken, CallerResult::Error(502)) => {
                assert_eq!(asked.answer.should_retry(), Some("false"), "ERR: {}", shown());
            }
            (expect, _) => panic!("{expect:?}, but: {}", shown()),
        }
    }

    /// Checks that the answer has the image and the tokens of the upstream.
    #[track_caller]
    fn is_whole(&self, user: &str, script: &str, images: &[String], usage: &Value) {
        let attempt = self.attempts(user).pop().unwrap_or_else(|| panic!("the upstream made no image"));
        let huge = base64_of_script(script);
        let known = |image: &String| huge.as_ref() == Some(image) || attempt.images.contains(image);
        assert!(images.len() == 1 && images.iter().all(known), "the image was changed on its way");
        if !self.row().invalid_usage {
            assert_eq!(Some(usage), attempt.usage.as_ref(), "USE: the tokens of the answer");
        }
    }

    /// The attempts of a request that reached the upstream.
    pub(super) fn attempts(&self, user: &str) -> Vec<Attempt> {
        self.fixture.upstream.received_attempts().into_iter().filter(|attempt| attempt.user() == user).collect()
    }

    /// The number of attempts on the first account so far.
    pub(super) fn first_account_attempts(&self) -> usize {
        let first = &self.fixture.tokens[0];
        let mine = self.fixture.upstream.received_attempts().iter().filter(|attempt| &attempt.token == first).count();
        mine + self.fixture.first_endpoint.attempt_count()
    }

    /// The record of a request, once it has its outcome.
    #[track_caller]
    pub(super) fn record(&self, user: &str) -> Value {
        eventually("the record has its outcome", || {
            let records = self.fixture.records();
            records
                .into_iter()
                .find(|record| record["end_user"] == user && !record["state"].is_null() && is_final(record))
        })
    }

    /// LIVE: once the upstream works again, requests are served again.
    #[track_caller]
    pub(super) fn check_recovery(&mut self) {
        self.fixture.script("", "");
        self.fixture.first_endpoint.replace_by_upstream();
        let before = self.first_account_attempts();
        match self.row().after {
            AccountsAfter::AllUsable | AccountsAfter::OneUsable => drop(self.time_until_served(RECOVERY_LIMIT)),
            AccountsAfter::UsableWithin(seconds) => drop(self.time_until_served(Duration::from_secs(seconds))),
            AccountsAfter::FirstNotPenalized | AccountsAfter::FirstInCooldown => {
                let asked = self.send_request(json!({}));
                assert!(
                    matches!(asked.verdict, CallerResult::Complete { .. }),
                    "LIVE: {} {:.300}",
                    asked.answer.status,
                    asked.answer.text()
                );
                let expected = usize::from(self.row().after == AccountsAfter::FirstNotPenalized);
                assert_eq!(self.first_account_attempts() - before, expected, "attempts on the first account");
            }
            AccountsAfter::Unusable(_) => {}
        }
    }

    /// Sends requests until an answer is whole, and returns the time until then.
    #[track_caller]
    pub(super) fn time_until_served(&mut self, limit: Duration) -> Duration {
        let begun = Instant::now();
        loop {
            let asked = self.send_request(json!({}));
            if matches!(asked.verdict, CallerResult::Complete { .. }) {
                return begun.elapsed();
            }
            let (status, text) = (asked.answer.status, asked.answer.text());
            assert!(begun.elapsed() < limit, "LIVE: still {status} after {limit:?}: {text:.300}");
            pause(Duration::from_millis(100));
        }
    }

    /// LIVE: every slot of every account that is not in a cooldown is free, all of them at the same time.
    #[track_caller]
    fn all_slots_are_free(&mut self) {
        let row = self.row();
        let accounts = match row.after {
            AccountsAfter::AllUsable | AccountsAfter::FirstNotPenalized | AccountsAfter::UsableWithin(_) => {
                row.accounts
            }
            AccountsAfter::OneUsable => 1,
            AccountsAfter::FirstInCooldown => row.accounts - 1,
            AccountsAfter::Unusable(_) => return,
        };
        // An endpoint other than the fake upstream does not record every attempt; `check_recovery` has already tested
        // it.
        let count = accounts * row.slots_per_account;
        if row.endpoint != EndpointKind::Upstream || count > 8 {
            return;
        }
        let before = self.fixture.upstream.attempt_count();
        self.fixture.script("gate=live", "gate=live");
        let upstream = &self.fixture.upstream;
        let waiting = std::thread::scope(|scope| {
            let watch = scope.spawn(move || watch(upstream, before, count));
            let asked = self.send_requests(count);
            assert!(
                asked.iter().all(|asked| matches!(asked.verdict, CallerResult::Complete { .. })),
                "LIVE: not all are served"
            );
            watch.join().expect("a watcher")
        });
        assert_eq!(waiting, count, "LIVE: the slots that are free");
    }

    /// ONE and USE: compares every request of this row with the ledger and the records.
    #[track_caller]
    fn accounts_for_every_request(&self) {
        let count = self.users.len();
        let records = eventually("every record has its outcome", || {
            let records = self.fixture.records();
            (records.len() >= count && records.iter().all(is_final)).then_some(records)
        });
        assert_eq!(records.len(), count, "USE: records for requests");
        let attempts: Vec<(String, Attempt)> =
            self.fixture.upstream.received_attempts().into_iter().map(|attempt| (attempt.user(), attempt)).collect();
        for user in &self.users {
            let mine: Vec<&Attempt> =
                attempts.iter().filter(|(of_user, _)| of_user == user).map(|(_, attempt)| attempt).collect();
            let paid = mine.iter().filter(|attempt| may_be_paid(attempt)).count();
            assert!(paid <= 1, "ONE: {paid} images for {user}");
            let of_user: Vec<&Value> = records.iter().filter(|record| record["end_user"] == user.as_str()).collect();
            let [record] = of_user.as_slice() else { panic!("USE: {} records for {user}", of_user.len()) };
            self.agrees(record, &mine);
        }
        let unrelated = attempts.iter().filter(|(user, _)| user != WARM_UP && !self.users.contains(user)).count();
        assert_eq!(unrelated, 0, "ONE: attempts without a request");
    }

    /// USE: compares a record with the attempts of its request in the ledger.
    #[track_caller]
    fn agrees(&self, record: &Value, mine: &[&Attempt]) {
        let recorded = record["attempts"].as_array().map_or(0, Vec::len);
        let reached = mine.len();
        let elsewhere = self.row().endpoint != EndpointKind::Upstream;
        // A request that was written while its connection was closed: the gateway cannot know that the upstream did not
        // read it.
        let is_unread = self.row().closes_on_reuse && reached == 0 && recorded == 1;
        assert!(
            recorded == reached || elsewhere && recorded >= reached || is_unread && is_ambiguous(record),
            "USE: {recorded} attempts recorded, {reached} made: {record}"
        );
        if record["state"] == "succeeded" && !self.row().invalid_usage {
            let usage = mine.last().and_then(|attempt| attempt.usage.as_ref());
            assert!(usage.is_none_or(|usage| *usage == record["usage"]), "USE: {usage:?} in the ledger: {record}");
        }
        let tokens = &record["usage"]["total_tokens"];
        assert!(tokens.is_null() || tokens.is_u64(), "USE: {record}");
    }
}

/// Opens the gate once `count` attempts wait at it, or after the time limit. Returns the number of attempts at that
/// time.
fn watch(upstream: &FakeUpstream, before: usize, count: usize) -> usize {
    let begun = Instant::now();
    while upstream.attempt_count() < before + count && begun.elapsed() < RECOVERY_LIMIT {
        pause(Duration::from_millis(10));
    }
    let waiting = upstream.attempt_count() - before;
    upstream.open_gate("live");
    waiting
}

/// Returns whether an image may have been made for the attempt: the upstream charged tokens, or had begun to send an
/// image.
fn may_be_paid(attempt: &Attempt) -> bool {
    let positive = |usage: &Value| {
        let counts = usage.as_object().into_iter().flat_map(|usage| usage.values());
        counts.filter_map(Value::as_f64).any(|count| count > 0.0)
    };
    attempt.usage.as_ref().map_or(!attempt.images.is_empty(), positive)
}

/// Returns whether the record says that its first attempt may have been paid for.
fn is_ambiguous(record: &Value) -> bool {
    record["state"] == "interrupted" && record["attempts"][0]["class"] == "X" && record["delivered"] == json!([])
}

fn is_final(record: &Value) -> bool {
    let state = record["state"].as_str().unwrap_or_default();
    ["succeeded", "failed", "refused", "cancelled", "interrupted"].contains(&state)
}
