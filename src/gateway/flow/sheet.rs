//! The record of a job while its calls are under way, several of them at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::gateway::ledger::OpenRecord;

/// A job waits so long for the note of its next attempt (ours).
const NOTE_PATIENCE: Duration = Duration::from_secs(2);

/// The record, into which calls write that are under way at once.
pub(super) struct Sheet<'a>(Mutex<&'a mut OpenRecord>);

// === impl Sheet ===

impl<'a> Sheet<'a> {
    pub(super) fn new(record: &'a mut OpenRecord) -> Self {
        Self(Mutex::new(record))
    }

    /// Whom a killed process has asked stands in the record before they are asked. A job does not fail where it cannot
    /// be written: its intent is there.
    pub(super) async fn keep_attempts(&self) {
        let Some(kept) = self.note(|record| record.note_attempts()) else { return };
        match timeout(NOTE_PATIENCE, kept).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the attempts of a job could not be recorded");
            }
            Err(_) => tracing::warn!("the store is too slow to take the attempts of a job"),
        }
    }

    pub(super) fn note<T>(&self, note: impl FnOnce(&mut OpenRecord) -> T) -> T {
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
