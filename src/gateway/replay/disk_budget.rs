//! The disk space for stored answers: its limit, the free space that is reserved for other data, and the eviction of
//! answers when either limit is reached.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::timeout;

use super::claim_guard::STORAGE_WAIT_MAX;
use crate::gateway::spool::FreeSpace;

/// The assumed size of a disk block in bytes. Files count in whole blocks, so that many small files are limited too.
const BLOCK: u64 = 4096;

/// A bounded number of bytes on disk.
#[derive(Debug)]
pub(super) struct DiskBudget {
    max: u64,
    used: AtomicU64,
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

/// True if an answer of this many bytes could be stored now, after evictions if necessary. Nothing is reserved or
/// evicted. Blocks, so async code must not call it.
pub(super) fn has_space(storage: &dyn EvictableStorage, bytes: u64) -> bool {
    storage.free().missing_for_stored_answer(bytes) <= storage.budget().used()
}

/// Reserves space for bytes that are to be written. Blocks, so async code must not call it.
///
/// # Errors
///
/// Returns an error if no answer is left to evict, or if the eviction of all answers would not free enough space.
pub(super) fn reserve(storage: &dyn EvictableStorage, bytes: u64) -> io::Result<DiskReservation> {
    let (missing, budget) = (storage.free().missing_for_stored_answer(bytes), storage.budget());
    let storage_full =
        || io::Error::new(io::ErrorKind::StorageFull, "the remaining disk space is not available to stored answers");
    let used_before = budget.used();
    // If the eviction of all answers would not free enough space, none is evicted.
    if missing > used_before {
        return Err(storage_full());
    }
    // The budget is counted, and not the free space of the disk, which may grow only later.
    while used_before.saturating_sub(budget.used()) < missing {
        if !storage.evict() {
            return Err(storage_full());
        }
    }
    reserve_written(storage, bytes)
}

/// Reserves space in the budget, as for a file that exists already: does not check the free space of the disk.
///
/// # Errors
///
/// Returns an error if no answer is left to evict.
pub(super) fn reserve_written(storage: &dyn EvictableStorage, bytes: u64) -> io::Result<DiskReservation> {
    let (budget, bytes) = (storage.budget(), whole_blocks(bytes));
    while !budget.try_reserve(bytes) {
        if !storage.evict() {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the space for stored answers is used up"));
        }
    }
    Ok(DiskReservation { budget: Arc::clone(budget), bytes })
}

// === impl DiskBudget ===

impl DiskBudget {
    pub(super) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicU64::new(0) })
    }

    fn try_reserve(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
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

    /// Storage whose files are only their reservations.
    struct EvictableFiles(Arc<DiskBudget>, std::sync::Mutex<Vec<DiskReservation>>, FreeSpace);

    fn evictable(budget: &Arc<DiskBudget>, reserved_bytes: u64) -> EvictableFiles {
        EvictableFiles(
            Arc::clone(budget),
            std::sync::Mutex::default(),
            FreeSpace::new(std::env::temp_dir(), reserved_bytes),
        )
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

    #[cfg(unix)]
    #[test]
    fn nothing_is_evicted_if_it_would_not_free_enough_space() {
        let budget = DiskBudget::new(u64::MAX);
        let files = evictable(&budget, u64::MAX / 4);
        let reservation = reserve_written(&files, BLOCK).unwrap();
        files.1.lock().unwrap().push(reservation);
        assert_eq!(reserve(&files, 1).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(files.1.lock().unwrap().len(), 1);
        // The second file has the bytes that the disk lacks: only this file is evicted.
        files.1.lock().unwrap().push(reserve_written(&files, u64::MAX / 2).unwrap());
        reserve(&files, 1).unwrap();
        assert_eq!((files.1.lock().unwrap().len(), budget.used()), (1, BLOCK));
    }
}
