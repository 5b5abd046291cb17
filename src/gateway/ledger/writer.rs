//! The single thread that writes records and the claims of idempotency keys: it collects messages, commits them as one
//! batch, and replies to each.
//!
//! It is a thread and not a task, because the store blocks while a commit waits for the disk.
//!
//! An intent that cannot be written is refused at once, because no upstream has been called. An outcome that cannot be
//! written is kept, and the write is retried as long as the process lives, because an upstream may have charged the
//! job; only an outcome that the database refuses because of its content is dropped. The number of such outcomes is
//! limited: if outcomes fail, intents fail too, so only the jobs that were running at that time can accumulate.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::health::WriteHealth;
use super::open_record::{OpenRecord, OpenRecordState};
use super::{JobRecord, LedgerError, NodeId};
use crate::gateway::limits::SettlingGuard;
use crate::gateway::store::{RecordStore, ReplayWrite, RowWrite, RowWriteOutcome, StoreError};
use crate::gateway::telemetry::LogThrottle;

/// The maximum number of writes in a transaction (our choice): large enough for a heavy load, and small enough that
/// queries of records are not delayed.
const MAX_BATCH: usize = 512;

/// The number of failed writes of an outcome after which its job gets the error (our choice). In each write, the store
/// itself waits for locks.
const TRIES_BEFORE_REPLY: u32 = 3;

/// The pause before a failed write is retried, unless a new message arrives (our choice).
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The longest time for which commits follow each other without a pause, and the pause (our choice). Commands are other
/// processes: SQLite lets them try again every 100 ms, and they would find the database locked each time.
const BUSY_PERIOD: Duration = Duration::from_millis(20);
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// The idle time after which the database is checked while writes fail (our choice). It is short, so that the gateway
/// reports that it is ready soon after the database works again.
const CHECK_WHILE_FAILING: Duration = Duration::from_secs(1);
/// The idle time after which the database is checked while writes succeed (our choice).
const CHECK_WHILE_IDLE: Duration = Duration::from_secs(10);

/// The time after which the records of closed jobs are moved to the rows that readers see, and the longest time of a
/// move, for which other messages wait (our choice). If more are left after it, the next move follows after a pause.
const MOVE_DELAY: Duration = Duration::from_secs(1);
const MOVE_DURATION: Duration = Duration::from_millis(2);
const MOVE_PAUSE: Duration = Duration::from_millis(10);
/// The number of closed records above which there is no pause, so that new requests wait for the moves (our choice).
const MOVE_BACKLOG: usize = 2_000;
/// The time after which failing moves count as a failure of the database (our choice).
const MOVE_FAILURE: Duration = Duration::from_secs(60);

/// The sender of the writer's reply to one message.
pub(super) type CommitReplySender<T> = oneshot::Sender<Result<T, LedgerError>>;

/// The messages that jobs send to the writer.
#[derive(Debug)]
pub(super) enum LedgerMessage {
    /// Makes an intent durable and returns it as an open record.
    Open { intent: Box<OpenRecordState>, reply: CommitReplySender<OpenRecord>, _permit: OwnedSemaphorePermit },
    /// Makes the started attempts durable.
    RecordAttempts { record: Box<JobRecord>, reply: CommitReplySender<()> },
    /// Makes an outcome durable.
    Close(ClosedRecord),
    /// Makes a claim, its answer, or its removal durable.
    Replay { write: Box<ReplayWrite>, reply: CommitReplySender<RowWriteOutcome>, _permit: Option<OwnedSemaphorePermit> },
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

    /// Settles the limits before the reply, so that the next request of the caller finds its room.
    fn settle(self, result: Result<(), LedgerError>) {
        let Self { entry, mut reply, .. } = self;
        entry.settle();
        if let Some(reply) = reply.take() {
            // The send fails if the caller has left; the result is not needed then.
            let _ = reply.send(result);
        }
    }

    fn send_reply(&mut self, result: Result<(), LedgerError>) {
        if let Some(reply) = self.reply.take() {
            // The send fails if the caller has left; the result is not needed then.
            let _ = reply.send(result);
        }
    }
}

/// The state of the writing thread.
pub(super) struct LedgerWriter {
    store: Arc<dyn RecordStore>,
    /// The runtime that the calls of the store need.
    runtime: Handle,
    node: NodeId,
    message_receiver: Receiver<LedgerMessage>,
    /// The outcomes whose write has failed, oldest first.
    failed_outcomes: Vec<ClosedRecord>,
    health: Arc<WriteHealth>,
    throttle: LogThrottle,
    /// The time at which the thread last waited, for a message or for other processes.
    last_pause: Instant,
    /// The time of the next move of closed records; `None` if there is nothing to move.
    next_move: Option<Instant>,
    /// The time since which every move has failed.
    moves_fail_since: Option<Instant>,
}

