//! Packet buffers in a pool's memory.
#![allow(unsafe_code)]

use std::any::TypeId;

use live::pool::PoolMemory;
use live::pool::packets::{HEADER_LEN, Header, Packets};

/// Writes the header of a packet buffer at the offset `at` of a pool, and returns its address.
pub fn write_header(memory: &PoolMemory, at: usize, header: Header) -> usize {
    let (base, len) = memory.range();
    assert!(at.is_multiple_of(align_of::<Header>()) && at + HEADER_LEN <= len);
    // SAFETY: within the mapping and aligned (asserted). Only this test's device uses this part of a slot.
    unsafe {
        let place = base.add(at).cast::<Header>();
        place.write(header);
        place.expose_provenance()
    }
}

/// Reads the header at this address, which [`write_header`] returned.
pub fn read_header(address: usize) -> Header {
    // SAFETY: `write_header` wrote it, and the pool exists as long as the worker that calls the device.
    unsafe { std::ptr::with_exposed_provenance::<Header>(address).read() }
}

/// Replaces the contents of `packets` by these headers, each with `room` bytes after it.
pub fn fill(packets: &mut Packets, memory: &PoolMemory, device: TypeId, room: usize, headers: &[usize]) {
    // SAFETY: `write_header` wrote them, their slots are lent and have this room, and the device keeps none of them.
    unsafe {
        packets.fill(memory, device, room, |out| {
            out[..headers.len()].copy_from_slice(headers);
            headers.len()
        });
    }
}

/// Lets `send` send as many of these packet buffers as it can.
pub fn send(packets: &mut Packets, memory: &PoolMemory, device: TypeId, send: impl FnOnce(&[usize]) -> usize) -> usize {
    // SAFETY: `send` cannot change them.
    unsafe { packets.send(memory, device, |headers| send(headers)) }
}

/// Takes the first `count` packet buffers.
pub fn take(packets: &mut Packets, memory: &PoolMemory, device: TypeId, count: usize) -> Vec<usize> {
    // SAFETY: the caller takes the slots back from the driver and forgets the headers.
    unsafe { packets.take(memory, device, count, <[usize]>::to_vec) }
}
