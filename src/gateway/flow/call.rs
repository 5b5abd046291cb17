//! One call to one account, until an image has begun in its answer.

use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use super::asker::Asker;
use super::siblings::Siblings;
use super::terms::Terms;
use crate::gateway::accounts::Lease;
use crate::gateway::relay::{Asked, Limits, NoProof, Proof, Proven, Told, Unkept, Usage};
use crate::gateway::rules::{Job, ResponseJob, Task};
use crate::gateway::upstream::{Cause, Class, Failure, error_in_answer};
use crate::tables;

/// The word for a quality that the model chooses.
const AUTO: &str = "auto";

/// A call that gave no image, and the tokens that were charged all the same.
pub(super) struct Lost {
    pub(super) failure: Failure,
    pub(super) usage: Option<Usage>,
}

/// A call whose answer holds an image.
pub(super) struct ProvenCall {
    pub(super) proven: Proven,
    /// True if the simulator drew the image.
    pub(super) simulated: bool,
    /// The upstream's id of the call.
    pub(super) request_id: Option<String>,
}

/// Makes the call. A call that is still in flight when the gateway stops is given up; it may have been paid for.
pub(super) async fn make(
    asker: Asker<'_>,
    lease: &Lease,
    task: Task<'_>,
    siblings: Option<&Siblings>,
    terms: &Terms,
) -> Result<ProvenCall, Lost> {
    tokio::select! {
        biased;
        made = call(asker, lease, task, siblings, terms) => made,
        () = asker.gateway.cutoff().cancelled() => Err(Failure::new(Class::X, Cause::Cutoff).into()),
    }
}

async fn call(
    asker: Asker<'_>,
    lease: &Lease,
    task: Task<'_>,
    siblings: Option<&Siblings>,
    terms: &Terms,
) -> Result<ProvenCall, Lost> {
    let Terms { patience, end, .. } = *terms;
    let mut given_up = pin!(asker.given_up(terms, siblings));
    let reply = tokio::select! {
        biased;
        reply = asker.gateway.upstream().send(lease, task, end.min(Instant::now() + patience)) => reply?,
        () = given_up.as_mut() => return Err(Failure::new(Class::X, Cause::Timeout).into()),
    };
    // Who waits less for a whole image waits no longer for the rest of one.
    let idle = Duration::from_secs(tables::UPSTREAM_IDLE_SECONDS).min(patience);
    let limits = Limits { idle, event_idle: patience, until: end };
    let (simulated, request_id) = (reply.simulated, reply.request_id);
    let part = siblings.is_some();
    let mut proof = match task {
        Task::Images(job) if reply.by_tool => Proof::drawn(reply.body, asked(job, part), limits),
        Task::Images(job) => Proof::images(reply.body, asked(job, part), limits),
        Task::Response(job) => Proof::response(reply.body, told(job), limits),
    };
    let mut sought = tokio::select! {
        biased;
        sought = proof.seek() => sought,
        () = given_up => Err(NoProof::Timeout),
    };
    // An image that has begun may only wait for the bytes that tell its format.
    if matches!(sought, Err(NoProof::Timeout)) && proof.has_begun() {
        sought = proof.seek().await;
    }
    let without = match sought {
        Ok(()) => return Ok(ProvenCall { proven: proof.into_proven(), simulated, request_id }),
        Err(without) => no_proof(without),
    };
    let mut lost = if matches!(task, Task::Response(_)) { of_the_callers_choice(without) } else { without };
    lost.failure.request_id = request_id;
    Err(lost)
}

/// A missing model of a response is blamed on the caller, who chose it.
fn of_the_callers_choice(mut lost: Lost) -> Lost {
    if lost.failure.cause == Cause::Missing {
        lost.failure.cause = Cause::UnknownModel;
    }
    lost
}

/// An answer without an image: what that means.
fn no_proof(no_proof: NoProof) -> Lost {
    match no_proof {
        NoProof::Ended(without) => {
            let usage = without.usage.filter(|usage| usage.total > 0);
            Lost { failure: error_in_answer(&without.members, without.something), usage }
        }
        NoProof::Malformed => ambiguous(Cause::NoImage),
        NoProof::Broken => ambiguous(Cause::Broken),
        NoProof::Timeout => ambiguous(Cause::Timeout),
    }
}

/// An image that had begun and is not there: it may well be paid for.
pub(super) fn unkept(unkept: Unkept) -> Lost {
    match unkept {
        Unkept::Broken(broken, usage) => {
            tracing::warn!(error = &broken as &dyn std::error::Error, "one of several images broke off");
            Lost { usage, ..ambiguous(Cause::Broken) }
        }
        Unkept::Disk(kind, usage) => {
            tracing::error!(%kind, "one of several images could not be kept");
            Lost { usage, ..ambiguous(Cause::Unkept) }
        }
    }
}

fn ambiguous(cause: Cause) -> Lost {
    Lost::from(Failure::new(Class::X, cause).with_status(200))
}

impl From<Failure> for Lost {
    fn from(failure: Failure) -> Self {
        Self { failure, usage: None }
    }
}

fn told(job: &ResponseJob) -> Told {
    Told { model: job.model().to_owned(), stream: job.stream(), now: job.received().timestamp() }
}

/// What the answer repeats of the request.
pub(super) fn asked(job: &Job, part: bool) -> Asked {
    Asked {
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
