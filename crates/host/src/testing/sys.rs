//! A network namespace for one thread.
#![allow(unsafe_code)]

/// Moves the calling thread into a new network namespace.
pub(super) fn own_namespace() -> std::io::Result<()> {
    // SAFETY: CLONE_NEWNET changes only which network the thread sees. Rust does not rely on it.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
