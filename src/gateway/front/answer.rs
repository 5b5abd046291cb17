//! Answers: a value, or bytes that are still coming; and every error, with its headers.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use dropshot::{Body, HttpCodedResponse, HttpError, RequestContext, ServerContext};
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use schemars::JsonSchema;
use serde::Serialize;
use sync_wrapper::SyncWrapper;
use tracing::Instrument as _;

use super::unread::Unread;
use crate::error::{Code, Error};

/// `x-should-retry`: obeyed by the official SDKs.
pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// What goes to the caller; described as a `T`.
pub(crate) struct Reply<T> {
    response: Response<Body>,
    described: PhantomData<fn() -> T>,
}

/// A good answer, before it is HTTP.
pub(crate) struct Answer {
    status: StatusCode,
    body: Body,
    headers: HeaderMap,
}

/// What an answer consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One JSON value.
    Json,
    /// Server-sent events.
    Events,
}

/// Lets a body that is only `Send` go where dropshot also wants `Sync`; it is only ever polled by one.
struct Alone<B>(SyncWrapper<B>);

/// A server that counts its answers.
pub(crate) trait Counts: ServerContext {
    /// An answer of this operation has begun.
    fn answered(&self, operation: &str, status: u16);
}

/// Runs a handler: its error becomes an answer with headers, and so does its panic.
///
/// `unread` is the place where the request's body comes back to if it was not read.
pub(crate) async fn answer<T, C: Counts>(
    context: &RequestContext<C>,
    unread: Unread,
    work: impl Future<Output = Result<Answer, Error>>,
) -> Reply<T> {
    let begun = Instant::now();
    // Whatever is logged on the way can be found by the id that the caller has.
    let work = work.instrument(tracing::info_span!("request", id = context.request_id));
    let result = Caught(pin!(work)).await.unwrap_or_else(|panic| {
        tracing::error!(panic = panic_text(panic.as_ref()), "a handler panicked");
        Err(Error::Internal)
    });
    let response = match result {
        Ok(answer) => answer.into_response(),
        Err(error) => refusal(&error).map(|body| unread.after(body, error != Error::InvalidKey)),
    };
    context.context().answered(&context.endpoint.operation_id, response.status().as_u16());
    // The one line of each request. Neither headers nor bodies are in it, so no secret and no prompt is.
    tracing::info!(
        request_id = context.request_id,
        method = %context.request.method(),
        path = context.request.uri().path(),
        status = response.status().as_u16(),
        head_ms = begun.elapsed().as_millis(),
        "answered"
    );
    Reply { response, described: PhantomData }
}

/// Runs the handler of a page, which makes its own answers; its panic becomes one without a page.
///
/// `section` is what the log says of the path.
pub(crate) async fn respond<C: Counts>(
    context: &RequestContext<C>,
    section: &str,
    unread: Unread,
    work: impl Future<Output = Response<Bytes>>,
) -> Response<Body> {
    let begun = Instant::now();
    let work = work.instrument(tracing::info_span!("request", id = context.request_id));
    let response = Caught(pin!(work)).await.unwrap_or_else(|panic| {
        tracing::error!(panic = panic_text(panic.as_ref()), "a page panicked");
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    });
    let status = response.status().as_u16();
    context.context().answered("pages", status);
    let (request_id, head_ms) = (&context.request_id, begun.elapsed().as_millis());
    tracing::info!(request_id, method = %context.request.method(), section, status, head_ms, "answered a page");
    response.map(|body| unread.after(body, false))
}

/// An error as an answer.
pub(super) fn refusal(error: &Error) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(error.body().to_string()));
    *response.status_mut() = StatusCode::from_u16(error.code().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(SHOULD_RETRY, HeaderValue::from_static(if error.should_retry() { "true" } else { "false" }));
    if let Some(seconds) = error.retry_after() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if let Some(codings) = error.accept_encoding() {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
    }
    if error.code() == Code::InvalidApiKey {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

// === impl Answer ===

impl Answer {
    /// A small JSON value.
    ///
    /// # Errors
    ///
    /// Where the value cannot be written, which is a fault of ours.
    pub(crate) fn json(value: &impl Serialize) -> Result<Self, Error> {
        let text = serde_json::to_string(value).map_err(|error| {
            tracing::error!(%error, "an answer could not be written");
            Error::Internal
        })?;
        Ok(Self { status: StatusCode::OK, body: Body::from(text), headers: Kind::Json.headers() })
    }

    /// Bytes that are still coming.
    pub(crate) fn coming<B>(kind: Kind, body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self { status: StatusCode::OK, body: Body::wrap(Alone(SyncWrapper::new(body))), headers: kind.headers() }
    }

    /// The same with one more header, where there is a value for it.
    pub(crate) fn with(mut self, name: &'static str, value: Option<&str>) -> Self {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// The same with these headers too.
    pub(crate) fn with_all(mut self, headers: &BTreeMap<String, String>) -> Self {
        for (name, value) in headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
                self.headers.insert(name, value);
            }
        }
        self
    }

    /// The same with another status: that of an answer which is given again.
    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

// === impl Kind ===

impl Kind {
    fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::Json => drop(headers.insert(CONTENT_TYPE, JSON)),
            Self::Events => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                // Proxies of one well-known make gather an answer unless they are told not to.
                headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            }
        }
        headers
    }
}

// === impl Alone ===

impl<B: http_body::Body + Unpin> http_body::Body for Alone<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(self.0.get_mut()).poll_frame(cx)
    }
}

// === impl Reply ===

impl<T> Reply<T> {
    /// The same, which nobody between us and whoever asked may keep.
    pub(crate) fn no_store(mut self) -> Self {
        self.response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        self
    }
}

impl<T> From<Reply<T>> for Result<Response<Body>, HttpError> {
    fn from(reply: Reply<T>) -> Self {
        Ok(reply.response)
    }
}

impl<T: JsonSchema + Serialize + Send + Sync + 'static> HttpCodedResponse for Reply<T> {
    type Body = T;
    const STATUS_CODE: StatusCode = StatusCode::OK;
    const DESCRIPTION: &'static str = "successful operation";
}

/// A future whose panic is a value.
pub(super) struct Caught<F>(pub(super) F);

impl<F: Future + Unpin> Future for Caught<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_error() {
        let caught = Caught(pin!(async { panic!("seen in a test") })).await;
        let panic = caught.map(|(): ()| ()).expect_err("it panicked");
        assert_eq!(panic_text(panic.as_ref()), "seen in a test");
    }

    #[test]
    fn a_key_that_is_not_ours_is_asked_for_a_bearer() {
        let response = refusal(&Error::InvalidKey);
        assert_eq!(response.status(), 401);
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        assert_eq!(response.headers()["content-type"], "application/json");
    }
}
