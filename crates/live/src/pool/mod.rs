//! The memory of the frames.
//!
//! Each worker owns one pool. All devices of the worker receive into the pool and send from it, so forwarding copies no
//! data. A [`Frame`] is the right to use one slot of the pool. It cannot be copied, so each slot has a single owner at
//! any time: the free list, a device's ring, or the worker.
//!
//! ```text
//!   slot = frame_size bytes, aligned to it
//!   ├─ XDP_PACKET_HEADROOM (256) ─┬─ arrival stamp (4) ─┬─ data, len bytes ─┬─ rest ─┤
//!   ├──────────────────── HEADROOM ─────────────────────┤
//! ```

pub mod packets;
mod sys;

use std::sync::Arc;

use units::{Instant, Monotonic};

use crate::Error;
use sys::{Area, Mapping};

/// Size in bytes of the arrival timestamp before a frame's data. With 4 bytes, the timestamp and a minimum-size frame
/// (60 bytes without its frame check sequence) share a cache line.
pub(crate) const STAMP: usize = 4;
/// Number of bytes that are kept free before a frame's data: `XDP_PACKET_HEADROOM` (include/uapi/linux/bpf.h) and the
/// arrival timestamp. The kernel puts the data of received frames at the same offset.
pub const HEADROOM: usize = 256 + STAMP;

/// Size of the largest slot, in bytes.
pub const LARGEST_SLOT: u32 = 65_536;

/// Size of a cache line in bytes, on x86-64 and most of arm64.
const CACHE_LINE: u64 = 64;
/// The first offset in a slot that is at the start of a cache line and leaves [`HEADROOM`] free.
const ALIGNED: u64 = (HEADROOM as u64).next_multiple_of(CACHE_LINE);
/// Mask of the offsets by which [`Pool::take_many`] moves the data within a slot: 0 to 15 cache lines.
const SPREAD: u64 = 15 * CACHE_LINE;

/// The right to use one slot of a [`Pool`], with the position of the data in the slot.
#[derive(Debug)]
pub struct Frame {
    addr: u64,
    len: u32,
    /// Whether [`Pool::receive`] created the frame.
    was_lent: bool,
    arrived: u64,
}

impl Frame {
    /// Length of the data in bytes.
    #[allow(clippy::len_without_is_empty)] // a frame without data does not occur
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// When the frame arrived at the port. `None` if the device does not report it.
    pub fn arrived(&self) -> Option<Instant<Monotonic>> {
        (self.arrived != 0).then(|| Instant::from_nanos(self.arrived))
    }
    /// Sets the frame's arrival time.
    pub fn set_arrived(&mut self, at: Instant<Monotonic>) {
        self.arrived = at.as_nanos();
    }
    /// Offset of the data from the start of the pool, in bytes.
    pub fn offset(&self) -> usize {
        self.addr as usize
    }
    /// Whether [`Pool::receive`] created the frame, for a device of another crate. If so, only that device has written
    /// to the rest of the slot since the slot was lent.
    pub fn was_lent(&self) -> bool {
        self.was_lent
    }
    /// Offset of the data from the start of the pool, as in AF_XDP descriptors.
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }
}

/// Size of a pool and of its slots.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Number of slots.
    pub frames: u32,
    /// Size of a slot in bytes: a power of two, at least 2048. AF_XDP uses slots above 4096 as several chunks (see
    /// [`XskContext`](crate::device::afxdp::XskContext)).
    pub frame_size: u32,
    /// Whether to map the pool with 2 MiB huge pages.
    pub huge_pages: bool,
}

/// Size in bytes of the smallest slot that has room for a frame of `longest` bytes (without frame check sequence) after
/// the headroom. The size is a power of two, and at least 2048. The slots of a [`Pool`] have at most [`LARGEST_SLOT`]
/// bytes.
pub fn slot_for(longest: u32) -> u32 {
    longest.saturating_add(HEADROOM as u32).checked_next_power_of_two().unwrap_or(1 << 31).max(2048)
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { frames: 8192, frame_size: 2048, huge_pages: false }
    }
}

