//! Tracks the health of an account. An account that fails repeatedly is not used for a while, and is then tested with
//! one call. No I/O.
//!
//! [`super::selection`] decides whether another account can be used instead. This module implements U32 of the failure
//! catalogue.

use std::time::Duration;

use tokio::time::Instant;

use super::cooldown::doubled;
use crate::gateway::store::UserId;

/// The number of failures without a success in between that ejects an account (our choice). Fewer failures may be
/// chance.
const FAILURES_BEFORE_EJECTION: u32 = 3;
/// The first and the longest ejection; each one is twice as long as the last (our choice).
const FIRST_EJECTION: Duration = Duration::from_secs(10);
const LONGEST_EJECTION: Duration = Duration::from_secs(300);
/// Failures that the requests of one caller may have caused count after this time without a success (our choice).
const UNCONFIRMED_PERIOD: Duration = Duration::from_secs(10);

/// The recent health of an account.
#[derive(Clone, Debug, Default)]
pub(super) struct AccountHealth {
    consecutive_failures: u32,
    ejections: u32,
    ejected: Option<EjectionWindow>,
    unconfirmed: Option<UnconfirmedFailures>,
    /// The time of the last success.
    last_success: Option<Instant>,
}

/// Failures that requests may have caused, without a success in between.
#[derive(Clone, Debug)]
struct UnconfirmedFailures {
    since: Instant,
    /// The caller of the first failed call.
    caller: UserId,
    /// True if calls of other callers have failed, too.
    has_several_callers: bool,
    /// The number of failures that do not count yet.
    calls: u32,
}

/// A call that was granted on an account, and that failed for a reason that may be its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoubtfulCall<'a> {
    pub(super) caller: &'a UserId,
    pub(super) granted_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct EjectionWindow {
    since: Instant,
    until: Instant,
}

/// The permitted use of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthStatus {
    /// Any use.
    Good,
    /// No use as long as there is another account.
    Ejected {
        /// The time that is left.
        remaining: Duration,
    },
    /// One call at a time, to test whether the account works again.
    HalfOpen,
}

// === impl AccountHealth ===

impl AccountHealth {
    pub(super) fn status(&self, now: Instant) -> HealthStatus {
        match self.ejected {
            None => HealthStatus::Good,
            Some(EjectionWindow { until, .. }) if now < until => HealthStatus::Ejected { remaining: until - now },
            Some(_) => HealthStatus::HalfOpen,
        }
    }

    /// Returns the start and the end of the ejection, and the number of failures in a row; `None` if the account is not
    /// ejected.
    pub(super) fn ejection(&self) -> Option<(Instant, Instant, u32)> {
        self.ejected.map(|ejected| (ejected.since, ejected.until, self.consecutive_failures))
    }

    /// Records a success: the account works, so earlier failures no longer count.
    pub(super) fn note_success(&mut self, now: Instant) {
        *self = Self { last_success: Some(now), ..Self::default() };
    }

    /// Records the failure of a call that was `granted` at this time.
    pub(super) fn note_failure(&mut self, granted: Instant, now: Instant) {
        self.count_failures(1, granted, now);
    }

    /// Records the failure of a call whose request may be the cause. It counts only if the calls of several callers
    /// fail, or if the account has had no success for a while, so that a caller cannot have an account ejected while
    /// the account serves other callers.
    pub(super) fn note_doubtful_failure(&mut self, call: DoubtfulCall<'_>, now: Instant) {
        let DoubtfulCall { caller, granted_at: granted } = call;
        if self.last_success.is_some_and(|success| success >= granted) {
            return;
        }
        let new = || UnconfirmedFailures { since: now, caller: caller.clone(), has_several_callers: false, calls: 0 };
        let unconfirmed = self.unconfirmed.get_or_insert_with(new);
        unconfirmed.calls = unconfirmed.calls.saturating_add(1);
        unconfirmed.has_several_callers |= unconfirmed.caller != *caller;
        if unconfirmed.has_several_callers || now - unconfirmed.since >= UNCONFIRMED_PERIOD {
            let calls = std::mem::take(&mut unconfirmed.calls);
            self.count_failures(calls, granted, now);
        }
    }

    fn count_failures(&mut self, calls: u32, granted: Instant, now: Instant) {
        self.consecutive_failures = self.consecutive_failures.saturating_add(calls);
        match self.ejected {
            // The call was granted before the ejection, so it adds nothing.
            Some(EjectionWindow { since, .. }) if granted < since => {}
            // The probe has failed, or the only account still fails.
            Some(_) => self.eject(now),
            None if self.consecutive_failures >= FAILURES_BEFORE_EJECTION => self.eject(now),
            None => {}
        }
    }

