//! Frames that stay in the packet buffers of a driver.
//!
//! A driver can keep a header in the slot of each frame that describes the frame, as DPDK does. If a worker sends a whole
//! burst of such frames on, it need not make a [`Frame`](super::Frame) of each packet buffer and a packet buffer of each
//! `Frame`. It only reads the headers, and the driver sends the same buffers.
//!
//! ```text
//!   slot
//!   ├─ ... ─┬─ header, HEADER_LEN bytes ──────────────────┬─ offset ─┬─ data, len bytes ─┬─ ... ─┤
//!           │ buffer's address, offset, owners, pieces, len
//!           │                                             ├──────────── buffer ────────────────┤
//! ```

use std::any::TypeId;

use crate::worker::BURST;

/// Length of the header, in bytes. The buffer follows it.
pub const HEADER_LEN: usize = 128;

/// The start of the header: the fields that a worker reads. It is the start of DPDK's `struct rte_mbuf`
/// (lib/mbuf/rte_mbuf_core.h of DPDK 22.11), whose layout is part of DPDK's ABI. Other drivers must write the same layout.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Address of the buffer. If it is not the address that follows the header, the frame is in another buffer.
    pub buffer: u64,
    /// Address of the buffer for DMA. Only the driver uses it.
    pub iova: u64,
    /// Offset of the data from the buffer's start, in bytes.
    pub offset: u16,
    /// Number of references to the header. With more than one, somebody else uses the frame too.
    pub owners: u16,
    /// Number of pieces of the frame.
    pub pieces: u16,
    /// The driver's number of the port. A worker does not use it.
    pub port: u16,
    /// Fields of the driver that a worker does not use.
    pub unread: [u32; 4],
    /// Length of the data in bytes.
    pub len: u16,
}

/// Packet buffers that a driver handed over, in order. Their slots stay lent to the driver.
#[derive(Debug)]
pub struct Packets {
    /// Address of each header.
    pub(super) headers: [usize; BURST],
    pub(super) count: usize,
    /// How many of them, from the first on, [`Pool::each_packet`](super::Pool::each_packet) counted.
    pub(super) handled: usize,
    /// Number of bytes after each header that belong to its buffer.
    pub(super) room: usize,
    pub(super) source: Option<Source>,
}

/// Whose packet buffers they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source {
    /// Address of the pool.
    pub(super) pool: usize,
    /// The type of device that received them.
    pub(super) device: TypeId,
}

impl Default for Packets {
    fn default() -> Self {
        Self { headers: [0; BURST], count: 0, handled: 0, room: 0, source: None }
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

    /// The address of each header.
    #[inline]
    pub fn headers(&self) -> &[usize] {
        &self.headers[..self.count]
    }

    /// Removes the first `count`.
    #[inline]
    pub(super) fn remove_first(&mut self, count: usize) {
        let count = count.min(self.count);
        if count < self.count {
            self.headers.copy_within(count..self.count, 0);
        }
        self.count -= count;
        self.handled = self.handled.saturating_sub(count);
    }
}
