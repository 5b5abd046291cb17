//! The operation for responses, from the body of the request to the body of the answer.

use std::sync::Arc;

use chrono::Utc;
use http::HeaderMap;

use super::attempt::{JobFailure, JobSuccess};
use super::gateway_answer::GatewayAnswer;
use super::image_delivery::{self, ClosingContext, DeliveryComparison};
use super::job_context::JobContext;
use super::{
    RequestOptions, attempt, count_if_refused, group_permissions, outcome, prompt_screening, repeated_request,
    unreadable_body_error,
};
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault};
use crate::gateway::Gateway;
use crate::gateway::accounts::ResponseAccount;
use crate::gateway::config::DeliveryPolicy;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{JobOutcome, OpenRecord, RecordDraft};
use crate::gateway::relay::RelayBody;
use crate::gateway::replay::AnswerSender;
use crate::gateway::rules::{ImageTool, ResponseJob, SharedTask, TaskRef};
use crate::gateway::spool::SpooledBytes;
use crate::image::ImageProperties;

/// Handles `POST /v1/responses`.
///
/// # Errors
///
/// Returns the broken rule before anything is spent, later the error to which the money rules reduce the failures.
pub(crate) async fn create_response(
    gateway: &Arc<Gateway>,
    caller: Caller,
    options: RequestOptions,
    headers: &HeaderMap,
    body: SpooledBytes,
) -> Result<GatewayAnswer, Error> {
    let job = count_if_refused(gateway, &caller, check_request(gateway, headers, body).await)?;
    count_if_refused(gateway, &caller, group_permissions::check(gateway, caller.group_name(), &job))?;
    let job = count_if_refused(gateway, &caller, bind_to_previous_account(gateway, &caller, job).await)?;
    let injects = gateway.injects_image_tool(caller.group_name()) && job.may_inject_image_tool();
    let job = if injects { job.with_image_tool() } else { job };
    tracing::debug!(key = %caller.public_id(), images = job.image_tool().is_some(), injects, "a response begins");
    // An idempotency key alone decides which requests are the same, so the turn does not count then.
    let turn = options.agent_turn.clone().filter(|_| options.idempotency_key.is_none());
    let task = SharedTask::from(job.with_turn(turn));
    repeated_request::answer_request(Arc::new(JobContext::new(gateway, caller, options, task))).await
}

/// Checks a request against the rules, which reads all of its body.
async fn check_request(gateway: &Arc<Gateway>, headers: &HeaderMap, body: SpooledBytes) -> Result<ResponseJob, Error> {
    let (received, whole) = (Utc::now(), body.clone());
    let (rules, headers) = (Arc::clone(gateway), headers.clone());
    let check = move || rules.image_models().check_response(body, &headers, received);
    whole.read_with(check).await.map_err(|error| unreadable_body_error(&error))?
}

