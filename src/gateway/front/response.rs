//! HTTP answers: JSON values, streams of bytes, and errors with their headers.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use dropshot::{Body, HttpCodedResponse, HttpError, ServerContext};
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sync_wrapper::SyncWrapper;
use tracing::Instrument as _;

use super::request::RequestHead;
use crate::error::{ApiErrorCode, Error};

/// The header `x-should-retry`, which the official SDKs obey.
pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The answer of a handler. The API description gives it the schema of `T`.
pub(crate) struct TypedResponse<T> {
    response: Response<Body>,
    schema_marker: PhantomData<fn() -> T>,
}

/// A successful answer, before it is converted to an HTTP response. Its body is a serialized `T`, or was serialized by
/// another module, which states the schema with a [`SchemaMarker`].
pub(crate) struct HandlerResponse<T> {
    status: StatusCode,
    body: Body,
    headers: HeaderMap,
    schema_marker: PhantomData<fn() -> T>,
}

/// The statement of the module that relays or stores an answer that its body has the schema of `T`, or is an error.
pub(crate) struct SchemaMarker<T>(PhantomData<fn() -> T>);

/// An error of a handler, with the headers that only this answer has.
pub(crate) struct HandlerError {
    error: Error,
    headers: HeaderMap,
}

/// The content of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// One JSON value.
    Json,
    /// Server-sent events.
    Events,
}

/// Makes a body that is only `Send` also `Sync`, as dropshot requires. The wrapper gives access only through `&mut`.
struct SyncBody<B>(SyncWrapper<B>);

/// A server that counts its answers.
pub(crate) trait ResponseCounter: ServerContext {
    /// Counts an answer of this operation, when its status is known.
    fn count_response(&self, operation: &str, status: u16);
}

/// Runs a handler, and converts an error or a panic into an error answer.
pub(crate) fn run_handler<T, C: ResponseCounter>(
    head: &RequestHead<C>,
    handler: impl Future<Output = Result<HandlerResponse<T>, impl Into<HandlerError>>>,
) -> impl Future<Output = TypedResponse<T>> {
    // Every log line of the request has the request id, which is also sent to the caller. The state of a handler takes
    // kilobytes: it is moved once, and not held by the futures around it.
    let handler = Box::pin(handler.instrument(tracing::info_span!("request", id = head.request_id())));
    finish_handler(head, handler)
}

async fn finish_handler<T, C: ResponseCounter>(
    head: &RequestHead<C>,
    handler: impl Future<Output = Result<HandlerResponse<T>, impl Into<HandlerError>>> + Unpin,
) -> TypedResponse<T> {
    let started_at = Instant::now();
    let result = match PanicCatcher(handler).await {
        Ok(result) => result.map_err(Into::into),
        Err(panic) => {
            tracing::error!(panic = panic_text(panic.as_ref()), "a handler panicked");
            Err(Error::Internal.into())
        }
    };
    let response = match result {
        Ok(answer) => answer.into_response(),
        Err(HandlerError { error, headers }) => {
            let mut response = error_response(&error);
            response.headers_mut().extend(headers);
            response.map(Body::from)
        }
    };
    head.server().count_response(head.operation(), response.status().as_u16());
    // The log line of each request. It has neither headers nor bodies, so it holds no secret and no prompt.
    tracing::info!(
        request_id = head.request_id(),
        method = %head.method(),
        path = head.uri().path(),
        status = response.status().as_u16(),
        head_ms = started_at.elapsed().as_millis(),
        "answered"
    );
    TypedResponse { response, schema_marker: PhantomData }
}

/// The body of the answer of a page.
pub(crate) enum PageContent {
    /// The whole body.
    Whole(Bytes),
    /// A body that is still being produced.
    Streaming(Body),
}

/// Runs the handler of a page, which builds its own error pages; a panic becomes an empty answer with status 500.
///
/// `section` is the part of the path that is logged, because the rest may hold a secret.
pub(crate) async fn run_page_handler<C: ResponseCounter>(
    head: &RequestHead<C>,
    section: &str,
    handler: impl Future<Output = Response<PageContent>>,
) -> Response<Body> {
    let started_at = Instant::now();
    let future = handler.instrument(tracing::info_span!("request", id = head.request_id()));
    let response = PanicCatcher(pin!(future)).await.unwrap_or_else(|panic| {
        tracing::error!(panic = panic_text(panic.as_ref()), "a page panicked");
        let mut response = Response::new(PageContent::Whole(Bytes::new()));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    });
    let status = response.status().as_u16();
    head.server().count_response(head.operation(), status);
    let (request_id, head_ms) = (head.request_id(), started_at.elapsed().as_millis());
    tracing::info!(request_id, method = %head.method(), section, status, head_ms, "answered a page");
    response.map(|content| match content {
        PageContent::Whole(body) => Body::from(body),
        PageContent::Streaming(body) => body,
    })
}

/// Returns the content of an error answer of the API.
pub(crate) fn error_content(error: &Error) -> Response<PageContent> {
    error_response(error).map(PageContent::Whole)
}

