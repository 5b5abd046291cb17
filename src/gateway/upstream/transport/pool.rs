//! Idle connections, which wait for their next request.
//!
//! The module decides how many wait, for how long, and whether one is still usable. It must not know how connections
//! are made. Rules: a connection waits for less time than common upstreams keep it open, and one on which any byte
//! arrived while it waited is never used again, so that no byte of one answer is read as another (U07, U30). No
//! background task runs: expired connections are closed when the next connection is put back, or when they are found
//! while a connection is taken.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::origin::UpstreamOrigin;
use super::transport_stream::TransportStream;

/// The idle connections of each origin, newest last.
pub(super) struct ConnectionPool {
    idle: Mutex<HashMap<UpstreamOrigin, Vec<IdleConnection>>>,
    timeout: Duration,
    max_per_origin: usize,
}

struct IdleConnection {
    stream: TransportStream,
    since: Instant,
}

// === impl ConnectionPool ===

impl ConnectionPool {
    pub(super) fn new(timeout: Duration, max_per_origin: usize) -> Self {
        Self { idle: Mutex::default(), timeout, max_per_origin }
    }

    /// Returns the connection of the origin that was used last among those that are still usable. Closes the unusable
    /// ones that were used after it.
    pub(super) fn take(&self, origin: &UpstreamOrigin) -> Option<TransportStream> {
        // The lock is held only to remove a connection, not while it is checked or closed.
        loop {
            let newest = self.idle().get_mut(origin)?.pop()?;
            if newest.since.elapsed() < self.timeout && newest.stream.is_quiet() {
                return Some(newest.stream);
            }
        }
    }

    pub(super) fn put(&self, origin: UpstreamOrigin, stream: TransportStream) {
        self.close_expired();
        let mut idle = self.idle();
        let connections = idle.entry(origin).or_default();
        connections.push(IdleConnection { stream, since: Instant::now() });
        let oldest = (connections.len() > self.max_per_origin).then(|| connections.remove(0));
        drop(idle);
        drop(oldest);
    }

    /// Closes the connections that have waited too long.
    pub(super) fn close_expired(&self) {
        let mut expired = Vec::new();
        self.idle().retain(|_, connections| {
            let expired_count = connections.partition_point(|idle| idle.since.elapsed() >= self.timeout);
            expired.extend(connections.drain(..expired_count));
            !connections.is_empty()
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.idle().values().map(Vec::len).sum()
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<UpstreamOrigin, Vec<IdleConnection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
