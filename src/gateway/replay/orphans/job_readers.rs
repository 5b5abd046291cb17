//! Readers of the answers of registered jobs, and of remembered errors.

use std::sync::Arc;

use tokio::time::Instant;

use super::index::{DeliveryMode, RetryableJobEntry, RetryableJobId, RetryableJobState, unknown_outcome};
use super::{AnswerReader, RetryableJobs};
use crate::gateway::replay::LONGEST_JOB;

// === impl RetryableJobs ===

impl RetryableJobs {
    /// Returns a reader of the answer for a retry; `None` if a new reader cannot have the whole answer, or if the job
    /// has ended with an error. If the last reader leaves before the end, the job is an orphan again.
    pub(in super::super) fn follow_job(self: &Arc<Self>, job_id: RetryableJobId) -> Option<AnswerReader> {
        self.follow_if(job_id, |entry| {
            matches!(entry.state(), Some(RetryableJobState::Attended | RetryableJobState::Orphan))
        })
    }

    /// Returns a reader of the answer of an orphan whose caller got
    /// [`Error::InProgress`](crate::error::Error::InProgress), or of the error that such a job ended with. Of several
    /// concurrent requests, exactly one gets a reader.
    pub(in super::super) fn follow_awaited_job(self: &Arc<Self>, job_id: RetryableJobId) -> Option<AnswerReader> {
        self.follow_if(job_id, |entry| entry.repeat_expected && entry.state() == Some(RetryableJobState::Orphan))
            .or_else(|| self.remembered_answer_if(job_id, |entry| entry.repeat_expected))
    }

    fn follow_if(
        self: &Arc<Self>,
        job_id: RetryableJobId,
        is_allowed: impl FnOnce(&RetryableJobEntry) -> bool,
    ) -> Option<AnswerReader> {
        let (answer, request_id) = {
            let mut index = self.index();
            let entry = index.entries.get_mut(&job_id).filter(|entry| is_allowed(entry) && !entry.answer.has_gap())?;
            entry.mode = DeliveryMode::Stored;
            entry.reader_count += 1;
            entry.retry_count += 1;
            (Arc::clone(&entry.answer), entry.registration.request_id.as_str().into())
        };
        self.changed.send_replace(());
        Some(self.answer_reader(&answer, job_id, true).with_request_id(request_id))
    }

    /// Records that the caller got [`Error::InProgress`](crate::error::Error::InProgress): the job continues, and a repeat of the request is expected.
    pub(in super::super) fn note_repeat_expected(&self, job_id: RetryableJobId) {
        let mut index = self.index();
        if let Some(entry) = index.entries.get_mut(&job_id) {
            entry.repeat_expected = true;
            index.last_in_progress = Some(Instant::now());
        }
    }

    /// True if a repeat may be expected of any request: a caller got [`Error::InProgress`] within the time that a job and
    /// its answer are remembered. Most gateways never have such a caller, so their requests need no further search.
    pub(in super::super) fn may_expect_repeats(&self) -> bool {
        self.index().last_in_progress.is_some_and(|last| last.elapsed() <= LONGEST_JOB + self.window)
    }

    /// Returns a reader of the error "outcome unknown", for a retry of a job that was charged, or may have been, and
    /// whose answer is lost.
    pub(in super::super) fn unknown_outcome() -> AnswerReader {
        AnswerReader::new(&unknown_outcome())
    }

    /// Returns a reader of the remembered error of a job, if the job still exists and has one.
    pub(in super::super) fn remembered_answer(&self, job_id: RetryableJobId) -> Option<AnswerReader> {
        self.remembered_answer_if(job_id, |_| true)
    }

    /// Returns a reader of the remembered error of a job, if `is_allowed`. After that, no repeat of the request is
    /// expected.
    fn remembered_answer_if(
        &self,
        job_id: RetryableJobId,
        is_allowed: impl FnOnce(&RetryableJobEntry) -> bool,
    ) -> Option<AnswerReader> {
        let mut index = self.index();
        let entry = index.entries.get_mut(&job_id)?;
        if entry.mode != DeliveryMode::Remembered || !is_allowed(entry) {
            return None;
        }
        entry.repeat_expected = false;
        Some(AnswerReader::new(&entry.answer))
    }
}
