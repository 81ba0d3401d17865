//! Helpers for the judges of several groups of rules.

use host::Facts;
use host::facts::{CommandLine, Cpu, CpuSet, Fact, KernelVersion, Parameter, Vendor};
use units::Hertz;

use crate::remedy::Operator;
use crate::{Judged, Judgement, Skip, known};

/// The vendors of x86 processors.
pub(super) const X86: &[Vendor] = &[Vendor::Intel, Vendor::Amd, Vendor::Hygon];
/// Command that limits the exit latency of the subject's CPUs (power/pm_qos_interface.rst).
pub(super) const PER_CPU: &str =
    "for n in {cpu-words}; do echo {idle-limit} > /sys/devices/system/cpu/cpu$n/power/pm_qos_resume_latency_us; done";
/// Command that sets the energy-performance preference of the subject's cores.
pub(super) const PREFERENCE: &str = "for n in {core-words}; do echo performance > /sys/devices/system/cpu/cpu$n/cpufreq/energy_performance_preference; done";
/// Commands that set preference, governor and frequency limits. From these settings, the driver computes
/// IA32_HWP_REQUEST.
pub(super) const HWP: &str = "for n in {core-words}; do echo performance > /sys/devices/system/cpu/cpu$n/cpufreq/energy_performance_preference; done\n\
     cpupower -c {core} frequency-set -g performance {bounds}";
/// The cost of keeping interrupts on the housekeeping CPUs. The NIC keeps all its queues: only the driver sets their
/// number (net/core/dev.c; core-api/irq/irq-affinity.rst).
pub(super) const QUEUES_STAY: &str =
    "The housekeeping CPUs handle all interrupts, including those of every queue of a NIC with a kernel driver.";
/// Command that moves all movable interrupts to the housekeeping CPUs.
pub(super) const ALL_TO_HOUSEKEEPING: &str = "for i in /proc/irq/[0-9]*; do echo {housekeeping} > \
    $i/smp_affinity_list; done # if a write fails, that interrupt cannot be moved: it is the timer, for example, or \
    the kernel manages it; if irqbalance runs, first ban the CPUs (irq.irqbalance-banned)";

/// Judges each CPU of a set, and joins CPUs with equal results into one judgement. All CPUs whose facts are unknown
/// share one judgement. If no CPU can be judged, returns the reason for the first one.
pub(super) fn by_cpu(facts: &Facts, cpus: &CpuSet, judge: impl Fn(&Cpu) -> Result<Judgement, Skip>) -> Judged {
    let mut told: Vec<(Judgement, CpuSet)> = Vec::new();
    let mut open: Vec<(Skip, CpuSet)> = Vec::new();
    for cpu in cpus.iter().filter_map(|id| facts.cpus.cpu(id)) {
        match judge(cpu) {
            Ok(judgement) => {
                join(&mut told, judgement, cpu.id, |a, b| (&a.verdict, &a.found) == (&b.verdict, &b.found))
            }
            Err(skip) => {
                join(&mut open, skip, cpu.id, |a, b| std::mem::discriminant(a) == std::mem::discriminant(b));
            }
        }
    }
    if told.is_empty() {
        let first = open.into_iter().next().map(|(skip, _)| skip);
        return Err(first.unwrap_or_else(|| Skip::unknown("/sys/devices/system/cpu: no CPU is known")));
    }
    let told = told.into_iter().map(|(judgement, cpus)| Judgement { subject: cpus.into(), ..judgement });
    let open = open.into_iter().map(|(skip, cpus)| Judgement::skipped(cpus, skip));
    Ok(told.chain(open).collect())
}

fn join<T>(groups: &mut Vec<(T, CpuSet)>, item: T, cpu: u32, alike: impl Fn(&T, &T) -> bool) {
    match groups.iter_mut().find(|(other, _)| alike(other, &item)) {
        Some((_, cpus)) => cpus.insert(cpu),
        None => groups.push((item, CpuSet::from([cpu]))),
    }
}

/// Formats a list after a word: `missing: a, b`, or `missing: none`.
pub(super) fn listed<T: AsRef<str>>(what: &str, words: &[T]) -> String {
    match words {
        [] => format!("{what}: none"),
        words => {
            format!("{what}: {}", words.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", "))
        }
    }
}

/// Formats a list as in a sentence: `a, b and c`.
pub(super) fn enumerated(words: &[String]) -> String {
    match words {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        words => words.join(""),
    }
}

/// Returns an error if no CPU is known. Without this check, a judge that iterates over the CPUs would pass without
/// having judged any.
pub(super) fn any_cpu(facts: &Facts) -> Result<(), Skip> {
    match facts.cpus.all().is_empty() {
        true => Err(Skip::of(&facts.cpus.online)),
        false => Ok(()),
    }
}

/// Whether the node tuning operator of OpenShift writes this host's settings. If so, only changes to its profile are
/// permanent.
pub(super) fn is_operated(facts: &Facts) -> bool {
    facts.cmdline.value().and_then(Operator::of) == Some(Operator::PerformanceProfile)
}

/// The kernel's command line.
pub(super) fn line(facts: &Facts) -> Result<&CommandLine, Skip> {
    known(&facts.cmdline)
}

/// The last parameter with this name. The error is [`Skip::NotApplicable`] if there is none.
pub(super) fn given<'a>(facts: &'a Facts, name: &str) -> Result<&'a Parameter, Skip> {
    line(facts)?.last(name).ok_or_else(|| Skip::not_applicable(format!("the command line has no {name}")))
}

