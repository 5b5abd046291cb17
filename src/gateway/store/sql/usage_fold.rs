//! Counts closed records and replayed answers in detail.
//!
//! The number of the last counted record is moved in the transaction that adds the counts, and only from the value that
//! was read before: so whatever ends a process, and however many processes count, each record counts once. The records
//! themselves are read outside of that transaction, because a closed record never changes, with one exception: a
//! provisional outcome is replaced if the node of the job comes back. Such a record is read again in the transaction, and
//! one that is replaced later is taken back and counted anew.
//!
//! Many records together have few rows, so they are counted in large steps. In SQLite, where other writes wait for a
//! transaction, the rows of a step are written in several, in the order of their keys, and each states the last row that is
//! written. Whoever goes on adds the same records up again, and finds the same rows.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;

use super::SqlStore;
use super::driver::{SqlConnection, SqlPool};
use super::error_conversion::during;
use super::paging::push_json_texts;
use super::statement::{SqlStatement, SqlText, StatementBuilder, sql, with_json_cells};
use super::transaction::{perform, rollback, transact};
use super::usage_details::{self, RECORD_COLUMNS, duration_columns, fold_position, newest_seq, record_from_row};
use crate::gateway::store::usage_fold::{CountedRecord, DetailRowKey, FoldStep, FoldedRows};
use crate::gateway::store::{
    DurationCounts, ReplayCount, StoreError, UsageDetailRead, UsageDetailStore, UsageDetails, UsageFilter,
    UsageGrouping,
};

/// The first running record; there are few of them. The condition is written exactly like that of the partial index.
pub(in super::super) const FIRST_RUNNING: &str = "WITH running AS MATERIALIZED \
    (SELECT seq FROM records WHERE state = 'running') SELECT min(seq) FROM running";

/// The most records that a step counts (our choice).
const RECORDS_MAX: u32 = 10_000;

/// The number of records that are in memory at the same time while they are added up (our choice).
const READ_BATCH: i64 = 500;

/// Moves the position, if it is the one that was read.
const MOVE_POSITION: &str = "UPDATE usage_fold SET folded_seq = $1, step_end = $2, last_row = $3 \
    WHERE folded_seq = $4 AND step_end = $5 AND last_row = $6";

/// The most replaced outcomes in one transaction (our choice).
const REPLACED_MAX: i64 = 500;

/// The numbers of rows of [`ADD_VALUES`], the largest first (our choice). Each statement is an errand of another thread.
const ROWS_PER_STATEMENT: [usize; 3] = [32, 4, 1];

/// Adds the scopes of a JSON list.
const ADD_SCOPES: SqlText = with_json_cells!(
    "INSERT INTO usage_scopes (group_name, user_id, key_id) \
     SELECT cells.value ->> 0, cells.value ->> 1, cells.value ->> 2 FROM ",
    " WHERE TRUE ON CONFLICT (group_name, user_id, key_id) DO NOTHING"
);

/// Adds the rows of a JSON list to those that are stored, in PostgreSQL, where each statement is a journey.
static ADD_ROWS: LazyLock<String> = LazyLock::new(|| {
    let cells = (0..DetailRowKey::TEXTS).map(|index| format!("cells.value ->> {index}"));
    let counts = (DetailRowKey::TEXTS..row_cells()).map(|index| format!("CAST(cells.value ->> {index} AS BIGINT)"));
    let sum = |one: &str, other: &str| format!("capped(CAST({one} AS NUMERIC) + {other})");
    let table = "jsonb_array_elements(CAST($1 AS JSONB)) AS cells (value)";
    add_statement(&cells.chain(counts).collect::<Vec<_>>(), table, sum)
});

/// Adds rows whose cells are values of the statement, in SQLite, which searches a JSON list from its start for each item.
static ADD_VALUES: LazyLock<[(usize, String); 3]> = LazyLock::new(|| {
    let cells: Vec<String> = (1..=row_cells()).map(|index| format!("cells.column{index}")).collect();
    // Without numbers: the driver looks up the name of each numbered parameter in a list of all.
    let row = format!("({})", vec!["?"; row_cells()].join(", "));
    let sum = |one: &str, other: &str| format!("min({one} + {other}, 9223372036854775807)");
    ROWS_PER_STATEMENT.map(|rows| {
        let values = format!("(VALUES {}) AS cells", vec![row.as_str(); rows].join(", "));
        (rows, add_statement(&cells, &values, sum))
    })
});

