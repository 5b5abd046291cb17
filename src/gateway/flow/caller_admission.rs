//! Turns the API key of a request into a [`Caller`], and begins the work of the request.

use super::image_services::ImageServices;
use super::request_work;
use crate::error::Error;
use crate::gateway::keys::{AuthenticationError, Caller, PublicId, UserId};
use crate::gateway::store::StoreError;

/// Turns the API key of a request into a `Caller`, and begins its work.
///
/// # Errors
///
/// Returns 401 for every invalid key, 429 if the user, the key or the group has no work left, and 503 if the store cannot be
/// read or if the settings of the group are not in force yet.
pub(crate) async fn admit(services: &ImageServices, authorization: Option<&[u8]>) -> Result<Caller, Error> {
    let authenticated = services.keys.authenticate(authorization, &services.settings.groups).await;
    let caller = authenticated.map_err(|error| match error {
        AuthenticationError::Invalid => Error::InvalidKey,
        AuthenticationError::Unavailable(error) => unreadable_keys_error(&error),
    })?;
    check_group(services, caller).await
}

/// Returns the `Caller` for a key that its owner, who is signed in, uses on a page.
///
/// # Errors
///
/// Returns 401 if the user has no such key or the key is not valid, and otherwise the errors of [`admit`].
pub(crate) async fn admit_owner(services: &ImageServices, key: &PublicId, owner: &UserId) -> Result<Caller, Error> {
    let caller = services.keys.find_caller(key, owner, &services.settings.groups).await;
    check_group(services, caller.map_err(|error| unreadable_keys_error(&error))?.ok_or(Error::InvalidKey)?).await
}

fn unreadable_keys_error(error: &StoreError) -> Error {
    tracing::error!(error = error as &dyn std::error::Error, "the store could not check a key");
    Error::Unavailable
}

/// Begins the work of the caller, if its group can be served now. The store may have settings for the group that come into
/// force at the next refresh, as for a group that was created a moment ago. It must not be served with the default settings
/// until then.
async fn check_group(services: &ImageServices, caller: Caller) -> Result<Caller, Error> {
    let group = caller.group_name();
    if !services.settings.groups.contains(group) {
        let has_policy = services.people.has_policy(group).await.map_err(|error| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the settings of a group could not be read from the store"
            );
            Error::Unavailable
        })?;
        if has_policy {
            return Err(Error::Unavailable);
        }
    }
    request_work::begin(services, caller)
}
