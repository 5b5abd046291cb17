//! Opens the store at a path.
//!
//! The order matters if a process dies in the middle: first the database, then the master key, then the marker. So a
//! key or a marker without the database, or keys in the database without the master key, always mean a loss and never a
//! new installation.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{ConnectOptions, SqlitePool};

use super::SqliteDatabase;
use super::batch_writer::BatchWriter;
use super::migrations::{MIGRATIONS, newest_version};
use crate::gateway::store::data_dir::{DataDir, open_private, run_blocking};
use crate::gateway::store::sql::data_key_unlock::load_or_create_data_keys;
use crate::gateway::store::sql::driver::SqlPool;
use crate::gateway::store::sql::error_conversion::{during, during_migration};
use crate::gateway::store::sql::{SqlDatabase, SqlStore};
use crate::gateway::store::{MasterKey, NodeId, ServingStatus, StoreError};

/// "imgt", as the first migration writes it.
pub(super) const APPLICATION_ID: i64 = 1_768_777_588;

/// The time that a write waits for another process (our choice). It is longer than any command of imagate takes.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that a write waits for the writing connection. It is longer than [`BUSY_TIMEOUT`], so that a write succeeds
/// even if the write before it waits that long for the lock.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(6);

/// The number of reading connections (our choice). Reads are short and mostly in memory, so more connections would only
/// wait for a core.
const READER_CONNECTIONS: u32 = 4;

/// The largest write-ahead log that stays on disk after a checkpoint, in bytes (our choice).
const LOG_SIZE_LIMIT: &str = "16777216";

/// The settings of every connection. On macOS, `fsync` does not flush the cache of the disk; `fullfsync` and
/// `checkpoint_fullfsync` do. They have no effect on other systems.
pub(super) const PRAGMAS: [(&str, &str); 7] = [
    ("journal_mode", "WAL"),
    ("synchronous", "FULL"),
    ("foreign_keys", "ON"),
    ("journal_size_limit", LOG_SIZE_LIMIT),
    ("trusted_schema", "OFF"),
    ("fullfsync", "ON"),
    ("checkpoint_fullfsync", "ON"),
];

pub(in super::super) async fn open(path: &Path, configured_key: Option<MasterKey>) -> Result<SqlStore, StoreError> {
    let path = path.to_owned();
    let (data_dir, lock) = run_blocking(move || {
        let data_dir = DataDir::create_or_open(&path)?;
        let lock = data_dir.lock_for_opening()?;
        check_not_lost(&data_dir)?;
        open_private(&data_dir.database_path()).map_err(StoreError::io("opening imagate.db"))?;
        Ok((data_dir, lock))
    })
    .await?;
    open_locked(data_dir, lock, configured_key).await
}

async fn open_locked(data_dir: DataDir, lock: File, configured_key: Option<MasterKey>) -> Result<SqlStore, StoreError> {
    let options = connect_options(&data_dir);
    let writer = pool(1).connect_with(options.clone()).await.map_err(during("opening the database"))?;
    check_own_database(&writer).await?;
    check_not_served_by_older_version(&writer, &data_dir).await?;
    MIGRATIONS.run(&writer).await.map_err(during_migration(newest_version()))?;
    let (keys, configured_key) =
        load_or_create_data_keys(&SqlPool::Sqlite(writer.clone()), &data_dir, configured_key).await?;
    let (vault, pepper) = keys.into_parts()?;
    let marked_dir = data_dir.clone();
    run_blocking(move || {
        marked_dir.write_marker();
        // The marker exists before the next process can open the database.
        drop(lock);
        Ok(())
    })
    .await?;
    let readers = pool(READER_CONNECTIONS).connect_lazy_with(options.pragma("query_only", "ON"));
    let batch_writer = Arc::new(BatchWriter::new(data_dir.database_path()));
    Ok(SqlStore {
        writer: SqlPool::Sqlite(writer.clone()),
        readers: SqlPool::Sqlite(readers),
        database: SqlDatabase::Sqlite(SqliteDatabase { writer, batch_writer }),
        data_dir,
        configured_key,
        vault,
        pepper,
        node: NodeId::only(),
    })
}

/// Returns an error if the database must be migrated while a gateway serves from the directory. That gateway is of an
/// older version, and its statements need not fit the new schema.
async fn check_not_served_by_older_version(writer: &SqlitePool, data_dir: &DataDir) -> Result<(), StoreError> {
    let reading = || during("reading the schema");
    let has_versions = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = '_sqlx_migrations')";
    let has_versions: bool = sqlx::query_scalar(has_versions).fetch_one(writer).await.map_err(reading())?;
    let mut found = 0;
    if has_versions {
        let version = sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations");
        found = version.fetch_one(writer).await.map_err(reading())?;
    }
    if found >= newest_version() {
        return Ok(());
    }
    let data_dir = data_dir.path().to_owned();
    run_blocking(move || {
        let is_served = ServingStatus::is_served(&data_dir).map_err(StoreError::io("reading the lock for serving"))?;
        if is_served { Err(StoreError::OlderGateway { data_dir }) } else { Ok(()) }
    })
    .await
}

/// Returns an error if the directory was in use but has lost its database. It must not become a new installation: every
/// key would be invalid, and the first visitor could use the first-run page.
pub(super) fn check_not_lost(data_dir: &DataDir) -> Result<(), StoreError> {
    let size = match std::fs::metadata(data_dir.database_path()) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(StoreError::io("looking for imagate.db")(error)),
    };
    let traces = if size == 0 { data_dir.files_of_lost_database() } else { Vec::new() };
    if traces.is_empty() {
        return Ok(());
    }
    Err(StoreError::damaged(format!(
        "{} is missing or empty, but these files show that it was in use: {}; restore the database from a backup, or move these files away to start with an empty database, without the former keys",
        data_dir.database_path().display(),
        traces.join(", "),
    )))
}

async fn check_own_database(writer: &SqlitePool) -> Result<(), StoreError> {
    let (application, tables): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT application_id FROM pragma_application_id), \
                (SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND name <> '_sqlx_migrations')",
    )
    .fetch_one(writer)
    .await
    .map_err(during("reading the schema"))?;
    if tables > 0 && application != APPLICATION_ID {
        let detail = format!("imagate.db has tables and the application id {application}");
        return Err(StoreError::ForeignDatabase { detail });
    }
    Ok(())
}

fn connect_options(data_dir: &DataDir) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new()
        .filename(data_dir.database_path())
        // The file exists by now, with the right permissions.
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    PRAGMAS.into_iter().fold(options, |options, (name, value)| options.pragma(name, value))
}

/// Returns the options of a pool. A connection is a thread with a local file, so it needs no test before use and no
/// renewal.
pub(super) fn pool(size: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(size)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_migration_writes_the_application_id() {
        let first = MIGRATIONS.iter().next().unwrap();
        assert!(first.sql.as_str().contains(&format!("PRAGMA application_id = {APPLICATION_ID};")));
    }
}
