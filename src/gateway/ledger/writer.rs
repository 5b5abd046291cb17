//! The one task that writes records, and the claims of idempotency keys with them: gather, commit, answer.
//!
//! An intent that fails is refused at once, because nothing has been spent. An outcome that fails is kept and tried
//! again for as long as the process lives, because something has. Their number is bounded: where outcomes fail,
//! intents fail too, so no more than were running when the trouble began can pile up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;

use super::health::WriteHealth;
use super::open::{Entry, OpenRecord};
use super::{LedgerError, NodeId, Record};
use crate::gateway::store::{ReplayWrite, RowWrite, Store, StoreError, Written};
use crate::gateway::telemetry::LogThrottle;

/// The largest transaction: large enough for any crowd, small enough that a reader of the log is not held up.
const MAX_BATCH: usize = 512;

/// How often an outcome is tried before its job is told. The store waits for locks by itself each time.
const TRIES_BEFORE_TELLING: u32 = 3;

/// Between two tries, unless something new arrives.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The idle time after which the database is checked: short while it fails, so that readiness comes back soon.
const CHECK_WHILE_FAILING: Duration = Duration::from_secs(1);
const CHECK_WHILE_IDLE: Duration = Duration::from_secs(10);

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, LedgerError>>;

/// What jobs send.
#[derive(Debug)]
pub(super) enum Message {
    /// Make this durable and hand it back.
    Open { intent: Box<Entry>, reply: Reply<OpenRecord>, _room: OwnedSemaphorePermit },
    /// Makes the begun calls durable.
    Note { record: Box<Record>, reply: Reply<()> },
    /// Make this durable.
    Close(Outgoing),
    /// Make a claim durable, or what became of one.
    Replay { write: Box<ReplayWrite>, reply: Reply<Written>, _room: Option<OwnedSemaphorePermit> },
}

/// A closed record that is not durable yet.
#[derive(Debug)]
pub(super) struct Outgoing {
    entry: Box<Entry>,
    reply: Option<Reply<()>>,
    tries: u32,
}

impl Outgoing {
    pub(super) fn new(entry: Box<Entry>, reply: Option<Reply<()>>) -> Self {
        Self { entry, reply, tries: 0 }
    }

    fn tell(&mut self, result: Result<(), LedgerError>) {
        if let Some(reply) = self.reply.take() {
            // A caller that left does not want to know.
            let _ = reply.send(result);
        }
    }
}

pub(super) struct Writer {
    store: Arc<dyn Store>,
    node: NodeId,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// Outcomes that failed, oldest first.
    again: Vec<Outgoing>,
    health: Arc<WriteHealth>,
    throttle: LogThrottle,
}

impl Writer {
    pub(super) fn new(
        store: Arc<dyn Store>,
        node: NodeId,
        inbox: mpsc::UnboundedReceiver<Message>,
        health: Arc<WriteHealth>,
    ) -> Self {
        Self { store, node, inbox, again: Vec::new(), health, throttle: LogThrottle::default() }
    }

    /// Ends when every ledger and every open record is gone and nothing is left to write.
    pub(super) async fn run(mut self) {
        while let Some(batch) = self.gather().await {
            if batch.is_empty() {
                self.check().await;
            } else {
                self.commit(batch).await;
            }
        }
    }

    /// The waiting messages, or the next one if there are none; `None` if no message comes for a while.
    async fn gather(&mut self) -> Option<Vec<Message>> {
        let mut batch: Vec<_> = self.again.drain(..self.again.len().min(MAX_BATCH)).map(Message::Close).collect();
        let room = MAX_BATCH.saturating_sub(batch.len()).max(1);
        if batch.is_empty() {
            let patience = if self.health.is_failing() { CHECK_WHILE_FAILING } else { CHECK_WHILE_IDLE };
            let received = timeout(patience, self.inbox.recv_many(&mut batch, room)).await;
            return (received != Ok(0)).then_some(batch);
        }
        // After a failure a pause; what arrives meanwhile ends it, because it may be what works.
        let _ = timeout(RETRY_PAUSE, self.inbox.recv_many(&mut batch, room)).await;
        Some(batch)
    }

    async fn commit(&mut self, mut batch: Vec<Message>) {
        batch.retain(|message| !message.is_abandoned());
        match self.write(&batch).await {
            Ok(written) => batch.into_iter().zip(written).for_each(|(message, written)| settle(message, written)),
            Err(error) if error.blames_the_row() && batch.len() > 1 => self.commit_singly(batch).await,
            Err(error) => self.fail(batch, error),
        }
    }

