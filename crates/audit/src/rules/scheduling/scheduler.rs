//! Rules on the scheduler's settings.

use host::Facts;
use host::facts::{CpuSet, KernelVersion, SchedClass, Task};
use units::Nanos;

use super::{application, named};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known, settled};

const FLEXRAN: &str = "FlexRAN real-time platform slides (2018)";
const RT_GROUP: &str = "Linux Documentation/scheduler/sched-rt-group.rst";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "sched.rt-throttle",
        cause: Cause::Priorities,
        title: "Real-time threads that never sleep are not throttled",
        applies: Applies::LINUX.until(KernelVersion::new(6, 12)),
        judge: rt_throttle,
        why: "Real-time threads may use sched_rt_runtime_us of each sched_rt_period_us, 0.95 s of 1 s by default. A \
              polling thread under SCHED_FIFO uses all of it and is then stopped for the rest, whether another thread \
              wants the CPU or not. From Linux 6.12 on, a deadline server replaces this.",
        magnitude: Magnitude::late(Nanos::from_millis(50), "50 ms in each second with the defaults", RT_GROUP),
        fix: Fix::runtime("sysctl -w kernel.sched_rt_runtime_us=-1"),
        cost: "A runaway real-time thread takes its CPU for ever.",
        references: &[RT_GROUP, FLEXRAN, "tuned profile realtime"],
    },
    Rule {
        id: "sched.stalld",
        cause: Cause::Priorities,
        title: "stalld serves threads that polling real-time threads starve",
        applies: Applies::LINUX.isolated(),
        judge: stalld,
        why: "Kernel threads that are bound to a CPU of a real-time thread that never sleeps no longer run. stalld \
              gives them a few microseconds when they have waited too long.",
        magnitude: Magnitude::late(
            Nanos::from_micros(20),
            "20 us in each second that a thread starves, instead of a host that hangs",
            "stalld(8), options --boost_period and --boost_runtime",
        ),
        fix: Fix::both("systemctl start stalld", "systemctl enable stalld"),
        cost: "Boosted threads delay the application, and stalld's thread runs on the housekeeping CPUs.",
        references: &["openshift/cluster-node-tuning-operator, profile for real-time kernels", "stalld(8)"],
    },
    Rule {
        id: "sched.knobs",
        cause: Cause::Obsolete,
        title: "No scheduler setting is used that the kernel no longer has",
        applies: Applies::LINUX.since(KernelVersion::new(5, 13)),
        judge: knobs,
        why: "sched_min_granularity_ns, sched_latency_ns, sched_wakeup_granularity_ns and sched_migration_cost_ns left \
              /proc/sys in Linux 5.13 for debugfs. A host that still has them runs a patched kernel, and recipes that \
              set them do nothing elsewhere; tuned dropped them after its benchmarks.",
        magnitude: Magnitude::untimed(
            "none for threads that are alone on their CPU",
            "Linux commit 8a99b6833c88 (sched: Move SCHED_DEBUG sysctl to debugfs)",
        ),
        fix: Fix::boot(
            "isolcpus=managed_irq,domain,{isolated} # leave these settings as they are, and isolate CPUs instead",
        ),
        cost: "The scheduler moves no threads onto these CPUs any more: each thread must be pinned there explicitly.",
        references: &[
            "Linux commit 8a99b6833c88 (sched: Move SCHED_DEBUG sysctl to debugfs)",
            "clr-power-tweaks issue 24",
        ],
    },
    Rule {
        id: "sched.watchdog-cpumask",
        cause: Cause::Watchdogs,
        title: "The lockup detectors watch the housekeeping CPUs only",
        applies: Applies::LINUX.isolated(),
        judge: watchdog,
        why: "The detectors run a timer and a stopper thread on each CPU of their mask, which costs the application an \
         interrupt and a context switch. Without nohz_full the mask contains all CPUs.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "a few us every 4 s (two fifths of watchdog_thresh, 10 s)",
            "Linux Documentation/admin-guide/lockup-watchdogs.rst; the microseconds are an estimate",
        ),
        fix: Fix::runtime("sysctl -w kernel.watchdog_cpumask={housekeeping}"),
        cost: "A hang of an application CPU is not reported.",
        references: &[
            "Linux Documentation/admin-guide/lockup-watchdogs.rst",
            "Linux Documentation/admin-guide/sysctl/kernel.rst",
        ],
    },
    Rule {
        id: "sched.autogroup",
        cause: Cause::Quotas,
        title: "The scheduler does not group sessions automatically",
        applies: Applies::LINUX,
        judge: autogroup,
        why: "With autogrouping, the scheduler treats each session (such as a shell and all that it started) as one \
         entity. Nice values act only within a session, and a latency-sensitive process that was started from a shell \
         shares one entity's CPU time with all other children of that shell.",
        magnitude: Magnitude::untimed(
            "a time slice of up to 3 ms where threads share a CPU; nothing for threads that are alone on their CPU",
            "sched(7), The autogroup feature; the figure is general knowledge",
        ),
        fix: Fix::runtime("sysctl -w kernel.sched_autogroup_enabled=0"),
        cost: "Builds in the background slow down interactive shells more than before.",
        references: &["sched(7), The autogroup feature"],
    },
];

