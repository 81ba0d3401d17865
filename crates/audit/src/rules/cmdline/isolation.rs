//! Rules on parameters that reserve CPUs for the application.

use host::Facts;
use host::facts::CpuSet;
use units::Nanos;

use crate::rules::common::{
    QUEUES_STAY, any_cpu, cpus_of, full_ticks, given, is_operated, isolates, line, offloads_by_default,
    partitions_known, see_parameter, without_balancing,
};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Subject, Workload, known, settled};

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cmd.isolcpus",
        cause: Cause::SchedulerIsolation,
        title: "Application CPUs are outside the scheduler's domains",
        applies: Applies::LINUX.isolated(),
        judge: isolcpus,
        why: "The scheduler balances runnable threads over all CPUs of a domain. A thread that is moved onto one of \
              the application's CPUs takes that CPU for a time slice and starts the tick again.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "a time slice per thread that is moved there: 2.8 or 3 ms by default on hosts with 8 CPUs or more",
            "Linux kernel/sched/fair.c, sysctl_sched_base_slice: 0.70 or 0.75 ms by version, times 1 + log2(CPUs), a factor of at most 4",
        ),
        fix: Fix::runtime_or_boot(
            "echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control && mkdir -p /sys/fs/cgroup/isolated && cd /sys/fs/cgroup/isolated && echo {isolated} > cpuset.cpus && echo isolated > cpuset.cpus.partition # cgroup version 2. Under systemd, first restrict its slices to the housekeeping CPUs, or systemd removes +cpuset again: apus audit --explain usr.threads-on-iso shows how",
            "isolcpus=managed_irq,domain,{isolated}",
        ),
        cost: "The scheduler moves nothing onto these CPUs any more: each thread must be placed there by hand. \
            isolcpus= stays in effect until the next boot; a cpuset partition, the alternative without a reboot, can \
            be undone at any time.",
        references: &[
            "Linux Documentation/admin-guide/cpu-isolation.rst",
            "DPDK guide Getting Started for Linux, Enabling Additional Functionality, Using Linux Core Isolation",
            "Intel P-state guide 637284-001US, A.3.1",
        ],
    },
    Rule {
        id: "cmd.isolcpus-flags",
        cause: Cause::SchedulerIsolation,
        title: "isolcpus= isolates from the scheduler and from managed interrupts",
        applies: Applies::LINUX,
        judge: flags,
        why: "Without flags, isolcpus= isolates from the scheduler's domains. With flags, it does only what they say: \
              isolcpus=managed_irq,LIST does not isolate from the scheduler. OpenShift's performance profile writes \
              exactly that unless it has balanceIsolated: false, because it isolates CPUs per pod. Without the flag \
              managed_irq, interrupts that the kernel manages (NVMe, virtio, queues of some NICs) still go to isolated \
              CPUs.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "without the flag domain, a time slice (3 ms) for each stray thread; without managed_irq, a few \
             microseconds per interrupt",
            "Linux Documentation/admin-guide/kernel-parameters.txt, isolcpus; commit 11ea68f553e2",
        ),
        fix: Fix::boot("isolcpus=managed_irq,domain,{isolated}"),
        cost: "managed_irq is best effort: a queue whose mask contains only isolated CPUs still interrupts them.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, isolcpus",
            "Linux commit 11ea68f553e2 (genirq, sched/isolation: Isolate from handling managed interrupts)",
        ],
    },
    Rule {
        id: "cmd.nohz-full",
        cause: Cause::TimerTick,
        title: "Application CPUs may stop their tick",
        applies: Applies::LINUX.isolated(),
        judge: nohz_full,
        why: "The tick interrupts each busy CPU CONFIG_HZ times a second. A CPU in nohz_full stops it while only one \
              thread is runnable; a second runnable thread, a POSIX CPU timer or perf brings it back.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "100 to 1000 interruptions per second while the CPU is busy, a few microseconds each; with nohz_full= one \
             per second before Linux 4.17, and none since then, because a housekeeping CPU handles it",
            "Linux Documentation/timers/no_hz.rst; Documentation/admin-guide/cpu-isolation.rst, Tradeoffs; commit d84b31313ef8, sched/isolation: Offload residual 1Hz scheduler tick; how long a tick takes is general knowledge",
        ),
        fix: Fix::boot("nohz_full={isolated} rcu_nocbs={isolated}"),
        cost: "Each entry into the kernel costs more, because CPU time is accounted there. The boot CPU cannot be in \
         nohz_full=.",
        references: &["Linux Documentation/timers/no_hz.rst", "Linux Documentation/admin-guide/cpu-isolation.rst"],
    },
    Rule {
        id: "cmd.nohz-off",
        cause: Cause::TimerTick,
        title: "Dynamic ticks are not disabled",
        applies: Applies::LINUX,
        judge: nohz_off,
        why: "nohz_full= needs dynamic ticks. With nohz=off it has no effect, and idle CPUs tick too.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "100 to 1000 interruptions per second on each CPU",
            "Linux Documentation/timers/no_hz.rst; how long a tick takes is general knowledge",
        ),
        fix: Fix::boot("remove nohz=off"),
        cost: "An idle CPU needs a little longer to wake up when its tick was stopped.",
        references: &[
            "Linux Documentation/timers/no_hz.rst",
            "Linux Documentation/admin-guide/kernel-parameters.txt, nohz",
        ],
    },
    Rule {
        id: "cmd.rcu-nocbs",
        cause: Cause::Rcu,
        title: "RCU callbacks run on housekeeping CPUs",
        applies: Applies::LINUX.isolated(),
        judge: rcu_nocbs,
        why: "RCU frees memory in callbacks, which run in a softirq on the CPU that queued them. Offloaded callbacks run \
         in rcuo threads, which can be kept on other CPUs. nohz_full= implies the offloading.",
        magnitude: Magnitude::late(
            Nanos::from_micros(20),
            "tens of microseconds per batch of callbacks",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::boot("rcu_nocbs={isolated}"),
        cost: "RCU callbacks run on the housekeeping CPUs, and queueing one costs slightly more.",
        references: &[
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
            "Linux Documentation/admin-guide/kernel-parameters.txt, rcu_nocbs",
            "Intel P-state guide 637284-001US, A.3.1",
        ],
    },
    Rule {
        id: "cmd.rcu-nocb-poll",
        cause: Cause::Rcu,
        title: "Polling RCU threads have CPUs to poll on",
        applies: Applies::LINUX.isolated(),
        judge: rcu_nocb_poll,
        why: "With rcu_nocb_poll, the rcuo threads poll for callbacks instead of being woken by the CPU that queues one. \
         This saves a wake-up on the application's CPU, but keeps the housekeeping CPUs busy.",
        magnitude: Magnitude::untimed(
            "one wake-up, a few microseconds, per batch of callbacks",
            "Linux Documentation/admin-guide/kernel-parameters.txt, rcu_nocb_poll; the figure is general knowledge",
        ),
        fix: Fix::boot("remove rcu_nocb_poll # or leave more CPUs to housekeeping"),
        cost: "Without rcu_nocb_poll, the application's CPU wakes the rcuo threads itself.",
        references: &["Linux Documentation/admin-guide/kernel-parameters.txt, rcu_nocb_poll"],
    },
    Rule {
        id: "cmd.irqaffinity",
        cause: Cause::DeviceInterrupts,
        title: "New interrupts go to housekeeping CPUs",
        applies: Applies::LINUX.isolated(),
        judge: irqaffinity,
        why: "An interrupt that is registered after boot (by loading a driver or opening a queue) starts with the \
         default mask. Without irqaffinity= the mask contains every CPU.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "1 to 10 us per interrupt, and the cache lines that it evicts",
            "Intel P-state guide 637284-001US, A.3.1: interrupts are usually the main cause of outliers; the figure is general knowledge",
        ),
        fix: Fix::runtime_or_boot(
            "echo {housekeeping-mask} > /proc/irq/default_smp_affinity",
            "irqaffinity={housekeeping}",
        ),
        cost: QUEUES_STAY,
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, irqaffinity",
            "FlexRAN real-time platform slides (2018), kernel command line",
        ],
    },
    Rule {
        id: "cmd.kthread-cpus",
        cause: Cause::KernelWork,
        title: "kthread_cpus= has an effect",
        applies: Applies::LINUX.isolated(),
        judge: kthread_cpus,
        why: "Kernels from kernel.org do not support kthread_cpus=; those of Wind River and StarlingX do. Other kernels \
         ignore it, and kernel threads run on every CPU.",
        magnitude: Magnitude::untimed(
            "microseconds to milliseconds each time a kernel thread runs there",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::boot("remove kthread_cpus\nnohz_full={isolated} # keeps unbound kernel threads off"),
        cost: "nohz_full makes each entry into the kernel more expensive.",
        references: &[
            "FlexRAN real-time platform slides (2018), kernel command line",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
        ],
    },
];

