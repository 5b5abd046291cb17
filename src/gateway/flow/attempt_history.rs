//! The failures of a job so far, and the money rules that decide from them on another attempt.

use chrono::Utc;

use super::attempt_types::{FailedCall, JobFailure};
use super::caller_error::{StopReason, caller_error};
use crate::gateway::accounts::LeaseRefusal;
use crate::gateway::ledger::AttemptClass;
use crate::gateway::relay::{self, AnswerUsage};
use crate::gateway::upstream::{AttemptFailure, FailureCause};

/// The number of failed calls after which one request makes no further call (our choice); [`is_counted_failure`]
/// decides which failures count. Clients multiply this number by their own retries. The calls of a fan-out share the
/// limit. The first call of a fallback round is made even if the limit is reached.
pub(super) const FAILED_CALLS_MAX: usize = 4;

/// All failures so far, and the reason why no further account was asked.
#[derive(Default)]
pub(super) struct AttemptHistory {
    pub(super) failures: Vec<AttemptFailure>,
    /// The reason why no further account was asked.
    pub(super) stop_reason: StopReason,
    /// The tokens that were charged although there is no image. They go into the record.
    pub(super) charged_usage: Option<AnswerUsage>,
}

// === impl AttemptHistory ===

impl AttemptHistory {
    pub(super) fn add_failed_call(&mut self, failed_call: FailedCall) {
        self.charged_usage = relay::sum_usage(self.charged_usage.take(), failed_call.usage);
        self.failures.push(failed_call.failure);
    }

    /// Adds the failures of calls that ran side by side.
    pub(super) fn merge(&mut self, other: Self) {
        self.charged_usage = relay::sum_usage(self.charged_usage.take(), other.charged_usage);
        self.failures.extend(other.failures);
        self.stop_reason = self.stop_reason.merged_with(other.stop_reason);
    }

    /// True if no attempt was made because every slot is taken.
    pub(super) fn is_only_busy(&self) -> bool {
        self.failures.is_empty() && self.stop_reason == StopReason::NoLease(LeaseRefusal::Busy)
    }

    /// Applies the money rules to the last failure: if nothing was done, other accounts may be asked; if the upstream
    /// reports a failure, one other account; otherwise none. No further attempt is made if `counted_failures` has
    /// reached the limit.
    pub(super) fn may_try_again(&self, counted_failures: usize) -> bool {
        let allowed = match self.failures.last().map(AttemptFailure::class) {
            None | Some(AttemptClass::NothingDone) => true,
            Some(AttemptClass::ReportedFailed) => self.reported_failures() < 2,
            Some(AttemptClass::MaybePaid | AttemptClass::Refused | AttemptClass::OutputBegun) => false,
        };
        allowed && counted_failures < FAILED_CALLS_MAX
    }

    /// True if one of the calls may have made an image that was not received.
    pub(super) fn may_be_paid(&self) -> bool {
        self.failures.iter().any(|failure| failure.class() == AttemptClass::MaybePaid)
    }

    /// True if a response may be accepted without the injected tool: an upstream has rejected its tools or an unnamed
    /// part of it, and after every other failure nothing was done. No image is made for a request that is refused in
    /// this way.
    pub(super) fn may_pass_without_tool(&self) -> bool {
        let is_always_rejected =
            self.failures.iter().all(|failure| failure.class() == AttemptClass::NothingDone || rejects_tools(failure));
        is_always_rejected
            && self.failures.iter().any(|failure| rejects_tools(failure) || rejects_unnamed_part(failure))
    }

    /// Returns the number of failures that the upstream itself has reported.
    pub(super) fn reported_failures(&self) -> usize {
        self.failures.iter().filter(|failure| failure.class() == AttemptClass::ReportedFailed).count()
    }

    pub(super) fn counted_failures(&self) -> usize {
        self.failures.iter().filter(|failure| is_counted_failure(failure)).count()
    }

    /// Returns the error for the caller, and the failed attempt for the record: the last one. A call that may have been
    /// paid for takes precedence over later failures, because the error must tell the caller about it before the caller
    /// pays for another image.
    pub(super) fn into_failure(mut self) -> JobFailure {
        self.failures.sort_by_key(|failure| failure.class() == AttemptClass::MaybePaid);
        let error = caller_error(&self.failures, self.stop_reason, Utc::now());
        JobFailure::Failed(error, self.failures.pop().map(Box::new))
    }
}

/// True if the upstream refuses a list of tools or a part of one.
fn rejects_tools(failure: &AttemptFailure) -> bool {
    let FailureCause::InvalidRequest { param, message } = &failure.cause else { return false };
    param.as_ref().is_some_and(|param| param.starts_with("tool")) || message.contains("tool")
}

