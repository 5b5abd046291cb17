//! Requests that may be there already: under a name of their own, or as a retry of a client that had left.

use std::future::pending;
use std::sync::Arc;

use tracing::Instrument as _;

use super::deliver::{Work, begin};
use super::made::Made;
use crate::error::{Error, Fault, Reason, Rejection};
use crate::gateway::replay::{Entrance, Follower};

/// A request with an idempotency key: the first one makes the answer, and every other one gets the same.
///
/// The job runs on a task of its own, so that the answer is there for the next one, whoever leaves.
pub(super) async fn named(work: Arc<Work>) -> Result<Made, Error> {
    let key = work.ask.idempotency_key.as_deref().unwrap_or_default();
    let entrance = work.gateway.replay().enter(&work.caller, &work.job, key, &work.ask.request_id).await;
    let entrance = entrance.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "an idempotency key could not be looked up");
        Error::Unavailable
    })?;
    match entrance {
        Entrance::Fresh(ticket) => {
            let follower = ticket.follow();
            let job = async move { ticket.record(begin(&work, pending()).await).await };
            drop(tokio::runtime::Handle::current().spawn(job.in_current_span()));
            follow(follower).await
        }
        Entrance::Follow(follower) => follow(follower).await.map(Made::replayed),
        Entrance::Conflict => Err(reused()),
        Entrance::Lost => Err(Error::Upstream(Fault::Unknown)),
    }
}

/// A plain request without a name. A retry of the client's own gets what the one before left behind; any other begins
/// anew, on a task of its own, so that what is paid for is there for such a retry.
pub(super) async fn adoptable(work: Arc<Work>) -> Result<Made, Error> {
    let replay = work.gateway.replay();
    if work.ask.may_be_retry()
        && let Some(follower) = replay.adopt(&work.caller, &work.job).await
    {
        return follow(follower).await.map(Made::replayed);
    }
    let (waiting, promise) = replay.expect(&work.caller, &work.job);
    let job = async move {
        let result = begin(&work, promise.abandoned()).await;
        promise.done(result).await;
    };
    drop(tokio::runtime::Handle::current().spawn(job.in_current_span()));
    waiting.answer().await
}

async fn follow(follower: Follower) -> Result<Made, Error> {
    let head = follower.head().await.map_err(|_| Error::Upstream(Fault::Unknown))?;
    Ok(Made::followed(head, follower))
}

fn reused() -> Error {
    let message = "The header 'Idempotency-Key' belongs to an earlier request with another body. Use a new key.";
    Rejection::new("Idempotency-Key", Reason::IdempotencyKeyReused, message).into()
}
