//! Parameters that exclude each other, and parameters that need others.

use host::facts::{CommandLine, CpuSet};

use crate::{Context, Workload};

/// Two parameters that contradict each other, and how to resolve the contradiction.
pub(super) struct Contradiction {
    pub first: Part,
    pub second: Part,
    /// What happens if both parameters are given.
    pub why: &'static str,
    /// How to resolve the contradiction.
    pub fix: &'static str,
    /// Title of the document that supports the explanation.
    pub source: &'static str,
}

/// A parameter with any value, or with a certain value.
pub(super) struct Part {
    pub name: &'static str,
    pub value: Option<&'static str>,
    /// Whether the part stands for any value except `value`.
    pub other: bool,
}

const fn any(name: &'static str) -> Part {
    Part { name, value: None, other: false }
}

const fn with(name: &'static str, value: &'static str) -> Part {
    Part { name, value: Some(value), other: false }
}

const fn other_than(name: &'static str, value: &'static str) -> Part {
    Part { name, value: Some(value), other: true }
}

impl Part {
    /// The parameter as written on the line. `None` if the line does not have it.
    pub(super) fn on(&self, line: &CommandLine) -> Option<String> {
        let matches = |parameter: &&host::facts::Parameter| match self.value {
            Some(value) => parameter.parts().any(|part| part == value) != self.other,
            None => true,
        };
        line.all(self.name).rfind(matches).map(ToString::to_string)
    }
}

const IDLE: &str = "Linux Documentation/admin-guide/pm/cpuidle.rst, Idle States Control Via Kernel Command Line";
const PARAMETERS: &str = "Linux Documentation/admin-guide/kernel-parameters.txt";
const PSTATE: &str = "Linux drivers/cpufreq/intel_pstate.c, intel_pstate_setup";
const NO_HZ: &str = "Linux Documentation/timers/no_hz.rst";

/// All contradictions.
pub(super) const CONTRADICTIONS: &[Contradiction] = &[
    Contradiction {
        first: with("idle", "poll"),
        second: any("intel_idle.max_cstate"),
        why: "idle=poll disables cpuidle, so a limit on idle states has no effect",
        fix: "either remove intel_idle.max_cstate=, to go on polling, or remove idle=poll, to let idle CPUs sleep within the limit",
        source: IDLE,
    },
    Contradiction {
        first: with("idle", "poll"),
        second: any("processor.max_cstate"),
        why: "idle=poll disables cpuidle, so a limit on idle states has no effect",
        fix: "either remove processor.max_cstate=, to go on polling, or remove idle=poll, to let idle CPUs sleep within the limit",
        source: IDLE,
    },
    Contradiction {
        first: with("nohz", "off"),
        second: any("nohz_full"),
        why: "full dynamic ticks need dynamic ticks, which nohz=off disables",
        fix: "remove nohz=off",
        source: NO_HZ,
    },
    Contradiction {
        first: with("highres", "off"),
        second: any("nohz_full"),
        why: "full dynamic ticks need high-resolution timers",
        fix: "remove highres=off",
        source: NO_HZ,
    },
    Contradiction {
        first: with("tsc", "unstable"),
        second: any("nohz_full"),
        why: "full dynamic ticks need a reliable TSC",
        fix: "remove tsc=unstable",
        source: NO_HZ,
    },
    Contradiction {
        first: with("tsc", "unstable"),
        second: with("tsc", "reliable"),
        why: "the TSC cannot be both reliable and unstable",
        fix: "keep the one that fits this machine",
        source: PARAMETERS,
    },
    Contradiction {
        first: with("clocksource", "hpet"),
        second: with("hpet", "disable"),
        why: "hpet=disable disables the clock source that clocksource= selects",
        fix: "clocksource=tsc",
        source: PARAMETERS,
    },
    Contradiction {
        first: with("mce", "off"),
        second: with("mce", "ignore_ce"),
        why: "with machine checks off there are no corrected errors to ignore, and uncorrected ones are not handled",
        fix: "keep mce=ignore_ce",
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, mce (older kernels: arch/x86/x86_64/boot-options.rst, Machine check)",
    },
    Contradiction {
        first: with("intel_iommu", "off"),
        second: with("iommu", "pt"),
        why: "without the IOMMU there is no pass-through, and vfio-pci cannot bind safely",
        fix: "intel_iommu=on iommu=pt",
        source: PARAMETERS,
    },
    Contradiction {
        first: with("iommu", "off"),
        second: with("intel_iommu", "on"),
        why: "one disables the IOMMU, the other enables it",
        fix: "intel_iommu=on iommu=pt",
        source: PARAMETERS,
    },
    Contradiction {
        first: with("intel_pstate", "disable"),
        second: with("intel_pstate", "active"),
        why: "a driver that is disabled has no mode",
        fix: "remove intel_pstate=active, which has no effect together with disable",
        source: PSTATE,
    },
    Contradiction {
        first: with("intel_pstate", "disable"),
        second: with("intel_pstate", "passive"),
        why: "a driver that is disabled has no mode",
        fix: "remove intel_pstate=passive, which has no effect together with disable",
        source: PSTATE,
    },
    Contradiction {
        first: with("intel_pstate", "active"),
        second: with("intel_pstate", "passive"),
        why: "the driver has one mode: the last of the two takes effect",
        fix: "remove the first of the two, which has no effect",
        source: PSTATE,
    },
    Contradiction {
        first: any("nowatchdog"),
        second: with("nmi_watchdog", "1"),
        why: "one disables both lockup detectors, the other enables one of them",
        fix: "remove nmi_watchdog=1, which has no effect together with nowatchdog (kernel/watchdog.c, \
         lockup_detector_update_enable)",
        source: PARAMETERS,
    },
    Contradiction {
        first: with("rcupdate.rcu_expedited", "1"),
        second: with("rcupdate.rcu_normal", "1"),
        why: "rcu_normal overrides rcu_expedited",
        fix: "keep rcupdate.rcu_normal=1 on hosts with isolated CPUs",
        source: PARAMETERS,
    },
    Contradiction {
        first: with("mitigations", "off"),
        second: other_than("spectre_v2", "off"),
        why: "mitigations=off disables all mitigations, but spectre_v2= asks for one of them",
        fix: "remove one of the two",
        source: PARAMETERS,
    },
    Contradiction {
        first: with("pcie_aspm", "off"),
        second: any("pcie_aspm.policy"),
        why: "pcie_aspm=off keeps the firmware's configuration, so the policy has no effect",
        fix: "keep pcie_aspm.policy=performance",
        source: PARAMETERS,
    },
    Contradiction {
        first: any("quiet"),
        second: any("ignore_loglevel"),
        why: "one hides messages on the console, the other prints all of them",
        fix: "keep quiet: a serial console is slow",
        source: PARAMETERS,
    },
];

