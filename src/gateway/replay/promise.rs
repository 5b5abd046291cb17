//! A plain job and its caller, who may leave before the answer is complete.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::follower::Follower;
use super::head::Recordable;
use super::orphans::{Orphans, Place};
use super::pending::PendingGuard;
use crate::error::Error;

/// The caller's side: dropped before the answer, the job is an orphan.
pub(crate) struct Waiting<M: Recordable>(Pair<M>);

/// The job's side. Dropped without a word it is a fault of ours, which a retry gets too: something may have been paid.
pub(crate) struct Promise<M: Recordable> {
    pair: Pair<M>,
    _pending: Option<PendingGuard>,
}

/// The result that the caller gets.
pub(crate) enum AnswerSource<M> {
    /// The output of the job itself, if nobody else reads it.
    Made(M),
    /// A follower of the written answer, if others may ask for it again.
    Follow(Follower),
}

struct Pair<M: Recordable> {
    slot: Arc<Mutex<Slot<M>>>,
    /// Told when the caller has left before the answer.
    left: Arc<Notify>,
    registered: Option<Registered>,
}

/// Where retries find the job.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) orphans: Arc<Orphans>,
    pub(super) place: Place,
}

enum Slot<M> {
    Empty(Option<Waker>),
    Full(Result<M, Error>),
    /// The answer is written down, for others too.
    Written(Follower),
    /// The caller has the answer, or has left.
    Closed,
}

pub(super) fn pair<M: Recordable>(registered: Option<Registered>) -> (Waiting<M>, Promise<M>) {
    let slot = Arc::new(Mutex::new(Slot::Empty(None)));
    let left = Arc::new(Notify::new());
    let _pending = registered.as_ref().map(|registered| registered.orphans.pending());
    let waiting = Pair { slot: Arc::clone(&slot), left: Arc::clone(&left), registered: registered.clone() };
    (Waiting(waiting), Promise { pair: Pair { slot, left, registered }, _pending })
}

// === impl Pair ===

impl<M: Recordable> Pair<M> {
    fn slot(&self) -> MutexGuard<'_, Slot<M>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the result to the caller. Returns it if it must be written down, because nobody waits for it or others
    /// read it too.
    fn hand_over(&self, result: Result<M, Error>) -> Option<M> {
        // Before the caller hears it: a retry may be quicker than what comes after.
        if let (Some(Registered { orphans, place }), Err(error)) = (&self.registered, &result) {
            orphans.fail(*place, error);
        }
        let mut slot = self.slot();
        let Slot::Empty(waker) = &mut *slot else { return result.ok() };
        let waker = waker.take();
        // The caller becomes a reader before anything is written: bytes for which the disk has no room wait for the
        // readers that are there.
        let own = match (&self.registered, &result) {
            (Some(Registered { orphans, place }), Ok(_)) => orphans.follow_own(*place),
            (Some(_), Err(_)) | (None, _) => None,
        };
        let (next, shared) = match own {
            Some(follower) => (Slot::Written(follower), result.ok()),
            None => (Slot::Full(result), None),
        };
        *slot = next;
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
        shared
    }
}

// === impl Waiting ===

impl<M: Recordable> Waiting<M> {
    /// Waits for the answer of the job. If there is none at `until`, and the job is registered, the caller is told to come back.
    ///
    /// # Errors
    ///
    /// Returns the error that the job ended with, or [`Error::InProgress`].
    pub(crate) async fn answer(mut self, until: Instant) -> Result<AnswerSource<M>, Error> {
        let given = std::future::poll_fn(|cx| self.poll(cx));
        let given = match &self.0.registered {
            Some(Registered { orphans, place }) => timeout_at(until, given).await.unwrap_or_else(|_| {
                orphans.expect_retry(*place);
                Err(Error::InProgress)
            }),
            // Nobody would find it again.
            None => given.await,
        }?;
        let registered = self.0.registered.take();
        if let (AnswerSource::Made(_), Some(Registered { orphans, place })) = (&given, registered) {
            orphans.delivered(place);
        }
        Ok(given)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<AnswerSource<M>, Error>> {
        let mut slot = self.0.slot();
        match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Full(result) => Poll::Ready(result.map(AnswerSource::Made)),
            Slot::Written(follower) => Poll::Ready(Ok(AnswerSource::Follow(follower))),
            Slot::Empty(_) => {
                *slot = Slot::Empty(Some(cx.waker().clone()));
                Poll::Pending
            }
            Slot::Closed => Poll::Ready(Err(Error::Internal)),
        }
    }
}

impl<M: Recordable> Drop for Waiting<M> {
    fn drop(&mut self) {
        let registered = self.0.registered.take();
        let left = {
            let mut slot = self.0.slot();
            let left = std::mem::replace(&mut *slot, Slot::Closed);
            // Under the lock, so that the job, when its answer is ready, finds the slot closed and the caller gone. A
            // follower reports by itself that it leaves.
            if let (Slot::Empty(_) | Slot::Full(_), Some(Registered { orphans, place })) = (&left, &registered) {
                orphans.leave(*place, None);
            }
            left
        };
        match (left, registered) {
            (Slot::Empty(_), _) => self.0.left.notify_one(),
            (Slot::Full(Ok(made)), Some(Registered { orphans, place })) => {
                let pending = orphans.pending();
                alone(async move {
                    orphans.take_down(place, made).await;
                    drop(pending);
                });
            }
            (Slot::Closed | Slot::Written(_) | Slot::Full(_), _) => {}
        }
    }
}

/// Lets work go on without the caller it belonged to. Without a runtime the process is ending, and so is the work.
fn alone(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(work));
    }
}

// === impl Promise ===

impl<M: Recordable> Promise<M> {
    /// Resolves when the caller has left and no retry has taken its place: from then on nobody can. To be asked only as
    /// long as nothing was spent.
    pub(crate) async fn abandoned(&self) {
        self.pair.left.notified().await;
        if let Some(Registered { orphans, place }) = &self.pair.registered
            && !orphans.give_up(*place)
        {
            std::future::pending::<()>().await;
        }
    }

    /// Returns true if somebody waits for the answer, or was told to come back for it.
    pub(crate) fn is_wanted(&self) -> bool {
        match &self.pair.registered {
            Some(Registered { orphans, place }) => orphans.is_wanted(*place),
            None => !matches!(*self.pair.slot(), Slot::Closed),
        }
    }

    /// Completes the job. If its caller has left or others want the answer too, this writes all of it down, so it must
    /// be awaited on a task that no caller can drop.
    pub(crate) async fn done(mut self, result: Result<M, Error>) {
        let made = self.pair.hand_over(result);
        let Some(Registered { orphans, place }) = self.pair.registered.take() else { return };
        match made {
            Some(made) => orphans.take_down(place, made).await,
            None => orphans.let_task_go(place).await,
        }
    }
}

impl<M: Recordable> Drop for Promise<M> {
    fn drop(&mut self) {
        // After a result this has no effect.
        drop(self.pair.hand_over(Err(Error::Internal)));
    }
}

#[cfg(test)]
impl<M> AnswerSource<M> {
    /// The output of the job, if nobody else reads it.
    pub(super) fn alone(self) -> M {
        match self {
            Self::Made(made) => made,
            Self::Follow(_) => panic!("it is written down"),
        }
    }
}
