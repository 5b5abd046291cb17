//! Counts requests that were refused before there was a job. They leave no record, so they are counted by day and key
//! in memory, and written together every few seconds.
//!
//! Memory and table are bounded by the number of keys: requests without a known key share one count.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::key_cache::KeyCacheEntry;
use super::{Caller, KeyId, UserId};
use crate::gateway::store::{RefusalCount, Store, StoreError, Timestamp, UtcDay};

/// The counts that have not been written yet.
#[derive(Default)]
pub(super) struct RefusalCounter(Mutex<HashMap<(UtcDay, KeyId), RefusalCount>>);

// === impl RefusalCounter ===

impl RefusalCounter {
    /// Counts a request with this key that was not accepted.
    pub(super) fn count_caller(&self, caller: &Caller) {
        self.count(caller.key(), caller.user(), caller.group_name());
    }

    /// Counts a request with a known key that is disabled or expired.
    pub(super) fn count_entry(&self, entry: &KeyCacheEntry) {
        self.count(&entry.id, &entry.user, &entry.group_name);
    }

    /// Counts a request without a known key.
    pub(super) fn count_unknown(&self) {
        self.count(&KeyId::from(RefusalCount::NO_KEY), &UserId::from(UserId::NOBODY), "");
    }

    fn count(&self, key: &KeyId, user: &UserId, group: &str) {
        let day = UtcDay::from(Timestamp::now());
        let mut counts = self.lock();
        let new = || RefusalCount { day, key: key.clone(), user: user.clone(), group: group.to_owned(), count: 0 };
        counts.entry((day, key.clone())).or_insert_with(new).count += 1;
    }

    /// Writes the counts. Counts that the store does not take are kept for the next time.
    pub(super) async fn write(&self, store: &dyn Store) -> Result<(), StoreError> {
        let counts: Vec<RefusalCount> = self.lock().drain().map(|(_, refused)| refused).collect();
        if counts.is_empty() {
            return Ok(());
        }
        let written = store.add_refusals(&counts).await;
        if written.is_err() {
            let mut kept = self.lock();
            for refused in counts {
                let count = refused.count;
                let entry = kept.entry((refused.day, refused.key.clone()));
                entry.and_modify(|newer| newer.count += count).or_insert(refused);
            }
        }
        written
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(UtcDay, KeyId), RefusalCount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}
