//! A response, from the body of the request to the body of the answer.

use std::future::pending;
use std::sync::Arc;

use chrono::Utc;
use http::HeaderMap;
use tracing::Instrument as _;

use super::attempt::{Asker, Unmade, Won};
use super::deliver::{self, Terms, Verdict};
use super::made::Made;
use super::{attempt, outcome, screen};
use crate::error::{Error, Fault};
use crate::gateway::Gateway;
use crate::gateway::config::Delivery;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{Draft, OpenRecord, Outcome};
use crate::gateway::relay::RelayBody;
use crate::gateway::rules::{ImageTool, ResponseJob, Task};
use crate::gateway::spool::Kept;
use crate::image::Facts;

/// `POST /v1/responses`. A plain one goes on when its caller leaves, one of events ends with its caller, as everywhere.
///
/// # Errors
///
/// Before anything is spent: what breaks a rule. After that: what the money rules make of the failed attempts.
pub(crate) async fn create_response(
    gateway: &Arc<Gateway>,
    caller: Caller,
    request_id: &str,
    headers: &HeaderMap,
    body: Kept,
) -> Result<Made, Error> {
    let job = gateway.image_models().response(body, headers, Utc::now())?;
    let injects = gateway.injects_tool(caller.group_name()) && job.lacks_tool();
    let job = if injects { job.with_tool() } else { job };
    tracing::debug!(key = %caller.public_id(), images = job.tool().is_some(), injects, "a response begins");
    let mut record = deliver::open(gateway, draft(gateway, &caller, request_id, &job)).await?;
    if job.stream() {
        record.when_dropped(Outcome::cancelled());
        // In a box: it is the larger part of what a request holds while it waits.
        return Box::pin(make(Arc::clone(gateway), caller, job, record)).await;
    }
    let work = make(Arc::clone(gateway), caller, job, record).in_current_span();
    tokio::runtime::Handle::current().spawn(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a response ended in the middle");
        Err(Error::Internal)
    })
}

async fn make(gateway: Arc<Gateway>, caller: Caller, job: ResponseJob, mut record: OpenRecord) -> Result<Made, Error> {
    let won = match attempts(&gateway, &caller, &job, &mut record).await {
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
    let refused = verdict == Verdict::Mismatch && gateway.delivery(caller.group_name()) == Delivery::Fail;
    let headers = deliver::headers(won.simulated, first, verdict, None);
    // How many images there are is the model's choice.
    let terms = Terms { gateway, asked: 0, refused, span: tracing::Span::current(), work: None };
    let lease = won.lease;
    let on_end = Box::new(move |ending, summary| deliver::close(record, lease, ending, summary, terms));
    let body = RelayBody::new(won.proven, Error::Upstream(Fault::Broken).event(), on_end);
    if refused {
        // Nobody waits for the rest of it, but its tokens were paid for: dropping the body reads them.
        drop(body);
        return Err(Error::Upstream(Fault::Mismatch));
    }
    Ok(Made::live(job.stream(), headers, body))
}

/// What may be drawn is screened like a prompt; talk is not what the operator's filter is for.
async fn attempts(
    gateway: &Gateway,
    caller: &Caller,
    job: &ResponseJob,
    record: &mut OpenRecord,
) -> Result<Won, Unmade> {
    if job.tool().is_some() {
        let checked = screen::check_task(gateway, caller.group_name(), job).await;
        checked.map_err(|error| Unmade::Failed(error, None))?;
    }
    let asker = Asker { gateway, caller, fallback: false };
    attempt::run(asker, Task::from(job), record, pending()).await
}

/// `auto` is never a mismatch.
fn judge(tool: &ImageTool, facts: Facts) -> Verdict {
    let size = tool.size.exact().is_none_or(|size| (size.width(), size.height()) == (facts.width, facts.height));
    if size && facts.format == tool.format { Verdict::Match } else { Verdict::Mismatch }
}

fn draft(gateway: &Gateway, caller: &Caller, request_id: &str, job: &ResponseJob) -> Draft {
    let tool = job.tool();
    Draft {
        request_id: request_id.into(),
        operation: "create_response",
        model: Some(job.model().to_owned()),
        stream: job.stream(),
        size: tool.map(|tool| tool.size.to_string()),
        quality: tool.map(|tool| tool.quality.as_deref().unwrap_or("auto").to_owned()),
        output_format: tool.map(|tool| tool.format.as_str().to_owned()),
        n: None,
        account: gateway.accounts().likely(job, caller),
        group: caller.group_name().to_owned(),
        user: caller.user().clone(),
        key: caller.key().clone(),
        end_user: job.end_user().map(str::to_owned),
        injected_tool: job.injected(),
    }
}