/// Adds every occurrence of a parameter on the command line to the evidence. If there is none, the evidence says so.
pub(super) fn see_parameter(judgement: Judgement, facts: &Facts, name: &str) -> Judgement {
    let Some(line) = facts.cmdline.value() else { return judgement };
    let all: Vec<String> = line.all(name).map(Parameter::to_string).collect();
    // All other parameters take a value.
    let sign = if name == "rcu_nocb_poll" { "" } else { "=" };
    let text = if all.is_empty() { format!("no {name}{sign}") } else { all.join(" ") };
    judgement.see_as(text, facts.cmdline.source())
}

/// The CPUs that a parameter names. `None` if the parameter is missing or does not name CPUs.
pub(super) fn cpus_of(facts: &Facts, name: &str) -> Option<CpuSet> {
    let parameter = facts.cmdline.value()?.last(name)?;
    parameter.cpu_set(&facts.cpus.all()).ok().filter(|set| !set.is_empty())
}

/// CPUs outside the scheduler's domains, as the kernel reports them or, if its report was not recorded, as the command
/// line names them. Includes the CPUs of isolated cpuset partitions, which the kernel reports only from 6.9 on.
pub(super) fn without_balancing(facts: &Facts) -> Fact<CpuSet> {
    let groups = facts.cgroups.groups.value().into_iter().flatten();
    let partitions = groups.filter(|group| group.partition.is(|state| state == "isolated") == Some(true));
    let partitioned = partitions.filter_map(|group| group.effective.value().or(group.cpus.value()));
    let partitioned = partitioned.fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let asked = || {
        facts.cmdline.as_ref().map(|line| match line.last("isolcpus") {
            Some(parameter) if isolates(parameter) => cpus_of(facts, "isolcpus").unwrap_or_default(),
            _ => CpuSet::new(),
        })
    };
    facts.cpus.isolated.clone().or_else(asked).map(|cpus| cpus.union(&partitioned))
}

/// Whether it is known which CPUs cpuset partitions take out of the scheduler's domains. From 6.9 on, the kernel lists
/// these CPUs in `cpu/isolated`; in earlier versions, only the control groups show them.
pub(super) fn partitions_known(facts: &Facts) -> bool {
    let counts = facts.kernel.version.get().is_some_and(|version| version >= KernelVersion::new(6, 9));
    facts.cpus.isolated.is_known() && counts || facts.cgroups.groups.settled().is_some()
}

/// CPUs that may stop their tick, as the kernel reports them. If the kernel's report was not recorded and the command
/// line names no such CPUs, there are none: no kernel since 4.17 is built with such CPUs by default (commit
/// a7c8655b073d, sched/isolation: Eliminate NO_HZ_FULL_ALL).
pub(super) fn full_ticks(facts: &Facts) -> Fact<CpuSet> {
    let of_line = || {
        let since = facts.kernel.version.get().is_some_and(|version| version >= KernelVersion::new(4, 17));
        match facts.cmdline.is(|line| !asks_for_full_ticks(line)) {
            Some(true) if since => Fact::known(CpuSet::new(), facts.cmdline.source().clone()),
            _ => facts.cpus.nohz_full.clone(),
        }
    };
    facts.cpus.nohz_full.clone().or_else(of_line)
}

/// Whether the line has `nohz_full=`, or `isolcpus=nohz,LIST`, which has the same effect (kernel/sched/isolation.c).
fn asks_for_full_ticks(line: &CommandLine) -> bool {
    line.has("nohz_full") || line.last("isolcpus").is_some_and(|parameter| parameter.flags().any(|flag| flag == "nohz"))
}

/// Whether RCU callbacks are offloaded even without a parameter that requests it. `None` if the kernel's build is not
/// known. `rcu_nocbs` or `nohz_full=` on the line override the default of the build (kernel/rcu/tree_nocb.h,
/// rcu_init_nohz).
pub(super) fn offloads_by_default(facts: &Facts) -> Option<bool> {
    let line = facts.cmdline.value()?;
    if line.has("rcu_nocbs") || asks_for_full_ticks(line) {
        return Some(false);
    }
    facts.kernel.config.is(|config| config.is_set("RCU_NOCB_CPU_DEFAULT_ALL"))
}

/// Whether this `isolcpus=` takes CPUs out of the scheduler's domains. It does if it has no flags, or the flag
/// `domain`.
pub(super) fn isolates(parameter: &Parameter) -> bool {
    let flags: Vec<&str> = parameter.flags().collect();
    flags.is_empty() || flags.contains(&"domain")
}

/// Formats a frequency in MHz, such as `2100 MHz`.
pub(super) fn megahertz(frequency: Hertz) -> String {
    format!("{} MHz", frequency.as_hertz() / 1_000_000)
}

/// Kernel messages that contain one of these words, which must be in lower case. Returns up to three messages, and the
/// total number.
pub(super) fn messages<'a>(facts: &'a Facts, words: &[&str]) -> Result<(Vec<&'a str>, usize), Skip> {
    let all = known(&facts.kernel.messages)?;
    let matches = |text: &&String| {
        let text = text.to_ascii_lowercase();
        words.iter().any(|word| text.contains(word))
    };
    let found: Vec<&str> = all.iter().filter(matches).map(String::as_str).collect();
    let count = found.len();
    Ok((found.into_iter().take(3).collect(), count))
}
