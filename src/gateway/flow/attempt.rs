//! The attempt loop: the only place that decides on another attempt.
//!
//! A generation is paid for and cannot be taken back, so another attempt depends only on whether an image can already
//! have been made. Class N goes to another account within the budget, class F once, X and R never. If the caller asked
//! for it and no image was made, a smaller one follows; after class X only if the caller accepts that both may be paid
//! for, and still waits. No round begins without time for it. A response that is refused with the injected tool is sent
//! again as it came.

use std::pin::{Pin, pin};

use chrono::Utc;
use tokio::time::Instant;

use super::asker::AttemptContext;
use super::call::{self, FailedCall, ProvenCall};
use super::outcome::{AccountFinding, StopReason};
use super::parts::FanOutBranch;
use super::sheet::SharedRecord;
use super::siblings::FanOutProgress;
use super::terms::AttemptDeadlines;
use super::{ladder, outcome, parts};
use crate::error::Error;
use crate::gateway::accounts::{AccountFeedback, Lease, LeaseGrant, LeaseRefusal, RetryTarget};
use crate::gateway::ledger::{AttemptHandle, OpenRecord};
use crate::gateway::relay::{self, AnswerUsage, ProvenAnswer};
use crate::gateway::rules::{Job, ResponseJob, TaskRef};
use crate::gateway::upstream::{AttemptFailure, FailureCause, FailureClass};

/// The most calls for one request that gave no image and were not simply refused (ours): clients multiply this by their
/// own retries. The calls of several images share it; each round of the fallback may add one.
pub(super) const BUDGET: usize = 4;

/// An attempt that gave an image, and its slot. If several calls gave one image each, no slot is held any more.
pub(super) struct JobSuccess {
    pub(super) proven: ProvenAnswer,
    pub(super) lease: Option<Lease>,
    pub(super) simulated: bool,
    /// The number of calls that gave no image, out of several.
    pub(super) missing: u32,
    /// The smaller job that was carried out instead of the original one, if there was a fallback.
    pub(super) lowered: Option<Job>,
    /// True if the response was made without the injected tool.
    pub(super) plain: bool,
    /// The tokens that failed calls for a larger image were charged for.
    pub(super) charged: Option<AnswerUsage>,
}

/// The reason why there is no image.
pub(super) enum JobFailure {
    /// The error for the caller, and the last attempt for the record.
    Failed(Error, Option<Box<AttemptFailure>>),
    /// The caller no longer waits for the image, and nothing was sent.
    Abandoned,
}

/// All failures so far, and the reason why no further account was asked.
#[derive(Default)]
pub(super) struct AttemptHistory {
    pub(super) failures: Vec<AttemptFailure>,
    /// The reason why no further account was asked.
    pub(super) stop: StopReason,
    /// The tokens that were charged although there is no image. They go into the record.
    pub(super) usage: Option<AnswerUsage>,
}

/// Asks accounts until one gives an image, and then follows the fallback order. If the image is no longer wanted before
/// anything was sent, the job ends.
pub(super) async fn run(
    asker: AttemptContext<'_>,
    asked: TaskRef<'_>,
    record: &mut OpenRecord,
) -> Result<JobSuccess, JobFailure> {
    let whole = AttemptDeadlines::new(asked, asker.gateway.deadlines(asker.caller.group_name()).image);
    let mut abandoned = pin!(asker.abandoned());
    let (mut lowered, mut plain): (Option<Job>, Option<ResponseJob>) = (None, None);
    let mut history = AttemptHistory::default();
    let sheet = SharedRecord::new(record);
    loop {
        let task = lowered.as_ref().map(TaskRef::from).or(plain.as_ref().map(TaskRef::from)).unwrap_or(asked);
        let mut step = AttemptRound::new(asker, task, asker.terms(task, whole), &mut history);
        match (step.take(&sheet, None, abandoned.as_mut()).await?, task) {
            (RoundOutcome::Begun { proven, lease, simulated, .. }, _) => {
                let (plain, charged) = (plain.is_some(), history.usage);
                return Ok(JobSuccess { proven, lease: Some(lease), simulated, missing: 0, lowered, plain, charged });
            }
            (RoundOutcome::Each(lease), TaskRef::Images(job)) => {
                if let Some(won) = Box::pin(parts::make(&mut step, job, &sheet, lease)).await {
                    return Ok(JobSuccess { lowered, charged: history.usage, ..won });
                }
            }
            (RoundOutcome::Each(_) | RoundOutcome::Nothing, _) => {}
        }
        match task {
            TaskRef::Images(job) if asker.may_step_down(&history, &whole) => lowered = ladder::below(job),
            TaskRef::Response(job) if job.injected() && history.blames_tools() => plain = Some(job.without_tool()),
            TaskRef::Images(_) | TaskRef::Response(_) => (lowered, plain) = (None, None),
        }
        if let Some(below) = &lowered {
            let maybe_paid_twice = history.maybe_paid();
            tracing::info!(
                to = ladder::name(below),
                maybe_paid_twice,
                "no account made the image: trying the next fallback"
            );
            if maybe_paid_twice {
                sheet.expect_second_payment();
            }
        } else if plain.is_some() {
            tracing::warn!("the upstream refuses the request with the added image tool: sending the request unchanged");
        } else {
            sheet.note(|record| history.usage.into_iter().for_each(|usage| record.set_usage(outcome::usage(usage))));
            return Err(history.end());
        }
    }
}

