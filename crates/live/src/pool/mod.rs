//! The memory that frames lie in.
//!
//! One worker owns one pool, and all its devices receive into it and send from it: that is why
//! forwarding copies nothing. A [`Frame`] is the right to one slot; it cannot be copied, so each slot
//! has one holder at a time: the free list, a device's ring, or the worker.
//!
//! ```text
//!   slot = frame_size octets, aligned to it
//!   ├─ headroom (256, XDP_PACKET_HEADROOM) ─┬─ data, len octets ─┬─ rest ─┤
//!                        arrival stamp (4) ─┘
//! ```

mod sys;

use units::{Instant, Monotonic};

use crate::Error;
use sys::Area;

/// Octets kept free before a frame's data. Source: `XDP_PACKET_HEADROOM`, include/uapi/linux/bpf.h.
pub const HEADROOM: usize = 256;

/// Octets of a cache line, x86-64 and most of arm64.
const CACHE_LINE: u64 = 64;
/// The farthest that [`Pool::take_many`] moves the data of a slot, as a mask: 16 cache lines.
const SPREAD: u64 = 15 * CACHE_LINE;

/// The right to one slot of a [`Pool`], and where in it the data lie.
#[derive(Debug)]
pub struct Frame {
    addr: u64,
    len: u32,
    arrived: u64,
}

impl Frame {
    /// Octets of data.
    #[allow(clippy::len_without_is_empty)] // a frame without data does not occur
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// When the frame arrived at the port; `None` if the device does not say.
    pub fn arrived(&self) -> Option<Instant<Monotonic>> {
        (self.arrived != 0).then(|| Instant::from_nanos(self.arrived))
    }
    /// Notes when the frame arrived.
    pub fn set_arrived(&mut self, at: Instant<Monotonic>) {
        self.arrived = at.as_nanos();
    }
    /// Offset of the data from the pool's start, as AF_XDP descriptors have it.
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }
}

/// How much memory, in what pieces.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Slots.
    pub frames: u32,
    /// Octets a slot: a power of two from 2048 on. AF_XDP takes slots above 4096 as several chunks
    /// (see [`XskContext`](crate::device::afxdp::XskContext)).
    pub frame_size: u32,
    /// Ask for 2 MiB huge pages.
    pub huge_pages: bool,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { frames: 8192, frame_size: 2048, huge_pages: false }
    }
}

/// Slots for frames, in one mapping.
#[derive(Debug)]
pub struct Pool {
    area: Area,
    frame_size: u32,
    frames: u32,
    free: Vec<u64>,
    /// For each slot, the last arrival stamp that was read from it.
    stamps: Vec<u32>,
}

impl Pool {
    /// Maps the memory, faults it in, and puts every slot on the free list.
    pub fn new(config: PoolConfig) -> Result<Self, Error> {
        let PoolConfig { frames, frame_size, huge_pages } = config;
        if !frame_size.is_power_of_two() || !(2048..=65536).contains(&frame_size) || frames == 0 {
            return Err(Error::Invalid {
                what: format!("a pool of {frames} frames of {frame_size} bytes"),
                why: "the frame size must be a power of two from 2048 to 65536, and there must be frames".into(),
            });
        }
        let area = Area::map(frames as usize * frame_size as usize, huge_pages).map_err(|e| Error::Lacking {
            what: format!("map memory for {frames} frames of {frame_size} bytes"),
            why: e.to_string(),
            fix: if huge_pages {
                "reserve huge pages: sysctl vm.nr_hugepages=128".into()
            } else {
                "use fewer frames".into()
            },
        })?;
        let free = (0..u64::from(frames)).rev().map(|i| i * u64::from(frame_size)).collect();
        Ok(Self { area, frame_size, frames, free, stamps: vec![0; frames as usize] })
    }

