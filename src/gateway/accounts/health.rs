//! Health, pure: an account that fails again and again is left out for a while, then tried with one call.
//!
//! Whether there is another account to use instead is for the choice to say. It carries U32 of the failure catalogue.

use std::time::Duration;

use tokio::time::Instant;

/// So many failures without a success in between (ours): fewer happen by chance.
const FAULTS: u32 = 3;
/// The first time it is left out for so long, and then twice as long as before (ours).
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// How an account has done lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Health {
    faults: u32,
    ejections: u32,
    ejected: Option<Ejected>,
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
    pub(super) fn good(&mut self) {
        *self = Self::default();
    }

    /// A call that was `granted` then has failed.
    pub(super) fn faulty(&mut self, granted: Instant, now: Instant) {
        self.faults = self.faults.saturating_add(1);
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
        story.health.good();
        story.fails(0, 1);
        story.fails(0, 1);
        assert_eq!(story.health.standing(story.at(1)), Standing::Good);
        story.fails(0, 1);
        assert_eq!(story.left(1), Some(10));
        assert_eq!(story.health.standing(story.at(11)), Standing::Probing);
        story.health.good();
        assert_eq!(story.health.standing(story.at(11)), Standing::Good);
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
