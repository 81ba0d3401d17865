//! Rules on the rates and costs of interrupts that no device sends, such as timer and inter-processor interrupts.

use host::Facts;
use host::facts::{CountRow, CountTable, CpuSet};
use units::Nanos;

use super::{GUIDE, ISOLATION, KTHREADS, NAMED, of_link, often};
use crate::rules::common::{enumerated, full_ticks, messages, see_parameter};
use crate::rules::nic::wider;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};
use crate::{Hit, HitKind, hits};

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "irq.rate-iso",
        cause: Cause::TimerTick,
        title: "The CPUs' own interrupts are rare on isolated CPUs",
        applies: Applies::LINUX.isolated(),
        judge: own,
        why: "Each kind of interrupt in /proc/interrupts has its own cause. LOC: the tick and timers. RES and IWI: \
              wake-ups and work from other CPUs. NMI and PMI: the watchdog and profilers. MCP: the polling for \
              corrected errors. TRM and THR: temperature and thresholds. On a nohz_full CPU that runs one thread, the \
              tick stops (before Linux 4.17, one tick per second remained).",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "1 to 5 us each; a tick that was not stopped comes 100 to 1000 times a second",
            "Linux Documentation/timers/no_hz.rst; Intel P-state guide (637284-001US, 2021), appendix A; the microseconds are general knowledge",
        ),
        fix: Fix::boot("isolcpus=managed_irq,domain,{isolated} nohz_full={isolated}")
            .after("apus irqs --cpu {isolated} # by source, per second"),
        cost: "The scheduler moves nothing onto these CPUs any more, and each entry into the kernel costs more there.",
        references: &[GUIDE, ISOLATION, "Linux Documentation/timers/no_hz.rst"],
    },
    Rule {
        id: "irq.softirq-own",
        cause: Cause::TimerTick,
        title: "Softirqs of timers, RCU and the scheduler are rare on isolated CPUs",
        applies: Applies::LINUX.isolated(),
        judge: softirqs,
        why: "TIMER and HRTIMER come from timers that were started on these CPUs, RCU from callbacks that were not \
         offloaded, SCHED from load balancing, TASKLET from drivers. kernel-per-CPU-kthreads.rst has a remedy for \
         each.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "1 to 10 us each",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::boot("nohz_full={isolated} rcu_nocbs={isolated} isolcpus=managed_irq,domain,{isolated}")
            .after("apus irqs --cpu {isolated} # by source, per second"),
        cost: "The housekeeping CPUs do this work.",
        references: &[KTHREADS],
    },
    Rule {
        id: "irq.load",
        cause: Cause::Queues,
        title: "No CPU spends more than half of its time in interrupts",
        applies: Applies::LINUX,
        judge: load,
        why: "Packets wait for a CPU that is busy with other interrupts and softirqs. At 50 % of its time the wait is \
              as long as the work itself; towards 100 % it grows without bound. One common cause is a queue that \
              carries all flows.",
        magnitude: Magnitude::untimed(
            "waiting grows with 1 / (1 - load): twice the work's time at 50 %",
            "M/M/1 queue; FreeBSD thread \"ixl 40G bad performance\" (2015): 51 % of a CPU on one queue",
        ),
        fix: Fix::runtime(
            "# if one interface causes the load, spread its flows over its idle queues (ethtool -X); else move some of the \
             interrupts to other CPUs (smp_affinity_list)",
        )
        .after("apus irqs --cpu {cpu} # shows which interrupts and softirqs these are"),
        cost: "More CPUs do this work.",
        references: &[
            "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015)",
            "Linux Documentation/networking/scaling.rst",
        ],
    },
    Rule {
        id: "irq.storm",
        cause: Cause::Queues,
        title: "The kernel has disabled no interrupt",
        applies: Applies::LINUX,
        judge: storm,
        why: "If no handler accepts an interrupt in 99,900 of 100,000 cases, the kernel switches it off (\"nobody \
              cared\"). From then on a timer polls the devices that share its line.",
        magnitude: Magnitude::late(
            Nanos::from_millis(100),
            "up to 100 ms per packet of that device",
            "Linux kernel/irq/spurious.c, POLL_SPURIOUS_IRQ_INTERVAL and note_interrupt",
        ),
        fix: Fix::boot("update or unload the driver whose handler is named").after("dmesg | grep -A20 'nobody cared'"),
        cost: "The device stops while its driver is replaced; without one it does nothing.",
        references: &["Linux kernel/irq/spurious.c"],
    },
];

