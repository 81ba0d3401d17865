//! Fills the placeholders of a fix with the values of this host.

use host::Facts;
use host::facts::CpuSet;
use units::Hertz;

use super::setting::words;
use crate::rules::{cores, one_frequency};
use crate::{Context, Subject};

/// All placeholders that the fix of a rule may contain.
pub(crate) const HOLES: [&str; 13] = [
    "{isolated}",
    "{housekeeping}",
    "{isolated-mask}",
    "{housekeeping-mask}",
    "{nic}",
    "{cpu}",
    "{cpu-words}",
    "{core}",
    "{core-words}",
    "{idle-limit}",
    "{bounds}",
    "{irq}",
    "{device}",
];

/// The values that replace the placeholders of a fix.
pub(crate) struct Values<'a> {
    pub subject: &'a Subject,
    pub context: &'a Context,
    pub housekeeping: &'a CpuSet,
    pub facts: &'a Facts,
}

/// Error messages: why a value is not known, and what the user can do about it.
const NO_ISOLATED: &str = "run this audit again with --isolated: no CPU is known to be kept for the application";
const NO_HOUSEKEEPING: &str = "run this audit again with --isolated, and leave at least one CPU of each node to housekeeping: no other CPU is \
    known";
const NO_NIC: &str = "run this audit again with --nic: the interface that matters is not known";
const NO_CPUS: &str = "record the host again (apus snapshot): its CPUs are not known";
const NO_FREQUENCY: &str = "record the host again (apus snapshot): the frequencies of these CPUs are not known";
const NO_SUBJECT: &str = "see the evidence, which names the items";

impl<'a> Values<'a> {
    /// Prepares the values for a subject on a host.
    pub fn new(subject: &'a Subject, context: &'a Context, housekeeping: &'a CpuSet, facts: &'a Facts) -> Self {
        Self { subject, context, housekeeping, facts }
    }

