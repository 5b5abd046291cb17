//! Counts what began within the last minute.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The length of the window.
const WINDOW: Duration = Duration::from_secs(60);

/// The amounts of the last minute. The window moves with every moment, so any minute stays within a limit, also one that
/// begins in the middle of a minute of the clock.
#[derive(Debug, Default)]
pub(super) struct MinuteWindow {
    amounts: VecDeque<(Instant, u32)>,
    sum: u64,
}

impl MinuteWindow {
    /// Returns the sum of the last minute.
    pub(super) fn sum(&mut self, now: Instant) -> u64 {
        while let Some((_, amount)) = self.amounts.pop_front_if(|(at, _)| now.duration_since(*at) >= WINDOW) {
            self.sum -= u64::from(amount);
        }
        self.sum
    }

    /// Returns the time until an amount fits into the limit; zero if it does now. The amount must not exceed the limit.
    pub(super) fn wait_for(&mut self, amount: u32, limit: u32, now: Instant) -> Duration {
        let mut excess = (self.sum(now) + u64::from(amount)).saturating_sub(u64::from(limit));
        if excess == 0 {
            return Duration::ZERO;
        }
        for (at, amount) in &self.amounts {
            excess = excess.saturating_sub(u64::from(*amount));
            if excess == 0 {
                return WINDOW.saturating_sub(now.duration_since(*at));
            }
        }
        WINDOW
    }

    /// Returns the time until nothing of the last minute is left.
    pub(super) fn time_until_empty(&self, now: Instant) -> Duration {
        self.amounts.back().map_or(Duration::ZERO, |(at, _)| WINDOW.saturating_sub(now.duration_since(*at)))
    }

    /// Removes what is past. Returns true if nothing is left; the window then takes no memory.
    pub(super) fn prune(&mut self, now: Instant) -> bool {
        let is_empty = self.sum(now) == 0;
        if is_empty {
            *self = Self::default();
        }
        is_empty
    }

    pub(super) fn add(&mut self, amount: u32, now: Instant) {
        if amount > 0 {
            self.amounts.push_back((now, amount));
            self.sum += u64::from(amount);
        }
    }
}
