//! The attempt loop: the only place that decides on another attempt.
//!
//! A generation is paid for and cannot be taken back, so another attempt depends only on whether an image can already
//! have been made. The class of the failure ([`AttemptClass`](crate::gateway::upstream::AttemptClass)) answers that:
//! after class N other accounts are asked, within the budget; after class F one other account is asked; after X and R
//! no other account is asked. If no image was made and the fallback policy allows it, a round for a smaller image
//! follows; after class X it follows only if the caller accepts that both images may be paid for, and still waits for
//! the answer. A round begins only if there is time for it. A response that the upstream may have refused because of
//! the injected tool is sent again without that tool.

use std::pin::{Pin, pin};

use tokio::time::Instant;

use super::account_call::{self, FailedCall, ProvenCall};
use super::attempt_context::AttemptContext;
use super::attempt_deadlines::AttemptDeadlines;
use super::attempt_history::AttemptHistory;
use super::fan_out::FanOutBranch;
use super::fan_out_progress::FanOutProgress;
use super::outcome::{AccountFinding, StopReason};
use super::shared_record::SharedRecord;
use super::{cost_estimate, failure_reason, fallback_order, fan_out, outcome, token_usage};
use crate::error::Error;
use crate::gateway::accounts::{AccountFeedback, Lease, LeaseGrant, LeaseRefusal, RetryTarget};
use crate::gateway::ledger::{AttemptHandle, OpenRecord};
use crate::gateway::relay::{AnswerUsage, ProvenAnswer};
use crate::gateway::rules::{Job, ResponseJob, TaskRef};
use crate::gateway::upstream::AttemptFailure;

/// A proven answer, and the facts about how it was made.
pub(super) struct JobSuccess {
    pub(super) proven: ProvenAnswer,
    /// The lease of the attempt; `None` if each image had a call of its own, because those calls have ended.
    pub(super) lease: Option<Lease>,
    pub(super) is_simulated: bool,
    /// The number of requested images that were not made; 0 unless each image had a call of its own.
    pub(super) missing_images: u32,
    /// The smaller job that was carried out instead of the original one, if there was a fallback.
    pub(super) fallback_job: Option<Job>,
    /// True if the response was made without the injected tool.
    pub(super) was_tool_removed: bool,
    /// The tokens that were charged for failed calls and are not part of `proven`.
    pub(super) failed_call_usage: Option<AnswerUsage>,
}

/// The reason why there is no answer from an upstream.
pub(super) enum JobFailure {
    /// The error for the caller, and the failed attempt that the record shows, if one was made.
    Failed(Error, Option<Box<AttemptFailure>>),
    /// The caller no longer waits for the image, and nothing was sent to an upstream.
    Abandoned,
}

/// Asks accounts until one gives a proven answer. If none does, follows the fallback order, or sends a response again
/// without the injected tool. If the caller leaves before anything was sent to an upstream, the job ends.
pub(super) async fn run(
    context: AttemptContext<'_>,
    original_task: TaskRef<'_>,
    record: &mut OpenRecord,
) -> Result<JobSuccess, JobFailure> {
    let request_deadlines =
        AttemptDeadlines::new(original_task, context.gateway.deadlines(context.caller.group_name()).image);
    let mut abandoned = pin!(context.until_abandoned());
    let (mut fallback_job, mut job_without_tool): (Option<Job>, Option<ResponseJob>) = (None, None);
    let mut history = AttemptHistory::default();
    let shared_record = SharedRecord::new(record);
    loop {
        let changed_task = fallback_job.as_ref().map(TaskRef::from).or(job_without_tool.as_ref().map(TaskRef::from));
        let task = changed_task.unwrap_or(original_task);
        let deadlines = context.round_deadlines(task, request_deadlines);
        let mut round = AttemptRound::new(context, task, deadlines, &mut history);
        match (round.run(&shared_record, None, abandoned.as_mut()).await?, task) {
            (RoundOutcome::ImageBegun { proven, lease, simulated, is_tool_removed, .. }, _) => {
                if job_without_tool.is_some() {
                    note_added_tool_refused(context, &lease).await;
                }
                return Ok(JobSuccess {
                    proven,
                    lease: Some(lease),
                    is_simulated: simulated,
                    missing_images: 0,
                    fallback_job,
                    was_tool_removed: is_tool_removed || job_without_tool.is_some(),
                    failed_call_usage: history.charged_usage,
                });
            }
            (RoundOutcome::OneImagePerCall(lease), TaskRef::Images(job)) => {
                if let Some(success) = Box::pin(fan_out::make_images(&mut round, job, &shared_record, lease)).await {
                    return Ok(JobSuccess { fallback_job, failed_call_usage: history.charged_usage, ..success });
                }
            }
            (RoundOutcome::OneImagePerCall(_) | RoundOutcome::NoAccountLeft, _) => {}
        }
        match task {
            TaskRef::Images(job) if context.may_fall_back(&history, &request_deadlines) => {
                fallback_job = fallback_order::next_fallback(job);
            }
            TaskRef::Response(job) if job.is_tool_injected() && history.may_pass_without_tool() => {
                job_without_tool = Some(job.without_injected_tool());
            }
            TaskRef::Images(_) | TaskRef::Response(_) => (fallback_job, job_without_tool) = (None, None),
        }
        if let Some(smaller_job) = &fallback_job {
            begin_fallback(context, smaller_job, history.may_be_paid(), &shared_record);
        } else if job_without_tool.is_some() {
            tracing::warn!("the upstream refuses the request with the added image tool: sending the request unchanged");
        } else {
            if let Some(usage) = history.charged_usage.take() {
                shared_record.with_record(|record| record.set_usage(token_usage::model_usage(usage)));
            }
            return Err(history.into_failure());
        }
    }
}

