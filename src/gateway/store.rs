//! The durable data of the gateway: users, groups, keys, accounts and records.
//!
//! This module decides the layout of rows, the extent of a transaction, and the kinds of database errors. It must not
//! know what a key permits, why a job ends, or the network.
//!
//! Rules: management commands and a running server share one data directory; a record is opened once and closed once;
//! migrations only go forward; a database error is distinguished from a missing row.
//!
//! The interface is one trait for each subject, such as [`RecordStore`]: its users cannot see which database implements
//! it, and the tests in `store/tests.rs` require the same behaviour of every implementation.

mod account_bindings;
mod account_rows;
mod alerts;
mod audit;
mod cost;
mod data_dir;
mod data_keys;
mod error;
mod identities;
mod ids;
mod installation;
mod installation_store;
mod key_file;
mod keys;
mod master_key;
mod opening;
mod people;
mod postgres;
mod prices;
mod record;
mod record_row;
mod replay;
mod replay_columns;
mod reservations;
mod second_factors;
mod secret_bytes;
mod secret_hashes;
mod sessions;
mod shared_answers;
mod shared_attempts;
mod shared_slots;
mod sql;
mod sqlite;
mod timestamp;
mod usage;
mod usage_details;
mod usage_fold;
mod utc_day;
mod vault;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(crate) use account_bindings::{AccountBinding, BINDING_DAYS, BindingDigest, binding_owner};
pub(crate) use account_rows::{
    AccountChange, AccountRow, AccountSpec, AccountStore, NewAccount, NewCredentials, StoredAccountSettings,
    StoredEjection, TokenChange, TokenRow, TokenStore,
};
pub(crate) use alerts::{AlertRow, AlertStore, DeliveryOutcome, DeliveryRow, DueDelivery, LimitedSubject, NewAlert};
pub(crate) use audit::{AuditContext, AuditFilter, AuditRow, ListPage};
pub(crate) use cost::AnswerCharges;
pub(crate) use data_dir::{ServeLock, ServingStatus, has_node_id};
pub(crate) use data_keys::PepperKey;
pub(crate) use error::StoreError;
pub(crate) use identities::{IdentityRow, IdentityStore, NewIdentity};
pub(crate) use ids::{
    AccountId, GroupId, KeyId, NodeId, PublicId, RequestId, SessionId, TokenId, UserId, random_base62, random_bytes,
};
pub(crate) use installation::{
    EmptyDataDir, EmptyDataDirError, INSTALLATION_FILES, InstallationFacts, MasterKeySource, check_undamaged,
    copy_installation, create_private, find_master_key,
};
pub(crate) use installation_store::{InstallationStore, NODE_TIMEOUT};
pub(crate) use keys::{KeyChange, KeyChangeOutcome, KeyCheck, KeyFilter, KeyHash, KeyRow, KeyStore, SecretRotation};
pub(crate) use master_key::MasterKey;
pub(crate) use opening::open_store;
pub(crate) use people::{
    AdminTokenRow, AdminTokenStore, GroupDeletionOutcome, GroupRow, GroupStore, LinkRedemption, LinkRow, LinkStore,
    NewLink, NewUser, OneTimeLinkPurpose, PeopleStore, UserChange, UserChangeOutcome, UserFilter, UserRow, UserStore,
};
pub(crate) use postgres::{DatabaseUrl, ImportReport, import_from_sqlite};
pub(crate) use prices::PriceStore;
pub(crate) use record::{
    CacheWrites, JobRecord, ModelUsage, RecordFilter, RunningJob, TokenUsage, all_tokens, max_cost_of, missing_images,
};
pub(crate) use replay::{
    JobProgress, ReplayClaim, ReplayState, ReplayStore, ReplayWrite, StoredAnswerRow, StoredReplay,
};
pub(crate) use reservations::{
    HeldMoney, NewReservation, OpenMoney, ReservationDecision, ReservationSubject, ReservationSubjectKind,
    SharedReservations, SubjectUsage,
};
pub(crate) use second_factors::{FactorUse, NewSecondFactor, SecondFactorRow, SecondFactorStore};
pub(crate) use secret_hashes::{PasswordHash, SecretHash};
pub(crate) use sessions::{NewSession, SessionRow, SessionStore, SignInProof};
pub(crate) use shared_answers::{AnswerPiece, SharedAnswerState, SharedAnswers};
pub(crate) use shared_attempts::{AttemptBucket, SharedAttempts};
pub(crate) use shared_slots::{
    HeldSlots, OtherNodeHolding, OtherNodeSlots, SHARED_SLOT_TIMEOUT, SharedSlots, SlotHolding,
};
pub(crate) use sql::SqlStore;
pub(crate) use sqlite::{DatabaseFile, newest_schema_version};
pub(crate) use timestamp::Timestamp;
pub(crate) use usage::{
    DayCounts, KeyCounts, KeyDisplayNames, RefusalCount, UsageCounters, UsageFilter, UsageStore, UsedModel,
};
pub(crate) use usage_details::{
    DetailsByValue, DurationCounts, ReplayCount, UsageDetailRead, UsageDetailStore, UsageDetails,
};
pub(crate) use utc_day::UtcDay;
pub(crate) use vault::Vault;

