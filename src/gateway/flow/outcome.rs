//! What the failures of all attempts mean for the caller and for the record. Pure.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::error::{Error, Fault, Reason, Rejection, Reset};
use crate::gateway::ledger::{self, Outcome};
use crate::gateway::relay;
use crate::gateway::upstream::{Cause, Class, Failure};
use crate::tables::RETRY_AFTER_MAX_SECONDS;

/// How long a throttled caller is told to wait where the upstream does not say (ours).
const THROTTLED_WAIT: u64 = 5;

/// The error for the caller. Of several failures the last one counts, except that where nothing was done at all, waiting
/// for the account that is free first helps.
pub(super) fn error(failures: &[Failure], now: DateTime<Utc>) -> Error {
    let Some(last) = failures.last() else { return Error::NoAccounts };
    if last.class != Class::N {
        return of(&last.cause, last.class);
    }
    let exhausted = failures.iter().filter_map(|failure| match failure.cause {
        Cause::Exhausted { wait } => Some(wait),
        _ => None,
    });
    let throttled = failures.iter().filter_map(|failure| match failure.cause {
        Cause::Throttled { wait } => Some(wait.map_or(THROTTLED_WAIT, |wait| wait.as_secs())),
        _ => None,
    });
    // An account that is only throttled is left: the window of all of them is not exhausted.
    if let Some(seconds) = throttled.min() {
        let seconds = seconds.clamp(1, RETRY_AFTER_MAX_SECONDS);
        return Error::RateLimited { retry_after: u32::try_from(seconds).unwrap_or(1) };
    }
    if let Some(wait) = exhausted.reduce(earlier) {
        return Error::UsageLimit(reset(wait, now));
    }
    of(&last.cause, last.class)
}

/// The end of a record whose caller reads an error: interrupted where an image may have been made all the same.
pub(super) fn failed(error: &Error, last: Option<Class>) -> Outcome {
    let code = error.code().as_str();
    match (error, last) {
        (Error::Upstream(Fault::Refused), _) => Outcome::refused(code),
        (_, Some(Class::X)) => Outcome::interrupted(Some(code.to_owned())),
        _ => Outcome::failed(code),
    }
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
pub(super) fn usage(usage: relay::Usage) -> ledger::Usage {
    let details = |image, text| Some(ledger::TokenDetails { image_tokens: Some(image), text_tokens: Some(text) });
    ledger::Usage {
        input_tokens: Some(usage.input),
        input_tokens_details: details(usage.input_image, usage.input_text),
        output_tokens: Some(usage.output),
        output_tokens_details: details(usage.output_image, usage.output_text),
        total_tokens: Some(usage.total),
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
        Cause::NoImage => Error::Upstream(Fault::NoImage),
        // The upstream itself says that nothing was made: a repeat costs nothing twice.
        _ if matches!(class, Class::N | Class::F) => Error::Upstream(Fault::Unreachable),
        Cause::Timeout => Error::Upstream(Fault::Timeout),
        Cause::Broken | Cause::Failed | Cause::Unreachable | Cause::Exhausted { .. } | Cause::Throttled { .. } => {
            Error::Upstream(Fault::Broken)
        }
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
    Reset { at, seconds: wait.map(|wait| wait.as_secs()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(class: Class, cause: Cause) -> Failure {
        Failure::new(class, cause)
    }

    #[test]
    fn without_any_account_that_is_said() {
        assert_eq!(error(&[], Utc::now()), Error::NoAccounts);
    }

    #[test]
    fn the_earliest_reset_of_all_accounts_is_told() {
        let wait = |seconds| failure(Class::N, Cause::Exhausted { wait: Some(Duration::from_secs(seconds)) });
        let throttled = failure(Class::N, Cause::Throttled { wait: Some(Duration::from_secs(2)) });
        let now = DateTime::from_timestamp(1_000, 0).expect("a time");
        let found = error(&[wait(3600), wait(60), failure(Class::N, Cause::Unreachable)], now);
        assert_eq!(found, Error::UsageLimit(Reset { at: Some(1_060), seconds: Some(60) }));
        assert_eq!(error(&[wait(3600), throttled], now), Error::RateLimited { retry_after: 2 });
    }

    #[test]
    fn an_ambiguous_end_wins_over_what_came_before() {
        let before = failure(Class::N, Cause::Exhausted { wait: None });
        assert_eq!(error(&[before, failure(Class::X, Cause::Timeout)], Utc::now()), Error::Upstream(Fault::Timeout));
    }

    #[test]
    fn a_failure_that_the_upstream_admits_may_be_sent_again() {
        assert!(error(&[failure(Class::F, Cause::Failed)], Utc::now()).should_retry());
        assert!(!error(&[failure(Class::F, Cause::NoImage)], Utc::now()).should_retry());
        assert!(!error(&[failure(Class::X, Cause::NoImage)], Utc::now()).should_retry());
    }

    #[test]
    fn advice_for_throttled_callers_is_short() {
        let found =
            error(&[failure(Class::N, Cause::Throttled { wait: Some(Duration::from_secs(86_400)) })], Utc::now());
        assert_eq!(found.retry_after(), Some(60));
    }
}
