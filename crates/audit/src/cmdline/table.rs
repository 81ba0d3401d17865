//! Known kernel parameters and the values that they take.
//!
//! Source, unless another one is named: Linux Documentation/admin-guide/kernel-parameters.txt. The table lists
//! parameters that affect latency, and parameters that every host has, with their values. `names.txt` lists the names
//! of all other parameters in that document, by kernel version. A parameter that is in neither list is not necessarily
//! wrong.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use host::facts::{CpuSet, Parameter, same_name};

/// A known kernel parameter.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The parameter's name, as kernel-parameters.txt spells it.
    pub name: &'static str,
    /// The values that are allowed after `=`.
    pub values: Values,
    /// Whether every occurrence on the line takes effect. If false, only the last one does.
    pub repeats: bool,
}

/// The values that are allowed after a parameter's `=`.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// Any text is allowed.
    Any,
    /// The parameter takes no value.
    Flag,
    /// Exactly one of these words is allowed.
    One(&'static [&'static str]),
    /// Words separated by commas. Each must be one of these words.
    Several(&'static [&'static str]),
    /// A list of CPUs is required.
    Cpus,
    /// Any number of these words, then a list of CPUs, all separated by commas.
    FlagsAndCpus(&'static [&'static str]),
    /// A list of CPUs or an empty value is allowed.
    CpusOrNothing,
    /// A whole number, decimal or hexadecimal, in this inclusive range.
    Number(i64, i64),
    /// A page size: a power of two, with the suffix K, M, G or T.
    PageSize,
    /// A number of pages, or one number for each NUMA node: `0:2,1:4`.
    Pages,
}

const ON_OFF: &[&str] = &["on", "off"];
const SWITCH: &[&str] = &["0", "1", "on", "off", "y", "n", "yes", "no", "Y", "N", "true", "false"];

