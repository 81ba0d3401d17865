//! schedutil: requests the frequency that the scheduler's utilisation needs, plus a quarter as a reserve.

use policy::frequency::PStates;
use units::{Hertz, Nanos};

use super::pelt::{FULL, Pelt};
use super::{Load, SAMPLING, at_least};
use crate::At;

/// Tunables of the schedutil governor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedutilModel {
    /// `rate_limit_us`: the least time between two requests.
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
    /// When the last request was made, and the core's idle time until then.
    updated: Option<At>,
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
        // It rested, woke, and worked, in this order.
        self.pelt.idle(Nanos::from_nanos(idle));
        self.pelt.busy(Nanos::from_nanos(passed - idle), running, highest);
        if self.updated.is_some_and(|at| now.since(at).is_none_or(|span| span < self.model.rate_limit)) {
            return None;
        }
        let utilisation = if self.realtime { FULL } else { self.pelt.utilisation() };
        // `map_util_perf()`: a quarter more.
        let needed = Hertz::new(highest.as_hertz() * (utilisation + utilisation / 4) / FULL);
        let wanted = at_least(range, needed);
        // `sugov_cpu_is_busy()`: a core that has not been idle since is not slowed down.
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
        // Idle for long: the lowest.
        assert_eq!(after(500, 0), mhz(800));
        // Busy 40 % of the time at 800 MHz is 14.5 % of the capacity: 800 MHz bear that.
        assert_eq!(after(500, 40), mhz(800));
        // Always busy: up to the highest, although 800 MHz are 36 % of the capacity.
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
