//! The guard of a claim: it reports the outcome of the job, so that an idempotency key has exactly one answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::answer_head::{AnswerHead, RecordableAnswer, error_answer, is_final};
use super::answer_reader::AnswerReader;
use super::answer_recorder::AnswerRecorder;
use super::answer_store::{AnswerStore, ClaimHandover, ClaimOutcome, LiveClaim};
use super::disk_budget::AnswerSpace;
use super::pending_work::PendingGuard;
use super::stored_answer::StoredAnswerEnd;
use super::{LONGEST_CLAIM, ReplayError};
use crate::error::Error;
use crate::gateway::ledger::{LedgerError, OPEN_TIMEOUT};
use crate::gateway::store::{ReplayClaim, ReplayWrite, RowWriteOutcome, Timestamp};

/// The pause between two reads of another node's claim (our choice).
pub(super) const OTHER_NODE_PAUSE: Duration = Duration::from_millis(250);
/// The longest time that the end of an answer waits for the disk and the store, and that each piece waits for the disk
/// (our choice). After that the answer is sent on, and is not stored.
pub(super) const STORAGE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The guard of the request that runs the job of an idempotency key. If it is dropped without a result, the answer is
/// lost: the job may have been charged, so a repeat must not run it again.
pub(crate) struct ClaimGuard {
    answers: Arc<AnswerStore>,
    live: Arc<LiveClaim>,
    row: ReplayClaim,
    /// The disk space that was reserved for the answer.
    space: Option<AnswerSpace>,
    /// True if the answer is kept in memory for a while if it cannot be written.
    may_stay_in_memory: bool,
    /// The longest time for which a reason keeps the answer.
    keep_window: Duration,
    /// Keeps the store open until the claim is completed or released.
    _pending: PendingGuard,
}

// === impl ClaimGuard ===

impl ClaimGuard {
    pub(super) fn new(answers: Arc<AnswerStore>, live: Arc<LiveClaim>, row: ReplayClaim) -> Self {
        let (_pending, keep_window) = (answers.begin_work(), answers.windows.replay);
        Self { answers, live, row, space: None, may_stay_in_memory: false, keep_window, _pending }
    }

    /// Makes the claim, or reads the existing claim, and sends the outcome to `reply`. A claim whose request no longer
    /// waits is released.
    pub(super) async fn acquire(self, reply: oneshot::Sender<Result<ClaimHandover, ReplayError>>) {
        let deadline = Instant::now() + LONGEST_CLAIM;
        let outcome = loop {
            let mut claim = pin!(self.write_claim());
            let Ok(write_result) = timeout(OPEN_TIMEOUT, &mut claim).await else {
                drop(reply.send(Err(LedgerError::Overloaded.into())));
                // The write may still succeed. The request got an error, so the claim is released then.
                return self.release_late_claim(claim.await).await;
            };
            let stored_claim = match write_result {
                Ok(RowWriteOutcome::Done) => break Ok(ClaimOutcome::Claimed(Box::new(self))),
                Ok(RowWriteOutcome::AlreadyClaimed(existing)) => existing,
                // The owner of the claim is unknown, so the job does not run.
                Ok(RowWriteOutcome::NoEffect) => break Ok(ClaimOutcome::AnswerUnavailable),
                Err(error) => break Err(error.into()),
            };
            match self.answers.outcome_of_stored_claim(&stored_claim, &self.row.digest).await {
                Ok(Some(outcome)) => break Ok(outcome),
                Ok(None) if Instant::now() >= deadline || reply.is_closed() => {
                    break Ok(ClaimOutcome::AnswerUnavailable);
                }
                Ok(None) => sleep(OTHER_NODE_PAUSE).await,
                Err(error) => break Err(error),
            }
        };
        drop(reply.send(outcome.map(ClaimHandover::new)));
    }

    async fn release_late_claim(self, claimed: Result<RowWriteOutcome, LedgerError>) {
        if let Ok(RowWriteOutcome::Done) = claimed {
            self.release().await;
        }
    }

