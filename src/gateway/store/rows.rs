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

/// An upstream account. Its credentials are not here.
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