/// One pass over the accounts for one size and quality.
pub(super) struct AttemptRound<'a> {
    pub(super) asker: AttemptContext<'a>,
    pub(super) task: TaskRef<'a>,
    /// Set if the round makes one image of several.
    pub(super) part: Option<FanOutBranch<'a>>,
    pub(super) terms: AttemptDeadlines,
    pub(super) history: &'a mut AttemptHistory,
    /// The moment at which the last call began.
    pub(super) called: Instant,
    /// Feedback that is held against accounts as soon as another account does better.
    suspected: Vec<(LeaseGrant, AccountFeedback)>,
}

/// The result of a round.
pub(super) enum RoundOutcome {
    /// An image has begun.
    Begun { proven: ProvenAnswer, lease: Lease, call: AttemptHandle, simulated: bool },
    /// This account makes one image for each call, and several are asked for: nothing was sent yet.
    Each(Lease),
    /// No further account may be asked.
    Nothing,
}

// === impl AttemptRound ===

impl<'a> AttemptRound<'a> {
    pub(super) fn new(
        asker: AttemptContext<'a>,
        task: TaskRef<'a>,
        terms: AttemptDeadlines,
        history: &'a mut AttemptHistory,
    ) -> Self {
        Self { asker, task, part: None, terms, history, called: Instant::now(), suspected: Vec::new() }
    }

