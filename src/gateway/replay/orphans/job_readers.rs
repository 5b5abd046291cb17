//! Follows a job that runs or waits, or returns the remembered end of one.

use std::sync::Arc;

use super::index::{DeliveryMode, RetryableJobEntry, RetryableJobId, RetryableJobState, unknown_outcome};
use super::{AnswerReader, RetryableJobs};

// === impl RetryableJobs ===

impl RetryableJobs {
    /// Follows the job for a retry, if that is still possible. The job is an orphan again if the last of its followers
    /// leaves before the end.
    pub(in super::super) fn follow_job(self: &Arc<Self>, job_id: RetryableJobId) -> Option<AnswerReader> {
        self.follow_if(job_id, |entry| {
            matches!(entry.state(), Some(RetryableJobState::Attended | RetryableJobState::Orphan))
        })
    }

    /// Follows an orphan whose caller was told to come back, or returns its remembered end. Of several concurrent
    /// requests, one gets it.
    pub(in super::super) fn follow_awaited_job(self: &Arc<Self>, job_id: RetryableJobId) -> Option<AnswerReader> {
        self.follow_if(job_id, |entry| entry.retry_expected && entry.state() == Some(RetryableJobState::Orphan))
            .or_else(|| self.remembered_answer_if(job_id, |entry| entry.retry_expected))
    }

    fn follow_if(
        self: &Arc<Self>,
        job_id: RetryableJobId,
        allowed: impl FnOnce(&RetryableJobEntry) -> bool,
    ) -> Option<AnswerReader> {
        let answer = {
            let mut index = self.index();
            let entry = index.entries.get_mut(&job_id).filter(|entry| allowed(entry) && !entry.answer.has_gap())?;
            entry.mode = DeliveryMode::Stored;
            entry.readers += 1;
            entry.retries += 1;
            Arc::clone(&entry.answer)
        };
        self.changed.send_replace(());
        Some(self.answer_reader(&answer, job_id, true))
    }

    /// Returns the error for a retry that cannot get the answer of a job which was, or may have been, paid for.
    pub(in super::super) fn unknown_outcome() -> AnswerReader {
        AnswerReader::new(&unknown_outcome())
    }

    /// Returns a remembered end, if it still exists.
    pub(in super::super) fn remembered_answer(&self, job_id: RetryableJobId) -> Option<AnswerReader> {
        self.remembered_answer_if(job_id, |_| true)
    }

    /// Returns a remembered end. The caller who was told to come back counts as returned, whichever request reads the
    /// end.
    fn remembered_answer_if(
        &self,
        job_id: RetryableJobId,
        allowed: impl FnOnce(&RetryableJobEntry) -> bool,
    ) -> Option<AnswerReader> {
        let mut index = self.index();
        let entry = index.entries.get_mut(&job_id)?;
        if entry.mode != DeliveryMode::Remembered || !allowed(entry) {
            return None;
        }
        entry.retry_expected = false;
        Some(AnswerReader::new(&entry.answer))
    }
}
