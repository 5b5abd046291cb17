//! The calls of one account in the last hour: how many succeeded and failed, how long they took, and the last failure.
//! No I/O; the time is an argument.
//!
//! The memory is bounded: one entry for each minute with a call, and in it one counter for each latency bucket. The
//! counts are those of this process since its start.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::wire::admin::types::RecordReason;

/// The number of minutes that are counted.
const MINUTES: u64 = 60;
/// The latency buckets per doubling, as a power of two: a bucket is at most an eighth of its latency wide.
const STEPS_LOG2: u32 = 3;
/// The shortest and the longest latency that are told apart (our choice). A call takes at most an hour.
const SHORTEST_MS: u64 = 1 << STEPS_LOG2;
const LONGEST_MS: u64 = 1 << 22;

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallFailure {
    /// The time at which the call failed.
    pub(crate) at: DateTime<Utc>,
    /// The reason.
    pub(crate) reason: RecordReason,
    /// The status of the upstream's answer, if there was one.
    pub(crate) status: Option<u16>,
}

/// The calls of the last hour in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallStatistics {
    /// The number of calls that gave their whole answer.
    pub(crate) succeeded: u64,
    /// The number of calls that the account failed.
    pub(crate) failed: u64,
    /// The median of the latencies of the successful calls; `None` without such a call.
    pub(crate) median: Option<Duration>,
    /// The 95th percentile of the latencies of the successful calls.
    pub(crate) p95: Option<Duration>,
    /// The last failure, even if it is older than an hour.
    pub(crate) last_failure: Option<CallFailure>,
}

/// The calls of the last hour.
#[derive(Debug)]
pub(super) struct RecentCalls {
    started_at: Instant,
    minutes: VecDeque<MinuteCounts>,
    last_failure: Option<CallFailure>,
}

/// The calls that ended in one minute.
#[derive(Debug, Default)]
struct MinuteCounts {
    /// The number of the minute since the start.
    minute: u64,
    succeeded: u64,
    failed: u64,
    /// The number of successful calls for each latency bucket.
    latencies: BTreeMap<u8, u32>,
}

// === impl RecentCalls ===

impl RecentCalls {
    pub(super) const fn new(now: Instant) -> Self {
        Self { started_at: now, minutes: VecDeque::new(), last_failure: None }
    }

    /// Counts a call that gave its whole answer.
    pub(super) fn note_success(&mut self, latency: Duration, now: Instant) {
        let counts = self.current_minute(now);
        counts.succeeded += 1;
        let calls = counts.latencies.entry(bucket(latency)).or_default();
        *calls = calls.saturating_add(1);
    }

    /// Counts a call that the account failed.
    pub(super) fn note_failure(&mut self, failure: CallFailure, now: Instant) {
        self.current_minute(now).failed += 1;
        self.last_failure = Some(failure);
    }

    /// Returns the numbers of the hour that ends now.
    pub(super) fn statistics(&self, now: Instant) -> CallStatistics {
        let oldest = oldest_minute(self.minute_of(now));
        let mut statistics = CallStatistics { last_failure: self.last_failure.clone(), ..CallStatistics::default() };
        let mut latencies = BTreeMap::<u8, u64>::new();
        for counts in self.minutes.iter().filter(|counts| counts.minute >= oldest) {
            statistics.succeeded += counts.succeeded;
            statistics.failed += counts.failed;
            for (bucket, calls) in &counts.latencies {
                *latencies.entry(*bucket).or_default() += u64::from(*calls);
            }
        }
        statistics.median = percentile(&latencies, 50);
        statistics.p95 = percentile(&latencies, 95);
        statistics
    }

    fn minute_of(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started_at).as_secs() / 60
    }

    /// The counts of the current minute, after removing those that are too old.
    fn current_minute(&mut self, now: Instant) -> &mut MinuteCounts {
        let minute = self.minute_of(now);
        while self.minutes.front().is_some_and(|counts| counts.minute < oldest_minute(minute)) {
            self.minutes.pop_front();
        }
        // A call whose end was measured a moment before that of another one counts in the same minute as the other.
        if self.minutes.back().is_none_or(|counts| counts.minute < minute) {
            self.minutes.push_back(MinuteCounts { minute, ..MinuteCounts::default() });
        }
        let last = self.minutes.len() - 1;
        &mut self.minutes[last]
    }
}

