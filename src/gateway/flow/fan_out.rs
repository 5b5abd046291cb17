//! Several images at an upstream that makes one image for each call: as many calls as images, one record, one answer.
//!
//! The calls run concurrently, as far as the accounts have slots. If a call gets no slot, a running call of the job
//! makes its image later. Each image is stored on disk as it arrives, so its slot is free as soon as the image is
//! complete. The answer begins when every call has ended: if at least one image was made, the answer states how many
//! are missing; otherwise the answer is the error of the most severe failure. A call is repeated as decided by the
//! money rules, and all calls share their budget. No call begins after the content was refused or an image could not be
//! stored on disk. No call begins either if an image is expected to take longer than the remaining time, because it
//! would be paid for and then cut off.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use super::account_call;
use super::attempt_context::AttemptContext;
use super::attempt_deadlines::AttemptDeadlines;
use super::attempt_history::AttemptHistory;
use super::attempt_round::AttemptRound;
use super::attempt_types::{JobSuccess, RoundOutcome};
use super::caller_error::StopReason;
use super::fan_out_branch::FanOutBranch;
use super::fan_out_progress::FanOutProgress;
use super::shared_record::SharedRecord;
use crate::gateway::accounts::{AccountFeedback, Lease, LeaseRefusal};
use crate::gateway::ledger::AttemptClass;
use crate::gateway::relay::{SpooledImage, combine_images, spool_image};
use crate::gateway::rules::{Job, TaskRef};
use crate::gateway::upstream::{AttemptFailure, FailureCause};

/// The state that all calls of one job share.
struct FanOut<'a, 'r> {
    context: AttemptContext<'a>,
    /// The job, for one image.
    job: &'a Job,
    deadlines: AttemptDeadlines,
    shared_record: &'a SharedRecord<'r>,
    /// The number of images that no call makes yet.
    unreserved_images: AtomicUsize,
    /// The number of calls in flight.
    running_calls: AtomicUsize,
    progress: FanOutProgress,
    state: Mutex<FanOutState>,
}

#[derive(Default)]
struct FanOutState {
    images: Vec<SpooledImage>,
    history: AttemptHistory,
    is_simulated: bool,
}

/// The result of the calls for one image.
enum BranchOutcome {
    Made { image: SpooledImage, is_simulated: bool },
    Failed(AttemptHistory),
}

