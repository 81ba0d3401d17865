//! Handles that can be validated: each is the address of a slot in a fixed table whose memory is never freed.
//!
//! ```text
//!   Free ──► Idle ◄──► Busy          Busy ──► Broken ──► Free    (a panic in the call)
//!    ▲        │
//!    └────────┘ freed                 a place is used again only after all others
//! ```
//! C code can pass anything as a handle. If the pointer lies in the table, its address and the state of its slot are
//! checked; any other pointer is never dereferenced. A freed handle is recognised until its slot is reused, which
//! happens only after all other free slots were used.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};

use crate::error::{Code, fail};

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
    item: UnsafeCell<*mut T>,
}

/// A fixed table of all handles of one kind.
#[derive(Debug)]
pub struct Table<T> {
    places: [Place<T>; PLACES],
    next: AtomicUsize,
}

// SAFETY: a place's item is touched only by the call that moved its state to BUSY, so it moves between threads but is
// never shared.
unsafe impl<T: Send> Sync for Table<T> {}

impl<T> Table<T> {
    /// Creates an empty table.
    pub const fn new() -> Self {
        let places = [const { Place { state: AtomicU32::new(FREE), item: UnsafeCell::new(ptr::null_mut()) } }; PLACES];
        Self { places, next: AtomicUsize::new(0) }
    }

    /// Stores `item` in a free slot and returns its handle. Fails if all slots are in use.
    pub fn insert(&self, item: T) -> Result<*mut Place<T>, Code> {
        let from = self.next.load(Relaxed);
        for step in 0..PLACES {
            let index = (from + step) % PLACES;
            let place = &self.places[index];
            if place.state.compare_exchange(FREE, BUSY, AcqRel, Relaxed).is_ok() {
                self.next.store(index + 1, Relaxed);
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
            return Err(refused(state));
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

    /// Frees the handle and returns its item.
    pub fn remove(&self, handle: *mut Place<T>) -> Result<Box<T>, Code> {
        let place = self.place(handle)?;
        let taken = place.state.compare_exchange(IDLE, BUSY, Acquire, Relaxed);
        taken.or_else(|_| place.state.compare_exchange(BROKEN, BUSY, Acquire, Relaxed)).map_err(refused)?;
        // SAFETY: as in `with`; the pointer is replaced, so no second box is made from it.
        let item = unsafe { Box::from_raw(ptr::replace(place.item.get(), ptr::null_mut())) };
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

#[cold]
fn refused(state: u32) -> Code {
    match state {
        FREE => fail(Code::Handle, "the handle was freed"),
        BROKEN => broken(),
        _ => fail(Code::Busy, "another call is using the handle: use one handle per thread"),
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
        assert_eq!(table.remove(handle).map(|item| *item), Ok("a".into()));
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
        assert_eq!(table.remove(handle).map(|item| *item), Ok(1));
        assert_eq!(guarded(|| -> Result<(), Code> { panic!("on purpose") }), Err(Code::Internal));
    }
}
