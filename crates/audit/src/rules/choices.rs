//! Rules about choices: questions on which good sources give opposite advice. Each host follows one side.
//!
//! If the user has not stated the purpose of the host (`--workload`), the verdict is *sources disagree*, and the text
//! names both sides. If only one side has sources that give advice for the stated purpose, the choice is decided: a
//! host that follows this side passes, and a host that follows the other side gets a warning.
//!
//! Questions that another rule already judges are not choices here, because the two rules would contradict each other.
//! `idle.states` judges deep idle states, `cmd.idle-poll` idle=poll, `cpu.governor` and `cpu.freq-span` the frequency,
//! `unc.sysfs-range` the uncore, `cmd.mce` machine checks, and `mem.numa-balancing` NUMA balancing. Sources that
//! recommend the opposite are listed as conflicts of those rules.

use host::Facts;
use host::facts::Vendor;

use crate::{
    Applies, Cause, Context, Fix, How, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known, settled,
};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[SETTINGS, POWER];

const VDU: &str = "OpenShift vDU reference configuration";
const NTO: &str = "openshift/cluster-node-tuning-operator";
const TUNED: &str = "tuned profiles cpu-partitioning and realtime";
const GUIDE: &str = "Intel P-state guide (637284-001US, 2021)";
const PERFSPECT: &str = "intel/PerfSpect";

/// Choices between settings of the kernel.
const SETTINGS: &[Rule] = &[
    Rule {
        id: "choice.timer-migration",
        cause: Cause::TimerTick,
        title: "Timers move away from idle CPUs, or stay",
        applies: Applies::LINUX.isolated(),
        judge: timer_migration,
        why: "With kernel.timer_migration=1 a timer that is started on an idle CPU goes to a busy one: with nohz_full, \
              away from the isolated CPUs; without it, to any busy CPU, including isolated ones. With 0 it stays where \
              it was started.",
        magnitude: Magnitude::untimed(
            "an interrupt of a few us per timer, on the CPU that receives the timer",
            "Linux kernel/sched/core.c, get_nohz_timer_target",
        ),
        fix: Fix::runtime("sysctl -w kernel.timer_migration=0")
            .against(&["0: tuned", "1: OpenShift node tuning operator, whose hosts have nohz_full"]),
        cost: "With kernel.timer_migration=0, housekeeping CPUs sleep less. With 1, isolated CPUs that nohz_full does not protect can receive \
         timers of other CPUs.",
        references: &[TUNED, NTO],
    },
    Rule {
        id: "choice.rcu-normal",
        cause: Cause::Rcu,
        title: "RCU grace periods are normal after boot, or expedited",
        applies: Applies::LINUX,
        judge: rcu_normal,
        why: "An expedited grace period interrupts all CPUs in order to end soon. With \
              rcupdate.rcu_normal_after_boot=1, RCU uses normal grace periods after boot, which wait instead. \
              Operations that wait for a grace period (starting pods, changing interfaces) then take longer.",
        magnitude: Magnitude::untimed(
            "one interrupt on each CPU per expedited grace period; milliseconds for a normal one",
            "Linux Documentation/RCU/Design/Expedited-Grace-Periods; Documentation/RCU/checklist.rst (multi-millisecond latency of synchronize_rcu)",
        ),
        fix: Fix::runtime_or_boot("echo 1 > /sys/kernel/rcu_normal", "rcupdate.rcu_normal_after_boot=1")
            .against(&["1: tuned", "0: OpenShift vDU reference configuration"]),
        cost: "With rcupdate.rcu_normal_after_boot=1, configuration changes take longer.",
        references: &["tuned profile network-latency, which realtime and cpu-partitioning include", VDU],
    },
    Rule {
        id: "choice.ring-size",
        cause: Cause::Rings,
        title: "Rings are short, to avoid delay, or long, to avoid loss",
        applies: Applies::LINUX.with_nic(),
        judge: ring_size,
        why: "A frame in a full ring waits for all frames before it: a short ring limits this delay. A long ring loses \
              no frames even if its reader pauses for longer. math.rx-ring-time computes both.",
        magnitude: Magnitude::untimed(
            "256 slots of 1500 bytes last 79 us at 40 Gbit/s, 1024 last 315 us, 2048 last 630 us",
            "arithmetic: slots x 1538 bytes x 8 / rate (IEEE 802.3)",
        ),
        fix: Fix::look("apus audit --explain math.rx-ring-time # how long a ring may be")
            .against(&["256: FreeBSD thread", "1024 to 2048: DPDK hns3 guide"]),
        cost: "A short ring loses packets even if its reader pauses only briefly. A long one adds delay and uses cache.",
        references: &[
            "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015)",
            "DPDK guide, nics/hns3",
        ],
    },
];

