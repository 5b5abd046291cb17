//! Reads the counts by day and key, and adds refused requests to them. Each job is counted in the
//! transaction that closes its record.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Serialize;

use super::SqlStore;
use super::decode::{parsed, text};
use super::driver::{SqlPool, SqlRow};
use super::error_conversion::during;
use super::paging::push_json_texts;
use super::records::{self, NO_LIMIT, push_key_id, push_user_id};
use super::statement::{StatementBuilder, sql};
use super::transaction;
use crate::gateway::money::Usd;
use crate::gateway::store::{
    DayCounts, JobRecord, KeyCounts, KeyDisplayNames, KeyId, RecordFilter, RefusalCount, RequestId,
    ReservationSubjectKind, RunningJob, SharedReservations, StoreError, Timestamp, UsageCounters, UsageFilter,
    UsageGrouping, UsageStore, UsedModel, UserId, UtcDay,
};
use crate::wire::admin::types;

const READING: &str = "reading the usage counts";

/// A sum that ends at the largest integer.
macro_rules! sum {
    ($expression:literal) => {
        concat!("CAST(total(", $expression, ") AS BIGINT)")
    };
}
pub(super) use sum;

// Costs are added in two parts: a sum may be larger than the largest integer, and a float would round it.
macro_rules! sums {
    () => {
        concat!(
            sums!("requests", "succeeded", "failed", "refused", "images", "input_tokens", "output_tokens", "total_tokens"),
            sum!("cost_nano_usd / 1000000000"),
            " AS cost_whole_usd, ",
            "CAST(coalesce(sum(cost_nano_usd % 1000000000), 0) AS BIGINT) AS cost_nano_usd, ",
            sum!("cost_unknown"),
            " AS cost_unknown"
        )
    };
    ($($column:literal),*) => {
        concat!($(sum!($column), " AS ", $column, ", "),*)
    };
}

#[async_trait]
impl UsageStore for SqlStore {
    async fn usage_by_day(&self, filter: &UsageFilter) -> Result<Vec<DayCounts>, StoreError> {
        self.fetch_rows(by_day_query(filter), |row| {
            Ok(DayCounts { day: parsed(row, "day")?, counts: counters_from_row(row)? })
        })
        .await
    }

    async fn usage_by_key(&self, filter: &UsageFilter, limit: Option<u32>) -> Result<Vec<KeyCounts>, StoreError> {
        let from_row = |row: &SqlRow| {
            let (key, user, group) = (text(row, "key_id")?, text(row, "user_id")?, text(row, "group_name")?);
            Ok(KeyCounts { key, user, group, counts: counters_from_row(row)? })
        };
        self.fetch_rows(by_key_query(filter, limit), from_row).await
    }

    async fn usage_by_column(
        &self,
        filter: &UsageFilter,
        grouping: UsageGrouping,
    ) -> Result<Vec<(String, UsageCounters)>, StoreError> {
        let Some(query) = by_column_query(filter, grouping) else { return Ok(Vec::new()) };
        self.fetch_rows(query, |row| Ok((text(row, "label")?, counters_from_row(row)?))).await
    }

    async fn total_usage(&self, filter: &UsageFilter) -> Result<UsageCounters, StoreError> {
        self.move_all_records().await?;
        let total = self.fetch_optional(READING, total_query(filter).build(), counters_from_row).await?;
        Ok(total.unwrap_or_default())
    }

    async fn budget_spending(&self, kind: ReservationSubjectKind, id: &str, since: UtcDay) -> Result<Usd, StoreError> {
        let from_row = |row: &SqlRow| Ok(Usd::from_parts(count(row, "whole_usd")?, count(row, "nano_usd")?));
        self.move_all_records().await?;
        let spending = self.fetch_optional(READING, spending_query(kind, id, since).build(), from_row).await?;
        Ok(spending.unwrap_or_default())
    }

    async fn dearest_excess(&self, kind: ReservationSubjectKind, id: &str, since: UtcDay) -> Result<Usd, StoreError> {
        let from_row = |row: &SqlRow| Ok(Usd::from_nanos(count(row, "dearest")?));
        self.move_all_records().await?;
        let excess = self.fetch_optional(READING, excess_query(kind, id, since).build(), from_row).await?;
        Ok(excess.unwrap_or_default())
    }

