//! Carries out a job of images, from its intent to its outcome, in the same way for every operation that makes images.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::Instrument as _;

use super::attempt::JobFailure;
use super::gateway_answer::GatewayAnswer;
use super::job_context::JobContext;
use super::{RequestOptions, attempt, failure_reason, fallback_order, outcome, prompt_screening, repeated_request};
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
    pub(super) requested_count: usize,
    /// The model that was to make them, and their quality, as far as the request names them.
    pub(super) model: Option<String>,
    pub(super) quality: Option<String>,
    /// The tokens that failed calls for a larger image were charged for.
    pub(super) failed_call_usage: Option<AnswerUsage>,
    /// True if the caller got an error because the image is not the requested one.
    pub(super) is_refused: bool,
    /// The span of the request in the log.
    pub(super) span: tracing::Span,
    /// The job for which a broken answer is remembered, if there is one.
    pub(super) job_context: Option<Arc<JobContext>>,
}

/// Runs a job: attempts, delivery and record.
///
/// # Errors
///
/// Returns the error to which the money rules reduce the failed attempts.
pub(super) async fn run_image_job(
    gateway: &Arc<Gateway>,
    caller: Caller,
    options: RequestOptions,
    job: Job,
) -> Result<GatewayAnswer, Error> {
    // An idempotency key alone decides which requests are the same, so the turn does not count then.
    let turn = options.agent_turn.clone().filter(|_| options.idempotency_key.is_none());
    let task = SharedTask::from(job.with_turn(turn));
    repeated_request::answer_request(Arc::new(JobContext::new(gateway, caller, options, task))).await
}

