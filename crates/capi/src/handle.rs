//! Handles that can be validated: each is the address of a slot in a fixed table whose memory is never freed.
//!
//! ```text
//!   Free ──► Idle ◄──► Busy          Busy ──► Broken ──► Free    (a panic in the call)
//!    ▲        │
//!    └────────┘ freed                 of the free places, the one that was freed first is used again first
//! ```
//! C code can pass anything as a handle. If the pointer lies in the table, its address and the state of its slot are
//! checked; any other pointer is never dereferenced. A freed handle is recognised until its slot is reused, which
//! happens only after all other free slots were used.
//!
//! After fork(2), a slot that a thread of the parent was using stays Busy in the child, where that thread does not exist.
//! So each slot knows its process.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::{Code, fail};
use crate::sys::process;

/// Maximum number of handles of one kind that a process can have at the same time.
pub const PLACES: usize = 1024;

const FREE: u32 = 0;
const IDLE: u32 = 1;
const BUSY: u32 = 2;
const BROKEN: u32 = 3;

/// One slot of a [`Table`]. Its address is the handle that C code gets.
#[derive(Debug)]
pub struct Place<T> {
    state: AtomicU32,
    /// The process that created the handle.
    process: AtomicU32,
    /// When the slot was last freed, as a number that counts all freed handles of the table. 0: never.
    freed: AtomicU64,
    item: UnsafeCell<*mut T>,
}

/// A fixed table of all handles of one kind.
#[derive(Debug)]
pub struct Table<T> {
    places: [Place<T>; PLACES],
    /// Number of handles that were freed.
    freed: AtomicU64,
}

// SAFETY: a place's item is touched only by the call that moved its state to BUSY, so it moves between threads but is
// never shared.
unsafe impl<T: Send> Sync for Table<T> {}

impl<T> Table<T> {
    /// Creates an empty table.
    pub const fn new() -> Self {
        let places = [const {
            Place {
                state: AtomicU32::new(FREE),
                process: AtomicU32::new(0),
                freed: AtomicU64::new(0),
                item: UnsafeCell::new(ptr::null_mut()),
            }
        }; PLACES];
        Self { places, freed: AtomicU64::new(0) }
    }

    /// Stores `item` in a free slot and returns its handle. Fails if all slots are in use.
    pub fn insert(&self, item: T) -> Result<*mut Place<T>, Code> {
        let free = |place: &&Place<T>| place.state.load(Relaxed) == FREE;
        while let Some(place) = self.places.iter().filter(free).min_by_key(|place| place.freed.load(Relaxed)) {
            // Fails if another thread has just taken it.
            if place.state.compare_exchange(FREE, BUSY, AcqRel, Relaxed).is_ok() {
                place.process.store(process(), Relaxed);
                // SAFETY: this call set the state to BUSY, so nothing else accesses the item.
                unsafe { *place.item.get() = Box::into_raw(Box::new(item)) };
                place.state.store(IDLE, Release);
                return Ok(ptr::from_ref(place).cast_mut());
            }
        }
        Err(fail(Code::Limit, format_args!("all {PLACES} handles are in use: free some")))
    }

    /// Calls `f` with the handle's item. If `f` panics, the handle becomes unusable and can only be freed.
    #[inline]
    pub fn with<R>(&self, handle: *mut Place<T>, f: impl FnOnce(&mut T) -> Result<R, Code>) -> Result<R, Code> {
        let place = self.place(handle)?;
        if let Err(state) = place.state.compare_exchange(IDLE, BUSY, Acquire, Relaxed) {
            return Err(place.refused(state));
        }
        // SAFETY: this call set the state to BUSY, so nothing else accesses the item. It was made by `Box::into_raw`,
        // and is freed only by `remove`, which sets the state first.
        let item = unsafe { &mut **place.item.get() };
        match catch_unwind(AssertUnwindSafe(|| f(item))) {
            Ok(result) => {
                place.state.store(IDLE, Release);
                result
            }
            Err(_) => {
                place.state.store(BROKEN, Release);
                Err(broken())
            }
        }
    }

    /// Frees the handle and returns its item. `None` if a thread of the parent process was using it during fork(2): it
    /// may be half changed, so its memory stays allocated.
    pub fn remove(&self, handle: *mut Place<T>) -> Result<Option<Box<T>>, Code> {
        let place = self.place(handle)?;
        let take = |from| place.state.compare_exchange(from, BUSY, Acquire, Relaxed);
        let item = match take(IDLE).or_else(|_| take(BROKEN)) {
            // SAFETY: as in `with`; the pointer is replaced, so no second box is made from it.
            Ok(_) => Some(unsafe { Box::from_raw(ptr::replace(place.item.get(), ptr::null_mut())) }),
            Err(BUSY) if place.is_parents() => {
                place.process.store(process(), Relaxed);
                None
            }
            Err(state) => return Err(place.refused(state)),
        };
        place.freed.store(1 + self.freed.fetch_add(1, Relaxed), Relaxed);
        place.state.store(FREE, Release);
        Ok(item)
    }

