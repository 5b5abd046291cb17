//! One call: its credentials, headers and limits, how it is sent, and the head of its answer.
//!
//! The generated client holds a [`Session`] as its inner value and calls its hooks, so every request passes through
//! here.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use progenitor_client::{ClientHooks, ClientInfo, OperationInfo};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use reqwest::{Method, Request, Response};

use super::Error;
use super::retry::{self, SendOutcome};
use crate::wire::client::Client;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("imagate/", env!("CARGO_PKG_VERSION")));

/// Marks a request as a retry by the client itself, so that the gateway need not pay a second time if it still has the
/// result of the first attempt. The official clients send it too.
const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// The header with the version of the API document, which the generated client adds to every request. It is removed,
/// because no service needs it.
const API_VERSION: HeaderName = HeaderName::from_static("api-version");

/// The key, as the header that is sent and as the text that is removed from messages.
#[derive(Clone)]
pub(super) struct BearerCredentials {
    authorization: HeaderValue,
    key: Arc<str>,
}

/// The inner value of the generated client: one call.
#[doc(hidden)]
#[derive(Clone)]
pub struct Session {
    credentials: BearerCredentials,
    max_retries: u32,
    limit: TimeLimit,
    /// The additional headers of the request.
    headers: HeaderMap,
    head: Arc<OnceLock<HttpResponseHead>>,
}

/// The time limit of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeLimit {
    /// Limits the whole attempt, up to the last byte of the answer.
    Total(Duration),
    /// Limits the time until the answer begins, and each pause after that. The whole answer may take longer, as long as
    /// data arrives.
    Idle(Duration),
}

/// The number of times that a call was sent again.
#[derive(Debug, Default)]
pub(super) struct RetryCounter(u32);

/// The head of an answer, without its body.
#[derive(Clone, Debug)]
pub(super) struct HttpResponseHead {
    pub(super) status: u16,
    pub(super) request_id: Option<String>,
    pub(super) should_retry: Option<bool>,
    pub(super) retry_after: Option<Duration>,
    pub(super) is_simulated: bool,
    pub(super) is_replayed: bool,
    pub(super) fallback: Option<String>,
    /// The number of requested images that are missing.
    pub(super) missing: usize,
    pub(super) delivered: Option<String>,
    pub(super) delivery: Option<String>,
}

// === impl BearerCredentials ===

impl BearerCredentials {
    pub(super) fn new(key: &str) -> Result<Self, Error> {
        let key = key.trim();
        if key.is_empty() {
            return Err(Error::settings("the API key is empty"));
        }
        // The error of the library is dropped, so that it cannot contain any of the key.
        let to_error = |_| Error::settings("the API key has characters that are not allowed in a header");
        let mut authorization = HeaderValue::try_from(format!("Bearer {key}")).map_err(to_error)?;
        authorization.set_sensitive(true);
        Ok(Self { authorization, key: key.into() })
    }

    /// Returns the header value, which is marked as sensitive so that it is not printed.
    #[cfg(feature = "admin")]
    pub(super) fn authorization(&self) -> HeaderValue {
        self.authorization.clone()
    }

    /// Removes the key from a text of the service, which may repeat it.
    pub(super) fn redact(&self, text: String) -> String {
        if text.contains(&*self.key) { text.replace(&*self.key, "[redacted]") } else { text }
    }
}

// === impl Session ===

impl Session {
    pub(super) fn new(credentials: BearerCredentials, max_retries: u32, limit: TimeLimit, headers: HeaderMap) -> Self {
        Self { credentials, max_retries, limit, headers, head: Arc::default() }
    }

    /// Returns the head of the answer, once there is one.
    pub(super) fn head(&self) -> Option<&HttpResponseHead> {
        self.head.get()
    }

    pub(super) fn credentials(&self) -> &BearerCredentials {
        &self.credentials
    }

    pub(super) fn limit(&self) -> TimeLimit {
        self.limit
    }

    /// Records the head of the final answer.
    pub(super) fn record_head(&self, response: &Response) {
        // It is set only once, because each call has a session of its own.
        drop(self.head.set(HttpResponseHead::from_response(response)));
    }
}

// === impl TimeLimit ===

impl TimeLimit {
    pub(super) fn duration(self) -> Duration {
        match self {
            Self::Total(limit) | Self::Idle(limit) => limit,
        }
    }
}

// === impl RetryCounter ===

impl RetryCounter {
    pub(super) fn has_retries_left(&self, session: &Session) -> bool {
        self.0 < session.max_retries
    }

    /// Waits before the next attempt; returns false if there must not be one.
    pub(super) async fn wait_for_retry(&mut self, outcome: &SendOutcome) -> bool {
        let Some(pause) = retry::retry_pause(outcome, self.0, retry::jitter()) else { return false };
        retry::sleep(pause).await;
        self.0 += 1;
        true
    }

    /// Adds a header with the number of the retry to the request, if it is one.
    pub(super) fn set_retry_header(&self, request: &mut Request) {
        if self.0 > 0 {
            request.headers_mut().insert(RETRY_COUNT, self.0.into());
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("max_retries", &self.max_retries)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl ClientHooks<Session> for Client {
    async fn pre<E>(&self, request: &mut Request, _: &OperationInfo) -> Result<(), progenitor_client::Error<E>> {
        let session = self.inner();
        // The timeout is set for each request, because it includes the body and depends on the size of the image.
        if let TimeLimit::Total(limit) = session.limit {
            *request.timeout_mut() = Some(limit);
        }
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, session.credentials.authorization.clone());
        headers.insert(USER_AGENT, AGENT);
        headers.remove(API_VERSION);
        headers.extend(session.headers.clone());
        Ok(())
    }

    async fn exec(&self, mut request: Request, _: &OperationInfo) -> reqwest::Result<Response> {
        let session = self.inner();
        let mut retries = RetryCounter::default();
        let is_post = request.method() == Method::POST;
        loop {
            // A body that cannot be cloned is sent only once.
            let next_request = if retries.has_retries_left(session) { request.try_clone() } else { None };
            let result = self.client().execute(request).await;
            let outcome = SendOutcome::from_result(&result);
            // A POST makes images, and an error page of a proxy does not tell whether they were made.
            let outcome = if is_post { outcome.without_implicit_retry() } else { outcome };
            match next_request {
                Some(next) if retries.wait_for_retry(&outcome).await => request = next,
                _ => return result.inspect(|response| session.record_head(response)),
            }
            retries.set_retry_header(&mut request);
        }
    }
}

// === impl HttpResponseHead ===

impl HttpResponseHead {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn from_response(response: &Response) -> Self {
        let headers = response.headers();
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status: response.status().as_u16(),
            request_id: header("x-request-id").map(str::to_owned),
            should_retry: header("x-should-retry").and_then(|value| value.parse().ok()),
            retry_after: retry_after(headers),
            is_simulated: header("x-imagate-simulated") == Some("true"),
            is_replayed: header("x-imagate-replayed") == Some("true"),
            fallback: header("x-imagate-fallback").map(str::to_owned),
            missing: header("x-imagate-missing").and_then(|count| count.parse().ok()).unwrap_or(0),
            delivered: header("x-imagate-delivered").map(str::to_owned),
            delivery: header("x-imagate-delivery").map(str::to_owned),
        }
    }
}

/// Returns the value of `retry-after` if it is a number of seconds. The other form, a date, depends on the clock, and a
/// wrong clock could cause a wait of hours.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
