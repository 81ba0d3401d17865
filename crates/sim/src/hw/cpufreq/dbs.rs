//! The cpufreq governors that sample the load: ondemand and conservative.

use policy::frequency::PStates;
use units::{Hertz, Nanos};

use super::{Load, SAMPLING, at_least, at_most, closest};
use crate::At;

/// Tunables of the ondemand governor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OndemandModel {
    /// Time between two samples, `sampling_rate`.
    pub sampling: Nanos,
    /// `up_threshold` in percent: above this load the governor requests the highest frequency.
    pub up_threshold: u32,
    /// `sampling_down_factor`: the highest frequency stays for at least this many sampling periods.
    pub sampling_down_factor: u32,
}

impl Default for OndemandModel {
    /// The kernel's defaults in `od_init()`: 95 % (`MICRO_FREQUENCY_UP_THRESHOLD`), which applies if idle time is
    /// accounted in microseconds, as with NO_HZ; and `DEF_SAMPLING_DOWN_FACTOR`.
    fn default() -> Self {
        Self { sampling: SAMPLING, up_threshold: 95, sampling_down_factor: 1 }
    }
}

/// Tunables of the conservative governor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConservativeModel {
    /// Time between two samples, `sampling_rate`.
    pub sampling: Nanos,
    /// `up_threshold` in percent: above this load the frequency rises by one step.
    pub up_threshold: u32,
    /// `down_threshold` in percent: below this load the frequency falls by one step.
    pub down_threshold: u32,
    /// `freq_step` in percent of the highest frequency.
    pub freq_step: u32,
    /// `sampling_down_factor`: number of sampling periods between two steps down.
    pub sampling_down_factor: u32,
}

impl Default for ConservativeModel {
    /// The kernel's defaults: `DEF_FREQUENCY_UP_THRESHOLD` and others in `cpufreq_conservative.c`.
    fn default() -> Self {
        Self { sampling: SAMPLING, up_threshold: 80, down_threshold: 20, freq_step: 5, sampling_down_factor: 1 }
    }
}

/// Ports `dbs_update()`: the load of a sampling period.
#[derive(Clone, Debug)]
struct Sampler {
    sampling: Nanos,
    /// Number of sampling periods from one sample to the next: `rate_mult`.
    factor: u32,
    since: At,
    idle: Nanos,
    previous: u64,
}

struct Sampled {
    /// The load in percent.
    load: u64,
    /// Number of sampling periods in which the core was idle and no sample was taken.
    idle_periods: u64,
}

impl Sampler {
    fn new(sampling: Nanos) -> Self {
        Self { sampling, factor: 1, since: At::ORIGIN, idle: Nanos::ZERO, previous: 0 }
    }

    fn sample(&mut self, now: At, load: &Load) -> Option<Sampled> {
        let sampling = self.sampling * u64::from(self.factor);
        let elapsed = now.since(self.since).filter(|span| *span >= sampling)?;
        let idle = Nanos::from_nanos(load.idle.as_nanos().saturating_sub(self.idle.as_nanos())).min(elapsed);
        (self.since, self.idle) = (now, load.idle);
        let long = idle > sampling * 2;
        // After a long idle period the load of the sample before is used once more: the core has just woken, and the
        // average over the idle period does not predict the coming load.
        let percent = if long && self.previous > 0 {
            std::mem::take(&mut self.previous)
        } else {
            let busy = elapsed.as_nanos() - idle.as_nanos();
            self.previous =
                u128::from(busy).saturating_mul(100).checked_div(u128::from(elapsed.as_nanos())).unwrap_or(0) as u64;
            self.previous
        };
        let idle_periods = if long { idle.as_nanos() / sampling.as_nanos().max(1) } else { 0 };
        Some(Sampled { load: percent, idle_periods })
    }
}

/// Ports `od_update()`.
#[derive(Clone, Debug)]
pub struct Ondemand {
    model: OndemandModel,
    sampler: Sampler,
}

impl Ondemand {
    pub fn new(model: OndemandModel) -> Self {
        Self { model, sampler: Sampler::new(model.sampling) }
    }

    pub fn decide(&mut self, now: At, load: &Load, range: &PStates, requested: Hertz) -> Option<Hertz> {
        let Sampled { load, .. } = self.sampler.sample(now, load)?;
        if load > u64::from(self.model.up_threshold) {
            if requested < range.highest() {
                self.sampler.factor = self.model.sampling_down_factor;
            }
            return Some(range.highest());
        }
        self.sampler.factor = 1;
        let (lowest, highest) = (range.lowest().as_hertz(), range.highest().as_hertz());
        Some(closest(range, Hertz::new(lowest + load * (highest - lowest) / 100)))
    }
}

/// Ports `cs_dbs_update()`.
#[derive(Clone, Debug)]
pub struct Conservative {
    model: ConservativeModel,
    sampler: Sampler,
    /// The requested frequency before it is rounded to an available one.
    requested: u64,
    down_skip: u32,
}

impl Conservative {
    pub fn new(model: ConservativeModel, first: Hertz) -> Self {
        Self { model, sampler: Sampler::new(model.sampling), requested: first.as_hertz(), down_skip: 0 }
    }

