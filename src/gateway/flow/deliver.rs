//! A job of images, from its intent to its outcome: the same for every operation that makes some.

use std::sync::Arc;

use tracing::Instrument as _;

use super::{attempt, outcome};
use crate::error::{Code, Error, Fault};
use crate::gateway::Gateway;
use crate::gateway::accounts::Lease;
use crate::gateway::config::Delivery;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{self, Draft, OpenRecord, Outcome};
use crate::gateway::relay::{Closing, Ending, RelayBody, Summary};
use crate::gateway::rules::Job;
use crate::image::Facts;

/// An answer that has begun.
pub(crate) struct Made {
    /// The body, still coming.
    pub(crate) body: RelayBody,
    /// Whether it is a stream of events.
    pub(crate) stream: bool,
    /// The simulator drew it.
    pub(crate) simulated: bool,
    /// What the first image really is, where its head told.
    pub(crate) delivered: Option<String>,
    /// How that compares with what was asked for.
    pub(crate) verdict: Verdict,
}

/// What was delivered, compared with what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As asked.
    Match,
    /// Another size or format.
    Mismatch,
    /// The image's head did not tell, or nothing was asked.
    Unknown,
}

/// What the end of an answer is held against.
struct Terms {
    /// Images asked for.
    asked: usize,
    /// The caller has been told that this is not what was asked for.
    refused: bool,
    /// The request in the log.
    span: tracing::Span,
}

/// Attempts, delivery, record. A plain job goes on when its caller leaves: it may have been paid for. One of events ends
/// with its caller, at whatever point this future is dropped.
///
/// # Errors
///
/// What the money rules make of the failed attempts.
pub(super) async fn deliver(gateway: &Arc<Gateway>, caller: Caller, request_id: &str, job: Job) -> Result<Made, Error> {
    let mut record = open(gateway, &caller, request_id, &job).await?;
    tracing::debug!(request_id, key = %caller.public_id(), size = %job.size(), n = job.count(), "a job begins");
    if job.stream() {
        record.when_dropped(Outcome::cancelled());
        return make(Arc::clone(gateway), caller, job, record).await;
    }
    let work = make(Arc::clone(gateway), caller, job, record).in_current_span();
    tokio::runtime::Handle::current().spawn(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a job ended in the middle");
        Err(Error::Internal)
    })
}

async fn make(gateway: Arc<Gateway>, caller: Caller, job: Job, mut record: OpenRecord) -> Result<Made, Error> {
    let won = match attempt::run(&gateway, &job, &caller, &mut record).await {
        Ok(won) => won,
        Err((error, last)) => {
            settle(record, outcome::failed(&error, last)).await;
            return Err(error);
        }
    };
    record.mark_first_byte();
    let (stream, simulated, first) = (job.stream(), won.simulated, won.proven.first());
    let verdict = first.map_or(Verdict::Unknown, |facts| judge(&job, facts));
    let refused = verdict == Verdict::Mismatch && gateway.delivery(caller.group_name()) == Delivery::Fail;
    let asked = usize::try_from(job.count()).unwrap_or(1);
    let (lease, terms) = (won.lease, Terms { asked, refused, span: tracing::Span::current() });
    let on_end = Box::new(move |ending, summary| close(record, lease, ending, summary, terms));
    let body = RelayBody::new(won.proven, Error::Upstream(Fault::Broken).event(), on_end);
    if refused {
        // Nobody waits for the rest of it, but its tokens were paid for: dropping the body reads them.
        drop(body);
        return Err(Error::Upstream(Fault::Mismatch));
    }
    let delivered = first.map(|facts| format!("{}x{} {}", facts.width, facts.height, facts.format));
    Ok(Made { body, stream, simulated, delivered, verdict })
}

/// `auto` is never a mismatch.
fn judge(job: &Job, facts: Facts) -> Verdict {
    let size = job.size().exact().is_none_or(|size| (size.width(), size.height()) == (facts.width, facts.height));
    if size && facts.format == job.format() { Verdict::Match } else { Verdict::Mismatch }
}

/// The intent, durable before the first upstream byte.
async fn open(gateway: &Gateway, caller: &Caller, request_id: &str, job: &Job) -> Result<OpenRecord, Error> {
    let draft = Draft {
        request_id: request_id.into(),
        operation: job.operation(),
        model: Some(job.model().to_owned()),
        stream: job.stream(),
        size: Some(job.size().to_string()),
        quality: Some(job.quality().unwrap_or("auto").to_owned()),
        output_format: Some(job.format().as_str().to_owned()),
        n: Some(job.count()),
        account: gateway.accounts().likely(job, caller),
        group: caller.group_name().to_owned(),
        user: caller.user().clone(),
        key: caller.key().clone(),
        end_user: job.end_user().map(str::to_owned),
    };
    gateway.ledger().open(draft).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an intent could not be recorded");
        Error::Unavailable
    })
}

/// The outcome, durable before the caller's last byte. The place is given back first: the upstream is done.
fn close(mut record: OpenRecord, lease: Lease, ending: Ending, summary: Summary, terms: Terms) -> Closing {
    let Terms { asked, refused, span } = terms;
    let work = async move {
        drop(lease);
        summary.delivered.iter().for_each(|facts| record.add_delivered(delivered(facts.as_ref())));
        if let Some(counted) = summary.usage {
            record.set_usage(outcome::usage(counted));
        }
        let code = Code::UpstreamError.as_str();
        let outcome = match ending {
            Ending::Complete | Ending::Left if refused => Outcome::failed(code),
            Ending::Complete => {
                if summary.delivered.len() < asked {
                    tracing::warn!(
                        asked,
                        delivered = summary.delivered.len(),
                        "the upstream made fewer images than asked for"
                    );
                }
                Outcome::succeeded()
            }
            Ending::Left => Outcome::cancelled(),
            Ending::Broken(broken) => {
                record.fail_attempt(ledger::Class::O);
                tracing::warn!(error = &broken as &dyn std::error::Error, "an answer broke off after it had begun");
                Outcome::interrupted(Some(code.to_owned()))
            }
        };
        settle(record, outcome).await;
    };
    // It may run long after the request was answered; its log still has the id.
    Box::pin(work.instrument(span))
}

/// Closes a record. An image that was paid for reaches its caller even when the database does not take the line: the
/// intent is there, and the next start finds it.
async fn settle(record: OpenRecord, outcome: Outcome) {
    if let Err(error) = record.close(outcome).await {
        tracing::error!(error = &error as &dyn std::error::Error, "an outcome could not be recorded");
    }
}

fn delivered(facts: Option<&Facts>) -> ledger::Delivered {
    ledger::Delivered {
        size: facts.map(|facts| format!("{}x{}", facts.width, facts.height)),
        output_format: facts.map(|facts| facts.format.as_str().to_owned()),
    }
}
