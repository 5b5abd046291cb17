//! The connections whose last request is answered and whose input is discarded. Their number is limited, and each address
//! has a share of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::{ConnectionSlot, ConnectionTable, ConnectionTableState};
use crate::gateway::admission::network_of;

/// The maximum number of connections whose input is discarded (our choice). Each of them takes a socket and the time to
/// read what comes.
const CLOSING_CONNECTIONS_MAX: usize = 256;
/// The connections whose input is discarded are at most the maximum number of connections divided by this number (our
/// choice).
const CLOSING_DIVISOR: usize = 8;
/// Those of one address are at most that number divided by this one (our choice).
const CLOSING_ADDRESS_DIVISOR: usize = 4;

// === impl ConnectionTable ===

impl ConnectionTable {
    /// Returns a slot for a connection that [`Self::admit`] has not admitted, for the time in which its refusal is sent.
    pub(in crate::gateway::front) fn slot_for_refusal(self: &Arc<Self>, remote: SocketAddr) -> ConnectionSlot {
        let is_exempt = self.exempt_proxies.read().unwrap_or_else(PoisonError::into_inner).trusts(remote.ip());
        let slot = self.new_slot(&mut self.lock(), network_of(remote.ip()), is_exempt);
        slot.begin_closing();
        slot
    }
}

// === impl ConnectionTableState ===

impl ConnectionTableState {
    /// Evicts the oldest connection whose input is discarded, if one more from this address would exceed a maximum: the
    /// oldest of this address, or else of the address that has most of them.
    fn evict_closing(&mut self, address: Option<IpAddr>, max: usize) {
        let count = |address: IpAddr| self.closing.iter().filter(|other| other.address == address).count();
        let max_per_address = max.div_ceil(CLOSING_ADDRESS_DIVISOR);
        let full_address = address.filter(|address| count(*address) >= max_per_address);
        let address = match full_address {
            None if self.closing.len() < max => return,
            None => self.closing.iter().map(|other| other.address).max_by_key(|address| count(*address)),
            full_address => full_address,
        };
        let Some(index) = self.closing.iter().position(|other| Some(other.address) == address) else { return };
        let oldest = self.closing.remove(index);
        if self.connections.contains_key(&oldest.id) {
            if !oldest.is_evicted() {
                self.mark_evicted(oldest.id);
            }
        } else {
            // A refused connection is not in the table, so its eviction changes no count.
            oldest.is_evicted.store(true, Ordering::Release);
            oldest.wake();
        }
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// Counts the connection among those whose input is discarded. If there are too many of them, the oldest one is closed.
    pub(in crate::gateway::front) fn begin_closing(&self) {
        let mut open = self.connections.lock();
        let max = (self.connections.max / CLOSING_DIVISOR).clamp(1, CLOSING_CONNECTIONS_MAX);
        open.evict_closing(self.connection.limited_address(), max);
        open.closing.push(Arc::clone(&self.connection));
    }
}
