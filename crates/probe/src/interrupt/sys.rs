//! Socket functions that neither std nor rustix offers: the options of busy polling, the arrival time stamp, and
//! epoll's busy-poll parameters.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd as _};

/// Numbers of socket options, from include/uapi/asm-generic/socket.h.
pub(super) const SO_BUSY_POLL: i32 = 46;
pub(super) const SO_INCOMING_NAPI_ID: i32 = 56;
pub(super) const SO_PREFER_BUSY_POLL: i32 = 69;
pub(super) const SO_BUSY_POLL_BUDGET: i32 = 70;

/// `EPIOCSPARAMS`: `_IOW(0x8A, 1, struct epoll_params)`, include/uapi/linux/eventpoll.h.
const EPIOCSPARAMS: libc::c_ulong = 0x4008_8a01;

/// `struct epoll_params`, include/uapi/linux/eventpoll.h.
#[repr(C)]
struct EpollParams {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    pad: u8,
}

const _: () = assert!(size_of::<EpollParams>() == 8);

/// Sets a socket option that is an int.
pub(super) fn set_int(socket: &UdpSocket, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is an int that lives through the call, and its size is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(&value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a socket option that is an int.
pub(super) fn get_int(socket: &UdpSocket, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value is an int, and its size is given; both live through the call.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_mut(&mut value).cast(),
            &mut length,
        )
    };
    if done == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Makes an epoll instance busy-poll up to `budget` frames at a time, for `usecs` microseconds before it waits. With
/// `prefer`, it may suspend the device's interrupts (kernel documentation, networking/napi, "IRQ suspension").
pub(super) fn epoll_busy_poll(epoll: impl AsFd, usecs: u32, budget: u16, prefer: bool) -> io::Result<()> {
    let params =
        EpollParams { busy_poll_usecs: usecs, busy_poll_budget: budget, prefer_busy_poll: prefer.into(), pad: 0 };
    // SAFETY: the request takes a pointer to this structure, which lives through the call.
    let done = unsafe { libc::ioctl(epoll.as_fd().as_raw_fd(), EPIOCSPARAMS as _, std::ptr::from_ref(&params)) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Requests the time at which the kernel's stack received each datagram.
pub(super) fn stamp_arrivals(socket: &UdpSocket) -> io::Result<()> {
    set_int(socket, libc::SO_TIMESTAMPNS, 1)
}

/// Receives a datagram without waiting. Returns its length, and the time on `CLOCK_REALTIME` in nanoseconds at which
/// the stack received it. `None` if there is no datagram.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
    /// Space for one control message with a timespec, aligned like cmsghdr.
    #[repr(align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut parts = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: msghdr is plain data, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut parts;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: everything that the header points to lives through the call, with the lengths that it states.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
    if received < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    let mut stamp = None;
    // SAFETY: the kernel filled the control messages, and set their length in the header.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a whole header within the control buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            // SAFETY: a message of this kind holds a timespec; it may not be aligned.
            let time = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
            stamp = Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
        }
        // SAFETY: `header` is one of this message's.
        header = unsafe { libc::CMSG_NXTHDR(&message, header) };
    }
    Ok(Some((received as usize, stamp)))
}
