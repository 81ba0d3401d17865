//! schedutil: requests the frequency that the scheduler's utilisation needs, plus a quarter as headroom.

use policy::frequency::PStates;
use units::{Hertz, Nanos};

use super::pelt::{FULL, Pelt};
use super::{Load, SAMPLING, at_least};
use crate::At;

/// Tunables of the schedutil governor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedutilModel {
    /// `rate_limit_us`: the minimum time between two requests.
    pub rate_limit: Nanos,
}

impl Default for SchedutilModel {
    fn default() -> Self {
        Self { rate_limit: SAMPLING }
    }
}

/// Ports `sugov_update_single_freq()`.
///
/// A FIFO thread requests the highest frequency whenever it runs (`sched_util_clamp_min_rt_default`, 1024:
/// Documentation/admin-guide/sysctl/kernel.rst). So with a FIFO thread schedutil never lowers the frequency.
#[derive(Clone, Debug)]
pub struct Schedutil {
    model: SchedutilModel,
    realtime: bool,
    pelt: Pelt,
    seen: At,
    idle: Nanos,
    /// When the last request was made. `None` before the first.
    updated: Option<At>,
    /// The core's total idle time when the last request was made.
    idle_then: Nanos,
}

impl Schedutil {
    pub fn new(model: SchedutilModel, realtime: bool) -> Self {
        Self {
            model,
            realtime,
            pelt: Pelt::default(),
            seen: At::ORIGIN,
            idle: Nanos::ZERO,
            updated: None,
            idle_then: Nanos::ZERO,
        }
    }

    pub fn decide(&mut self, now: At, running: Hertz, load: &Load, range: &PStates, requested: Hertz) -> Option<Hertz> {
        let highest = range.highest();
        let passed = now.since(self.seen).unwrap_or(Nanos::ZERO).as_nanos();
        let idle = load.idle.as_nanos().saturating_sub(self.idle.as_nanos()).min(passed);
        (self.seen, self.idle) = (now, load.idle);
        // Since the last call the core was idle first and busy afterwards.
        self.pelt.idle(Nanos::from_nanos(idle));
        self.pelt.busy(Nanos::from_nanos(passed - idle), running, highest);
        if self.updated.is_some_and(|at| now.since(at).is_none_or(|span| span < self.model.rate_limit)) {
            return None;
        }
        let utilisation = if self.realtime { FULL } else { self.pelt.utilisation() };
        // `map_util_perf()`: a quarter more.
        let needed = Hertz::new(highest.as_hertz() * (utilisation + utilisation / 4) / FULL);
        let wanted = at_least(range, needed);
        // `sugov_cpu_is_busy()`: a core that has not been idle since the last request is not slowed down.
        let was_busy = load.idle == self.idle_then;
        if wanted == requested || (wanted < requested && was_busy) {
            return None;
        }
        (self.updated, self.idle_then) = (Some(now), load.idle);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{loaded, mhz, range};
    use super::super::{Governor, GovernorModel};
    use super::*;

    #[test]
    fn a_quarter_more_than_is_used() {
        let mut governor = Governor::new(GovernorModel::Schedutil(SchedutilModel::default()), range(), false);
        let (mut now, mut idle) = (0, 0);
        let mut after = |milliseconds, busy| loaded(&mut governor, &mut now, &mut idle, milliseconds, busy);
        assert_eq!(after(500, 100), mhz(2_200));
        // After a long idle time, the lowest frequency is requested.
        assert_eq!(after(500, 0), mhz(800));
        // Busy 40 % of the time at 800 MHz is 14.5 % of the capacity, for which 800 MHz suffice.
        assert_eq!(after(500, 40), mhz(800));
        // If the core is always busy, the frequency rises to the highest, although 800 MHz are 36 % of the capacity.
        assert_eq!(after(500, 100), mhz(2_200));
    }

    #[test]
    fn a_fifo_thread_has_the_highest() {
        let mut governor = Governor::new(GovernorModel::Schedutil(SchedutilModel::default()), range(), true);
        assert_eq!(loaded(&mut governor, &mut 0, &mut 0, 500, 1), mhz(2_200));
    }

    #[test]
    fn no_two_requests_within_the_limit() {
        let limit = Nanos::from_millis(20);
        let mut governor =
            Governor::new(GovernorModel::Schedutil(SchedutilModel { rate_limit: limit }), range(), false);
        let mut last: Option<u64> = None;
        let mut idle = 0;
        for ms in 1..400u64 {
            idle += if (ms / 50) % 2 == 0 { 950_000 } else { 100_000 };
            let load = Load { idle: Nanos::from_nanos(idle), ..Load::default() };
            let running = governor.requested();
            if governor.decide(At::from_nanos(ms * 1_000_000), running, &load).is_some() {
                assert!(last.is_none_or(|before| ms - before >= 20), "{last:?} {ms}");
                last = Some(ms);
            }
        }
        assert!(last.is_some());
    }
}
