//! Runs a job from its recorded intent to its answer, in the same way for every operation.

use std::sync::Arc;

use super::attempt_context::AttemptContext;
use super::attempt_loop::try_accounts;
use super::attempt_types::{JobFailure, JobSuccess};
use super::caller_error::failed_outcome;
use super::delivered_images::{DeliveryComparison, RequestedImages, answer_headers, delivery_word};
use super::format_conversion::{ConversionOutcome, convert_answer};
use super::gateway_answer::GatewayAnswer;
use super::job_closing::{ClosingContext, close_delivery, close_record};
use super::job_context::JobContext;
use super::record_draft::record_draft;
use super::{cost_estimate, fallback_order, prompt_screening, request_limits};
use crate::error::{Error, UpstreamFault};
use crate::gateway::config::DeliveryPolicy;
use crate::gateway::ledger::{JobOutcome, OpenRecord};
use crate::gateway::relay::RelayBody;
use crate::gateway::replay::AnswerSender;
use crate::gateway::rules::{SharedTask, TaskRef};

/// Runs the whole job, beginning with its intent. `answer_sender` knows if the caller still waits; without it, the job is
/// never abandoned. If the caller of a stream that had begun leaves, the job ends as cancelled, unless the caller has a
/// key with which it could ask again.
///
/// # Errors
///
/// Returns the error that the money rules select from the failed attempts, and [`Error::Unavailable`] if the intent
/// cannot be recorded.
pub(super) async fn run_job(
    context: &Arc<JobContext>,
    answer_sender: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<GatewayAnswer, Error> {
    let mut record = open_record(context, answer_sender).await?;
    let ends_with_caller = context.task.is_stream() && context.options.idempotency_key.is_none();
    if ends_with_caller {
        record.set_drop_outcome(JobOutcome::cancelled());
    }
    // The future is boxed, because it is the largest part of a waiting request's memory.
    let answer = Box::pin(make_answer(context, record, answer_sender));
    tokio::select! {
        biased;
        answer = answer => answer,
        () = context.departure.cancelled(), if ends_with_caller => Err(Error::Unavailable),
    }
}

/// Records the intent durably, before the first byte is sent upstream.
async fn open_record(
    context: &JobContext,
    answer_sender: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<OpenRecord, Error> {
    if context.caller.group().problem.is_some() {
        tracing::warn!(
            group = context.caller.group_name(),
            "a request is refused: the settings of its group cannot be used"
        );
        return Err(Error::Unavailable);
    }
    let cost = cost_estimate::estimate(&context.services, &context.caller, &context.task, context.fallback_policy());
    let attempt_context = AttemptContext { job: context, answer_sender };
    let reservation = tokio::select! {
        biased;
        reserved = request_limits::reserve(context, &cost) => reserved?,
        // The job waits for room in a budget, and nothing was spent for it.
        () = attempt_context.until_abandoned() => return Err(Error::Unavailable),
    };
    let draft = record_draft(context, &cost);
    context.services.ledger.open(draft, reservation).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an intent could not be recorded");
        Error::Unavailable
    })
}

/// Makes the attempts of a job whose intent is recorded. Returns the answer as soon as its image has begun, or, for a
/// response without images, as soon as the response is proven. The record is closed when the answer ends.
async fn make_answer(
    context: &Arc<JobContext>,
    mut record: OpenRecord,
    answer_sender: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<GatewayAnswer, Error> {
    let success = match screen_and_try(context, &mut record, answer_sender).await {
        Ok(success) => success,
        Err(JobFailure::Abandoned) => {
            close_record(record, JobOutcome::cancelled()).await;
            return Err(Error::Unavailable);
        }
        Err(JobFailure::Failed(error, last)) => {
            close_record(record, failed_outcome(&error, last.as_deref())).await;
            return Err(error);
        }
    };
    let (success, conversion) = convert_answer(context, success).await;
    record.mark_first_byte();
    let fallback = success.fallback_job.as_ref().map(fallback_order::size_and_quality);
    if let Some(size_and_quality) = &fallback {
        record.set_fallback(size_and_quality.clone());
    }
    if success.was_tool_removed {
        record.clear_injected_tool();
    }
    let requested = RequestedImages::new(&context.task, &success);
    let comparison = requested.compare(&success.proven);
    let fails_for_mismatch =
        comparison == DeliveryComparison::Mismatch && context.caller.group().delivery == DeliveryPolicy::Fail;
    let mut headers = answer_headers(&success, delivery_word(comparison, conversion), fallback);
    headers.extend(record.limit_status().headers().map(|(name, value)| (name.to_owned(), value)));
    let closing_context = ClosingContext {
        requested_count: requested.count,
        model: requested.model.map(str::to_owned),
        quality: requested.quality.filter(|quality| *quality != "auto").map(str::to_owned),
        failed_call_usage: success.failed_call_usage,
        fails_for_mismatch,
        early_claim: answer_sender.and_then(AnswerSender::early_claim),
        span: tracing::Span::current(),
        job_context: Arc::clone(context),
    };
    let (lease, proven) = (success.lease, success.proven);
    let on_end =
        Box::new(move |relay_outcome, summary| close_delivery(record, lease, relay_outcome, summary, closing_context));
    let broken_event = || Error::Upstream(UpstreamFault::Broken).event();
    let body = RelayBody::new(proven, broken_event, on_end).with_cutoff(&context.services.cutoff);
    let broken = (conversion == ConversionOutcome::Broken).then_some(UpstreamFault::Broken);
    if let Some(fault) = fails_for_mismatch.then_some(UpstreamFault::Mismatch).or(broken) {
        // The caller gets an error instead of the answer. If the answer is not a stream, it is still read to its end
        // after the body is dropped, so that its tokens are recorded.
        drop(body);
        return Err(Error::Upstream(fault));
    }
    Ok(GatewayAnswer::from_upstream(context.task.is_stream(), headers, body))
}

/// Screens the prompt, and makes the attempts.
async fn screen_and_try(
    context: &JobContext,
    record: &mut OpenRecord,
    answer_sender: Option<&AnswerSender<GatewayAnswer>>,
) -> Result<JobSuccess, JobFailure> {
    let (upstream, caller) = (&context.services.upstream, &context.caller);
    let screening = match &context.task {
        SharedTask::Images(job) => prompt_screening::check_images(upstream, caller, job).await,
        SharedTask::Response(job) => {
            prompt_screening::check_response(upstream, caller, context.options.admission(), job).await
        }
    };
    screening.map_err(|error| JobFailure::Failed(error, None))?;
    try_accounts(AttemptContext { job: context, answer_sender }, TaskRef::from(&context.task), record).await
}
