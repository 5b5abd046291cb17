//! Starts work that may block on a disk. Tests count disk accesses by thread, to detect those on a thread of the
//! runtime.

use tokio::runtime::Handle;

/// Starts work on a thread that may block and does not wait for its end. Without a runtime, runs the work at once.
pub(crate) fn spawn_detached(work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

/// Counts a disk access of this thread in tests. Called before each access.
pub(crate) fn note_disk_access() {
    #[cfg(test)]
    tests::COUNT.with(|count| count.set(count.get() + 1));
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    thread_local! {
        pub(super) static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    /// Returns the number of times that this thread has accessed a disk.
    pub(crate) fn disk_accesses() -> usize {
        COUNT.with(Cell::get)
    }
}
