//! The key cache: everything that is needed to check any key, in memory.
//!
//! A key in the cache is checked without a query. A request whose key is not there, or is there with another secret,
//! waits for the next refresh, which may bring the key. Refreshes run one after the other, with a minimum time between
//! their starts, so the number of queries does not depend on the number of requests with unknown keys.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::gateway::config::{DialectSet, RequestLimits, limits_from_json};
use crate::gateway::store::{
    KeyCheck, KeyHash, KeyId, KeyStore, PublicId, StoreError, Timestamp, UserId, binding_owner,
};

/// The least time between the starts of two refreshes (our choice).
const REFRESH_PAUSE_MIN: Duration = Duration::from_millis(50);

/// The number of changed keys that are brought into the cache at once (our choice): some 0.1 ms of work.
pub(super) const CHANGES_PER_LOCK: usize = 256;

/// The data that the check of a key needs.
pub(super) struct KeyCacheEntry {
    pub(super) id: KeyId,
    pub(super) user: UserId,
    pub(super) group_name: Arc<str>,
    pub(super) hash: KeyHash,
    pub(super) previous_hash: Option<(KeyHash, Timestamp)>,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) refused: bool,
    pub(super) limits: Option<Arc<RequestLimits>>,
    /// The limits of the user.
    pub(super) user_limits: Option<Arc<RequestLimits>>,
    pub(super) dialects: DialectSet,
    pub(super) last_noted_use: LastNotedUse,
}

/// The time at which this process last noted the use of a key, in milliseconds since the first note of any key, plus 1;
/// 0 if there was none. It is not behind a lock, because each request of the key reads it.
#[derive(Default)]
pub(super) struct LastNotedUse(AtomicU64);

/// All keys that are not deleted, as of the last refresh.
pub(super) struct KeyCache {
    store: Arc<dyn KeyStore>,
    entries: RwLock<HashMap<PublicId, Arc<KeyCacheEntry>>>,
    /// The number of refreshes that have begun. It is not part of `refresh_state`, because a request must be able to read
    /// it while a refresh holds that lock: the request needs a refresh that begins after the request.
    refreshes_begun: Mutex<u64>,
    refresh_state: tokio::sync::Mutex<KeyRefreshState>,
}

/// The state that refreshes share. Only one of them runs at a time.
#[derive(Default)]
struct KeyRefreshState {
    /// The highest revision in the cache.
    revision: i64,
    begun_at: Option<Instant>,
    /// The number of the last refresh that has ended; `last_error` is its error.
    refreshes_ended: u64,
    last_error: Option<Arc<StoreError>>,
}

/// Reads the limits of a key or a user. Limits that this version cannot read let no request pass.
fn parse_limits(text: &str) -> RequestLimits {
    let limits = serde_json::from_str::<Map<String, Value>>(text).ok();
    limits.and_then(|limits| limits_from_json(&limits).ok()).unwrap_or_else(|| {
        tracing::error!("the limits of a key or a user cannot be read; the requests are refused");
        RequestLimits::closed()
    })
}

// === impl LastNotedUse ===