/// A pool of frame slots, in one memory mapping.
#[derive(Debug)]
pub struct Pool {
    area: Area,
    frame_size: u32,
    /// Binary logarithm of `frame_size`.
    shift: u32,
    frames: u32,
    free: Vec<u64>,
    /// For each slot, the arrival timestamp that was last read from it.
    stamps: Vec<u32>,
    /// For each slot, whether [`lend`](Self::lend) or [`lend_frame`](Self::lend_frame) has lent it. A byte each: with
    /// bits, each frame of a burst would wait for the change that the frame before made to the same word.
    lent: Box<[bool]>,
}

/// The memory of a pool, for a driver that receives into it. The memory stays mapped while this value exists.
#[derive(Clone, Debug)]
pub struct PoolMemory(Arc<Mapping>);

impl PoolMemory {
    /// Start and length of the mapping. There are no gaps between the slots.
    pub fn range(&self) -> (*mut u8, usize) {
        self.0.range()
    }
}

impl Pool {
    /// Maps the memory, touches all of its pages, and puts every slot on the free list.
    pub fn new(config: PoolConfig) -> Result<Self, Error> {
        let PoolConfig { frames, frame_size, huge_pages } = config;
        if !frame_size.is_power_of_two() || !(2048..=LARGEST_SLOT).contains(&frame_size) || frames == 0 {
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
        let lent = vec![false; frames as usize].into();
        let shift = frame_size.trailing_zeros();
        Ok(Self { area, frame_size, shift, frames, free, stamps: vec![0; frames as usize], lent })
    }

    /// Takes a slot from the free list, as a frame without data. `None` if no slot is free.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        let slot = self.free.pop()?;
        Some(Frame { addr: slot + HEADROOM as u64, len: 0, was_lent: false, arrived: 0 })
    }

    /// Returns a frame's slot to the free list.
    #[inline]
    pub fn give(&mut self, frame: Frame) {
        self.give_addr(frame.addr);
    }

    /// Takes up to `n` free slots and appends a frame in each of them to `out`. Each frame has `len` bytes of data:
    /// whatever was in the slot before. Returns the number of frames: fewer than `n` if fewer slots are free, and 0 if
    /// a slot has no room for `len`.
    ///
    /// If slots have enough room, the data start at one of 16 offsets, each at the start of a cache line; the offset of a
    /// slot is fixed. With the same offset in all slots, the headers of a batch would share two of the 64 sets of a
    /// level 1 cache and evict each other (64 sets of 64 bytes: Intel SDM vol. 2, CPUID leaf 04H). DPDK spreads objects
    /// over memory channels in a similar way (Mempool Library, "Memory Alignment Constraints"). With these offsets, a
    /// macswap took 3.4 ns per frame instead of 4.5 ns (benches/memory.rs, batches of 32, 12 interleaved pairs).
    #[inline]
    pub(crate) fn take_many(&mut self, n: usize, len: u32, out: &mut Vec<Frame>) -> usize {
        if len as usize > self.longest_frame() {
            return 0;
        }
        let is_roomy = ALIGNED + SPREAD + u64::from(len) <= u64::from(self.frame_size);
        let (first, spread) = if is_roomy { (ALIGNED, SPREAD) } else { (HEADROOM as u64, 0) };
        let shift = self.shift - CACHE_LINE.trailing_zeros();
        let rest = self.free.len().saturating_sub(n);
        let taken = self.free.len() - rest;
        // The length of a drain is known, so `extend` reserves memory once and checks nothing per frame.
        out.extend(self.free.drain(rest..).map(|slot| {
            let addr = slot + first + (slot >> shift & spread);
            Frame { addr, len, was_lent: false, arrived: 0 }
        }));
        taken
    }

