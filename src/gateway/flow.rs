//! The order in which the other modules of the gateway handle a request. Only this module knows that order.
//!
//! Each operation has its own file. A request for images or a response passes these steps: `Caller` → `Job` → `Lease` →
//! `Reply` → `Record`; `Lease` and `Reply` repeat for each attempt. All such requests share one attempt loop
//! ([`attempt_loop`]).

mod account_call;
mod answer_size;
mod attempt_context;
mod attempt_deadlines;
mod attempt_history;
mod attempt_loop;
mod attempt_round;
mod attempt_types;
mod caller_error;
mod cost_estimate;
mod delivered_images;
mod detachable_job;
mod early_stream;
mod fallback_order;
mod fan_out;
mod fan_out_branch;
mod fan_out_progress;
mod format_conversion;
mod gateway_answer;
mod gif_conversion;
mod group_permissions;
mod image_edit;
mod image_estimate;
mod image_files;
mod image_generation;
mod image_job;
mod image_models;
mod image_run;
mod job_closing;
mod job_context;
mod job_run;
mod models;
mod prompt_screening;
mod record_draft;
mod repeated_request;
mod request_adaptation;
mod request_failure;
mod request_limits;
mod request_options;
mod request_work;
mod response_creation;
mod shared_record;
mod strict_budget;
mod token_usage;
mod url_answer;
mod wait_preference;

pub(crate) use gateway_answer::{ADAPTED_HEADER, GatewayAnswer, GatewayAnswerBody, OperationAnswer};
pub(crate) use image_edit::edit_image;
pub(crate) use image_estimate::estimate_image;
pub(crate) use image_files::{LinkedImage, base_url, find_linked_image, link_paths};
pub(crate) use image_generation::create_image;
pub(crate) use image_models::{allowed_models, list_image_models};
pub(crate) use image_run::{
    IMAGE_OPERATIONS, ImageFileBody, find_image_run, find_image_run_by_id, list_image_runs, open_image,
};
pub(crate) use models::{list_models, retrieve_model};
pub(crate) use request_failure::RequestFailure;
pub(crate) use request_options::{RequestOptions, read_host};
pub(crate) use request_work::{begin_of_actor, check_upload, count_repeat};
pub(crate) use response_creation::create_response;

use super::Gateway;
use super::keys::{AuthenticationError, Caller, PublicId, UserId};
use super::store::StoreError;
use super::work::Work;
use crate::error::Error;

/// Turns the API key of a request into a `Caller`, and begins its work.
///
/// # Errors
///
/// Returns 401 for every invalid key, 429 if the user, the key or the group has no work left, and 503 if the store cannot be read or if the settings of the group are not in
/// force yet.
pub(crate) async fn admit(gateway: &Gateway, authorization: Option<&[u8]>) -> Result<Caller, Error> {
    let caller = gateway.keys().authenticate(authorization, gateway.groups()).await.map_err(|error| match error {
        AuthenticationError::Invalid => Error::InvalidKey,
        AuthenticationError::Unavailable(error) => unreadable_keys_error(&error),
    })?;
    check_group(gateway, caller).await
}

/// Returns the `Caller` for a key that its owner, who is signed in, uses on a page.
///
/// # Errors
///
/// Returns 401 if the user has no such key or the key is not valid, and otherwise the errors of [`admit`].
pub(crate) async fn admit_owner(gateway: &Gateway, key: &PublicId, owner: &UserId) -> Result<Caller, Error> {
    let caller = gateway
        .keys()
        .find_caller(key, owner, gateway.groups())
        .await
        .map_err(|error| unreadable_keys_error(&error))?;
    check_group(gateway, caller.ok_or(Error::InvalidKey)?).await
}

fn unreadable_keys_error(error: &StoreError) -> Error {
    tracing::error!(error = error as &dyn std::error::Error, "the store could not check a key");
    Error::Unavailable
}

/// Begins the work of the caller, if its group can be served now.
async fn check_group(gateway: &Gateway, caller: Caller) -> Result<Caller, Error> {
    let group = caller.group_name();
    // The store may have settings for the group that come into force at the next refresh, as for a group that was created a
    // moment ago. It must not be served with the default settings until then.
    if !gateway.groups().contains(group)
        && gateway.people().has_policy(group).await.map_err(|error| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the settings of a group could not be read from the store"
            );
            Error::Unavailable
        })?
    {
        return Err(Error::Unavailable);
    }
    request_work::begin(gateway, caller)
}

/// Returns the error for a request whose body could not be read back from disk: the request itself is not at fault.
fn unreadable_body_error(error: &std::io::Error) -> Error {
    tracing::error!(%error, "a request body could not be read back from the spool");
    Error::Unavailable
}

/// Returns the result of reading a request, and counts an unusable request for its API key, because it leaves no
/// record.
///
/// # Errors
///
/// Returns the error of `result`.
pub(crate) fn count_if_refused<T, E: Into<Error>>(
    gateway: &Gateway,
    caller: &Caller,
    result: Result<T, E>,
) -> Result<T, Error> {
    result.map_err(|error| {
        let error = error.into();
        count_refusal(gateway, caller, &error);
        error
    })
}

/// Counts an unusable request for its API key, if this error states that it is one.
fn count_refusal(gateway: &Gateway, caller: &Caller, error: &Error) {
    // A request whose caller left is not counted as refused, and a request that exceeds a current limit may be accepted
    // later.
    if matches!(error.code().status(), 400 | 404 | 413 | 415) {
        note_refusal(gateway, caller);
    }
}

/// Counts an unusable request for its API key.
pub(crate) fn note_refusal(gateway: &Gateway, caller: &Caller) {
    gateway.keys().note_refusal(caller);
    caller.charge(Work::Refusal);
}
