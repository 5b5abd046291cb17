//! Usage for admins and members: records page by page, and counts by day and by key.
//!
//! This module decides the extent of a page of records, the treatment of an unknown position in the list, and the
//! format for a spreadsheet ([`csv`]). It must not know who asks: the filter restricts a member to the member's own
//! data, and the data of others is treated as missing. It never writes: the store makes the counts when a record is
//! closed.
//!
//! Rules: a record has every field that the specification demands; the counts of a day are the sums of its records.

pub(crate) mod csv;
mod groups;
mod record_columns;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

pub(crate) use groups::{
    GroupedUsage, GroupingError, HOUR_DAYS_MAX, TopQuery, UsageGroup, UsageMeasure, UsageOverview,
};

pub(crate) use record_columns::{RECORD_COLUMNS, RecordColumn};

pub(crate) use super::store::{DayCounts, KeyCounts, RecordFilter, UsageCounters, UsageFilter, UtcDay};
use super::store::{KeyDisplayNames, KeyId, RequestId, StoreError, UsageStore, UserId};
use crate::wire::admin::types;

/// Reads records and usage counts.
#[derive(Clone)]
pub(crate) struct UsageReader {
    store: Arc<dyn UsageStore>,
}

/// The counts of a key with its name and its user's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NamedCounts {
    pub(crate) name: Option<String>,
    pub(crate) user_name: Option<String>,
    #[serde(flatten)]
    pub(crate) key_counts: KeyCounts,
}

/// A page of records, newest first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordPage {
    /// The records. The names of a key and its user are unknown only if rows were removed by hand; that of the user also
    /// if the key belongs to no person yet.
    pub(crate) records: Vec<types::Record>,
    /// True if there are more records after the last one.
    pub(crate) has_more: bool,
}

/// The reason why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageError {
    /// The filter asks for the records that follow a certain record, which does not exist or belongs to another user
    /// than the owner in the filter.
    #[error("the record of the request `{0}` does not exist")]
    UnknownCursor(RequestId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl UsageReader ===

impl UsageReader {
    pub(crate) fn new(store: Arc<dyn UsageStore>) -> Self {
        Self { store }
    }

    /// Returns the days with any usage, oldest first.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub(crate) async fn days(&self, filter: &UsageFilter) -> Result<Vec<DayCounts>, StoreError> {
        self.store.usage_by_day(filter).await
    }

    /// Returns each key with any usage, once for each group in which it was used, those with the most requests first.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub(crate) async fn by_key(
        &self,
        filter: &UsageFilter,
        limit: Option<u32>,
    ) -> Result<Vec<NamedCounts>, StoreError> {
        let counts = self.store.usage_by_key(filter, limit).await?;
        let names = self.load_names(counts.iter().map(|counts| counts.key.clone())).await?;
        let named = |key_counts: KeyCounts| {
            let (name, user_name) = names_of_key(&names, &key_counts.key);
            NamedCounts { name, user_name, key_counts }
        };
        Ok(counts.into_iter().map(named).collect())
    }

    /// Returns the total usage of each of these keys. A key that is missing was never used.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub(crate) async fn totals_by_key(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, UsageCounters>, StoreError> {
        self.store.total_usage_by_key(keys).await
    }

    /// Returns a page of at most `limit` records.
    ///
    /// # Errors
    /// Returns [`UsageError::UnknownCursor`] if the filter begins after a record that does not exist for its owner, or
    /// an error if the store fails.
    pub(crate) async fn records(&self, filter: &RecordFilter, limit: u32) -> Result<RecordPage, UsageError> {
        if let Some(before) = filter.query.before.as_deref().map(RequestId::from)
            && self.store.find_record(&before, filter.owner.as_ref()).await?.is_none()
        {
            return Err(UsageError::UnknownCursor(before));
        }
        // One record more than the page holds shows whether there are more.
        let query = RecordFilter { limit: Some(limit.saturating_add(1)), ..filter.clone() };
        let mut records = self.store.list_records(&query).await?;
        // The store returns the oldest of these records first.
        records.reverse();
        let has_more = records.len() > limit as usize;
        records.truncate(limit as usize);
        let names = self.load_names(records.iter().map(key_of)).await?;
        Ok(RecordPage { records: records.into_iter().map(|record| with_names(record, &names)).collect(), has_more })
    }

    /// Returns one record, in any state. If `owner` is given, records of other users are treated as missing.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub(crate) async fn record(
        &self,
        request_id: &RequestId,
        owner: Option<&UserId>,
    ) -> Result<Option<types::Record>, StoreError> {
        let Some(record) = self.store.find_record(request_id, owner).await? else { return Ok(None) };
        let names = self.load_names([key_of(&record)]).await?;
        Ok(Some(with_names(record, &names)))
    }

    async fn load_names(
        &self,
        keys: impl IntoIterator<Item = KeyId>,
    ) -> Result<BTreeMap<KeyId, KeyDisplayNames>, StoreError> {
        let mut keys: Vec<KeyId> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() { Ok(BTreeMap::new()) } else { self.store.key_names(&keys).await }
    }
}

fn key_of(record: &types::Record) -> KeyId {
    record.key.as_str().into()
}

fn with_names(mut record: types::Record, names: &BTreeMap<KeyId, KeyDisplayNames>) -> types::Record {
    (record.key_name, record.user_name) = names_of_key(names, &record.key.as_str().into());
    record
}

fn names_of_key(names: &BTreeMap<KeyId, KeyDisplayNames>, key: &KeyId) -> (Option<String>, Option<String>) {
    names.get(key).cloned().map_or((None, None), |key| (Some(key.name), key.user_name))
}