/// The number of cells of a row.
fn row_cells() -> usize {
    DetailRowKey::TEXTS + UsageDetails::COUNTS + DurationCounts::BUCKETS
}

fn count_columns() -> Vec<String> {
    UsageDetails::COLUMNS.into_iter().map(str::to_owned).chain(duration_columns()).collect()
}

/// Returns a statement that adds rows of these cells of the table `cells`. `sum_of_two` ends at the largest integer.
fn add_statement(cells: &[String], table: &str, sum_of_two: impl Fn(&str, &str) -> String) -> String {
    let columns = count_columns();
    let add = |(index, column): (usize, &String)| {
        let (old, new) = (format!("usage_details.{column}"), format!("excluded.{column}"));
        if index < UsageDetails::COUNTS {
            return format!("{column} = {}", sum_of_two(&old, &new));
        }
        let sum = sum_of_two(&format!("coalesce({old}, 0)"), &format!("coalesce({new}, 0)"));
        format!("{column} = nullif({sum}, 0)")
    };
    let sums: Vec<String> = columns.iter().enumerate().map(add).collect();
    let [group, user, key, others @ ..] = cells else { return String::new() };
    format!(
        "INSERT INTO usage_details (scope, dimension, day, value, {}) SELECT usage_scopes.id, {} \
         FROM {table} CROSS JOIN usage_scopes WHERE usage_scopes.group_name = {group} \
         AND usage_scopes.user_id = {user} AND usage_scopes.key_id = {key} ON CONFLICT (scope, dimension, day, value) DO UPDATE SET {}",
        columns.join(", "),
        others.join(", "),
        sums.join(", ")
    )
}

#[async_trait]
impl UsageDetailStore for SqlStore {
    async fn newest_record(&self) -> Result<i64, StoreError> {
        const DOING: &str = "reading the number of the newest record";
        let mut connection = self.readers.acquire().await.map_err(during(DOING))?;
        newest_seq(&mut *connection).await.map_err(during(DOING))
    }

    fn commits_out_of_order(&self) -> bool {
        // A node of PostgreSQL can commit a record after one with a higher number. In SQLite, writes take turns.
        self.writer.is_postgres()
    }

    async fn read_fold_step(&self, up_to: i64, rows: usize) -> Result<Option<FoldStep>, StoreError> {
        read_step(&self.readers, up_to, rows).await.map_err(during("reading records to count"))
    }

    async fn write_fold_step(&self, step: &mut FoldStep, rows: usize) -> Result<bool, StoreError> {
        write_rows(&self.writer, step, rows).await.map_err(during("counting records"))
    }

    async fn count_replaced(&self) -> Result<u32, StoreError> {
        if !self.commits_out_of_order() {
            return Ok(0);
        }
        count_replaced(&self.writer).await.map_err(during("counting replaced outcomes"))
    }

    async fn add_replays(&self, replays: &[ReplayCount]) -> Result<Vec<ReplayCount>, StoreError> {
        self.move_all_records().await?;
        perform("counting replayed answers", async {
            let ids: Vec<&str> = replays.iter().map(|replay| replay.request_id.as_str()).collect();
            let mut query = StatementBuilder::new("SELECT ");
            query.push(RECORD_COLUMNS).push(" FROM records WHERE request_id IN ");
            push_json_texts(&mut query, to_json(&ids)?);
            let mut records = HashMap::new();
            for row in query.build().fetch_all(&self.readers).await? {
                let record = record_from_row(&row)?;
                records.insert(record.request_id.clone(), record);
            }
            let (mut rows, mut running) = (FoldedRows::default(), Vec::new());
            let removed = CountedRecord::default();
            for replay in replays {
                match records.get(replay.request_id.as_str()) {
                    Some(record) if record.is_running => running.push(replay.clone()),
                    record => rows.add_replay(record.unwrap_or(&removed), replay),
                }
            }
            if rows.0.is_empty() {
                return Ok(running);
            }
            let pool = &self.writer;
            transact!(pool.begin_change(), |transaction| add_rows(transaction, &rows, 1).await?)?;
            Ok(running)
        })
        .await
    }

