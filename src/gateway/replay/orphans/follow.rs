//! The ways to the answer of a job: of one that runs or waits, and of one whose end is remembered.

use std::sync::Arc;

use super::index::{Entry, Mode, Place, Standing, unknown};
use super::{Follower, Orphans};

// === impl Orphans ===

impl Orphans {
    /// Follows the job for a retry, if that is still possible. The job is an orphan again if the last of its followers
    /// leaves before the end.
    pub(in super::super) fn follow(self: &Arc<Self>, place: Place) -> Option<Follower> {
        self.follow_if(place, |entry| matches!(entry.standing(), Some(Standing::Attended | Standing::Orphan)))
    }

    /// Follows an orphan whose caller was told to come back, or recalls its end: of several requests at once, for one.
    pub(in super::super) fn follow_expected(self: &Arc<Self>, place: Place) -> Option<Follower> {
        self.follow_if(place, |entry| entry.retry_expected && entry.standing() == Some(Standing::Orphan))
            .or_else(|| self.recall_if(place, |entry| entry.retry_expected))
    }

    fn follow_if(self: &Arc<Self>, place: Place, allowed: impl FnOnce(&Entry) -> bool) -> Option<Follower> {
        let tape = {
            let mut index = self.index();
            let entry = index.entries.get_mut(&place).filter(|entry| allowed(entry) && !entry.tape.has_gap())?;
            entry.mode = Mode::Written;
            entry.readers += 1;
            entry.retries += 1;
            Arc::clone(&entry.tape)
        };
        self.changed.send_replace(());
        Some(self.told(&tape, place, true))
    }

    /// The error for a retry that cannot get the answer of a job which was, or may have been, paid for.
    pub(in super::super) fn unknown() -> Follower {
        Follower::of(&unknown())
    }

    /// An end that is remembered, if it still is.
    pub(in super::super) fn recall(&self, place: Place) -> Option<Follower> {
        self.recall_if(place, |_| true)
    }

    /// A caller who was told to come back has come, whoever reads the end.
    fn recall_if(&self, place: Place, allowed: impl FnOnce(&Entry) -> bool) -> Option<Follower> {
        let mut index = self.index();
        let entry = index.entries.get_mut(&place)?;
        if entry.mode != Mode::Remembered || !allowed(entry) {
            return None;
        }
        entry.retry_expected = false;
        Some(Follower::of(&entry.tape))
    }
}