/// The words of the admin API that rows and filters have too.
pub(crate) use crate::wire::admin::types::{
    ActorKind, AttemptClass, CostBasis, CostReason, KeyLock, KeySort, KeyState, RecordSort, RecordState as JobState,
    Role as UserRole, UsageGrouping, UserSort,
};

use std::time::Duration;

use async_trait::async_trait;

/// An open database with everything that the gateway keeps in it.
pub(crate) trait Store:
    AccountStore
    + AlertStore
    + InstallationStore
    + KeyStore
    + PeopleStore
    + PriceStore
    + RecordStore
    + ReplayStore
    + TokenStore
    + UsageDetailStore
    + UsageStore
    + std::fmt::Debug
{
}

impl<T> Store for T where
    T: AccountStore
        + AlertStore
        + InstallationStore
        + KeyStore
        + PeopleStore
        + PriceStore
        + RecordStore
        + ReplayStore
        + TokenStore
        + UsageDetailStore
        + UsageStore
        + std::fmt::Debug
{
}

/// The writes of records and of the rows that share their transactions, and the removal of old rows.
#[async_trait]
pub(crate) trait RecordStore: Send + Sync {
    /// Writes records and claims in the given order, all of them in one transaction.
    ///
    /// On success, returns one outcome for each write, in the same order. On failure, nothing has been written. May block
    /// the calling thread until the writes are durable. An intent whose request id is taken, and an outcome of a record
    /// that is not running, change nothing; a store that finds this out only later returns [`RowWriteOutcome::Done`] for
    /// them.
    async fn write_rows(&self, node: &NodeId, writes: &[RowWrite<'_>]) -> Result<Vec<RowWriteOutcome>, StoreError>;

    /// Moves the records of closed jobs to the rows that readers see, for about this time, where they are written to
    /// another place first. Returns the number of those that are left. May block the calling thread.
    async fn move_closed_records(&self, duration: Duration) -> Result<usize, StoreError>;

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
}

/// One of the writes that share a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowWrite<'a> {
    /// Inserts the intent: a row in state running, written before the first upstream call.
    Open(&'a JobRecord),
    /// Writes the attempts so far into the running row of the same request.
    RecordAttempts(&'a JobRecord),
    /// Writes the outcome, which closes the running row of the same request.
    Close(&'a JobRecord),
    /// Writes the claim of an idempotency key, its answer, or its removal.
    Replay(&'a ReplayWrite),
}

impl RowWrite<'_> {
    /// True if the write adds rows to more than one table.
    const fn has_bindings(&self) -> bool {
        matches!(self, Self::Close(record) if !record.bindings.is_empty())
    }
}

#[cfg(test)]
impl<'a> RowWrite<'a> {
    fn request_id(self) -> &'a str {
        match self {
            Self::Open(record) | Self::RecordAttempts(record) | Self::Close(record) => &record.document.request_id,
            Self::Replay(ReplayWrite::Claim(row)) => row.request_id.as_str(),
            Self::Replay(
                ReplayWrite::Finish { request_id, .. }
                | ReplayWrite::EndRetry { request_id, .. }
                | ReplayWrite::Remove { request_id, .. },
            ) => request_id.as_str(),
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
    /// The usage counts by day and key. Budgets are computed from them.
    UsageDays,
    /// The usage counts by end user, and the detailed ones.
    UsageDetails,
    /// The bindings of ids, ciphertexts and conversations to accounts. Their age counts from their last use.
    AccountBindings,
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
