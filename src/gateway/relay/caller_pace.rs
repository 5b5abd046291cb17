//! Measures how fast a caller reads an answer, so that a slow caller is recognized and does not count against the
//! upstream. Pure: the current time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::tables::{UPSTREAM_BYTES_PER_SECOND, UPSTREAM_RATE_WINDOW_SECONDS};

/// The minimum rate of a caller, in bytes per second of waiting for the caller: the same as for an upstream.
const RATE: u64 = UPSTREAM_BYTES_PER_SECOND;
/// The time of waiting for the caller over which its rate is averaged: the same as for an upstream.
const WINDOW: Duration = Duration::from_secs(UPSTREAM_RATE_WINDOW_SECONDS);

/// The bytes that the caller has read in the current window, and the time that the gateway waited for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallerPace {
    /// The time at which the last piece was handed over; `None` after the caller has polled again.
    sent_at: Option<Instant>,
    waited_for_caller: Duration,
    bytes: u64,
}

// === impl CallerPace ===

impl CallerPace {
    /// Records that a piece was handed over.
    pub(super) fn record_sent(&mut self, bytes: usize, now: Instant) {
        self.bytes += bytes as u64;
        self.sent_at = Some(now);
    }

    /// Records that the caller polls again. Returns the time since the last piece, and true if the caller is
    /// fast enough.
    pub(super) fn record_return(&mut self, now: Instant) -> (Duration, bool) {
        let absence = self.sent_at.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.waited_for_caller += absence;
        if self.waited_for_caller < WINDOW {
            return (absence, true);
        }
        let is_fast_enough = self.bytes >= RATE.saturating_mul(self.waited_for_caller.as_secs());
        *self = Self::default();
        (absence, is_fast_enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds after which a caller that takes a piece of `bytes` bytes every `pause` seconds is too slow.
    fn seconds_until_too_slow(bytes: usize, pause: u64) -> Option<u64> {
        let (mut pace, begin) = (CallerPace::default(), Instant::now());
        (1..500).find_map(|count| {
            pace.record_sent(bytes, begin + Duration::from_secs(pause * (count - 1)));
            let (absence, is_fast_enough) = pace.record_return(begin + Duration::from_secs(pause * count));
            assert_eq!(absence, Duration::from_secs(pause));
            (!is_fast_enough).then_some(pause * count)
        })
    }

    #[test]
    fn a_caller_above_the_minimum_rate_is_never_too_slow() {
        assert_eq!(seconds_until_too_slow(64 * 1024, 8), None);
        assert_eq!(seconds_until_too_slow(8192, 1), None);
        assert_eq!(seconds_until_too_slow(1, 0), None, "a caller without pauses is not slow");
    }

    #[test]
    fn a_caller_below_the_minimum_rate_is_too_slow_after_the_window() {
        assert_eq!(seconds_until_too_slow(8191, 1), Some(30));
        assert_eq!(seconds_until_too_slow(64 * 1024, 9), Some(36));
        assert_eq!(seconds_until_too_slow(4096, 600), Some(600));
    }
}
