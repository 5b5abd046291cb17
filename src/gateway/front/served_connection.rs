//! One connection: HTTP/1 over its socket, with deadlines for request heads, idle connections and blocked writes. The
//! deadline for request bodies is in `front/body.rs`.
//!
//! A connection whose last request was answered before its body was read is closed in three steps: the writing side is
//! closed after the answer, what the client still sends is discarded within limits of time and number, and then the
//! socket is closed. If it were closed at once, a client that is still sending would lose the answer.
//!
//! hyper has a deadline for request heads only. Here, one timer for each connection covers three cases: a head that
//! does not arrive, an idle connection, and a peer that takes no byte of the data to be written. The timer belongs to
//! the task of the connection, so it runs even if the body of an answer is not polled.

use std::convert::Infallible;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dropshot::Body;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until, timeout};

use super::client_connection::ClientConnection;
use super::connection_activity::{ConnectionState, PassedDeadline};
use super::connections::ConnectionSlot;
use super::cors::CorsSettings;
use super::dispatch::RequestDispatcher;
use super::request_body::{READ_BUFFER_MAX, RequestBody};
use crate::gateway::admission::{Admission, ByteShare};

/// The most bytes that are read at once unless the sender is known and its body is still arriving (our choice): the first
/// size of hyper's read buffer, which grows only with larger reads.
const SMALL_READ_MAX: usize = 8 * 1024;
/// The maximum size of the head of a request, in bytes (our choice): that of common servers.
const HEAD_MAX: usize = 16 * 1024;

/// The most bytes that are discarded at once (our choice). They are on the stack.
const DISCARD_BYTES: usize = 16 * 1024;
/// The time for which the rest of a request is discarded after a stop was requested, in milliseconds (our choice).
const STOPPED_DISCARD_MILLIS: u64 = 1_000;
/// The time for which a new connection may still send its first request after a stop was requested, in milliseconds (our
/// choice): its client cannot know of the stop.
const FIRST_REQUEST_MILLIS: u64 = 1_000;

/// A socket that records its reads and writes in the activity of the connection.
struct ClientSocket {
    stream: TcpStream,
    connection: Arc<ClientConnection>,
}

/// The service that answers the requests of one connection.
struct ConnectionService<C: CorsSettings> {
    dispatcher: Arc<RequestDispatcher<C>>,
    connection: Arc<ClientConnection>,
    remote: SocketAddr,
}

/// The body of an answer, which records the end of the request when it is dropped.
struct AnswerBody {
    body: Body,
    connection: Arc<ClientConnection>,
    admission: Admission,
    /// The error that ends the body. It is held back until all bytes before it are written.
    error: Option<<Body as http_body::Body>::Error>,
}

/// A connection that is being served.
struct ServedConnection<'a, C: CorsSettings> {
    http: Pin<&'a mut ClientHttpConnection<C>>,
    slot: &'a ConnectionSlot,
    dispatcher: &'a RequestDispatcher<C>,
    /// The share for the head that is arriving.
    head_memory: Option<ByteShare>,
    timer: Pin<&'a mut Sleep>,
    /// The time for which the timer is set, as `ConnectionTable::now` counts it.
    timer_set_for: u64,
    /// The time at which the connection is closed if it serves no request then; `None` before a stop.
    closes_at: Option<u64>,
    /// True if what comes is discarded.
    is_closing: bool,
    /// True if the connection ends with the running request.
    is_stopping: bool,
}

type ClientHttpConnection<C> = http1::Connection<TokioIo<ClientSocket>, ConnectionService<C>>;

/// Sends this answer to a connection that is not served, and closes it as one whose request was not read.
pub(super) async fn refuse(stream: TcpStream, slot: ConnectionSlot, answer: String) {
    let (connection, deadlines) = (slot.connection(), slot.connections().deadlines);
    let mut socket = ClientSocket { stream, connection: Arc::clone(connection) };
    let send = async {
        socket.stream.write_all(answer.as_bytes()).await?;
        socket.stream.shutdown().await?;
        std::future::poll_fn(|cx| socket.poll_discard(cx)).await
    };
    let mut closed = pin!(timeout(deadlines.discard_idle, send));
    // The other end of the connection has no part in the result.
    let until_evicted = std::future::poll_fn(|cx| {
        connection.register_waker(cx);
        if connection.is_evicted() { Poll::Ready(()) } else { closed.as_mut().poll(cx).map(drop) }
    });
    until_evicted.await;
}

