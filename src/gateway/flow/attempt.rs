//! The attempt loop: the only place that decides to try again.
//!
//! A generation is paid for and cannot be taken back, so what may be tried again depends only on whether an image can
//! already have been made. Class N goes to another account within the budget, class F once, X and R never. Where the
//! caller asked for it, a job that failed without any image is made again one step further down the ladder.

use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::Utc;
use tokio::time::Instant;

use super::call::{self, Lost};
use super::{ladder, outcome, parts};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::gateway::accounts::{Again, Lease, NoLease};
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{Call, OpenRecord};
use crate::gateway::relay::{self, Proven, Usage};
use crate::gateway::rules::{Job, Task};
use crate::gateway::upstream::{Class, Failure};
use crate::tables;

/// Calls for one request that were not simply turned away (ours): clients multiply this by their own retries.
const BUDGET: usize = 4;

/// An attempt that gave an image, and the place it still holds; where several calls gave one each, none is held any more.
pub(super) struct Won {
    pub(super) proven: Proven,
    pub(super) lease: Option<Lease>,
    pub(super) simulated: bool,
    /// Of several calls, those that gave none.
    pub(super) missing: u32,
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
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// One call may take so long.
    pub(super) patience: Duration,
    /// The answer must have begun: clients give up without headers.
    pub(super) head: Instant,
    /// The answer must be complete.
    pub(super) end: Instant,
}

/// The record, into which calls write that are under way at once.
pub(super) struct Sheet<'a>(Mutex<&'a mut OpenRecord>);

/// Everything that failed so far, and why nobody else was asked.
#[derive(Default)]
pub(super) struct History {
    pub(super) failures: Vec<Failure>,
    /// The accounts that are left rest or are taken.
    pub(super) shut: Option<NoLease>,
    /// Tokens that were charged although there is no image: that is what the record is for.
    pub(super) usage: Option<Usage>,
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
    let sheet = Sheet::new(record);
    loop {
        let task = lowered.as_ref().map_or(asked, Task::from);
        let mut step = Step { asker, task, part: false, terms: Terms::of(asker, task, begun), history: &mut history };
        match (step.take(&sheet, None, abandoned.as_mut()).await?, task) {
            (Took::Begun { proven, lease, simulated, .. }, _) => {
                return Ok(Won { proven, lease: Some(lease), simulated, missing: 0, lowered });
            }
            (Took::Each(lease), Task::Images(job)) => {
                if let Some(won) = Box::pin(parts::make(&mut step, job, &sheet, lease)).await {
                    return Ok(Won { lowered, ..won });
                }
            }
            (Took::Each(_) | Took::Nothing, _) => {}
        }
        let below = match task {
            Task::Images(job) if asker.fallback && history.may_step_down() => ladder::below(job),
            Task::Images(_) | Task::Response(_) => None,
        };
        let Some(below) = below else {
            sheet.note(|record| history.usage.into_iter().for_each(|usage| record.set_usage(outcome::usage(usage))));
            return Err(history.end());
        };
        tracing::info!(to = ladder::name(&below), "no account made the image: one step down the ladder");
        lowered = Some(below);
    }
}

/// One step of the ladder.
pub(super) struct Step<'a> {
    pub(super) asker: Asker<'a>,
    pub(super) task: Task<'a>,
    /// It makes one image of several.
    pub(super) part: bool,
    pub(super) terms: Terms,
    pub(super) history: &'a mut History,
}

/// What a step came to.
pub(super) enum Took {
    /// An image has begun.
    Begun { proven: Proven, lease: Lease, call: Call, simulated: bool },
    /// This account makes one image a call, and several are asked for: nothing was sent yet.
    Each(Lease),
    /// No account may be asked any more.
    Nothing,
}

// === impl Step ===

impl Step<'_> {
    /// Accounts in the order of the choice, the one that is `kept` first, until one gives an image or none may be asked.
    pub(super) async fn take(
        &mut self,
        sheet: &Sheet<'_>,
        mut kept: Option<Lease>,
        mut abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Took, Unmade> {
        let mut tried = Vec::new();
        loop {
            let lease = match kept.take() {
                Some(lease) => Ok(lease),
                None => self.lease(&tried, abandoned.as_mut()).await?,
            };
            let lease = match lease {
                Ok(lease) => lease,
                Err(none) => {
                    self.history.shut = Some(none);
                    return Ok(Took::Nothing);
                }
            };
            if lease.endpoint().makes_one() && matches!(self.task, Task::Images(job) if job.count() > 1) {
                return Ok(Took::Each(lease));
            }
            let call = sheet.note(|record| record.begin_attempt(lease.account().name()));
            let made = Box::pin(call::make(self.asker.gateway, &lease, self.task, self.part, &self.terms));
            let lost = match made.await {
                Ok((proven, simulated)) => {
                    sheet.note(|record| record.end_attempt(call, None, Some(200)));
                    return Ok(Took::Begun { proven, lease, call, simulated });
                }
                Err(lost) => lost,
            };
            let again = self.learn(sheet, call, &lease, lost).await;
            if !self.history.may_try_again() {
                return Ok(Took::Nothing);
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
    pub(super) async fn learn(&mut self, sheet: &Sheet<'_>, call: Call, lease: &Lease, lost: Lost) -> Again {
        let (class, status) = (outcome::class(lost.failure.class), lost.failure.status);
        sheet.note(|record| record.end_attempt(call, Some(class), status));
        let again = self.asker.gateway.accounts().learn(lease, outcome::lesson(&lost.failure)).await;
        self.history.add(lost);
        again
    }
}

// === impl Sheet ===

impl<'a> Sheet<'a> {
    fn new(record: &'a mut OpenRecord) -> Self {
        Self(Mutex::new(record))
    }

    pub(super) fn note<T>(&self, note: impl FnOnce(&mut OpenRecord) -> T) -> T {
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
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
    pub(super) fn add(&mut self, lost: Lost) {
        self.usage = relay::sum(self.usage, lost.usage);
        self.failures.push(lost.failure);
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::upstream::Cause;

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
