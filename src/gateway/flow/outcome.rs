//! What the failures of all attempts mean for the caller and for the record. Pure.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::reason;
use crate::error::{Error, Fault, Reason, Rejection, Reset};
use crate::gateway::accounts::{Lesson, NoLease};
use crate::gateway::ledger::{self, ModelUsage, Outcome};
use crate::gateway::relay::{self, TokenCounts};
use crate::gateway::upstream::{Cause, Class, Failure};
use crate::tables::RETRY_AFTER_MAX_SECONDS;

/// How long a throttled caller is told to wait where the upstream does not say (ours).
const THROTTLED_WAIT: Duration = Duration::from_secs(5);
/// The message for a response whose model the upstream does not know.
const UNKNOWN_MODEL: &str = "The upstream does not know this model, or gives no access to it.";
/// How long a caller is told to wait where every place is taken (ours).
const BUSY_WAIT: u32 = 2;

/// The lesson of one failure about its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountFinding {
    /// The lesson holds whatever the request was.
    Certain(Lesson),
    /// The lesson holds only if another account does better with the same request; otherwise the request may be the
    /// cause.
    Suspected(Lesson),
}

/// The reason why the attempts ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stop {
    /// The accounts that were not asked rest or have no free place.
    pub(super) shut: Option<NoLease>,
    /// Two accounts rejected the request in the same way, so the request is the cause.
    pub(super) blames_request: bool,
}

/// The error for the caller. Of several failures the last one counts; but if no attempt did any work, the error names
/// the shortest wait for an account.
pub(super) fn error(failures: &[Failure], stop: Stop, now: DateTime<Utc>) -> Error {
    let Stop { shut, blames_request } = stop;
    match failures.last() {
        Some(last) if last.class != Class::N || blames_request => of(&last.cause, last.class),
        last => match shut {
            Some(NoLease::Busy) => Error::RateLimited { retry_after: BUSY_WAIT },
            Some(NoLease::Stopping) => Error::Unavailable,
            Some(NoLease::NoneLeft | NoLease::Resting { .. }) | None => limited(failures, shut, now)
                .or_else(|| useless_accounts(failures))
                .unwrap_or_else(|| last.map_or(Error::NoAccounts, |last| of(&last.cause, last.class))),
        },
    }
}

/// The limit that ends first, of the accounts that were asked and of those that rest. The usage window is exhausted
/// only if it is so for every one of them: where one is only throttled, waiting a little helps.
fn limited(failures: &[Failure], shut: Option<NoLease>, now: DateTime<Utc>) -> Option<Error> {
    let asked = failures.iter().filter_map(|failure| match failure.cause {
        Cause::Exhausted { wait } => Some((true, wait)),
        Cause::Throttled { wait } => Some((false, wait.or(Some(THROTTLED_WAIT)))),
        _ => None,
    });
    let resting = match shut {
        Some(NoLease::Resting { exhausted, wait }) => Some((exhausted, wait)),
        _ => None,
    };
    let first = asked.chain(resting).reduce(|one, other| (one.0 && other.0, earlier(one.1, other.1)));
    first.map(|(exhausted, wait)| if exhausted { Error::UsageLimit(reset(wait, now)) } else { throttled(wait) })
}

/// The error where each account that was asked needs its operator: it is not paid for, or its credentials are refused.
fn useless_accounts(failures: &[Failure]) -> Option<Error> {
    let fault = |failure: &Failure| match (&failure.cause, failure.status) {
        (Cause::Unfit, _) => Some(Fault::Quota),
        (Cause::Unreachable, Some(401 | 403)) => Some(Fault::Credentials),
        _ => None,
    };
    let faults: Option<Vec<Fault>> = failures.iter().map(fault).collect();
    faults?.pop().map(Error::Upstream)
}

fn throttled(wait: Option<Duration>) -> Error {
    let seconds = wait.unwrap_or(THROTTLED_WAIT).as_secs().clamp(1, RETRY_AFTER_MAX_SECONDS);
    Error::RateLimited { retry_after: u32::try_from(seconds).unwrap_or(1) }
}

