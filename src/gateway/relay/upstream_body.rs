//! Reads the upstream's body under the limits of its answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use tokio::time::{Instant, Sleep};

use super::image_relay::{AnswerTimeouts, RelayError};
use crate::gateway::upstream::{ReplyBody, ReplyError};
use crate::tables::{UPSTREAM_BYTES_PER_SECOND, UPSTREAM_RATE_WINDOW_SECONDS};

/// The least rate of bytes that only have to be sent, averaged over this time of waiting.
const RATE: u64 = UPSTREAM_BYTES_PER_SECOND;
const WINDOW: Duration = Duration::from_secs(UPSTREAM_RATE_WINDOW_SECONDS);
/// The most time that one wait counts for (our choice): the cause may have been a caller that did not come back in time.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The most bytes that are read in one turn (our choice): an upstream that always has more would occupy a worker, and with as
/// many of them as there are workers no other task would run.
const TURN: usize = 256 * 1024;
/// The least number of bytes that a frame counts for, however few it has: reading it is work as well.
const FRAME_MIN: usize = 4 * 1024;

/// The bytes of an answer as they come.
#[derive(Debug)]
pub(super) struct UpstreamBodyReader {
    body: ReplyBody,
    limits: AnswerTimeouts,
    timer: Pin<Box<Sleep>>,
    /// True while the upstream is waited for. The timer runs only then: a caller that does not read is not its fault.
    waiting: bool,
    pace: UpstreamPace,
    /// The number of bytes that may still come. It bounds an endless answer.
    remaining_bytes: u64,
    /// The number of bytes that were read since other tasks last had a turn.
    turn: usize,
}

/// The rate of an answer while it only has to be sent.
#[derive(Clone, Copy, Debug, Default)]
struct UpstreamPace {
    since: Option<Instant>,
    waited: Duration,
    bytes: u64,
}

/// The activity that may explain a silence of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamActivity {
    /// A model works: before the first byte, and between two events.
    Working,
    /// Nothing else: the bytes are there and only have to be sent.
    Sending,
}

// === impl UpstreamBodyReader ===

impl UpstreamBodyReader {
    pub(super) fn new(body: ReplyBody, limits: AnswerTimeouts, remaining_bytes: u64) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(limits.deadline));
        Self { body, limits, timer, waiting: false, pace: UpstreamPace::default(), remaining_bytes, turn: 0 }
    }

    /// Returns the next bytes, possibly none; `None` at the end of the body, after which it must not be called again.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        activity: UpstreamActivity,
    ) -> Poll<Result<Option<Bytes>, RelayError>> {
        if self.turn >= TURN {
            self.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                self.turn = 0;
                self.start_waiting(activity);
                self.pace.note_waiting(activity, Instant::now());
                ready!(self.timer.as_mut().poll(cx));
                return Poll::Ready(Err(RelayError::Timeout));
            }
        };
        let Some(frame) = frame else { return Poll::Ready(Ok(None)) };
        let frame = frame.map_err(|ReplyError| RelayError::Connection)?;
        self.turn += frame.data_ref().map_or(0, Bytes::len).max(FRAME_MIN);
        let Ok(data) = frame.into_data() else { return Poll::Ready(Ok(Some(Bytes::new()))) };
        self.remaining_bytes = self.remaining_bytes.checked_sub(data.len() as u64).ok_or(RelayError::TooLarge)?;
        if !self.pace.record_bytes(data.len() as u64, Instant::now()) {
            return Poll::Ready(Err(RelayError::Timeout));
        }
        // While the upstream always has more bytes, the timer is never polled.
        if Instant::now() >= self.limits.deadline {
            return Poll::Ready(Err(RelayError::Timeout));
        }
        Poll::Ready(Ok(Some(data)))
    }

    /// Moves the deadline by the time that the caller was away, which does not count against the upstream.
    pub(super) fn extend_deadline(&mut self, by: Duration) {
        self.limits.deadline += by;
        if self.waiting {
            let at = self.timer.deadline() + by;
            self.timer.as_mut().reset(at);
        }
    }

    /// Notes that the upstream has shown progress; its own heartbeat does not count.
    pub(super) const fn note_progress(&mut self) {
        self.waiting = false;
    }

    /// Starts the timer, unless it runs.
    fn start_waiting(&mut self, activity: UpstreamActivity) {
        if std::mem::replace(&mut self.waiting, true) {
            return;
        }
        let idle: Duration = match activity {
            UpstreamActivity::Working => self.limits.event_idle,
            UpstreamActivity::Sending => self.limits.idle,
        };
        self.timer.as_mut().reset(self.limits.deadline.min(Instant::now() + idle));
    }
}

