//! The cookie and the file handle of a network namespace.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

/// The cookie of the calling thread's network namespace: a number that the kernel does not reuse before the next boot
/// (SO_NETNS_COOKIE, Linux 5.14; net/core/net_namespace.c, `net_gen_cookie`).
pub(super) fn cookie() -> io::Result<u64> {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` is `length` bytes long, and both live through the call, which writes no more than that.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match got {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The type of a namespace's file handle: `FILEID_NSFS` of include/linux/exportfs.h.
const OF_A_NAMESPACE: i32 = 0xf1;
/// Size in bytes of `struct nsfs_file_handle` of include/uapi/linux/nsfs.h: the namespace's unique number, type and
/// inode.
const OCTETS: usize = 16;

/// `struct file_handle`, with room for the longest handle (MAX_HANDLE_SZ of include/uapi/linux/fcntl.h).
#[repr(C)]
struct Handle {
    octets: u32,
    kind: i32,
    content: [u8; 128],
}

/// The handle of the namespace that is open in `namespace` (Linux 6.18, fs/nsfs.c); `None` if the kernel does not
/// support handles of namespaces.
pub(super) fn handle(namespace: &File) -> Option<[u8; OCTETS]> {
    let mut handle = Handle { octets: 128, kind: 0, content: [0; 128] };
    let mut mount = 0;
    // SAFETY: the path is a terminated empty text; `handle` states its size and has the kernel's layout; everything
    // lives through the call.
    let got = unsafe {
        libc::name_to_handle_at(
            namespace.as_raw_fd(),
            c"".as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    let is_ours = got == 0 && handle.kind == OF_A_NAMESPACE && handle.octets as usize == OCTETS;
    is_ours.then(|| handle.content.first_chunk().copied()).flatten()
}

/// Opens the namespace with the handle `of`. `any` is any open namespace. The error is ESTALE if the namespace no
/// longer exists, or if this process lacks CAP_SYS_ADMIN in the user namespace that owns it.
pub(super) fn open(any: &File, of: [u8; OCTETS]) -> io::Result<OwnedFd> {
    let mut handle = Handle { octets: OCTETS as u32, kind: OF_A_NAMESPACE, content: [0; 128] };
    handle.content[..OCTETS].copy_from_slice(&of);
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: `handle` has the kernel's layout and states the length of its content; it lives through the call.
    match unsafe { libc::open_by_handle_at(any.as_raw_fd(), (&raw mut handle).cast(), flags) } {
        // SAFETY: the kernel has just given us this descriptor, and nothing else owns it.
        fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