/// Records that a smaller image is asked for.
fn begin_fallback(
    context: AttemptContext<'_>,
    smaller_job: &Job,
    maybe_paid_twice: bool,
    shared_record: &SharedRecord<'_>,
) {
    let smaller_image = fallback_order::size_and_quality(smaller_job);
    tracing::info!(to = smaller_image, maybe_paid_twice, "no account made the image: trying the next fallback");
    let most = cost_estimate::most_for_job(context.gateway, context.caller, smaller_job);
    shared_record.with_record(|record| record.begin_fallback(smaller_image, most));
    if maybe_paid_twice {
        shared_record.mark_maybe_paid_twice();
    }
}

/// Notes that the account has accepted without the injected tool what was refused with it.
async fn note_added_tool_refused(context: AttemptContext<'_>, lease: &Lease) {
    context.gateway.accounts().apply_late_feedback(&lease.grant(), AccountFeedback::AddedToolRefused).await;
}

/// One pass over the accounts for one size and quality.
pub(super) struct AttemptRound<'a> {
    pub(super) context: AttemptContext<'a>,
    pub(super) task: TaskRef<'a>,
    /// The branch of the fan-out, if the round makes one image of several.
    pub(super) branch: Option<FanOutBranch<'a>>,
    pub(super) deadlines: AttemptDeadlines,
    pub(super) history: &'a mut AttemptHistory,
    /// The moment at which the last call began.
    pub(super) call_started: Instant,
    /// Feedback that applies in full only if another account accepts the same request.
    suspected_feedback: Vec<(LeaseGrant, AccountFeedback)>,
}

/// The result of a round.
pub(super) enum RoundOutcome {
    /// An image has begun.
    ImageBegun {
        proven: ProvenAnswer,
        lease: Lease,
        call: AttemptHandle,
        simulated: bool,
        /// True if the account refuses the injected tool, so the call was made without it.
        is_tool_removed: bool,
    },
    /// The account of this lease makes one image for each call, and the job asks for several. Nothing was sent to it
    /// yet.
    OneImagePerCall(Lease),
    /// No further account may be asked.
    NoAccountLeft,
}

// === impl AttemptRound ===

impl<'a> AttemptRound<'a> {
    pub(super) fn new(
        context: AttemptContext<'a>,
        task: TaskRef<'a>,
        deadlines: AttemptDeadlines,
        history: &'a mut AttemptHistory,
    ) -> Self {
        Self {
            context,
            task,
            branch: None,
            deadlines,
            history,
            call_started: Instant::now(),
            suspected_feedback: Vec::new(),
        }
    }

