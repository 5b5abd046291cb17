//! The duty to report the outcome of a job, so that its idempotency key has one answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::ReplayError;
use super::durable::{AnswerStorageError, PendingFile};
use super::follower::AnswerReader;
use super::frames::SealedFile;
use super::head::{AnswerHead, RecordableAnswer, is_final, written};
use super::keyed::{ClaimHandover, ClaimOutcome, IdempotentAnswers, LiveClaim};
use super::pending::PendingGuard;
use super::recorder::AnswerRecorder;
use super::room::EvictableStorage;
use super::tape::StoredAnswerEnd;
use crate::error::Error;
use crate::gateway::ledger::{LedgerError, OPEN_PATIENCE};
use crate::gateway::store::{ReplayClaim, ReplayWrite, RowWriteOutcome};

/// The longest wait for an answer that another node makes: longer than any job may take.
const OTHER_NODE_PATIENCE: Duration = Duration::from_secs(330);
/// The pause between two reads of another node's claim.
const OTHER_NODE_PAUSE: Duration = Duration::from_millis(250);
/// The longest time that the end of an answer waits for the disk and the store. After that the end is sent, and the
/// answer is not kept.
pub(super) const KEEP_PATIENCE: Duration = Duration::from_secs(10);

/// The guard of the request that runs the job of an idempotency key. If it is dropped without a result, the answer is
/// lost: the job may have been paid for, so a repeat must not pay again.
pub(crate) struct ClaimGuard {
    keyed: Arc<IdempotentAnswers>,
    live: Arc<LiveClaim>,
    row: ReplayClaim,
    /// Keeps the store open until the claim is settled or given back.
    _pending: PendingGuard,
}

// === impl ClaimGuard ===

impl ClaimGuard {
    pub(super) fn new(keyed: Arc<IdempotentAnswers>, live: Arc<LiveClaim>, row: ReplayClaim) -> Self {
        let _pending = keyed.pending();
        Self { keyed, live, row, _pending }
    }

    /// Makes the claim, or finds out who has it, and replies with the outcome. A claim that no request receives is
    /// given back.
    pub(super) async fn ask(self, reply: oneshot::Sender<Result<ClaimHandover, ReplayError>>) {
        let until = Instant::now() + OTHER_NODE_PATIENCE;
        let entrance = loop {
            let mut claim = pin!(self.claim());
            let Ok(written) = timeout(OPEN_PATIENCE, &mut claim).await else {
                drop(reply.send(Err(LedgerError::Overloaded.into())));
                // The write may still succeed, and nothing was spent for it.
                return self.end_late(claim.await).await;
            };
            let taken = match written {
                Ok(RowWriteOutcome::Done) => break Ok(ClaimOutcome::Fresh(self)),
                Ok(RowWriteOutcome::Taken(taken)) => taken,
                // The owner of the claim is unknown, so the job does not run.
                Ok(RowWriteOutcome::NoEffect) => break Ok(ClaimOutcome::Lost),
                Err(error) => break Err(error.into()),
            };
            if let Some(entrance) = self.keyed.taken(&taken, &self.row.digest).await {
                break Ok(entrance);
            }
            if Instant::now() >= until || reply.is_closed() {
                break Ok(ClaimOutcome::Lost);
            }
            sleep(OTHER_NODE_PAUSE).await;
        };
        drop(reply.send(entrance.map(ClaimHandover::new)));
    }

    async fn end_late(self, claimed: Result<RowWriteOutcome, LedgerError>) {
        if let Ok(RowWriteOutcome::Done) = claimed {
            self.give_back().await;
        }
    }

    fn claim(&self) -> impl Future<Output = Result<RowWriteOutcome, LedgerError>> + use<> {
        let (ledger, claim) = (self.keyed.ledger.clone(), ReplayWrite::Claim(self.row.clone()));
        async move { ledger.write_replay(claim).await }
    }

    /// Notes that the guard was received: later requests follow.
    pub(super) fn open(&self) {
        self.live.open();
    }

    /// Returns a reader of the answer, also for the holder of the guard.
    pub(crate) fn follow(&self) -> AnswerReader {
        AnswerReader::of(&self.live.tape)
    }

    /// Reports the outcome of the job. An answer with an image, an end that may have been paid for and a refusal are
    /// kept. After any other end, which cost nothing, a repeat runs anew.
    ///
    /// Reads the body to its end, independently of the followers. Must be awaited in a task that no caller can drop.
    pub(crate) async fn record<M: RecordableAnswer>(self, result: Result<M, Error>) {
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
                // The claim is removed before the error is sent: a caller who repeats at once must find no claim.
                self.keyed.forget(&self.row).await;
                self.keyed.leave(&self.row.scope, &self.live);
                let (head, body) = written(&error);
                self.live.tape.speak(head, body);
            }
        }
    }

    /// Gives the claim back: the guard was not received, so nothing was spent.
    pub(super) async fn give_back(self) {
        self.keyed.forget(&self.row).await;
    }

    async fn keep<B>(self, head: AnswerHead, body: B)
    where
        B: http_body::Body<Data = bytes::Bytes, Error: std::fmt::Display> + Unpin,
    {
        let (named, frames) = match self.keyed.shelf.begin(&self.live.owner, None).await {
            Ok((file, frames, key)) => (Some(PendingFile { file, key, head: head.clone() }), Ok(frames)),
            Err(error) => (None, Err(error)),
        };
        let room = Arc::clone(&self.keyed.shelf) as Arc<dyn EvictableStorage>;
        let mut recorder = AnswerRecorder::begin(Arc::clone(&self.live.tape), head, frames, room);
        if let Err(error) = recorder.pump(body).await {
            tracing::warn!(%error, "an answer broke off and is not stored");
            self.keyed.leave(&self.row.scope, &self.live);
            return;
        }
        if let (Some(named), Some(frames)) = (named, recorder.close().await) {
            let settled = timeout(KEEP_PATIENCE, self.settle(named, &frames)).await;
            if let Err(error) = settled.unwrap_or_else(|_| Err("the disk or the store is too slow".into())) {
                tracing::error!(error = &*error as &dyn std::error::Error, "an answer is not stored");
                frames.remove();
            }
        }
        self.keyed.leave(&self.row.scope, &self.live);
        recorder.end();
    }

    async fn settle(&self, answer: PendingFile, frames: &Arc<SealedFile>) -> Result<(), AnswerStorageError> {
        let file = answer.file.clone();
        self.keyed.finish(&self.row, answer, frames, self.live.tape.length()).await?;
        self.keyed.shelf.put(file, self.row.expires_at, self.live.tape.take_reserved());
        Ok(())
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        // After a complete end neither has an effect.
        self.keyed.leave(&self.row.scope, &self.live);
        self.live.tape.end(StoredAnswerEnd::Broken);
    }
}
