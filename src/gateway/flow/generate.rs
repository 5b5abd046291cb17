//! The operation for generations, from the body of the request to the body of the answer.

use std::sync::Arc;

use chrono::Utc;

use super::deliver::deliver;
use super::{GatewayAnswer, RequestOptions, counted};
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
    ask: RequestOptions,
    body: &[u8],
) -> Result<GatewayAnswer, Error> {
    let job = counted(gateway, &caller, gateway.image_models().generation(body, Utc::now()))?;
    deliver(gateway, caller, ask, job).await
}