/// Choices about power.
const POWER: &[Rule] = &[Rule {
    id: "choice.pstate-driver",
    cause: Cause::CoreFrequency,
    title: "The processor chooses its frequency, or the kernel does",
    applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
    judge: pstate,
    why: "In active mode, intel_pstate lets the hardware choose the frequency within bounds. tuned's profile for \
     partitions disables the driver, so that acpi-cpufreq or no driver remains. The node tuning operator disables \
     it before Ice Lake and on hybrid parts, keeps it active on Xeons from Ice Lake on, and makes it passive for \
     power management per pod. Firmware that forces hardware control overrides the parameter.",
    magnitude: Magnitude::slower("none where the frequency is fixed; up to 500 us for a ramp where it is not", GUIDE),
    fix: Fix::boot("intel_pstate=disable, or intel_pstate=active with equal lowest and highest frequency").against(&[
        "disable: tuned; before Ice Lake and on hybrid parts also OpenShift node tuning operator",
        "active: intel/PerfSpect; on Xeons from Ice Lake on also OpenShift node tuning operator",
        "passive: OpenShift node tuning operator with perPodPowerManagement",
    ]),
    cost: "Without the driver there is no energy preference, and often no turbo.",
    references: &[
        "tuned profile cpu-partitioning",
        "tuned, intel_recommended_pstate, a function that the node tuning operator calls",
        NTO,
        PERFSPECT,
    ],
}];

/// One side of a choice, and the sources that recommend it.
pub(super) struct Side {
    /// The state of a host that follows this side, as a clause: "turbo is on".
    pub is: &'static str,
    /// The advice of this side, as a noun phrase: "turbo off".
    pub want: &'static str,
    /// The documents that recommend this side.
    pub who: &'static str,
    /// Uses of a host for which only this side has sources. If both sides have a source for a use, neither side lists
    /// the use: for example, both tuned and OpenShift advise on real-time hosts. Empty if no use decides the choice.
    pub of: &'static [Workload],
}

/// Judges a choice for a host that follows `sides[followed]`.
pub(super) fn choose(context: &Context, sides: [&Side; 2], followed: usize) -> Judgement {
    let (mine, other) = (sides[followed], sides[1 - followed]);
    let declared = context.workloads.how == How::Given;
    // The declared uses that decide: those for which the side has sources.
    let uses = |side: &Side| -> Vec<&str> {
        let named = context.workloads.value.iter().filter(|workload| declared && side.of.contains(workload));
        named.map(|workload| workload.name()).collect()
    };
    match (uses(mine).as_slice(), uses(other).as_slice()) {
        (uses @ [_, ..], []) => {
            Judgement::pass(format!("{}, the advice for {} ({})", mine.is, uses.join(", "), mine.who))
        }
        ([], uses @ [_, ..]) => Judgement::warn(format!(
            "{}, but with --workload {} the advice is {} ({}). Other sources recommend {} ({})",
            mine.is,
            uses.join(","),
            other.want,
            other.who,
            mine.want,
            mine.who
        )),
        _ => {
            let decides = !declared && sides.iter().any(|side| !side.of.is_empty());
            let hint = if decides { "; --workload can decide it" } else { "" };
            Judgement::disagree(format!(
                "{}, as advised by {}. The opposite advice is {} ({}){hint}",
                mine.is, mine.who, other.want, other.who
            ))
        }
    }
}

