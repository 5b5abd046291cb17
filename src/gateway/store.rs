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

mod acts;
mod data_dir;
mod data_keys;
mod day;
mod error;
mod ids;
mod key_file;
mod keys;
mod master_key;
mod people;
mod record;
mod replay;
mod rows;
mod secret_bytes;
mod sqlite;
mod time;
mod usage;
mod vault;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use acts::{Act, ActorKind, AuditFilter, AuditRow, Page};
pub(crate) use data_dir::{ServeLock, ServingStatus};
pub(crate) use data_keys::PepperKey;
pub(crate) use day::Day;
pub(crate) use error::StoreError;
pub(crate) use ids::{
    AccountId, GroupId, KeyId, NodeId, PublicId, RequestId, SessionId, TokenId, UserId, random_base62,
};
pub(crate) use keys::{
    KeyChange, KeyChangeOutcome, KeyCheck, KeyFilter, KeyHash, KeyLock, KeyRow, KeyState, KeyStore, Rotation,
};
pub(crate) use master_key::MasterKey;
pub(crate) use people::{
    AdminTokenRow, GroupDeleted, GroupRow, LinkRow, NewLink, NewSession, NewUser, PasswordHash, PeopleStore, Purpose,
    Redeemed, Role, SecretHash, SessionRow, UserChange, UserChanged, UserFilter, UserRow,
};
pub(crate) use record::{Attempt, Class, Delivered, Record, RecordFilter, State, TokenDetails, Usage};
pub(crate) use replay::{ReplayDone, ReplayRow, ReplayState, ReplayWrite, StoredReplay};
pub(crate) use rows::{AccountChange, AccountRow, AccountSpec, Failing, NewAccount, TokenRow};
pub(crate) use sqlite::SqliteStore;
pub(crate) use time::Timestamp;
pub(crate) use usage::{Counts, DayCounts, KeyCounts, KeyName, RefusalCount, UsageFilter, UsageStore};
pub(crate) use vault::Vault;

use async_trait::async_trait;
use ids::random_bytes;

/// What the rooms ask of a database: beside keys, people and what was used, accounts, answers and records.
#[async_trait]
pub(crate) trait Store: KeyStore + PeopleStore + UsageStore {
    /// Brings the row of an account from the configuration file up to date.
    ///
    /// [`StoreError::Conflict`] where the store has an account of its own with that name: neither may silently become
    /// the other.
    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError>;

    /// Every account, by name.
    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError>;

    /// Adds an account of the store. [`StoreError::Conflict`] where the name is taken, by whomever.
    async fn insert_account(&self, act: &Act, account: &NewAccount) -> Result<AccountRow, StoreError>;

    /// Changes an account; `None` where there is none of that name, whatever the change.
    async fn change_account(
        &self,
        act: &Act,
        name: &str,
        change: AccountChange,
    ) -> Result<Option<AccountRow>, StoreError>;

    /// Forgets an account and its token, unless the file has it: there it would only come back without its state.
    async fn delete_account(&self, act: &Act, name: &str) -> Result<bool, StoreError>;

    /// Marks the accounts of the file that are not among these names any more, and says how many are new among them.
    ///
    /// To be called after [`Store::sync_account`] for each of the names, which takes the mark away again.
    async fn mark_absent(&self, in_file: &[&str], at: Timestamp) -> Result<u64, StoreError>;

    /// The token of an account, if one was ever stored.
    async fn load_token(&self, account: &str) -> Result<Option<TokenRow>, StoreError>;