/// Clause appended to remarks on scheduling domains: the kernel command line alone does not show cpuset partitions.
pub(crate) const UNLESS_PARTITION: &str = "; whether a cpuset partition prevents this is not recorded";

/// A parameter that other parameters need.
pub(super) struct Companion {
    /// Whether the parameter is missing on this line.
    pub missing: fn(&CommandLine, &Context) -> bool,
    /// The parameter to add, as a template with `{isolated}` and `{housekeeping}`.
    pub add: &'static str,
    pub why: &'static str,
    pub source: &'static str,
}

/// All parameters that other parameters need.
pub(super) const COMPANIONS: &[Companion] = &[
    Companion {
        missing: |line, context| isolates(line, context) && !line.has("isolcpus"),
        add: "isolcpus=managed_irq,domain,{isolated}",
        why: "without it the scheduler balances other work onto the application's CPUs; whether a cpuset partition prevents this is not recorded",
        source: "Linux Documentation/admin-guide/cpu-isolation.rst",
    },
    Companion {
        missing: |line, context| {
            let flags = line.last("isolcpus").map(|p| p.flags().map(str::to_owned).collect::<Vec<_>>());
            isolates(line, context)
                && flags.is_some_and(|flags| !flags.is_empty() && !flags.iter().any(|flag| flag == "domain"))
        },
        add: "isolcpus=managed_irq,domain,{isolated}",
        why: "if any flag is given, domain must be given too, because with managed_irq or nohz alone the scheduler still balances work onto these CPUs",
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, isolcpus",
    },
    Companion {
        missing: |line, _| {
            line.last("isolcpus").is_some_and(|parameter| !parameter.flags().any(|flag| flag == "managed_irq"))
        },
        add: "isolcpus=managed_irq,domain,{isolated}",
        why: "queue interrupts that the kernel manages (NVMe, virtio, some NICs) still go to isolated CPUs",
        source: "Linux commit 11ea68f553e2 (genirq, sched/isolation: Isolate from handling managed interrupts)",
    },
    Companion {
        missing: |line, context| {
            isolates(line, context) && !stops_ticks(line) && !is_only(context, Workload::Interrupt)
        },
        add: "nohz_full={isolated}",
        why: "the application's CPUs keep their tick while they are busy, which means 100 to 1000 interruptions per second",
        source: "Linux Documentation/timers/no_hz.rst",
    },
    Companion {
        missing: |line, context| isolates(line, context) && !line.has("rcu_nocbs") && !stops_ticks(line),
        add: "rcu_nocbs={isolated}",
        why: "RCU callbacks may run on the isolated CPUs, unless the kernel was built with \
         CONFIG_RCU_NOCB_CPU_DEFAULT_ALL; nohz_full= would also offload them",
        source: "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
    },
    Companion {
        missing: |line, context| isolates(line, context) && !line.has("irqaffinity"),
        add: "irqaffinity={housekeeping}",
        why: "new interrupts may go to all CPUs, unless a service has changed /proc/irq/default_smp_affinity",
        source: "Linux Documentation/admin-guide/kernel-parameters.txt, irqaffinity",
    },
    Companion {
        missing: |line, _| {
            line.value("intel_idle.max_cstate") == Some("0")
                && !line.has("processor.max_cstate")
                && !line.has_value("idle", "poll")
        },
        add: "processor.max_cstate=1",
        why: "intel_idle.max_cstate=0 disables intel_idle, and acpi_idle takes over with all idle states of the firmware",
        source: IDLE,
    },
    Companion {
        missing: |line, _| {
            line.has_value("intel_iommu", "on") && !line.has_value("iommu", "pt") && !line.has("iommu.passthrough")
        },
        add: "iommu=pt",
        why: "each packet of the kernel's drivers is mapped and unmapped in the IOMMU",
        source: "DPDK guide Getting Started for Linux, Enabling Additional Functionality, section on the IOMMU",
    },
    Companion {
        missing: |line, context| {
            (context.is(Workload::Poll) || context.is(Workload::KvmHost))
                && !line.has("hugepages")
                && !line.has("default_hugepagesz")
        },
        add: "default_hugepagesz=1G hugepagesz=1G hugepages=16",
        why: "free pages of 1 GB are rare once the host has run for a while; 16 is an example: use the number that the \
         application needs",
        source: "DPDK guide Getting Started for Linux, How to get best performance with NICs on Intel platforms",
    },
    Companion {
        // The watchdog by itself leaves out the CPUs of nohz_full= (kernel/watchdog.c, lockup_detector_init). If an
        // entry above asks for nohz_full=, that is enough.
        missing: |line, context| {
            let full = match line.has("nohz_full") {
                true => set_of(line, "nohz_full").unwrap_or_default(),
                false if stops_ticks(line) => set_of(line, "isolcpus").unwrap_or_default(),
                false if is_only(context, Workload::Interrupt) => CpuSet::new(),
                false => intended(line, context),
            };
            let watched = !intended(line, context).is_subset(&full);
            isolates(line, context) && watched && !line.has("nmi_watchdog") && !line.has("nowatchdog")
        },
        add: "nmi_watchdog=0",
        why: "unless kernel.nmi_watchdog is 0, the hard-lockup detector interrupts each CPU that is not in nohz_full=",
        source: "Linux Documentation/admin-guide/lockup-watchdogs.rst",
    },
    Companion {
        missing: |line, context| context.is(Workload::Guest) && isolates(line, context) && !line.has("no-kvmapf"),
        add: "no-kvmapf",
        why: "asynchronous page faults of KVM can cause arbitrary delays",
        source: "FlexRAN real-time platform slides (2018), Kernel and Operating System Level Optimization",
    },
];

