//! The attempt loop: the only place that decides to try again.
//!
//! A generation is paid for and cannot be taken back, so what may be tried again depends only on whether an image can
//! already have been made. Class N goes to another account within the budget, class F once, X and R never. Where the
//! caller asked for it, a job that failed without any image is made again one step further down the ladder; after class X
//! only if the caller accepts that both may be paid for, and still waits for it. No step is taken without time for it. A response that is
//! refused with the tool that we put in is asked for once more as it came.

use std::pin::{Pin, pin};

use chrono::Utc;
use tokio::time::Instant;

use super::asker::Asker;
use super::call::{self, Lost, ProvenCall};
use super::outcome::{AccountFinding, Stop};
use super::parts::OneOf;
use super::sheet::Sheet;
use super::siblings::Siblings;
use super::terms::Terms;
use super::{ladder, outcome, parts};
use crate::error::Error;
use crate::gateway::accounts::{Again, Lease, LeaseGrant, Lesson, NoLease};
use crate::gateway::ledger::{Call, OpenRecord};
use crate::gateway::relay::{self, Proven, Usage};
use crate::gateway::rules::{Job, ResponseJob, Task};
use crate::gateway::upstream::{Cause, Class, Failure};

/// Calls for one request that gave no image and were not simply turned away, until no other is tried (ours): clients
/// multiply this by their own retries. The calls of several images share it; each step of the ladder may add one.
pub(super) const BUDGET: usize = 4;

/// An attempt that gave an image, and the place it still holds; where several calls gave one each, none is held any more.
pub(super) struct Won {
    pub(super) proven: Proven,
    pub(super) lease: Option<Lease>,
    pub(super) simulated: bool,
    /// Of several calls, those that gave none.
    pub(super) missing: u32,
    /// What was made instead of what was asked for, where the ladder was taken.
    pub(super) lowered: Option<Job>,
    /// It was made without the tool that was put in.
    pub(super) plain: bool,
    /// Tokens that failed calls for a larger image were charged for.
    pub(super) charged: Option<Usage>,
}

/// Why there is no image.
pub(super) enum Unmade {
    /// The error for the caller, and the last attempt for the record.
    Failed(Error, Option<Box<Failure>>),
    /// Nobody waits for it any more, and nothing was sent.
    Abandoned,
}

/// Everything that failed so far, and why nobody else was asked.
#[derive(Default)]
pub(super) struct History {
    pub(super) failures: Vec<Failure>,
    /// The reason why no further account was asked.
    pub(super) stop: Stop,
    /// Tokens that were charged although there is no image: that is what the record is for.
    pub(super) usage: Option<Usage>,
}

/// Tries accounts until one gives an image, and then the steps of the ladder. If nobody wants the image any more while
/// nothing was sent, that is the end of it.
pub(super) async fn run(asker: Asker<'_>, asked: Task<'_>, record: &mut OpenRecord) -> Result<Won, Unmade> {
    let whole = Terms::new(asked, asker.gateway.deadlines(asker.caller.group_name()).image);
    let mut abandoned = pin!(asker.abandoned());
    let (mut lowered, mut plain): (Option<Job>, Option<ResponseJob>) = (None, None);
    let mut history = History::default();
    let sheet = Sheet::new(record);
    loop {
        let task = lowered.as_ref().map(Task::from).or(plain.as_ref().map(Task::from)).unwrap_or(asked);
        let mut step = Step::new(asker, task, asker.terms(task, whole), &mut history);
        match (step.take(&sheet, None, abandoned.as_mut()).await?, task) {
            (Took::Begun { proven, lease, simulated, .. }, _) => {
                let (plain, charged) = (plain.is_some(), history.usage);
                return Ok(Won { proven, lease: Some(lease), simulated, missing: 0, lowered, plain, charged });
            }
            (Took::Each(lease), Task::Images(job)) => {
                if let Some(won) = Box::pin(parts::make(&mut step, job, &sheet, lease)).await {
                    return Ok(Won { lowered, charged: history.usage, ..won });
                }
            }
            (Took::Each(_) | Took::Nothing, _) => {}
        }
        match task {
            Task::Images(job) if asker.may_step_down(&history, &whole) => lowered = ladder::below(job),
            Task::Response(job) if job.injected() && history.blames_tools() => plain = Some(job.without_tool()),
            Task::Images(_) | Task::Response(_) => (lowered, plain) = (None, None),
        }
        if let Some(below) = &lowered {
            let maybe_paid_twice = history.maybe_paid();
            tracing::info!(
                to = ladder::name(below),
                maybe_paid_twice,
                "no account made the image: one step down the ladder"
            );
            if maybe_paid_twice {
                sheet.expect_second_payment();
            }
        } else if plain.is_some() {
            tracing::warn!("a response is refused with the image tool that was put in: it is asked for as it came");
        } else {
            sheet.note(|record| history.usage.into_iter().for_each(|usage| record.set_usage(outcome::usage(usage))));
            return Err(history.end());
        }
    }
}

