//! Makes one call to one account, and reads its answer until it is proven: an image, or other output of a response, has
//! begun.

use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use super::attempt_context::AttemptContext;
use super::attempt_deadlines::AttemptDeadlines;
use super::attempt_types::{FailedCall, ProvenCall};
use super::fan_out_progress::FanOutProgress;
use crate::gateway::accounts::{Lease, UpstreamAddress};
use crate::gateway::relay::{
    AnswerTimeouts, AnswerWithoutImage, ProofError, RequestedAnswer, RequestedResponse, SpooledImageError,
    UpstreamRelay,
};
use crate::gateway::rules::{Job, ResponseJob, TaskRef};
use crate::gateway::upstream::{
    AddressedAnswer, AttemptFailure, FailureCause, FaultScope, ReplyBody, classify_imageless_answer,
};
use crate::tables;

/// The value of `quality` that leaves the choice to the model.
const AUTO_QUALITY: &str = "auto";

/// Makes the call. If the gateway stops during the call, the call is given up, although it may have been paid for.
pub(super) async fn make_call(
    context: AttemptContext<'_>,
    lease: &Lease,
    task: TaskRef<'_>,
    fan_out: Option<&FanOutProgress>,
    deadlines: &AttemptDeadlines,
) -> Result<ProvenCall, FailedCall> {
    tokio::select! {
        biased;
        result = call_until_image(context, lease, task, fan_out, deadlines) => result,
        () = context.job.services.cutoff.cancelled() => Err(AttemptFailure::new(FailureCause::Cutoff).into()),
    }
}

/// Sends the call, and reads its answer until it is proven.
async fn call_until_image(
    context: AttemptContext<'_>,
    lease: &Lease,
    task: TaskRef<'_>,
    fan_out: Option<&FanOutProgress>,
    deadlines: &AttemptDeadlines,
) -> Result<ProvenCall, FailedCall> {
    let AttemptDeadlines { max_silence, complete_by: end, .. } = *deadlines;
    let mut give_up_signal = pin!(context.until_call_is_given_up(deadlines, fan_out));
    let reply = tokio::select! {
        biased;
        reply = context.job.services.upstream.send(lease, task, end.min(Instant::now() + max_silence)) => reply?,
        () = give_up_signal.as_mut() => return Err(AttemptFailure::new(FailureCause::Timeout).into()),
    };
    // `max_silence` also limits the pauses within an image if it is shorter than the idle limit.
    let idle = Duration::from_secs(tables::UPSTREAM_IDLE_SECONDS).min(max_silence);
    let timeouts = AnswerTimeouts { idle, event_idle: max_silence, deadline: end };
    let (request_id, status) = (reply.request_id, reply.status);
    let (is_single_element, is_from_image_tool) = (fan_out.is_some(), reply.is_from_image_tool);
    let phrases = lease.account().phrases();
    let fault_scope = match task {
        TaskRef::Images(job) if is_from_image_tool => FaultScope::for_image_tool(job.has_renamed_user(), phrases),
        TaskRef::Images(job) => FaultScope::for_images(job.has_renamed_user(), phrases),
        TaskRef::Response(_) => FaultScope::for_response(phrases),
    };
    let open_relay = |body| match task {
        TaskRef::Images(job) if is_from_image_tool => {
            UpstreamRelay::for_image_tool(body, requested_answer(job, is_single_element), timeouts)
        }
        TaskRef::Images(job) => UpstreamRelay::for_images(body, requested_answer(job, is_single_element), timeouts),
        TaskRef::Response(job) => UpstreamRelay::for_response(body, requested_response(job), timeouts),
    };
    let mut answer = open_relay(reply.body);
    let mut proof_result = tokio::select! {
        biased;
        result = answer.read_until_proven() => result,
        () = give_up_signal => Err(ProofError::Unusable(FailureCause::Timeout)),
    };
    // `give_up_signal` limits the wait for an image to begin. It does not limit the wait for the next bytes of an image
    // that has begun, which state its size and format.
    if matches!(proof_result, Err(ProofError::Unusable(FailureCause::Timeout))) && answer.is_proven() {
        proof_result = answer.read_until_proven().await;
    }
    if let (Err(ProofError::NoImage(imageless)), TaskRef::Images(job)) = (&proof_result, task)
        && is_by_address(imageless, fault_scope)
    {
        let addressed = AddressedAnswer {
            addresses: requested_addresses(imageless, lease, job),
            members: &imageless.members,
            is_from_image_tool,
        };
        // If an image cannot be fetched, the answer that stated the addresses decides.
        if let Some(mut fetched) = fetch_images(context, lease, addressed, end).await.map(open_relay)
            && fetched.read_until_proven().await.is_ok()
        {
            return Ok(ProvenCall { proven: fetched.into_proven(), request_id });
        }
    }
    match proof_result {
        Ok(()) => Ok(ProvenCall { proven: answer.into_proven(), request_id }),
        Err(error) => {
            let failed_call = classify_proof_error(error, fault_scope);
            let failed_call =
                if matches!(task, TaskRef::Response(_)) { as_unknown_model(failed_call) } else { failed_call };
            Err(with_reply(failed_call, request_id, status))
        }
    }
}

