//! The clock that a trial reads: the machine's clock, or a simulated one in tests.

use rustix::time::{ClockId, clock_gettime};
use units::{Instant, Monotonic};

/// A clock that never runs backwards.
pub trait TrialClock {
    /// The current time.
    fn now(&self) -> Instant<Monotonic>;
}

/// `CLOCK_MONOTONIC`, which arrival stamps and the worker's gaps also use.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl TrialClock for MonotonicClock {
    #[inline]
    fn now(&self) -> Instant<Monotonic> {
        let now = clock_gettime(ClockId::Monotonic);
        // Neither part is ever negative for CLOCK_MONOTONIC (clock_gettime(2)).
        Instant::from_nanos(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_run_backwards() {
        let first = MonotonicClock.now();
        assert!(MonotonicClock.now().since(first).is_some());
    }
}
