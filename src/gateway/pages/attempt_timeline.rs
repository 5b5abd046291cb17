//! The timeline of a request's calls: when each began and ended, as a bar in SVG, and what the gateway did next. Pure. The
//! table with the bars also has their numbers.

use crate::wire::admin::types::{AttemptClass, Record, RecordAttempt, RecordState};

/// The width of a timeline, in SVG units. It stands for the duration of the request.
const WIDTH: f64 = 1000.0;
/// The minimum width of a bar, in SVG units.
const BAR_MIN: f64 = 6.0;

/// One call of the timeline.
#[derive(Debug, Clone)]
pub(super) struct TimelineCall {
    pub(super) attempt: RecordAttempt,
    /// The time from the beginning of the request to that of the call, in milliseconds.
    pub(super) start_ms: Option<u64>,
    /// The bar; `None` if the beginning or the end of the call is unknown.
    pub(super) bar: Option<TimelineBar>,
    /// The action after the call: the key of its text, in which the image replaces `{image}`.
    pub(super) next: &'static str,
    /// The smaller image that the next call asked for, if a fallback began.
    pub(super) next_image: Option<String>,
}

/// The bar of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimelineBar {
    /// The CSS class: `good`, `bad`, or `unclear` if an image may have been made.
    pub(super) kind: &'static str,
    pub(super) x: String,
    pub(super) width: String,
}

/// Returns the calls of a record, in the order in which they began.
pub(super) fn calls(record: &Record) -> Vec<TimelineCall> {
    let ends = record.attempts.iter().map(|attempt| Some(attempt.start_ms? + attempt.latency_ms?));
    let ends: Vec<Option<u64>> = ends.collect();
    let total = ends.iter().flatten().copied().chain(record.latency_ms).max().unwrap_or(0).max(1);
    let calls = record.attempts.iter().zip(&ends).enumerate();
    let calls = calls.map(|(index, (attempt, end))| {
        let next_attempt = record.attempts.get(index + 1);
        TimelineCall {
            start_ms: attempt.start_ms,
            bar: attempt.start_ms.zip(*end).map(|(start, end)| TimelineBar::new(attempt.class, start, end, total)),
            next: action_after(record, index, *end),
            next_image: next_attempt
                .and_then(|next| next.fallback.clone())
                .filter(|_| begins_fallback(attempt, next_attempt)),
            attempt: attempt.clone(),
        }
    });
    calls.collect()
}

/// Returns the key of the text about what the gateway did after a call, which ended at `end`.
fn action_after(record: &Record, index: usize, end: Option<u64>) -> &'static str {
    let Some(attempt) = record.attempts.get(index) else { return "next.gave_up" };
    let Some(next) = record.attempts.get(index + 1) else { return last_action(record, attempt) };
    if next.start_ms.zip(end).is_some_and(|(start, end)| start < end) {
        return "next.parallel";
    }
    if begins_fallback(attempt, Some(next)) {
        return "next.fallback";
    }
    match (&attempt.account, &next.account) {
        (Some(account), Some(next)) if account == next => "next.same",
        (Some(_), Some(_)) => "next.account",
        // Members do not see accounts.
        _ => "next.again",
    }
}

/// Returns the key of the text about what the gateway did after the last call.
const fn last_action(record: &Record, attempt: &RecordAttempt) -> &'static str {
    match (record.state, attempt.class) {
        (RecordState::Running, _) => "next.running",
        (RecordState::Succeeded, None) => "next.delivered",
        // One of several calls failed, and the others gave their images.
        (RecordState::Succeeded, Some(_)) => "next.delivered_rest",
        (RecordState::Cancelled, _) => "next.left",
        (RecordState::Interrupted, _) if record.error_code.is_none() => "next.stopped",
        (_, None) => "next.withheld",
        (..) => "next.gave_up",
    }
}

fn begins_fallback(attempt: &RecordAttempt, next: Option<&RecordAttempt>) -> bool {
    next.is_some_and(|next| next.fallback.is_some() && next.fallback != attempt.fallback)
}

// === impl TimelineBar ===

