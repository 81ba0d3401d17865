//! Rules on watchdogs, machine checks, and RCU's grace periods.

use host::Facts;
use host::facts::{CpuSet, KernelVersion};
use units::Nanos;

use crate::rules::common::{any_cpu, by_cpu, line, see_parameter};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const LOCKUP: &str = "Linux Documentation/admin-guide/lockup-watchdogs.rst";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cmd.nosoftlockup",
        cause: Cause::Watchdogs,
        title: "The soft-lockup detector does not watch application CPUs",
        applies: Applies::LINUX.isolated(),
        judge: soft_lockup,
        why: "The detector runs a high-resolution timer and a stopper thread on each CPU it watches, every 4 s by default (2/5 of watchdog_thresh).",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "one interruption of a few microseconds every 4 s on each CPU",
            "Linux Documentation/admin-guide/lockup-watchdogs.rst, Implementation; how long each takes is general knowledge",
        ),
        fix: Fix::runtime_or_boot("echo {housekeeping} > /proc/sys/kernel/watchdog_cpumask", "nosoftlockup"),
        cost: "A kernel hang on these CPUs is not detected.",
        references: &[LOCKUP, "tuned profile realtime"],
    },
    Rule {
        id: "cmd.nmi-watchdog",
        cause: Cause::Watchdogs,
        title: "The hard-lockup detector does not watch application CPUs",
        applies: Applies::LINUX,
        judge: nmi_watchdog,
        why: "The detector occupies a performance counter on each CPU and lets it overflow into an interrupt that cannot \
         be masked.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "one non-maskable interrupt every watchdog_thresh (10 s) of busy time on each CPU, a few microseconds",
            "Linux Documentation/admin-guide/lockup-watchdogs.rst, Implementation; how long each takes is general knowledge",
        ),
        fix: Fix::runtime_or_boot("sysctl -w kernel.nmi_watchdog=0", "nmi_watchdog=0"),
        cost: "A CPU that hangs with interrupts off is not detected.",
        references: &[
            LOCKUP,
            "FlexRAN real-time platform slides (2018), kernel command line",
            "Mellanox mlnx-tools, mlnx_tune",
        ],
    },
    Rule {
        id: "cmd.mce",
        cause: Cause::MachineChecks,
        title: "Corrected errors are not polled for, and machine checks are on",
        applies: Applies::LINUX.on_hardware(),
        judge: mce,
        why: "Each CPU polls its machine-check banks for corrected errors, every 5 minutes by default and more often \
         after an error. mce=off stops this, but also the handling of uncorrected errors: with CR4.MCE clear, a \
         machine check shuts the processor down (Intel SDM volume 3, Machine-Check Exception), and the host resets. \
         Corrected errors go unnoticed.",
        magnitude: Magnitude::late(
            Nanos::from_micros(20),
            "one timer every 5 minutes on each CPU, tens of microseconds to read the banks",
            "Linux arch/x86/kernel/cpu/mce/core.c, INITIAL_CHECK_INTERVAL (5 * 60 s); how long each takes is general knowledge",
        ),
        fix: Fix::runtime_or_boot(
            "for n in /sys/devices/system/machinecheck/machinecheck*; do echo 1 > $n/ignore_ce; done",
            "mce=ignore_ce",
        )
        .against(&["FlexRAN real-time platform slides (2018) ask for machine checks to be disabled"]),
        cost: "Corrected errors, which are an early sign of failing memory, appear only in the firmware's log.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, mce (older kernels: arch/x86/x86_64/boot-options.rst, Machine check)",
            "tuned profile realtime",
        ],
    },
    Rule {
        id: "cmd.rcu-expedited",
        cause: Cause::Rcu,
        title: "Grace periods of RCU are not expedited",
        applies: Applies::LINUX.isolated(),
        judge: expedited,
        why: "An expedited grace period interrupts every CPU that is not idle. A normal one waits instead.",
        magnitude: Magnitude::late(
            Nanos::from_micros(3),
            "one inter-processor interrupt on each busy CPU per grace period, 1 to 5 us",
            "Linux Documentation/admin-guide/kernel-parameters.txt, rcupdate.rcu_expedited; how long each takes is general knowledge",
        ),
        fix: Fix::runtime_or_boot("echo 1 > /sys/kernel/rcu_normal", "rcupdate.rcu_normal_after_boot=1")
            .against(&["OpenShift vDU reference configuration sets rcupdate.rcu_normal_after_boot=0"]),
        cost: "Operations that wait for grace periods (module loading, network namespaces) take longer.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, rcupdate.rcu_normal_after_boot",
            "tuned profile network-latency",
        ],
    },
    Rule {
        id: "cmd.rcu-patience",
        cause: Cause::Rcu,
        title: "RCU does not restart the tick of nohz_full CPUs at once",
        applies: Applies::LINUX.isolated().since(KernelVersion::new(6, 11)),
        judge: patience,
        why: "When a grace period waits for a nohz_full CPU that is in the kernel, RCU restarts that CPU's tick. The \
         delay before this can be increased.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "a tick or two per long grace period, a few microseconds each",
            "Linux Documentation/admin-guide/kernel-parameters.txt, rcutree.nohz_full_patience_delay; how long each takes is general knowledge",
        ),
        fix: Fix::boot("rcutree.nohz_full_patience_delay=1000"),
        cost: "Grace periods can take up to a second longer, and memory is freed later.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, rcutree.nohz_full_patience_delay",
            "redhat-performance/tuned pull request 747 (profile network-latency)",
        ],
    },
    Rule {
        id: "cmd.rcutree-kthread-prio",
        cause: Cause::Priorities,
        title: "RCU's threads come before real-time threads of the application",
        applies: Applies::LINUX.to(&[Workload::Rt]).isolated(),
        judge: kthread_prio,
        why: "A real-time thread that never sleeps keeps RCU's threads of lower priority off its CPU. Callbacks then \
         pile up until memory runs out or the kernel reports a stall.",
        magnitude: Magnitude::untimed(
            "a stall warning after 21 s (with its interrupts to all CPUs), memory exhaustion later",
            "Linux Documentation/RCU/stallwarn.rst",
        ),
        fix: Fix::boot("rcutree.kthread_prio=11 # with the application's priorities below it"),
        cost: "RCU's threads interrupt the application when they have work.",
        references: &[
            "Linux Documentation/RCU/stallwarn.rst",
            "OpenShift cluster-node-tuning-operator, performance profile",
        ],
    },
];

