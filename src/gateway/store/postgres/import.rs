//! Moves an installation with SQLite into PostgreSQL.
//!
//! The rows are copied in one transaction, with the values and the order that they have. It can be run again: rows that
//! are already there stay as they are, and the counts and sums are compared each time. If both databases were used
//! since the last import, a new row of one has the number of another row of the other; then nothing is copied. The
//! source is not changed, except that an older one is migrated first.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::connection::DatabaseUrl;
use super::error_conversion::during;
use super::migrations::{MIGRATIONS, newest_version};
use super::open::{check_own_database, lock_for_opening};
use super::record_rows::replace_null_characters;
use crate::gateway::store::installation::LISTED_TABLES;
use crate::gateway::store::sql::error_conversion::during_migration;
use crate::gateway::store::{InstallationStore as _, MasterKey, NodeId, SqlStore, StoreError};

/// The tables, in an order in which each row comes after the rows that it refers to, and the columns that identify a
/// row in both databases. The rows of `write_check`, `key_revision` and `audit_removal` belong to a database and not to
/// an installation.
const TABLES: [(&str, &str); 24] = [
    ("data_keys", "purpose"),
    ("users", "id"),
    ("groups", "id"),
    ("user_groups", "user_id, group_id"),
    ("keys", "id"),
    ("accounts", "id"),
    ("tokens", "account"),
    ("links", "hash"),
    ("milestones", "name"),
    ("sessions", "id"),
    ("known_addresses", "user_id, address"),
    ("second_factors", "user_id"),
    ("recovery_codes", "user_id, hash"),
    ("identities", "user_id"),
    ("admin_tokens", "id"),
    ("prices", "model, valid_from"),
    ("usage_days", "key_id, day, user_id, group_name"),
    ("end_user_days", "end_user, day, key_id, user_id, group_name"),
    (AUDIT, "seq"),
    ("records", "request_id"),
    ("replays", "scope"),
    ("account_bindings", "digest, owner"),
    ("alerts", "id"),
    ("alert_deliveries", "alert_id, channel"),
];

/// The table whose rows have no other identity than their number.
const AUDIT: &str = "audit";

/// The tables of detailed counts. They are copied only into an empty database: afterwards, the database counts the
/// records that a later import adds.
const DETAIL_TABLES: [(&str, &str); 3] =
    [("usage_scopes", "id"), ("usage_details", "scope, dimension, day, value"), ("usage_fold", "\"only\"")];

/// The tables whose rows have a number by their order, and the name of that number.
const NUMBERED: [(&str, &str); 7] = [
    ("users", "rowid"),
    ("keys", "rowid"),
    ("sessions", "rowid"),
    ("admin_tokens", "rowid"),
    ("audit", "seq"),
    ("records", "seq"),
    ("usage_scopes", "id"),
];

/// The sums that are compared, besides the number of rows of each table.
const SUMS: [(&str, &str); 3] = [
    ("requests", "SELECT coalesce(sum(requests), 0) FROM usage_days"),
    ("tokens", "SELECT coalesce(sum(total_tokens), 0) FROM usage_days"),
    ("cost_nano_usd", "SELECT coalesce(sum(cost_nano_usd), 0) FROM usage_days"),
];

/// The number of rows of one statement (our choice): a few hundred kilobytes.
const BATCH_ROWS: usize = 500;

const READING: &str = "reading the SQLite database";
const WRITING: &str = "writing to the PostgreSQL database";

/// The result of an import: the number of rows of each table, and the sums.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ImportReport {
    /// The number of rows of each table.
    pub(crate) rows: BTreeMap<&'static str, i64>,
    /// The number of rows of each table that lists show.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// The sums over all days of usage.
    pub(crate) sums: BTreeMap<&'static str, i64>,
}

