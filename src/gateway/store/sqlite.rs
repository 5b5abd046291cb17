//! The store that needs no other service: one SQLite file in write-ahead mode.
//!
//! One connection writes the records and claims, in batches; another one makes all other changes, one after the other;
//! a few connections read. Every commit waits for the disk: a record that was reported durable survives a power failure.

mod accounts;
mod audit_trail;
mod batch_writer;
mod data_key_unlock;
mod data_keys;
mod decode;
mod error_conversion;
mod keys;
mod master_key_rotation;
pub(super) mod migrations;
mod open;
mod paging;
mod people;
mod prices;
mod records;
mod replays;
mod retention;
mod tokens;
mod transaction;
mod usage;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::{Sqlite, SqlitePool};

use super::data_dir::DataDir;
use super::{
    AccountChange, AccountId, AccountRow, AccountSpec, AccountStore, AuditContext, JobState, KeyId, MasterKey,
    NewAccount, NodeId, PepperKey, RecordStore, ReplayStore, RetentionClass, RowWrite, RowWriteOutcome, ServeLock,
    StoreError, StoredReplay, Timestamp, TokenRow, TokenStore, UserId, Vault,
};
use batch_writer::BatchWriter;
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

    /// Writes records and claims without waiting for the disk: they survive the end of the process, but perhaps not a
    /// power failure. All other changes still wait.
    pub(crate) fn without_commit_sync(self) -> Self {
        let batch_writer = BatchWriter::new(self.data_dir.database_path()).without_commit_sync();
        Self { batch_writer: Arc::new(batch_writer), ..self }
    }

    /// Returns the right to serve from this directory. It is held until the lock is dropped.
    ///
    /// # Errors
    /// Returns [`StoreError::InUse`] if another process serves from the directory.
    pub(crate) fn lock_for_serving(&self) -> Result<ServeLock, StoreError> {
        self.data_dir.lock_for_serving()
    }

    /// Returns the vault that seals secrets for this database, and for files beside it.
    pub(crate) fn vault(&self) -> &Vault {
        &self.vault
    }

    /// Returns the key under which API keys are hashed.
    pub(crate) fn pepper_key(&self) -> &PepperKey {
        &self.pepper
    }

    /// Wraps every data key with another master key. The sealed data stays as it is, and a server that runs at the same
    /// time is not affected, because it holds the data keys themselves.
    ///
    /// If the key is in `master.key`, that file changes too, and a random key is made if no next key is given. If the
    /// configuration gives the key, the next key must be given, and the configuration must be changed afterwards.
    ///
    /// # Errors
    /// Returns [`StoreError::MasterKey`] if the next key is missing, and [`StoreError::Damaged`] if the key of the
    /// configuration is no longer in use. In both cases, nothing has changed.
    pub(crate) async fn rotate_master_key(&self, next: Option<MasterKey>) -> Result<(), StoreError> {
        master_key_rotation::rotate(self, next).await
    }

    /// Closes every connection. The last process to do so merges the write-ahead log into the database file.
    pub(crate) async fn close(&self) {
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
        records::interrupt_running(&self.writer, node).await.map_err(during("closing records of an earlier run"))
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

#[async_trait]
impl AccountStore for SqliteStore {
    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError> {
        let row = accounts::sync(self, AccountId::random()?, account).await.map_err(during("storing an account"))?;
        row.ok_or(StoreError::Conflict)
    }

    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError> {
        accounts::list(&self.readers).await.map_err(during("listing accounts"))
    }

    async fn insert_account(&self, audit: &AuditContext, account: &NewAccount) -> Result<AccountRow, StoreError> {
        accounts::insert(&self.writer, audit, AccountId::random()?, account).await.map_err(during("adding an account"))
    }

    async fn change_account(
        &self,
        audit: &AuditContext,
        name: &str,
        change: AccountChange,
    ) -> Result<Option<AccountRow>, StoreError> {
        accounts::change(&self.writer, audit, name, change).await.map_err(during("changing an account"))
    }

    async fn delete_account(&self, audit: &AuditContext, name: &str) -> Result<bool, StoreError> {
        accounts::delete(&self.writer, audit, name).await.map_err(during("deleting an account"))
    }

    async fn mark_others_absent(&self, in_file: &[&str], at: Timestamp) -> Result<u64, StoreError> {
        accounts::mark_others_absent(&self.writer, in_file, at)
            .await
            .map_err(during("marking accounts that left the file"))
    }

    async fn account_of_response(
        &self,
        response_id: &str,
        user: &UserId,
        key: &KeyId,
    ) -> Result<Option<String>, StoreError> {
        records::account_of_response(&self.readers, response_id, user, key)
            .await
            .map_err(during("looking up a response"))
    }
}

#[async_trait]
impl TokenStore for SqliteStore {
    async fn load_token(&self, account: &str) -> Result<Option<TokenRow>, StoreError> {
        tokens::load(&self.readers, account).await.map_err(during("loading a token"))
    }

    async fn claim_refresh(
        &self,
        account: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        tokens::claim(&self.writer, account, holder, now, until)
            .await
            .map_err(during("claiming the right to fetch a token"))
    }

    async fn store_token(&self, account: &str, holder: &str, sealed: &[u8]) -> Result<bool, StoreError> {
        tokens::store(&self.writer, account, holder, sealed).await.map_err(during("storing a token"))
    }

    async fn release_refresh(&self, account: &str, holder: &str) -> Result<(), StoreError> {
        tokens::release(&self.writer, account, holder).await.map_err(during("releasing the right to fetch a token"))
    }

    async fn delete_token(&self, account: &str) -> Result<(), StoreError> {
        tokens::delete(&self.writer, account).await.map_err(during("deleting a token"))
    }
}

#[async_trait]
impl ReplayStore for SqliteStore {
    async fn find_replay(&self, scope: &[u8; 32]) -> Result<Option<StoredReplay>, StoreError> {
        replays::find(&self.readers, scope).await.map_err(during("looking up an answer"))
    }

    async fn list_replays(&self) -> Result<Vec<StoredReplay>, StoreError> {
        replays::list(&self.readers).await.map_err(during("listing answers"))
    }

    async fn remove_expired_replays(&self, now: Timestamp, except: &[[u8; 32]], limit: u32) -> Result<u32, StoreError> {
        replays::remove_expired(&self.writer, now, except, limit).await.map_err(during("removing expired answers"))
    }

    async fn states_by_fingerprint(
        &self,
        fingerprint: &[u8; 32],
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobState>, StoreError> {
        records::states_by_fingerprint(&self.readers, fingerprint, since, limit)
            .await
            .map_err(during("looking up a retried request"))
    }
}
