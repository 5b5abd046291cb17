//! The body of a request as the connection gives it to a handler, and its rest if the handler does not read it.
//!
//! This is the one place that decides what an early answer means for its connection: a small rest is read, so that the
//! connection serves another request; otherwise the connection ends after the answer. The rest is then discarded by the
//! connection itself (`front/served_connection.rs`), whoever has refused the request.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::EXPECT;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::client_connection::ClientConnection;
use crate::gateway::admission::Admission;

/// The maximum size of the read buffer of one connection, in bytes (our choice). The buffer grows with a fast sender
/// and stays for the life of the connection, so it must be small enough for hundreds of connections; hyper's default is
/// 408 KiB.
pub(super) const READ_BUFFER_MAX: usize = 128 * 1024;
/// The maximum size of a rest that is read before the answer, in bytes (our choice): that of a request without files.
const SMALL_REST_MAX: u64 = 64 * 1024;
/// The time in which a small rest must come (our choice). Most clients send it together with the head.
const SMALL_REST_TIMEOUT: Duration = Duration::from_millis(50);

/// The body of a request, which records when a reader waits for more bytes.
pub(super) struct RequestBody {
    /// `None` after the end.
    body: Option<Incoming>,
    /// Takes the rest when this body is dropped; `None` if there is no rest.
    rest: Option<oneshot::Sender<Incoming>>,
    connection: Arc<ClientConnection>,
    admission: Admission,
    /// True if a large read buffer was asked for.
    has_asked: bool,
}

/// The rest of a request body that its handler has not read.
pub(super) struct UnreadBody {
    /// `None` if the request has no body.
    rest: Option<oneshot::Receiver<Incoming>>,
    /// True if the client sends the body only when it is asked for (`Expect: 100-continue`). hyper asks for it when it
    /// is read.
    is_held_by_client: bool,
    connection: Arc<ClientConnection>,
}

// === impl RequestBody ===

impl RequestBody {
    /// Wraps the body of a request with these headers. The second value gets what is not read of it.
    pub(super) fn new(
        body: Incoming,
        headers: &HeaderMap,
        connection: &Arc<ClientConnection>,
        admission: &Admission,
    ) -> (Self, UnreadBody) {
        let (sender, receiver) = if body.is_end_stream() { (None, None) } else { Some(oneshot::channel()).unzip() };
        let (connection, admission) = (Arc::clone(connection), admission.clone());
        let rest = UnreadBody {
            rest: receiver,
            is_held_by_client: headers.contains_key(EXPECT),
            connection: Arc::clone(&connection),
        };
        (Self { body: Some(body), rest: sender, connection, admission, has_asked: false }, rest)
    }

    /// Lets the bytes of a body that is still arriving be read in large pieces if there is memory for them.
    fn choose_reads(&mut self) {
        if !self.has_asked && self.admission.principal().is_some() {
            self.has_asked = true;
            self.connection.activity.set_large_reads(self.admission.hold_read_buffer(READ_BUFFER_MAX as u64));
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        match &frame {
            Poll::Pending => {
                self.connection.activity.record_body_wait();
                self.choose_reads();
            }
            Poll::Ready(data) => {
                self.connection.activity.record_body_read();
                if data.is_none() {
                    (self.body, self.rest) = (None, None);
                }
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(body), Some(rest)) = (self.body.take(), self.rest.take())
            && !body.is_end_stream()
        {
            // Without a receiver, the connection is gone.
            drop(rest.send(body));
        }
    }
}

// === impl UnreadBody ===

impl UnreadBody {
    /// Returns true if the body was read to its end, or is so after its small rest was read. Otherwise the connection must end
    /// after the answer.
    pub(super) async fn finish(self) -> bool {
        let Some(mut rest) = self.rest else { return true };
        match rest.try_recv() {
            Err(oneshot::error::TryRecvError::Closed) => true,
            // A task still holds the body.
            Err(oneshot::error::TryRecvError::Empty) => false,
            Ok(_) if self.is_held_by_client => false,
            Ok(body) => {
                let is_small = body.size_hint().upper().is_some_and(|bytes| bytes <= SMALL_REST_MAX);
                is_small && timeout(SMALL_REST_TIMEOUT, skip_body(body, &self.connection)).await.unwrap_or(false)
            }
        }
    }
}

/// Reads a body to its end; false if it breaks off. Meanwhile the connection counts as one that reads a body, which may be
/// evicted.
async fn skip_body(mut body: Incoming, connection: &ClientConnection) -> bool {
    loop {
        let frame = poll_fn(|cx| {
            let frame = Pin::new(&mut body).poll_frame(cx);
            match &frame {
                Poll::Pending => connection.activity.record_body_wait(),
                Poll::Ready(_) => connection.activity.record_body_read(),
            }
            frame
        });
        match frame.await {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok(_)) => {}
        }
    }
}
