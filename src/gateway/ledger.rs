//! Keeps one durable record for each job.
//!
//! Decides when a record is begun, when it is over, and what is written when nobody says so.
//! Refuses to know what an image is, what an account is, and which database is behind.
//!
//! Carries: the usage record of the specification (every identifier, tokens, latency); the intent is durable before
//! the first upstream byte, the outcome before the caller's last byte; exactly one record for each job, whatever dies.
//!
//! One task writes. It commits whatever has gathered while its last commit ran, and waits for no timer: alone a
//! request pays for one commit, in a crowd hundreds share it. The claims of idempotency keys go the same way, so that
//! they share the commits of the records.

mod health;
mod open;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, oneshot, watch};

pub(crate) use crate::gateway::store::{
    Attempt, Class, Delivered, KeyId, NodeId, Record, RequestId, State, TokenDetails, Usage, UserId,
};
use crate::gateway::store::{ReplayWrite, Store, StoreError, Timestamp, Written};
use crate::gateway::telemetry::Metrics;
use health::WriteHealth;
pub(crate) use health::WriteTrouble;
use open::Entry;
pub(crate) use open::{Call, OpenRecord, Outcome};
use writer::{Message, Writer};

/// Intents and claims that may wait for the writer. It is far above what a server admits at once; beyond it memory
/// would be spent on jobs that could only fail.
const MAX_WAITING_INTENTS: usize = 4096;

/// A job waits at most this long for its intent, and a request for its claim: a little longer than the store waits for
/// a lock.
pub(crate) const OPEN_PATIENCE: Duration = Duration::from_secs(6);

/// What is known of a job before its first upstream byte.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// The id that the front gave the request.
    pub(crate) request_id: RequestId,
    /// The operation of the document.
    pub(crate) operation: &'static str,
    /// The model asked for.
    pub(crate) model: Option<String>,
    /// Whether events were asked for.
    pub(crate) stream: bool,
    /// The size asked for.
    pub(crate) size: Option<String>,
    /// The quality asked for.
    pub(crate) quality: Option<String>,
    /// The format asked for.
    pub(crate) output_format: Option<String>,
    /// How many images were asked for.
    pub(crate) n: Option<u32>,
    /// The account of the first attempt, so that even a killed process leaves its name. A record that is closed without an
    /// attempt names none.
    pub(crate) account: Option<String>,
    /// The name of the group.
    pub(crate) group: String,
    /// The user.
    pub(crate) user: UserId,
    /// The key.
    pub(crate) key: KeyId,
    /// The `safety_identifier` field of the request, or else its `user` field.
    pub(crate) end_user: Option<String>,
    /// Whether an image tool was put into the request.
    pub(crate) injected_tool: bool,
    /// The keyed hash by which a client's own retry of this job is recognized.
    pub(crate) fingerprint: Option<[u8; 32]>,
}

/// The token counts of a job, one for each model, because each model has a price of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ModelUsage {
    /// The model that makes images.
    pub(crate) image: Option<Usage>,
    /// The text model that runs the image tool, or makes a response without one.
    pub(crate) host: Option<Usage>,
}

/// Why a record could not be begun or closed. For the caller of the gateway all of it is a 503.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum LedgerError {
    /// The database has trouble.
    #[error("the record could not be stored")]
    Store(#[source] Arc<StoreError>),
    /// Too many jobs wait for the database already, or this one has waited too long.
    #[error("the database does not keep up")]
    Overloaded,
    /// A job with this request id has been recorded before.
    #[error("the request id is taken")]
    Duplicate,
    /// The runtime is shutting down.
    #[error("the ledger has stopped")]
    Stopped,
}

/// The one door to the table of records.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    outbox: mpsc::UnboundedSender<Message>,
    room: Arc<Semaphore>,
    unsettled: watch::Sender<usize>,
    metrics: Arc<Metrics>,
    health: Arc<WriteHealth>,
}

