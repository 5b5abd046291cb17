//! Keeps an attended job in the index for a retry that waits. If no job of the same request becomes an orphan during
//! the wait, the retry reads the answer of the attended job, which other readers may have finished by then.

use std::sync::Arc;

use super::RetryableJobs;
use super::index::{DeliveryMode, RemovedAnswer, RetryableJobEntry, RetryableJobId, RetryableJobState};

/// A job that is kept for a retry until this value is dropped.
pub(in super::super) struct AttendedJobHold {
    jobs: Arc<RetryableJobs>,
    job_id: RetryableJobId,
}

impl RetryableJobs {
    /// Keeps an attended job for a retry that may read it a little later, even if others read it to its end before
    /// that. Returns `None` if the job is not attended, or if a part of its answer is lost.
    pub(in super::super) fn hold(self: &Arc<Self>, job_id: RetryableJobId) -> Option<AttendedJobHold> {
        let mut index = self.index();
        let entry = index.entries.get_mut(&job_id)?;
        if entry.state() != Some(RetryableJobState::Attended) || entry.answer.has_gap() {
            return None;
        }
        entry.mode = DeliveryMode::Stored;
        entry.hold_count += 1;
        Some(AttendedJobHold { jobs: Arc::clone(self), job_id })
    }
}

impl Drop for AttendedJobHold {
    fn drop(&mut self) {
        let removed = {
            let mut index = self.jobs.index();
            let Some(entry) = index.entries.get_mut(&self.job_id) else { return };
            entry.hold_count = entry.hold_count.saturating_sub(1);
            if entry.is_over() { index.entries.remove(&self.job_id).map(RetryableJobEntry::into_removed) } else { None }
        };
        if let Some(RemovedAnswer { stored_file: Some(file), registration, .. }) = removed {
            self.jobs.remove_stored_orphan(registration, &file);
        }
    }
}