/// Classes of interrupts: label, highest rate per CPU (interrupts per second) that is not reported, and description.
const CLASSES: [(&str, u64, &str); 13] = [
    ("LOC", 1, "timers and the tick"),
    ("RES", 10, "wake-ups from other CPUs"),
    ("IWI", 10, "work that interrupts queue"),
    ("NMI", 0, "the watchdog or a profiler"),
    ("PMI", 0, "performance counters"),
    ("MCP", 0, "polling for machine checks"),
    ("MCE", 0, "machine checks"),
    ("TRM", 0, "temperature"),
    ("THR", 0, "thresholds of corrected errors"),
    ("DFR", 0, "deferred errors"),
    // In guests (arch/x86/kernel/irq.c, arch_show_interrupts): page faults and events that the hypervisor reports, the
    // migration to a TSC with another rate, and the timer that Hyper-V emulates.
    ("HYP", 0, "calls of the hypervisor"),
    ("HRE", 0, "reenlightenment by Hyper-V"),
    ("HVS", 1, "the timer of Hyper-V"),
];
/// Softirqs that no device causes. `SOFTIRQS_A_SECOND` is the highest rate per CPU that is not reported; it is an
/// estimate.
const SOFTIRQS: [&str; 5] = ["TIMER", "HRTIMER", "RCU", "SCHED", "TASKLET"];
const SOFTIRQS_A_SECOND: u64 = 10;
/// Maximum share of a CPU's time, in percent, that interrupts and softirqs may take without a warning.
const MOST_LOAD: u64 = 50;

/// The highest count of a row among these CPUs, and the CPU that has it. `None` if none of the CPUs has a count.
fn worst(table: &CountTable, row: &CountRow, cpus: &CpuSet) -> Option<(u64, u32)> {
    cpus.iter().filter_map(|cpu| Some((table.on(row, cpu)?, cpu))).max_by_key(|(count, _)| *count)
}

/// Thousandths of events per second. In whole events per second, one event in five minutes would be rounded to 0.
fn milli_rate(count: u64, during: Nanos) -> u64 {
    u64::try_from(u128::from(count) * 1_000_000_000_000 / u128::from(during.as_nanos().max(1))).unwrap_or(u64::MAX)
}

/// Formats a rate, given in thousandths per second, as `12.5 a second`.
fn a_second(milli: u64) -> String {
    format!("{}.{} a second", milli / 1000, milli % 1000 / 100)
}

/// The subject of a judgement on a class of interrupts. Each class needs its own name in baselines and comparisons,
/// because classes are judged separately.
fn of_class(label: &str, cpus: &CpuSet) -> Subject {
    Subject::Named(format!("{label} on CPUs {cpus}"))
}

fn own(facts: &Facts, context: &Context) -> Judged {
    known(&facts.counters.interrupts)?;
    let isolated = &context.isolated.value;
    let Some(interval) = facts.interval.value() else { return tick_since_boot(facts, context) };
    let table = known(&interval.change.interrupts)?;
    let source = "/proc/interrupts, two readings";
    let mut judgements = Vec::new();
    let mut quiet = Vec::new();
    for (label, allowed, cause) in CLASSES {
        let Some((count, cpu)) = table.row(label).and_then(|row| worst(table, row, isolated)) else { continue };
        let rate = milli_rate(count, interval.length);
        if rate <= allowed * 1000 {
            quiet.push(label);
            continue;
        }
        let found = format!("{label} ({cause}) hits CPU {cpu} {}, the most of the isolated CPUs", a_second(rate));
        let judgement = Judgement::warn_for(of_class(label, isolated), found)
            .see_as(format!("{count} in {}", interval.length), source);
        judgements.push(match label {
            "NMI" | "PMI" => judgement
                .now("sysctl -w kernel.nmi_watchdog=0")
                .for_good("nmi_watchdog=0")
                .costs("The kernel no longer notices a CPU that hangs with interrupts off."),
            "MCP" => judgement
                .now("for n in /sys/devices/system/machinecheck/machinecheck*; do echo 1 > $n/ignore_ce; done")
                .for_good("mce=ignore_ce")
                .costs("Corrected errors of the hardware are neither counted nor logged."),
            _ => judgement,
        });
    }
    if judgements.is_empty() && quiet.is_empty() {
        return Err(Skip::unknown("the table of interrupts has no row of the CPUs' own interrupts"));
    }
    if judgements.is_empty() {
        let found = format!("{} are rare", quiet.join(", "));
        judgements.push(Judgement::pass_for(isolated, found).see_as(format!("in {}", interval.length), source));
    }
    Ok(judgements)
}

