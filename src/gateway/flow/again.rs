//! Requests that may be there already: under a name of their own, or as a retry of a client that had left.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use super::made::Made;
use super::work::Work;
use super::{counted, early};
use crate::error::{Error, Fault, Reason, Rejection};
use crate::gateway::Gateway;
use crate::gateway::replay::{AnswerSource, Entrance, Follower, ReplayError};

/// Answers a request. A plain job continues after its caller leaves, because it may have been paid for, and after its
/// caller was told to come back. A stream ends with its caller, unless an idempotency key lets the caller ask for it
/// again.
///
/// # Errors
///
/// Returns the error to which the money rules reduce the failed attempts, and [`Error::InProgress`] for a plain request
/// whose answer has not begun at the answer deadline.
pub(super) async fn answer(work: Arc<Work>) -> Result<Made, Error> {
    if work.task.stream() {
        return early::begin(stream(work)).await;
    }
    let until = Instant::now() + work.gateway.answer_deadline();
    if work.ask.idempotency_key.is_none() {
        return adoptable(work, until).await;
    }
    timeout_at(until, named(work)).await.unwrap_or(Err(Error::InProgress))
}

async fn stream(work: Arc<Work>) -> Result<Made, Error> {
    if work.ask.idempotency_key.is_some() { named(work).await } else { work.begin_with_caller().await }
}

/// A request with an idempotency key: the first one makes the answer, and every other one gets the same.
///
/// The job runs on a task of its own, so that the answer is there for the next one, whoever leaves.
async fn named(work: Arc<Work>) -> Result<Made, Error> {
    let key = work.ask.idempotency_key.as_deref().unwrap_or_default();
    let entrance = work.gateway.replay().enter(&work.caller, work.task.clone(), key, &work.ask.request_id).await;
    match entrance.map_err(unavailable)? {
        Entrance::Fresh(ticket) => {
            let follower = ticket.follow();
            let gateway = Arc::clone(&work.gateway);
            let job = async move { ticket.record(work.begin(None).await).await };
            drop(tokio::runtime::Handle::current().spawn(job.in_current_span()));
            follow(&gateway, follower).await
        }
        Entrance::Follow(follower) => follow(&work.gateway, follower).await.map(Made::replayed),
        Entrance::Conflict => counted(&work.gateway, &work.caller, Err(reused())),
        Entrance::Lost => Err(Error::Upstream(Fault::Unknown)),
    }
}

/// A plain request without a name. A retry of the client's own gets what the one before left behind, and so does a
/// request that comes back because it was told to; any other begins anew, on a task of its own, so that what is paid for
/// is there for such a retry.
async fn adoptable(work: Arc<Work>, until: Instant) -> Result<Made, Error> {
    let (replay, expected) = (work.gateway.replay(), work.expected().await);
    let earlier = if work.ask.may_be_retry() {
        replay.earlier(&work.caller, &work.task, expected.fingerprint).await.map_err(unavailable)?
    } else {
        replay.in_progress(&work.caller, &work.task).await
    };
    if let Some(follower) = earlier {
        let answer = timeout_at(until, follow(&work.gateway, follower)).await;
        return answer.unwrap_or(Err(Error::InProgress)).map(Made::replayed);
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

async fn follow(gateway: &Gateway, follower: Follower) -> Result<Made, Error> {
    let head = follower.head().await.map_err(|_| Error::Upstream(Fault::Unknown))?;
    Ok(Made::followed(head, follower, gateway.cutoff()))
}

fn unavailable(error: ReplayError) -> Error {
    tracing::error!(error = &error as &dyn std::error::Error, "an earlier request could not be looked up");
    Error::Unavailable
}

fn reused() -> Error {
    let message = "The header 'Idempotency-Key' belongs to an earlier request with another body. Use a new key.";
    Rejection::new("Idempotency-Key", Reason::IdempotencyKeyReused, message).into()
}
