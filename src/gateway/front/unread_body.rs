//! The unread rest of a request body whose request was answered early.
//!
//! If a server answers early and closes the connection, some clients lose the answer: they are still writing, and
//! report the closed connection instead. Therefore the unread body is kept here, and drained within limits while the
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

use super::request_admission::current_admission;
use crate::gateway::admission::{Admission, ByteShare};

/// The maximum number of drained bytes (our choice). The connection of a client that sends more is closed.
const DRAIN_MAX_BYTES: usize = 64 * 1024 * 1024;
/// The same limit for requests whose sender is not known, which must not make the gateway read much (our choice).
const DRAIN_MAX_BYTES_UNAUTHENTICATED: usize = 64 * 1024;
/// The memory of a connection while its body is drained, in bytes: two small reads.
const DRAIN_MEMORY_BYTES: u64 = 16 * 1024;
/// The time limit on draining (our choice).
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// A handle that gets the rest of a request body when its reader is dropped before the end.
#[derive(Clone, Default)]
pub(crate) struct UnreadBody {
    rest: Arc<Mutex<Option<Body>>>,
    admission: Option<Admission>,
}

/// The body of a request, which goes to its [`UnreadBody`] when it is dropped before the end.
struct RecoverableBody {
    body: Option<Body>,
    unread: UnreadBody,
    /// True if the client sends the body only once it is read (`Expect: 100-continue`), and nothing was read yet.
    /// Draining would make hyper ask for the body.
    is_held_by_client: bool,
}

// === impl UnreadBody ===

impl UnreadBody {
    /// Wraps the body of a request; the returned handle gets the rest of the body if it is not read to its end.
    pub(super) fn wrap_request(request: hyper::Request<Body>) -> (hyper::Request<Body>, Self) {
        let unread = Self { rest: Arc::default(), admission: current_admission() };
        let handle = unread.clone();
        let is_held_by_client = request.headers().contains_key(EXPECT);
        let wrap = |body| Body::wrap(RecoverableBody { body: Some(body), unread: handle, is_held_by_client });
        (request.map(wrap), unread)
    }

    /// Returns the body of an answer, and drains the rest of the request in a separate task, so that the answer is
    /// complete at once and has a length. If there is no memory for that, the connection is closed.
    pub(super) fn respond_and_drain(&self, answer: Bytes) -> Body {
        let Some(body) = self.take() else { return Body::from(answer) };
        let is_authenticated = self.admission.as_ref().is_some_and(|admission| admission.principal().is_some());
        let max_bytes = if is_authenticated { DRAIN_MAX_BYTES } else { DRAIN_MAX_BYTES_UNAUTHENTICATED };
        let memory = self.admission.as_ref().map(|admission| {
            admission.note_drain();
            let mut memory = admission.memory();
            memory.set_bytes(DRAIN_MEMORY_BYTES).map(|()| memory)
        });
        if let Ok(memory) = memory.transpose() {
            drop(Handle::current().spawn(drain(body, max_bytes, memory)));
        }
        Body::from(answer)
    }

    fn take(&self) -> Option<Body> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl http_body::Body for RecoverableBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.is_held_by_client = false;
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
        if let Some(body) = self.body.take().filter(|body| !self.is_held_by_client && !body.is_end_stream()) {
            *self.unread.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

/// Drains the rest of a request body, until its end, the time limit, or the first frame beyond this number of bytes.
async fn drain(mut body: Body, mut remaining_bytes: usize, _memory: Option<ByteShare>) {
    let read_frames = async {
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            match remaining_bytes.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(remaining) => remaining_bytes = remaining,
                None => return,
            }
        }
    };
    drop(timeout(DRAIN_TIMEOUT, read_frames).await);
}

#[cfg(test)]
mod tests;