/// Judges the tick by a single reading: compares the counts of the isolated CPUs with those of the other CPUs.
fn tick_since_boot(facts: &Facts, context: &Context) -> Judged {
    let table = known(&facts.counters.interrupts)?;
    let isolated = &context.isolated.value;
    let others = context.housekeeping(facts);
    let Some(row) = table.row("LOC") else {
        return Err(Skip::unknown("the table of interrupts has no row of the CPUs' own timers"));
    };
    let mean = |cpus: &CpuSet| {
        let counts: Vec<u64> = cpus.iter().filter_map(|cpu| table.on(row, cpu)).collect();
        let number = counts.len() as u64;
        (number > 0).then(|| (counts.iter().sum::<u64>() + number / 2) / number)
    };
    let (Some(inside), Some(outside)) = (mean(isolated), mean(&others)) else {
        return Err(Skip::unknown(
            "timers of isolated and other CPUs cannot be compared: name the CPUs with --isolated",
        ));
    };
    let seen = format!("LOC since boot: {inside} per isolated CPU, {outside} per other CPU");
    // A stopped tick leaves about one hundredth: 1 per second instead of 100 or more. With half or more, the tick did
    // not stop.
    if inside == 0 || inside <= outside / 2 {
        return Err(Skip::unknown(format!("{seen}; rates are not known from one reading (--interval 5s)")));
    }
    let outside = u128::from(outside.max(1));
    let share = (u128::from(inside) * 100 + outside / 2) / outside;
    // An idle CPU that polls restarts its tick, with or without nohz_full= (kernel/sched/idle.c, do_idle).
    let says = |name: &str, value: &str| facts.cmdline.value().is_some_and(|line| line.has_value(name, value));
    let polls = says("idle", "poll");
    let ticks = full_ticks(facts);
    // Counts since boot include idle and busy time; the command line shows in which of these the tick continues.
    let tick = match ticks.value().map(|stopped| isolated.difference(stopped)) {
        _ if says("nohz", "off") => ": their tick does not stop".to_owned(),
        Some(kept) if kept == *isolated && polls => ": their tick does not stop".to_owned(),
        Some(kept) if !kept.is_empty() => {
            let verb = if kept.len() == 1 { "it is" } else { "they are" };
            format!(": nothing stops the tick of {} while {verb} busy", Subject::from(&kept))
        }
        _ => ", as if their tick never stopped".to_owned(),
    };
    let found = format!("these CPUs had, on average, {share} % as many timer interrupts as the other CPUs{tick}");
    let judgement = match polls {
        true => Judgement::warn_for(isolated, format!("{found}; idle=poll keeps the tick running on idle CPUs"))
            .for_good("remove idle=poll")
            .costs("Idle CPUs sleep, and waking up takes the exit latency of their idle states.")
            .see_as("idle=poll", facts.cmdline.source()),
        false => Judgement::warn_for(isolated, found),
    }
    .see_as(seen, "/proc/interrupts");
    see_parameter(judgement, facts, "nohz_full").alone()
}