    async fn usage_details(
        &self,
        filter: &UsageFilter,
        groupings: &[UsageGrouping],
    ) -> Result<UsageDetailRead, StoreError> {
        usage_details::read(self.display_readers().await, filter, groupings)
            .await
            .map_err(during("reading the detailed usage counts"))
    }
}

/// Reads the next records to count, or those of a step that was begun; `None` if there are none.
async fn read_step(pool: &SqlPool, up_to: i64, max_rows: usize) -> sqlx::Result<Option<FoldStep>> {
    let mut connection = pool.acquire().await?;
    let position = fold_position(&mut *connection).await?;
    let is_begun = position.step_end > 0;
    let mut end = position.step_end;
    if !is_begun {
        let first_running: Option<i64> = sql(FIRST_RUNNING).fetch_value(&mut *connection).await?;
        // The records that were opened since then have higher numbers than these.
        let up_to = up_to.min(newest_seq(&mut *connection).await?);
        end = first_running.map_or(up_to, |first| up_to.min(first - 1));
    }
    if end <= position.folded_seq {
        return Ok(None);
    }
    let (mut rows, mut provisional, mut records, mut last) =
        (FoldedRows::default(), Vec::new(), 0, position.folded_seq);
    while last < end && (is_begun || (records < RECORDS_MAX && rows.0.len() < max_rows)) {
        let mut query = StatementBuilder::new("SELECT ");
        query
            .push(RECORD_COLUMNS)
            .push(" FROM records WHERE seq > ")
            .push_bind(last)
            .push(" AND seq <= ")
            .push_bind(end);
        query.push(" ORDER BY seq LIMIT ").push_bind(READ_BATCH);
        let batch = query.build().fetch_all(&mut *connection).await?;
        if batch.is_empty() {
            last = end;
        }
        for row in batch {
            let record = record_from_row(&row)?;
            // In SQLite, a node alone closes its own records.
            if record.is_provisional && pool.is_postgres() {
                provisional.push(record.seq);
            } else {
                rows.add_record(&record);
            }
            (last, records) = (record.seq, records + 1);
            if !is_begun && rows.0.len() >= max_rows {
                break;
            }
        }
    }
    rows.0.retain(|row, _| !is_begun || !position.has_written(row));
    Ok(Some(FoldStep { position, end: last, rows, provisional }))
}

/// Writes the next rows of a step, in one transaction. Returns true if rows are left.
async fn write_rows(pool: &SqlPool, step: &mut FoldStep, max_rows: usize) -> sqlx::Result<bool> {
    // In PostgreSQL no other write waits for this transaction, and an outcome may be replaced meanwhile.
    let (mut rows, position) = step.next_rows(if pool.is_postgres() { usize::MAX } else { max_rows });
    let is_moved = transact!(pool.begin_change(), |transaction| {
        let moved =
            sql(MOVE_POSITION).bind(position.folded_seq).bind(position.step_end).bind(to_json(&position.last_row)?);
        let before = &step.position;
        let moved = moved.bind(before.folded_seq).bind(before.step_end).bind(to_json(&before.last_row)?);
        if moved.execute(&mut *transaction).await? == 0 {
            // Another process has counted them.
            return Ok(rollback(false));
        }
        // From here on, an outcome that replaces a provisional one waits for this transaction.
        records_of(transaction, &step.provisional).await?.iter().for_each(|record| rows.add_record(record));
        // An import may have found a step that SQLite had begun, with these records in its rows.
        rows.0.retain(|row, _| !before.has_written(row));
        add_rows(transaction, &rows, 1).await?;
        true
    })?;
    step.position = position;
    Ok(is_moved && !step.rows.0.is_empty())
}

