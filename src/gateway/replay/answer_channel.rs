//! The channel between a plain job and its caller, who may leave before the answer is complete.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::answer_head::RecordableAnswer;
use super::answer_reader::AnswerReader;
use super::orphans::{RetryableJobId, RetryableJobs};
use super::pending_work::PendingGuard;
use crate::error::Error;

/// The caller's side. If it is dropped before the answer, the job is an orphan.
pub(crate) struct AnswerReceiver<M: RecordableAnswer>(AnswerChannel<M>);

/// The job's side. Dropping it without a result is an internal error, which a retry gets too: something may have been
/// paid for.
pub(crate) struct AnswerSender<M: RecordableAnswer> {
    channel: AnswerChannel<M>,
    _pending: Option<PendingGuard>,
}

/// The result that the caller gets.
pub(crate) enum AnswerSource<M> {
    /// The output of the job itself, if no other request reads it.
    Direct(M),
    /// A reader of the written answer, if others may ask for it again.
    Stored(AnswerReader),
}

struct AnswerChannel<M: RecordableAnswer> {
    state: Arc<Mutex<AnswerChannelState<M>>>,
    /// Notified when the caller has left before the answer.
    caller_left: Arc<Notify>,
    job: Option<RetryableJobHandle>,
}

/// The handle with which retries find the job.
#[derive(Clone)]
pub(super) struct RetryableJobHandle {
    pub(super) orphans: Arc<RetryableJobs>,
    pub(super) job_id: RetryableJobId,
}

enum AnswerChannelState<M> {
    Empty(Option<Waker>),
    Ready(Result<M, Error>),
    /// The answer is written down, for other requests too.
    Stored(AnswerReader),
    /// The caller has the answer, or has left.
    Closed,
}

pub(super) fn channel<M: RecordableAnswer>(job: Option<RetryableJobHandle>) -> (AnswerReceiver<M>, AnswerSender<M>) {
    let state = Arc::new(Mutex::new(AnswerChannelState::Empty(None)));
    let caller_left = Arc::new(Notify::new());
    let _pending = job.as_ref().map(|registered| registered.orphans.begin_work());
    let waiting = AnswerChannel { state: Arc::clone(&state), caller_left: Arc::clone(&caller_left), job: job.clone() };
    (AnswerReceiver(waiting), AnswerSender { channel: AnswerChannel { state, caller_left, job }, _pending })
}

// === impl AnswerChannel ===

