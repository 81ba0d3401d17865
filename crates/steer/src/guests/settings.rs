//! Applies the requests of guests: sets the limits of cpufreq policies, and the resume latency of CPUs.
//!
//! A domain is fixed at a frequency by setting both of its cpufreq limits to that frequency. Every governor obeys these
//! limits, so the governor itself is not changed. The original values are recorded in the journal before the first
//! change, and are restored when [`Settings`] is dropped.
// The error of a failed transaction is large, because it lists what was done and what remains to be done. It is rare
// and on no hot path (as in `host`).
#![allow(clippy::result_large_err)]

use std::collections::BTreeMap;
use std::time::Duration;

use host::CpuSet;
use host::knob::{self, Access, CpuLatency, Limits, ResumeLatency, Value};
use host::transaction::{Error, Moved, RolledBack, Steered, Target};
use units::{Hertz, Nanos};

use super::machine::{Domain, Manifest};
use super::record::Applied;

/// The host's settings that guests may influence according to their manifests.
#[derive(Debug)]
pub struct Settings {
    access: Access,
    /// The controlled settings. `None` if there are none.
    steered: Option<Steered>,
    /// Index in `steered` of each cpufreq policy's limits.
    limits: BTreeMap<u32, usize>,
    /// Index in `steered` of each CPU's resume latency.
    latencies: BTreeMap<u32, usize>,
    policy_of: BTreeMap<u32, u32>,
    /// Why the frequency that a policy is being fixed at is below the requested one.
    above: BTreeMap<u32, String>,
    /// How long the changes of this pass may still wait for the kernel.
    patience: Duration,
}

/// Maximum time for which all changes of one pass together wait until the kernel shows them. A kernel thread carries
/// them out, usually within a millisecond. While a limit holds them back, they never show.
const PATIENCE: Duration = Duration::from_millis(20);

impl Settings {
    /// Records the settings of all CPUs in the manifests, and returns the frequency domains of these CPUs. Changes
    /// nothing yet.
    ///
    /// Domains with unknown frequencies are left out, and so is the resume latency if the kernel has no PM QoS.
    pub fn new(
        access: &Access,
        manifests: &[Manifest],
        command: &str,
        version: &str,
    ) -> Result<(Self, Vec<Domain>), Error> {
        let cpus = manifests.iter().fold(CpuSet::new(), |all, one| all.union(&one.cpus()));
        let (mut domains, mut targets) = (Vec::new(), Vec::new());
        let (mut limits, mut latencies, mut policy_of) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for policy in knob::policies(access)? {
            let of_policy = knob::policy_cpus(access, policy)?;
            if !of_policy.intersects(&cpus) {
                continue;
            }
            let Some(speeds) = knob::speeds(access, policy)? else { continue };
            let khz = |khz: u64| u32::try_from(khz).unwrap_or(u32::MAX);
            let steps = match speeds.available.is_empty() {
                true => Domain::steps_between(khz(speeds.least), khz(speeds.most)),
                false => speeds.available.iter().copied().map(khz).collect(),
            };
            policy_of.extend(of_policy.iter().map(|cpu| (cpu, policy)));
            limits.insert(policy, targets.len());
            targets.push(Target::from(Limits::new(policy)));
            domains.push(Domain { policy, cpus: of_policy, steps, nominal: speeds.nominal.map(khz) });
        }
        let may_limit_idle = manifests.iter().filter(|one| one.may_limit_idle);
        let idle_cpus = may_limit_idle.fold(CpuSet::new(), |all, one| all.union(&one.cpus()));
        for cpu in idle_cpus.iter() {
            let latency = CpuLatency::new(cpu);
            if knob::Knob(latency.clone()).read(access)?.is_some() {
                latencies.insert(cpu, targets.len());
                targets.push(Target::from(latency));
            }
        }
        let steered = match targets.is_empty() {
            true => None,
            false => Some(Steered::new(access, "guests", &targets, command, version)?),
        };
        let settings = Self { steered, limits, latencies, policy_of, ..Self::none(access) };
        Ok((settings, domains))
    }

