//! Follows a job that runs or waits, or returns the remembered end of one.

use std::sync::Arc;

use super::index::{DeliveryMode, RetryableJobEntry, RetryableJobId, RetryableJobState, unknown};
use super::{AnswerReader, RetryableJobs};

// === impl RetryableJobs ===

impl RetryableJobs {
    /// Follows the job for a retry, if that is still possible. The job is an orphan again if the last of its followers
    /// leaves before the end.
    pub(in super::super) fn follow(self: &Arc<Self>, place: RetryableJobId) -> Option<AnswerReader> {
        self.follow_if(place, |entry| {
            matches!(entry.standing(), Some(RetryableJobState::Attended | RetryableJobState::Orphan))
        })
    }

    /// Follows an orphan whose caller was told to come back, or returns its remembered end. Of several concurrent
    /// requests, one gets it.
    pub(in super::super) fn follow_expected(self: &Arc<Self>, place: RetryableJobId) -> Option<AnswerReader> {
        self.follow_if(place, |entry| entry.retry_expected && entry.standing() == Some(RetryableJobState::Orphan))
            .or_else(|| self.recall_if(place, |entry| entry.retry_expected))
    }

    fn follow_if(
        self: &Arc<Self>,
        place: RetryableJobId,
        allowed: impl FnOnce(&RetryableJobEntry) -> bool,
    ) -> Option<AnswerReader> {
        let tape = {
            let mut index = self.index();
            let entry = index.entries.get_mut(&place).filter(|entry| allowed(entry) && !entry.tape.has_gap())?;
            entry.mode = DeliveryMode::Written;
            entry.readers += 1;
            entry.retries += 1;
            Arc::clone(&entry.tape)
        };
        self.changed.send_replace(());
        Some(self.told(&tape, place, true))
    }

    /// Returns the error for a retry that cannot get the answer of a job which was, or may have been, paid for.
    pub(in super::super) fn unknown() -> AnswerReader {
        AnswerReader::of(&unknown())
    }

    /// Returns a remembered end, if it still exists.
    pub(in super::super) fn recall(&self, place: RetryableJobId) -> Option<AnswerReader> {
        self.recall_if(place, |_| true)
    }

    /// Returns a remembered end. The caller who was told to come back counts as returned, whichever request reads the
    /// end.
    fn recall_if(
        &self,
        place: RetryableJobId,
        allowed: impl FnOnce(&RetryableJobEntry) -> bool,
    ) -> Option<AnswerReader> {
        let mut index = self.index();
        let entry = index.entries.get_mut(&place)?;
        if entry.mode != DeliveryMode::Remembered || !allowed(entry) {
            return None;
        }
        entry.retry_expected = false;
        Some(AnswerReader::of(&entry.tape))
    }
}