    /// One bad row must not hold back the others.
    async fn commit_singly(&mut self, batch: Vec<Message>) {
        for message in batch {
            let batch = vec![message];
            match self.write(&batch).await {
                Ok(written) => batch.into_iter().zip(written).for_each(|(message, written)| settle(message, written)),
                Err(error) => self.fail(batch, error),
            }
        }
    }

    async fn write(&mut self, batch: &[Message]) -> Result<Vec<Written>, StoreError> {
        let writes: Vec<_> = batch.iter().map(Message::as_write).collect();
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.health.commit_begins();
        let written = self.store.write_rows(&self.node, &writes).await;
        self.note(written.as_ref().err());
        written
    }

    /// Checks that the database takes writes.
    async fn check(&mut self) {
        self.health.commit_begins();
        let checked = self.store.check_writable().await;
        self.note(checked.as_ref().err());
        if let Err(error) = checked {
            self.tell(&error, 0);
        }
    }

    fn note(&mut self, error: Option<&StoreError>) {
        // A row that no database would take says nothing about this one.
        let failed = error.is_none_or(|error| !error.blames_the_row()).then_some(error.is_some());
        self.health.commit_ended(failed);
        if failed == Some(false)
            && let Some(failures) = self.throttle.worked()
        {
            tracing::info!(failures, "records are written again");
        }
    }

    fn tell(&mut self, error: &StoreError, records: usize) {
        if let Some(failures) = self.throttle.failed(Instant::now()) {
            tracing::error!(error = %display_chain(error), records, failures, "records were not written");
        }
    }

    fn fail(&mut self, batch: Vec<Message>, error: StoreError) {
        let hopeless = error.blames_the_row();
        if hopeless {
            tracing::error!(error = %display_chain(&error), "a record was refused");
        } else {
            self.tell(&error, batch.len());
        }
        let cause = LedgerError::Store(Arc::new(error));
        for message in batch {
            match message {
                Message::Open { reply, .. } => drop(reply.send(Err(cause.clone()))),
                Message::Note { reply, .. } => drop(reply.send(Err(cause.clone()))),
                Message::Replay { reply, .. } => drop(reply.send(Err(cause.clone()))),
                Message::Close(outgoing) => self.keep(outgoing, &cause, hopeless),
            }
        }
    }

    fn keep(&mut self, mut outgoing: Outgoing, cause: &LedgerError, hopeless: bool) {
        outgoing.tries += 1;
        if hopeless || outgoing.tries >= TRIES_BEFORE_TELLING {
            outgoing.tell(Err(cause.clone()));
        }
        if hopeless {
            tracing::error!(request_id = %outgoing.entry.record.request_id, "the outcome of a job cannot be stored");
        } else {
            self.again.push(outgoing);
        }
    }
}

impl Message {
    fn as_write(&self) -> RowWrite<'_> {
        match self {
            Self::Open { intent, .. } => RowWrite::Open(&intent.record),
            Self::Note { record, .. } => RowWrite::Note(record),
            Self::Close(outgoing) => RowWrite::Close(&outgoing.entry.record),
            Self::Replay { write, .. } => RowWrite::Replay(write),
        }
    }

    /// A caller that gave up waiting for an intent or a claim must not get one, nor may an answer be found that was
    /// given up. Claims are always forgotten, even if nobody waits.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Open { reply, .. } => reply.is_closed(),
            Self::Replay { write, reply, .. } => !matches!(**write, ReplayWrite::Forget { .. }) && reply.is_closed(),
            Self::Note { .. } | Self::Close(_) => false,
        }
    }
}

fn settle(message: Message, written: Written) {
    match message {
        Message::Open { intent, reply, .. } => {
            let opened = match written {
                Written::Done => Ok(OpenRecord::new(intent)),
                Written::NoEffect | Written::Taken(_) => Err(LedgerError::Duplicate),
            };
            // Where nobody waits any more the open record comes back and is dropped, which closes it.
            drop(reply.send(opened));
        }
        Message::Note { reply, .. } => drop(reply.send(Ok(()))),
        Message::Close(mut outgoing) => {
            if written == Written::NoEffect {
                // Written by a try whose answer was lost, or closed by somebody else.
                tracing::warn!(request_id = %outgoing.entry.record.request_id, "the record was closed already");
            }
            outgoing.tell(Ok(()));
        }
        Message::Replay { reply, .. } => drop(reply.send(Ok(written))),
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
