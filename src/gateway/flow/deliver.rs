//! A job of images, from its intent to its outcome: the same for every operation that makes some.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::Instrument as _;

use super::attempt::Unmade;
use super::made::Made;
use super::work::Work;
use super::{Ask, again, attempt, ladder, outcome, reason, screen};
use crate::error::{Code, Error, Fault};
use crate::gateway::Gateway;
use crate::gateway::accounts::{Lease, Lesson};
use crate::gateway::config::Delivery;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{self, Draft, OpenRecord, Outcome};
use crate::gateway::relay::{self, Broken, Closing, DeliveredImage, Ending, RelayBody, Summary, Usage};
use crate::gateway::replay::Promise;
use crate::gateway::rules::{Job, SharedTask, Task};
use crate::image::Facts;

/// What was delivered, compared with what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As asked.
    Match,
    /// Another size or format.
    Mismatch,
    /// The image's head did not tell, or nothing was asked.
    Unknown,
}

/// What the end of an answer is held against.
pub(super) struct Terms {
    pub(super) gateway: Arc<Gateway>,
    /// Images asked for.
    pub(super) asked: usize,
    /// The model that was to make them, and their quality, as far as the request names them.
    pub(super) model: Option<String>,
    pub(super) quality: Option<String>,
    /// Tokens that failed calls for a larger image were charged for.
    pub(super) charged: Option<Usage>,
    /// The caller has been told that this is not what was asked for.
    pub(super) refused: bool,
    /// The request in the log.
    pub(super) span: tracing::Span,
    /// Whose break is remembered.
    pub(super) work: Option<Arc<Work>>,
}

/// Runs a job: attempts, delivery, record.
///
/// # Errors
///
/// What the money rules make of the failed attempts.
pub(super) async fn deliver(gateway: &Arc<Gateway>, caller: Caller, ask: Ask, job: Job) -> Result<Made, Error> {
    // A name of its own says all of what is the same request.
    let turn = ask.turn.clone().filter(|_| ask.idempotency_key.is_none());
    let task = SharedTask::from(job.within(turn));
    again::answer(Arc::new(Work::new(gateway, caller, ask, task))).await
}

/// Makes the images of a job whose intent is recorded.
pub(super) async fn make(
    work: &Arc<Work>,
    job: &Arc<Job>,
    mut record: OpenRecord,
    promise: Option<&Promise<Made>>,
) -> Result<Made, Error> {
    if let Err(error) = screen::check(&work.gateway, work.caller.group_name(), job.prompt()).await {
        settle(record, outcome::failed(&error, None)).await;
        return Err(error);
    }
    let won = match attempt::run(work.asker(promise), Task::from(&**job), &mut record).await {
        Ok(won) => won,
        Err(Unmade::Abandoned) => {
            settle(record, Outcome::cancelled()).await;
            return Err(Error::Unavailable);
        }
        Err(Unmade::Failed(error, last)) => {
            settle(record, outcome::failed(&error, last)).await;
            return Err(error);
        }
    };
    record.mark_first_byte();
    let fallback = won.lowered.as_ref().map(ladder::name);
    if let Some(made) = &fallback {
        record.set_fallback(made.clone());
    }
    let (made, first) = (won.lowered.as_ref().unwrap_or(job), won.proven.first());
    let verdict = first.map_or(Verdict::Unknown, |facts| judge(made, facts));
    let refused = verdict == Verdict::Mismatch && work.gateway.delivery(work.caller.group_name()) == Delivery::Fail;
    let mut headers = headers(won.simulated, first, verdict, fallback);
    if won.missing > 0 {
        headers.insert("x-imagate-missing".to_owned(), won.missing.to_string());
    }
    let terms = Terms {
        gateway: Arc::clone(&work.gateway),
        asked: usize::try_from(job.count()).unwrap_or(1),
        model: Some(made.model().to_owned()),
        quality: concrete(made.quality()),
        charged: won.charged,
        refused,
        span: tracing::Span::current(),
        work: Some(Arc::clone(work)),
    };
    let lease = won.lease;
    let on_end = Box::new(move |ending, summary| close(record, lease, ending, summary, terms));
    let body = RelayBody::new(won.proven, Error::Upstream(Fault::Broken).event(), on_end).until(work.gateway.cutoff());
    if refused {
        // Nobody waits for the rest of it, but its tokens were paid for: dropping the body reads them.
        drop(body);
        return Err(Error::Upstream(Fault::Mismatch));
    }
    Ok(Made::live(job.stream(), headers, body))
}

