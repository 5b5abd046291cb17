//! Maps the failures of all attempts to the error for the caller and the outcome for the record. Pure.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::failure_reason;
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault, UsageReset};
use crate::gateway::accounts::{AccountFeedback, LeaseRefusal};
use crate::gateway::ledger::{self, JobOutcome, ModelUsage};
use crate::gateway::relay::{self, TokenCounts};
use crate::gateway::upstream::{AttemptFailure, FailureCause, FailureClass};
use crate::tables::RETRY_AFTER_MAX_SECONDS;

/// The time that a throttled caller is told to wait if the upstream does not state one (our choice).
const THROTTLED_WAIT: Duration = Duration::from_secs(5);
/// The message for a response whose model the upstream does not know.
const UNKNOWN_MODEL: &str = "The upstream does not know this model or denies access to it.";
/// The seconds that a caller is told to wait if every slot is taken (our choice).
const BUSY_WAIT: u32 = 2;

/// The feedback of one failure about its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountFinding {
    /// The feedback holds regardless of the request.
    Certain(AccountFeedback),
    /// The feedback holds only if another account does better with the same request; otherwise the request may be the
    /// cause.
    Suspected(AccountFeedback),
}

/// The reason why the attempts ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StopReason {
    /// The accounts that were not asked are in a cooldown or have no free slot.
    pub(super) refusal: Option<LeaseRefusal>,
    /// Two accounts rejected the request in the same way, so the request is the cause.
    pub(super) blames_request: bool,
}

/// Returns the error for the caller. Of several failures the last one counts; but if no attempt did any work, the error
/// names the shortest wait for an account.
pub(super) fn caller_error(failures: &[AttemptFailure], stop: StopReason, now: DateTime<Utc>) -> Error {
    let StopReason { refusal: shut, blames_request } = stop;
    match failures.last() {
        Some(last) if last.class != FailureClass::N || blames_request => error_for_cause(&last.cause, last.class),
        last => match shut {
            Some(LeaseRefusal::Busy) => Error::RateLimited { retry_after: BUSY_WAIT },
            Some(LeaseRefusal::Stopping) => Error::Unavailable,
            Some(LeaseRefusal::NoneLeft | LeaseRefusal::InCooldown { .. }) | None => limit_error(failures, shut, now)
                .or_else(|| operator_fault(failures))
                .unwrap_or_else(|| last.map_or(Error::NoAccounts, |last| error_for_cause(&last.cause, last.class))),
        },
    }
}

/// Returns the limit that ends first, of the accounts that were asked and of those in a cooldown. The usage window is
/// exhausted only if it is so for every one of them: if one is only throttled, waiting a little helps.
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
    let first =
        asked_accounts.chain(cooling_accounts).reduce(|one, other| (one.0 && other.0, shorter_wait(one.1, other.1)));
    first.map(
        |(exhausted, wait)| if exhausted { Error::UsageLimit(usage_reset(wait, now)) } else { throttled_error(wait) },
    )
}

/// Returns the error if each account that was asked needs its operator: it is unpaid, or its credentials are refused.
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

/// Returns the feedback of a failed attempt about its account. A caller must not be able to put an account into a
/// cooldown by sending nonsense: a failure that a request can cause is only suspected; a refusal gives no feedback.
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
        // No other account is asked, so only other requests can show the cause.
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

/// True if two of the failures have the same cause, and it may be the request.
pub(super) fn is_request_to_blame(failures: &[AttemptFailure]) -> bool {
    let mut causes = HashSet::new();
    let mut blamed = failures.iter().filter(|failure| may_be_caused_by_request(failure));
    blamed.any(|failure| !causes.insert(mem::discriminant(&failure.cause)))
}

