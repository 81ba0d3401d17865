//! Choices on which sources disagree, resolved by what the host is declared to be for.
//!
//! A choice has two sides. The host follows one of them. As long as nobody said what the host is for
//! (`--workload`), the verdict is *sources disagree*, with both sides in the text. With a declared use that one side is
//! meant for, the choice is resolved: the host passes on that side, and gets a warning on the other.

use host::Facts;
use host::facts::{Generation, Vendor};

use crate::rules::common::{PER_CPU, PER_CPU_POLL};
use crate::{
    Applies, Context, Fix, Group, How, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known, settled,
};

/// The tables of this group.
pub const RULES: &[&[Rule]] = &[SETTINGS, POWER];

const PLATFORM: &str = "DPDK Getting Started Guide for Linux, nic_perf_intel_platform";
const ENABLE: &str = "DPDK Getting Started Guide for Linux, enable_func";
const FLEXRAN: &str = "FlexRAN real-time platform slides (2018)";
const VDU: &str = "OpenShift vDU reference configuration";
const NTO: &str = "openshift/cluster-node-tuning-operator";
const TUNED: &str = "tuned profiles cpu-partitioning and realtime";
const GUIDE: &str = "Intel P-state guide (637284-001US, 2021)";
const PERFSPECT: &str = "intel/PerfSpect";

/// How the kernel is set.
const SETTINGS: &[Rule] = &[
    Rule {
        id: "choice.timer-migration",
        group: Group::Choices,
        title: "Timers move away from idle CPUs, or stay",
        applies: Applies::LINUX.isolated(),
        judge: timer_migration,
        why: "With kernel.timer_migration=1 a timer that is started on an idle CPU goes to a busy one: with nohz_full off the isolated \
              CPUs, but without it to any CPU that works, an isolated one as well. With 0 it stays where it was started.",
        magnitude: Magnitude {
            text: "an interrupt of some us for each timer on the CPU that gets it",
            typical: None,
            source: "Linux kernel/sched/core.c, get_nohz_timer_target",
        },
        fix: Fix::runtime("sysctl -w kernel.timer_migration=0"),
        cost: "With 0, housekeeping CPUs sleep less; with 1, isolated CPUs can get timers of others where nohz_full does not protect them.",
        references: &[TUNED, NTO],
        conflicts: &["0: tuned", "1: OpenShift node tuning operator, whose hosts have nohz_full"],
    },
    Rule {
        id: "choice.rcu-normal",
        group: Group::Choices,
        title: "After boot RCU waits, or hurries",
        applies: Applies::LINUX,
        judge: rcu_normal,
        why: "An expedited grace period interrupts all CPUs to be over soon. rcupdate.rcu_normal_after_boot=1 takes the normal, quiet ones \
              after boot, which makes whoever waits for them (starting of pods, changing of interfaces) slower.",
        magnitude: Magnitude {
            text: "an interrupt of each CPU for each expedited grace period; milliseconds for a normal one",
            typical: None,
            source: "Linux Documentation/RCU/Design/Expedited-Grace-Periods; Documentation/RCU/checklist.rst (multi-millisecond latency of synchronize_rcu)",
        },
        fix: Fix::runtime_or_boot("echo 1 > /sys/kernel/rcu_normal", "rcupdate.rcu_normal_after_boot=1"),
        cost: "With 1 changes of configuration take longer.",
        references: &["tuned profile network-latency, which realtime and cpu-partitioning include", VDU],
        conflicts: &["1: tuned", "0: OpenShift vDU reference configuration"],
    },
    Rule {
        id: "choice.numa-balancing",
        group: Group::Choices,
        title: "The kernel moves memory to its users, or leaves it",
        applies: Applies::LINUX,
        judge: numa_balancing,
        why: "Automatic balancing unmaps pages to see who uses them and moves them to that node: good for programs that nobody placed, a \
              fault and a shootdown for those that are.",
        magnitude: Magnitude {
            text: "a fault of some us for each page that is looked at",
            typical: None,
            source: "Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing; the size is general knowledge",
        },
        fix: Fix::runtime("sysctl -w kernel.numa_balancing=0"),
        cost: "Programs that nobody placed keep remote memory.",
        references: &["tuned profile network-latency", "Mellanox mlnx-tools, mlnx_tune", PERFSPECT],
        conflicts: &["0: tuned, mlnx_tune", "1: intel/PerfSpect"],
    },
    Rule {
        id: "choice.machine-checks",
        group: Group::Choices,
        title: "Machine checks are off, or only the corrected ones are ignored",
        applies: Applies::LINUX.on_hardware(),
        judge: machine_checks,
        why: "Polling for corrected errors disturbs each CPU every five minutes. mce=off ends that, and the handling of errors that cannot be \
              corrected as well: a broken memory then corrupts silently. mce=ignore_ce ends the polling alone.",
        magnitude: Magnitude {
            text: "some us in five minutes on each CPU",
            typical: None,
            source: "Linux arch/x86/kernel/cpu/mce/core.c, check_interval",
        },
        fix: Fix::boot("mce=ignore_ce"),
        cost: "With ignore_ce corrected errors are not logged; with off nothing is handled.",
        references: &[FLEXRAN, NTO, "tuned profile cpu-partitioning, ignore_ce"],
        conflicts: &["off: FlexRAN slides, OpenShift node tuning operator", "ignore_ce: tuned"],
    },
    Rule {
        id: "choice.ring-size",
        group: Group::Choices,
        title: "Rings are short, for delay, or long, against loss",
        applies: Applies::LINUX.with_nic(),
        judge: ring_size,
        why: "What stands in a full ring waits for all before it: a short ring bounds the delay. A long ring bridges a longer absence of the \
              reader without loss. math.rx-ring-time computes both.",
        magnitude: Magnitude {
            text: "256 slots of 1500 octets last 79 us at 40 Gbit/s, 1024 last 315, 2048 last 630",
            typical: None,
            source: "arithmetic: slots x 1538 octets x 8 / rate (IEEE 802.3)",
        },
        fix: Fix::look("apus audit --explain math.rx-ring-time # how long a ring may be"),
        cost: "Short: loss after a short absence. Long: delay, and cache.",
        references: &[
            "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015)",
            "DPDK guide, nics/hns3",
        ],
        conflicts: &["256: FreeBSD thread", "1024 to 2048: DPDK hns3 guide"],
    },
];