impl Ledger {
    /// Closes what an earlier life of this node left running, then starts the writer.
    ///
    /// To be called within a tokio runtime, by the only process that serves as `node`.
    ///
    /// # Errors
    /// Where the store has trouble: a node that cannot settle its past takes no new jobs.
    pub(crate) async fn start(store: Arc<dyn Store>, node: NodeId, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        let interrupted = store.interrupt_running(&node).await?;
        if interrupted > 0 {
            tracing::warn!(interrupted, "jobs of an earlier run ended without an outcome");
        }
        #[expect(clippy::disallowed_methods, reason = "intents are bounded by `room`, and each has one outcome")]
        let (outbox, inbox) = mpsc::unbounded_channel();
        // Who waits for it is `drain`.
        let health = Arc::<WriteHealth>::default();
        tokio::runtime::Handle::current().spawn(Writer::new(store, node, inbox, Arc::clone(&health)).run());
        let room = Arc::new(Semaphore::new(MAX_WAITING_INTENTS));
        Ok(Self { outbox, room, unsettled: watch::Sender::new(0), metrics, health })
    }

    #[cfg(test)]
    pub(crate) async fn start_for_test(store: Arc<dyn Store>) -> Self {
        Self::start(store, NodeId::only(), Arc::new(Metrics::new())).await.unwrap()
    }

    /// Begins a record. When this returns, a kill can no longer lose it.
    ///
    /// # Errors
    /// Where there is no record, so that nothing may be spent.
    pub(crate) async fn open(&self, draft: Draft) -> Result<OpenRecord, LedgerError> {
        // Outcomes need no such bound: there is at most one for each intent that was let in.
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| LedgerError::Overloaded)?;
        let entry = Entry::new(running(draft), self.outbox.clone(), self.unsettled.clone(), Arc::clone(&self.metrics));
        let intent = Box::new(entry);
        let (reply, answer) = oneshot::channel();
        // Should this future be dropped from here on, the writer skips the intent, or closes what it has written.
        self.outbox.send(Message::Open { intent, reply, _room: room }).map_err(|_| LedgerError::Stopped)?;
        let opened = match tokio::time::timeout(OPEN_PATIENCE, answer).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(LedgerError::Stopped),
            Err(_) => Err(LedgerError::Overloaded),
        };
        opened.map(OpenRecord::begin)
    }

    /// Makes a claim durable, or its answer or removal. A caller that no longer waits for a claim or an answer gets
    /// none, unless its commit has begun.
    ///
    /// # Errors
    /// If the database has not taken it. Nothing may be spent on such a claim.
    pub(crate) async fn write_replay(&self, write: ReplayWrite) -> Result<Written, LedgerError> {
        // The end of a claim needs no bound of its own, like the end of a record.
        let room = match write {
            ReplayWrite::Claim(_) => {
                Some(Arc::clone(&self.room).try_acquire_owned().map_err(|_| LedgerError::Overloaded)?)
            }
            ReplayWrite::Finish { .. } | ReplayWrite::Forget { .. } => None,
        };
        let (reply, answer) = oneshot::channel();
        let message = Message::Replay { write: Box::new(write), reply, _room: room };
        self.outbox.send(message).map_err(|_| LedgerError::Stopped)?;
        answer.await.unwrap_or(Err(LedgerError::Stopped))
    }

    /// The reason why records cannot be written; `None` if they can.
    pub(crate) fn write_trouble(&self, now: Instant) -> Option<WriteTrouble> {
        self.health.trouble(now)
    }

    /// How many records are open or on their way to the database.
    pub(crate) fn unsettled(&self) -> usize {
        *self.unsettled.borrow()
    }

    /// Waits until every record is closed and durable. The caller bounds the wait.
    pub(crate) async fn drain(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.unsettled.subscribe().wait_for(|unsettled| *unsettled == 0).await;
    }
}

fn running(draft: Draft) -> Record {
    Record {
        request_id: draft.request_id,
        created_at: Timestamp::now(),
        operation: draft.operation.to_owned(),
        model: draft.model.map(Record::clip),
        stream: draft.stream,
        state: State::Running,
        error_code: None,
        error_reason: None,
        error_detail: None,
        size: draft.size.map(Record::clip),
        quality: draft.quality.map(Record::clip),
        output_format: draft.output_format.map(Record::clip),
        n: draft.n,
        delivered: Vec::new(),
        usage: None,
        cost_usd: None,
        latency_ms: None,
        first_byte_ms: None,
        attempts: Vec::new(),
        account: draft.account,
        group: draft.group,
        user: draft.user,
        key: draft.key,
        end_user: draft.end_user.map(Record::clip),
        fallback: None,
        injected_tool: draft.injected_tool,
        response_id: None,
        fingerprint: draft.fingerprint,
        missing: None,
        image_model: None,
        host_model: None,
        host_usage: None,
        maybe_paid_twice: false,
    }
}

/// Whole milliseconds since then, on a clock that does not jump.
fn milliseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
