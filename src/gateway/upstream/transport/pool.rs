//! Connections that wait for their next request.
//!
//! Decides: how many wait, for how long, and whether one is still good.
//! Refuses to know: how connections are made.
//! Rules: the wait is shorter than an upstream's own patience, and a connection on which anything came while it waited is
//! never used again, so that no byte of one answer is read as another (U07, U30).
//! Nothing runs on its own: the old are closed when another connection comes or goes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::origin::Origin;
use super::wire::Wire;

/// The idle connections, newest last.
pub(super) struct Pool {
    idle: Mutex<HashMap<Origin, Vec<Idle>>>,
    timeout: Duration,
    max_per_origin: usize,
}

struct Idle {
    wire: Wire,
    since: Instant,
}

// === impl Pool ===

impl Pool {
    pub(super) fn new(timeout: Duration, max_per_origin: usize) -> Self {
        Self { idle: Mutex::default(), timeout, max_per_origin }
    }

    /// The connection that was used last, if it is still good.
    pub(super) fn take(&self, origin: &Origin) -> Option<Wire> {
        // Each turn has the lock for itself alone: asking the kernel and closing happen outside.
        loop {
            let newest = self.idle().get_mut(origin)?.pop()?;
            if newest.since.elapsed() < self.timeout && newest.wire.is_quiet() {
                return Some(newest.wire);
            }
        }
    }

    pub(super) fn put(&self, origin: Origin, wire: Wire) {
        self.purge();
        let mut idle = self.idle();
        let waiting = idle.entry(origin).or_default();
        waiting.push(Idle { wire, since: Instant::now() });
        let oldest = (waiting.len() > self.max_per_origin).then(|| waiting.remove(0));
        drop(idle);
        drop(oldest);
    }

    /// Closes what has waited too long.
    pub(super) fn purge(&self) {
        let mut old = Vec::new();
        self.idle().retain(|_, waiting| {
            let fresh = waiting.partition_point(|idle| idle.since.elapsed() >= self.timeout);
            old.extend(waiting.drain(..fresh));
            !waiting.is_empty()
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.idle().values().map(Vec::len).sum()
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<Origin, Vec<Idle>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
