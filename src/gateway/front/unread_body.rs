//! The unread rest of a request that was answered early.
//!
//! If a server answers early and closes the connection, some clients lose the answer: they are still writing, find the
//! connection closed, and report that instead. So the unread body returns here, and is drained within limits while the
//! answer is being sent.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use dropshot::Body;
use http::header::EXPECT;
use http_body::{Body as _, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The limit on the drained bytes (our choice): a client that goes on writing beyond it has to see the connection close.
const DRAIN_MAX_BYTES: usize = 64 * 1024 * 1024;
/// The same limit for a request without a valid key, which must not make the gateway read much.
const DRAIN_MAX_BYTES_UNAUTHENTICATED: usize = 64 * 1024;
/// The time limit on draining.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// The place that an unread body returns to.
#[derive(Clone, Default)]
pub(crate) struct UnreadBody(Arc<Mutex<Option<Body>>>);

/// The body of a request, which returns to its place if the reader stops before the end.
struct RecoverableBody {
    body: Option<Body>,
    unread: UnreadBody,
}

// === impl UnreadBody ===

impl UnreadBody {
    /// The same request, whose body returns to the place if it is not read.
    pub(super) fn capture_from(request: hyper::Request<Body>) -> (hyper::Request<Body>, Self) {
        let unread = Self::default();
        // A client that asks first whether to send the body has not sent it, and must not be told to send it.
        if request.headers().contains_key(EXPECT) {
            return (request, unread);
        }
        let return_to = unread.clone();
        (request.map(|body| Body::wrap(RecoverableBody { body: Some(body), unread: return_to })), unread)
    }

    /// A body for the answer. The rest of the request is drained in parallel: an answer that lasted until then would
    /// have no length, and would be cut if the connection ended meanwhile. `is_known` is true if the request had a
    /// valid key.
    pub(super) fn respond_and_drain(&self, answer: Bytes, is_authenticated: bool) -> Body {
        let max_bytes = if is_authenticated { DRAIN_MAX_BYTES } else { DRAIN_MAX_BYTES_UNAUTHENTICATED };
        if let Some(rest) = self.take() {
            drop(Handle::current().spawn(drain(rest, max_bytes)));
        }
        Body::from(answer)
    }

    fn take(&self) -> Option<Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl http_body::Body for RecoverableBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for RecoverableBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.unread.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

/// Drains at most this many bytes of the rest of a request.
async fn drain(mut rest: Body, mut remaining_bytes: usize) {
    let reading = async {
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {
            match remaining_bytes.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(left) => remaining_bytes = left,
                None => return,
            }
        }
    };
    drop(timeout(DRAIN_TIMEOUT, reading).await);
}

#[cfg(test)]
mod tests;