/// The first minute of the hour that ends with this minute.
const fn oldest_minute(minute: u64) -> u64 {
    (minute + 1).saturating_sub(MINUTES)
}

/// The bucket of a latency.
fn bucket(latency: Duration) -> u8 {
    let milliseconds = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX).clamp(SHORTEST_MS, LONGEST_MS);
    let exponent = milliseconds.ilog2();
    let step = (milliseconds >> (exponent - STEPS_LOG2)) - (1 << STEPS_LOG2);
    u8::try_from((u64::from(exponent) << STEPS_LOG2) + step).unwrap_or(u8::MAX)
}

/// The latency in the middle of a bucket.
fn middle_of_bucket(bucket: u8) -> Duration {
    let (exponent, step) = (u32::from(bucket) >> STEPS_LOG2, u64::from(bucket) & ((1 << STEPS_LOG2) - 1));
    let width = 1 << (exponent - STEPS_LOG2);
    Duration::from_millis(((1 << STEPS_LOG2) + step) * width + width / 2)
}

/// The latency that `percent` of the calls do not exceed.
fn percentile(latencies: &BTreeMap<u8, u64>, percent: u64) -> Option<Duration> {
    let rank = (latencies.values().sum::<u64>() * percent).div_ceil(100);
    let mut calls = 0;
    let found = latencies.iter().find(|(_, count)| {
        calls += **count;
        calls >= rank
    });
    found.map(|(bucket, _)| middle_of_bucket(*bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reason: RecordReason) -> CallFailure {
        CallFailure { at: DateTime::from_timestamp(1_800_000_000, 0).unwrap(), reason, status: Some(500) }
    }

    fn after(start: Instant, minutes: u64) -> Instant {
        start + Duration::from_secs(60 * minutes)
    }

    #[test]
    fn calls_are_counted_for_an_hour() {
        let start = Instant::now();
        let mut calls = RecentCalls::new(start);
        for _ in 0..17 {
            calls.note_failure(failure(RecordReason::Network), start);
        }
        calls.note_success(Duration::from_secs(1), after(start, 30));
        let counts = |calls: &RecentCalls, minutes: u64| {
            let statistics = calls.statistics(after(start, minutes));
            (statistics.succeeded, statistics.failed)
        };
        assert_eq!(counts(&calls, 59), (1, 17));
        assert_eq!(counts(&calls, 60), (1, 0));
        assert_eq!(counts(&calls, 90), (0, 0));
        assert_eq!(calls.statistics(after(start, 900)).last_failure, Some(failure(RecordReason::Network)));
    }

    #[test]
    fn the_memory_is_bounded() {
        let start = Instant::now();
        let mut calls = RecentCalls::new(start);
        for minute in 0..500 {
            for milliseconds in (0..10_000_000).step_by(20_011) {
                calls.note_success(Duration::from_millis(milliseconds), after(start, minute));
            }
        }
        assert_eq!(calls.minutes.len(), 60);
        assert!(calls.minutes.iter().all(|counts| counts.latencies.len() <= 160));
    }

    #[test]
    fn percentiles_are_exact_to_a_sixteenth() {
        let start = Instant::now();
        let mut calls = RecentCalls::new(start);
        assert_eq!((calls.statistics(start).median, calls.statistics(start).p95), (None, None));
        for milliseconds in 1..=1000 {
            calls.note_success(Duration::from_millis(milliseconds * 60), start);
        }
        let statistics = calls.statistics(start);
        for (found, expected) in [(statistics.median, 30_000), (statistics.p95, 57_000)] {
            let found = u64::try_from(found.unwrap().as_millis()).unwrap();
            assert!(found.abs_diff(expected) * 16 <= expected, "{found} instead of {expected}");
        }
    }

    #[test]
    fn every_latency_has_a_bucket_near_it() {
        for milliseconds in (SHORTEST_MS..LONGEST_MS).step_by(97) {
            let middle =
                u64::try_from(middle_of_bucket(bucket(Duration::from_millis(milliseconds))).as_millis()).unwrap();
            assert!(middle.abs_diff(milliseconds) * 16 <= milliseconds, "{middle} instead of {milliseconds}");
        }
        assert_eq!(bucket(Duration::ZERO), bucket(Duration::from_millis(SHORTEST_MS)));
        assert_eq!(bucket(Duration::MAX), bucket(Duration::from_millis(LONGEST_MS)));
    }
}
