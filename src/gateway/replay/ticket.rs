//! The duty to say what became of a job, so that its idempotency key has one answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::ReplayError;
use super::durable::{KeepError, PendingFile};
use super::follower::Follower;
use super::frames::Frames;
use super::head::{Head, Recordable, is_final, written};
use super::keyed::{Entrance, Handed, Keyed, Live};
use super::pending::PendingGuard;
use super::recorder::Recorder;
use super::room::Room;
use super::tape::End;
use crate::error::Error;
use crate::gateway::ledger::{LedgerError, OPEN_PATIENCE};
use crate::gateway::store::{ReplayRow, ReplayWrite, Written};

/// How long an answer that another node makes is waited for: longer than any job has.
const OTHER_NODE_PATIENCE: Duration = Duration::from_secs(330);
/// Between two looks at another node's claim.
const OTHER_NODE_PAUSE: Duration = Duration::from_millis(250);
/// How long the end of an answer waits for the disk and the store. After that it is given, and not kept.
pub(super) const KEEP_PATIENCE: Duration = Duration::from_secs(10);

/// Held by whoever runs the job of an idempotency key. Dropped without a word, the answer is lost: the job may have
/// been paid for, so a repeat must not pay again.
pub(crate) struct Ticket {
    keyed: Arc<Keyed>,
    live: Arc<Live>,
    row: ReplayRow,
    /// Keeps the store open until the claim is settled or given back.
    _pending: PendingGuard,
}

// === impl Ticket ===

impl Ticket {
    pub(super) fn new(keyed: Arc<Keyed>, live: Arc<Live>, row: ReplayRow) -> Self {
        let _pending = keyed.pending();
        Self { keyed, live, row, _pending }
    }

    /// Makes the claim, or finds out who has it, and says so. What nobody takes is given back.
    pub(super) async fn ask(self, reply: oneshot::Sender<Result<Handed, ReplayError>>) {
        let until = Instant::now() + OTHER_NODE_PATIENCE;
        let entrance = loop {
            let mut claim = pin!(self.claim());
            let Ok(written) = timeout(OPEN_PATIENCE, &mut claim).await else {
                drop(reply.send(Err(LedgerError::Overloaded.into())));
                // It may come through yet, and then nothing was spent on it.
                return self.end_late(claim.await).await;
            };
            let taken = match written {
                Ok(Written::Done) => break Ok(Entrance::Fresh(self)),
                Ok(Written::Taken(taken)) => taken,
                // Nobody knows whose it is, so nobody pays.
                Ok(Written::NoEffect) => break Ok(Entrance::Lost),
                Err(error) => break Err(error.into()),
            };
            if let Some(entrance) = self.keyed.taken(&taken, &self.row.digest).await {
                break Ok(entrance);
            }
            if Instant::now() >= until || reply.is_closed() {
                break Ok(Entrance::Lost);
            }
            sleep(OTHER_NODE_PAUSE).await;
        };
        drop(reply.send(entrance.map(Handed::new)));
    }

    async fn end_late(self, claimed: Result<Written, LedgerError>) {
        if let Ok(Written::Done) = claimed {
            self.give_back().await;
        }
    }

    fn claim(&self) -> impl Future<Output = Result<Written, LedgerError>> + use<> {
        let (ledger, claim) = (self.keyed.ledger.clone(), ReplayWrite::Claim(self.row.clone()));
        async move { ledger.write_replay(claim).await }
    }

    /// It has been taken: whoever comes now follows.
    pub(super) fn open(&self) {
        self.live.open();
    }

    /// The answer to come, for whoever holds the ticket too.
    pub(crate) fn follow(&self) -> Follower {
        Follower::of(&self.live.tape)
    }

    /// Says what became of the job. An answer with an image, an end that may have been paid for and a refusal are kept;
    /// after any other end, which cost nothing, a repeat runs anew.
    ///
    /// Reads the body to its end at its own pace, whoever follows: to be awaited where no caller can drop it.
    pub(crate) async fn record<M: Recordable>(self, result: Result<M, Error>) {
        match result {
            Ok(made) => {
                let (head, body) = made.into_parts();
                self.keep(head, body).await;
            }
            Err(error) if is_final(&error) => {
                let (head, body) = written(&error);
                self.keep(head, Full::new(body)).await;
            }
            Err(error) => {
                // First the claim, then the word: who hears it and repeats at once must find the place free.
                self.keyed.forget(&self.row).await;
                self.keyed.leave(&self.row.scope, &self.live);
                let (head, body) = written(&error);
                self.live.tape.speak(head, body);
            }
        }
    }

    /// Nothing was spent: nobody took the ticket.
    pub(super) async fn give_back(self) {
        self.keyed.forget(&self.row).await;
    }

    async fn keep<B>(self, head: Head, body: B)
    where
        B: http_body::Body<Data = bytes::Bytes, Error: std::fmt::Display> + Unpin,
    {
        let (named, frames) = match self.keyed.shelf.begin(&self.live.owner, None).await {
            Ok((file, frames, key)) => (Some(PendingFile { file, key, head: head.clone() }), Ok(frames)),
            Err(error) => (None, Err(error)),
        };
        let room = Arc::clone(&self.keyed.shelf) as Arc<dyn Room>;
        let mut recorder = Recorder::begin(Arc::clone(&self.live.tape), head, frames, room);
        if let Err(error) = recorder.pump(body).await {
            tracing::warn!(%error, "an answer broke off and is not kept");
            self.keyed.leave(&self.row.scope, &self.live);
            return;
        }
        if let (Some(named), Some(frames)) = (named, recorder.close().await) {
            let settled = timeout(KEEP_PATIENCE, self.settle(named, &frames)).await;
            if let Err(error) = settled.unwrap_or_else(|_| Err("the disk or the store takes too long".into())) {
                tracing::error!(error = &*error as &dyn std::error::Error, "an answer is not kept");
                frames.remove();
            }
        }
        self.keyed.leave(&self.row.scope, &self.live);
        recorder.end();
    }

    async fn settle(&self, answer: PendingFile, frames: &Arc<Frames>) -> Result<(), KeepError> {
        let file = answer.file.clone();
        self.keyed.finish(&self.row, answer, frames, self.live.tape.length()).await?;
        self.keyed.shelf.put(file, self.row.expires_at, self.live.tape.take_reserved());
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // After a good end neither says anything new.
        self.keyed.leave(&self.row.scope, &self.live);
        self.live.tape.end(End::Broken);
    }
}