impl LedgerWriter {
    /// Must be called within a tokio runtime.
    pub(super) fn new(
        store: Arc<dyn RecordStore>,
        node: NodeId,
        message_receiver: Receiver<LedgerMessage>,
        health: Arc<WriteHealth>,
    ) -> Self {
        let (runtime, throttle) = (Handle::current(), LogThrottle::default());
        let (failed_outcomes, last_pause) = (Vec::new(), Instant::now());
        Self {
            store,
            runtime,
            node,
            message_receiver,
            failed_outcomes,
            health,
            throttle,
            last_pause,
            next_move: None,
            moves_fail_since: None,
        }
    }

    /// Runs until all ledgers and open records are dropped and nothing remains to be written.
    pub(super) fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            let is_move_due = self.next_move.is_some_and(|at| at <= Instant::now());
            if !batch.is_empty() {
                self.commit_batch(batch);
            } else if !is_move_due {
                self.check_database();
            }
            if is_move_due {
                self.move_closed_records();
            }
        }
    }

    /// Moves records of closed jobs for a short time. If that fails for long, the node reports that it is not ready: its
    /// records are durable, but nobody can read them, and the journal grows.
    fn move_closed_records(&mut self) {
        let result = self.runtime.block_on(self.store.move_closed_records(MOVE_DURATION));
        let now = Instant::now();
        let (failing_since, next_move) = match result {
            Ok(0) => (None, None),
            Ok(left) if left > MOVE_BACKLOG => (None, Some(now)),
            Ok(_) => (None, Some(now + MOVE_PAUSE)),
            Err(StoreError::Busy) => (self.moves_fail_since.or(Some(now)), Some(now + MOVE_PAUSE)),
            Err(error) => {
                if self.moves_fail_since.is_none() {
                    tracing::error!(error = %display_chain(&error), "records could not be moved to the tables that are read");
                }
                self.check_database();
                (self.moves_fail_since.or(Some(now)), Some(now + MOVE_DELAY))
            }
        };
        (self.moves_fail_since, self.next_move) = (failing_since, next_move);
        self.health.set_moves_failing(failing_since.is_some_and(|since| now - since > MOVE_FAILURE));
    }

    /// Returns the waiting messages, or waits for the next one. The batch is empty if no message arrives before the
    /// next check of the database or the next move is due; `None` means that the channel is closed and nothing remains to
    /// be written.
    fn next_batch(&mut self) -> Option<Vec<LedgerMessage>> {
        let mut batch: Vec<_> =
            self.failed_outcomes.drain(..self.failed_outcomes.len().min(MAX_BATCH)).map(LedgerMessage::Close).collect();
        let wait = match (batch.is_empty(), self.health.is_failing()) {
            // A new message ends this pause, because its write may succeed.
            (false, _) => RETRY_PAUSE,
            (true, true) => CHECK_WHILE_FAILING,
            (true, false) => CHECK_WHILE_IDLE,
        };
        let wait = self.next_move.map_or(wait, |at| wait.min(at.saturating_duration_since(Instant::now())));
        match self.receive(wait) {
            Ok(message) => batch.push(message),
            Err(RecvTimeoutError::Disconnected) if batch.is_empty() => return None,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Some(batch),
        }
        batch.extend(self.message_receiver.try_iter().take(MAX_BATCH.saturating_sub(batch.len())));
        Some(batch)
    }

    /// Returns the next message, and waits for it for at most this time.
    #[expect(clippy::disallowed_methods, reason = "the thread does nothing else")]
    fn receive(&mut self, wait: Duration) -> Result<LedgerMessage, RecvTimeoutError> {
        let received = match self.message_receiver.try_recv() {
            Ok(message) if self.last_pause.elapsed() < BUSY_PERIOD => return Ok(message),
            Ok(message) => {
                std::thread::sleep(BUSY_PAUSE);
                Ok(message)
            }
            Err(_) => self.message_receiver.recv_timeout(wait),
        };
        self.last_pause = Instant::now();
        received
    }

    fn commit_batch(&mut self, mut batch: Vec<LedgerMessage>) {
        batch.retain(|message| !message.is_abandoned());
        let _settling = self.settling(&batch);
        match self.write_batch(&batch) {
            Ok(outcomes) => {
                batch.into_iter().zip(outcomes).for_each(|(message, outcome)| reply_with_outcome(message, outcome));
            }
            Err(error) if error.is_row_fault() && batch.len() > 1 => self.commit_singly(batch),
            Err(error) => self.fail_batch(batch, error),
        }
    }

    /// Commits each message in its own transaction, so that one invalid row does not block the others.
    fn commit_singly(&mut self, batch: Vec<LedgerMessage>) {
        for message in batch {
            let batch = vec![message];
            match self.write_batch(&batch) {
                Ok(outcomes) => {
                    batch.into_iter().zip(outcomes).for_each(|(message, outcome)| reply_with_outcome(message, outcome));
                }
                Err(error) => self.fail_batch(batch, error),
            }
        }
    }

    /// Keeps limits from beginning to count while records are closed and their reservations settled.
    fn settling(&self, batch: &[LedgerMessage]) -> Option<SettlingGuard> {
        let guard = batch.iter().find_map(|message| match message {
            LedgerMessage::Close(closed_record) => closed_record.entry.reservation.settling(),
            LedgerMessage::Open { .. } | LedgerMessage::RecordAttempts { .. } | LedgerMessage::Replay { .. } => None,
        })?;
        Some(self.runtime.block_on(guard))
    }

    fn write_batch(&mut self, batch: &[LedgerMessage]) -> Result<Vec<RowWriteOutcome>, StoreError> {
        let writes: Vec<_> = batch.iter().map(LedgerMessage::as_write).collect();
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.health.commit_started();
        let result = self.runtime.block_on(self.store.write_rows(&self.node, &writes));
        self.note_commit_result(result.as_ref().err());
        if result.is_ok() && writes.iter().any(|write| matches!(write, RowWrite::Close(_))) {
            self.next_move.get_or_insert_with(|| Instant::now() + MOVE_DELAY);
        }
        result
    }

    /// Checks that the database accepts writes, and updates the health.
    fn check_database(&mut self) {
        self.health.commit_started();
        let result = self.runtime.block_on(self.store.check_writable());
        self.note_commit_result(result.as_ref().err());
        if let Err(error) = result {
            self.log_failure(&error, 0);
        }
    }

    fn note_commit_result(&mut self, error: Option<&StoreError>) {
        // An error that is caused by the row does not show whether the database works.
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
                LedgerMessage::RecordAttempts { reply, .. } => drop(reply.send(Err(cause.clone()))),
                LedgerMessage::Replay { reply, .. } => drop(reply.send(Err(cause.clone()))),
                LedgerMessage::Close(closed_record) => self.retry_later(closed_record, &cause, is_unwritable),
            }
        }
    }

    fn retry_later(&mut self, mut closed_record: ClosedRecord, cause: &LedgerError, is_unwritable: bool) {
        closed_record.tries += 1;
        if is_unwritable || closed_record.tries >= TRIES_BEFORE_REPLY {
            closed_record.send_reply(Err(cause.clone()));
        }
        if is_unwritable {
            let request_id = &closed_record.entry.record.document.request_id;
            tracing::error!(%request_id, "the outcome of a job cannot be stored");
            closed_record.entry.settle();
        } else {
            self.failed_outcomes.push(closed_record);
        }
    }
}

