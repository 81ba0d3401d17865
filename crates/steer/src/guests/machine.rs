//! The machine's CPUs and their frequencies, and the manifests that state which guest may influence them.

use std::collections::BTreeMap;

use host::CpuSet;
use units::Hertz;

/// CPUs that share one frequency: a cpufreq policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Domain {
    /// Number of the cpufreq policy.
    pub policy: u32,
    /// CPUs of the domain.
    pub cpus: CpuSet,
    /// The frequencies at which the domain can be fixed, in kHz, lowest first. Never empty.
    pub steps: Vec<u32>,
    /// The highest step below the turbo frequencies, in kHz. `None` if there is no turbo frequency, or if it is unknown
    /// whether there is.
    pub nominal: Option<u32>,
}

/// Distance in kHz between steps if the driver lists no frequencies (intel_pstate): 100 MHz, the unit of intel_pstate's
/// ratio.
const STEP: u32 = 100_000;

impl Domain {
    /// The steps between two frequencies in kHz, for drivers that list no frequencies.
    pub fn steps_between(least: u32, most: u32) -> Vec<u32> {
        let between = (least / STEP + 1..most.div_ceil(STEP)).map(|ratio| ratio * STEP);
        let mut steps: Vec<u32> = std::iter::once(least).chain(between).chain([most]).collect();
        steps.dedup();
        steps
    }

    /// The lowest step that is at least `khz`; the highest step if none is.
    pub fn at_least(&self, khz: u32) -> u32 {
        self.steps.iter().copied().find(|step| *step >= khz).unwrap_or_else(|| self.highest())
    }

    /// The highest step that is at most `khz`; the lowest step if none is.
    pub fn at_most(&self, khz: u32) -> u32 {
        self.steps.iter().rev().copied().find(|step| *step <= khz).unwrap_or_else(|| self.lowest())
    }

    /// The next step above `khz`; the highest step if there is none.
    pub fn above(&self, khz: u32) -> u32 {
        self.at_least(khz.saturating_add(1))
    }

    /// The next step below `khz`; the lowest step if there is none.
    pub fn below(&self, khz: u32) -> u32 {
        self.at_most(khz.saturating_sub(1))
    }

    /// The highest frequency step, in kHz.
    pub fn highest(&self) -> u32 {
        self.steps.last().copied().unwrap_or(0)
    }

    /// The lowest frequency step, in kHz.
    pub fn lowest(&self) -> u32 {
        self.steps.first().copied().unwrap_or(0)
    }
}

/// What one guest may request, as the host's administrator configured it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Name of the guest.
    pub name: String,
    /// The vCPUs for which requests are accepted, each with the host CPUs to which it may be pinned.
    pub vcpus: BTreeMap<u16, CpuSet>,
    /// The lowest frequency that the guest's requests may cause. `None` means the hardware's lowest.
    pub min_frequency: Option<Hertz>,
    /// The highest frequency that the guest's requests may cause. `None` means the hardware's highest.
    pub max_frequency: Option<Hertz>,
    /// Whether the guest's requests may limit idle states, which keeps cores from saving power.
    pub may_limit_idle: bool,
    /// Whether the guest may query the frequencies of its cores (DPDK's queries).
    pub may_query: bool,
    /// Maximum number of the guest's requests per second that are carried out.
    pub requests_per_second: u32,
    /// Number of the guest's channels.
    pub channels: usize,
}

impl Manifest {
    /// The CPUs that the guest's requests can affect.
    pub fn cpus(&self) -> CpuSet {
        self.vcpus.values().fold(CpuSet::new(), |all, cpus| all.union(cpus))
    }

    /// The lowest and the highest step that the guest may cause in a domain, in kHz. If no step lies within the
    /// manifest's limits, both are the next step above the lower limit.
    pub fn range(&self, domain: &Domain) -> (u32, u32) {
        let khz = |frequency: Hertz| u32::try_from(frequency.as_hertz() / 1_000).unwrap_or(u32::MAX);
        let least = self.min_frequency.map_or(domain.lowest(), |least| domain.at_least(khz(least)));
        let most = self.max_frequency.map_or(domain.highest(), |most| domain.at_most(khz(most)));
        (least, most.max(least))
    }
}

/// Where a vCPU's thread runs on the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// The vCPU runs on this CPU only.
    Pinned(u32),
    /// The vCPU runs on any of these CPUs; the scheduler decides.
    Floating(CpuSet),
    /// It is unknown where the vCPU runs. The string says why.
    Unknown(String),
}

impl Place {
    /// The place of a thread that may run on `cpus`.
    pub fn of(cpus: CpuSet) -> Self {
        match (cpus.len(), cpus.first()) {
            (1, Some(cpu)) => Self::Pinned(cpu),
            (0, _) | (_, None) => Self::Unknown("it may run on no CPU".into()),
            _ => Self::Floating(cpus),
        }
    }

    /// Whether a vCPU at this place may run on `cpu`. False if the place is unknown.
    pub fn may_be(&self, cpu: u32) -> bool {
        match self {
            Self::Pinned(at) => *at == cpu,
            Self::Floating(cpus) => cpus.contains(cpu),
            Self::Unknown(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(steps: &[u32]) -> Domain {
        Domain { policy: 0, cpus: CpuSet::from([0]), steps: steps.to_vec(), nominal: None }
    }

    #[test]
    fn steps_are_found_and_have_ends() {
        let domain = domain(&[800, 1_200, 2_600]);
        assert_eq!([0, 800, 801, 1_200, 9_999].map(|khz| domain.at_least(khz)), [800, 800, 1_200, 1_200, 2_600]);
        assert_eq!([0, 800, 1_199, 9_999].map(|khz| domain.at_most(khz)), [800, 800, 800, 2_600]);
        assert_eq!([0, 800, 2_600, u32::MAX].map(|khz| domain.above(khz)), [800, 1_200, 2_600, 2_600]);
        assert_eq!([0, 800, 1_200].map(|khz| domain.below(khz)), [800, 800, 800]);
    }

    #[test]
    fn drivers_without_steps_get_some() {
        assert_eq!(Domain::steps_between(800_000, 1_050_000), [800_000, 900_000, 1_000_000, 1_050_000]);
        assert_eq!(Domain::steps_between(850_000, 1_000_000), [850_000, 900_000, 1_000_000]);
        assert_eq!(Domain::steps_between(800_000, 800_000), [800_000]);
    }

    #[test]
    fn a_manifest_without_a_step_between_its_limits_has_one() {
        let mut manifest = Manifest {
            name: "a".into(),
            vcpus: BTreeMap::new(),
            min_frequency: Some(Hertz::new(1_000_000)),
            max_frequency: Some(Hertz::new(1_100_000)),
            may_limit_idle: true,
            may_query: true,
            requests_per_second: 1,
            channels: 1,
        };
        assert_eq!(manifest.range(&domain(&[800, 1_200, 2_600])), (1_200, 1_200));
        manifest.min_frequency = None;
        assert_eq!(manifest.range(&domain(&[800, 1_200, 2_600])), (800, 800));
    }
}
