//! The time limits of one request, and of each image of the fallback order within it. Reads the clock; no other I/O.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::gateway::rules::TaskRef;
use crate::tables;

/// If a smaller image may follow, a call may take the remaining time divided by this number until its image begins (our
/// choice): of the ten minutes of a request, the largest image gets the five that the specification states.
const CALL_SHARE_DIVISOR: u32 = 2;
/// A smaller image is requested only if at least the full time of a request divided by this number remains (our
/// choice): a call that is cut off at the end of the time is paid for, and its image is lost.
const FALLBACK_SHARE_DIVISOR: u32 = 8;
/// The shortest share. If the share would be shorter than the time for which a client waits for a normal image
/// according to the specification, the time is not shared: a larger image that is given up so soon is paid for and
/// lost.
const MIN_CALL_SHARE: Duration = Duration::from_secs(tables::CLIENT_TIMEOUT_SECONDS);
/// If the full time is shorter than [`MIN_CALL_SHARE`], the shortest share is the full time divided by this number (our
/// choice): an operator who sets so short a time has a fast upstream.
const MIN_CALL_SHARE_DIVISOR: u32 = 5;

/// The time limits of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptDeadlines {
    /// The longest silence of an upstream during a call.
    pub(super) max_silence: Duration,
    /// The time limit of an image, counted from the beginning of the request.
    pub(super) full_time: Duration,
    /// The moment at which the answer must be complete.
    pub(super) complete_by: Instant,
    /// True if a call whose image does not begin in time is given up in favour of a smaller image.
    pub(super) shares_time: bool,
}

// === impl AttemptDeadlines ===

impl AttemptDeadlines {
    /// Returns the limits of a request that begins now.
    pub(super) fn new(task: TaskRef<'_>, max_silence: Duration) -> Self {
        // A streamed response may take longer than one silence, because the text model keeps sending.
        let total = match task {
            TaskRef::Response(job) if job.is_stream() => {
                Duration::from_secs(tables::RESPONSE_STREAM_SECONDS).max(max_silence)
            }
            TaskRef::Images(_) | TaskRef::Response(_) => max_silence,
        };
        Self { max_silence, full_time: max_silence, complete_by: Instant::now() + total, shares_time: false }
    }

    /// Returns the time limits of an image that begins now. If `shares_time` is true, a silent upstream does not use
    /// up the time of the smaller images that may follow.
    pub(super) fn for_round(self, shares_time: bool) -> Self {
        Self { max_silence: self.max_silence.min(self.time_left()), shares_time, ..self }
    }

    /// True if there is time for a smaller image.
    pub(super) fn has_time_for_fallback(&self) -> bool {
        self.time_left() >= self.full_time / FALLBACK_SHARE_DIVISOR
    }

    /// Returns the time that a call that begins now has until its image begins.
    pub(super) fn time_to_begin(&self) -> Duration {
        self.call_share().unwrap_or_else(|| self.time_left())
    }

    /// Resolves when a call that is made now has used up its share of the time; never if the time is not shared.
    pub(super) fn call_share_elapsed(&self) -> impl Future<Output = ()> + use<> {
        let end = self.call_share().map(|share| Instant::now() + share);
        async move {
            match end {
                Some(end) => sleep_until(end).await,
                None => pending().await,
            }
        }
    }

    /// Returns the share of the time that a call has; the remaining time is for smaller images. `None` if the time is
    /// not shared.
    fn call_share(&self) -> Option<Duration> {
        let min_share =
            if self.full_time < MIN_CALL_SHARE { self.full_time / MIN_CALL_SHARE_DIVISOR } else { MIN_CALL_SHARE };
        let share = self.time_left() / CALL_SHARE_DIVISOR;
        (self.shares_time && share >= min_share).then_some(share)
    }

    pub(super) fn time_left(&self) -> Duration {
        self.complete_by.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const TEN_MINUTES: Duration = Duration::from_secs(600);

    fn request_deadlines() -> AttemptDeadlines {
        deadlines_of(TEN_MINUTES)
    }

    fn deadlines_of(time: Duration) -> AttemptDeadlines {
        AttemptDeadlines { max_silence: time, full_time: time, complete_by: Instant::now() + time, shares_time: false }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_upstream_leaves_time_for_every_fallback() {
        let (request_deadlines, started_at) = (request_deadlines(), Instant::now());
        let mut elapsed = Vec::new();
        for shares_time in [true, true, false] {
            assert!(request_deadlines.has_time_for_fallback());
            let deadlines = request_deadlines.for_round(shares_time);
            assert_eq!(
                deadlines.complete_by, request_deadlines.complete_by,
                "an image that has begun may take all of the time"
            );
            assert_eq!(deadlines.max_silence, request_deadlines.time_left());
            let silent = timeout(deadlines.max_silence, deadlines.call_share_elapsed()).await;
            assert_eq!(silent.is_ok(), shares_time);
            elapsed.push(started_at.elapsed().as_secs());
        }
        assert_eq!(elapsed, [300, 450, 600]);
        assert!(!request_deadlines.has_time_for_fallback());
    }

    #[tokio::test(start_paused = true)]
    async fn no_fallback_begins_without_enough_time() {
        let request_deadlines = request_deadlines();
        advance(Duration::from_secs(525)).await;
        assert!(request_deadlines.has_time_for_fallback());
        advance(Duration::from_millis(1)).await;
        assert!(!request_deadlines.has_time_for_fallback());
    }

    /// Returns the seconds after which each round is given up if the upstream is silent each time.
    async fn give_up_times(seconds: u64) -> Vec<u64> {
        let (request_deadlines, mut elapsed) = (deadlines_of(Duration::from_secs(seconds)), Vec::new());
        for shares_time in [true, true, false] {
            let (deadlines, started_at) = (request_deadlines.for_round(shares_time), Instant::now());
            let _ = timeout(deadlines.max_silence, deadlines.call_share_elapsed()).await;
            elapsed.push(started_at.elapsed().as_secs());
        }
        elapsed
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_time_is_not_shared() {
        assert_eq!(give_up_times(3600).await, [1800, 900, 900]);
        assert_eq!(give_up_times(480).await, [240, 120, 120]);
        assert_eq!(give_up_times(300).await, [150, 150, 0]);
        assert_eq!(give_up_times(239).await, [239, 0, 0]);
        assert_eq!(give_up_times(120).await, [120, 0, 0]);
        assert_eq!(give_up_times(100).await, [50, 25, 25]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_for_a_fallback_is_a_part_of_the_full_time() {
        let request_deadlines = deadlines_of(Duration::from_secs(3600));
        advance(Duration::from_secs(3600 - 300)).await;
        assert!(!request_deadlines.for_round(true).has_time_for_fallback());
    }
}