impl Drop for LedgerWriter {
    fn drop(&mut self) {
        // After a panic nobody writes records any more, so the gateway must not report that it is ready.
        if std::thread::panicking() {
            self.health.commit_ended(Some(true));
        }
    }
}

impl LedgerMessage {
    fn as_write(&self) -> RowWrite<'_> {
        match self {
            Self::Open { intent, .. } => RowWrite::Open(&intent.record),
            Self::RecordAttempts { record, .. } => RowWrite::RecordAttempts(record),
            Self::Close(closed_record) => RowWrite::Close(&closed_record.entry.record),
            Self::Replay { write, .. } => RowWrite::Replay(write),
        }
    }

    /// True if the write must be skipped because its sender no longer waits for the reply: an intent, a claim, or the
    /// answer of a claim. Removals of claims are always written.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Open { reply, .. } => reply.is_closed(),
            Self::Replay { write, reply, .. } => match **write {
                ReplayWrite::Claim(_) | ReplayWrite::Finish { .. } => reply.is_closed(),
                ReplayWrite::EndRetry { .. } | ReplayWrite::Remove { .. } => false,
            },
            Self::RecordAttempts { .. } | Self::Close(_) => false,
        }
    }
}

/// Replies to a message whose write has been committed.
fn reply_with_outcome(message: LedgerMessage, outcome: RowWriteOutcome) {
    match message {
        LedgerMessage::Open { intent, reply, .. } => {
            let result = match outcome {
                RowWriteOutcome::Done => Ok(OpenRecord::new(intent)),
                RowWriteOutcome::NoEffect | RowWriteOutcome::AlreadyClaimed(_) => Err(LedgerError::Duplicate),
            };
            // If the receiver is gone, `send` returns the open record, and its drop closes the record.
            drop(reply.send(result));
        }
        LedgerMessage::RecordAttempts { reply, .. } => drop(reply.send(Ok(()))),
        LedgerMessage::Close(closed_record) => {
            if outcome == RowWriteOutcome::NoEffect {
                // An earlier write succeeded although it reported an error, or another process has closed the record.
                tracing::warn!(request_id = %closed_record.entry.record.document.request_id, "the record was already closed");
            }
            closed_record.settle(Ok(()));
        }
        LedgerMessage::Replay { reply, .. } => drop(reply.send(Ok(outcome))),
    }
}

/// The message of an error and of all its sources.
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