/// Returns the outcome of a record whose caller gets an error: interrupted if an image may have been made all the same.
pub(super) fn failed_outcome(error: &Error, last: Option<Box<AttemptFailure>>) -> JobOutcome {
    let (code, last) = (error.code().as_str(), last.as_deref());
    let outcome = match (error, last.map(|last| last.class)) {
        (Error::Upstream(UpstreamFault::Refused), _) => JobOutcome::refused(code),
        (_, Some(FailureClass::X)) => JobOutcome::interrupted(Some(code.to_owned())),
        _ => JobOutcome::failed(code),
    };
    outcome.with_reason(failure_reason::from_error(error, last), last.and_then(|last| last.upstream_message.clone()))
}

/// Converts the class to the words of the record.
pub(super) const fn attempt_class(class: FailureClass) -> ledger::AttemptClass {
    match class {
        FailureClass::N => ledger::AttemptClass::N,
        FailureClass::F => ledger::AttemptClass::F,
        FailureClass::X => ledger::AttemptClass::X,
        FailureClass::R => ledger::AttemptClass::R,
    }
}

/// Converts token counts to the words of the record.
pub(super) fn model_usage(usage: relay::AnswerUsage) -> ModelUsage {
    ModelUsage { image: usage.image.map(image_token_usage), host: usage.host.map(text_token_usage) }
}

fn image_token_usage(tokens: TokenCounts) -> ledger::TokenUsage {
    let details = |image, text| Some(ledger::TokenDetails { image_tokens: Some(image), text_tokens: Some(text) });
    ledger::TokenUsage {
        input_tokens_details: details(tokens.input_image, tokens.input_text),
        output_tokens_details: details(tokens.output_image, tokens.output_text),
        ..text_token_usage(tokens)
    }
}

