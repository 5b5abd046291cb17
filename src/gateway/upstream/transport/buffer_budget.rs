//! Limits the bytes of answers that wait in this process for slow callers.
//!
//! The module decides how many bytes a connection may read now. This depends on the number of bytes that wait for
//! callers, of all answers and of the answer on this connection. It must not know sockets or HTTP. Rules: a frame
//! counts from the moment it is received until its last copy is dropped; below the budget, reads are as large as their
//! buffer; at and above it, each answer reads and holds few bytes, so that many slow callers need little memory. An
//! answer that waits for space always holds bytes of its own, and their drop wakes it: no answer waits for another.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::error::SendProgress;

/// Counts the bytes of all answers that were received and not yet written to a caller.
#[derive(Debug)]
pub(super) struct BufferBudget {
    limit: usize,
    small_read: usize,
    unwritten: AtomicUsize,
}

/// The state that the connection, body and frames of one exchange share.
#[derive(Debug)]
pub(super) struct ExchangeState {
    budget: Arc<BufferBudget>,
    unwritten: AtomicUsize,
    waker: Mutex<Option<Waker>>,
    has_written: AtomicBool,
}

/// A frame that is counted as long as it lives.
struct CountedFrame {
    bytes: Bytes,
    exchange_state: Arc<ExchangeState>,
}

// === impl BufferBudget ===

impl BufferBudget {
    pub(super) fn new(limit: usize, small_read: usize) -> Self {
        Self { limit, small_read, unwritten: AtomicUsize::new(0) }
    }

    pub(super) fn unwritten(&self) -> usize {
        self.unwritten.load(Ordering::Acquire)
    }
}

// === impl ExchangeState ===

impl ExchangeState {
    pub(super) fn new(budget: &Arc<BufferBudget>) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::clone(budget),
            unwritten: AtomicUsize::new(0),
            waker: Mutex::new(None),
            has_written: AtomicBool::new(false),
        })
    }

    /// Returns the number of bytes that may be read now. If it is too small to be worth a read, waits until frames of
    /// this answer are dropped.
    pub(super) fn poll_read_allowance(&self, cx: &mut Context<'_>) -> Poll<usize> {
        if let Some(allowance) = self.read_allowance() {
            return Poll::Ready(allowance);
        }
        *self.lock_waker() = Some(cx.waker().clone());
        // A frame dropped between the first check and the waker above would wake no task, hence the second check.
        self.read_allowance().map_or(Poll::Pending, Poll::Ready)
    }

    fn read_allowance(&self) -> Option<usize> {
        if self.budget.unwritten() < self.budget.limit {
            return Some(usize::MAX);
        }
        let allowance = self.budget.small_read.saturating_sub(self.unwritten.load(Ordering::Acquire));
        // Each read costs a system call, so more than a quarter of a small read must be free.
        (allowance > self.budget.small_read / 4).then_some(allowance)
    }

    /// Counts a frame until it is dropped.
    pub(super) fn count_frame(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.unwritten.fetch_add(bytes.len(), Ordering::AcqRel);
        self.budget.unwritten.fetch_add(bytes.len(), Ordering::AcqRel);
        Bytes::from_owner(CountedFrame { bytes, exchange_state: Arc::clone(self) })
    }

    /// Marks that a byte was written to the upstream.
    pub(super) fn mark_written(&self) {
        self.has_written.store(true, Ordering::Release);
    }

    /// Marks the request as not written, after a stale connection accepted nothing of it.
    pub(super) fn restart(&self) {
        self.has_written.store(false, Ordering::Release);
    }

    pub(super) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Acquire)
    }

    pub(super) fn send_progress(&self) -> SendProgress {
        if self.has_written() { SendProgress::Maybe } else { SendProgress::Nothing }
    }

    fn lock_waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl CountedFrame ===

impl AsRef<[u8]> for CountedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedFrame {
    fn drop(&mut self) {
        self.exchange_state.unwritten.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        self.exchange_state.budget.unwritten.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        let waker = self.exchange_state.lock_waker().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll_allowance(exchange_state: &ExchangeState) -> Poll<usize> {
        exchange_state.poll_read_allowance(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn reads_are_unlimited_below_the_budget_and_small_above_it() {
        let budget = Arc::new(BufferBudget::new(1000, 100));
        let (fast, slow) = (ExchangeState::new(&budget), ExchangeState::new(&budget));
        let fast_frame = fast.count_frame(Bytes::from(vec![0; 999]));
        assert_eq!(poll_allowance(&slow), Poll::Ready(usize::MAX));
        let slow_frame = slow.count_frame(Bytes::from_static(b"1"));
        assert_eq!(poll_allowance(&slow), Poll::Ready(99));
        assert_eq!(poll_allowance(&fast), Poll::Pending);
        drop(fast_frame);
        assert_eq!(poll_allowance(&fast), Poll::Ready(usize::MAX));
        drop(slow_frame);
        assert_eq!(budget.unwritten(), 0);
    }

    struct WakeFlag(AtomicBool);

    impl std::task::Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn a_waiting_answer_is_woken_when_its_own_frame_is_dropped() {
        let exchange_state = ExchangeState::new(&Arc::new(BufferBudget::new(0, 100)));
        let woken = Arc::new(WakeFlag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let frame = exchange_state.count_frame(Bytes::from(vec![0; 100]));
        assert_eq!(exchange_state.poll_read_allowance(&mut Context::from_waker(&waker)), Poll::Pending);
        assert!(!woken.0.load(Ordering::Acquire));
        drop(frame);
        assert!(woken.0.load(Ordering::Acquire));
        assert_eq!(exchange_state.poll_read_allowance(&mut Context::from_waker(&waker)), Poll::Ready(100));
    }

    #[test]
    fn a_frame_counts_until_its_last_slice_is_dropped() {
        let budget = Arc::new(BufferBudget::new(10, 10));
        let frame = ExchangeState::new(&budget).count_frame(Bytes::from_static(b"0123456789"));
        let slice = frame.slice(9..);
        drop(frame);
        assert_eq!(budget.unwritten(), 10);
        drop(slice);
        assert_eq!(budget.unwritten(), 0);
    }
}
