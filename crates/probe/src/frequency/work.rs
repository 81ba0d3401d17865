//! A known piece of work, and the thread that repeats it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use live::cpu::{Cpu as _, LinuxCpu};
use units::{Instant, Monotonic, Nanos};

use super::analysis::Unit;

/// A fixed number of steps, each of which needs the result of the previous one. The steps use no cache, no memory and
/// no parallelism, so they take the same number of cycles at any frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Work {
    steps: u64,
}

/// Number of work items that are timed to find how many steps take the wanted time.
const CALIBRATION: usize = 200;

impl Work {
    /// Work that takes `wanted` at the current speed of the calling thread's CPU.
    pub(super) fn taking(wanted: Nanos) -> Self {
        const TRIAL: u64 = 10_000;
        let trial = Self { steps: TRIAL };
        let mut took: Vec<Nanos> = (0..CALIBRATION).map(|_| trial.once(LinuxCpu.now()).took).collect();
        took.sort_unstable();
        // The shortest items were not interrupted.
        let one = took[CALIBRATION / 10].as_nanos().max(1);
        Self { steps: (TRIAL * wanted.as_nanos() / one).max(1) }
    }

    /// Does the work once, starting from `start`.
    #[inline(never)]
    pub(super) fn once(self, start: Instant<Monotonic>) -> Unit {
        let mut x = 1u64;
        for _ in 0..self.steps {
            // Knuth's MMIX multiplier; black_box keeps the compiler from doing several steps in one.
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        }
        black_box(x);
        Unit { start, took: LinuxCpu.now().since(start).unwrap_or(Nanos::ZERO) }
    }

    /// Repeats the work until `stop`, at most `room` times. Each item starts where the last one ended, so no time is
    /// missing.
    pub(super) fn repeat(self, room: usize, stop: &AtomicBool) -> Vec<Unit> {
        let mut units = Vec::with_capacity(room);
        let mut now = LinuxCpu.now();
        while units.len() < room && !stop.load(Ordering::Relaxed) {
            let unit = self.once(now);
            now = unit.start + unit.took;
            units.push(unit);
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_about_as_long_as_wanted_and_leaves_no_gap() {
        let wanted = Nanos::from_micros(50);
        let work = Work::taking(wanted);
        let units = work.repeat(300, &AtomicBool::new(false));
        assert_eq!(units.len(), 300);
        for pair in units.windows(2) {
            assert_eq!(pair[0].start + pair[0].took, pair[1].start);
        }
        let mut took: Vec<u64> = units.iter().map(|unit| unit.took.as_nanos()).collect();
        took.sort_unstable();
        let low = took[30];
        assert!(low > wanted.as_nanos() / 2 && low < wanted.as_nanos() * 2, "{low}");
    }
}
