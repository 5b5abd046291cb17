//! Carries out a job from its recorded intent to its recorded outcome, in the same way for every operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::Instrument as _;

use super::attempt::{JobFailure, JobSuccess};
use super::cost_estimate::CostEstimate;
use super::format_conversion::{ConversionOutcome, convert_answer};
use super::gateway_answer::GatewayAnswer;
use super::job_context::JobContext;
use super::{
    RequestOptions, attempt, count_if_refused, failure_reason, fallback_order, outcome, prompt_screening,
    repeated_request, request_limits, token_usage, url_answer,
};
use crate::error::{ApiErrorCode, Error, UpstreamFault};
use crate::gateway::Gateway;
use crate::gateway::accounts::{AccountFeedback, Lease};
use crate::gateway::config::DeliveryPolicy;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{self, JobOutcome, OpenRecord, RecordDraft};
use crate::gateway::relay::{
    self, AnswerSummary, AnswerUsage, ClosingFuture, DeliveredImage, ProvenAnswer, RelayBody, RelayError, RelayOutcome,
};
use crate::gateway::replay::{AnswerSender, EarlyClaim};
use crate::gateway::rules::{Job, SharedTask, TaskRef};
use crate::image::{Format, SizeRequest};

/// The result of a comparison between the delivered image and the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveryComparison {
    /// The image is as requested.
    Match,
    /// The image has another size or format.
    Mismatch,
    /// The header of the image file did not state its size and format, or the request did not ask for an image.
    Unknown,
}

/// The requested properties of the images: those of the task, or of its fallback. `None` stands for a property that the
/// request leaves open.
#[derive(Default)]
struct RequestedImages<'a> {
    size_and_format: Option<(SizeRequest, Format)>,
    quality: Option<&'a str>,
    model: Option<&'a str>,
    /// The number of images; 0 if the model chooses it.
    count: usize,
}

/// The facts about a job that are needed to close its record when the answer ends.
struct ClosingContext {
    gateway: Arc<Gateway>,
    /// The number of images that were requested.
    requested_count: usize,
    /// The requested model, if the request names it.
    model: Option<String>,
    /// The requested quality, if the request names it.
    quality: Option<String>,
    /// The tokens that were charged for failed calls.
    failed_call_usage: Option<AnswerUsage>,
    /// True if the caller got an error because the image is not the requested one.
    is_refused: bool,
    /// Claims the answer for other nodes if its caller has left.
    early_claim: Option<EarlyClaim>,
    /// The span of the request in the log.
    span: tracing::Span,
    /// The job itself, because an answer that breaks off is remembered for retries of the job.
    job_context: Arc<JobContext>,
}

/// Runs a job: attempts, delivery and record.
///
/// # Errors
///
/// Returns the error that the money rules select from the failed attempts, or [`Error::InProgress`] if the answer
/// deadline has passed.
pub(super) async fn run_image_job(
    gateway: &Arc<Gateway>,
    caller: Caller,
    options: RequestOptions,
    job: Job,
) -> Result<GatewayAnswer, Error> {
    // With an idempotency key, the key alone identifies a repeated request, and the conversation turn of the agent is
    // ignored.
    let turn = options.agent_turn.clone().filter(|_| options.idempotency_key.is_none());
    let wants_urls = job.adaptations().asks_for_urls();
    let task = SharedTask::from(job.with_turn(turn));
    let adapted = task.adapted_text();
    if wants_urls {
        count_if_refused(gateway, &caller, url_answer::check(&task))?;
    }
    count_if_refused(gateway, &caller, request_limits::check(gateway, &caller, TaskRef::from(&task)))?;
    let context = Arc::new(JobContext::new(gateway, caller, options, task));
    let mut answer = repeated_request::answer_request(Arc::clone(&context)).await?;
    if wants_urls {
        answer = url_answer::replace_images(&context, answer).await?;
    }
    Ok(answer.with_adapted_mark(adapted))
}

