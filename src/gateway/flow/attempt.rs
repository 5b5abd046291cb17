//! The attempt loop: the only place that decides to try again.
//!
//! A generation is paid for and cannot be taken back, so what may be tried again depends only on whether an image can
//! already have been made. Class N goes to another account within the budget, class F once, X and R never.

use std::time::Duration;

use chrono::Utc;
use tokio::time::Instant;

use super::outcome;
use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::accounts::{Lease, NoLease};
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{Attempt, OpenRecord};
use crate::gateway::relay::{self, Asked, Limits, NoProof, Proven, Usage, prove};
use crate::gateway::rules::Job;
use crate::gateway::upstream::{Cause, Class, Failure, error_in_answer};
use crate::tables;

/// Calls for one request that were not simply turned away (ours): clients multiply this by their own retries.
const BUDGET: usize = 4;

/// An attempt that gave an image, and the place it still holds.
pub(super) struct Won {
    pub(super) proven: Proven,
    pub(super) lease: Lease,
    pub(super) simulated: bool,
}

/// The ends of all patience, whatever a single attempt may take.
struct Terms {
    /// One call may take so long.
    patience: Duration,
    /// The answer must have begun: clients give up without headers.
    head: Instant,
    /// The answer must be complete.
    end: Instant,
}

/// An attempt that gave none, and the tokens that were charged all the same.
struct Lost {
    failure: Failure,
    usage: Option<Usage>,
}

/// Tries accounts until one gives an image.
pub(super) async fn run(
    gateway: &Gateway,
    job: &Job,
    caller: &Caller,
    record: &mut OpenRecord,
) -> Result<Won, (Error, Option<Class>)> {
    let begun = Instant::now();
    let deadlines = gateway.deadlines(caller.group_name());
    let terms = Terms {
        patience: if job.is_large() { deadlines.large } else { deadlines.standard },
        head: begun + Duration::from_secs(tables::ANSWER_HEAD_SECONDS),
        end: begun + Duration::from_secs(tables::REQUEST_TOTAL_SECONDS),
    };
    let mut tried = Vec::new();
    let mut failures: Vec<Failure> = Vec::new();
    loop {
        let lease = match gateway.accounts().lease(job, caller, &tried).await {
            Ok(lease) => lease,
            Err(NoLease::Busy) => return Err((Error::RateLimited { retry_after: 2 }, None)),
            Err(NoLease::Stopping) => return Err((Error::Unavailable, None)),
            Err(NoLease::NoneLeft) => return Err(lost(&failures)),
        };
        tried.push(lease.account().name().to_owned());
        let started = Instant::now();
        let outcome = one(gateway, &lease, job, &terms).await;
        record.add_attempt(note(&lease, &outcome, started.elapsed()));
        let failure = match outcome {
            Ok((proven, simulated)) => return Ok(Won { proven, lease, simulated }),
            Err(Lost { failure, usage }) => {
                // Tokens were charged although there is no image: that is what the record is for.
                usage.into_iter().for_each(|usage| record.set_usage(outcome::usage(usage)));
                failure
            }
        };
        let again = may_try_again(failure.class, &failures) && spent(&failures) < BUDGET;
        failures.push(failure);
        if !again {
            return Err(lost(&failures));
        }
    }
}

/// The error for the caller, and the class of the last attempt for the record.
fn lost(failures: &[Failure]) -> (Error, Option<Class>) {
    (outcome::error(failures, Utc::now()), failures.last().map(|failure| failure.class))
}

/// An account that turns a request away with a status costs nothing, so all of them may be asked.
fn spent(failures: &[Failure]) -> usize {
    1 + failures.iter().filter(|failure| failure.class != Class::N || failure.status.is_none()).count()
}

/// The money rules in one line each.
fn may_try_again(class: Class, before: &[Failure]) -> bool {
    match class {
        Class::N => true,
        Class::F => before.iter().all(|failure| failure.class != Class::F),
        Class::X | Class::R => false,
    }
}

/// One call, until an image has begun.
async fn one(gateway: &Gateway, lease: &Lease, job: &Job, terms: &Terms) -> Result<(Proven, bool), Lost> {
    let patience = terms.patience;
    let first_byte = terms.head.min(Instant::now() + patience);
    let reply = gateway.upstream().send(lease, job, first_byte).await?;
    let idle = Duration::from_secs(tables::UPSTREAM_IDLE_SECONDS);
    let limits = Limits { idle, event_idle: patience, until: terms.end };
    let simulated = reply.simulated;
    prove(reply.body, asked(job), limits).await.map(|proven| (proven, simulated)).map_err(no_proof)
}

/// An answer without an image: what that means.
fn no_proof(no_proof: NoProof) -> Lost {
    let ambiguous = |cause| Lost::from(Failure { class: Class::X, cause, status: Some(200) });
    match no_proof {
        NoProof::Ended(without) => {
            let usage = without.members.get("usage").and_then(relay::usage).filter(|usage| usage.total > 0);
            Lost { failure: error_in_answer(&without.members, without.something), usage }
        }
        NoProof::Malformed => ambiguous(Cause::NoImage),
        NoProof::Broken => ambiguous(Cause::Broken),
        NoProof::Timeout => ambiguous(Cause::Timeout),
    }
}

impl From<Failure> for Lost {
    fn from(failure: Failure) -> Self {
        Self { failure, usage: None }
    }
}

fn asked(job: &Job) -> Asked {
    let quality = match job.quality() {
        Some("low") => Some("low"),
        Some("medium") => Some("medium"),
        Some("high") => Some("high"),
        _ => None,
    };
    Asked {
        model: job.model().to_owned(),
        prompt: job.prompt().to_owned(),
        count: usize::try_from(job.count()).unwrap_or(1),
        partials: job.partials(),
        events: job.events(),
        stream: job.stream(),
        quality,
        size: job.size().exact().map(|size| size.to_string()),
        output_format: job.format().as_str(),
        now: job.received().timestamp(),
    }
}

fn note(lease: &Lease, outcome: &Result<(Proven, bool), Lost>, elapsed: Duration) -> Attempt {
    let (class, status) = match outcome {
        Ok(_) => (None, Some(200)),
        Err(Lost { failure, .. }) => (Some(outcome::class(failure.class)), failure.status),
    };
    Attempt {
        account: lease.account().name().to_owned(),
        class,
        status,
        latency_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_tried_again_depends_on_the_class_alone() {
        let failed = |class| Failure::new(class, Cause::Failed);
        assert!(may_try_again(Class::N, &[failed(Class::N), failed(Class::F)]));
        assert!(may_try_again(Class::F, &[failed(Class::N)]));
        assert!(!may_try_again(Class::F, &[failed(Class::F)]));
        assert!(!may_try_again(Class::X, &[]));
        assert!(!may_try_again(Class::R, &[]));
    }
}
