//! The attempt loop: the only place that decides to try again.
//!
//! A generation is paid for and cannot be taken back, so what may be tried again depends only on whether an image can
//! already have been made. Class N goes to another account within the budget, class F once, X and R never. Where the
//! caller asked for it, a job that failed without any image is made again one step further down the ladder.

use std::pin::{Pin, pin};
use std::time::Duration;

use chrono::Utc;
use tokio::time::Instant;

use super::{ladder, outcome};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::accounts::{Again, Lease, NoLease};
use crate::gateway::keys::Caller;
use crate::gateway::ledger::OpenRecord;
use crate::gateway::relay::{self, Asked, Limits, NoProof, Proven, Told, Usage, prove, prove_response};
use crate::gateway::rules::{Job, ResponseJob, Task};
use crate::gateway::upstream::{Cause, Class, Failure, error_in_answer};
use crate::tables;

/// Calls for one request that were not simply turned away (ours): clients multiply this by their own retries.
const BUDGET: usize = 4;

/// An attempt that gave an image, and the place it still holds.
pub(super) struct Won {
    pub(super) proven: Proven,
    pub(super) lease: Lease,
    pub(super) simulated: bool,
    /// What was made instead of what was asked for, where the ladder was taken.
    pub(super) lowered: Option<Job>,
}

/// Who asks, and what is done where the best cannot be had.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) caller: &'a Caller,
    /// Rather a lesser image than none.
    pub(super) fallback: bool,
}

/// Why there is no image.
pub(super) enum Unmade {
    /// What the caller reads, and the class of the last attempt for the record.
    Failed(Error, Option<Class>),
    /// Nobody waits for it any more, and nothing was sent.
    Abandoned,
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

/// Everything that failed so far, and why nobody else was asked.
#[derive(Default)]
struct History {
    failures: Vec<Failure>,
    /// The accounts that are left rest or are taken.
    shut: Option<NoLease>,
}

/// Tries accounts until one gives an image, and then the steps of the ladder. `abandoned` resolves when nobody wants the
/// image any more; while nothing was sent that is the end of it.
pub(super) async fn run(
    asker: Asker<'_>,
    asked: Task<'_>,
    record: &mut OpenRecord,
    abandoned: impl Future<Output = ()>,
) -> Result<Won, Unmade> {
    let begun = Instant::now();
    let mut abandoned = pin!(abandoned);
    let mut lowered: Option<Job> = None;
    let mut history = History::default();
    loop {
        let task = lowered.as_ref().map_or(asked, Task::from);
        let mut step = Step { asker, task, terms: Terms::of(asker, task, begun), history: &mut history };
        if let Some((proven, lease, simulated)) = step.take(record, abandoned.as_mut()).await? {
            return Ok(Won { proven, lease, simulated, lowered });
        }
        let below = match task {
            Task::Images(job) if asker.fallback && history.may_step_down() => ladder::below(job),
            Task::Images(_) | Task::Response(_) => None,
        };
        let Some(below) = below else { return Err(history.end()) };
        tracing::info!(to = ladder::name(&below), "no account made the image: one step down the ladder");
        lowered = Some(below);
    }
}

/// One step of the ladder.
struct Step<'a> {
    asker: Asker<'a>,
    task: Task<'a>,
    terms: Terms,
    history: &'a mut History,
}

// === impl Step ===

