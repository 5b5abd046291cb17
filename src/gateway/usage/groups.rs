//! Counts by one property of requests, with everything that is counted of them.
//!
//! The counts by day, key, user and group are those that are made when a record is closed; the details are added to them.
//! All other groupings have only the detailed counts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{UsageCounters, UsageFilter, UsageReader};
use crate::gateway::money::Usd;
use crate::gateway::store::{KeyCounts, KeyDisplayNames, KeyId, StoreError, UsageDetails, UsageGrouping};
pub(crate) use crate::wire::admin::types::UsageMeasure;

/// The longest period whose hours are listed, in days (our choice).
pub(crate) const HOUR_DAYS_MAX: u32 = 31;

/// The counts of one value of a property.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UsageGroup {
    /// The value; empty for requests without this property.
    pub(crate) value: String,
    /// The name of the key or the user.
    pub(crate) name: Option<String>,
    /// The name of the key's owner.
    pub(crate) user_name: Option<String>,
    pub(crate) counts: UsageCounters,
    /// `None` if no details are kept of what the filter asks for.
    pub(crate) details: Option<UsageDetails>,
}

/// A group as a line of JSON, with the fields of the admin API.
#[derive(Debug, Serialize)]
pub(crate) struct UsageGroupLine<'a> {
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_name: Option<&'a str>,
    #[serde(flatten)]
    counts: &'a UsageCounters,
    #[serde(flatten)]
    details: Option<DetailFields>,
}

#[derive(Debug, Serialize)]
struct DetailFields {
    input_text_tokens: u64,
    input_image_tokens: u64,
    input_cached_tokens: u64,
    output_text_tokens: u64,
    output_image_tokens: u64,
    host_input_tokens: u64,
    host_output_tokens: u64,
    replays: u64,
    replayed_images: u64,
    saved_usd: Usd,
    saved_unknown: u64,
    p50_ms: Option<u64>,
    p95_ms: Option<u64>,
}

/// The counts of a period by one property.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupedUsage {
    /// The values: times in their order, all others by the measure.
    pub(crate) groups: Vec<UsageGroup>,
    /// The counts of the whole period.
    pub(crate) overall: UsageGroup,
    /// The estimated number of records that the details do not have yet.
    pub(crate) pending_records: u64,
    /// The requests of the period without details.
    pub(crate) undetailed_requests: u64,
}

/// The counts of a period beside those of the period before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsageOverview {
    pub(crate) groups: GroupedUsage,
    pub(crate) before: GroupedUsage,
    /// The groups of each of the short lists.
    pub(crate) tops: Vec<GroupedUsage>,
}

/// A question for the values with the most of a measure.
#[derive(Debug, Clone)]
pub(crate) struct TopQuery {
    pub(crate) filter: UsageFilter,
    pub(crate) grouping: UsageGrouping,
    pub(crate) measure: UsageMeasure,
}

/// A grouping that does not fit the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GroupingError {
    #[error("counts by {} are not kept for single end users", .0.as_str())]
    OfEndUser(UsageGrouping),
    #[error("counts by hour are for at most {HOUR_DAYS_MAX} days")]
    TooManyHours,
}

// === impl UsageMeasure ===

impl UsageMeasure {
    /// Returns the amount of a group; `None` if it is not known.
    pub(crate) fn of_group(self, group: &UsageGroup) -> Option<u64> {
        let UsageGroup { counts, details, .. } = group;
        Some(match self {
            Self::Requests => counts.requests,
            Self::Images => counts.images,
            Self::Tokens => counts.total_tokens,
            Self::Cost => counts.cost_usd.nanos(),
            Self::Saved => details.as_ref()?.saved_nano_usd,
            Self::P50 => details.as_ref()?.durations.percentile(50)?,
            Self::P95 => details.as_ref()?.durations.percentile(95)?,
            // In millionths, so that shares that differ do not compare as equal.
            Self::Success => counts.succeeded.saturating_mul(1_000_000).checked_div(counts.requests)?,
        })
    }
}

// === impl UsageGroup ===

impl UsageGroup {
    /// Returns the group as a line of JSON.
    pub(crate) fn to_line(&self) -> UsageGroupLine<'_> {
        let details = self.details.as_ref().map(|details| DetailFields {
            input_text_tokens: details.input_text_tokens,
            input_image_tokens: details.input_image_tokens,
            input_cached_tokens: details.input_cached_tokens,
            output_text_tokens: details.output_text_tokens,
            output_image_tokens: details.output_image_tokens,
            host_input_tokens: details.host_input_tokens,
            host_output_tokens: details.host_output_tokens,
            replays: details.replays,
            replayed_images: details.replayed_images,
            saved_usd: Usd::from_nanos(details.saved_nano_usd),
            saved_unknown: details.saved_unknown,
            p50_ms: details.durations.percentile(50),
            p95_ms: details.durations.percentile(95),
        });
        let (name, user_name) = (self.name.as_deref(), self.user_name.as_deref());
        UsageGroupLine { value: &self.value, name, user_name, counts: &self.counts, details }
    }
}

