//! A job that runs in the task of its request, and in a task of its own after the request has ended.
//!
//! A task for each job would cost a small request two hand-overs between threads.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tracing::{Instrument as _, Span};

/// Polls a job. If it is dropped before the job is complete, the job continues in a task of its own; without a runtime
/// the process is ending, and the job is dropped.
pub(super) struct DetachableJob {
    job: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The span of the request in the log.
    span: Span,
}

// === impl DetachableJob ===

impl DetachableJob {
    pub(super) fn new(job: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { job: Some(Box::pin(job)), span: Span::current() }
    }
}

impl Future for DetachableJob {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // A job that panics is not put back, so it is not polled again.
        let Some(mut job) = self.job.take() else { return Poll::Ready(()) };
        let polled = job.as_mut().poll(cx);
        self.job = polled.is_pending().then_some(job);
        polled
    }
}

impl Drop for DetachableJob {
    fn drop(&mut self) {
        if let (Some(job), Ok(runtime)) = (self.job.take(), Handle::try_current()) {
            drop(runtime.spawn(job.instrument(self.span.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::Waker;

    use tokio::sync::oneshot;

    use super::*;

    async fn poll_once(job: &mut DetachableJob) -> Poll<()> {
        std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *job).poll(cx))).await
    }

    async fn check_continues(is_polled: bool) {
        let (begin, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut job = DetachableJob::new(async move {
            begun.await.unwrap();
            end.send(()).unwrap();
        });
        assert!(!is_polled || poll_once(&mut job).await.is_pending());
        drop(job);
        begin.send(()).unwrap();
        ended.await.unwrap();
    }

    #[tokio::test]
    async fn a_job_that_is_dropped_continues() {
        check_continues(false).await;
        check_continues(true).await;
    }

    #[test]
    fn a_job_that_panics_is_not_polled_again() {
        let mut job = DetachableJob::new(async { panic!("a planted panic") });
        let poll = || Pin::new(&mut job).poll(&mut Context::from_waker(Waker::noop()));
        assert!(catch_unwind(AssertUnwindSafe(poll)).is_err());
        assert!(job.job.is_none(), "its drop would poll the job in a task");
    }

    #[tokio::test]
    async fn a_complete_job_is_not_detached() {
        let mut job = DetachableJob::new(async {});
        assert!(poll_once(&mut job).await.is_ready());
        assert!(job.job.is_none(), "its drop would poll the job in a task");
    }
}