    /// Returns the slots of all `frames` to the free list.
    #[inline]
    pub(crate) fn give_many(&mut self, frames: &mut Vec<Frame>) {
        debug_assert!(self.free.len() + frames.len() <= self.frames as usize, "a slot was given back twice");
        let slot = !u64::from(self.frame_size - 1);
        self.free.extend(frames.drain(..).map(|frame| frame.addr & slot));
    }

    /// Returns the slot that contains the address `addr` to the free list, for devices whose rings contain addresses.
    #[inline]
    pub(crate) fn give_addr(&mut self, addr: u64) {
        debug_assert!(self.free.len() < self.frames as usize, "a slot was given back twice");
        self.free.push(addr & !u64::from(self.frame_size - 1));
    }

    /// Takes a slot from the free list and returns its address, for devices whose rings contain addresses.
    #[inline]
    pub(crate) fn take_addr(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// Creates a frame from an address and length in a device's ring. `None` if the data do not lie within one slot.
    ///
    /// The slot must come from the device's ring, and must not be on the free list.
    #[inline]
    pub(crate) fn frame_at(&self, addr: u64, len: u32) -> Option<Frame> {
        let slot_end = (addr | u64::from(self.frame_size - 1)).saturating_add(1);
        let fits = addr < self.area.len() as u64 && addr + u64::from(len) <= slot_end;
        fits.then_some(Frame { addr, len, was_lent: false, arrived: 0 })
    }

    /// Takes a slot from the free list for a device of another crate, and returns the slot's offset from the pool's
    /// start. `None` if no slot is free.
    ///
    /// The slot stays lent until [`take_back`](Self::take_back) or [`receive`](Self::receive) is called for it. Until
    /// then, nobody else can use the slot, so the device may let hardware write to it.
    #[inline]
    pub fn lend(&mut self) -> Option<usize> {
        let slot = self.free.pop()?;
        self.mark_lent(slot);
        Some(slot as usize)
    }

    /// Lends the slot of a frame to a device, for example to send the frame. Returns the offset of the data from the
    /// start of the pool.
    #[inline]
    pub fn lend_frame(&mut self, frame: Frame) -> usize {
        self.mark_lent(frame.addr);
        frame.addr as usize
    }

    /// Returns the lent slot that contains the offset `at` to the free list. Returns false, and changes nothing, if
    /// there is no such lent slot.
    #[inline]
    pub fn take_back(&mut self, at: usize) -> bool {
        let lent = self.unmark_lent(at as u64);
        if lent {
            self.give_addr(at as u64);
        }
        lent
    }

    /// Creates a frame of `len` bytes at the offset `at` in a lent slot, which is then no longer lent. Returns `None`,
    /// and changes nothing, if the slot is not lent or the data would not lie within it.
    #[inline]
    pub fn receive(&mut self, at: usize, len: u32) -> Option<Frame> {
        let frame = self.frame_at(at as u64, len)?;
        self.unmark_lent(frame.addr).then_some(Frame { was_lent: true, ..frame })
    }

    /// Creates a frame for each `(at, len)`, as [`receive`](Self::receive) does, and appends the frames to `out`. Returns
    /// for how many this was not possible.
    #[inline]
    pub fn receive_many(
        &mut self,
        packets: impl ExactSizeIterator<Item = (usize, u32)>,
        out: &mut Vec<Frame>,
    ) -> usize {
        let (before, mut refused) = (out.len(), 0);
        let Self { lent, shift, frame_size, .. } = self;
        let (shift, within) = (*shift, u64::from(*frame_size - 1));
        // The length is known, so `extend` reserves memory once and checks nothing per frame.
        out.extend(packets.map(|(at, len)| {
            let addr = at as u64;
            let fits = (addr & within) + u64::from(len) <= within + 1;
            let was_lent = fits && lent.get_mut((addr >> shift) as usize).is_some_and(std::mem::take);
            refused += usize::from(!was_lent);
            Frame { addr, len, was_lent, arrived: 0 }
        }));
        if refused > 0 {
            out.extract_if(before.., |frame| !frame.was_lent).for_each(drop);
        }
        refused
    }

    /// Lends the slots of `frames` to a device, as [`lend_frame`](Self::lend_frame) does.
    #[inline]
    pub fn lend_many(&mut self, frames: impl Iterator<Item = Frame>) {
        frames.for_each(|frame| self.mark_lent(frame.addr));
    }

    /// Number of lent slots.
    pub fn lent(&self) -> usize {
        self.lent.iter().filter(|lent| **lent).count()
    }

    /// The pool's memory, for a driver.
    pub fn memory(&self) -> PoolMemory {
        PoolMemory(self.area.mapping())
    }

    /// Whether `memory` is the memory of this pool. A device checks this, because a frame of another pool would refer
    /// to the wrong slot.
    #[inline]
    pub fn uses(&self, memory: &PoolMemory) -> bool {
        std::ptr::eq(memory.range().0, self.area.as_ptr())
    }

    #[inline]
    fn mark_lent(&mut self, addr: u64) {
        self.lent[(addr >> self.shift) as usize] = true;
    }

    #[inline]
    fn unmark_lent(&mut self, addr: u64) -> bool {
        self.lent.get_mut((addr >> self.shift) as usize).is_some_and(std::mem::take)
    }

    /// The frame's data.
    #[inline]
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        self.area.slice(frame.addr as usize, frame.len as usize)
    }

