//! The memory mapping of a pool, and the packet buffers in it.
#![allow(unsafe_code)]

use std::any::TypeId;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::packets::{HEADER_LEN, Header, Packets, Source};
use super::{Pool, PoolMemory};
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

/// The fields of a [`Header`] with one owner and one piece.
const WHOLE: u32 = 0x0001_0001;

impl Packets {
    /// Replaces the contents by the addresses of headers that `fill` writes. It returns how many it wrote.
    ///
    /// # Safety
    ///
    /// Each address is that of a [`Header`] whose packet buffer the driver gave to the caller alone, and which a device of
    /// type `device` can send. If the header is in `memory`, its slot is lent to the driver, and `room` bytes of the slot
    /// follow the header.
    #[inline]
    pub unsafe fn fill(
        &mut self,
        memory: &PoolMemory,
        device: TypeId,
        room: usize,
        fill: impl FnOnce(&mut [usize; BURST]) -> usize,
    ) {
        self.count = fill(&mut self.headers).min(BURST);
        self.handled = 0;
        self.room = room;
        self.source = Some(Source { pool: memory.range().0.addr(), device });
    }

    /// Calls `send` with the addresses of all headers, to give the packet buffers back to a driver. `send` returns how many
    /// the driver took, from the first one on. These are removed.
    ///
    /// Panics unless a device of type `device` received them into `memory`, and [`Pool::each_packet`] counted all of them:
    /// then they are whole and in this memory.
    ///
    /// # Safety
    ///
    /// After the call, the addresses of the packet buffers that the driver did not take are the last ones in the slice.
    #[inline]
    #[track_caller]
    pub unsafe fn send(
        &mut self,
        memory: &PoolMemory,
        device: TypeId,
        send: impl FnOnce(&mut [usize]) -> usize,
    ) -> usize {
        assert!(
            self.source == Some(Source { pool: memory.range().0.addr(), device }),
            "packet buffers of another pool"
        );
        assert!(self.handled == self.count, "packet buffers that were not handled");
        let sent = send(&mut self.headers[..self.count]);
        self.remove_first(sent);
        sent
    }

    /// Calls `take` with the addresses of the first `count` headers, and removes them. Panics unless a device of type
    /// `device` received them into `memory`.
    ///
    /// # Safety
    ///
    /// The packet buffers then belong to the caller, who sends each of them, returns it to its driver, or takes its slot
    /// back, once.
    #[inline]
    #[track_caller]
    pub unsafe fn take<T>(
        &mut self,
        memory: &PoolMemory,
        device: TypeId,
        count: usize,
        take: impl FnOnce(&[usize]) -> T,
    ) -> T {
        assert!(
            self.source == Some(Source { pool: memory.range().0.addr(), device }),
            "packet buffers of another pool"
        );
        let count = count.min(self.count);
        let taken = take(&self.headers[..count]);
        self.remove_first(count);
        taken
    }
}

impl Pool {
    /// Calls `handle` with the data of each frame in `packets`, until it returns false. Ends before a frame that is not
    /// whole in the buffer behind its header, that is not in a slot of this pool, or that is longer than `longest` bytes.
    /// Returns the number of frames for which `handle` returned true.
    #[inline]
    pub fn each_packet(
        &mut self,
        packets: &mut Packets,
        longest: usize,
        mut handle: impl FnMut(&mut [u8]) -> bool,
    ) -> usize {
        let area = self.area.start.as_ptr();
        let (base, room) = (area.addr(), packets.room);
        let last = self.area.len.saturating_sub(HEADER_LEN + room);
        let mut count = 0;
        for address in packets.headers() {
            let at = address.wrapping_sub(base);
            if at > last {
                break;
            }
            // SAFETY: the header is within the mapping (checked), and any bytes are valid numbers. A driver handed it
            // over, so nobody writes to it (`Packets::fill`). The two 16-bit fields in one reading are adjacent.
            let (buffer, offset, owners_and_pieces, len) = unsafe {
                let header = area.add(at).cast::<Header>();
                (
                    (&raw const (*header).buffer).read_unaligned(),
                    (&raw const (*header).offset).read_unaligned(),
                    (&raw const (*header).owners).cast::<u32>().read_unaligned(),
                    (&raw const (*header).len).read_unaligned(),
                )
            };
            let (offset, len) = (usize::from(offset), usize::from(len));
            let is_whole = buffer == (address + HEADER_LEN) as u64 && owners_and_pieces == WHOLE;
            if !is_whole || len > longest || offset + len > room {
                break;
            }
            // SAFETY: within the room after the header (checked), which is in its slot (`Packets::fill`) and in the mapping
            // (checked). The slot is lent, so no frame refers to it; its driver handed the buffer over; and `&mut self`
            // excludes every other slice.
            let data = unsafe { std::slice::from_raw_parts_mut(area.add(at + HEADER_LEN + offset), len) };
            if !handle(data) {
                break;
            }
            count += 1;
        }
        packets.handled = count;
        count
    }
}
