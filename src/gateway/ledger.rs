//! Writes one durable record for each job.
//!
//! This module decides when a record begins and ends, and what is written if a job ends without an outcome. It must not
//! know what an image or an account is, or which database the store uses.
//!
//! It implements the usage record of the specification: identifiers, tokens and latency. The intent is durable before
//! the first upstream byte, and the outcome before the last byte to the caller. Each job has exactly one record, even
//! if a process or task ends early.
//!
//! One thread writes. Without a timer, it commits all messages that have arrived during its last commit: a single request
//! waits for one commit, and under load hundreds of requests share a commit. The claims of idempotency keys share the
//! commits of the records.

mod health;
mod open_record;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot, watch};

use crate::gateway::limits::LimitReservation;
use crate::gateway::prices::CurrentPrices;
pub(crate) use crate::gateway::store::{
    AttemptClass, CacheWrites, JobRecord, JobState, ModelUsage, NodeId, TokenUsage,
};
use crate::gateway::store::{RecordStore, ReplayWrite, RowWriteOutcome, StoreError};
use crate::gateway::telemetry::Metrics;
use health::WriteHealth;
pub(crate) use health::WriteTrouble;
use open_record::OpenRecordState;
pub(crate) use open_record::{AttemptHandle, JobOutcome, OpenRecord};
use writer::{LedgerMessage, LedgerWriter};

/// The maximum number of intents and claims that wait for the writer (our choice). It is far above the number of
/// requests that a server admits at once; any more of them would time out.
const MAX_WAITING_INTENTS: usize = 4096;

/// The maximum time that a job waits for its intent, and a request for its claim (our choice). It is a little longer
/// than the store waits for a lock.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(6);

/// The reason why a record could not be opened or closed. The caller gets a 503 for each of them.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum LedgerError {
    /// The database failed.
    #[error("the record could not be stored")]
    Store(#[source] Arc<StoreError>),
    /// Too many jobs already wait for the database, or this job has waited too long.
    #[error("the database is too slow")]
    Overloaded,
    /// A job with this request id has been recorded before.
    #[error("the request id is already used")]
    Duplicate,
    /// The runtime is shutting down.
    #[error("the ledger has stopped")]
    Stopped,
}

/// The only access to the table of records for the rest of the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    message_sender: mpsc::Sender<LedgerMessage>,
    intent_permits: Arc<Semaphore>,
    unsettled_records: watch::Sender<usize>,
    metrics: Arc<Metrics>,
    health: Arc<WriteHealth>,
    prices: Arc<CurrentPrices>,
}

impl Ledger {
    /// Closes the records that an earlier run of this node left open, then starts the writer.
    ///
    /// Must be called within a tokio runtime, and only by the process that serves requests as `node`.
    ///
    /// # Errors
    /// Returns an error if the store fails, because a node that cannot close its old records must not accept jobs.
    pub(crate) async fn start(
        store: Arc<dyn RecordStore>,
        node: NodeId,
        metrics: Arc<Metrics>,
        prices: Arc<CurrentPrices>,
    ) -> Result<Self, StoreError> {
        let interrupted = store.interrupt_running(&node).await?;
        if interrupted > 0 {
            tracing::warn!(interrupted, "jobs of an earlier run were interrupted");
        }
        // Intents are limited by `intent_permits`, and each has at most one outcome, so the channel needs no limit.
        let (message_sender, message_receiver) = mpsc::channel();
        let health = Arc::<WriteHealth>::default();
        let writer = LedgerWriter::new(store, node, message_receiver, Arc::clone(&health));
        // The thread is not joined, because `drain` waits until its work is done.
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(move || writer.run());
        thread.map_err(StoreError::io("starting the thread that writes records"))?;
        let intent_permits = Arc::new(Semaphore::new(MAX_WAITING_INTENTS));
        Ok(Self { message_sender, intent_permits, unsettled_records: watch::Sender::new(0), metrics, health, prices })
    }