/// Power.
const POWER: &[Rule] = &[
    Rule {
        id: "choice.pstate-driver",
        group: Group::Choices,
        title: "The processor chooses its frequency, or the kernel does",
        applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
        judge: pstate,
        why: "intel_pstate in active mode leaves the frequency to the hardware within bounds. tuned's profile for partitions disables it, so \
              that acpi-cpufreq or nothing is left; the node tuning operator keeps it, active or passive. Firmware that forces hardware \
              control overrides the parameter.",
        magnitude: Magnitude {
            text: "none where the frequency is fixed; up to 500 us for a ramp where it is not",
            typical: None,
            source: GUIDE,
        },
        fix: Fix::boot("intel_pstate=disable, or intel_pstate=active with equal lowest and highest frequency"),
        cost: "Without the driver there is no preference, and often no turbo.",
        references: &["tuned profile cpu-partitioning", NTO, PERFSPECT],
        conflicts: &["disable: tuned", "active or passive: OpenShift node tuning operator, intel/PerfSpect"],
    },
    Rule {
        id: "choice.idle-poll",
        group: Group::Choices,
        title: "CPUs never sleep, or sleep lightly",
        applies: Applies::LINUX,
        judge: idle_poll,
        why: "idle=poll saves the wake-up from the lightest state. All CPUs then draw full power, share less turbo and take execution slots \
              from their siblings; in a guest they never give their CPU back.",
        magnitude: Magnitude {
            text: "2 us, the exit of C1, against the heat of all CPUs",
            typical: None,
            source: "Interrupt-mode DPDK slides (2017), table of idle states; Linux Documentation/timers/no_hz.rst warns",
        },
        fix: Fix::runtime_or_boot(PER_CPU_POLL, "remove idle=poll"),
        cost: "Without it, 1 to 2 us for a wake-up from C1.",
        references: &[FLEXRAN, "Linux Documentation/timers/no_hz.rst", NTO],
        conflicts: &[
            "idle=poll: FlexRAN slides",
            "not: Linux no_hz.rst; OpenShift node tuning operator, but for its highest power mode",
        ],
    },
    Rule {
        id: "choice.uncore",
        group: Group::Choices,
        title: "The uncore follows the load, or stays at one frequency",
        applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
        judge: uncore,
        why: "The mesh and the last-level cache have a clock of their own. Fixed at its highest it is fast and steady; scaled, it leaves power \
              to the cores, and is slow when a packet comes after a pause.",
        magnitude: Magnitude {
            text: "20 to 40 ns more for each access to the last-level cache at the lowest frequency",
            typical: None,
            source: "Intel P-state guide (637284-001US, 2021) fixes it; the size is general knowledge",
        },
        fix: Fix::runtime(
            "for n in /sys/devices/system/cpu/intel_uncore_frequency/*/; do cat $n/initial_max_freq_khz > $n/min_freq_khz; done",
        ),
        cost: "Some watts a socket, and less turbo.",
        references: &[FLEXRAN, GUIDE, VDU],
        conflicts: &[
            "scaling enabled: FlexRAN slides",
            "fixed at the maximum: the same slides, Intel P-state guide, OpenShift vDU",
        ],
    },
    Rule {
        id: "choice.power-management",
        group: Group::Choices,
        title: "Frequencies follow the load, or are fixed",
        applies: Applies::LINUX.on_hardware().made_by(&[Vendor::Intel]),
        judge: power_management,
        why: "DPDK's guide switches all power management off. The Intel guide shows that from Ice Lake on a change of frequency hardly stops a \
              core, and that 30 of 32 cores at 800 MHz save 30 % of the power.",
        magnitude: Magnitude {
            text: "10 to 12 us at each change up to Cascade Lake, some hundred ns from Ice Lake on; 176 W against 123 W",
            typical: None,
            source: GUIDE,
        },
        fix: Fix::runtime("cpupower -c {cpu} frequency-set -d {steady} -u {steady} -g performance"),
        cost: "Fixed: power. Scaled: variation.",
        references: &[GUIDE, PLATFORM],
        conflicts: &[
            "scaling is fine from Ice Lake on: Intel P-state guide",
            "disable all: DPDK nic_perf_intel_platform",
        ],
    },
    Rule {
        id: "choice.deep-idle",
        group: Group::Choices,
        title: "Deep idle states are there, or not",
        applies: Applies::LINUX.on_hardware(),
        judge: deep_idle,
        why: "DPDK's power library needs C3 and C6 to save anything while a core waits; DPDK's performance guide disables them. What decides is \
              whether the exit fits into the goal: idle.states judges that.",
        magnitude: Magnitude {
            text: "33 us for C3, 133 us for C6 on Xeon E5 v3; 170 us for C6 on Ice Lake",
            typical: None,
            source: "Interrupt-mode DPDK slides (2017), table of idle states; intel/pepc, data of icx2s0",
        },
        fix: Fix::runtime(PER_CPU),
        cost: "Without them, power; with them, the exit.",
        references: &[ENABLE, PLATFORM],
        conflicts: &["there: DPDK enable_func, power library", "not there: DPDK nic_perf_intel_platform"],
    },
];

