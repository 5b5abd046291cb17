//! Tests that fill the machine take turns, so that what they measure is theirs.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The memory that the gateway may have resident at most, whatever the images weigh.
pub(crate) const PEAK_BYTES: u64 = 160 * 1000 * 1000;

/// Held by one heavy test at a time. A heavy test that failed does not take the others with it.
pub(crate) fn heavy_test_lock() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
