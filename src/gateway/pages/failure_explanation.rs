//! The explanation of an unsuccessful request: the event, the party at fault, the reason why the gateway stopped, and the
//! payment. Pure.
//!
//! It is made from the record alone, so a page must not state more than the record knows. All texts are keys of the
//! catalogues.

use crate::wire::admin::types::{AttemptClass, CostBasis, Record, RecordReason, RecordState};

/// The number of accounts that can reject a request in the same way before the gateway asks no other.
const REJECTIONS_MAX: usize = 2;

/// The explanation of a request that did not succeed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FailureExplanation {
    /// The sentence about the event.
    pub(super) event: &'static str,
    /// The party at fault.
    pub(super) fault: ResponsibleParty,
    /// The sentence about what the gateway did after its last call, or instead of a call.
    pub(super) conclusion: &'static str,
    /// The payment for the request.
    pub(super) payment: PaymentOutcome,
    /// The sentence about sending the request again.
    pub(super) advice: &'static str,
}

/// The party at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponsibleParty {
    /// The request must be changed.
    Request,
    /// The caller left.
    Caller,
    /// The upstream, or the network to it.
    Upstream,
    /// The gateway itself.
    Gateway,
    /// The accounts or the settings, which an operator can change.
    Configuration,
    /// The record does not tell.
    Unknown,
}

/// The payment for a request. A cost in US dollars is `None` if it is unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PaymentOutcome {
    /// Nothing was paid.
    Nothing,
    /// It was paid for.
    Paid(Option<f64>),
    /// An image may have been paid for, at most at this cost.
    Possible(Option<f64>),
    /// Two images may have been paid for, at most at this cost together.
    PossiblyTwice(Option<f64>),
}

// === impl FailureExplanation ===

impl FailureExplanation {
    /// Explains a record; `None` if the request has succeeded or still runs.
    pub(super) fn from_record(record: &Record) -> Option<Self> {
        let (event, fault) = match (record.state, record.error_reason) {
            (RecordState::Running | RecordState::Succeeded, _) => return None,
            (RecordState::Cancelled, _) => ("why.caller_left", ResponsibleParty::Caller),
            (_, Some(reason)) => event_of_reason(reason, record),
            (RecordState::Interrupted, None) => ("why.stopped", ResponsibleParty::Gateway),
            (_, None) => ("why.unknown", ResponsibleParty::Unknown),
        };
        let payment = PaymentOutcome::from_record(record);
        Some(Self { event, fault, conclusion: conclusion(record), payment, advice: advice(record, fault, payment) })
    }
}

/// Returns the event of a failure with this reason, and the party at fault.
fn event_of_reason(reason: RecordReason, record: &Record) -> (&'static str, ResponsibleParty) {
    let last = record.attempts.last();
    match reason {
        RecordReason::Filter => ("why.filter", ResponsibleParty::Request),
        RecordReason::ContentRefused => ("why.content_refused", ResponsibleParty::Request),
        RecordReason::UpstreamRejected => ("why.upstream_rejected", ResponsibleParty::Request),
        RecordReason::Network => match last.and_then(|last| last.class) {
            Some(AttemptClass::MaybePaid | AttemptClass::OutputBegun) => {
                ("why.connection_broke", ResponsibleParty::Upstream)
            }
            _ => ("why.unreachable", ResponsibleParty::Upstream),
        },
        RecordReason::Timeout => ("why.timeout", ResponsibleParty::Upstream),
        RecordReason::Broken => ("why.broken", ResponsibleParty::Upstream),
        RecordReason::UpstreamFailed => ("why.upstream_failed", ResponsibleParty::Upstream),
        RecordReason::NoImageData => ("why.no_image_data", ResponsibleParty::Upstream),
        RecordReason::AsyncUpstream => ("why.async_upstream", ResponsibleParty::Configuration),
        RecordReason::ImageByAddress => ("why.image_by_address", ResponsibleParty::Configuration),
        RecordReason::UnknownCoding => ("why.unknown_coding", ResponsibleParty::Upstream),
        RecordReason::TextInsteadOfImage => ("why.text_instead_of_image", ResponsibleParty::Request),
        RecordReason::DeliveryMismatch => ("why.delivery_mismatch", ResponsibleParty::Upstream),
        RecordReason::OutcomeUnknown => ("why.stopped", ResponsibleParty::Gateway),
        RecordReason::Quota => ("why.quota", ResponsibleParty::Configuration),
        RecordReason::Throttled if has_status(record, 429) => ("why.throttled", ResponsibleParty::Upstream),
        RecordReason::Throttled => ("why.busy", ResponsibleParty::Configuration),
        RecordReason::Credentials => ("why.credentials", ResponsibleParty::Configuration),
        RecordReason::Missing => ("why.missing", ResponsibleParty::Configuration),
        RecordReason::NoAccounts => ("why.no_accounts", ResponsibleParty::Configuration),
        RecordReason::Unavailable => ("why.unavailable", ResponsibleParty::Gateway),
        RecordReason::Internal => ("why.internal", ResponsibleParty::Gateway),
    }
}