fn isolcpus(facts: &Facts, context: &Context) -> Judged {
    let wanted = &context.isolated.value;
    let fact = without_balancing(facts);
    let real = known(&fact)?;
    let (missing, stray) = (wanted.difference(real), real.difference(wanted));
    let judgement = if !missing.is_empty() && partitions_known(facts) {
        Judgement::fail_for(
            &missing,
            format!("the scheduler moves threads onto CPUs {missing}, which are meant for the application"),
        )
    } else if !missing.is_empty() {
        let balances = match facts.cmdline.is(|line| line.has("isolcpus")) {
            Some(false) => format!("without isolcpus=, the scheduler moves threads onto CPUs {missing}"),
            _ => format!("isolcpus= does not keep the scheduler from moving threads onto CPUs {missing}"),
        };
        Judgement::warn_for(&missing, format!("{balances}; whether a cpuset partition prevents this is not recorded"))
            .with_effect(crate::Effect::Unsized)
    } else if !stray.is_empty() {
        Judgement::warn_for(
            &stray,
            format!("CPUs {stray} are out of the scheduler's domains, but not meant for the application"),
        )
    } else {
        Judgement::pass_for(wanted, format!("the scheduler moves no threads onto CPUs {wanted}"))
    };
    // Only version 2 of control groups has partitions, and only if cpuset is not mounted as version 1.
    let judgement = match facts.cgroups.version.get() {
        Some(1) => judgement.now("# nothing: cgroup version 1 has no partitions"),
        // A partition inside the kubelet's slices would be invalid, or would take the CPUs from the pods.
        _ if is_operated(facts) => judgement.now("# nothing: the kubelet owns the cpusets"),
        _ => judgement,
    };
    let judgement = judgement.see_as(format!("CPUs outside the scheduler's domains: {real}"), fact.source());
    see_parameter(judgement, facts, "isolcpus").alone()
}

