//! The errors of the authentication with keys and of changes to keys.

use std::sync::Arc;

use crate::gateway::names;
use crate::gateway::store::{KeyLock, StoreError, Timestamp};

/// The reason why a request is not authenticated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmissionError {
    /// The presented text is not a valid key. There are no finer kinds, because they would reveal which keys exist.
    #[error("the key is not valid")]
    Invalid,
    /// The key could not be looked up; the same key may be accepted a moment later.
    #[error("the key could not be checked")]
    Unavailable(#[source] Arc<StoreError>),
}

/// The reason why a key was not made or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// A value cannot be used.
    #[error("{why}")]
    InvalidField {
        /// `name`, `user`, `group`, `expires_at` or `grace_seconds`.
        field: &'static str,
        /// The problem, as a sentence for the author of the request.
        why: String,
    },
    /// There is no such key, it is deleted, or it belongs to another user.
    #[error("the key does not exist")]
    Unknown,
    /// Its owner can neither enable nor rotate it.
    #[error("{}", lock_message(*.0))]
    Locked(KeyLock),
    /// Its owner cannot set its end later than this.
    #[error("an admin has set the expiry of this key: it cannot be later than {0}")]
    PastLatestEnd(Timestamp),
    /// A member already has the most keys that a member can have.
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

/// Returns the name as it is stored, or an error if it cannot be used.
pub(super) fn check_name(field: &'static str, noun: &str, name: &str) -> Result<String, KeyError> {
    names::parse_name(name).ok_or_else(|| KeyError::InvalidField { field, why: names::invalid_name_message(noun) })
}

pub(super) fn check_expiry(end: Option<Timestamp>, now: Timestamp) -> Result<(), KeyError> {
    match end {
        Some(end) if end <= now => Err(KeyError::field("expires_at", "the expiry of the key must be in the future")),
        Some(end) if end > Timestamp::LAST => {
            Err(KeyError::field("expires_at", "the expiry of the key is too far in the future"))
        }
        _ => Ok(()),
    }
}
