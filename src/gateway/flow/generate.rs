//! A generation, from the body of the request to the body of the answer.

use std::sync::Arc;

use chrono::Utc;

use super::deliver::deliver;
use super::{Ask, Made, counted};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::keys::Caller;

/// `POST /v1/images/generations`.
///
/// # Errors
///
/// Before anything is spent: what breaks a rule. After that: what the money rules make of the failed attempts.
pub(crate) async fn create_image(gateway: &Arc<Gateway>, caller: Caller, ask: Ask, body: &[u8]) -> Result<Made, Error> {
    let job = counted(gateway, &caller, gateway.image_models().generation(body, Utc::now()))?;
    deliver(gateway, caller, ask, job).await
}
