//! A plain job and its caller, who may leave before it is done.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::head::{Recordable, is_final};
use super::orphans::{Orphans, Place};
use crate::error::Error;

/// The caller's side: dropped before the answer, the job is an orphan.
pub(crate) struct Waiting<M: Recordable>(Pair<M>);

/// The job's side. Dropped without a word it is a fault of ours, which a retry gets too: something may have been paid.
pub(crate) struct Promise<M: Recordable>(Pair<M>);

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
    /// The caller has the answer, or has left.
    Closed,
}

pub(super) fn pair<M: Recordable>(registered: Option<Registered>) -> (Waiting<M>, Promise<M>) {
    let slot = Arc::new(Mutex::new(Slot::Empty(None)));
    let left = Arc::new(Notify::new());
    let waiting = Pair { slot: Arc::clone(&slot), left: Arc::clone(&left), registered: registered.clone() };
    (Waiting(waiting), Promise(Pair { slot, left, registered }))
}

// === impl Pair ===

impl<M: Recordable> Pair<M> {
    fn slot(&self) -> MutexGuard<'_, Slot<M>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the result to the caller; back it comes where there is none.
    fn hand_over(&self, result: Result<M, Error>) -> Option<Result<M, Error>> {
        // Before the caller hears it: a retry may be quicker than what comes after.
        if let (Some(registered), Err(error)) = (&self.registered, &result)
            && is_final(error)
        {
            registered.orphans.remember_at(registered.place, error);
        }
        let mut slot = self.slot();
        match &mut *slot {
            Slot::Empty(waker) => {
                let waker = waker.take();
                *slot = Slot::Full(result);
                drop(slot);
                waker.into_iter().for_each(Waker::wake);
                None
            }
            Slot::Full(_) | Slot::Closed => Some(result),
        }
    }
}

// === impl Waiting ===

impl<M: Recordable> Waiting<M> {
    /// What the job made.
    ///
    /// # Errors
    ///
    /// What the job ended with.
    pub(crate) async fn answer(self) -> Result<M, Error> {
        let result = std::future::poll_fn(|cx| self.poll(cx)).await;
        if let Some(Registered { orphans, place }) = &self.0.registered {
            orphans.delivered(*place);
        }
        result
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<M, Error>> {
        let mut slot = self.0.slot();
        match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Full(result) => Poll::Ready(result),
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
        let left = std::mem::replace(&mut *self.0.slot(), Slot::Closed);
        let registered = self.0.registered.take();
        if let (Slot::Empty(_), None) = (&left, &registered) {
            self.0.left.notify_one();
        }
        let Some(Registered { orphans, place }) = registered else { return };
        match left {
            Slot::Closed => {}
            Slot::Empty(_) => {
                orphans.orphan(place);
                self.0.left.notify_one();
            }
            Slot::Full(result) => {
                orphans.orphan(place);
                alone(async move { orphans.take_down(place, result).await });
            }
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
        self.0.left.notified().await;
        if let Some(Registered { orphans, place }) = &self.0.registered
            && !orphans.give_up(*place)
        {
            std::future::pending::<()>().await;
        }
    }

    /// The job is done. Where its caller has left, this writes down what was made, to its end: to be awaited where no
    /// caller can drop it.
    pub(crate) async fn done(mut self, result: Result<M, Error>) {
        let back = self.0.hand_over(result);
        let Some(Registered { orphans, place }) = self.0.registered.take() else { return };
        match back {
            Some(result) => orphans.take_down(place, result).await,
            None => orphans.let_job_go(place).await,
        }
    }
}

impl<M: Recordable> Drop for Promise<M> {
    fn drop(&mut self) {
        drop(self.0.hand_over(Err(Error::Internal)));
    }
}
