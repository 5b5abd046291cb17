//! The channel between a plain job and its caller, which may leave before the answer is complete.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::answer_head::RecordableAnswer;
use super::answer_reader::AnswerReader;
use super::answer_store::AnswerStore;
use super::disk_budget::AnswerSpace;
use super::jobs::JobId;
use super::pending_work::PendingGuard;
use crate::error::Error;

/// The caller's side. If it is dropped before the answer, the job is an orphan.
pub(crate) struct AnswerReceiver<M: RecordableAnswer>(AnswerChannel<M>);

/// The job's side. If it is dropped without a result, the caller and its retries get an internal error, because the job
/// may have been charged.
pub(crate) struct AnswerSender<M: RecordableAnswer> {
    channel: AnswerChannel<M>,
    /// The disk space for the answer, if it was reserved.
    space: Option<AnswerSpace>,
    _pending: Option<PendingGuard>,
}

/// The result that the caller gets.
pub(crate) enum AnswerSource<M> {
    /// The output of the job itself. No other request reads it.
    Direct(M),
    /// A reader of the stored answer, which other requests may read too.
    Stored(AnswerReader),
}

struct AnswerChannel<M: RecordableAnswer> {
    state: Arc<Mutex<AnswerChannelState<M>>>,
    /// Notified when the caller leaves before the answer.
    caller_left: Arc<Notify>,
    job: Option<JobHandle>,
}

/// The handle with which retries find the job.
#[derive(Clone)]
pub(super) struct JobHandle {
    pub(super) answers: Arc<AnswerStore>,
    pub(super) job_id: JobId,
}

enum AnswerChannelState<M> {
    Empty(Option<Waker>),
    Ready(Result<M, Error>),
    /// The answer is stored, for other requests too.
    Stored(AnswerReader),
    /// The caller has the answer, or has left.
    Closed,
}

pub(super) fn channel<M: RecordableAnswer>(job: Option<JobHandle>) -> (AnswerReceiver<M>, AnswerSender<M>) {
    let state = Arc::new(Mutex::new(AnswerChannelState::Empty(None)));
    let caller_left = Arc::new(Notify::new());
    let _pending = job.as_ref().map(|handle| handle.answers.begin_work());
    let receiver = AnswerChannel { state: Arc::clone(&state), caller_left: Arc::clone(&caller_left), job: job.clone() };
    (
        AnswerReceiver(receiver),
        AnswerSender { channel: AnswerChannel { state, caller_left, job }, space: None, _pending },
    )
}

// === impl AnswerChannel ===

impl<M: RecordableAnswer> AnswerChannel<M> {
    fn state(&self) -> MutexGuard<'_, AnswerChannelState<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the result to the caller. Returns the answer if it must be stored, because the caller has left or others
    /// read it too.
    fn deliver(&self, result: Result<M, Error>) -> Option<M> {
        // The job is closed before the caller gets the error, because the caller may retry at once.
        if let (Some(JobHandle { answers, job_id }), Err(error)) = (&self.job, &result) {
            answers.fail_job(*job_id, error);
        }
        let mut state = self.state();
        let AnswerChannelState::Empty(waker) = &mut *state else { return result.ok() };
        let waker = waker.take();
        // The caller becomes a reader before anything is written: if the disk is full, the bytes wait for the readers
        // that exist.
        let caller_reader = match (&self.job, &result) {
            (Some(JobHandle { answers, job_id }), Ok(_)) => answers.reader_for_caller(*job_id),
            (Some(_), Err(_)) | (None, _) => None,
        };
        let (next_state, answer_to_store) = match caller_reader {
            Some(reader) => (AnswerChannelState::Stored(reader), result.ok()),
            None => (AnswerChannelState::Ready(result), None),
        };
        *state = next_state;
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        answer_to_store
    }
}

// === impl AnswerReceiver ===

impl<M: RecordableAnswer> AnswerReceiver<M> {
    /// Waits for the answer of the job. If a repeat can find the job and it has no answer at `deadline`, the caller gets
    /// [`Error::InProgress`].
    ///
    /// # Errors
    ///
    /// Returns the error that the job ended with, or [`Error::InProgress`].
    pub(crate) async fn answer(mut self, deadline: Instant) -> Result<AnswerSource<M>, Error> {
        let answer = std::future::poll_fn(|cx| self.poll(cx));
        let source = match &self.0.job {
            Some(JobHandle { answers, job_id }) if answers.adopts_jobs => match timeout_at(deadline, answer).await {
                Ok(source) => source,
                Err(_) => self.answer_after_announcement(answers, *job_id).await,
            },
            Some(_) | None => answer.await,
        }?;
        let job = self.0.job.take();
        if let (AnswerSource::Direct(_), Some(JobHandle { answers, job_id })) = (&source, job) {
            answers.note_delivered(job_id);
        }
        Ok(source)
    }

