//! Limits the bytes of answers that wait in this process for slow callers.
//!
//! The module decides how many bytes a connection may read now, from the unwritten bytes of all answers and of this
//! one. It must not know sockets and HTTP. Rules: a frame counts from the moment it is passed on until its last copy is
//! dropped; below the budget reads are as large as their buffer; above it one answer reads and holds little, so that
//! many slow callers cost little each. An answer that waits for space always holds bytes of its own, and their drop
//! wakes it: no answer waits for others.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::error::SendProgress;

/// The bytes that all answers together hold unwritten.
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
    is_complete: AtomicBool,
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
            is_complete: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
        })
    }

    /// Returns the number of bytes that may be read now; pending until frames of this answer are dropped.
    pub(super) fn poll_read_allowance(&self, cx: &mut Context<'_>) -> Poll<usize> {
        if let Some(room) = self.read_allowance() {
            return Poll::Ready(room);
        }
        *self.lock_waker() = Some(cx.waker().clone());
        // A frame dropped between the first check and the waker above would wake no task, hence the second check.
        self.read_allowance().map_or(Poll::Pending, Poll::Ready)
    }

    fn read_allowance(&self) -> Option<usize> {
        if self.budget.unwritten() < self.budget.limit || self.is_complete.load(Ordering::Acquire) {
            return Some(usize::MAX);
        }
        let room = self.budget.small_read.saturating_sub(self.unwritten.load(Ordering::Acquire));
        // Small reads cost a system call each, so a quarter must be free.
        (room > self.budget.small_read / 4).then_some(room)
    }

    /// Notes that the answer is complete: bytes that are read from now on are no part of it, so they need no space.
    pub(super) fn mark_complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Counts a frame until it is dropped.
    pub(super) fn count_frame(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.unwritten.fetch_add(bytes.len(), Ordering::AcqRel);
        self.budget.unwritten.fetch_add(bytes.len(), Ordering::AcqRel);
        Bytes::from_owner(CountedFrame { bytes, exchange_state: Arc::clone(self) })
    }

    /// Notes that a byte was written to the upstream.
    pub(super) fn mark_written(&self) {
        self.has_written.store(true, Ordering::Release);
    }

    /// Restarts the exchange after a stale connection accepted nothing of the request.
    pub(super) fn restart(&self) {
        self.has_written.store(false, Ordering::Release);
    }

    pub(super) fn send_progress(&self) -> SendProgress {
        if self.has_written.load(Ordering::Acquire) { SendProgress::Maybe } else { SendProgress::Nothing }
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
        let waiting = self.exchange_state.lock_waker().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll_allowance(tally: &ExchangeState) -> Poll<usize> {
        tally.poll_read_allowance(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn reads_are_unlimited_below_the_budget_and_small_above_it() {
        let budget = Arc::new(BufferBudget::new(1000, 100));
        let (fast, slow) = (ExchangeState::new(&budget), ExchangeState::new(&budget));
        let held = fast.count_frame(Bytes::from(vec![0; 999]));
        assert_eq!(poll_allowance(&slow), Poll::Ready(usize::MAX));
        let one = slow.count_frame(Bytes::from_static(b"1"));
        assert_eq!(poll_allowance(&slow), Poll::Ready(99));
        assert_eq!(poll_allowance(&fast), Poll::Pending);
        drop(held);
        assert_eq!(poll_allowance(&fast), Poll::Ready(usize::MAX));
        drop(one);
        assert_eq!(budget.unwritten(), 0);
    }

    struct WakeFlag(AtomicBool);

    impl std::task::Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn whoever_waits_for_room_is_woken_by_the_drop_of_a_frame_of_its_own() {
        let tally = ExchangeState::new(&Arc::new(BufferBudget::new(0, 100)));
        let woken = Arc::new(WakeFlag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let held = tally.count_frame(Bytes::from(vec![0; 100]));
        assert_eq!(tally.poll_read_allowance(&mut Context::from_waker(&waker)), Poll::Pending);
        assert!(!woken.0.load(Ordering::Acquire));
        drop(held);
        assert!(woken.0.load(Ordering::Acquire));
        assert_eq!(tally.poll_read_allowance(&mut Context::from_waker(&waker)), Poll::Ready(100));
    }

    #[test]
    fn a_frame_counts_until_its_last_slice_is_gone() {
        let budget = Arc::new(BufferBudget::new(10, 10));
        let frame = ExchangeState::new(&budget).count_frame(Bytes::from_static(b"0123456789"));
        let slice = frame.slice(9..);
        drop(frame);
        assert_eq!(budget.unwritten(), 10);
        drop(slice);
        assert_eq!(budget.unwritten(), 0);
    }

    #[test]
    fn a_complete_answer_needs_no_room() {
        let tally = ExchangeState::new(&Arc::new(BufferBudget::new(1, 1)));
        let _held = tally.count_frame(Bytes::from_static(b"held"));
        assert_eq!(poll_allowance(&tally), Poll::Pending);
        tally.mark_complete();
        assert_eq!(poll_allowance(&tally), Poll::Ready(usize::MAX));
    }
}
