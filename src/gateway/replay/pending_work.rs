//! Counts the work that must be over before the store is closed: claims to settle or give back, and answers to write.

use tokio::sync::watch;

/// The number of unfinished pieces of work.
#[derive(Clone)]
pub(super) struct PendingWork(watch::Sender<usize>);

/// One unfinished piece of work; dropping it ends it.
pub(super) struct PendingGuard(watch::Sender<usize>);

// === impl PendingWork ===

impl PendingWork {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(super) fn begin(&self) -> PendingGuard {
        self.0.send_modify(|count| *count += 1);
        PendingGuard(self.0.clone())
    }

    /// Resolves when no work is unfinished. The caller limits the wait.
    pub(super) async fn wait_until_none(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