/// Copies the installation in `data_dir` to a database that is empty, or that an earlier import of the same
/// installation has filled.
///
/// # Errors
/// Returns [`StoreError::InUse`] if a gateway serves from the directory, [`StoreError::Conflict`] if the database has
/// another installation, [`StoreError::Diverged`] if both databases were used since the last import, and
/// [`StoreError::Damaged`] if the counts or sums differ afterwards. Then nothing was written.
pub(crate) async fn import(
    data_dir: &Path,
    master_key: Option<MasterKey>,
    url: &DatabaseUrl,
) -> Result<ImportReport, StoreError> {
    let source_store = SqlStore::open_sqlite(data_dir, master_key).await?;
    // No record is written meanwhile.
    let lock = source_store.lock_for_serving()?;
    source_store.move_all_records().await?;
    source_store.close().await;
    let source = Connection::open_with_flags(data_dir.join("imagate.db"), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let source = source.map_err(read_error)?;
    let mut target = url.connect_for_migration().await.map_err(during("connecting to the database"))?;
    lock_for_opening(&mut target).await.map_err(during("waiting for other nodes that open the database"))?;
    check_own_database(&mut target).await?;
    MIGRATIONS.run_direct(None, &mut target, false).await.map_err(during_migration(newest_version()))?;
    let report = copy_all(&source, &mut target).await?;
    target.close().await.map_err(during(WRITING))?;
    drop(lock);
    Ok(report)
}

async fn copy_all(source: &Connection, target: &mut PgConnection) -> Result<ImportReport, StoreError> {
    let mut transaction = target.begin().await.map_err(during(WRITING))?;
    let is_empty = prepare_target(source, &mut transaction).await?;
    for (table, identity) in TABLES.into_iter().chain(DETAIL_TABLES.into_iter().filter(|_| is_empty)) {
        copy_table(source, &mut transaction, table, identity).await?;
    }
    finish_target(&mut transaction).await.map_err(during(WRITING))?;
    let report = compare(source, &mut transaction).await?;
    // A job that was running belongs to no node any more. It is closed after the comparison, because this adds to the
    // usage.
    super::nodes::interrupt_records(&mut transaction, &NodeId::only()).await.map_err(during(WRITING))?;
    transaction.commit().await.map_err(during(WRITING))?;
    Ok(report)
}

/// Refuses a target with another installation, and removes the rows that a migration has made in an empty one. Returns
/// true if it was empty.
async fn prepare_target(source: &Connection, target: &mut PgConnection) -> Result<bool, StoreError> {
    let of_source: Option<Vec<u8>> = {
        let mut query = source.prepare("SELECT wrapped FROM data_keys WHERE purpose = 'pepper'").map_err(read_error)?;
        let mut rows = query.query([]).map_err(read_error)?;
        rows.next().map_err(read_error)?.map(|row| row.get(0)).transpose().map_err(read_error)?
    };
    let query = sqlx::query_scalar("SELECT wrapped FROM data_keys WHERE purpose = 'pepper'");
    let of_target: Option<Vec<u8>> = query.fetch_optional(&mut *target).await.map_err(during(WRITING))?;
    if of_source.is_none() {
        return Err(StoreError::damaged("imagate.db has no data keys: there is nothing to move"));
    }
    match of_target {
        Some(of_target) if Some(&of_target) != of_source.as_ref() => Err(StoreError::Conflict),
        Some(_) => Ok(false),
        None => {
            for table in ["groups", "users", "usage_scopes", "usage_fold"] {
                let statement = AssertSqlSafe(format!("DELETE FROM {table}"));
                sqlx::query(statement).execute(&mut *target).await.map_err(during(WRITING))?;
            }
            Ok(true)
        }
    }
}

async fn copy_table(
    source: &Connection,
    target: &mut PgConnection,
    table: &'static str,
    identity: &'static str,
) -> Result<(), StoreError> {
    let columns = columns_of(target, table).await.map_err(during(WRITING))?;
    let list = columns.join(", ");
    let quoted: Vec<_> = columns.iter().map(|column| format!("\"{column}\"")).collect();
    let order = if columns.iter().any(|column| column == "seq") { "seq" } else { "1" };
    let mut query = source.prepare(&format!("SELECT {list} FROM {table} ORDER BY {order}")).map_err(read_error)?;
    let insert = format!(
        "INSERT INTO {table} ({0}) OVERRIDING SYSTEM VALUE SELECT {0} \
         FROM json_populate_recordset(NULL::{table}, CAST($1 AS JSON)) ON CONFLICT ({identity}) DO NOTHING",
        quoted.join(", ")
    );
    let mut rows = query.query([]).map_err(read_error)?;
    let mut batch = Vec::new();
    loop {
        let row = rows.next().map_err(read_error)?;
        let is_last = row.is_none();
        if let Some(row) = row {
            batch.push(to_json(row, &columns).map_err(read_error)?);
        }
        if batch.len() == BATCH_ROWS || (is_last && !batch.is_empty()) {
            let json = replace_null_characters(Value::Array(std::mem::take(&mut batch)).to_string());
            insert_rows(target, table, &insert, &json).await?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Inserts the rows that are not there yet.
async fn insert_rows(
    target: &mut PgConnection,
    table: &'static str,
    insert: &str,
    json: &str,
) -> Result<(), StoreError> {
    let diverged = || StoreError::Diverged { table };
    let inserted = sqlx::query(AssertSqlSafe(insert.to_owned())).bind(json).execute(&mut *target).await;
    inserted
        .map_err(during(WRITING))
        .map_err(|error| if matches!(error, StoreError::Conflict) { diverged() } else { error })?;
    if table == AUDIT {
        let query = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM json_populate_recordset(NULL::audit, CAST($1 AS JSON)) AS source \
             JOIN audit AS target USING (seq) WHERE source IS DISTINCT FROM target)",
        );
        let differs: bool = query.bind(json).fetch_one(&mut *target).await.map_err(during(WRITING))?;
        if differs {
            return Err(diverged());
        }
    }
    Ok(())
}

/// Returns the columns of a table of the target, without those that the database computes. The source has all of them.
async fn columns_of(target: &mut PgConnection, table: &str) -> sqlx::Result<Vec<String>> {
    let query = sqlx::query_scalar(
        "SELECT CAST(column_name AS TEXT) FROM information_schema.columns \
         WHERE table_schema = current_schema() AND table_name = $1 AND is_generated = 'NEVER' ORDER BY ordinal_position",
    );
    query.bind(table).fetch_all(target).await
}

fn to_json(row: &rusqlite::Row<'_>, columns: &[String]) -> rusqlite::Result<Value> {
    let mut object = Map::new();
    for (position, column) in columns.iter().enumerate() {
        let value = match row.get_ref(position)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => number.into(),
            ValueRef::Real(number) => number.into(),
            ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
            // The text form of bytes in PostgreSQL.
            ValueRef::Blob(bytes) => format!("\\x{}", hex::encode(bytes)).into(),
        };
        object.insert(column.clone(), value);
    }
    Ok(Value::Object(object))
}

/// Continues the numbers of rows and of revisions after those that were copied.
async fn finish_target(target: &mut PgConnection) -> sqlx::Result<()> {
    for (table, column) in NUMBERED {
        let statement = format!(
            "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), (SELECT coalesce(max({column}), 0) + 1 \
             FROM {table}), FALSE)"
        );
        sqlx::query(AssertSqlSafe(statement)).execute(&mut *target).await?;
    }
    Ok(())
}

/// Compares the number of rows of each table, and the sums.
async fn compare(source: &Connection, target: &mut PgConnection) -> Result<ImportReport, StoreError> {
    let mut report = ImportReport::default();
    let counts = TABLES.map(|(table, _)| (table, format!("SELECT count(*) FROM {table}"), false));
    let sums = SUMS.map(|(name, statement)| (name, statement.to_owned(), true));
    for (name, statement, is_sum) in counts.into_iter().chain(sums) {
        let before: i64 = source.query_row(&statement, [], |row| row.get(0)).map_err(read_error)?;
        let after = sqlx::query_scalar(AssertSqlSafe(format!("SELECT CAST(({statement}) AS BIGINT)")));
        let after: i64 = after.fetch_one(&mut *target).await.map_err(during(WRITING))?;
        // The database may have been used since an earlier import. Names that differ only in null characters are the
        // same in PostgreSQL, so it may have fewer rows of end users.
        if after < before && name != "end_user_days" {
            return Err(StoreError::damaged(format!("{name}: {before} in SQLite and {after} in PostgreSQL")));
        }
        if is_sum { &mut report.sums } else { &mut report.rows }.insert(name, before);
    }
    for (table, condition) in LISTED_TABLES {
        let statement = format!("SELECT count(*) FROM {table} WHERE {condition}");
        let count: i64 = source.query_row(&statement, [], |row| row.get(0)).map_err(read_error)?;
        report.counts.insert(table, count.unsigned_abs());
    }
    Ok(report)
}

fn read_error(error: rusqlite::Error) -> StoreError {
    StoreError::Unavailable { doing: READING, source: error.into() }
}
