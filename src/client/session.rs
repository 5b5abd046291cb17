//! One call: its credentials, headers and limits, how it is sent, and the metadata of its answer.
//!
//! The generated client holds a [`Session`] as its inner value and calls its hooks, so every request passes through
//! here.

use std::fmt;
use std::hash::{Hash as _, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use progenitor_client::{ClientHooks, ClientInfo, OperationInfo};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use reqwest::{Method, Request, Response};

use super::builder::DEFAULT_BASE_PATH;
use super::metadata::AnswerMetadata;
use super::retry::{self, Retry, SendOutcome};
use super::retry_notice::{RetryNotice, RetryObserver, RetryReason};
use super::secrets::CallSecrets;
use super::timer::Deadline;
use super::transport::{Transport, TransportError};
use super::{ClientState, Error};
use crate::service_settings::{key_fault, trim_key};
use crate::tables::{IDEMPOTENCY_KEY_HEADER, IMAGE_FALLBACK_HEADER, RETRY_COUNT_HEADER};
use crate::wire::client::Client;

pub(super) const AGENT: HeaderValue = HeaderValue::from_static(concat!("imagate/", env!("CARGO_PKG_VERSION")));

/// Marks a request as a retry by the client itself, so that the gateway need not pay a second time if it still has the
/// result of the first attempt. The official clients send it too.
const RETRY_COUNT: HeaderName = HeaderName::from_static(RETRY_COUNT_HEADER);

/// The header with the name of a call, under which the gateway pays for its images once.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static(IDEMPOTENCY_KEY_HEADER);

/// The header with the reaction to a failure of a large image.
pub(super) const FALLBACK: HeaderName = HeaderName::from_static(IMAGE_FALLBACK_HEADER);

/// The header of an answer with which the gateway says whether it is the answer to an earlier request with the same key.
/// A service that knows this pays for a key once.
const REPLAYED: HeaderName = HeaderName::from_static("x-imagate-replayed");

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
    retry: Retry,
    limit: TimeLimit,
    /// The end of the whole call, if it has a limit.
    deadline: Option<Deadline>,
    /// The headers of the request that are no arguments of the generated calls.
    headers: HeaderMap,
    /// The argument of the generated calls.
    idempotency_key: Option<String>,
    /// The argument of the generated calls, for an image.
    fallback: Option<String>,
    /// The path of the base URL, in place of that of the API document.
    base_path: Arc<str>,
    head: Arc<OnceLock<AnswerMetadata>>,
    /// The number of times that the call was sent again.
    retries: Arc<AtomicU32>,
    /// True if the call was sent again after an attempt that may have been paid for.
    may_be_paid: Arc<AtomicBool>,
    /// True once an answer of the service has shown that it pays for an idempotency key once. Shared by all calls of
    /// the client.
    honors_keys: Arc<AtomicBool>,
    /// `None` if the HTTP client itself sends the requests.
    transport: Option<Arc<dyn Transport>>,
    retry_observer: Option<RetryObserver>,
    /// The error of the transport, if the generated client cannot return it.
    failure: Arc<Mutex<Option<TransportError>>>,
}

/// The settings of one call.
pub(super) struct CallOptions {
    pub(super) limit: TimeLimit,
    /// The limit of the whole call, in place of that of the client.
    pub(super) deadline: Option<Duration>,
    pub(super) headers: HeaderMap,
    /// The policy of the call, in place of that of the client.
    pub(super) retry: Option<Retry>,
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

// === impl BearerCredentials ===

impl BearerCredentials {
    /// `name` says in messages which secret it is.
    pub(super) fn new(name: &str, key: &str) -> Result<Self, Error> {
        let key = trim_key(key);
        if key.is_empty() {
            return Err(Error::settings(format!("the {name} is empty")));
        }
        if let Some(fault) = key_fault(key) {
            return Err(Error::settings(format!("the {name} {fault}")));
        }
        // The error of the library is dropped, so that it cannot contain any of the key.
        let to_error = |_| Error::settings(format!("the {name} has characters that are not allowed in a header"));
        let mut authorization = HeaderValue::try_from(format!("Bearer {key}")).map_err(to_error)?;
        authorization.set_sensitive(true);
        Ok(Self { authorization, key: key.into() })
    }

