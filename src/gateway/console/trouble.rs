//! What goes wrong in the rooms behind, as the answer that it makes.

use crate::error::{AdminDecision, Conflict, Error, Missing, Reason, Rejection};
use crate::gateway::keys::KeyError;
use crate::gateway::people::PeopleError;
use crate::gateway::store::{KeyLock, StoreError};

/// The store does not answer.
pub(super) fn of_store(error: StoreError) -> Error {
    tracing::error!(error = &error as &dyn std::error::Error, "the store failed an operator");
    Error::Unavailable
}

/// A field that cannot be used, by name.
fn of_field(field: &str, why: &str) -> Error {
    Rejection::new(field, Reason::InvalidValue, format!("Invalid '{field}': {why}.")).into()
}

/// What went wrong with the key of that id or public id.
pub(super) fn of_key(handle: &str) -> impl FnOnce(KeyError) -> Error {
    move |error| match error {
        KeyError::Field { field, why } => of_field(field, &why),
        KeyError::Unknown => Error::NotFound(Missing::Key(handle.to_owned())),
        KeyError::Locked(KeyLock::Admin) => Error::AdminDecision(AdminDecision::Disabled),
        KeyError::Locked(KeyLock::LeftGroup) => Error::AdminDecision(AdminDecision::LeftGroup),
        KeyError::PastLatestEnd(end) => Error::AdminDecision(AdminDecision::LatestEnd(end.to_string())),
        KeyError::TooMany(limit) => Error::Conflict(Conflict::KeyLimit(limit)),
        KeyError::Store(error) => of_store(error),
    }
}

/// What people, links, tokens and groups are, so that what is missing or in the way has its name.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A user.
    User,
    /// An admin token.
    Token,
    /// A group.
    Group,
}

/// What went wrong with the user, token or group of that id or name.
pub(super) fn of_people(kind: Kind, handle: &str) -> impl FnOnce(PeopleError) -> Error {
    move |error| {
        let handle = handle.to_owned();
        match (error, kind) {
            (PeopleError::Field { field, why }, _) => of_field(field, &why),
            (PeopleError::Unknown, Kind::User) => Error::NotFound(Missing::User(handle)),
            (PeopleError::Unknown, Kind::Token) => Error::NotFound(Missing::Token(handle)),
            (PeopleError::Unknown, Kind::Group) => Error::NotFound(Missing::Group(handle)),
            (PeopleError::Taken, Kind::Group) => Error::Conflict(Conflict::GroupExists(handle)),
            (PeopleError::Taken, _) => Error::Conflict(Conflict::UserExists(handle)),
            (PeopleError::LastAdmin, _) => Error::Conflict(Conflict::LastAdmin),
            (PeopleError::OfFile, _) => Error::Conflict(Conflict::GroupReadOnly(handle)),
            (PeopleError::InUse, _) => Error::Conflict(Conflict::GroupInUse(handle)),
            (PeopleError::Store(error), _) => of_store(error),
            // Only signing in ends so, and nobody signs in here.
            (error @ (PeopleError::Wrong | PeopleError::Slow { .. } | PeopleError::Link), _) => {
                tracing::error!(error = &error as &dyn std::error::Error, "an operator was taken for somebody else");
                Error::Internal
            }
        }
    }
}
