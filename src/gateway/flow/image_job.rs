//! Answers a request for images that passed the rules.

use std::sync::Arc;

use super::gateway_answer::GatewayAnswer;
use super::image_services::ImageServices;
use super::job_context::JobContext;
use super::refusal_count::count_if_refused;
use super::request_options::RequestOptions;
use super::{repeated_request, request_limits, url_answer};
use crate::error::Error;
use crate::gateway::keys::Caller;
use crate::gateway::rules::{Job, SharedTask, TaskRef};

/// Answers the request with its job, or with the answer to an earlier request that it repeats.
///
/// # Errors
///
/// Returns the error that the money rules select from the failed attempts, or [`Error::InProgress`] if the answer
/// deadline has passed.
pub(super) async fn answer_image_request(
    services: &Arc<ImageServices>,
    caller: Caller,
    options: RequestOptions,
    job: Job,
) -> Result<GatewayAnswer, Error> {
    // With an idempotency key, the key alone identifies a repeated request, and the conversation turn of the agent is
    // ignored.
    let turn = options.agent_turn.clone().filter(|_| options.idempotency_key.is_none());
    let wants_urls = job.adaptations().asks_for_urls();
    let task = SharedTask::from(job.with_turn(turn));
    if wants_urls {
        count_if_refused(&services.keys, &caller, url_answer::refuse_stream(&task))?;
    }
    count_if_refused(&services.keys, &caller, request_limits::check(&caller, TaskRef::from(&task)))?;
    let context = Arc::new(JobContext::new(Arc::clone(services), caller, options, task));
    let answer = repeated_request::answer_request(Arc::clone(&context)).await?;
    if wants_urls { url_answer::replace_images(&context, answer).await } else { Ok(answer) }
}