fn softirqs(facts: &Facts, context: &Context) -> Judged {
    known(&facts.counters.softirqs)?;
    let interval = known(&facts.interval)?;
    let table = known(&interval.change.softirqs)?;
    let isolated = &context.isolated.value;
    let source = "/proc/softirqs, two readings";
    let mut seen = Vec::new();
    let mut judgements = Vec::new();
    for label in SOFTIRQS {
        let Some((count, cpu)) = table.row(label).and_then(|row| worst(table, row, isolated)) else { continue };
        let rate = milli_rate(count, interval.length);
        seen.push(format!("{label} {}", a_second(rate)));
        if rate > SOFTIRQS_A_SECOND * 1000 {
            let found = format!("{label} runs on CPU {cpu} {}, the most of the isolated CPUs", a_second(rate));
            judgements.push(
                Judgement::warn_for(of_class(label, isolated), found)
                    .see_as(format!("{count} in {}", interval.length), source),
            );
        }
    }
    match (judgements.is_empty(), seen.is_empty()) {
        (true, true) => Err(Skip::unknown("the table of softirqs has no row of the isolated CPUs")),
        (true, false) => {
            Judgement::pass_for(isolated, "none of them runs often").see_as(seen.join(", "), source).alone()
        }
        _ => Ok(judgements),
    }
}

fn load(facts: &Facts, context: &Context) -> Judged {
    let interval = facts.interval.value();
    let counters = interval.map_or(&facts.counters, |interval| &interval.change);
    let times = known(&counters.cpu_times)?;
    let share = |cpu: u32| {
        let t = &times[&cpu];
        let busy = t.irq + t.softirq;
        let rest = t.user + t.nice + t.system + t.idle + t.iowait + t.steal;
        let total = busy + rest;
        (total > Nanos::ZERO).then(|| busy.as_nanos() / (total.as_nanos() / 100).max(1))
    };
    let shares = times.keys().filter_map(|cpu| Some((share(*cpu)?, *cpu)));
    let Some((most, cpu)) = shares.max() else {
        return Err(Skip::unknown("no CPU has counted any time"));
    };
    let span = interval.map_or("since boot".to_owned(), |interval| format!("in {}", interval.length));
    let found = format!("CPU {cpu} spent the most time in interrupts: {most} % {span}");
    match most <= MOST_LOAD {
        true => Judgement::pass(found),
        false => relieved(facts, context, cpu, Judgement::warn_for(cpu, found)),
    }
    .see_as(format!("{most} % in interrupts and softirqs"), "/proc/stat")
    .alone()
}

/// Adds the fix for a CPU that spends too much time in interrupts, and the most frequent ones of them: if the first
/// one belongs to an interface with idle queues, to use these; otherwise, to move interrupts. Without counts, the
/// rule's fix remains.
fn relieved(facts: &Facts, context: &Context, cpu: u32, judgement: Judgement) -> Judgement {
    let hits = hits(facts, &CpuSet::from([cpu]));
    let Some(hits) = hits else { return judgement };
    let devices: Vec<&Hit> = hits.list.iter().filter(|hit| hit.kind == HitKind::Device).take(NAMED).collect();
    let judgement = devices.iter().fold(judgement, |judgement, hit| {
        judgement.see_as(often(hit, hits.during), facts.counters.interrupts.source())
    });
    let number = |hit: &Hit| hit.label.parse::<u32>().ok();
    let Some(first) = devices.first().and_then(|hit| number(hit)) else { return judgement };
    let mut links = facts.links.value().into_iter().flatten();
    let link = links.find(|link| of_link(facts, link).iter().any(|irq| irq.number == first));
    if let Some((link, command)) = link.and_then(|link| Some((link, wider(facts, context, link)?))) {
        let fields = format!("ethtool -n {} rx-flow-hash udp4 # shows which header fields spread the flows", link.name);
        return judgement.look(fields).now(command);
    }
    let is_managed = |hit: &&&Hit| {
        let irq = number(hit).and_then(|number| facts.irqs.irq(number));
        irq.is_some_and(|irq| irq.managed.get() == Some(true))
    };
    let named = |hits: Vec<&&Hit>| -> String {
        let names: Vec<String> = hits.iter().map(|hit| format!("{} (IRQ {})", hit.name, hit.label)).collect();
        enumerated(&names)
    };
    let (managed, movable): (Vec<&&Hit>, Vec<&&Hit>) = devices.iter().partition(|hit| is_managed(hit));
    judgement.now(match movable.is_empty() {
        true => format!(
            "# let threads on other CPUs do the I/O: the kernel manages {}, and nobody can move them",
            named(managed)
        ),
        false => {
            format!("# move some of these interrupts to CPUs with less load (smp_affinity_list): {}", named(movable))
        }
    })
}