/// Real-time user threads. Deadline threads are left out, because each has its own time budget.
fn realtime(facts: &Facts) -> Result<Vec<&Task>, Skip> {
    known(&facts.tasks)?;
    Ok(facts.tasks().filter(|task| !task.kernel && task.class.is_realtime()).collect())
}

fn rt_throttle(facts: &Facts, context: &Context) -> Judged {
    let fact = facts.sysctl_number("kernel.sched_rt_runtime_us");
    let runtime = *known(&fact)?;
    if runtime < 0 {
        return Judgement::pass("real-time threads may use all the time").see(&fact).alone();
    }
    let length = facts.sysctl_number("kernel.sched_rt_period_us");
    let period = *known(&length)?;
    let stop = Nanos::from_micros(u64::try_from(period.saturating_sub(runtime)).unwrap_or(0));
    let threads = realtime(facts)?;
    let own: Vec<&Task> = application(facts, context)
        .filter(|task| matches!(task.class, SchedClass::Fifo | SchedClass::RoundRobin))
        .collect();
    let judgement = match (own.first(), threads.len()) {
        (Some(first), _) => Judgement::fail_for(
            &context.isolated.value,
            format!(
                "real-time threads that never sleep are stopped for {stop} of each {period} us, for example {}",
                named(first)
            ),
        )
        .takes(stop),
        (None, 0) => Judgement::pass("no thread of a user is a real-time one"),
        (None, n) => Judgement::pass(format!(
            "{n} real-time threads, but none is bound to isolated CPUs alone, where it could poll forever"
        )),
    };
    judgement
        .see(&fact)
        .see(&length)
        .see_as(format!("{} real-time threads", threads.len()), facts.tasks.source())
        .alone()
}

fn stalld(facts: &Facts, context: &Context) -> Judged {
    known(&facts.tasks)?;
    let own = application(facts, context).filter(|task| task.class.is_realtime()).count();
    if own == 0 {
        return Err(Skip::not_applicable("no real-time thread runs on isolated CPUs alone"));
    }
    // If the units are not known, by the service's thread.
    let runs = facts.tasks().any(|task| task.comm == "stalld")
        || facts.services.running.is(|units| units.contains("stalld.service")) == Some(true);
    match runs {
        true => Judgement::pass(format!("stalld runs, and {own} real-time threads have isolated CPUs")),
        false => Judgement::warn(format!("{own} real-time threads have isolated CPUs, but stalld does not run")),
    }
    .see_as(if runs { "stalld" } else { "no stalld" }, facts.tasks.source())
    .alone()
}

fn knobs(facts: &Facts, _: &Context) -> Judged {
    const GONE: [&str; 4] = [
        "kernel.sched_latency_ns",
        "kernel.sched_min_granularity_ns",
        "kernel.sched_wakeup_granularity_ns",
        "kernel.sched_migration_cost_ns",
    ];
    let mut there = Vec::new();
    for name in GONE {
        if let Some(value) = settled(&facts.sysctl(name))? {
            there.push(format!("{name}={}", value.trim()));
        }
    }
    match there.is_empty() {
        true => Judgement::pass("none of the removed settings exists"),
        false => Judgement::warn(format!("{} of the removed settings exist", there.len())),
    }
    .see_as(if there.is_empty() { "no kernel.sched_*_ns".to_owned() } else { there.join(" ") }, "/proc/sys/kernel")
    .alone()
}

