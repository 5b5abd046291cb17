//! The operations on usage counts, by day and by key: admins see all counts, members only their own.

use chrono::NaiveDate;

use super::Console;
use super::error_conversion::from_store_error;
use super::records::from_csv_error;
use super::usage_groups::with_groups;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::people::Actor;
use crate::gateway::store::Timestamp;
use crate::gateway::usage::{DayCounts, NamedCounts, UsageCounters, UsageFilter, UsageGroup, UtcDay, csv};
use crate::gateway::work::Work;
use crate::wire::admin::server::RetrieveUsageQuery;
use crate::wire::admin::types;

/// The number of days in the period if the request names no first day; the last day is included.
const DEFAULT_DAYS: u32 = 30;

/// The maximum number of keys in one answer (our choice).
const KEYS_MAX: u32 = 1000;

// === impl Console ===

impl Console {
    /// Returns the counts by day, by key and in total, and by another property if the query names one.
    ///
    /// # Errors
    ///
    /// 400 if the first day is after the last day, 404 if the named user does not exist, and the errors of
    /// [`Console::usage_groups`].
    pub(crate) async fn retrieve_usage(
        &self,
        actor: &Actor,
        query: &RetrieveUsageQuery,
    ) -> Result<types::Usage, Error> {
        actor.charge(Work::Report);
        let (first, last) = period(query, Timestamp::now().into())?;
        let (usage, filter) = (self.usage(), self.usage_filter(actor, query, first, last).await?);
        // A command prints all keys, as it has no other page.
        let keys_max = (!actor.is_command()).then_some(KEYS_MAX);
        // Each of the two reads all counts of the period.
        let (days, keys) =
            tokio::try_join!(usage.days(&filter), usage.by_key(&filter, keys_max)).map_err(from_store_error)?;
        let totals = days.iter().fold(UsageCounters::default(), |sum, day| sum.plus(&day.counts));
        let usage = types::Usage {
            since: first.into(),
            until: last.into(),
            totals: to_wire_counts(totals),
            days: days.into_iter().map(to_wire_day).collect(),
            keys: keys.into_iter().map(to_wire_key_usage).collect(),
            group_by: None,
            groups: Vec::new(),
            overall: None,
            pending_records: None,
            undetailed_requests: None,
        };
        if query.group_by.is_none() {
            return Ok(usage);
        }
        Ok(with_groups(usage, query, self.usage_groups(actor, query).await?))
    }

    /// Returns the counts by day, or by the property that the query names, as comma-separated values.
    ///
    /// # Errors
    ///
    /// The errors of [`Console::retrieve_usage`].
    pub(crate) async fn usage_csv(&self, actor: &Actor, query: &RetrieveUsageQuery) -> Result<String, Error> {
        actor.charge(Work::Report);
        if let Some(grouping) = query.group_by {
            let groups = self.usage_groups(actor, query).await?.groups;
            let lines = groups.iter().map(UsageGroup::to_line);
            return csv::groups(lines, grouping).map_err(from_csv_error);
        }
        let (first, last) = period(query, Timestamp::now().into())?;
        let days =
            self.usage().days(&self.usage_filter(actor, query, first, last).await?).await.map_err(from_store_error)?;
        csv::days(&days).map_err(from_csv_error)
    }

    pub(super) async fn usage_filter(
        &self,
        actor: &Actor,
        query: &RetrieveUsageQuery,
        first: UtcDay,
        last: UtcDay,
    ) -> Result<UsageFilter, Error> {
        Ok(UsageFilter {
            owner: self.owner_filter(actor, query.user.as_deref()).await?,
            key: query.key.clone(),
            group: query.group.clone(),
            end_user: query.end_user.clone(),
            since: Some(first),
            until: Some(last),
            ..UsageFilter::default()
        })
    }
}

/// Returns the first and the last day of the period.
pub(super) fn period(query: &RetrieveUsageQuery, today: UtcDay) -> Result<(UtcDay, UtcDay), Rejection> {
    let last = query.until.map_or(today, UtcDay::from);
    let first = query.since.map_or_else(|| last.minus(DEFAULT_DAYS - 1), UtcDay::from);
    if first > last {
        let message = format!("Invalid 'since': {first} is after the last day, which is {last}.");
        return Err(Rejection::new("since", RejectionReason::InvalidValue, message));
    }
    Ok((first, last))
}

fn to_wire_day(DayCounts { day, counts }: DayCounts) -> types::UsageDay {
    let UsageCounters { requests, succeeded, failed, refused, images, .. } = counts;
    let UsageCounters { input_tokens, output_tokens, total_tokens, cost_usd, cost_unknown, .. } = counts;
    types::UsageDay {
        day: NaiveDate::from(day),
        requests,
        succeeded,
        failed,
        refused,
        images,
        input_tokens,
        output_tokens,
        total_tokens,
        cost_usd: Some(cost_usd.dollars()),
        cost_unknown: Some(cost_unknown),
    }
}

fn to_wire_key_usage(NamedCounts { name, user_name, key_counts }: NamedCounts) -> types::UsageKey {
    let UsageCounters { requests, succeeded, failed, refused, images, .. } = key_counts.counts;
    let UsageCounters { input_tokens, output_tokens, total_tokens, cost_usd, cost_unknown, .. } = key_counts.counts;
    types::UsageKey {
        key: key_counts.key.to_string(),
        name: name.unwrap_or_default(),
        user: key_counts.user.to_string(),
        user_name,
        group: key_counts.group,
        requests,
        succeeded,
        failed,
        refused,
        images,
        input_tokens,
        output_tokens,
        total_tokens,
        cost_usd: Some(cost_usd.dollars()),
        cost_unknown: Some(cost_unknown),
    }
}

fn to_wire_counts(counts: UsageCounters) -> types::UsageCounts {
    let UsageCounters { requests, succeeded, failed, refused, images, .. } = counts;
    let UsageCounters { input_tokens, output_tokens, total_tokens, cost_usd, cost_unknown, .. } = counts;
    types::UsageCounts {
        requests,
        succeeded,
        failed,
        refused,
        images,
        input_tokens,
        output_tokens,
        total_tokens,
        cost_usd: Some(cost_usd.dollars()),
        cost_unknown: Some(cost_unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(since: Option<&str>, until: Option<&str>, expected: Result<(&str, &str), &str>) {
        let date = |text: &str| text.parse::<NaiveDate>().unwrap();
        let (since, until) = (since.map(date), until.map(date));
        let query = RetrieveUsageQuery { since, until, ..RetrieveUsageQuery::default() };
        let result = period(&query, "2026-11-22".parse().unwrap());
        let result = result.map(|(first, last)| (first.to_string(), last.to_string()));
        match (result, expected) {
            (Ok((first, last)), Ok(expected)) => assert_eq!((first.as_str(), last.as_str()), expected),
            (Err(rejection), Err(param)) => assert_eq!(rejection.param.as_deref(), Some(param)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_default_period_is_the_last_thirty_days() {
        check(None, None, Ok(("2026-10-24", "2026-11-22")));
        check(None, Some("2026-03-01"), Ok(("2026-01-31", "2026-03-01")));
        check(Some("2025-01-01"), None, Ok(("2025-01-01", "2026-11-22")));
        check(Some("2026-03-01"), Some("2026-03-01"), Ok(("2026-03-01", "2026-03-01")));
        check(Some("2026-03-02"), Some("2026-03-01"), Err("since"));
        check(Some("2026-11-23"), None, Err("since"));
    }
}
