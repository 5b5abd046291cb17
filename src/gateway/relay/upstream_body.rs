//! Reads the upstream's body under the timeouts, the minimum rate and the size limit of its answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use tokio::time::{Instant, Sleep};

use super::pace::Pace;
use super::relay_error::{MalformedAnswer, RelayError};
use crate::gateway::upstream::{ReplyBody, ReplyError};

/// The most time that one wait counts for (our choice): the wait may have been longer because the caller did not read.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The number of bytes after which the reader yields to other tasks (our choice). Otherwise, a few upstreams that
/// always have more bytes could occupy all worker threads.
const YIELD_BYTES: usize = 1024 * 1024;
/// The least number of bytes for which a frame counts towards `YIELD_BYTES` (our choice): reading a frame has a cost.
const FRAME_MIN: usize = 4 * 1024;

/// The time limits of the part of an answer that has not arrived yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTimeouts {
    /// The longest silence between two pieces of an answer.
    pub(crate) idle: Duration,
    /// The longest silence before the first byte and between two events, when the upstream's model works.
    pub(crate) event_idle: Duration,
    /// The moment at which all waiting ends.
    pub(crate) deadline: Instant,
}

/// The reader of an upstream's body.
#[derive(Debug)]
pub(super) struct UpstreamBodyReader {
    body: ReplyBody,
    timeouts: AnswerTimeouts,
    timer: Pin<Box<Sleep>>,
    /// True while the reader waits for the upstream. Only then does the timer count: the upstream is not responsible
    /// for a caller that does not read.
    is_waiting: bool,
    /// The rate of the answer while the upstream only has to send it.
    pace: Pace,
    /// The number of bytes that may still come, which limits the size of the body.
    remaining_bytes: u64,
    /// The number of bytes that were read since the reader last yielded or waited.
    bytes_since_yield: usize,
}

/// The activity that may explain a silence of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamActivity {
    /// The upstream's model works: before the first byte, and between two events.
    Working,
    /// The answer is made, and the upstream only has to send it.
    Sending,
}

// === impl UpstreamBodyReader ===

impl UpstreamBodyReader {
    pub(super) fn new(body: ReplyBody, timeouts: AnswerTimeouts, remaining_bytes: u64) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(timeouts.deadline));
        Self { body, timeouts, timer, is_waiting: false, pace: Pace::default(), remaining_bytes, bytes_since_yield: 0 }
    }

    /// Returns the next bytes, possibly none; `None` at the end of the body, after which it must not be called again.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        activity: UpstreamActivity,
    ) -> Poll<Result<Option<Bytes>, RelayError>> {
        if self.bytes_since_yield >= YIELD_BYTES {
            self.bytes_since_yield = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                self.bytes_since_yield = 0;
                self.start_waiting(activity);
                ready!(self.timer.as_mut().poll(cx));
                return Poll::Ready(Err(RelayError::Timeout));
            }
        };
        let Some(frame) = frame else { return Poll::Ready(Ok(None)) };
        let frame = frame.map_err(|error| match error {
            ReplyError { is_undecodable: true } => MalformedAnswer::Coding.into(),
            ReplyError { is_undecodable: false } => RelayError::Connection,
        })?;
        self.bytes_since_yield += frame.data_ref().map_or(0, Bytes::len).max(FRAME_MIN);
        let Ok(data) = frame.into_data() else { return Poll::Ready(Ok(Some(Bytes::new()))) };
        self.remaining_bytes = self.remaining_bytes.checked_sub(data.len() as u64).ok_or(RelayError::TooLarge)?;
        let now = Instant::now();
        self.pace.end_wait(now, WAIT_MAX);
        self.pace.add_bytes(data.len());
        // While the upstream always has more bytes, the timer is never polled.
        let is_late = self.pace.is_too_slow() || now >= self.timeouts.deadline;
        Poll::Ready(if is_late { Err(RelayError::Timeout) } else { Ok(Some(data)) })
    }

    /// Reads the end of a body whose rest is not needed, if it has arrived: its connection can then carry another request.
    pub(super) fn discard_rest(&mut self, cx: &mut Context<'_>) {
        let _ = Pin::new(&mut self.body).poll_frame(cx);
    }

    /// Moves the deadline by the time during which the caller did not read, which does not count against the upstream.
    pub(super) fn extend_deadline(&mut self, by: Duration) {
        self.timeouts.deadline += by;
        if self.is_waiting {
            let at = self.timer.deadline() + by;
            self.timer.as_mut().reset(at);
        }
    }

    /// Records that the upstream made progress. Its heartbeats are no progress.
    pub(super) const fn note_progress(&mut self) {
        self.is_waiting = false;
    }

    /// Measures the wait, and starts the timer unless it runs already.
    fn start_waiting(&mut self, activity: UpstreamActivity) {
        let now = Instant::now();
        let idle = match activity {
            UpstreamActivity::Working => {
                self.pace = Pace::default();
                self.timeouts.event_idle
            }
            UpstreamActivity::Sending => {
                self.pace.begin_wait(now);
                self.timeouts.idle
            }
        };
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.timer.as_mut().reset(self.timeouts.deadline.min(now + idle));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    async fn count_runs(runs: Arc<AtomicUsize>) {
        loop {
            runs.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }

    /// Returns how often another task runs while `pieces` available pieces of `length` bytes are read.
    #[expect(clippy::disallowed_methods, reason = "the test counts the runs of a spawned task, and aborts it")]
    async fn runs_of_another_task(pieces: usize, length: usize) -> usize {
        let piece = Bytes::from(vec![b' '; length]);
        let body = ReplyBody::Scripted((0..pieces).map(|_| Ok(piece.clone())).collect());
        let deadline = Instant::now() + Duration::from_secs(60);
        let minute = Duration::from_secs(60);
        let limits = AnswerTimeouts { idle: minute, event_idle: minute, deadline };
        let mut reader = UpstreamBodyReader::new(body, limits, u64::MAX);
        let runs = Arc::new(AtomicUsize::new(0));
        let counting = tokio::spawn(count_runs(Arc::clone(&runs)));
        let mut read = 0;
        while let Some(data) =
            std::future::poll_fn(|cx| reader.poll(cx, UpstreamActivity::Sending)).await.expect("a body")
        {
            read += data.len();
        }
        counting.abort();
        assert_eq!(read, pieces * length);
        runs.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn an_upstream_that_always_has_more_lets_other_tasks_run() {
        assert_eq!(runs_of_another_task(32, YIELD_BYTES / 4).await, 8);
        assert_eq!(runs_of_another_task(8 * YIELD_BYTES / FRAME_MIN, 1).await, 8, "many pieces of one byte");
    }
}
