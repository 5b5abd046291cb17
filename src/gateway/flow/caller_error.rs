//! Selects the error for the caller from the failures of all attempts, and the outcome for the record. Pure.
//!
//! The consequences of a single failure are rows of the table in `upstream/failure_cause.rs`.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::error::{Error, UpstreamFault, UsageReset};
use crate::gateway::accounts::LeaseRefusal;
use crate::gateway::ledger::{AttemptClass, JobOutcome};
use crate::gateway::upstream::{AttemptFailure, FailureCause};
use crate::tables::RETRY_AFTER_MAX_SECONDS;
use crate::wire::admin::types::RecordReason;

/// The `Retry-After` of a throttled caller if the upstream states no wait (our choice).
const THROTTLED_WAIT: Duration = Duration::from_secs(5);
/// The `Retry-After` of a caller if every slot is taken, in seconds (our choice).
const BUSY_WAIT: u32 = 2;

/// The reason why the attempts ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StopReason {
    /// The money rules allow no further call.
    #[default]
    MoneyRules,
    /// No further lease was granted.
    NoLease(LeaseRefusal),
    /// Two accounts rejected the request in the same way, so the request is the cause.
    RequestAtFault,
}

/// Returns the error for the caller. The last failure decides, with two exceptions: if nothing was done and the request is
/// not the cause, or if nothing was tried, the reason why no further lease was granted decides. If accounts are at a
/// limit, the error states the shortest wait.
///
/// An account that cannot read the context of another one, or that does not offer what is requested, says nothing about
/// the account that can: it decides only if there is no other failure.
pub(super) fn caller_error(failures: &[AttemptFailure], stop: StopReason, now: DateTime<Utc>) -> Error {
    let is_other = |failure: &&AttemptFailure| {
        !matches!(failure.cause, FailureCause::BoundElsewhere { .. } | FailureCause::NotOffered)
    };
    let others: Vec<AttemptFailure> = failures.iter().filter(is_other).cloned().collect();
    let failures = if others.is_empty() { failures } else { &others };
    let last = failures.last().map(AttemptFailure::consequences);
    match (last, stop) {
        (Some(last), StopReason::RequestAtFault) => last.error,
        (Some(last), _) if last.class != AttemptClass::NothingDone => last.error,
        (_, StopReason::NoLease(LeaseRefusal::Busy)) => Error::RateLimited { retry_after: BUSY_WAIT },
        (_, StopReason::NoLease(LeaseRefusal::Stopping)) => Error::Unavailable,
        (last, _) => limit_error(failures, stop, now)
            .or_else(|| operator_fault(failures))
            .unwrap_or_else(|| last.map_or(Error::NoAccounts, |last| last.error)),
    }
}

/// Returns the error for the limit that ends first, of the accounts that were asked and of those in a cooldown. The
/// error is an exhausted usage window only if every one of these accounts is exhausted; if one is only throttled, a
/// short wait is enough.
fn limit_error(failures: &[AttemptFailure], stop: StopReason, now: DateTime<Utc>) -> Option<Error> {
    let asked_accounts = failures.iter().filter_map(|failure| match failure.cause {
        FailureCause::Exhausted { wait } => Some((true, wait)),
        FailureCause::Throttled { wait } => Some((false, wait.or(Some(THROTTLED_WAIT)))),
        _ => None,
    });
    let cooling_accounts = match stop {
        StopReason::NoLease(LeaseRefusal::InCooldown { exhausted, wait }) => Some((exhausted, wait)),
        _ => None,
    };
    let earliest = asked_accounts
        .chain(cooling_accounts)
        .reduce(|first, second| (first.0 && second.0, shorter_wait(first.1, second.1)));
    earliest.map(
        |(exhausted, wait)| if exhausted { Error::UsageLimit(usage_reset(wait, now)) } else { throttled_error(wait) },
    )
}

/// Returns the error if only the operator can help with every account that was asked: each is unpaid, or its
/// credentials are refused.
fn operator_fault(failures: &[AttemptFailure]) -> Option<Error> {
    let fault = |failure: &AttemptFailure| match failure.cause {
        FailureCause::AccountUnpaid => Some(UpstreamFault::Quota),
        FailureCause::CredentialsRefused => Some(UpstreamFault::Credentials),
        _ => None,
    };
    let faults: Option<Vec<UpstreamFault>> = failures.iter().map(fault).collect();
    faults?.pop().map(Error::Upstream)
}

