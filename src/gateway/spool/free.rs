//! The free space of the file system, the last of which belongs to the database.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval};

use super::{Pool, Spool, waits};

/// The time between two looks at the free space (ours): as often as the store is polled.
const EVERY: Duration = Duration::from_millis(500);
/// The free space of the file system that the database shares.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    folder: PathBuf,
    /// So many bytes belong to the database.
    floor: u64,
}

// === impl FreeSpace ===

impl FreeSpace {
    pub(crate) const fn new(folder: PathBuf, floor: u64) -> Self {
        Self { folder, floor }
    }

    /// True if writing `bytes` more leaves the database its part. Asks the file system.
    pub(crate) fn leaves(&self, bytes: u64) -> bool {
        self.available().is_none_or(|available| available >= self.floor.saturating_add(bytes))
    }

    /// True if less than half of the database's part is free. Uploads and kept answers end above it, so the database, or
    /// something else on the disk, has taken it: no caller can bring that about. Asks the file system.
    pub(super) fn is_short(&self) -> bool {
        self.available().is_some_and(|available| available < self.floor / 2)
    }

    /// The bytes that are missing for an answer that is kept: it leaves twice the floor, so that uploads have room. A disk
    /// filled by kept answers would take no uploads for days. Asks the file system.
    pub(crate) fn missing_for_kept(&self, bytes: u64) -> u64 {
        let least = self.floor.saturating_mul(2).saturating_add(bytes);
        self.available().map_or(0, |available| least.saturating_sub(available))
    }

    /// The folder whose file system is asked.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes that may still be written; nothing where the system does not say.
    #[cfg(unix)]
    fn available(&self) -> Option<u64> {
        waits::note();
        let found = rustix::fs::statvfs(&self.folder).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Nobody is asked here.
    #[cfg(not(unix))]
    fn available(&self) -> Option<u64> {
        let _ = &self.folder;
        None
    }
}

// === impl Spool ===

impl Spool {
    /// Begins to look at the free space, until the last one who holds the spool is gone.
    pub(crate) fn watch(&self) {
        drop(Handle::current().spawn(look_after(Arc::downgrade(&self.pool))));
    }

    /// True if the last look at the disk found that records may soon have no room. No disk is asked for this.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.pool.out_of_space.load(Ordering::Relaxed)
    }
}

async fn look_after(pool: Weak<Pool>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        let looking = Arc::clone(&pool);
        match pool.off_worker(move || Ok(looking.is_short_of_space())).await {
            Ok(is_out) => tell(pool.out_of_space.swap(is_out, Ordering::Relaxed), is_out),
            Err(error) => tracing::error!(%error, "a look at the free space ended in the middle"),
        }
    }
}

/// Logs a change once, not at each look.
fn tell(was_out: bool, is_out: bool) {
    match (was_out, is_out) {
        (false, true) => {
            tracing::warn!("less than half of the disk space that belongs to the database is free");
        }
        (true, false) => tracing::info!("the disk has room for the database again"),
        (false, false) | (true, true) => {}
    }
}
