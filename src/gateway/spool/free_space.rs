//! The free space of the file system, the last part of which is reserved for the database, and the limit on the threads
//! that may block on the disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};

use super::{Spool, SpoolFilePool, blocking_io};

/// The time between two checks of the free space (our choice): the same as between two polls of the store.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The most threads that may block on the disk at once (our choice), so that threads are left for other work.
const DISK_THREADS: usize = 64;

/// The time for which the file system is not asked again while much room is left, and the number of bytes that is much
/// (our choices): other programs hardly fill the disk that fast.
const ROOM_LIFETIME: Duration = Duration::from_millis(100);
const MUCH_ROOM: u64 = 256 << 20;

/// The free space of the file system that the database shares.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    folder: PathBuf,
    /// The number of bytes that are reserved for the database.
    reserved_bytes: u64,
    threads: Arc<Semaphore>,
    /// The time at which the file system was last asked, and the number of bytes above the reserved ones, less those that
    /// were written since.
    unreserved: Mutex<Option<(Instant, u64)>>,
}

// === impl FreeSpace ===

impl FreeSpace {
    pub(crate) fn new(folder: PathBuf, reserved_bytes: u64) -> Self {
        Self { folder, reserved_bytes, threads: Arc::new(Semaphore::new(DISK_THREADS)), unreserved: Mutex::default() }
    }

    /// Returns the free space as seen from another folder of this disk. Both share the limit on blocking threads.
    pub(super) fn for_folder(&self, folder: PathBuf) -> Self {
        Self { threads: Arc::clone(&self.threads), ..Self::new(folder, self.reserved_bytes) }
    }

    /// Runs work with files on a thread that may block.
    ///
    /// # Errors
    ///
    /// Returns the error of the work, or an error if it panics.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = Arc::clone(&self.threads).acquire_owned().await.map_err(io::Error::other)?;
        // Work that has begun continues even if its caller stops waiting, and keeps its permit until it ends.
        let work = Handle::current().spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        work.await.map_err(io::Error::other)?
    }

    /// True if the reserved space stays free after `bytes` more are written, or if the free space is unknown. Asks the
    /// file system, unless much room was left a moment ago.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        let mut unreserved = self.unreserved.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked_at, known)) = unreserved.as_mut()
            && asked_at.elapsed() < ROOM_LIFETIME
            && *known >= MUCH_ROOM.saturating_add(bytes)
        {
            *known -= bytes;
            return true;
        }
        let Some(available) = self.available() else { return true };
        let left = available.checked_sub(self.reserved_bytes).and_then(|left| left.checked_sub(bytes));
        *unreserved = left.map(|left| (Instant::now(), left));
        left.is_some()
    }

    /// True if less than half of the reserved space is free. Uploads and stored answers leave all of it free, so the
    /// database or another program on the disk has used most of it. Asks the file system.
    pub(super) fn is_short(&self) -> bool {
        self.available().is_some_and(|available| available < self.reserved_bytes / 2)
    }

    /// Returns the number of bytes that must be freed before an answer of this many bytes is stored. A stored answer
    /// must leave twice the reserved space free, so that uploads have room: a disk filled by stored answers would
    /// accept no uploads for days. Asks the file system.
    pub(crate) fn missing_for_stored_answer(&self, bytes: u64) -> u64 {
        let required = self.reserved_bytes.saturating_mul(2).saturating_add(bytes);
        self.available().map_or(0, |available| required.saturating_sub(available))
    }

    /// The folder whose file system is asked.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of bytes that may still be written; `None` if the system does not report it.
    #[cfg(unix)]
    pub(crate) fn available(&self) -> Option<u64> {
        blocking_io::note_disk_access();
        let statistics = rustix::fs::statvfs(&self.folder).ok()?;
        Some(statistics.f_bavail.saturating_mul(statistics.f_frsize))
    }

    /// Returns `None`: the free space is unknown on this platform.
    #[cfg(not(unix))]
    pub(crate) fn available(&self) -> Option<u64> {
        let _ = &self.folder;
        None
    }
}

#[cfg(test)]
impl FreeSpace {
    /// Takes all threads, as if the disk had stalled.
    pub(crate) async fn stall(&self) -> tokio::sync::OwnedSemaphorePermit {
        let all = u32::try_from(DISK_THREADS).unwrap();
        Arc::clone(&self.threads).acquire_many_owned(all).await.unwrap()
    }
}

// === impl Spool ===

impl Spool {
    /// Starts to check the free space at intervals, until the last clone of the spool is dropped.
    pub(crate) fn start_space_checks(&self) {
        drop(Handle::current().spawn(check_free_space(Arc::downgrade(&self.pool))));
    }

    /// True if the last check found that records may soon have no room. Reads only a flag, not the disk.
    pub(crate) fn is_low_on_space(&self) -> bool {
        self.pool.out_of_space.load(Ordering::Relaxed)
    }
}

async fn check_free_space(pool: Weak<SpoolFilePool>) {
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        let checked_pool = Arc::clone(&pool);
        match pool.run_blocking(move || Ok(checked_pool.is_short_of_space())).await {
            Ok(is_out) => log_change(pool.out_of_space.swap(is_out, Ordering::Relaxed), is_out),
            Err(error) => tracing::error!(%error, "the check of the free disk space has failed"),
        }
    }
}

/// Logs a change once, not at each check.
fn log_change(was_out: bool, is_out: bool) {
    match (was_out, is_out) {
        (false, true) => {
            tracing::warn!("less than half of the disk space that is reserved for the database is free");
        }
        (true, false) => tracing::info!("the disk has enough free space for the database again"),
        (false, false) | (true, true) => {}
    }
}
