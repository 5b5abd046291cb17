//! Keys as they are stored, and the database operations on them.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;

use super::audit::UnknownWord;
use super::{AuditContext, GroupId, KeyId, ListPage, PublicId, RefusalCount, StoreError, Timestamp, UserId};
use crate::gateway::config::DialectSet;

/// The database operations on keys. Every change writes its row of the audit trail with it.
#[async_trait]
pub(crate) trait KeyStore: Send + Sync {
    /// Adds a key. Returns [`StoreError::Conflict`] if the id or the public id is taken, and `false`, without a change,
    /// if its owner already has `max_keys` keys that are not deleted, or has deleted very many keys within a day.
    async fn insert_key(&self, audit: &AuditContext, key: &KeyRow, max_keys: Option<u32>) -> Result<bool, StoreError>;

    /// Adds the key that the first start prints, and notes its id. Returns `false`, without a change, if there is a key,
    /// or such a note, or an account whose calls can cost something. Of several nodes, one gets `true`.
    async fn insert_first_key(&self, audit: &AuditContext, key: &KeyRow) -> Result<bool, StoreError>;

    /// Returns the id of the first key; `None` if there was none, or its id is forgotten.
    async fn first_key(&self) -> Result<Option<KeyId>, StoreError>;

    /// Forgets the id of the first key, because it is disabled. There can be no other one.
    async fn forget_first_key(&self) -> Result<(), StoreError>;

    /// Returns the key with that id or public id, unless it is deleted. With an owner, returns only a key of that user.
    async fn find_key(&self, handle: &str, owner: Option<&UserId>) -> Result<Option<KeyRow>, StoreError>;

    /// Returns every key that is not deleted, oldest first.
    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError>;

    /// Returns a page of the keys that are not deleted, in the order of the filter.
    async fn list_keys_page(&self, filter: &KeyFilter, now: Timestamp) -> Result<ListPage<KeyRow>, StoreError>;

    /// Makes these changes, all of them or none, to the key with that id or public id. With an owner, the owner makes
    /// them and cannot undo the decisions of an admin; without one, an admin makes them.
    async fn change_key(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
        changes: &[KeyChange],
    ) -> Result<KeyChangeOutcome, StoreError>;

    /// Replaces the hash of a key, under the same rules as a change.
    async fn rotate_key(
        &self,
        audit: &AuditContext,
        key: &KeyId,
        owner: Option<&UserId>,
        rotation: SecretRotation,
    ) -> Result<KeyChangeOutcome, StoreError>;

    /// Returns the keys that have changed since this revision, in the order of their revisions. Revision 0 returns
    /// every key that is not deleted; any later revision also returns deleted keys.
    async fn keys_changed_since(&self, revision: i64) -> Result<Vec<KeyCheck>, StoreError>;

    /// Stores the time of the last use of keys. This changes nothing else, so a late call cannot revive a key.
    async fn record_key_use(&self, keys: &[KeyId], at: Timestamp) -> Result<(), StoreError>;

    /// Adds to the counts requests that were refused before they became a job, in one transaction.
    async fn add_refusals(&self, refusals: &[RefusalCount]) -> Result<(), StoreError>;
}

/// A key with the names of its user and group. The secret itself is stored nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRow {
    /// The id of the key.
    pub(crate) id: KeyId,
    /// The visible part of the secret, unique.
    pub(crate) public_id: PublicId,
    /// The name that the owner gave the key.
    pub(crate) name: String,
    /// The owner of the key.
    pub(crate) user: UserId,
    /// The name of the user; `None` if the key belongs to no person yet.
    pub(crate) user_name: Option<String>,
    /// The time at which the user was disabled.
    pub(crate) user_disabled_at: Option<Timestamp>,
    /// The group in which the key is served.
    pub(crate) group: GroupId,
    /// The name of the group.
    pub(crate) group_name: String,
    /// The hash that the secret is compared with.
    pub(crate) hash: KeyHash,
    /// The time until which the previous secret, from before the last rotation, is valid. It may be in the past.
    pub(crate) previous_until: Option<Timestamp>,
    /// The time at which the key was made.
    pub(crate) created_at: Timestamp,
    /// The time from which the key is no longer valid.
    pub(crate) expires_at: Option<Timestamp>,
    /// The time of the last use, to about a minute.
    pub(crate) last_used_at: Option<Timestamp>,
    /// The time at which the key was disabled.
    pub(crate) disabled_at: Option<Timestamp>,
    /// Set if the key is disabled and its owner cannot enable it.
    pub(crate) locked: Option<KeyLock>,
    /// The latest expiry that the owner may choose.
    pub(crate) latest_end: Option<Timestamp>,
    /// The time at which the key was deleted.
    pub(crate) deleted_at: Option<Timestamp>,
    /// The limits of the key, as a JSON object; `None` if it has none.
    pub(crate) limits: Option<String>,
    /// The dialects of the key.
    pub(crate) dialects: DialectSet,
}

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// The key is valid.
    Active,
    /// The key was disabled.
    Disabled,
    /// The key has expired.
    Expired,
    /// The user of the key was disabled.
    UserDisabled,
}