    /// Asks accounts in the order of selection, beginning with the account of `first_lease` if there is one, until one
    /// gives a proven answer or no further account may be asked.
    pub(super) async fn run(
        &mut self,
        shared_record: &SharedRecord<'_>,
        first_lease: Option<Lease>,
        abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<RoundOutcome, JobFailure> {
        let round_outcome = self.run_attempts(shared_record, first_lease, abandoned).await;
        match round_outcome {
            Ok(RoundOutcome::ImageBegun { .. }) => self.apply_suspected_feedback().await,
            Ok(RoundOutcome::OneImagePerCall(_) | RoundOutcome::NoAccountLeft) | Err(_) => {
                self.weaken_suspected_feedback().await;
            }
        }
        round_outcome
    }

    async fn run_attempts(
        &mut self,
        shared_record: &SharedRecord<'_>,
        mut next_lease: Option<Lease>,
        mut abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<RoundOutcome, JobFailure> {
        let (mut tried_accounts, failures_before) = (Vec::new(), self.history.failures.len());
        self.history.stop_reason = StopReason::default();
        loop {
            let lease = match next_lease.take() {
                Some(lease) => Ok(lease),
                None => self.wait_for_lease(&tried_accounts, abandoned.as_mut()).await?,
            };
            let lease = match lease {
                Ok(lease) => lease,
                Err(refusal) => {
                    self.history.stop_reason.refusal = Some(refusal);
                    return Ok(RoundOutcome::NoAccountLeft);
                }
            };
            if lease.endpoint().makes_single_image() && matches!(self.task, TaskRef::Images(job) if job.count() > 1) {
                return Ok(RoundOutcome::OneImagePerCall(lease));
            }
            if let Some(branch) = self.branch.as_mut()
                && !branch.prepare_call(self.context.gateway, self.history).await
            {
                return Ok(RoundOutcome::NoAccountLeft);
            }
            let call = shared_record.begin_attempt(lease.account());
            shared_record.persist_attempts().await;
            self.call_started = Instant::now();
            let fan_out = self.branch.as_ref().map(|branch| branch.progress);
            let job_without_tool = self.job_without_refused_tool(&lease);
            let (task, is_tool_removed) =
                (job_without_tool.as_ref().map_or(self.task, TaskRef::from), job_without_tool.is_some());
            let call_future = Box::pin(account_call::make_call(self.context, &lease, task, fan_out, &self.deadlines));
            let failed_call = match call_future.await {
                Ok(ProvenCall { proven, is_simulated: simulated, request_id }) => {
                    shared_record.with_record(|record| record.end_attempt(call, None, Some(200)));
                    shared_record.with_record(|record| record.set_upstream_id(call, request_id));
                    fan_out.into_iter().for_each(FanOutProgress::note_image_begun);
                    return Ok(RoundOutcome::ImageBegun { proven, lease, call, simulated, is_tool_removed });
                }
                Err(failure) => failure,
            };
            let retry_target = self.record_failure(shared_record, call, &lease, failed_call).await;
            let budget_spent = self
                .branch
                .as_ref()
                .map_or_else(|| self.history.budget_spent(), |branch| branch.progress.budget_spent());
            self.history.stop_reason.blames_request =
                outcome::is_request_to_blame(&self.history.failures[failures_before..]);
            if self.history.stop_reason.blames_request || !self.history.may_try_again(budget_spent) {
                return Ok(RoundOutcome::NoAccountLeft);
            }
            match retry_target {
                RetryTarget::SameAccount => next_lease = Some(lease),
                RetryTarget::OtherAccount => tried_accounts.push(lease.account().name().to_owned()),
            }
        }
    }

    /// Returns the job without the injected tool, if the account refuses it.
    fn job_without_refused_tool(&self, lease: &Lease) -> Option<ResponseJob> {
        match self.task {
            TaskRef::Response(job) if job.is_tool_injected() && lease.refuses_added_tool() => {
                Some(job.without_injected_tool())
            }
            TaskRef::Response(_) | TaskRef::Images(_) => None,
        }
    }

    /// Waits for a slot on an account. If nothing was sent to an upstream yet, the wait also ends when the caller
    /// leaves.
    async fn wait_for_lease(
        &self,
        tried_accounts: &[String],
        abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Result<Lease, LeaseRefusal>, JobFailure> {
        let gateway = self.context.gateway;
        let context = self.context;
        let leasing = gateway.accounts().lease(self.task, context.caller, tried_accounts, context.request_id);
        let lease = async {
            tokio::select! {
                biased;
                lease = leasing => lease,
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
    pub(super) async fn record_failure(
        &mut self,
        shared_record: &SharedRecord<'_>,
        call: AttemptHandle,
        lease: &Lease,
        failed_call: FailedCall,
    ) -> RetryTarget {
        let (class, status) = (failed_call.failure.class, failed_call.failure.status);
        let request_id = failed_call.failure.request_id.clone();
        shared_record.with_record(|record| {
            record.end_attempt(call, Some(class), status);
            // If the answer of a call had begun, its id is already known.
            if request_id.is_some() {
                record.set_upstream_id(call, request_id);
            }
        });
        if let Some(branch) = &self.branch {
            branch.progress.note_call_failed(&failed_call.failure, self.call_started.elapsed());
        }
        if let Some(reason) = failure_reason::of_failed_call(&failed_call.failure) {
            self.context.gateway.accounts().note_failed_call(lease, reason, status);
        }
        let retry_target = match outcome::account_finding(&failed_call.failure) {
            AccountFinding::Certain(feedback) => self.context.gateway.accounts().apply_feedback(lease, feedback).await,
            AccountFinding::Suspected(feedback) => {
                self.suspected_feedback.push((lease.grant(), feedback));
                RetryTarget::OtherAccount
            }
        };
        self.history.add_failed_call(failed_call);
        retry_target
    }

    /// Applies the suspected feedback to its accounts, because another account has accepted the request.
    async fn apply_suspected_feedback(&mut self) {
        for (grant, feedback) in self.suspected_feedback.drain(..) {
            self.context.gateway.accounts().apply_late_feedback(&grant, feedback).await;
        }
    }

    /// Weakens the suspected feedback, because no other account has accepted the request, which may itself be the
    /// cause. Later requests, or a check of the credentials, then decide about the account.
    pub(super) async fn weaken_suspected_feedback(&mut self) {
        let accounts = self.context.gateway.accounts();
        for (grant, feedback) in self.suspected_feedback.drain(..) {
            match feedback {
                AccountFeedback::Failed => accounts.apply_late_feedback(&grant, AccountFeedback::Doubtful).await,
                AccountFeedback::Unauthorized { .. } if self.history.stop_reason.blames_request => {
                    accounts.suspect_credentials(&grant);
                }
                _ => {}
            }
        }
    }
}