/// One side of a choice: what it is, and who asks for it.
pub(super) struct Side {
    /// What it is.
    pub what: &'static str,
    /// Who asks for it.
    pub who: &'static str,
    /// Uses of a host that this side is meant for.
    pub of: &'static [Workload],
}

/// Judges a choice: the host follows `sides[followed]`.
pub(super) fn choose(context: &Context, sides: [&Side; 2], followed: usize) -> Judgement {
    let (mine, other) = (sides[followed], sides[1 - followed]);
    let declared = context.workloads.how == How::Given;
    let meant = |side: &Side| declared && side.of.iter().any(|workload| context.is(*workload));
    let uses: Vec<&str> = context.workloads.value.iter().map(|workload| workload.name()).collect();
    match (meant(mine), meant(other)) {
        (true, false) => Judgement::pass(
            Subject::Host,
            format!("{} ({}), as the declared use asks ({})", mine.what, mine.who, uses.join(", ")),
        ),
        (false, true) => Judgement::warn(
            Subject::Host,
            format!(
                "{} ({}); for the declared use ({}) {} is meant: {}",
                mine.what,
                mine.who,
                uses.join(", "),
                other.what,
                other.who
            ),
        ),
        _ => {
            let hint = if declared { "" } else { "; --workload can decide it" };
            Judgement::disagree(
                Subject::Host,
                format!("{} ({}); the other side: {} ({}){hint}", mine.what, mine.who, other.what, other.who),
            )
        }
    }
}

