//! The errors of sign-in and of changes to users, groups, links and tokens.

use std::time::Duration;

use crate::gateway::store::StoreError;

/// The reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    /// The name or the password is wrong, or the user may not sign in. The error has no details, because they would
    /// reveal which users exist.
    #[error("the name or the password is wrong")]
    WrongCredentials,
    /// There were too many attempts.
    #[error("too many attempts; try again in {} seconds", retry_after.as_secs())]
    TooManyAttempts {
        /// The time until the next attempt is allowed, in whole seconds.
        retry_after: Duration,
    },
    /// The link was used, has expired, or never existed.
    #[error("the link is invalid, used or expired")]
    InvalidLink,
    /// A value is invalid.
    #[error("{why}")]
    InvalidField {
        /// The field, such as `name`, `password` or `groups`.
        field: &'static str,
        /// The message for the sender of the request.
        why: String,
    },
    /// The change would leave no admin who can sign in.
    #[error("the last admin who can sign in must remain an admin")]
    LastAdmin,
    /// The user has as many admin tokens as a user can have.
    #[error("the user has {0} admin tokens, and can have no more: delete one first")]
    TooManyTokens(u32),
    /// The name is already used.
    #[error("the name is already used")]
    NameTaken,
    /// There is no such object, or it belongs to another user.
    #[error("nothing has this name or id")]
    Unknown,
    /// The object is defined in the settings file, and can only be changed there.
    #[error("it is defined in the settings file and can only be changed there")]
    DefinedInFile,
    /// The group has keys, or it is the default group, which cannot be deleted.
    #[error("the group has keys")]
    InUse,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl IdentityError ===

impl IdentityError {
    pub(super) fn field(field: &'static str, why: impl Into<String>) -> Self {
        Self::InvalidField { field, why: why.into() }
    }
}
