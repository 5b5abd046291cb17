//! Decides whether a request is sent again, and after which pause.
//!
//! An image is paid for, so in doubt a request is not sent again: if its answer broke off or did not arrive in time, an
//! image may have been made and charged for. Only [`jitter`] and [`sleep`] have side effects.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use reqwest::Response;

use super::metadata::AnswerMetadata;
use crate::tables::RETRY_AFTER_MAX_SECONDS;

/// The maximum number of retries of a call: two, like the official clients (our choice); none if the platform has no
/// timer to wait with.
const MAX_RETRIES: u32 = if cfg!(target_arch = "wasm32") { 0 } else { 2 };

/// The longest wait for which the client itself sends a request again. If a service asks for a longer wait, the error is
/// returned, and the program that uses the client decides.
const LONGEST_PAUSE: Duration = Duration::from_secs(RETRY_AFTER_MAX_SECONDS);

/// The maximum pause before the first retry (our choice): a restart or a failover takes about this long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The number of times that the client sends a call again on its own, and the waits before that.
///
/// The rules of what may be sent again at all are fixed, because images are paid for:
///
/// - a call that never reached the service;
/// - a call whose answer allows it with `x-should-retry: true`, or is a 429 that states a wait and does not forbid it;
/// - a call that makes no image, also after 502, 503 and 504;
/// - a call for images whose answer is lost, if an answer of the service has shown that it pays for an idempotency key
///   once: the repeated call has the same key. The gateway shows it with `x-imagate-replayed`.
///
/// ```
/// use std::time::Duration;
/// use imagate::client::{Client, Retry};
///
/// let retry = Retry::new().max_retries(1).max_pause(Duration::from_secs(5));
/// let client = Client::builder().base_url("https://images.example").api_key("sk-img-…").retry(retry).build()?;
/// # Ok::<(), imagate::client::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until a builder or a request has it"]
pub struct Retry {
    max_retries: u32,
    max_pause: Duration,
}

/// The result of sending a request once, as far as a retry depends on it.
#[derive(Debug)]
pub(super) enum SendOutcome {
    /// No connection was made, so nothing was sent.
    NeverSent,
    /// The service answered.
    Answer(AnswerMetadata),
    /// The request was sent, and its result is unknown.
    Unknown,
}

// === impl Retry ===

impl Retry {
    /// No call is sent again.
    pub const NONE: Self = Self { max_retries: 0, max_pause: Duration::ZERO };

    /// Creates the default policy: at most two retries, and no wait of more than a minute.
    pub const fn new() -> Self {
        Self { max_retries: MAX_RETRIES, max_pause: LONGEST_PAUSE }
    }

    /// Sets the maximum number of retries. It cannot be more than 2.
    pub const fn max_retries(mut self, max_retries: u32) -> Self {
        self.max_retries = if max_retries < MAX_RETRIES { max_retries } else { MAX_RETRIES };
        self
    }

    /// Sets the longest wait that a service may ask for. A call whose service asks for more is not sent again. It cannot
    /// be more than a minute.
    pub const fn max_pause(mut self, max_pause: Duration) -> Self {
        self.max_pause = if max_pause.as_millis() < LONGEST_PAUSE.as_millis() { max_pause } else { LONGEST_PAUSE };
        self
    }

    pub(super) const fn allows_another(self, retries: u32) -> bool {
        retries < self.max_retries
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::new()
    }
}

// === impl SendOutcome ===

impl SendOutcome {
    /// `was_never_sent` returns true if an error means that nothing of the request was sent.
    pub(super) fn from_result<E>(result: &Result<Response, E>, was_never_sent: impl Fn(&E) -> bool) -> Self {
        match result {
            Ok(response) => Self::Answer(AnswerMetadata::from_response(response, 0)),
            Err(error) if was_never_sent(error) => Self::NeverSent,
            Err(_) => Self::Unknown,
        }
    }

