//! Counts requests that were refused before there was a job. Such requests have no record, so they are counted in
//! memory by day and key, and the counts are written every few seconds.
//!
//! The number of keys limits the memory and the rows of a day: requests without a known key share one count.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::key_cache::KeyCacheEntry;
use super::{Caller, KeyId, UserId};
use crate::gateway::store::{KeyStore, RefusalCount, StoreError, Timestamp, UtcDay};

/// The counts that have not been written yet.
#[derive(Default)]
pub(super) struct RefusalCounter(Mutex<HashMap<(UtcDay, KeyId), RefusalCount>>);

// === impl RefusalCounter ===

impl RefusalCounter {
    /// Counts a refused request of an authenticated caller.
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
        let new_count =
            || RefusalCount { day, key: key.clone(), user: user.clone(), group: group.to_owned(), count: 0 };
        counts.entry((day, key.clone())).or_insert_with(new_count).count += 1;
    }

    /// Writes the counts. If the store fails, the counts are kept for the next write.
    pub(super) async fn write(&self, store: &dyn KeyStore) -> Result<(), StoreError> {
        let counts: Vec<RefusalCount> = self.lock().drain().map(|(_, count)| count).collect();
        if counts.is_empty() {
            return Ok(());
        }
        let result = store.add_refusals(&counts).await;
        if result.is_err() {
            let mut current = self.lock();
            for unwritten in counts {
                let count = unwritten.count;
                let entry = current.entry((unwritten.day, unwritten.key.clone()));
                entry.and_modify(|newer| newer.count += count).or_insert(unwritten);
            }
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(UtcDay, KeyId), RefusalCount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}