    /// Returns the key.
    #[cfg(feature = "cli")]
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Returns the header value, which is marked as sensitive so that it is not printed.
    #[cfg(feature = "admin")]
    pub(super) fn authorization(&self) -> HeaderValue {
        self.authorization.clone()
    }

    /// Returns the texts that no error may contain.
    pub(super) fn secrets(&self) -> CallSecrets<'_> {
        CallSecrets::new(&self.key)
    }
}

// === impl Session ===

impl Session {
    pub(super) fn new(client: &ClientState, options: CallOptions) -> Self {
        let mut headers = client.headers.clone();
        headers.extend(options.headers);
        let idempotency_key = take_text(&mut headers, &IDEMPOTENCY_KEY);
        let fallback = take_text(&mut headers, &FALLBACK);
        Self {
            credentials: client.credentials.clone(),
            retry: options.retry.unwrap_or(client.retry),
            limit: options.limit,
            deadline: options.deadline.or(client.deadline).and_then(Deadline::after),
            headers,
            idempotency_key,
            fallback,
            base_path: Arc::clone(&client.address.base_path),
            head: Arc::default(),
            retries: Arc::default(),
            may_be_paid: Arc::default(),
            honors_keys: Arc::clone(&client.honors_keys),
            transport: client.transport.clone(),
            retry_observer: client.retry_observer.clone(),
            failure: Arc::default(),
        }
    }

    /// Returns the session of the same call for a new answer.
    pub(super) fn for_new_answer(&self) -> Self {
        Self { head: Arc::default(), failure: Arc::default(), ..self.clone() }
    }

    /// Returns the metadata of the answer, once there is one.
    pub(super) fn head(&self) -> Option<&AnswerMetadata> {
        self.head.get()
    }

    /// Returns the metadata of the answer. Every answer that the generated client returns has been recorded.
    pub(super) fn recorded_head(&self) -> &AnswerMetadata {
        self.head.get_or_init(AnswerMetadata::default)
    }

    /// Returns the texts that no error may contain: the key, and secrets in additional headers.
    pub(super) fn secrets(&self) -> CallSecrets<'_> {
        self.credentials.secrets().with_headers(&self.headers)
    }

    /// Returns the idempotency key of the call, if it has one.
    pub(super) fn idempotency_key(&self) -> Option<&str> {
        self.idempotency_key.as_deref()
    }

    /// Returns the reaction to a failure of a large image, if the request states it.
    pub(super) fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Returns the number of times that the call was sent again, if there is one.
    pub(super) fn retry_count(&self) -> Option<i64> {
        Some(i64::from(self.retries())).filter(|retries| *retries > 0)
    }

    /// Returns true if the call was sent again after an attempt that may have been paid for.
    pub(super) fn may_be_paid(&self) -> bool {
        self.may_be_paid.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&self) -> TimeLimit {
        self.limit
    }

    /// Returns the end of the whole call, if it has a limit.
    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Sends the request once, through the transport if there is one.
    pub(super) async fn send_once(&self, http: &reqwest::Client, request: Request) -> Result<Response, TransportError> {
        match &self.transport {
            Some(transport) => transport.send(request, http).await,
            None => Ok(http.execute(request).await?),
        }
    }

    /// Converts a result for [`ClientHooks::exec`], which can only return errors of the HTTP library. If the error is the
    /// transport's own, it is kept for [`Session::take_failure`], and the result is that of a request without an
    /// address, which fails before anything is sent.
    async fn hook_result(
        &self,
        http: &reqwest::Client,
        result: Result<Response, TransportError>,
    ) -> reqwest::Result<Response> {
        let failure = match result.map_err(TransportError::into_http) {
            Ok(response) => return Ok(response),
            Err(Ok(error)) => return Err(error),
            Err(Err(failure)) => failure,
        };
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        http.get("").send().await
    }

    /// Returns the transport's own error, if that is why the generated client failed.
    pub(super) fn take_failure(&self) -> Option<TransportError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Records the metadata of the final answer.
    pub(super) fn record_head(&self, response: &Response) {
        if response.headers().contains_key(REPLAYED) {
            self.honors_keys.store(true, Ordering::Relaxed);
        }
        // It is set only once, because each answer has a session of its own.
        drop(self.head.set(AnswerMetadata::from_response(response, self.retries())));
    }

    fn retries(&self) -> u32 {
        self.retries.load(Ordering::Relaxed)
    }

    pub(super) fn has_retries_left(&self) -> bool {
        self.retry.allows_another(self.retries())
    }

    /// Waits before the next attempt; returns false if there must not be one.
    pub(super) async fn wait_for_retry(&self, outcome: &SendOutcome) -> bool {
        let pause = retry::retry_pause(outcome, self.retry, self.retries(), retry::jitter());
        let waited = self.wait(pause, RetryReason::of_outcome(outcome)).await;
        self.may_be_paid.fetch_or(waited && outcome.is_in_progress(), Ordering::Relaxed);
        waited
    }

    /// Waits before the call is made again after an error that lost its answer; returns false if it must not be made
    /// again. It may be if the service pays for its idempotency key once.
    pub(super) async fn wait_for_repetition(&self, error: &Error) -> bool {
        let is_paid_once = self.honors_keys.load(Ordering::Relaxed) && self.idempotency_key().is_some();
        if !is_paid_once || !self.has_retries_left() {
            return false;
        }
        let pause = retry::pause(error.retry_after(), self.retry, self.retries(), retry::jitter());
        let waited = self.wait(pause, RetryReason::of_error(error)).await;
        self.may_be_paid.fetch_or(waited, Ordering::Relaxed);
        waited
    }

    async fn wait(&self, pause: Option<Duration>, reason: RetryReason) -> bool {
        let Some(pause) = pause else { return false };
        if let Some(observe) = &self.retry_observer {
            // The first attempt has the number 1, and each retry before this one has one more.
            let attempt = self.retries() + 2;
            observe(&RetryNotice { attempt, pause, reason });
        }
        retry::sleep(pause).await;
        self.retries.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Adds a header with the number of the retry to the request, if it is one: the hook gets only the first request.
    fn set_retry_header(&self, request: &mut Request) {
        if self.retries() > 0 {
            request.headers_mut().insert(RETRY_COUNT, self.retries().into());
        }
    }
}

