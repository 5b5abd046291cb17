//! SQLite, for an installation that needs no other service: one file in write-ahead mode.
//!
//! One connection writes the records and claims, in batches; another one makes all other changes, one after the other;
//! a few connections read. Records are first in a journal, which is moved before they are
//! read. Every commit waits for the disk: a record that was reported durable survives a power failure.

mod batch_writer;
mod database_file;
mod error_conversion;
pub(super) mod migrations;
mod open;
mod read_only;
mod record_journal;
mod record_writes;
mod replay_writes;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Sqlite, SqlitePool};

use super::sql::driver::SqlPool;
use super::sql::error_conversion::during;
use super::sql::records;
use super::{NodeId, RowWrite, RowWriteOutcome, StoreError};
use batch_writer::BatchWriter;
pub(crate) use database_file::{DatabaseFile, newest_schema_version};
pub(super) use error_conversion::convert_error;
pub(super) use open::open;
pub(super) use read_only::open as open_read_only;

/// The writes of records and claims to a SQLite file.
#[derive(Debug)]
pub(super) struct SqliteDatabase {
    /// The connection for other changes.
    writer: SqlitePool,
    batch_writer: Arc<BatchWriter>,
}

impl SqliteDatabase {
    pub(super) fn without_commit_sync(self) -> Self {
        Self { batch_writer: Arc::new(self.batch_writer.without_commit_sync()), ..self }
    }

    pub(super) async fn write_rows(
        &self,
        node: &NodeId,
        writes: &[RowWrite<'_>],
    ) -> Result<Vec<RowWriteOutcome>, StoreError> {
        let _turn = self.batch_turn().await?;
        self.batch_writer.write(node, writes)
    }

    /// Moves the records of closed jobs out of the journal, for about this time. Returns the number of those that are left.
    /// Waits for nobody: if another write is under way, it fails with [`StoreError::Busy`].
    pub(super) fn move_closed(&self, duration: Duration) -> Result<usize, StoreError> {
        self.batch_writer.move_closed(duration)
    }

    /// Moves all records out of the journal.
    pub(super) async fn move_all(&self) -> Result<(), StoreError> {
        let batch_writer = Arc::clone(&self.batch_writer);
        let moved = tokio::task::spawn_blocking(move || batch_writer.move_all()).await;
        moved.unwrap_or_else(|error| Err(StoreError::Unavailable { doing: "moving records", source: error.into() }))
    }

    /// Closes the running records of a node, and returns their number.
    pub(super) async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError> {
        self.move_all().await?;
        let interrupted = records::interrupted_records(&SqlPool::Sqlite(self.writer.clone()), node).await;
        let interrupted = interrupted.map_err(during("closing records of an earlier run"))?;
        if !interrupted.is_empty() {
            let writes: Vec<_> = interrupted.iter().map(RowWrite::Close).collect();
            self.write_rows(node, &writes).await?;
            self.move_all().await?;
        }
        Ok(interrupted.len() as u64)
    }

    pub(super) async fn check_writable(&self) -> Result<(), StoreError> {
        let _turn = self.batch_turn().await?;
        self.batch_writer.check_writable()
    }

    pub(super) async fn close(&self) {
        let batch_writer = Arc::clone(&self.batch_writer);
        // On a blocking thread, because it waits for a commit that is running. A panic there has closed nothing, and the
        // end of the process closes the file.
        let _ = tokio::task::spawn_blocking(move || batch_writer.close()).await;
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
