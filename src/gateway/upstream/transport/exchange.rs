//! One request and its answer on one connection: the seam behind which the HTTP/1.1 reader can be changed.
//!
//! Decides: what of the reader's outcome means that the request was never begun.
//! Refuses to know: where connections come from.
//! Rules: a request is given back only if not one byte of it was written (U30); 1xx answers are passed over and
//! redirects are answers like any other (U27, U31); a head has at most 100 headers and so many bytes (U33).

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
use super::budget::Tally;
use super::error::{SendError, Sent};
use super::origin::Origin;
use super::pool::Pool;
use super::wire::Wire;

/// What an exchange needs to know beside its connection.
pub(super) struct Terms {
    pub(super) origin: Origin,
    pub(super) pool: Arc<Pool>,
    pub(super) tally: Arc<Tally>,
    pub(super) read_chunk: usize,
    pub(super) max_head: usize,
}

/// No answer came; the request is here again if it was never begun.
pub(super) struct Failed {
    pub(super) error: SendError,
    pub(super) unsent: Option<Request<RequestBody>>,
}

type Reader = Connection<TokioIo<Wire>, RequestBody>;

/// The connection of an answer that is still being read.
pub(super) struct Link {
    connection: Reader,
    sender: SendRequest<RequestBody>,
    home: Option<(Origin, Arc<Pool>)>,
}

/// Writes a request and waits for the head of its answer.
pub(super) async fn exchange(
    mut wire: Wire,
    request: Request<RequestBody>,
    terms: &Terms,
) -> Result<Response<ResponseBody>, Box<Failed>> {
    wire.assign(Some(Arc::clone(&terms.tally)));
    let mut reader = Builder::new();
    // The limit of 100 headers is the reader's own, and naming it again would cost an allocation for each head.
    reader.max_buf_size(terms.read_chunk).max_header_size(terms.max_head);
    let (mut sender, connection) = match reader.handshake(TokioIo::new(wire)).await {
        Ok(pair) => pair,
        Err(error) => return Err(Failed::new(SendError::during(Sent::Nothing, error), Some(request))),
    };
    let mut connection = Some(connection);
    let mut answer = pin!(sender.try_send_request(request));
    let answered = poll_fn(|cx| {
        let ended = connection.as_mut().is_some_and(|running| Pin::new(running).poll(cx).is_ready());
        if ended {
            // Dropped at once: whatever it still owed, the answer below then says what became of the request.
            connection = None;
        }
        answer.as_mut().poll(cx)
    });
    let response = answered.await.map_err(|mut error| {
        let unsent = error.take_message();
        let sent = if unsent.is_some() { Sent::Nothing } else { terms.tally.sent() };
        Failed::new(SendError::during(sent, error.into_error()), unsent)
    })?;
    Ok(terms.answer(response, connection.map(|connection| (connection, sender))))
}

// === impl Terms ===

impl Terms {
    fn answer(
        &self,
        response: Response<Incoming>,
        running: Option<(Reader, SendRequest<RequestBody>)>,
    ) -> Response<ResponseBody> {
        let (mut head, incoming) = response.into_parts();
        // The reader's own notes, among them the reason phrase, which is the upstream's own talk.
        head.extensions.clear();
        // Two opinions on the length: the answer is read by the rule, but nothing is read after it.
        let disputed = head.headers.contains_key(TRANSFER_ENCODING) && head.headers.contains_key(CONTENT_LENGTH);
        let home = (!disputed).then(|| (self.origin.clone(), Arc::clone(&self.pool)));
        let link = running.map(|(connection, sender)| Link { connection, sender, home });
        Response::from_parts(head, ResponseBody::new(incoming, Arc::clone(&self.tally), link))
    }
}

// === impl Failed ===

impl Failed {
    fn new(error: SendError, unsent: Option<Request<RequestBody>>) -> Box<Self> {
        Box::new(Self { error, unsent })
    }
}

// === impl Link ===

impl Link {
    /// Reads and writes what can be; ready when the connection is at its end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.connection).poll(cx).map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(error = &error as &dyn std::error::Error, "upstream connection ended");
            }
        })
    }

    /// After the whole answer: the connection goes home if it can carry another request, and is closed if not.
    pub(super) fn release(mut self) {
        let Some((origin, pool)) = self.home.take() else { return };
        // The last look of the reader: surplus bytes or an end show here, and a request still being written does.
        let open = self.poll(&mut Context::from_waker(Waker::noop())).is_pending();
        if !open || !self.sender.is_ready() {
            return;
        }
        // Only the bare wire waits: the reader would keep its last buffer for as long as the connection is idle.
        let parts = self.connection.into_parts();
        let mut wire = parts.io.into_inner();
        if parts.read_buf.is_empty() {
            wire.assign(None);
            pool.put(origin, wire);
        }
    }
}
