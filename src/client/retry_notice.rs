//! The notice of a retry, for a program that shows it while the client waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::retry::SendOutcome;
use super::{Error, ErrorKind};

/// The function of a program that gets each notice.
pub(super) type RetryObserver = Arc<dyn Fn(&RetryNotice) + Send + Sync>;

/// A call that is going to be sent again; for [`Builder::on_retry`](super::Builder::on_retry).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryNotice {
    /// The number of the next attempt: 2 for the first retry.
    pub attempt: u32,
    /// The wait before it, which begins now.
    pub pause: Duration,
    /// The reason.
    pub reason: RetryReason,
}

/// The reason why a call is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryReason {
    /// No service was reached; nothing was sent.
    NotSent,
    /// The service answered with this status.
    Answer(u16),
    /// The answer broke off. The service pays for the idempotency key of the call once.
    BrokenAnswer,
}

// === impl RetryReason ===

impl RetryReason {
    pub(super) fn of_outcome(outcome: &SendOutcome) -> Self {
        match outcome {
            SendOutcome::NeverSent => Self::NotSent,
            SendOutcome::Answer(head) => Self::Answer(head.status),
            SendOutcome::Unknown => Self::BrokenAnswer,
        }
    }

    pub(super) fn of_error(error: &Error) -> Self {
        match error.status() {
            Some(status) if error.kind() == ErrorKind::Answer => Self::Answer(status),
            _ => Self::BrokenAnswer,
        }
    }
}

impl fmt::Display for RetryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent => f.write_str("the service could not be reached"),
            Self::Answer(status) => write!(f, "the service answered with status {status}"),
            Self::BrokenAnswer => f.write_str("the answer broke off"),
        }
    }
}