/// Converts an error into an answer.
pub(super) fn error_response(error: &Error) -> Response<Bytes> {
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
    if error.code() == ApiErrorCode::InvalidApiKey {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

// === impl PageContent ===

impl PageContent {
    /// A body that is still being produced.
    pub(crate) fn streaming<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self::Streaming(Body::wrap(SyncBody(SyncWrapper::new(body))))
    }
}

// === impl HandlerResponse ===

impl<T: Serialize> HandlerResponse<T> {
    /// An answer with a JSON value.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Internal`] if the value cannot be serialized.
    pub(crate) fn json(value: &T) -> Result<Self, Error> {
        let text = serde_json::to_string(value).map_err(|error| {
            tracing::error!(%error, "an answer could not be serialized");
            Error::Internal
        })?;
        Ok(Self::new(SchemaMarker(PhantomData), ResponseKind::Json, Body::from(text)))
    }
}

impl<T> HandlerResponse<T> {
    fn new(schema: SchemaMarker<T>, kind: ResponseKind, body: Body) -> Self {
        Self { status: StatusCode::OK, body, headers: kind.headers(), schema_marker: schema.0 }
    }

    /// A relayed or stored answer whose body is still being produced.
    pub(crate) fn streaming<B>(schema: SchemaMarker<T>, kind: ResponseKind, body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self::new(schema, kind, Body::wrap(SyncBody(SyncWrapper::new(body))))
    }

    /// A relayed or stored JSON answer whose body is complete.
    pub(crate) fn whole(schema: SchemaMarker<T>, body: Bytes) -> Self {
        Self::new(schema, ResponseKind::Json, Body::from(body))
    }

    /// Adds a header, if there is a value and it is valid in a header.
    pub(crate) fn with_header(mut self, name: &'static str, value: Option<&str>) -> Self {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// Adds these headers, except for invalid ones.
    pub(crate) fn with_headers(mut self, headers: &BTreeMap<String, String>) -> Self {
        for (name, value) in headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
                self.headers.insert(name, value);
            }
        }
        self
    }

    /// Sets the status. A replayed answer has the status of the original answer.
    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self
    }

    /// Returns the number of bytes of the body; zero if it is still being produced.
    pub(crate) fn body_bytes(&self) -> u64 {
        http_body::Body::size_hint(&self.body).exact().unwrap_or(0)
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

impl HandlerResponse<Value> {
    /// An answer that another library has made.
    pub(crate) fn from_http<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = response.into_parts();
        let body = Body::wrap(SyncBody(SyncWrapper::new(body)));
        Self { status: parts.status, body, headers: parts.headers, schema_marker: PhantomData }
    }
}

// === impl SchemaMarker ===

impl<T> SchemaMarker<T> {
    /// Only the module that knows where an answer comes from may call this.
    pub(crate) const fn of_relayed_answer() -> Self {
        Self(PhantomData)
    }
}

// === impl HandlerError ===

impl HandlerError {
    /// Adds a header, if there is a value and it is valid in a header.
    pub(crate) fn with_header(mut self, name: &'static str, value: Option<&str>) -> Self {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }
}

impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        Self { error, headers: HeaderMap::new() }
    }
}

// === impl ResponseKind ===

impl ResponseKind {
    fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::Json => drop(headers.insert(CONTENT_TYPE, JSON)),
            Self::Events => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                // Some proxies buffer a whole answer unless this header forbids it.
                headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            }
        }
        headers
    }
}

// === impl SyncBody ===

impl<B: http_body::Body + Unpin> http_body::Body for SyncBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(self.0.get_mut()).poll_frame(cx)
    }
}

// === impl TypedResponse ===

impl<T> TypedResponse<T> {
    /// Sets `Cache-Control: no-store`, so that no cache stores the answer.
    pub(crate) fn no_store(mut self) -> Self {
        self.response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        self
    }
}

impl<T> From<TypedResponse<T>> for Response<Body> {
    fn from(reply: TypedResponse<T>) -> Self {
        reply.response
    }
}

impl<T> From<TypedResponse<T>> for Result<Response<Body>, HttpError> {
    fn from(reply: TypedResponse<T>) -> Self {
        Ok(reply.response)
    }
}

impl<T: JsonSchema + Serialize + Send + Sync + 'static> HttpCodedResponse for TypedResponse<T> {
    type Body = T;
    const STATUS_CODE: StatusCode = StatusCode::OK;
    const DESCRIPTION: &'static str = "successful operation";
}

/// A future that returns a panic of the inner future as an error.
pub(super) struct PanicCatcher<F>(pub(super) F);

impl<F: Future + Unpin> Future for PanicCatcher<F> {
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
        let result = PanicCatcher(pin!(async { panic!("seen in a test") })).await;
        let panic = result.map(|(): ()| ()).expect_err("a panic");
        assert_eq!(panic_text(panic.as_ref()), "seen in a test");
    }

    #[test]
    fn an_unknown_key_gets_the_header_www_authenticate() {
        let response = error_response(&Error::InvalidKey);
        assert_eq!(response.status(), 401);
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        assert_eq!(response.headers()["content-type"], "application/json");
    }
}