    /// The line with its placeholders filled in. If a value is not known, the error says how to make it known.
    pub fn fill(&self, line: &str) -> Result<String, &'static str> {
        let mut filled = line.to_owned();
        for hole in HOLES {
            if filled.contains(hole) {
                filled = filled.replace(hole, &self.value(hole)?);
            }
        }
        Ok(filled)
    }

    /// Fills in the placeholders of a line. A line with the placeholder for frequency limits becomes one line for each
    /// base frequency among the CPUs.
    pub fn lines(&self, line: &str) -> Vec<Result<String, &'static str>> {
        if !line.contains(BOUNDS) {
            return vec![self.fill(line)];
        }
        let mut groups: Vec<(Option<Hertz>, CpuSet)> = Vec::new();
        for cpu in cores(self.facts, self.own()).iter() {
            let base = steady(self.facts, cpu);
            match groups.iter_mut().find(|(known, _)| *known == base) {
                Some((_, cpus)) => cpus.insert(cpu),
                None => groups.push((base, CpuSet::from([cpu]))),
            }
        }
        let of_group = |(_, cpus): (Option<Hertz>, CpuSet)| {
            let subject = Subject::Cpus(cpus);
            let (context, housekeeping, facts) = (self.context, self.housekeeping, self.facts);
            Values { subject: &subject, context, housekeeping, facts }.fill(line)
        };
        match groups.is_empty() {
            true => vec![Err(NO_CPUS)],
            false => groups.into_iter().map(of_group).collect(),
        }
    }

    /// The frequency limits as arguments of cpupower: the lower limit and, if one fixed frequency is wanted, the same
    /// value as the upper limit. `None` if a CPU's frequency is not known.
    fn bounds(&self) -> Option<String> {
        let base =
            self.own().iter().map(|cpu| steady(self.facts, cpu)).collect::<Option<Vec<_>>>()?.into_iter().min()?;
        let base = format!("{}MHz", base.as_hertz() / 1_000_000);
        Some(match one_frequency(self.facts, self.context) {
            true => format!("-d {base} -u {base}"),
            false => format!("-d {base}"),
        })
    }

    /// The CPUs of the subject. If the subject is not a set of CPUs: the isolated CPUs, or all CPUs if none are
    /// isolated.
    fn own(&self) -> &CpuSet {
        match self.subject {
            Subject::Cpus(cpus) => cpus,
            _ if self.context.isolated.value.is_empty() => self.housekeeping,
            _ => &self.context.isolated.value,
        }
    }

    fn value(&self, hole: &str) -> Result<String, &'static str> {
        let (isolated, housekeeping) = (&self.context.isolated.value, self.housekeeping);
        let own = self.own();
        fn some<'s>(set: &'s CpuSet, why: &'static str) -> Result<&'s CpuSet, &'static str> {
            if set.is_empty() { Err(why) } else { Ok(set) }
        }
        // Without isolated CPUs there are no housekeeping CPUs; and a fix that would leave no housekeeping CPU is never
        // written.
        let isolated = || some(isolated, NO_ISOLATED).and_then(|set| some(housekeeping, NO_HOUSEKEEPING).and(Ok(set)));
        match hole {
            "{isolated}" => isolated().map(ToString::to_string),
            "{isolated-mask}" => isolated().map(CpuSet::to_mask),
            "{housekeeping}" => isolated().map(|_| housekeeping.to_string()),
            "{housekeeping-mask}" => isolated().map(|_| housekeeping.to_mask()),
            "{cpu}" => some(own, NO_CPUS).map(ToString::to_string),
            "{cpu-words}" => some(own, NO_CPUS).map(words),
            "{core}" => some(&cores(self.facts, own), NO_CPUS).map(ToString::to_string),
            "{core-words}" => some(&cores(self.facts, own), NO_CPUS).map(words),
            "{idle-limit}" => Ok(idle_limit(self.context)),
            BOUNDS => self.bounds().ok_or(NO_FREQUENCY),
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

/// The placeholder for the frequency limits.
const BOUNDS: &str = "{bounds}";

/// A frequency that a CPU can sustain: its base frequency or, if that is not known, the CPU's highest frequency. Never
/// above the firmware's limit.
pub(crate) fn steady(facts: &Facts, cpu: u32) -> Option<Hertz> {
    let frequency = &facts.cpus.cpu(cpu)?.frequency;
    let most = [frequency.hardware_max.get().or(frequency.scaling_max.get()), frequency.firmware_max.get()];
    let most = most.into_iter().flatten().min();
    match (base(facts, cpu), most) {
        (Some(base), Some(most)) => Some(base.min(most)),
        (base, most) => base.or(most),
    }
}

/// The base frequency of a CPU: as the driver or the firmware reports it, or as the processor's name states it. The
/// firmware's frequency is not read from isolated CPUs; if it is the same for all others, it is theirs too. With
/// acpi-cpufreq it is the firmware's limit, because this driver sets no state above the base frequency
/// (Documentation/admin-guide/pm/cpufreq.rst, The File cpufreq/boost).
pub(crate) fn base(facts: &Facts, cpu: u32) -> Option<Hertz> {
    let frequency = &facts.cpus.cpu(cpu)?.frequency;
    let others = || {
        let mut known = facts.cpus.list.iter().filter_map(|other| other.frequency.nominal.get());
        let first = known.next()?;
        known.all(|other| other == first).then_some(first)
    };
    let table = || {
        let is_table = frequency.driver.is(|driver| driver == "acpi-cpufreq") == Some(true);
        frequency.firmware_max.get().filter(|_| is_table)
    };
    let named = || facts.cpus.model_name.value().and_then(|name| nominal(name));
    frequency.base.get().or(frequency.nominal.get()).or_else(named).or_else(others).or_else(table)
}

/// The frequency at the end of a processor's name, as in `Xeon(R) D-2146NT CPU @ 2.30GHz`. It is the maximum frequency,
/// without turbo, for which the processor is qualified (Intel SDM volume 2A, CPUID, The Processor Brand String Method).
fn nominal(name: &str) -> Option<Hertz> {
    let (_, frequency) = name.rsplit_once(" @ ")?;
    let gigahertz: f64 = frequency.trim().strip_suffix("GHz")?.parse().ok()?;
    // The name states the frequency in steps of 10 MHz.
    (gigahertz > 0.0).then(|| Hertz::new((gigahertz * 100.0).round() as u64 * 10_000_000))
}

/// The value for `pm_qos_resume_latency_us`: the latency of the goal, but at most [`Context::DEFAULT_BUDGET`], because
/// other causes also delay the packet. Zero is written as `n/a` (power/pm_qos_interface.rst).
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
        values.fill("{bounds}").unwrap().trim_start_matches("-d ").to_owned()
    }

    /// icx2s0 has CPUs of 2100 and of 2700 MHz: each keeps its own, and turbo stays (Ice Lake does not stop for a change),
    /// unless the host is a real-time one.
    #[test]
    fn each_base_frequency_has_its_command_and_turbo_stays_where_a_change_costs_nothing() {
        let policy = |host: crate::testing::Host, (n, base): (u32, &str)| {
            let policy = format!("/sys/devices/system/cpu/cpufreq/policy{n}");
            host.file(&format!("{policy}/related_cpus"), &n.to_string())
                .file(&format!("{policy}/cpuinfo_max_freq"), "3500000")
                .file(&format!("{policy}/base_frequency"), base)
        };
        let mut facts = [(2, "2100000"), (3, "2700000"), (4, "2100000")].into_iter().fold(host(), policy).facts();
        facts.cpus.generation = host::facts::Fact::known(host::facts::Generation::IceLake, "/proc/cpuinfo");
        let (subject, housekeeping) = (Subject::Cpus([2, 3, 4].into()), CpuSet::new());
        let lines = |facts: &Facts, context: &Context| -> Vec<String> {
            let values = Values::new(&subject, context, &housekeeping, facts);
            values.lines("cpupower -c {cpu} frequency-set {bounds}").into_iter().map(Result::unwrap).collect()
        };
        let floors = ["cpupower -c 2,4 frequency-set -d 2100MHz", "cpupower -c 3 frequency-set -d 2700MHz"];
        assert_eq!(lines(&facts, &Context::default()), floors);
        let rt = Context { workloads: crate::Intended::given(vec![crate::Workload::Rt]), ..Context::default() };
        assert!(lines(&facts, &rt)[1].ends_with("-d 2700MHz -u 2700MHz"));
        facts.cpus.generation = host::facts::Fact::known(host::facts::Generation::CascadeLake, "/proc/cpuinfo");
        assert!(lines(&facts, &Context::default())[0].ends_with("-d 2100MHz -u 2100MHz"));
        // An AMD processor, and one that no document names: nothing says that a frequency change stops the core.
        facts.cpus.generation = host::facts::Fact::not_recorded("/proc/cpuinfo");
        assert_eq!(lines(&facts, &Context::default()), floors);
    }

    #[test]
    fn a_steady_frequency_is_one_that_the_firmware_allows_and_no_turbo() {
        // skld0, bdwde0: intel_cpufreq has no base_frequency, and the highest is turbo.
        let turbo = [("related_cpus", "2"), ("cpuinfo_max_freq", "3000000")];
        assert_eq!(steady("Intel(R) Xeon(R) D-2146NT CPU @ 2.30GHz", &turbo), "2300MHz");
        // icx2s0: the name says 2.4 GHz, but the value that the driver reports is used.
        let based = [("related_cpus", "2"), ("cpuinfo_max_freq", "3500000"), ("base_frequency", "2100000")];
        assert_eq!(steady("Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz", &based), "2100MHz");
        // genoa0: acpi-cpufreq rejects values above bios_limit.
        let limited = [("related_cpus", "2"), ("cpuinfo_max_freq", "3800241"), ("bios_limit", "3250000")];
        assert_eq!(steady("AMD EPYC 9354 32-Core Processor", &limited), "3250MHz");
        assert_eq!(steady("no name", &turbo), "3000MHz");
    }

    /// amd-pstate has no base_frequency, and the processor's name states none: the highest frequency is boost.
    #[test]
    fn the_firmware_knows_the_base_frequency_where_the_driver_does_not() {
        let base = |nominal: &[(u32, &str)]| {
            let policy = |host: crate::testing::Host, n: u32| {
                host.file(&format!("/sys/devices/system/cpu/cpufreq/policy{n}/cpuinfo_max_freq"), "3811000")
            };
            let host = (0..8).fold(host(), policy);
            let host = nominal.iter().fold(host, |host, (cpu, mega)| {
                host.file(&format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/nominal_freq"), mega)
            });
            let facts = host.facts();
            (super::base(&facts, 2), super::steady(&facts, 2).unwrap())
        };
        let [most, nominal] = [3_811_000_000, 3_250_000_000].map(Hertz::new);
        assert_eq!(base(&[(2, "3250\n")]), (Some(nominal), nominal));
        assert_eq!(base(&[(0, "3250\n"), (1, "3250\n")]), (Some(nominal), nominal), "as all other CPUs");
        assert_eq!(base(&[(0, "3250\n"), (1, "2400\n")]), (None, most), "of two kinds of core");
        assert_eq!(base(&[(2, "0\n")]), (None, most));
    }

    #[test]
    fn names_with_a_frequency() {
        assert_eq!(nominal("Intel(R) Xeon(R) CPU D-1541 @ 2.10GHz"), Some(Hertz::new(2_100_000_000)));
        assert_eq!(nominal("Intel(R) Xeon(R) 6980P"), None);
        assert_eq!(nominal("x @ 0.00GHz"), None);
    }
}