// === impl CallOptions ===

impl CallOptions {
    pub(super) fn new(limit: TimeLimit) -> Self {
        Self { limit, deadline: None, headers: HeaderMap::new(), retry: None }
    }

    pub(super) fn has_idempotency_key(&self) -> bool {
        self.headers.contains_key(IDEMPOTENCY_KEY)
    }

    /// Adds the headers of the request to the hash. Their order makes no difference.
    pub(super) fn hash_headers(&self, hasher: &mut impl Hasher) {
        let mut headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        headers.sort_unstable();
        headers.hash(hasher);
    }
}

/// Removes and returns a header. A value that is no text stays, and is sent as it is.
fn take_text(headers: &mut HeaderMap, name: &HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?.to_owned();
    headers.remove(name);
    Some(text)
}

// === impl TimeLimit ===

impl TimeLimit {
    pub(super) fn duration(self) -> Duration {
        match self {
            Self::Total(limit) | Self::Idle(limit) => limit,
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("retry", &self.retry).field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl ClientHooks<Session> for Client {
    async fn pre<E>(&self, request: &mut Request, _: &OperationInfo) -> Result<(), progenitor_client::Error<E>> {
        let session = self.inner();
        // The timeout is set for each request, because it includes the body and depends on the size of the image.
        if let TimeLimit::Total(limit) = session.limit {
            *request.timeout_mut() = Some(limit);
        }
        if let Some(path) = request.url().path().strip_prefix(DEFAULT_BASE_PATH) {
            let path = format!("{}{path}", session.base_path);
            request.url_mut().set_path(&path);
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
        let is_post = request.method() == Method::POST;
        loop {
            // A body that cannot be cloned is sent only once.
            let next_request = if session.has_retries_left() { request.try_clone() } else { None };
            let result = session.send_once(self.client(), request).await;
            let outcome = SendOutcome::from_result(&result, TransportError::was_never_sent);
            // A POST makes images, and an error page of a proxy does not tell whether they were made.
            let outcome = if is_post { outcome.without_implicit_retry() } else { outcome };
            match next_request {
                Some(next) if session.wait_for_retry(&outcome).await => request = next,
                _ => {
                    let result = result.inspect(|response| session.record_head(response));
                    return session.hook_result(self.client(), result).await;
                }
            }
            session.set_retry_header(&mut request);
        }
    }
}