impl<M: RecordableAnswer> AnswerChannel<M> {
    fn state(&self) -> MutexGuard<'_, AnswerChannelState<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the result to the caller. Returns it if it must be written down, because the caller has left or others
    /// read it too.
    fn deliver(&self, result: Result<M, Error>) -> Option<M> {
        // This comes before the caller gets the error, because a retry may arrive before the next lines run.
        if let (Some(RetryableJobHandle { orphans, job_id }), Err(error)) = (&self.job, &result) {
            orphans.fail_job(*job_id, error);
        }
        let mut state = self.state();
        let AnswerChannelState::Empty(waker) = &mut *state else { return result.ok() };
        let waker = waker.take();
        // The caller becomes a reader before anything is written: if the disk is full, the bytes wait for the readers
        // that exist.
        let caller_reader = match (&self.job, &result) {
            (Some(RetryableJobHandle { orphans, job_id: place }), Ok(_)) => orphans.reader_for_caller(*place),
            (Some(_), Err(_)) | (None, _) => None,
        };
        let (next, shared) = match caller_reader {
            Some(follower) => (AnswerChannelState::Stored(follower), result.ok()),
            None => (AnswerChannelState::Ready(result), None),
        };
        *state = next;
        drop(state);
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
        let delivered = std::future::poll_fn(|cx| self.poll(cx));
        let given = match &self.0.job {
            Some(RetryableJobHandle { orphans, job_id }) => timeout_at(until, delivered).await.unwrap_or_else(|_| {
                orphans.note_retry_expected(*job_id);
                Err(Error::InProgress)
            }),
            // No retry could find an unregistered job.
            None => delivered.await,
        }?;
        let job = self.0.job.take();
        if let (AnswerSource::Direct(_), Some(RetryableJobHandle { orphans, job_id: place })) = (&given, job) {
            orphans.note_delivered(place);
        }
        Ok(given)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<AnswerSource<M>, Error>> {
        let mut state = self.0.state();
        match std::mem::replace(&mut *state, AnswerChannelState::Closed) {
            AnswerChannelState::Ready(result) => Poll::Ready(result.map(AnswerSource::Direct)),
            AnswerChannelState::Stored(follower) => Poll::Ready(Ok(AnswerSource::Stored(follower))),
            AnswerChannelState::Empty(_) => {
                *state = AnswerChannelState::Empty(Some(cx.waker().clone()));
                Poll::Pending
            }
            AnswerChannelState::Closed => Poll::Ready(Err(Error::Internal)),
        }
    }
}

impl<M: RecordableAnswer> Drop for AnswerReceiver<M> {
    fn drop(&mut self) {
        let job = self.0.job.take();
        let previous = {
            let mut state = self.0.state();
            let left = std::mem::replace(&mut *state, AnswerChannelState::Closed);
            // This runs under the lock, so that the job, when its answer is ready, finds the slot closed and the caller
            // gone. A follower reports by itself that it leaves.
            if let (
                AnswerChannelState::Empty(_) | AnswerChannelState::Ready(_),
                Some(RetryableJobHandle { orphans, job_id }),
            ) = (&left, &job)
            {
                orphans.note_reader_left(*job_id, None);
            }
            left
        };
        match (previous, job) {
            (AnswerChannelState::Empty(_), _) => self.0.caller_left.notify_one(),
            (AnswerChannelState::Ready(Ok(made)), Some(RetryableJobHandle { orphans, job_id: place })) => {
                let pending = orphans.begin_work();
                spawn_detached(async move {
                    orphans.record_answer(place, made).await;
                    drop(pending);
                });
            }
            (AnswerChannelState::Closed | AnswerChannelState::Stored(_) | AnswerChannelState::Ready(_), _) => {}
        }
    }
}

/// Lets work continue without its caller. Without a runtime the process is ending, and so is the work.
fn spawn_detached(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(work));
    }
}

// === impl AnswerSender ===

impl<M: RecordableAnswer> AnswerSender<M> {
    /// Resolves when the caller has left and no retry has taken its place; after that no retry can. May be used only as
    /// long as nothing was spent.
    pub(crate) async fn abandoned(&self) {
        self.channel.caller_left.notified().await;
        if let Some(RetryableJobHandle { orphans, job_id }) = &self.channel.job
            && !orphans.remove_if_unwanted(*job_id)
        {
            std::future::pending::<()>().await;
        }
    }

    /// Returns true if a caller waits for the answer, or was told to come back for it.
    pub(crate) fn is_wanted(&self) -> bool {
        match &self.channel.job {
            Some(RetryableJobHandle { orphans, job_id }) => orphans.is_wanted(*job_id),
            None => !matches!(*self.channel.state(), AnswerChannelState::Closed),
        }
    }

    /// Completes the job. If its caller has left or others want the answer too, this writes all of it down, so it must
    /// be awaited in a task that no caller can drop.
    pub(crate) async fn complete(mut self, result: Result<M, Error>) {
        let unread_output = self.channel.deliver(result);
        let Some(RetryableJobHandle { orphans, job_id }) = self.channel.job.take() else { return };
        match unread_output {
            Some(made) => orphans.record_answer(job_id, made).await,
            None => orphans.release_task(job_id).await,
        }
    }
}

impl<M: RecordableAnswer> Drop for AnswerSender<M> {
    fn drop(&mut self) {
        // After a result this has no effect.
        drop(self.channel.deliver(Err(Error::Internal)));
    }
}

#[cfg(test)]
impl<M> AnswerSource<M> {
    /// Returns the output of the job, if no other request reads it.
    pub(super) fn into_direct(self) -> M {
        match self {
            Self::Direct(made) => made,
            Self::Stored(_) => panic!("it is written down"),
        }
    }
}
