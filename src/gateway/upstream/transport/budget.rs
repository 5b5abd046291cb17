//! How much of the answers may wait in this process for slow callers.
//!
//! Decides: how many bytes a connection may read now, from what all answers and this one hold unwritten.
//! Refuses to know: sockets and HTTP.
//! Rules: a frame counts from the moment it is handed on until its last copy is dropped; below the budget reads are
//! as large as their buffer, above it one answer reads and holds little, so that many slow callers cost little each.
//! An answer that waits for room always holds bytes of its own, and the drop of those wakes it: nobody waits for others.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::error::Sent;

/// The bytes that all answers together hold unwritten.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    small_read: usize,
    unwritten: AtomicUsize,
}

/// What one exchange's connection, body and frames share.
#[derive(Debug)]
pub(super) struct Tally {
    budget: Arc<Budget>,
    unwritten: AtomicUsize,
    waiting: Mutex<Option<Waker>>,
    complete: AtomicBool,
    wrote: AtomicBool,
}

/// A frame that is counted as long as it lives.
struct Counted {
    bytes: Bytes,
    tally: Arc<Tally>,
}

// === impl Budget ===

impl Budget {
    pub(super) fn new(limit: usize, small_read: usize) -> Self {
        Self { limit, small_read, unwritten: AtomicUsize::new(0) }
    }

    pub(super) fn unwritten(&self) -> usize {
        self.unwritten.load(Ordering::Acquire)
    }
}

// === impl Tally ===

impl Tally {
    pub(super) fn new(budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::clone(budget),
            unwritten: AtomicUsize::new(0),
            waiting: Mutex::new(None),
            complete: AtomicBool::new(false),
            wrote: AtomicBool::new(false),
        })
    }

    /// How many bytes may be read now; pending until frames of this answer are dropped.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        if let Some(room) = self.room() {
            return Poll::Ready(room);
        }
        *self.waiting() = Some(cx.waker().clone());
        // A frame dropped between the first look and the waker above would wake nobody, hence the second look.
        self.room().map_or(Poll::Pending, Poll::Ready)
    }

    fn room(&self) -> Option<usize> {
        if self.budget.unwritten() < self.budget.limit || self.complete.load(Ordering::Acquire) {
            return Some(usize::MAX);
        }
        let room = self.budget.small_read.saturating_sub(self.unwritten.load(Ordering::Acquire));
        // Crumbs would cost a system call each, so a quarter must be free.
        (room > self.budget.small_read / 4).then_some(room)
    }

    /// The answer is whole: what is read from now on is no part of it, so it needs no room.
    pub(super) fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Counts a frame until it is dropped.
    pub(super) fn count(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        self.unwritten.fetch_add(bytes.len(), Ordering::AcqRel);
        self.budget.unwritten.fetch_add(bytes.len(), Ordering::AcqRel);
        Bytes::from_owner(Counted { bytes, tally: Arc::clone(self) })
    }

    /// A byte has left for the upstream.
    pub(super) fn wrote(&self) {
        self.wrote.store(true, Ordering::Release);
    }

    /// The connection was a stale one and took nothing of the request; the next one starts afresh.
    pub(super) fn restart(&self) {
        self.wrote.store(false, Ordering::Release);
    }

    pub(super) fn sent(&self) -> Sent {
        if self.wrote.load(Ordering::Acquire) { Sent::Maybe } else { Sent::Nothing }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Counted ===

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.tally.unwritten.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        self.tally.budget.unwritten.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        let waiting = self.tally.waiting().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(tally: &Tally) -> Poll<usize> {
        tally.poll_room(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn reads_are_unlimited_below_the_budget_and_small_above_it() {
        let budget = Arc::new(Budget::new(1000, 100));
        let (fast, slow) = (Tally::new(&budget), Tally::new(&budget));
        let held = fast.count(Bytes::from(vec![0; 999]));
        assert_eq!(look(&slow), Poll::Ready(usize::MAX));
        let one = slow.count(Bytes::from_static(b"1"));
        assert_eq!(look(&slow), Poll::Ready(99));
        assert_eq!(look(&fast), Poll::Pending);
        drop(held);
        assert_eq!(look(&fast), Poll::Ready(usize::MAX));
        drop(one);
        assert_eq!(budget.unwritten(), 0);
    }

    struct Woken(AtomicBool);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn whoever_waits_for_room_is_woken_by_the_drop_of_a_frame_of_its_own() {
        let tally = Tally::new(&Arc::new(Budget::new(0, 100)));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let held = tally.count(Bytes::from(vec![0; 100]));
        assert_eq!(tally.poll_room(&mut Context::from_waker(&waker)), Poll::Pending);
        assert!(!woken.0.load(Ordering::Acquire));
        drop(held);
        assert!(woken.0.load(Ordering::Acquire));
        assert_eq!(tally.poll_room(&mut Context::from_waker(&waker)), Poll::Ready(100));
    }

    #[test]
    fn a_frame_counts_until_its_last_slice_is_gone() {
        let budget = Arc::new(Budget::new(10, 10));
        let frame = Tally::new(&budget).count(Bytes::from_static(b"0123456789"));
        let slice = frame.slice(9..);
        drop(frame);
        assert_eq!(budget.unwritten(), 10);
        drop(slice);
        assert_eq!(budget.unwritten(), 0);
    }

    #[test]
    fn a_complete_answer_needs_no_room() {
        let tally = Tally::new(&Arc::new(Budget::new(1, 1)));
        let _held = tally.count(Bytes::from_static(b"held"));
        assert_eq!(look(&tally), Poll::Pending);
        tally.complete();
        assert_eq!(look(&tally), Poll::Ready(usize::MAX));
    }
}
