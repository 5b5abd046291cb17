//! One pass over the accounts for one size and quality: until one gives a proven answer, or none may be asked any more.
//!
//! A generation is paid for and cannot be taken back, so another attempt depends only on whether an image can already
//! have been made. The class of the failure answers that:
//!
//! | Class of the failure | Next |
//! |---|---|
//! | nothing was done | other accounts, within the limit of failed calls |
//! | the upstream reports that it failed | one other account |
//! | an image may have been paid for, or the request was refused | no other account |

use std::pin::Pin;

use tokio::time::Instant;

use super::account_call;
use super::attempt_context::AttemptContext;
use super::attempt_deadlines::AttemptDeadlines;
use super::attempt_history::AttemptHistory;
use super::attempt_types::{FailedCall, JobFailure, ProvenCall, RoundOutcome};
use super::caller_error::{StopReason, is_request_to_blame};
use super::fan_out_branch::FanOutBranch;
use super::job_context::JobContext;
use super::shared_record::SharedRecord;
use crate::gateway::accounts::{AccountFeedback, Lease, LeaseGrant, LeaseRefusal, RetryTarget};
use crate::gateway::ledger::AttemptHandle;
use crate::gateway::rules::{ResponseJob, TaskRef};
use crate::gateway::upstream::{AccountFinding, FailureConsequences};

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

/// The result of a wait for a lease.
enum LeaseWait {
    Granted(Lease),
    Refused(LeaseRefusal),
    /// The caller no longer waits, and nothing was sent to an upstream.
    Abandoned,
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
        let round_outcome = self.ask_accounts(shared_record, first_lease, abandoned).await;
        match round_outcome {
            Ok(RoundOutcome::ImageBegun { .. }) => self.apply_suspected_feedback().await,
            Ok(RoundOutcome::OneImagePerCall(_) | RoundOutcome::NoAccountLeft) | Err(_) => {
                self.weaken_suspected_feedback().await;
            }
        }
        round_outcome
    }

    async fn ask_accounts(
        &mut self,
        shared_record: &SharedRecord<'_>,
        mut next_lease: Option<Lease>,
        mut abandoned: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<RoundOutcome, JobFailure> {
        let (mut tried_accounts, failures_before) = (Vec::new(), self.history.failures.len());
        self.history.stop_reason = StopReason::default();
        loop {
            let lease_wait = match next_lease.take() {
                Some(lease) => LeaseWait::Granted(lease),
                None => self.wait_for_lease(&tried_accounts, abandoned.as_mut()).await,
            };
            let lease = match lease_wait {
                LeaseWait::Granted(lease) => lease,
                LeaseWait::Refused(refusal) => {
                    self.history.stop_reason = StopReason::NoLease(refusal);
                    return Ok(RoundOutcome::NoAccountLeft);
                }
                LeaseWait::Abandoned => return Err(JobFailure::Abandoned),
            };
            if lease.endpoint().makes_single_image() && matches!(self.task, TaskRef::Images(job) if job.count() > 1) {
                return Ok(RoundOutcome::OneImagePerCall(lease));
            }
            if let Some(branch) = self.branch.as_mut()
                && !branch.prepare_call(&self.context.job.services.spool, self.history).await
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
                Ok(ProvenCall { proven, request_id }) => {
                    shared_record.with_record(|record| record.end_attempt(call, None, Some(200)));
                    shared_record.with_record(|record| record.set_upstream_id(call, request_id));
                    self.note_image_begun();
                    return Ok(RoundOutcome::ImageBegun { proven, lease, call, is_tool_removed });
                }
                Err(failure) => failure,
            };
            let retry_target = self.handle_failure(shared_record, call, &lease, failed_call).await;
            let counted_failures = self
                .branch
                .as_ref()
                .map_or_else(|| self.history.counted_failures(), |branch| branch.progress.counted_failures());
            if is_request_to_blame(&self.history.failures[failures_before..]) {
                self.history.stop_reason = StopReason::RequestAtFault;
                return Ok(RoundOutcome::NoAccountLeft);
            }
            if !self.history.may_try_again(counted_failures) {
                return Ok(RoundOutcome::NoAccountLeft);
            }
            match retry_target {
                RetryTarget::SameAccount => next_lease = Some(lease),
                RetryTarget::OtherAccount => tried_accounts.push(lease.account().name().to_owned()),
            }
        }
    }

    fn note_image_begun(&self) {
        if let Some(branch) = &self.branch {
            branch.progress.note_image_begun();
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
    ) -> LeaseWait {
        let JobContext { services, caller, options, .. } = self.context.job;
        tokio::select! {
            biased;
            lease = services.accounts.lease(self.task, caller, tried_accounts, &options.request_id) => match lease {
                Ok(lease) => LeaseWait::Granted(lease),
                Err(refusal) => LeaseWait::Refused(refusal),
            },
            () = services.cutoff.cancelled() => LeaseWait::Refused(LeaseRefusal::Stopping),
            () = abandoned, if self.history.failures.is_empty() => LeaseWait::Abandoned,
        }
    }

    /// Applies a failed attempt to the record, to its account and to the attempts after it. Returns the account that may
    /// be asked next.
    pub(super) async fn handle_failure(
        &mut self,
        shared_record: &SharedRecord<'_>,
        call: AttemptHandle,
        lease: &Lease,
        failed_call: FailedCall,
    ) -> RetryTarget {
        let FailureConsequences { class, finding, reason, .. } = failed_call.failure.consequences();
        let status = failed_call.failure.status;
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
        if let Some(reason) = reason {
            self.context.job.services.accounts.note_failed_call(lease, reason, status);
        }
        let retry_target = match finding {
            AccountFinding::Certain(feedback) => {
                self.context.job.services.accounts.apply_feedback(lease, feedback).await
            }
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
            self.context.job.services.accounts.apply_late_feedback(&grant, feedback).await;
        }
    }

    /// Weakens the suspected feedback, because no other account has accepted the request, which may itself be the
    /// cause. Later requests, or a check of the credentials, then decide about the account.
    pub(super) async fn weaken_suspected_feedback(&mut self) {
        let accounts = &self.context.job.services.accounts;
        for (grant, feedback) in self.suspected_feedback.drain(..) {
            match feedback {
                AccountFeedback::Failed => accounts.apply_late_feedback(&grant, AccountFeedback::Doubtful).await,
                AccountFeedback::Unauthorized { .. } if self.history.stop_reason == StopReason::RequestAtFault => {
                    accounts.suspect_credentials(&grant);
                }
                _ => {}
            }
        }
    }
}
