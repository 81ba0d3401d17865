//! What a worker does on its core besides work: read the clock, and wait.

use std::hint::spin_loop;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{ClockId as SleepClock, clock_nanosleep_absolute};
use rustix::time::{ClockId, clock_gettime};
use units::{Instant, Monotonic, Nanos};

/// The most wait handles that one worker blocks on.
pub const MAX_HANDLES: usize = 32;

/// How a block ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// A wait handle is readable.
    ByDevice,
    /// The time is over, or a signal came.
    ByTime,
    /// A wait handle reports an error or a hang-up: ask the devices for their health.
    ByError,
}

/// The clock and the ways of waiting. [`LinuxCpu`] is the real one; a test has one of its own.
pub trait Cpu {
    /// The time.
    fn now(&self) -> Instant<Monotonic>;
    /// Keeps the core running, cheaply, until `until`; returns the time then.
    fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic>;
    /// Gives the core away until `until`.
    fn sleep_until(&mut self, until: Instant<Monotonic>);
    /// Gives the core away until a handle is readable or until `until`.
    fn block_until(&mut self, handles: &[BorrowedFd<'_>], until: Instant<Monotonic>) -> Woken;
}

/// `CLOCK_MONOTONIC`, `pause`, clock_nanosleep(2) and poll(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxCpu;

impl Cpu for LinuxCpu {
    #[inline]
    fn now(&self) -> Instant<Monotonic> {
        let time = clock_gettime(ClockId::Monotonic);
        Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    #[inline]
    fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic> {
        loop {
            let now = self.now();
            if now >= until {
                return now;
            }
            // Fewer clock reads than pauses: the clock costs more than the pause does.
            for _ in 0..4 {
                spin_loop();
            }
        }
    }

    #[inline]
    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        // Ends early on a signal, which is as good as late: the loop polls and decides anew.
        let _ = clock_nanosleep_absolute(SleepClock::Monotonic, &timespec(until.as_nanos()));
    }

    #[inline]
    fn block_until(&mut self, handles: &[BorrowedFd<'_>], until: Instant<Monotonic>) -> Woken {
        let span = until.since(self.now()).unwrap_or(Nanos::ZERO);
        let Some(&first) = handles.first() else {
            self.sleep_until(until);
            return Woken::ByTime;
        };
        let mut set: [PollFd<'_>; MAX_HANDLES] =
            std::array::from_fn(|i| PollFd::from_borrowed_fd(handles.get(i).copied().unwrap_or(first), PollFlags::IN));
        let set = &mut set[..handles.len().min(MAX_HANDLES)];
        match poll(set, Some(&timespec(span.as_nanos()))) {
            Ok(0) | Err(Errno::INTR) => Woken::ByTime,
            Ok(_)
                if set.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)) =>
            {
                Woken::ByError
            }
            Ok(_) => Woken::ByDevice,
            Err(_) => Woken::ByError,
        }
    }
}

fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ }
}
