//! The disk space for stored answers: its limit, the free space that is reserved for other data, and the eviction of
//! answers when either limit is reached. Space can be reserved before an answer is made; such space is held back from
//! all other answers until it is written or given back.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::timeout;

use super::claim_guard::STORAGE_WAIT_MAX;
use crate::gateway::admission::ByteShare;
use crate::gateway::spool::FreeSpace;

/// The assumed size of a disk block in bytes. Files count in whole blocks, so that many small files are limited too.
const BLOCK: u64 = 4096;

/// A bounded number of bytes on disk.
#[derive(Debug)]
pub(super) struct DiskBudget {
    max: u64,
    used: AtomicU64,
    /// The part of `used` that was reserved ahead and is not written yet: the free space of the disk still has it.
    unwritten: AtomicU64,
    /// Held while space is reserved ahead, so that two reservations never count the same free space.
    ahead_lock: Mutex<()>,
}

/// A collection of files that can evict some of them to make space for a new file.
pub(super) trait EvictableStorage: Send + Sync {
    /// Returns the disk budget of the files.
    fn budget(&self) -> &Arc<DiskBudget>;

    /// Returns the free space of the file system.
    fn free(&self) -> &FreeSpace;

    /// Evicts one file. Returns false if none can be evicted.
    fn evict(&self) -> bool;
}

/// Reserved bytes, which are released when this is dropped.
#[derive(Debug)]
pub(super) struct DiskReservation {
    budget: Arc<DiskBudget>,
    bytes: u64,
}

/// Space that is reserved for an answer before the answer is made. The part that is not written is released on drop.
#[derive(Debug)]
pub(crate) struct AnswerSpace {
    reservation: DiskReservation,
    /// The part of the disk that the user and the key may hold.
    _share: ByteShare,
}

/// Returns the bytes of the blocks that a file of this length takes.
pub(super) const fn whole_blocks(length: u64) -> u64 {
    length.div_ceil(BLOCK) * BLOCK
}

/// Runs work for an answer in progress on a blocking thread. A stalled disk delays the answer by at most
/// [`STORAGE_WAIT_MAX`].
///
/// # Errors
///
/// Returns the error of the work, or an error if it takes too long.
pub(super) async fn run_with_timeout<T: Send + 'static>(
    free: &FreeSpace,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let result = timeout(STORAGE_WAIT_MAX, free.run_blocking(work)).await;
    result.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the disk is too slow")))
}

/// Reserves space for an answer that is not made yet. Blocks, so async code must not call it.
///
/// # Errors
///
/// Returns an error if the space would be too small even after the eviction of all finished answers.
pub(super) fn reserve_ahead(storage: &dyn EvictableStorage, bytes: u64, share: ByteShare) -> io::Result<AnswerSpace> {
    let budget = storage.budget();
    let _ahead_guard = budget.ahead_lock.lock().unwrap_or_else(PoisonError::into_inner);
    let reservation = reserve(storage, bytes)?;
    budget.unwritten.fetch_add(reservation.bytes, Ordering::AcqRel);
    Ok(AnswerSpace { reservation, _share: share })
}

/// Reserves space for bytes that are to be written. Blocks, so async code must not call it.
///
/// # Errors
///
/// Returns an error if no answer is left to evict, or if the eviction of all answers would not free enough space.
pub(super) fn reserve(storage: &dyn EvictableStorage, bytes: u64) -> io::Result<DiskReservation> {
    let budget = storage.budget();
    let unwritten = budget.unwritten.load(Ordering::Acquire);
    let missing = storage.free().missing_for_stored_answer(bytes.saturating_add(unwritten));
    let storage_full =
        || io::Error::new(io::ErrorKind::StorageFull, "the remaining disk space is not available to stored answers");
    let used_before = budget.used();
    // If the eviction of all answers would not free enough space, none is evicted. Unwritten space has no file.
    if missing > used_before.saturating_sub(unwritten) {
        return Err(storage_full());
    }
    // The budget is counted, and not the free space of the disk, which may grow only later.
    while used_before.saturating_sub(budget.used()) < missing {
        if !storage.evict() {
            return Err(storage_full());
        }
    }
    reserve_in_budget(storage, bytes)
}

/// Reserves space in the budget alone, which is enough for a file that exists already: does not check the free space of
/// the disk.
///
/// # Errors
///
/// Returns an error if no answer is left to evict.
pub(super) fn reserve_in_budget(storage: &dyn EvictableStorage, bytes: u64) -> io::Result<DiskReservation> {
    loop {
        if let Some(reservation) = storage.budget().try_reserve_blocks(bytes) {
            return Ok(reservation);
        }
        if !storage.evict() {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the space for stored answers is used up"));
        }
    }
}

// === impl DiskBudget ===

impl DiskBudget {
    pub(super) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicU64::new(0), unwritten: AtomicU64::new(0), ahead_lock: Mutex::default() })
    }

    /// Reserves whole blocks for these bytes, if they are within the limit.
    pub(super) fn try_reserve_blocks(self: &Arc<Self>, bytes: u64) -> Option<DiskReservation> {
        let bytes = whole_blocks(bytes);
        self.try_reserve(bytes).then(|| DiskReservation { budget: Arc::clone(self), bytes })
    }

    fn try_reserve(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }
}

