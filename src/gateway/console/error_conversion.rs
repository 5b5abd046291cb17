//! Converts the errors of the modules `store`, `keys` and `people` to the errors of the admin API.

use crate::error::{AdminDecision, Error, MissingResource, Rejection, RejectionReason, ResourceConflict};
use crate::gateway::keys::KeyError;
use crate::gateway::people::IdentityError;
use crate::gateway::store::{KeyLock, StoreError};

/// Converts an error of the store.
pub(super) fn from_store_error(error: StoreError) -> Error {
    tracing::error!(error = &error as &dyn std::error::Error, "the store failed during a request to the admin API");
    Error::Unavailable
}

/// Returns the error for a field that cannot be used.
pub(super) fn field_rejection(field: &str, reason: &str) -> Error {
    Rejection::new(field, RejectionReason::InvalidValue, format!("Invalid '{field}': {reason}.")).into()
}

/// Converts an error about the key with this id or public id.
pub(super) fn from_key_error(handle: &str) -> impl FnOnce(KeyError) -> Error {
    move |error| match error {
        KeyError::InvalidField { field, why } => field_rejection(field, &why),
        KeyError::Unknown => Error::NotFound(MissingResource::Key(handle.to_owned())),
        KeyError::Locked(KeyLock::Admin) => Error::AdminDecision(AdminDecision::Disabled),
        KeyError::Locked(KeyLock::LeftGroup) => Error::AdminDecision(AdminDecision::LeftGroup),
        KeyError::PastLatestEnd(end) => Error::AdminDecision(AdminDecision::LatestEnd(end.to_string())),
        KeyError::TooMany(limit) => Error::Conflict(ResourceConflict::KeyLimit(limit)),
        KeyError::Store(error) => from_store_error(error),
    }
}

/// The kind of object that an error is about, so that the answer names it.
#[derive(Clone, Copy)]
pub(super) enum ErrorSubject {
    /// A user.
    User,
    /// An admin token.
    Token,
    /// A group.
    Group,
}

/// Converts an error about the user, token or group with this id or name.
pub(super) fn from_identity_error(subject: ErrorSubject, handle: &str) -> impl FnOnce(IdentityError) -> Error {
    move |error| {
        let handle = handle.to_owned();
        match (error, subject) {
            (IdentityError::InvalidField { field, why }, _) => field_rejection(field, &why),
            (IdentityError::Unknown, ErrorSubject::User) => Error::NotFound(MissingResource::User(handle)),
            (IdentityError::Unknown, ErrorSubject::Token) => Error::NotFound(MissingResource::Token(handle)),
            (IdentityError::Unknown, ErrorSubject::Group) => Error::NotFound(MissingResource::Group(handle)),
            (IdentityError::NameTaken, ErrorSubject::Group) => Error::Conflict(ResourceConflict::GroupExists(handle)),
            (IdentityError::NameTaken, _) => Error::Conflict(ResourceConflict::UserExists(handle)),
            (IdentityError::TooManyTokens(limit), _) => Error::Conflict(ResourceConflict::TokenLimit(limit)),
            (IdentityError::LastAdmin, _) => Error::Conflict(ResourceConflict::LastAdmin),
            (IdentityError::DefinedInFile, _) => Error::Conflict(ResourceConflict::GroupReadOnly(handle)),
            (IdentityError::InUse, _) => Error::Conflict(ResourceConflict::GroupInUse(handle)),
            (IdentityError::Store(error), _) => from_store_error(error),
            // Only a sign-in returns these errors, and the admin API has no sign-in.
            (
                error @ (IdentityError::WrongCredentials
                | IdentityError::TooManyAttempts { .. }
                | IdentityError::InvalidLink),
                _,
            ) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a sign-in error occurred in the admin API, which has no sign-in"
                );
                Error::Internal
            }
        }
    }
}
