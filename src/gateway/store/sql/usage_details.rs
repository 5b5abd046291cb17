//! Reads detailed counts: those that are stored, and the records that are not counted yet.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use super::decode::optional_usd;
use super::driver::{SqlConnection, SqlPool, SqlRow};
use super::records::record_queries::document_from_row;
use super::statement::{StatementBuilder, sql};
use super::transaction::transact;
use super::usage::{push_day_conditions, push_scope_conditions};
use crate::gateway::money::Usd;
use crate::gateway::store::usage_fold::{ALL_RECORDS, CountedRecord, FoldPosition, dimension_of};
use crate::gateway::store::{
    DetailsByValue, DurationCounts, UsageDetailRead, UsageDetails, UsageFilter, UsageGrouping,
};

/// The most records that a read counts itself (our choice): that takes about a second. There are more only after an
/// import, or if the task that counts them fails.
const UNCOUNTED_MAX: i64 = 100_000;

/// The number of records that are in memory at the same time while they are counted (our choice).
const READ_BATCH: i64 = 1000;

/// The condition on the scope of all records together.
const OF_EVERYBODY: &str = " AND group_name = '' AND user_id = '' AND key_id = ''";

/// The ending of columns with amounts, which are added in two parts: a sum may be larger than the largest integer, and a
/// float would round it.
const NANO_USD: &str = "_nano_usd";

/// The sums of all counts but those of durations.
static SUMS: LazyLock<String> = LazyLock::new(|| {
    let mut sums: Vec<String> = Vec::new();
    for column in UsageDetails::COLUMNS {
        if column.ends_with(NANO_USD) {
            sums.push(format!("{} AS {column}_whole", sum_of(&format!("{column} / 1000000000"))));
            sums.push(format!("{} AS {column}", sum_of(&format!("{column} % 1000000000"))));
        } else {
            sums.push(format!("{} AS {column}", sum_of(column)));
        }
    }
    sums.join(", ")
});

/// A sum that ends at the largest integer.
fn sum_of(expression: &str) -> String {
    format!("CAST(total({expression}) AS BIGINT)")
}

/// The columns of the counts of durations.
pub(super) fn duration_columns() -> impl Iterator<Item = String> {
    (0..DurationCounts::BUCKETS).map(|index| format!("d{index:02}"))
}

/// Reads the counts by each of the groupings, all at one moment.
pub(super) async fn read(
    pool: &SqlPool,
    filter: &UsageFilter,
    groupings: &[UsageGrouping],
) -> sqlx::Result<UsageDetailRead> {
    transact!(pool.begin_read(), |transaction| read_at_once(transaction, filter, groupings).await?)
}

async fn read_at_once(
    connection: &mut SqlConnection,
    filter: &UsageFilter,
    groupings: &[UsageGrouping],
) -> sqlx::Result<UsageDetailRead> {
    let (mut groups, position) = (Vec::new(), fold_position(connection).await?);
    // While a step is being written, the row of the day may lack a duration that a row of an account has already.
    let durations = match position.step_end {
        0 => used_durations(connection, filter).await?,
        _ => 0..DurationCounts::BUCKETS,
    };
    for grouping in groupings {
        let mut values = BTreeMap::<String, UsageDetails>::new();
        for row in counts_query(filter, *grouping, &durations).build().fetch_all(&mut *connection).await? {
            values.insert(row.try_get("label")?, details_from_row(&row, &durations)?);
        }
        groups.push(values);
    }
    let uncounted = newest_seq(connection).await?.saturating_sub(position.folded_seq);
    let mut pending_records = 0;
    if uncounted > UNCOUNTED_MAX {
        pending_records = uncounted.unsigned_abs();
    } else if uncounted > 0 {
        let mut after = Some(position.folded_seq);
        while let Some(last) = after {
            let mut query = records_query(filter, last);
            query.push(" ORDER BY seq LIMIT ").push_bind(READ_BATCH);
            after = None;
            for row in query.build().fetch_all(&mut *connection).await? {
                let record = record_from_row(&row)?;
                add_record(&mut groups, groupings, filter, &record, &position);
                after = Some(record.seq);
            }
        }
    }
    let groups = groups.into_iter().map(|values| values.into_iter().collect::<DetailsByValue>()).collect();
    Ok(UsageDetailRead { groups, pending_records })
}

/// Adds a record to the counts that do not have it.
fn add_record(
    groups: &mut [BTreeMap<String, UsageDetails>],
    groupings: &[UsageGrouping],
    filter: &UsageFilter,
    record: &CountedRecord,
    position: &FoldPosition,
) {
    for (values, grouping) in groups.iter_mut().zip(groupings) {
        let row = record.row_key(*grouping, reads_rows_of_all(filter, *grouping));
        if let Some(value) = record.value(*grouping)
            && row.is_some_and(|row| !position.includes(record.seq, &row))
        {
            values.entry(value.to_owned()).or_default().add(&record.counts);
        }
    }
}

pub(super) async fn fold_position(connection: &mut SqlConnection) -> sqlx::Result<FoldPosition> {
    let row = sql("SELECT folded_seq, step_end, last_row FROM usage_fold").fetch_one(connection).await?;
    let last_row: &str = row.try_get("last_row")?;
    Ok(FoldPosition {
        folded_seq: row.try_get("folded_seq")?,
        step_end: row.try_get("step_end")?,
        last_row: serde_json::from_str(last_row).map_err(|error| sqlx::Error::Decode(error.into()))?,
    })
}

