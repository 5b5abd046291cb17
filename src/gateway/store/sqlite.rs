//! The store that needs nothing: one SQLite file in write-ahead mode.
//!
//! One connection writes, so that our own writers queue here instead of meeting as lock errors; a few read.
//! Every commit waits for the disk: a record that was reported durable survives a power cut.

mod accounts;
mod decode;
mod keys;
mod open;
mod people;
mod records;
mod trouble;

#[cfg(test)]
mod tests;

use std::path::Path;

use async_trait::async_trait;
use sqlx::SqlitePool;

use super::data_dir::DataDir;
use super::{
    AccountId, AccountRow, AccountSpec, GroupId, GroupRow, KeyChange, KeyId, KeyRow, MasterKey, NodeId, PublicId,
    Record, RecordFilter, RecordWrite, ServeLock, Store, StoreError, Timestamp, UserId, UserRow, Written,
};
use trouble::during;

/// A data directory, open.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
    data_dir: DataDir,
    master_key: MasterKey,
}

impl SqliteStore {
    /// Opens a data directory, and makes or migrates what is missing in it. A server and commands may have it open
    /// at once.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where one of its files is gone or broken: nothing is ever made anew over old data.
    pub(crate) async fn open(data_dir: &Path) -> Result<Self, StoreError> {
        open::open(data_dir).await
    }

    /// The right to serve from this directory, held until it is dropped.
    ///
    /// # Errors
    /// [`StoreError::InUse`] where another process serves from it.
    pub(crate) fn lock_for_serving(&self) -> Result<ServeLock, StoreError> {
        self.data_dir.lock_for_serving()
    }

    /// What the stored secrets of this directory are derived from.
    pub(crate) fn master_key(&self) -> &MasterKey {
        &self.master_key
    }

    /// Closes every connection, so that the last process folds the log into the database file.
    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn ensure_user(&self, name: &str) -> Result<UserRow, StoreError> {
        people::ensure_user(self, UserId::random()?, name).await.map_err(during("storing a user"))
    }

    async fn ensure_group(&self, name: &str) -> Result<GroupRow, StoreError> {
        people::ensure_group(self, GroupId::random()?, name).await.map_err(during("storing a group"))
    }

    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError> {
        accounts::sync(self, AccountId::random()?, account).await.map_err(during("storing an account"))
    }

    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError> {
        accounts::list(&self.readers).await.map_err(during("listing accounts"))
    }

    async fn insert_key(&self, key: &KeyRow) -> Result<(), StoreError> {
        keys::insert(&self.writer, key).await.map_err(during("storing a key"))
    }

    async fn find_key(&self, public_id: &PublicId) -> Result<Option<KeyRow>, StoreError> {
        keys::find(&self.readers, public_id).await.map_err(during("looking up a key"))
    }

    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        keys::list(&self.readers).await.map_err(during("listing keys"))
    }

    async fn change_key(&self, handle: &str, change: KeyChange, at: Timestamp) -> Result<Option<KeyRow>, StoreError> {
        keys::change(&self.writer, handle, change, at).await.map_err(during("changing a key"))
    }

    async fn touch_key(&self, key: &KeyId, at: Timestamp) -> Result<(), StoreError> {
        keys::touch(&self.writer, key, at).await.map_err(during("noting the use of a key"))
    }

    async fn write_records(&self, node: &NodeId, writes: &[RecordWrite<'_>]) -> Result<Vec<Written>, StoreError> {
        records::write(&self.writer, node, writes).await.map_err(during("writing records"))
    }

    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError> {
        records::interrupt_running(&self.writer, node).await.map_err(during("closing records of an earlier run"))
    }

    async fn list_records(&self, filter: &RecordFilter) -> Result<Vec<Record>, StoreError> {
        records::list(&self.readers, filter).await.map_err(during("listing records"))
    }
}
