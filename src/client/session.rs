//! One call: what it carries, how it is sent, and what the head of its answer said.
//!
//! The generated client holds a [`Session`] as its inner value and asks its hooks; so this is where every request passes.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use progenitor_client::{ClientHooks, ClientInfo, OperationInfo};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use reqwest::{Method, Request, Response};

use super::Error;
use super::retry::{self, Seen};
use crate::wire::client::Client;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("imagate/", env!("CARGO_PKG_VERSION")));

/// Says that a request is a retry of the client itself, so that the gateway need not pay a second time for what the
/// first one left behind. The official clients send it too.
const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// The generated client sends the version of the document with every request; nobody has asked for it.
const API_VERSION: HeaderName = HeaderName::from_static("api-version");

/// The key as it is sent, and as it is kept out of messages.
#[derive(Clone)]
pub(super) struct Credentials {
    authorization: HeaderValue,
    key: Arc<str>,
}

/// The inner value of the generated client: one call.
#[doc(hidden)]
#[derive(Clone)]
pub struct Session {
    credentials: Credentials,
    max_retries: u32,
    limit: Limit,
    /// What the request says of itself.
    headers: HeaderMap,
    head: Arc<OnceLock<Head>>,
}

/// What may take how long in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// The whole of it, up to the last byte of the answer.
    Whole(Duration),
    /// What comes before the answer begins, and later each silence. The whole may take longer: a stream that shows that
    /// it is alive is not given up.
    Silence(Duration),
}

/// How often a call was sent again.
#[derive(Debug, Default)]
pub(super) struct Tries(u32);

/// What the head of an answer says, apart from its body.
#[derive(Clone, Debug)]
pub(super) struct Head {
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

// === impl Credentials ===

impl Credentials {
    pub(super) fn new(key: &str) -> Result<Self, Error> {
        let key = key.trim();
        if key.is_empty() {
            return Err(Error::settings("the API key is empty"));
        }
        // The error of the library is dropped, so that nothing of the key can be in it.
        let unfit = |_| Error::settings("the API key has characters that cannot stand in a header");
        let mut authorization = HeaderValue::try_from(format!("Bearer {key}")).map_err(unfit)?;
        authorization.set_sensitive(true);
        Ok(Self { authorization, key: key.into() })
    }

    /// As it is sent; marked so that nobody prints it.
    #[cfg(feature = "admin")]
    pub(super) fn authorization(&self) -> HeaderValue {
        self.authorization.clone()
    }

    /// A text of the service, which may have repeated the key to us.
    pub(super) fn redact(&self, text: String) -> String {
        if text.contains(&*self.key) { text.replace(&*self.key, "[redacted]") } else { text }
    }
}

// === impl Session ===

impl Session {
    pub(super) fn new(credentials: Credentials, max_retries: u32, limit: Limit, headers: HeaderMap) -> Self {
        Self { credentials, max_retries, limit, headers, head: Arc::default() }
    }

    /// The head of the answer, once there is one.
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.get()
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    pub(super) fn limit(&self) -> Limit {
        self.limit
    }

    /// Keeps the head of the answer that is the last one.
    pub(super) fn answered(&self, response: &Response) {
        // It is set once: each call has a session of its own.
        drop(self.head.set(Head::of(response)));
    }
}

// === impl Limit ===

impl Limit {
    pub(super) fn duration(self) -> Duration {
        match self {
            Self::Whole(limit) | Self::Silence(limit) => limit,
        }
    }
}

// === impl Tries ===

impl Tries {
    pub(super) fn are_left(&self, session: &Session) -> bool {
        self.0 < session.max_retries
    }

    /// Waits for the next one; says no where there must be none.
    pub(super) async fn another(&mut self, seen: &Seen) -> bool {
        let Some(pause) = retry::pause(seen, self.0, retry::jitter()) else { return false };
        retry::sleep(pause).await;
        self.0 += 1;
        true
    }

    /// Says in the request which one it is.
    pub(super) fn mark(&self, request: &mut Request) {
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
        // Per request, because it covers the body too and depends on the size of the image.
        if let Limit::Whole(limit) = session.limit {
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
        let mut tries = Tries::default();
        let is_post = request.method() == Method::POST;
        loop {
            // A body that cannot be repeated is sent once.
            let again = if tries.are_left(session) { request.try_clone() } else { None };
            let result = self.client().execute(request).await;
            let seen = Seen::of(&result);
            // A POST makes images: a page of some proxy in between says nothing of whether they were made.
            let seen = if is_post { seen.unless_unasked() } else { seen };
            match again {
                Some(next) if tries.another(&seen).await => request = next,
                _ => return result.inspect(|response| session.answered(response)),
            }
            tries.mark(&mut request);
        }
    }
}

// === impl Head ===

impl Head {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn of(response: &Response) -> Self {
        let headers = response.headers();
        let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status: response.status().as_u16(),
            request_id: word("x-request-id").map(str::to_owned),
            should_retry: word("x-should-retry").and_then(|value| value.parse().ok()),
            retry_after: retry_after(headers),
            is_simulated: word("x-imagate-simulated") == Some("true"),
            is_replayed: word("x-imagate-replayed") == Some("true"),
            fallback: word("x-imagate-fallback").map(str::to_owned),
            missing: word("x-imagate-missing").and_then(|count| count.parse().ok()).unwrap_or(0),
            delivered: word("x-imagate-delivered").map(str::to_owned),
            delivery: word("x-imagate-delivery").map(str::to_owned),
        }
    }
}

/// Whole seconds. The other form, a date, is for browsers: a clock that is wrong would make us wait for hours.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
