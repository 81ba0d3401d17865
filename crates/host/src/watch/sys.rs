//! The counters of the program `watch.bpf.c`, mapped into this process, so that reading them takes no system call.
#![allow(unsafe_code)]

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// An array map of 64-bit numbers that the program writes.
pub(super) struct Mapped {
    at: NonNull<AtomicU64>,
    numbers: NonZeroUsize,
}

// SAFETY: Only this value owns the mapping, which is only read, atomically.
unsafe impl Send for Mapped {}
// SAFETY: As for Send.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the first `numbers` values of an array map that was created with `BPF_F_MMAPABLE` into memory. The kernel
    /// rejects a mapping that is larger than the map's size rounded up to a whole page.
    pub(super) fn new(map: &impl AsFd, numbers: NonZeroUsize) -> io::Result<Self> {
        let length = numbers.get() * size_of::<u64>();
        // SAFETY: A new mapping, at an address that the kernel chooses.
        let at = unsafe { mmap(null_mut(), length, ProtFlags::READ, MapFlags::SHARED, map, 0) }?;
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap returned a null pointer"))?;
        Ok(Self { at, numbers })
    }

    /// Copies the numbers from `first` on. Panics if they are not mapped.
    pub(super) fn read<const N: usize>(&self, first: usize) -> [u64; N] {
        assert!(first.checked_add(N).is_some_and(|end| end <= self.numbers.get()), "{N} numbers from {first} on");
        std::array::from_fn(|n| {
            // SAFETY: The number is mapped (above), aligned (a page is), and lives as long as `self`. The program adds
            // to it atomically.
            unsafe { self.at.add(first + n).as_ref() }.load(Ordering::Relaxed)
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: Mapped by `new` with this length; no reference outlives `self`.
        let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.numbers.get() * size_of::<u64>()) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Makes a socket queue the errors that ICMP reports (`IP_RECVERR`, ip(7)).
#[cfg(test)]
pub(super) fn queue_errors(socket: &impl std::os::fd::AsRawFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = size_of_val(&on) as libc::socklen_t;
    // SAFETY: `on` has `length` bytes and lives through the call, which only reads it.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, (&raw const on).cast(), length)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
