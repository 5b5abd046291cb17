//! Usage by day and by key: counts that the database keeps together with the records, and the filters and operations to
//! read them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Serialize;

use super::{
    KeyId, RecordFilter, RequestId, ReservationSubjectKind, RunningJob, SharedReservations, StoreError, Timestamp,
    UsageDetailStore, UsageGrouping, UserId, UtcDay,
};
use crate::gateway::money::Usd;
use crate::wire::admin::types;

/// Numbers of requests, images and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct UsageCounters {
    /// The number of jobs that have ended.
    pub(crate) requests: u64,
    /// The number of jobs whose caller got the image.
    pub(crate) succeeded: u64,
    /// The number of all other jobs: failed, refused, cancelled, interrupted.
    pub(crate) failed: u64,
    /// Requests that were refused before they became a job; the other counts do not include them.
    pub(crate) refused: u64,
    /// The number of delivered images, whatever the outcome of the job.
    pub(crate) images: u64,
    /// The input tokens, as far as the upstream counted them.
    pub(crate) input_tokens: u64,
    /// The output tokens.
    pub(crate) output_tokens: u64,
    /// All tokens, input and output.
    pub(crate) total_tokens: u64,
    /// The sum of the known costs.
    pub(crate) cost_usd: Usd,
    /// The number of jobs whose cost is unknown; `cost_usd` does not include them.
    pub(crate) cost_unknown: u64,
}

// === impl UsageCounters ===

impl UsageCounters {
    /// Adds two counts. A sum ends at the largest number that a row can hold, as the sums of the database do.
    pub(crate) fn plus(self, other: &Self) -> Self {
        let sum = |count: fn(&Self) -> u64| count(&self).saturating_add(count(other)).min(i64::MAX.cast_unsigned());
        Self {
            requests: sum(|counts| counts.requests),
            succeeded: sum(|counts| counts.succeeded),
            failed: sum(|counts| counts.failed),
            refused: sum(|counts| counts.refused),
            images: sum(|counts| counts.images),
            input_tokens: sum(|counts| counts.input_tokens),
            output_tokens: sum(|counts| counts.output_tokens),
            total_tokens: sum(|counts| counts.total_tokens),
            cost_usd: self.cost_usd.plus(other.cost_usd),
            cost_unknown: sum(|counts| counts.cost_unknown),
        }
    }
}

/// The counts of one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DayCounts {
    /// The day on which the jobs began.
    pub(crate) day: UtcDay,
    /// The counts.
    #[serde(flatten)]
    pub(crate) counts: UsageCounters,
}

/// The counts of one key in one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct KeyCounts {
    /// The id of the key.
    pub(crate) key: KeyId,
    /// The owner of the key at that time.
    pub(crate) user: UserId,
    /// The group in which the key was served.
    pub(crate) group: String,
    /// The counts.
    #[serde(flatten)]
    pub(crate) counts: UsageCounters,
}

/// The number of requests with one key, or without a known key, that were refused on one day before they became a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusalCount {
    /// The day of the requests.
    pub(crate) day: UtcDay,
    /// The id of the key, or [`RefusalCount::NO_KEY`].
    pub(crate) key: KeyId,
    /// The id of the key's user.
    pub(crate) user: UserId,
    /// The name of the group of the key.
    pub(crate) group: String,
    /// The number of requests.
    pub(crate) count: u32,
}

impl RefusalCount {
    /// The placeholder for the key of all requests without a known key.
    pub(crate) const NO_KEY: &str = "";
}

/// The names of a key and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyDisplayNames {
    /// The name that the owner gave the key.
    pub(crate) name: String,
    /// The name of the user; `None` if the key belongs to no person yet.
    pub(crate) user_name: Option<String>,
}

/// A model that jobs were made with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UsedModel {
    /// The operation of the jobs.
    pub(crate) operation: String,
    /// The name of the model, as requests gave it.
    pub(crate) model: String,
}

/// A filter for counts. Fields that are `None` do not restrict it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UsageFilter {
    /// Only the usage of this user, who reads it: the usage of other users is treated as absent.
    pub(crate) owner: Option<UserId>,
    /// Only this key, by its id or its public id.
    pub(crate) key: Option<String>,
    /// Only this user, by id or name.
    pub(crate) user: Option<String>,
    /// Only the group of this name.
    pub(crate) group: Option<String>,
    /// Only this end user, shortened as in a record. Refused requests are not counted by end user.
    pub(crate) end_user: Option<String>,
    /// Only usage from this day on.
    pub(crate) since: Option<UtcDay>,
    /// Only usage up to and including this day.
    pub(crate) until: Option<UtcDay>,
}

/// The reads of usage: the counts, the records that they sum up, and the names of their keys.
#[async_trait]
pub(crate) trait UsageStore: UsageDetailStore {
    /// Returns the days with any usage, oldest first.
    async fn usage_by_day(&self, filter: &UsageFilter) -> Result<Vec<DayCounts>, StoreError>;

    /// Returns the keys with any usage, those with the most requests first.
    async fn usage_by_key(&self, filter: &UsageFilter, limit: Option<u32>) -> Result<Vec<KeyCounts>, StoreError>;

    /// Returns the counts by one of the properties of [`UsageGrouping::is_in_daily_counts`]; nothing for any other.
    async fn usage_by_column(
        &self,
        filter: &UsageFilter,
        grouping: UsageGrouping,
    ) -> Result<Vec<(String, UsageCounters)>, StoreError>;

    /// Returns the sum of all counts.
    async fn total_usage(&self, filter: &UsageFilter) -> Result<UsageCounters, StoreError>;

    /// Returns what counts against the budget of a subject since this day: the known costs, and the most that the other jobs
    /// can have cost.
    async fn budget_spending(&self, kind: ReservationSubjectKind, id: &str, since: UtcDay) -> Result<Usd, StoreError>;

    /// Returns the cost of the dearest response of a subject since that day that has cost more than it had reserved.
    async fn dearest_excess(&self, kind: ReservationSubjectKind, id: &str, since: UtcDay) -> Result<Usd, StoreError>;

    /// Returns the total usage of each of these keys. A key without an entry has no usage that is still stored.
    async fn total_usage_by_key(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, UsageCounters>, StoreError>;

    /// Returns the names of these keys, including deleted ones. A key without an entry never existed.
    async fn key_names(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, KeyDisplayNames>, StoreError>;

    /// Returns the names of these users, including disabled ones. A user without an entry has no name.
    async fn user_names(&self, users: &[String]) -> Result<BTreeMap<String, String>, StoreError>;

    /// Returns the newest records that pass the filter, ordered from oldest to newest. Records have no names of users and
    /// keys.
    async fn list_records(&self, filter: &RecordFilter) -> Result<Vec<types::Record>, StoreError>;

    /// Returns the running jobs of all nodes.
    async fn running_jobs(&self) -> Result<Vec<RunningJob>, StoreError>;

    /// Returns the models of the jobs since that time, each once, ordered by operation and name.
    async fn models_since(&self, since: Timestamp) -> Result<Vec<UsedModel>, StoreError>;

    /// Returns the reservations in limits, if several nodes share them; otherwise counters in memory are enough.
    fn shared_reservations(&self) -> Option<&dyn SharedReservations> {
        None
    }

    /// Returns one record, in any state. With an owner, returns it only if it belongs to that user.
    async fn find_record(
        &self,
        request_id: &RequestId,
        owner: Option<&UserId>,
    ) -> Result<Option<types::Record>, StoreError>;
}
