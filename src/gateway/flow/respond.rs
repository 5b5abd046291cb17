//! A response, from the body of the request to the body of the answer.

use std::sync::Arc;

use chrono::Utc;
use http::HeaderMap;

use super::attempt::{Unmade, Won};
use super::deliver::{self, Terms, Verdict};
use super::made::Made;
use super::work::Work;
use super::{Ask, again, attempt, counted, outcome, permit, screen, unreadable};
use crate::error::{Error, Fault, Reason, Rejection};
use crate::gateway::Gateway;
use crate::gateway::accounts::ResponseAccount;
use crate::gateway::config::Delivery;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{Draft, OpenRecord, Outcome};
use crate::gateway::relay::RelayBody;
use crate::gateway::replay::Promise;
use crate::gateway::rules::{ImageTool, ResponseJob, SharedTask, Task};
use crate::gateway::spool::Kept;
use crate::image::Facts;

/// Handles `POST /v1/responses`.
///
/// # Errors
///
/// Before anything is spent: what breaks a rule. After that: what the money rules make of the failed attempts.
pub(crate) async fn create_response(
    gateway: &Arc<Gateway>,
    caller: Caller,
    ask: Ask,
    headers: &HeaderMap,
    body: Kept,
) -> Result<Made, Error> {
    let job = counted(gateway, &caller, check(gateway, headers, body).await)?;
    counted(gateway, &caller, permit::check(gateway, caller.group_name(), &job))?;
    let job = counted(gateway, &caller, at_its_maker(gateway, &caller, job).await)?;
    let injects = gateway.injects_tool(caller.group_name()) && job.lacks_tool();
    let job = if injects { job.with_tool() } else { job };
    tracing::debug!(key = %caller.public_id(), images = job.tool().is_some(), injects, "a response begins");
    // An idempotency key alone decides which requests are the same, so the turn does not count then.
    let turn = ask.turn.clone().filter(|_| ask.idempotency_key.is_none());
    let task = SharedTask::from(job.within(turn));
    again::answer(Arc::new(Work::new(gateway, caller, ask, task))).await
}

/// Checks a request against the rules, for which all of its body is read.
async fn check(gateway: &Arc<Gateway>, headers: &HeaderMap, body: Kept) -> Result<ResponseJob, Error> {
    let (received, whole) = (Utc::now(), body.clone());
    let (rules, headers) = (Arc::clone(gateway), headers.clone());
    let check = move || rules.image_models().response(body, &headers, received);
    whole.reading(check).await.map_err(|error| unreadable(&error))?
}

/// Makes the response to a request whose intent is recorded.
pub(super) async fn make(
    work: &Arc<Work>,
    job: &Arc<ResponseJob>,
    mut record: OpenRecord,
    promise: Option<&Promise<Made>>,
) -> Result<Made, Error> {
    let (gateway, group) = (&work.gateway, work.caller.group_name());
    let won = match attempts(work, job, &mut record, promise).await {
        Ok(won) => won,
        Err(Unmade::Abandoned) => {
            deliver::settle(record, Outcome::cancelled()).await;
            return Err(Error::Unavailable);
        }
        Err(Unmade::Failed(error, last)) => {
            deliver::settle(record, outcome::failed(&error, last)).await;
            return Err(error);
        }
    };
    record.mark_first_byte();
    let first = won.proven.first();
    let tool = job.tool().filter(|_| !won.plain);
    let verdict = first.zip(tool).map_or(Verdict::Unknown, |(facts, tool)| judge(tool, facts));
    let refused = verdict == Verdict::Mismatch && gateway.delivery(group) == Delivery::Fail;
    let headers = deliver::headers(won.simulated, first, verdict, None);
    // The model chooses the number of images.
    let cutoff = gateway.cutoff().clone();
    let terms = Terms {
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
    let body = RelayBody::new(won.proven, Error::Upstream(Fault::Broken).event(), on_end).until(&cutoff);
    if refused {
        // Nobody waits for the rest of it, but its tokens were paid for: dropping the body reads them.
        drop(body);
        return Err(Error::Upstream(Fault::Mismatch));
    }
    Ok(Made::live(job.stream(), headers, body))
}

/// What may be drawn is screened like a prompt; talk is not what the operator's filter is for.
async fn attempts(
    work: &Work,
    job: &Arc<ResponseJob>,
    record: &mut OpenRecord,
    promise: Option<&Promise<Made>>,
) -> Result<Won, Unmade> {
    if job.tool().is_some() {
        let checked = screen::check_task(&work.gateway, work.caller.group_name(), job).await;
        checked.map_err(|error| Unmade::Failed(error, None))?;
    }
    attempt::run(work.asker(promise), Task::from(&**job), record).await
}

/// `auto` is never a mismatch.
fn judge(tool: &ImageTool, facts: Facts) -> Verdict {
    let size = tool.size.exact().is_none_or(|size| (size.width(), size.height()) == (facts.width, facts.height));
    if size && facts.format == tool.format { Verdict::Match } else { Verdict::Mismatch }
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
        Rejection::new("previous_response_id", Reason::InvalidValue, message)
    };
    match maker {
        ResponseAccount::Serves(account) => Ok(job.only_at(account)),
        ResponseAccount::Gone => {
            Err(refuse("The account that made the response 'previous_response_id' no longer serves.").into())
        }
        ResponseAccount::Unknown => {
            Err(refuse("No response with the id in 'previous_response_id' was made here.").into())
        }
    }
}

pub(super) fn draft(work: &Work, job: &ResponseJob) -> Draft {
    let (tool, caller) = (job.tool(), &work.caller);
    Draft {
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
