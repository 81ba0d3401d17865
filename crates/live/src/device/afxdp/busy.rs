//! Busy polling of a socket, and a check of whether it has any effect.

use std::io;
use std::os::fd::BorrowedFd;

use super::sys;

/// Option for the busy-polling time in us: include/uapi/asm-generic/socket.h.
const SO_BUSY_POLL: i32 = 46;
/// Option to read the socket's NAPI ID: include/uapi/asm-generic/socket.h.
const SO_INCOMING_NAPI_ID: i32 = 56;
/// Option to prefer busy polling to interrupts: include/uapi/asm-generic/socket.h.
const SO_PREFER_BUSY_POLL: i32 = 69;
/// Option for the maximum number of packets per busy poll: include/uapi/asm-generic/socket.h.
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// Time for which a blocking call would poll, in us. Apus's calls never block, but 0 would turn busy polling off. The
/// kernel documentation (networking/af_xdp) and DPDK's net_af_xdp use the same value.
const BUSY_POLL_US: i32 = 20;

/// Number of received descriptors after which a socket without a NAPI ID is assumed never to get one.
const ENOUGH: u32 = 32;

/// Whether receiving on a socket also polls the driver.
///
/// ```text
///   Off        not asked for
///   Unknown ──first frames, the socket has a NAPI id──► Live
///      └──────ENOUGH frames, and it has none──────────► Dead (asked for, no effect, not paid for)
/// ```
///
/// On veth with Linux 6.18, the result is `Dead`: the kernel sets no NAPI id on a copy-mode socket, so recvfrom() polls
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BusyPoll {
    Off,
    Unknown { received: u32 },
    Live,
    Dead,
}

impl BusyPoll {
    /// Requests busy polling with at most `budget` frames per poll.
    pub(super) fn enable(fd: BorrowedFd<'_>, budget: u16) -> io::Result<Self> {
        sys::set_int(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)?;
        sys::set_int(fd, libc::SOL_SOCKET, SO_BUSY_POLL, BUSY_POLL_US)?;
        sys::set_int(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, i32::from(budget))?;
        Ok(Self::Unknown { received: 0 })
    }

    #[inline]
    pub(super) fn is_active(self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Live)
    }

    /// Whether busy polling has an effect. `None` if it was not requested, or if the effect is not known yet.
    pub(super) fn effect(self) -> Option<bool> {
        match self {
            Self::Off | Self::Unknown { .. } => None,
            Self::Live => Some(true),
            Self::Dead => Some(false),
        }
    }

    /// Records that frames arrived. While the effect is unknown, checks whether the socket has a NAPI id.
    #[inline]
    pub(super) fn received(&mut self, fd: BorrowedFd<'_>, descriptors: u32) {
        if let Self::Unknown { received } = *self {
            self.check(fd, received.saturating_add(descriptors));
        }
    }

    #[cold]
    fn check(&mut self, fd: BorrowedFd<'_>, received: u32) {
        *self = match sys::get_int(fd, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID) {
            Ok(1..) => Self::Live,
            _ if received < ENOUGH => Self::Unknown { received },
            _ => {
                // Turn off busy polling, which has no effect: if it stayed on, each poll(2) would delay the interrupt.
                let _ = sys::set_int(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 0);
                let _ = sys::set_int(fd, libc::SOL_SOCKET, SO_BUSY_POLL, 0);
                Self::Dead
            }
        };
    }
}
