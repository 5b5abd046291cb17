//! How much memory a thread holds at most while it does something.
#![expect(unsafe_code, reason = "an allocator that counts has to be one; it passes every call on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn taken(bytes: usize) {
    // A thread that ends has nothing left to count.
    let _ = NOW.try_with(|now| {
        now.set(now.get().saturating_add(bytes));
        MOST.with(|most| most.set(most.get().max(now.get())));
    });
}

fn given_back(bytes: usize) {
    let _ = NOW.try_with(|now| now.set(now.get().saturating_sub(bytes)));
}

// SAFETY: every call goes to the allocator of the system as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller holds what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        given_back(layout.size());
        // SAFETY: the caller holds what `dealloc` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Does something, and says how many bytes more than before were held at most.
pub(crate) fn peak<T>(action: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.with(Cell::get);
    MOST.with(|most| most.set(before));
    let result = action();
    (result, MOST.with(Cell::get).saturating_sub(before))
}
