//! The reason of a failed job, as one word for its record. `openapi/admin.json` lists the words.

use crate::error::{Error, Fault};
use crate::gateway::relay::Broken;
use crate::gateway::upstream::{Cause, Failure};

/// The reason, from the error for the caller and the last attempt, if there was one.
pub(super) fn of(error: &Error, last: Option<&Failure>) -> &'static str {
    match error {
        // No account was asked: the operator's word filter or moderation service refused the request.
        Error::Upstream(Fault::Refused) if last.is_none() => "filter",
        Error::Upstream(Fault::Unreachable) => last.map_or("network", of_account),
        Error::Upstream(Fault::Broken) if last.is_some_and(|last| last.status.is_some()) => "broken",
        Error::Upstream(fault) => fault.as_str(),
        Error::UsageLimit(_) => "quota",
        Error::RateLimited { .. } => "throttled",
        Error::NoAccounts => "no_accounts",
        Error::Unavailable => "unavailable",
        Error::Internal => "internal",
        _ => "upstream_rejected",
    }
}

/// The reason for an answer that broke off after it had begun.
pub(super) const fn of_break(broken: Broken) -> &'static str {
    match broken {
        Broken::Connection => "network",
        Broken::Timeout => "timeout",
        Broken::Cutoff => "outcome_unknown",
        Broken::Failed => "upstream_failed",
        Broken::Malformed(_) | Broken::Endless | Broken::Unfinished | Broken::Slow | Broken::Lost => "broken",
    }
}

/// The reason for a failure of the account.
const fn of_account(last: &Failure) -> &'static str {
    match (&last.cause, last.status) {
        (Cause::Exhausted { .. } | Cause::Unfit, _) => "quota",
        (Cause::Throttled { .. }, _) => "throttled",
        (Cause::Missing, _) => "missing",
        (Cause::Failed, _) => "upstream_failed",
        (Cause::NoImage, _) => "no_image_data",
        (Cause::Unreachable, Some(401 | 403)) => "credentials",
        _ => "network",
    }
}