// === impl GroupingError ===

impl GroupingError {
    /// Checks that a grouping fits a filter.
    ///
    /// # Errors
    /// Returns the reason if it does not.
    pub(crate) fn check(grouping: UsageGrouping, filter: &UsageFilter) -> Result<(), Self> {
        if filter.end_user.is_some() && !grouping.is_in_daily_counts() {
            return Err(Self::OfEndUser(grouping));
        }
        if grouping == UsageGrouping::Hour {
            let last = filter.until.unwrap_or_else(|| crate::gateway::store::Timestamp::now().into());
            if filter.since.is_none_or(|since| since < last.minus(HOUR_DAYS_MAX - 1)) {
                return Err(Self::TooManyHours);
            }
        }
        Ok(())
    }
}

// === impl UsageReader ===

impl UsageReader {
    /// Returns the counts by one property: all times, or at most `limit` of the other values, those with the most of the
    /// measure. The grouping must fit the filter ([`GroupingError::check`]).
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub(crate) async fn groups(
        &self,
        filter: &UsageFilter,
        grouping: UsageGrouping,
        measure: UsageMeasure,
        limit: Option<u32>,
    ) -> Result<GroupedUsage, StoreError> {
        let has_details = filter.end_user.is_none();
        let mut groups = BTreeMap::<String, UsageGroup>::new();
        // The details are read after the other counts, so that a request that ends meanwhile is not one without details.
        let total = if grouping.is_in_daily_counts() {
            let counts = self.store.usage_by_column(filter, grouping).await?;
            let total = counts.iter().fold(UsageCounters::default(), |sum, (_, counts)| sum.plus(counts));
            groups.extend(counts.into_iter().map(|(value, counts)| {
                let details = has_details.then(UsageDetails::default);
                (value.clone(), UsageGroup { value, counts, details, ..UsageGroup::default() })
            }));
            total
        } else {
            self.store.total_usage(filter).await?
        };
        let (mut overall, mut pending_records) = (UsageDetails::default(), 0);
        if has_details {
            // Only records with an error have a reason, so the details of all records come from another grouping.
            let covers_all_records = grouping != UsageGrouping::Reason;
            let groupings = if covers_all_records { &[grouping][..] } else { &[grouping, UsageGrouping::Day] };
            let read = self.store.usage_details(filter, groupings).await?;
            pending_records = read.pending_records;
            for (_, details) in read.groups.last().into_iter().flatten() {
                overall.add(details);
            }
            for (value, details) in read.groups.into_iter().next().unwrap_or_default() {
                let new = || UsageGroup { value: value.clone(), counts: counters(&details), ..UsageGroup::default() };
                groups.entry(value.clone()).or_insert_with(new).details = Some(details);
            }
        }
        let mut groups: Vec<UsageGroup> = groups.into_values().collect();
        if !grouping.is_time() {
            // The order of equal values stays that of their texts.
            groups.sort_by_key(|group| std::cmp::Reverse(measure.of_group(group)));
            groups.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
        }
        self.add_names(&mut groups, grouping).await?;
        let undetailed_requests = if has_details { total.requests.saturating_sub(overall.requests) } else { 0 };
        let details = has_details.then_some(overall);
        let overall = UsageGroup { counts: total, details, ..UsageGroup::default() };
        Ok(GroupedUsage { groups, overall, pending_records, undetailed_requests })
    }

