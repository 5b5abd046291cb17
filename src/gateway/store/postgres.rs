//! PostgreSQL, for an installation whose nodes share one database.
//!
//! One connection writes the records and claims, in batches; a pool makes all other changes and reads. Each node keeps a
//! data directory of its own, with its id, the lock for serving, stored answers, and the master key if the settings do
//! not give it.

mod attempts;
mod batch_writer;
mod connection;
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

#[cfg(test)]
mod tests;

use sqlx::{PgPool, Postgres};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::sql::driver::PooledConnection;
use super::{NodeId, StoreError, Timestamp};
use batch_writer::BatchWriter;
pub(crate) use connection::DatabaseUrl;
use error_conversion::during;
pub(super) use error_conversion::{convert_error, server_unreachable};
pub(crate) use import::{ImportReport, import as import_from_sqlite};
pub(super) use open::open;

/// The PostgreSQL database that nodes share: its connections, and the writes of records and claims.
#[derive(Debug)]
pub(super) struct PostgresDatabase {
    pool: PgPool,
    pub(super) batch_writer: BatchWriter,
    /// Bounds the connections of the pool that wait for the lock of a busy subject, so that the rest of the gateway keeps
    /// the others.
    reservation_permits: Semaphore,
    /// Bounds the connections of the pool that read, write and remove the bytes of answers.
    answer_permits: Semaphore,
    node: NodeId,
}

impl PostgresDatabase {
    pub(super) fn without_commit_sync(self) -> Self {
        Self { batch_writer: self.batch_writer.without_commit_sync(), ..self }
    }

    pub(super) async fn remove_expired_shared_answers(&self, now: Timestamp) -> Result<(), StoreError> {
        shared_answers::remove_expired(self, now).await
    }

    async fn answer_permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        // The semaphore is never closed, so the error cannot occur.
        self.answer_permits.acquire().await.map_err(|_| during("waiting for a connection")(sqlx::Error::PoolClosed))
    }

    pub(super) async fn write_heartbeat(&self) -> Result<(), StoreError> {
        nodes::write_heartbeat(&self.pool, &self.node).await.map_err(during("writing the heartbeat of the node"))?;
        reservations::remove_past(&self.pool).await.map_err(during("removing past reservations"))
    }

    pub(super) async fn interrupt_dead_nodes(&self) -> Result<u64, StoreError> {
        nodes::interrupt_dead_nodes(&self.pool).await.map_err(during("closing records of dead nodes"))
    }

    pub(super) async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError> {
        nodes::interrupt_running(&self.pool, node).await.map_err(during("closing records of an earlier run"))
    }

    /// Begins a transaction that takes no turn with other changes.
    async fn begin(&self) -> sqlx::Result<PooledConnection<Postgres>> {
        let mut connection = PooledConnection::acquire(&self.pool).await?;
        connection.begin("BEGIN").await?;
        Ok(connection)
    }
}
