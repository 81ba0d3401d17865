//! Rules on the kernel's build and version.

use host::Facts;
use host::facts::KernelVersion;
use units::Nanos;

use crate::rules::common::listed;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Workload, known};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[CONFIGURATION, RUNNING];

const OTHER: Fix = Fix::boot("boot a kernel that is built with this option");

/// Rules on the build configuration of the kernel.
const CONFIGURATION: &[Rule] = &[
    Rule {
        id: "kcfg.no-hz-full",
        cause: Cause::TimerTick,
        title: "The kernel can stop the tick of busy CPUs",
        applies: Applies::LINUX.isolated(),
        judge: |facts, _| needs(facts, "NO_HZ_FULL", "nohz_full= acts", "nohz_full= does nothing"),
        why: "Without CONFIG_NO_HZ_FULL the kernel ignores nohz_full=, and every busy CPU keeps its tick.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "100 to 1000 interruptions per second, a few microseconds each",
            "Linux Documentation/timers/no_hz.rst; how long a tick takes is general knowledge",
        ),
        fix: OTHER,
        cost: "Entries into the kernel cost a little more on CPUs in nohz_full.",
        references: &["Linux Documentation/timers/no_hz.rst", "Intel P-state guide 637284-001US"],
    },
    Rule {
        id: "kcfg.rcu-nocb",
        cause: Cause::Rcu,
        title: "The kernel can offload RCU callbacks",
        applies: Applies::LINUX.isolated(),
        judge: |facts, _| needs(facts, "RCU_NOCB_CPU", "rcu_nocbs= acts", "rcu_nocbs= does nothing"),
        why: "Without CONFIG_RCU_NOCB_CPU callbacks run on the CPU that queued them.",
        magnitude: Magnitude::late(
            Nanos::from_micros(20),
            "tens of microseconds per batch of callbacks",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst names the mechanism; the figure is general knowledge",
        ),
        fix: OTHER,
        cost: "Queueing a callback costs slightly more on these CPUs.",
        references: &["Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst"],
    },
    Rule {
        id: "kcfg.hires",
        cause: Cause::TimerTick,
        title: "Timers have high resolution",
        applies: Applies::LINUX,
        judge: |facts, _| {
            needs(facts, "HIGH_RES_TIMERS", "timers have a resolution of nanoseconds", "timers fire at ticks only")
        },
        why: "Without high-resolution timers each sleep and each timeout ends at a tick.",
        magnitude: Magnitude::late(
            Nanos::from_millis(4),
            "up to one tick: 1 to 10 ms",
            "Linux Documentation/timers/highres.rst",
        ),
        fix: OTHER,
        cost: "Another kernel must be tested and kept up to date.",
        references: &[
            "Linux Documentation/timers/highres.rst",
            "FlexRAN real-time platform slides (2018): High resolution timer",
        ],
    },
    Rule {
        id: "kcfg.cpusets-isolation",
        cause: Cause::SchedulerIsolation,
        title: "The kernel can isolate CPUs",
        applies: Applies::LINUX.isolated(),
        judge: isolation,
        why: "isolcpus=, nohz_full= and isolated cpuset partitions need CONFIG_CPU_ISOLATION and CONFIG_CPUSETS.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "without them other work gets time slices of 3 ms on the application's CPUs",
            "Linux Documentation/admin-guide/cpu-isolation.rst; the time slice: kernel/sched/fair.c, sysctl_sched_base_slice",
        ),
        fix: OTHER,
        cost: "Another kernel must be tested and kept up to date.",
        references: &["Linux Documentation/admin-guide/cpu-isolation.rst"],
    },
    Rule {
        id: "kcfg.hz",
        cause: Cause::TimerTick,
        title: "The tick is between 250 and 1000 Hz",
        applies: Applies::LINUX,
        judge: hz,
        why: "CPUs that keep their tick are interrupted this often. The kernel's network stack counts its timeouts in \
         ticks. A slow tick makes them coarse; a fast tick disturbs more.",
        magnitude: Magnitude::untimed(
            "a resolution of 10 ms at 100 Hz, 4 ms at 250 Hz, 1 ms at 1000 Hz",
            "Linux Documentation/timers/no_hz.rst; the resolution is the inverse of the tick rate",
        ),
        fix: OTHER,
        cost: "A faster tick costs some power and CPU time on CPUs that keep it.",
        references: &["Linux Documentation/timers/no_hz.rst"],
    },
    Rule {
        id: "kcfg.debug",
        cause: Cause::Tracing,
        title: "The kernel is not built for debugging",
        applies: Applies::LINUX,
        judge: debug,
        why: "Checks of locks, memory and preemption make everything slower, and some run with interrupts off for a \
              long time.",
        magnitude: Magnitude::slower(
            "KASAN makes the kernel about three times slower; lock checking can hold interrupts off for hundreds of microseconds",
            "Linux lib/Kconfig.kasan, KASAN_GENERIC (about three times slower); the rest is general knowledge",
        ),
        fix: Fix::boot("boot the distribution's kernel without -debug"),
        cost: "Kernel bugs are found later.",
        references: &[
            "FlexRAN real-time platform slides (2018): Disable Hacking, Debug FS",
            "Linux Documentation/dev-tools/kasan.rst",
        ],
    },
];