    #[cfg(test)]
    pub(crate) async fn start_for_test(store: Arc<impl RecordStore + 'static>) -> Self {
        Self::start(store, NodeId::only(), Arc::new(Metrics::new()), Arc::new(CurrentPrices::new(&[], Vec::new())))
            .await
            .unwrap()
    }

    /// Opens a record, which settles this reservation when it is closed. Its account is the one that the first attempt
    /// will call, so that the record names it even if the process is killed. After this returns, a kill can no longer
    /// lose the record.
    ///
    /// # Errors
    /// Returns an error if the record was not written, or not in time. The job must not call an upstream then.
    pub(crate) async fn open(
        &self,
        mut record: JobRecord,
        reservation: LimitReservation,
    ) -> Result<OpenRecord, LedgerError> {
        record.document.created_at = reservation.begun_at().into();
        record.truncate_texts();
        // Outcomes need no permit: there is at most one outcome for each intent.
        let permit = Arc::clone(&self.intent_permits).try_acquire_owned().map_err(|_| LedgerError::Overloaded)?;
        let state = OpenRecordState::new(
            record,
            reservation,
            self.message_sender.clone(),
            self.unsettled_records.clone(),
            (Arc::clone(&self.metrics), Arc::clone(&self.prices)),
        );
        let intent = Box::new(state);
        let (reply, result) = oneshot::channel();
        // If this future is dropped from here on, the writer skips the intent, or closes the record that it has
        // written.
        self.message_sender
            .send(LedgerMessage::Open { intent, reply, _permit: permit })
            .map_err(|_| LedgerError::Stopped)?;
        let opened = match tokio::time::timeout(OPEN_TIMEOUT, result).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(LedgerError::Stopped),
            Err(_) => Err(LedgerError::Overloaded),
        };
        opened.map(OpenRecord::mark_started)
    }

    /// Opens a record of a job without limits.
    #[cfg(test)]
    pub(crate) async fn open_for_test(&self, record: JobRecord) -> Result<OpenRecord, LedgerError> {
        self.open(record, LimitReservation::uncounted()).await
    }

    /// Makes a claim, its answer, or its removal durable. If this future is dropped, a claim or an answer is not written,
    /// unless its commit has begun; a removal is always written.
    ///
    /// # Errors
    /// Returns an error if the database did not accept the write. A job must not call an upstream under such a claim.
    pub(crate) async fn write_replay(&self, write: ReplayWrite) -> Result<RowWriteOutcome, LedgerError> {
        // Answers and removals need no permit: there is at most one for each claim.
        let permit = match write {
            ReplayWrite::Claim(_) => {
                Some(Arc::clone(&self.intent_permits).try_acquire_owned().map_err(|_| LedgerError::Overloaded)?)
            }
            ReplayWrite::Finish { .. } | ReplayWrite::EndRetry { .. } | ReplayWrite::Remove { .. } => None,
        };
        let (reply, result) = oneshot::channel();
        let message = LedgerMessage::Replay { write: Box::new(write), reply, _permit: permit };
        self.message_sender.send(message).map_err(|_| LedgerError::Stopped)?;
        result.await.unwrap_or(Err(LedgerError::Stopped))
    }

    /// The reason why records cannot be written; `None` if they can.
    pub(crate) fn write_trouble(&self, now: Instant) -> Option<WriteTrouble> {
        self.health.trouble(now)
    }

    /// The number of records that are open, or whose outcome is not durable yet.
    pub(crate) fn unsettled_records(&self) -> usize {
        *self.unsettled_records.borrow()
    }

    /// Waits until every record is closed and durable. The wait has no time limit of its own.
    pub(crate) async fn drain(&self) {
        // `wait_for` fails only if the sender is dropped, but the sender is in `self`.
        let _ = self.unsettled_records.subscribe().wait_for(|unsettled| *unsettled == 0).await;
    }
}

/// Returns the whole milliseconds since `start`, on a monotonic clock.
fn milliseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
