//! The consequences of an odd failure: the calls, the answer to the caller, the record and the state of the account.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{RequestKind, seconds_until};
use crate::kit::Answer;

/// The greatest difference between a wait and the stated one, in seconds: the time that the machine has needed.
const LATENESS: i64 = 40;

/// The consequences of a failure.
pub(super) struct ExpectedOutcome {
    word: &'static str,
    /// The parameter of a rejection, the seconds of a wait, or the reason of an ambiguous failure.
    detail: Option<&'static str>,
    class: &'static str,
    calls: (usize, usize),
    status: u16,
    code: &'static str,
    reason: Option<&'static str>,
    should_retry: &'static str,
    record: (&'static str, &'static str),
}

// === impl ExpectedOutcome ===

impl ExpectedOutcome {
    pub(super) fn parse(expected: &'static str) -> Self {
        let (word, detail) = expected.split_once(' ').map_or((expected, None), |(word, detail)| (word, Some(detail)));
        let upstream = |class, calls, reason, should_retry, record| {
            (class, calls, 502, "upstream_error", Some(reason), should_retry, record)
        };
        let (once, both) = ((1, 0), (1, 1));
        let (class, calls, status, code, reason, should_retry, record) = match word {
            "refused" => upstream("R", once, "content_refused", "false", ("refused", "content_refused")),
            "rejected" => {
                let record = ("failed", "upstream_rejected");
                ("R", once, 400, "invalid_request_error", Some("upstream_rejected"), "false", record)
            }
            "declined" | "unknown_model" => {
                let record = ("failed", "upstream_rejected");
                ("N", both, 400, "invalid_request_error", Some("upstream_rejected"), "false", record)
            }
            "text" => upstream("R", once, "text_instead_of_image", "false", ("failed", "text_instead_of_image")),
            "busy" => upstream("N", both, "text_instead_of_image", "false", ("failed", "text_instead_of_image")),
            "not_offered" => upstream("N", both, "model_not_offered", "false", ("failed", "missing")),
            "unpaid" => upstream("N", both, "quota", "false", ("failed", "quota")),
            "credentials" => upstream("N", both, "credentials", "false", ("failed", "credentials")),
            "forbidden" => upstream("N", both, "upstream_rejected", "false", ("failed", "upstream_rejected")),
            "exhausted" => ("N", both, 429, "usage_limit_reached", None, "false", ("failed", "quota")),
            "throttled" => ("N", both, 429, "rate_limit_exceeded", None, "true", ("failed", "throttled")),
            "failed" => upstream("F", both, "upstream_failed", "true", ("failed", "upstream_failed")),
            "ambiguous" => {
                let reason = detail.expect("a reason");
                let recorded = if reason == "network" { "broken" } else { reason };
                upstream("X", once, reason, "false", ("interrupted", recorded))
            }
            other => panic!("no verdict {other}"),
        };
        Self { word, detail, class, calls, status, code, reason, should_retry, record }
    }

    pub(super) const fn calls(&self) -> (usize, usize) {
        self.calls
    }

    /// True if the account is remembered as one that does not have what was asked, if another one has it.
    pub(super) fn is_remembered(&self) -> bool {
        matches!(self.word, "not_offered" | "busy")
    }

    fn stated_wait(&self) -> Option<i64> {
        self.detail.filter(|_| matches!(self.word, "exhausted" | "throttled"))?.parse().ok()
    }

    pub(super) fn faults_of_answer(&self, answer: &Answer) -> Vec<String> {
        if answer.status != self.status {
            return vec![format!("status {}: {:.300}", answer.status, answer.text())];
        }
        let error = answer.json()["error"].clone();
        let found = (&error["code"], &error["reason"], answer.should_retry());
        let expected = (&json!(self.code), &json!(self.reason), Some(self.should_retry));
        let mut faults: Vec<String> =
            (found != expected).then(|| format!("{found:?} instead of {expected:?}")).into_iter().collect();
        if self.word == "rejected" && error["param"] != json!(self.detail) {
            faults.push(format!("param {} instead of {:?}", error["param"], self.detail));
        }
        let wait = match self.word {
            "exhausted" => error["resets_in_seconds"].as_i64(),
            // A longer wait than a minute is not told to clients, which would wait for it.
            _ => answer.header("retry-after").and_then(|seconds| seconds.parse().ok()),
        };
        let most = if self.word == "exhausted" { i64::MAX } else { 60 };
        if let Some(stated) = self.stated_wait() {
            let stated = stated.min(most);
            if !wait.is_some_and(|wait| (stated - LATENESS..=stated).contains(&wait)) {
                faults.push(format!("told {wait:?} seconds instead of {stated}"));
            }
        }
        faults
    }

    pub(super) fn faults_of_record(&self, record: &Value, asked: RequestKind) -> Vec<String> {
        let found = (&record["state"], &record["error_reason"], &record["error_code"]);
        let expected = (&json!(self.record.0), &json!(self.record.1), &json!(self.code));
        let mut faults: Vec<String> =
            (found != expected).then(|| format!("record {found:?} instead of {expected:?}")).into_iter().collect();
        let attempts = record["attempts"].as_array().expect("attempts");
        faults.extend(
            attempts
                .iter()
                .filter(|attempt| attempt["class"] != self.class)
                .map(|attempt| format!("attempt {attempt} instead of class {}", self.class)),
        );
        let (basis, is_free) = (&record["cost_basis"], record["cost_usd"].as_f64() == Some(0.0));
        let expected = match self.class {
            // The text model that runs the tool has no price here, and what is not known is not nothing.
            "X" if asked == RequestKind::Image || asked == RequestKind::ImageStream => ("estimated", false),
            "X" => ("unknown", false),
            _ => ("exact", true),
        };
        if asked.is_image() && (basis, is_free) != (&json!(expected.0), expected.1) {
            faults.push(format!("cost {} {basis} instead of {expected:?}", record["cost_usd"]));
        }
        faults
    }

    pub(super) fn faults_of_account(&self, account: &Value, now: DateTime<Utc>) -> Vec<String> {
        let (state, left) = (&account["state"], seconds_until(&account["cooling_until"], now));
        let is_right = match (self.word, self.stated_wait()) {
            ("exhausted" | "throttled", Some(stated)) => {
                state == "cooling_down" && left.is_some_and(|left| (stated - LATENESS..=stated + 1).contains(&left))
            }
            // The short cooldown may have ended, and a check of the credentials may have begun.
            ("exhausted" | "throttled" | "credentials" | "forbidden", _) => true,
            _ => state == "enabled",
        };
        (!is_right).then(|| format!("account {state} for {left:?} seconds")).into_iter().collect()
    }
}
