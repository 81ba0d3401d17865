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
    /// For how long the calling thread has had a CPU; `None` where that cannot be read. May be a system call.
    fn thread_time(&self) -> Option<Nanos> {
        None
    }
    /// Keeps the core running, cheaply, until `until`; returns the time then.
    fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic>;
    /// Gives the core away until `until`.
    fn sleep_until(&mut self, until: Instant<Monotonic>);
    /// Gives the core away until a handle is readable or until `until`.
    fn block_until(&mut self, handles: &[BorrowedFd<'_>], until: Instant<Monotonic>) -> Woken;
}

/// `CLOCK_MONOTONIC`, `CLOCK_THREAD_CPUTIME_ID`, `pause`, clock_nanosleep(2) and poll(2).
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
        // The host may take the CPU away while the thread is charged for it: the cheapest of a few sleeps counts.
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