/// Whether CPUs are meant to be isolated, according to the line or to the intent.
fn isolates(line: &CommandLine, context: &Context) -> bool {
    !intended(line, context).is_empty()
}

/// The CPUs that are meant to be isolated: those of the intent; if the intent names none, those of the line.
pub(crate) fn intended(line: &CommandLine, context: &Context) -> CpuSet {
    if !context.isolated.value.is_empty() {
        return context.isolated.value.clone();
    }
    let of = |name: &str| line.last(name).and_then(|parameter| parameter.cpu_set(&CpuSet::new()).ok());
    ["isolcpus", "nohz_full", "rcu_nocbs"].into_iter().filter_map(of).find(|set| !set.is_empty()).unwrap_or_default()
}

/// Whether the line enables full dynamic ticks. `isolcpus=nohz,LIST` calls tick_nohz_full_setup() just as `nohz_full=`
/// does (kernel/sched/isolation.c), and in both cases the kernel offloads the RCU callbacks of these CPUs
/// (kernel/rcu/tree_nocb.h, rcu_init_nohz).
fn stops_ticks(line: &CommandLine) -> bool {
    line.has("nohz_full") || line.last("isolcpus").is_some_and(|parameter| parameter.flags().any(|flag| flag == "nohz"))
}

/// The CPUs that a parameter names. `None` if the line does not have the parameter, or if it names no CPUs.
fn set_of(line: &CommandLine, name: &str) -> Option<CpuSet> {
    line.last(name)?.cpu_set(&CpuSet::new()).ok()
}

fn is_only(context: &Context, workload: Workload) -> bool {
    context.workloads.value.as_slice() == [workload]
}
