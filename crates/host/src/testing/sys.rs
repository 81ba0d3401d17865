//! A network namespace for one thread.
#![allow(unsafe_code)]

/// Gives the calling thread a network namespace of its own.
pub(super) fn own_namespace() -> std::io::Result<()> {
    // SAFETY: CLONE_NEWNET changes which network the thread sees, and nothing that Rust relies on.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
