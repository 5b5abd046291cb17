//! Where the gateway keeps what must outlive it: users, groups, keys, accounts and records.
//!
//! Decides how rows are laid out, what one transaction is, and what kind of trouble a database is in.
//! Refuses to know what a key is good for, when a job is over, or what the network is.
//!
//! Carries: management commands and a running server share one data directory; a record is written once and
//! closed once; migrations only go forward; trouble with the database is told apart from a missing row.
//!
//! [`Store`] is the seam: nothing behind it may show which database it is, and the tests in `store/tests.rs`
//! hold every implementation to the same behaviour.

mod data_dir;
mod error;
mod ids;
mod master_key;
mod record;
mod rows;
mod sqlite;
mod time;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use data_dir::ServeLock;
pub(crate) use error::StoreError;
pub(crate) use ids::{AccountId, GroupId, KeyId, NodeId, PublicId, RequestId, UserId, random_base62};
pub(crate) use master_key::MasterKey;
pub(crate) use record::{Attempt, Class, Delivered, Record, RecordFilter, State, TokenDetails, Usage};
pub(crate) use rows::{AccountRow, AccountSpec, GroupRow, KeyChange, KeyHash, KeyRow, UserRow};
pub(crate) use sqlite::SqliteStore;
pub(crate) use time::Timestamp;

use async_trait::async_trait;

/// What the rooms ask of a database.
#[async_trait]
pub(crate) trait Store: Send + Sync {
    /// The user of that name, made as a member if there is none.
    async fn ensure_user(&self, name: &str) -> Result<UserRow, StoreError>;

    /// The group of that name, made if there is none.
    async fn ensure_group(&self, name: &str) -> Result<GroupRow, StoreError>;

    /// Brings the row of an account from the configuration file up to date.
    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError>;

    /// Every account, by name.
    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError>;

    /// Adds a key. [`StoreError::Conflict`] where the id or the public id is taken.
    async fn insert_key(&self, key: &KeyRow) -> Result<(), StoreError>;

    /// The key with that public id, whatever its state: whether it may be used is not for the store to say.
    async fn find_key(&self, public_id: &PublicId) -> Result<Option<KeyRow>, StoreError>;

    /// Every key that is not deleted, oldest first.
    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError>;

    /// Changes the key with that id or public id; `None` where there is none or it is deleted.
    async fn change_key(&self, handle: &str, change: KeyChange, at: Timestamp) -> Result<Option<KeyRow>, StoreError>;

    /// Notes that a key was used. Never changes anything else, so a late call cannot revive a key.
    async fn touch_key(&self, key: &KeyId, at: Timestamp) -> Result<(), StoreError>;

    /// Writes intents and outcomes in the order given, all of them in one transaction.
    ///
    /// On success there is one answer for each write; on failure nothing of it has happened.
    async fn write_records(&self, node: &NodeId, writes: &[RecordWrite<'_>]) -> Result<Vec<Written>, StoreError>;

    /// Closes as interrupted what an earlier life of this node left running, and says how many there were.
    ///
    /// To be called before the node opens its first record, and never while another process serves as that node.
    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError>;

    /// The newest finished records that pass the filter, oldest of them first.
    async fn list_records(&self, filter: &RecordFilter) -> Result<Vec<Record>, StoreError>;
}

/// One write to the table of records.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RecordWrite<'a> {
    /// The intent: a row in state running, before anything is spent.
    Open(&'a Record),
    /// The outcome: closes the running row of the same request.
    Close(&'a Record),
}

#[cfg(test)]
impl<'a> RecordWrite<'a> {
    fn record(self) -> &'a Record {
        match self {
            Self::Open(record) | Self::Close(record) => record,
        }
    }
}

/// What became of one [`RecordWrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is in the database.
    Done,
    /// An intent whose request id is taken, or an outcome for which no row is running. Nothing was changed.
    NoEffect,
}
