//! The operation for responses, from the body of the request to the body of the answer.

use std::sync::Arc;

use chrono::Utc;
use http::HeaderMap;

use super::attempt::{JobFailure, JobSuccess};
use super::deliver::{self, ClosingContext, DeliveryComparison};
use super::made::GatewayAnswer;
use super::work::JobContext;
use super::{RequestOptions, again, attempt, counted, outcome, permit, screen, unreadable};
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
    ask: RequestOptions,
    headers: &HeaderMap,
    body: SpooledBytes,
) -> Result<GatewayAnswer, Error> {
    let job = counted(gateway, &caller, check(gateway, headers, body).await)?;
    counted(gateway, &caller, permit::check(gateway, caller.group_name(), &job))?;
    let job = counted(gateway, &caller, at_its_maker(gateway, &caller, job).await)?;
    let injects = gateway.injects_tool(caller.group_name()) && job.lacks_tool();
    let job = if injects { job.with_tool() } else { job };
    tracing::debug!(key = %caller.public_id(), images = job.tool().is_some(), injects, "a response begins");
    // An idempotency key alone decides which requests are the same, so the turn does not count then.
    let turn = ask.turn.clone().filter(|_| ask.idempotency_key.is_none());
    let task = SharedTask::from(job.within(turn));
    again::answer(Arc::new(JobContext::new(gateway, caller, ask, task))).await
}

/// Checks a request against the rules, which reads all of its body.
async fn check(gateway: &Arc<Gateway>, headers: &HeaderMap, body: SpooledBytes) -> Result<ResponseJob, Error> {
    let (received, whole) = (Utc::now(), body.clone());
    let (rules, headers) = (Arc::clone(gateway), headers.clone());
    let check = move || rules.image_models().response(body, &headers, received);
    whole.reading(check).await.map_err(|error| unreadable(&error))?
}

/// Makes the response to a request whose intent is recorded.
pub(super) async fn make(
    work: &Arc<JobContext>,
    job: &Arc<ResponseJob>,
    mut record: OpenRecord,
    promise: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<GatewayAnswer, Error> {
    let (gateway, group) = (&work.gateway, work.caller.group_name());
    let won = match attempts(work, job, &mut record, promise).await {
        Ok(won) => won,
        Err(JobFailure::Abandoned) => {
            deliver::settle(record, JobOutcome::cancelled()).await;
            return Err(Error::Unavailable);
        }
        Err(JobFailure::Failed(error, last)) => {
            deliver::settle(record, outcome::failed(&error, last)).await;
            return Err(error);
        }
    };
    record.mark_first_byte();
    let first = won.proven.first();
    let tool = job.tool().filter(|_| !won.plain);
    let verdict = first.zip(tool).map_or(DeliveryComparison::Unknown, |(facts, tool)| judge(tool, facts));
    let refused = verdict == DeliveryComparison::Mismatch && gateway.delivery(group) == DeliveryPolicy::Fail;
    let headers = deliver::headers(won.simulated, first, verdict, None);
    // The model chooses the number of images.
    let cutoff = gateway.cutoff().clone();
    let terms = ClosingContext {
        gateway: Arc::clone(gateway),
        asked: 0,
        // The answer names the model that made the images.
        model: None,
        quality: tool.and_then(|tool| deliver::concrete(tool.quality.as_deref())),
        charged: won.charged,
        refused,
        span: tracing::Span::current(),
        work: Some(Arc::clone(work)),
    };
    let lease = won.lease;
    let on_end = Box::new(move |ending, summary| deliver::close(record, lease, ending, summary, terms));
    let body = RelayBody::new(won.proven, Error::Upstream(UpstreamFault::Broken).event(), on_end).until(&cutoff);
    if refused {
        // The caller does not get the rest of the answer, but its tokens were paid for: dropping the body reads them.
        drop(body);
        return Err(Error::Upstream(UpstreamFault::Mismatch));
    }
    Ok(GatewayAnswer::live(job.stream(), headers, body))
}

/// Makes the attempts. A task that may draw is screened like a prompt; the operator's filter is not meant for talk.
async fn attempts(
    work: &JobContext,
    job: &Arc<ResponseJob>,
    record: &mut OpenRecord,
    promise: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<JobSuccess, JobFailure> {
    if job.tool().is_some() {
        let checked = screen::check_task(&work.gateway, work.caller.group_name(), job).await;
        checked.map_err(|error| JobFailure::Failed(error, None))?;
    }
    attempt::run(work.asker(promise), TaskRef::from(&**job), record).await
}

/// Compares an image with its tool. `auto` is never a mismatch.
fn judge(tool: &ImageTool, facts: ImageProperties) -> DeliveryComparison {
    let size = tool.size.exact().is_none_or(|size| (size.width(), size.height()) == (facts.width, facts.height));
    if size && facts.format == tool.format { DeliveryComparison::Match } else { DeliveryComparison::Mismatch }
}

/// Restricts a request that continues an earlier response to the account that made that response: no other has it.
async fn at_its_maker(gateway: &Gateway, caller: &Caller, job: ResponseJob) -> Result<ResponseJob, Error> {
    let Some(id) = job.previous() else { return Ok(job) };
    let maker = gateway.accounts().maker_of(id, caller).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "the account of a response could not be looked up");
        Error::Unavailable
    })?;
    let refuse = |why| {
        let message = format!("{why} Send the conversation as 'input' instead.");
        Rejection::new("previous_response_id", RejectionReason::InvalidValue, message)
    };
    match maker {
        ResponseAccount::Serves(account) => Ok(job.only_at(account)),
        ResponseAccount::Gone => {
            Err(refuse("The account that made the response in 'previous_response_id' is no longer available.").into())
        }
        ResponseAccount::Unknown => {
            Err(refuse("This gateway made no response with the id in 'previous_response_id'.").into())
        }
    }
}

pub(super) fn draft(work: &JobContext, job: &ResponseJob) -> RecordDraft {
    let (tool, caller) = (job.tool(), &work.caller);
    RecordDraft {
        request_id: work.ask.request_id.as_str().into(),
        operation: "create_response",
        model: Some(job.model().to_owned()),
        stream: job.stream(),
        size: tool.map(|tool| tool.size.to_string()),
        quality: tool.map(|tool| tool.quality.as_deref().unwrap_or("auto").to_owned()),
        output_format: tool.map(|tool| tool.format.as_str().to_owned()),
        n: None,
        account: work.gateway.accounts().likely(job, caller),
        group: caller.group_name().to_owned(),
        user: caller.user().clone(),
        key: caller.key().clone(),
        end_user: job.end_user().map(str::to_owned),
        injected_tool: job.injected(),
        fingerprint: work.fingerprint(),
    }
}
