//! The reason of a failed job, as one word for its record, and of a failed call, as one word for its account.
//! `openapi/admin.json` lists the words.

use crate::error::{Error, UpstreamFault};
use crate::gateway::ledger::AttemptClass;
use crate::gateway::relay::RelayError;
use crate::gateway::upstream::{AttemptFailure, FailureCause};

/// Returns the reason for the error that the caller gets. `last` is the failure of the last attempt, if one was made.
pub(super) fn from_error(error: &Error, last: Option<&AttemptFailure>) -> &'static str {
    match error {
        Error::Upstream(fault) | Error::ModelText(fault, _) => from_fault(*fault, last),
        Error::UsageLimit(_) => "quota",
        Error::RateLimited { .. } => "throttled",
        Error::NoAccounts => "no_accounts",
        Error::Unavailable | Error::StorageFull => "unavailable",
        Error::Internal => "internal",
        _ => "upstream_rejected",
    }
}

fn from_fault(fault: UpstreamFault, last: Option<&AttemptFailure>) -> &'static str {
    match fault {
        // No account was asked: the words, patterns or moderation service of the group refused the request.
        UpstreamFault::ContentRefused if last.is_none() => "filter",
        UpstreamFault::NothingDone => last.map_or("network", from_account_failure),
        UpstreamFault::NotOffered => "missing",
        UpstreamFault::Broken if last.is_some_and(|last| last.status.is_some()) => "broken",
        fault => fault.as_str(),
    }
}

/// Returns the reason for an answer that broke off after it had begun.
pub(super) const fn from_relay_error(error: RelayError) -> &'static str {
    match error {
        RelayError::Connection => "network",
        RelayError::Timeout => "timeout",
        RelayError::Cutoff => "outcome_unknown",
        RelayError::UpstreamFailed => "upstream_failed",
        RelayError::Malformed(_)
        | RelayError::TooLarge
        | RelayError::Incomplete
        | RelayError::CallerTooSlow
        | RelayError::SpoolUnreadable => "broken",
    }
}

/// Returns the reason why an account has failed a call; `None` if the account is not the cause: the content was refused,
/// the request is invalid, or the gateway gave the call up.
pub(super) const fn of_failed_call(failure: &AttemptFailure) -> Option<&'static str> {
    if matches!(failure.class, AttemptClass::Refused) {
        return None;
    }
    match failure.cause {
        FailureCause::ContentRefused
        | FailureCause::InvalidRequest { .. }
        | FailureCause::UnknownModel
        | FailureCause::BoundElsewhere { .. }
        | FailureCause::SpoolFailed
        | FailureCause::Cutoff => None,
        FailureCause::BlockedByFirewall | FailureCause::RejectedByAccount { .. } => Some("upstream_rejected"),
        FailureCause::ForbiddenToAccount => Some("credentials"),
        FailureCause::Timeout => Some("timeout"),
        FailureCause::Broken if failure.status.is_some() => Some("broken"),
        _ => Some(from_account_failure(failure)),
    }
}

/// Returns the reason why an account has failed a call whose answer had begun; `None` if the account is not the cause.
pub(super) const fn of_broken_answer(error: RelayError) -> Option<&'static str> {
    match error {
        // An upstream also ends its answer with an error if it refuses the content.
        RelayError::Cutoff | RelayError::CallerTooSlow | RelayError::SpoolUnreadable | RelayError::UpstreamFailed => {
            None
        }
        error => Some(from_relay_error(error)),
    }
}

/// Returns the reason for a failure of the account.
const fn from_account_failure(last: &AttemptFailure) -> &'static str {
    match (&last.cause, last.status) {
        (FailureCause::Exhausted { .. } | FailureCause::AccountUnpaid, _) => "quota",
        (FailureCause::Throttled { .. }, _) => "throttled",
        (FailureCause::NotOffered, _) => "missing",
        (FailureCause::Failed, _) => UpstreamFault::Failed.as_str(),
        (FailureCause::NoImage, _) => UpstreamFault::NoImage.as_str(),
        (FailureCause::AsyncTask, _) => UpstreamFault::AsyncTask.as_str(),
        (FailureCause::ImageByAddress, _) => UpstreamFault::ImageByAddress.as_str(),
        (FailureCause::UnknownCoding, _) => UpstreamFault::UnknownCoding.as_str(),
        (FailureCause::TextInsteadOfImage, _) => UpstreamFault::TextInsteadOfImage.as_str(),
        (FailureCause::NoConnection, Some(401 | 403)) => "credentials",
        _ => "network",
    }
}
