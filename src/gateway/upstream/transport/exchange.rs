//! One request and its answer on one connection: the interface behind which the HTTP/1.1 reader can be replaced.
//!
//! The module decides which results of the reader mean that the request was never begun. It must not know how
//! connections are made. Rules: a request is given back only if no byte of it was written (U30); 1xx answers are
//! skipped, and redirects are answers like any other (U27, U31); a head has at most 100 headers and a limited number of
//! bytes (U33).

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::body::{RequestBody, ResponseBody};
use super::buffer_budget::ExchangeState;
use super::error::{SendError, SendProgress};
use super::origin::UpstreamOrigin;
use super::pool::ConnectionPool;
use super::transport_stream::TransportStream;
use crate::gateway::admission::RequestBudgets;
use crate::gateway::content_coding::AnswerDecoder;

/// The parameters of an exchange, apart from its connection and request.
pub(super) struct ExchangeContext {
    pub(super) origin: UpstreamOrigin,
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) exchange_state: Arc<ExchangeState>,
    pub(super) read_chunk: usize,
    pub(super) max_head: usize,
    /// The budgets to which the decoders of the answer are charged.
    pub(super) budgets: Arc<RequestBudgets>,
}

/// The failure of an exchange that received no answer. It contains the request if no byte of it was written.
pub(super) struct ExchangeFailure {
    pub(super) error: SendError,
    pub(super) unsent: Option<Request<RequestBody>>,
}

type HyperConnection = Connection<TokioIo<TransportStream>, RequestBody>;

/// The connection of an answer that is still being read.
pub(super) struct ActiveConnection {
    connection: HyperConnection,
    sender: SendRequest<RequestBody>,
    reuse_target: Option<(UpstreamOrigin, Arc<ConnectionPool>)>,
}

/// Writes a request and waits for the head of its answer.
pub(super) async fn exchange(
    mut stream: TransportStream,
    request: Request<RequestBody>,
    context: &ExchangeContext,
) -> Result<Response<ResponseBody>, Box<ExchangeFailure>> {
    stream.set_exchange(Some(Arc::clone(&context.exchange_state)));
    let mut reader = Builder::new();
    // The limit of 100 headers is the reader's own; setting it again would cost an allocation for each head.
    reader.max_buf_size(context.read_chunk).max_header_size(context.max_head);
    let (mut sender, connection) = match reader.handshake(TokioIo::new(stream)).await {
        Ok(pair) => pair,
        Err(error) => {
            return Err(ExchangeFailure::new(SendError::during_exchange(SendProgress::Nothing, error), Some(request)));
        }
    };
    let mut connection = Some(connection);
    let mut answer = pin!(sender.try_send_request(request));
    let exchange = poll_fn(|cx| {
        let ended = connection.as_mut().is_some_and(|running| Pin::new(running).poll(cx).is_ready());
        if ended {
            // The connection is dropped at once, even with unsent bytes: the result of the request comes from `answer`.
            connection = None;
        }
        answer.as_mut().poll(cx)
    });
    let response = exchange.await.map_err(|mut error| {
        let unsent = error.take_message();
        let sent = if unsent.is_some() { SendProgress::Nothing } else { context.exchange_state.send_progress() };
        ExchangeFailure::new(SendError::during_exchange(sent, error.into_error()), unsent)
    })?;
    Ok(context.build_response(response, connection.map(|connection| (connection, sender))))
}

// === impl ExchangeContext ===

impl ExchangeContext {
    fn build_response(
        &self,
        response: Response<Incoming>,
        active: Option<(HyperConnection, SendRequest<RequestBody>)>,
    ) -> Response<ResponseBody> {
        let (mut head, incoming) = response.into_parts();
        // hyper stores data of its own in the extensions, such as the reason phrase, which is specific to the upstream.
        head.extensions.clear();
        // If the head states the length in two ways, the body is read in chunks (RFC 9112, section 6.3), but the
        // connection is not used again.
        let has_conflicting_lengths =
            head.headers.contains_key(TRANSFER_ENCODING) && head.headers.contains_key(CONTENT_LENGTH);
        let reuse_target = (!has_conflicting_lengths).then(|| (self.origin.clone(), Arc::clone(&self.pool)));
        let connection = active.map(|(connection, sender)| ActiveConnection { connection, sender, reuse_target });
        let decoder = AnswerDecoder::from_headers(&head.headers, &self.budgets);
        let body = ResponseBody::new(incoming, Arc::clone(&self.exchange_state), connection, decoder);
        Response::from_parts(head, body)
    }
}

// === impl ExchangeFailure ===

impl ExchangeFailure {
    fn new(error: SendError, unsent: Option<Request<RequestBody>>) -> Box<Self> {
        Box::new(Self { error, unsent })
    }
}

// === impl ActiveConnection ===

impl ActiveConnection {
    /// Reads and writes what is possible; ready when the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.connection).poll(cx).map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(error = &error as &dyn std::error::Error, "upstream connection ended");
            }
        })
    }

    /// Ends the exchange after the complete answer: the connection returns to the pool if it can carry another request,
    /// and is closed if not.
    pub(super) fn release(mut self) {
        let Some((origin, pool)) = self.reuse_target.take() else { return };
        // This last poll detects surplus bytes, an ended connection, or a request that is still being written.
        let open = self.poll(&mut Context::from_waker(Waker::noop())).is_pending();
        if !open || !self.sender.is_ready() {
            return;
        }
        // Only the stream goes to the pool: hyper's connection would keep its last buffer while it is idle.
        let parts = self.connection.into_parts();
        let mut stream = parts.io.into_inner();
        if parts.read_buf.is_empty() {
            stream.set_exchange(None);
            pool.put(origin, stream);
        }
    }
}