const fn one(name: &'static str, words: &'static [&'static str]) -> Known {
    Known { name, values: Values::One(words), repeats: false }
}

const fn known(name: &'static str, values: Values) -> Known {
    Known { name, values, repeats: false }
}

const fn several(name: &'static str, words: &'static [&'static str]) -> Known {
    Known { name, values: Values::Several(words), repeats: false }
}

const fn repeated(name: &'static str, values: Values) -> Known {
    Known { name, values, repeats: true }
}

/// The known parameters that affect latency or that every host has.
pub const KNOWN: &[Known] = &[
    // Isolation.
    known("isolcpus", Values::FlagsAndCpus(&["nohz", "domain", "managed_irq"])),
    known("nohz_full", Values::Cpus),
    known("rcu_nocbs", Values::CpusOrNothing),
    known("rcu_nocb_poll", Values::Flag),
    known("irqaffinity", Values::Cpus),
    known("kthread_cpus", Values::Cpus),
    known("systemd.cpu_affinity", Values::Any),
    known("tuned.non_isolcpus", Values::Any),
    known("housekeeping", Values::Any),
    known("maxcpus", Values::Number(0, 8192)),
    known("nr_cpus", Values::Number(1, 8192)),
    known("possible_cpus", Values::Number(1, 8192)),
    one("nosmt", &["force"]),
    known("noirqbalance", Values::Flag),
    known("acpi_irq_nobalance", Values::Flag),
    known("workqueue.unbound_cpus", Values::Cpus),
    one("workqueue.power_efficient", SWITCH),
    // Ticks, clocks and watchdogs.
    one("nohz", ON_OFF),
    one("highres", ON_OFF),
    one("skew_tick", &["0", "1"]),
    // Every occurrence takes effect (arch/x86/kernel/tsc.c, tsc_setup).
    repeated("tsc", Values::One(&["reliable", "noirqtime", "unstable", "nowatchdog", "recalibrate", "watchdog"])),
    known("tsc_early_khz", Values::Number(1, i64::MAX)),
    one(
        "clocksource",
        &["tsc", "hpet", "acpi_pm", "jiffies", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"],
    ),
    one("hpet", &["disable", "force", "verbose"]),
    known("nohpet", Values::Flag),
    known("no_timer_check", Values::Flag),
    known("nowatchdog", Values::Flag),
    known("nosoftlockup", Values::Flag),
    one("softlockup_panic", &["0", "1"]),
    several("nmi_watchdog", &["0", "1", "panic", "nopanic", "lapic"]),
    known("watchdog_thresh", Values::Number(0, 60)),
    known("lapic_timer_c2_ok", Values::Flag),
    one("preempt", &["none", "voluntary", "full", "lazy"]),
    one("threadirqs", &[]),
    // Idle states and frequencies.
    one("idle", &["poll", "halt", "nomwait"]),
    known("intel_idle.max_cstate", Values::Number(0, 9)),
    known("intel_idle.states_off", Values::Number(0, 0xFFFF)),
    known("processor.max_cstate", Values::Number(0, 9)),
    one("cpuidle.off", &["1"]),
    one("cpuidle.governor", &["menu", "teo", "ladder", "haltpoll"]),
    // Every occurrence takes effect, and is a single word (drivers/cpufreq/intel_pstate.c, intel_pstate_setup).
    repeated(
        "intel_pstate",
        Values::One(&[
            "disable",
            "active",
            "passive",
            "force",
            "no_hwp",
            "hwp_only",
            "support_acpi_ppc",
            "per_cpu_perf_limits",
            "no_cas",
        ]),
    ),
    several("amd_pstate", &["disable", "passive", "active", "guided"]),
    one("amd_prefcore", &["disable"]),
    one("cpufreq.off", &["1"]),
    one(
        "cpufreq.default_governor",
        &["performance", "powersave", "ondemand", "conservative", "userspace", "schedutil"],
    ),
    // Machine checks.
    repeated(
        "mce",
        Values::Several(&[
            "off",
            "no_cmci",
            "no_lmce",
            "dont_log_ce",
            "print_all",
            "ignore_ce",
            "bootlog",
            "nobootlog",
            "recovery",
            "bios_cmci_threshold",
            "1",
            "2",
            "3",
        ]),
    ),
    known("nomce", Values::Flag),
    // RCU and the scheduler.
    one("rcupdate.rcu_normal_after_boot", SWITCH),
    one("rcupdate.rcu_expedited", SWITCH),
    one("rcupdate.rcu_normal", SWITCH),
    known("rcutree.nohz_full_patience_delay", Values::Number(0, 5_000)),
    known("rcutree.kthread_prio", Values::Number(0, 99)),
    one("rcutree.enable_rcu_lazy", SWITCH),
    one("psi", SWITCH),
    one("schedstats", &["enable", "disable"]),
    one("numa_balancing", &["enable", "disable"]),
    // Memory.
    known("default_hugepagesz", Values::PageSize),
    repeated("hugepagesz", Values::PageSize),
    repeated("hugepages", Values::Pages),
    repeated("hugetlb_cma", Values::Any),
    one("hugetlb_free_vmemmap", SWITCH),
    known("cma", Values::Any),
    known("swiotlb", Values::Any),
    one("transparent_hugepage", &["always", "madvise", "never"]),
    known("slub_debug", Values::Any),
    known("slab_debug", Values::Any),
    several("swapaccount", &["0", "1"]),
    repeated("mem", Values::Any),
    known("numa", Values::Any),
    // Devices.
    several(
        "iommu",
        &[
            "off",
            "force",
            "noforce",
            "biomerge",
            "panic",
            "nopanic",
            "merge",
            "nomerge",
            "soft",
            "pt",
            "nopt",
            "nobypass",
            "usedac",
            "forcesac",
            "allowdac",
            "fullflush",
            "memaper",
            "noaperture",
            "calgary",
        ],
    ),
    one("iommu.passthrough", SWITCH),
    one("iommu.strict", SWITCH),
    several(
        "intel_iommu",
        &["on", "off", "igfx_off", "strict", "sp_off", "sm_on", "sm_off", "tboot_noforce", "eth_no_bypass", "forcedac"],
    ),
    // "on" is not a value, because that is the default (drivers/iommu/amd/init.c, parse_amd_iommu_options).
    several(
        "amd_iommu",
        &[
            "off",
            "fullflush",
            "force_isolation",
            "force_enable",
            "pgtbl_v1",
            "pgtbl_v2",
            "irtcachedis",
            "nohugepages",
            "v2_pgsizes_only",
        ],
    ),
    several("intremap", &["on", "off", "nosid", "no_x2apic_optout", "nopost"]),
    one("pcie_aspm", &["off", "force"]),
    one("pcie_aspm.policy", &["default", "performance", "powersave", "powersupersave"]),
    one("pcie_port_pm", &["off", "force"]),
    repeated("pci", Values::Any),
    repeated("module_blacklist", Values::Any),
    known("usbcore.autosuspend", Values::Number(-1, 3_600)),
    known("nousb", Values::Flag),
    one("vfio_pci.disable_idle_d3", SWITCH),
    repeated("vfio-pci.ids", Values::Any),
    known("default_affinity", Values::Cpus),
    one("acpi", &["force", "on", "off", "noirq", "strict", "rsdt", "copy_dsdt", "nospcr"]),
    known("nox2apic", Values::Flag),
    // Virtual machines.
    known("no-kvmapf", Values::Flag),
    known("no-kvmclock", Values::Flag),
    known("no-kvmclock-vsyscall", Values::Flag),
    known("no-steal-acc", Values::Flag),
    known("kvm.halt_poll_ns", Values::Number(0, i64::MAX)),
    one("kvm.nx_huge_pages", &["off", "force", "auto", "never", "0", "1", "N", "Y"]),
    one("kvm-intel.ple_gap", &["0", "41", "128"]),
    // Security and accounting.
    // From Linux 6.17 on single attack vectors too (Documentation/admin-guide/hw-vuln/attack_vector_controls.rst).
    several(
        "mitigations",
        &[
            "off",
            "auto",
            "auto,nosmt",
            "nosmt",
            "no_user_kernel",
            "no_user_user",
            "no_guest_host",
            "no_guest_guest",
            "no_cross_thread",
        ],
    ),
    one("audit", &["0", "1", "off", "on"]),
    known("audit_backlog_limit", Values::Number(0, i64::MAX)),
    one("selinux", &["0", "1"]),
    one("enforcing", &["0", "1"]),
    one("apparmor", &["0", "1"]),
    repeated("cgroup_disable", Values::Any),
    one("cgroup_no_v1", &["all", "named"]),
    several(
        "efi",
        &[
            "debug",
            "disable_early_pci_dma",
            "noruntime",
            "nochunk",
            "nosoftreserve",
            "novamap",
            "runtime",
            "no_disable_early_pci_dma",
            "old_map",
        ],
    ),
    known("noefi", Values::Flag),
    several(
        "spectre_v2",
        &[
            "on",
            "off",
            "auto",
            "retpoline",
            "retpoline,generic",
            "eibrs",
            "ibrs",
            "eibrs,retpoline",
            "generic",
            "amd",
            "lfence",
        ],
    ),
    known("nospectre_v1", Values::Flag),
    known("nospectre_v2", Values::Flag),
    known("nopti", Values::Flag),
    one("pti", &["on", "off", "auto"]),
    several("mds", &["full", "nosmt", "off"]),
    several("l1tf", &["full", "force", "flush", "nosmt", "nowarn", "off"]),
    several("tsx_async_abort", &["full", "nosmt", "off"]),
    one("tsx", &["on", "off", "auto"]),
    // What every host has.
    known("BOOT_IMAGE", Values::Any),
    known("root", Values::Any),
    known("rootfstype", Values::Any),
    known("rootflags", Values::Any),
    known("rootwait", Values::Flag),
    known("rootdelay", Values::Any),
    known("ro", Values::Flag),
    known("rw", Values::Flag),
    known("quiet", Values::Flag),
    known("splash", Values::Any),
    // Read by Plymouth (plymouth(8)); on all distributions derived from Fedora.
    known("rhgb", Values::Any),
    known("debug", Values::Flag),
    known("ignore_loglevel", Values::Flag),
    known("loglevel", Values::Number(0, 8)),
    repeated("console", Values::Any),
    repeated("earlyprintk", Values::Any),
    repeated("earlycon", Values::Any),
    known("resume", Values::Any),
    known("noresume", Values::Flag),
    known("nomodeset", Values::Flag),
    known("vga", Values::Any),
    known("init", Values::Any),
    known("rdinit", Values::Any),
    known("noinitrd", Values::Flag),
    known("nomodule", Values::Flag),
    known("retain_initrd", Values::Flag),
    known("nfsroot", Values::Any),
    known("nfsrootdebug", Values::Flag),
    known("log_buf_len", Values::Any),
    known("printk.time", Values::One(SWITCH)),
    known("no_console_suspend", Values::Flag),
    repeated("netconsole", Values::Any),
    known("sysrq_always_enabled", Values::Flag),
    repeated("initcall_blacklist", Values::Any),
    known("initcall_debug", Values::Flag),
    known("panic_on_warn", Values::Any),
    known("security", Values::Any),
    known("lsm", Values::Any),
    known("lockdown", Values::One(&["integrity", "confidentiality"])),
    known("iomem", Values::One(&["relaxed", "strict"])),
    known("nosmap", Values::Flag),
    known("nosmep", Values::Flag),
    known("noxsave", Values::Flag),
    known("clearcpuid", Values::Any),
    known("nopcid", Values::Flag),
    known("noapic", Values::Flag),
    known("nolapic", Values::Flag),
    known("lapic", Values::Any),
    known("lpj", Values::Number(1, i64::MAX)),
    known("nosmp", Values::Flag),
    known("noreplace-smp", Values::Flag),
    repeated("trace_event", Values::Any),
    known("trace_buf_size", Values::Any),
    known("ftrace", Values::Any),
    repeated("initrd", Values::Any),
    known("panic", Values::Number(-1, i64::MAX)),
    known("oops", Values::One(&["panic"])),
    known("reboot", Values::Any),
    repeated("ip", Values::Any),
    repeated("crashkernel", Values::Any),
    one("biosdevname", &["0", "1"]),
    one("net.ifnames", &["0", "1"]),
    known("ignition.firstboot", Values::Any),
    known("ignition.platform.id", Values::Any),
    known("ostree", Values::Any),
    known("boot", Values::Any),
    known("fips", Values::Number(0, 1)),
    one("ipv6.disable", &["0", "1"]),
    repeated("dyndbg", Values::Any),
    known("nokaslr", Values::Flag),
    known("random.trust_cpu", Values::Any),
    known("elevator", Values::Any),
    known("consoleblank", Values::Number(0, i64::MAX)),
    known("printk.devkmsg", Values::One(&["on", "off", "ratelimit"])),
    known("single", Values::Flag),
    known("LANG", Values::Any),
    known("cpu0_hotplug", Values::Flag),
    known("modprobe.blacklist", Values::Any),
    known("reserve", Values::Any),
    repeated("memmap", Values::Any),
];

/// Prefixes of parameters that programs other than the kernel read: systemd(1), dracut.cmdline(7),
/// kernel-command-line(7).
const FOREIGN: &[&str] =
    &["systemd.", "rd.", "udev.", "luks.", "ignition.", "cloud-init", "coreos.", "ds", "locale.", "vconsole."];

/// The names of the parameters in the kernels' documentation, with underscores. `tools/kernel-parameters.py` generates
/// names.txt.
static DOCUMENTED: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let lines = include_str!("names.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(' ').next()).collect()
});

/// Whether the documentation of any kernel version lists a parameter of this name.
pub(super) fn is_documented(name: &str) -> bool {
    DOCUMENTED.contains(name.replace('-', "_").as_str())
}

/// Finds the entry of a parameter in [`KNOWN`] by its name. Dashes and underscores are treated as equal. `None` if the
/// table does not contain the parameter.
pub fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| same_name(known.name, name))
}

