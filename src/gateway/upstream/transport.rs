//! HTTP/1.1 to upstreams: one request, one head, one body that is read as it arrives.
//!
//! The module decides which connection carries a request, and how many bytes of answers wait in this process at once.
//! It must not know accounts, images, or whether a request is worth repeating. Rules: nothing is sent twice (U30), no
//! redirect is followed (U27), every step before the head ends by a deadline (U01 to U03, U09), and no task is started
//! for a connection: the task that waits for the head or reads the body polls the connection.
//!
//! The HTTP/1.1 reader is our own: a library reads each answer into new buffers that begin small, and makes its state anew
//! for each request. `answer_head` and `answer_framing` are pure, and compared with a library by a test.

mod answer_framing;
mod answer_head;
mod body;
mod buffer_budget;
mod dialer;
mod error;
mod exchange;
mod origin;
mod pool;
mod read_buffers;
mod request_writer;
mod resolver;
mod socket;
mod transport_stream;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::gateway::admission::RequestBudgets;
use crate::gateway::config::{AddressPolicy, UploadLimits};

pub(crate) use body::{RequestBody, ResponseBody};
pub(crate) use error::{BodyError, BodyErrorKind, SendError, SendErrorKind, SendProgress, TransportError};

use buffer_budget::{BufferBudget, ExchangeState};
use dialer::Dialer;
use exchange::{ExchangeContext, exchange};
use origin::UpstreamOrigin;
use pool::ConnectionPool;
use read_buffers::ReadBuffers;

/// The smallest read, in bytes (our choice).
const MIN_READ: usize = 8 * 1024;

/// The limits of every call.
#[derive(Clone, Debug)]
pub(crate) struct TransportSettings {
    /// The limit for name resolution and connection together.
    pub(crate) connect_timeout: Duration,
    /// The limit for the TLS handshake.
    pub(crate) tls_timeout: Duration,
    /// The longest time for which the upstream may accept no byte of the request.
    pub(crate) write_timeout: Duration,
    /// The longest time that an idle connection is kept. The default is shorter than the idle timeout of common
    /// upstreams.
    pub(crate) idle_timeout: Duration,
    /// The most idle connections for one upstream.
    pub(crate) max_idle_per_origin: usize,
    /// The size of a buffer into which answers are read, in bytes, and of the largest frame.
    pub(crate) read_chunk: usize,
    /// The limit, in bytes, of what waits for callers in all answers together. At and above it, reads are small.
    pub(crate) buffer_budget: usize,
    /// The largest read while the budget is used up, in bytes. An answer of which about as many bytes wait for its
    /// caller is then not read further.
    pub(crate) small_read: usize,
    /// The largest head of an answer, and the largest trailers of a chunked one, in bytes.
    pub(crate) max_head: usize,
    /// The resolved addresses to which connections are made.
    pub(crate) addresses: AddressPolicy,
    /// Root certificates that are trusted in addition to the machine's trust store.
    pub(crate) extra_roots: Vec<CertificateDer<'static>>,
    /// The budgets to which the decoders of answers are charged.
    pub(crate) budgets: Arc<RequestBudgets>,
}

/// Calls upstreams. Clones share connections and budget.
#[derive(Clone)]
pub(crate) struct Transport(Arc<TransportState>);

struct TransportState {
    settings: TransportSettings,
    budget: Arc<BufferBudget>,
    pool: Arc<ConnectionPool>,
    buffers: Arc<ReadBuffers>,
    dialer: Dialer,
}

// === impl TransportSettings ===

impl Default for TransportSettings {
    /// Returns the limits of the failure catalogue, and the sizes that gave the best measurements.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            tls_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(30),
            // Common servers close an idle connection after five seconds.
            idle_timeout: Duration::from_secs(4),
            max_idle_per_origin: 64,
            read_chunk: 256 * 1024,
            buffer_budget: 8 * 1024 * 1024,
            small_read: 64 * 1024,
            max_head: 64 * 1024,
            addresses: AddressPolicy::default(),
            extra_roots: Vec::new(),
            budgets: RequestBudgets::new(&UploadLimits::DEFAULT),
        }
    }
}

// === impl Transport ===

impl Transport {
    /// Builds the transport. No connection is made before the first [`Self::send`], and no certificate is read before
    /// the first [`Self::send`] to an https upstream or [`Self::prepare_tls`].
    pub(crate) fn new(settings: TransportSettings) -> Result<Self, TransportError> {
        if settings.read_chunk < MIN_READ || settings.small_read < MIN_READ {
            return Err(TransportError::Setting("reads of upstream answers must be at least 8 KiB"));
        }
        let budget = Arc::new(BufferBudget::new(settings.buffer_budget, settings.small_read));
        let pool = Arc::new(ConnectionPool::new(settings.idle_timeout, settings.max_idle_per_origin));
        let (buffers, dialer) = (ReadBuffers::new(settings.read_chunk), Dialer::new(settings.clone()));
        Ok(Self(Arc::new(TransportState { settings, budget, pool, buffers, dialer })))
    }

    /// Reads the machine's trusted certificates now, so that an error is known before the first https call.
    pub(crate) fn prepare_tls(&self) -> Result<(), TransportError> {
        self.0.dialer.tls_connector().map(drop)
    }

    /// Connects or reuses a connection, writes the request, and returns the answer when its head is complete. All of
    /// this must end by the deadline.
    ///
    /// Dropping the future, or later an incomplete body, closes the connection at once; this is how a call is aborted.
    pub(crate) async fn send(
        &self,
        mut request: Request<RequestBody>,
        deadline: Instant,
    ) -> Result<Response<ResponseBody>, SendError> {
        let origin = UpstreamOrigin::take_from(&mut request)?;
        let exchange_state = ExchangeState::new(&self.0.budget);
        let context = ExchangeContext {
            origin,
            pool: Arc::clone(&self.0.pool),
            exchange_state: Arc::clone(&exchange_state),
            buffers: Arc::clone(&self.0.buffers),
            max_head: self.0.settings.max_head,
            budgets: Arc::clone(&self.0.settings.budgets),
        };
        let result = timeout_at(deadline, self.attempt(request, &context)).await;
        result.unwrap_or_else(|_| Err(SendError::timeout(exchange_state.send_progress())))
    }

    async fn attempt(
        &self,
        mut request: Request<RequestBody>,
        context: &ExchangeContext,
    ) -> Result<Response<ResponseBody>, SendError> {
        if let Some(stream) = self.0.pool.take(&context.origin) {
            let failure = match exchange(stream, request, context).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            // If the connection became stale between the last check and the first byte, the request was given back.
            // Otherwise the upstream can have seen it, so the call fails.
            request = failure.unsent.ok_or(failure.error)?;
            context.exchange_state.restart();
        }
        let stream = self.0.dialer.dial(&context.origin).await?;
        exchange(stream, request, context).await.map_err(|failure| failure.error)
    }

    /// Returns the number of bytes in all frames of answers that were passed on and not yet dropped.
    #[cfg(test)]
    pub(crate) fn unwritten(&self) -> usize {
        self.0.budget.unwritten()
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}
