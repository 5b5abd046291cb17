//! The upstream's body, read under the limits of its answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use tokio::time::{Instant, Sleep};

use super::tap::{Broken, Limits};
use crate::gateway::upstream::{ReplyBody, ReplyError};
use crate::tables::{UPSTREAM_BYTES_PER_SECOND, UPSTREAM_RATE_WINDOW_SECONDS};

/// What is only being sent comes at this rate at least, averaged over this time of waiting.
const RATE: u64 = UPSTREAM_BYTES_PER_SECOND;
const WINDOW: Duration = Duration::from_secs(UPSTREAM_RATE_WINDOW_SECONDS);
/// One wait counts for no more (ours): it may have been the caller who did not come back in time.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// So much is read in one turn (ours): an upstream that always has more would keep a worker to itself, and with as many
/// of them as there are workers nobody else would be served.
const TURN: usize = 256 * 1024;
/// A frame counts for as much at least, however little is in it: a look at it is work as well.
const FRAME_MIN: usize = 4 * 1024;

/// The bytes of an answer as they come.
#[derive(Debug)]
pub(super) struct Intake {
    body: ReplyBody,
    limits: Limits,
    timer: Pin<Box<Sleep>>,
    /// The timer runs only while somebody waits for the upstream: a caller who does not read is not the upstream's fault.
    waiting: bool,
    pace: Pace,
    /// Bytes that may still come: an answer without end is none.
    room: u64,
    /// What was read without anybody else having had a turn.
    turn: usize,
}

/// How fast an answer comes while it is only being sent.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    since: Option<Instant>,
    waited: Duration,
    bytes: u64,
}

/// What the upstream may be doing while nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// A model works: before the first byte, and between two events.
    Working,
    /// Nothing: the bytes are there and only have to be sent.
    Sending,
}

// === impl Intake ===

impl Intake {
    pub(super) fn new(body: ReplyBody, limits: Limits, room: u64) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(limits.until));
        Self { body, limits, timer, waiting: false, pace: Pace::default(), room, turn: 0 }
    }

    /// The next bytes, perhaps none of them; `None` at the end of the body, after which it is not to be asked again.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, silence: Silence) -> Poll<Result<Option<Bytes>, Broken>> {
        if self.turn >= TURN {
            self.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                self.turn = 0;
                self.start_waiting(silence);
                self.pace.wait(silence, Instant::now());
                ready!(self.timer.as_mut().poll(cx));
                return Poll::Ready(Err(Broken::Timeout));
            }
        };
        let Some(frame) = frame else { return Poll::Ready(Ok(None)) };
        let frame = frame.map_err(|ReplyError| Broken::Connection)?;
        self.turn += frame.data_ref().map_or(0, Bytes::len).max(FRAME_MIN);
        let Ok(data) = frame.into_data() else { return Poll::Ready(Ok(Some(Bytes::new()))) };
        self.room = self.room.checked_sub(data.len() as u64).ok_or(Broken::Endless)?;
        if !self.pace.suffices(data.len() as u64, Instant::now()) {
            return Poll::Ready(Err(Broken::Timeout));
        }
        // While the upstream always has more bytes, the timer is never polled.
        if Instant::now() >= self.limits.until {
            return Poll::Ready(Err(Broken::Timeout));
        }
        Poll::Ready(Ok(Some(data)))
    }

    /// Moves the deadline by the time that the caller was away, which does not count against the upstream.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.limits.until += by;
        if self.waiting {
            let at = self.timer.deadline() + by;
            self.timer.as_mut().reset(at);
        }
    }

    /// Something came that shows that the upstream works; its own heartbeat does not.
    pub(super) const fn progressed(&mut self) {
        self.waiting = false;
    }

    /// Starts the clock, unless it runs.
    fn start_waiting(&mut self, silence: Silence) {
        if std::mem::replace(&mut self.waiting, true) {
            return;
        }
        let idle: Duration = match silence {
            Silence::Working => self.limits.event_idle,
            Silence::Sending => self.limits.idle,
        };
        self.timer.as_mut().reset(self.limits.until.min(Instant::now() + idle));
    }
}

// === impl Pace ===

impl Pace {
    /// There is nothing to read.
    fn wait(&mut self, silence: Silence, now: Instant) {
        match silence {
            Silence::Working => *self = Self::default(),
            Silence::Sending => drop(self.since.get_or_insert(now)),
        }
    }

    /// So many bytes came: whether that is fast enough.
    fn suffices(&mut self, bytes: u64, now: Instant) -> bool {
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

    /// Pieces of so many bytes, each after so many seconds of waiting: how long that is taken, in seconds.
    fn taken(bytes: u64, pause: u64, silence: Silence) -> Option<u64> {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        (1..200).find_map(|count| {
            let now = begun + Duration::from_secs(pause * count);
            pace.wait(silence, now - Duration::from_secs(pause));
            (!pace.suffices(bytes, now)).then_some(pause * count)
        })
    }

    async fn count(turns: Arc<AtomicUsize>) {
        loop {
            turns.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }

    /// How many turns others have while so many pieces of one length are read that are all there.
    #[expect(clippy::disallowed_methods, reason = "a test counts with it")]
    async fn turns_of_others(pieces: usize, length: usize) -> usize {
        let piece = Bytes::from(vec![b' '; length]);
        let body = ReplyBody::Scripted((0..pieces).map(|_| Ok(piece.clone())).collect());
        let until = Instant::now() + Duration::from_secs(60);
        let limits = Limits { idle: WINDOW, event_idle: WINDOW, until };
        let mut intake = Intake::new(body, limits, u64::MAX);
        let turns = Arc::new(AtomicUsize::new(0));
        let others = Arc::clone(&turns);
        let counting = tokio::spawn(count(others));
        let mut read = 0;
        while let Some(data) = std::future::poll_fn(|cx| intake.poll(cx, Silence::Sending)).await.expect("a body") {
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
        assert_eq!(taken(1024, 1, Silence::Sending), Some(30));
        assert_eq!(taken(RATE - 1, 1, Silence::Sending), Some(30));
        assert_eq!(taken(RATE, 1, Silence::Sending), None);
        assert_eq!(taken(1, 1, Silence::Working), None, "a model works between two events");
    }

    #[test]
    fn a_caller_who_does_not_come_back_is_not_the_upstreams_fault() {
        // Five pieces, each of them fetched a minute after it was there.
        assert_eq!(taken(RATE * 5, 60, Silence::Sending), None);
    }

    #[test]
    fn without_waiting_nothing_is_too_slow() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert!((0..100).all(|second| pace.suffices(1, now + Duration::from_secs(second))));
    }
}
