//! Closes the record of a job when its answer ends.

use std::sync::Arc;

use tracing::Instrument as _;

use super::job_context::JobContext;
use super::token_usage;
use crate::error::{ApiErrorCode, Error, UpstreamFault};
use crate::gateway::accounts::{AccountFeedback, Accounts, Lease};
use crate::gateway::ledger::{AttemptClass, JobOutcome, OpenRecord};
use crate::gateway::relay::{
    AnswerSummary, AnswerUsage, ClosingFuture, DeliveredImage, RelayError, RelayOutcome, sum_usage,
};
use crate::gateway::replay::EarlyClaim;
use crate::gateway::rules::SharedTask;
use crate::wire::admin::types::{RecordImage, RecordReason};

/// The facts about a job that are needed to close its record when the answer ends.
pub(super) struct ClosingContext {
    /// The number of images that were requested.
    pub(super) requested_count: usize,
    /// The requested model, if the request names it.
    pub(super) model: Option<String>,
    /// The requested quality, if the request names it.
    pub(super) quality: Option<String>,
    /// The tokens that were charged for failed calls.
    pub(super) failed_call_usage: Option<AnswerUsage>,
    /// True if the caller got an error because the image is not the requested one.
    pub(super) fails_for_mismatch: bool,
    /// Claims the answer for other nodes if its caller has left or marks its retries.
    pub(super) early_claim: Option<EarlyClaim>,
    /// The span of the request in the log.
    pub(super) span: tracing::Span,
    /// The job itself, because an answer that breaks off is remembered for retries of the job.
    pub(super) job_context: Arc<JobContext>,
}

/// Records the outcome durably before the caller gets the last byte. The slot is released before that, because the
/// upstream has finished.
pub(super) fn close_delivery(
    mut record: OpenRecord,
    lease: Option<Lease>,
    relay_outcome: RelayOutcome,
    summary: AnswerSummary,
    context: ClosingContext,
) -> ClosingFuture {
    let ClosingContext { requested_count, model, quality, failed_call_usage, span, job_context, .. } = context;
    let (fails_for_mismatch, early_claim) = (context.fails_for_mismatch, context.early_claim);
    let closing = async move {
        if let Some(lease) = lease {
            apply_feedback(&job_context.services.accounts, &lease, relay_outcome).await;
        }
        // If no image was delivered, the record names no image model.
        let model = summary.image_model.or(model).filter(|_| !summary.delivered.is_empty());
        record.set_models(model, summary.host_model);
        let count = summary.delivered.len();
        summary.delivered.into_iter().for_each(|image| record.add_delivered(record_image(image, quality.as_ref())));
        if let Some(total_usage) = sum_usage(summary.usage, failed_call_usage) {
            record.set_usage(token_usage::model_usage(total_usage));
        }
        if let SharedTask::Response(job) = &job_context.task {
            let used: Vec<_> = job.serving_accounts().values_to_bind(record.account()).cloned().collect();
            record.set_bindings(used.into_iter().chain(summary.bindings).collect());
        }
        let code = ApiErrorCode::UpstreamError.as_str();
        let outcome = match relay_outcome {
            RelayOutcome::Complete | RelayOutcome::CallerLeft if fails_for_mismatch => {
                JobOutcome::failed(code).with_reason(RecordReason::DeliveryMismatch)
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
                record.fail_last_attempt(AttemptClass::OutputBegun);
                remember_broken_answer(&job_context).await;
                tracing::warn!(error = &error as &dyn std::error::Error, "an answer broke off after it had begun");
                let (_, reason) = consequences_of_broken_answer(error);
                JobOutcome::interrupted(Some(code.to_owned())).with_reason(reason)
            }
        };
        close_record(record, outcome).await;
    };
    // The record may be closed long after the request was answered; the log lines still carry the request id.
    Box::pin(closing.instrument(span))
}

/// Tells the account of an answer how the answer ended.
async fn apply_feedback(accounts: &Accounts, lease: &Lease, relay_outcome: RelayOutcome) {
    let feedback = match relay_outcome {
        RelayOutcome::Complete => AccountFeedback::Success,
        RelayOutcome::CallerLeft => AccountFeedback::Neutral,
        RelayOutcome::Broken(error) => {
            let (feedback, reason) = consequences_of_broken_answer(error);
            if feedback != AccountFeedback::Neutral {
                // The answer had begun, so its status does not tell of the failure.
                accounts.note_failed_call(lease, reason, None);
            }
            feedback
        }
    };
    accounts.apply_feedback(lease, feedback).await;
}

/// Returns the feedback for the account of an answer that broke off after it had begun, and the reason for the record.
const fn consequences_of_broken_answer(error: RelayError) -> (AccountFeedback, RecordReason) {
    match error {
        RelayError::Connection => (AccountFeedback::Failed, RecordReason::Network),
        RelayError::Malformed(_) | RelayError::TooLarge | RelayError::Incomplete => {
            (AccountFeedback::Failed, RecordReason::Broken)
        }
        // A long answer can reach the time limit although the account has not failed.
        RelayError::Timeout => (AccountFeedback::Doubtful, RecordReason::Timeout),
        // None of these is a failure of the account: the caller was too slow, the gateway stopped, a spooled image could
        // not be read back, or the upstream ended the answer itself because it refuses the content or because the
        // conversation is too long.
        RelayError::CallerTooSlow | RelayError::SpoolUnreadable => (AccountFeedback::Neutral, RecordReason::Broken),
        RelayError::Cutoff => (AccountFeedback::Neutral, RecordReason::OutcomeUnknown),
        RelayError::UpstreamFailed => (AccountFeedback::Neutral, RecordReason::UpstreamFailed),
    }
}

/// Remembers that the answer broke off, because some clients repeat such a request although the error advises against a
/// retry. Does nothing for a stream, or for a request with an idempotency key.
async fn remember_broken_answer(context: &JobContext) {
    if !context.task.is_stream() && context.options.idempotency_key.is_none() {
        let error = Error::Upstream(UpstreamFault::Broken);
        let (task, registration) = (context.task.clone(), context.registration());
        context.services.replay.remember(&context.caller, task, registration, &error).await;
    }
}

/// Closes a record. If the database fails or takes too long, the error is only logged, so that an image that was paid
/// for still reaches its caller. The intent stays in the store, and the next start finds it.
pub(super) async fn close_record(record: OpenRecord, outcome: JobOutcome) {
    if let Err(error) = record.close(outcome).with_timeout().await {
        tracing::error!(error = &error as &dyn std::error::Error, "an outcome could not be recorded");
    }
}

fn record_image(image: DeliveredImage, requested_quality: Option<&String>) -> RecordImage {
    let DeliveredImage { properties, quality } = image;
    RecordImage {
        size: properties.map(|properties| format!("{}x{}", properties.width, properties.height)),
        output_format: properties.map(|properties| properties.format.as_str().to_owned()),
        quality: quality.or_else(|| requested_quality.cloned()),
    }
}
