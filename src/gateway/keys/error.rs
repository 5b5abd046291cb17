//! Why somebody is not admitted, or a key not made.

use std::sync::Arc;

use crate::gateway::store::{StoreError, Timestamp};

/// Names are for people: long enough for them, short enough for a table on a page.
pub(crate) const MAX_NAME_CHARS: usize = 128;

/// Why nobody is admitted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Denied {
    /// Whatever it was, it is no good key. There are no finer kinds: they would tell a stranger what exists.
    #[error("the key is not valid")]
    Invalid,
    /// Nobody could look it up; the same key may be good a moment later.
    #[error("the key could not be checked")]
    Unavailable(#[source] Arc<StoreError>),
}

/// Why a key was not made or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// What was given cannot be used.
    #[error("{why}")]
    Field {
        /// `name`, `user`, `group`, `expires_at` or `grace_seconds`.
        field: &'static str,
        /// A sentence for whoever gave it.
        why: String,
    },
    /// No such key, or it is deleted, or somebody else's.
    #[error("there is no such key")]
    Unknown,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl KeyError ===

impl KeyError {
    pub(super) fn field(field: &'static str, why: &str) -> Self {
        Self::Field { field, why: why.to_owned() }
    }
}

/// Whether people can read such a name in a table.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.chars().count()) && !name.trim().is_empty() && !name.contains(char::is_control)
}

pub(super) fn check_name(field: &'static str, of: &str, name: &str) -> Result<(), KeyError> {
    if is_name(name) {
        return Ok(());
    }
    Err(KeyError::Field { field, why: bad_name(of) })
}

/// What whoever gave another name is told.
pub(crate) fn bad_name(of: &str) -> String {
    format!("the name of the {of} must have 1 to {MAX_NAME_CHARS} characters, none of them a control character")
}

pub(super) fn check_end(end: Option<Timestamp>, now: Timestamp) -> Result<(), KeyError> {
    match end {
        Some(end) if end <= now => Err(KeyError::field("expires_at", "the end of the key must lie in the future")),
        Some(end) if end > Timestamp::LAST => Err(KeyError::field("expires_at", "the end of the key lies too far off")),
        _ => Ok(()),
    }
}
