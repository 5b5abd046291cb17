//! Counts the work that must end before the store is closed: claims to complete or release, answers to store, and rows
//! to delete.

use tokio::sync::watch;

/// The number of unfinished pieces of work.
#[derive(Clone)]
pub(super) struct PendingWork(watch::Sender<usize>);

/// The guard of one unfinished piece of work. The work counts as finished when the guard is dropped.
pub(super) struct PendingGuard(watch::Sender<usize>);

// === impl PendingWork ===

impl PendingWork {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(super) fn begin(&self) -> PendingGuard {
        // Only the count 0 is awaited: other changes wake nobody.
        self.0.send_if_modified(|count| {
            *count += 1;
            false
        });
        PendingGuard(self.0.clone())
    }

    /// Resolves when all work is finished. The caller limits the wait.
    pub(super) async fn wait_until_none(&self) {
        // `self` owns the sender, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.0.send_if_modified(|count| {
            *count -= 1;
            *count == 0
        });
    }
}
