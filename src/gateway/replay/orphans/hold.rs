//! Holds that keep jobs for a retry while it waits for an orphan.

use std::sync::Arc;

use super::RetryableJobs;
use super::index::{DeliveryMode, RemovedAnswer, RetryableJobEntry, RetryableJobId, RetryableJobState};

/// A job that is kept for a retry until this is dropped.
pub(in super::super) struct OrphanHold {
    orphans: Arc<RetryableJobs>,
    place: RetryableJobId,
}

impl RetryableJobs {
    /// Keeps a job that a retry may follow a little later, even if others read it to its end before.
    pub(in super::super) fn hold(self: &Arc<Self>, place: RetryableJobId) -> Option<OrphanHold> {
        let mut index = self.index();
        let entry = index.entries.get_mut(&place)?;
        if entry.standing() != Some(RetryableJobState::Attended) || entry.tape.has_gap() {
            return None;
        }
        entry.mode = DeliveryMode::Written;
        entry.holds += 1;
        Some(OrphanHold { orphans: Arc::clone(self), place })
    }
}

impl Drop for OrphanHold {
    fn drop(&mut self) {
        let gone = {
            let mut index = self.orphans.index();
            let Some(entry) = index.entries.get_mut(&self.place) else { return };
            entry.holds = entry.holds.saturating_sub(1);
            if entry.is_over() { index.entries.remove(&self.place).map(RetryableJobEntry::go) } else { None }
        };
        if let Some(RemovedAnswer { stored: Some(file), request, .. }) = gone {
            self.orphans.forget(request, &file);
        }
    }
}