/// Returns the sentence about what the gateway did after its last call, or instead of a call. The rules are those of the
/// attempt loop: after some failures, another call could pay for a second image.
fn conclusion(record: &Record) -> &'static str {
    let is_rejected = record.error_reason == Some(RecordReason::UpstreamRejected);
    let is_stopped = record.error_reason == Some(RecordReason::OutcomeUnknown)
        || record.state == RecordState::Interrupted && record.error_code.is_none();
    let Some(last) = record.attempts.last() else { return "did.no_call" };
    let failures = |class| record.attempts.iter().filter(|attempt| attempt.class == Some(class)).count();
    if record.state == RecordState::Cancelled {
        return "did.left";
    }
    if is_stopped {
        return "did.stopped";
    }
    match last.class {
        Some(AttemptClass::NothingDone) if is_rejected && failures(AttemptClass::NothingDone) >= REJECTIONS_MAX => {
            "did.rejected_twice"
        }
        Some(AttemptClass::NothingDone) => "did.no_other",
        Some(AttemptClass::ReportedFailed) if failures(AttemptClass::ReportedFailed) > 1 => "did.failed_twice",
        Some(AttemptClass::ReportedFailed) => "did.no_other",
        Some(AttemptClass::MaybePaid) => "did.would_pay_twice",
        Some(AttemptClass::Refused) => "did.would_be_refused",
        Some(AttemptClass::OutputBegun) => "did.had_begun",
        None => "did.had_image",
    }
}

/// Returns the sentence about sending the request again.
const fn advice(record: &Record, fault: ResponsibleParty, payment: PaymentOutcome) -> &'static str {
    match (fault, record.error_reason) {
        (ResponsibleParty::Request, _) => "retry.change",
        (
            ResponsibleParty::Configuration,
            Some(
                RecordReason::Credentials
                | RecordReason::Missing
                | RecordReason::AsyncUpstream
                | RecordReason::NoAccounts,
            ),
        ) => "retry.operator",
        (ResponsibleParty::Configuration, _) => "retry.later",
        _ if matches!(payment, PaymentOutcome::Nothing) => "retry.safe",
        _ => "retry.pays",
    }
}

fn has_status(record: &Record, status: u64) -> bool {
    record.attempts.iter().any(|attempt| attempt.status == Some(status))
}

// === impl ResponsibleParty ===

impl ResponsibleParty {
    /// The key of the text.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Request => "fault.request",
            Self::Caller => "fault.caller",
            Self::Upstream => "fault.upstream",
            Self::Gateway => "fault.gateway",
            Self::Configuration => "fault.configuration",
            Self::Unknown => "fault.unknown",
        }
    }

    /// The CSS class of the notice.
    pub(super) const fn tone(self) -> &'static str {
        match self {
            Self::Request | Self::Caller => "warn",
            Self::Upstream | Self::Gateway | Self::Configuration | Self::Unknown => "bad",
        }
    }
}

// === impl PaymentOutcome ===

impl PaymentOutcome {
    fn from_record(record: &Record) -> Self {
        let cost = record.cost_usd;
        // The simulator costs nothing, whatever became of its calls.
        let is_free = cost == Some(0.0) && record.cost_basis == Some(CostBasis::Exact);
        let has_tokens = record.usage.is_some() || record.host_usage.is_some();
        let has_answer =
            has_tokens || !record.delivered.is_empty() || record.attempts.iter().any(|attempt| attempt.class.is_none());
        let may_have_image = |class| matches!(class, Some(AttemptClass::MaybePaid | AttemptClass::OutputBegun));
        if record.attempts.is_empty() || is_free {
            Self::Nothing
        } else if record.maybe_paid_twice == Some(true) {
            Self::PossiblyTwice(cost)
        } else if record.attempts.iter().any(|attempt| may_have_image(attempt.class)) {
            Self::Possible(cost)
        } else if has_answer {
            Self::Paid(cost)
        } else {
            Self::Nothing
        }
    }

