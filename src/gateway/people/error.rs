//! Why people are not let in, or not changed.

use std::time::Duration;

use crate::gateway::store::StoreError;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeopleError {
    /// No such name, or another password, or nobody who may sign in. There are no finer kinds: they would tell a stranger
    /// who exists.
    #[error("the name or the password is wrong")]
    Wrong,
    /// Too many tries.
    #[error("too many tries; try again in {} seconds", retry_after.as_secs())]
    Slow {
        /// When the next one may come, in whole seconds.
        retry_after: Duration,
    },
    /// The link was used, is over, or never was one.
    #[error("the link is not good, or not any more")]
    Link,
    /// What was given cannot be used.
    #[error("{why}")]
    Field {
        /// Such as `name`, `password` or `groups`.
        field: &'static str,
        /// A sentence for whoever gave it.
        why: String,
    },
    /// Nobody would be left who can sign in and do everything.
    #[error("the last admin who can sign in must stay one")]
    LastAdmin,
    /// Somebody or something has that name.
    #[error("there is one of that name already")]
    Taken,
    /// There is none, or it is somebody else's.
    #[error("there is none of that name or id")]
    Unknown,
    /// It stands in the settings, which alone can change it.
    #[error("it stands in the configuration file, which alone can change it")]
    OfFile,
    /// Keys are in the group.
    #[error("there are keys in the group")]
    InUse,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl PeopleError ===

impl PeopleError {
    pub(super) fn field(field: &'static str, why: impl Into<String>) -> Self {
        Self::Field { field, why: why.into() }
    }
}
