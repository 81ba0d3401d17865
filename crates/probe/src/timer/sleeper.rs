//! The system calls that wait for an absolute time.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use units::{Instant, Monotonic, Nanos};

use super::Wait;
use crate::Error;

/// A wait until a time on `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub(super) enum Sleeper {
    ClockNanosleep,
    Timerfd(OwnedFd),
    Epoll { timer: OwnedFd, epoll: OwnedFd },
}

impl Sleeper {
    /// Creates a sleeper that waits for the time `first`, and for every `interval` after it.
    pub(super) fn new(wait: Wait, first: Instant<Monotonic>, interval: Nanos) -> Result<Self, Error> {
        Ok(match wait {
            Wait::ClockNanosleep => Self::ClockNanosleep,
            Wait::Timerfd => Self::Timerfd(periodic(first, interval)?),
            Wait::Epoll => {
                let timer = periodic(first, interval)?;
                let instance =
                    epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| Error::system("open an epoll", e))?;
                epoll::add(&instance, &timer, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                    .map_err(|e| Error::system("add a timer to an epoll", e))?;
                Self::Epoll { timer, epoll: instance }
            }
        })
    }

    /// Waits for `due`. It may return early, for example after a signal.
    #[inline]
    pub(super) fn wait_for(&mut self, due: Instant<Monotonic>) -> Result<(), Error> {
        let result = match self {
            Self::ClockNanosleep => clock_nanosleep_absolute(ClockId::Monotonic, &timespec(due)),
            Self::Timerfd(timer) => expirations(timer),
            Self::Epoll { timer, epoll: instance } => {
                let mut events = [MaybeUninit::<epoll::Event>::uninit(); 1];
                match epoll::wait(&*instance, &mut events, None) {
                    Ok(_) => expirations(timer),
                    Err(error) => Err(error),
                }
            }
        };
        match result {
            Ok(()) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::system("wait for a timer", error)),
        }
    }
}

/// A timerfd that expires at `first` and after each further `interval`.
fn periodic(first: Instant<Monotonic>, interval: Nanos) -> Result<OwnedFd, Error> {
    let failed = |e| Error::system("make a timerfd", e);
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).map_err(failed)?;
    let times =
        Itimerspec { it_value: timespec(first), it_interval: timespec(Instant::from_nanos(interval.as_nanos())) };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &times).map_err(failed)?;
    Ok(timer)
}

/// Blocks until the timer has expired, and reads the number of expirations. The number is not used, because it can be
/// computed from the clock for every kind of wait.
#[inline]
fn expirations(timer: &OwnedFd) -> Result<(), Errno> {
    let mut count = [0; 8];
    rustix::io::read(timer, &mut count).map(|_| ())
}

fn timespec(at: Instant<Monotonic>) -> Timespec {
    Timespec { tv_sec: (at.as_nanos() / 1_000_000_000) as i64, tv_nsec: (at.as_nanos() % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;
    use live::cpu::{Cpu as _, LinuxCpu};

    #[test]
    fn each_way_waits_for_its_times() {
        for wait in Wait::ALL {
            let interval = Nanos::from_millis(2);
            let mut due = LinuxCpu.now() + interval;
            let mut sleeper = Sleeper::new(wait, due, interval).unwrap();
            for _ in 0..3 {
                // If a timerfd expired again between its last reading and the reading of the clock, the next wait ends
                // at once.
                let mut waits = 0;
                let now = loop {
                    sleeper.wait_for(due).unwrap();
                    waits += 1;
                    let now = LinuxCpu.now();
                    if now >= due {
                        break now;
                    }
                };
                assert!(waits <= 2, "{wait}: {waits} waits for one time");
                while due <= now {
                    due = due + interval;
                }
            }
        }
    }
}