fn flags(facts: &Facts, _: &Context) -> Judged {
    let parameter = given(facts, "isolcpus")?;
    let subject = Subject::Parameter("isolcpus".into());
    let flags: Vec<&str> = parameter.flags().collect();
    let judgement = if let Err(error) = parameter.cpu_set(&facts.cpus.all()) {
        Judgement::fail_for(subject, format!("the list of CPUs cannot be read: {error}"))
    } else if let Some(flag) = flags.iter().find(|flag| !matches!(**flag, "nohz" | "domain" | "managed_irq")) {
        Judgement::fail_for(subject, format!("the kernel does not know the flag {flag}"))
    } else if !isolates(parameter) {
        let (named, partitions) = (cpus_of(facts, "isolcpus").unwrap_or_default(), without_balancing(facts));
        let covered = partitions.is(|set| named.is_subset(set)) == Some(true);
        match covered {
            true => {
                Judgement::pass_for(subject, "isolcpus= lacks domain, but cpuset partitions keep the scheduler away")
                    .see(&partitions)
            }
            false if partitions_known(facts) => Judgement::fail_for(
                subject,
                format!("without the flag domain, the scheduler still moves threads onto CPUs {named}"),
            ),
            false => Judgement::warn_for(
                subject,
                format!(
                    "without the flag domain, the scheduler still moves threads onto CPUs {named}; whether a cpuset partition prevents this is not recorded"
                ),
            )
            .with_effect(crate::Effect::Unsized),
        }
    } else if !flags.contains(&"managed_irq") {
        Judgement::warn_for(subject, "without managed_irq, interrupts that the kernel manages still go to these CPUs")
            .takes(Nanos::from_micros(5))
    } else {
        Judgement::pass_for(subject, "isolcpus= has both flags, domain and managed_irq")
    };
    see_parameter(judgement, facts, "isolcpus").alone()
}

