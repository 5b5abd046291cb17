//! The record of a job, shared by its concurrent calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::gateway::accounts::UpstreamAccount;
use crate::gateway::ledger::{AttemptHandle, OpenRecord};

/// The time for which a job waits until its next attempt is stored (our choice).
const PERSIST_TIMEOUT: Duration = Duration::from_secs(2);

/// The record of a job, shared by its concurrent calls.
pub(super) struct SharedRecord<'a> {
    record: Mutex<&'a mut OpenRecord>,
    /// True if a fallback follows and the original image may have been paid for, so the job may be paid for twice.
    maybe_paid: AtomicBool,
}

// === impl SharedRecord ===

impl<'a> SharedRecord<'a> {
    pub(super) fn new(record: &'a mut OpenRecord) -> Self {
        Self { record: Mutex::new(record), maybe_paid: AtomicBool::new(false) }
    }

    /// Notes that a fallback is tried next although the original image may have been paid for.
    pub(super) fn mark_maybe_paid_twice(&self) {
        self.maybe_paid.store(true, Ordering::Relaxed);
    }

    /// Notes that a call of this account begins.
    pub(super) fn begin_attempt(&self, account: &UpstreamAccount) -> AttemptHandle {
        self.with_record(|record| {
            if self.maybe_paid.load(Ordering::Relaxed) {
                record.set_maybe_paid_twice();
            }
            if account.endpoint().is_simulator() {
                record.note_simulated_attempt();
            }
            record.begin_attempt(account.name())
        })
    }

    /// Stores the attempts that are about to begin, so that the record names their accounts even if the process is
    /// killed. If that fails, the job continues, because its intent is stored.
    pub(super) async fn persist_attempts(&self) {
        let Some(commit) = self.with_record(|record| record.persist_attempts()) else { return };
        match timeout(PERSIST_TIMEOUT, commit).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the attempts of a job could not be recorded");
            }
            Err(_) => tracing::warn!("the attempts of a job could not be recorded: the store is too slow"),
        }
    }

    pub(super) fn with_record<T>(&self, change: impl FnOnce(&mut OpenRecord) -> T) -> T {
        change(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