/// Adds the upstream's id of the call. A failure that was found in the reply gets the status of the reply.
fn with_reply(mut failed_call: FailedCall, request_id: Option<String>, status: u16) -> FailedCall {
    let failure = &mut failed_call.failure;
    failure.request_id = request_id;
    if failure.status.is_some() {
        failure.status = Some(status);
    }
    failed_call
}

/// Returns the addresses of as many images as were requested.
fn requested_addresses<'a>(answer: &'a AnswerWithoutImage, lease: &Lease, job: &Job) -> &'a [String] {
    let count = if lease.endpoint().makes_single_image() { 1 } else { job.image_count() };
    &answer.addresses[..answer.addresses.len().min(count)]
}

/// Fetches the images of an answer that states their addresses, if its account allows it.
async fn fetch_images(
    context: AttemptContext<'_>,
    lease: &Lease,
    answer: AddressedAnswer<'_>,
    until: Instant,
) -> Option<ReplyBody> {
    let is_allowed = lease.endpoint().address().is_some_and(UpstreamAddress::fetches_images);
    if !is_allowed {
        return None;
    }
    let remote = context.job.services.settings.config.remote_images.as_ref();
    context.job.services.upstream.fetch_images(lease, answer, remote, until).await.ok()
}

/// True if all that an answer lacks is the images at the addresses that it states.
fn is_by_address(answer: &AnswerWithoutImage, fault_scope: FaultScope<'_>) -> bool {
    classify_answer(answer, fault_scope).cause == FailureCause::ImageByAddress
}

/// Classifies a complete answer without an image.
fn classify_answer(answer: &AnswerWithoutImage, fault_scope: FaultScope<'_>) -> AttemptFailure {
    let has_image_substitute = answer.has_image_substitute || !answer.addresses.is_empty();
    let mut failure = classify_imageless_answer(&answer.members, has_image_substitute, fault_scope);
    if failure.cause == FailureCause::NoImage && !answer.addresses.is_empty() {
        failure.cause = FailureCause::ImageByAddress;
    }
    failure
}

/// Reports a model that the account does not offer as unknown, because the caller of a response chose it.
fn as_unknown_model(mut failed_call: FailedCall) -> FailedCall {
    if failed_call.failure.cause == FailureCause::NotOffered {
        failed_call.failure.cause = FailureCause::UnknownModel;
    }
    failed_call
}

/// Classifies the failure of a call whose answer was not proven, with the tokens that were charged for it.
fn classify_proof_error(error: ProofError, fault_scope: FaultScope<'_>) -> FailedCall {
    match error {
        ProofError::NoImage(answer) => {
            let failure = classify_answer(&answer, fault_scope);
            let usage = answer.usage.filter(|usage| usage.total > 0 || !usage.charges.is_empty());
            FailedCall { failure, usage }
        }
        ProofError::Unusable(cause) => received_failure(cause),
    }
}

/// Classifies an image that began but broke off or could not be stored. It may have been paid for.
pub(super) fn classify_spool_error(error: SpooledImageError) -> FailedCall {
    match error {
        SpooledImageError::Broken(error, usage) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "one of several images was not received completely"
            );
            FailedCall { usage, ..received_failure(FailureCause::Broken) }
        }
        SpooledImageError::Disk(kind, usage) => {
            tracing::error!(%kind, "one of several images could not be stored on disk");
            FailedCall { usage, ..received_failure(FailureCause::SpoolFailed) }
        }
    }
}

/// Returns the failure of an answer that stated success.
fn received_failure(cause: FailureCause) -> FailedCall {
    FailedCall::from(AttemptFailure::new(cause).with_status(200))
}

fn requested_response(job: &ResponseJob) -> RequestedResponse {
    RequestedResponse { model: job.model().to_owned(), stream: job.is_stream(), now: job.received_at().timestamp() }
}

/// Returns the properties of the request that are needed to read and write its answer.
pub(super) fn requested_answer(job: &Job, is_single_element: bool) -> RequestedAnswer {
    RequestedAnswer {
        model: job.model().to_owned(),
        prompt: job.prompt().to_owned(),
        count: job.image_count(),
        partials: job.partial_images(),
        event_prefix: job.event_prefix(),
        stream: job.is_stream(),
        is_single_element,
        quality: job.quality().filter(|quality| *quality != AUTO_QUALITY).map(str::to_owned),
        size: job.size().exact().map(|size| size.to_string()),
        output_format: job.format().as_str(),
        now: job.received_at().timestamp(),
    }
}