    /// Returns for each of the queries only the values with the most of its measure, without the rest of the counts. The
    /// details are read only of what has no other counts.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub(crate) async fn top_lists(&self, queries: &[TopQuery], limit: usize) -> Result<Vec<GroupedUsage>, StoreError> {
        let (mut lists, mut by_key) = (Vec::new(), None::<(&UsageFilter, Vec<KeyCounts>)>);
        for TopQuery { filter, grouping, measure } in queries {
            let counts = if matches!(grouping, UsageGrouping::Key | UsageGrouping::User | UsageGrouping::Group) {
                // Keys, users and groups are sums of the same counts, which are read once.
                let read = match by_key.take() {
                    Some((of_filter, counts)) if of_filter == filter => counts,
                    _ => self.store.usage_by_key(filter, None).await?,
                };
                let counts = counts_by_property(&read, *grouping);
                by_key = Some((filter, read));
                counts
            } else if grouping.is_in_daily_counts() {
                self.store.usage_by_column(filter, *grouping).await?
            } else {
                let read = self.store.usage_details(filter, &[*grouping]).await?;
                let details = read.groups.into_iter().flatten();
                details.map(|(value, details)| (value, counters(&details))).collect()
            };
            let group = |(value, counts)| UsageGroup { value, counts, ..UsageGroup::default() };
            let mut groups: Vec<UsageGroup> = counts.into_iter().map(group).collect();
            groups.sort_by_key(|group| std::cmp::Reverse(measure.of_group(group)));
            groups.truncate(limit);
            self.add_names(&mut groups, *grouping).await?;
            lists.push(GroupedUsage { groups, ..GroupedUsage::default() });
        }
        Ok(lists)
    }

    async fn add_names(&self, groups: &mut [UsageGroup], grouping: UsageGrouping) -> Result<(), StoreError> {
        match grouping {
            UsageGrouping::Key => {
                let keys: Vec<KeyId> = groups.iter().map(|group| group.value.as_str().into()).collect();
                let mut names = self.load_names(keys.iter().cloned()).await?;
                for (group, key) in groups.iter_mut().zip(keys) {
                    let names = names.remove(&key).map(|KeyDisplayNames { name, user_name }| (Some(name), user_name));
                    (group.name, group.user_name) = names.unwrap_or_default();
                }
            }
            UsageGrouping::User => {
                let users: Vec<String> = groups.iter().map(|group| group.value.clone()).collect();
                let mut names = self.store.user_names(&users).await?;
                for group in groups.iter_mut() {
                    group.name = names.remove(&group.value);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Adds up the counts of keys by their key, user or group.
fn counts_by_property(counts: &[KeyCounts], grouping: UsageGrouping) -> Vec<(String, UsageCounters)> {
    let mut sums = BTreeMap::<String, UsageCounters>::new();
    for KeyCounts { key, user, group, counts } in counts {
        let value = match grouping {
            UsageGrouping::User => user.to_string(),
            UsageGrouping::Group => group.clone(),
            _ => key.as_str().to_owned(),
        };
        let sum = sums.entry(value).or_default();
        *sum = sum.plus(counts);
    }
    sums.into_iter().collect()
}

fn counters(details: &UsageDetails) -> UsageCounters {
    UsageCounters {
        requests: details.requests,
        succeeded: details.succeeded,
        failed: details.failed(),
        refused: 0,
        images: details.images,
        input_tokens: details.input_tokens,
        output_tokens: details.output_tokens,
        total_tokens: details.total_tokens,
        cost_usd: Usd::from_nanos(details.cost_nano_usd),
        cost_unknown: details.cost_unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::store::testing::{add_key, finished_record, new_store, record};
    use crate::gateway::store::{
        JobState, NodeId, RecordFilter, RecordStore as _, RowWrite, UsageDetailStore as _, UsageStore, UtcDay,
    };
    use std::sync::Arc;

    async fn reader_with_records() -> (tempfile::TempDir, UsageReader, KeyId) {
        let (dir, store) = new_store().await;
        let key = add_key(&*store, "laptop").await;
        let mine = |id: &str| record! { key: key.id.clone(), user: key.user.clone(), ..finished_record(id) };
        let failed = record! {
            state: JobState::Failed,
            error_reason: Some(crate::wire::admin::types::RecordReason::Quota),
            model: Some("other".to_owned()),
            cost_usd: Some(Usd::from_nanos(5)),
            ..finished_record("c")
        };
        for closed in [mine("a"), mine("b"), failed] {
            let open = record! { state: JobState::Running, ..closed.clone() };
            store.write_rows(&NodeId::only(), &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await.unwrap();
        }
        // One part is read from the stored counts, and the other from the records.
        store.list_records(&RecordFilter::default()).await.unwrap(); // Moves the records out of their journal.
        let mut step = store.read_fold_step(i64::MAX, 5).await.unwrap().unwrap();
        assert!(store.write_fold_step(&mut step, 5).await.unwrap(), "rows are left");
        let usage = UsageReader::new(store as Arc<dyn UsageStore>);
        (dir, usage, key.id)
    }

    fn values(usage: &GroupedUsage) -> Vec<(&str, u64)> {
        usage.groups.iter().map(|group| (group.value.as_str(), group.counts.requests)).collect()
    }

    #[tokio::test]
    async fn groups_come_in_the_order_of_their_measure_with_names_and_details() {
        let (_dir, usage, key) = reader_with_records().await;
        let by =
            async |grouping, measure| usage.groups(&UsageFilter::default(), grouping, measure, None).await.unwrap();
        let models = by(UsageGrouping::Model, UsageMeasure::Requests).await;
        assert_eq!(values(&models), [("gpt-image-2", 2), ("other", 1)]);
        assert_eq!(values(&by(UsageGrouping::Model, UsageMeasure::Cost).await), [("other", 1), ("gpt-image-2", 2)]);
        assert_eq!(values(&by(UsageGrouping::Reason, UsageMeasure::Requests).await), [("quota", 1)]);
        assert_eq!((models.overall.counts.requests, models.undetailed_requests), (3, 0));
        assert_eq!(UsageMeasure::Success.of_group(&models.groups[0]), Some(1_000_000));
        let median = UsageMeasure::P50.of_group(&models.groups[0]).unwrap();
        assert!((7100..9200).contains(&median), "{median}");
        assert_eq!(UsageMeasure::P50.of_group(&models.groups[1]), None);
        let keys = by(UsageGrouping::Key, UsageMeasure::Requests).await;
        assert_eq!((keys.groups[0].value.as_str(), keys.groups[0].name.as_deref()), (key.as_str(), Some("laptop")));
        assert_eq!(keys.groups[0].details.unwrap().requests, 2);
        assert_eq!(by(UsageGrouping::User, UsageMeasure::Requests).await.groups[0].name.as_deref(), Some("ada"));
        let one = usage.groups(&UsageFilter::default(), UsageGrouping::Model, UsageMeasure::Cost, Some(1)).await;
        assert_eq!(values(&one.unwrap()), [("other", 1)]);
    }

    #[tokio::test]
    async fn short_lists_have_the_counts_of_the_groups() {
        let (_dir, usage, _) = reader_with_records().await;
        let groupings =
            [UsageGrouping::Key, UsageGrouping::User, UsageGrouping::Reason, UsageGrouping::Group, UsageGrouping::Day];
        let query = |grouping| TopQuery { filter: UsageFilter::default(), grouping, measure: UsageMeasure::Requests };
        let lists = usage.top_lists(&groupings.map(query), 20).await.unwrap();
        let shown = |usage: &GroupedUsage| -> Vec<_> {
            usage.groups.iter().map(|group| (group.value.clone(), group.name.clone(), group.counts)).collect()
        };
        for (grouping, list) in groupings.into_iter().zip(&lists) {
            let all = usage.groups(&UsageFilter::default(), grouping, UsageMeasure::Requests, None).await.unwrap();
            assert!(!list.groups.is_empty() && shown(list) == shown(&all), "{grouping:?}: {list:#?}");
        }
        let of_nobody = UsageFilter { user: Some("nobody".to_owned()), ..UsageFilter::default() };
        let other = TopQuery { filter: of_nobody, ..query(UsageGrouping::Key) };
        let lists = usage.top_lists(&[query(UsageGrouping::Key), other], 1).await.unwrap();
        assert_eq!((lists[0].groups.len(), lists[1].groups.len()), (1, 0));
    }

    #[tokio::test]
    async fn an_end_user_has_no_details() {
        let (_dir, usage, _) = reader_with_records().await;
        let filter = UsageFilter { end_user: Some("u-1".to_owned()), ..UsageFilter::default() };
        let days = usage.groups(&filter, UsageGrouping::Day, UsageMeasure::Requests, None).await.unwrap();
        assert_eq!((values(&days), days.overall.details, days.undetailed_requests), (vec![("2026-11-21", 3)], None, 0));
    }

    #[test]
    fn a_grouping_must_fit_the_filter() {
        let day = |text: &str| Some(text.parse::<UtcDay>().unwrap());
        let period = |since, until| UsageFilter { since, until, ..UsageFilter::default() };
        let hours = |filter| GroupingError::check(UsageGrouping::Hour, &filter);
        assert_eq!(hours(period(day("2026-10-01"), day("2026-10-31"))), Ok(()));
        assert_eq!(hours(period(day("2026-10-01"), day("2026-11-01"))), Err(GroupingError::TooManyHours));
        assert_eq!(hours(period(None, day("2026-11-01"))), Err(GroupingError::TooManyHours));
        let of_end_user = UsageFilter { end_user: Some("u".to_owned()), ..UsageFilter::default() };
        assert_eq!(GroupingError::check(UsageGrouping::Key, &of_end_user), Ok(()));
        let error = GroupingError::check(UsageGrouping::Model, &of_end_user).unwrap_err();
        assert_eq!(error.to_string(), "counts by model are not kept for single end users");
    }
}
