//! Byte budgets: the bytes that arriving and running requests may hold, in all and for each API key.
//!
//! Only bytes that are held count, not the bytes that a request announces, so small requests are not refused because of
//! large ones. A request that would exceed a budget is refused; other requests keep the bytes that they hold.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gateway::config::UploadLimits;

/// The budget that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BudgetExceeded {
    /// The memory for the request bodies of one API key.
    #[error("the request bodies of this key that are still arriving use all the memory that one key may use")]
    KeyMemory,
    /// The disk space for the uploads of one API key.
    #[error("the uploads of this key use all the disk space that one key may use")]
    KeyDisk,
    /// The memory for all request bodies.
    #[error("request bodies that are still arriving use all the memory that they may use together")]
    Memory,
    /// The disk space for all uploads.
    #[error("uploads use all the disk space that they may use together")]
    Disk,
    /// The free space of the file system that is reserved for the database.
    #[error("the free disk space is reserved for the database")]
    FreeSpace,
}

/// The bytes held at this moment, and the number of refusals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpoolUsage {
    /// The bytes of request bodies in memory.
    pub(crate) memory: u64,
    /// The bytes of uploads and answers on disk.
    pub(crate) disk: u64,
    /// The number of refusals since the start.
    pub(crate) refused: u64,
}

/// All budgets of the process.
#[derive(Debug)]
pub(super) struct SpoolBudgets {
    pub(super) memory: Arc<ByteBudget>,
    pub(super) disk: Arc<ByteBudget>,
    refused: AtomicU64,
}

/// The budget of one kind of bytes.
#[derive(Debug)]
pub(super) struct ByteBudget {
    max_bytes: u64,
    max_bytes_per_key: u64,
    total_exceeded: BudgetExceeded,
    key_exceeded: BudgetExceeded,
    held: Mutex<HeldBytes>,
}

#[derive(Debug, Default)]
struct HeldBytes {
    all: u64,
    by_key: HashMap<Arc<str>, u64>,
}

/// Bytes that count against a budget until the share is dropped. Without an owner, they count but are never refused,
/// because they belong to answers that were paid for.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<ByteBudget>,
    owner: Option<Arc<str>>,
    bytes: u64,
}

// === impl SpoolBudgets ===

impl SpoolBudgets {
    pub(super) fn new(limits: &UploadLimits) -> Self {
        let budget = |max_bytes, max_bytes_per_key, total_exceeded, key_exceeded| {
            Arc::new(ByteBudget { max_bytes, max_bytes_per_key, total_exceeded, key_exceeded, held: Mutex::default() })
        };
        Self {
            memory: budget(limits.memory, limits.memory_per_key, BudgetExceeded::Memory, BudgetExceeded::KeyMemory),
            disk: budget(limits.disk, limits.disk_per_key, BudgetExceeded::Disk, BudgetExceeded::KeyDisk),
            refused: AtomicU64::new(0),
        }
    }

    pub(super) fn usage(&self) -> SpoolUsage {
        let refused = self.refused.load(Ordering::Relaxed);
        SpoolUsage { memory: self.memory.held().all, disk: self.disk.held().all, refused }
    }

    /// Counts a refusal and returns it as an I/O error.
    pub(super) fn refuse(&self, exceeded: BudgetExceeded) -> io::Error {
        self.refused.fetch_add(1, Ordering::Relaxed);
        io::Error::new(io::ErrorKind::QuotaExceeded, exceeded)
    }
}

// === impl ByteBudget ===

impl ByteBudget {
    pub(super) fn share(self: &Arc<Self>, owner: Option<Arc<str>>) -> BudgetShare {
        BudgetShare { budget: Arc::clone(self), owner, bytes: 0 }
    }

    fn held(&self) -> MutexGuard<'_, HeldBytes> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl BudgetShare ===

impl BudgetShare {
    /// Sets the total number of bytes of this share. Refuses an increase beyond the budget if the share has an owner.
    pub(super) fn set_bytes(&mut self, bytes: u64) -> Result<(), BudgetExceeded> {
        let (increase, decrease) = (bytes.saturating_sub(self.bytes), self.bytes.saturating_sub(bytes));
        let mut held = self.budget.held();
        if let Some(owner) = &self.owner {
            let held_by_key = held.by_key.get(owner).copied().unwrap_or_default();
            if increase > 0 && held_by_key.saturating_add(increase) > self.budget.max_bytes_per_key {
                return Err(self.budget.key_exceeded);
            }
            if increase > 0 && held.all.saturating_add(increase) > self.budget.max_bytes {
                return Err(self.budget.total_exceeded);
            }
            match held_by_key.saturating_add(increase).saturating_sub(decrease) {
                0 => drop(held.by_key.remove(owner)),
                new_bytes => drop(held.by_key.insert(Arc::clone(owner), new_bytes)),
            }
        }
        held.all = held.all.saturating_add(increase).saturating_sub(decrease);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        // A decrease is never refused.
        let _: Result<(), BudgetExceeded> = self.set_bytes(0);
    }
}
