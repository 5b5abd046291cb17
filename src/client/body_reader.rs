//! The body of an answer as it arrives, and the limit on the time without data.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;

use super::Error;
use super::session::Session;
#[cfg(not(target_arch = "wasm32"))]
use super::sse::EVENT_MAX_BYTES;
use super::timer::ReadIdleTimer;

/// The maximum time that the client waits for the end of the answer after the last event (our choice). It does not
/// close the connection at the last event, because the service would then take it for a client that gave up.
pub(super) const END_LIMIT: Duration = Duration::from_secs(1);

#[cfg(not(target_arch = "wasm32"))]
type HttpBodyStream = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;
#[cfg(target_arch = "wasm32")]
type HttpBodyStream = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>>>>;

/// The body of an answer, read as it arrives.
pub(super) struct HttpBodyReader {
    /// `None` after the end: dropping the body ends the request.
    body: Option<HttpBodyStream>,
    idle_timer: ReadIdleTimer,
    /// The time until the deadline of the call, if it has one.
    deadline_timer: Option<ReadIdleTimer>,
    /// True after the last event: from then on no data, such as a heartbeat, extends the wait.
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
        let idle_timer = ReadIdleTimer::new(session.limit().duration());
        let deadline_timer = session.deadline().map(|deadline| ReadIdleTimer::new(deadline.time_left()));
        Self { body: Some(Box::pin(response.bytes_stream())), idle_timer, deadline_timer, is_ending: false }
    }

    /// Records that the last event has arrived. From now on only the end of the answer is waited for, for at most
    /// [`END_LIMIT`].
    pub(super) fn expect_end(&mut self) {
        self.is_ending = true;
        self.idle_timer = ReadIdleTimer::new(END_LIMIT);
    }

    pub(super) fn close(&mut self) {
        self.body = None;
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.body.is_none()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>, session: &Session) -> Poll<HttpBodyEvent> {
        let Some(body) = &mut self.body else { return Poll::Ready(HttpBodyEvent::End) };
        match body.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                if !self.is_ending {
                    self.idle_timer.restart();
                }
                Poll::Ready(HttpBodyEvent::Bytes(bytes))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(HttpBodyEvent::Failure(Error::from_stream(error, session))),
            Poll::Ready(None) => Poll::Ready(HttpBodyEvent::End),
            Poll::Pending if self.idle_timer.poll(cx).is_ready() => {
                Poll::Ready(HttpBodyEvent::Failure(Error::timed_out(session)))
            }
            Poll::Pending => match &mut self.deadline_timer {
                Some(timer) => timer.poll(cx).map(|()| HttpBodyEvent::Failure(Error::deadline_exceeded(session))),
                None => Poll::Pending,
            },
        }
    }
}

/// Returns the whole body, in memory once.
#[cfg(not(target_arch = "wasm32"))]
pub(super) async fn read_body(mut response: Response, session: &Session) -> Result<Vec<u8>, Error> {
    // The stated length only avoids the growth of the buffer, so it need not be right.
    let length = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    let mut body = Vec::with_capacity(length.min(EVENT_MAX_BYTES));
    while let Some(bytes) = response.chunk().await.map_err(|error| Error::from_stream(error, session))? {
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

/// Returns the whole body.
#[cfg(target_arch = "wasm32")]
pub(super) async fn read_body(response: Response, session: &Session) -> Result<Vec<u8>, Error> {
    response.bytes().await.map(Vec::from).map_err(|error| Error::from_stream(error, session))
}

/// Returns true if the content type is JSON: the service then answers as if no stream had been requested. An answer of
/// any other content type is read as events.
pub(super) fn is_json_response(response: &Response) -> bool {
    let content_type =
        response.headers().get(CONTENT_TYPE).and_then(|content_type| content_type.to_str().ok()).unwrap_or_default();
    content_type.trim_start().to_ascii_lowercase().starts_with("application/json")
}
