//! Opening files below a root folder: no path leads out of it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// How often the kernel is asked again. Each try needs a rename or mount elsewhere on the machine in the same moment to fail.
const TRIES: usize = 100;

/// Opens `path` (empty: the root itself) below `root`, neither by `..` nor by a symbolic link outside of it.
pub(crate) fn open(root: impl AsFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let relative = path.trim_start_matches('/');
    let relative = if relative.is_empty() { "." } else { relative };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    again(|| openat2(&root, relative, flags, mode, resolve))
}

/// Asks again while the kernel says EAGAIN: a path with `..` (as most links of sysfs have) was resolved while something was
/// renamed or mounted anywhere, so the kernel could not be sure that it stays below the root; "the caller may choose to
/// retry" (openat2(2), ERRORS).
fn again<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 1..TRIES {
        match open() {
            Err(Errno::AGAIN) => std::thread::yield_now(),
            other => return other,
        }
    }
    open()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_elsewhere_is_no_refusal() {
        let mut calls = 0;
        let mut after = |tries: usize, then: Result<u8, Errno>| {
            calls = 0;
            let result = again(|| {
                calls += 1;
                if calls <= tries { Err(Errno::AGAIN) } else { then }
            });
            (result, calls)
        };
        assert_eq!(after(0, Ok(7)), (Ok(7), 1));
        assert_eq!(after(3, Ok(7)), (Ok(7), 4));
        assert_eq!(after(2, Err(Errno::NOENT)), (Err(Errno::NOENT), 3));
        assert_eq!(after(usize::MAX, Ok(7)), (Err(Errno::AGAIN), TRIES), "it ends");
    }
}
