//! The store, and the statements that SQLite and PostgreSQL share.
//!
//! A statement has one text for both databases wherever possible: the schema of PostgreSQL has functions of SQLite. Where
//! the databases differ, a [`statement::SqlText`] has both texts side by side. So every statement is tested against both
//! databases, and cannot be changed for one of them only.
//!
//! The writes of records and claims are not here: a local file and a server on the network need different ones.

mod accounts;
mod alerts;
mod audit_trail;
pub(super) mod data_key_unlock;
pub(super) mod data_keys;
mod decode;
pub(super) mod driver;
pub(super) mod error_conversion;
mod installation;
pub(super) mod keys;
mod master_key_rotation;
mod paging;
pub(super) mod people;
mod prices;
pub(super) mod records;
pub(super) mod replays;
pub(super) mod retention;
mod single_query;
pub(super) mod statement;
mod tokens;
pub(super) mod transaction;
pub(super) mod usage;
pub(super) mod usage_details;
pub(super) mod usage_fold;
pub(super) mod values;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use super::data_dir::DataDir;
use super::postgres::{self, PostgresDatabase};
use super::sqlite::{self, SqliteDatabase};
use super::{
    DatabaseFile, DatabaseUrl, MasterKey, NodeId, PepperKey, RecordStore, RetentionClass, RowWrite, RowWriteOutcome,
    StoreError, Timestamp, Vault,
};
use driver::SqlPool;
use error_conversion::during;

/// An open database, and the data directory of this node.
#[derive(Debug)]
pub(crate) struct SqlStore {
    /// The connections for changes. In SQLite there is one, so that they are made one after the other.
    pub(super) writer: SqlPool,
    pub(super) readers: SqlPool,
    pub(super) database: SqlDatabase,
    pub(super) data_dir: DataDir,
    /// The master key of the configuration; `None` if the key is in master.key.
    pub(super) configured_key: Option<MasterKey>,
    pub(super) vault: Vault,
    pub(super) pepper: PepperKey,
    pub(super) node: NodeId,
}

/// The part of a store that each database has in its own way.
#[derive(Debug)]
pub(super) enum SqlDatabase {
    Sqlite(SqliteDatabase),
    Postgres(Box<PostgresDatabase>),
}

impl SqlStore {
    /// Opens a data directory with a SQLite database. Creates the files that a new directory needs, and migrates an older
    /// database. A server and commands may have it open at the same time.
    ///
    /// # Errors
    /// Returns [`StoreError::Damaged`] if one of its files is missing or broken: old data is never
    /// replaced with a new file.
    pub(crate) async fn open_sqlite(data_dir: &Path, master_key: Option<MasterKey>) -> Result<Self, StoreError> {
        Box::pin(sqlite::open(data_dir, master_key)).await
    }

    /// Opens a data directory for reading only. Nothing in it is changed, not even by a migration, and every write fails.
    ///
    /// The database must have the newest schema, and `file` must be its database, which stays open as long as the
    /// store.
    ///
    /// # Errors
    /// Returns [`StoreError::Damaged`] if the master key does not fit.
    pub(crate) async fn open_read_only(
        data_dir: &Path,
        master_key: Option<MasterKey>,
        _file: &DatabaseFile,
    ) -> Result<Self, StoreError> {
        sqlite::open_read_only(data_dir, master_key).await
    }

    /// Opens a PostgreSQL database, and the data directory of this node. Creates the tables of a new database, and migrates
    /// an older one. Nodes that open it at the same time take turns.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the server cannot be reached, and [`StoreError::Damaged`] if the master
    /// key is missing or is not the one of this database.
    pub(crate) async fn open_postgres(
        data_dir: &Path,
        url: &DatabaseUrl,
        master_key: Option<MasterKey>,
    ) -> Result<Self, StoreError> {
        Box::pin(postgres::open(data_dir, url, master_key)).await
    }

    /// Writes records and claims without waiting for the disk: they survive the end of the process, but perhaps not a
    /// power failure. All other changes still wait.
    pub(crate) fn without_commit_sync(self) -> Self {
        let database = match self.database {
            SqlDatabase::Sqlite(database) => SqlDatabase::Sqlite(database.without_commit_sync()),
            SqlDatabase::Postgres(database) => SqlDatabase::Postgres(Box::new(database.without_commit_sync())),
        };
        Self { database, ..self }
    }

    /// Moves all records into the tables that are read. Must be called before records or their counts are read.
    pub(super) async fn move_all_records(&self) -> Result<(), StoreError> {
        match &self.database {
            SqlDatabase::Sqlite(database) => database.move_all().await,
            SqlDatabase::Postgres(_) => Ok(()),
        }
    }

    /// Returns the connections for showing records and their counts, after all records were moved. If they cannot be
    /// moved, for example because the disk is full, the newest ones are missing: nothing may be decided by them.
    pub(super) async fn display_readers(&self) -> &SqlPool {
        if let Err(error) = self.move_all_records().await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "the newest records cannot be read yet");
        }
        &self.readers
    }

    /// Returns what all nodes share; `None` if the database is a file, which no other node can use.
    pub(super) fn as_shared(&self) -> Option<&PostgresDatabase> {
        match &self.database {
            SqlDatabase::Sqlite(_) => None,
            SqlDatabase::Postgres(database) => Some(database),
        }
    }
}

#[cfg(test)]
impl SqlStore {
    /// Runs statements in PostgreSQL, in whose effects a test is interested.
    pub(crate) async fn execute(&self, statements: &'static str) {
        sqlx::raw_sql(statements).execute(self.writer.postgres()).await.unwrap();
    }

    /// Returns the number that a statement in PostgreSQL counts.
    pub(crate) async fn count(&self, statement: &'static str) -> i64 {
        sqlx::query_scalar(statement).fetch_one(self.writer.postgres()).await.unwrap()
    }
}

#[async_trait]
impl RecordStore for SqlStore {
    async fn write_rows(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<RowWriteOutcome>, StoreError> {
        match &self.database {
            SqlDatabase::Sqlite(database) => database.write_rows(node, writes).await,
            SqlDatabase::Postgres(database) => Box::pin(database.batch_writer.write(node, writes)).await,
        }
    }

    async fn move_closed_records(&self, duration: Duration) -> Result<usize, StoreError> {
        match &self.database {
            SqlDatabase::Sqlite(database) => database.move_closed(duration),
            SqlDatabase::Postgres(_) => Ok(0),
        }
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        match &self.database {
            SqlDatabase::Sqlite(database) => database.check_writable().await,
            SqlDatabase::Postgres(database) => Box::pin(database.batch_writer.check_writable(&self.node)).await,
        }
    }

    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError> {
        match &self.database {
            SqlDatabase::Sqlite(database) => database.interrupt_running(node).await,
            SqlDatabase::Postgres(database) => database.interrupt_running(node).await,
        }
    }

    async fn remove_expired_rows(
        &self,
        class: RetentionClass,
        before: Timestamp,
        limit: u32,
    ) -> Result<u64, StoreError> {
        retention::remove_expired(&self.writer, class, before, limit).await.map_err(during("removing old rows"))
    }
}