    fn write_claim(&self) -> impl Future<Output = Result<RowWriteOutcome, LedgerError>> + use<> {
        let (ledger, claim) = (self.answers.ledger.clone(), ReplayWrite::Claim(self.row.clone()));
        async move { ledger.write_replay(claim).await }
    }

    /// Records that the request received the guard: later requests then read its answer.
    pub(super) fn mark_held(&self) {
        self.live.mark_held();
    }

    /// Returns a reader of the answer. The request that runs the job reads it in this way too.
    pub(crate) fn answer_reader(&self) -> AnswerReader {
        AnswerReader::new(&self.live.answer).with_id((&self.row).into())
    }

    /// Uses space that was reserved before anything was spent. The answer is then kept until it is fetched, even if it
    /// cannot be written.
    pub(crate) fn use_space(&mut self, space: AnswerSpace) {
        (self.space, self.may_stay_in_memory) = (Some(space), true);
    }

    /// Adds a reason to keep the answer, which ends this long after the answer.
    pub(crate) fn keep_for(&mut self, window: Duration) {
        self.keep_window = self.keep_window.max(window);
    }

    /// Keeps the answer in memory for a while if it cannot be written: it was paid for, and its caller may have left.
    pub(crate) const fn keep_in_memory(&mut self) {
        self.may_stay_in_memory = true;
    }

    /// Reports the outcome of the job. An answer, a refusal and an error that may have been charged are stored. After
    /// any other error, which cost nothing, a repeat runs a new job.
    ///
    /// Reads the body to its end, independently of the readers. Must be awaited in a task that no caller can drop.
    pub(crate) async fn record<M: RecordableAnswer>(self, result: Result<M, Error>) {
        match result {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                self.store_answer(head, body).await;
            }
            Err(error) if is_final(&error) => {
                let (head, body) = error_answer(&error);
                self.store_answer(head, Full::new(body)).await;
            }
            Err(error) => self.record_error(&error).await,
        }
    }

    /// Reports an error that cost nothing.
    async fn record_error(self, error: &Error) {
        // The claim is removed before the error is sent: a caller that repeats at once must find no claim.
        self.answers.release_claim(&(&self.row).into()).await;
        self.answers.end_live_claim(&self.row.scope, &self.live);
        let (head, body) = error_answer(error);
        self.live.answer.set_complete(head, body);
    }

    /// Releases the claim of a guard that no request received, so nothing was spent.
    pub(super) async fn release(self) {
        self.answers.release_claim(&(&self.row).into()).await;
    }

    async fn store_answer<B>(mut self, head: AnswerHead, body: B)
    where
        B: http_body::Body<Data = bytes::Bytes, Error: std::fmt::Display> + Unpin,
    {
        let (folder, answer) = (&self.answers.folder, &self.live.answer);
        let mut recorder = AnswerRecorder::begin(folder, answer, &self.live.owner, None, head).await;
        if self.may_stay_in_memory {
            recorder.keep_all(self.space.take(), &self.answers.unstored);
        }
        if let Err(error) = recorder.record_body(body).await {
            tracing::warn!(%error, "an answer broke off and is not stored");
            self.answers.end_live_claim(&self.row.scope, &self.live);
            return;
        }
        // The time for which the answer is kept begins now: the job may have taken longer than that.
        let expires_at = Timestamp::now() + self.keep_window;
        let claim = ReplayClaim { expires_at, ..self.row.clone() };
        let is_stored = match recorder.finish_file().await {
            Some(file) => self.answers.commit(&claim, file, answer).await,
            None => false,
        };
        if !is_stored {
            self.answers.keep_unstored(self.row.request_id.clone(), answer, self.may_stay_in_memory);
        }
        self.answers.end_live_claim(&self.row.scope, &self.live);
        recorder.mark_complete();
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        // Both calls have no effect if the outcome was reported.
        self.answers.end_live_claim(&self.row.scope, &self.live);
        self.live.answer.end(StoredAnswerEnd::Broken);
    }
}
