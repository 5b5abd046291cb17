//! What was used, day by day and key by key: counts that the database keeps with the records, and how they are asked for.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Serialize;

use super::{Day, KeyId, StoreError, UserId};

/// Requests, what became of them, and what they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Every job that has ended.
    pub(crate) requests: u64,
    /// Those whose caller got the image.
    pub(crate) succeeded: u64,
    /// All others: failed, refused, cancelled, interrupted.
    pub(crate) failed: u64,
    /// Requests that were refused before they became a job; the other counts do not include them.
    pub(crate) refused: u64,
    /// Images that were delivered, whatever became of the job.
    pub(crate) images: u64,
    /// Tokens that went in, as far as the upstream counted them.
    pub(crate) input_tokens: u64,
    /// Tokens that came out.
    pub(crate) output_tokens: u64,
    /// Both together.
    pub(crate) total_tokens: u64,
}

/// The counts of one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DayCounts {
    /// The day on which the jobs began.
    pub(crate) day: Day,
    /// What was counted.
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// The counts of one key in one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct KeyCounts {
    /// Its id.
    pub(crate) key: KeyId,
    /// Whose it was.
    pub(crate) user: UserId,
    /// The group in which it was served.
    pub(crate) group: String,
    /// What was counted.
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// Requests with one key that were refused on one day before they became a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusalCount {
    /// The day of the requests.
    pub(crate) day: Day,
    /// The id of the key, or [`RefusalCount::NO_KEY`].
    pub(crate) key: KeyId,
    /// The id of the key's user.
    pub(crate) user: UserId,
    /// The name of its group.
    pub(crate) group: String,
    /// The number of requests.
    pub(crate) count: u32,
}

impl RefusalCount {
    /// Stands for the key of all requests without a known key.
    pub(crate) const NO_KEY: &str = "";
}

/// What people call a key and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyName {
    /// What its owner calls it.
    pub(crate) name: String,
    /// The name of the user; `None` if the key belongs to no person yet.
    pub(crate) user_name: Option<String>,
}

/// Which counts. What is not said does not matter.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageFilter {
    /// Only what this user did: what somebody else did does not exist.
    pub(crate) owner: Option<UserId>,
    /// Only this key, by its id or its public id.
    pub(crate) key: Option<String>,
    /// Only this user, by id or name.
    pub(crate) user: Option<String>,
    /// Only the group of this name.
    pub(crate) group: Option<String>,
    /// Only this end user, cut as in a record. Counted from the records that are still kept, so without refused requests.
    pub(crate) end_user: Option<String>,
    /// Only from this day on.
    pub(crate) since: Option<Day>,
    /// Only up to this day, with it.
    pub(crate) until: Option<Day>,
}

/// What the rooms ask of a database about what was used.
#[async_trait]
pub(crate) trait UsageStore: Send + Sync {
    /// The days on which anything ended, oldest first.
    async fn usage_by_day(&self, filter: &UsageFilter) -> Result<Vec<DayCounts>, StoreError>;

    /// The keys with which anything was asked for, those with the most requests first.
    async fn usage_by_key(&self, filter: &UsageFilter, limit: Option<u32>) -> Result<Vec<KeyCounts>, StoreError>;

    /// All of it together.
    async fn usage_in_total(&self, filter: &UsageFilter) -> Result<Counts, StoreError>;

    /// What each of these keys has used since ever; one that is missing was never used.
    async fn usage_of_keys(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, Counts>, StoreError>;

    /// Adds requests that were refused before they became a job, all of them or none.
    async fn add_refused(&self, refused: &[RefusalCount]) -> Result<(), StoreError>;

    /// What these keys are called, also those that are deleted; one that is missing never was.
    async fn key_names(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, KeyName>, StoreError>;
}