/// Reads these records.
async fn records_of(connection: &mut SqlConnection, numbers: &[i64]) -> sqlx::Result<Vec<CountedRecord>> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let mut query = StatementBuilder::new("SELECT ");
    query.push(RECORD_COLUMNS).push(" FROM records WHERE seq IN ").push_list(numbers);
    query.build().fetch_all(connection).await?.iter().map(record_from_row).collect()
}

/// Takes back the counts of provisional outcomes that were replaced after they were counted, and counts the records anew.
/// Returns their number.
async fn count_replaced(pool: &SqlPool) -> sqlx::Result<u32> {
    transact!(pool.begin_change(), |transaction| {
        let taken = sql(
            "DELETE FROM provisional_records WHERE seq IN (SELECT seq FROM provisional_records ORDER BY seq LIMIT $1) \
             RETURNING seq, account, cost_nano_usd",
        );
        let taken = taken.bind(REPLACED_MAX).fetch_all(&mut *transaction).await?;
        let before: HashMap<i64, _> =
            taken.iter().map(|row| Ok((row.try_get("seq")?, row))).collect::<sqlx::Result<_>>()?;
        let numbers: Vec<i64> = before.keys().copied().collect();
        let (mut old, mut new) = (FoldedRows::default(), FoldedRows::default());
        for record in records_of(transaction, &numbers).await? {
            let Some(row) = before.get(&record.seq) else { continue };
            let cost: Option<i64> = row.try_get("cost_nano_usd")?;
            let account: Option<String> = row.try_get("account")?;
            old.add_record(&record.as_provisional(account.unwrap_or_default(), cost.map(i64::unsigned_abs)));
            new.add_record(&record);
        }
        add_rows(transaction, &old, -1).await?;
        add_rows(transaction, &new, 1).await?;
        u32::try_from(taken.len()).unwrap_or(u32::MAX)
    })
}

/// Adds rows to the counts, or with the sign -1, takes them back.
async fn add_rows(connection: &mut SqlConnection, rows: &FoldedRows, sign: i64) -> sqlx::Result<()> {
    if rows.0.is_empty() {
        return Ok(());
    }
    let scopes: BTreeSet<_> = rows.0.keys().map(|key| &key.scope).collect();
    sql(ADD_SCOPES).bind(to_json(&scopes)?).execute(&mut *connection).await?;
    if connection.is_postgres() {
        sql(ADD_ROWS.as_str()).bind(to_json_rows(rows, sign)?).execute(&mut *connection).await?;
        return Ok(());
    }
    let all: Vec<_> = rows.0.iter().collect();
    let mut rest = all.as_slice();
    for (size, statement) in ADD_VALUES.iter() {
        let batches = rest.chunks_exact(*size);
        rest = batches.remainder();
        for batch in batches {
            let query =
                batch.iter().fold(sql(statement.as_str()), |query, (key, details)| bind_row(query, key, details, sign));
            query.execute(&mut *connection).await?;
        }
    }
    Ok(())
}

fn bind_row(mut query: SqlStatement, key: &DetailRowKey, details: &UsageDetails, sign: i64) -> SqlStatement {
    for text in key.texts() {
        query = query.bind(text);
    }
    for count in details.counts() {
        query = query.bind(count.cast_signed() * sign);
    }
    for count in details.durations.0 {
        query = query.bind((count > 0).then_some(count.cast_signed() * sign));
    }
    query
}

/// Returns the rows as the value of a statement: a JSON list of lists. The statement is the same for any number of rows.
fn to_json_rows(rows: &FoldedRows, sign: i64) -> sqlx::Result<String> {
    let row = |(key, details): (&DetailRowKey, &UsageDetails)| {
        let mut cells: Vec<Value> = key.texts().map(Value::from).to_vec();
        cells.extend(details.counts().map(|count| Value::from(count.cast_signed() * sign)));
        let durations = details.durations.0.iter();
        cells.extend(
            durations.map(|count| if *count == 0 { Value::Null } else { Value::from(count.cast_signed() * sign) }),
        );
        cells
    };
    to_json(&rows.0.iter().map(row).collect::<Vec<Vec<Value>>>())
}

fn to_json(list: &impl Serialize) -> sqlx::Result<String> {
    serde_json::to_string(list).map_err(|error| sqlx::Error::Encode(error.into()))
}