fn nohz_full(facts: &Facts, context: &Context) -> Judged {
    let wanted = &context.isolated.value;
    let fact = &full_ticks(facts);
    let real = settled(fact)?.cloned().unwrap_or_default();
    let missing = wanted.difference(&real);
    let judgement = if missing.is_empty() {
        match real.difference(wanted) {
            stray if stray.is_empty() => Judgement::pass_for(wanted, "these CPUs may stop their tick"),
            stray => Judgement::warn_for(
                &stray,
                format!("CPUs {stray} may stop their tick too, which makes their system calls more expensive"),
            ),
        }
    } else if missing == CpuSet::from([0]) && cpus_of(facts, "nohz_full").is_some_and(|asked| asked.contains(0)) {
        // kernel/time/tick-sched.c, tick_nohz_init: "NO_HZ: Clearing 0 from nohz_full range for timekeeping".
        Judgement::warn_for(
            &missing,
            "nohz_full= asks for CPU 0, but the kernel removed it: the boot CPU keeps the time",
        )
        .for_good(format!("nohz_full={}", real))
    } else if missing == CpuSet::from([0]) && wanted.len() > 1 {
        // Nothing more can be done: everything possible is set already.
        Judgement::warn_for(&missing, "CPU 0 keeps its tick while it is busy: the boot CPU cannot be in nohz_full=")
            .for_good(format!(
                "leave CPU 0 to housekeeping: run this audit again with --isolated {}",
                wanted.difference(&missing)
            ))
    } else if cpus_of(facts, "nohz_full").is_some_and(|asked| missing.is_subset(&asked)) {
        Judgement::fail_for(
            &missing,
            format!("nohz_full= names CPUs {missing}, but the kernel does not stop their tick"),
        )
        .for_good("use a kernel with CONFIG_NO_HZ_FULL=y, and look for NO_HZ in the boot messages")
    } else if context.is(Workload::Poll) || context.is(Workload::Rt) {
        Judgement::fail_for(&missing, format!("CPUs {missing} keep their tick while they are busy"))
    } else {
        Judgement::warn_for(&missing, format!("CPUs {missing} keep their tick while they are busy"))
    };
    // If sysfs was not recorded, the fact comes from the parameter itself.
    let judgement = if fact.source() == facts.cmdline.source() { judgement } else { judgement.see(fact) };
    see_parameter(judgement, facts, "nohz_full").alone()
}

fn nohz_off(facts: &Facts, _: &Context) -> Judged {
    let line = line(facts)?;
    let subject = Subject::Parameter("nohz".into());
    let judgement = match (line.value("nohz") == Some("off"), line.has("nohz_full")) {
        (true, true) => Judgement::fail_for(subject, "nohz=off disables nohz_full="),
        (true, false) => Judgement::warn_for(subject, "idle CPUs tick too"),
        (false, _) => Judgement::pass_for(subject, "dynamic ticks are not disabled"),
    };
    see_parameter(judgement, facts, "nohz").alone()
}

