//! Work that may wait for a disk, and a count of it by thread, so that a test sees when a thread of the runtime did
//! some.

use tokio::runtime::Handle;

/// Begins work on a thread that may wait, where there is a runtime. Nobody waits for its end.
pub(crate) fn detach(work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

/// Notes that this thread is about to ask a disk.
pub(crate) fn note() {
    #[cfg(test)]
    tests::COUNT.with(|count| count.set(count.get() + 1));
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    thread_local! {
        pub(super) static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    /// The number of times that this thread has accessed a disk.
    pub(crate) fn noted() -> usize {
        COUNT.with(Cell::get)
    }
}
