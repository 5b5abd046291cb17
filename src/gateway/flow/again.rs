//! Requests that may have been sent before: with an idempotency key, or as a retry of a client that had left.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use super::made::GatewayAnswer;
use super::work::JobContext;
use super::{counted, early};
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault};
use crate::gateway::Gateway;
use crate::gateway::replay::{AnswerReader, AnswerSource, ClaimOutcome, ReplayError};

/// Answers a request. A plain job continues after its caller leaves, because it may have been paid for, and after its
/// caller was asked to come back. A stream ends with its caller, unless an idempotency key lets the caller ask for it
/// again.
///
/// # Errors
///
/// Returns the error to which the money rules reduce the failed attempts, and [`Error::InProgress`] for a plain request
/// whose answer has not begun at the answer deadline.
pub(super) async fn answer(work: Arc<JobContext>) -> Result<GatewayAnswer, Error> {
    if work.task.stream() {
        return early::begin(stream(work)).await;
    }
    let until = Instant::now() + work.gateway.answer_deadline();
    if work.ask.idempotency_key.is_none() {
        return adoptable(work, until).await;
    }
    timeout_at(until, named(work)).await.unwrap_or(Err(Error::InProgress))
}

async fn stream(work: Arc<JobContext>) -> Result<GatewayAnswer, Error> {
    if work.ask.idempotency_key.is_some() { named(work).await } else { work.begin_with_caller().await }
}

/// Answers a request with an idempotency key: the first one makes the answer, and every other one gets the same.
///
/// The job runs on a task of its own, so the answer is there for the next request even if a caller leaves.
async fn named(work: Arc<JobContext>) -> Result<GatewayAnswer, Error> {
    let key = work.ask.idempotency_key.as_deref().unwrap_or_default();
    let entrance = work.gateway.replay().enter(&work.caller, work.task.clone(), key, &work.ask.request_id).await;
    match entrance.map_err(unavailable)? {
        ClaimOutcome::Fresh(ticket) => {
            let follower = ticket.follow();
            let gateway = Arc::clone(&work.gateway);
            let job = async move { ticket.record(work.begin(None).await).await };
            drop(tokio::runtime::Handle::current().spawn(job.in_current_span()));
            follow(&gateway, follower).await
        }
        ClaimOutcome::Follow(follower) => follow(&work.gateway, follower).await.map(GatewayAnswer::replayed),
        ClaimOutcome::Conflict => counted(&work.gateway, &work.caller, Err(reused())),
        ClaimOutcome::Lost => Err(Error::Upstream(UpstreamFault::Unknown)),
    }
}

/// Answers a plain request without an idempotency key. A client's own retry gets the answer of the earlier request, and
/// so does a request that comes back because it was asked to. Any other request begins a new job on a task of its own,
/// so that the answer that is paid for is there for such a retry.
async fn adoptable(work: Arc<JobContext>, until: Instant) -> Result<GatewayAnswer, Error> {
    let (replay, expected) = (work.gateway.replay(), work.expected().await);
    let earlier = if work.ask.may_be_retry() {
        replay.earlier(&work.caller, &work.task, expected.fingerprint).await.map_err(unavailable)?
    } else {
        replay.in_progress(&work.caller, &work.task).await
    };
    if let Some(follower) = earlier {
        let answer = timeout_at(until, follow(&work.gateway, follower)).await;
        return answer.unwrap_or(Err(Error::InProgress)).map(GatewayAnswer::replayed);
    }
    let (waiting, promise) = replay.expect(&work.caller, work.task.clone(), expected);
    let gateway = Arc::clone(&work.gateway);
    let job = async move {
        let result = work.begin(Some(&promise)).await;
        promise.done(result).await;
    };
    drop(tokio::runtime::Handle::current().spawn(job.in_current_span()));
    match waiting.answer(until).await? {
        AnswerSource::Made(made) => Ok(made),
        AnswerSource::Follow(follower) => follow(&gateway, follower).await,
    }
}

async fn follow(gateway: &Gateway, follower: AnswerReader) -> Result<GatewayAnswer, Error> {
    let head = follower.head().await.map_err(|_| Error::Upstream(UpstreamFault::Unknown))?;
    Ok(GatewayAnswer::followed(head, follower, gateway.cutoff()))
}

fn unavailable(error: ReplayError) -> Error {
    tracing::error!(error = &error as &dyn std::error::Error, "an earlier request could not be looked up");
    Error::Unavailable
}

fn reused() -> Error {
    let message = "The header 'Idempotency-Key' belongs to an earlier request with another body. Use a new key.";
    Rejection::new("Idempotency-Key", RejectionReason::IdempotencyKeyReused, message).into()
}
