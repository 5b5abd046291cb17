//! Claims the stored answer of an orphan before the record of its job ends.
//!
//! A node finds the job of another one by its record while it runs, and by the row of its stored answer later. Without
//! this claim, neither would show the job in the time between the end of its record and the first write of that row, and
//! a retry on another node would pay again.

use tokio::time::timeout;

use super::index::{RetryableJobId, RetryableJobIndex, RetryableJobState};
use super::{JobRegistration, RetryableJobs, STORAGE_WAIT_MAX};
use crate::gateway::replay::answer_channel::{AnswerSender, RetryableJobHandle};
use crate::gateway::replay::answer_head::RecordableAnswer;
use crate::gateway::store::{ReplayWrite, Timestamp};

/// The right to claim the stored answer of a job before its record ends.
pub(crate) struct EarlyClaim(RetryableJobHandle);

// === impl EarlyClaim ===

impl EarlyClaim {
    /// Makes the claim durable if the caller of the job has left, and if several nodes share the store. Must be called
    /// when the job has succeeded and its record is still open.
    pub(crate) async fn write(self) {
        let Self(RetryableJobHandle { orphans, job_id }) = self;
        orphans.write_early_claim(job_id).await;
    }
}

// === impl AnswerSender ===

impl<M: RecordableAnswer> AnswerSender<M> {
    /// Returns the right to claim the stored answer; `None` if no retry can find the job.
    pub(crate) fn early_claim(&self) -> Option<EarlyClaim> {
        self.job_handle().map(EarlyClaim)
    }
}

// === impl RetryableJobs ===

impl RetryableJobs {
    async fn write_early_claim(&self, job_id: RetryableJobId) {
        if self.idempotent_answers.sharing.is_none() {
            return;
        }
        let Some(registration) = self.index().note_claimed(job_id) else { return };
        let Some(fingerprint) = registration.fingerprint else { return };
        let (request_id, expires_at) = (registration.request_id.as_str().into(), Timestamp::now() + self.window);
        let claim = ReplayWrite::Claim(self.idempotent_answers.orphan_row(fingerprint, request_id, expires_at));
        let written = timeout(STORAGE_WAIT_MAX, self.idempotent_answers.ledger.write_replay(claim)).await;
        if !matches!(written, Ok(Ok(_))) {
            tracing::warn!("other nodes may not find an orphan until its answer is stored: it could not be claimed");
        }
    }
}

// === impl RetryableJobIndex ===

impl RetryableJobIndex {
    /// Notes that the row of an orphan's answer may exist, so that it is removed with the job. Returns the registration
    /// of the job; `None` if the job is no orphan, or if its answer has no file.
    fn note_claimed(&mut self, job_id: RetryableJobId) -> Option<JobRegistration> {
        let entry = self.entries.get_mut(&job_id)?;
        if entry.state() != Some(RetryableJobState::Orphan) || !entry.needs_retry_read {
            return None;
        }
        entry.stored_file = Some(entry.pending_file.as_ref()?.file.clone());
        Some(entry.registration.clone())
    }
}