    /// The frame's data, for modification.
    #[inline]
    pub fn bytes_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        self.area.slice_mut(frame.addr as usize, frame.len as usize)
    }

    /// The arrival timestamp, which the XDP program writes just before the data. `None` if it is the same as
    /// the one last read from this slot: two frames cannot arrive in a slot at the same time, so this frame has no
    /// timestamp.
    #[inline]
    pub(crate) fn new_stamp(&mut self, frame: &Frame) -> Option<u32> {
        let start = (frame.addr as usize).checked_sub(STAMP)?;
        let stamp = u32::from_ne_bytes(self.area.slice(start, STAMP).try_into().ok()?);
        let last = self.stamps.get_mut((frame.addr >> self.shift) as usize)?;
        (std::mem::replace(last, stamp) != stamp).then_some(stamp)
    }

    /// Writes an arrival timestamp before the data, as the XDP program does.
    #[cfg(test)]
    pub(crate) fn write_stamp(&mut self, frame: &Frame, stamp: u32) {
        self.area.slice_mut(frame.addr as usize - STAMP, STAMP).copy_from_slice(&stamp.to_ne_bytes());
    }

    /// Sets the length of the frame's data. Does not clear added bytes: they keep the slot's old contents.
    ///
    /// Returns false, and changes nothing, if the slot has too little room.
    pub fn set_len(&self, frame: &mut Frame, len: usize) -> bool {
        let offset = frame.addr & u64::from(self.frame_size - 1);
        let fits = offset + len as u64 <= u64::from(self.frame_size);
        if fits {
            frame.len = len as u32;
        }
        fits
    }

    /// Maximum frame length in bytes: the size of a slot without its headroom.
    pub fn longest_frame(&self) -> usize {
        self.frame_size as usize - HEADROOM
    }
    /// Size of a slot in bytes.
    pub fn frame_size(&self) -> u32 {
        self.frame_size
    }
    /// Number of slots in the pool, whether free or in use.
    pub fn frames(&self) -> u32 {
        self.frames
    }
    /// Number of slots on the free list.
    pub fn free(&self) -> usize {
        self.free.len()
    }
    /// Start and size of the mapping, to register it with the kernel.
    pub(crate) fn area(&self) -> (*mut u8, usize) {
        (self.area.as_ptr(), self.area.len())
    }
}

