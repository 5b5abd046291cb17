//! The limits on the time of one request, and of each image of the fallback order within it. Pure but for the clock.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::gateway::rules::TaskRef;
use crate::tables;

/// If a smaller image may follow, a call may take this share of the time left until its image begins (our choice): of the ten
/// minutes of a request the largest one has five, according to the specification.
const CALL_SHARE_DIVISOR: u32 = 2;
/// A smaller image is asked for only if this share of the time for a request is left (our choice): a call that is cut off at
/// the end of that time is paid for and thrown away.
const FALLBACK_SHARE_DIVISOR: u32 = 8;
/// The least share. A share that is shorter than the time that the specification has a client wait for a normal image
/// does not apply: a larger image that is given up so soon is paid for and thrown away.
const MIN_CALL_SHARE: Duration = Duration::from_secs(tables::CLIENT_TIMEOUT_SECONDS);
/// If all of the time is shorter than that, the upstream is quicker, and this part of the time takes its place (our choice).
const MIN_CALL_SHARE_DIVISOR: u32 = 5;

/// The limits on the time of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptDeadlines {
    /// The longest silence of an upstream at work.
    pub(super) max_silence: Duration,
    /// The time that an image may take if none of it is used up.
    pub(super) full_time: Duration,
    /// The moment at which the answer must be complete.
    pub(super) complete_by: Instant,
    /// True if an image that does not begin is given up for a smaller one.
    pub(super) has_fallback: bool,
}

// === impl AttemptDeadlines ===

impl AttemptDeadlines {
    /// Returns the limits of a request that begins now.
    pub(super) fn new(task: TaskRef<'_>, max_silence: Duration) -> Self {
        // A text model that sends something all the time may go on for longer.
        let total = match task {
            TaskRef::Response(job) if job.is_stream() => {
                Duration::from_secs(tables::RESPONSE_STREAM_SECONDS).max(max_silence)
            }
            TaskRef::Images(_) | TaskRef::Response(_) => max_silence,
        };
        Self { max_silence, full_time: max_silence, complete_by: Instant::now() + total, has_fallback: false }
    }

    /// Returns the limits of an image that begins now, with or without smaller ones that may follow: a silent upstream
    /// must not use up their time too.
    pub(super) fn for_round(self, has_fallback: bool) -> Self {
        Self { max_silence: self.max_silence.min(self.time_left()), has_fallback, ..self }
    }

    /// True if there is time for a smaller image.
    pub(super) fn has_time_for_fallback(&self) -> bool {
        self.time_left() >= self.full_time / FALLBACK_SHARE_DIVISOR
    }

    /// Returns the time that a call has until its image begins, if it is made now.
    pub(super) fn time_to_begin(&self) -> Duration {
        self.call_share().unwrap_or_else(|| self.time_left())
    }

    /// Resolves when a call that is made now has used up its share of the time; never if the time is not shared.
    pub(super) fn call_share_elapsed(&self) -> impl Future<Output = ()> + use<> {
        let moment = self.call_share().map(|share| Instant::now() + share);
        async move {
            match moment {
                Some(moment) => sleep_until(moment).await,
                None => pending().await,
            }
        }
    }

    /// Returns the share of a call, which leaves the rest to smaller images.
    fn call_share(&self) -> Option<Duration> {
        let least =
            if self.full_time < MIN_CALL_SHARE { self.full_time / MIN_CALL_SHARE_DIVISOR } else { MIN_CALL_SHARE };
        let share = self.time_left() / CALL_SHARE_DIVISOR;
        (self.has_fallback && share >= least).then_some(share)
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

    fn whole() -> AttemptDeadlines {
        of(TEN_MINUTES)
    }

    fn of(time: Duration) -> AttemptDeadlines {
        AttemptDeadlines { max_silence: time, full_time: time, complete_by: Instant::now() + time, has_fallback: false }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_is_silent_each_time_leaves_time_for_every_step() {
        let (whole, begun) = (whole(), Instant::now());
        let mut waited = Vec::new();
        for has_below in [true, true, false] {
            assert!(whole.has_time_for_fallback());
            let terms = whole.for_round(has_below);
            assert_eq!(terms.complete_by, whole.complete_by, "an image that has begun may take all of the time");
            assert_eq!(terms.max_silence, whole.time_left());
            let silent = timeout(terms.max_silence, terms.call_share_elapsed()).await;
            assert_eq!(silent.is_ok(), has_below);
            waited.push(begun.elapsed().as_secs());
        }
        assert_eq!(waited, [300, 450, 600]);
        assert!(!whole.has_time_for_fallback());
    }

    #[tokio::test(start_paused = true)]
    async fn no_smaller_image_is_asked_for_that_cannot_be_there_in_time() {
        let whole = whole();
        advance(Duration::from_secs(525)).await;
        assert!(whole.has_time_for_fallback());
        advance(Duration::from_millis(1)).await;
        assert!(!whole.has_time_for_fallback());
    }

    /// Returns the seconds after which each round is given up if the upstream is silent each time.
    async fn shares(seconds: u64) -> Vec<u64> {
        let (whole, mut waited) = (of(Duration::from_secs(seconds)), Vec::new());
        for has_below in [true, true, false] {
            let (terms, begun) = (whole.for_round(has_below), Instant::now());
            let _ = timeout(terms.max_silence, terms.call_share_elapsed()).await;
            waited.push(begun.elapsed().as_secs());
        }
        waited
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_is_too_short_for_a_normal_image_is_not_shared() {
        assert_eq!(shares(3600).await, [1800, 900, 900]);
        assert_eq!(shares(480).await, [240, 120, 120]);
        assert_eq!(shares(300).await, [150, 150, 0]);
        assert_eq!(shares(239).await, [239, 0, 0]);
        assert_eq!(shares(120).await, [120, 0, 0]);
        assert_eq!(shares(100).await, [50, 25, 25]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_worth_a_call_is_a_part_of_all_of_the_time() {
        let whole = of(Duration::from_secs(3600));
        advance(Duration::from_secs(3600 - 300)).await;
        assert!(!whole.for_round(true).has_time_for_fallback());
    }
}
