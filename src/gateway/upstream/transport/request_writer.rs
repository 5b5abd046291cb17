//! Writes a request: its head, and its body as it is read.
//!
//! Rules: the head states the length of the body, and the body is never longer or shorter.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::{Method, Request};
use http_body::Body as _;
use tokio::io::AsyncWrite;

use super::body::RequestBody;

/// A request that is being written.
#[derive(Debug)]
pub(super) struct RequestWriter {
    head: Bytes,
    body: RequestBody,
    /// The bytes of the body that were read and not yet written.
    data: Bytes,
    /// The number of bytes of the body that were not yet read.
    unread: u64,
}

// === impl RequestWriter ===

impl RequestWriter {
    /// Makes the head of a request whose target, host and length have the form on the wire.
    pub(super) fn new(request: &Request<RequestBody>) -> Self {
        let (body, unread) = (request.body().clone(), request.body().size_hint().lower());
        let mut head = Vec::with_capacity(512);
        head.extend_from_slice(request.method().as_str().as_bytes());
        head.push(b' ');
        head.extend_from_slice(request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).as_bytes());
        head.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in request.headers() {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
        if unread > 0 || matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
            head.extend_from_slice(format!("content-length: {unread}\r\n").as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        Self { head: head.into(), body, data: Bytes::new(), unread }
    }

    /// Writes as much as possible; ready when the whole request is written.
    pub(super) fn poll(&mut self, mut stream: Pin<&mut impl AsyncWrite>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let read = self.poll_next_data(cx)?;
            if self.head.is_empty() && self.data.is_empty() {
                ready!(read);
                return stream.poll_flush(cx);
            }
            let parts = [IoSlice::new(&self.head), IoSlice::new(&self.data)];
            // A stream that writes one part at a time takes the first one that is not empty.
            let written = ready!(stream.as_mut().poll_write_vectored(cx, &parts))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = written.min(self.head.len());
            self.head.advance(of_head);
            self.data.advance(written - of_head);
        }
    }

    /// Reads the next data of the body if the last ones were written.
    fn poll_next_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.data.is_empty() || self.unread == 0 {
            return Poll::Ready(Ok(()));
        }
        let wrong_length =
            || io::Error::new(io::ErrorKind::InvalidInput, "the request has not the length that it states");
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)).ok_or_else(wrong_length)??;
        self.data = frame.into_data().map_err(|_| wrong_length())?;
        self.unread = self.unread.checked_sub(self.data.len() as u64).ok_or_else(wrong_length)?;
        Poll::Ready(Ok(()))
    }
}
