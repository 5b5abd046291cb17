//! Limits the log lines about repeated failures: one at once, then one from time to time, and one when they are over.

use std::time::{Duration, Instant};

/// The time between two lines about the same failure (ours).
const BETWEEN: Duration = Duration::from_secs(30);

/// Decides when a line about one kind of failure is written. The caller passes the time.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    told_at: Option<Instant>,
    /// The number of failures since the last line.
    untold: u64,
    /// The number of failures since the last success.
    failures: u64,
}

// === impl LogThrottle ===

impl LogThrottle {
    /// Notes a failure. If a line is due, returns the number of failures not yet reported, including this one.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        self.failures += 1;
        if self.told_at.is_some_and(|told| now.saturating_duration_since(told) < BETWEEN) {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }

    /// Notes a success. Returns the number of failures since the last success, if there were any.
    pub(crate) fn worked(&mut self) -> Option<u64> {
        let failures = std::mem::take(self).failures;
        (failures > 0).then_some(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_at_once_then_now_and_then_and_when_it_is_over() {
        let begun = Instant::now();
        let mut throttle = LogThrottle::default();
        assert_eq!(throttle.worked(), None);
        // Ten failures a second for a minute.
        let told: Vec<u64> =
            (0..600).filter_map(|tenths| throttle.failed(begun + Duration::from_millis(100 * tenths))).collect();
        assert_eq!(told, [1, 300]);
        assert_eq!(throttle.worked(), Some(600));
        assert_eq!(throttle.worked(), None);
        assert_eq!(throttle.failed(begun), Some(1));
    }
}
