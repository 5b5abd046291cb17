//! Several images at an upstream that makes one for each call: as many calls as images, one record, one answer.
//!
//! The calls run side by side, as far as the accounts have slots; a call without a slot yields to those that have one.
//! Each image is kept on disk as soon as it comes, so its slot is free when the image is drawn. The answer begins when
//! every call is decided: some images are an answer, which states their number; without any image the worst failure is
//! the answer. A call is repeated only by the money rules, whose budget all of them share. No call begins after another
//! one was refused, or if an image takes longer than the time left: it would be paid for and then cut off.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use super::asker::AttemptContext;
use super::attempt::{AttemptHistory, AttemptRound, JobSuccess, RoundOutcome};
use super::call;
use super::sheet::SharedRecord;
use super::siblings::FanOutProgress;
use super::terms::AttemptDeadlines;
use crate::gateway::Gateway;
use crate::gateway::accounts::{AccountFeedback, Lease, LeaseRefusal};
use crate::gateway::relay::{SpooledImage, gather, keep};
use crate::gateway::rules::{Job, TaskRef};
use crate::gateway::spool::SpoolWriter;
use crate::gateway::upstream::{AttemptFailure, FailureCause, FailureClass};

/// The state that all calls of one job share.
struct FanOut<'a, 'r> {
    asker: AttemptContext<'a>,
    /// The job, for one image.
    job: &'a Job,
    terms: AttemptDeadlines,
    sheet: &'a SharedRecord<'r>,
    /// The number of images that no call makes yet, and the number of calls under way.
    open: AtomicUsize,
    working: AtomicUsize,
    siblings: FanOutProgress,
    state: Mutex<FanOutState>,
}

#[derive(Default)]
struct FanOutState {
    made: Vec<SpooledImage>,
    history: AttemptHistory,
    simulated: bool,
}

/// The parts of a round that makes one image of several.
pub(super) struct FanOutBranch<'a> {
    pub(super) siblings: &'a FanOutProgress,
    /// The file for the image, opened before anything is paid for.
    writer: Option<SpoolWriter>,
}

/// The result of one image.
enum BranchOutcome {
    Made { kept: SpooledImage, simulated: bool },
    Lost(AttemptHistory),
}