/// One step of the ladder.
pub(super) struct Step<'a> {
    pub(super) asker: Asker<'a>,
    pub(super) task: Task<'a>,
    /// It makes one image of several.
    pub(super) part: Option<OneOf<'a>>,
    pub(super) terms: Terms,
    pub(super) history: &'a mut History,
    /// When the last call was begun.
    pub(super) called: Instant,
    /// Lessons that are held against accounts as soon as another account does better.
    suspected: Vec<(LeaseGrant, Lesson)>,
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

impl<'a> Step<'a> {
    pub(super) fn new(asker: Asker<'a>, task: Task<'a>, terms: Terms, history: &'a mut History) -> Self {
        Self { asker, task, part: None, terms, history, called: Instant::now(), suspected: Vec::new() }
    }

    /// Accounts in the order of the choice, the one that is `kept` first, until one gives an image or none may be asked.
    pub(super) async fn take(
        &mut self,
        sheet: &Sheet<'_>,
        kept: Option<Lease>,
        abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Took, Unmade> {
        let took = self.ask(sheet, kept, abandoned).await;
        match took {
            Ok(Took::Begun { .. }) => self.confirm().await,
            Ok(Took::Each(_) | Took::Nothing) | Err(_) => self.doubt().await,
        }
        took
    }

    async fn ask(
        &mut self,
        sheet: &Sheet<'_>,
        mut kept: Option<Lease>,
        mut abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Took, Unmade> {
        let (mut tried, before) = (Vec::new(), self.history.failures.len());
        self.history.stop = Stop::default();
        loop {
            let lease = match kept.take() {
                Some(lease) => Ok(lease),
                None => self.lease(&tried, abandoned.as_mut()).await?,
            };
            let lease = match lease {
                Ok(lease) => lease,
                Err(none) => {
                    self.history.stop.shut = Some(none);
                    return Ok(Took::Nothing);
                }
            };
            if lease.endpoint().makes_one() && matches!(self.task, Task::Images(job) if job.count() > 1) {
                return Ok(Took::Each(lease));
            }
            if let Some(part) = self.part.as_mut()
                && !part.prepare(self.asker.gateway, self.history).await
            {
                return Ok(Took::Nothing);
            }
            let call = sheet.begin_attempt(lease.account().name());
            sheet.keep_attempts().await;
            self.called = Instant::now();
            let siblings = self.part.as_ref().map(|part| part.siblings);
            let made = Box::pin(call::make(self.asker, &lease, self.task, siblings, &self.terms));
            let lost = match made.await {
                Ok(ProvenCall { proven, simulated, request_id }) => {
                    sheet.note(|record| record.end_attempt(call, None, Some(200)));
                    sheet.note(|record| record.set_upstream_id(call, request_id));
                    siblings.into_iter().for_each(Siblings::begun);
                    return Ok(Took::Begun { proven, lease, call, simulated });
                }
                Err(lost) => lost,
            };
            let again = self.learn(sheet, call, &lease, lost).await;
            let spent = self.part.as_ref().map_or_else(|| self.history.spent(), |part| part.siblings.spent());
            self.history.stop.blames_request = outcome::blame_request(&self.history.failures[before..]);
            if self.history.stop.blames_request || !self.history.may_try_again(spent) {
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
        let gateway = self.asker.gateway;
        let lease = async {
            tokio::select! {
                biased;
                lease = gateway.accounts().lease(self.task, self.asker.caller, tried) => lease,
                () = gateway.cutoff().cancelled() => Err(NoLease::Stopping),
            }
        };
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
        let request_id = lost.failure.request_id.clone();
        sheet.note(|record| {
            record.end_attempt(call, Some(class), status);
            // The id of a call whose answer had begun is known already.
            if request_id.is_some() {
                record.set_upstream_id(call, request_id);
            }
        });
        if let Some(part) = &self.part {
            part.siblings.lost(&lost.failure, self.called.elapsed());
        }
        let again = match outcome::finding(&lost.failure) {
            AccountFinding::Certain(lesson) => self.asker.gateway.accounts().learn(lease, lesson).await,
            AccountFinding::Suspected(lesson) => {
                self.suspected.push((lease.granted(), lesson));
                Again::Other
            }
        };
        self.history.add(lost);
        again
    }

    /// Another account has accepted the request, so the suspected lessons are held against their accounts.
    async fn confirm(&mut self) {
        for (granted, lesson) in self.suspected.drain(..) {
            self.asker.gateway.accounts().learn_of(&granted, lesson).await;
        }
    }

    /// No account has done better, so the request may be the cause. What is held against the accounts all the same needs
    /// other requests, or a check of their credentials.
    pub(super) async fn doubt(&mut self) {
        let accounts = self.asker.gateway.accounts();
        for (granted, lesson) in self.suspected.drain(..) {
            match lesson {
                Lesson::Faulty => accounts.learn_of(&granted, Lesson::Doubtful).await,
                Lesson::Unauthorized { .. } if self.history.stop.blames_request => accounts.doubt(&granted),
                _ => {}
            }
        }
    }
}

// === impl History ===

impl History {
    pub(super) fn add(&mut self, lost: Lost) {
        self.usage = relay::sum(self.usage, lost.usage);
        self.failures.push(lost.failure);
    }

    /// The money rules: class N on another account, class F on one other, X and R never; all of it within the budget, of
    /// which so much is spent.
    fn may_try_again(&self, spent: usize) -> bool {
        let allowed = match self.failures.last().map(|failure| failure.class) {
            None | Some(Class::N) => true,
            Some(Class::F) => self.admitted() < 2,
            Some(Class::X | Class::R) => false,
        };
        allowed && spent < BUDGET
    }

    /// True if one of the calls may have made an image that is lost.
    pub(super) fn maybe_paid(&self) -> bool {
        self.failures.iter().any(|failure| failure.class == Class::X)
    }

    /// Whether the tools of a response, or something that is not named, is all that anybody has against it: it may go
    /// through without the one that was put in. Nothing was made of what is refused so.
    fn blames_tools(&self) -> bool {
        let turned_away = self.failures.iter().all(|failure| failure.class == Class::N || rejects_tools(failure));
        turned_away && self.failures.iter().any(|failure| rejects_tools(failure) || rejects_something(failure))
    }

    /// Failures that an upstream itself admits.
    fn admitted(&self) -> usize {
        self.failures.iter().filter(|failure| failure.class == Class::F).count()
    }

    fn spent(&self) -> usize {
        self.failures.iter().filter(|failure| costs(failure)).count()
    }

    /// The error for the caller, and the last attempt for the record. A call that may have been paid for counts as the
    /// last one: whatever came of a smaller image, the caller must not pay for another one without knowing.
    fn end(mut self) -> Unmade {
        self.failures.sort_by_key(|failure| failure.class == Class::X);
        let error = outcome::error(&self.failures, self.stop, Utc::now());
        Unmade::Failed(error, self.failures.pop().map(Box::new))
    }
}

/// A list of tools, or what belongs to it, is what the upstream does not take.
fn rejects_tools(failure: &Failure) -> bool {
    let Cause::Rejected { param, message } = &failure.cause else { return false };
    param.as_ref().is_some_and(|param| param.starts_with("tool")) || message.contains("tool")
}

/// The upstream does not take the request, and does not say what of it.
fn rejects_something(failure: &Failure) -> bool {
    matches!(failure.cause, Cause::Declined { .. } | Cause::Unreachable) && matches!(failure.status, Some(400 | 422))
}

/// An account that turns a request away with a status costs nothing, so all of them may be asked.
pub(super) fn costs(failure: &Failure) -> bool {
    failure.class != Class::N || failure.status.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(classes: &[(Class, Option<u16>)]) -> History {
        let failure =
            |&(class, status): &(Class, Option<u16>)| Failure { status, ..Failure::new(class, Cause::Failed) };
        History { failures: classes.iter().map(failure).collect(), ..History::default() }
    }

    fn may_try_again(history: History) -> bool {
        history.may_try_again(history.spent())
    }

    #[test]
    fn what_may_be_tried_again_depends_on_the_class_alone() {
        let (n, f, x, r) = ((Class::N, Some(429)), (Class::F, Some(500)), (Class::X, Some(502)), (Class::R, Some(400)));
        assert!(may_try_again(after(&[n])));
        assert!(may_try_again(after(&[f])));
        assert!(may_try_again(after(&[n, f])));
        assert!(may_try_again(after(&[f, n])));
        assert!(!may_try_again(after(&[f, f])));
        assert!(!may_try_again(after(&[x])));
        assert!(!may_try_again(after(&[r])));
    }

    #[test]
    fn a_tool_of_ours_is_left_out_where_it_may_be_what_is_refused() {
        let rejected = |param: &str, message: &str| {
            let cause = Cause::Rejected { param: Some(param.to_owned()), message: message.to_owned() };
            Failure::new(Class::R, cause).with_status(400)
        };
        let turned_away = |status| Failure { status, ..Failure::new(Class::N, Cause::Unreachable) };
        let blames =
            |failures: &[Failure]| History { failures: failures.to_vec(), ..History::default() }.blames_tools();
        assert!(blames(&[rejected("tools[3].type", "no")]));
        assert!(blames(&[rejected("model", "This model has no image_generation tool.")]));
        assert!(blames(&[turned_away(Some(429)), turned_away(Some(400))]));
        assert!(blames(&[turned_away(Some(422)), turned_away(None)]));
        assert!(!blames(&[rejected("input[3].id", "no such item")]));
        assert!(!blames(&[turned_away(Some(429)), turned_away(None)]));
        let (failed, broken, refused) = ((Class::F, Some(500)), (Class::X, None), (Class::R, Some(400)));
        for class in [failed, broken, refused] {
            let History { failures, .. } = after(&[class]);
            assert!(!blames(&[&[turned_away(Some(400))][..], &failures].concat()), "{class:?}");
        }
        assert!(!blames(&[]));
    }

    #[test]
    fn the_budget_counts_calls_that_may_have_cost_something() {
        let turned_away = [(Class::N, Some(429)); 20];
        assert!(may_try_again(after(&turned_away)));
        assert!(!may_try_again(after(&[(Class::N, None); BUDGET])));
    }

    #[test]
    fn what_may_be_paid_decides_the_error_whatever_came_after_it() {
        let (n, x) = ((Class::N, Some(429)), (Class::X, Some(504)));
        for classes in [&[x, n][..], &[n, x, n], &[x]] {
            let Unmade::Failed(error, last) = after(classes).end() else { panic!("it has failed") };
            assert!(!error.should_retry(), "{classes:?}: {error:?}");
            assert_eq!(last.map(|last| last.class), Some(Class::X), "{classes:?}");
        }
        assert!(!after(&[n]).maybe_paid() && after(&[n, x]).maybe_paid());
    }
}