fn rcu_nocbs(facts: &Facts, context: &Context) -> Judged {
    line(facts)?;
    let wanted = &context.isolated.value;
    let by = |name: &str| cpus_of(facts, name).unwrap_or_default();
    let ticks = facts.cpus.nohz_full.value().cloned().unwrap_or_else(|| by("nohz_full"));
    let missing = wanted.difference(&by("rcu_nocbs").union(&ticks));
    let config = &facts.kernel.config;
    let build = |judgement: Judgement, word: &str| {
        judgement.see_as(format!("CONFIG_RCU_NOCB_CPU_DEFAULT_ALL: {word}"), config.source())
    };
    let judgement = match (missing.is_empty(), offloads_by_default(facts)) {
        (true, _) => Judgement::pass_for(wanted, "RCU callbacks of these CPUs are offloaded"),
        (false, Some(true)) => {
            build(Judgement::pass_for(wanted, "the kernel is built to offload the RCU callbacks of all CPUs"), "y")
        }
        (false, Some(false)) => Judgement::warn_for(&missing, format!("RCU callbacks may run on CPUs {missing}")),
        (false, None) => build(
            Judgement::warn_for(
                &missing,
                format!(
                    "RCU callbacks may run on CPUs {missing}, unless the kernel was built with \
                     CONFIG_RCU_NOCB_CPU_DEFAULT_ALL"
                ),
            )
            .with_effect(crate::Effect::Unsized),
            "not recorded",
        ),
    };
    see_parameter(see_parameter(judgement, facts, "rcu_nocbs"), facts, "nohz_full").alone()
}

fn rcu_nocb_poll(facts: &Facts, context: &Context) -> Judged {
    given(facts, "rcu_nocb_poll")?;
    any_cpu(facts)?;
    let housekeeping = context.housekeeping(facts);
    let judgement = match housekeeping.len() {
        0 | 1 => Judgement::warn_for(
            Subject::Parameter("rcu_nocb_poll".into()),
            format!("RCU's threads poll, and all of them share CPUs {housekeeping} with the other housekeeping"),
        ),
        n => Judgement::pass_for(
            Subject::Parameter("rcu_nocb_poll".into()),
            format!("RCU's threads poll, on {n} housekeeping CPUs"),
        ),
    };
    see_parameter(judgement, facts, "rcu_nocb_poll").alone()
}

fn irqaffinity(facts: &Facts, context: &Context) -> Judged {
    let wanted = &context.isolated.value;
    let mask = &facts.irqs.default_affinity;
    line(facts)?;
    let stray = match cpus_of(facts, "irqaffinity") {
        Some(asked) => asked.union(mask.value().unwrap_or(&CpuSet::new())).intersection(wanted),
        None => known(mask)?.intersection(wanted),
    };
    let judgement = match stray.is_empty() {
        true => Judgement::pass_for(wanted, "new interrupts start on housekeeping CPUs"),
        false => {
            Judgement::warn_for(&stray, format!("new interrupts may go to CPUs {stray}, which are the application's"))
        }
    };
    see_parameter(judgement.see(mask), facts, "irqaffinity").alone()
}