fn throttled_error(wait: Option<Duration>) -> Error {
    let seconds = wait.unwrap_or(THROTTLED_WAIT).as_secs().clamp(1, RETRY_AFTER_MAX_SECONDS);
    Error::RateLimited { retry_after: u32::try_from(seconds).unwrap_or(1) }
}

/// True if the failure may be caused by the request and not by the account.
const fn may_be_caused_by_request(failure: &AttemptFailure) -> bool {
    matches!(
        failure.cause,
        FailureCause::UnknownModel
            | FailureCause::ForbiddenToAccount
            | FailureCause::BlockedByFirewall
            | FailureCause::RejectedByAccount { .. }
    )
}

/// True if two of the failures have the same cause, and a request can be the reason for it.
pub(super) fn is_request_to_blame(failures: &[AttemptFailure]) -> bool {
    let mut causes = HashSet::new();
    let mut blamed = failures.iter().filter(|failure| may_be_caused_by_request(failure));
    blamed.any(|failure| !causes.insert(mem::discriminant(&failure.cause)))
}

/// Returns the outcome of a record whose caller gets an error. The outcome is interrupted if an image may have been
/// made all the same.
pub(super) fn failed_outcome(error: &Error, last: Option<&AttemptFailure>) -> JobOutcome {
    let code = error.code().as_str();
    let outcome = match (error, last.map(AttemptFailure::class)) {
        (Error::Upstream(UpstreamFault::ContentRefused) | Error::ModelText(UpstreamFault::ContentRefused, _), _) => {
            JobOutcome::refused(code)
        }
        (_, Some(AttemptClass::MaybePaid)) => JobOutcome::interrupted(Some(code.to_owned())),
        _ => JobOutcome::failed(code),
    };
    let words = last.and_then(|last| last.upstream_message.clone().or_else(|| last.model_text.clone()));
    outcome.with_reason(record_reason(error, last)).with_detail(words)
}

/// Returns the reason for the error that the caller gets. `last` is the failure of the last attempt, if one was made.
fn record_reason(error: &Error, last: Option<&AttemptFailure>) -> RecordReason {
    match error {
        Error::Upstream(fault) | Error::ModelText(fault, _) => match (fault, last) {
            // No account was asked: the words, patterns or moderation service of the group refused the request.
            (UpstreamFault::ContentRefused, None) => RecordReason::Filter,
            (UpstreamFault::NothingDone, Some(last)) => last.consequences().reason.unwrap_or(RecordReason::Network),
            (UpstreamFault::Broken, Some(last)) if last.status.is_some() => RecordReason::Broken,
            (fault, _) => fault.record_reason(),
        },
        Error::UsageLimit(_) => RecordReason::Quota,
        Error::RateLimited { .. } => RecordReason::Throttled,
        Error::NoAccounts => RecordReason::NoAccounts,
        Error::Unavailable | Error::StorageFull => RecordReason::Unavailable,
        Error::Internal => RecordReason::Internal,
        _ => RecordReason::UpstreamRejected,
    }
}

fn shorter_wait(first: Option<Duration>, second: Option<Duration>) -> Option<Duration> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (wait, None) | (None, wait) => wait,
    }
}

fn usage_reset(wait: Option<Duration>, now: DateTime<Utc>) -> UsageReset {
    let at = wait.and_then(|wait| now.checked_add_signed(TimeDelta::from_std(wait).ok()?)).map(|at| at.timestamp());
    // Rounded up, so that the window is open for a caller that retries after this time.
    UsageReset { at, seconds: wait.map(|wait| (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)) }
}

// === impl StopReason ===

impl StopReason {
    /// Returns the reason of calls that ran side by side.
    pub(super) const fn merged_with(self, other: Self) -> Self {
        match (self, other) {
            (Self::RequestAtFault, _) | (_, Self::RequestAtFault) => Self::RequestAtFault,
            (own, Self::MoneyRules) => own,
            (_, Self::NoLease(refusal)) => Self::NoLease(refusal),
        }
    }
}

#[cfg(test)]
mod tests;
