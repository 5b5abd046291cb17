//! Maps the failures of all attempts to the error for the caller and the outcome for the record. Pure.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::failure_reason;
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault, UsageReset};
use crate::gateway::accounts::{AccountFeedback, LeaseRefusal};
use crate::gateway::ledger::AttemptClass;
use crate::gateway::ledger::{self, JobOutcome};
use crate::gateway::upstream::{AttemptFailure, BoundContext, FailureCause};
use crate::tables::RETRY_AFTER_MAX_SECONDS;

/// The `Retry-After` of a throttled caller if the upstream states no wait (our choice).
const THROTTLED_WAIT: Duration = Duration::from_secs(5);
/// The message for a response whose model the upstream does not know.
const UNKNOWN_MODEL: &str = "The upstream does not know this model or denies access to it.";
/// The status of an answer with a text in place of an image.
const STATUS_OF_TEXT: u16 = 200;
/// The `Retry-After` of a caller if every slot is taken, in seconds (our choice).
const BUSY_WAIT: u32 = 2;

/// The feedback about an account that one failure gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountFinding {
    /// The feedback applies whatever the request was.
    Certain(AccountFeedback),
    /// The feedback applies only if another account accepts the same request; otherwise the request may be the cause.
    Suspected(AccountFeedback),
}

/// The reason why the attempts ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StopReason {
    /// The reason why no further lease was granted, if one was refused.
    pub(super) refusal: Option<LeaseRefusal>,
    /// Two accounts rejected the request in the same way, so the request is the cause.
    pub(super) blames_request: bool,
}

/// Returns the error for the caller. The last failure decides, with two exceptions: if it is of class N and the request
/// is not the cause, or if nothing was tried, the reason why no further lease was granted decides. If accounts are at a
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
    let StopReason { refusal, blames_request } = stop;
    match failures.last() {
        Some(last) if last.class != AttemptClass::NothingDone || blames_request => error_for_failure(last),
        last => match refusal {
            Some(LeaseRefusal::Busy) => Error::RateLimited { retry_after: BUSY_WAIT },
            Some(LeaseRefusal::Stopping) => Error::Unavailable,
            Some(LeaseRefusal::NoneLeft | LeaseRefusal::InCooldown { .. }) | None => {
                limit_error(failures, refusal, now)
                    .or_else(|| operator_fault(failures))
                    .unwrap_or_else(|| last.map_or(Error::NoAccounts, error_for_failure))
            }
        },
    }
}