/// Makes the response to a request whose intent is recorded.
pub(super) async fn make_response(
    context: &Arc<JobContext>,
    job: &Arc<ResponseJob>,
    mut record: OpenRecord,
    answer_sender: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<GatewayAnswer, Error> {
    let (gateway, group) = (&context.gateway, context.caller.group_name());
    let success = match run_attempts(context, job, &mut record, answer_sender).await {
        Ok(won) => won,
        Err(JobFailure::Abandoned) => {
            image_delivery::close_record(record, JobOutcome::cancelled()).await;
            return Err(Error::Unavailable);
        }
        Err(JobFailure::Failed(error, last)) => {
            image_delivery::close_record(record, outcome::failed_outcome(&error, last)).await;
            return Err(error);
        }
    };
    record.mark_first_byte();
    let first = success.proven.first_image();
    let tool = job.image_tool().filter(|_| !success.was_tool_removed);
    let comparison =
        first.zip(tool).map_or(DeliveryComparison::Unknown, |(facts, tool)| compare_with_tool(tool, facts));
    let refused = comparison == DeliveryComparison::Mismatch && gateway.delivery_policy(group) == DeliveryPolicy::Fail;
    let headers = image_delivery::answer_headers(success.is_simulated, first, comparison, None);
    // The model chooses the number of images.
    let cutoff = gateway.cutoff().clone();
    let closing_context = ClosingContext {
        gateway: Arc::clone(gateway),
        requested_count: 0,
        // The answer names the model that made the images.
        model: None,
        quality: tool.and_then(|tool| image_delivery::explicit_quality(tool.quality.as_deref())),
        failed_call_usage: success.failed_call_usage,
        is_refused: refused,
        span: tracing::Span::current(),
        job_context: Some(Arc::clone(context)),
    };
    let lease = success.lease;
    let on_end = Box::new(move |ending, summary| {
        image_delivery::close_delivery(record, lease, ending, summary, closing_context)
    });
    let body =
        RelayBody::new(success.proven, Error::Upstream(UpstreamFault::Broken).event(), on_end).with_cutoff(&cutoff);
    if refused {
        // The caller does not get the rest of the answer, but its tokens were paid for: dropping the body reads them.
        drop(body);
        return Err(Error::Upstream(UpstreamFault::Mismatch));
    }
    Ok(GatewayAnswer::from_upstream(job.is_stream(), headers, body))
}

/// Makes the attempts. A task that may draw is screened like a prompt; the operator's filter is not meant for talk.
async fn run_attempts(
    context: &JobContext,
    job: &Arc<ResponseJob>,
    record: &mut OpenRecord,
    answer_sender: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<JobSuccess, JobFailure> {
    if job.image_tool().is_some() {
        let checked = prompt_screening::check_response(&context.gateway, context.caller.group_name(), job).await;
        checked.map_err(|error| JobFailure::Failed(error, None))?;
    }
    attempt::run(context.attempt_context(answer_sender), TaskRef::from(&**job), record).await
}

/// Compares an image with its tool. `auto` is never a mismatch.
fn compare_with_tool(tool: &ImageTool, facts: ImageProperties) -> DeliveryComparison {
    let size = tool.size.exact().is_none_or(|size| (size.width(), size.height()) == (facts.width, facts.height));
    if size && facts.format == tool.format { DeliveryComparison::Match } else { DeliveryComparison::Mismatch }
}

/// Restricts a request that continues an earlier response to the account that made that response: no other has it.
async fn bind_to_previous_account(gateway: &Gateway, caller: &Caller, job: ResponseJob) -> Result<ResponseJob, Error> {
    let Some(id) = job.previous_response_id() else { return Ok(job) };
    let maker = gateway.accounts().account_of_response(id, caller).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "the account of a response could not be looked up");
        Error::Unavailable
    })?;
    let refuse = |why| {
        let message = format!("{why} Send the conversation as 'input' instead.");
        Rejection::new("previous_response_id", RejectionReason::InvalidValue, message)
    };
    match maker {
        ResponseAccount::Serves(account) => Ok(job.for_account(account)),
        ResponseAccount::Gone => {
            Err(refuse("The account that made the response in 'previous_response_id' is no longer available.").into())
        }
        ResponseAccount::Unknown => {
            Err(refuse("This gateway made no response with the id in 'previous_response_id'.").into())
        }
    }
}

pub(super) fn record_draft(context: &JobContext, job: &ResponseJob) -> RecordDraft {
    let (tool, caller) = (job.image_tool(), &context.caller);
    RecordDraft {
        request_id: context.options.request_id.as_str().into(),
        operation: "create_response",
        model: Some(job.model().to_owned()),
        stream: job.is_stream(),
        size: tool.map(|tool| tool.size.to_string()),
        quality: tool.map(|tool| tool.quality.as_deref().unwrap_or("auto").to_owned()),
        output_format: tool.map(|tool| tool.format.as_str().to_owned()),
        n: None,
        account: context.gateway.accounts().likely_account(job, caller),
        group: caller.group_name().to_owned(),
        user: caller.user().clone(),
        key: caller.key().clone(),
        end_user: job.end_user().map(str::to_owned),
        injected_tool: job.is_tool_injected(),
        fingerprint: context.fingerprint(),
    }
}
