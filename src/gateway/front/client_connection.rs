//! One open connection: its activity, its marks, and the delivery of its last answer.
//!
//! An answer that was written to the socket may still be lost on its way. The client has received it if it sends another
//! request, or if the connection is not reset within [`DELIVERY_CHECK_MILLIS`]. A client that has left, or that closes its
//! socket without reading all, resets the connection. The job of such an answer waits for a retry. A proxy that has read
//! all of an answer hides the end of its own client.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use super::connection_activity::ConnectionActivity;
use crate::gateway::admission::DeliveryReport;

/// The time after the end of an answer for which a reset shows that it was not received, in milliseconds (our choice):
/// longer than the way of a packet and back.
const DELIVERY_CHECK_MILLIS: u64 = 1_000;

/// One connection, shared by its own task and by the tasks that evict or stop it.
#[derive(Debug)]
pub(super) struct ClientConnection {
    pub(super) id: u64,
    pub(super) address: IpAddr,
    /// True for a connection of a trusted proxy, for which no limit of an address counts.
    pub(super) is_exempt: bool,
    pub(super) activity: ConnectionActivity,
    pub(super) is_evicted: AtomicBool,
    pub(super) is_stopping: AtomicBool,
    /// True if the socket has failed.
    is_broken: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// The delivery of the last answer, and the end of its check, once the task of the connection has set it.
    delivery: Mutex<Option<(DeliveryReport, Option<u64>)>>,
}

// === impl ClientConnection ===

impl ClientConnection {
    pub(super) fn new(id: u64, address: IpAddr, is_exempt: bool, now: u64) -> Self {
        Self {
            id,
            address,
            is_exempt,
            activity: ConnectionActivity::new(now),
            is_evicted: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            waker: Mutex::default(),
            delivery: Mutex::default(),
        }
    }

    /// The address for which the connection counts; `None` if it is that of a proxy.
    pub(super) fn limited_address(&self) -> Option<IpAddr> {
        (!self.is_exempt).then_some(self.address)
    }

    /// True if the connection is marked for eviction.
    pub(super) fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Acquire)
    }

    /// True if the server is stopping.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Registers the task to be woken when the connection is marked for eviction or the server stops.
    pub(super) fn register_waker(&self, cx: &Context<'_>) {
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }

    pub(super) fn wake(&self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Records that the socket has failed: what was written last may be lost.
    pub(super) fn record_break(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Holds the report of an answer that has been given to the connection.
    pub(super) fn hold_delivery(&self, report: DeliveryReport) {
        // The report of an earlier answer is dropped after the lock is released, because it sends that the answer was lost.
        let earlier = self.delivery().replace((report, None));
        drop(earlier);
    }

    /// Reports that the last answer was delivered, if its time is over. Otherwise returns the end of that time.
    pub(super) fn check_delivery(&self, now: u64) -> Option<u64> {
        let end = self.delivery().as_mut().map(|(_, end)| *end.get_or_insert(now + DELIVERY_CHECK_MILLIS))?;
        if end > now {
            return Some(end);
        }
        self.confirm_delivery();
        None
    }

    /// True if the last answer may not have been delivered.
    pub(super) fn checks_delivery(&self) -> bool {
        self.delivery().is_some()
    }

    /// Reports that the last answer was delivered.
    pub(super) fn confirm_delivery(&self) {
        self.report_delivery(true);
    }

    /// Reports the delivery of the last answer when the connection has ended.
    pub(super) fn end_delivery(&self) {
        self.report_delivery(!self.is_broken.load(Ordering::Acquire) && !self.activity.is_blocked());
    }

    fn report_delivery(&self, is_delivered: bool) {
        let delivery = self.delivery().take();
        if let Some((report, _)) = delivery {
            report.send(is_delivered);
        }
    }

    fn delivery(&self) -> MutexGuard<'_, Option<(DeliveryReport, Option<u64>)>> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