/// Rules on the running kernel.
const RUNNING: &[Rule] = &[
    Rule {
        id: "kcfg.preempt",
        cause: Cause::Preemption,
        title: "Real-time applications run on a real-time kernel",
        applies: Applies::LINUX.to(&[Workload::Rt, Workload::Interrupt]),
        judge: preempt,
        why: "In a kernel without preemption, a woken thread waits until the current system call ends. PREEMPT_RT \
              makes nearly all of the kernel preemptible.",
        magnitude: Magnitude::untimed(
            "not known on its own: with all fixes together the longest forwarding delay fell from 418 to 21 us; \
                   a real-time kernel costs up to 30 % of throughput",
            "Interrupt-mode DPDK slides (2017); the throughput: OpenShift documentation",
        ),
        fix: Fix::boot("boot a PREEMPT_RT kernel").traded(),
        cost: "Throughput is lower, and drivers that are not ready for PREEMPT_RT may fail.",
        references: &[
            "Interrupt-mode DPDK slides (2017)",
            "Linux Documentation/admin-guide/kernel-parameters.txt, preempt",
        ],
    },
    Rule {
        id: "kver.fair-server",
        cause: Cause::TimerTick,
        title: "The deadline server does not bring the tick back to application CPUs",
        applies: Applies::LINUX.isolated().since(KernelVersion::new(6, 8)),
        judge: fair_server,
        why: "Kernels with the deadline server for fair tasks arm a timer on each CPU where real-time tasks could \
              starve fair ones. A defect in some of them brings back the tick on nohz_full CPUs.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "about 1000 interrupts and 30 softirqs per second on isolated CPUs, none after the fix",
            "NVIDIA/NV-Kernels pull request 400; how long each takes is general knowledge",
        ),
        fix: Fix::runtime("for n in {cpu-words}; do echo 0 > /sys/kernel/debug/sched/fair_server/cpu$n/runtime; done"),
        cost: "Fair tasks on these CPUs can starve next to a real-time task that never sleeps.",
        references: &["NVIDIA/NV-Kernels pull request 400", "Linux kernel/sched/deadline.c, fair_server_init"],
    },
];

fn needs(facts: &Facts, option: &str, good: &str, bad: &str) -> Judged {
    let fact = &facts.kernel.config;
    let config = known(fact)?;
    let value = config.get(option).unwrap_or("not set");
    let judgement = match config.is_set(option) {
        true => Judgement::pass(good),
        false => Judgement::fail(bad),
    };
    judgement.see_as(format!("CONFIG_{option}: {value}"), fact.source()).alone()
}

fn isolation(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.kernel.config;
    let config = known(fact)?;
    let missing: Vec<&str> = ["CPU_ISOLATION", "CPUSETS"].into_iter().filter(|option| !config.is_set(option)).collect();
    let judgement = match missing.as_slice() {
        [] => Judgement::pass("CPUs can be isolated at boot and at run time"),
        missing => Judgement::fail(format!("the kernel is built without {}", missing.join(" and "))),
    };
    judgement.see_as(listed("not set", &missing), fact.source()).alone()
}

fn hz(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.kernel.config;
    let hz = known(fact)?.get("HZ").and_then(|value| value.parse::<u32>().ok());
    let hz = hz.ok_or_else(|| Skip::unknown(format!("{}: it has no CONFIG_HZ", fact.source())))?;
    let judgement = match hz {
        250..=1000 => Judgement::pass(format!("the tick is {hz} Hz")),
        _ => Judgement::warn(format!("the tick is {hz} Hz")),
    };
    judgement.see_as(format!("CONFIG_HZ={hz}"), fact.source()).alone()
}

/// Build options that slow the kernel down even if nothing uses them (lib/Kconfig.debug).
const COSTLY: [&str; 11] = [
    "PROVE_LOCKING",
    "LOCKDEP",
    "LOCK_STAT",
    "KASAN",
    "KCSAN",
    "DEBUG_PREEMPT",
    "DEBUG_OBJECTS",
    "SLUB_DEBUG_ON",
    "DEBUG_PAGEALLOC_ENABLE_DEFAULT",
    "DEBUG_KMEMLEAK",
    "DEBUG_ATOMIC_SLEEP",
];

fn debug(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.kernel.config;
    let config = known(fact)?;
    let set: Vec<&str> = COSTLY.into_iter().filter(|option| config.is_set(option)).collect();
    let judgement = match set.as_slice() {
        [] => Judgement::pass("the kernel has no check built in that is known to be costly"),
        set => Judgement::warn(format!("the kernel is built with {}", set.join(", "))),
    };
    judgement.see_as(listed("set", &set), fact.source()).alone()
}