    /// Takes a slot off the free list, with no data yet.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        let slot = self.free.pop()?;
        Some(Frame { addr: slot + HEADROOM as u64, len: 0, arrived: 0 })
    }

    /// Puts a frame's slot back on the free list.
    #[inline]
    pub fn give(&mut self, frame: Frame) {
        self.give_addr(frame.addr);
    }

    /// Takes up to `n` slots at once, each with `len` octets of data (what the slot held before), to the
    /// end of `out`; returns how many: fewer if fewer are free, none if a slot has no room for `len`.
    ///
    /// Where a slot has room to spare, the data start in one of 16 cache lines, always the same for a
    /// slot. At one offset in each slot the headers of a batch share two of the 64 sets of a level 1
    /// cache and push each other out (64 sets of 64 octets: Intel SDM vol. 2, CPUID leaf 04H); DPDK
    /// spreads objects likewise, over memory channels (Mempool Library, "Memory Alignment Constraints"). Spread out, a macswap
    /// took 3.4 ns a frame instead of 4.5 (benches/memory.rs, batches of 32, 12 interleaved pairs).
    #[inline]
    pub(crate) fn take_many(&mut self, n: usize, len: u32, out: &mut Vec<Frame>) -> usize {
        if len as usize > self.longest_frame() {
            return 0;
        }
        let spread = if self.longest_frame() - len as usize >= SPREAD as usize { SPREAD } else { 0 };
        let shift = self.frame_size.trailing_zeros() - CACHE_LINE.trailing_zeros();
        let rest = self.free.len().saturating_sub(n);
        let taken = self.free.len() - rest;
        // One reservation and no check a frame: the length of a drain is known.
        out.extend(self.free.drain(rest..).map(|slot| {
            let addr = slot + HEADROOM as u64 + (slot >> shift & spread);
            Frame { addr, len, arrived: 0 }
        }));
        taken
    }

    /// Puts the slots of all `frames` back on the free list.
    #[inline]
    pub(crate) fn give_many(&mut self, frames: &mut Vec<Frame>) {
        debug_assert!(self.free.len() + frames.len() <= self.frames as usize, "a slot was given back twice");
        let slot = !u64::from(self.frame_size - 1);
        self.free.extend(frames.drain(..).map(|frame| frame.addr & slot));
    }

    /// Puts the slot that `addr` lies in back on the free list: for a device whose ring names slots.
    #[inline]
    pub(crate) fn give_addr(&mut self, addr: u64) {
        debug_assert!(self.free.len() < self.frames as usize, "a slot was given back twice");
        self.free.push(addr & !u64::from(self.frame_size - 1));
    }

    /// Takes a slot off the free list as a bare address, for a device whose ring names slots.
    #[inline]
    pub(crate) fn take_addr(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// The frame that a device's ring says lies at `addr`; `None` if that is not within one slot.
    ///
    /// The caller must have had the slot out of the free list (it was in the device's ring).
    #[inline]
    pub(crate) fn frame_at(&self, addr: u64, len: u32) -> Option<Frame> {
        let slot_end = (addr & !u64::from(self.frame_size - 1)) + u64::from(self.frame_size);
        let fits = slot_end <= self.area.len() as u64 && addr + u64::from(len) <= slot_end;
        fits.then_some(Frame { addr, len, arrived: 0 })
    }

    /// The frame's data.
    #[inline]
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        self.area.slice(frame.addr as usize, frame.len as usize)
    }

    /// The frame's data, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        self.area.slice_mut(frame.addr as usize, frame.len as usize)
    }

    /// The 4 octets before the data, where the XDP program leaves the arrival stamp; `None` if they are
    /// what was read from this frame's slot before: two frames cannot arrive in one slot at the same time.
    #[inline]
    pub(crate) fn new_stamp(&mut self, frame: &Frame) -> Option<u32> {
        let start = (frame.addr as usize).checked_sub(4)?;
        let stamp = u32::from_ne_bytes(self.area.slice(start, 4).try_into().ok()?);
        let last = self.stamps.get_mut((frame.addr >> self.frame_size.trailing_zeros()) as usize)?;
        (std::mem::replace(last, stamp) != stamp).then_some(stamp)
    }

    /// Writes the same.
    #[cfg(test)]
    pub(crate) fn write_stamp(&mut self, frame: &Frame, stamp: u32) {
        self.area.slice_mut(frame.addr as usize - 4, 4).copy_from_slice(&stamp.to_ne_bytes());
    }

    /// Sets the length of the data; what is beyond the old length is as it was left.
    ///
    /// Returns whether the slot has that much room.
    pub fn set_len(&self, frame: &mut Frame, len: usize) -> bool {
        let offset = frame.addr & u64::from(self.frame_size - 1);
        let fits = offset + len as u64 <= u64::from(self.frame_size);
        if fits {
            frame.len = len as u32;
        }
        fits
    }

    /// The longest frame that fits after the headroom.
    pub fn longest_frame(&self) -> usize {
        self.frame_size as usize - HEADROOM
    }
    /// Octets a slot.
    pub fn frame_size(&self) -> u32 {
        self.frame_size
    }
    /// All slots, free or not.
    pub fn frames(&self) -> u32 {
        self.frames
    }
    /// Slots on the free list.
    pub fn free(&self) -> usize {
        self.free.len()
    }
    /// The mapping, for a kernel that is to receive into it.
    pub(crate) fn area(&self) -> (*mut u8, usize) {
        (self.area.as_ptr(), self.area.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_holder() {
        let mut pool = Pool::new(PoolConfig { frames: 2, ..PoolConfig::default() }).unwrap();
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        assert_ne!(a.addr(), b.addr());
        assert!(pool.take().is_none());
        pool.give(b);
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn data_stay_in_their_slot() {
        let mut pool = Pool::new(PoolConfig { frames: 2, ..PoolConfig::default() }).unwrap();
        let mut frame = pool.take().unwrap();
        assert!(!pool.set_len(&mut frame, 2048));
        assert!(pool.set_len(&mut frame, pool.longest_frame()));
        pool.bytes_mut(&mut frame).fill(7);
        assert!(pool.bytes(&frame).iter().all(|b| *b == 7));
        assert!(pool.frame_at(4096, 0).is_none());
        assert!(pool.frame_at(2048 + 256, 1793).is_none());
        assert!(pool.frame_at(2048 + 256, 1792).is_some());
    }

    #[test]
    fn many_slots_at_once_are_as_one_by_one() {
        let mut pool = Pool::new(PoolConfig { frames: 8, ..PoolConfig::default() }).unwrap();
        let mut held = Vec::new();
        assert_eq!(pool.take_many(1, 1793, &mut held), 0);
        assert_eq!(pool.take_many(5, 64, &mut held), 5);
        assert_eq!(pool.take_many(5, 60, &mut held), 3);
        let mut slots: Vec<u64> = held.iter().map(Frame::addr).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!((slots.len(), held[7].len(), pool.free()), (8, 60, 0));
        pool.give_many(&mut held);
        assert_eq!((pool.free(), held.len()), (8, 0));
        assert_eq!(pool.take().unwrap().addr() % 2048, HEADROOM as u64);
    }

    #[test]
    fn refuses_sizes_that_no_kernel_takes() {
        for frame_size in [0, 1024, 3000, 131_072] {
            assert!(Pool::new(PoolConfig { frame_size, ..PoolConfig::default() }).is_err());
        }
    }
}