fn watched(facts: &Facts) -> CpuSet {
    let mask = facts.sysctl("kernel.watchdog_cpumask").value().and_then(|list| list.trim().parse().ok());
    // By default, the watchdog runs on all CPUs that keep their tick (kernel/watchdog.c, lockup_detector_init).
    mask.unwrap_or_else(|| facts.cpus.all().difference(facts.cpus.nohz_full.value().unwrap_or(&CpuSet::new())))
}

fn detector(facts: &Facts, context: &Context, name: &str, parameter: &str) -> Judged {
    let on = facts.sysctl_number(name);
    let running = *known(&on)? != 0;
    any_cpu(facts)?;
    let hit = watched(facts).intersection(&context.critical(facts));
    let mask = facts.sysctl("kernel.watchdog_cpumask");
    let judgement = if !running {
        Judgement::pass("the detector is off")
    } else if hit.is_empty() {
        Judgement::pass("the detector watches housekeeping CPUs only")
    } else {
        Judgement::warn_for(&hit, format!("the detector interrupts CPUs {hit}"))
    };
    see_parameter(judgement.see(&on).see(&mask), facts, parameter).alone()
}

fn soft_lockup(facts: &Facts, context: &Context) -> Judged {
    detector(facts, context, "kernel.soft_watchdog", "nosoftlockup")
}

fn nmi_watchdog(facts: &Facts, context: &Context) -> Judged {
    detector(facts, context, "kernel.nmi_watchdog", "nmi_watchdog")
}

