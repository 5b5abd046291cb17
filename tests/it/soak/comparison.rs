//! The comparison of the three views of one load: what callers got, what the upstream received, and what is recorded.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Value, json};

use super::SoakRun;
use super::load::{CallerOutcome, CallerResult, count_outcomes};
use crate::kit::{Attempt, Call, FakeUpstream, Gateway, request};

/// The differences between the views, as lists of users.
#[derive(Debug, Default, PartialEq, Eq)]
struct RecordDifferences {
    /// Requests that reached the upstream, or whose callers got an image, and that have no record.
    lost: Vec<String>,
    /// Requests with more than one record.
    doubled: Vec<String>,
    /// Requests that reached the upstream more than once.
    paid_twice: Vec<String>,
    /// Records of no request.
    unknown: Vec<String>,
    /// Requests whose record has other tokens than the ledger of the upstream, although the gateway saw the end.
    wrong_tokens: Vec<String>,
    /// Requests whose callers got the image, and whose record says otherwise.
    wrong_state: Vec<String>,
}

/// Reads the final records of all requests, compares the views, and adds the counts to the table. Panics if there is a
/// difference.
#[track_caller]
pub(super) fn assert_views_agree(
    run: &mut SoakRun,
    results: &[CallerResult],
    upstream: &FakeUpstream,
    gateway: &Gateway,
) {
    let (records, attempts) = (gateway.final_records(0), upstream.received_attempts());
    run.note("requests", results.len());
    count_outcomes(results).iter().for_each(|(what, count)| run.note(what, count));
    run.note("calls of the upstream", attempts.len());
    let mut states = BTreeMap::<&str, usize>::new();
    records.iter().for_each(|record| *states.entry(record["state"].as_str().unwrap_or("none")).or_default() += 1);
    states.iter().for_each(|(state, count)| run.note(&format!("records, {state}"), count));
    let differences = RecordDifferences::between(results, &attempts, &records);
    differences.counts().iter().for_each(|(what, count)| run.note(what, count));
    run.print();
    assert_eq!(differences, RecordDifferences::default());
}

// === impl RecordDifferences ===

impl RecordDifferences {
    fn between(results: &[CallerResult], attempts: &[Attempt], records: &[Value]) -> Self {
        let mut attempts_by_user = HashMap::<String, Vec<&Attempt>>::new();
        attempts.iter().for_each(|attempt| attempts_by_user.entry(attempt.user()).or_default().push(attempt));
        let mut records_by_user = HashMap::<&str, Vec<&Value>>::new();
        for record in records {
            records_by_user.entry(record["end_user"].as_str().unwrap_or("nobody")).or_default().push(record);
        }
        let mut differences = Self::default();
        for result in results {
            let user = result.user.as_str();
            let mine = attempts_by_user.get(user).map_or(&[][..], Vec::as_slice);
            differences.compare(result, mine, records_by_user.get(user).map_or(&[][..], Vec::as_slice));
        }
        let users: HashSet<&str> = results.iter().map(|result| result.user.as_str()).collect();
        differences
            .unknown
            .extend(records_by_user.keys().filter(|user| !users.contains(*user)).map(|user| (*user).to_owned()));
        differences
    }

    fn compare(&mut self, result: &CallerResult, attempts: &[&Attempt], records: &[&Value]) {
        let CallerResult { user, outcome } = result;
        let got_image = *outcome == CallerOutcome::Image;
        let mut note = |list: fn(&mut Self) -> &mut Vec<String>, differs: bool| {
            if differs {
                list(self).push(user.clone());
            }
        };
        note(|all| &mut all.paid_twice, attempts.len() > 1);
        note(|all| &mut all.doubled, records.len() > 1);
        note(|all| &mut all.lost, records.is_empty() && (got_image || !attempts.is_empty()));
        let Some(record) = records.first() else { return };
        let succeeded = record["state"] == "succeeded";
        note(|all| &mut all.wrong_state, got_image && !succeeded);
        let usage = attempts.first().and_then(|attempt| attempt.usage.as_ref());
        let is_same = |name: &str| usage.is_some_and(|usage| usage[name] == record["usage"][name]);
        let is_equal = ["input_tokens", "output_tokens", "total_tokens"].iter().all(|name| is_same(name));
        note(|all| &mut all.wrong_tokens, succeeded && !is_equal);
    }

    fn counts(&self) -> [(&'static str, usize); 6] {
        [
            ("lost records", self.lost.len()),
            ("doubled records", self.doubled.len()),
            ("second payments", self.paid_twice.len()),
            ("records without a request", self.unknown.len()),
            ("records with other tokens than the upstream", self.wrong_tokens.len()),
            ("images whose record says otherwise", self.wrong_state.len()),
        ]
    }
}

#[test]
fn each_difference_between_the_views_is_found() {
    let upstream = FakeUpstream::start();
    let names = ["same", "lost", "doubled", "paid twice", "other tokens", "other state"];
    for name in names.iter().chain(&["paid twice"]) {
        let call = Call::generation().for_upstream().json(&request(json!({ "user": name })));
        call.send(upstream.address()).ok_json();
    }
    let attempts = upstream.received_attempts();
    let record = |user: &&str| {
        let mut record = json!({"end_user": user, "state": "succeeded", "usage": attempts[0].usage});
        match *user {
            "other tokens" => record["usage"]["output_tokens"] = 1.into(),
            "other state" => record["state"] = "interrupted".into(),
            _ => {}
        }
        record
    };
    let recorded = ["same", "doubled", "doubled", "paid twice", "other tokens", "other state", "unknown"];
    let records: Vec<Value> = recorded.iter().map(record).collect();
    let results = names.map(|user| CallerResult { user: user.to_owned(), outcome: CallerOutcome::Image });
    let found = RecordDifferences::between(&results, &attempts, &records);
    let only = |user: &str| vec![user.to_owned()];
    let expected = RecordDifferences {
        lost: only("lost"),
        doubled: only("doubled"),
        paid_twice: only("paid twice"),
        unknown: only("unknown"),
        wrong_tokens: only("other tokens"),
        wrong_state: only("other state"),
    };
    assert_eq!(found, expected);
}