/// Serves a connection until it is closed.
pub(super) async fn serve<C: CorsSettings>(
    stream: TcpStream,
    remote: SocketAddr,
    slot: ConnectionSlot,
    dispatcher: Arc<RequestDispatcher<C>>,
) {
    let reason = serve_http(stream, remote, &slot, dispatcher).await;
    slot.connection().end_delivery();
    slot.count_closed(reason);
}

/// Serves the requests of a connection, and closes its socket; the result is the label of the reason in the metrics.
async fn serve_http<C: CorsSettings>(
    stream: TcpStream,
    remote: SocketAddr,
    slot: &ConnectionSlot,
    dispatcher: Arc<RequestDispatcher<C>>,
) -> &'static str {
    let connection = slot.connection();
    let socket = TokioIo::new(ClientSocket { stream, connection: Arc::clone(connection) });
    let service = ConnectionService { dispatcher: Arc::clone(&dispatcher), connection: Arc::clone(connection), remote };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(READ_BUFFER_MAX).max_header_size(HEAD_MAX);
    let http = pin!(builder.serve_connection(socket, service));
    let timer_set_for = slot.connections().now();
    let timer = pin!(sleep_until(slot.connections().instant(timer_set_for)));
    let mut served = ServedConnection {
        http,
        slot,
        dispatcher: &dispatcher,
        head_memory: None,
        timer,
        timer_set_for,
        closes_at: None,
        is_closing: false,
        is_stopping: false,
    };
    std::future::poll_fn(|cx| served.poll(cx)).await
}

// === impl ServedConnection ===

impl<C: CorsSettings> ServedConnection<'_, C> {
    /// Drives the connection until it is to be closed; the result is the label of the reason in the metrics.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        let (connection, connections) = (self.slot.connection(), self.slot.connections());
        connection.register_waker(cx);
        if self.poll_http(cx).is_ready() {
            return Poll::Ready("done");
        }
        if connection.activity.is_closing() && !self.is_closing {
            self.is_closing = true;
            self.slot.begin_closing();
            self.closes_at = self.closes_at.map(|_| connections.now() + STOPPED_DISCARD_MILLIS);
        }
        if !self.charge_head() {
            return Poll::Ready("refused");
        }
        if connection.is_stopping() && !self.is_stopping && self.poll_stop(cx).is_ready() {
            return Poll::Ready("stopped");
        }
        if connection.is_evicted() {
            if connection.activity.eviction_rank(connections.now()).is_some() {
                return Poll::Ready("evicted");
            }
            self.slot.cancel_eviction();
        }
        self.poll_deadline(cx).map(|deadline| match deadline {
            PassedDeadline::Head => "head_timeout",
            PassedDeadline::Idle => "idle_timeout",
            PassedDeadline::Write => "write_timeout",
            PassedDeadline::Discard => "discard_timeout",
            PassedDeadline::FirstRequest => "stopped",
        })
    }

    /// Lets the connection end with its running request, or at once if its time for a first one is over.
    fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (connection, now) = (self.slot.connection(), self.slot.connections().now());
        let closes_at = *self.closes_at.get_or_insert(now + FIRST_REQUEST_MILLIS);
        if connection.activity.state().0 == ConnectionState::New && now < closes_at {
            // hyper's graceful shutdown would close a new connection at once.
            return Poll::Pending;
        }
        self.is_stopping = true;
        self.http.as_mut().graceful_shutdown();
        self.poll_http(cx)
    }

    /// Charges the bytes of a head that is not complete. Returns false if the connection must be closed, because the heads
    /// from its address use all the memory that they may use.
    fn charge_head(&mut self) -> bool {
        let connection = self.slot.connection();
        let bytes = connection.activity.head_bytes();
        if bytes == 0 {
            self.head_memory = None;
            return true;
        }
        let begin = || self.dispatcher.request_budgets().head_memory(connection.limited_address());
        match self.head_memory.get_or_insert_with(begin).try_set_bytes(bytes as u64) {
            Ok(()) => true,
            Err(exceeded) => !exceeded.is_own() && self.slot.connections().evict_for_memory(),
        }
    }

    fn poll_http(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let activity = &self.slot.connection().activity;
        activity.begin_poll();
        let result = self.http.as_mut().poll(cx);
        activity.end_poll(self.slot.connections().now());
        // Errors are ignored, because the peer causes them: it sent invalid data, or it closed the connection.
        result.map(drop)
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<PassedDeadline> {
        let (connection, connections) = (self.slot.connection(), self.slot.connections());
        loop {
            let is_unused = matches!(connection.activity.state().0, ConnectionState::New | ConnectionState::Closing);
            let closes_at = self.closes_at.filter(|_| is_unused).map(|at| (at, PassedDeadline::FirstRequest));
            let deadlines = [closes_at, connection.activity.next_deadline(&connections.deadlines)];
            let deadlines = deadlines.into_iter().flatten().map(|(due_at, deadline)| (due_at, Some(deadline)));
            let now = connections.now();
            let delivery = connection.check_delivery(now).map(|due_at| (due_at, None));
            let Some((due_at, deadline)) = deadlines.chain(delivery).min_by_key(|(due_at, _)| *due_at) else {
                return Poll::Pending;
            };
            if let Some(deadline) = deadline.filter(|_| due_at <= now) {
                return Poll::Ready(deadline);
            }
            // The timer is not moved to a later time before it fires: that is cheaper than setting it for each request.
            if due_at < self.timer_set_for || self.timer.is_elapsed() {
                self.timer.as_mut().reset(connections.instant(due_at));
                self.timer_set_for = due_at;
            }
            ready!(self.timer.as_mut().poll(cx));
        }
    }
}

