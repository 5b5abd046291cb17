//! The attempt loop: the only place that decides on another round.
//!
//! A round asks accounts for one size and quality ([`AttemptRound`]). If no image was made and the fallback policy
//! allows it, a round for a smaller image follows; after a call that may have been paid for, it follows only if the
//! caller accepts that both images may be paid for, and still waits for the answer. A round begins only if there is
//! time for it. A response that the upstream may have refused because of the injected tool is sent again without that
//! tool.

use std::pin::pin;

use super::attempt_context::AttemptContext;
use super::attempt_deadlines::AttemptDeadlines;
use super::attempt_history::AttemptHistory;
use super::attempt_round::AttemptRound;
use super::attempt_types::{JobFailure, JobSuccess, RoundOutcome};
use super::shared_record::SharedRecord;
use super::{cost_estimate, fallback_order, fan_out, token_usage};
use crate::gateway::accounts::{AccountFeedback, Lease};
use crate::gateway::ledger::OpenRecord;
use crate::gateway::rules::{Job, ResponseJob, TaskRef};

/// Asks accounts until one gives a proven answer. If none does, follows the fallback order, or sends a response again
/// without the injected tool. If the caller leaves before anything was sent to an upstream, the job ends.
pub(super) async fn try_accounts(
    context: AttemptContext<'_>,
    original_task: TaskRef<'_>,
    record: &mut OpenRecord,
) -> Result<JobSuccess, JobFailure> {
    let request_deadlines = AttemptDeadlines::new(original_task, context.job.caller.group().deadlines.image);
    let mut abandoned = pin!(context.until_abandoned());
    let (mut fallback_job, mut job_without_tool): (Option<Job>, Option<ResponseJob>) = (None, None);
    let mut history = AttemptHistory::default();
    let shared_record = SharedRecord::new(record);
    loop {
        let changed_task = fallback_job.as_ref().map(TaskRef::from).or(job_without_tool.as_ref().map(TaskRef::from));
        let task = changed_task.unwrap_or(original_task);
        let deadlines = context.round_deadlines(task, request_deadlines);
        let mut round = AttemptRound::new(context, task, deadlines, &mut history);
        match (round.run(&shared_record, None, abandoned.as_mut()).await?, task) {
            (RoundOutcome::ImageBegun { proven, lease, is_tool_removed, .. }, _) => {
                if job_without_tool.is_some() {
                    note_added_tool_refused(context, &lease).await;
                }
                return Ok(JobSuccess {
                    proven,
                    is_simulated: lease.endpoint().is_simulator(),
                    lease: Some(lease),
                    missing_images: 0,
                    fallback_job,
                    was_tool_removed: is_tool_removed || job_without_tool.is_some(),
                    failed_call_usage: history.charged_usage,
                });
            }
            (RoundOutcome::OneImagePerCall(lease), TaskRef::Images(job)) => {
                if let Some(success) = Box::pin(fan_out::make_images(&mut round, job, &shared_record, lease)).await {
                    return Ok(JobSuccess { fallback_job, failed_call_usage: history.charged_usage, ..success });
                }
            }
            (RoundOutcome::OneImagePerCall(_) | RoundOutcome::NoAccountLeft, _) => {}
        }
        match task {
            TaskRef::Images(job) if context.may_fall_back(&history, &request_deadlines) => {
                fallback_job = fallback_order::next_fallback(job);
            }
            TaskRef::Response(job) if job.is_tool_injected() && history.may_pass_without_tool() => {
                job_without_tool = Some(job.without_injected_tool());
            }
            TaskRef::Images(_) | TaskRef::Response(_) => (fallback_job, job_without_tool) = (None, None),
        }
        if let Some(smaller_job) = &fallback_job {
            begin_fallback(context, smaller_job, history.may_be_paid(), &shared_record);
        } else if job_without_tool.is_some() {
            tracing::warn!("the upstream refuses the request with the added image tool: sending the request unchanged");
        } else {
            if let Some(usage) = history.charged_usage.take() {
                shared_record.with_record(|record| record.set_usage(token_usage::model_usage(usage)));
            }
            return Err(history.into_failure());
        }
    }
}

/// Records that a smaller image is asked for.
fn begin_fallback(
    context: AttemptContext<'_>,
    smaller_job: &Job,
    maybe_paid_twice: bool,
    shared_record: &SharedRecord<'_>,
) {
    let smaller_image = fallback_order::size_and_quality(smaller_job);
    tracing::info!(to = smaller_image, maybe_paid_twice, "no account made the image: trying the next fallback");
    let most = cost_estimate::max_cost_without_fallback(&context.job.services, &context.job.caller, smaller_job);
    shared_record.with_record(|record| record.begin_fallback(smaller_image, most));
    if maybe_paid_twice {
        shared_record.mark_maybe_paid_twice();
    }
}

/// Notes that the account has accepted without the injected tool what was refused with it.
async fn note_added_tool_refused(context: AttemptContext<'_>, lease: &Lease) {
    context.job.services.accounts.apply_late_feedback(&lease.grant(), AccountFeedback::AddedToolRefused).await;
}
