//! The errors of authentication with keys, and of changes to keys.

use std::sync::Arc;

use crate::gateway::names;
use crate::gateway::store::{KeyLock, StoreError, Timestamp};

/// The reason why a request is not authenticated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthenticationError {
    /// The presented text is not a valid key. The error has no details, because they would reveal which keys exist.
    #[error("the key is not valid")]
    Invalid,
    /// The key could not be looked up, so the request may succeed later.
    #[error("the key could not be checked")]
    Unavailable(#[source] Arc<StoreError>),
}

/// The reason why a key was not created or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// A value cannot be used.
    #[error("{why}")]
    InvalidField {
        /// `name`, `user`, `group`, `expires_at` or `grace_seconds`.
        field: &'static str,
        /// The message for the sender of the request.
        why: String,
    },
    /// There is no such key, it is deleted, or it belongs to another user.
    #[error("the key does not exist")]
    Unknown,
    /// The key is locked: its owner can neither enable nor rotate it.
    #[error("{}", lock_message(*.0))]
    Locked(KeyLock),
    /// The owner of the key cannot set its expiry later than this.
    #[error("an admin has set the expiry of this key: it cannot be later than {0}")]
    PastLatestEnd(Timestamp),
    /// A member already has the maximum number of keys.
    #[error("a member can have at most {0} keys")]
    TooMany(u32),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl KeyError ===

impl KeyError {
    pub(super) fn field(field: &'static str, why: &str) -> Self {
        Self::InvalidField { field, why: why.to_owned() }
    }
}

const fn lock_message(lock: KeyLock) -> &'static str {
    match lock {
        KeyLock::Admin => "an admin has disabled this key: only an admin can enable or rotate it",
        KeyLock::LeftGroup => {
            "this key was disabled when its user left its group: only an admin can enable or rotate it"
        }
    }
}

/// Returns a name in the form in which it is stored, or an error if the name is invalid.
pub(super) fn check_name(field: &'static str, noun: &str, name: &str) -> Result<String, KeyError> {
    names::parse_name(name).ok_or_else(|| KeyError::InvalidField { field, why: names::invalid_name_message(noun) })
}

/// Returns an error if an expiry is in the past, or too far in the future to be stored.
pub(super) fn check_expiry(end: Option<Timestamp>, now: Timestamp) -> Result<(), KeyError> {
    match end {
        Some(end) if end <= now => Err(KeyError::field("expires_at", "the expiry of the key must be in the future")),
        Some(end) if end > Timestamp::LAST => {
            Err(KeyError::field("expires_at", "the expiry of the key is too far in the future"))
        }
        _ => Ok(()),
    }
}
