//! The open connections of a listener, and the eviction of unused ones for new ones.
//!
//! The accept loop never stops at a limit: otherwise a client that holds connections open without using them would keep
//! all other clients out. Instead, a new connection replaces an unused one: first by `EvictionRank`, then from the
//! address with the most connections. A connection whose request is being served is never evicted; if all are being
//! served, the new connection is refused.

mod closing;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::client_connection::ClientConnection;
use super::connection_activity::{ConnectionDeadlines, ConnectionState};
use super::listener::raise_descriptor_limit;
use crate::gateway::admission::network_of;
use crate::gateway::config::{Config, ConnectionLimits, TrustedProxies};
use crate::gateway::telemetry::{ConnectionMetrics, Metrics};

/// The number of file descriptors that the default limit reserves for each connection: its own socket, a file and an
/// upstream connection.
const DESCRIPTORS_PER_CONNECTION: u64 = 3;
/// One eviction closes at most the maximum number of connections divided by this number (our choice), and at least one
/// connection.
const EVICTION_BATCH_DIVISOR: usize = 64;
/// The number of evicted connections, in addition to one batch, that may still be open (our choice).
const EVICTED_OPEN_MAX: usize = 8;
/// The minimum time between two log lines about a shortage of connections or descriptors (our choice).
const SHORTAGE_LOG_INTERVAL: Duration = Duration::from_secs(5);
/// The longest wait of the accept loop for one evicted connection to close (our choice).
const EVICTION_TIMEOUT: Duration = Duration::from_millis(50);

/// The open connections of a listener.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    max: usize,
    max_per_address: usize,
    pub(super) deadlines: ConnectionDeadlines,
    /// Proxies carry the traffic of many callers, so the limit for one address does not apply to them.
    exempt_proxies: RwLock<TrustedProxies>,
    metrics: ConnectionMetrics,
    epoch: Instant,
    state: Mutex<ConnectionTableState>,
    /// Notified each time a connection is closed.
    close_notify: Notify,
    shortage: Mutex<ShortageCounts>,
}

#[derive(Debug, Default)]
struct ConnectionTableState {
    connections: HashMap<u64, Arc<ClientConnection>>,
    /// The number of connections of each address, without those marked for eviction.
    count_by_address: HashMap<IpAddr, usize>,
    /// The number of connections that are marked for eviction and still open.
    evicted_count: usize,
    /// The connections whose input is discarded, the oldest first. Those that were refused are not in `connections`.
    closing: Vec<Arc<ClientConnection>>,
    last_id: u64,
    is_stopping: bool,
}

/// The counts since the last log line about a shortage.
#[derive(Debug, Default)]
struct ShortageCounts {
    last_logged: Option<Instant>,
    evicted: usize,
    refused: usize,
    failed: usize,
}

/// The entry of one open connection in the table; dropping it removes the connection from the table.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connections: Arc<ConnectionTable>,
    connection: Arc<ClientConnection>,
}

// === impl ConnectionTable ===

impl ConnectionTable {
    /// The table of the main listener. `descriptors` is the number of file descriptors that the process may have open.
    pub(crate) fn new(
        limits: ConnectionLimits,
        descriptors: u64,
        exempt: &TrustedProxies,
        metrics: ConnectionMetrics,
    ) -> Arc<Self> {
        let descriptor_limit = usize::try_from(descriptors / 2).unwrap_or(usize::MAX).max(1);
        let default = usize::try_from(descriptors / DESCRIPTORS_PER_CONNECTION).unwrap_or(usize::MAX).max(1);
        let max = limits.max.unwrap_or(default);
        if max > descriptor_limit {
            tracing::warn!(
                max,
                descriptor_limit,
                descriptors,
                "`connections.max` leaves too few file descriptors: fewer connections are accepted"
            );
        }
        let max = max.min(descriptor_limit);
        let max_per_address = limits.max_per_address.unwrap_or(max.div_ceil(2)).min(max);
        tracing::debug!(max, max_per_address, descriptors, "connections are limited");
        Arc::new(Self::with_limits(max, max_per_address, ConnectionDeadlines::DEFAULT, exempt.clone(), metrics))
    }

    /// The table of the main listener, for as many connections as there can be descriptors.
    pub(crate) fn for_gateway(config: &Config, metrics: &Metrics) -> Arc<Self> {
        let counts = metrics.connections().clone();
        Self::new(config.connections, raise_descriptor_limit(), &config.trusted_proxies, counts)
    }