/// The lesson of a failed attempt about its account. Nobody may put an account to rest by sending nonsense: a failure
/// that a request can cause is only a suspicion, and a refused request teaches nothing at all.
pub(super) fn finding(failure: &Failure) -> AccountFinding {
    let lesson = match (&failure.cause, failure.class, failure.status) {
        (Cause::Exhausted { wait }, ..) => Lesson::Exhausted { wait: *wait },
        (Cause::Throttled { wait }, ..) => Lesson::Throttled { wait: *wait },
        (Cause::Unfit, _, status) => Lesson::Unfit { status: status.unwrap_or(402) },
        (Cause::Missing | Cause::UnknownModel, _, status) => {
            return AccountFinding::Suspected(Lesson::Unfit { status: status.unwrap_or(404) });
        }
        (Cause::Forbidden, ..) => return AccountFinding::Suspected(Lesson::Unauthorized { status: 403 }),
        (Cause::Unreachable, Class::N, Some(status @ (401 | 403))) => Lesson::Unauthorized { status },
        (_, Class::F, _) => return AccountFinding::Suspected(Lesson::Faulty),
        // No other account is asked, so only other requests can tell.
        (Cause::Timeout, Class::X, _) => Lesson::Doubtful,
        (Cause::Unkept | Cause::Cutoff, ..) | (_, Class::R, _) | (_, Class::N, Some(_)) => Lesson::Neutral,
        _ => Lesson::Faulty,
    };
    AccountFinding::Certain(lesson)
}

/// True if the failure may be caused by the request and not by the account.
const fn may_be_request(failure: &Failure) -> bool {
    matches!(failure.cause, Cause::UnknownModel | Cause::Forbidden | Cause::Blocked | Cause::Declined { .. })
}

/// True if two of the failures have the same cause, and it may be the request.
pub(super) fn blame_request(failures: &[Failure]) -> bool {
    let mut causes = HashSet::new();
    let mut blamed = failures.iter().filter(|failure| may_be_request(failure));
    blamed.any(|failure| !causes.insert(mem::discriminant(&failure.cause)))
}

/// The end of a record whose caller reads an error: interrupted where an image may have been made all the same.
pub(super) fn failed(error: &Error, last: Option<Box<Failure>>) -> Outcome {
    let (code, last) = (error.code().as_str(), last.as_deref());
    let outcome = match (error, last.map(|last| last.class)) {
        (Error::Upstream(Fault::Refused), _) => Outcome::refused(code),
        (_, Some(Class::X)) => Outcome::interrupted(Some(code.to_owned())),
        _ => Outcome::failed(code),
    };
    outcome.because(reason::of(error, last), last.and_then(|last| last.words.clone()))
}

/// The class in the words of the record.
pub(super) const fn class(class: Class) -> ledger::Class {
    match class {
        Class::N => ledger::Class::N,
        Class::F => ledger::Class::F,
        Class::X => ledger::Class::X,
        Class::R => ledger::Class::R,
    }
}

/// Token counts in the words of the record.
pub(super) fn usage(usage: relay::Usage) -> ModelUsage {
    ModelUsage { image: usage.image.map(of_images), host: usage.host.map(of_text) }
}

fn of_images(tokens: TokenCounts) -> ledger::Usage {
    let details = |image, text| Some(ledger::TokenDetails { image_tokens: Some(image), text_tokens: Some(text) });
    ledger::Usage {
        input_tokens_details: details(tokens.input_image, tokens.input_text),
        output_tokens_details: details(tokens.output_image, tokens.output_text),
        ..of_text(tokens)
    }
}

/// A text model does not count images apart from text.
fn of_text(tokens: TokenCounts) -> ledger::Usage {
    ledger::Usage {
        input_tokens: Some(tokens.input),
        output_tokens: Some(tokens.output),
        total_tokens: Some(tokens.total),
        ..ledger::Usage::default()
    }
}

fn of(cause: &Cause, class: Class) -> Error {
    match cause {
        Cause::Refused => Error::Upstream(Fault::Refused),
        Cause::Rejected { param, message } => Error::Invalid(Rejection {
            param: param.clone(),
            reason: Some(Reason::UpstreamRejected),
            message: message.clone(),
        }),
        Cause::Declined { message } => {
            Error::Invalid(Rejection { param: None, reason: Some(Reason::UpstreamRejected), message: message.clone() })
        }
        Cause::UnknownModel => Rejection::new("model", Reason::UpstreamRejected, UNKNOWN_MODEL).into(),
        Cause::Forbidden | Cause::Blocked => Error::Upstream(Fault::Rejected),
        Cause::NoImage => Error::Upstream(Fault::NoImage),
        Cause::Unkept if class == Class::N => Error::Unavailable,
        // The upstream itself says that nothing was made: a repeat costs nothing twice.
        _ if matches!(class, Class::N | Class::F) => Error::Upstream(Fault::Unreachable),
        Cause::Timeout => Error::Upstream(Fault::Timeout),
        Cause::Cutoff => Error::Upstream(Fault::Unknown),
        Cause::Broken
        | Cause::Failed
        | Cause::Unkept
        | Cause::Unreachable
        | Cause::Unfit
        | Cause::Missing
        | Cause::Exhausted { .. }
        | Cause::Throttled { .. } => Error::Upstream(Fault::Broken),
    }
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (known, None) | (None, known) => known,
    }
}