    /// Asks accounts in the order of choice, the `kept` one first, until one gives an image or none may be asked.
    pub(super) async fn take(
        &mut self,
        sheet: &SharedRecord<'_>,
        kept: Option<Lease>,
        abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<RoundOutcome, JobFailure> {
        let took = self.ask(sheet, kept, abandoned).await;
        match took {
            Ok(RoundOutcome::Begun { .. }) => self.confirm().await,
            Ok(RoundOutcome::Each(_) | RoundOutcome::Nothing) | Err(_) => self.doubt().await,
        }
        took
    }

    async fn ask(
        &mut self,
        sheet: &SharedRecord<'_>,
        mut kept: Option<Lease>,
        mut abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<RoundOutcome, JobFailure> {
        let (mut tried, before) = (Vec::new(), self.history.failures.len());
        self.history.stop = StopReason::default();
        loop {
            let lease = match kept.take() {
                Some(lease) => Ok(lease),
                None => self.lease(&tried, abandoned.as_mut()).await?,
            };
            let lease = match lease {
                Ok(lease) => lease,
                Err(none) => {
                    self.history.stop.shut = Some(none);
                    return Ok(RoundOutcome::Nothing);
                }
            };
            if lease.endpoint().makes_one() && matches!(self.task, TaskRef::Images(job) if job.count() > 1) {
                return Ok(RoundOutcome::Each(lease));
            }
            if let Some(part) = self.part.as_mut()
                && !part.prepare(self.asker.gateway, self.history).await
            {
                return Ok(RoundOutcome::Nothing);
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
                    siblings.into_iter().for_each(FanOutProgress::begun);
                    return Ok(RoundOutcome::Begun { proven, lease, call, simulated });
                }
                Err(lost) => lost,
            };
            let again = self.learn(sheet, call, &lease, lost).await;
            let spent = self.part.as_ref().map_or_else(|| self.history.spent(), |part| part.siblings.spent());
            self.history.stop.blames_request = outcome::blame_request(&self.history.failures[before..]);
            if self.history.stop.blames_request || !self.history.may_try_again(spent) {
                return Ok(RoundOutcome::Nothing);
            }
            match again {
                RetryTarget::Same => kept = Some(lease),
                RetryTarget::Other => tried.push(lease.account().name().to_owned()),
            }
        }
    }

    /// Waits for a slot on an account. Before anything was sent, the wait ends if the image is no longer wanted.
    async fn lease(
        &self,
        tried: &[String],
        abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Result<Lease, LeaseRefusal>, JobFailure> {
        let gateway = self.asker.gateway;
        let lease = async {
            tokio::select! {
                biased;
                lease = gateway.accounts().lease(self.task, self.asker.caller, tried) => lease,
                () = gateway.cutoff().cancelled() => Err(LeaseRefusal::Stopping),
            }
        };
        if !self.history.failures.is_empty() {
            return Ok(lease.await);
        }
        tokio::select! {
            biased;
            lease = lease => Ok(lease),
            () = abandoned => Err(JobFailure::Abandoned),
        }
    }

    /// Applies a failed attempt to the record, to its account and to the attempts after it.
    pub(super) async fn learn(
        &mut self,
        sheet: &SharedRecord<'_>,
        call: AttemptHandle,
        lease: &Lease,
        lost: FailedCall,
    ) -> RetryTarget {
        let (class, status) = (outcome::class(lost.failure.class), lost.failure.status);
        let request_id = lost.failure.request_id.clone();
        sheet.note(|record| {
            record.end_attempt(call, Some(class), status);
            // If the answer of a call had begun, its id is already known.
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
                RetryTarget::Other
            }
        };
        self.history.add(lost);
        again
    }

    /// Applies the suspected feedback to its accounts, because another account has accepted the request.
    async fn confirm(&mut self) {
        for (granted, lesson) in self.suspected.drain(..) {
            self.asker.gateway.accounts().learn_of(&granted, lesson).await;
        }
    }

    /// Weakens the suspected feedback, because no account has done better and the request may be the cause. Other
    /// requests, or a check of the credentials, decide then.
    pub(super) async fn doubt(&mut self) {
        let accounts = self.asker.gateway.accounts();
        for (granted, lesson) in self.suspected.drain(..) {
            match lesson {
                AccountFeedback::Faulty => accounts.learn_of(&granted, AccountFeedback::Doubtful).await,
                AccountFeedback::Unauthorized { .. } if self.history.stop.blames_request => accounts.doubt(&granted),
                _ => {}
            }
        }
    }
}

// === impl AttemptHistory ===

impl AttemptHistory {
    pub(super) fn add(&mut self, lost: FailedCall) {
        self.usage = relay::sum(self.usage, lost.usage);
        self.failures.push(lost.failure);
    }

    /// Applies the money rules: class N on another account, class F on one other, X and R never; all of it within the
    /// budget, of which `spent` calls are used.
    fn may_try_again(&self, spent: usize) -> bool {
        let allowed = match self.failures.last().map(|failure| failure.class) {
            None | Some(FailureClass::N) => true,
            Some(FailureClass::F) => self.admitted() < 2,
            Some(FailureClass::X | FailureClass::R) => false,
        };
        allowed && spent < BUDGET
    }

    /// True if one of the calls may have made an image that is lost.
    pub(super) fn maybe_paid(&self) -> bool {
        self.failures.iter().any(|failure| failure.class == FailureClass::X)
    }

    /// True if the only objections are to the tools of a response, or to an unnamed part of it: the response may be
    /// accepted without the injected tool. Nothing was made of a request that is refused like this.
    fn blames_tools(&self) -> bool {
        let turned_away =
            self.failures.iter().all(|failure| failure.class == FailureClass::N || rejects_tools(failure));
        turned_away && self.failures.iter().any(|failure| rejects_tools(failure) || rejects_something(failure))
    }

    /// Returns the number of failures that an upstream itself admits.
    fn admitted(&self) -> usize {
        self.failures.iter().filter(|failure| failure.class == FailureClass::F).count()
    }

    fn spent(&self) -> usize {
        self.failures.iter().filter(|failure| costs(failure)).count()
    }

    /// Returns the error for the caller, and the last attempt for the record. A call that may have been paid for counts
    /// as the last one: the caller must learn of it before paying for another image, even if a smaller one failed.
    fn end(mut self) -> JobFailure {
        self.failures.sort_by_key(|failure| failure.class == FailureClass::X);
        let error = outcome::error(&self.failures, self.stop, Utc::now());
        JobFailure::Failed(error, self.failures.pop().map(Box::new))
    }
}

/// True if the upstream refuses a list of tools or a part of one.
fn rejects_tools(failure: &AttemptFailure) -> bool {
    let FailureCause::Rejected { param, message } = &failure.cause else { return false };
    param.as_ref().is_some_and(|param| param.starts_with("tool")) || message.contains("tool")
}

/// True if the upstream refuses the request without naming the part at fault.
fn rejects_something(failure: &AttemptFailure) -> bool {
    matches!(failure.cause, FailureCause::Declined { .. } | FailureCause::Unreachable)
        && matches!(failure.status, Some(400 | 422))
}

/// True if a failure counts against the budget. A refusal with a status costs nothing, so every account may be asked.
pub(super) fn costs(failure: &AttemptFailure) -> bool {
    failure.class != FailureClass::N || failure.status.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(classes: &[(FailureClass, Option<u16>)]) -> AttemptHistory {
        let failure = |&(class, status): &(FailureClass, Option<u16>)| AttemptFailure {
            status,
            ..AttemptFailure::new(class, FailureCause::Failed)
        };
        AttemptHistory { failures: classes.iter().map(failure).collect(), ..AttemptHistory::default() }
    }

    fn may_try_again(history: AttemptHistory) -> bool {
        history.may_try_again(history.spent())
    }

    #[test]
    fn what_may_be_tried_again_depends_on_the_class_alone() {
        let (n, f, x, r) = (
            (FailureClass::N, Some(429)),
            (FailureClass::F, Some(500)),
            (FailureClass::X, Some(502)),
            (FailureClass::R, Some(400)),
        );
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
            let cause = FailureCause::Rejected { param: Some(param.to_owned()), message: message.to_owned() };
            AttemptFailure::new(FailureClass::R, cause).with_status(400)
        };
        let turned_away =
            |status| AttemptFailure { status, ..AttemptFailure::new(FailureClass::N, FailureCause::Unreachable) };
        let blames = |failures: &[AttemptFailure]| {
            AttemptHistory { failures: failures.to_vec(), ..AttemptHistory::default() }.blames_tools()
        };
        assert!(blames(&[rejected("tools[3].type", "no")]));
        assert!(blames(&[rejected("model", "This model has no image_generation tool.")]));
        assert!(blames(&[turned_away(Some(429)), turned_away(Some(400))]));
        assert!(blames(&[turned_away(Some(422)), turned_away(None)]));
        assert!(!blames(&[rejected("input[3].id", "no such item")]));
        assert!(!blames(&[turned_away(Some(429)), turned_away(None)]));
        let (failed, broken, refused) =
            ((FailureClass::F, Some(500)), (FailureClass::X, None), (FailureClass::R, Some(400)));
        for class in [failed, broken, refused] {
            let AttemptHistory { failures, .. } = after(&[class]);
            assert!(!blames(&[&[turned_away(Some(400))][..], &failures].concat()), "{class:?}");
        }
        assert!(!blames(&[]));
    }

    #[test]
    fn the_budget_counts_calls_that_may_have_cost_something() {
        let turned_away = [(FailureClass::N, Some(429)); 20];
        assert!(may_try_again(after(&turned_away)));
        assert!(!may_try_again(after(&[(FailureClass::N, None); BUDGET])));
    }

    #[test]
    fn what_may_be_paid_decides_the_error_whatever_came_after_it() {
        let (n, x) = ((FailureClass::N, Some(429)), (FailureClass::X, Some(504)));
        for classes in [&[x, n][..], &[n, x, n], &[x]] {
            let JobFailure::Failed(error, last) = after(classes).end() else { panic!("it has failed") };
            assert!(!error.should_retry(), "{classes:?}: {error:?}");
            assert_eq!(last.map(|last| last.class), Some(FailureClass::X), "{classes:?}");
        }
        assert!(!after(&[n]).maybe_paid() && after(&[n, x]).maybe_paid());
    }
}
