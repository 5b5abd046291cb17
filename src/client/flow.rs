//! The body of an answer as it arrives, and the limit on its silence.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;

use super::Error;
use super::clock::ReadIdleTimer;
use super::session::Session;

/// Ours: the longest time from the last event to the end of the answer. A client that leaves earlier seems to give up.
pub(super) const END_LIMIT: Duration = Duration::from_secs(1);

#[cfg(not(target_arch = "wasm32"))]
type HttpBodyStream = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;
#[cfg(target_arch = "wasm32")]
type HttpBodyStream = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>>>>;

/// The body of an answer, read as it arrives.
pub(super) struct HttpBodyReader {
    /// Dropped at the end, because that ends the request.
    body: Option<HttpBodyStream>,
    silence: ReadIdleTimer,
    /// True after the last event: from then on a heartbeat no longer counts as progress.
    is_ending: bool,
}

/// The next event of the body.
pub(super) enum HttpBodyEvent {
    Bytes(Bytes),
    End,
    Failure(Error),
}

// === impl HttpBodyReader ===

impl HttpBodyReader {
    pub(super) fn new(response: Response, session: &Session) -> Self {
        let silence = ReadIdleTimer::new(session.limit().duration());
        Self { body: Some(Box::pin(response.bytes_stream())), silence, is_ending: false }
    }

    /// Notes that everything of interest has arrived: only the end of the answer is left.
    pub(super) fn end_soon(&mut self) {
        self.is_ending = true;
        self.silence = ReadIdleTimer::new(END_LIMIT);
    }

    pub(super) fn close(&mut self) {
        self.body = None;
    }

    pub(super) const fn is_over(&self) -> bool {
        self.body.is_none()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>, session: &Session) -> Poll<HttpBodyEvent> {
        let Some(body) = &mut self.body else { return Poll::Ready(HttpBodyEvent::End) };
        match body.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                if !self.is_ending {
                    self.silence.broken();
                }
                Poll::Ready(HttpBodyEvent::Bytes(bytes))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(HttpBodyEvent::Failure(Error::of_stream(error, session))),
            Poll::Ready(None) => Poll::Ready(HttpBodyEvent::End),
            Poll::Pending => self.silence.poll(cx).map(|()| HttpBodyEvent::Failure(Error::late(session))),
        }
    }
}

/// Returns true if the service answers as if no stream had been requested. Every other content type is read as events:
/// it can only be those, or an error.
pub(super) fn is_whole(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}