fn storm(facts: &Facts, _: &Context) -> Judged {
    let (found, count) = messages(facts, &["nobody cared", "disabling irq #"])?;
    let source = facts.kernel.messages.source();
    if count == 0 {
        return Judgement::pass("no message says that the kernel has disabled an interrupt")
            .see_as("no message", source)
            .alone();
    }
    let judgement = Judgement::fail(format!("{count} messages say that an interrupt was disabled"));
    found.into_iter().fold(judgement, |judgement, line| judgement.see_as(line, source)).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing::{Case, Host, host};

    fn two(path: &str, then: &str, now: &str) -> Host {
        host()
            .isolated("2-3")
            .file(path, then)
            .file(&format!("/again{path}"), now)
            .file("/proc/uptime", "100.00 1")
            .file("/again/proc/uptime", "110.00 1")
    }

    fn interrupts(loc: u64) -> Host {
        let table = |n: u64| format!("      CPU0 CPU1 CPU2 CPU3\nLOC: 5 5 1 {n} Local timer interrupts\n");
        two("/proc/interrupts", &table(1), &table(1 + loc))
    }

    /// A guest whose hypervisor calls CPU 3 so often in 10 s.
    fn called(times: u64) -> Host {
        let table = |n: u64| format!("      CPU0 CPU1 CPU2 CPU3\nHYP: 1 1 1 {n} Hypervisor callback interrupts\n");
        two("/proc/interrupts", &table(1), &table(1 + times)).guest()
    }

    fn once(on_isolated: u64) -> Host {
        host().isolated("2-3").file(
            "/proc/interrupts",
            &format!("      CPU0 CPU1 CPU2 CPU3\nLOC: 1000 1000 {on_isolated} {on_isolated} Local timer interrupts\n"),
        )
    }

    fn softirq(timers: u64) -> Host {
        let table = |n: u64| format!("      CPU0 CPU1 CPU2 CPU3\nTIMER: 5 5 1 {n}\nRCU: 5 5 1 1\n");
        two("/proc/softirqs", &table(1), &table(1 + timers))
    }

    fn stat(softirq: u64) -> Host {
        host().file("/proc/stat", &format!("cpu0 10 0 10 100 0 0 {softirq} 0 0 0\nctxt 1\n"))
    }

    /// CPU 0 is loaded by interrupt 55 of this user; eth0 has eight queues, and this indirection table.
    fn loaded(user: &str, row: &str) -> Host {
        let channels = |n| format!("RX: n/a\nTX: n/a\nOther: 1\nCombined: {n}\n");
        let channels = format!("Pre-set maximums:\n{}Current hardware settings:\n{}", channels(64), channels(8));
        stat(900)
            .nic("eth0")
            .file("/sys/class/net/eth0/mtu", "1500\n")
            .file("/proc/irq/55/smp_affinity_list", "0\n")
            .file(
                "/proc/interrupts",
                &format!("      CPU0 CPU1\n 55: 900 0 PCI-MSIX-0000:04:00.0 3-edge {user}\n 56: 7 0 PCI-MSIX-0000:05:00.0 4-edge ahci\n"),
            )
            .command("ethtool -l eth0", &channels)
            .command(
                "ethtool -x eth0",
                &format!("RX flow hash indirection table for eth0 with 8 RX ring(s):\n    0:  {row}\n"),
            )
    }

    fn said(line: &str) -> Host {
        host().command("dmesg", line)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("irq.rate-iso", || interrupts(5)),
        Case::warn("irq.rate-iso", || interrupts(2_500)),
        Case::warn("irq.rate-iso", || once(900)),
        Case::unknown("irq.rate-iso", || once(10)),
        Case::warn("irq.rate-iso", || called(7)),
        Case::pass("irq.rate-iso", || called(0)),
        Case::unknown("irq.rate-iso", || host().isolated("2-3")),
        Case::pass("irq.softirq-own", || softirq(5)),
        Case::warn("irq.softirq-own", || softirq(5_000)),
        Case::unknown("irq.softirq-own", || host().isolated("2-3")),
        Case::pass("irq.load", || stat(10)),
        Case::warn("irq.load", || stat(900)),
        Case::unknown("irq.load", host),
        Case::pass("irq.storm", || said("[    0.000000] Linux version 6.1\n")),
        Case::fail("irq.storm", || {
            said("[   71.000000] irq 18: nobody cared (try booting with the \"irqpoll\" option)\n")
        }),
        Case::unknown("irq.storm", host),
    ];

    #[test]
    fn the_load_is_taken_from_what_causes_it() {
        let now = |host: Host| host.judge("irq.load").remove(0).now.remove(0);
        assert_eq!(now(loaded("eth0-TxRx-0", "0 1 0 1 0 1 0 1")), "ethtool -X eth0 equal 8");
        // All queues are in use, and fewer would not help.
        let moved = "# move some of these interrupts to CPUs with less load (smp_affinity_list):";
        assert_eq!(
            now(loaded("eth0-TxRx-0", "0 1 2 3 4 5 6 7")),
            format!("{moved} eth0-TxRx-0 (IRQ 55) and ahci (IRQ 56)")
        );
        // A disk, and not the interface that has a part of its table unused.
        assert_eq!(now(loaded("megasas1", "0 1 0 1 0 1 0 1")), format!("{moved} megasas1 (IRQ 55) and ahci (IRQ 56)"));
        let managed = now(loaded("nvme0q1", "0 1 0 1 0 1 0 1"));
        assert_eq!(managed, format!("{moved} ahci (IRQ 56)"));
    }

    /// telco-worker1: what removing idle=poll costs is not what isolcpus= costs.
    #[test]
    fn each_fix_has_its_own_cost() {
        let cost = |line: &str| once(900).cmdline(line).judge("irq.rate-iso").remove(0).cost;
        assert!(cost("idle=poll nohz_full=2-3").is_some_and(|cost| cost.starts_with("Idle CPUs sleep")));
        assert_eq!(cost("quiet"), None);
    }

    #[test]
    fn the_rate_is_that_of_the_worst_cpu() {
        let judgements = interrupts(2_500).judge("irq.rate-iso");
        assert!(judgements[0].found.contains("hits CPU 3 250.0 a second"), "{judgements:?}");
        assert_eq!(milli_rate(1, Nanos::from_secs(300)), 3);
    }

    /// kvm-guest-sno: 298920.75 a CPU is 298921.
    #[test]
    fn means_are_rounded() {
        let host =
            host().isolated("2-3").file("/proc/interrupts", "     CPU0 CPU1 CPU2 CPU3\nLOC: 999 1000 1000 1001 x\n");
        let seen = host.judge("irq.rate-iso").remove(0).evidence.remove(0).value;
        assert_eq!(seen, "LOC since boot: 1001 per isolated CPU, 1000 per other CPU");
    }

    /// kvm-guest-sno: counts since boot do not show what the tick does; what keeps it, the command line tells.
    #[test]
    fn counts_since_boot_claim_no_more_than_the_command_line_shows() {
        let found = |line: &str| {
            once(1000).cmdline(line).file("/proc/sys/kernel/osrelease", "6.12.1").judge("irq.rate-iso").remove(0).found
        };
        let as_many = "these CPUs had, on average, 100 % as many timer interrupts as the other CPUs";
        assert_eq!(found("quiet"), format!("{as_many}: nothing stops the tick of CPUs 2-3 while they are busy"));
        assert_eq!(found("nohz=off"), format!("{as_many}: their tick does not stop"));
        let polls = "; idle=poll keeps the tick running on idle CPUs";
        assert_eq!(found("idle=poll"), format!("{as_many}: their tick does not stop{polls}"));
        let full = |list: &str, line: &str| {
            let host = once(997).cmdline(line).file("/sys/devices/system/cpu/nohz_full", list);
            host.judge("irq.rate-iso").remove(0).found
        };
        assert_eq!(full("2-3\n", "nohz_full=2-3"), format!("{as_many}, as if their tick never stopped"));
        assert_eq!(
            full("2-3\n", "nohz_full=2-3 idle=poll"),
            format!("{as_many}, as if their tick never stopped{polls}")
        );
        assert_eq!(full("2\n", "nohz_full=2"), format!("{as_many}: nothing stops the tick of CPU 3 while it is busy"));
    }
}
