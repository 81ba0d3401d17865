//! The values of this host for the holes of a fix.

use host::Facts;
use host::facts::CpuSet;
use units::Hertz;

use super::setting::words;
use crate::{Context, Subject};

/// The holes that a rule may leave in its fix.
pub(crate) const HOLES: [&str; 11] = [
    "{isolated}",
    "{housekeeping}",
    "{isolated-mask}",
    "{housekeeping-mask}",
    "{nic}",
    "{cpu}",
    "{cpu-words}",
    "{idle-limit}",
    "{steady}",
    "{irq}",
    "{device}",
];

/// What fills the holes.
pub(crate) struct Values<'a> {
    pub subject: &'a Subject,
    pub context: &'a Context,
    pub housekeeping: &'a CpuSet,
    pub facts: &'a Facts,
}

/// Why a value is not known, and what makes it known.
const NO_ISOLATED: &str = "rerun with --isolated: no CPU is known to be kept for the application";
const NO_HOUSEKEEPING: &str =
    "rerun with --isolated and leave at least one CPU of each node to housekeeping: no other CPU is known";
const NO_NIC: &str = "rerun with --nic: the interface that matters is not known";
const NO_CPUS: &str = "record the host anew (apus snapshot): its CPUs are not known";
const NO_FREQUENCY: &str = "record the host anew (apus snapshot): the frequencies of these CPUs are not known";
const NO_SUBJECT: &str = "see the evidence: it names what is meant";

impl<'a> Values<'a> {
    /// Of a subject on a host.
    pub fn new(subject: &'a Subject, context: &'a Context, housekeeping: &'a CpuSet, facts: &'a Facts) -> Self {
        Self { subject, context, housekeeping, facts }
    }

    /// The line with its values; where one is not known, what makes it known.
    pub fn fill(&self, line: &str) -> Result<String, &'static str> {
        let mut filled = line.to_owned();
        for hole in HOLES {
            if filled.contains(hole) {
                filled = filled.replace(hole, &self.value(hole)?);
            }
        }
        Ok(filled)
    }

    /// A frequency that all of these CPUs can keep: the lowest of their base frequencies; where the driver does not say
    /// what that is, of those in their names, or of the highest that they may have. Never more than the firmware allows.
    fn steady(&self, cpus: &CpuSet) -> Option<String> {
        let named = self.facts.cpus.model_name.value().and_then(|name| nominal(name));
        let of_cpu = |id: u32| -> Option<Hertz> {
            let frequency = &self.facts.cpus.cpu(id)?.frequency;
            let most = [frequency.hardware_max.get().or(frequency.scaling_max.get()), frequency.firmware_max.get()];
            let most = most.into_iter().flatten().min();
            match (frequency.base.get().or(named), most) {
                (Some(base), Some(most)) => Some(base.min(most)),
                (base, most) => base.or(most),
            }
        };
        let lowest = cpus.iter().map(of_cpu).collect::<Option<Vec<_>>>()?.into_iter().min()?;
        Some(format!("{}MHz", lowest.as_hertz() / 1_000_000))
    }

    fn value(&self, hole: &str) -> Result<String, &'static str> {
        let (isolated, housekeeping) = (&self.context.isolated.value, self.housekeeping);
        let own = match self.subject {
            Subject::Cpus(cpus) => cpus,
            // Where no CPU is isolated, all of them matter.
            _ if isolated.is_empty() => housekeeping,
            _ => isolated,
        };
        let some = |set: &'a CpuSet, why: &'static str| if set.is_empty() { Err(why) } else { Ok(set) };
        // Without isolated CPUs there is no housekeeping; and what leaves none of it is never written.
        let isolated = || some(isolated, NO_ISOLATED).and_then(|set| some(housekeeping, NO_HOUSEKEEPING).and(Ok(set)));
        match hole {
            "{isolated}" => isolated().map(ToString::to_string),
            "{isolated-mask}" => isolated().map(CpuSet::to_mask),
            "{housekeeping}" => isolated().map(|_| housekeeping.to_string()),
            "{housekeeping-mask}" => isolated().map(|_| housekeeping.to_mask()),
            "{cpu}" => some(own, NO_CPUS).map(ToString::to_string),
            "{cpu-words}" => some(own, NO_CPUS).map(words),
            "{idle-limit}" => Ok(idle_limit(self.context)),
            "{steady}" => self.steady(own).ok_or(NO_FREQUENCY),
            "{nic}" => match self.subject {
                Subject::Link(name) => Ok(name.clone()),
                _ => self.context.nics.value.first().cloned().ok_or(NO_NIC),
            },
            "{irq}" => match self.subject {
                Subject::Irq(number, _) => Ok(number.to_string()),
                _ => Err(NO_SUBJECT),
            },
            _ => match self.subject {
                Subject::Device(address) => Ok(address.clone()),
                _ => Err(NO_SUBJECT),
            },
        }
    }
}