fn watchdog(facts: &Facts, context: &Context) -> Judged {
    let on = facts.sysctl_number("kernel.watchdog");
    if settled(&on)?.copied().unwrap_or(0) == 0 {
        return Judgement::pass("the lockup detectors are off").see(&on).alone();
    }
    let mask = facts.sysctl("kernel.watchdog_cpumask").parse(|text| CpuSet::parse_list(text.trim()));
    let stray = known(&mask)?.intersection(&context.isolated.value);
    match stray.is_empty() {
        true => Judgement::pass("the lockup detectors leave the isolated CPUs alone"),
        false => Judgement::warn_for(stray, "the lockup detectors run a timer there"),
    }
    .see(&on)
    .see(&mask)
    .alone()
}

fn autogroup(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.sysctl_number("kernel.sched_autogroup_enabled");
    match known(&fact)? {
        0 => Judgement::pass("sessions are not grouped"),
        _ => {
            Judgement::warn("autogrouping is on: all threads of a session share the CPU time of one scheduling entity")
        }
    }
    .see(&fact)
    .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::samples::{fifo, put, task};
    use super::*;
    use crate::testing::{Case, Host, host};

    const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    const PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";
    const LATENCY: &str = "/proc/sys/kernel/sched_latency_ns";
    const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

    fn iso() -> Host {
        host().isolated("2-7")
    }

    fn poller() -> Host {
        iso().edit(|facts| put(facts, vec![fifo(task(9, "l1app", "3"), 10)]))
    }

    fn throttled(host: Host, runtime: &str) -> Host {
        host.file("/proc/sys/kernel/osrelease", "5.14.0").file(RUNTIME, runtime).file(PERIOD, "1000000\n")
    }

    fn mask(list: &str) -> Host {
        iso().file("/proc/sys/kernel/watchdog", "1\n").file("/proc/sys/kernel/watchdog_cpumask", list)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("sched.rt-throttle", || throttled(poller(), "-1\n")),
        Case::pass("sched.rt-throttle", || throttled(iso().edit(|f| put(f, vec![])), "950000\n")),
        Case::fail("sched.rt-throttle", || throttled(poller(), "950000\n")),
        Case::unknown("sched.rt-throttle", || throttled(iso(), "950000\n")),
        Case::not_applicable("sched.rt-throttle", || poller().file("/proc/sys/kernel/osrelease", "6.12.0")),
        Case::pass("sched.stalld", || {
            iso().edit(|f| put(f, vec![fifo(task(9, "l1app", "3"), 10), task(10, "stalld", "0-1")]))
        }),
        Case::warn("sched.stalld", poller),
        Case::unknown("sched.stalld", iso),
        Case::not_applicable("sched.stalld", || iso().edit(|f| put(f, vec![task(9, "l1app", "3")]))),
        Case::pass("sched.knobs", || host().file("/proc/sys/kernel/osrelease", "6.1.0").complete()),
        Case::warn("sched.knobs", || {
            host().file("/proc/sys/kernel/osrelease", "6.1.0").file(LATENCY, "24000000").complete()
        }),
        Case::unknown("sched.knobs", || host().file("/proc/sys/kernel/osrelease", "6.1.0")),
        Case::pass("sched.watchdog-cpumask", || mask("0-1\n")),
        Case::pass("sched.watchdog-cpumask", || iso().file("/proc/sys/kernel/watchdog", "0\n")),
        Case::warn("sched.watchdog-cpumask", || mask("0-7\n")),
        Case::unknown("sched.watchdog-cpumask", iso),
        Case::pass("sched.autogroup", || host().file(AUTOGROUP, "0\n")),
        Case::warn("sched.autogroup", || host().file(AUTOGROUP, "1\n")),
        Case::unknown("sched.autogroup", host),
    ];

    #[test]
    fn the_throttle_takes_what_the_runtime_leaves() {
        let judgements = throttled(poller(), "900000\n").judge("sched.rt-throttle");
        assert_eq!(judgements[0].effect, Some(crate::Effect::Late(Nanos::from_millis(100))));
    }
}
