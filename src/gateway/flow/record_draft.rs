//! The draft of a record, as it is known before the first call. Pure.

use super::cost_estimate::CostEstimate;
use super::job_context::JobContext;
use crate::gateway::ledger::JobRecord;
use crate::gateway::rules::{SharedTask, TaskRef};
use crate::wire::admin::types::Record;

/// Returns the draft of a job's record, which is stored as the intent, with the most that the job can cost.
pub(super) fn record_draft(context: &JobContext, cost: &CostEstimate) -> JobRecord {
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
    let document = Record {
        request_id: context.options.request_id.clone(),
        operation: task.operation_id().to_owned(),
        model: Some(task.model().to_owned()),
        stream: task.is_stream(),
        size,
        quality: quality.map(|quality| quality.unwrap_or("auto").to_owned()),
        output_format: format.map(|format| format.as_str().to_owned()),
        n: count.map(u64::from),
        account: context.services.accounts.likely_account(TaskRef::from(task), caller, &context.options.request_id),
        group: caller.group_name().to_owned(),
        user: caller.user().to_string(),
        key: caller.key().to_string(),
        end_user: task.end_user().map(str::to_owned),
        injected_tool: task.is_tool_injected(),
        maybe_paid_twice: Some(false),
        adapted: task.adapted_text(),
        ..Record::default()
    };
    let fingerprint = context.registration().fingerprint;
    JobRecord { document, fingerprint, max_cost: cost.without_fallback, max_job_cost: cost.job, ..JobRecord::default() }
}
