//! What was used, for people: records page by page, and counts by day and by key.
//!
//! Decides what a page of records is, what an unknown place in the list means, and how both are written for a
//! spreadsheet ([`csv`]). Refuses to know who asks: whoever may see only their own says so in the filter, and then what
//! is somebody else's does not exist. It never writes: counts are made where a record is closed, by the store.
//!
//! Carries: the usage record of the specification, whole; the counts of a day are those of its records.

pub(crate) mod csv;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

pub(crate) use super::store::{Counts, Day, DayCounts, KeyCounts, Record, RecordFilter, UsageFilter};
use super::store::{KeyId, KeyName, RequestId, Store, StoreError, UserId};

/// The door to records and counts.
#[derive(Clone)]
pub(crate) struct Usage {
    store: Arc<dyn Store>,
}

/// A record with what people call its key and its user; unknown only where rows were taken out by hand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedRecord {
    pub(crate) record: Record,
    pub(crate) key_name: Option<String>,
    pub(crate) user_name: Option<String>,
}

/// The counts of a key with what people call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NamedCounts {
    pub(crate) name: Option<String>,
    pub(crate) user_name: Option<String>,
    #[serde(flatten)]
    pub(crate) of: KeyCounts,
}

/// Records, newest first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordPage {
    pub(crate) records: Vec<NamedRecord>,
    /// Whether there are more behind the last one.
    pub(crate) has_more: bool,
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageError {
    /// The list is to go on behind a record that does not exist, or not for the owner.
    #[error("there is no record of the request `{0}`")]
    UnknownPlace(RequestId),
    /// The database has trouble.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl Usage ===

impl Usage {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// The days on which there was anything, the first one first.
    ///
    /// # Errors
    /// Where the store has trouble.
    pub(crate) async fn days(&self, filter: &UsageFilter) -> Result<Vec<DayCounts>, StoreError> {
        self.store.usage_by_day(filter).await
    }

    /// Each key with which there was anything, in each group where it was, the most requests first.
    ///
    /// # Errors
    /// Where the store has trouble.
    pub(crate) async fn by_key(
        &self,
        filter: &UsageFilter,
        limit: Option<u32>,
    ) -> Result<Vec<NamedCounts>, StoreError> {
        let counts = self.store.usage_by_key(filter, limit).await?;
        let names = self.names(counts.iter().map(|of| &of.key)).await?;
        let named = |of: KeyCounts| {
            let (name, user_name) = called(&names, &of.key);
            NamedCounts { name, user_name, of }
        };
        Ok(counts.into_iter().map(named).collect())
    }

    /// All of it together.
    ///
    /// # Errors
    /// Where the store has trouble.
    pub(crate) async fn totals(&self, filter: &UsageFilter) -> Result<Counts, StoreError> {
        self.store.usage_in_total(filter).await
    }

    /// What each of these keys has used since ever; one that is missing was never used.
    ///
    /// # Errors
    /// Where the store has trouble.
    pub(crate) async fn totals_of(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, Counts>, StoreError> {
        self.store.usage_of_keys(keys).await
    }

    /// A page of at most so many records.
    ///
    /// # Errors
    /// [`UsageError::UnknownPlace`] where the filter begins behind a record that is not there for its owner.
    pub(crate) async fn records(&self, filter: &RecordFilter, limit: u32) -> Result<RecordPage, UsageError> {
        if let Some(before) = &filter.before
            && self.store.find_record(before, filter.owner.as_ref()).await?.is_none()
        {
            return Err(UsageError::UnknownPlace(before.clone()));
        }
        // One more than are shown says whether there are more.
        let asked = RecordFilter { limit: Some(limit.saturating_add(1)), ..filter.clone() };
        let mut records = self.store.list_records(&asked).await?;
        records.reverse();
        let has_more = records.len() > limit as usize;
        records.truncate(limit as usize);
        let names = self.names(records.iter().map(|record| &record.key)).await?;
        Ok(RecordPage { records: records.into_iter().map(|record| named(record, &names)).collect(), has_more })
    }

    /// Every record that passes the filter, the newest ones up to its limit, oldest of them first.
    ///
    /// # Errors
    /// Where the store has trouble.
    pub(crate) async fn all_records(&self, filter: &RecordFilter) -> Result<Vec<NamedRecord>, StoreError> {
        let records = self.store.list_records(filter).await?;
        let names = self.names(records.iter().map(|record| &record.key)).await?;
        Ok(records.into_iter().map(|record| named(record, &names)).collect())
    }

    /// One record, in whatever state, unless it is somebody else's.
    ///
    /// # Errors
    /// Where the store has trouble.
    pub(crate) async fn record(
        &self,
        request_id: &RequestId,
        owner: Option<&UserId>,
    ) -> Result<Option<NamedRecord>, StoreError> {
        let Some(record) = self.store.find_record(request_id, owner).await? else { return Ok(None) };
        let names = self.names([&record.key]).await?;
        Ok(Some(named(record, &names)))
    }

    async fn names<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a KeyId>,
    ) -> Result<BTreeMap<KeyId, KeyName>, StoreError> {
        let mut keys: Vec<KeyId> = keys.into_iter().cloned().collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() { Ok(BTreeMap::new()) } else { self.store.key_names(&keys).await }
    }
}

fn named(record: Record, names: &BTreeMap<KeyId, KeyName>) -> NamedRecord {
    let (key_name, user_name) = called(names, &record.key);
    NamedRecord { record, key_name, user_name }
}

fn called(names: &BTreeMap<KeyId, KeyName>, key: &KeyId) -> (Option<String>, Option<String>) {
    names.get(key).cloned().map_or((None, None), |key| (Some(key.name), key.user_name))
}
