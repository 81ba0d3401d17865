//! A global allocator that counts what this thread asks of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // No destructor and no lazy initialisation, so that looking at it never allocates.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, and a count.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to `System` unchanged; counting touches no memory but a thread-local cell.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: `memory` came from `System` with this layout, as the caller vouches.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`; the caller vouches for `size`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

fn count() {
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

/// How often this thread has called the allocator: to allocate, to grow, or to free.
pub fn calls() -> u64 {
    CALLS.with(Cell::get)
}
