//! Several images at an upstream that makes one a call: as many calls as images, one record, one answer.
//!
//! The calls are made side by side, as far as the accounts have places; whoever finds none makes way for those that have
//! one. Each image is kept on disk as soon as it comes, so a place is free again when its image is drawn. The answer begins
//! when every call is decided: some images are an answer, which says how many there are; none is the worst of the
//! failures. No call is made twice but by the money rules, whose budget all of them share; and none is begun where another
//! one was refused, or where an image takes longer than there is time: it would be paid, and cut off at the
//! end of that time.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use super::asker::Asker;
use super::attempt::{History, Step, Took, Won};
use super::call;
use super::sheet::Sheet;
use super::siblings::Siblings;
use super::terms::Terms;
use crate::gateway::Gateway;
use crate::gateway::accounts::{Lease, Lesson, NoLease};
use crate::gateway::relay::{Kept, gather, keep};
use crate::gateway::rules::{Job, Task};
use crate::gateway::spool::Writer;
use crate::gateway::upstream::{Cause, Class, Failure};

/// Everything that the calls of one job share.
struct Parts<'a, 'r> {
    asker: Asker<'a>,
    /// The job, for one image.
    job: &'a Job,
    terms: Terms,
    sheet: &'a Sheet<'r>,
    /// Images that nobody makes yet, and calls under way.
    open: AtomicUsize,
    working: AtomicUsize,
    siblings: Siblings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    made: Vec<Kept>,
    history: History,
    simulated: bool,
}

/// What a step needs that makes one image of several.
pub(super) struct OneOf<'a> {
    pub(super) siblings: &'a Siblings,
    /// Where the image will lie: such a place is there before anything is paid for.
    writer: Option<Writer>,
}

/// What became of one image.
enum Part {
    Made { kept: Kept, simulated: bool },
    Lost(History),
}

