//! The transport: what carries each attempt of a call, between the rules of retries above it and HTTP below it.
//!
//! This module defines the trait that a program implements to trace, record or replace the HTTP exchanges of a client.
//! It must not decide whether a request is sent again; it only keeps what that decision needs: whether a failed request
//! was certainly not sent.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use reqwest::{Request, Response};

use super::retry;

/// The future of [`Transport::send`].
#[cfg(not(target_arch = "wasm32"))]
pub type TransportFuture<'a> = Pin<Box<dyn Future<Output = Result<Response, TransportError>> + Send + 'a>>;
/// The future of [`Transport::send`]. It is not `Send`, because a request of a browser stays on its thread.
#[cfg(target_arch = "wasm32")]
pub type TransportFuture<'a> = Pin<Box<dyn Future<Output = Result<Response, TransportError>> + 'a>>;

/// Carries the HTTP exchanges of a client; for tracing, recording and tests. Set with
/// [`Builder::transport`](super::Builder::transport).
///
/// Every attempt of every call passes through the transport, also each retry. An attempt ends for the transport when the
/// head of the answer is there; the body follows while the caller reads it.
///
/// ```
/// use std::time::Instant;
/// use imagate::client::reqwest::{self, Request};
/// use imagate::client::{Client, Transport, TransportFuture};
///
/// /// Prints the status and the duration of each attempt.
/// struct AttemptLog;
///
/// impl Transport for AttemptLog {
///     fn send<'a>(&'a self, request: Request, http: &'a reqwest::Client) -> TransportFuture<'a> {
///         Box::pin(async move {
///             let (line, start) = (format!("{} {}", request.method(), request.url()), Instant::now());
///             let result = http.execute(request).await;
///             match &result {
///                 Ok(response) => eprintln!("{line}: {} after {:?}", response.status(), start.elapsed()),
///                 Err(error) => eprintln!("{line}: {error} after {:?}", start.elapsed()),
///             }
///             Ok(result?)
///         })
///     }
/// }
///
/// let builder = Client::builder().base_url("https://images.example").api_key("sk-img-…");
/// let client = builder.transport(AttemptLog).build()?;
/// # Ok::<(), imagate::client::Error>(())
/// ```
///
/// A transport that answers itself makes a [`Response`] from an `http::Response`. It should keep to the time limit of
/// [`Request::timeout`].
pub trait Transport: Send + Sync + 'static {
    /// Sends the request once, and returns the answer as soon as its head is there, whatever its status is.
    ///
    /// `http` is the HTTP client of the client, with its time limits and without redirects, or that of
    /// [`Builder::http_client`](super::Builder::http_client). A transport that only observes sends the request with it.
    ///
    /// The request has all its headers. Those with a secret are marked as sensitive, so `Debug` does not print them.
    /// [`Body::as_bytes`](reqwest::Body::as_bytes) has a body of JSON; a form with files is read while it is sent.
    ///
    /// # Errors
    ///
    /// Images are paid for, so a request counts as sent unless the error says that it was not: one of
    /// [`TransportError::not_sent`], or a [`reqwest::Error`] of a connection that was not made.
    fn send<'a>(&'a self, request: Request, http: &'a reqwest::Client) -> TransportFuture<'a>;
}

/// The reason why a transport returned no answer.
#[derive(Debug)]
pub struct TransportError(TransportFailure);

#[derive(Debug)]
enum TransportFailure {
    Http(reqwest::Error),
    NotSent(Box<dyn StdError + Send + Sync>),
    Unknown(Box<dyn StdError + Send + Sync>),
}

// === impl Transport ===

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn send<'a>(&'a self, request: Request, http: &'a reqwest::Client) -> TransportFuture<'a> {
        (**self).send(request, http)
    }
}

// === impl TransportError ===

impl TransportError {
    /// Creates the error of a request of which certainly nothing arrived at a service. The client may send it again.
    ///
    /// A transport that sends a request more than once returns it only if this is true of each time.
    pub fn not_sent(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(TransportFailure::NotSent(source.into()))
    }

    /// Creates the error of a request that may have arrived: an image may have been made and paid for.
    pub fn unknown(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(TransportFailure::Unknown(source.into()))
    }

    /// Returns true if nothing of the request arrived at a service.
    #[must_use]
    pub fn was_never_sent(&self) -> bool {
        match &self.0 {
            TransportFailure::Http(error) => retry::was_never_sent(error),
            TransportFailure::NotSent(_) => true,
            TransportFailure::Unknown(_) => false,
        }
    }

    /// Returns the error of the HTTP library, or this error if a transport made it.
    pub(super) fn into_http(self) -> Result<reqwest::Error, Self> {
        match self.0 {
            TransportFailure::Http(error) => Ok(error),
            failure @ (TransportFailure::NotSent(_) | TransportFailure::Unknown(_)) => Err(Self(failure)),
        }
    }
}

impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        Self(TransportFailure::Http(error))
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TransportFailure::Http(error) => error.fmt(f),
            TransportFailure::NotSent(error) => write!(f, "the transport did not send the request: {error}"),
            TransportFailure::Unknown(error) => write!(f, "the transport failed: {error}"),
        }
    }
}

impl StdError for TransportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0 {
            TransportFailure::Http(error) => error.source(),
            TransportFailure::NotSent(error) | TransportFailure::Unknown(error) => Some(&**error),
        }
    }
}