// === impl ClientSocket ===

impl ClientSocket {
    /// Discards what the client sends, until it closes its side.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        loop {
            let mut space = [MaybeUninit::uninit(); DISCARD_BYTES];
            let mut bytes = ReadBuf::uninit(&mut space);
            let result = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut bytes));
            self.record_result(&result);
            result?;
            if bytes.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.connection.activity.record_discard();
        }
    }

    fn record_write_result(&self, written: Poll<std::io::Result<usize>>) -> Poll<std::io::Result<usize>> {
        match &written {
            Poll::Pending => self.connection.activity.record_blocked_write(),
            Poll::Ready(result) => {
                self.connection.activity.record_write();
                self.record_result(result);
            }
        }
        written
    }

    fn record_result<T>(&self, result: &std::io::Result<T>) {
        if result.is_err() {
            self.connection.record_break();
        }
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        // A reset that came after the last read.
        if !matches!(self.stream.take_error(), Ok(None)) {
            self.connection.record_break();
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let result = if buffer.remaining() <= SMALL_READ_MAX || self.connection.activity.reads_large() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))
        } else {
            let mut small = ReadBuf::new(buffer.initialize_unfilled_to(SMALL_READ_MAX));
            let result = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut small));
            let length = small.filled().len();
            buffer.advance(length);
            result
        };
        self.record_result(&result);
        result?;
        self.connection.activity.record_read(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.record_write_result(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.record_write_result(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if !self.connection.activity.is_closing() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            if !self.connection.activity.begin_closing(self.connection.checks_delivery()) {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_discard(cx)
    }
}

// === impl ConnectionService ===

impl<C: CorsSettings> hyper::service::Service<Request<Incoming>> for ConnectionService<C> {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.connection.activity.record_request_start();
        self.connection.confirm_delivery();
        let (dispatcher, connection, remote) =
            (Arc::clone(&self.dispatcher), Arc::clone(&self.connection), self.remote);
        let admission = dispatcher.begin_admission(remote, request.headers());
        let (parts, body) = request.into_parts();
        let (body, rest) = RequestBody::new(body, &parts.headers, &connection, &admission);
        let request = Request::from_parts(parts, Body::wrap(body));
        Box::pin(async move {
            let mut response = dispatcher.dispatch(request, remote, admission.clone()).await;
            if !rest.finish().await {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                connection.activity.record_unread_body();
            }
            Ok(response.map(|body| AnswerBody { body, connection, admission, error: None }))
        })
    }
}

// === impl AnswerBody ===

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.error.is_none() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Err(error)) => self.error = Some(error),
                frame => return Poll::Ready(frame),
            }
            // If a body fails, hyper drops the bytes that it has not written. If a body is pending, hyper writes them.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.connection.activity.is_blocked() {
            // hyper polls the body again after the socket has taken all bytes.
            return Poll::Pending;
        }
        Poll::Ready(self.error.take().map(Err))
    }

    fn is_end_stream(&self) -> bool {
        self.error.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        // The body leaves its report when it is dropped.
        self.body = Body::empty();
        if let Some(report) = self.admission.take_delivery() {
            self.connection.hold_delivery(report);
        }
        self.admission.end();
        self.connection.activity.record_request_end();
    }
}
