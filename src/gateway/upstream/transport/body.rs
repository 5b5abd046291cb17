//! The bodies on both ways: the request's, which can be written again, and the answer's, which drives its connection.
//!
//! Decides: when a connection may carry another request.
//! Refuses to know: time. Whoever reads the answer decides how long a pause may be, and drops the body to end it.
//! Rules: the connection is polled from the body and nowhere else, so a frame crosses no task; a body that is dropped
//! early closes its socket at once; a body that broke off never ends cleanly (U06).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::budget::Tally;
use super::error::BodyError;
use super::exchange::Link;

/// The body of a request; a clone of it writes the same bytes again.
#[derive(Clone, Debug)]
pub(crate) enum RequestBody {
    /// All of it, in memory.
    InMemory(Bytes),
}

/// The body of an answer.
///
/// Its frames count against the budget until they are dropped, slices of them too. Above the budget the next frame comes
/// only when earlier ones are gone, so whoever keeps bytes while waiting for more of them keeps a copy.
pub(crate) struct ResponseBody {
    incoming: Incoming,
    tally: Arc<Tally>,
    link: Option<Link>,
    ended: bool,
}

// === impl RequestBody ===

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::InMemory(bytes)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self::InMemory(bytes) = self.get_mut();
        let rest = std::mem::take(bytes);
        Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))))
    }

    fn is_end_stream(&self) -> bool {
        let Self::InMemory(bytes) = self;
        bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let Self::InMemory(bytes) = self;
        SizeHint::with_exact(bytes.len() as u64)
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    pub(super) fn new(incoming: Incoming, tally: Arc<Tally>, link: Option<Link>) -> Self {
        let mut body = Self { incoming, tally, link, ended: false };
        if body.incoming.is_end_stream() {
            body.finish();
        }
        body
    }

    /// The body is whole, so its connection may be free.
    fn finish(&mut self) {
        self.ended = true;
        self.tally.complete();
        if let Some(link) = self.link.take() {
            link.release();
        }
    }

    /// What of an item goes on.
    fn settle(&mut self, item: Option<Result<Frame<Bytes>, BodyError>>) -> Option<Result<Frame<Bytes>, BodyError>> {
        match item {
            Some(Ok(frame)) => {
                // Trailers are the upstream's own talk, and nobody behind this asks for them.
                let data = frame.into_data().ok()?;
                if self.incoming.is_end_stream() {
                    self.finish();
                }
                Some(Ok(Frame::data(self.tally.count(data))))
            }
            Some(Err(error)) => {
                (self.ended, self.link) = (true, None);
                Some(Err(error))
            }
            None => {
                self.finish();
                None
            }
        }
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // Frames come only while the connection is polled, which is here: a waker would only wake this very task again.
        let mut nobody = Context::from_waker(Waker::noop());
        let mut polled = Pin::new(&mut self.incoming).poll_frame(&mut nobody);
        if polled.is_pending() {
            let Some(link) = &mut self.link else { return Poll::Ready(Some(Err(BodyError::truncated()))) };
            if link.poll(cx).is_ready() {
                self.link = None;
            }
            polled = Pin::new(&mut self.incoming).poll_frame(&mut nobody);
        }
        match ready!(polled) {
            Some(frame) => Poll::Ready(Some(frame.map_err(BodyError::of))),
            None if self.incoming.size_hint().lower() > 0 => Poll::Ready(Some(Err(BodyError::truncated()))),
            None => Poll::Ready(None),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        while !this.ended {
            let item = ready!(this.poll_incoming(cx));
            if let Some(item) = this.settle(item) {
                return Poll::Ready(Some(item));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("ended", &self.ended).finish_non_exhaustive()
    }
}
