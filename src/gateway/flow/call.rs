//! Makes one call to one account, until an image has begun in its answer.

use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use super::asker::AttemptContext;
use super::siblings::FanOutProgress;
use super::terms::AttemptDeadlines;
use crate::gateway::accounts::Lease;
use crate::gateway::relay::{
    AnswerTimeouts, AnswerUsage, ProofError, ProvenAnswer, RequestedAnswer, RequestedResponse, SpooledImageError,
    UnprovenAnswer,
};
use crate::gateway::rules::{Job, ResponseJob, TaskRef};
use crate::gateway::upstream::{AttemptFailure, FailureCause, FailureClass, error_in_answer};
use crate::tables;

/// The word for a quality that the model chooses.
const AUTO: &str = "auto";

/// A call that gave no image, and the tokens that were charged all the same.
pub(super) struct FailedCall {
    pub(super) failure: AttemptFailure,
    pub(super) usage: Option<AnswerUsage>,
}

/// A call whose answer holds an image.
pub(super) struct ProvenCall {
    pub(super) proven: ProvenAnswer,
    /// True if the simulator drew the image.
    pub(super) simulated: bool,
    /// The upstream's id of the call.
    pub(super) request_id: Option<String>,
}

/// Makes the call. A call that is still in flight when the gateway stops is given up; it may have been paid for.
pub(super) async fn make(
    asker: AttemptContext<'_>,
    lease: &Lease,
    task: TaskRef<'_>,
    siblings: Option<&FanOutProgress>,
    terms: &AttemptDeadlines,
) -> Result<ProvenCall, FailedCall> {
    tokio::select! {
        biased;
        made = call(asker, lease, task, siblings, terms) => made,
        () = asker.gateway.cutoff().cancelled() => Err(AttemptFailure::new(FailureClass::X, FailureCause::Cutoff).into()),
    }
}

async fn call(
    asker: AttemptContext<'_>,
    lease: &Lease,
    task: TaskRef<'_>,
    siblings: Option<&FanOutProgress>,
    terms: &AttemptDeadlines,
) -> Result<ProvenCall, FailedCall> {
    let AttemptDeadlines { patience, end, .. } = *terms;
    let mut given_up = pin!(asker.given_up(terms, siblings));
    let reply = tokio::select! {
        biased;
        reply = asker.gateway.upstream().send(lease, task, end.min(Instant::now() + patience)) => reply?,
        () = given_up.as_mut() => return Err(AttemptFailure::new(FailureClass::X, FailureCause::Timeout).into()),
    };
    // If the wait for a whole image is shorter than the idle time, it also limits the wait for the rest of one.
    let idle = Duration::from_secs(tables::UPSTREAM_IDLE_SECONDS).min(patience);
    let limits = AnswerTimeouts { idle, event_idle: patience, until: end };
    let (simulated, request_id) = (reply.simulated, reply.request_id);
    let part = siblings.is_some();
    let mut proof = match task {
        TaskRef::Images(job) if reply.by_tool => UnprovenAnswer::drawn(reply.body, asked(job, part), limits),
        TaskRef::Images(job) => UnprovenAnswer::images(reply.body, asked(job, part), limits),
        TaskRef::Response(job) => UnprovenAnswer::response(reply.body, told(job), limits),
    };
    let mut sought = tokio::select! {
        biased;
        sought = proof.seek() => sought,
        () = given_up => Err(ProofError::Timeout),
    };
    // An image that has begun may wait only for the bytes that state its format.
    if matches!(sought, Err(ProofError::Timeout)) && proof.has_begun() {
        sought = proof.seek().await;
    }
    let without = match sought {
        Ok(()) => return Ok(ProvenCall { proven: proof.into_proven(), simulated, request_id }),
        Err(without) => no_proof(without),
    };
    let mut lost = if matches!(task, TaskRef::Response(_)) { of_the_callers_choice(without) } else { without };
    lost.failure.request_id = request_id;
    Err(lost)
}

/// Blames a missing model of a response on the caller, who chose it.
fn of_the_callers_choice(mut lost: FailedCall) -> FailedCall {
    if lost.failure.cause == FailureCause::Missing {
        lost.failure.cause = FailureCause::UnknownModel;
    }
    lost
}

/// Classifies an answer without an image.
fn no_proof(no_proof: ProofError) -> FailedCall {
    match no_proof {
        ProofError::Ended(without) => {
            let usage = without.usage.filter(|usage| usage.total > 0);
            FailedCall { failure: error_in_answer(&without.members, without.something), usage }
        }
        ProofError::Malformed => ambiguous(FailureCause::NoImage),
        ProofError::Broken => ambiguous(FailureCause::Broken),
        ProofError::Timeout => ambiguous(FailureCause::Timeout),
    }
}

/// Classifies an image that had begun and is not there: it may well be paid for.
pub(super) fn unkept(unkept: SpooledImageError) -> FailedCall {
    match unkept {
        SpooledImageError::Broken(broken, usage) => {
            tracing::warn!(
                error = &broken as &dyn std::error::Error,
                "one of several images was not received completely"
            );
            FailedCall { usage, ..ambiguous(FailureCause::Broken) }
        }
        SpooledImageError::Disk(kind, usage) => {
            tracing::error!(%kind, "one of several images could not be stored on disk");
            FailedCall { usage, ..ambiguous(FailureCause::Unkept) }
        }
    }
}

fn ambiguous(cause: FailureCause) -> FailedCall {
    FailedCall::from(AttemptFailure::new(FailureClass::X, cause).with_status(200))
}

impl From<AttemptFailure> for FailedCall {
    fn from(failure: AttemptFailure) -> Self {
        Self { failure, usage: None }
    }
}

fn told(job: &ResponseJob) -> RequestedResponse {
    RequestedResponse { model: job.model().to_owned(), stream: job.stream(), now: job.received().timestamp() }
}

/// Returns the parts of the request that the answer repeats.
pub(super) fn asked(job: &Job, part: bool) -> RequestedAnswer {
    RequestedAnswer {
        model: job.model().to_owned(),
        prompt: job.prompt().to_owned(),
        count: usize::try_from(job.count()).unwrap_or(1),
        partials: job.partials(),
        events: job.events(),
        stream: job.stream(),
        part,
        quality: job.quality().filter(|quality| *quality != AUTO).map(str::to_owned),
        size: job.size().exact().map(|size| size.to_string()),
        output_format: job.format().as_str(),
        now: job.received().timestamp(),
    }
}
