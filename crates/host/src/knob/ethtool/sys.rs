//! The ioctl for settings of one queue, which netlink does not offer.
//!
//! Source: include/uapi/linux/ethtool.h, `struct ethtool_per_queue_op`, `struct ethtool_coalesce`;
//! include/uapi/linux/sockios.h.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd as _;

use rustix::net::{AddressFamily, SocketType, socket};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_PERQUEUE: u32 = 0x4b;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_SCOALESCE: u32 = 0x0f;
/// `MAX_NUM_QUEUE`.
const MOST_QUEUES: u32 = 4096;
/// The fields of `struct ethtool_coalesce` behind `cmd`: what a queue has.
pub(super) const QUEUE_FIELDS: usize = 22;

/// `struct ethtool_per_queue_op`, with the `struct ethtool_coalesce` of one queue behind it.
#[repr(C)]
struct PerQueue {
    command: u32,
    sub_command: u32,
    queue_mask: [u32; MOST_QUEUES as usize / 32],
    coalesce_command: u32,
    fields: [u32; QUEUE_FIELDS],
}

const _: () = assert!(size_of::<PerQueue>() == 8 + 512 + 92);

/// The fields of `struct ethtool_coalesce` after `cmd`, of one queue.
pub(super) fn read_queue(interface: &str, queue: u32) -> io::Result<[u32; QUEUE_FIELDS]> {
    ask(interface, queue, ETHTOOL_GCOALESCE, [0; QUEUE_FIELDS])
}

pub(super) fn write_queue(interface: &str, queue: u32, fields: [u32; QUEUE_FIELDS]) -> io::Result<()> {
    ask(interface, queue, ETHTOOL_SCOALESCE, fields).map(|_| ())
}

fn ask(interface: &str, queue: u32, sub_command: u32, fields: [u32; QUEUE_FIELDS]) -> io::Result<[u32; QUEUE_FIELDS]> {
    if queue >= MOST_QUEUES || interface.is_empty() || interface.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut operation = PerQueue {
        command: ETHTOOL_PERQUEUE,
        sub_command,
        queue_mask: [0; MOST_QUEUES as usize / 32],
        coalesce_command: sub_command,
        fields,
    };
    operation.queue_mask[queue as usize / 32] = 1 << (queue % 32);
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: ifreq is plain data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut operation).cast();
    // SAFETY: `request` is a whole ifreq with a terminated name; its data points to a whole operation with room
    // for the one queue that its mask names; both live through the call.
    match unsafe { libc::ioctl(control.as_raw_fd(), SIOCETHTOOL as _, std::ptr::from_mut(&mut request)) } {
        0 => Ok(operation.fields),
        _ => Err(io::Error::last_os_error()),
    }
}
