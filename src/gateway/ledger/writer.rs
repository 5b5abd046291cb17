//! The one task that writes records, and with them the claims of idempotency keys: it gathers, commits and answers.
//!
//! An intent that fails is refused at once, because nothing has been spent. An outcome that fails is kept and tried
//! again for as long as the process lives, because something has been spent. The number of such outcomes is bounded: if
//! outcomes fail, intents fail too, so at most the jobs that were running when the trouble began can accumulate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;

use super::health::WriteHealth;
use super::open_record::{OpenRecord, OpenRecordState};
use super::{LedgerError, NodeId, Record};
use crate::gateway::store::{ReplayWrite, RowWrite, RowWriteOutcome, Store, StoreError};
use crate::gateway::telemetry::LogThrottle;

/// The largest number of writes in a transaction: large enough for a heavy load, and small enough that a reader of the
/// log is not delayed.
const MAX_BATCH: usize = 512;

/// The number of tries of an outcome before its job is told. The store itself waits for locks in each try.
const TRIES_BEFORE_REPLY: u32 = 3;

/// The pause between two tries, unless a new message arrives.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The idle time after which the database is checked. It is short while writes fail, so that readiness comes back soon.
const CHECK_WHILE_FAILING: Duration = Duration::from_secs(1);
const CHECK_WHILE_IDLE: Duration = Duration::from_secs(10);

/// The channel on which the writer answers.
pub(super) type CommitReplySender<T> = oneshot::Sender<Result<T, LedgerError>>;

/// The messages that jobs send to the writer.
#[derive(Debug)]
pub(super) enum LedgerMessage {
    /// Makes an intent durable and returns it as an open record.
    Open { intent: Box<OpenRecordState>, reply: CommitReplySender<OpenRecord>, _room: OwnedSemaphorePermit },
    /// Makes the begun calls durable.
    Note { record: Box<Record>, reply: CommitReplySender<()> },
    /// Makes an outcome durable.
    Close(ClosedRecord),
    /// Makes a claim, its answer, or its removal durable.
    Replay { write: Box<ReplayWrite>, reply: CommitReplySender<RowWriteOutcome>, _room: Option<OwnedSemaphorePermit> },
}

/// A record that is closed but not durable yet.
#[derive(Debug)]
pub(super) struct ClosedRecord {
    entry: Box<OpenRecordState>,
    reply: Option<CommitReplySender<()>>,
    tries: u32,
}

impl ClosedRecord {
    pub(super) fn new(entry: Box<OpenRecordState>, reply: Option<CommitReplySender<()>>) -> Self {
        Self { entry, reply, tries: 0 }
    }

    fn send_reply(&mut self, result: Result<(), LedgerError>) {
        if let Some(reply) = self.reply.take() {
            // The send fails if the caller has left; the result is not needed then.
            let _ = reply.send(result);
        }
    }
}

pub(super) struct LedgerWriter {
    store: Arc<dyn Store>,
    node: NodeId,
    inbox: mpsc::UnboundedReceiver<LedgerMessage>,
    /// Outcomes that failed, oldest first.
    failed_outcomes: Vec<ClosedRecord>,
    health: Arc<WriteHealth>,
    throttle: LogThrottle,
}

impl LedgerWriter {
    pub(super) fn new(
        store: Arc<dyn Store>,
        node: NodeId,
        inbox: mpsc::UnboundedReceiver<LedgerMessage>,
        health: Arc<WriteHealth>,
    ) -> Self {
        Self { store, node, inbox, failed_outcomes: Vec::new(), health, throttle: LogThrottle::default() }
    }