// === impl UpstreamPace ===

impl UpstreamPace {
    /// Notes that there is nothing to read.
    fn note_waiting(&mut self, activity: UpstreamActivity, now: Instant) {
        match activity {
            UpstreamActivity::Working => *self = Self::default(),
            UpstreamActivity::Sending => drop(self.since.get_or_insert(now)),
        }
    }

    /// Notes that bytes have come. Returns true if they are fast enough.
    fn record_bytes(&mut self, bytes: u64, now: Instant) -> bool {
        self.bytes += bytes;
        self.waited += self.since.take().map_or(Duration::ZERO, |since| (now - since).min(WAIT_MAX));
        if self.waited < WINDOW {
            return true;
        }
        let enough = self.bytes >= RATE * self.waited.as_secs();
        *self = Self::default();
        enough
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Returns the seconds for which pieces of this size, each after this pause, are accepted.
    fn taken(bytes: u64, pause: u64, silence: UpstreamActivity) -> Option<u64> {
        let (mut pace, begun) = (UpstreamPace::default(), Instant::now());
        (1..200).find_map(|count| {
            let now = begun + Duration::from_secs(pause * count);
            pace.note_waiting(silence, now - Duration::from_secs(pause));
            (!pace.record_bytes(bytes, now)).then_some(pause * count)
        })
    }

    async fn count(turns: Arc<AtomicUsize>) {
        loop {
            turns.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }

    /// Returns the number of turns that other tasks have while this many available pieces of one length are read.
    #[expect(clippy::disallowed_methods, reason = "a test counts with it")]
    async fn turns_of_others(pieces: usize, length: usize) -> usize {
        let piece = Bytes::from(vec![b' '; length]);
        let body = ReplyBody::Scripted((0..pieces).map(|_| Ok(piece.clone())).collect());
        let until = Instant::now() + Duration::from_secs(60);
        let limits = AnswerTimeouts { idle: WINDOW, event_idle: WINDOW, deadline: until };
        let mut intake = UpstreamBodyReader::new(body, limits, u64::MAX);
        let turns = Arc::new(AtomicUsize::new(0));
        let others = Arc::clone(&turns);
        let counting = tokio::spawn(count(others));
        let mut read = 0;
        while let Some(data) =
            std::future::poll_fn(|cx| intake.poll(cx, UpstreamActivity::Sending)).await.expect("a body")
        {
            read += data.len();
        }
        counting.abort();
        assert_eq!(read, pieces * length);
        turns.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn an_upstream_that_always_has_more_leaves_the_others_their_turns() {
        assert_eq!(turns_of_others(32, TURN / 4).await, 8);
        assert_eq!(turns_of_others(8 * TURN / FRAME_MIN, 1).await, 8, "a flood of pieces of one byte");
    }

    #[test]
    fn what_drips_is_given_up_and_what_is_only_slow_is_not() {
        assert_eq!(taken(1024, 1, UpstreamActivity::Sending), Some(30));
        assert_eq!(taken(RATE - 1, 1, UpstreamActivity::Sending), Some(30));
        assert_eq!(taken(RATE, 1, UpstreamActivity::Sending), None);
        assert_eq!(taken(1, 1, UpstreamActivity::Working), None, "a model works between two events");
    }

    #[test]
    fn a_caller_who_does_not_come_back_is_not_the_upstreams_fault() {
        // Five pieces, each of them fetched a minute after it was there.
        assert_eq!(taken(RATE * 5, 60, UpstreamActivity::Sending), None);
    }

    #[test]
    fn without_waiting_nothing_is_too_slow() {
        let (mut pace, now) = (UpstreamPace::default(), Instant::now());
        assert!((0..100).all(|second| pace.record_bytes(1, now + Duration::from_secs(second))));
    }
}
