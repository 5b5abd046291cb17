//! One request and its answer on one connection.
//!
//! The module writes the request, reads the answer, and decides whether the request was never begun and whether its
//! connection may carry another one. It must not know how connections are made. Rules: a request is given back only if no
//! byte of it was written (U30); an answer that comes before the whole request is written is read, and the rest of the
//! request is written meanwhile; 1xx answers are skipped, and redirects are answers like any other (U27, U31); a head has
//! a limited number of headers and bytes (U33).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};

use super::answer_framing::AnswerFraming;
use super::answer_head::AnswerHead;
use super::body::{RequestBody, ResponseBody};
use super::buffer_budget::ExchangeState;
use super::error::{BodyError, ExchangeError, SendError, SendProgress};
use super::origin::UpstreamOrigin;
use super::pool::ConnectionPool;
use super::read_buffers::ReadBuffers;
use super::request_writer::RequestWriter;
use super::transport_stream::TransportStream;
use crate::gateway::admission::RequestBudgets;
use crate::gateway::content_coding::AnswerDecoder;

/// The parameters of an exchange, apart from its connection and request.
pub(super) struct ExchangeContext {
    pub(super) origin: UpstreamOrigin,
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) exchange_state: Arc<ExchangeState>,
    pub(super) buffers: Arc<ReadBuffers>,
    pub(super) max_head: usize,
    /// The budgets to which the decoders of the answer are charged.
    pub(super) budgets: Arc<RequestBudgets>,
}

/// The failure of an exchange that received no answer. It contains the request if no byte of it was written.
pub(super) struct ExchangeFailure {
    pub(super) error: SendError,
    pub(super) unsent: Option<Request<RequestBody>>,
}

/// The connection of an answer that is still being read.
pub(super) struct ActiveConnection {
    stream: TransportStream,
    /// The rest of the request; `None` if it was written, or cannot be written any more.
    writer: Option<RequestWriter>,
    /// True if the whole request was written.
    is_request_written: bool,
    /// The received bytes that were not yet taken.
    received: Bytes,
    buffers: Arc<ReadBuffers>,
    exchange_state: Arc<ExchangeState>,
    /// The place of the connection after the answer, if the answer allows another request.
    reuse_target: Option<(UpstreamOrigin, Arc<ConnectionPool>)>,
}

/// Writes a request and waits for the head of its answer.
pub(super) async fn exchange(
    mut stream: TransportStream,
    request: Request<RequestBody>,
    context: &ExchangeContext,
) -> Result<Response<ResponseBody>, Box<ExchangeFailure>> {
    stream.set_exchange(Some(Arc::clone(&context.exchange_state)));
    let mut connection = Some(ActiveConnection::new(stream, &request, context));
    let head = poll_fn(|cx| {
        let Some(running) = &mut connection else { return Poll::Pending };
        running.poll_head(cx, request.method(), context)
    });
    match head.await {
        Ok(head) => Ok(context.build_response(head, connection.take())),
        Err(error) => {
            let sent = context.exchange_state.send_progress();
            let unsent = (sent == SendProgress::Nothing).then_some(request);
            Err(Box::new(ExchangeFailure { error: SendError::during_exchange(sent, error), unsent }))
        }
    }
}

// === impl ExchangeContext ===

impl ExchangeContext {
    fn build_response(&self, head: AnswerHead, connection: Option<ActiveConnection>) -> Response<ResponseBody> {
        let AnswerHead { status, version, headers, framing, is_reusable } = head;
        let mut connection = connection;
        if let Some(connection) = connection.as_mut().filter(|_| is_reusable) {
            connection.reuse_target = Some((self.origin.clone(), Arc::clone(&self.pool)));
        }
        let decoder = AnswerDecoder::from_headers(&headers, &self.budgets);
        let body = ResponseBody::new(framing, Arc::clone(&self.exchange_state), connection, decoder);
        let mut response = Response::new(body);
        (*response.status_mut(), *response.version_mut(), *response.headers_mut()) = (status, version, headers);
        response
    }
}

// === impl ActiveConnection ===

impl ActiveConnection {
    fn new(stream: TransportStream, request: &Request<RequestBody>, context: &ExchangeContext) -> Self {
        Self {
            stream,
            writer: Some(RequestWriter::new(request)),
            is_request_written: false,
            received: Bytes::new(),
            buffers: Arc::clone(&context.buffers),
            exchange_state: Arc::clone(&context.exchange_state),
            reuse_target: None,
        }
    }

    /// Writes the request and reads the head of the answer.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        method: &Method,
        context: &ExchangeContext,
    ) -> Poll<Result<AnswerHead, ExchangeError>> {
        // Before the first byte is written, this finds out whether the connection has ended.
        while let Poll::Ready(received) = self.poll_receive(cx)? {
            if received.is_empty() || !self.exchange_state.has_written() {
                return Poll::Ready(Err(ExchangeError::Ended));
            }
            self.add_received(received);
            if let Some(head) = AnswerHead::take(&mut self.received, method, context.max_head)? {
                return Poll::Ready(Ok(head));
            }
            // A copy does not count against the budget: the rest of the head cannot wait until it is dropped.
            self.received = Bytes::copy_from_slice(&self.received);
        }
        if self.writer.is_some() {
            ready!(self.poll_write(cx))?;
            // Asks for the answer, and to be woken when it comes.
            return self.poll_head(cx, method, context);
        }
        Poll::Pending
    }

    fn add_received(&mut self, received: Bytes) {
        if self.received.is_empty() {
            self.received = received;
            return;
        }
        let mut joined = BytesMut::from(std::mem::take(&mut self.received));
        joined.extend_from_slice(&received);
        self.received = joined.freeze();
    }

    /// Reads the next data of the answer. Empty data are the end of the body.
    pub(super) fn poll_data(
        &mut self,
        framing: &mut AnswerFraming,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, BodyError>> {
        loop {
            let data = framing.take_data(&mut self.received).map_err(BodyError::malformed)?;
            if !data.is_empty() || framing.is_end() {
                return Poll::Ready(Ok(data));
            }
            if let Poll::Ready(Err(error)) = self.poll_write(cx) {
                log_unwritten(&error);
            }
            self.received = ready!(self.poll_receive(cx)).map_err(BodyError::from_io)?;
            if self.received.is_empty() {
                return Poll::Ready(framing.data_at_end_of_connection().ok_or_else(BodyError::truncated));
            }
        }
    }

    /// Ends the exchange after the complete answer: the connection returns to the pool if it can carry another request,
    /// and is closed if not.
    pub(super) fn release(mut self) {
        let Some((origin, pool)) = self.reuse_target.take() else { return };
        if self.is_request_written && self.received.is_empty() {
            self.stream.set_exchange(None);
            pool.put(origin, self.stream);
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let received = ready!(self.buffers.poll_read(Pin::new(&mut self.stream), cx))?;
        Poll::Ready(Ok(self.exchange_state.count_frame(received)))
    }

    /// Writes the rest of the request. If the upstream takes no more of a request that was begun, this is no error: it may
    /// have answered before it closed the connection.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(())) };
        let written = ready!(writer.poll(Pin::new(&mut self.stream), cx));
        (self.writer, self.is_request_written) = (None, written.is_ok());
        match written {
            Err(error) if self.exchange_state.has_written() && is_end_of_connection(&error) => {
                log_unwritten(&error);
                Poll::Ready(Ok(()))
            }
            written => Poll::Ready(written),
        }
    }
}

fn log_unwritten(error: &io::Error) {
    tracing::debug!(error = error as &dyn std::error::Error, "the rest of a request was not written");
}

fn is_end_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}
