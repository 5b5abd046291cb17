//! The store that several nodes share: a PostgreSQL database.
//!
//! One connection writes the records and claims, in batches; a pool makes all other changes and reads. Each node keeps a
//! data directory of its own, with its id, the lock for serving, stored answers, and the master key if the settings do
//! not give it.

mod attempts;
mod batch_writer;
mod connection;
mod dialect;
mod error_conversion;
mod import;
mod migrations;
mod nodes;
mod open;
mod record_rows;
mod replay_writes;
mod reservations;
mod shared_answers;
mod shared_slots;
#[expect(clippy::duplicate_mod, reason = "the statements are compiled once for each database")]
#[path = "sql/mod.rs"]
mod sql;

#[cfg(test)]
mod tests;

use std::path::Path;

use async_trait::async_trait;
use sqlx::PgPool;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::data_dir::DataDir;
use super::{
    MasterKey, NodeId, PepperKey, RecordStore, RetentionClass, RowWrite, RowWriteOutcome, StoreError, Timestamp, Vault,
};
use batch_writer::BatchWriter;
pub(crate) use connection::DatabaseUrl;
use error_conversion::during;
pub(crate) use import::{ImportReport, import as import_from_sqlite};

/// An open database, and the data directory of this node.
#[derive(Debug)]
pub(crate) struct PostgresStore {
    /// The connections for changes: the same pool as `readers`, under the name that the shared statements use.
    writer: PgPool,
    readers: PgPool,
    batch_writer: BatchWriter,
    /// Bounds the connections of the pool that wait for the lock of a busy subject, so that the rest of the gateway keeps
    /// the others.
    reservation_permits: Semaphore,
    /// Bounds the connections of the pool that read, write and remove the bytes of answers.
    answer_permits: Semaphore,
    data_dir: DataDir,
    /// The master key of the configuration; `None` if the key is in master.key.
    configured_key: Option<MasterKey>,
    vault: Vault,
    pepper: PepperKey,
    node: NodeId,
}

impl PostgresStore {
    /// Opens the database, and the data directory of this node. Creates the tables of a new database, and migrates an
    /// older one. Nodes that open it at the same time take turns.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the server cannot be reached, and [`StoreError::Damaged`] if the master
    /// key is missing or is not the one of this database.
    pub(crate) async fn open(
        data_dir: &Path,
        url: &DatabaseUrl,
        master_key: Option<MasterKey>,
    ) -> Result<Self, StoreError> {
        open::open(data_dir, url, master_key).await
    }

    /// Writes records and claims without waiting for the disk of the server: they survive the end of this process, but
    /// perhaps not a failure of the server. All other changes still wait.
    pub(crate) fn without_commit_sync(self) -> Self {
        Self { batch_writer: self.batch_writer.without_commit_sync(), ..self }
    }

    /// Returns the store of all nodes that share the database.
    #[expect(clippy::unnecessary_wraps, reason = "the same signature for each database")]
    const fn as_shared(&self) -> Option<&Self> {
        Some(self)
    }

    pub(super) async fn remove_expired_shared_answers(&self, now: Timestamp) -> Result<(), StoreError> {
        shared_answers::remove_expired(self, now).await
    }

    async fn answer_permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        // The semaphore is never closed, so the error cannot occur.
        self.answer_permits.acquire().await.map_err(|_| during("waiting for a connection")(sqlx::Error::PoolClosed))
    }

    pub(super) async fn write_heartbeat(&self) -> Result<(), StoreError> {
        nodes::write_heartbeat(&self.writer, &self.node).await.map_err(during("writing the heartbeat of the node"))?;
        reservations::remove_past(&self.writer).await.map_err(during("removing past reservations"))
    }

    pub(super) async fn interrupt_dead_nodes(&self) -> Result<u64, StoreError> {
        nodes::interrupt_dead_nodes(&self.writer).await.map_err(during("closing records of dead nodes"))
    }

    /// Runs statements, in whose effects a test is interested.
    #[cfg(test)]
    pub(crate) async fn execute(&self, statements: &'static str) {
        sqlx::raw_sql(statements).execute(&self.writer).await.unwrap();
    }

    /// Returns the number that a statement counts.
    #[cfg(test)]
    pub(crate) async fn count(&self, statement: &'static str) -> i64 {
        sqlx::query_scalar(statement).fetch_one(&self.writer).await.unwrap()
    }

    async fn close_connections(&self) {
        self.batch_writer.close().await;
        self.readers.close().await;
    }
}

#[async_trait]
impl RecordStore for PostgresStore {
    async fn write_rows(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<RowWriteOutcome>, StoreError> {
        self.batch_writer.write(node, writes).await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.batch_writer.check_writable(&self.node).await
    }

    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError> {
        nodes::interrupt_running(&self.writer, node).await.map_err(during("closing records of an earlier run"))
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
