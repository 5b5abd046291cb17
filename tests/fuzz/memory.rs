//! Measures the peak of the memory that a thread allocates during an action.
#![expect(
    unsafe_code,
    reason = "implementing a counting allocator is unsafe; it forwards every call to the system allocator"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn add(bytes: usize) {
    // While a thread ends, its counters may be gone already.
    let _ = CURRENT.try_with(|current| {
        current.set(current.get().saturating_add(bytes));
        PEAK.with(|peak| peak.set(peak.get().max(current.get())));
    });
}

fn subtract(bytes: usize) {
    let _ = CURRENT.try_with(|current| current.set(current.get().saturating_sub(bytes)));
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller meets the requirements of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: the caller meets the requirements of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs the action, and returns its result and the peak of the bytes allocated beyond those allocated before.
pub(crate) fn peak<T>(action: impl FnOnce() -> T) -> (T, usize) {
    let before = CURRENT.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = action();
    (result, PEAK.with(Cell::get).saturating_sub(before))
}