fn timer_migration(facts: &Facts, context: &Context) -> Judged {
    const STAY: Side = Side {
        is: "timers stay where they were started",
        want: "timers that stay where they were started",
        who: "tuned",
        of: &[Workload::Poll],
    };
    const MOVE: Side = Side {
        is: "timers move to busy CPUs",
        want: "timers that move away from idle CPUs",
        who: "OpenShift node tuning operator",
        of: &[],
    };
    let fact = facts.sysctl_number("kernel.timer_migration");
    let moves = *known(&fact)? != 0;
    // With nohz_full the kernel moves these timers to housekeeping CPUs only, so 1 is equally good.
    let protected = facts.cpus.nohz_full.is(|cpus| context.isolated.value.is_subset(cpus)) == Some(true);
    let judgement = match (moves, protected) {
        (true, true) => Judgement::pass("timers move, and nohz_full sends them to housekeeping CPUs"),
        _ => choose(context, [&STAY, &MOVE], usize::from(moves)),
    };
    judgement.see(&fact).see(&facts.cpus.nohz_full).alone()
}

fn rcu_normal(facts: &Facts, context: &Context) -> Judged {
    const NORMAL: Side = Side {
        is: "RCU grace periods are normal after boot",
        want: "normal grace periods after boot",
        who: "tuned",
        of: &[Workload::Poll],
    };
    const HURRY: Side = Side {
        is: "RCU may expedite grace periods after boot",
        want: "expedited grace periods",
        who: "OpenShift's reference for 5G distributed units",
        of: &[],
    };
    let fact = facts.parameter("rcupdate.rcu_normal_after_boot");
    let normal = match known(&fact)?.trim() {
        "1" | "Y" => true,
        "0" | "N" => false,
        other => return Err(Skip::unknown(format!("rcu_normal_after_boot is {other:?}"))),
    };
    choose(context, [&NORMAL, &HURRY], usize::from(!normal)).see(&fact).alone()
}

fn ring_size(facts: &Facts, context: &Context) -> Judged {
    const SHORT: Side = Side {
        is: "the ring is short",
        want: "short rings (256)",
        who: "FreeBSD thread on ixl",
        of: &[Workload::Interrupt],
    };
    const LONG: Side = Side {
        is: "the ring is long",
        want: "long rings (1024 to 2048)",
        who: "DPDK hns3 guide",
        of: &[Workload::Poll],
    };
    known(&facts.links)?;
    let links: Vec<_> = context.links(facts).collect();
    let mut judgements = Vec::new();
    let mut open = None;
    for link in links {
        let rings = match known(&link.rings) {
            Ok(rings) => rings,
            Err(skip) => {
                open = open.or(Some(skip));
                continue;
            }
        };
        let Some(slots) = rings.rx else { continue };
        // A value between the two sides follows neither.
        let judgement = match slots {
            257..1024 => Judgement::pass(format!("{slots} slots lie between the two recommendations")),
            _ => choose(context, [&SHORT, &LONG], usize::from(slots >= 1024)),
        };
        let judgement = Judgement { subject: Subject::Link(link.name.clone()), ..judgement };
        judgements.push(judgement.see_as(format!("rx {slots}"), link.rings.source()));
    }
    match (judgements.is_empty(), open) {
        (false, _) => Ok(judgements),
        (true, Some(skip)) => Err(skip),
        (true, None) => Err(Skip::unknown("none of the interfaces is among those that are known")),
    }
}