fn timer_migration(facts: &Facts, context: &Context) -> Judged {
    const STAY: Side = Side { what: "timers stay", who: "tuned", of: &[Workload::Poll, Workload::Rt] };
    const MOVE: Side = Side { what: "timers move", who: "OpenShift node tuning operator", of: &[] };
    let fact = facts.sysctl_number("kernel.timer_migration");
    let moves = *known(&fact)? != 0;
    // With nohz_full the kernel moves them to housekeeping CPUs only: then 1 is as good.
    let protected = facts.cpus.nohz_full.is(|cpus| context.isolated.value.is_subset(cpus)) == Some(true);
    let judgement = match (moves, protected) {
        (true, true) => Judgement::pass(Subject::Host, "timers move, and nohz_full sends them to housekeeping CPUs"),
        _ => choose(context, [&STAY, &MOVE], usize::from(moves)),
    };
    judgement.see(&fact).see(&facts.cpus.nohz_full).alone()
}

fn rcu_normal(facts: &Facts, context: &Context) -> Judged {
    const NORMAL: Side = Side { what: "normal grace periods after boot", who: "tuned", of: &[Workload::Poll] };
    const HURRY: Side = Side { what: "expedited grace periods", who: "OpenShift vDU", of: &[] };
    let fact = facts.parameter("rcupdate.rcu_normal_after_boot");
    let normal = match known(&fact)?.trim() {
        "1" | "Y" => true,
        "0" | "N" => false,
        other => return Err(Skip::unknown(format!("rcu_normal_after_boot is {other:?}"))),
    };
    choose(context, [&NORMAL, &HURRY], usize::from(!normal)).see(&fact).alone()
}

fn numa_balancing(facts: &Facts, context: &Context) -> Judged {
    const LEAVE: Side = Side {
        what: "memory is left where it is",
        who: "tuned, mlnx_tune",
        of: &[Workload::Poll, Workload::Rt, Workload::KvmHost],
    };
    const MOVE: Side = Side { what: "memory is moved", who: "intel/PerfSpect", of: &[] };
    if facts.cpus.nodes.len() == 1 {
        return Err(Skip::not_applicable("the host has one NUMA node"));
    }
    let fact = facts.sysctl_number("kernel.numa_balancing");
    let moves = *known(&fact)? != 0;
    choose(context, [&LEAVE, &MOVE], usize::from(moves)).see(&fact).alone()
}

fn machine_checks(facts: &Facts, context: &Context) -> Judged {
    const IGNORE: Side = Side { what: "corrected errors are ignored", who: "tuned", of: &[] };
    const OFF: Side = Side { what: "mce=off", who: "FlexRAN slides, OpenShift node tuning operator", of: &[] };
    let line = known(&facts.cmdline)?;
    let off = line.has_value("mce", "off");
    let ignored = facts.cpus.list.iter().any(|cpu| cpu.machine_check.ignore_ce.get() == Some(true));
    if !off && !ignored {
        if facts.cpus.list.iter().all(|cpu| cpu.machine_check.ignore_ce.is_unknown()) {
            return Err(Skip::unknown("/sys/devices/system/machinecheck was not recorded"));
        }
        return Judgement::pass(Subject::Host, "neither side is taken: machine checks are as the kernel has them")
            .see_as("no mce=off, ignore_ce 0", "/proc/cmdline, /sys/devices/system/machinecheck")
            .alone();
    }
    choose(context, [&IGNORE, &OFF], usize::from(off))
        .see_as(if off { "mce=off" } else { "ignore_ce 1" }, "/proc/cmdline, /sys/devices/system/machinecheck")
        .alone()
}