    fn eject(&mut self, now: Instant) {
        let pause = doubled(FIRST_EJECTION, self.ejections).min(LONGEST_EJECTION);
        self.ejections = self.ejections.saturating_add(1);
        self.ejected = Some(EjectionWindow { since: now, until: now + pause });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct HealthScenario {
        health: AccountHealth,
        started_at: Instant,
    }

    impl HealthScenario {
        fn new() -> Self {
            Self { health: AccountHealth::default(), started_at: Instant::now() }
        }

        fn fail_doubtfully(&mut self, caller: &str, granted: u64, now: u64) {
            let (granted, now) = (self.at(granted), self.at(now));
            self.health.note_doubtful_failure(DoubtfulCall { caller: &UserId::from(caller), granted_at: granted }, now);
        }

        fn at(&self, seconds: u64) -> Instant {
            self.started_at + Duration::from_secs(seconds)
        }

        fn fail(&mut self, granted: u64, now: u64) {
            self.health.note_failure(self.at(granted), self.at(now));
        }

        fn remaining_seconds(&self, now: u64) -> Option<u64> {
            match self.health.status(self.at(now)) {
                HealthStatus::Ejected { remaining: left } => Some(left.as_secs()),
                HealthStatus::Good | HealthStatus::HalfOpen => None,
            }
        }
    }

    #[test]
    fn three_failures_in_a_row_eject_and_one_success_resets() {
        let mut scenario = HealthScenario::new();
        scenario.fail(0, 1);
        scenario.fail(0, 1);
        scenario.health.note_success(scenario.at(1));
        scenario.fail(0, 1);
        scenario.fail(0, 1);
        assert_eq!(scenario.health.status(scenario.at(1)), HealthStatus::Good);
        scenario.fail(0, 1);
        assert_eq!(scenario.remaining_seconds(1), Some(10));
        assert_eq!(scenario.health.status(scenario.at(11)), HealthStatus::HalfOpen);
        scenario.health.note_success(scenario.at(11));
        assert_eq!(scenario.health.status(scenario.at(11)), HealthStatus::Good);
    }

    #[test]
    fn doubtful_failures_of_one_caller_count_only_after_a_while() {
        let mut scenario = HealthScenario::new();
        (0..50).for_each(|_| scenario.fail_doubtfully("one", 0, 1));
        (1..10).for_each(|now| scenario.fail_doubtfully("one", now, now));
        assert_eq!(scenario.remaining_seconds(10), None);
        scenario.fail_doubtfully("one", 10, 11);
        assert_eq!(scenario.remaining_seconds(11), Some(10), "the account has no success");
        scenario.fail_doubtfully("one", 21, 21);
        assert_eq!(scenario.remaining_seconds(21), Some(20), "the probe has failed");
    }

    #[test]
    fn doubtful_failures_of_several_callers_count_at_once() {
        let mut scenario = HealthScenario::new();
        scenario.fail_doubtfully("one", 0, 1);
        scenario.fail_doubtfully("one", 0, 1);
        assert_eq!(scenario.remaining_seconds(1), None);
        scenario.fail_doubtfully("other", 0, 1);
        assert_eq!(scenario.remaining_seconds(1), Some(10));
    }

    #[test]
    fn an_account_that_serves_other_callers_is_not_ejected() {
        let mut scenario = HealthScenario::new();
        for now in (100..1000).step_by(10) {
            scenario.health.note_success(scenario.at(now - 5));
            scenario.fail_doubtfully("one", now - 90, now);
            scenario.fail_doubtfully("two", now - 5, now);
        }
        assert_eq!(scenario.remaining_seconds(1000), None);
    }

    #[test]
    fn each_failed_probe_doubles_the_ejection_up_to_a_limit() {
        let mut scenario = HealthScenario::new();
        (0..3).for_each(|_| scenario.fail(0, 1));
        let mut now = 11;
        for expected in [20, 40, 80, 160, 300, 300] {
            scenario.fail(now, now);
            assert_eq!(scenario.remaining_seconds(now), Some(expected));
            now += expected;
            assert_eq!(scenario.remaining_seconds(now), None);
        }
    }

    #[test]
    fn failures_of_concurrent_calls_eject_only_once() {
        let mut scenario = HealthScenario::new();
        (0..8).for_each(|_| scenario.fail(0, 100));
        assert_eq!(scenario.remaining_seconds(100), Some(10));
    }
}
