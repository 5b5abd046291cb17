//! Handles a generation: checks the request body and runs the job.

use std::sync::Arc;

use super::delivery::run_image_job;
use super::{GatewayAnswer, RequestOptions, count_if_refused, request_adaptation};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::keys::Caller;

/// Handles `POST /v1/images/generations`.
///
/// # Errors
///
/// Returns an error if the request breaks a rule; nothing is charged then. Otherwise the error
/// is the one that the money rules select from the failed attempts, [`Error::InProgress`] if the answer deadline has
/// passed, or [`Error::Unavailable`] if the store fails.
pub(crate) async fn create_image(
    gateway: &Arc<Gateway>,
    caller: Caller,
    options: RequestOptions,
    body: &[u8],
) -> Result<GatewayAnswer, Error> {
    let job =
        count_if_refused(gateway, &caller, request_adaptation::check_generation(gateway, &caller, &options, body))?;
    run_image_job(gateway, caller, options, job).await
}