/// Converts the tokens of a text model, which does not count images apart from text.
fn text_token_usage(tokens: TokenCounts) -> ledger::TokenUsage {
    ledger::TokenUsage {
        input_tokens: Some(tokens.input),
        output_tokens: Some(tokens.output),
        total_tokens: Some(tokens.total),
        ..ledger::TokenUsage::default()
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

fn shorter_wait(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (known, None) | (None, known) => known,
    }
}

fn usage_reset(wait: Option<Duration>, now: DateTime<Utc>) -> UsageReset {
    let at = wait.and_then(|wait| now.checked_add_signed(TimeDelta::from_std(wait).ok()?)).map(|at| at.timestamp());
    // Rounded up, so that a caller that comes back after this time finds the window open.
    UsageReset { at, seconds: wait.map(|wait| (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(class: FailureClass, cause: FailureCause) -> AttemptFailure {
        AttemptFailure::new(class, cause)
    }

    fn shut(shut: Option<LeaseRefusal>) -> StopReason {
        StopReason { refusal: shut, ..StopReason::default() }
    }

    fn caller_error_of(failures: &[AttemptFailure]) -> Error {
        caller_error(failures, shut(Some(LeaseRefusal::NoneLeft)), Utc::now())
    }

    #[test]
    fn without_any_account_that_is_said() {
        assert_eq!(caller_error_of(&[]), Error::NoAccounts);
    }

    #[test]
    fn the_earliest_reset_of_all_accounts_is_told() {
        let wait =
            |seconds| failure(FailureClass::N, FailureCause::Exhausted { wait: Some(Duration::from_secs(seconds)) });
        let throttled = failure(FailureClass::N, FailureCause::Throttled { wait: Some(Duration::from_secs(2)) });
        let now = DateTime::from_timestamp(1_000, 0).expect("a time");
        let found =
            caller_error(&[wait(3600), wait(60), failure(FailureClass::N, FailureCause::Unreachable)], shut(None), now);
        assert_eq!(found, Error::UsageLimit(UsageReset { at: Some(1_060), seconds: Some(60) }));
        assert_eq!(caller_error(&[wait(3600), throttled], shut(None), now), Error::RateLimited { retry_after: 2 });
    }

    #[test]
    fn accounts_that_rest_say_when_to_come_back() {
        let now = DateTime::from_timestamp(1_000, 0).expect("a time");
        let resting = |exhausted| LeaseRefusal::InCooldown { exhausted, wait: Some(Duration::from_secs(90)) };
        let limit = Error::UsageLimit(UsageReset { at: Some(1_090), seconds: Some(90) });
        assert_eq!(caller_error(&[], shut(Some(resting(true))), now), limit);
        assert_eq!(
            caller_error(&[failure(FailureClass::N, FailureCause::Unreachable)], shut(Some(resting(true))), now),
            limit
        );
        assert_eq!(caller_error(&[], shut(Some(resting(false))), now), Error::RateLimited { retry_after: 60 });
        let second = FailureCause::Throttled { wait: Some(Duration::from_secs(6)) };
        let found = caller_error(&[failure(FailureClass::N, second)], shut(Some(resting(true))), now);
        assert_eq!(found, Error::RateLimited { retry_after: 6 }, "one is only throttled");
        let hour = FailureCause::Exhausted { wait: Some(Duration::from_secs(3600)) };
        let resting = |seconds| LeaseRefusal::InCooldown { exhausted: false, wait: Some(Duration::from_secs(seconds)) };
        let found = caller_error(&[failure(FailureClass::N, hour.clone())], shut(Some(resting(9))), now);
        assert_eq!(found, Error::RateLimited { retry_after: 9 }, "one that was not asked is only throttled");
        assert_eq!(
            caller_error(&[failure(FailureClass::N, hour)], shut(Some(LeaseRefusal::Busy)), now),
            Error::RateLimited { retry_after: 2 }
        );
        let resting = LeaseRefusal::InCooldown { exhausted: true, wait: None };
        let failed = caller_error(&[failure(FailureClass::F, FailureCause::Failed)], shut(Some(resting)), now);
        assert_eq!(failed, Error::Upstream(UpstreamFault::Unreachable), "what was tried says more than who rests");
    }

    #[test]
    fn each_failure_teaches_what_it_says_of_the_account() {
        let taught = |class, cause, status| match account_finding(&AttemptFailure {
            status,
            ..AttemptFailure::new(class, cause)
        }) {
            AccountFinding::Certain(lesson) => lesson,
            AccountFinding::Suspected(lesson) => panic!("only a suspicion: {lesson:?}"),
        };
        let wait = Some(Duration::from_secs(7));
        assert_eq!(
            taught(FailureClass::N, FailureCause::Exhausted { wait }, Some(429)),
            AccountFeedback::Exhausted { wait }
        );
        assert_eq!(
            taught(FailureClass::N, FailureCause::Throttled { wait }, Some(429)),
            AccountFeedback::Throttled { wait }
        );
        assert_eq!(
            taught(FailureClass::N, FailureCause::Unreachable, Some(401)),
            AccountFeedback::Unauthorized { status: 401 }
        );
        assert_eq!(
            taught(FailureClass::N, FailureCause::Unfit, Some(429)),
            AccountFeedback::ModelUnavailable { status: 429 }
        );
        assert_eq!(taught(FailureClass::N, FailureCause::Unreachable, Some(400)), AccountFeedback::Neutral);
        assert_eq!(taught(FailureClass::N, FailureCause::Blocked, Some(403)), AccountFeedback::Neutral);
        assert_eq!(
            taught(FailureClass::N, FailureCause::Declined { message: String::new() }, Some(413)),
            AccountFeedback::Neutral
        );
        assert_eq!(taught(FailureClass::N, FailureCause::Unreachable, None), AccountFeedback::Failed);
        assert_eq!(
            taught(FailureClass::N, FailureCause::Unreachable, Some(403)),
            AccountFeedback::Unauthorized { status: 403 }
        );
        assert_eq!(taught(FailureClass::X, FailureCause::Timeout, None), AccountFeedback::Doubtful);
        assert_eq!(taught(FailureClass::X, FailureCause::Broken, Some(502)), AccountFeedback::Failed);
        assert_eq!(taught(FailureClass::R, FailureCause::Refused, Some(400)), AccountFeedback::Neutral);
        assert_eq!(
            taught(FailureClass::X, FailureCause::SpoolFailed, Some(200)),
            AccountFeedback::Neutral,
            "our own disk"
        );
    }

    #[test]
    fn what_a_caller_can_bring_about_is_only_suspected() {
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
        assert!(is_request_to_blame(&failures(&[declined("one"), declined("other")])), "in other words");
        assert!(!is_request_to_blame(&failures(&[
            FailureCause::Forbidden,
            FailureCause::Blocked,
            declined("no"),
            FailureCause::UnknownModel
        ])));
        assert!(!is_request_to_blame(&failures(&[FailureCause::NotOffered, FailureCause::NotOffered])));
    }

    #[test]
    fn a_request_that_two_accounts_blame_is_not_to_be_sent_again() {
        let stop = StopReason { refusal: None, blames_request: true };
        let resting = failure(FailureClass::N, FailureCause::Throttled { wait: None });
        let declined = failure(FailureClass::N, FailureCause::Declined { message: "no".to_owned() });
        for (cause, code) in [
            (declined.cause.clone(), "invalid_request_error"),
            (FailureCause::UnknownModel, "invalid_request_error"),
            (FailureCause::Blocked, "upstream_error"),
            (FailureCause::Forbidden, "upstream_error"),
        ] {
            let found =
                caller_error(&[resting.clone(), declined.clone(), failure(FailureClass::N, cause)], stop, Utc::now());
            assert_eq!((found.code().as_str(), found.should_retry()), (code, false));
        }
    }

    #[test]
    fn accounts_that_need_their_operator_are_no_trouble_of_the_network() {
        let unpaid = failure(FailureClass::N, FailureCause::Unfit);
        let refused = failure(FailureClass::N, FailureCause::Unreachable).with_status(401);
        assert_eq!(caller_error_of(std::slice::from_ref(&unpaid)), Error::Upstream(UpstreamFault::Quota));
        assert_eq!(caller_error_of(&[unpaid.clone(), refused.clone()]), Error::Upstream(UpstreamFault::Credentials));
        let dead = failure(FailureClass::N, FailureCause::Unreachable);
        assert_eq!(
            caller_error_of(&[unpaid, dead, refused]),
            Error::Upstream(UpstreamFault::Unreachable),
            "one may be back soon"
        );
    }

    #[test]
    fn trouble_with_our_own_disk_is_told_by_what_it_has_cost() {
        let (before, after) =
            (failure(FailureClass::N, FailureCause::SpoolFailed), failure(FailureClass::X, FailureCause::SpoolFailed));
        assert_eq!(caller_error(&[before], shut(None), Utc::now()), Error::Unavailable);
        assert_eq!(caller_error_of(&[after]), Error::Upstream(UpstreamFault::Broken));
        assert!(!caller_error_of(&[failure(FailureClass::X, FailureCause::SpoolFailed)]).should_retry());
    }

    #[test]
    fn an_ambiguous_end_wins_over_what_came_before() {
        let before = failure(FailureClass::N, FailureCause::Exhausted { wait: None });
        assert_eq!(
            caller_error_of(&[before, failure(FailureClass::X, FailureCause::Timeout)]),
            Error::Upstream(UpstreamFault::Timeout)
        );
    }

    #[test]
    fn a_failure_that_the_upstream_admits_may_be_sent_again() {
        assert!(caller_error_of(&[failure(FailureClass::F, FailureCause::Failed)]).should_retry());
        assert!(!caller_error_of(&[failure(FailureClass::F, FailureCause::NoImage)]).should_retry());
        assert!(!caller_error_of(&[failure(FailureClass::X, FailureCause::NoImage)]).should_retry());
    }

    #[test]
    fn advice_for_throttled_callers_is_short() {
        let found = caller_error_of(&[failure(
            FailureClass::N,
            FailureCause::Throttled { wait: Some(Duration::from_secs(86_400)) },
        )]);
        assert_eq!(found.retry_after(), Some(60));
    }
}
