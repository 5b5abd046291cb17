//! What runs beside the requests: keys are read anew, and counts are written.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{Caller, Keys};

/// How often counts of refused requests are written (ours).
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// How soon a change by another process takes effect here.
const REFRESH_EVERY: Duration = Duration::from_millis(250);

// === impl Keys ===

impl Keys {
    /// Keeps the book up to date for as long as somebody holds these keys.
    pub(crate) fn watch(self: &Arc<Self>) {
        let keys = Arc::downgrade(self);
        let watch = tokio::runtime::Handle::current().spawn(async move {
            let (mut well, mut written) = (true, Instant::now());
            while let Some(keys) = keys.upgrade() {
                well = keys.round(well).await;
                written = keys.write_when_due(written).await;
                drop(keys);
                tokio::time::sleep(REFRESH_EVERY).await;
            }
        });
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch.abort_handle());
    }

    /// Ends the watch, and writes what was counted: the store is about to be closed.
    pub(crate) async fn stop(&self) {
        if let Some(watch) = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take() {
            watch.abort();
        }
        self.write_refusals().await;
    }

    /// Counts a request of this caller that was refused before it became a job.
    pub(crate) fn note_refusal(&self, caller: &Caller) {
        self.refusals.of_caller(caller);
    }

    /// Writes what was counted, if that was long enough ago. When it was written last.
    async fn write_when_due(&self, written: Instant) -> Instant {
        if written.elapsed() < WRITE_EVERY {
            return written;
        }
        self.write_refusals().await;
        Instant::now()
    }

    pub(super) async fn write_refusals(&self) {
        if let Err(error) = self.refusals.write(&*self.store).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "refused requests are counted a little later");
        }
    }

    /// One round. Whether the store is well, so that its trouble is told once and not four times a second.
    pub(super) async fn round(&self, was_well: bool) -> bool {
        match self.book.refresh().await {
            Ok(()) => true,
            Err(error) => {
                if was_well {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "changes of keys cannot be read; those that are known stay as they are");
                }
                false
            }
        }
    }
}
