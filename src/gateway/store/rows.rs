//! Rows of accounts. Plain data: what they allow is decided elsewhere.

use super::{AccountId, Timestamp};

/// An upstream account, with what has been learnt of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccountRow {
    /// Its id.
    pub(crate) id: AccountId,
    /// Its name, unique.
    pub(crate) name: String,
    /// `api_key`, `oauth` or `simulator`.
    pub(crate) kind: String,
    /// `images` or `responses`.
    pub(crate) protocol: String,
    /// `paid` or `free`.
    pub(crate) tier: String,
    /// `file` where the configuration file has it, else `store`.
    pub(crate) source: String,
    /// Since when it has been disabled.
    pub(crate) disabled_at: Option<Timestamp>,
    /// Why it has been disabled, for operators.
    pub(crate) disabled_reason: Option<String>,
    /// The settings of an account of the store, as JSON. No secret is in them.
    pub(crate) settings: Option<String>,
    /// The credentials of an account of the store, sealed by the vault.
    pub(crate) sealed: Option<Vec<u8>>,
    /// Until when it rests. May lie in the past: nobody has thawed it yet.
    pub(crate) cooling_until: Option<Timestamp>,
    /// Why it rests, for operators.
    pub(crate) cooling_cause: Option<String>,
    /// The time until which the running gateway uses the account only if no other is left. It has no effect after that.
    pub(crate) failing_until: Option<Timestamp>,
    /// The time at which that began.
    pub(crate) failing_since: Option<Timestamp>,
    /// The reason for it, for operators.
    pub(crate) failing_reason: Option<String>,
    /// Since when the file no longer has this account of the file. It stays, because records name it.
    pub(crate) absent_since: Option<Timestamp>,
    /// When it was first seen.
    pub(crate) created_at: Timestamp,
}

/// An account as the configuration file describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccountSpec<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// `api_key`, `oauth` or `simulator`.
    pub(crate) kind: &'a str,
    /// `images` or `responses`.
    pub(crate) protocol: &'a str,
    /// `paid` or `free`.
    pub(crate) tier: &'a str,
}

/// An account that the store keeps, not the file.
#[derive(Debug, Clone)]
pub(crate) struct NewAccount {
    /// Its name.
    pub(crate) name: String,
    /// `api_key`, `oauth` or `simulator`.
    pub(crate) kind: String,
    /// `images` or `responses`.
    pub(crate) protocol: String,
    /// `paid` or `free`.
    pub(crate) tier: String,
    /// Its settings as JSON, without any secret.
    pub(crate) settings: String,
    /// Its credentials, sealed by the vault.
    pub(crate) sealed: Option<Vec<u8>>,
}

/// What can be done to an account that exists. Only [`AccountChange::Enable`] takes a disabling back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccountChange {
    /// It is not used until it is enabled again. The first moment and the first reason stay.
    Disable {
        /// Why, for operators.
        reason: String,
    },
    /// It is good again, and does not rest either.
    Enable,
    /// It rests. Of two such changes the one that ends later holds: nobody cuts short what another has learnt.
    Cool {
        /// Until then.
        until: Timestamp,
        /// Why, for operators.
        cause: String,
    },
    /// Forgets a rest that is over by the moment of the change, and no other: a late success must not wake an account
    /// that has begun to rest since.
    Thaw,
    /// The running gateway has set the account aside, or takes it back.
    Fail(Option<Failing>),
    /// Other credentials. The token that was fetched with the old ones goes.
    Reseal(Vec<u8>),
}

/// An account that the running gateway uses only if no other is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failing {
    /// The time at which it began.
    pub(crate) since: Timestamp,
    /// The time at which it ends, unless it is changed before.
    pub(crate) until: Timestamp,
    /// The reason for it, for operators.
    pub(crate) reason: String,
}

/// The token of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenRow {
    /// The token, sealed by the vault.
    pub(crate) sealed: Vec<u8>,
    /// When it was stored.
    pub(crate) updated_at: Timestamp,
}