impl TimelineBar {
    fn new(class: Option<AttemptClass>, start: u64, end: u64, total: u64) -> Self {
        let position = |time: u64| to_f64(time) / to_f64(total) * WIDTH;
        let width = (position(end) - position(start)).max(BAR_MIN);
        let kind = match class {
            None => "good",
            Some(AttemptClass::MaybePaid | AttemptClass::OutputBegun) => "unclear",
            Some(AttemptClass::NothingDone | AttemptClass::ReportedFailed | AttemptClass::Refused) => "bad",
        };
        let x = position(start).min(WIDTH - width).max(0.0);
        Self { kind, x: format!("{x:.1}"), width: format!("{width:.1}") }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a bar does not need that precision")]
const fn to_f64(milliseconds: u64) -> f64 {
    milliseconds as f64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn timeline(state: &str, code: Option<&str>, latency_ms: u64, attempts: &Value) -> Vec<TimelineCall> {
        let record = json!({
            "request_id": "r1", "created_at": "2026-11-21T03:00:00Z", "operation": "create_image", "stream": false,
            "state": state, "delivered": [], "attempts": attempts, "group": "default", "user": "usr_1", "key": "key_1",
            "injected_tool": false, "latency_ms": latency_ms, "error_code": code,
        });
        calls(&serde_json::from_value(record).unwrap())
    }

    fn bars(calls: &[TimelineCall]) -> Vec<(&str, &str, &str)> {
        let bars = calls.iter().filter_map(|call| call.bar.as_ref());
        bars.map(|bar| (bar.kind, bar.x.as_str(), bar.width.as_str())).collect()
    }

    fn actions(calls: &[TimelineCall]) -> Vec<&'static str> {
        calls.iter().map(|call| call.next).collect()
    }

    #[test]
    fn bars_stand_where_their_calls_were() {
        let attempts = json!([
            {"account": "a", "class": "N", "latency_ms": 100, "start_ms": 0},
            {"account": "b", "class": "X", "latency_ms": 300, "start_ms": 200},
            {"account": "c", "latency_ms": 0, "start_ms": 1000},
        ]);
        let calls = timeline("succeeded", None, 1000, &attempts);
        assert_eq!(
            bars(&calls),
            [("bad", "0.0", "100.0"), ("unclear", "200.0", "300.0"), ("good", "994.0", "6.0")],
            "a short bar at the end stays inside"
        );
        assert_eq!(actions(&calls), ["next.account", "next.account", "next.delivered"]);
    }

    #[test]
    fn a_call_without_times_has_no_bar() {
        let killed = timeline("interrupted", None, 600, &json!([{"class": "X"}]));
        assert_eq!((bars(&killed), actions(&killed)), (vec![], vec!["next.stopped"]));
    }

    #[test]
    fn a_fallback_names_the_smaller_image() {
        let attempts = json!([
            {"account": "a", "class": "F", "latency_ms": 1, "start_ms": 0},
            {"account": "a", "class": "F", "latency_ms": 1, "start_ms": 1, "fallback": "3840x2160 medium"},
            {"account": "a", "class": "N", "latency_ms": 1, "start_ms": 2, "fallback": "1536x1024 medium"},
            {"account": "a", "latency_ms": 1, "start_ms": 3, "fallback": "1536x1024 medium"},
        ]);
        let calls = timeline("failed", Some("upstream_error"), 4, &attempts);
        assert_eq!(actions(&calls), ["next.fallback", "next.fallback", "next.same", "next.withheld"]);
        let images: Vec<_> = calls.iter().map(|call| call.next_image.as_deref()).collect();
        assert_eq!(images, [Some("3840x2160 medium"), Some("1536x1024 medium"), None, None]);
    }

    #[test]
    fn calls_at_the_same_time_are_not_told_as_a_sequence() {
        let attempts = json!([
            {"account": "a", "latency_ms": 100, "start_ms": 0},
            {"account": "a", "class": "N", "latency_ms": 90, "start_ms": 5},
        ]);
        let calls = timeline("succeeded", None, 100, &attempts);
        assert_eq!(actions(&calls), ["next.parallel", "next.delivered_rest"]);
    }
}
