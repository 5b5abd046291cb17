//! The channel between a plain job and its caller, who may leave before the answer is complete.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::follower::AnswerReader;
use super::head::RecordableAnswer;
use super::orphans::{RetryableJobId, RetryableJobs};
use super::pending::PendingGuard;
use crate::error::Error;

/// The caller's side. If it is dropped before the answer, the job is an orphan.
pub(crate) struct AnswerReceiver<M: RecordableAnswer>(AnswerChannel<M>);

/// The job's side. Dropping it without a result is an internal error, which a retry gets too: something may have been
/// paid for.
pub(crate) struct AnswerSender<M: RecordableAnswer> {
    pair: AnswerChannel<M>,
    _pending: Option<PendingGuard>,
}

/// The result that the caller gets.
pub(crate) enum AnswerSource<M> {
    /// The output of the job itself, if no other request reads it.
    Made(M),
    /// A reader of the written answer, if others may ask for it again.
    Follow(AnswerReader),
}

struct AnswerChannel<M: RecordableAnswer> {
    slot: Arc<Mutex<AnswerChannelState<M>>>,
    /// Notified when the caller has left before the answer.
    left: Arc<Notify>,
    registered: Option<RetryableJobHandle>,
}

/// The handle with which retries find the job.
#[derive(Clone)]
pub(super) struct RetryableJobHandle {
    pub(super) orphans: Arc<RetryableJobs>,
    pub(super) place: RetryableJobId,
}

enum AnswerChannelState<M> {
    Empty(Option<Waker>),
    Full(Result<M, Error>),
    /// The answer is written down, for other requests too.
    Written(AnswerReader),
    /// The caller has the answer, or has left.
    Closed,
}

pub(super) fn pair<M: RecordableAnswer>(
    registered: Option<RetryableJobHandle>,
) -> (AnswerReceiver<M>, AnswerSender<M>) {
    let slot = Arc::new(Mutex::new(AnswerChannelState::Empty(None)));
    let left = Arc::new(Notify::new());
    let _pending = registered.as_ref().map(|registered| registered.orphans.pending());
    let waiting = AnswerChannel { slot: Arc::clone(&slot), left: Arc::clone(&left), registered: registered.clone() };
    (AnswerReceiver(waiting), AnswerSender { pair: AnswerChannel { slot, left, registered }, _pending })
}

// === impl AnswerChannel ===

impl<M: RecordableAnswer> AnswerChannel<M> {
    fn slot(&self) -> MutexGuard<'_, AnswerChannelState<M>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the result to the caller. Returns it if it must be written down, because the caller has left or others
    /// read it too.
    fn hand_over(&self, result: Result<M, Error>) -> Option<M> {
        // This comes before the caller gets the error, because a retry may arrive before the next lines run.
        if let (Some(RetryableJobHandle { orphans, place }), Err(error)) = (&self.registered, &result) {
            orphans.fail(*place, error);
        }
        let mut slot = self.slot();
        let AnswerChannelState::Empty(waker) = &mut *slot else { return result.ok() };
        let waker = waker.take();
        // The caller becomes a reader before anything is written: if the disk is full, the bytes wait for the readers
        // that exist.
        let own = match (&self.registered, &result) {
            (Some(RetryableJobHandle { orphans, place }), Ok(_)) => orphans.follow_own(*place),
            (Some(_), Err(_)) | (None, _) => None,
        };
        let (next, shared) = match own {
            Some(follower) => (AnswerChannelState::Written(follower), result.ok()),
            None => (AnswerChannelState::Full(result), None),
        };
        *slot = next;
        drop(slot);
        waker.into_iter().for_each(Waker::wake);
        shared
    }
}

// === impl AnswerReceiver ===

