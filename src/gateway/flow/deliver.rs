//! Carries out a job of images, from its intent to its outcome, in the same way for every operation that makes images.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::Instrument as _;

use super::attempt::JobFailure;
use super::made::GatewayAnswer;
use super::work::JobContext;
use super::{RequestOptions, again, attempt, ladder, outcome, reason, screen};
use crate::error::{ApiErrorCode, Error, UpstreamFault};
use crate::gateway::Gateway;
use crate::gateway::accounts::{AccountFeedback, Lease};
use crate::gateway::config::DeliveryPolicy;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{self, JobOutcome, OpenRecord, RecordDraft};
use crate::gateway::relay::{
    self, AnswerSummary, AnswerUsage, ClosingFuture, DeliveredImage, RelayBody, RelayError, RelayOutcome,
};
use crate::gateway::replay::AnswerSender;
use crate::gateway::rules::{Job, SharedTask, TaskRef};
use crate::image::ImageProperties;

/// The result of a comparison between the delivered image and the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryComparison {
    /// The image is as requested.
    Match,
    /// The image has another size or format.
    Mismatch,
    /// The head of the image did not state its size and format, or the request did not ask for any.
    Unknown,
}

/// The facts about a job that are needed to close its record when the answer ends.
pub(super) struct ClosingContext {
    pub(super) gateway: Arc<Gateway>,
    /// The number of images that were requested.
    pub(super) asked: usize,
    /// The model that was to make them, and their quality, as far as the request names them.
    pub(super) model: Option<String>,
    pub(super) quality: Option<String>,
    /// The tokens that failed calls for a larger image were charged for.
    pub(super) charged: Option<AnswerUsage>,
    /// True if the caller got an error because the image is not the requested one.
    pub(super) refused: bool,
    /// The span of the request in the log.
    pub(super) span: tracing::Span,
    /// The job for which a broken answer is remembered, if there is one.
    pub(super) work: Option<Arc<JobContext>>,
}

/// Runs a job: attempts, delivery and record.
///
/// # Errors
///
/// Returns the error to which the money rules reduce the failed attempts.
pub(super) async fn deliver(
    gateway: &Arc<Gateway>,
    caller: Caller,
    ask: RequestOptions,
    job: Job,
) -> Result<GatewayAnswer, Error> {
    // An idempotency key alone decides which requests are the same, so the turn does not count then.
    let turn = ask.turn.clone().filter(|_| ask.idempotency_key.is_none());
    let task = SharedTask::from(job.within(turn));
    again::answer(Arc::new(JobContext::new(gateway, caller, ask, task))).await
}

