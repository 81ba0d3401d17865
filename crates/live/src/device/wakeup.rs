//! A file descriptor that a device makes readable to wake a worker.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

/// An eventfd(2) used as a flag. It is readable while the flag is set.
#[derive(Debug)]
pub(super) struct Wakeup(OwnedFd);

impl Wakeup {
    /// Creates a flag. It is set initially if `set` is true.
    pub(super) fn new(set: bool) -> Result<Self, Error> {
        eventfd(u32::from(set), EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map(Self)
            .map_err(|e| Error::system("make an eventfd for a device", e))
    }

    /// Sets the flag. (The write can only fail if the counter is at its maximum; then the flag is already set.)
    pub(super) fn set(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears the flag. (The read can only fail if the flag is already clear.)
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// The descriptor for poll(2).
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether poll(2) finds `fd` readable now.
#[cfg(test)]
pub(super) fn readable(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_while_set() {
        let wakeup = Wakeup::new(false).unwrap();
        assert!(!readable(wakeup.as_fd()));
        wakeup.set();
        wakeup.set();
        assert!(readable(wakeup.as_fd()));
        wakeup.clear();
        wakeup.clear();
        assert!(!readable(wakeup.as_fd()));
    }
}