    /// Asks to be the only one who fetches a token for this account, until then at most.
    ///
    /// A holder who asks again gets it again: after a restart the same node need not wait for itself.
    async fn claim_refresh(
        &self,
        account: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Stores a token and lets the claim go. False, and nothing changed, where another holds the claim by now or the
    /// account got other credentials or was deleted. A claim that is merely over still stores.
    async fn store_token(&self, account: &str, holder: &str, sealed: &[u8]) -> Result<bool, StoreError>;

    /// Lets the claim go without a token. Nothing where another holds it.
    async fn release_refresh(&self, account: &str, holder: &str) -> Result<(), StoreError>;

    /// Forgets the token of an account and whoever fetches another.
    #[cfg_attr(not(test), expect(dead_code, reason = "an operator who signs an account in anew needs it next"))]
    async fn delete_token(&self, account: &str) -> Result<(), StoreError>;

    /// The claim with that scope, over or not.
    async fn find_replay(&self, scope: &[u8; 32]) -> Result<Option<StoredReplay>, StoreError>;

    /// Every claim, oldest first.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests look through it at what every database keeps"))]
    async fn list_replays(&self) -> Result<Vec<StoredReplay>, StoreError>;

    /// Removes at most `limit` expired claims, except those of the scopes in `but`, and returns the number removed.
    async fn clear_replays(&self, now: Timestamp, but: &[[u8; 32]], limit: u32) -> Result<u32, StoreError>;

    /// Writes records and claims in the order given, all of them in one transaction.
    ///
    /// On success there is one answer for each write; on failure nothing of it has happened.
    async fn write_rows(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<Written>, StoreError>;

    /// Writes a row to find out whether the database takes writes.
    async fn check_writable(&self) -> Result<(), StoreError>;

    /// Closes as interrupted what an earlier life of this node left running, and says how many there were.
    ///
    /// To be called before the node opens its first record, and never while another process serves as that node.
    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError>;

    /// Removes at most `limit` rows from before that time, oldest first, and returns the number removed.
    async fn remove_old(&self, kept: RetentionClass, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// The newest records that pass the filter, oldest of them first.
    async fn list_records(&self, filter: &RecordFilter) -> Result<Vec<Record>, StoreError>;

    /// One record, in whatever state, unless it is somebody else's than the owner's.
    async fn find_record(&self, request_id: &RequestId, owner: Option<&UserId>) -> Result<Option<Record>, StoreError>;

    /// The states of at most `limit` records with this fingerprint that began at `since` or later, the newest first.
    async fn twins(&self, fingerprint: &[u8; 32], since: Timestamp, limit: u32) -> Result<Vec<State>, StoreError>;

    /// The account that made the response with this id for this user, as far as the records go back. Keys without a user
    /// have nothing in common, so for them it must be the same key.
    async fn maker_of_response(
        &self,
        response_id: &str,
        user: &UserId,
        key: &KeyId,
    ) -> Result<Option<String>, StoreError>;
}

/// One write of those that share a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowWrite<'a> {
    /// The intent: a row in state running, before anything is spent.
    Open(&'a Record),
    /// Writes the calls that were begun into the running row of the same request.
    Note(&'a Record),
    /// The outcome: closes the running row of the same request.
    Close(&'a Record),
    /// A claim to make an answer, or what became of one.
    Replay(&'a ReplayWrite),
}

#[cfg(test)]
impl<'a> RowWrite<'a> {
    fn request_id(self) -> &'a RequestId {
        match self {
            Self::Open(record) | Self::Note(record) | Self::Close(record) => &record.request_id,
            Self::Replay(ReplayWrite::Claim(row)) => &row.request_id,
            Self::Replay(ReplayWrite::Finish { request_id, .. } | ReplayWrite::Forget { request_id, .. }) => request_id,
        }
    }
}

/// The kinds of rows that have a retention period of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetentionClass {
    /// Records of finished jobs, by the time at which they began.
    Records,
    /// Rows of the audit trail.
    Audit,
    /// Counts by day.
    UsageDays,
}

/// The outcome of one [`RowWrite`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is in the database.
    Done,
    /// An intent whose request id is taken, or an outcome or answer for which no row is running. Nothing was changed.
    NoEffect,
    /// A claim that somebody has made before. Nothing was changed.
    Taken(Box<StoredReplay>),
}