/// Makes the images of a job whose intent is recorded.
pub(super) async fn make(
    work: &Arc<JobContext>,
    job: &Arc<Job>,
    mut record: OpenRecord,
    promise: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<GatewayAnswer, Error> {
    if let Err(error) = screen::check(&work.gateway, work.caller.group_name(), job.prompt()).await {
        settle(record, outcome::failed(&error, None)).await;
        return Err(error);
    }
    let won = match attempt::run(work.asker(promise), TaskRef::from(&**job), &mut record).await {
        Ok(won) => won,
        Err(JobFailure::Abandoned) => {
            settle(record, JobOutcome::cancelled()).await;
            return Err(Error::Unavailable);
        }
        Err(JobFailure::Failed(error, last)) => {
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
    let verdict = first.map_or(DeliveryComparison::Unknown, |facts| judge(made, facts));
    let refused = verdict == DeliveryComparison::Mismatch
        && work.gateway.delivery(work.caller.group_name()) == DeliveryPolicy::Fail;
    let mut headers = headers(won.simulated, first, verdict, fallback);
    if won.missing > 0 {
        headers.insert("x-imagate-missing".to_owned(), won.missing.to_string());
    }
    let terms = ClosingContext {
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
    let body =
        RelayBody::new(won.proven, Error::Upstream(UpstreamFault::Broken).event(), on_end).until(work.gateway.cutoff());
    if refused {
        // The caller does not get the rest of the answer, but its tokens were paid for: dropping the body reads them.
        drop(body);
        return Err(Error::Upstream(UpstreamFault::Mismatch));
    }
    Ok(GatewayAnswer::live(job.stream(), headers, body))
}

/// Returns the headers that describe the images of an answer.
pub(super) fn headers(
    simulated: bool,
    first: Option<ImageProperties>,
    verdict: DeliveryComparison,
    fallback: Option<String>,
) -> BTreeMap<String, String> {
    let delivery = match verdict {
        DeliveryComparison::Match => Some("match"),
        DeliveryComparison::Mismatch => Some("mismatch"),
        DeliveryComparison::Unknown => None,
    };
    let known = [
        ("x-imagate-simulated", simulated.then(|| "true".to_owned())),
        ("x-imagate-delivered", first.map(|facts| format!("{}x{} {}", facts.width, facts.height, facts.format))),
        ("x-imagate-delivery", delivery.map(str::to_owned)),
        ("x-imagate-fallback", fallback),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

pub(super) fn draft(work: &JobContext, job: &Job) -> RecordDraft {
    let caller = &work.caller;
    tracing::debug!(key = %caller.public_id(), size = %job.size(), n = job.count(), "a job begins");
    RecordDraft {
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

/// Compares an image with its job. `auto` is never a mismatch.
fn judge(job: &Job, facts: ImageProperties) -> DeliveryComparison {
    let size = job.size().exact().is_none_or(|size| (size.width(), size.height()) == (facts.width, facts.height));
    if size && facts.format == job.format() { DeliveryComparison::Match } else { DeliveryComparison::Mismatch }
}

/// Records the outcome durably before the caller's last byte. The slot is released first, because the upstream is done.
pub(super) fn close(
    mut record: OpenRecord,
    lease: Option<Lease>,
    ending: RelayOutcome,
    summary: AnswerSummary,
    terms: ClosingContext,
) -> ClosingFuture {
    let ClosingContext { gateway, asked, model, quality, charged, refused, span, work } = terms;
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
        let code = ApiErrorCode::UpstreamError.as_str();
        let outcome = match ending {
            RelayOutcome::Complete | RelayOutcome::Left if refused => {
                JobOutcome::failed(code).because(UpstreamFault::Mismatch.as_str(), None)
            }
            RelayOutcome::Complete => {
                if count < asked {
                    tracing::warn!(asked, delivered = count, "the upstream made fewer images than asked for");
                }
                JobOutcome::succeeded()
            }
            RelayOutcome::Left => JobOutcome::cancelled(),
            RelayOutcome::Broken(broken) => {
                record.fail_attempt(ledger::AttemptClass::O);
                if let Some(work) = work {
                    work.remember_break().await;
                }
                tracing::warn!(error = &broken as &dyn std::error::Error, "an answer broke off after it had begun");
                JobOutcome::interrupted(Some(code.to_owned())).because(reason::of_break(broken), None)
            }
        };
        settle(record, outcome).await;
    };
    // The closing may run long after the request was answered; its log lines still have the request id.
    Box::pin(closing.instrument(span))
}

/// Returns the feedback about the account that the end of an answer gives.
const fn taught(ending: RelayOutcome) -> AccountFeedback {
    match ending {
        RelayOutcome::Complete => AccountFeedback::Good,
        // The upstream itself has ended the answer because it refuses the content or because the conversation is too
        // long. An image that was lost on our disk, a caller and our own end are not failures of the account either.
        RelayOutcome::Left
        | RelayOutcome::Broken(RelayError::Cutoff | RelayError::Failed | RelayError::Lost | RelayError::Slow) => {
            AccountFeedback::Neutral
        }
        // A long answer may end here only because of its length.
        RelayOutcome::Broken(RelayError::Timeout) => AccountFeedback::Doubtful,
        RelayOutcome::Broken(_) => AccountFeedback::Faulty,
    }
}

/// Closes a record. An image that was paid for reaches its caller even if the database does not take the row, or takes
/// too long: the intent is recorded, and the next start finds it.
pub(super) async fn settle(record: OpenRecord, outcome: JobOutcome) {
    if let Err(error) = record.close(outcome).in_time().await {
        tracing::error!(error = &error as &dyn std::error::Error, "an outcome could not be recorded");
    }
}

fn delivered(image: DeliveredImage, asked_quality: Option<&String>) -> ledger::DeliveredImageEntry {
    let DeliveredImage { facts, quality } = image;
    ledger::DeliveredImageEntry {
        size: facts.map(|facts| format!("{}x{}", facts.width, facts.height)),
        output_format: facts.map(|facts| facts.format.as_str().to_owned()),
        quality: quality.or_else(|| asked_quality.cloned()),
    }
}

/// Returns the quality unless the model chooses it.
pub(super) fn concrete(quality: Option<&str>) -> Option<String> {
    quality.filter(|quality| *quality != "auto").map(str::to_owned)
}