    /// Returns true if the service goes on making the image, whose answer only a request with the same key gets.
    pub(super) fn is_in_progress(&self) -> bool {
        matches!(self, Self::Answer(head) if is_in_progress(head))
    }

    /// Replaces an answer by [`Self::Unknown`] if it has no `x-should-retry: true` and does not show by its status that
    /// nothing was made.
    pub(super) fn without_implicit_retry(self) -> Self {
        match self {
            Self::Answer(head) if head.should_retry() != Some(true) && head.status != 429 => Self::Unknown,
            outcome => outcome,
        }
    }
}

/// Returns true if the request certainly reached no service: no address, no listener, or no TLS.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn was_never_sent(error: &reqwest::Error) -> bool {
    error.is_connect()
}

/// Returns false, because a browser does not report whether a request was sent.
#[cfg(target_arch = "wasm32")]
pub(super) fn was_never_sent(_: &reqwest::Error) -> bool {
    false
}

/// Returns true for `image_in_progress`, a 409 with `x-should-retry: true`: the repeated request waits for the same image.
pub(super) fn is_in_progress(head: &AnswerMetadata) -> bool {
    head.status == 409 && head.should_retry() == Some(true)
}

/// Returns true if a server on the way failed, and not the service: an image may have been made behind it.
pub(super) fn is_failure_on_the_way(head: &AnswerMetadata) -> bool {
    matches!(head.status, 500 | 502..=504) && head.should_retry().is_none()
}

/// Returns true if the status and `x-should-retry` of an answer allow the same request again. Nothing is spent for a
/// 429, but without a wait it may mean an exhausted quota.
pub(super) fn allows_retry(head: &AnswerMetadata) -> bool {
    match head.status {
        409 => is_in_progress(head),
        429 => head.should_retry().unwrap_or(head.retry_after().is_some()),
        502..=504 => head.should_retry() != Some(false),
        _ => false,
    }
}

/// Returns the pause before the request is sent again; `None` if it must not be sent again, or if the service asks for a
/// wait above that of the policy. `retries` is the number of retries so far, and `jitter` is from 0 to 1.
pub(super) fn retry_pause(outcome: &SendOutcome, policy: Retry, retries: u32, jitter: f64) -> Option<Duration> {
    match outcome {
        SendOutcome::NeverSent => pause(None, policy, retries, jitter),
        SendOutcome::Answer(head) if allows_retry(head) => pause(head.retry_after(), policy, retries, jitter),
        SendOutcome::Answer(_) | SendOutcome::Unknown => None,
    }
}

/// Returns the pause before a request is sent again; `None` if the service asks for a wait above that of the policy.
pub(super) fn pause(requested_pause: Option<Duration>, policy: Retry, retries: u32, jitter: f64) -> Option<Duration> {
    if requested_pause.is_some_and(|requested| requested > policy.max_pause) {
        return None;
    }
    // The jitter takes away up to half, so that clients that failed at the same time do not retry at the same time.
    let backoff = FIRST_PAUSE.saturating_mul(1 << retries.min(6)).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
    Some(requested_pause.unwrap_or_default().max(backoff))
}

/// Returns random bits. The keys of the standard hasher come from the system's random source; nothing secret depends on
/// them.
pub(super) fn random_bits() -> u64 {
    RandomState::new().hash_one(())
}

/// Returns a number from 0 to 1.
pub(super) fn jitter() -> f64 {
    let bits = u32::try_from(random_bits() >> 32).unwrap_or(u32::MAX);
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(not(target_arch = "wasm32"))]
pub(super) async fn sleep(pause: Duration) {
    tokio::time::sleep(pause).await;
}

