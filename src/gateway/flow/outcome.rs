//! Maps the failures of all attempts to the error for the caller and the outcome for the record. Pure.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::failure_reason;
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault, UsageReset};
use crate::gateway::accounts::{AccountFeedback, LeaseRefusal};
use crate::gateway::ledger::{self, JobOutcome};
use crate::gateway::upstream::{AttemptFailure, BoundContext, FailureCause, FailureClass};
use crate::tables::RETRY_AFTER_MAX_SECONDS;

/// The `Retry-After` of a throttled caller if the upstream states no wait (our choice).
const THROTTLED_WAIT: Duration = Duration::from_secs(5);
/// The message for a response whose model the upstream does not know.
const UNKNOWN_MODEL: &str = "The upstream does not know this model or denies access to it.";
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
/// An account that cannot read the context of another one says nothing about the account that can: it decides only if
/// there is no other failure.
pub(super) fn caller_error(failures: &[AttemptFailure], stop: StopReason, now: DateTime<Utc>) -> Error {
    let is_bound = |failure: &&AttemptFailure| matches!(failure.cause, FailureCause::BoundElsewhere { .. });
    let others: Vec<AttemptFailure> = failures.iter().filter(|failure| !is_bound(failure)).cloned().collect();
    let failures = if others.is_empty() { failures } else { &others };
    let StopReason { refusal, blames_request } = stop;
    match failures.last() {
        Some(last) if last.class != FailureClass::N || blames_request => error_for_cause(&last.cause, last.class),
        last => match refusal {
            Some(LeaseRefusal::Busy) => Error::RateLimited { retry_after: BUSY_WAIT },
            Some(LeaseRefusal::Stopping) => Error::Unavailable,
            Some(LeaseRefusal::NoneLeft | LeaseRefusal::InCooldown { .. }) | None => {
                limit_error(failures, refusal, now)
                    .or_else(|| operator_fault(failures))
                    .unwrap_or_else(|| last.map_or(Error::NoAccounts, |last| error_for_cause(&last.cause, last.class)))
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
        (FailureCause::Unfit, _) => Some(UpstreamFault::Quota),
        (FailureCause::Unreachable, Some(401 | 403)) => Some(UpstreamFault::Credentials),
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
        (FailureCause::Unfit, _, status) => AccountFeedback::ModelUnavailable { status: status.unwrap_or(402) },
        (FailureCause::NotOffered | FailureCause::UnknownModel, _, status) => {
            return AccountFinding::Suspected(AccountFeedback::ModelUnavailable { status: status.unwrap_or(404) });
        }
        (FailureCause::Forbidden, ..) => {
            return AccountFinding::Suspected(AccountFeedback::Unauthorized { status: 403 });
        }
        (FailureCause::Unreachable, FailureClass::N, Some(status @ (401 | 403))) => {
            AccountFeedback::Unauthorized { status }
        }
        (_, FailureClass::F, _) => return AccountFinding::Suspected(AccountFeedback::Failed),
        // After class X no other account is asked, so only other requests can show the cause.
        (FailureCause::Timeout, FailureClass::X, _) => AccountFeedback::Doubtful,
        (FailureCause::SpoolFailed | FailureCause::Cutoff, ..)
        | (_, FailureClass::R, _)
        | (_, FailureClass::N, Some(_)) => AccountFeedback::Neutral,
        _ => AccountFeedback::Failed,
    };
    AccountFinding::Certain(feedback)
}

/// True if the failure may be caused by the request and not by the account.
const fn may_be_caused_by_request(failure: &AttemptFailure) -> bool {
    matches!(
        failure.cause,
        FailureCause::UnknownModel | FailureCause::Forbidden | FailureCause::Blocked | FailureCause::Declined { .. }
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
        (Error::Upstream(UpstreamFault::Refused), _) => JobOutcome::refused(code),
        (_, Some(FailureClass::X)) => JobOutcome::interrupted(Some(code.to_owned())),
        _ => JobOutcome::failed(code),
    };
    outcome.with_reason(failure_reason::from_error(error, last), last.and_then(|last| last.upstream_message.clone()))
}

/// Converts the class to that of the record.
pub(super) const fn attempt_class(class: FailureClass) -> ledger::AttemptClass {
    match class {
        FailureClass::N => ledger::AttemptClass::N,
        FailureClass::F => ledger::AttemptClass::F,
        FailureClass::X => ledger::AttemptClass::X,
        FailureClass::R => ledger::AttemptClass::R,
    }
}

fn error_for_cause(cause: &FailureCause, class: FailureClass) -> Error {
    match cause {
        FailureCause::Refused => Error::Upstream(UpstreamFault::Refused),
        FailureCause::Rejected { param, message } => Error::Invalid(Rejection {
            param: param.clone(),
            reason: Some(RejectionReason::UpstreamRejected),
            message: message.clone(),
        }),
        FailureCause::Declined { message } => Error::Invalid(Rejection {
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
        FailureCause::Forbidden | FailureCause::Blocked => Error::Upstream(UpstreamFault::Rejected),
        FailureCause::NoImage => Error::Upstream(UpstreamFault::NoImage),
        FailureCause::SpoolFailed if class == FailureClass::N => Error::Unavailable,
        // The upstream itself states that nothing was made, so a repeat does not cost twice.
        _ if matches!(class, FailureClass::N | FailureClass::F) => Error::Upstream(UpstreamFault::Unreachable),
        FailureCause::Timeout => Error::Upstream(UpstreamFault::Timeout),
        FailureCause::Cutoff => Error::Upstream(UpstreamFault::Unknown),
        FailureCause::Broken
        | FailureCause::Failed
        | FailureCause::SpoolFailed
        | FailureCause::Unreachable
        | FailureCause::Unfit
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
mod tests {
    use super::*;

    fn failure(class: FailureClass, cause: FailureCause) -> AttemptFailure {
        AttemptFailure::new(class, cause)
    }

    fn stop(refusal: Option<LeaseRefusal>) -> StopReason {
        StopReason { refusal, ..StopReason::default() }
    }

    fn caller_error_of(failures: &[AttemptFailure]) -> Error {
        caller_error(failures, stop(Some(LeaseRefusal::NoneLeft)), Utc::now())
    }

    #[test]
    fn without_any_account_the_error_is_no_accounts() {
        assert_eq!(caller_error_of(&[]), Error::NoAccounts);
    }

    #[test]
    fn the_error_states_the_earliest_reset_of_all_accounts() {
        let wait =
            |seconds| failure(FailureClass::N, FailureCause::Exhausted { wait: Some(Duration::from_secs(seconds)) });
        let throttled = failure(FailureClass::N, FailureCause::Throttled { wait: Some(Duration::from_secs(2)) });
        let now = DateTime::from_timestamp(1_000, 0).expect("the timestamp is valid");
        let error =
            caller_error(&[wait(3600), wait(60), failure(FailureClass::N, FailureCause::Unreachable)], stop(None), now);
        assert_eq!(error, Error::UsageLimit(UsageReset { at: Some(1_060), seconds: Some(60) }));
        assert_eq!(caller_error(&[wait(3600), throttled], stop(None), now), Error::RateLimited { retry_after: 2 });
    }

    #[test]
    fn accounts_in_a_cooldown_determine_the_retry_after() {
        let now = DateTime::from_timestamp(1_000, 0).expect("the timestamp is valid");
        let cooling = |exhausted| LeaseRefusal::InCooldown { exhausted, wait: Some(Duration::from_secs(90)) };
        let limit = Error::UsageLimit(UsageReset { at: Some(1_090), seconds: Some(90) });
        assert_eq!(caller_error(&[], stop(Some(cooling(true))), now), limit);
        assert_eq!(
            caller_error(&[failure(FailureClass::N, FailureCause::Unreachable)], stop(Some(cooling(true))), now),
            limit
        );
        assert_eq!(caller_error(&[], stop(Some(cooling(false))), now), Error::RateLimited { retry_after: 60 });
        let second = FailureCause::Throttled { wait: Some(Duration::from_secs(6)) };
        let error = caller_error(&[failure(FailureClass::N, second)], stop(Some(cooling(true))), now);
        assert_eq!(error, Error::RateLimited { retry_after: 6 }, "one account is only throttled");
        let hour = FailureCause::Exhausted { wait: Some(Duration::from_secs(3600)) };
        let cooling = |seconds| LeaseRefusal::InCooldown { exhausted: false, wait: Some(Duration::from_secs(seconds)) };
        let error = caller_error(&[failure(FailureClass::N, hour.clone())], stop(Some(cooling(9))), now);
        assert_eq!(error, Error::RateLimited { retry_after: 9 }, "an account that was not asked is only throttled");
        assert_eq!(
            caller_error(&[failure(FailureClass::N, hour)], stop(Some(LeaseRefusal::Busy)), now),
            Error::RateLimited { retry_after: 2 }
        );
        let cooling = LeaseRefusal::InCooldown { exhausted: true, wait: None };
        let failed = caller_error(&[failure(FailureClass::F, FailureCause::Failed)], stop(Some(cooling)), now);
        assert_eq!(
            failed,
            Error::Upstream(UpstreamFault::Unreachable),
            "an attempt decides before an account in a cooldown"
        );
    }

    #[test]
    fn each_failure_gives_the_feedback_for_its_account() {
        let feedback = |class, cause, status| match account_finding(&AttemptFailure {
            status,
            ..AttemptFailure::new(class, cause)
        }) {
            AccountFinding::Certain(feedback) => feedback,
            AccountFinding::Suspected(feedback) => panic!("the feedback is only suspected: {feedback:?}"),
        };
        let wait = Some(Duration::from_secs(7));
        assert_eq!(
            feedback(FailureClass::N, FailureCause::Exhausted { wait }, Some(429)),
            AccountFeedback::Exhausted { wait }
        );
        assert_eq!(
            feedback(FailureClass::N, FailureCause::Throttled { wait }, Some(429)),
            AccountFeedback::Throttled { wait }
        );
        assert_eq!(
            feedback(FailureClass::N, FailureCause::Unreachable, Some(401)),
            AccountFeedback::Unauthorized { status: 401 }
        );
        assert_eq!(
            feedback(FailureClass::N, FailureCause::Unfit, Some(429)),
            AccountFeedback::ModelUnavailable { status: 429 }
        );
        assert_eq!(feedback(FailureClass::N, FailureCause::Unreachable, Some(400)), AccountFeedback::Neutral);
        assert_eq!(feedback(FailureClass::N, FailureCause::Blocked, Some(403)), AccountFeedback::Neutral);
        assert_eq!(
            feedback(FailureClass::N, FailureCause::Declined { message: String::new() }, Some(413)),
            AccountFeedback::Neutral
        );
        assert_eq!(feedback(FailureClass::N, FailureCause::Unreachable, None), AccountFeedback::Failed);
        assert_eq!(
            feedback(FailureClass::N, FailureCause::Unreachable, Some(403)),
            AccountFeedback::Unauthorized { status: 403 }
        );
        assert_eq!(feedback(FailureClass::X, FailureCause::Timeout, None), AccountFeedback::Doubtful);
        assert_eq!(feedback(FailureClass::X, FailureCause::Broken, Some(502)), AccountFeedback::Failed);
        assert_eq!(feedback(FailureClass::R, FailureCause::Refused, Some(400)), AccountFeedback::Neutral);
        assert_eq!(
            feedback(FailureClass::X, FailureCause::SpoolFailed, Some(200)),
            AccountFeedback::Neutral,
            "the disk of the gateway failed"
        );
    }

    #[test]
    fn a_failure_that_a_caller_can_cause_is_only_suspected() {
        let suspected =
            |cause, status| account_finding(&AttemptFailure::new(FailureClass::N, cause).with_status(status));
        for cause in [FailureCause::NotOffered, FailureCause::UnknownModel] {
            assert_eq!(
                suspected(cause, 404),
                AccountFinding::Suspected(AccountFeedback::ModelUnavailable { status: 404 })
            );
        }
        let expected = AccountFinding::Suspected(AccountFeedback::Unauthorized { status: 403 });
        assert_eq!(suspected(FailureCause::Forbidden, 403), expected);
        let failed = account_finding(&failure(FailureClass::F, FailureCause::Failed).with_status(500));
        assert_eq!(failed, AccountFinding::Suspected(AccountFeedback::Failed));
    }

    #[test]
    fn only_the_same_cause_twice_blames_the_request() {
        let failures = |causes: &[FailureCause]| -> Vec<AttemptFailure> {
            causes.iter().map(|cause| failure(FailureClass::N, cause.clone())).collect()
        };
        let declined = |message: &str| FailureCause::Declined { message: message.to_owned() };
        assert!(is_request_to_blame(&failures(&[
            FailureCause::Forbidden,
            FailureCause::Blocked,
            FailureCause::Forbidden
        ])));
        assert!(is_request_to_blame(&failures(&[declined("one"), declined("other")])), "the messages may differ");
        assert!(!is_request_to_blame(&failures(&[
            FailureCause::Forbidden,
            FailureCause::Blocked,
            declined("no"),
            FailureCause::UnknownModel
        ])));
        assert!(!is_request_to_blame(&failures(&[FailureCause::NotOffered, FailureCause::NotOffered])));
    }

    #[test]
    fn a_request_that_two_accounts_reject_must_not_be_retried() {
        let stop = StopReason { refusal: None, blames_request: true };
        let throttled = failure(FailureClass::N, FailureCause::Throttled { wait: None });
        let declined = failure(FailureClass::N, FailureCause::Declined { message: "no".to_owned() });
        for (cause, code) in [
            (declined.cause.clone(), "invalid_request_error"),
            (FailureCause::UnknownModel, "invalid_request_error"),
            (FailureCause::Blocked, "upstream_error"),
            (FailureCause::Forbidden, "upstream_error"),
        ] {
            let error =
                caller_error(&[throttled.clone(), declined.clone(), failure(FailureClass::N, cause)], stop, Utc::now());
            assert_eq!((error.code().as_str(), error.should_retry()), (code, false));
        }
    }

    #[test]
    fn unreadable_context_decides_only_if_no_account_fails_otherwise() {
        let message = "could not be verified".to_owned();
        let cause = FailureCause::BoundElsewhere { kind: BoundContext::Ciphertext, param: None, message };
        let unreadable = failure(FailureClass::N, cause).with_status(400);
        let error = caller_error_of(&[unreadable.clone(), unreadable.clone()]);
        assert_eq!((error.code().as_str(), error.should_retry()), ("invalid_encrypted_content", false));
        assert!(!is_request_to_blame(&[unreadable.clone(), unreadable.clone()]), "the next account may have made it");
        let throttled = failure(FailureClass::N, FailureCause::Throttled { wait: Some(Duration::from_secs(3)) });
        assert_eq!(caller_error_of(&[throttled, unreadable.clone()]), Error::RateLimited { retry_after: 3 });
        let cooling = LeaseRefusal::InCooldown { exhausted: false, wait: Some(Duration::from_secs(9)) };
        let error = caller_error(&[unreadable], stop(Some(cooling)), Utc::now());
        assert_eq!(error, Error::RateLimited { retry_after: 9 }, "the account that made it can read it later");
    }

    #[test]
    fn unpaid_and_refused_accounts_have_their_own_errors() {
        let unpaid = failure(FailureClass::N, FailureCause::Unfit);
        let refused = failure(FailureClass::N, FailureCause::Unreachable).with_status(401);
        assert_eq!(caller_error_of(std::slice::from_ref(&unpaid)), Error::Upstream(UpstreamFault::Quota));
        assert_eq!(caller_error_of(&[unpaid.clone(), refused.clone()]), Error::Upstream(UpstreamFault::Credentials));
        let dead = failure(FailureClass::N, FailureCause::Unreachable);
        assert_eq!(
            caller_error_of(&[unpaid, dead, refused]),
            Error::Upstream(UpstreamFault::Unreachable),
            "one account may be available again soon"
        );
    }

    #[test]
    fn a_disk_failure_may_be_retried_only_before_the_call() {
        let (before, after) =
            (failure(FailureClass::N, FailureCause::SpoolFailed), failure(FailureClass::X, FailureCause::SpoolFailed));
        assert_eq!(caller_error(&[before], stop(None), Utc::now()), Error::Unavailable);
        assert_eq!(caller_error_of(&[after]), Error::Upstream(UpstreamFault::Broken));
        assert!(!caller_error_of(&[failure(FailureClass::X, FailureCause::SpoolFailed)]).should_retry());
    }

    #[test]
    fn an_ambiguous_failure_takes_precedence_over_earlier_ones() {
        let before = failure(FailureClass::N, FailureCause::Exhausted { wait: None });
        assert_eq!(
            caller_error_of(&[before, failure(FailureClass::X, FailureCause::Timeout)]),
            Error::Upstream(UpstreamFault::Timeout)
        );
    }

    #[test]
    fn a_failure_reported_by_the_upstream_may_be_retried() {
        assert!(caller_error_of(&[failure(FailureClass::F, FailureCause::Failed)]).should_retry());
        assert!(!caller_error_of(&[failure(FailureClass::F, FailureCause::NoImage)]).should_retry());
        assert!(!caller_error_of(&[failure(FailureClass::X, FailureCause::NoImage)]).should_retry());
    }

    #[test]
    fn the_retry_after_of_a_throttled_caller_is_limited() {
        let error = caller_error_of(&[failure(
            FailureClass::N,
            FailureCause::Throttled { wait: Some(Duration::from_secs(86_400)) },
        )]);
        assert_eq!(error.retry_after(), Some(60));
    }
}