fn kthread_cpus(facts: &Facts, context: &Context) -> Judged {
    given(facts, "kthread_cpus")?;
    known(&facts.tasks)?;
    let free = facts.tasks().filter(|task| task.kernel && !task.no_setaffinity);
    let stray =
        free.filter(|task| task.affinity.is(|set| set.intersects(&context.isolated.value)) == Some(true)).count();
    let subject = Subject::Parameter("kthread_cpus".into());
    let judgement = match stray {
        0 => Judgement::pass_for(subject, "no kernel thread that can be moved may run on the application's CPUs"),
        n => Judgement::warn_for(
            subject,
            format!("{n} kernel threads may run on the application's CPUs: this kernel ignores the parameter"),
        ),
    };
    see_parameter(judgement.see_as(format!("{stray} threads"), facts.tasks.source()), facts, "kthread_cpus").alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::Task;

    use super::*;
    use crate::testing::{Case, Host, host};

    const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
    const FULL: &str = "/sys/devices/system/cpu/nohz_full";
    const MASK: &str = "/proc/irq/default_smp_affinity";
    const RELEASE: &str = "/proc/sys/kernel/osrelease";

    /// A host whose control groups are known, and none of them a partition.
    fn grouped(host: Host) -> Host {
        host.edit(|facts| facts.cgroups.groups = Fact::known(Vec::new(), "/sys/fs/cgroup"))
    }

    /// A kernel that offloads callbacks by default.
    fn built(host: Host) -> Host {
        host.file(RELEASE, "6.12.0\n").file("/boot/config-6.12.0", "CONFIG_RCU_NOCB_CPU_DEFAULT_ALL=y\n")
    }

    fn iso() -> Host {
        host().isolated("2-7")
    }

    fn threads(facts: &mut Facts, affinity: &str) {
        let affinity = Fact::known(affinity.parse().unwrap(), "/proc/9/status");
        let task = Task { tid: 9, comm: "kswapd0".into(), kernel: true, affinity, ..Task::default() };
        facts.tasks = Fact::known(vec![task], "/proc/*/stat");
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cmd.isolcpus", || iso().file(ISOLATED, "2-7\n")),
        Case::pass("cmd.isolcpus", || iso().cmdline("isolcpus=managed_irq,domain,2-7")),
        Case::warn("cmd.isolcpus", || iso().cmdline("isolcpus=managed_irq,2-7")),
        Case::warn("cmd.isolcpus", || iso().file(ISOLATED, "2-6\n")),
        Case::fail("cmd.isolcpus", || iso().file(ISOLATED, "2-6\n").file(RELEASE, "6.9.0\n")),
        Case::fail("cmd.isolcpus", || grouped(iso().cmdline("isolcpus=managed_irq,2-7"))),
        Case::warn("cmd.isolcpus", || iso().file(ISOLATED, "1-7\n")),
        Case::unknown("cmd.isolcpus", iso),
        Case::pass("cmd.isolcpus-flags", || iso().cmdline("isolcpus=managed_irq,domain,2-7")),
        Case::warn("cmd.isolcpus-flags", || iso().cmdline("isolcpus=managed_irq,2-7")),
        Case::fail("cmd.isolcpus-flags", || grouped(iso().cmdline("isolcpus=managed_irq,2-7"))),
        Case::fail("cmd.isolcpus-flags", || iso().cmdline("isolcpus=domains,2-7")),
        Case::warn("cmd.isolcpus-flags", || iso().cmdline("isolcpus=2-7")),
        Case::unknown("cmd.isolcpus-flags", iso),
        Case::not_applicable("cmd.isolcpus-flags", || iso().cmdline("quiet")),
        Case::pass("cmd.nohz-full", || iso().file(FULL, "2-7\n")),
        Case::warn("cmd.nohz-full", || iso().file(FULL, "(null)\n")),
        Case::fail("cmd.nohz-full", || iso().workload(Workload::Poll).file(FULL, "2-3\n")),
        Case::fail("cmd.nohz-full", || iso().cmdline("nohz_full=2-7").file(FULL, "(null)\n")),
        Case::warn("cmd.nohz-full", || host().isolated("0-7").cmdline("nohz_full=0-7").file(FULL, "1-7\n")),
        Case::unknown("cmd.nohz-full", || iso().cmdline("nohz_full=2-7")),
        // A line without it is proof, except of kernels that could be built with it.
        Case::warn("cmd.nohz-full", || iso().cmdline("quiet").file(RELEASE, "6.12.0\n")),
        Case::unknown("cmd.nohz-full", || iso().cmdline("quiet").file(RELEASE, "4.14.0\n")),
        Case::unknown("cmd.nohz-full", || iso().cmdline("isolcpus=nohz,domain,2-7").file(RELEASE, "6.12.0\n")),
        Case::pass("cmd.nohz-off", || host().cmdline("quiet")),
        Case::warn("cmd.nohz-off", || host().cmdline("nohz=off")),
        Case::fail("cmd.nohz-off", || host().cmdline("nohz=off nohz_full=2-7")),
        Case::unknown("cmd.nohz-off", host),
        Case::pass("cmd.rcu-nocbs", || iso().cmdline("rcu_nocbs=2-7")),
        Case::pass("cmd.rcu-nocbs", || iso().cmdline("nohz_full=2-7")),
        Case::warn("cmd.rcu-nocbs", || iso().cmdline("rcu_nocbs=2-5")),
        Case::warn("cmd.rcu-nocbs", || iso().cmdline("quiet")),
        Case::pass("cmd.rcu-nocbs", || built(iso().cmdline("quiet"))),
        Case::warn("cmd.rcu-nocbs", || built(iso().cmdline("rcu_nocbs=2-5"))),
        Case::unknown("cmd.rcu-nocbs", iso),
        Case::pass("cmd.rcu-nocb-poll", || iso().cmdline("rcu_nocb_poll")),
        Case::warn("cmd.rcu-nocb-poll", || host().isolated("1-7").cmdline("rcu_nocb_poll")),
        Case::unknown("cmd.rcu-nocb-poll", iso),
        Case::pass("cmd.irqaffinity", || iso().cmdline("irqaffinity=0-1").file(MASK, "03\n")),
        Case::pass("cmd.irqaffinity", || iso().cmdline("quiet").file(MASK, "03\n")),
        Case::warn("cmd.irqaffinity", || iso().cmdline("irqaffinity=0-1").file(MASK, "ff\n")),
        Case::unknown("cmd.irqaffinity", || iso().cmdline("quiet")),
        Case::pass("cmd.kthread-cpus", || iso().cmdline("kthread_cpus=0-1").edit(|facts| threads(facts, "0-1"))),
        Case::warn("cmd.kthread-cpus", || iso().cmdline("kthread_cpus=0-1").edit(|facts| threads(facts, "0-7"))),
        Case::unknown("cmd.kthread-cpus", || iso().cmdline("kthread_cpus=0-1")),
        Case::not_applicable("cmd.kthread-cpus", || iso().cmdline("quiet")),
    ];

    #[test]
    fn a_partition_needs_the_second_version_of_cgroups() {
        let now = |path: &str, text: &str| {
            iso().file(ISOLATED, "2-6\n").file(path, text).judge("cmd.isolcpus")[0].now.clone()
        };
        assert_eq!(now("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n"), [""; 0]);
        assert_eq!(
            now("/sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n"),
            ["# nothing: cgroup version 1 has no partitions"]
        );
        // telco-worker1: kubepods.slice has these CPUs.
        let node = iso().cmdline("ostree=/ostree/boot.0/rhcos/1/0 tuned.non_isolcpus=00000003").file(ISOLATED, "2-6\n");
        assert_eq!(node.judge("cmd.isolcpus")[0].now, ["# nothing: the kubelet owns the cpusets"]);
        let general = crate::rules::find("cmd.isolcpus").unwrap().fix.runtime.unwrap();
        assert!(general.starts_with("echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control && "), "{general}");
    }

    #[test]
    fn what_the_scheduler_still_uses_is_named() {
        let judgements = iso().file(ISOLATED, "2-6\n").cmdline("isolcpus=2-6").judge("cmd.isolcpus");
        assert!(judgements[0].found.contains("CPUs 7"), "{judgements:?}");
        assert_eq!(judgements[0].evidence.len(), 2);
        assert_eq!(judgements[0].evidence[1].value, "isolcpus=2-6");
    }
}