    /// Creates settings without any entries: nothing can be changed.
    pub fn none(access: &Access) -> Self {
        let (limits, latencies, policy_of, above) = Default::default();
        Self { access: access.clone(), steered: None, limits, latencies, policy_of, above, patience: PATIENCE }
    }

    /// Fixes the frequency of a cpufreq policy, in kHz. `None` restores the policy's original limits.
    pub fn fix_frequency(&mut self, policy: u32, khz: Option<u32>) -> Applied {
        let Some(place) = self.limits.get(&policy).copied() else {
            return Applied::Failed(format!("CPU policy {policy} has no limits to set"));
        };
        let Some(khz) = khz else { return self.restore(place) };
        // A frequency above what the machine allows now would not take effect, or be refused.
        let (khz, above) = match knob::most_now(&self.access, policy) {
            Ok(Some((most, by))) if most < u64::from(khz) => {
                let why = format!("{by} limits the frequency to {}", Hertz::new(most * 1_000));
                (u32::try_from(most).unwrap_or(khz), Some(why))
            }
            Ok(_) => (khz, None),
            Err(error) => return Applied::Failed(error.to_string()),
        };
        let frequency = Hertz::from_khz(khz);
        let applied = self.set(place, &Limits::value(frequency, frequency));
        self.above.remove(&policy);
        match (applied, above) {
            (Applied::InForce, Some(why)) => Applied::Otherwise(why),
            (applied, above) => {
                self.above.extend(above.map(|why| (policy, why)));
                applied
            }
        }
    }

    /// The outcome of a frequency that was still being applied. `is_over` says that the kernel has had enough time.
    pub fn settled(&mut self, policy: u32, is_over: bool) -> Applied {
        let place = self.limits.get(&policy).copied();
        let (Some(place), Some(steered)) = (place, &mut self.steered) else {
            return Applied::Failed(format!("CPU policy {policy} has no limits to set"));
        };
        match (outcome(steered.settle(place, is_over)), self.above.get(&policy)) {
            (Applied::InForce, Some(why)) => Applied::Otherwise(why.clone()),
            (applied, _) => applied,
        }
    }

    /// Begins a pass over the guests, in which all changes together may wait for the kernel [`PATIENCE`] long.
    pub fn begin_pass(&mut self) {
        self.patience = PATIENCE;
    }

    /// Limits the exit latency of a CPU's idle states, unless its original limit is lower. `None` restores the original
    /// limit.
    pub fn limit_idle(&mut self, cpu: u32, limit: Option<Nanos>) -> Applied {
        let Some(place) = self.latencies.get(&cpu).copied() else {
            return Applied::Failed(format!(
                "CPU {cpu} accepts no limit of its idle states (pm_qos_resume_latency_us is missing)"
            ));
        };
        let Some(limit) = limit else { return self.restore(place) };
        let original = self.steered.as_ref().and_then(|steered| steered.original(place));
        let original = original.and_then(Value::as_text).and_then(ResumeLatency::of_file);
        match original {
            Some(ResumeLatency::Zero) => self.restore(place),
            Some(ResumeLatency::AtMost(own)) if own <= limit => self.restore(place),
            _ => self.set(place, &ResumeLatency::AtMost(limit).value()),
        }
    }

    /// The frequency of a CPU in kHz, as the driver reports it. `None` if it is unknown.
    pub fn frequency(&self, cpu: u32) -> Option<u32> {
        let policy = self.policy_of.get(&cpu)?;
        u32::try_from(knob::current_speed(&self.access, *policy).ok()??).ok()
    }

    /// Restores all settings that Apus still controls.
    pub fn release_within(self, patience: Duration) -> Result<Option<RolledBack>, Error> {
        let Some(mut steered) = self.steered else { return Ok(None) };
        // What a limit holds back need not be waited for again. A change that cannot be read now stays in doubt.
        let _ = self.limits.values().try_for_each(|place| steered.settle(*place, true).map(drop));
        steered.release_within(patience)
    }

