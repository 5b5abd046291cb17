//! The rows of the answers of plain jobs.
//!
//! A row is written when the caller of a job has left and its answer is complete, or when its caller gets links. It is
//! claimed earlier in three cases: before an answer with links is written; if several nodes share the store, before a
//! caller gets [`Error::InProgress`](crate::error::Error::InProgress), so that its repeat on another node finds the job;
//! and before the record ends of an orphan, or of a job whose caller marks its retries, because another node finds the
//! job by its record while it runs, and by its row later. If the caller has received the answer, its claim is removed. If
//! an answer is lost, a claim without an answer shows that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::StoredAnswer;
use super::index::{CandidateState, JobEntry, JobId, JobRow, JobStep};
use crate::gateway::replay::LONGEST_CLAIM;
use crate::gateway::replay::answer_channel::{AnswerSender, JobHandle};
use crate::gateway::replay::answer_head::RecordableAnswer;
use crate::gateway::replay::answer_reader::AnswerId;
use crate::gateway::replay::answer_recorder::PendingFile;
use crate::gateway::replay::answer_store::AnswerStore;
use crate::gateway::replay::claim_guard::STORAGE_WAIT_MAX;
use crate::gateway::store::{ReplayClaim, ReplayWrite, RowWriteOutcome, Timestamp};

/// The longest wait for the announcement of a repeat (our choice): callers may give up soon after the answer deadline.
const ANNOUNCEMENT_TIME_MAX: Duration = Duration::from_secs(2);

/// The right to claim the stored answer of a job before its record ends.
pub(crate) struct EarlyClaim(JobHandle);

// === impl EarlyClaim ===

impl EarlyClaim {
    /// Makes the claim durable if several nodes share the store, and if the caller of the job has left or marks its
    /// retries. If this process dies before the connection of such a caller has confirmed the answer, the claim shows
    /// other nodes that the answer may be lost; otherwise it is removed then. Must be called when the job has succeeded and
    /// its record is still open.
    pub(crate) async fn write(self) {
        let Self(JobHandle { answers, job_id }) = self;
        let is_orphan = |entry: &JobEntry| entry.state() == Some(CandidateState::Orphan) && entry.needs_retry_read;
        let has_left = answers.jobs().entries.get(&job_id).is_some_and(is_orphan);
        // A caller that waits gets its answer soon, even if the store has failed.
        let max_wait = if has_left { STORAGE_WAIT_MAX } else { ANNOUNCEMENT_TIME_MAX };
        let is_needed = |entry: &JobEntry| is_orphan(entry) || entry.registration.announces_retries;
        if answers.sharing.is_some() && !answers.claim_job(job_id, max_wait, false, is_needed).await {
            tracing::warn!("other nodes may not find an answer until it is stored: it could not be claimed");
        }
    }
}

// === impl AnswerSender ===

impl<M: RecordableAnswer> AnswerSender<M> {
    /// Returns the right to claim the stored answer; `None` if no retry can find the job.
    pub(crate) fn early_claim(&self) -> Option<EarlyClaim> {
        self.job_handle().map(EarlyClaim)
    }
}

// === impl AnswerStore ===

impl AnswerStore {
    /// Makes a claim that shows other nodes that a repeat of the request is expected, if several nodes share the store.
    /// Must be called before the caller gets the error.
    pub(in super::super) async fn announce_repeat(&self, job_id: JobId) {
        if self.sharing.is_some() && !self.claim_job(job_id, ANNOUNCEMENT_TIME_MAX, true, |_| true).await {
            tracing::warn!("other nodes may not find a job whose caller will repeat its request: the store has failed");
        }
    }

    /// Claims the row of a job whose caller gets links. Without the claim, the caller gets the images: returns false.
    pub(super) async fn claim_linked_job(&self, job_id: JobId) -> bool {
        let is_claimed = self.claim_job(job_id, STORAGE_WAIT_MAX, false, |_| true).await;
        if !is_claimed && let Some(entry) = self.jobs().entries.get_mut(&job_id) {
            tracing::error!("an answer has its images instead of links: it cannot be stored");
            entry.registration.link_window = None;
            entry.answer.mark_unstored();
        }
        is_claimed
    }

    /// Claims the row of a job, if it has none and `is_needed`. Returns false if the store fails or is too slow.
    async fn claim_job(
        &self,
        job_id: JobId,
        max_wait: Duration,
        repeat_expected: bool,
        is_needed: impl FnOnce(&JobEntry) -> bool,
    ) -> bool {
        let claim = {
            let mut index = self.jobs();
            let Some(entry) = index.entries.get_mut(&job_id) else { return true };
            if !is_needed(entry) || entry.row != JobRow::None || entry.registration.fingerprint.is_none() {
                return true;
            }
            // It may be written even if the store reports an error.
            entry.row = JobRow::Claimed;
            self.job_claim(entry, entry.repeat_expected || repeat_expected, LONGEST_CLAIM)
        };
        let written = timeout(max_wait, self.ledger.write_replay(ReplayWrite::Claim(claim))).await;
        matches!(written, Ok(Ok(_)))
    }

    /// Returns the claim of a job's answer that ends `running` after the time for which it is kept.
    fn job_claim(&self, entry: &JobEntry, repeat_expected: bool, running: Duration) -> ReplayClaim {
        let (AnswerId { scope, request_id }, now) = (entry.id.clone(), Timestamp::now() + running);
        let (retry_until, link_window) = (now + self.windows.retry, entry.registration.link_window);
        let expires_at = link_window.map_or(retry_until, |window| retry_until.max(now + window));
        let (fingerprint, retry_until) = (entry.registration.fingerprint, self.adopts_jobs.then_some(retry_until));
        let claim = ReplayClaim::new(scope, scope, request_id, self.node.clone(), expires_at);
        ReplayClaim { fingerprint, retry_until, repeat_expected, ..claim }
    }

