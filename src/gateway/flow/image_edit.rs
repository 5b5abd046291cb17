//! Handles an edit: checks the form and runs the job.

use std::sync::Arc;

use super::delivery::run_image_job;
use super::{GatewayAnswer, RequestOptions, count_if_refused, request_adaptation};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::keys::Caller;
use crate::gateway::spool::EditForm;

/// Handles `POST /v1/images/edits`. The files of the form live as long as the job, for all of its attempts.
///
/// # Errors
///
/// Returns an error if the form breaks a rule; nothing is charged then. Otherwise the error
/// is the one that the money rules select from the failed attempts, [`Error::InProgress`] if the answer deadline has
/// passed, or [`Error::Unavailable`] if the store fails.
pub(crate) async fn edit_image(
    gateway: &Arc<Gateway>,
    caller: Caller,
    options: RequestOptions,
    form: EditForm,
) -> Result<GatewayAnswer, Error> {
    let job = count_if_refused(gateway, &caller, request_adaptation::check_edit(gateway, &caller, &options, form))?;
    run_image_job(gateway, caller, options, job).await
}