fn preempt(facts: &Facts, context: &Context) -> Judged {
    let (realtime, preemption) = (&facts.kernel.realtime, &facts.kernel.preemption);
    if *known(realtime)? {
        return Judgement::pass("the kernel is PREEMPT_RT")
            .see_whether(realtime, "a real-time kernel", "not a real-time kernel")
            .alone();
    }
    if context.is(Workload::Rt) {
        return Judgement::fail("the kernel is not a real-time kernel (PREEMPT_RT)")
            .see_whether(realtime, "a real-time kernel", "not a real-time kernel")
            .alone();
    }
    let judgement = match known(preemption)?.as_str() {
        "full" => Judgement::pass("the kernel is preemptible (full)"),
        other => Judgement::warn(format!("the kernel's preemption model is {other}"))
            .for_good("preempt=full on a kernel with PREEMPT_DYNAMIC, or a PREEMPT_RT kernel"),
    };
    judgement.see_whether(realtime, "a real-time kernel", "not a real-time kernel").see(preemption).alone()
}

fn fair_server(facts: &Facts, context: &Context) -> Judged {
    let place = "/sys/kernel/debug/sched/fair_server/cpu*/runtime";
    let all = &facts.kernel.fair_server_ns;
    let mut on = host::CpuSet::new();
    let mut seen = 0;
    for cpu in context.isolated.value.iter() {
        let Some(fact) = all.get(&cpu) else { continue };
        seen += 1;
        if *known(fact)? > 0 {
            on.insert(cpu);
        }
    }
    if seen == 0 {
        return Err(Skip::unknown(format!("{place}: not recorded, or debugfs is not mounted")));
    }
    let judgement = match on.is_empty() {
        true => Judgement::pass_for(&context.isolated.value, "the deadline server is off on these CPUs"),
        false => Judgement::warn_for(
            &on,
            format!("the deadline server is on: compare the rate of timer interrupts on CPUs {on}"),
        ),
    };
    judgement.see_as(format!("{} of {seen} isolated CPUs have a budget", on.len()), place).alone()
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[tests::CASES];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Host, host};

    fn built(options: &str) -> Host {
        host().isolated("2-7").file("/proc/sys/kernel/osrelease", "6.12.0\n").file("/boot/config-6.12.0", options)
    }

    fn with(workload: Workload, realtime: &str) -> Host {
        host().workload(workload).file("/sys/kernel/realtime", realtime)
    }

    fn server(nanoseconds: &str) -> Host {
        (2..8).fold(built(""), |host, n| {
            host.file(&format!("/sys/kernel/debug/sched/fair_server/cpu{n}/runtime"), nanoseconds)
        })
    }

    pub(super) const CASES: &[Case] = &[
        Case::pass("kcfg.no-hz-full", || built("CONFIG_NO_HZ_FULL=y\n")),
        Case::fail("kcfg.no-hz-full", || built("CONFIG_HZ=250\n")),
        Case::unknown("kcfg.no-hz-full", || host().isolated("2-7")),
        Case::pass("kcfg.rcu-nocb", || built("CONFIG_RCU_NOCB_CPU=y\n")),
        Case::fail("kcfg.rcu-nocb", || built("CONFIG_HZ=250\n")),
        Case::unknown("kcfg.rcu-nocb", || host().isolated("2-7")),
        Case::pass("kcfg.hires", || built("CONFIG_HIGH_RES_TIMERS=y\n")),
        Case::fail("kcfg.hires", || built("CONFIG_HZ=250\n")),
        Case::unknown("kcfg.hires", host),
        Case::pass("kcfg.cpusets-isolation", || built("CONFIG_CPUSETS=y\nCONFIG_CPU_ISOLATION=y\n")),
        Case::fail("kcfg.cpusets-isolation", || built("CONFIG_CPUSETS=y\n")),
        Case::unknown("kcfg.cpusets-isolation", || host().isolated("2-7")),
        Case::pass("kcfg.hz", || built("CONFIG_HZ=1000\n")),
        Case::warn("kcfg.hz", || built("CONFIG_HZ=100\n")),
        Case::unknown("kcfg.hz", host),
        Case::pass("kcfg.debug", || built("CONFIG_DEBUG_FS=y\n")),
        Case::warn("kcfg.debug", || built("CONFIG_KASAN=y\n")),
        Case::unknown("kcfg.debug", host),
        Case::pass("kcfg.preempt", || with(Workload::Rt, "1\n")),
        Case::fail("kcfg.preempt", || with(Workload::Rt, "0\n")),
        Case::warn("kcfg.preempt", || {
            with(Workload::Interrupt, "0\n").file("/sys/kernel/debug/sched/preempt", "none (voluntary) full\n")
        }),
        Case::unknown("kcfg.preempt", || host().workload(Workload::Rt)),
        Case::pass("kver.fair-server", || server("0\n")),
        Case::warn("kver.fair-server", || server("50000000\n")),
        Case::unknown("kver.fair-server", || built("")),
        Case::not_applicable("kver.fair-server", || {
            host().isolated("2-7").file("/proc/sys/kernel/osrelease", "5.14.0")
        }),
    ];
}