pub(super) async fn newest_seq(connection: &mut SqlConnection) -> sqlx::Result<i64> {
    sql("SELECT coalesce(max(seq), 0) FROM records").fetch_value(connection).await
}

/// Returns the columns from the first to the last duration of the period that has a count. A sum costs time also where it
/// is 0, and most services need only a part of the durations. It reads one row for each day.
async fn used_durations(connection: &mut SqlConnection, filter: &UsageFilter) -> sqlx::Result<Range<usize>> {
    let counts: Vec<String> = duration_columns().map(|column| format!("count({column}) AS {column}")).collect();
    let mut query = StatementBuilder::new("SELECT ");
    push_counts_source(query.push(counts.join(", ")));
    query.push(ALL_RECORDS).push("'").push(OF_EVERYBODY);
    push_day_conditions(&mut query, filter);
    let row = query.build().fetch_one(connection).await?;
    let mut used = 0..0;
    for (index, column) in duration_columns().enumerate() {
        if row.try_get::<i64, _>(column.as_str())? > 0 {
            used = if used.is_empty() { index..index + 1 } else { used.start..index + 1 };
        }
    }
    Ok(used)
}

/// Adds the tables of the counts, and the beginning of the condition on the dimension.
fn push_counts_source(query: &mut StatementBuilder) {
    // SQLite reads the tables in the order of a cross join.
    query.push(
        " FROM usage_scopes CROSS JOIN usage_details WHERE usage_details.scope = usage_scopes.id AND dimension = '",
    );
}

/// `durations` are the columns of [`used_durations`].
pub(in super::super) fn counts_query(
    filter: &UsageFilter,
    grouping: UsageGrouping,
    durations: &Range<usize>,
) -> StatementBuilder {
    let label = match grouping {
        UsageGrouping::Day => "day",
        UsageGrouping::Key => "key_id",
        UsageGrouping::User => "user_id",
        UsageGrouping::Group => "group_name",
        UsageGrouping::Hour => "day || 'T' || value",
        _ => "value",
    };
    let mut query = StatementBuilder::new("SELECT ");
    query.push(label).push(" AS label, ").push(SUMS.as_str());
    for column in columns_of(durations) {
        query.push(format!(", {} AS {column}", sum_of(&column)));
    }
    push_counts_source(&mut query);
    query.push(dimension_of(grouping)).push("'");
    if reads_rows_of_all(filter, grouping) {
        query.push(OF_EVERYBODY);
    } else {
        query.push(" AND key_id <> ''");
        push_scope_conditions(&mut query, filter);
    }
    push_day_conditions(&mut query, filter);
    query.push(" GROUP BY 1");
    query
}

/// True if the counts are read from the rows of all records together.
fn reads_rows_of_all(filter: &UsageFilter, grouping: UsageGrouping) -> bool {
    let UsageFilter { owner, key, user, group, .. } = filter;
    let is_of_all = owner.is_none() && key.is_none() && user.is_none() && group.is_none();
    is_of_all && !matches!(grouping, UsageGrouping::Key | UsageGrouping::User | UsageGrouping::Group)
}

/// The records that may not be counted yet, which SQLite must find by their number and by no index.
pub(in super::super) fn records_query(filter: &UsageFilter, folded_seq: i64) -> StatementBuilder {
    let mut query = StatementBuilder::new("SELECT ");
    query.push(RECORD_COLUMNS).push(" FROM records").push_by_database(" NOT INDEXED", "");
    query.push(" WHERE seq > ").push_bind(folded_seq).push(" AND state <> 'running'");
    push_scope_conditions(&mut query, filter);
    // A time begins with its day, and `U` comes after the `T` that follows the day.
    if let Some(since) = filter.since {
        query.push(" AND created_at >= ").push_bind(since.to_string());
    }
    if let Some(until) = filter.until {
        query.push(" AND created_at < ").push_bind(format!("{until}U"));
    }
    query
}

/// The columns that [`record_from_row`] reads.
pub(super) const RECORD_COLUMNS: &str = "seq, cost_nano_usd, document";

pub(super) fn record_from_row(row: &SqlRow) -> sqlx::Result<CountedRecord> {
    let cost: Option<Usd> = optional_usd(row, "cost_nano_usd")?;
    Ok(CountedRecord::new(row.try_get("seq")?, cost, document_from_row(row)?))
}

fn columns_of(durations: &Range<usize>) -> impl Iterator<Item = String> {
    duration_columns().skip(durations.start).take(durations.len())
}

fn details_from_row(row: &SqlRow, used_durations: &Range<usize>) -> sqlx::Result<UsageDetails> {
    let number = |column: &str| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    let mut counts = [0; UsageDetails::COUNTS];
    for (count, column) in counts.iter_mut().zip(UsageDetails::COLUMNS) {
        *count = number(column)?;
        if column.ends_with(NANO_USD) {
            let whole = number(&format!("{column}_whole"))?.saturating_mul(1_000_000_000);
            *count = count.saturating_add(whole).min(i64::MAX.cast_unsigned());
        }
    }
    let mut durations = DurationCounts::default();
    for (count, column) in durations.0.iter_mut().skip(used_durations.start).zip(columns_of(used_durations)) {
        *count = number(&column)?;
    }
    Ok(UsageDetails::from_counts(counts, durations))
}