/// Makes each image with a call of its own, the first one with this lease. Nothing where there is none: why has been added
/// to the step, the worst last.
pub(super) async fn make(step: &mut Step<'_>, job: &Job, sheet: &Sheet<'_>, first: Lease) -> Option<Won> {
    let (alone, count) = (job.alone(), usize::try_from(job.count()).unwrap_or(1));
    let parts = Parts {
        asker: step.asker,
        job: &alone,
        terms: step.terms,
        sheet,
        open: AtomicUsize::new(count),
        working: AtomicUsize::new(0),
        siblings: Siblings::new(step.terms),
        state: Mutex::default(),
    };
    let mut lease = Some(first);
    all((0..count).map(|_| Box::pin(parts.work(lease.take())) as Work<'_>).collect()).await;
    let State { made, mut history, simulated, .. } = parts.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    history.failures.sort_by_key(|failure| severity(failure.class));
    if made.is_empty() {
        if history.failures.is_empty() {
            history.stop.shut.get_or_insert(NoLease::Busy);
        }
        step.history.extend(history);
        return None;
    }
    let missing = job.count().saturating_sub(u32::try_from(made.len()).unwrap_or(u32::MAX));
    if missing > 0 {
        tracing::warn!(asked = count, delivered = made.len(), "some of several images were not made");
    }
    let proven = gather(made, call::asked(job, false), history.usage);
    Some(Won { proven, lease: None, simulated, missing, lowered: None, plain: false, charged: None })
}

/// What may have cost most decides what the caller reads.
const fn severity(class: Class) -> u8 {
    match class {
        Class::N => 0,
        Class::F => 1,
        Class::R => 2,
        Class::X => 3,
    }
}

// === impl Parts ===

impl Parts<'_, '_> {
    /// Makes images as long as there are any to be made.
    async fn work(&self, mut lease: Option<Lease>) {
        while self.begin() {
            let part = self.part(lease.take()).await;
            let others = self.working.fetch_sub(1, Ordering::Relaxed) > 1;
            match part {
                // Every place is taken, some of them by the other calls of this job: they go on with this image.
                Part::Lost(history) if others && history.is_only_busy() => {
                    self.open.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                part => self.settle(part),
            }
        }
    }

    /// Takes one of the images that nobody makes yet, unless there is no point in it any more.
    fn begin(&self) -> bool {
        if !self.siblings.go_on() || self.open.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // All of it is polled by one task: nobody comes between.
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.working.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn settle(&self, part: Part) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match part {
            Part::Made { kept, simulated } => {
                state.made.push(kept);
                state.simulated |= simulated;
            }
            Part::Lost(history) => {
                if history.stop.blames_request || history.failures.last().is_some_and(would_repeat) {
                    self.siblings.close();
                }
                state.history.extend(history);
            }
        }
    }

    /// One image, by the money rules.
    async fn part(&self, lease: Option<Lease>) -> Part {
        let mut history = History::default();
        let mut step = Step::new(self.asker, Task::from(self.job), self.terms, &mut history);
        step.part = Some(OneOf { siblings: &self.siblings, writer: None });
        // Something was sent for this job, so it goes on whoever waits for it.
        let took = step.take(self.sheet, lease, std::pin::pin!(std::future::pending())).await;
        let Ok(Took::Begun { proven, lease, call, simulated }) = took else { return Part::Lost(history) };
        let Some(writer) = step.part.as_mut().and_then(|part| part.writer.take()) else { return Part::Lost(history) };
        let kept = tokio::select! {
            biased;
            kept = keep(proven, writer) => kept.map_err(call::unkept),
            () = self.asker.gateway.cutoff().cancelled() => Err(Failure::new(Class::X, Cause::Cutoff).into()),
        };
        match kept {
            Ok(kept) => {
                self.siblings.made(step.called.elapsed());
                self.asker.gateway.accounts().learn(&lease, Lesson::Good).await;
                Part::Made { kept, simulated }
            }
            Err(lost) => {
                step.learn(self.sheet, call, &lease, lost).await;
                step.doubt().await;
                Part::Lost(history)
            }
        }
    }
}

/// The content is refused, or our own disk is full: the next image would fare no better.
fn would_repeat(failure: &Failure) -> bool {
    failure.class == Class::R || failure.cause == Cause::Unkept
}

// === impl OneOf ===

impl OneOf<'_> {
    /// Whether a call may be made now, however long its place was waited for: the other calls do not speak against it,
    /// there is time for an image, and a place where it will lie.
    pub(super) async fn prepare(&mut self, gateway: &Gateway, history: &mut History) -> bool {
        if !self.siblings.has_time() {
            history.stop.shut = Some(NoLease::Busy);
        }
        if !self.siblings.go_on() {
            return false;
        }
        if self.writer.is_none() {
            self.writer = match gateway.spool().open_before_paying().await {
                Ok(writer) => Some(writer),
                Err(error) => {
                    tracing::error!(%error, "there is no place to keep an image");
                    history.add(Failure::new(Class::N, Cause::Unkept).into());
                    None
                }
            };
        }
        self.writer.is_some()
    }
}

// === impl History ===

impl History {
    /// Nothing was tried, for every place is taken.
    fn is_only_busy(&self) -> bool {
        self.failures.is_empty() && self.stop.shut == Some(NoLease::Busy)
    }

    /// What else has failed.
    fn extend(&mut self, other: Self) {
        self.usage = crate::gateway::relay::sum(self.usage, other.usage);
        self.failures.extend(other.failures);
        self.stop.shut = other.stop.shut.or(self.stop.shut);
        self.stop.blames_request |= other.stop.blames_request;
    }
}

type Work<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Drives all of them until the last one is done.
async fn all(mut works: Vec<Work<'_>>) {
    std::future::poll_fn(|cx| {
        works.retain_mut(|work| work.as_mut().poll(cx).is_pending());
        if works.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