/// Makes each image with its own call, the first with this lease. Returns `None` if no image was made; the failures
/// have then been added to the history of the round, the most severe last.
pub(super) async fn make_images(
    round: &mut AttemptRound<'_>,
    job: &Job,
    shared_record: &SharedRecord<'_>,
    first: Lease,
) -> Option<JobSuccess> {
    let (single_image_job, count) = (job.for_single_image(), job.image_count());
    let fan_out = FanOut {
        context: round.context,
        job: &single_image_job,
        deadlines: round.deadlines,
        shared_record,
        unreserved_images: AtomicUsize::new(count),
        running_calls: AtomicUsize::new(0),
        progress: FanOutProgress::new(round.deadlines),
        state: Mutex::default(),
    };
    let mut lease = Some(first);
    run_all((0..count).map(|_| Box::pin(fan_out.run_worker(lease.take())) as WorkerFuture<'_>).collect()).await;
    let FanOutState { images, mut history, is_simulated } =
        fan_out.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    history.failures.sort_by_key(AttemptFailure::class);
    if images.is_empty() {
        // No call was made: the workers have stopped because every slot is taken.
        if history.failures.is_empty() && history.stop_reason == StopReason::MoneyRules {
            history.stop_reason = StopReason::NoLease(LeaseRefusal::Busy);
        }
        round.history.merge(history);
        return None;
    }
    let missing = job.count().saturating_sub(u32::try_from(images.len()).unwrap_or(u32::MAX));
    if missing > 0 {
        tracing::warn!(asked = count, delivered = images.len(), "some of several images were not made");
    }
    let proven = combine_images(images, account_call::requested_answer(job, false), history.charged_usage);
    Some(JobSuccess {
        proven,
        lease: None,
        is_simulated,
        missing_images: missing,
        fallback_job: None,
        was_tool_removed: false,
        failed_call_usage: None,
    })
}

// === impl FanOut ===

impl FanOut<'_, '_> {
    /// Makes images as long as there are unreserved ones.
    async fn run_worker(&self, mut lease: Option<Lease>) {
        while self.reserve_image() {
            let branch_outcome = self.make_image(lease.take()).await;
            let has_other_calls = self.running_calls.fetch_sub(1, Ordering::Relaxed) > 1;
            match branch_outcome {
                // Every slot is taken, some of them by other calls of this job, which make this image later.
                BranchOutcome::Failed(history) if has_other_calls && history.is_only_busy() => {
                    self.unreserved_images.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                outcome => self.add_branch_outcome(outcome),
            }
        }
    }

    /// Reserves one of the images that no call makes yet. Returns false if none is left or no further call may begin.
    fn reserve_image(&self) -> bool {
        if !self.progress.may_begin_image() || self.unreserved_images.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // All calls are polled by one task, so the number cannot change between the check and the subtraction.
        self.unreserved_images.fetch_sub(1, Ordering::Relaxed);
        self.running_calls.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn add_branch_outcome(&self, branch_outcome: BranchOutcome) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match branch_outcome {
            BranchOutcome::Made { image, is_simulated } => {
                state.images.push(image);
                state.is_simulated |= is_simulated;
            }
            BranchOutcome::Failed(history) => {
                if history.stop_reason == StopReason::RequestAtFault
                    || history.failures.last().is_some_and(would_repeat)
                {
                    self.progress.stop_new_calls();
                }
                state.history.merge(history);
            }
        }
    }

    /// Makes one image; the money rules decide how often it is tried.
    async fn make_image(&self, lease: Option<Lease>) -> BranchOutcome {
        let mut history = AttemptHistory::default();
        let mut round = AttemptRound::new(self.context, TaskRef::from(self.job), self.deadlines, &mut history);
        round.branch = Some(FanOutBranch { progress: &self.progress, writer: None });
        // Requests of this job may already be at an upstream, so the job continues even if its caller leaves.
        let round_outcome = round.run(self.shared_record, lease, std::pin::pin!(std::future::pending())).await;
        // The round opens the writer of the image before its call.
        let writer = round.branch.as_mut().and_then(|branch| branch.writer.take());
        let (Ok(RoundOutcome::ImageBegun { proven, lease, call, .. }), Some(writer)) = (round_outcome, writer) else {
            return BranchOutcome::Failed(history);
        };
        let spooled = tokio::select! {
            biased;
            spooled = spool_image(proven, writer) => spooled.map_err(account_call::classify_spool_error),
            () = self.context.job.services.cutoff.cancelled() => Err(AttemptFailure::new(FailureCause::Cutoff).into()),
        };
        match spooled {
            Ok(image) => {
                self.progress.note_image_made(round.call_started.elapsed());
                self.context.job.services.accounts.apply_feedback(&lease, AccountFeedback::Success).await;
                BranchOutcome::Made { image, is_simulated: lease.endpoint().is_simulator() }
            }
            Err(failed_call) => {
                round.handle_failure(self.shared_record, call, &lease, failed_call).await;
                round.weaken_suspected_feedback().await;
                BranchOutcome::Failed(history)
            }
        }
    }
}

/// True if the next image would fail in the same way, because the content is refused or the disk of the gateway is
/// full.
fn would_repeat(failure: &AttemptFailure) -> bool {
    failure.class() == AttemptClass::Refused
        || matches!(failure.cause, FailureCause::SpoolUnavailable | FailureCause::SpoolFailed)
}

type WorkerFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Polls all futures until each has completed.
async fn run_all(mut workers: Vec<WorkerFuture<'_>>) {
    std::future::poll_fn(|cx| {
        workers.retain_mut(|worker| worker.as_mut().poll(cx).is_pending());
        if workers.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