/// Makes the attempts of a job whose intent is recorded. Returns the answer as soon as its image has begun, or, for a
/// response without images, as soon as the response is proven. The record is closed when the answer ends.
pub(super) async fn deliver(
    context: &Arc<JobContext>,
    mut record: OpenRecord,
    answer_sender: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<GatewayAnswer, Error> {
    let success = match run_attempts(context, &mut record, answer_sender).await {
        Ok(success) => success,
        Err(JobFailure::Abandoned) => {
            close_record(record, JobOutcome::cancelled()).await;
            return Err(Error::Unavailable);
        }
        Err(JobFailure::Failed(error, last)) => {
            close_record(record, outcome::failed_outcome(&error, last)).await;
            return Err(error);
        }
    };
    let (success, conversion) = convert_answer(context, success).await;
    record.mark_first_byte();
    let fallback = success.fallback_job.as_ref().map(fallback_order::size_and_quality);
    fallback.iter().for_each(|size_and_quality| record.set_fallback(size_and_quality.clone()));
    if success.was_tool_removed {
        record.clear_injected_tool();
    }
    let requested = RequestedImages::new(&context.task, &success);
    let comparison = requested.compare(&success.proven);
    let is_refused = comparison == DeliveryComparison::Mismatch
        && context.gateway.delivery_policy(context.caller.group_name()) == DeliveryPolicy::Fail;
    let mut headers = answer_headers(&success, delivery_word(comparison, conversion), fallback);
    headers.extend(record.limit_status().headers().map(|(name, value)| (name.to_owned(), value)));
    let closing_context = ClosingContext {
        gateway: Arc::clone(&context.gateway),
        requested_count: requested.count,
        model: requested.model.map(str::to_owned),
        quality: requested.quality.filter(|quality| *quality != "auto").map(str::to_owned),
        failed_call_usage: success.failed_call_usage,
        is_refused,
        early_claim: answer_sender.and_then(AnswerSender::early_claim),
        span: tracing::Span::current(),
        job_context: Arc::clone(context),
    };
    let (lease, proven) = (success.lease, success.proven);
    let on_end =
        Box::new(move |relay_outcome, summary| close_delivery(record, lease, relay_outcome, summary, closing_context));
    let broken_event = || Error::Upstream(UpstreamFault::Broken).event();
    let body = RelayBody::new(proven, broken_event, on_end).with_cutoff(context.gateway.cutoff());
    let broken = (conversion == ConversionOutcome::Broken).then_some(UpstreamFault::Broken);
    if let Some(fault) = is_refused.then_some(UpstreamFault::Mismatch).or(broken) {
        // The caller gets an error instead of the answer. If the answer is not a stream, it is still read to its end
        // after the body is dropped, so that its tokens are recorded.
        drop(body);
        return Err(Error::Upstream(fault));
    }
    Ok(GatewayAnswer::from_upstream(context.task.is_stream(), headers, body))
}

/// Screens the prompt, and makes the attempts.
async fn run_attempts(
    context: &JobContext,
    record: &mut OpenRecord,
    answer_sender: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<JobSuccess, JobFailure> {
    let (gateway, group) = (&context.gateway, context.caller.group_name());
    let screening = match &context.task {
        SharedTask::Images(job) => prompt_screening::check_images(gateway, group, job).await,
        SharedTask::Response(job) => {
            prompt_screening::check_response(gateway, (group, context.options.admission()), job).await
        }
    };
    screening.map_err(|error| JobFailure::Failed(error, None))?;
    attempt::run(context.attempt_context(answer_sender), TaskRef::from(&context.task), record).await
}

/// Returns the headers that describe the images of an answer.
fn answer_headers(success: &JobSuccess, delivery: Option<&str>, fallback: Option<String>) -> BTreeMap<String, String> {
    let headers = [
        ("x-imagate-simulated", success.is_simulated.then(|| "true".to_owned())),
        (
            "x-imagate-delivered",
            success
                .proven
                .first_image()
                .map(|properties| format!("{}x{} {}", properties.width, properties.height, properties.format)),
        ),
        ("x-imagate-delivery", delivery.map(str::to_owned)),
        ("x-imagate-fallback", fallback),
        ("x-imagate-missing", (success.missing_images > 0).then(|| success.missing_images.to_string())),
    ];
    headers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Returns the value of `x-imagate-delivery`.
const fn delivery_word(comparison: DeliveryComparison, conversion: ConversionOutcome) -> Option<&'static str> {
    match (comparison, conversion) {
        (DeliveryComparison::Unknown, _) => None,
        (DeliveryComparison::Match, ConversionOutcome::Converted) => Some("converted"),
        (DeliveryComparison::Mismatch, ConversionOutcome::Converted) => Some("mismatch converted"),
        (DeliveryComparison::Match, _) => Some("match"),
        (DeliveryComparison::Mismatch, _) => Some("mismatch"),
    }
}

/// Returns the draft of a job's record, which is stored as the intent, with the most that the job can cost.
pub(super) fn record_draft(context: &JobContext, cost: &CostEstimate) -> RecordDraft {
    let (caller, task) = (&context.caller, &context.task);
    let (image, tool) = match task {
        SharedTask::Images(job) => (Some(job), None),
        SharedTask::Response(job) => (None, job.image_tool()),
    };
    let quality = image.map(|job| job.quality()).or(tool.map(|tool| tool.quality.as_deref()));
    let format = image.map(|job| job.format()).or(tool.map(|tool| tool.format));
    let size = image.map(|job| job.size()).or(tool.map(|tool| tool.size)).map(|size| size.to_string());
    let count = image.map(|job| job.count());
    tracing::debug!(key = %caller.public_id(), operation = task.operation_id(), size, n = count, "a job begins");
    RecordDraft {
        request_id: context.options.request_id.as_str().into(),
        operation: task.operation_id(),
        model: Some(task.model().to_owned()),
        stream: task.is_stream(),
        size,
        quality: quality.map(|quality| quality.unwrap_or("auto").to_owned()),
        output_format: format.map(|format| format.as_str().to_owned()),
        n: count,
        account: context.gateway.accounts().likely_account(TaskRef::from(task), caller, &context.options.request_id),
        group: caller.group_name().to_owned(),
        user: caller.user().clone(),
        key: caller.key().clone(),
        end_user: task.end_user().map(str::to_owned),
        injected_tool: task.is_tool_injected(),
        adapted: task.adapted_text(),
        fingerprint: context.fingerprint(),
        max_cost_usd: cost.call,
        max_job_cost_usd: cost.job,
    }
}

/// Records the outcome durably before the caller gets the last byte. The slot is released before that, because the
/// upstream has finished.
fn close_delivery(
    mut record: OpenRecord,
    lease: Option<Lease>,
    relay_outcome: RelayOutcome,
    summary: AnswerSummary,
    context: ClosingContext,
) -> ClosingFuture {
    let ClosingContext { gateway, requested_count, model, quality, failed_call_usage, span, job_context, .. } = context;
    let (is_refused, early_claim) = (context.is_refused, context.early_claim);
    let closing = async move {
        if let Some(lease) = lease {
            if let RelayOutcome::Broken(error) = relay_outcome
                && let Some(reason) = failure_reason::of_broken_answer(error)
            {
                gateway.accounts().note_failed_call(&lease, reason, None);
            }
            gateway.accounts().apply_feedback(&lease, feedback_for_outcome(relay_outcome)).await;
        }
        // If no image was delivered, the record names no image model.
        let model = summary.image_model.or(model).filter(|_| !summary.delivered.is_empty());
        record.set_models(model, summary.host_model);
        let count = summary.delivered.len();
        summary
            .delivered
            .into_iter()
            .for_each(|image| record.add_delivered(delivered_image_entry(image, quality.as_ref())));
        if let Some(total_usage) = relay::sum_usage(summary.usage, failed_call_usage) {
            record.set_usage(token_usage::model_usage(total_usage));
        }
        if let SharedTask::Response(job) = &job_context.task {
            let used: Vec<_> = job.serving_accounts().values_to_bind(record.account()).cloned().collect();
            record.set_bindings(used.into_iter().chain(summary.bindings).collect());
        }
        let code = ApiErrorCode::UpstreamError.as_str();
        let outcome = match relay_outcome {
            RelayOutcome::Complete | RelayOutcome::CallerLeft if is_refused => {
                JobOutcome::failed(code).with_reason(UpstreamFault::Mismatch.as_str(), None)
            }
            RelayOutcome::Complete => {
                if count < requested_count {
                    tracing::warn!(
                        asked = requested_count,
                        delivered = count,
                        "the upstream made fewer images than asked for"
                    );
                }
                if let Some(claim) = early_claim {
                    claim.write().await;
                }
                JobOutcome::succeeded()
            }
            RelayOutcome::CallerLeft => JobOutcome::cancelled(),
            RelayOutcome::Broken(error) => {
                record.fail_last_attempt(ledger::AttemptClass::OutputBegun);
                job_context.remember_broken_answer().await;
                tracing::warn!(error = &error as &dyn std::error::Error, "an answer broke off after it had begun");
                JobOutcome::interrupted(Some(code.to_owned()))
                    .with_reason(failure_reason::from_relay_error(error), None)
            }
        };
        close_record(record, outcome).await;
    };
    // The record may be closed long after the request was answered; the log lines still carry the request id.
    Box::pin(closing.instrument(span))
}

/// Returns the account feedback for the end of an answer.
const fn feedback_for_outcome(relay_outcome: RelayOutcome) -> AccountFeedback {
    match relay_outcome {
        RelayOutcome::Complete => AccountFeedback::Success,
        // None of these outcomes is a failure of the account: the caller left or was too slow, the gateway stopped, a
        // spooled image could not be read back, or the upstream ended the answer itself because it refuses the content
        // or because the conversation is too long.
        RelayOutcome::CallerLeft
        | RelayOutcome::Broken(
            RelayError::Cutoff | RelayError::UpstreamFailed | RelayError::SpoolUnreadable | RelayError::CallerTooSlow,
        ) => AccountFeedback::Neutral,
        // A long answer can reach the time limit although the account has not failed.
        RelayOutcome::Broken(RelayError::Timeout) => AccountFeedback::Doubtful,
        RelayOutcome::Broken(_) => AccountFeedback::Failed,
    }
}

/// Closes a record. If the database fails or takes too long, the error is only logged, so that an image that was paid
/// for still reaches its caller. The intent stays in the store, and the next start finds it.
async fn close_record(record: OpenRecord, outcome: JobOutcome) {
    if let Err(error) = record.close(outcome).with_timeout().await {
        tracing::error!(error = &error as &dyn std::error::Error, "an outcome could not be recorded");
    }
}

fn delivered_image_entry(image: DeliveredImage, requested_quality: Option<&String>) -> ledger::DeliveredImageEntry {
    let DeliveredImage { properties, quality } = image;
    ledger::DeliveredImageEntry {
        size: properties.map(|properties| format!("{}x{}", properties.width, properties.height)),
        output_format: properties.map(|properties| properties.format.as_str().to_owned()),
        quality: quality.or_else(|| requested_quality.cloned()),
    }
}

// === impl RequestedImages ===

impl<'a> RequestedImages<'a> {
    fn new(task: &'a SharedTask, success: &'a JobSuccess) -> Self {
        match task {
            SharedTask::Images(job) => {
                let image_job = success.fallback_job.as_ref().unwrap_or(job);
                Self {
                    size_and_format: Some((image_job.size(), image_job.format())),
                    quality: image_job.quality(),
                    model: Some(image_job.model()),
                    count: usize::try_from(job.count()).unwrap_or(1),
                }
            }
            // The model and the count stay open: the answer names the image model, and the host model chooses the
            // number of images.
            SharedTask::Response(job) => {
                job.image_tool().filter(|_| !success.was_tool_removed).map_or_else(Self::default, |tool| Self {
                    size_and_format: Some((tool.size, tool.format)),
                    quality: tool.quality.as_deref(),
                    ..Self::default()
                })
            }
        }
    }

    /// Compares the first image with the request. The size `auto` matches every size.
    fn compare(&self, proven: &ProvenAnswer) -> DeliveryComparison {
        if proven.other_format().is_some() && self.size_and_format.is_some() {
            return DeliveryComparison::Mismatch;
        }
        let first = proven.first_image();
        let Some((image, (size, format))) = first.zip(self.size_and_format) else { return DeliveryComparison::Unknown };
        let has_size = size.exact().is_none_or(|size| (size.width(), size.height()) == (image.width, image.height));
        if has_size && image.format == format { DeliveryComparison::Match } else { DeliveryComparison::Mismatch }
    }
}