/// The frequency without turbo that a processor's name ends with, as in `Xeon(R) D-2146NT CPU @ 2.30GHz` (Intel SDM volume
/// 2A, CPUID, The Processor Brand String Method: the maximum frequency that the processor is qualified for).
fn nominal(name: &str) -> Option<Hertz> {
    let (_, frequency) = name.rsplit_once(" @ ")?;
    let gigahertz: f64 = frequency.trim().strip_suffix("GHz")?.parse().ok()?;
    // In steps of 10 MHz, as it is written.
    (gigahertz > 0.0).then(|| Hertz::new((gigahertz * 100.0).round() as u64 * 10_000_000))
}

/// What `pm_qos_resume_latency_us` is to hold: the exit latency that the goal leaves to one cause, and never more than
/// without a goal, for other causes need their part of it. Zero is written `n/a` (power/pm_qos_interface.rst).
fn idle_limit(context: &Context) -> String {
    let limit = context.budget().min(Context::DEFAULT_BUDGET);
    host::knob::ResumeLatency::AtMost(limit).value().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;

    /// The fix of `cpu.freq-span` for a CPU of this name, with these files of its policy.
    fn steady(model: &str, files: &[(&str, &str)]) -> String {
        let policy = "/sys/devices/system/cpu/cpufreq/policy2";
        let host = files.iter().fold(host(), |host, (name, text)| host.file(&format!("{policy}/{name}"), text));
        let (mut facts, context) = (host.facts(), Context::default());
        facts.cpus.model_name = host::facts::Fact::known(model.into(), "/proc/cpuinfo");
        let (subject, housekeeping) = (Subject::Cpus([2].into()), CpuSet::new());
        let values = Values::new(&subject, &context, &housekeeping, &facts);
        values.fill("{steady}").unwrap()
    }

    #[test]
    fn a_steady_frequency_is_one_that_the_firmware_allows_and_no_turbo() {
        // skld0, bdwde0: intel_cpufreq has no base_frequency, and the highest is turbo.
        let turbo = [("related_cpus", "2"), ("cpuinfo_max_freq", "3000000")];
        assert_eq!(steady("Intel(R) Xeon(R) D-2146NT CPU @ 2.30GHz", &turbo), "2300MHz");
        // icx2s0: the name says 2.4 GHz, the driver knows better.
        let based = [("related_cpus", "2"), ("cpuinfo_max_freq", "3500000"), ("base_frequency", "2100000")];
        assert_eq!(steady("Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz", &based), "2100MHz");
        // genoa0: acpi-cpufreq refuses what lies above bios_limit.
        let limited = [("related_cpus", "2"), ("cpuinfo_max_freq", "3800241"), ("bios_limit", "3250000")];
        assert_eq!(steady("AMD EPYC 9354 32-Core Processor", &limited), "3250MHz");
        assert_eq!(steady("no name", &turbo), "3000MHz");
    }

    #[test]
    fn names_with_a_frequency() {
        assert_eq!(nominal("Intel(R) Xeon(R) CPU D-1541 @ 2.10GHz"), Some(Hertz::new(2_100_000_000)));
        assert_eq!(nominal("Intel(R) Xeon(R) 6980P"), None);
        assert_eq!(nominal("x @ 0.00GHz"), None);
    }
}
