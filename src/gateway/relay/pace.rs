//! Measures whether an upstream sends, or a caller reads, at the minimum rate. Pure: the current time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::tables::{UPSTREAM_BYTES_PER_SECOND, UPSTREAM_RATE_WINDOW_SECONDS};

/// The minimum rate in bytes per second of waiting for the other side.
const RATE: u64 = UPSTREAM_BYTES_PER_SECOND;
/// The time of waiting over which the rate is averaged.
pub(super) const WINDOW: Duration = Duration::from_secs(UPSTREAM_RATE_WINDOW_SECONDS);

/// The bytes of the current window, and the time that the gateway waited for the other side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    waiting_since: Option<Instant>,
    waited: Duration,
    bytes: u64,
}

// === impl Pace ===

impl Pace {
    /// Begins to wait, unless a wait has begun.
    pub(super) fn begin_wait(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    /// Ends the wait, if one has begun, and returns its length. At most `wait_max` of it counts.
    pub(super) fn end_wait(&mut self, now: Instant, wait_max: Duration) -> Duration {
        let wait = self.waiting_since.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.waited += wait.min(wait_max);
        wait
    }

    pub(super) const fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// True if a window of waiting is over, and the rate in it was too low. Begins the next window then.
    pub(super) fn is_too_slow(&mut self) -> bool {
        if self.waited < WINDOW {
            return false;
        }
        let window = std::mem::take(self);
        window.bytes < RATE.saturating_mul(window.waited.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds after which the other side is too slow if it takes or sends `bytes` bytes every `pause`
    /// seconds, and at most `wait_max` seconds of each pause count.
    fn seconds_until_too_slow(bytes: usize, pause: u64, wait_max: u64) -> Option<u64> {
        let (mut pace, start) = (Pace::default(), Instant::now());
        (1..500).find_map(|count| {
            pace.begin_wait(start + Duration::from_secs(pause * (count - 1)));
            let now = start + Duration::from_secs(pause * count);
            assert_eq!(pace.end_wait(now, Duration::from_secs(wait_max)), Duration::from_secs(pause));
            pace.add_bytes(bytes);
            pace.is_too_slow().then_some(pause * count)
        })
    }

    #[test]
    fn only_a_side_below_the_minimum_rate_is_too_slow_after_the_window() {
        let rate = usize::try_from(RATE).expect("a small number");
        assert_eq!(seconds_until_too_slow(64 * 1024, 8, 600), None);
        assert_eq!(seconds_until_too_slow(rate, 1, 600), None);
        assert_eq!(seconds_until_too_slow(1, 0, 600), None, "a side without pauses is not slow");
        assert_eq!(seconds_until_too_slow(rate - 1, 1, 600), Some(30));
        assert_eq!(seconds_until_too_slow(64 * 1024, 9, 600), Some(36));
        assert_eq!(seconds_until_too_slow(4096, 600, 600), Some(600));
    }

    #[test]
    fn a_wait_that_has_another_cause_counts_only_in_part() {
        // The caller fetches each piece a minute after the upstream has sent it.
        let bytes = usize::try_from(RATE * 5).expect("a small number");
        assert_eq!(seconds_until_too_slow(bytes, 60, 5), None);
        assert_eq!(seconds_until_too_slow(bytes - 1, 60, 5), Some(360));
    }
}
