//! Opens files below a root folder. No path can lead outside the folder.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// Maximum number of attempts to open a path. An attempt fails only if something on the machine is renamed or mounted
/// at the same moment.
const TRIES: usize = 100;

/// Opens `path` below `root`; an empty path is the root itself. Neither `..` nor a symbolic link leads outside `root`.
pub(crate) fn open(root: impl AsFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let relative = path.trim_start_matches('/');
    let relative = if relative.is_empty() { "." } else { relative };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    again(|| openat2(&root, relative, flags, mode, resolve))
}

/// Tries again while the kernel returns EAGAIN. This happens when a path with `..` (as in most links of sysfs) is
/// resolved while something is renamed or mounted anywhere. The kernel then cannot be sure that the path stays below
/// the root: "the caller may choose to retry" (openat2(2), ERRORS).
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
