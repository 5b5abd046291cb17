//! The classes of errors, by which a program decides how to react.

use super::{Error, ErrorKind};
use crate::client::retry::{is_failure_on_the_way, is_in_progress};

/// These codes are checked in addition to the status, because an error inside a stream follows a status of 200.
const RATE_LIMIT_EXCEEDED: &str = "rate_limit_exceeded";
const INVALID_REQUEST_ERROR: &str = "invalid_request_error";
/// The codes of an exhausted usage window, quota or budget: the first two are those of the gateway, the last two those of
/// the provider.
const USAGE_LIMITS: [&str; 3] = ["usage_limit_reached", "insufficient_quota", "billing_hard_limit_reached"];
/// The codes with which other services refuse content; the gateway has a reason instead.
const CONTENT_REFUSALS: [&str; 3] = ["moderation_blocked", "content_policy_violation", "content_filter"];
const CONTENT_REFUSED: &str = "content_refused";

// === impl Error ===

impl Error {
    /// Returns true if the same call, made again later, can succeed without an image being paid for twice.
    ///
    /// It is false after an attempt that may have been paid for, because the service may pay for each call, and a call of
    /// another client has another idempotency key, unless its request sets one. With the key of this call,
    /// [`Error::idempotency_key`], a service that pays for a key once charges nothing again. When an error is returned, the
    /// retries that the client makes itself are already over.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match (self.0.kind, &self.0.head) {
            (ErrorKind::Connect, _) => true,
            (ErrorKind::Answer, Some(head)) if !self.0.needs_same_key => {
                // A 5xx without `x-should-retry` does not tell whether an image was made.
                head.should_retry().unwrap_or(head.status == 429 && !self.is_usage_limit())
            }
            _ => false,
        }
    }

    /// Returns true if an image may have been made and charged for although the call failed: the answer was lost or came
    /// too late, a server on the way failed, or the image is still being made.
    ///
    /// The next equal call of the same client has the same idempotency key, so a service that pays for a key once sends
    /// that image.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        match (self.0.kind, &self.0.head) {
            (ErrorKind::Timeout | ErrorKind::Deadline | ErrorKind::Broken, _) => true,
            (ErrorKind::Answer | ErrorKind::Unintelligible, Some(head)) => {
                let is_lost = self.0.has_unknown_attempt && head.should_retry() != Some(false);
                is_lost || is_in_progress(head) || is_failure_on_the_way(head)
            }
            _ => false,
        }
    }

    /// Returns true if the call has no image, and the image of its idempotency key may be there for the next equal call.
    /// `is_repeat` is true if an earlier call with the key left its outcome unknown.
    pub(crate) fn leaves_key(&self, is_repeat: bool) -> bool {
        match self.0.kind {
            // The image may be the one that could not be written.
            ErrorKind::File => true,
            // Nothing was sent, so nothing more is known of the earlier call.
            ErrorKind::Settings | ErrorKind::Request | ErrorKind::Connect => is_repeat,
            _ => self.is_outcome_unknown() || (is_repeat && (self.is_retryable() || self.status() == Some(429))),
        }
    }

    /// Returns true if there were too many requests; a short wait helps.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        let is_reported = self.status() == Some(429) || self.code() == Some(RATE_LIMIT_EXCEEDED);
        is_reported && !self.is_usage_limit()
    }

    /// Returns true if a usage window, a quota or a budget is exhausted, so that a short wait does not help; see
    /// [`Error::resets_in`].
    #[must_use]
    pub fn is_usage_limit(&self) -> bool {
        self.code().is_some_and(|code| USAGE_LIMITS.contains(&code))
    }

    /// Returns true if the request is invalid; see [`Error::param`]. The client finds some of these errors itself,
    /// before it sends the request.
    #[must_use]
    pub fn is_invalid_request(&self) -> bool {
        let is_reported =
            matches!(self.status(), Some(400 | 413 | 415 | 422)) || self.code() == Some(INVALID_REQUEST_ERROR);
        self.0.kind == ErrorKind::Request || is_reported
    }

    /// Returns true if the service refuses the key.
    #[must_use]
    pub fn is_invalid_key(&self) -> bool {
        self.status() == Some(401)
    }

    /// Returns true if the content was refused; the same prompt will be refused again.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.reason() == Some(CONTENT_REFUSED) || self.code().is_some_and(|code| CONTENT_REFUSALS.contains(&code))
    }

    /// Returns true if the time limit of an attempt or of the whole call was exceeded before the answer was complete.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Timeout | ErrorKind::Deadline)
    }

    /// Returns true if no service was reached, so that nothing can have been paid for.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.0.kind == ErrorKind::Connect
    }
}
