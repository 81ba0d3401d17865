//! Frames that stay in the packet buffers of a driver.
//!
//! A driver of another crate can keep a description of its own in each slot: a header before the data, as DPDK does
//! with its mbufs. A worker that sends a whole batch of such frames on to one port need not make a [`Frame`] of each,
//! and a packet buffer of each frame: it reads the headers, and lets the driver send the same buffers.
//!
//! ```text
//!   slot
//!   ├─ ... ─┬─ header ──────────────────────────┬─ offset ─┬─ data, len bytes ─┬─ rest ─┤
//!           │ buffer's address, state+offset, len │←──────────── room ──────────────────→│
//!           at
//! ```
//!
//! [`Frame`]: super::Frame

use super::PoolMemory;
use crate::worker::BURST;

/// Where the header of a driver's packet buffer describes the frame, in bytes from the start of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    /// Length of the header. The buffer follows it.
    pub header: u32,
    /// Length of the buffer, which has room for the data and for what is kept free before them.
    pub room: u32,
    /// Offset of the buffer's address (64 bits). If this is not the address that follows the header, the data are
    /// elsewhere.
    pub buffer: u32,
    /// Offset of a word of 64 bits. Its lowest 16 bits are the offset of the data from the buffer's start.
    pub state: u32,
    /// Bits of that word which say whether the frame is in one piece and has one owner ...
    pub mask: u64,
    /// ... and their values if so.
    pub whole: u64,
    /// Offset of the length of the data (16 bits).
    pub len: u32,
}

/// Checked [`Fields`]: all of them lie in the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout(Fields);

impl Layout {
    /// `None` if a field is not within the header.
    pub fn new(fields: Fields) -> Option<Self> {
        let Fields { header, buffer, state, len, .. } = fields;
        let lies_within = |at: u32, octets: u32| at.checked_add(octets).is_some_and(|end| end <= header);
        (lies_within(buffer, 8) && lies_within(state, 8) && lies_within(len, 2)).then_some(Self(fields))
    }

    /// The fields' positions.
    #[inline]
    pub(super) fn fields(&self) -> &Fields {
        &self.0
    }
}

/// Packet buffers that a driver handed over, in order. Their slots stay lent to the driver.
#[derive(Debug)]
pub struct Packets {
    /// Offset of each header from the start of the pool.
    pub(super) at: [u64; BURST],
    pub(super) count: usize,
    /// Address of the pool, and the layout of the headers: what [`sys`](super::sys) needs to know them again.
    pub(super) source: Option<(usize, Layout)>,
}

impl Default for Packets {
    fn default() -> Self {
        Self { at: [0; BURST], count: 0, source: None }
    }
}

impl Packets {
    /// Number of packet buffers.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The offset of each header from the start of the pool.
    #[inline]
    pub fn offsets(&self) -> &[u64] {
        &self.at[..self.count]
    }

    /// Whether they are packet buffers in `memory`, with headers of this layout. A device checks it before it sends them.
    #[inline]
    pub fn belong_to(&self, memory: &PoolMemory, layout: &Layout) -> bool {
        self.source.as_ref() == Some(&(memory.range().0.addr(), *layout))
    }

    /// Removes the first `count`.
    #[inline]
    pub fn remove_first(&mut self, count: usize) {
        let count = count.min(self.count);
        if count < self.count {
            self.at.copy_within(count..self.count, 0);
        }
        self.count -= count;
    }
}
