//! Measures how fast a caller reads an answer, without I/O, so that a slow caller can be told from one that has left,
//! and neither counts against the upstream.

use std::time::Duration;

use tokio::time::Instant;

use crate::tables::{UPSTREAM_BYTES_PER_SECOND, UPSTREAM_RATE_WINDOW_SECONDS};

/// A caller must read at the rate that is demanded of an upstream, averaged over the same window of waiting.
const RATE: u64 = UPSTREAM_BYTES_PER_SECOND;
const WINDOW: Duration = Duration::from_secs(UPSTREAM_RATE_WINDOW_SECONDS);

/// The bytes that the caller has read recently, and the time that it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallerPace {
    /// The time at which the last piece was handed over, until the caller comes back.
    sent_at: Option<Instant>,
    waited: Duration,
    bytes: u64,
}

// === impl CallerPace ===

impl CallerPace {
    /// Notes that a piece was handed over.
    pub(super) fn record_sent(&mut self, bytes: usize, now: Instant) {
        self.bytes += bytes as u64;
        self.sent_at = Some(now);
    }

    /// Notes that the caller comes back for more. Returns the time that it was away, and whether that is fast enough.
    pub(super) fn record_return(&mut self, now: Instant) -> (Duration, bool) {
        let away = self.sent_at.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.waited += away;
        if self.waited < WINDOW {
            return (away, true);
        }
        let enough = self.bytes >= RATE.saturating_mul(self.waited.as_secs());
        *self = Self::default();
        (away, enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the seconds after which a caller that takes a piece of `bytes` bytes every `pause` seconds is too slow.
    fn given_up(bytes: usize, pause: u64) -> Option<u64> {
        let (mut pace, begin) = (CallerPace::default(), Instant::now());
        (1..500).find_map(|count| {
            pace.record_sent(bytes, begin + Duration::from_secs(pause * (count - 1)));
            let (away, enough) = pace.record_return(begin + Duration::from_secs(pause * count));
            assert_eq!(away, Duration::from_secs(pause));
            (!enough).then_some(pause * count)
        })
    }

    #[test]
    fn who_keeps_the_rate_has_all_the_time_there_is() {
        assert_eq!(given_up(64 * 1024, 8), None);
        assert_eq!(given_up(8192, 1), None);
        assert_eq!(given_up(1, 0), None, "who does not wait is not slow");
    }

    #[test]
    fn who_does_not_is_given_up_after_the_window() {
        assert_eq!(given_up(8191, 1), Some(30));
        assert_eq!(given_up(64 * 1024, 9), Some(36));
        assert_eq!(given_up(4096, 600), Some(600));
    }
}