    /// The key of the text, in which the cost replaces `{cost}` if it is known.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Nothing => "paid.nothing",
            Self::Paid(Some(_)) => "paid.cost",
            Self::Paid(None) => "paid.unknown",
            Self::Possible(Some(_)) => "paid.possible",
            Self::Possible(None) => "paid.possible_unknown",
            Self::PossiblyTwice(Some(_)) => "paid.twice",
            Self::PossiblyTwice(None) => "paid.twice_unknown",
        }
    }

    /// The cost in US dollars, if it is known.
    pub(super) const fn cost(self) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Paid(cost) | Self::Possible(cost) | Self::PossiblyTwice(cost) => cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::gateway::pages::language::{Language, catalogue};

    fn record(fields: &Value) -> Record {
        let mut record = json!({
            "request_id": "r1", "created_at": "2026-11-21T03:00:00Z", "operation": "create_image", "stream": false,
            "state": "failed", "delivered": [], "attempts": [], "group": "default", "user": "usr_1", "key": "key_1",
            "injected_tool": false,
        });
        for (name, value) in fields.as_object().unwrap() {
            record[name] = value.clone();
        }
        serde_json::from_value(record).unwrap()
    }

    fn explain(fields: &Value) -> FailureExplanation {
        FailureExplanation::from_record(&record(fields)).unwrap()
    }

    /// The values of an enumeration in the API document.
    fn documented(schema: &str) -> Vec<Value> {
        let document: Value =
            serde_json::from_str(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/admin.json"))).unwrap();
        document["components"]["schemas"][schema]["enum"].as_array().unwrap().clone()
    }

    #[track_caller]
    fn assert_has_texts(explanation: &FailureExplanation) {
        let keys = [
            explanation.event,
            explanation.fault.text(),
            explanation.conclusion,
            explanation.payment.text(),
            explanation.advice,
        ];
        for key in keys {
            assert!(catalogue(Language::En).contains_key(key), "{key}: {explanation:?}");
        }
    }

    #[test]
    fn every_reason_of_the_document_has_an_explanation_of_its_own() {
        let reasons = documented("RecordReason");
        assert!(reasons.len() > 15);
        let calls = [json!([]), json!([{"class": "N", "status": 429}]), json!([{"class": "X"}]), json!([{}])];
        let mut events = BTreeSet::new();
        for (reason, attempts) in reasons.iter().flat_map(|reason| calls.iter().map(move |calls| (reason, calls))) {
            let fields = json!({"error_code": "upstream_error", "error_reason": reason, "attempts": attempts});
            let explanation = explain(&fields);
            assert_has_texts(&explanation);
            assert!(explanation.fault != ResponsibleParty::Unknown && explanation.event != "why.unknown", "{reason}");
            events.extend(attempts.as_array().is_some_and(Vec::is_empty).then_some(explanation.event));
        }
        assert_eq!(events.len(), reasons.len(), "two reasons have the same sentence: {events:?}");
    }

    #[test]
    fn a_failure_without_a_reason_is_unknown() {
        let explanation = explain(&json!({"error_code": "upstream_error", "state": "failed"}));
        assert_has_texts(&explanation);
        assert_eq!((explanation.event, explanation.fault), ("why.unknown", ResponsibleParty::Unknown));
    }

    #[test]
    fn only_unsuccessful_requests_are_explained() {
        for state in documented("RecordState") {
            let explanation = FailureExplanation::from_record(&record(&json!({"state": state})));
            assert_eq!(explanation.is_none(), state == "running" || state == "succeeded", "{state}");
        }
    }

    #[test]
    fn each_party_can_be_at_fault() {
        for (fields, event, fault) in [
            (json!({"state": "cancelled"}), "why.caller_left", ResponsibleParty::Caller),
            (json!({"state": "interrupted"}), "why.stopped", ResponsibleParty::Gateway),
            (json!({"state": "refused", "error_reason": "filter"}), "why.filter", ResponsibleParty::Request),
            (json!({"error_reason": "throttled"}), "why.busy", ResponsibleParty::Configuration),
            (
                json!({"error_reason": "throttled", "attempts": [{"class": "N", "status": 429}]}),
                "why.throttled",
                ResponsibleParty::Upstream,
            ),
            (
                json!({"error_reason": "network", "attempts": [{"class": "N"}]}),
                "why.unreachable",
                ResponsibleParty::Upstream,
            ),
            (
                json!({"error_reason": "network", "attempts": [{"class": "X"}]}),
                "why.connection_broke",
                ResponsibleParty::Upstream,
            ),
        ] {
            let explanation = explain(&fields);
            assert_eq!((explanation.event, explanation.fault), (event, fault), "{fields}");
        }
    }

    #[test]
    fn the_last_call_decides_why_no_other_followed() {
        let rejected = json!({"error_code": "upstream_error", "error_reason": "upstream_rejected"});
        for (fields, expected) in [
            (json!({}), "did.no_call"),
            (json!({"attempts": [{"class": "N"}]}), "did.no_other"),
            (json!({"attempts": [{"class": "F"}, {"class": "F"}]}), "did.failed_twice"),
            (
                json!({"attempts": [{"class": "N"}, {"class": "X"}], "error_code": "upstream_error"}),
                "did.would_pay_twice",
            ),
            (json!({"attempts": [{"class": "X"}], "state": "interrupted"}), "did.stopped"),
            (json!({"attempts": [{"class": "X"}], "state": "cancelled"}), "did.left"),
            (json!({"attempts": [{"class": "R"}]}), "did.would_be_refused"),
            (json!({"attempts": [{"class": "O"}]}), "did.had_begun"),
            (json!({"attempts": [{}]}), "did.had_image"),
        ] {
            assert_eq!(explain(&fields).conclusion, expected, "{fields}");
        }
        let mut twice = rejected;
        twice["attempts"] = json!([{"class": "N"}, {"class": "N"}]);
        assert_eq!(explain(&twice).conclusion, "did.rejected_twice");
    }

    #[test]
    fn the_payment_follows_from_the_calls_and_the_cost() {
        for (fields, payment) in [
            (json!({"cost_usd": 0.2}), PaymentOutcome::Nothing),
            (json!({"attempts": [{"class": "N"}, {"class": "F"}, {"class": "R"}]}), PaymentOutcome::Nothing),
            (
                json!({"attempts": [{"class": "F"}], "usage": {"input_tokens": 3}, "cost_usd": 0.01}),
                PaymentOutcome::Paid(Some(0.01)),
            ),
            (json!({"attempts": [{}], "cost_basis": "unknown"}), PaymentOutcome::Paid(None)),
            (
                json!({"attempts": [{"class": "X"}], "cost_usd": 0.2, "cost_basis": "estimated"}),
                PaymentOutcome::Possible(Some(0.2)),
            ),
            (json!({"attempts": [{"class": "O"}]}), PaymentOutcome::Possible(None)),
            (json!({"attempts": [{"class": "X"}], "cost_usd": 0.0, "cost_basis": "exact"}), PaymentOutcome::Nothing),
            (
                json!({"attempts": [{"class": "X"}, {"class": "X"}], "maybe_paid_twice": true}),
                PaymentOutcome::PossiblyTwice(None),
            ),
        ] {
            assert_eq!(explain(&fields).payment, payment, "{fields}");
        }
    }

    #[test]
    fn the_advice_never_hides_a_second_payment() {
        for (fields, advice) in [
            (json!({"error_reason": "content_refused", "state": "refused"}), "retry.change"),
            (json!({"error_reason": "credentials"}), "retry.operator"),
            (json!({"error_reason": "quota"}), "retry.later"),
            (json!({"error_reason": "upstream_failed", "attempts": [{"class": "F"}]}), "retry.safe"),
            (json!({"error_reason": "timeout", "attempts": [{"class": "X"}]}), "retry.pays"),
            (json!({"state": "cancelled", "attempts": [{"class": "X"}]}), "retry.pays"),
        ] {
            assert_eq!(explain(&fields).advice, advice, "{fields}");
        }
    }
}
