//! An edit, from the form to the body of the answer.

use std::sync::Arc;

use chrono::Utc;

use super::deliver::deliver;
use super::{Ask, Made, counted};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::keys::Caller;
use crate::gateway::spool::EditForm;

/// `POST /v1/images/edits`. The files of the form live as long as the job: every attempt can send them again.
///
/// # Errors
///
/// Before anything is spent: what breaks a rule. After that: what the money rules make of the failed attempts.
pub(crate) async fn edit_image(
    gateway: &Arc<Gateway>,
    caller: Caller,
    ask: Ask,
    form: EditForm,
) -> Result<Made, Error> {
    let job = counted(gateway, &caller, gateway.image_models().edit(form, Utc::now()))?;
    deliver(gateway, caller, ask, job).await
}
