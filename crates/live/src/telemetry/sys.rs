//! Maps or copies a worker's file.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::layout::Page;

/// The [`Page`] of a mapped file. All processes that map the file share the page. It is unmapped on drop.
#[derive(Debug)]
pub(super) struct Mapping {
    page: NonNull<Page>,
}

// SAFETY: the mapping belongs to this value alone and is not tied to the thread that made it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the file for the worker. `file` must be at least as long as a [`Page`].
    pub(super) fn writable(file: &File) -> io::Result<Self> {
        Self::map(file, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// Maps the file for a reader. `file` must be at least as long as a [`Page`]. A write to the page would raise
    /// SIGSEGV.
    pub(super) fn read_only(file: &File) -> io::Result<Self> {
        Self::map(file, ProtFlags::READ, MapFlags::SHARED)
    }

    fn map(file: &File, protection: ProtFlags, flags: MapFlags) -> io::Result<Self> {
        if file.metadata()?.len() < size_of::<Page>() as u64 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "shorter than a worker's page"));
        }
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), size_of::<Page>(), protection, flags, file, 0)? };
        let page = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { page })
    }

    #[inline]
    pub(super) fn page(&self) -> &Page {
        // SAFETY: mapped with the size of a `Page`, page-aligned, until `self` is dropped. A `Page`
        // consists of atomics only: every content is valid, and writes by other processes are no
        // data races. Readers only do relaxed 8-byte loads, which std::sync::atomic ("Atomic
        // accesses to read-only memory") allows on read-only memory. Nobody shortens such a file:
        // the worker creates it under another name at its full length, and only ever unlinks it.
        unsafe { self.page.as_ref() }
    }
}

/// Copies the current contents of a file that is not safe to map: if its owner truncates the file, a process that has
/// mapped it is killed by SIGBUS. Bytes missing from the file are 0.
pub(super) fn copied(file: &File) -> Box<Page> {
    use std::os::unix::fs::FileExt as _;
    let mut octets = vec![0; size_of::<Page>()];
    let mut read = 0;
    while read < octets.len() {
        match file.read_at(&mut octets[read..], read as u64) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let mut page = Box::<Page>::new_uninit();
    // SAFETY: source and target are `size_of::<Page>()` bytes long and do not overlap. A `Page` consists of atomics
    // only, for which every content is valid, so the copy initialises it.
    unsafe {
        std::ptr::copy_nonoverlapping(octets.as_ptr(), page.as_mut_ptr().cast(), octets.len());
        page.assume_init()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped; no reference outlives `self`.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), size_of::<Page>()) };
    }
}
