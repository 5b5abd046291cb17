//! The metadata of an answer: its status, how often the request was sent, and the headers that say more about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The metadata of an answer; from `meta` of [`Images`](super::Images::meta), [`Response`](super::Response::meta), the
/// streams, and [`Error`](super::Error::meta). Cloning is cheap.
///
/// Most of it is known only if the service is a gateway of this project; a service need not send any of it.
#[derive(Clone, Default)]
pub struct AnswerMetadata {
    pub(super) status: u16,
    attempts: u32,
    headers: Arc<HeaderMap>,
}

/// A limit of the key, as the service states it with an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimit {
    /// The number that may be used in a period.
    pub limit: Option<u64>,
    /// The number that is left.
    pub remaining: Option<u64>,
    /// The time until the whole limit is free again.
    pub resets_in: Option<Duration>,
}

// === impl AnswerMetadata ===

impl AnswerMetadata {
    /// `retries` is the number of times that the request was sent again.
    pub(super) fn from_response(response: &Response, retries: u32) -> Self {
        Self::new(response.status().as_u16(), retries + 1, response.headers().clone())
    }

    pub(super) fn new(status: u16, attempts: u32, headers: HeaderMap) -> Self {
        Self { status, attempts, headers: Arc::new(headers) }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn should_retry(&self) -> Option<bool> {
        self.header("x-should-retry")?.parse().ok()
    }

    /// Returns the HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns how often the request was sent: 1 if the first answer counted.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns a header of the answer, if it is there and is text. The case of the name does not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the id of the request, which lets the operator of the service find it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.header("x-request-id")
    }

    /// Returns the address to which the service redirects, without its query, which may hold a secret.
    pub(super) fn redirect_target(&self) -> Option<&str> {
        let is_redirect = (300..400).contains(&self.status);
        self.header("location").filter(|_| is_redirect)?.split(['?', '#']).next()
    }

    /// Returns the wait that the service asks for. Only a number of seconds counts. The other form, a date, depends on
    /// the clock, and a wrong clock could cause a wait of hours.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
    }

    /// Returns true if the built-in simulator of the gateway drew the images instead of the model.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.header("x-imagate-simulated") == Some("true")
    }

    /// Returns true if this is the answer to an earlier request with the same idempotency key; nothing was paid for it
    /// again.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.header("x-imagate-replayed") == Some("true")
    }

    /// Returns the changes that the dialects of the key or its group made to the request, separated by commas, such as
    /// `size 512x512->1024x1024`.
    #[must_use]
    pub fn adapted(&self) -> Option<&str> {
        self.header("x-imagate-adapted")
    }

    /// Returns the size and quality that were made instead of the requested ones, such as `3840x2160 medium`, if a
    /// fallback was allowed and used.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.header("x-imagate-fallback")
    }

    /// Returns the number of requested images that are missing from the answer.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.header("x-imagate-missing").and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Returns the actual size and format of the first image, such as `1024x1024 png`.
    #[must_use]
    pub fn delivered(&self) -> Option<&str> {
        self.header("x-imagate-delivered")
    }

    /// Returns `match` or `mismatch`, the result of comparing [`Self::delivered`] with the request; `converted`, or
    /// `mismatch converted`, if the service has encoded the image again because it came in another format.
    #[must_use]
    pub fn delivery(&self) -> Option<&str> {
        self.header("x-imagate-delivery")
    }

    /// Returns the limit of requests per minute.
    #[must_use]
    pub fn request_limit(&self) -> Option<RateLimit> {
        self.rate_limit("requests")
    }

    /// Returns the limit of images per minute.
    #[must_use]
    pub fn image_limit(&self) -> Option<RateLimit> {
        self.rate_limit("images")
    }

    /// Returns the part of the budget that is left, in USD.
    #[must_use]
    pub fn budget_remaining_usd(&self) -> Option<f64> {
        self.header("x-imagate-budget-remaining-usd")?.parse().ok()
    }

    fn rate_limit(&self, unit: &str) -> Option<RateLimit> {
        let header = |name: &str| self.header(&format!("x-ratelimit-{name}-{unit}"));
        let count = |name: &str| header(name).and_then(|count| count.parse().ok());
        let limit = RateLimit {
            limit: count("limit"),
            remaining: count("remaining"),
            resets_in: header("reset").and_then(parse_duration),
        };
        (limit != RateLimit::default()).then_some(limit)
    }
}

impl fmt::Debug for AnswerMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The headers are left out, because a service or a proxy may put a secret into one.
        f.debug_struct("AnswerMetadata")
            .field("status", &self.status)
            .field("attempts", &self.attempts)
            .field("request_id", &self.request_id())
            .finish_non_exhaustive()
    }
}

/// Parses a duration such as `60s`, `6m0s` or `250ms`.
fn parse_duration(text: &str) -> Option<Duration> {
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|character: char| character.is_ascii_digit()).unwrap_or(tail.len());
        let seconds = match &tail[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?)?;
        rest = &tail[unit..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_the_forms_that_services_send() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(parse_duration(text), expected.map(Duration::from_millis), "{text}");
        };
        check("60s", Some(60_000));
        check("6m0s", Some(360_000));
        check("1h2m3.5s", Some(3_723_500));
        check("250ms", Some(250));
        for text in ["", "60", "s", "1d", "-1s", "1.2.3s", "1e400s"] {
            check(text, None);
        }
    }
}