fn mce(facts: &Facts, context: &Context) -> Judged {
    if line(facts)?.has_value("mce", "off") || line(facts)?.has("nomce") {
        let text = "machine checks are off: the kernel handles none, not even uncorrected memory errors, and logs no error \
         from the processors' banks";
        // Machine checks are then not polled, so they take no time.
        let judgement = Judgement::warn_for(Subject::Parameter("mce".into()), text).with_effect(crate::Effect::Unsized);
        // The kernel then has no files for machine checks either (arch/x86/kernel/cpu/mce/core.c, mce_available).
        let judgement = judgement.now("# nothing: machine checks can only be enabled again by a reboot");
        let remove = if line(facts)?.has("nomce") { "remove nomce" } else { "remove mce=off" };
        return see_parameter(judgement, facts, "mce").for_good(remove).for_good("mce=ignore_ce").alone();
    }
    by_cpu(facts, &context.critical(facts), |cpu| {
        let check = &cpu.machine_check;
        let ignored = *known(&check.ignore_ce)?;
        let judgement = match (ignored, check.check_interval_s.get()) {
            (true, _) => Judgement::pass("corrected errors are not polled for"),
            (false, Some(0)) => Judgement::pass("the banks are never polled"),
            (false, Some(seconds)) => Judgement::warn(format!("the banks are polled every {seconds} s")),
            (false, None) => Judgement::warn("the banks are polled"),
        };
        Ok(see_parameter(
            judgement
                .see_whether(&check.ignore_ce, "corrected errors are ignored", "corrected errors are polled")
                .see(&check.check_interval_s),
            facts,
            "mce",
        ))
    })
}

fn is_on(text: &str) -> bool {
    matches!(text.trim(), "1" | "Y" | "y")
}

fn expedited(facts: &Facts, _: &Context) -> Judged {
    let (expedited, normal) = (facts.parameter("rcupdate.rcu_expedited"), facts.parameter("rcupdate.rcu_normal"));
    let hurried = is_on(known(&expedited)?) && normal.is(|text| is_on(text)) != Some(true);
    let judgement = match hurried {
        true => Judgement::warn("each grace period interrupts all busy CPUs"),
        false => Judgement::pass("grace periods are not expedited"),
    };
    judgement.see(&expedited).see(&normal).alone()
}

fn patience(facts: &Facts, _: &Context) -> Judged {
    let delay = facts.parameter("rcutree.nohz_full_patience_delay");
    let milliseconds: u64 =
        known(&delay)?.trim().parse().map_err(|_| Skip::unknown("rcutree.nohz_full_patience_delay is no number"))?;
    let judgement = match milliseconds {
        0 => Judgement::warn("RCU restarts a CPU's tick as soon as a grace period waits for that CPU"),
        n => Judgement::pass(format!("RCU waits {n} ms before it restarts a CPU's tick")),
    };
    judgement.see(&delay).alone()
}