/// Does nothing; it is never called, because nothing is sent again without a timer.
#[cfg(target_arch = "wasm32")]
pub(super) async fn sleep(_: Duration) {}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};

    use super::*;

    fn answer(status: u16, should_retry: Option<bool>, retry_after: Option<u64>) -> SendOutcome {
        let mut headers = HeaderMap::new();
        if let Some(should_retry) = should_retry {
            headers.insert("x-should-retry", HeaderValue::from_static(if should_retry { "true" } else { "false" }));
        }
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        SendOutcome::Answer(AnswerMetadata::new(status, 1, headers))
    }

    #[track_caller]
    fn check(outcome: &SendOutcome, expected: Option<u64>) {
        assert_eq!(retry_pause(outcome, Retry::new(), 0, 1.0), expected.map(Duration::from_millis), "{outcome:?}");
    }

    #[test]
    fn only_requests_that_cannot_be_charged_twice_are_sent_again() {
        check(&SendOutcome::NeverSent, Some(500));
        check(&SendOutcome::Unknown, None);
        for status in [502, 503, 504] {
            check(&answer(status, None, None), Some(500));
            check(&answer(status, Some(true), None), Some(500));
            check(&answer(status, Some(false), None), None);
        }
        for status in [409, 429] {
            check(&answer(status, None, None), None);
            check(&answer(status, Some(false), Some(1)), None);
            check(&answer(status, Some(true), Some(1)), Some(1000));
            check(&answer(status, Some(true), Some(61)), None);
        }
        check(&answer(409, None, Some(1)), None);
        check(&answer(429, None, Some(1)), Some(1000));
        check(&answer(429, None, Some(61)), None);
        for status in [200, 307, 400, 401, 403, 404, 408, 413, 500, 501, 505, 520, 524] {
            check(&answer(status, None, None), None);
            check(&answer(status, Some(true), None), None);
        }
    }

    #[test]
    fn without_implicit_retry_only_x_should_retry_or_a_429_allows_a_retry() {
        check(&SendOutcome::NeverSent.without_implicit_retry(), Some(500));
        check(&answer(429, None, Some(1)).without_implicit_retry(), Some(1000));
        check(&answer(429, Some(false), Some(1)).without_implicit_retry(), None);
        check(&answer(503, Some(true), None).without_implicit_retry(), Some(500));
        check(&answer(503, None, None).without_implicit_retry(), None);
        check(&answer(503, Some(false), None).without_implicit_retry(), None);
        check(&answer(500, Some(true), None).without_implicit_retry(), None);
    }

    #[test]
    fn a_requested_wait_of_up_to_one_minute_is_kept() {
        check(&answer(503, None, Some(0)), Some(500));
        check(&answer(503, None, Some(7)), Some(7_000));
        check(&answer(503, None, Some(60)), Some(60_000));
        check(&answer(503, None, Some(61)), None);
        check(&answer(503, None, Some(u64::MAX)), None);
    }

    #[test]
    fn a_policy_can_only_allow_less() {
        let wide = Retry::new().max_retries(9).max_pause(Duration::from_secs(600));
        assert_eq!(wide, Retry::default());
        assert!(wide.allows_another(1) && !wide.allows_another(2) && !Retry::NONE.allows_another(0));
        let short = Retry::new().max_pause(Duration::from_secs(5));
        assert_eq!(retry_pause(&answer(503, None, Some(6)), short, 0, 1.0), None);
        assert_eq!(retry_pause(&answer(503, None, Some(5)), short, 0, 1.0), Some(Duration::from_secs(5)));
    }

    #[test]
    fn pauses_grow_and_have_jitter() {
        let pauses = |jitter| {
            [0, 1, 2]
                .map(|retries| retry_pause(&SendOutcome::NeverSent, Retry::new(), retries, jitter).unwrap().as_millis())
        };
        assert_eq!(pauses(0.0), [250, 500, 1000]);
        assert_eq!(pauses(1.0), [500, 1000, 2000]);
        assert!((0..64).map(|_| jitter()).all(|value| (0.0..=1.0).contains(&value)));
        assert_ne!(jitter().to_bits(), jitter().to_bits());
    }
}