    /// Announces a repeat of the request, and returns [`Error::InProgress`], or the answer if it has come meanwhile.
    async fn answer_after_announcement(&self, answers: &AnswerStore, job_id: JobId) -> Result<AnswerSource<M>, Error> {
        answers.announce_repeat(job_id).await;
        let polled = std::future::poll_fn(|cx| Poll::Ready(self.poll(cx))).await;
        match polled {
            Poll::Ready(source) => source,
            Poll::Pending => {
                answers.note_repeat_expected(job_id);
                Err(Error::InProgress)
            }
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<AnswerSource<M>, Error>> {
        let mut state = self.0.state();
        match std::mem::replace(&mut *state, AnswerChannelState::Closed) {
            AnswerChannelState::Ready(result) => Poll::Ready(result.map(AnswerSource::Direct)),
            AnswerChannelState::Stored(reader) => Poll::Ready(Ok(AnswerSource::Stored(reader))),
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
        let previous_state = {
            let mut state = self.0.state();
            let previous = std::mem::replace(&mut *state, AnswerChannelState::Closed);
            // The lock is held, so that the job sees the closed channel and the missing caller together. A reader of
            // the stored answer reports by itself when it leaves.
            if let (AnswerChannelState::Empty(_) | AnswerChannelState::Ready(_), Some(JobHandle { answers, job_id })) =
                (&previous, &job)
            {
                answers.note_reader_left(*job_id, None);
            }
            previous
        };
        match (previous_state, job) {
            (AnswerChannelState::Empty(_), _) => self.0.caller_left.notify_one(),
            (AnswerChannelState::Ready(Ok(answer)), Some(JobHandle { answers, job_id })) => {
                let pending = answers.begin_work();
                spawn_detached(async move {
                    answers.record_answer(job_id, answer, None).await;
                    drop(pending);
                });
            }
            (AnswerChannelState::Closed | AnswerChannelState::Stored(_) | AnswerChannelState::Ready(_), _) => {}
        }
    }
}

/// Runs `work` in a task of its own. Without a runtime the process is ending, and the work is dropped.
fn spawn_detached(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(work));
    }
}

// === impl AnswerSender ===

impl<M: RecordableAnswer> AnswerSender<M> {
    /// Resolves when the caller has left and no retry reads the answer. The job is then removed, so no retry can find
    /// it. May be used only before anything was spent.
    pub(crate) async fn abandoned(&self) {
        self.channel.caller_left.notified().await;
        if let Some(JobHandle { answers, job_id }) = &self.channel.job
            && !answers.remove_if_unwanted(*job_id)
        {
            std::future::pending::<()>().await;
        }
    }

    /// True if a caller waits for the answer, or got [`Error::InProgress`].
    pub(crate) fn is_wanted(&self) -> bool {
        match &self.channel.job {
            Some(JobHandle { answers, job_id }) => answers.is_wanted(*job_id),
            None => !matches!(*self.channel.state(), AnswerChannelState::Closed),
        }
    }

    /// Uses space that was reserved before anything was spent. The answer is then kept until it is fetched, even if it
    /// cannot be written.
    pub(crate) fn use_space(&mut self, space: Option<AnswerSpace>) {
        self.space = space;
    }

    /// Returns the handle with which retries find the job, if they can.
    pub(super) fn job_handle(&self) -> Option<JobHandle> {
        self.channel.job.clone()
    }

    /// Completes the job. If its caller has left or others want the answer too, this method stores all of it, so a
    /// caller that leaves must not cancel it.
    pub(crate) async fn complete(mut self, result: Result<M, Error>) {
        let answer_to_store = self.channel.deliver(result);
        let Some(JobHandle { answers, job_id }) = self.channel.job.take() else { return };
        match answer_to_store {
            Some(answer) => answers.record_answer(job_id, answer, self.space.take()).await,
            None => answers.release_task(job_id).await,
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
            Self::Direct(answer) => answer,
            Self::Stored(_) => panic!("the answer is stored"),
        }
    }
}
