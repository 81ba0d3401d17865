//! The clock that a worker reads, and its waiting methods.

use std::hint::spin_loop;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{ClockId as SleepClock, clock_nanosleep_absolute};
use rustix::time::{ClockId, clock_gettime};
use units::{Instant, Monotonic, Nanos};

/// Maximum number of wait handles on which one worker can block.
pub const MAX_HANDLES: usize = 32;

/// Why a blocking wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// A wait handle became readable.
    ByDevice,
    /// The deadline was reached, or a signal arrived.
    ByTime,
    /// A wait handle reports an error or a hang-up. The health of each device says more.
    ByError,
}

/// The clock and the waiting methods. [`LinuxCpu`] implements them for Linux; tests have simulated implementations.
pub trait Cpu {
    /// The current time.
    fn now(&self) -> Instant<Monotonic>;
    /// CPU time that the calling thread has used so far. `None` if it cannot be read. Reading it may need a system
    /// call.
    fn thread_time(&self) -> Option<Nanos> {
        None
    }
    /// Keeps the core busy until `until`, with pause instructions, which save some power. Returns the time at which the
    /// pause ended.
    fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic>;
    /// Sleeps until `until`, so that the core is free for other threads or can idle.
    fn sleep_until(&mut self, until: Instant<Monotonic>);
    /// Blocks until one of `handles` is readable or `until` is reached.
    fn block_until(&mut self, handles: &[BorrowedFd<'_>], until: Instant<Monotonic>) -> Woken;
}

/// The implementation for Linux: `CLOCK_MONOTONIC`, `CLOCK_THREAD_CPUTIME_ID`, the pause instruction,
/// clock_nanosleep(2) and poll(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxCpu;

impl Cpu for LinuxCpu {
    #[inline]
    fn now(&self) -> Instant<Monotonic> {
        Instant::from_nanos(nanos(clock_gettime(ClockId::Monotonic)))
    }

    #[inline]
    fn thread_time(&self) -> Option<Nanos> {
        Some(Nanos::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime))))
    }

    #[inline]
    fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic> {
        loop {
            let now = self.now();
            if now >= until {
                return now;
            }
            // Read the clock only after every fourth pause, because reading the clock costs more than a pause.
            for _ in 0..4 {
                spin_loop();
            }
        }
    }

    #[inline]
    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        // A signal may end the sleep early. That does no harm: the loop polls and decides again.
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

fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_pays_for_its_pauses_and_not_for_its_sleeps() {
        const SPAN: Nanos = Nanos::from_millis(20);
        let mut cpu = LinuxCpu;
        let thread_time = || LinuxCpu.thread_time().unwrap();
        // A hypervisor may take the CPU away while the kernel charges the time to this thread. So only the cheapest of
        // several sleeps counts.
        let slept = (0..5).map(|_| {
            let before = thread_time();
            cpu.sleep_until(LinuxCpu.now() + SPAN);
            thread_time().saturating_sub(before)
        });
        let slept = slept.min().unwrap();
        assert!(slept < SPAN / 2, "a sleep of {SPAN} cost {slept}");
        let before = thread_time();
        while thread_time().saturating_sub(before) < SPAN {
            let until = cpu.now() + SPAN;
            cpu.pause_until(until);
        }
    }
}
