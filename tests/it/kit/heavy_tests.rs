//! A lock for tests that load the machine and assert a time or the peak memory under that load: they run one at a time, so
//! that none distorts what another measures. A test that asserts only counts does not need it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most resident memory that the gateway may use, however large the images are.
pub(crate) const PEAK_BYTES: u64 = 160 * 1000 * 1000;

/// Held by one heavy test at a time. A heavy test that panicked does not fail the others.
pub(crate) fn heavy_test_lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