/// Makes the images of a job whose intent is recorded.
pub(super) async fn make_images(
    context: &Arc<JobContext>,
    job: &Arc<Job>,
    mut record: OpenRecord,
    answer_sender: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<GatewayAnswer, Error> {
    if let Err(error) =
        prompt_screening::check_prompt(&context.gateway, context.caller.group_name(), job.prompt()).await
    {
        close_record(record, outcome::failed_outcome(&error, None)).await;
        return Err(error);
    }
    let success = match attempt::run(context.attempt_context(answer_sender), TaskRef::from(&**job), &mut record).await {
        Ok(won) => won,
        Err(JobFailure::Abandoned) => {
            close_record(record, JobOutcome::cancelled()).await;
            return Err(Error::Unavailable);
        }
        Err(JobFailure::Failed(error, last)) => {
            close_record(record, outcome::failed_outcome(&error, last)).await;
            return Err(error);
        }
    };
    record.mark_first_byte();
    let fallback = success.fallback_job.as_ref().map(fallback_order::size_and_quality);
    if let Some(made) = &fallback {
        record.set_fallback(made.clone());
    }
    let (made, first) = (success.fallback_job.as_ref().unwrap_or(job), success.proven.first_image());
    let comparison = first.map_or(DeliveryComparison::Unknown, |facts| compare_with_job(made, facts));
    let refused = comparison == DeliveryComparison::Mismatch
        && context.gateway.delivery_policy(context.caller.group_name()) == DeliveryPolicy::Fail;
    let mut headers = answer_headers(success.is_simulated, first, comparison, fallback);
    if success.missing_images > 0 {
        headers.insert("x-imagate-missing".to_owned(), success.missing_images.to_string());
    }
    let closing_context = ClosingContext {
        gateway: Arc::clone(&context.gateway),
        requested_count: usize::try_from(job.count()).unwrap_or(1),
        model: Some(made.model().to_owned()),
        quality: explicit_quality(made.quality()),
        failed_call_usage: success.failed_call_usage,
        is_refused: refused,
        span: tracing::Span::current(),
        job_context: Some(Arc::clone(context)),
    };
    let lease = success.lease;
    let on_end = Box::new(move |ending, summary| close_delivery(record, lease, ending, summary, closing_context));
    let body = RelayBody::new(success.proven, Error::Upstream(UpstreamFault::Broken).event(), on_end)
        .with_cutoff(context.gateway.cutoff());
    if refused {
        // The caller does not get the rest of the answer, but its tokens were paid for: dropping the body reads them.
        drop(body);
        return Err(Error::Upstream(UpstreamFault::Mismatch));
    }
    Ok(GatewayAnswer::from_upstream(job.is_stream(), headers, body))
}

/// Returns the headers that describe the images of an answer.
pub(super) fn answer_headers(
    simulated: bool,
    first: Option<ImageProperties>,
    comparison: DeliveryComparison,
    fallback: Option<String>,
) -> BTreeMap<String, String> {
    let delivery = match comparison {
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

pub(super) fn record_draft(context: &JobContext, job: &Job) -> RecordDraft {
    let caller = &context.caller;
    tracing::debug!(key = %caller.public_id(), size = %job.size(), n = job.count(), "a job begins");
    RecordDraft {
        request_id: context.options.request_id.as_str().into(),
        operation: job.operation_id(),
        model: Some(job.model().to_owned()),
        stream: job.is_stream(),
        size: Some(job.size().to_string()),
        quality: Some(job.quality().unwrap_or("auto").to_owned()),
        output_format: Some(job.format().as_str().to_owned()),
        n: Some(job.count()),
        account: context.gateway.accounts().likely_account(job, caller),
        group: caller.group_name().to_owned(),
        user: caller.user().clone(),
        key: caller.key().clone(),
        end_user: job.end_user().map(str::to_owned),
        injected_tool: false,
        fingerprint: context.fingerprint(),
    }
}

/// Compares an image with its job. `auto` is never a mismatch.
fn compare_with_job(job: &Job, facts: ImageProperties) -> DeliveryComparison {
    let size = job.size().exact().is_none_or(|size| (size.width(), size.height()) == (facts.width, facts.height));
    if size && facts.format == job.format() { DeliveryComparison::Match } else { DeliveryComparison::Mismatch }
}

/// Records the outcome durably before the caller's last byte. The slot is released first, because the upstream is done.
pub(super) fn close_delivery(
    mut record: OpenRecord,
    lease: Option<Lease>,
    relay_outcome: RelayOutcome,
    summary: AnswerSummary,
    context: ClosingContext,
) -> ClosingFuture {
    let ClosingContext {
        gateway,
        requested_count: asked,
        model,
        quality,
        failed_call_usage: charged,
        is_refused: refused,
        span,
        job_context: work,
    } = context;
    let closing = async move {
        if let Some(lease) = lease {
            gateway.accounts().apply_feedback(&lease, feedback_for_outcome(relay_outcome)).await;
        }
        // If no image was made, the model of the image tool did nothing.
        let model = summary.image_model.or(model).filter(|_| !summary.delivered.is_empty());
        record.set_models(model, summary.host_model);
        let count = summary.delivered.len();
        summary
            .delivered
            .into_iter()
            .for_each(|image| record.add_delivered(delivered_image_entry(image, quality.as_ref())));
        if let Some(counted) = relay::sum_usage(summary.usage, charged) {
            record.set_usage(outcome::model_usage(counted));
        }
        summary.response_id.into_iter().for_each(|id| record.set_response_id(id));
        let code = ApiErrorCode::UpstreamError.as_str();
        let outcome = match relay_outcome {
            RelayOutcome::Complete | RelayOutcome::CallerLeft if refused => {
                JobOutcome::failed(code).with_reason(UpstreamFault::Mismatch.as_str(), None)
            }
            RelayOutcome::Complete => {
                if count < asked {
                    tracing::warn!(asked, delivered = count, "the upstream made fewer images than asked for");
                }
                JobOutcome::succeeded()
            }
            RelayOutcome::CallerLeft => JobOutcome::cancelled(),
            RelayOutcome::Broken(broken) => {
                record.fail_last_attempt(ledger::AttemptClass::O);
                if let Some(work) = work {
                    work.remember_broken_answer().await;
                }
                tracing::warn!(error = &broken as &dyn std::error::Error, "an answer broke off after it had begun");
                JobOutcome::interrupted(Some(code.to_owned()))
                    .with_reason(failure_reason::from_relay_error(broken), None)
            }
        };
        close_record(record, outcome).await;
    };
    // The closing may run long after the request was answered; its log lines still have the request id.
    Box::pin(closing.instrument(span))
}

/// Returns the feedback about the account that the end of an answer gives.
const fn feedback_for_outcome(relay_outcome: RelayOutcome) -> AccountFeedback {
    match relay_outcome {
        RelayOutcome::Complete => AccountFeedback::Success,
        // The upstream itself has ended the answer because it refuses the content or because the conversation is too
        // long. An image that was lost on our disk, a caller and our own end are not failures of the account either.
        RelayOutcome::CallerLeft
        | RelayOutcome::Broken(
            RelayError::Cutoff | RelayError::UpstreamFailed | RelayError::SpoolUnreadable | RelayError::CallerTooSlow,
        ) => AccountFeedback::Neutral,
        // A long answer may end here only because of its length.
        RelayOutcome::Broken(RelayError::Timeout) => AccountFeedback::Doubtful,
        RelayOutcome::Broken(_) => AccountFeedback::Failed,
    }
}

/// Closes a record. An image that was paid for reaches its caller even if the database does not take the row, or takes
/// too long: the intent is recorded, and the next start finds it.
pub(super) async fn close_record(record: OpenRecord, outcome: JobOutcome) {
    if let Err(error) = record.close(outcome).with_timeout().await {
        tracing::error!(error = &error as &dyn std::error::Error, "an outcome could not be recorded");
    }
}

fn delivered_image_entry(image: DeliveredImage, asked_quality: Option<&String>) -> ledger::DeliveredImageEntry {
    let DeliveredImage { properties: facts, quality } = image;
    ledger::DeliveredImageEntry {
        size: facts.map(|facts| format!("{}x{}", facts.width, facts.height)),
        output_format: facts.map(|facts| facts.format.as_str().to_owned()),
        quality: quality.or_else(|| asked_quality.cloned()),
    }
}

/// Returns the quality unless the model chooses it.
pub(super) fn explicit_quality(quality: Option<&str>) -> Option<String> {
    quality.filter(|quality| *quality != "auto").map(str::to_owned)
}
