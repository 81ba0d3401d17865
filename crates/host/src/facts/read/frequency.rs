//! Frequency scaling: `cpufreq` in sysfs and the drivers' own settings.

use std::collections::BTreeMap;

use units::{Hertz, Nanos};

use crate::facts::{Context, CpuSet, Fact, Frequency, Root, Scaling};

const CPUS: &str = "sys/devices/system/cpu";

pub(super) fn scaling(root: &Root) -> Scaling {
    let pstate = |name: &str| format!("{CPUS}/intel_pstate/{name}");
    Scaling {
        intel_pstate: root.text(&pstate("status")),
        amd_pstate: root.text(&format!("{CPUS}/amd_pstate/status")),
        no_turbo: root.switch(&pstate("no_turbo")),
        boost: root.switch(&format!("{CPUS}/cpufreq/boost")),
        min_perf_pct: root.number(&pstate("min_perf_pct")),
        max_perf_pct: root.number(&pstate("max_perf_pct")),
        hwp_dynamic_boost: root.switch(&pstate("hwp_dynamic_boost")),
        platform_profile: root.text("sys/firmware/acpi/platform_profile"),
    }
}

/// The frequency policy to which each CPU belongs.
pub(super) struct Policies {
    of: BTreeMap<u32, (u32, Fact<CpuSet>)>,
}

impl Policies {
    pub(super) fn read(root: &Root) -> Self {
        let mut of = BTreeMap::new();
        for policy in root.numbered(&format!("{CPUS}/cpufreq"), "policy") {
            // The kernel separates the CPU numbers with spaces: "0 1 2".
            let cpus = root
                .text(&format!("{CPUS}/cpufreq/policy{policy}/affected_cpus"))
                .parse(|text| CpuSet::parse_list(&text.split_ascii_whitespace().collect::<Vec<_>>().join(",")));
            let members = cpus.value().filter(|set| !set.is_empty()).cloned();
            for cpu in members.unwrap_or_else(|| CpuSet::from([policy])).iter() {
                of.insert(cpu, (policy, cpus.clone()));
            }
        }
        Self { of }
    }

    /// The frequency settings of one CPU. If it belongs to no policy, the settings of the policy with the CPU's number
    /// are read, so that each fact has a reason why it is missing.
    pub(super) fn of(&self, context: &Context, cpu: u32) -> Frequency {
        let root = context.root;
        let policy = self.of.get(&cpu).map_or(cpu, |(policy, _)| *policy);
        let place = format!("{CPUS}/cpufreq/policy{policy}");
        let text = |name: &str| root.text(&format!("{place}/{name}"));
        let frequency = |name: &str| root.number(&format!("{place}/{name}")).parse(kilohertz);
        // These values are read from a register of the CPU, which interrupts the CPU.
        let measured =
            |name: &str| context.on(cpu, &format!("{place}/{name}"), |root, path| root.number(path).parse(kilohertz));
        Frequency {
            driver: text("scaling_driver"),
            governor: text("scaling_governor"),
            scaling_min: frequency("scaling_min_freq"),
            scaling_max: frequency("scaling_max_freq"),
            current: measured("scaling_cur_freq"),
            hardware_min: frequency("cpuinfo_min_freq"),
            hardware_max: frequency("cpuinfo_max_freq"),
            base: measured("base_frequency"),
            nominal: nominal(context, cpu),
            firmware_max: frequency("bios_limit"),
            epp: context.on(cpu, &format!("{place}/energy_performance_preference"), Root::text),
            transition_latency: root.number(&format!("{place}/cpuinfo_transition_latency")).map(Nanos::from_nanos),
            shared_with: match self.of.get(&cpu) {
                Some((_, cpus)) => cpus.clone(),
                None => root.cpu_list(&format!("{place}/affected_cpus")),
            },
        }
    }
}

/// Reads the nominal frequency of a CPU, in MHz. The kernel reads the registers of all capabilities for it
/// (drivers/acpi/cppc_acpi.c, `cppc_get_perf_caps`), of which AMD's interrupt the CPU.
fn nominal(context: &Context, cpu: u32) -> Fact<Hertz> {
    let path = format!("{CPUS}/cpu{cpu}/acpi_cppc/nominal_freq");
    let read = context.on(cpu, &path, Root::number::<u64>);
    match read.get() {
        Some(0) => Fact::absent(read.source().clone()),
        _ => read.parse(|mega| kilohertz(mega.saturating_mul(1_000))),
    }
}

/// Converts a frequency in kHz. Returns an error if it exceeds the range of [`Hertz`].
pub(super) fn kilohertz(kilo: u64) -> Result<Hertz, String> {
    kilo.checked_mul(1_000).map(Hertz::new).ok_or_else(|| format!("{kilo} kHz is beyond what is counted"))
}