    pub fn decide(&mut self, now: At, load: &Load, range: &PStates) -> Option<Hertz> {
        let Sampled { load, idle_periods } = self.sampler.sample(now, load)?;
        let (lowest, highest) = (range.lowest().as_hertz(), range.highest().as_hertz());
        let step = u64::from(self.model.freq_step) * highest / 100;
        let less = |requested: u64, steps: u64| requested.saturating_sub(step.saturating_mul(steps)).max(lowest);
        // As in the kernel, the reduction for idle periods is kept only if a step is made.
        let requested = less(self.requested, idle_periods);
        if load > u64::from(self.model.up_threshold) {
            self.down_skip = 0;
            self.requested = (requested + step).min(highest);
            return Some(at_most(range, Hertz::new(self.requested)));
        }
        self.down_skip += 1;
        if self.down_skip < self.model.sampling_down_factor {
            return None;
        }
        self.down_skip = 0;
        if load >= u64::from(self.model.down_threshold) || requested == lowest {
            return None;
        }
        self.requested = less(requested, 1);
        Some(at_least(range, Hertz::new(self.requested)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{loaded, mhz, range};
    use super::super::{Governor, GovernorModel};
    use super::*;

    #[test]
    fn ondemand_goes_down_in_proportion_and_up_at_once() {
        let mut governor = Governor::new(GovernorModel::Ondemand(OndemandModel::default()), range(), false);
        let (mut now, mut idle) = (0, 0);
        let mut after = |milliseconds, busy| loaded(&mut governor, &mut now, &mut idle, milliseconds, busy);
        // 800 MHz + 50 % of 1,400 MHz.
        assert_eq!(after(30, 50), mhz(1_500));
        assert_eq!(after(30, 95), mhz(2_100), "95 % is not more than the threshold");
        assert_eq!(after(20, 0), mhz(800));
        assert_eq!(after(20, 96), mhz(2_200));
    }

    #[test]
    fn ondemand_holds_the_highest_frequency_for_its_factor() {
        let model = OndemandModel { sampling_down_factor: 5, ..OndemandModel::default() };
        let mut governor = Governor::new(GovernorModel::Ondemand(model), range(), false);
        let (mut now, mut idle) = (0, 0);
        let mut after = |milliseconds, busy| loaded(&mut governor, &mut now, &mut idle, milliseconds, busy);
        assert_eq!(after(20, 10), mhz(900));
        assert_eq!(after(10, 100), mhz(2_200));
        assert_eq!(after(40, 10), mhz(2_200));
        assert_eq!(after(10, 10), mhz(900));
    }

    #[test]
    fn conservative_goes_step_by_step() {
        let mut governor = Governor::new(GovernorModel::Conservative(ConservativeModel::default()), range(), false);
        let (mut now, mut idle) = (0, 0);
        let mut after = |milliseconds, busy| loaded(&mut governor, &mut now, &mut idle, milliseconds, busy);
        // 5 % of 2.2 GHz are 110 MHz. On the way down the wanted frequency is rounded up...
        assert_eq!(after(10, 10), mhz(2_100));
        assert_eq!(after(10, 10), mhz(2_000));
        assert_eq!(after(10, 50), mhz(2_000), "between the thresholds");
        assert_eq!(after(200, 0), mhz(800));
        // ...and on the way up it is rounded down.
        assert_eq!(after(10, 90), mhz(900));
        assert_eq!(after(10, 90), mhz(1_000));
    }

    /// As in the kernel, a reduction for idle periods is kept only if the same sample also makes a step.
    #[test]
    fn conservative_forgets_idle_periods_without_a_step() {
        let mut governor = Governor::new(GovernorModel::Conservative(ConservativeModel::default()), range(), false);
        let (mut now, mut idle) = (0, 0);
        assert_eq!(loaded(&mut governor, &mut now, &mut idle, 10, 50), mhz(2_200));
        // After five idle periods, the load before them (50 %) counts. It is between the thresholds.
        now += 50_000_000;
        idle += 50_000_000;
        let slept = Load { idle: Nanos::from_nanos(idle), ..Load::default() };
        assert_eq!(governor.decide(At::from_nanos(now), mhz(2_200), &slept), None);
        // The core is busy again and still at the highest frequency: the idle periods had no lasting effect.
        assert_eq!(loaded(&mut governor, &mut now, &mut idle, 10, 100), mhz(2_200));
        // After an idle time that would reduce the frequency to the lowest, the kernel leaves it unchanged.
        let mut governor = Governor::new(GovernorModel::Conservative(ConservativeModel::default()), range(), false);
        let (mut now, mut idle) = (0, 0);
        assert_eq!(loaded(&mut governor, &mut now, &mut idle, 10, 10), mhz(2_100));
        now += 1_000_000_000;
        idle += 1_000_000_000;
        let slept = Load { idle: Nanos::from_nanos(idle), ..Load::default() };
        assert_eq!(governor.decide(At::from_nanos(now), mhz(2_100), &slept), None);
        assert_eq!(loaded(&mut governor, &mut now, &mut idle, 10, 10), mhz(2_000));
    }

    #[test]
    fn after_a_long_sleep_the_load_before_it_stands_once_more() {
        let mut governor = Governor::new(GovernorModel::Ondemand(OndemandModel::default()), range(), false);
        let (mut now, mut idle) = (0, 0);
        assert_eq!(loaded(&mut governor, &mut now, &mut idle, 10, 100), mhz(2_200));
        let slept = |idle: u64| Load { idle: Nanos::from_nanos(idle), ..Load::default() };
        // No sample is taken during the idle second. The first sample after it uses the load before it.
        assert_eq!(governor.decide(At::from_nanos(now + 1_000_000_000), mhz(2_200), &slept(1_000_000_000)), None);
        let next = governor.decide(At::from_nanos(now + 2_000_000_000), mhz(2_200), &slept(1_999_000_000));
        assert_eq!(next, Some(mhz(800)));
    }
}
