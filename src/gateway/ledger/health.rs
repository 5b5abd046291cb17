//! Whether records can be written at this moment, as far as the writer knows.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// From here on a commit counts as one that does not end (ours): a healthy disk takes milliseconds.
const SLOW_COMMIT: Duration = Duration::from_secs(3);

/// Why records cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteTrouble {
    /// The last commit failed.
    Failing,
    /// A commit has been under way for seconds.
    Slow,
}

/// What the writer has last seen of the database. Asking never waits for a disk.
#[derive(Debug, Default)]
pub(super) struct WriteHealth(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failing: bool,
    committing_since: Option<Instant>,
}

// === impl WriteHealth ===

impl WriteHealth {
    pub(super) fn commit_begins(&self) {
        self.lock().committing_since = Some(Instant::now());
    }

    /// `failed` is `None` where the commit says nothing of the database.
    pub(super) fn commit_ended(&self, failed: Option<bool>) {
        let mut state = self.lock();
        state.committing_since = None;
        state.failing = failed.unwrap_or(state.failing);
    }

    pub(super) fn is_failing(&self) -> bool {
        self.lock().failing
    }

    pub(super) fn trouble(&self, now: Instant) -> Option<WriteTrouble> {
        let state = self.lock();
        let slow = state.committing_since.is_some_and(|since| now.saturating_duration_since(since) > SLOW_COMMIT);
        match (state.failing, slow) {
            (true, _) => Some(WriteTrouble::Failing),
            (false, true) => Some(WriteTrouble::Slow),
            (false, false) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