/// What the answer says of its images beside them.
pub(super) fn headers(
    simulated: bool,
    first: Option<Facts>,
    verdict: Verdict,
    fallback: Option<String>,
) -> BTreeMap<String, String> {
    let delivery = match verdict {
        Verdict::Match => Some("match"),
        Verdict::Mismatch => Some("mismatch"),
        Verdict::Unknown => None,
    };
    let known = [
        ("x-imagate-simulated", simulated.then(|| "true".to_owned())),
        ("x-imagate-delivered", first.map(|facts| format!("{}x{} {}", facts.width, facts.height, facts.format))),
        ("x-imagate-delivery", delivery.map(str::to_owned)),
        ("x-imagate-fallback", fallback),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

pub(super) fn draft(work: &Work, job: &Job) -> Draft {
    let caller = &work.caller;
    tracing::debug!(key = %caller.public_id(), size = %job.size(), n = job.count(), "a job begins");
    Draft {
        request_id: work.ask.request_id.as_str().into(),
        operation: job.operation(),
        model: Some(job.model().to_owned()),
        stream: job.stream(),
        size: Some(job.size().to_string()),
        quality: Some(job.quality().unwrap_or("auto").to_owned()),
        output_format: Some(job.format().as_str().to_owned()),
        n: Some(job.count()),
        account: work.gateway.accounts().likely(job, caller),
        group: caller.group_name().to_owned(),
        user: caller.user().clone(),
        key: caller.key().clone(),
        end_user: job.end_user().map(str::to_owned),
        injected_tool: false,
        fingerprint: work.fingerprint(),
    }
}

/// `auto` is never a mismatch.
fn judge(job: &Job, facts: Facts) -> Verdict {
    let size = job.size().exact().is_none_or(|size| (size.width(), size.height()) == (facts.width, facts.height));
    if size && facts.format == job.format() { Verdict::Match } else { Verdict::Mismatch }
}

/// The outcome, durable before the caller's last byte. The place is given back first: the upstream is done.
pub(super) fn close(
    mut record: OpenRecord,
    lease: Option<Lease>,
    ending: Ending,
    summary: Summary,
    terms: Terms,
) -> Closing {
    let Terms { gateway, asked, model, quality, charged, refused, span, work } = terms;
    let closing = async move {
        if let Some(lease) = lease {
            gateway.accounts().learn(&lease, taught(ending)).await;
        }
        // If no image was made, the model of the image tool did nothing.
        let model = summary.image_model.or(model).filter(|_| !summary.delivered.is_empty());
        record.set_models(model, summary.host_model);
        let count = summary.delivered.len();
        summary.delivered.into_iter().for_each(|image| record.add_delivered(delivered(image, quality.as_ref())));
        if let Some(counted) = relay::sum(summary.usage, charged) {
            record.set_usage(outcome::usage(counted));
        }
        summary.response_id.into_iter().for_each(|id| record.set_response_id(id));
        let code = Code::UpstreamError.as_str();
        let outcome = match ending {
            Ending::Complete | Ending::Left if refused => Outcome::failed(code).because(Fault::Mismatch.as_str(), None),
            Ending::Complete => {
                if count < asked {
                    tracing::warn!(asked, delivered = count, "the upstream made fewer images than asked for");
                }
                Outcome::succeeded()
            }
            Ending::Left => Outcome::cancelled(),
            Ending::Broken(broken) => {
                record.fail_attempt(ledger::Class::O);
                if let Some(work) = work {
                    work.remember_break().await;
                }
                tracing::warn!(error = &broken as &dyn std::error::Error, "an answer broke off after it had begun");
                Outcome::interrupted(Some(code.to_owned())).because(reason::of_break(broken), None)
            }
        };
        settle(record, outcome).await;
    };
    // It may run long after the request was answered; its log still has the id.
    Box::pin(closing.instrument(span))
}

/// What the end of an answer says of its account.
const fn taught(ending: Ending) -> Lesson {
    match ending {
        Ending::Complete => Lesson::Good,
        // The upstream itself has ended it: the content is refused, or the conversation is too long. An image that was
        // kept here and is lost, a caller and our own end are no failures of the account either.
        Ending::Left | Ending::Broken(Broken::Cutoff | Broken::Failed | Broken::Lost | Broken::Slow) => Lesson::Neutral,
        // A long answer may end here only because it is long.
        Ending::Broken(Broken::Timeout) => Lesson::Doubtful,
        Ending::Broken(_) => Lesson::Faulty,
    }
}

/// Closes a record. An image that was paid for reaches its caller even when the database does not take the line, or
/// takes too long: the intent is there, and the next start finds it.
pub(super) async fn settle(record: OpenRecord, outcome: Outcome) {
    if let Err(error) = record.close(outcome).in_time().await {
        tracing::error!(error = &error as &dyn std::error::Error, "an outcome could not be recorded");
    }
}

fn delivered(image: DeliveredImage, asked_quality: Option<&String>) -> ledger::Delivered {
    let DeliveredImage { facts, quality } = image;
    ledger::Delivered {
        size: facts.map(|facts| format!("{}x{}", facts.width, facts.height)),
        output_format: facts.map(|facts| facts.format.as_str().to_owned()),
        quality: quality.or_else(|| asked_quality.cloned()),
    }
}

/// A quality that says which.
pub(super) fn concrete(quality: Option<&str>) -> Option<String> {
    quality.filter(|quality| *quality != "auto").map(str::to_owned)
}