// === impl AnswerSpace ===

impl AnswerSpace {
    /// Takes space for bytes that are about to be written; `None` if less is left.
    pub(super) fn take(&mut self, bytes: u64) -> Option<DiskReservation> {
        let bytes = whole_blocks(bytes);
        self.reservation.bytes = self.reservation.bytes.checked_sub(bytes)?;
        self.reservation.budget.unwritten.fetch_sub(bytes, Ordering::AcqRel);
        Some(DiskReservation { budget: Arc::clone(&self.reservation.budget), bytes })
    }
}

impl Drop for AnswerSpace {
    fn drop(&mut self) {
        self.reservation.budget.unwritten.fetch_sub(self.reservation.bytes, Ordering::AcqRel);
    }
}

// === impl DiskReservation ===

impl DiskReservation {
    /// Returns the reserved bytes, rounded up to whole blocks.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the bytes of another reservation to this one.
    pub(super) fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for DiskReservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::admission::RequestBudgets;

    /// Storage whose files are only their reservations.
    struct EvictableFiles(Arc<DiskBudget>, Mutex<Vec<DiskReservation>>, FreeSpace);

    fn evictable(budget: &Arc<DiskBudget>, reserved_bytes: u64) -> EvictableFiles {
        EvictableFiles(Arc::clone(budget), Mutex::default(), FreeSpace::new(std::env::temp_dir(), reserved_bytes))
    }

    impl EvictableStorage for EvictableFiles {
        fn budget(&self) -> &Arc<DiskBudget> {
            &self.0
        }

        fn free(&self) -> &FreeSpace {
            &self.2
        }

        fn evict(&self) -> bool {
            self.1.lock().unwrap().pop().is_some()
        }
    }

    #[test]
    fn files_are_evicted_as_long_as_there_are_any() {
        let budget = DiskBudget::new(3 * BLOCK);
        let files = evictable(&budget, 0);
        let mut first = reserve(&files, BLOCK).unwrap();
        first.merge(reserve(&files, 1).unwrap());
        files.1.lock().unwrap().push(first);
        assert_eq!(budget.used(), 2 * BLOCK, "sizes count in whole blocks");
        let second = reserve(&files, BLOCK + 1).unwrap();
        assert!(files.1.lock().unwrap().is_empty(), "the first file was evicted");
        assert!(reserve(&files, BLOCK + 1).is_err());
        assert_eq!(budget.used(), 2 * BLOCK);
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn space_that_is_reserved_ahead_is_held_back_until_it_is_written_or_given_back() {
        let budget = DiskBudget::new(8 * BLOCK);
        let files = evictable(&budget, 0);
        let mut space = reserve_ahead_for_test(&files, 6 * BLOCK).unwrap();
        assert!(reserve_ahead_for_test(&files, 3 * BLOCK).is_err() && reserve(&files, 3 * BLOCK).is_err());
        let written = space.take(5 * BLOCK).unwrap();
        assert!(space.take(2 * BLOCK).is_none());
        assert_eq!((budget.used(), budget.unwritten.load(Ordering::Acquire)), (6 * BLOCK, BLOCK));
        drop(space);
        assert_eq!((budget.used(), budget.unwritten.load(Ordering::Acquire)), (5 * BLOCK, 0));
        drop(written);
        assert_eq!(budget.used(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn reservations_ahead_never_count_the_same_free_space() {
        let (budget, folder) = (DiskBudget::new(u64::MAX), std::env::temp_dir());
        let available = FreeSpace::new(folder, 0).available().unwrap();
        let files = evictable(&budget, 0);
        let part = available / 16 * 5;
        let spaces: Vec<_> = (0..8).filter_map(|_| reserve_ahead_for_test(&files, part).ok()).collect();
        assert_eq!(spaces.len(), 3, "three of these parts fit on the disk");
        assert!(reserve(&files, part).is_err(), "an answer without a reservation does not get this space either");
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_evicted_if_it_would_not_free_enough_space() {
        let budget = DiskBudget::new(u64::MAX);
        let files = evictable(&budget, u64::MAX / 4);
        let reservation = reserve_in_budget(&files, BLOCK).unwrap();
        files.1.lock().unwrap().push(reservation);
        assert_eq!(reserve(&files, 1).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(files.1.lock().unwrap().len(), 1);
        // The second file has the bytes that the disk lacks: only this file is evicted.
        files.1.lock().unwrap().push(reserve_in_budget(&files, u64::MAX / 2).unwrap());
        reserve(&files, 1).unwrap();
        assert_eq!((files.1.lock().unwrap().len(), budget.used()), (1, BLOCK));
    }

    fn reserve_ahead_for_test(storage: &dyn EvictableStorage, bytes: u64) -> io::Result<AnswerSpace> {
        reserve_ahead(storage, bytes, RequestBudgets::default_for_test().answer_disk())
    }
}
