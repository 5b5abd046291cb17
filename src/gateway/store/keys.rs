//! Keys as they are stored, and what the rooms ask of a database about them.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;

use super::acts::UnknownWord;
use super::{Act, GroupId, KeyId, Page, PublicId, StoreError, Timestamp, UserId};

/// What the rooms ask of a database about keys. Every change writes its row of the audit trail with it.
#[async_trait]
pub(crate) trait KeyStore: Send + Sync {
    /// Adds a key. [`StoreError::Conflict`] if the id or the public id is taken. Returns `false` and adds nothing if
    /// its owner already has `at_most` keys that are not deleted.
    async fn insert_key(&self, act: &Act, key: &KeyRow, at_most: Option<u32>) -> Result<bool, StoreError>;

    /// The key with that id or public id, unless it is deleted or somebody else's.
    async fn find_key(&self, handle: &str, owner: Option<&UserId>) -> Result<Option<KeyRow>, StoreError>;

    /// Every key that is not deleted, oldest first.
    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError>;

    /// A part of the keys that are not deleted, newest first.
    async fn page_keys(&self, filter: &KeyFilter, now: Timestamp) -> Result<Page<KeyRow>, StoreError>;

    /// Makes these changes, all of them or none, to the key with that id or public id. With an owner, the owner makes
    /// them and cannot undo the decisions of an admin; without one, an admin makes them.
    async fn change_key(
        &self,
        act: &Act,
        handle: &str,
        owner: Option<&UserId>,
        changes: &[KeyChange],
    ) -> Result<KeyChangeOutcome, StoreError>;

    /// Gives a key another hash, under the same rules as a change.
    async fn rotate_key(
        &self,
        act: &Act,
        key: &KeyId,
        owner: Option<&UserId>,
        next: Rotation,
    ) -> Result<KeyChangeOutcome, StoreError>;

    /// The keys that have changed since this revision, in the order of their revisions. Deleted keys are included,
    /// except from revision 0, which reads everything.
    async fn keys_after(&self, revision: i64) -> Result<Vec<KeyCheck>, StoreError>;

    /// Notes that keys were used. Changes nothing else, so a late call cannot revive a key.
    async fn touch_keys(&self, keys: &[KeyId], at: Timestamp) -> Result<(), StoreError>;
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
    /// The name of the user; `None` if the key belongs to no person yet.
    pub(crate) user_name: Option<String>,
    /// Since when the user has been disabled.
    pub(crate) user_disabled_at: Option<Timestamp>,
    /// The group that it is served in.
    pub(crate) group: GroupId,
    /// The name of the group.
    pub(crate) group_name: String,
    /// What the secret is compared with.
    pub(crate) hash: KeyHash,
    /// Until when the secret before the last rotation is good. May lie in the past.
    pub(crate) previous_until: Option<Timestamp>,
    /// When it was made.
    pub(crate) created_at: Timestamp,
    /// From when on it is no longer good.
    pub(crate) expires_at: Option<Timestamp>,
    /// When it was last used, to about a minute.
    pub(crate) last_used_at: Option<Timestamp>,
    /// Since when it has been disabled.
    pub(crate) disabled_at: Option<Timestamp>,
    /// Set if the key is disabled and its owner cannot enable it.
    pub(crate) locked: Option<KeyLock>,
    /// The latest end that its owner may choose.
    pub(crate) latest_end: Option<Timestamp>,
    /// Since when it has been deleted.
    pub(crate) deleted_at: Option<Timestamp>,
}

/// How a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// It is good.
    Active,
    /// It was disabled.
    Disabled,
    /// Its time is over.
    Expired,
    /// Its user was disabled.
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
    /// There is no such key, or it is deleted or belongs to somebody else.
    Unknown,
    /// Nothing was changed: its owner cannot enable or rotate it.
    Locked(KeyLock),
    /// Nothing was changed: its owner cannot give it a later end than this one.
    PastLatestEnd(Timestamp),
}

/// What is needed to check a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyCheck {
    /// Its id.
    pub(crate) id: KeyId,
    /// The visible part of the secret.
    pub(crate) public_id: PublicId,
    /// Whose it is.
    pub(crate) user: UserId,
    /// The name of the group.
    pub(crate) group_name: String,
    /// What the secret is compared with.
    pub(crate) hash: KeyHash,
    /// What it was compared with before the last rotation, and until when that is good too.
    pub(crate) previous: Option<(KeyHash, Timestamp)>,
    /// From when on it is no longer good.
    pub(crate) expires_at: Option<Timestamp>,
    /// Whether it is refused now: it or its user is disabled, or it is deleted.
    pub(crate) refused: bool,
    /// True if the key is deleted, so that it can be forgotten.
    pub(crate) deleted: bool,
    /// Grows with every change of the above.
    pub(crate) revision: i64,
}

/// Which keys are wanted, newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyFilter {
    /// Whose they are.
    pub(crate) owner: Option<UserId>,
    /// The name of the group.
    pub(crate) group: Option<String>,
    /// A part of the name, of the public id or of the user's name.
    pub(crate) search: Option<String>,
    /// How they stand.
    pub(crate) state: Option<KeyState>,
    /// Only keys older than this one.
    pub(crate) before: Option<KeyId>,
    /// How many at most.
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

/// Another secret for a key.
#[derive(Debug, Clone)]
pub(crate) struct Rotation {
    /// What it is compared with.
    pub(crate) hash: KeyHash,
    /// Until when the former one stays good, if at all.
    pub(crate) previous_until: Option<Timestamp>,
}

/// What can be done to a key that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyChange {
    /// It is refused until it is enabled again. The first moment stays.
    Disable,
    /// It is good again.
    Enable,
    /// It is refused for ever and no longer listed; the row stays, because records point at it.
    Delete,
    /// It is called something else.
    Rename(String),
    /// It is good until then, or without an end.
    Expire(Option<Timestamp>),
}

// === impl KeyRow ===

impl KeyRow {
    /// How it stands at that moment.
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
    /// The word in the database and the API.
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
    /// The key, if the change was made.
    pub(crate) fn done(self) -> Option<KeyRow> {
        match self {
            Self::Done(key) => Some(*key),
            Self::Unknown | Self::Locked(_) | Self::PastLatestEnd(_) => None,
        }
    }
}

// === impl KeyState ===

impl KeyState {
    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Expired => "expired",
            Self::UserDisabled => "user_disabled",
        }
    }
}
