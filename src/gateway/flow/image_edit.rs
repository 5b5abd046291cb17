//! Handles an edit: checks the form and runs the job.

use std::sync::Arc;

use super::gateway_answer::OperationAnswer;
use super::image_job::answer_image_request;
use super::image_services::ImageServices;
use super::refusal_count::count_refusal;
use super::request_adaptation;
use super::request_failure::RequestFailure;
use super::request_options::RequestOptions;
use crate::gateway::keys::Caller;
use crate::gateway::spool::EditForm;
use crate::wire::types::ImagesResponse;

/// Handles `POST /v1/images/edits`. The files of the form live as long as the job, for all of its attempts.
///
/// # Errors
///
/// Returns an error if the form breaks a rule; nothing is charged then. Otherwise the error is the one that the money
/// rules select from the failed attempts, [`InProgress`](crate::error::Error::InProgress) if the answer deadline has
/// passed, or [`Unavailable`](crate::error::Error::Unavailable) if the store fails. The failure states how the request was
/// adapted.
pub(crate) async fn edit_image(
    services: &Arc<ImageServices>,
    caller: Caller,
    options: RequestOptions,
    form: EditForm,
) -> Result<OperationAnswer<ImagesResponse>, RequestFailure> {
    let job = request_adaptation::check_edit(services, &caller, &options, form)
        .await
        .inspect_err(|failure| count_refusal(&services.keys, &caller, &failure.error))?;
    let adapted = job.adapted_text();
    OperationAnswer::from_result(answer_image_request(services, caller, options, job).await, adapted)
}