fn kthread_prio(facts: &Facts, context: &Context) -> Judged {
    let fact = facts.parameter("rcutree.kthread_prio");
    let priority: u32 = known(&fact)?.trim().parse().map_err(|_| Skip::unknown("rcutree.kthread_prio is no number"))?;
    known(&facts.tasks)?;
    let isolated = &context.isolated.value;
    let above = facts.tasks().filter(|task| {
        !task.kernel
            && task.class.is_realtime()
            && task.rt_priority >= priority
            && task.affinity.is(|set| set.is_subset(isolated)) == Some(true)
    });
    let names: Vec<String> =
        above.map(|task| format!("{} ({}, priority {})", task.comm, task.tid, task.rt_priority)).collect();
    let judgement = match names.len() {
        0 => Judgement::pass(format!("no thread on the isolated CPUs has priority {priority} or more")),
        n => Judgement::warn(format!(
            "{n} threads on the isolated CPUs have precedence over RCU's threads, for example {}",
            names[0]
        )),
    };
    judgement.see(&fact).see_as(format!("{} threads", names.len()), facts.tasks.source()).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::{SchedClass, Task};

    use super::*;
    use crate::testing::{Case, Host, host};

    const SOFT: &str = "/proc/sys/kernel/soft_watchdog";
    const NMI: &str = "/proc/sys/kernel/nmi_watchdog";
    const MASK: &str = "/proc/sys/kernel/watchdog_cpumask";
    const DELAY: &str = "/sys/module/rcutree/parameters/nohz_full_patience_delay";
    const PRIO: &str = "/sys/module/rcutree/parameters/kthread_prio";
    const EXPEDITED: &str = "/sys/module/rcupdate/parameters/rcu_expedited";

    fn iso() -> Host {
        host().isolated("2-7")
    }

    fn checks(host: Host, ignore: &str) -> Host {
        (0..8).fold(host, |host, n| {
            let place = format!("/sys/devices/system/machinecheck/machinecheck{n}");
            host.file(&format!("{place}/ignore_ce"), ignore).file(&format!("{place}/check_interval"), "12c")
        })
    }

    fn new() -> Host {
        iso().file("/proc/sys/kernel/osrelease", "6.12.1")
    }

    fn rt(facts: &mut Facts, rt_priority: u32) {
        let affinity = Fact::known(CpuSet::from([3]), "/proc/9/status");
        let task =
            Task { tid: 9, comm: "l1app".into(), class: SchedClass::Fifo, rt_priority, affinity, ..Task::default() };
        facts.tasks = Fact::known(vec![task], "/proc/*/stat");
    }

    fn realtime() -> Host {
        iso().workload(Workload::Rt).file(PRIO, "11\n")
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cmd.nosoftlockup", || iso().file(SOFT, "0\n")),
        Case::pass("cmd.nosoftlockup", || iso().file(SOFT, "1\n").file(MASK, "0-1\n")),
        Case::warn("cmd.nosoftlockup", || iso().file(SOFT, "1\n").file(MASK, "0-7\n")),
        Case::unknown("cmd.nosoftlockup", iso),
        Case::pass("cmd.nmi-watchdog", || host().file(NMI, "0\n")),
        Case::warn("cmd.nmi-watchdog", || host().file(NMI, "1\n")),
        Case::unknown("cmd.nmi-watchdog", host),
        Case::pass("cmd.mce", || checks(iso().cmdline("quiet"), "1\n")),
        Case::warn("cmd.mce", || checks(iso().cmdline("quiet"), "0\n")),
        Case::warn("cmd.mce", || checks(iso().cmdline("mce=off"), "0\n")),
        Case::unknown("cmd.mce", || iso().cmdline("quiet")),
        Case::not_applicable("cmd.mce", || iso().cmdline("quiet").complete()),
        Case::pass("cmd.rcu-expedited", || iso().file(EXPEDITED, "0\n")),
        Case::warn("cmd.rcu-expedited", || iso().file(EXPEDITED, "1\n")),
        Case::unknown("cmd.rcu-expedited", iso),
        Case::pass("cmd.rcu-patience", || new().file(DELAY, "1000\n")),
        Case::warn("cmd.rcu-patience", || new().file(DELAY, "0\n")),
        Case::unknown("cmd.rcu-patience", new),
        Case::not_applicable("cmd.rcu-patience", || {
            iso().file("/proc/sys/kernel/osrelease", "5.14.0").file(DELAY, "0")
        }),
        Case::pass("cmd.rcutree-kthread-prio", || realtime().edit(|facts| rt(facts, 10))),
        Case::warn("cmd.rcutree-kthread-prio", || realtime().edit(|facts| rt(facts, 99))),
        Case::unknown("cmd.rcutree-kthread-prio", realtime),
    ];

    /// telco-worker1: mce=ignore_ce beside mce=off changes nothing, and there are no files to write to.
    #[test]
    fn machine_checks_that_are_off_come_back_with_the_next_boot() {
        for (line, remove) in [("mce=off", "remove mce=off"), ("nomce", "remove nomce")] {
            let judgement = iso().cmdline(line).judge("cmd.mce").remove(0);
            assert_eq!(judgement.for_good, [remove, "mce=ignore_ce"]);
            assert!(judgement.now[0].starts_with("# nothing"), "{judgement:?}");
        }
    }

    #[test]
    fn machine_checks_of_like_cpus_are_one_judgement() {
        let judgements = checks(iso().cmdline("quiet"), "0\n").judge("cmd.mce");
        assert_eq!(judgements.len(), 1);
        assert_eq!(judgements[0].subject.to_string(), "CPUs 2-7");
        assert_eq!(judgements[0].found, "the banks are polled every 300 s");
    }

    /// What the firmware reports, to its own log or over ACPI, is not turned off.
    #[test]
    fn machine_checks_that_are_off_hide_what_the_processor_reports_and_no_more() {
        let found = iso().cmdline("mce=off").judge("cmd.mce").remove(0).found;
        let said = "machine checks are off: the kernel handles none, not even uncorrected memory errors, and logs no error \
         from the processors' banks";
        assert_eq!(found, said);
        let why = crate::rules::find("cmd.mce").unwrap().why;
        assert!(why.contains("CR4.MCE") && !why.contains("used on"));
    }
}
