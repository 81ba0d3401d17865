//! What the kernel reports about an interface's queues.
//!
//! Source: Documentation/netlink/specs/netdev.yaml, queue-get.

use std::io;

use netlink_bindings::netdev;
use netlink_socket2::NetlinkSocket;

/// Number of receive queues in use. `None` if the kernel does not report it (before 6.8).
pub(super) fn rx_queues(ifindex: u32) -> Option<u32> {
    let queues = count(ifindex).ok()?;
    (queues > 0).then_some(queues)
}

fn count(ifindex: u32) -> io::Result<u32> {
    let mut socket = NetlinkSocket::new();
    let mut request = netdev::Request::new().op_queue_get_dump();
    request.encode().push_ifindex(ifindex);
    let mut reply = socket.request(&request)?;
    let mut receive = 0;
    while let Some(queue) = reply.recv() {
        let kind = queue?.get_type().map_err(io::Error::other)?;
        receive += u32::from(kind == netdev::QueueType::Rx as u32);
    }
    Ok(receive)
}