    async fn total_usage_by_key(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, UsageCounters>, StoreError> {
        let rows = self
            .fetch_rows(total_by_key_query(json_list(keys)?), |row| Ok((text(row, "key_id")?, counters_from_row(row)?)))
            .await?;
        Ok(rows.into_iter().collect())
    }

    async fn key_names(&self, keys: &[KeyId]) -> Result<BTreeMap<KeyId, KeyDisplayNames>, StoreError> {
        let from_row = |row: &SqlRow| {
            let (name, user_name) = (row.try_get("name")?, row.try_get("user_name")?);
            Ok((text(row, "id")?, KeyDisplayNames { name, user_name }))
        };
        let names = self.fetch_all(READING, names_query(json_list(keys)?).build(), from_row).await?;
        Ok(names.into_iter().collect())
    }

    async fn user_names(&self, users: &[String]) -> Result<BTreeMap<String, String>, StoreError> {
        let mut query = StatementBuilder::new("SELECT id, name FROM users WHERE name <> '' AND id IN ");
        push_json_texts(&mut query, json_list(users)?);
        let rows = self.fetch_all(READING, query.build(), |row| Ok((text(row, "id")?, text(row, "name")?))).await?;
        Ok(rows.into_iter().collect())
    }

    async fn list_records(&self, filter: &RecordFilter) -> Result<Vec<types::Record>, StoreError> {
        let newest_first =
            records::list(self.display_readers().await, filter).await.map_err(during("listing records"))?;
        Ok(newest_first.into_iter().rev().collect())
    }

    async fn models_since(&self, since: Timestamp) -> Result<Vec<UsedModel>, StoreError> {
        let mut query = StatementBuilder::new("SELECT DISTINCT operation, model FROM records WHERE created_at >= ");
        query.push_bind(since.to_string()).push(" AND model IS NOT NULL ORDER BY operation, model");
        let from_row = |row: &SqlRow| Ok(UsedModel { operation: text(row, "operation")?, model: text(row, "model")? });
        self.fetch_rows(query, from_row).await
    }

    fn shared_reservations(&self) -> Option<&dyn SharedReservations> {
        self.as_shared().map(|store| store as _)
    }

    async fn running_jobs(&self) -> Result<Vec<RunningJob>, StoreError> {
        self.move_all_records().await?;
        records::running_jobs(&self.readers).await.map_err(during("reading the running jobs"))
    }

    async fn find_record(
        &self,
        request_id: &RequestId,
        owner: Option<&UserId>,
    ) -> Result<Option<types::Record>, StoreError> {
        records::find(self.display_readers().await, request_id, owner).await.map_err(during("looking up a record"))
    }
}

// === impl SqlStore ===

impl SqlStore {
    async fn fetch_rows<T>(
        &self,
        query: StatementBuilder,
        from_row: impl Fn(&SqlRow) -> sqlx::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.display_readers().await;
        self.fetch_all(READING, query.build(), from_row).await
    }
}

pub(super) async fn add_refusals(pool: &SqlPool, refusals: &[RefusalCount]) -> sqlx::Result<()> {
    // In the order in which every transaction locks these rows.
    let mut ordered: Vec<_> = refusals.iter().collect();
    let position =
        |refusal: &RefusalCount| (refusal.key.clone(), refusal.day, refusal.user.clone(), refusal.group.clone());
    ordered.sort_by_cached_key(|refusal| position(refusal));
    let statements = ordered.into_iter().map(|refusal| {
        let statement = sql(
            "INSERT INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images, \
             input_tokens, output_tokens, total_tokens, refused) VALUES ($1, $2, $3, $4, 0, 0, 0, 0, 0, 0, 0, $5) \
             ON CONFLICT (key_id, day, user_id, group_name) DO UPDATE SET refused = usage_days.refused + excluded.refused",
        );
        let statement = statement.bind(refusal.key.as_str()).bind(refusal.day.to_string());
        statement.bind(refusal.user.as_str()).bind(&refusal.group).bind(i64::from(refusal.count))
    });
    transaction::run_all(pool, statements.collect()).await
}

pub(in super::super) fn by_day_query(filter: &UsageFilter) -> StatementBuilder {
    let mut query = StatementBuilder::new(concat!("SELECT day, ", sums!(), " FROM "));
    push_source(&mut query, filter);
    push_conditions(&mut query, filter);
    query.push(" GROUP BY day ORDER BY day");
    query
}

pub(in super::super) fn by_key_query(filter: &UsageFilter, limit: Option<u32>) -> StatementBuilder {
    let mut query = StatementBuilder::new(concat!("SELECT key_id, user_id, group_name, ", sums!(), " FROM "));
    push_source(&mut query, filter);
    push_conditions(&mut query, filter);
    query.push(" GROUP BY key_id, user_id, group_name ORDER BY requests DESC, key_id, group_name LIMIT ");
    query.push_bind(limit.map_or(NO_LIMIT, i64::from));
    query
}

/// Returns the query by one of the properties that the counts by day have; `None` for any other.
fn by_column_query(filter: &UsageFilter, grouping: UsageGrouping) -> Option<StatementBuilder> {
    let column = match grouping {
        UsageGrouping::Day => "day",
        UsageGrouping::Key => "key_id",
        UsageGrouping::User => "user_id",
        UsageGrouping::Group => "group_name",
        _ => return None,
    };
    let mut query = StatementBuilder::new("SELECT ");
    query.push(column).push(concat!(" AS label, ", sums!(), " FROM "));
    push_source(&mut query, filter);
    push_conditions(&mut query, filter);
    query.push(" GROUP BY 1");
    Some(query)
}

pub(in super::super) fn total_query(filter: &UsageFilter) -> StatementBuilder {
    let mut query = StatementBuilder::new(concat!("SELECT ", sums!(), " FROM "));
    push_source(&mut query, filter);
    push_conditions(&mut query, filter);
    query
}

fn spending_query(kind: ReservationSubjectKind, id: &str, since: UtcDay) -> StatementBuilder {
    let mut query = StatementBuilder::new(concat!(
        "SELECT ",
        sum!("cost_nano_usd / 1000000000 + assumed_nano_usd / 1000000000"),
        " AS whole_usd, CAST(coalesce(sum(cost_nano_usd % 1000000000 + assumed_nano_usd % 1000000000), 0) AS BIGINT) ",
        "AS nano_usd FROM usage_days WHERE day >= "
    ));
    push_subject(&mut query, kind, id, since);
    query
}

fn excess_query(kind: ReservationSubjectKind, id: &str, since: UtcDay) -> StatementBuilder {
    let mut query = StatementBuilder::new(
        "SELECT coalesce(max(cost_nano_usd), 0) AS dearest FROM records WHERE operation = 'create_response' \
         AND state <> 'running' AND cost_nano_usd > max_job_cost_nano_usd AND created_at >= ",
    );
    push_subject(&mut query, kind, id, since);
    query
}

/// Adds a day and the condition for a subject.
fn push_subject(query: &mut StatementBuilder, kind: ReservationSubjectKind, id: &str, since: UtcDay) {
    let column = match kind {
        ReservationSubjectKind::Key => " AND key_id = ",
        ReservationSubjectKind::User => " AND user_id = ",
        ReservationSubjectKind::Group => " AND group_name = ",
    };
    query.push_bind(since.to_string()).push(column).push_bind(id.to_owned());
}

/// Returns the ids as one bound value, so that the statement is the same for any number of ids.
fn json_list(keys: &[impl Serialize]) -> Result<String, StoreError> {
    serde_json::to_string(keys).map_err(|error| StoreError::Refused(error.into()))
}

pub(in super::super) fn total_by_key_query(keys: String) -> StatementBuilder {
    let mut query = StatementBuilder::new(concat!("SELECT key_id, ", sums!(), " FROM usage_days WHERE key_id IN "));
    push_json_texts(&mut query, keys);
    query.push(" GROUP BY key_id");
    query
}

fn names_query(keys: String) -> StatementBuilder {
    let mut query = StatementBuilder::new(
        "SELECT keys.id AS id, keys.name AS name, nullif(users.name, '') AS user_name FROM keys \
         JOIN users ON users.id = keys.user_id WHERE keys.id IN ",
    );
    push_json_texts(&mut query, keys);
    query
}

/// Adds the table of counts by day: that of end users for one of them, of whom no refused requests are counted.
fn push_source(query: &mut StatementBuilder, filter: &UsageFilter) {
    match &filter.end_user {
        None => query.push("usage_days"),
        Some(end_user) => query
            .push("(SELECT *, 0 AS refused FROM end_user_days WHERE end_user = ")
            .push_bind(JobRecord::truncate_text(end_user.clone()))
            .push(") AS usage_days"),
    };
}

fn push_conditions(query: &mut StatementBuilder, filter: &UsageFilter) {
    // The conditions below all begin with `AND`.
    query.push(" WHERE TRUE");
    push_scope_conditions(query, filter);
    push_day_conditions(query, filter);
}

/// Adds the conditions on the key, its user and its group.
pub(super) fn push_scope_conditions(query: &mut StatementBuilder, filter: &UsageFilter) {
    if let Some(owner) = &filter.owner {
        query.push(" AND user_id = ").push_bind(owner.to_string());
    }
    if let Some(key) = &filter.key {
        push_key_id(query.push(" AND key_id = "), key);
    }
    if let Some(user) = &filter.user {
        push_user_id(query.push(" AND user_id = "), user);
    }
    if let Some(group) = &filter.group {
        query.push(" AND group_name = ").push_bind(group.clone());
    }
}

/// Adds the conditions on the day.
pub(super) fn push_day_conditions(query: &mut StatementBuilder, filter: &UsageFilter) {
    if let Some(since) = filter.since {
        query.push(" AND day >= ").push_bind(since.to_string());
    }
    if let Some(until) = filter.until {
        query.push(" AND day <= ").push_bind(until.to_string());
    }
}

fn count(row: &SqlRow, column: &str) -> sqlx::Result<u64> {
    let count: i64 = row.try_get(column)?;
    u64::try_from(count).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn counters_from_row(row: &SqlRow) -> sqlx::Result<UsageCounters> {
    let count = |column: &str| count(row, column);
    Ok(UsageCounters {
        requests: count("requests")?,
        succeeded: count("succeeded")?,
        failed: count("failed")?,
        refused: count("refused")?,
        images: count("images")?,
        input_tokens: count("input_tokens")?,
        output_tokens: count("output_tokens")?,
        total_tokens: count("total_tokens")?,
        cost_usd: Usd::from_parts(count("cost_whole_usd")?, count("cost_nano_usd")?),
        cost_unknown: count("cost_unknown")?,
    })
}