fn pstate(facts: &Facts, context: &Context) -> Judged {
    use host::facts::Generation::*;
    // The node tuning operator follows tuned's intel_recommended_pstate, which goes by the name of the PMU: disable up
    // to "skylake" (which includes Cascade Lake and Cooper Lake), and also if there is no PMU named cpu, as on hybrid
    // processors (cpu_core and cpu_atom; arch/x86/events/intel/core.c); active for all others.
    let (off, active) = match facts.cpus.generation.get() {
        Some(Haswell | Broadwell | Skylake | CascadeLake | CooperLake) => {
            ("tuned and OpenShift node tuning operator", "intel/PerfSpect")
        }
        Some(IceLake | SapphireRapids | EmeraldRapids | GraniteRapids | SierraForest) => {
            ("tuned", "OpenShift node tuning operator and intel/PerfSpect")
        }
        _ => ("tuned", "intel/PerfSpect"),
    };
    let off = Side { is: "intel_pstate is not in use", want: "intel_pstate=disable", who: off, of: &[] };
    let active =
        Side { is: "intel_pstate is in use, in active mode", want: "intel_pstate=active", who: active, of: &[] };
    let passive = Side {
        is: "intel_pstate is in use, in passive mode",
        want: "intel_pstate=passive",
        who: "OpenShift node tuning operator with perPodPowerManagement",
        of: &[],
    };
    let fact = &facts.scaling.intel_pstate;
    let status = settled(fact)?.map(|status| status.trim());
    let fixed = facts.cpus.list.iter().all(|cpu| {
        let range = &cpu.frequency;
        range.scaling_min.is_known() && range.scaling_min.value() == range.scaling_max.value()
    });
    if fixed && !facts.cpus.list.is_empty() {
        return Judgement::pass("the frequency is fixed, whichever driver does it").see(fact).alone();
    }
    let judgement = match status {
        None | Some("off") => choose(context, [&off, &active], 0),
        Some("passive") => choose(context, [&off, &passive], 1),
        Some(_) => choose(context, [&off, &active], 1),
    };
    let generation = &facts.cpus.generation;
    let judgement = judgement.see(fact);
    match generation.get() {
        Some(name) => judgement.see_as(format!("{name:?}"), generation.source()).alone(),
        None => judgement.alone(),
    }
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[tests::CASES];

#[cfg(test)]
mod tests {
    use host::Fact;
    use host::facts::{Generation, Rings};
    use units::Hertz;

    use super::super::arithmetic_samples as samples;
    use super::*;
    use crate::testing::{Case, Host, host};

    const MIGRATION: &str = "/proc/sys/kernel/timer_migration";
    const RCU: &str = "/sys/module/rcupdate/parameters/rcu_normal_after_boot";
    const PSTATE: &str = "/sys/devices/system/cpu/intel_pstate/status";

    fn iso() -> Host {
        host().isolated("2-7")
    }

    fn poll() -> Host {
        iso().workload(Workload::Poll)
    }

    fn slots(host: Host, slots: u32) -> Host {
        let host = host.nic("eth0").file("/sys/class/net/eth0/mtu", "1500\n");
        match slots {
            256 => host.edit(|f| ring(f, 256)),
            _ => host.edit(|f| ring(f, 4096)),
        }
    }

    fn ring(facts: &mut Facts, slots: u32) {
        samples::link(facts, |link| {
            link.rings = Fact::known(Rings { rx: Some(slots), ..Rings::default() }, "ethtool -g eth0");
        });
    }

    fn range(facts: &mut Facts, generation: Generation, min: u64) {
        let place = "/sys/devices/system/cpu/cpufreq/policy0";
        facts.cpus.generation = Fact::known(generation, "/proc/cpuinfo");
        for cpu in &mut facts.cpus.list {
            cpu.frequency.scaling_min = Fact::known(Hertz::new(min), place);
            cpu.frequency.scaling_max = Fact::known(Hertz::new(2_400_000_000), place);
        }
    }

    pub(super) const CASES: &[Case] = &[
        Case::disagree("choice.timer-migration", || iso().file(MIGRATION, "1\n")),
        Case::pass("choice.timer-migration", || poll().file(MIGRATION, "0\n")),
        Case::warn("choice.timer-migration", || poll().file(MIGRATION, "1\n")),
        Case::pass("choice.timer-migration", || {
            iso().file(MIGRATION, "1\n").file("/sys/devices/system/cpu/nohz_full", "2-7\n")
        }),
        Case::unknown("choice.timer-migration", iso),
        Case::disagree("choice.rcu-normal", || host().file(RCU, "0\n")),
        Case::pass("choice.rcu-normal", || poll().file(RCU, "1\n")),
        Case::warn("choice.rcu-normal", || poll().file(RCU, "0\n")),
        Case::unknown("choice.rcu-normal", host),
        Case::disagree("choice.ring-size", || slots(host(), 256)),
        Case::disagree("choice.ring-size", || slots(host(), 4096)),
        Case::pass("choice.ring-size", || slots(host().workload(Workload::Poll), 4096)),
        Case::warn("choice.ring-size", || slots(host().workload(Workload::Poll), 256)),
        Case::unknown("choice.ring-size", || host().nic("eth0")),
        Case::disagree("choice.pstate-driver", || host().file(PSTATE, "active\n")),
        Case::pass("choice.pstate-driver", || {
            host().file(PSTATE, "active\n").edit(|f| range(f, Generation::IceLake, 2_400_000_000))
        }),
        Case::unknown("choice.pstate-driver", host),
    ];

    /// No source that is cited speaks of the use: the choice stays open, and nobody is told that --workload decides it.
    #[test]
    fn a_use_that_no_source_names_decides_nothing() {
        let boost = "/sys/devices/system/cpu/cpufreq/boost";
        let smt = |host: Host| {
            let pair = |host: Host, n: u32| {
                let file = format!("/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list");
                host.file(&file, &format!("{}-{}", n & !1, n | 1))
            };
            (0..8).fold(host.file("/sys/devices/system/cpu/smt/active", "1\n"), pair)
        };
        for (rule, host) in [("cpu.turbo", host().file(boost, "1\n")), ("smt.state", smt(host()))] {
            let judgement = host.workload(Workload::Interrupt).judge(rule).remove(0);
            assert_eq!(judgement.verdict, crate::Verdict::SourcesDisagree, "{judgement:?}");
        }
        // The sources for real-time hosts disagree: FlexRAN's run one thread per core, OpenShift's RAN DU reference two.
        let rt = smt(host().workload(Workload::Rt)).judge("smt.state").remove(0);
        assert_eq!(rt.verdict, crate::Verdict::SourcesDisagree, "{rt:?}");
        let driver = host().file(PSTATE, "active\n").judge("choice.pstate-driver").remove(0);
        assert!(!driver.found.contains("--workload"), "{}", driver.found);
    }

    /// bdwde0, clx2s0, skld0: tuned's intel_recommended_pstate, which the operator asks, answers by generation.
    #[test]
    fn the_operator_advises_by_generation() {
        let found = |generation: fn(&mut Facts), status: &str| {
            host().file(PSTATE, status).edit(generation).judge("choice.pstate-driver").remove(0).found
        };
        let clx = |f: &mut Facts| f.cpus.generation = Fact::known(Generation::CascadeLake, "/proc/cpuinfo");
        let icx = |f: &mut Facts| f.cpus.generation = Fact::known(Generation::IceLake, "/proc/cpuinfo");
        assert_eq!(
            found(clx, "active\n"),
            "intel_pstate is in use, in active mode, as advised by intel/PerfSpect. The opposite advice is intel_pstate=disable \
             (tuned and OpenShift node tuning operator)"
        );
        assert!(found(icx, "active\n").contains("as advised by OpenShift node tuning operator and intel/PerfSpect."));
        assert!(
            found(icx, "off\n").ends_with("intel_pstate=active (OpenShift node tuning operator and intel/PerfSpect)")
        );
        let passive = found(clx, "passive\n");
        assert!(
            passive.contains("passive mode, as advised by OpenShift node tuning operator with perPodPowerManagement")
        );
        let unknown = found(|_| {}, "active\n");
        assert!(!unknown.contains("OpenShift"), "{unknown}");
    }

    /// telco-master (rt, kvm-host), telco-worker1 (poll, interrupt): uses of which no source speaks decide nothing.
    #[test]
    fn only_the_uses_that_decide_are_named() {
        let both = |now: &str| {
            let host = poll().workload(Workload::Interrupt).workload(Workload::KvmHost).file(MIGRATION, now);
            host.judge("choice.timer-migration").remove(0).found
        };
        assert!(both("1\n").contains(", but with --workload poll the advice is "), "{}", both("1\n"));
        assert!(both("0\n").contains(", the advice for poll ("), "{}", both("0\n"));
    }

    #[test]
    fn both_sides_are_told_and_a_declared_use_decides() {
        let open = iso().file(MIGRATION, "1\n").judge("choice.timer-migration").remove(0);
        assert_eq!(
            open.found,
            "timers move to busy CPUs, as advised by OpenShift node tuning operator. The opposite advice is timers that stay where \
             they were started (tuned); --workload can decide it"
        );
        let decided = poll().file(MIGRATION, "1\n").judge("choice.timer-migration").remove(0);
        assert_eq!(
            decided.found,
            "timers move to busy CPUs, but with --workload poll the advice is timers that stay where they were started \
             (tuned). Other sources recommend timers that move away from idle CPUs (OpenShift node tuning operator)"
        );
    }
}
