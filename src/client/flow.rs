//! The body of an answer, as it comes, and how long it may be silent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;

use super::Error;
use super::clock::Silence;
use super::session::Session;

/// Ours: how long the end of the answer may lag behind its last event. Who leaves before it looks like one who gave up.
pub(super) const END_LIMIT: Duration = Duration::from_secs(1);

#[cfg(not(target_arch = "wasm32"))]
type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;
#[cfg(target_arch = "wasm32")]
type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>>>>;

/// The bytes of an answer.
pub(super) struct Flow {
    /// Dropped at the end, because that is what ends the request.
    body: Option<Body>,
    silence: Silence,
    /// A heartbeat says that somebody is still at work; at the end nobody is.
    is_ending: bool,
}

/// What happens to the body next.
pub(super) enum Next {
    Bytes(Bytes),
    End,
    Failure(Error),
}

// === impl Flow ===

impl Flow {
    pub(super) fn new(response: Response, session: &Session) -> Self {
        let silence = Silence::new(session.limit().duration());
        Self { body: Some(Box::pin(response.bytes_stream())), silence, is_ending: false }
    }

    /// Everything that matters was there: what is left is the end of the answer.
    pub(super) fn end_soon(&mut self) {
        self.is_ending = true;
        self.silence = Silence::new(END_LIMIT);
    }

    pub(super) fn close(&mut self) {
        self.body = None;
    }

    pub(super) const fn is_over(&self) -> bool {
        self.body.is_none()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>, session: &Session) -> Poll<Next> {
        let Some(body) = &mut self.body else { return Poll::Ready(Next::End) };
        match body.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                if !self.is_ending {
                    self.silence.broken();
                }
                Poll::Ready(Next::Bytes(bytes))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Next::Failure(Error::of_stream(error, session))),
            Poll::Ready(None) => Poll::Ready(Next::End),
            Poll::Pending => self.silence.poll(cx).map(|()| Next::Failure(Error::late(session))),
        }
    }
}

/// Whether the service answers as if no stream had been asked for. Everything else is read as events: it can only be
/// those, or an error.
pub(super) fn is_whole(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}