    #[inline]
    fn place(&self, handle: *mut Place<T>) -> Result<&Place<T>, Code> {
        if handle.is_null() {
            return Err(fail(Code::Null, "the handle is NULL"));
        }
        let offset = handle.addr().wrapping_sub(self.places.as_ptr().addr());
        let index = offset / size_of::<Place<T>>();
        match self.places.get(index).filter(|_| offset.is_multiple_of(size_of::<Place<T>>())) {
            Some(place) => Ok(place),
            None => Err(fail(Code::Handle, format_args!("{handle:p} is not a handle of this kind"))),
        }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Place<T> {
    /// Whether another process, the parent, created the handle.
    fn is_parents(&self) -> bool {
        self.process.load(Relaxed) != process()
    }

    #[cold]
    fn refused(&self, state: u32) -> Code {
        match state {
            FREE => fail(Code::Handle, "the handle was freed"),
            BROKEN => broken(),
            _ if self.is_parents() => {
                fail(Code::Thread, "the handle belongs to the parent process: create one in each process")
            }
            _ => fail(Code::Busy, "another call is using the handle: use one handle per thread"),
        }
    }
}

#[cold]
fn broken() -> Code {
    fail(Code::Internal, "a bug in libapus broke this handle: free it, and report the message that libapus printed")
}

/// Calls `f`. If `f` panics, returns the error [`Code::Internal`] instead of unwinding.
pub fn guarded<R>(f: impl FnOnce() -> Result<R, Code>) -> Result<R, Code> {
    catch_unwind(AssertUnwindSafe(f))
        .unwrap_or_else(|_| Err(fail(Code::Internal, "a bug in libapus: please report it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_living_handle_is_followed() {
        let table = Box::new(Table::<String>::new());
        let handle = table.insert("a".into()).unwrap();
        let get = |handle| table.with(handle, |item| Ok(item.clone()));
        assert_eq!(get(handle), Ok("a".into()));
        assert_eq!(get(ptr::null_mut()), Err(Code::Null));
        for bad in [8, 1, usize::MAX, handle.addr() + 1, handle.addr().wrapping_sub(8)] {
            assert_eq!(get(ptr::without_provenance_mut(bad)), Err(Code::Handle), "{bad:x}");
        }
        // After as many other handles as there are slots, freed before this one.
        for _ in 0..PLACES {
            let other = table.insert("b".into()).unwrap();
            table.remove(other).unwrap();
        }
        assert_eq!(table.remove(handle).map(|item| *item.unwrap()), Ok("a".into()));
        assert_eq!(table.remove(handle).map(|_| ()), Err(Code::Handle), "freed twice");
        // The slot is reused only after all others.
        for _ in 1..PLACES {
            let other = table.insert("b".into()).unwrap();
            assert_ne!(other, handle);
            table.remove(other).unwrap();
            assert_eq!(get(handle), Err(Code::Handle));
        }
    }

    #[test]
    fn what_the_parent_used_during_a_fork_is_refused_and_can_be_freed() {
        let table = Box::new(Table::<u8>::new());
        let handle = table.insert(1).unwrap();
        let place = table.place(handle).unwrap();
        place.process.store(process() + 1, Relaxed);
        place.state.store(BUSY, Relaxed);
        assert_eq!(table.with(handle, |_| Ok(())), Err(Code::Thread));
        assert_eq!(table.remove(handle), Ok(None));
        assert_eq!(table.remove(handle), Err(Code::Handle));
    }

    #[test]
    fn a_full_table_says_so() {
        let table = Box::new(Table::<u8>::new());
        let all: Vec<_> = (0..PLACES).map(|_| table.insert(0).unwrap()).collect();
        assert_eq!(table.insert(0), Err(Code::Limit));
        table.remove(all[7]).unwrap();
        assert_eq!(table.insert(0), Ok(all[7]));
        all.into_iter().for_each(|handle| drop(table.remove(handle)));
    }

    #[test]
    fn a_panic_breaks_the_handle_and_a_call_within_a_call_is_refused() {
        let table = Box::new(Table::<u8>::new());
        let handle = table.insert(1).unwrap();
        let within = table.with(handle, |_| Ok((table.with(handle, |_| Ok(())), table.remove(handle).map(|_| ()))));
        assert_eq!(within, Ok((Err(Code::Busy), Err(Code::Busy))));
        assert_eq!(table.with(handle, |_| -> Result<(), Code> { panic!("on purpose") }), Err(Code::Internal));
        assert_eq!(table.with(handle, |_| Ok(())), Err(Code::Internal));
        assert_eq!(table.remove(handle).map(|item| *item.unwrap()), Ok(1));
        assert_eq!(guarded(|| -> Result<(), Code> { panic!("on purpose") }), Err(Code::Internal));
    }
}
