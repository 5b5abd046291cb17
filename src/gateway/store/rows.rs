//! Rows that are not records. Plain data: what they allow is decided elsewhere.

use std::fmt;

use super::{AccountId, GroupId, KeyId, PublicId, Timestamp, UserId};

/// A person or a program that keys belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserRow {
    /// Its id.
    pub(crate) id: UserId,
    /// Its name, unique.
    pub(crate) name: String,
    /// `admin` or `member`.
    pub(crate) role: String,
    /// When it was made.
    pub(crate) created_at: Timestamp,
}

/// Keys that are served alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRow {
    /// Its id.
    pub(crate) id: GroupId,
    /// Its name, unique.
    pub(crate) name: String,
    /// `report` or `fail`; `None` leaves it to the configuration.
    pub(crate) delivery: Option<String>,
    /// When it was made.
    pub(crate) created_at: Timestamp,
}

/// A key with the names of its user and group. The secret itself is nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRow {
    /// Its id.
    pub(crate) id: KeyId,
    /// The visible part of the secret, unique.
    pub(crate) public_id: PublicId,
    /// What its owner calls it.
    pub(crate) name: String,
    /// Whose it is.
    pub(crate) user: UserId,
    /// The name of the user.
    pub(crate) user_name: String,
    /// The group that it is served in.
    pub(crate) group: GroupId,
    /// The name of the group.
    pub(crate) group_name: String,
    /// What the secret is compared with.
    pub(crate) hash: KeyHash,
    /// When it was made.
    pub(crate) created_at: Timestamp,
    /// From when on it is no longer good.
    pub(crate) expires_at: Option<Timestamp>,
    /// When it was last used, to about a minute.
    pub(crate) last_used_at: Option<Timestamp>,
    /// Since when it has been disabled.
    pub(crate) disabled_at: Option<Timestamp>,
    /// Since when it has been deleted.
    pub(crate) deleted_at: Option<Timestamp>,
}

/// The keyed hash of a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) [u8; 32]);

impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

/// What can be done to a key that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyChange {
    /// It is refused until it is enabled again.
    Disable,
    /// It is good again.
    Enable,
    /// It is refused for ever and no longer listed; the row stays, because records point at it.
    Delete,
}

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
    /// Other credentials. The token that was fetched with the old ones goes.
    Reseal(Vec<u8>),
}

/// The token of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenRow {
    /// The token, sealed by the vault.
    pub(crate) sealed: Vec<u8>,
    /// When it was stored.
    pub(crate) updated_at: Timestamp,
}
