//! Tracks whether records can be written, from the results of the writer. It never accesses the database itself.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time after which a commit counts as stuck (our choice). A healthy disk takes milliseconds.
const SLOW_COMMIT: Duration = Duration::from_secs(3);

/// The reason why records cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteTrouble {
    /// The last commit failed.
    Failing,
    /// A commit has been running for longer than [`SLOW_COMMIT`].
    Slow,
}

/// The state of the database as the writer last saw it. A read of this state never waits for the disk.
#[derive(Debug, Default)]
pub(super) struct WriteHealth(Mutex<WriteHealthState>);

#[derive(Debug, Default)]
struct WriteHealthState {
    failing: bool,
    /// True if records cannot be moved to the tables that are read.
    moves_failing: bool,
    committing_since: Option<Instant>,
}

// === impl WriteHealth ===

impl WriteHealth {
    /// Notes the start of a commit.
    pub(super) fn commit_started(&self) {
        self.lock().committing_since = Some(Instant::now());
    }

    /// Notes the end of a commit. `failed` is `None` if the result does not show whether the database works.
    pub(super) fn commit_ended(&self, failed: Option<bool>) {
        let mut state = self.lock();
        state.committing_since = None;
        state.failing = failed.unwrap_or(state.failing);
    }

    /// Notes whether moves have failed for so long that the database counts as broken.
    pub(super) fn set_moves_failing(&self, moves_failing: bool) {
        self.lock().moves_failing = moves_failing;
    }

    /// True if the last commit failed.
    pub(super) fn is_failing(&self) -> bool {
        self.lock().failing
    }

    /// The reason why records cannot be written at the time `now`; `None` if they can.
    pub(super) fn trouble(&self, now: Instant) -> Option<WriteTrouble> {
        let state = self.lock();
        let slow = state.committing_since.is_some_and(|since| now.saturating_duration_since(since) > SLOW_COMMIT);
        match (state.failing || state.moves_failing, slow) {
            (true, _) => Some(WriteTrouble::Failing),
            (false, true) => Some(WriteTrouble::Slow),
            (false, false) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, WriteHealthState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
