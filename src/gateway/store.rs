//! The durable data of the gateway: users, groups, keys, accounts and records.
//!
//! This module decides the layout of rows, the extent of a transaction, and the kinds of database errors. It must not
//! know what a key permits, why a job ends, or the network.
//!
//! Rules: management commands and a running server share one data directory; a record is opened once and closed once;
//! migrations only go forward; a database error is distinguished from a missing row.
//!
//! [`Store`] is the interface: its users cannot see which database implements it, and the tests in `store/tests.rs`
//! require the same behaviour of every implementation.

mod account_rows;
mod audit;
mod data_dir;
mod data_keys;
mod error;
mod ids;
mod key_file;
mod keys;
mod master_key;
mod people;
mod record;
mod replay;
mod secret_bytes;
mod secret_hashes;
mod sqlite;
mod timestamp;
mod usage;
mod utc_day;
mod vault;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use account_rows::{AccountChange, AccountRow, AccountSpec, NewAccount, StoredEjection, TokenRow};
pub(crate) use audit::{ActorKind, AuditContext, AuditFilter, AuditRow, ListPage};
pub(crate) use data_dir::{ServeLock, ServingStatus};
pub(crate) use data_keys::PepperKey;
pub(crate) use error::StoreError;
pub(crate) use ids::{
    AccountId, GroupId, KeyId, NodeId, PublicId, RequestId, SessionId, TokenId, UserId, random_base62,
};
pub(crate) use keys::{
    KeyChange, KeyChangeOutcome, KeyCheck, KeyFilter, KeyHash, KeyLock, KeyRow, KeyState, KeyStore, SecretRotation,
};
pub(crate) use master_key::MasterKey;
pub(crate) use people::{
    AdminTokenRow, GroupDeletionOutcome, GroupRow, LinkRedemption, LinkRow, NewLink, NewSession, NewUser,
    OneTimeLinkPurpose, PeopleStore, SessionRow, UserChange, UserChangeOutcome, UserFilter, UserRole, UserRow,
};
pub(crate) use record::{
    AttemptClass, AttemptEntry, DeliveredImageEntry, JobState, Record, RecordFilter, TokenDetails, TokenUsage,
};
pub(crate) use replay::{ReplayClaim, ReplayState, ReplayWrite, StoredAnswerRow, StoredReplay};
pub(crate) use secret_hashes::{PasswordHash, SecretHash};
pub(crate) use sqlite::SqliteStore;
pub(crate) use timestamp::Timestamp;
pub(crate) use usage::{DayCounts, KeyCounts, KeyDisplayNames, RefusalCount, UsageCounters, UsageFilter, UsageStore};
pub(crate) use utc_day::UtcDay;
pub(crate) use vault::Vault;

use async_trait::async_trait;
use ids::random_bytes;

/// The database operations on accounts, answers and records, in addition to those on keys, people and usage.
#[async_trait]
pub(crate) trait Store: KeyStore + PeopleStore + UsageStore {
    /// Inserts or updates the row of an account of the configuration file.
    ///
    /// Returns [`StoreError::Conflict`] if an account that was added to the store has that name: neither may
    /// silently replace the other.
    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError>;

    /// Returns every account, ordered by name.
    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError>;

    /// Adds an account to the store. Returns [`StoreError::Conflict`] if any account has the name.
    async fn insert_account(&self, audit: &AuditContext, account: &NewAccount) -> Result<AccountRow, StoreError>;

    /// Changes an account. Returns `None` if no account has that name, whatever the change.
    async fn change_account(
        &self,
        audit: &AuditContext,
        name: &str,
        change: AccountChange,
    ) -> Result<Option<AccountRow>, StoreError>;

    /// Deletes an account and its token, and returns `true` if it has done so. An account that is in the configuration
    /// file is not deleted: the next start would add it again, without its state.
    async fn delete_account(&self, audit: &AuditContext, name: &str) -> Result<bool, StoreError>;

    /// Marks as absent the accounts of the configuration file whose names are not in `in_file`, and returns the number
    /// of newly marked accounts.
    ///
    /// Must be called after [`Store::sync_account`] for each of the names, which removes the mark.
    async fn mark_others_absent(&self, in_file: &[&str], at: Timestamp) -> Result<u64, StoreError>;

    /// Returns the token of an account, if one is stored.
    async fn load_token(&self, account: &str) -> Result<Option<TokenRow>, StoreError>;