    pub(super) fn with_limits(
        max: usize,
        max_per_address: usize,
        deadlines: ConnectionDeadlines,
        exempt_proxies: TrustedProxies,
        metrics: ConnectionMetrics,
    ) -> Self {
        Self {
            max,
            max_per_address,
            deadlines,
            exempt_proxies: RwLock::new(exempt_proxies),
            metrics,
            epoch: Instant::now(),
            state: Mutex::default(),
            close_notify: Notify::new(),
            shortage: Mutex::default(),
        }
    }

    /// Replaces the proxies to which the limit for one address does not apply. Open connections stay as they are.
    pub(crate) fn set_exempt_proxies(&self, proxies: &TrustedProxies) {
        self.exempt_proxies.write().unwrap_or_else(PoisonError::into_inner).clone_from(proxies);
    }

    /// Reports the number of connections in each state to the metrics.
    pub(crate) fn report_to_metrics(&self) {
        let mut counts = ConnectionState::ALL.map(|state| (state.as_str(), 0));
        for connection in self.lock().connections.values() {
            counts[connection.activity.state().0 as usize].1 += 1;
        }
        self.metrics.set_open(&counts);
    }

    /// Milliseconds since this table was made, plus 1, so that the value is never 0.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX / 16) + 1
    }

    /// Converts a time that [`Self::now`] returned to an instant.
    pub(super) fn instant(&self, millis: u64) -> Instant {
        self.epoch + Duration::from_millis(millis.saturating_sub(1))
    }

    /// Admits a new connection; `None` if the server stops, or if a limit is reached and no connection can be evicted.
    pub(super) fn admit(self: &Arc<Self>, remote: SocketAddr) -> Option<ConnectionSlot> {
        let address = network_of(remote.ip());
        let is_exempt = self.exempt_proxies.read().unwrap_or_else(PoisonError::into_inner).trusts(remote.ip());
        let mut open = self.lock();
        let mut evicted = 0;
        let has_room = !open.is_stopping
            && (is_exempt
                || open.count_for_address(address) < self.max_per_address
                || self.evict(&mut open, Some(address), &mut evicted))
            && (open.remaining_count() < self.max || self.evict(&mut open, None, &mut evicted));
        let slot = has_room.then(|| self.insert(&mut open, address, is_exempt));
        drop(open);
        let refused = usize::from(!has_room);
        if refused > 0 {
            self.metrics.count_closed("refused");
        }
        if evicted + refused > 0 {
            self.log_shortage(ShortageCounts { evicted, refused, ..ShortageCounts::default() }, None);
        }
        slot
    }

    fn insert(self: &Arc<Self>, open: &mut ConnectionTableState, address: IpAddr, is_exempt: bool) -> ConnectionSlot {
        let slot = self.new_slot(open, address, is_exempt);
        open.connections.insert(slot.connection.id, Arc::clone(&slot.connection));
        *open.count_by_address.entry(address).or_default() += 1;
        slot
    }

    fn new_slot(self: &Arc<Self>, open: &mut ConnectionTableState, address: IpAddr, is_exempt: bool) -> ConnectionSlot {
        open.last_id += 1;
        let connection = Arc::new(ClientConnection::new(open.last_id, address, is_exempt, self.now()));
        ConnectionSlot { connections: Arc::clone(self), connection }
    }

    /// Handles an error of `accept`: evicts connections, because file descriptors may be short, and logs the error.
    pub(super) fn accept_failed(&self, error: &std::io::Error) {
        self.metrics.count_accept_error();
        let mut evicted = 0;
        self.evict(&mut self.lock(), None, &mut evicted);
        self.log_shortage(ShortageCounts { evicted, failed: 1, ..ShortageCounts::default() }, Some(error));
    }

    /// Evicts connections, because the heads of requests use all their memory. Returns false if none can be evicted.
    pub(super) fn evict_for_memory(&self) -> bool {
        let mut evicted = 0;
        self.evict(&mut self.lock(), None, &mut evicted);
        self.log_shortage(ShortageCounts { evicted, ..ShortageCounts::default() }, None);
        evicted > 0
    }

    /// Waits while too many evicted connections are still open. Returns early if none closes within
    /// [`EVICTION_TIMEOUT`].
    pub(super) async fn wait_for_evicted(&self) {
        let has_backlog = || self.lock().evicted_count > self.max / EVICTION_BATCH_DIVISOR + EVICTED_OPEN_MAX;
        while has_backlog() {
            let closed = self.close_notify.notified();
            if has_backlog() && timeout(EVICTION_TIMEOUT, closed).await.is_err() {
                return;
            }
        }
    }

    /// Stops the listener: no further connection is admitted, connections that wait for a request are closed, and
    /// connections that serve a request are closed after it. Returns after the last connection is closed.
    pub(super) async fn shut_down(&self) {
        let connections: Vec<Arc<ClientConnection>> = {
            let mut open = self.lock();
            open.is_stopping = true;
            open.connections.values().cloned().collect()
        };
        for connection in connections {
            connection.is_stopping.store(true, Ordering::Release);
            connection.wake();
        }
        loop {
            let closed = self.close_notify.notified();
            if self.lock().connections.is_empty() {
                return;
            }
            closed.await;
        }
    }

    /// Marks the connections that are first in rank for eviction, and adds their number to `evicted`; `false` if none
    /// can be evicted. `only_address` restricts the choice to the connections of one address.
    fn evict(&self, open: &mut ConnectionTableState, only_address: Option<IpAddr>, evicted: &mut usize) -> bool {
        let now = self.now();
        let candidates = open.connections.values().filter(|connection| {
            !connection.is_evicted.load(Ordering::Relaxed)
                && only_address.is_none_or(|address| connection.address == address)
        });
        let mut candidates: Vec<_> = candidates
            .filter_map(|connection| {
                let (rank, since) = connection.activity.eviction_rank(now)?;
                let connections_of_address =
                    if connection.is_exempt { 0 } else { open.count_for_address(connection.address) };
                Some((rank, Reverse(connections_of_address), since, connection.id))
            })
            .collect();
        candidates.sort_unstable();
        let Some(&(first_rank, ..)) = candidates.first() else { return false };
        let batch = (self.max / EVICTION_BATCH_DIVISOR).max(1);
        let victims: Vec<u64> = candidates
            .into_iter()
            .take_while(|(rank, ..)| *rank == first_rank)
            .map(|(.., id)| id)
            .take(if first_rank.is_batched() { batch } else { 1 })
            .collect();
        for id in &victims {
            open.mark_evicted(*id);
        }
        *evicted += victims.len();
        true
    }

    /// Adds to the counts, and logs them at most once per [`SHORTAGE_LOG_INTERVAL`].
    fn log_shortage(&self, added: ShortageCounts, error: Option<&std::io::Error>) {
        let mut shortage = self.shortage.lock().unwrap_or_else(PoisonError::into_inner);
        shortage.evicted += added.evicted;
        shortage.refused += added.refused;
        shortage.failed += added.failed;
        if shortage.last_logged.is_some_and(|logged| logged.elapsed() < SHORTAGE_LOG_INTERVAL) {
            return;
        }
        let ShortageCounts { evicted, refused, failed, .. } = *shortage;
        *shortage = ShortageCounts { last_logged: Some(Instant::now()), ..ShortageCounts::default() };
        drop(shortage);
        let error = error.map(tracing::field::display);
        let (max, max_per_address) = (self.max, self.max_per_address);
        tracing::warn!(
            evicted,
            refused,
            failed,
            max,
            max_per_address,
            error,
            "connections were closed or refused, or could not be accepted"
        );
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().connections.len()
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ConnectionTableState ===

impl ConnectionTableState {
    /// The number of connections of an address, without those marked for eviction.
    fn count_for_address(&self, address: IpAddr) -> usize {
        self.count_by_address.get(&address).copied().unwrap_or_default()
    }

    fn remaining_count(&self) -> usize {
        self.connections.len().saturating_sub(self.evicted_count)
    }

    fn mark_evicted(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id).cloned() else { return };
        self.evicted_count += 1;
        self.release_address(connection.address);
        connection.is_evicted.store(true, Ordering::Release);
        connection.wake();
    }

    fn release_address(&mut self, address: IpAddr) {
        if let Some(count) = self.count_by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.count_by_address.remove(&address);
            }
        }
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    pub(super) const fn connection(&self) -> &Arc<ClientConnection> {
        &self.connection
    }

    pub(super) const fn connections(&self) -> &Arc<ConnectionTable> {
        &self.connections
    }

    /// Cancels the eviction of the connection, because it has received a request in the meantime.
    pub(super) fn cancel_eviction(&self) {
        let mut open = self.connections.lock();
        self.connection.is_evicted.store(false, Ordering::Release);
        open.evicted_count -= 1;
        *open.count_by_address.entry(self.connection.address).or_default() += 1;
    }

    /// Counts the reason for which the connection is closed.
    pub(super) fn count_closed(&self, reason: &'static str) {
        self.connections.metrics.count_closed(reason);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.closing.retain(|other| other.id != self.connection.id);
        if open.connections.remove(&self.connection.id).is_some() {
            if self.connection.is_evicted.load(Ordering::Relaxed) {
                open.evicted_count -= 1;
            } else {
                open.release_address(self.connection.address);
            }
        }
        drop(open);
        self.connections.close_notify.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