#[cfg(test)]
mod tests {
    use super::packets::{HEADER_LEN, Header, Packets};
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
    fn a_lent_slot_comes_back_once_and_whole() {
        let mut pool = Pool::new(PoolConfig { frames: 70, ..PoolConfig::default() }).unwrap();
        let slots: Vec<usize> = std::iter::from_fn(|| pool.lend()).collect();
        assert_eq!((slots.len(), pool.lent(), pool.free()), (70, 70, 0));
        // If the data are not within one slot or are outside the pool, nothing changes.
        for (at, len) in [(slots[3] + 2000, 60), (70 * 2048, 1), (usize::MAX, 1)] {
            assert!(pool.receive(at, len).is_none(), "{at} {len}");
        }
        assert!(!pool.take_back(70 * 2048) && !pool.take_back(usize::MAX));
        assert_eq!(pool.lent(), 70);
        let mut frame = pool.receive(slots[69] + 300, 60).unwrap();
        assert!(pool.receive(slots[69] + 300, 60).is_none(), "one holder at a time");
        pool.bytes_mut(&mut frame).fill(9);
        assert_eq!(pool.lend_frame(frame), slots[69] + 300);
        assert_eq!((pool.lent(), pool.free()), (70, 0));
        for slot in slots {
            assert!(pool.take_back(slot + 17));
            assert!(!pool.take_back(slot), "given back twice");
        }
        assert_eq!((pool.lent(), pool.free()), (0, 70));
        let memory = pool.memory();
        assert!(pool.uses(&memory) && !Pool::new(PoolConfig::default()).unwrap().uses(&memory));
        drop(pool);
        assert_eq!(memory.range().1, 70 * 2048);
    }

    #[test]
    fn many_lent_slots_at_once_are_as_one_by_one() {
        let mut pool = Pool::new(PoolConfig { frames: 8, ..PoolConfig::default() }).unwrap();
        let slots: Vec<usize> = std::iter::from_fn(|| pool.lend()).take(6).collect();
        let mut frames = vec![pool.take().unwrap()];
        // Beyond the slot's end, twice the same slot, not lent, outside of the pool.
        let [a, b, c, ..] = slots[..] else { panic!("{slots:?}") };
        let wrong = [(c + 2000, 49), (a + 300, 60), (7 * 2048, 1), (8 * 2048, 1), (usize::MAX, u32::MAX)];
        let packets = [(a + 256, 1792), (b, 60)].into_iter().chain(wrong).chain([(c + 2000, 48)]);
        let packets: Vec<(usize, u32)> = packets.collect();
        assert_eq!(pool.receive_many(packets.into_iter(), &mut frames), 5);
        let seen: Vec<(usize, usize, bool)> = frames.iter().map(|f| (f.offset(), f.len(), f.was_lent())).collect();
        assert_eq!(seen[1..], [(a + 256, 1792, true), (b, 60, true), (c + 2000, 48, true)]);
        assert_eq!((seen[0].2, pool.lent()), (false, 3));
        pool.lend_many(frames.drain(1..3));
        assert_eq!((pool.lent(), frames.len()), (5, 2));
        assert!(pool.take_back(a) && pool.take_back(b) && !pool.take_back(c));
    }

