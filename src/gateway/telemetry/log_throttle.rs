//! Limits the log lines about repeated failures: one at the first failure, then one at intervals, and one when the
//! failures end.

use std::time::{Duration, Instant};

/// The time between two lines about the same failure (our choice).
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Decides when a line about one kind of failure is written. The caller passes the time.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    last_logged: Option<Instant>,
    /// The number of failures since the last line.
    unlogged_failures: u64,
    /// The number of failures since the last success.
    failures: u64,
}

// === impl LogThrottle ===

impl LogThrottle {
    /// Counts a failure. If a line is due, returns the number of failures not yet reported, including this failure.
    pub(crate) fn record_failure(&mut self, now: Instant) -> Option<u64> {
        self.unlogged_failures += 1;
        self.failures += 1;
        if self.last_logged.is_some_and(|logged| now.saturating_duration_since(logged) < LOG_INTERVAL) {
            return None;
        }
        self.last_logged = Some(now);
        Some(std::mem::take(&mut self.unlogged_failures))
    }

    /// Resets the counts after a success. Returns the number of failures since the last success, if there were any.
    pub(crate) fn record_success(&mut self) -> Option<u64> {
        let failures = std::mem::take(self).failures;
        (failures > 0).then_some(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_at_once_at_intervals_and_at_the_end() {
        let begun = Instant::now();
        let mut throttle = LogThrottle::default();
        assert_eq!(throttle.record_success(), None);
        // Ten failures a second for a minute.
        let reported: Vec<u64> =
            (0..600).filter_map(|tenth| throttle.record_failure(begun + Duration::from_millis(100 * tenth))).collect();
        assert_eq!(reported, [1, 300]);
        assert_eq!(throttle.record_success(), Some(600));
        assert_eq!(throttle.record_success(), None);
        assert_eq!(throttle.record_failure(begun), Some(1));
    }
}
