//! The source of the current time. In tests, time advances only if a test advances it.

use std::time::Instant;

use crate::gateway::store::Timestamp;

/// The clocks of the machine.
#[cfg(not(test))]
#[derive(Debug)]
pub(super) struct Clock;

#[cfg(not(test))]
#[expect(clippy::unused_self, reason = "the clock for tests needs `self`")]
impl Clock {
    pub(super) const fn new() -> Self {
        Self
    }

    /// Returns the wall clock time, for times that are stored.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Returns the monotonic time of this process, which changes of the clock do not affect, for the rate limits.
    pub(super) fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// A clock whose time only a test changes.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct Clock(std::sync::Mutex<(Timestamp, Instant)>);

#[cfg(test)]
impl Clock {
    pub(super) fn new() -> Self {
        // The instant is far in the future, so that a test can move it back.
        Self(std::sync::Mutex::new((Timestamp::now(), Instant::now() + std::time::Duration::from_secs(1 << 30))))
    }

    pub(super) fn now(&self) -> Timestamp {
        self.0.lock().unwrap().0
    }

    pub(super) fn instant(&self) -> Instant {
        self.0.lock().unwrap().1
    }

    pub(super) fn advance(&self, by: std::time::Duration) {
        let mut now = self.0.lock().unwrap();
        *now = (now.0 + by, now.1 + by);
    }

    pub(super) fn rewind(&self, by: std::time::Duration) {
        let mut now = self.0.lock().unwrap();
        *now = (now.0 - by, now.1 - by);
    }
}
