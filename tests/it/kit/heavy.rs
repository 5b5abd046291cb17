//! Tests that fill the machine take turns, so that what they measure is theirs.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by one heavy test at a time. A heavy test that failed does not take the others with it.
pub(crate) fn heavy() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