impl LastNotedUse {
    /// Sets the time to `now`, if there is none or the last one is older than this. Returns true for one of the callers
    /// that do so at once.
    pub(super) fn replace_if_older(&self, now: Instant, age: Duration) -> bool {
        static FIRST_NOTE: OnceLock<Instant> = OnceLock::new();
        let in_millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = in_millis(now.saturating_duration_since(*FIRST_NOTE.get_or_init(|| now))).saturating_add(1);
        let last = self.0.load(Ordering::Relaxed);
        (last == 0 || now.saturating_sub(last) >= in_millis(age))
            && self.0.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

// === impl KeyCache ===

impl KeyCache {
    pub(super) fn new(store: Arc<dyn KeyStore>) -> Self {
        Self {
            store,
            entries: RwLock::default(),
            refreshes_begun: Mutex::default(),
            refresh_state: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the key with this public id and secret. If it is not in the cache, waits for one refresh, because it may
    /// be new or rotated a moment ago; so the time taken does not reveal which public ids exist.
    pub(super) async fn find(
        &self,
        public_id: &PublicId,
        matches_secret: impl Fn(&KeyCacheEntry) -> bool,
    ) -> Result<Option<Arc<KeyCacheEntry>>, Arc<StoreError>> {
        if let Some(entry) = self.get(public_id).filter(|entry| matches_secret(entry)) {
            return Ok(Some(entry));
        }
        self.refresh().await?;
        Ok(self.get(public_id).filter(|entry| matches_secret(entry)))
    }

    pub(super) fn get(&self, public_id: &PublicId) -> Option<Arc<KeyCacheEntry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(public_id).cloned()
    }

    /// True if no two keys of the group have different owners. Keys without a user share nothing.
    pub(super) fn has_one_owner(&self, group: &str) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut owners = entries
            .values()
            .filter(|entry| &*entry.group_name == group)
            .map(|entry| binding_owner(&entry.user, &entry.id));
        owners.next().is_none_or(|first| owners.all(|owner| owner == first))
    }

    /// Returns the dialects of all keys that are not refused.
    pub(super) fn dialects(&self) -> DialectSet {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let accepted = entries.values().filter(|entry| !entry.refused);
        accepted.fold(DialectSet::default(), |all, entry| all.union(entry.dialects))
    }

    /// Waits for a refresh that begins after this moment. All requests that wait at the same time share one refresh.
    pub(super) async fn refresh(&self) -> Result<(), Arc<StoreError>> {
        let wanted = *self.lock_refreshes_begun() + 1;
        let mut state = self.refresh_state.lock().await;
        if state.refreshes_ended < wanted {
            self.refresh_now(&mut state).await;
        }
        state.last_error.clone().map_or(Ok(()), Err)
    }

    async fn refresh_now(&self, state: &mut KeyRefreshState) {
        if let Some(begun_at) = state.begun_at {
            tokio::time::sleep_until(begun_at + REFRESH_PAUSE_MIN).await;
        }
        state.begun_at = Some(Instant::now());
        let number = {
            let mut begun = self.lock_refreshes_begun();
            *begun += 1;
            *begun
        };
        let changed = self.store.keys_changed_since(state.revision).await;
        state.refreshes_ended = number;
        state.last_error = match changed {
            Ok(changed) => {
                state.revision = changed.last().map_or(state.revision, |check| check.revision);
                self.apply_changes(changed);
                None
            }
            Err(error) => Some(Arc::new(error)),
        };
    }

    pub(super) fn apply_changes(&self, changed: Vec<KeyCheck>) {
        // Shared, because there are few groups and many keys.
        let mut groups: HashMap<String, Arc<str>> = HashMap::new();
        // All keys of a user have the same limits of the user.
        let mut user_limits: HashMap<String, Arc<RequestLimits>> = HashMap::new();
        let mut changes = changed.into_iter().map(|check| {
            let name = check.group_name;
            let group_name = Arc::clone(groups.entry(name).or_insert_with_key(|name| Arc::from(name.as_str())));
            let entry = KeyCacheEntry {
                id: check.id,
                user: check.user,
                group_name,
                hash: check.hash,
                previous_hash: check.previous,
                expires_at: check.expires_at,
                refused: check.is_refused,
                limits: check.limits.map(|text| Arc::new(parse_limits(&text))),
                user_limits: check.user_limits.map(|text| {
                    Arc::clone(user_limits.entry(text).or_insert_with_key(|text| Arc::new(parse_limits(text))))
                }),
                dialects: check.dialects,
                last_noted_use: LastNotedUse::default(),
            };
            // Without its entry a deleted key is refused like one that never existed, and takes no memory.
            (check.public_id, (!check.is_deleted).then(|| Arc::new(entry)))
        });
        // The lock is given back between the parts, because requests wait for it.
        loop {
            let part: Vec<_> = changes.by_ref().take(CHANGES_PER_LOCK).collect();
            if part.is_empty() {
                return;
            }
            let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
            for (public_id, entry) in part {
                match entry {
                    Some(entry) => drop(entries.insert(public_id, entry)),
                    None => drop(entries.remove(&public_id)),
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn lock_refreshes_begun(&self) -> std::sync::MutexGuard<'_, u64> {
        self.refreshes_begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
