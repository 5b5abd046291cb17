//! Handles a request for a response: checks the body and runs the job.

use std::sync::Arc;

use http::HeaderMap;

use super::gateway_answer::GatewayAnswer;
use super::job_context::JobContext;
use super::{
    RequestFailure, RequestOptions, count_if_refused, count_refusal, group_permissions, repeated_request,
    request_adaptation, request_limits, strict_budget,
};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::Gateway;
use crate::gateway::accounts::ResponseAccount;
use crate::gateway::keys::Caller;
use crate::gateway::rules::{ResponseJob, SharedTask, TaskRef};
use crate::gateway::spool::SpooledBytes;

/// Handles `POST /v1/responses`.
///
/// # Errors
///
/// Returns an error if the request breaks a rule; nothing is charged then. Otherwise the error
/// is the one that the money rules select from the failed attempts, [`Error::InProgress`] if the answer deadline has
/// passed, or [`Error::Unavailable`] if the store fails. The failure states how the request was adapted.
pub(crate) async fn create_response(
    gateway: &Arc<Gateway>,
    caller: Caller,
    options: RequestOptions,
    headers: &HeaderMap,
    body: SpooledBytes,
) -> Result<GatewayAnswer, RequestFailure> {
    let job = request_adaptation::check_response(gateway, &caller, headers, body)
        .await
        .inspect_err(|failure| count_refusal(gateway, &caller, &failure.error))?;
    let adapted = job.adapted_text();
    let bounded = count_if_refused(gateway, &caller, strict_budget::bound(gateway, &caller, job));
    let job = bounded.map_err(|error| RequestFailure::new(error, adapted))?;
    let adapted = job.adapted_text();
    match answer_job(gateway, caller, options, job).await {
        Ok(answer) => Ok(answer.with_adapted_mark(adapted)),
        Err(error) => Err(RequestFailure::new(error, adapted)),
    }
}

/// Runs a job that passed every rule, unless its group or a limit does not allow it.
async fn answer_job(
    gateway: &Arc<Gateway>,
    caller: Caller,
    options: RequestOptions,
    job: ResponseJob,
) -> Result<GatewayAnswer, Error> {
    count_if_refused(gateway, &caller, group_permissions::check(gateway, caller.group_name(), &job))?;
    let job = count_if_refused(gateway, &caller, bind_to_previous_account(gateway, &caller, job).await)?;
    let job = inject_image_tool(gateway, &caller, job);
    let (has_images, injects) = (job.image_tool().is_some(), job.is_tool_injected());
    tracing::debug!(key = %caller.public_id(), images = has_images, injects, "a response begins");
    // With an idempotency key, the key alone identifies a repeated request, and the conversation turn of the agent is
    // ignored.
    let turn = options.agent_turn.clone().filter(|_| options.idempotency_key.is_none());
    let task = SharedTask::from(job.with_turn(turn));
    count_if_refused(gateway, &caller, request_limits::check(gateway, &caller, TaskRef::from(&task)))?;
    repeated_request::answer_request(Arc::new(JobContext::new(gateway, caller, options, task))).await
}

/// Adds an image tool to the request of an agent, if the group says so. A limit that does not allow the tool must not
/// refuse a request whose caller has not asked for an image.
fn inject_image_tool(gateway: &Gateway, caller: &Caller, job: ResponseJob) -> ResponseJob {
    if !gateway.injects_image_tool(caller.group_name()) || !job.may_inject_image_tool() {
        return job;
    }
    let job = job.with_image_tool();
    match request_limits::check(gateway, caller, TaskRef::from(&job)) {
        Ok(()) => job,
        Err(_) => job.without_injected_tool(),
    }
}

/// Restricts a request that continues an earlier response to the account that made that response, because only
/// that account has it.
async fn bind_to_previous_account(gateway: &Gateway, caller: &Caller, job: ResponseJob) -> Result<ResponseJob, Error> {
    let Some(id) = job.previous_response_id() else { return Ok(job) };
    let account = gateway.accounts().account_of_response(id, caller).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "the account of a response could not be looked up");
        Error::Unavailable
    })?;
    let refuse = |reason| {
        let message = format!("{reason} Send the conversation as 'input' instead.");
        Rejection::new("previous_response_id", RejectionReason::InvalidValue, message)
    };
    match account {
        ResponseAccount::Serves(account) => Ok(job.for_account(account)),
        ResponseAccount::Gone => {
            Err(refuse("The account that made the response in 'previous_response_id' is no longer available.").into())
        }
        ResponseAccount::Unknown => {
            Err(refuse("This gateway made no response with the id in 'previous_response_id'.").into())
        }
    }
}