/// Returns the error for the limit that ends first, of the accounts that were asked and of those in a cooldown. The
/// error is an exhausted usage window only if every one of these accounts is exhausted; if one is only throttled, a
/// short wait is enough.
fn limit_error(failures: &[AttemptFailure], refusal: Option<LeaseRefusal>, now: DateTime<Utc>) -> Option<Error> {
    let asked_accounts = failures.iter().filter_map(|failure| match failure.cause {
        FailureCause::Exhausted { wait } => Some((true, wait)),
        FailureCause::Throttled { wait } => Some((false, wait.or(Some(THROTTLED_WAIT)))),
        _ => None,
    });
    let cooling_accounts = match refusal {
        Some(LeaseRefusal::InCooldown { exhausted, wait }) => Some((exhausted, wait)),
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
    let fault = |failure: &AttemptFailure| match (&failure.cause, failure.status) {
        (FailureCause::AccountUnpaid, _) => Some(UpstreamFault::Quota),
        (FailureCause::NoConnection, Some(401 | 403)) => Some(UpstreamFault::Credentials),
        _ => None,
    };
    let faults: Option<Vec<UpstreamFault>> = failures.iter().map(fault).collect();
    faults?.pop().map(Error::Upstream)
}

fn throttled_error(wait: Option<Duration>) -> Error {
    let seconds = wait.unwrap_or(THROTTLED_WAIT).as_secs().clamp(1, RETRY_AFTER_MAX_SECONDS);
    Error::RateLimited { retry_after: u32::try_from(seconds).unwrap_or(1) }
}

/// Returns the feedback about the account of a failed attempt. A caller must not be able to put an account into a
/// cooldown with invalid requests, so a failure that a request can cause is only suspected, and a refusal gives neutral
/// feedback.
pub(super) fn account_finding(failure: &AttemptFailure) -> AccountFinding {
    let feedback = match (&failure.cause, failure.class, failure.status) {
        (FailureCause::Exhausted { wait }, ..) => AccountFeedback::Exhausted { wait: *wait },
        (FailureCause::Throttled { wait }, ..) => AccountFeedback::Throttled { wait: *wait },
        (FailureCause::AccountUnpaid, _, status) => AccountFeedback::ModelUnavailable { status: status.unwrap_or(402) },
        (FailureCause::NotOffered | FailureCause::UnknownModel, _, status) => {
            return AccountFinding::Suspected(AccountFeedback::ModelUnavailable { status: status.unwrap_or(404) });
        }
        (FailureCause::ForbiddenToAccount, ..) => {
            return AccountFinding::Suspected(AccountFeedback::Unauthorized { status: 403 });
        }
        (FailureCause::NoConnection, AttemptClass::NothingDone, Some(status @ (401 | 403))) => {
            AccountFeedback::Unauthorized { status }
        }
        // A text of a model that cannot draw here or now.
        (FailureCause::TextInsteadOfImage, AttemptClass::NothingDone, _) => {
            return AccountFinding::Suspected(AccountFeedback::ModelUnavailable { status: STATUS_OF_TEXT });
        }
        (_, AttemptClass::ReportedFailed, _) => return AccountFinding::Suspected(AccountFeedback::Failed),
        // After class X no other account is asked, so only other requests can show the cause.
        (FailureCause::Timeout, AttemptClass::MaybePaid, _) => AccountFeedback::Doubtful,
        (FailureCause::SpoolFailed | FailureCause::Cutoff, ..)
        | (_, AttemptClass::Refused, _)
        | (_, AttemptClass::NothingDone, Some(_)) => AccountFeedback::Neutral,
        _ => AccountFeedback::Failed,
    };
    AccountFinding::Certain(feedback)
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
pub(super) fn failed_outcome(error: &Error, last: Option<Box<AttemptFailure>>) -> JobOutcome {
    let (code, last) = (error.code().as_str(), last.as_deref());
    let outcome = match (error, last.map(|last| last.class)) {
        (Error::Upstream(UpstreamFault::ContentRefused) | Error::ModelText(UpstreamFault::ContentRefused, _), _) => {
            JobOutcome::refused(code)
        }
        (_, Some(AttemptClass::MaybePaid)) => JobOutcome::interrupted(Some(code.to_owned())),
        _ => JobOutcome::failed(code),
    };
    let words = last.and_then(|last| last.upstream_message.clone().or_else(|| last.model_text.clone()));
    outcome.with_reason(failure_reason::from_error(error, last), words)
}

/// Returns the error for one failure, with the words of a model if they are all that there is.
fn error_for_failure(failure: &AttemptFailure) -> Error {
    match (error_for_cause(&failure.cause, failure.class), &failure.model_text) {
        (Error::Upstream(fault), Some(words)) => Error::ModelText(fault, words.clone()),
        (error, _) => error,
    }
}

fn error_for_cause(cause: &FailureCause, class: AttemptClass) -> Error {
    match cause {
        FailureCause::ContentRefused => Error::Upstream(UpstreamFault::ContentRefused),
        FailureCause::InvalidRequest { param, message } => Error::Invalid(Rejection {
            param: param.clone(),
            reason: Some(RejectionReason::UpstreamRejected),
            message: message.clone(),
        }),
        FailureCause::RejectedByAccount { message } => Error::Invalid(Rejection {
            param: None,
            reason: Some(RejectionReason::UpstreamRejected),
            message: message.clone(),
        }),
        FailureCause::BoundElsewhere { kind: BoundContext::Ciphertext, param, message } => {
            Error::UnreadableContext(Rejection { param: param.clone(), reason: None, message: message.clone() })
        }
        FailureCause::BoundElsewhere { kind: BoundContext::Stored, param, message } => Error::Invalid(Rejection {
            param: param.clone(),
            reason: Some(RejectionReason::UpstreamRejected),
            message: message.clone(),
        }),
        FailureCause::UnknownModel => Rejection::new("model", RejectionReason::UpstreamRejected, UNKNOWN_MODEL).into(),
        FailureCause::ForbiddenToAccount | FailureCause::BlockedByFirewall => {
            Error::Upstream(UpstreamFault::RequestRejected)
        }
        FailureCause::NoImage => Error::Upstream(UpstreamFault::NoImage),
        FailureCause::AsyncTask => Error::Upstream(UpstreamFault::AsyncTask),
        FailureCause::ImageByAddress => Error::Upstream(UpstreamFault::ImageByAddress),
        FailureCause::UnknownCoding => Error::Upstream(UpstreamFault::UnknownCoding),
        FailureCause::TextInsteadOfImage => Error::Upstream(UpstreamFault::TextInsteadOfImage),
        FailureCause::NotOffered if class == AttemptClass::NothingDone => Error::Upstream(UpstreamFault::NotOffered),
        FailureCause::Failed if matches!(class, AttemptClass::NothingDone | AttemptClass::ReportedFailed) => {
            Error::Upstream(UpstreamFault::Failed)
        }
        FailureCause::SpoolFailed if class == AttemptClass::NothingDone => Error::Unavailable,
        // Nothing was made, so a repeat does not cost twice.
        _ if matches!(class, AttemptClass::NothingDone | AttemptClass::ReportedFailed) => {
            Error::Upstream(UpstreamFault::NothingDone)
        }
        FailureCause::Timeout => Error::Upstream(UpstreamFault::Timeout),
        FailureCause::Cutoff => Error::Upstream(UpstreamFault::Unknown),
        FailureCause::Broken
        | FailureCause::Failed
        | FailureCause::SpoolFailed
        | FailureCause::NoConnection
        | FailureCause::AccountUnpaid
        | FailureCause::NotOffered
        | FailureCause::Exhausted { .. }
        | FailureCause::Throttled { .. } => Error::Upstream(UpstreamFault::Broken),
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

#[cfg(test)]
mod tests;
