//! The memory mapping of a pool.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::packets::{Fields, Layout, Packets};
use super::PoolMemory;
use crate::worker::BURST;

/// A private anonymous mapping with all pages touched. Only its owner has access to the bytes.
#[derive(Debug)]
pub(super) struct Area {
    // A copy of the start in `mapping`, so that the loop follows one pointer less.
    start: NonNull<u8>,
    len: usize,
    mapping: Arc<Mapping>,
}

/// The mapping itself. It is unmapped when the last reference is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: nothing in the mapping is tied to the thread that made it, and its bytes are reached through `Area` alone, of
// which there is one.
unsafe impl Send for Area {}
// SAFETY: as above; this type only knows where the mapping is, and gives out no reference to its bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Size of a huge page in bytes, on x86-64 and on arm64 with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;

impl Area {
    pub(super) fn map(len: usize, huge_pages: bool) -> io::Result<Self> {
        let (len, huge) =
            if huge_pages { (len.next_multiple_of(HUGE_PAGE), MapFlags::HUGETLB) } else { (len, MapFlags::empty()) };
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE | huge;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, len, mapping: Arc::new(Mapping { start, len }) })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) fn mapping(&self) -> Arc<Mapping> {
        Arc::clone(&self.mapping)
    }

    #[inline]
    pub(super) fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "outside the pool");
        // SAFETY: within the mapping (asserted), initialised (anonymous memory is zero), and the
        // caller holds the `Frame` of this range, so neither kernel nor another slice writes to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), len) }
    }

    #[inline]
    pub(super) fn slice_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "outside the pool");
        // SAFETY: as in `slice`, and `&mut self` excludes every other slice of this mapping.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), len) }
    }

    /// The data of the packet buffer whose header is at the offset `at`. `None` if the frame is not whole there, or if
    /// the buffer is not within the area.
    #[inline]
    pub(super) fn packet_mut(&mut self, at: usize, layout: &Layout) -> Option<&mut [u8]> {
        let Fields { header, room, buffer, state, mask, whole, len } = *layout.fields();
        let (header, room) = (header as usize, room as usize);
        let last = self.len.checked_sub(header + room)?;
        if at > last {
            return None;
        }
        // SAFETY: the header is within the mapping (checked), the fields are within the header (`Layout::new`), and any
        // bytes are a valid number. `&mut self` excludes every other access by the CPU, and a driver that handed over a
        // packet buffer does not write to it.
        let (start, address, state, len) = unsafe {
            let start = self.start.as_ptr().add(at);
            (
                start,
                start.add(buffer as usize).cast::<u64>().read_unaligned(),
                start.add(state as usize).cast::<u64>().read_unaligned(),
                usize::from(start.add(len as usize).cast::<u16>().read_unaligned()),
            )
        };
        let offset = usize::from(state as u16);
        if address != start.addr() as u64 + header as u64 || state & mask != whole || offset + len > room {
            return None;
        }
        // SAFETY: header and room are within the mapping (checked above), and the data within the room. As in
        // `slice_mut`, `&mut self` excludes every other slice of this mapping.
        Some(unsafe { std::slice::from_raw_parts_mut(start.add(header + offset), len) })
    }
}

impl Mapping {
    pub(super) fn range(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; no slice outlives the `Area`, which
        // holds this value. The kernel keeps its own
        // reference to the pages of a registered UMEM.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl Packets {
    /// Replaces the contents by the offsets that `fill` writes. It returns how many it wrote.
    ///
    /// # Safety
    ///
    /// Each offset is that of a header of a packet buffer in `memory`, or of one outside of it (the difference of the
    /// addresses, modulo 2^64). The caller got it from its driver, and gives it to nobody else.
    #[inline]
    pub unsafe fn fill(&mut self, memory: &PoolMemory, layout: Layout, fill: impl FnOnce(&mut [u64; BURST]) -> usize) {
        self.count = fill(&mut self.at).min(BURST);
        self.source = Some((memory.range().0.addr(), layout));
    }
}