/// True if the upstream refuses the request without naming the part at fault.
fn rejects_unnamed_part(failure: &AttemptFailure) -> bool {
    matches!(failure.cause, FailureCause::RejectedByAccount { .. } | FailureCause::AccountFault)
        && matches!(failure.status, Some(400 | 422))
}

/// True if a failure counts as a failed call. A call that did nothing does not count if the upstream answered with a
/// status, so that every account may be asked.
pub(super) fn is_counted_failure(failure: &AttemptFailure) -> bool {
    failure.class() != AttemptClass::NothingDone || failure.status.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history_of(classes: &[(AttemptClass, Option<u16>)]) -> AttemptHistory {
        let failure = |&(class, status): &(AttemptClass, Option<u16>)| AttemptFailure {
            status,
            ..AttemptFailure::of_class(class)
        };
        AttemptHistory { failures: classes.iter().map(failure).collect(), ..AttemptHistory::default() }
    }

    fn may_try_again(history: AttemptHistory) -> bool {
        history.may_try_again(history.counted_failures())
    }

    #[test]
    fn the_failure_class_decides_on_another_attempt() {
        let (n, f, x, r) = (
            (AttemptClass::NothingDone, Some(429)),
            (AttemptClass::ReportedFailed, Some(500)),
            (AttemptClass::MaybePaid, Some(502)),
            (AttemptClass::Refused, Some(400)),
        );
        assert!(may_try_again(history_of(&[n])));
        assert!(may_try_again(history_of(&[f])));
        assert!(may_try_again(history_of(&[n, f])));
        assert!(may_try_again(history_of(&[f, n])));
        assert!(!may_try_again(history_of(&[f, f])));
        assert!(!may_try_again(history_of(&[x])));
        assert!(!may_try_again(history_of(&[r])));
    }

    #[test]
    fn the_injected_tool_is_removed_if_it_may_be_the_refused_part() {
        let rejected = |param: &str, message: &str| {
            let cause = FailureCause::InvalidRequest { param: Some(param.to_owned()), message: message.to_owned() };
            AttemptFailure::new(cause).with_status(400)
        };
        let declined = |status| AttemptFailure { status, ..AttemptFailure::new(FailureCause::AccountFault) };
        let may_pass = |failures: &[AttemptFailure]| {
            AttemptHistory { failures: failures.to_vec(), ..AttemptHistory::default() }.may_pass_without_tool()
        };
        assert!(may_pass(&[rejected("tools[3].type", "no")]));
        assert!(may_pass(&[rejected("model", "This model has no image_generation tool.")]));
        assert!(may_pass(&[declined(Some(429)), declined(Some(400))]));
        assert!(may_pass(&[declined(Some(422)), declined(None)]));
        assert!(!may_pass(&[rejected("input[3].id", "no such item")]));
        assert!(!may_pass(&[declined(Some(429)), declined(None)]));
        let (failed, broken, refused) = (
            (AttemptClass::ReportedFailed, Some(500)),
            (AttemptClass::MaybePaid, None),
            (AttemptClass::Refused, Some(400)),
        );
        for class in [failed, broken, refused] {
            let AttemptHistory { failures, .. } = history_of(&[class]);
            assert!(!may_pass(&[&[declined(Some(400))][..], &failures].concat()), "{class:?}");
        }
        assert!(!may_pass(&[]));
    }

    #[test]
    fn the_limit_counts_calls_that_may_have_cost_something() {
        let refusals = [(AttemptClass::NothingDone, Some(429)); 20];
        assert!(may_try_again(history_of(&refusals)));
        assert!(!may_try_again(history_of(&[(AttemptClass::NothingDone, None); FAILED_CALLS_MAX])));
    }

    #[test]
    fn a_call_that_may_be_paid_for_decides_the_error() {
        let (n, x) = ((AttemptClass::NothingDone, Some(429)), (AttemptClass::MaybePaid, Some(504)));
        for classes in [&[x, n][..], &[n, x, n], &[x]] {
            let JobFailure::Failed(error, last) = history_of(classes).into_failure() else {
                panic!("expected JobFailure::Failed")
            };
            assert!(!error.should_retry(), "{classes:?}: {error:?}");
            assert_eq!(last.map(|last| last.class()), Some(AttemptClass::MaybePaid), "{classes:?}");
        }
        assert!(!history_of(&[n]).may_be_paid() && history_of(&[n, x]).may_be_paid());
    }
}