fn ring_size(facts: &Facts, context: &Context) -> Judged {
    const SHORT: Side = Side { what: "short rings", who: "FreeBSD thread, 256", of: &[Workload::Interrupt] };
    const LONG: Side = Side { what: "long rings", who: "DPDK hns3 guide, 1024 to 2048", of: &[Workload::Poll] };
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
        // What is between the two sides is neither.
        let judgement = match slots {
            257..1024 => Judgement::pass(Subject::Host, format!("{slots} slots are between the two sides")),
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
    const OFF: Side = Side { what: "intel_pstate is not in use", who: "tuned", of: &[] };
    const ON: Side =
        Side { what: "intel_pstate is in use", who: "OpenShift node tuning operator, intel/PerfSpect", of: &[] };
    let fact = &facts.scaling.intel_pstate;
    let on = settled(fact)?.is_some_and(|status| status.trim() != "off");
    let fixed = facts.cpus.list.iter().all(|cpu| {
        let range = &cpu.frequency;
        range.scaling_min.is_known() && range.scaling_min.value() == range.scaling_max.value()
    });
    if fixed && !facts.cpus.list.is_empty() {
        return Judgement::pass(Subject::Host, "the frequency is fixed: which driver does it makes no difference")
            .see(fact)
            .alone();
    }
    choose(context, [&OFF, &ON], usize::from(on)).see(fact).alone()
}

fn idle_poll(facts: &Facts, context: &Context) -> Judged {
    const POLL: Side = Side { what: "idle=poll", who: "FlexRAN slides", of: &[] };
    const SLEEP: Side = Side {
        what: "light sleep",
        who: "Linux no_hz.rst, OpenShift node tuning operator",
        of: &[Workload::Guest, Workload::Interrupt, Workload::Poll, Workload::KvmHost],
    };
    let line = known(&facts.cmdline)?;
    let polls = line.has_value("idle", "poll");
    let judgement = match polls {
        true => choose(context, [&POLL, &SLEEP], 0),
        // Light sleep is the kernel's own way: nothing was chosen.
        false => Judgement::pass(Subject::Host, "CPUs may sleep: idle=poll is not set"),
    };
    judgement.see_as(if polls { "idle=poll" } else { "no idle=poll" }, facts.cmdline.source()).alone()
}

fn uncore(facts: &Facts, context: &Context) -> Judged {
    const SCALED: Side = Side { what: "the uncore follows the load", who: "FlexRAN slides", of: &[] };
    const FIXED: Side = Side {
        what: "the uncore is fixed",
        who: "FlexRAN slides, Intel P-state guide, OpenShift vDU",
        of: &[Workload::Poll, Workload::Rt],
    };
    let domains = known(&facts.uncore)?;
    let mut fixed = true;
    for domain in domains {
        fixed &= known(&domain.min)? == known(&domain.max)?;
    }
    if domains.is_empty() {
        return Err(Skip::unknown("no domain of the uncore is known"));
    }
    choose(context, [&SCALED, &FIXED], usize::from(fixed))
        .see_as(
            format!("{} domains, {}", domains.len(), if fixed { "all fixed" } else { "with a range" }),
            facts.uncore.source(),
        )
        .alone()
}

fn power_management(facts: &Facts, context: &Context) -> Judged {
    const SCALED: Side = Side { what: "frequencies follow the load", who: "Intel P-state guide", of: &[] };
    const FIXED: Side =
        Side { what: "frequencies are fixed", who: "DPDK nic_perf_intel_platform", of: &[Workload::Poll] };
    let generation = &facts.cpus.generation;
    let mut fixed = true;
    let critical = context.critical(facts);
    let mut source = None;
    for cpu in critical.iter().filter_map(|id| facts.cpus.cpu(id)) {
        fixed &= known(&cpu.frequency.scaling_min)? == known(&cpu.frequency.scaling_max)?;
        source = Some(cpu.frequency.scaling_min.source());
    }
    let source = source.ok_or_else(|| Skip::of(&facts.cpus.online))?;
    let spares = *known(generation)? > Generation::CooperLake;
    let judgement = match (fixed, spares) {
        (true, _) => Judgement::pass(Subject::Host, "frequencies are fixed: steady, at the price of power"),
        // There the sources do not disagree: a change stops the core.
        (false, false) => Judgement::warn(
            Subject::Host,
            "frequencies follow the load, and each change stops the core for 10 to 12 us",
        ),
        (false, true) => choose(context, [&SCALED, &FIXED], 0),
    };
    judgement
        .see_as(format!("{:?}", known(generation)?), generation.source())
        .see_as(if fixed { "fixed" } else { "a range" }, source)
        .alone()
}

fn deep_idle(facts: &Facts, context: &Context) -> Judged {
    const THERE: Side = Side { what: "deep idle states are there", who: "DPDK enable_func", of: &[] };
    const GONE: Side =
        Side { what: "deep idle states are not there", who: "DPDK nic_perf_intel_platform", of: &[Workload::Poll] };
    /// From here on a state is a deep one: C3 of Xeon E5 v3 takes 33 us to leave (Interrupt-mode DPDK slides, 2017).
    const DEEP: units::Nanos = units::Nanos::from_micros(30);
    let mut deep = false;
    let mut source = None;
    for cpu in &facts.cpus.list {
        for state in known(&cpu.idle_states)? {
            source = Some(state.exit_latency.source());
            deep |= *known(&state.exit_latency)? >= DEEP && state.disabled.get() != Some(true);
        }
    }
    let source = source.ok_or_else(|| Skip::unknown("no idle state is known"))?;
    // idle.states judges them where a goal or a use decides; here only what the host follows is told.
    choose(context, [&THERE, &GONE], usize::from(!deep))
        .see_as(if deep { "states of 30 us and more" } else { "no such state" }, source)
        .alone()
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[tests::CASES];

#[cfg(test)]
mod tests {
    use host::Fact;
    use host::facts::{Rings, Uncore};
    use units::Hertz;

    use super::super::arithmetic_samples as samples;
    use super::*;
    use crate::testing::{Case, Host, host};

    const MIGRATION: &str = "/proc/sys/kernel/timer_migration";
    const RCU: &str = "/sys/module/rcupdate/parameters/rcu_normal_after_boot";
    const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
    const PSTATE: &str = "/sys/devices/system/cpu/intel_pstate/status";
    const IGNORE: &str = "/sys/devices/system/machinecheck/machinecheck0/ignore_ce";

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

    fn domain(facts: &mut Facts, min: u64) {
        let place = "/sys/devices/system/cpu/intel_uncore_frequency";
        let uncore = Uncore {
            name: "package_00_die_00".into(),
            min: Fact::known(Hertz::new(min), place),
            max: Fact::known(Hertz::new(2_400_000_000), place),
            ..Uncore::default()
        };
        facts.uncore = Fact::known(vec![uncore], place);
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
        Case::disagree("choice.numa-balancing", || host().file(BALANCING, "1\n")),
        Case::pass("choice.numa-balancing", || poll().file(BALANCING, "0\n")),
        Case::warn("choice.numa-balancing", || poll().file(BALANCING, "1\n")),
        Case::unknown("choice.numa-balancing", host),
        Case::disagree("choice.machine-checks", || host().cmdline("mce=off")),
        Case::disagree("choice.machine-checks", || host().cmdline("quiet").file(IGNORE, "1\n")),
        Case::pass("choice.machine-checks", || host().cmdline("quiet").file(IGNORE, "0\n")),
        Case::unknown("choice.machine-checks", host),
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
        Case::disagree("choice.idle-poll", || host().cmdline("idle=poll")),
        Case::pass("choice.idle-poll", || host().cmdline("quiet")),
        Case::warn("choice.idle-poll", || host().workload(Workload::Interrupt).cmdline("idle=poll")),
        Case::unknown("choice.idle-poll", host),
        Case::disagree("choice.uncore", || host().edit(|f| domain(f, 800_000_000))),
        Case::pass("choice.uncore", || poll().edit(|f| domain(f, 2_400_000_000))),
        Case::warn("choice.uncore", || poll().edit(|f| domain(f, 800_000_000))),
        Case::unknown("choice.uncore", host),
        Case::disagree("choice.power-management", || host().edit(|f| range(f, Generation::IceLake, 800_000_000))),
        Case::warn("choice.power-management", || host().edit(|f| range(f, Generation::CascadeLake, 800_000_000))),
        Case::pass("choice.power-management", || host().edit(|f| range(f, Generation::CascadeLake, 2_400_000_000))),
        Case::unknown("choice.power-management", host),
        Case::disagree("choice.deep-idle", || host().edit(|f| samples::exit(f, 133))),
        Case::pass("choice.deep-idle", || poll().edit(|f| samples::exit(f, 2))),
        Case::warn("choice.deep-idle", || poll().edit(|f| samples::exit(f, 133))),
        Case::unknown("choice.deep-idle", host),
    ];

    #[test]
    fn both_sides_are_told_and_a_declared_use_decides() {
        let open = iso().file(MIGRATION, "1\n").judge("choice.timer-migration").remove(0);
        assert_eq!(
            open.found,
            "timers move (OpenShift node tuning operator); the other side: timers stay (tuned); --workload can decide it"
        );
        let decided = poll().file(MIGRATION, "1\n").judge("choice.timer-migration").remove(0);
        assert!(
            decided.found.ends_with("for the declared use (poll) timers stay is meant: tuned"),
            "{}",
            decided.found
        );
    }
}