/// Whether the parameter is for a program other than the kernel, or for a module whose parameters are not in the table.
pub(super) fn is_foreign(name: &str) -> bool {
    FOREIGN.iter().any(|prefix| name.starts_with(prefix)) || name.contains('.')
}

impl Known {
    /// Why the known parameter does not accept the value in `parameter`. `None` if it accepts the value.
    pub fn refuses(&self, parameter: &Parameter) -> Option<String> {
        let words = |words: &[&str]| match words {
            [] => "it takes no value".to_owned(),
            words => format!("it takes {}", words.join(", ")),
        };
        let Some(value) = parameter.value.as_deref() else {
            // For the kernel's own parsers, a switch without a value is "on"; lists and numbers need a value.
            return match self.values {
                Values::Cpus | Values::FlagsAndCpus(_) => Some("it takes a list of CPUs".into()),
                Values::Number(..) | Values::PageSize | Values::Pages => Some("it takes a number".into()),
                _ => None,
            };
        };
        match self.values {
            Values::Any => None,
            Values::Flag => Some("it takes no value".into()),
            Values::One(known) if known.contains(&value) => None,
            Values::One(known) => Some(words(known)),
            Values::Several(known) => {
                let bad = parameter.parts().find(|part| {
                    let name = part.split_once('=').map_or(*part, |(name, _)| name);
                    !known.contains(&name)
                });
                bad.map(|bad| format!("{bad} is not known; {}", words(known)))
            }
            Values::Cpus | Values::CpusOrNothing => bad_list(parameter),
            Values::FlagsAndCpus(known) => match parameter.flags().find(|flag| !known.contains(flag)) {
                Some(flag) => Some(format!("the flag {flag} is not known; {}", words(known))),
                None => bad_list(parameter),
            },
            Values::Number(low, high) => match number(value) {
                Some(number) if (low..=high).contains(&number) => None,
                _ => Some(format!("it takes a number from {low} to {high}")),
            },
            Values::PageSize => match size(value) {
                Some(octets) if octets.is_power_of_two() => None,
                Some(_) => Some("no processor has pages of this size: on x86 they have 2M or 1G".to_owned()),
                None => Some("it takes a size such as 1G".to_owned()),
            },
            Values::Pages => {
                let is_count = |text: &str| text.parse::<u64>().is_ok();
                let of_node = |part: &str| part.split_once(':').is_some_and(|(node, n)| is_count(node) && is_count(n));
                let known = is_count(value) || value.split(',').all(of_node);
                (!known).then(|| "it takes a number of pages, or one for each node as in 0:2,1:4".to_owned())
            }
        }
    }
}