    /// Runs until every ledger and every open record is gone and nothing is left to write.
    pub(super) async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            if batch.is_empty() {
                self.check_database().await;
            } else {
                self.commit_batch(batch).await;
            }
        }
    }

    /// Returns the waiting messages, or the next one if there are none. The batch is empty if no message comes for a
    /// while; `None` means that the channel is closed and nothing is left to write.
    async fn next_batch(&mut self) -> Option<Vec<LedgerMessage>> {
        let mut batch: Vec<_> =
            self.failed_outcomes.drain(..self.failed_outcomes.len().min(MAX_BATCH)).map(LedgerMessage::Close).collect();
        let capacity = MAX_BATCH.saturating_sub(batch.len()).max(1);
        if batch.is_empty() {
            let check_interval = if self.health.is_failing() { CHECK_WHILE_FAILING } else { CHECK_WHILE_IDLE };
            let received = timeout(check_interval, self.inbox.recv_many(&mut batch, capacity)).await;
            return (received != Ok(0)).then_some(batch);
        }
        // After a failure the writer pauses; a new message ends the pause, because it may succeed.
        let _ = timeout(RETRY_PAUSE, self.inbox.recv_many(&mut batch, capacity)).await;
        Some(batch)
    }

    async fn commit_batch(&mut self, mut batch: Vec<LedgerMessage>) {
        batch.retain(|message| !message.is_abandoned());
        match self.write_batch(&batch).await {
            Ok(written) => {
                batch.into_iter().zip(written).for_each(|(message, written)| reply_with_outcome(message, written));
            }
            Err(error) if error.is_row_fault() && batch.len() > 1 => self.commit_singly(batch).await,
            Err(error) => self.fail_batch(batch, error),
        }
    }

    /// Commits each message by itself, so that one bad row does not hold back the others.
    async fn commit_singly(&mut self, batch: Vec<LedgerMessage>) {
        for message in batch {
            let batch = vec![message];
            match self.write_batch(&batch).await {
                Ok(written) => {
                    batch.into_iter().zip(written).for_each(|(message, written)| reply_with_outcome(message, written));
                }
                Err(error) => self.fail_batch(batch, error),
            }
        }
    }

    async fn write_batch(&mut self, batch: &[LedgerMessage]) -> Result<Vec<RowWriteOutcome>, StoreError> {
        let writes: Vec<_> = batch.iter().map(LedgerMessage::as_write).collect();
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.health.commit_begins();
        let written = self.store.write_rows(&self.node, &writes).await;
        self.note_commit_result(written.as_ref().err());
        written
    }

    /// Checks that the database accepts writes.
    async fn check_database(&mut self) {
        self.health.commit_begins();
        let checked = self.store.check_writable().await;
        self.note_commit_result(checked.as_ref().err());
        if let Err(error) = checked {
            self.log_failure(&error, 0);
        }
    }

    fn note_commit_result(&mut self, error: Option<&StoreError>) {
        // A row that no database would accept says nothing about this database.
        let failed = error.is_none_or(|error| !error.is_row_fault()).then_some(error.is_some());
        self.health.commit_ended(failed);
        if failed == Some(false)
            && let Some(failures) = self.throttle.record_success()
        {
            tracing::info!(failures, "writing records works again");
        }
    }

    fn log_failure(&mut self, error: &StoreError, records: usize) {
        if let Some(failures) = self.throttle.record_failure(Instant::now()) {
            tracing::error!(error = %display_chain(error), records, failures, "records could not be written");
        }
    }

    fn fail_batch(&mut self, batch: Vec<LedgerMessage>, error: StoreError) {
        let is_unwritable = error.is_row_fault();
        if is_unwritable {
            tracing::error!(error = %display_chain(&error), "the database refused a record");
        } else {
            self.log_failure(&error, batch.len());
        }
        let cause = LedgerError::Store(Arc::new(error));
        for message in batch {
            match message {
                LedgerMessage::Open { reply, .. } => drop(reply.send(Err(cause.clone()))),
                LedgerMessage::Note { reply, .. } => drop(reply.send(Err(cause.clone()))),
                LedgerMessage::Replay { reply, .. } => drop(reply.send(Err(cause.clone()))),
                LedgerMessage::Close(outgoing) => self.retry_later(outgoing, &cause, is_unwritable),
            }
        }
    }

    fn retry_later(&mut self, mut closed_record: ClosedRecord, cause: &LedgerError, is_unwritable: bool) {
        closed_record.tries += 1;
        if is_unwritable || closed_record.tries >= TRIES_BEFORE_REPLY {
            closed_record.send_reply(Err(cause.clone()));
        }
        if is_unwritable {
            tracing::error!(request_id = %closed_record.entry.record.request_id, "the outcome of a job cannot be stored");
        } else {
            self.failed_outcomes.push(closed_record);
        }
    }
}

impl LedgerMessage {
    fn as_write(&self) -> RowWrite<'_> {
        match self {
            Self::Open { intent, .. } => RowWrite::Open(&intent.record),
            Self::Note { record, .. } => RowWrite::RecordAttempts(record),
            Self::Close(outgoing) => RowWrite::Close(&outgoing.entry.record),
            Self::Replay { write, .. } => RowWrite::Replay(write),
        }
    }

    /// True if the write must be skipped: a caller that stopped waiting for an intent or a claim must not get one, and
    /// an answer that was given up must not be found. Removals of claims are always written, even if no caller waits.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Open { reply, .. } => reply.is_closed(),
            Self::Replay { write, reply, .. } => !matches!(**write, ReplayWrite::Remove { .. }) && reply.is_closed(),
            Self::Note { .. } | Self::Close(_) => false,
        }
    }
}

fn reply_with_outcome(message: LedgerMessage, written: RowWriteOutcome) {
    match message {
        LedgerMessage::Open { intent, reply, .. } => {
            let opened = match written {
                RowWriteOutcome::Done => Ok(OpenRecord::new(intent)),
                RowWriteOutcome::NoEffect | RowWriteOutcome::AlreadyClaimed(_) => Err(LedgerError::Duplicate),
            };
            // If no caller waits any more, the open record comes back and is dropped, which closes it.
            drop(reply.send(opened));
        }
        LedgerMessage::Note { reply, .. } => drop(reply.send(Ok(()))),
        LedgerMessage::Close(mut outgoing) => {
            if written == RowWriteOutcome::NoEffect {
                // An earlier try whose answer was lost has written it, or another process has closed the record.
                tracing::warn!(request_id = %outgoing.entry.record.request_id, "the record was already closed");
            }
            outgoing.send_reply(Ok(()));
        }
        LedgerMessage::Replay { reply, .. } => drop(reply.send(Ok(written))),
    }
}

fn display_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
