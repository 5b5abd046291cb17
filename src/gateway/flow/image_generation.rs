//! The operation for generations, from the body of the request to the body of the answer.

use std::sync::Arc;

use chrono::Utc;

use super::delivery::run_image_job;
use super::{GatewayAnswer, RequestOptions, count_if_refused};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::keys::Caller;

/// Handles `POST /v1/images/generations`.
///
/// # Errors
///
/// Returns the broken rule before anything is spent, later the error to which the money rules reduce the failures.
pub(crate) async fn create_image(
    gateway: &Arc<Gateway>,
    caller: Caller,
    options: RequestOptions,
    body: &[u8],
) -> Result<GatewayAnswer, Error> {
    let job = count_if_refused(gateway, &caller, gateway.image_models().check_generation(body, Utc::now()))?;
    run_image_job(gateway, caller, options, job).await
}