fn bad_list(parameter: &Parameter) -> Option<String> {
    match parameter.cpu_set(&CpuSet::below(host::facts::MAX_CPUS)) {
        Ok(set) if set.is_empty() => Some("it names no CPU".into()),
        Ok(_) => None,
        Err(error) => Some(format!("it takes a list of CPUs: {error}")),
    }
}

/// Parses a number with the suffix K, M, G or T. Letters after the suffix are ignored, as in lib/cmdline.c, `memparse`:
/// `1GB` is `1G`.
fn size(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['B', 'b']).unwrap_or(text);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    u64::try_from(number(digits)?).ok()?.checked_mul(1 << unit)
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot masks unknown parameters: it must know every parameter whose value is judged here.
    #[test]
    fn a_snapshot_keeps_what_is_judged() {
        let judged = KNOWN.iter().filter(|known| !matches!(known.values, Values::Any));
        // As words without a value, including those of the documentation.
        let names = judged.map(|known| known.name).chain(DOCUMENTED.iter().copied().filter(|name| name.len() > 1));
        let masked: Vec<_> = names.filter(|name| !host::snapshot::keeps_parameter(name)).collect();
        assert!(masked.is_empty(), "add to crates/host/src/snapshot/kept.txt: {}", masked.join(" "));
    }
}
