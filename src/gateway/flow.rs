//! The order in which the other modules of the gateway handle a request. Only this module knows that order.
//!
//! Each operation has a file of its own. A request goes through once: `Caller` → `Job` → `Lease` → `Reply` → `Record`.
//! The attempt loop ([`attempt`]) exists once, for every operation.

mod again;
mod ask;
mod asker;
mod attempt;
mod call;
mod deliver;
mod early;
mod edit;
mod generate;
mod ladder;
mod made;
mod models;
mod outcome;
mod parts;
mod permit;
mod reason;
mod respond;
mod screen;
mod sheet;
mod siblings;
mod terms;
mod work;

pub(crate) use ask::RequestOptions;
pub(crate) use edit::edit_image;
pub(crate) use generate::create_image;
pub(crate) use made::{GatewayAnswer, GatewayAnswerBody};
pub(crate) use models::{list_models, retrieve_model};
pub(crate) use respond::create_response;

use super::Gateway;
use super::keys::{AdmissionError, Caller};
use crate::error::Error;

/// Turns the API key of a request into a `Caller`.
///
/// # Errors
///
/// Returns 401 for every invalid key, and 503 if the store cannot be read or if the settings of the group are not in
/// force yet.
pub(crate) async fn admit(gateway: &Gateway, authorization: Option<&[u8]>) -> Result<Caller, Error> {
    let caller = gateway.keys().admit(authorization).await.map_err(|denied| match denied {
        AdmissionError::Invalid => Error::InvalidKey,
        AdmissionError::Unavailable(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the store could not check a key");
            Error::Unavailable
        }
    })?;
    match gateway.knows_group(caller.group_name()).await {
        Ok(true) => Ok(caller),
        // The settings come into force at the next group refresh.
        Ok(false) => Err(Error::Unavailable),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the settings of a group could not be read from the store"
            );
            Err(Error::Unavailable)
        }
    }
}

/// Returns the error for a request whose body could not be read back from disk: the request itself is not at fault.
fn unreadable(error: &std::io::Error) -> Error {
    tracing::error!(%error, "a request body could not be read back from the spool");
    Error::Unavailable
}

/// Passes on the result of reading a request. An unusable request leaves no record, so it is counted for its API key.
///
/// # Errors
///
/// The error of `read`.
pub(crate) fn counted<T, E: Into<Error>>(gateway: &Gateway, caller: &Caller, read: Result<T, E>) -> Result<T, Error> {
    read.map_err(|error| {
        let error = error.into();
        // A request whose caller left is not counted as refused, and a request that exceeds a current limit may be
        // accepted later.
        if matches!(error.code().status(), 400 | 404 | 413 | 415) {
            gateway.keys().note_refusal(caller);
        }
        error
    })
}