    fn restore(&mut self, place: usize) -> Applied {
        match self.steered.as_ref().and_then(|steered| steered.original(place)).cloned() {
            Some(original) => self.set(place, &original),
            None => Applied::Failed("its original value is unknown".into()),
        }
    }

    fn set(&mut self, place: usize, value: &Value) -> Applied {
        let Some(steered) = &mut self.steered else { return Applied::Failed("there is nothing to set".into()) };
        outcome(steered.steer_within(place, value, &mut self.patience))
    }
}

fn outcome(moved: Result<Option<Moved>, knob::Error>) -> Applied {
    match moved {
        Ok(Some(Moved::AsWanted { .. })) => Applied::InForce,
        Ok(Some(Moved::Otherwise { now, why } | Moved::Unmoved { now, why })) => {
            Applied::Otherwise(why.unwrap_or_else(|| format!("the machine set {now} instead")))
        }
        Ok(Some(Moved::LetGo { now })) => {
            Applied::Lost(format!("somebody else set it to {now}; Apus leaves it at this value"))
        }
        Ok(Some(Moved::Gone)) => Applied::Lost("the CPU is gone".into()),
        Ok(Some(Moved::Away)) => Applied::Failed("the CPU is offline".into()),
        Ok(None) => Applied::Settling,
        Err(error) => Applied::Failed(error.to_string().replace('\n', "; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Host;

    fn settings(access: &Access) -> Settings {
        let manifest = Manifest {
            name: "a".into(),
            vcpus: [(0, CpuSet::from([0]))].into(),
            min_frequency: None,
            max_frequency: None,
            may_limit_idle: false,
            may_query: true,
            requests_per_second: 50,
            channels: 1,
        };
        Settings::new(access, &[manifest], "a test", "0").unwrap().0
    }

    /// A guest that keeps asking for what a cooling device withholds does not keep the others waiting.
    #[test]
    fn what_the_kernel_does_not_show_is_not_waited_for() {
        let host = Host::new(&[]);
        let mut settings = settings(&host.hot());
        for khz in (2_500_000..2_600_000).step_by(1_000) {
            assert_eq!(settings.fix_frequency(0, Some(khz)), Applied::Settling);
        }
        // All hundred requests together have waited as long as one pass may wait.
        assert_eq!(settings.patience, Duration::ZERO);
        settings.begin_pass();
        assert_eq!(settings.settled(0, false), Applied::Settling);
        let Applied::Otherwise(why) = settings.settled(0, true) else { panic!("no limit") };
        assert!(why.contains("at most 2400000 kHz"), "{why}");
        host.put_limits(2_599_000, 2_599_000);
        assert_eq!(settings.fix_frequency(0, Some(1_000_000)), Applied::InForce, "the kernel keeps what was requested");
        assert_eq!(settings.fix_frequency(0, None), Applied::Settling);
        let restored = settings.release_within(Duration::from_secs(10)).unwrap();
        assert!(restored.is_some_and(|restored| restored.closed));
        assert_eq!(host.read("scaling_min_freq"), "800000");
    }

    /// Another tool switches turbo off while a guest has a low frequency.
    #[test]
    fn a_range_that_has_shrunk_is_obeyed_and_left_again() {
        let host = Host::new(&[]);
        let mut settings = settings(&host.access());
        assert_eq!(settings.fix_frequency(0, Some(800_000)), Applied::InForce);
        host.put("cpuinfo_max_freq", "2100000");
        let Applied::Otherwise(why) = settings.fix_frequency(0, Some(3_000_000)) else { panic!("not limited") };
        assert!(why.contains("the driver limits the frequency to 2.1GHz"), "{why}");
        assert_eq!(host.read("scaling_max_freq"), "2100000");
        assert_eq!(settings.fix_frequency(0, None), Applied::InForce, "the original limits");
        assert_eq!(host.read("scaling_max_freq"), "3000000");
    }
}
