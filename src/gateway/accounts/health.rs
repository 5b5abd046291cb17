//! Health, pure: an account that fails again and again is left out for a while, then tried with one call.
//!
//! The choice of an account decides if there is another one to use instead. This module carries U32 of the failure catalogue.

use std::time::Duration;

use tokio::time::Instant;

use crate::gateway::store::UserId;

/// So many failures without a success in between (ours): fewer happen by chance.
const FAULTS: u32 = 3;
/// The first time it is left out for so long, and then twice as long as before (ours).
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// Failures that the requests of one caller may have caused count after this time without a success (ours).
const LASTING: Duration = Duration::from_secs(10);

/// How an account has done lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    faults: u32,
    ejections: u32,
    ejected: Option<Ejected>,
    doubts: Option<UnconfirmedFailures>,
    /// The time of the last success.
    served: Option<Instant>,
}

/// Failures that requests may have caused, without a success in between.
#[derive(Clone, Debug)]
struct UnconfirmedFailures {
    since: Instant,
    /// Whose call was the first of them.
    caller: UserId,
    /// Other callers' calls have failed, too.
    several: bool,
    /// Those that do not count yet.
    calls: u32,
}

/// A call that an account was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoubtfulCall<'a> {
    pub(super) caller: &'a UserId,
    pub(super) granted: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Ejected {
    since: Instant,
    until: Instant,
}

/// What may be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Everything.
    Good,
    /// Nothing, as long as there is another.
    Ejected {
        /// How long still.
        left: Duration,
    },
    /// One call at a time, to see whether it is well again.
    Probing,
}

// === impl Health ===

impl Health {
    pub(super) fn standing(&self, now: Instant) -> Standing {
        match self.ejected {
            None => Standing::Good,
            Some(Ejected { until, .. }) if now < until => Standing::Ejected { left: until - now },
            Some(_) => Standing::Probing,
        }
    }

    /// The start and the end of the ejection, and the number of failures in a row; `None` if it is not ejected.
    pub(super) fn ejection(&self) -> Option<(Instant, Instant, u32)> {
        self.ejected.map(|ejected| (ejected.since, ejected.until, self.faults))
    }

    /// An image came: whatever was before, it works now.
    pub(super) fn good(&mut self, now: Instant) {
        *self = Self { served: Some(now), ..Self::default() };
    }

    /// A call that was `granted` then has failed.
    pub(super) fn faulty(&mut self, granted: Instant, now: Instant) {
        self.count(1, granted, now);
    }

    /// A call has failed, and its request may be the cause. It counts only if the calls of several callers fail, or if
    /// the account has served nobody for a while, so that a caller cannot have it set aside while it serves others.
    pub(super) fn doubtful(&mut self, call: DoubtfulCall<'_>, now: Instant) {
        let DoubtfulCall { caller, granted } = call;
        if self.served.is_some_and(|served| served >= granted) {
            return;
        }
        let new = || UnconfirmedFailures { since: now, caller: caller.clone(), several: false, calls: 0 };
        let doubts = self.doubts.get_or_insert_with(new);
        doubts.calls = doubts.calls.saturating_add(1);
        doubts.several |= doubts.caller != *caller;
        if doubts.several || now - doubts.since >= LASTING {
            let calls = std::mem::take(&mut doubts.calls);
            self.count(calls, granted, now);
        }
    }

    fn count(&mut self, calls: u32, granted: Instant, now: Instant) {
        self.faults = self.faults.saturating_add(calls);
        match self.ejected {
            // Begun before it was left out: says nothing new.
            Some(Ejected { since, .. }) if granted < since => {}
            // The probe has failed, or the only account there is goes on failing.
            Some(_) => self.eject(now),
            None if self.faults >= FAULTS => self.eject(now),
            None => {}
        }
    }

    fn eject(&mut self, now: Instant) {
        let pause = FIRST.saturating_mul(1 << self.ejections.min(16)).min(LONGEST);
        self.ejections = self.ejections.saturating_add(1);
        self.ejected = Some(Ejected { since: now, until: now + pause });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Story {
        health: Health,
        begin: Instant,
    }

    impl Story {
        fn new() -> Self {
            Self { health: Health::default(), begin: Instant::now() }
        }

        fn is_doubted(&mut self, caller: &str, granted: u64, now: u64) {
            let (granted, now) = (self.at(granted), self.at(now));
            self.health.doubtful(DoubtfulCall { caller: &UserId::from(caller), granted }, now);
        }

        fn at(&self, seconds: u64) -> Instant {
            self.begin + Duration::from_secs(seconds)
        }

        fn fails(&mut self, granted: u64, now: u64) {
            self.health.faulty(self.at(granted), self.at(now));
        }

        fn left(&self, now: u64) -> Option<u64> {
            match self.health.standing(self.at(now)) {
                Standing::Ejected { left } => Some(left.as_secs()),
                Standing::Good | Standing::Probing => None,
            }
        }
    }

    #[test]
    fn three_failures_in_a_row_eject_and_one_image_resets() {
        let mut story = Story::new();
        story.fails(0, 1);
        story.fails(0, 1);
        story.health.good(story.at(1));
        story.fails(0, 1);
        story.fails(0, 1);
        assert_eq!(story.health.standing(story.at(1)), Standing::Good);
        story.fails(0, 1);
        assert_eq!(story.left(1), Some(10));
        assert_eq!(story.health.standing(story.at(11)), Standing::Probing);
        story.health.good(story.at(11));
        assert_eq!(story.health.standing(story.at(11)), Standing::Good);
    }

    #[test]
    fn what_one_caller_may_have_caused_counts_only_after_a_while() {
        let mut story = Story::new();
        (0..50).for_each(|_| story.is_doubted("one", 0, 1));
        (1..10).for_each(|now| story.is_doubted("one", now, now));
        assert_eq!(story.left(10), None);
        story.is_doubted("one", 10, 11);
        assert_eq!(story.left(11), Some(10), "it serves nobody");
        story.is_doubted("one", 21, 21);
        assert_eq!(story.left(21), Some(20), "the probe has failed");
    }

    #[test]
    fn what_fails_for_several_callers_counts_at_once() {
        let mut story = Story::new();
        story.is_doubted("one", 0, 1);
        story.is_doubted("one", 0, 1);
        assert_eq!(story.left(1), None);
        story.is_doubted("other", 0, 1);
        assert_eq!(story.left(1), Some(10));
    }

    #[test]
    fn an_account_that_serves_others_meanwhile_is_not_at_fault() {
        let mut story = Story::new();
        for now in (100..1000).step_by(10) {
            story.health.good(story.at(now - 5));
            story.is_doubted("one", now - 90, now);
            story.is_doubted("two", now - 5, now);
        }
        assert_eq!(story.left(1000), None);
    }

    #[test]
    fn each_failed_probe_doubles_the_time_up_to_a_limit() {
        let mut story = Story::new();
        (0..3).for_each(|_| story.fails(0, 1));
        let mut now = 11;
        for expected in [20, 40, 80, 160, 300, 300] {
            story.fails(now, now);
            assert_eq!(story.left(now), Some(expected));
            now += expected;
            assert_eq!(story.left(now), None);
        }
    }

    #[test]
    fn calls_that_were_under_way_already_eject_only_once() {
        let mut story = Story::new();
        (0..8).for_each(|_| story.fails(0, 100));
        assert_eq!(story.left(100), Some(10));
    }
}
