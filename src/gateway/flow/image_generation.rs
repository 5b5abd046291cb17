//! Handles a generation: checks the request body and runs the job.

use std::sync::Arc;

use super::gateway_answer::OperationAnswer;
use super::image_job::answer_image_request;
use super::image_services::ImageServices;
use super::refusal_count::count_refusal;
use super::request_adaptation;
use super::request_failure::RequestFailure;
use super::request_options::RequestOptions;
use crate::gateway::admission::CountedJson;
use crate::gateway::keys::Caller;
use crate::wire::types::ImagesResponse;

/// Handles `POST /v1/images/generations`.
///
/// # Errors
///
/// Returns an error if the request breaks a rule; nothing is charged then. Otherwise the error is the one that the money
/// rules select from the failed attempts, [`InProgress`](crate::error::Error::InProgress) if the answer deadline has
/// passed, or [`Unavailable`](crate::error::Error::Unavailable) if the store fails. The failure states how the request was
/// adapted.
pub(crate) async fn create_image(
    services: &Arc<ImageServices>,
    caller: Caller,
    options: RequestOptions,
    body: &CountedJson,
) -> Result<OperationAnswer<ImagesResponse>, RequestFailure> {
    let job = request_adaptation::check_generation(services, &caller, &options, body)
        .await
        .inspect_err(|failure| count_refusal(&services.keys, &caller, &failure.error))?;
    let adapted = job.adapted_text();
    OperationAnswer::from_result(answer_image_request(services, caller, options, job).await, adapted)
}