impl<M: RecordableAnswer> AnswerReceiver<M> {
    /// Waits for the answer of the job. If there is none at `until`, and the job is registered, the caller is told to
    /// come back.
    ///
    /// # Errors
    ///
    /// Returns the error that the job ended with, or [`Error::InProgress`].
    pub(crate) async fn answer(mut self, until: Instant) -> Result<AnswerSource<M>, Error> {
        let given = std::future::poll_fn(|cx| self.poll(cx));
        let given = match &self.0.registered {
            Some(RetryableJobHandle { orphans, place }) => timeout_at(until, given).await.unwrap_or_else(|_| {
                orphans.expect_retry(*place);
                Err(Error::InProgress)
            }),
            // No retry could find an unregistered job.
            None => given.await,
        }?;
        let registered = self.0.registered.take();
        if let (AnswerSource::Made(_), Some(RetryableJobHandle { orphans, place })) = (&given, registered) {
            orphans.delivered(place);
        }
        Ok(given)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<AnswerSource<M>, Error>> {
        let mut slot = self.0.slot();
        match std::mem::replace(&mut *slot, AnswerChannelState::Closed) {
            AnswerChannelState::Full(result) => Poll::Ready(result.map(AnswerSource::Made)),
            AnswerChannelState::Written(follower) => Poll::Ready(Ok(AnswerSource::Follow(follower))),
            AnswerChannelState::Empty(_) => {
                *slot = AnswerChannelState::Empty(Some(cx.waker().clone()));
                Poll::Pending
            }
            AnswerChannelState::Closed => Poll::Ready(Err(Error::Internal)),
        }
    }
}

impl<M: RecordableAnswer> Drop for AnswerReceiver<M> {
    fn drop(&mut self) {
        let registered = self.0.registered.take();
        let left = {
            let mut slot = self.0.slot();
            let left = std::mem::replace(&mut *slot, AnswerChannelState::Closed);
            // This runs under the lock, so that the job, when its answer is ready, finds the slot closed and the caller
            // gone. A follower reports by itself that it leaves.
            if let (
                AnswerChannelState::Empty(_) | AnswerChannelState::Full(_),
                Some(RetryableJobHandle { orphans, place }),
            ) = (&left, &registered)
            {
                orphans.leave(*place, None);
            }
            left
        };
        match (left, registered) {
            (AnswerChannelState::Empty(_), _) => self.0.left.notify_one(),
            (AnswerChannelState::Full(Ok(made)), Some(RetryableJobHandle { orphans, place })) => {
                let pending = orphans.pending();
                alone(async move {
                    orphans.take_down(place, made).await;
                    drop(pending);
                });
            }
            (AnswerChannelState::Closed | AnswerChannelState::Written(_) | AnswerChannelState::Full(_), _) => {}
        }
    }
}

/// Lets work continue without its caller. Without a runtime the process is ending, and so is the work.
fn alone(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(work));
    }
}

// === impl AnswerSender ===

impl<M: RecordableAnswer> AnswerSender<M> {
    /// Resolves when the caller has left and no retry has taken its place; after that no retry can. May be used only as
    /// long as nothing was spent.
    pub(crate) async fn abandoned(&self) {
        self.pair.left.notified().await;
        if let Some(RetryableJobHandle { orphans, place }) = &self.pair.registered
            && !orphans.give_up(*place)
        {
            std::future::pending::<()>().await;
        }
    }

    /// Returns true if a caller waits for the answer, or was told to come back for it.
    pub(crate) fn is_wanted(&self) -> bool {
        match &self.pair.registered {
            Some(RetryableJobHandle { orphans, place }) => orphans.is_wanted(*place),
            None => !matches!(*self.pair.slot(), AnswerChannelState::Closed),
        }
    }

    /// Completes the job. If its caller has left or others want the answer too, this writes all of it down, so it must
    /// be awaited in a task that no caller can drop.
    pub(crate) async fn done(mut self, result: Result<M, Error>) {
        let made = self.pair.hand_over(result);
        let Some(RetryableJobHandle { orphans, place }) = self.pair.registered.take() else { return };
        match made {
            Some(made) => orphans.take_down(place, made).await,
            None => orphans.let_task_go(place).await,
        }
    }
}

impl<M: RecordableAnswer> Drop for AnswerSender<M> {
    fn drop(&mut self) {
        // After a result this has no effect.
        drop(self.pair.hand_over(Err(Error::Internal)));
    }
}

#[cfg(test)]
impl<M> AnswerSource<M> {
    /// Returns the output of the job, if no other request reads it.
    pub(super) fn alone(self) -> M {
        match self {
            Self::Made(made) => made,
            Self::Follow(_) => panic!("it is written down"),
        }
    }
}