impl Step<'_> {
    /// Accounts in the order of the choice, until one gives an image or none may be asked.
    async fn take(
        &mut self,
        record: &mut OpenRecord,
        mut abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<(Proven, Lease, bool)>, Unmade> {
        let (mut tried, mut kept) = (Vec::new(), None);
        loop {
            let lease = match kept.take() {
                Some(lease) => Ok(lease),
                None => self.lease(&tried, abandoned.as_mut()).await?,
            };
            let lease = match lease {
                Ok(lease) => lease,
                Err(none) => {
                    self.history.shut = Some(none);
                    return Ok(None);
                }
            };
            record.begin_attempt(lease.account().name());
            let lost = match one(self.asker.gateway, &lease, self.task, &self.terms).await {
                Ok((proven, simulated)) => {
                    record.end_attempt(None, Some(200));
                    return Ok(Some((proven, lease, simulated)));
                }
                Err(lost) => lost,
            };
            let again = self.learn(record, &lease, lost).await;
            if !self.history.may_try_again() {
                return Ok(None);
            }
            match again {
                Again::Same => kept = Some(lease),
                Again::Other => tried.push(lease.account().name().to_owned()),
            }
        }
    }

    /// A place on an account. As long as nothing was sent, nothing need be where nobody waits for it.
    async fn lease(
        &self,
        tried: &[String],
        abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Result<Lease, NoLease>, Unmade> {
        let lease = self.asker.gateway.accounts().lease(self.task, self.asker.caller, tried);
        if !self.history.failures.is_empty() {
            return Ok(lease.await);
        }
        tokio::select! {
            biased;
            lease = lease => Ok(lease),
            () = abandoned => Err(Unmade::Abandoned),
        }
    }

    /// What a failed attempt says to the record, to its account and to the attempts after it.
    async fn learn(&mut self, record: &mut OpenRecord, lease: &Lease, lost: Lost) -> Again {
        record.end_attempt(Some(outcome::class(lost.failure.class)), lost.failure.status);
        // Tokens were charged although there is no image: that is what the record is for.
        lost.usage.into_iter().for_each(|usage| record.set_usage(outcome::usage(usage)));
        let again = self.asker.gateway.accounts().learn(lease, outcome::lesson(&lost.failure)).await;
        self.history.failures.push(lost.failure);
        again
    }
}

// === impl Terms ===

impl Terms {
    fn of(asker: Asker<'_>, task: Task<'_>, begun: Instant) -> Self {
        let deadlines = asker.gateway.deadlines(asker.caller.group_name());
        // A text model may think for as long as a large image takes, and talk for longer.
        let (long, end) = match task {
            Task::Images(job) => (job.is_large(), tables::REQUEST_TOTAL_SECONDS),
            Task::Response(job) if job.stream() => (true, tables::RESPONSE_STREAM_SECONDS),
            Task::Response(_) => (true, tables::REQUEST_TOTAL_SECONDS),
        };
        Self {
            patience: if long { deadlines.large } else { deadlines.standard },
            head: begun + Duration::from_secs(tables::ANSWER_HEAD_SECONDS),
            end: begun + Duration::from_secs(end),
        }
    }
}

// === impl History ===

impl History {
    /// The money rules: class N on another account, class F on one other, X and R never; all of it within the budget.
    fn may_try_again(&self) -> bool {
        let allowed = match self.failures.last().map(|failure| failure.class) {
            None | Some(Class::N) => true,
            Some(Class::F) => self.admitted() < 2,
            Some(Class::X | Class::R) => false,
        };
        allowed && self.spent() < BUDGET
    }

    /// A lesser image helps only against a failure that the upstream admits, and never where one may exist already.
    fn may_step_down(&self) -> bool {
        let harmless = self.failures.iter().all(|failure| matches!(failure.class, Class::N | Class::F));
        harmless && !self.failures.is_empty() && self.spent() < BUDGET
    }

    /// Failures that an upstream itself admits.
    fn admitted(&self) -> usize {
        self.failures.iter().filter(|failure| failure.class == Class::F).count()
    }

    /// An account that turns a request away with a status costs nothing, so all of them may be asked.
    fn spent(&self) -> usize {
        self.failures.iter().filter(|failure| failure.class != Class::N || failure.status.is_none()).count()
    }

    /// The error for the caller, and the class of the last attempt for the record.
    fn end(&self) -> Unmade {
        let error = outcome::error(&self.failures, self.shut, Utc::now());
        Unmade::Failed(error, self.failures.last().map(|failure| failure.class))
    }
}

/// One call, until an image has begun.
async fn one(gateway: &Gateway, lease: &Lease, task: Task<'_>, terms: &Terms) -> Result<(Proven, bool), Lost> {
    let patience = terms.patience;
    let first_byte = terms.head.min(Instant::now() + patience);
    let reply = gateway.upstream().send(lease, task, first_byte).await?;
    // Who waits less for a whole image waits no longer for the rest of one.
    let idle = Duration::from_secs(tables::UPSTREAM_IDLE_SECONDS).min(patience);
    let limits = Limits { idle, event_idle: patience, until: terms.end };
    let simulated = reply.simulated;
    let proven = match task {
        Task::Images(job) => prove(reply.body, asked(job), limits).await,
        Task::Response(job) => prove_response(reply.body, told(job), limits).await,
    };
    proven.map(|proven| (proven, simulated)).map_err(no_proof)
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

fn told(job: &ResponseJob) -> Told {
    Told { model: job.model().to_owned(), stream: job.stream(), now: job.received().timestamp() }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn after(classes: &[(Class, Option<u16>)]) -> History {
        let failure = |&(class, status): &(Class, Option<u16>)| Failure { class, cause: Cause::Failed, status };
        History { failures: classes.iter().map(failure).collect(), ..History::default() }
    }

    #[test]
    fn what_may_be_tried_again_depends_on_the_class_alone() {
        let (n, f, x, r) = ((Class::N, Some(429)), (Class::F, Some(500)), (Class::X, Some(502)), (Class::R, Some(400)));
        assert!(after(&[n]).may_try_again());
        assert!(after(&[f]).may_try_again());
        assert!(after(&[n, f]).may_try_again());
        assert!(after(&[f, n]).may_try_again());
        assert!(!after(&[f, f]).may_try_again());
        assert!(!after(&[x]).may_try_again());
        assert!(!after(&[r]).may_try_again());
    }

    #[test]
    fn the_budget_counts_calls_that_may_have_cost_something() {
        let turned_away = [(Class::N, Some(429)); 20];
        assert!(after(&turned_away).may_try_again());
        assert!(!after(&[(Class::N, None); BUDGET]).may_try_again());
    }

    #[test]
    fn the_ladder_is_taken_only_where_no_image_can_exist() {
        let (n, f, x, r) = ((Class::N, Some(429)), (Class::F, Some(500)), (Class::X, None), (Class::R, Some(400)));
        assert!(after(&[n]).may_step_down());
        assert!(after(&[f, f]).may_step_down());
        assert!(!after(&[f, x]).may_step_down());
        assert!(!after(&[r]).may_step_down());
        assert!(!after(&[]).may_step_down());
    }
}