fn reset(wait: Option<Duration>, now: DateTime<Utc>) -> Reset {
    let at = wait.and_then(|wait| now.checked_add_signed(TimeDelta::from_std(wait).ok()?)).map(|at| at.timestamp());
    // Rounded up: who comes back after it finds the window open.
    Reset { at, seconds: wait.map(|wait| (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(class: Class, cause: Cause) -> Failure {
        Failure::new(class, cause)
    }

    fn shut(shut: Option<NoLease>) -> Stop {
        Stop { shut, ..Stop::default() }
    }

    fn told(failures: &[Failure]) -> Error {
        error(failures, shut(Some(NoLease::NoneLeft)), Utc::now())
    }

    #[test]
    fn without_any_account_that_is_said() {
        assert_eq!(told(&[]), Error::NoAccounts);
    }

    #[test]
    fn the_earliest_reset_of_all_accounts_is_told() {
        let wait = |seconds| failure(Class::N, Cause::Exhausted { wait: Some(Duration::from_secs(seconds)) });
        let throttled = failure(Class::N, Cause::Throttled { wait: Some(Duration::from_secs(2)) });
        let now = DateTime::from_timestamp(1_000, 0).expect("a time");
        let found = error(&[wait(3600), wait(60), failure(Class::N, Cause::Unreachable)], shut(None), now);
        assert_eq!(found, Error::UsageLimit(Reset { at: Some(1_060), seconds: Some(60) }));
        assert_eq!(error(&[wait(3600), throttled], shut(None), now), Error::RateLimited { retry_after: 2 });
    }

    #[test]
    fn accounts_that_rest_say_when_to_come_back() {
        let now = DateTime::from_timestamp(1_000, 0).expect("a time");
        let resting = |exhausted| NoLease::Resting { exhausted, wait: Some(Duration::from_secs(90)) };
        let limit = Error::UsageLimit(Reset { at: Some(1_090), seconds: Some(90) });
        assert_eq!(error(&[], shut(Some(resting(true))), now), limit);
        assert_eq!(error(&[failure(Class::N, Cause::Unreachable)], shut(Some(resting(true))), now), limit);
        assert_eq!(error(&[], shut(Some(resting(false))), now), Error::RateLimited { retry_after: 60 });
        let second = Cause::Throttled { wait: Some(Duration::from_secs(6)) };
        let found = error(&[failure(Class::N, second)], shut(Some(resting(true))), now);
        assert_eq!(found, Error::RateLimited { retry_after: 6 }, "one is only throttled");
        let hour = Cause::Exhausted { wait: Some(Duration::from_secs(3600)) };
        let resting = |seconds| NoLease::Resting { exhausted: false, wait: Some(Duration::from_secs(seconds)) };
        let found = error(&[failure(Class::N, hour.clone())], shut(Some(resting(9))), now);
        assert_eq!(found, Error::RateLimited { retry_after: 9 }, "one that was not asked is only throttled");
        assert_eq!(
            error(&[failure(Class::N, hour)], shut(Some(NoLease::Busy)), now),
            Error::RateLimited { retry_after: 2 }
        );
        let resting = NoLease::Resting { exhausted: true, wait: None };
        let failed = error(&[failure(Class::F, Cause::Failed)], shut(Some(resting)), now);
        assert_eq!(failed, Error::Upstream(Fault::Unreachable), "what was tried says more than who rests");
    }

    #[test]
    fn each_failure_teaches_what_it_says_of_the_account() {
        let taught = |class, cause, status| match finding(&Failure { status, ..Failure::new(class, cause) }) {
            AccountFinding::Certain(lesson) => lesson,
            AccountFinding::Suspected(lesson) => panic!("only a suspicion: {lesson:?}"),
        };
        let wait = Some(Duration::from_secs(7));
        assert_eq!(taught(Class::N, Cause::Exhausted { wait }, Some(429)), Lesson::Exhausted { wait });
        assert_eq!(taught(Class::N, Cause::Throttled { wait }, Some(429)), Lesson::Throttled { wait });
        assert_eq!(taught(Class::N, Cause::Unreachable, Some(401)), Lesson::Unauthorized { status: 401 });
        assert_eq!(taught(Class::N, Cause::Unfit, Some(429)), Lesson::Unfit { status: 429 });
        assert_eq!(taught(Class::N, Cause::Unreachable, Some(400)), Lesson::Neutral);
        assert_eq!(taught(Class::N, Cause::Blocked, Some(403)), Lesson::Neutral);
        assert_eq!(taught(Class::N, Cause::Declined { message: String::new() }, Some(413)), Lesson::Neutral);
        assert_eq!(taught(Class::N, Cause::Unreachable, None), Lesson::Faulty);
        assert_eq!(taught(Class::N, Cause::Unreachable, Some(403)), Lesson::Unauthorized { status: 403 });
        assert_eq!(taught(Class::X, Cause::Timeout, None), Lesson::Doubtful);
        assert_eq!(taught(Class::X, Cause::Broken, Some(502)), Lesson::Faulty);
        assert_eq!(taught(Class::R, Cause::Refused, Some(400)), Lesson::Neutral);
        assert_eq!(taught(Class::X, Cause::Unkept, Some(200)), Lesson::Neutral, "our own disk");
    }

    #[test]
    fn what_a_caller_can_bring_about_is_only_suspected() {
        let suspected = |cause, status| finding(&Failure::new(Class::N, cause).with_status(status));
        for cause in [Cause::Missing, Cause::UnknownModel] {
            assert_eq!(suspected(cause, 404), AccountFinding::Suspected(Lesson::Unfit { status: 404 }));
        }
        let expected = AccountFinding::Suspected(Lesson::Unauthorized { status: 403 });
        assert_eq!(suspected(Cause::Forbidden, 403), expected);
        let failed = finding(&failure(Class::F, Cause::Failed).with_status(500));
        assert_eq!(failed, AccountFinding::Suspected(Lesson::Faulty));
    }

    #[test]
    fn only_the_same_cause_twice_blames_the_request() {
        let failures = |causes: &[Cause]| -> Vec<Failure> {
            causes.iter().map(|cause| failure(Class::N, cause.clone())).collect()
        };
        let declined = |message: &str| Cause::Declined { message: message.to_owned() };
        assert!(blame_request(&failures(&[Cause::Forbidden, Cause::Blocked, Cause::Forbidden])));
        assert!(blame_request(&failures(&[declined("one"), declined("other")])), "in other words");
        assert!(!blame_request(&failures(&[Cause::Forbidden, Cause::Blocked, declined("no"), Cause::UnknownModel])));
        assert!(!blame_request(&failures(&[Cause::Missing, Cause::Missing])));
    }

    #[test]
    fn a_request_that_two_accounts_blame_is_not_to_be_sent_again() {
        let stop = Stop { shut: None, blames_request: true };
        let resting = failure(Class::N, Cause::Throttled { wait: None });
        let declined = failure(Class::N, Cause::Declined { message: "no".to_owned() });
        for (cause, code) in [
            (declined.cause.clone(), "invalid_request_error"),
            (Cause::UnknownModel, "invalid_request_error"),
            (Cause::Blocked, "upstream_error"),
            (Cause::Forbidden, "upstream_error"),
        ] {
            let found = error(&[resting.clone(), declined.clone(), failure(Class::N, cause)], stop, Utc::now());
            assert_eq!((found.code().as_str(), found.should_retry()), (code, false));
        }
    }

    #[test]
    fn accounts_that_need_their_operator_are_no_trouble_of_the_network() {
        let unpaid = failure(Class::N, Cause::Unfit);
        let refused = failure(Class::N, Cause::Unreachable).with_status(401);
        assert_eq!(told(std::slice::from_ref(&unpaid)), Error::Upstream(Fault::Quota));
        assert_eq!(told(&[unpaid.clone(), refused.clone()]), Error::Upstream(Fault::Credentials));
        let dead = failure(Class::N, Cause::Unreachable);
        assert_eq!(told(&[unpaid, dead, refused]), Error::Upstream(Fault::Unreachable), "one may be back soon");
    }

    #[test]
    fn trouble_with_our_own_disk_is_told_by_what_it_has_cost() {
        let (before, after) = (failure(Class::N, Cause::Unkept), failure(Class::X, Cause::Unkept));
        assert_eq!(error(&[before], shut(None), Utc::now()), Error::Unavailable);
        assert_eq!(told(&[after]), Error::Upstream(Fault::Broken));
        assert!(!told(&[failure(Class::X, Cause::Unkept)]).should_retry());
    }

    #[test]
    fn an_ambiguous_end_wins_over_what_came_before() {
        let before = failure(Class::N, Cause::Exhausted { wait: None });
        assert_eq!(told(&[before, failure(Class::X, Cause::Timeout)]), Error::Upstream(Fault::Timeout));
    }

    #[test]
    fn a_failure_that_the_upstream_admits_may_be_sent_again() {
        assert!(told(&[failure(Class::F, Cause::Failed)]).should_retry());
        assert!(!told(&[failure(Class::F, Cause::NoImage)]).should_retry());
        assert!(!told(&[failure(Class::X, Cause::NoImage)]).should_retry());
    }

    #[test]
    fn advice_for_throttled_callers_is_short() {
        let found = told(&[failure(Class::N, Cause::Throttled { wait: Some(Duration::from_secs(86_400)) })]);
        assert_eq!(found.retry_after(), Some(60));
    }
}