/// The reason why only an admin can enable a disabled key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyLock {
    /// An admin or a command disabled it.
    Admin,
    /// Its owner left the group of the key.
    LeftGroup,
}

/// The result of a change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyChangeOutcome {
    /// The change was made.
    Done(Box<KeyRow>),
    /// There is no such key, or it is deleted or belongs to another user.
    Unknown,
    /// Nothing was changed: the owner cannot enable or rotate the key.
    Locked(KeyLock),
    /// Nothing was changed: the owner cannot give the key a later expiry than this.
    PastLatestEnd(Timestamp),
}

/// The data needed to check a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyCheck {
    /// The id of the key.
    pub(crate) id: KeyId,
    /// The visible part of the secret.
    pub(crate) public_id: PublicId,
    /// The owner of the key.
    pub(crate) user: UserId,
    /// The name of the group.
    pub(crate) group_name: String,
    /// The hash that the secret is compared with.
    pub(crate) hash: KeyHash,
    /// The hash before the last rotation, and the time until which it is valid too.
    pub(crate) previous: Option<(KeyHash, Timestamp)>,
    /// The time from which the key is no longer valid.
    pub(crate) expires_at: Option<Timestamp>,
    /// True if the key is refused now: it or its user is disabled, or it is deleted.
    pub(crate) is_refused: bool,
    /// The limits of the key, as a JSON object.
    pub(crate) limits: Option<String>,
    /// The limits of the user, as a JSON object.
    pub(crate) user_limits: Option<String>,
    /// The dialects of the key.
    pub(crate) dialects: DialectSet,
    /// True if the key is deleted, so that a cache can remove it.
    pub(crate) is_deleted: bool,
    /// The revision, which grows with every change of the fields above.
    pub(crate) revision: i64,
}

/// The order of a list of keys. Equal keys are listed newest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum KeySort {
    /// Newest first.
    #[default]
    Created,
    /// In the order of the alphabet; those of one name oldest first.
    Name,
    /// The latest use first; keys without a use last.
    LastUsed,
    /// The most finished requests first.
    Requests,
    /// The most delivered images first.
    Images,
    /// The highest known cost first.
    Cost,
}

/// A filter for keys, and their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyFilter {
    /// The owner of the keys.
    pub(crate) owner: Option<UserId>,
    /// The name of the group.
    pub(crate) group: Option<String>,
    /// A part of the name, of the public id or of the user's name.
    pub(crate) search: Option<String>,
    /// The state of the keys.
    pub(crate) state: Option<KeyState>,
    /// The order of the keys.
    pub(crate) sort: KeySort,
    /// Only keys after the key with this id, in this order.
    pub(crate) before: Option<KeyId>,
    /// The most keys to return.
    pub(crate) limit: u32,
}

/// The keyed hash of a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) [u8; 32]);

impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

/// A new secret for a key.
#[derive(Debug, Clone)]
pub(crate) struct SecretRotation {
    /// The hash of the new secret.
    pub(crate) hash: KeyHash,
    /// The time until which the former secret stays valid, if at all.
    pub(crate) previous_until: Option<Timestamp>,
}

/// A change of an existing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyChange {
    /// The key is refused until it is enabled again. If the key is already disabled, its time stays.
    Disable,
    /// The key is no longer disabled.
    Enable,
    /// The key is refused for ever and no longer listed. The row stays, because records name it.
    Delete,
    /// The key gets this name.
    Rename(String),
    /// The key is valid until this time; with `None`, it never expires.
    Expire(Option<Timestamp>),
    /// The key gets these limits, as a JSON object that was checked; with `None`, it has none.
    Limit(Option<String>),
    /// The key has these dialects and no others.
    SetDialects(DialectSet),
}

// === impl KeyRow ===

impl KeyRow {
    /// Returns the state of the key at that time.
    pub(crate) fn state(&self, now: Timestamp) -> KeyState {
        if self.disabled_at.is_some() {
            KeyState::Disabled
        } else if self.user_disabled_at.is_some() {
            KeyState::UserDisabled
        } else if self.expires_at.is_some_and(|end| end <= now) {
            KeyState::Expired
        } else {
            KeyState::Active
        }
    }
}

// === impl KeyLock ===

impl KeyLock {
    /// The word for this reason in the database and the API.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::LeftGroup => "left_group",
        }
    }
}

impl FromStr for KeyLock {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        [Self::Admin, Self::LeftGroup].into_iter().find(|lock| lock.as_str() == text).ok_or(UnknownWord)
    }
}

// === impl KeyChangeOutcome ===

#[cfg(test)]
impl KeyChangeOutcome {
    /// Returns the key, if the change was made.
    pub(crate) fn done(self) -> Option<KeyRow> {
        match self {
            Self::Done(key) => Some(*key),
            Self::Unknown | Self::Locked(_) | Self::PastLatestEnd(_) => None,
        }
    }
}
