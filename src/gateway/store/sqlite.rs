//! The store that needs no other service: one SQLite file in write-ahead mode.
//!
//! One connection writes the records and claims, in batches; another one makes all other changes, one after the other;
//! a few connections read. Every commit waits for the disk: a record that was reported durable survives a power failure.

mod batch_writer;
mod database_file;
mod dialect;
mod error_conversion;
pub(super) mod migrations;
mod open;
mod read_only;
mod record_writes;
mod replay_writes;
#[path = "sql/mod.rs"]
mod sql;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::{Sqlite, SqlitePool};

use super::data_dir::DataDir;
use super::{
    MasterKey, NodeId, PepperKey, PostgresStore, RecordStore, RetentionClass, RowWrite, RowWriteOutcome, StoreError,
    Timestamp, Vault,
};
use batch_writer::BatchWriter;
pub(crate) use database_file::{DatabaseFile, newest_schema_version};
use error_conversion::during;

/// An open data directory.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    writer: SqlitePool,
    batch_writer: Arc<BatchWriter>,
    readers: SqlitePool,
    data_dir: DataDir,
    /// The master key of the configuration; `None` if the key is in master.key.
    configured_key: Option<MasterKey>,
    vault: Vault,
    pepper: PepperKey,
    node: NodeId,
}

impl SqliteStore {
    /// Opens a data directory. Creates the files that a new directory needs, and migrates an older database. A server
    /// and commands may have it open at the same time.
    ///
    /// # Errors
    /// Returns [`StoreError::Damaged`] if one of its files is missing or broken: old data is never
    /// replaced with a new file.
    pub(crate) async fn open(data_dir: &Path, master_key: Option<MasterKey>) -> Result<Self, StoreError> {
        open::open(data_dir, master_key).await
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
        read_only::open(data_dir, master_key).await
    }

    /// Writes records and claims without waiting for the disk: they survive the end of the process, but perhaps not a
    /// power failure. All other changes still wait.
    pub(crate) fn without_commit_sync(self) -> Self {
        let batch_writer = BatchWriter::new(self.data_dir.database_path()).without_commit_sync();
        Self { batch_writer: Arc::new(batch_writer), ..self }
    }

    /// Returns `None`: no other node can share the file.
    #[expect(clippy::unused_self, reason = "the same signature for each database")]
    const fn as_shared(&self) -> Option<&PostgresStore> {
        None
    }

    /// Closes every connection. The last process to do so merges the write-ahead log into the database file.
    async fn close_connections(&self) {
        self.readers.close().await;
        let batch_writer = Arc::clone(&self.batch_writer);
        // On a blocking thread, because it waits for a commit that is running. A panic there has closed nothing, and the
        // end of the process closes the file.
        let _ = tokio::task::spawn_blocking(move || batch_writer.close()).await;
        self.writer.close().await;
    }

    /// Waits for the other changes of this process that wait for the database. They come first, because SQLite does not
    /// let its connections take turns.
    async fn batch_turn(&self) -> Result<Option<PoolConnection<Sqlite>>, StoreError> {
        match self.writer.num_idle() {
            0 => self.writer.acquire().await.map(Some).map_err(during("waiting for the database")),
            _ => Ok(None),
        }
    }
}

#[async_trait]
impl RecordStore for SqliteStore {
    async fn write_rows(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<RowWriteOutcome>, StoreError> {
        let _turn = self.batch_turn().await?;
        self.batch_writer.write(node, writes)
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        let _turn = self.batch_turn().await?;
        self.batch_writer.check_writable()
    }

    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError> {
        sql::records::interrupt_running(&self.writer, node).await.map_err(during("closing records of an earlier run"))
    }

    async fn remove_expired_rows(
        &self,
        class: RetentionClass,
        before: Timestamp,
        limit: u32,
    ) -> Result<u64, StoreError> {
        sql::retention::remove_expired(&self.writer, class, before, limit).await.map_err(during("removing old rows"))
    }
}