/// Makes each image with a call of its own, the first one with this lease. Returns `None` if no image was made; the
/// failures have then been added to the round, the worst last.
pub(super) async fn make(
    step: &mut AttemptRound<'_>,
    job: &Job,
    sheet: &SharedRecord<'_>,
    first: Lease,
) -> Option<JobSuccess> {
    let (alone, count) = (job.alone(), usize::try_from(job.count()).unwrap_or(1));
    let parts = FanOut {
        asker: step.asker,
        job: &alone,
        terms: step.terms,
        sheet,
        open: AtomicUsize::new(count),
        working: AtomicUsize::new(0),
        siblings: FanOutProgress::new(step.terms),
        state: Mutex::default(),
    };
    let mut lease = Some(first);
    all((0..count).map(|_| Box::pin(parts.work(lease.take())) as WorkerFuture<'_>).collect()).await;
    let FanOutState { made, mut history, simulated, .. } =
        parts.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    history.failures.sort_by_key(|failure| severity(failure.class));
    if made.is_empty() {
        if history.failures.is_empty() {
            history.stop.shut.get_or_insert(LeaseRefusal::Busy);
        }
        step.history.extend(history);
        return None;
    }
    let missing = job.count().saturating_sub(u32::try_from(made.len()).unwrap_or(u32::MAX));
    if missing > 0 {
        tracing::warn!(asked = count, delivered = made.len(), "some of several images were not made");
    }
    let proven = gather(made, call::asked(job, false), history.usage);
    Some(JobSuccess { proven, lease: None, simulated, missing, lowered: None, plain: false, charged: None })
}

/// Returns the rank of a failure: the caller gets the error of the call that may have cost the most.
const fn severity(class: FailureClass) -> u8 {
    match class {
        FailureClass::N => 0,
        FailureClass::F => 1,
        FailureClass::R => 2,
        FailureClass::X => 3,
    }
}

// === impl FanOut ===

impl FanOut<'_, '_> {
    /// Makes images as long as any are left to make.
    async fn work(&self, mut lease: Option<Lease>) {
        while self.begin() {
            let part = self.part(lease.take()).await;
            let others = self.working.fetch_sub(1, Ordering::Relaxed) > 1;
            match part {
                // Every slot is taken, some of them by the other calls of this job: they go on with this image.
                BranchOutcome::Lost(history) if others && history.is_only_busy() => {
                    self.open.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                part => self.settle(part),
            }
        }
    }

    /// Takes one of the images that no call makes yet, unless there is no point in it any more.
    fn begin(&self) -> bool {
        if !self.siblings.go_on() || self.open.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // All calls are polled by one task, so nothing can change in between.
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.working.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn settle(&self, part: BranchOutcome) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match part {
            BranchOutcome::Made { kept, simulated } => {
                state.made.push(kept);
                state.simulated |= simulated;
            }
            BranchOutcome::Lost(history) => {
                if history.stop.blames_request || history.failures.last().is_some_and(would_repeat) {
                    self.siblings.close();
                }
                state.history.extend(history);
            }
        }
    }

    /// Makes one image, by the money rules.
    async fn part(&self, lease: Option<Lease>) -> BranchOutcome {
        let mut history = AttemptHistory::default();
        let mut step = AttemptRound::new(self.asker, TaskRef::from(self.job), self.terms, &mut history);
        step.part = Some(FanOutBranch { siblings: &self.siblings, writer: None });
        // Something was sent for this job, so it goes on even if its caller leaves.
        let took = step.take(self.sheet, lease, std::pin::pin!(std::future::pending())).await;
        let Ok(RoundOutcome::Begun { proven, lease, call, simulated }) = took else {
            return BranchOutcome::Lost(history);
        };
        let Some(writer) = step.part.as_mut().and_then(|part| part.writer.take()) else {
            return BranchOutcome::Lost(history);
        };
        let kept = tokio::select! {
            biased;
            kept = keep(proven, writer) => kept.map_err(call::unkept),
            () = self.asker.gateway.cutoff().cancelled() => Err(AttemptFailure::new(FailureClass::X, FailureCause::Cutoff).into()),
        };
        match kept {
            Ok(kept) => {
                self.siblings.made(step.called.elapsed());
                self.asker.gateway.accounts().learn(&lease, AccountFeedback::Good).await;
                BranchOutcome::Made { kept, simulated }
            }
            Err(lost) => {
                step.learn(self.sheet, call, &lease, lost).await;
                step.doubt().await;
                BranchOutcome::Lost(history)
            }
        }
    }
}

/// True if the next image would fail in the same way: the content is refused, or our own disk is full.
fn would_repeat(failure: &AttemptFailure) -> bool {
    failure.class == FailureClass::R || failure.cause == FailureCause::Unkept
}

// === impl FanOutBranch ===

impl FanOutBranch<'_> {
    /// Prepares a call, however long the wait for its slot was. Returns true if the other calls allow it, there is time
    /// for an image, and a file for it is open.
    pub(super) async fn prepare(&mut self, gateway: &Gateway, history: &mut AttemptHistory) -> bool {
        if !self.siblings.has_time() {
            history.stop.shut = Some(LeaseRefusal::Busy);
        }
        if !self.siblings.go_on() {
            return false;
        }
        if self.writer.is_none() {
            self.writer = match gateway.spool().open_before_paying().await {
                Ok(writer) => Some(writer),
                Err(error) => {
                    tracing::error!(%error, "an image cannot be stored on disk");
                    history.add(AttemptFailure::new(FailureClass::N, FailureCause::Unkept).into());
                    None
                }
            };
        }
        self.writer.is_some()
    }
}

// === impl AttemptHistory ===

impl AttemptHistory {
    /// True if nothing was tried because every slot is taken.
    fn is_only_busy(&self) -> bool {
        self.failures.is_empty() && self.stop.shut == Some(LeaseRefusal::Busy)
    }

    /// Adds the other failures.
    fn extend(&mut self, other: Self) {
        self.usage = crate::gateway::relay::sum(self.usage, other.usage);
        self.failures.extend(other.failures);
        self.stop.shut = other.stop.shut.or(self.stop.shut);
        self.stop.blames_request |= other.stop.blames_request;
    }
}

type WorkerFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Drives all futures until the last one is done.
async fn all(mut works: Vec<WorkerFuture<'_>>) {
    std::future::poll_fn(|cx| {
        works.retain_mut(|work| work.as_mut().poll(cx).is_pending());
        if works.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