    /// Takes the next steps of a job, until there is none.
    pub(super) async fn take_steps(self: &Arc<Self>, job_id: JobId, mut step: Option<JobStep>) {
        while let Some(next) = step {
            match next {
                JobStep::Forget(entry) => drop(entry),
                JobStep::Store(file) => self.store_job(job_id, file).await,
                JobStep::Claim(answer) => self.claim_unstored_answer(job_id, answer).await,
                JobStep::End(row) => self.end_row(job_id, row).await,
            }
            step = self.jobs().settle(job_id);
        }
        self.changed.send_replace(());
    }

    /// Stores the answer of a job. If that fails, it stays in memory, and is lost when the process ends.
    async fn store_job(&self, job_id: JobId, file: PendingFile) {
        let job = |entry: &JobEntry| {
            let claim = self.job_claim(entry, entry.repeat_expected, Duration::ZERO);
            (claim, entry.registration.link_window.is_some(), Arc::clone(&entry.answer))
        };
        let Some((claim, is_linked, answer)) = self.jobs().entries.get(&job_id).map(job) else { return };
        let name = file.name.clone();
        let is_stored = (is_linked || self.claim_again(&claim).await) && self.commit(&claim, file, &answer).await;
        if let Some(entry) = self.jobs().entries.get_mut(&job_id) {
            // The row may exist even if the store has reported an error. It is removed together with the entry.
            entry.row = if is_stored { JobRow::Stored(name) } else { JobRow::Claimed };
        }
    }

    /// Claims the row of a job, unless it has claimed it before.
    async fn claim_again(&self, claim: &ReplayClaim) -> bool {
        let written = timeout(STORAGE_WAIT_MAX, self.ledger.write_replay(ReplayWrite::Claim(claim.clone()))).await;
        match written {
            Ok(Ok(RowWriteOutcome::Done)) => true,
            Ok(Ok(RowWriteOutcome::AlreadyClaimed(existing))) => existing.claim.request_id == claim.request_id,
            Ok(Ok(RowWriteOutcome::NoEffect) | Err(_)) | Err(_) => {
                tracing::warn!("an orphan will not survive a restart: its answer could not be claimed");
                false
            }
        }
    }

    /// Shows other processes by a claim that they cannot get an answer, so that no retry is paid for again. The unfinished
    /// file shows that until then.
    async fn claim_unstored_answer(&self, job_id: JobId, answer: Arc<StoredAnswer>) {
        let claim = |entry: &mut JobEntry| {
            entry.row = JobRow::Claimed;
            self.job_claim(entry, entry.repeat_expected, Duration::ZERO)
        };
        let claim = self.jobs().entries.get_mut(&job_id).map(claim);
        if let Some(claim) = claim.filter(|claim| claim.fingerprint.is_some()) {
            self.claim_again(&claim).await;
        }
        drop(answer);
    }

    /// True if the answer of a job is stored.
    pub(super) fn is_stored(&self, job_id: JobId) -> bool {
        // A stored answer that nobody reads has no entry.
        let index = self.jobs();
        index.entries.get(&job_id).is_none_or(|entry| matches!(entry.row, JobRow::Stored(_) | JobRow::Ending))
    }

    /// Lets later requests find the answer of a job that is not stored, if it must be kept.
    pub(super) fn note_unstored(&self, job_id: JobId, answer: &Arc<StoredAnswer>, must_be_kept: bool) {
        let request_id = self.jobs().entries.get(&job_id).map(|entry| entry.id.request_id.clone());
        if let Some(request_id) = request_id {
            self.keep_unstored(request_id, answer, must_be_kept);
        }
    }

    /// Ends the reason to keep an answer for retries, because one has read it to its end. If there is no other reason,
    /// removes it. Until its row is removed, no retry gets it.
    async fn end_row(&self, job_id: JobId, row: JobRow) {
        let facts = |entry: &JobEntry| (entry.id.clone(), entry.registration.link_window.is_some());
        let Some((id, is_linked)) = self.jobs().entries.get(&job_id).map(facts) else { return };
        let AnswerId { scope, request_id } = id.clone();
        let is_ended = if is_linked {
            if let Err(error) = self.ledger.write_replay(ReplayWrite::EndRetry { scope, request_id }).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a retry may get an answer that another one has read");
            }
            true
        } else {
            if let JobRow::Stored(file) = row {
                self.remove_file(&file).await;
            }
            self.release_claim(&id).await
        };
        if is_ended {
            let entry = self.jobs().entries.remove(&job_id);
            drop(entry);
        }
    }

    /// Removes the file of an answer, here and for the other nodes. The commit that removes its row shall not wait for the
    /// removal of many bytes.
    async fn remove_file(&self, file: &str) {
        self.folder.remove(file);
        if let Some(sharing) = &self.sharing {
            sharing.withdraw(file).await;
        }
    }

    /// Removes the claim of a job in a task of its own.
    pub(super) fn spawn_release(self: &Arc<Self>, id: AnswerId) {
        self.spawn_work(|answers| async move {
            answers.release_claim(&id).await;
        });
    }

    /// Forgets a delivered answer whose row could not be removed before.
    pub(in super::super) fn forget_ended(&self, id: &AnswerId) {
        let is_ended = |entry: &JobEntry| entry.row == JobRow::Ending && entry.id == *id;
        let ended: Vec<_> = self.jobs().entries.extract_if(.., |_, entry| is_ended(entry)).collect();
        drop(ended);
    }
}