    #[test]
    fn many_slots_at_once_are_as_one_by_one() {
        let mut pool = Pool::new(PoolConfig { frames: 8, ..PoolConfig::default() }).unwrap();
        let mut held = Vec::new();
        assert_eq!(pool.take_many(1, 1789, &mut held), 0);
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

    /// A packet buffer in a lent slot: its header is 320 bytes, its data 464 bytes after the slot's start.
    fn packet_buffer(pool: &mut Pool, change: impl FnOnce(&mut Header)) -> usize {
        let mut frame = pool.take().unwrap();
        assert!(pool.set_len(&mut frame, pool.longest_frame()));
        let (header, buffer) = (320 - HEADROOM, 320 - HEADROOM + HEADER_LEN);
        let data = pool.bytes_mut(&mut frame);
        data[buffer..buffer + 1500].fill(7);
        let start = data.as_ptr().addr() + header;
        let mut fields = Header {
            buffer: (start + HEADER_LEN) as u64,
            iova: 0,
            offset: 16,
            owners: 1,
            pieces: 1,
            port: 9,
            unread: [0; 4],
            len: 60,
        };
        change(&mut fields);
        let Header { buffer: at, iova, offset, owners, pieces, port, unread, len } = fields;
        let words = [offset, owners, pieces, port];
        let octets: Vec<u8> = [at, iova]
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .chain(words.into_iter().flat_map(u16::to_ne_bytes))
            .chain(unread.into_iter().flat_map(u32::to_ne_bytes))
            .chain(len.to_ne_bytes())
            .collect();
        data[header..header + octets.len()].copy_from_slice(&octets);
        pool.lend_frame(frame);
        start
    }

    #[test]
    fn frames_in_packet_buffers_are_handled_up_to_one_that_is_not_whole() {
        type Change = fn(&mut Header);
        let changes: [(&str, usize, Change); 11] = [
            ("whole", 3, |_| {}),
            ("without data", 3, |header| header.len = 0),
            ("two owners", 1, |header| header.owners = 2),
            ("two pieces", 1, |header| header.pieces = 2),
            ("no owner", 1, |header| header.owners = 0),
            ("in another buffer", 1, |header| header.buffer += 64),
            ("too long", 1, |header| header.len = 101),
            ("the longest", 3, |header| header.len = 100),
            ("beyond the pool", 1, |header| header.offset = u16::MAX),
            ("to the end of its buffer", 3, |header| header.offset = 1440),
            ("beyond its buffer", 1, |header| header.offset = 1441),
        ];
        for (what, expected, change) in changes {
            let mut pool = Pool::new(PoolConfig { frames: 8, ..PoolConfig::default() }).unwrap();
            let mut packets = Packets { count: 3, room: 1500, ..Packets::default() };
            packets.headers[0] = packet_buffer(&mut pool, |_| {});
            packets.headers[1] = packet_buffer(&mut pool, change);
            packets.headers[2] = packet_buffer(&mut pool, |_| {});
            let mut seen = 0;
            let count = pool.each_packet(&mut packets, 100, |data| {
                assert!(data.iter().take(60).all(|octet| *octet == 7), "{what}");
                seen += 1;
                true
            });
            assert_eq!((count, seen), (expected, expected), "{what}");
            assert_eq!(pool.each_packet(&mut packets, 100, |_| false), 0, "{what}");
        }
        // A packet buffer outside of this pool.
        let (mut pool, mut other) =
            (Pool::new(PoolConfig::default()).unwrap(), Pool::new(PoolConfig::default()).unwrap());
        let mut packets = Packets { count: 1, room: 1500, ..Packets::default() };
        packets.headers[0] = packet_buffer(&mut other, |_| {});
        assert_eq!(pool.each_packet(&mut packets, 100, |_| true), 0);
        assert_eq!(other.each_packet(&mut packets, 100, |_| true), 1);
    }

    #[test]
    fn packets_are_removed_from_the_front() {
        let mut packets = Packets { count: 3, room: 1500, ..Packets::default() };
        packets.headers[..3].copy_from_slice(&[10, 20, 30]);
        packets.remove_first(2);
        assert_eq!(packets.headers(), [30]);
        packets.remove_first(5);
        assert!(packets.is_empty());
    }

    #[test]
    fn the_smallest_slot_that_holds_a_frame() {
        for (longest, slot) in
            [(0, 2048), (1788, 2048), (1789, 4096), (3836, 4096), (9014, 16_384), (u32::MAX, 1 << 31)]
        {
            assert_eq!(slot_for(longest), slot, "{longest}");
        }
    }

    #[test]
    fn refuses_sizes_that_no_kernel_takes() {
        for frame_size in [0, 1024, 3000, 131_072] {
            assert!(Pool::new(PoolConfig { frame_size, ..PoolConfig::default() }).is_err());
        }
    }
}
