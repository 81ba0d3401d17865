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
}

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
        Ok((Self { access: access.clone(), steered, limits, latencies, policy_of }, domains))
    }

    /// Creates settings without any entries: nothing can be changed.
    pub fn none(access: &Access) -> Self {
        let (limits, latencies, policy_of) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { access: access.clone(), steered: None, limits, latencies, policy_of }
    }

    /// Fixes the frequency of a cpufreq policy, in kHz. `None` restores the policy's original limits.
    pub fn fix_frequency(&mut self, policy: u32, khz: Option<u32>) -> Applied {
        let Some(place) = self.limits.get(&policy).copied() else {
            return Applied::Failed(format!("CPU policy {policy} has no limits to set"));
        };
        let Some(khz) = khz else { return self.restore(place) };
        // A frequency above the firmware's limit would not take effect. Finding that out takes half a second, during
        // which other guests would have to wait.
        let (khz, above) = match knob::firmware_limit(&self.access, policy) {
            Ok(Some(limit)) if limit < u64::from(khz) => {
                let why = format!("the firmware limits the frequency to {} (bios_limit)", Hertz::new(limit * 1_000));
                (u32::try_from(limit).unwrap_or(khz), Some(why))
            }
            Ok(_) => (khz, None),
            Err(error) => return Applied::Failed(error.to_string()),
        };
        let frequency = Hertz::from_khz(khz);
        match (self.set(place, &Limits::value(frequency, frequency)), above) {
            (Applied::InForce, Some(why)) => Applied::Otherwise(why),
            (applied, _) => applied,
        }
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
        self.steered.map_or(Ok(None), |steered| steered.release_within(patience))
    }

    fn restore(&mut self, place: usize) -> Applied {
        match self.steered.as_ref().and_then(|steered| steered.original(place)).cloned() {
            Some(original) => self.set(place, &original),
            None => Applied::Failed("its original value is unknown".into()),
        }
    }

    fn set(&mut self, place: usize, value: &Value) -> Applied {
        let Some(steered) = &mut self.steered else { return Applied::Failed("there is nothing to set".into()) };
        match steered.steer(place, value) {
            Ok(Moved::AsWanted { .. }) => Applied::InForce,
            Ok(Moved::Otherwise { now, why } | Moved::Unmoved { now, why }) => {
                Applied::Otherwise(why.unwrap_or_else(|| format!("the machine set {now} instead")))
            }
            Ok(Moved::LetGo { now }) => {
                Applied::Lost(format!("somebody else set it to {now}; Apus leaves it at this value"))
            }
            Ok(Moved::Gone) => Applied::Lost("the CPU is gone".into()),
            Ok(Moved::Away) => Applied::Failed("the CPU is offline".into()),
            Err(error) => Applied::Failed(error.to_string().replace('\n', "; ")),
        }
    }
}