    /// Claims the exclusive right to fetch a token for this account until the given time at most. Returns `false` if
    /// another holder has the right at the time `now`.
    ///
    /// A holder that claims again gets the right again, so that a node does not wait for its own claim after a restart.
    async fn claim_refresh(
        &self,
        account: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Stores a token and releases the claim. Returns `false` and changes nothing if another holder has claimed the
    /// right in the meantime, or if the account got other credentials or was deleted. The same holder may store the token even
    /// after its claim has expired.
    async fn store_token(&self, account: &str, holder: &str, sealed: &[u8]) -> Result<bool, StoreError>;

    /// Releases the claim without a token. Does nothing if another holder has it.
    async fn release_refresh(&self, account: &str, holder: &str) -> Result<(), StoreError>;

    /// Deletes the token of an account and the claim to fetch another.
    #[cfg_attr(not(test), expect(dead_code, reason = "reserved for signing an account in again"))]
    async fn delete_token(&self, account: &str) -> Result<(), StoreError>;

    /// Returns the claim of an idempotency key with that scope, expired or not.
    async fn find_replay(&self, scope: &[u8; 32]) -> Result<Option<StoredReplay>, StoreError>;

    /// Returns every claim of an idempotency key, oldest first.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests compare the stored claims"))]
    async fn list_replays(&self) -> Result<Vec<StoredReplay>, StoreError>;

    /// Removes at most `limit` expired claims, except those of the scopes in `except`, and returns the number removed.
    async fn remove_expired_replays(&self, now: Timestamp, except: &[[u8; 32]], limit: u32) -> Result<u32, StoreError>;

    /// Writes records and claims in the given order, all of them in one transaction.
    ///
    /// On success, returns one outcome for each write, in the same order. On failure, nothing has been written. May block
    /// the calling thread until the writes are durable.
    async fn write_rows(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<RowWriteOutcome>, StoreError>;

    /// Writes a row to find out whether the database accepts writes.
    async fn check_writable(&self) -> Result<(), StoreError>;

    /// Closes as interrupted the records that an earlier run of this node left open, and returns their number.
    ///
    /// Must be called before the node opens its first record, and never while another process serves as that node.
    async fn interrupt_running(&self, node: &NodeId) -> Result<u64, StoreError>;

    /// Removes at most `limit` rows from before that time, oldest first, and returns the number removed.
    async fn remove_expired_rows(
        &self,
        class: RetentionClass,
        before: Timestamp,
        limit: u32,
    ) -> Result<u64, StoreError>;

    /// Returns the newest records that pass the filter, ordered from oldest to newest.
    async fn list_records(&self, filter: &RecordFilter) -> Result<Vec<Record>, StoreError>;

    /// Returns one record, in any state. With an owner, returns it only if it belongs to that user.
    async fn find_record(&self, request_id: &RequestId, owner: Option<&UserId>) -> Result<Option<Record>, StoreError>;

    /// Returns the states of at most `limit` records with this fingerprint that began at `since` or later, newest
    /// first.
    async fn states_by_fingerprint(
        &self,
        fingerprint: &[u8; 32],
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobState>, StoreError>;

    /// Returns the account that made the response with this id for this user, if a record of it still exists. Keys that
    /// belong to no person share one user id but nothing else, so for them the key must be the same.
    async fn account_of_response(
        &self,
        response_id: &str,
        user: &UserId,
        key: &KeyId,
    ) -> Result<Option<String>, StoreError>;
}

/// One of the writes that share a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowWrite<'a> {
    /// Inserts the intent: a row in state running, written before the first upstream call.
    Open(&'a Record),
    /// Writes the attempts so far into the running row of the same request.
    RecordAttempts(&'a Record),
    /// Writes the outcome, which closes the running row of the same request.
    Close(&'a Record),
    /// Writes the claim of an idempotency key, its answer, or its removal.
    Replay(&'a ReplayWrite),
}

#[cfg(test)]
impl<'a> RowWrite<'a> {
    fn request_id(self) -> &'a RequestId {
        match self {
            Self::Open(record) | Self::RecordAttempts(record) | Self::Close(record) => &record.request_id,
            Self::Replay(ReplayWrite::Claim(row)) => &row.request_id,
            Self::Replay(ReplayWrite::Finish { request_id, .. } | ReplayWrite::Remove { request_id, .. }) => request_id,
        }
    }
}

/// The kinds of rows that have a retention period of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetentionClass {
    /// The records of finished jobs. Their age counts from the beginning of the job.
    Records,
    /// The rows of the audit trail.
    Audit,
    /// The usage counts by day.
    UsageDays,
}

/// The outcome of one [`RowWrite`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowWriteOutcome {
    /// The write is in the database.
    Done,
    /// Nothing was changed: the request id of the intent is taken, there is no running row for the attempts, the
    /// outcome or the answer, or there is no claim to remove.
    NoEffect,
    /// Nothing was changed: the scope already has this valid claim.
    AlreadyClaimed(Box<StoredReplay>),
}

impl RowWriteOutcome {
    /// The outcome of a statement that changes one row or none.
    fn of_changed_rows(changed: usize) -> Self {
        if changed == 1 { Self::Done } else { Self::NoEffect }
    }
}
