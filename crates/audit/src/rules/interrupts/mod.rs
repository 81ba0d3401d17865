//! Rules on interrupts.

mod balance;
mod queues;
mod rates;

use std::collections::BTreeSet;

use host::facts::{CountRow, CpuSet, Irq, Link};
use host::{Facts, Source};
use units::Nanos;

use crate::rules::common::{ALL_TO_HOUSEKEEPING, QUEUES_STAY, enumerated, is_operated};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Verdict, known};
use crate::{Hit, HitKind, hits};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[WHERE, WHAT, rates::RULES, balance::RULES, queues::RULES];

const ISOLATION: &str = "Linux Documentation/admin-guide/cpu-isolation.rst";
const AFFINITY: &str = "Linux Documentation/core-api/irq/irq-affinity.rst";
const KTHREADS: &str = "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst";
const GUIDE: &str = "Intel P-state guide (637284-001US, 2021), appendix A";
/// The approximate time for which one interrupt occupies the CPU.
const ONE_INTERRUPT: Magnitude = Magnitude::late(
    Nanos::from_micros(5),
    "a few microseconds per interrupt, plus its softirqs; usually the main cause of outliers",
    "Intel P-state guide (637284-001US, 2021), appendix A; the microseconds are general knowledge",
);

/// Rules on the CPUs to which interrupts may go.
const WHERE: &[Rule] = &[
    Rule {
        id: "irq.on-iso",
        cause: Cause::DeviceInterrupts,
        title: "Device interrupts go to housekeeping CPUs",
        applies: Applies::LINUX.isolated(),
        judge: on_isolated,
        why: "An interrupt takes the CPU from any running thread, whatever the thread's priority. Its softirqs follow.",
        magnitude: ONE_INTERRUPT,
        fix: Fix::runtime_or_boot(
            ALL_TO_HOUSEKEEPING,
            "irqaffinity={housekeeping} isolcpus=managed_irq,domain,{isolated}",
        ),
        cost: QUEUES_STAY,
        references: &[ISOLATION, AFFINITY, GUIDE],
    },
    Rule {
        id: "irq.default-affinity",
        cause: Cause::DeviceInterrupts,
        title: "New interrupts go to housekeeping CPUs",
        applies: Applies::LINUX.isolated(),
        judge: default_affinity,
        why: "This mask applies to the interrupts of devices that appear later and of drivers that are reloaded.",
        magnitude: ONE_INTERRUPT,
        fix: Fix::runtime_or_boot(
            "echo {housekeeping-mask} > /proc/irq/default_smp_affinity",
            "irqaffinity={housekeeping}",
        ),
        cost: QUEUES_STAY,
        references: &[AFFINITY, "FlexRAN real-time platform slides (2018)"],
    },
];

/// Rules on the interrupts that occurred.
const WHAT: &[Rule] = &[
    Rule {
        id: "irq.hits-iso",
        cause: Cause::DeviceInterrupts,
        title: "No device interrupt hits an isolated CPU",
        applies: Applies::LINUX.isolated(),
        judge: device_hits,
        why: "Masks show what may happen; counters show what does happen. Each counted interrupt stopped the \
            application once.",
        magnitude: ONE_INTERRUPT,
        fix: Fix::runtime(ALL_TO_HOUSEKEEPING).after("apus irqs --cpu {isolated} # shows which interrupts these are"),
        cost: QUEUES_STAY,
        references: &[GUIDE, ISOLATION],
    },
    Rule {
        id: "irq.softirq-iso",
        cause: Cause::DeviceInterrupts,
        title: "No softirq of the network or of block devices runs on an isolated CPU",
        applies: Applies::LINUX.isolated(),
        judge: softirq_hits,
        why: "A softirq runs on the CPU that raised it, for up to 2 ms at a time. That is the CPU that took the device's \
         interrupt, the CPU on which a thread sent to a virtual interface (veth, a bridge, lo), or the CPU to which \
         RPS passed the packet.",
        magnitude: Magnitude::late(
            Nanos::from_micros(50),
            "up to 2 ms or 10 rounds in a row, whichever ends first",
            "Linux kernel/softirq.c, MAX_SOFTIRQ_TIME and MAX_SOFTIRQ_RESTART; the typical value is an estimate",
        ),
        fix: Fix::runtime_or_boot(
            ALL_TO_HOUSEKEEPING,
            "isolcpus=managed_irq,domain,{isolated} irqaffinity={housekeeping}",
        ),
        cost: QUEUES_STAY,
        references: &[KTHREADS, ISOLATION],
    },
];

/// Maximum number of interrupts that a finding names, the most frequent first.
const NAMED: usize = 5;
/// Softirqs that devices cause. They can be kept off a CPU (kernel-per-CPU-kthreads.rst has a remedy for each).
const OF_DEVICES: [&str; 4] = ["NET_RX", "NET_TX", "BLOCK", "IRQ_POLL"];

fn on_isolated(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    let placed = placed(facts)?;
    let stray: Vec<_> = placed.iter().filter(|(_, cpus)| cpus.iter().any(|cpu| isolated.contains(cpu))).collect();
    let source = "/proc/irq/*/effective_affinity_list";
    if stray.is_empty() {
        let found = format!("none of {} interrupts is directed to isolated CPUs", placed.len());
        return Judgement::pass(found).see_as(format!("{} interrupts", placed.len()), source).alone();
    }
    let mut cpus = CpuSet::default();
    stray.iter().for_each(|(_, at)| cpus = cpus.union(&at.intersection(isolated)));
    let managed = stray.iter().filter(|(irq, _)| irq.managed.value() == Some(&true)).count();
    let of_drivers = of_drivers(managed as u64, stray.len() as u64);
    let found = format!("{} of {} interrupts are directed to isolated CPUs{of_drivers}", stray.len(), placed.len());
    let mut judgement = Judgement::fail_for(cpus, found).see_as(format!("{} interrupts", stray.len()), source);
    if let Some(hits) = hits(facts, isolated) {
        // Interrupts that no longer go to these CPUs occurred on them before they were moved.
        let labels: Vec<String> = stray.iter().map(|(irq, _)| irq.number.to_string()).collect();
        let device = hits.list.iter().filter(|hit| hit.kind == HitKind::Device && labels.contains(&hit.label));
        for hit in device.take(NAMED) {
            judgement = judgement.see_as(often(hit, hits.during), "/proc/interrupts");
        }
    }
    judgement.alone()
}

/// Says how many of the interrupts cannot be moved, because the kernel manages them. Empty if all can be moved.
fn of_drivers(managed: u64, all: u64) -> String {
    match managed {
        0 => String::new(),
        n if n == all => ", all of them managed by the kernel".to_owned(),
        n => format!(", {n} of them managed by the kernel"),
    }
}

/// Formats an interval as `in 5s`, or as `since boot` for `None`.
fn span(during: Option<Nanos>) -> String {
    during.map_or("since boot".to_owned(), |during| format!("in {during}"))
}

/// Formats how often an interrupt occurred: `ens1f0-TxRx-3 (IRQ 55): 12345 on these CPUs since boot`.
fn often(hit: &Hit, during: Option<Nanos>) -> String {
    let number = if hit.kind == HitKind::Device { format!(" (IRQ {})", hit.label) } else { String::new() };
    match during {
        Some(during) => {
            let rate = u128::from(hit.total) * 1_000_000_000 / u128::from(during.as_nanos().max(1));
            format!("{}{number}: {rate} a second on these CPUs", hit.name)
        }
        None => format!("{}{number}: {} on these CPUs since boot", hit.name, hit.total),
    }
}

fn default_affinity(facts: &Facts, context: &Context) -> Judged {
    let mask = &facts.irqs.default_affinity;
    let stray = known(mask)?.intersection(&context.isolated.value);
    match stray.is_empty() {
        true => Judgement::pass("new interrupts stay off the isolated CPUs").see(mask),
        false => {
            Judgement::warn_for(stray.clone(), format!("new interrupts may go to isolated CPUs {stray}")).see(mask)
        }
    }
    .alone()
}

fn device_hits(facts: &Facts, context: &Context) -> Judged {
    let source = facts.counters.interrupts.source();
    let mut judged = judge_hits(facts, context, "device interrupts", source, |hit| hit.kind == HitKind::Device)?;
    if is_operated(facts) {
        let of_profile = |judgement: &mut Judgement| judgement.for_good.push("irqaffinity={housekeeping}".into());
        judged.iter_mut().filter(|judgement| judgement.verdict != Verdict::Pass).for_each(of_profile);
    }
    Ok(judged)
}

fn softirq_hits(facts: &Facts, context: &Context) -> Judged {
    known(&facts.counters.softirqs)?;
    let source = facts.counters.softirqs.source();
    let judged = judge_hits(facts, context, "network and block softirqs", source, |hit| {
        hit.kind == HitKind::Softirq && OF_DEVICES.contains(&hit.label.as_str())
    });
    let Some(hits) = hits(facts, &context.isolated.value) else { return judged };
    let count = |label: &str| -> u64 {
        let of = hits.list.iter().filter(|hit| hit.kind == HitKind::Softirq && hit.label == label);
        of.map(|hit| hit.total).sum()
    };
    let (received, sent) = (count("NET_RX"), count("NET_TX"));
    // Interrupts of network devices. If it is not known whether an interrupt belongs to one, nothing is counted.
    let devices = hits.list.iter().filter(|hit| hit.kind == HitKind::Device);
    let interrupts = devices.map(|hit| sends_packets(facts, hit).map(|yes| if yes { hit.total } else { 0 }));
    let interrupts: Option<u64> = interrupts.sum();
    let mend = |judgement: Judgement| match interrupts {
        Some(0) if received > 0 => without_device(judgement),
        Some(0) if sent > 0 => sent_here(judgement),
        Some(n) if received / MORE > n => with_others(judgement, n),
        _ => judgement,
    };
    judged.map(|judgements| judgements.into_iter().map(mend).collect())
}

/// If there are at least this many NET_RX softirqs per interrupt of a network device, other sources raised some of the
/// softirqs: such an interrupt raises only one.
const MORE: u64 = 2;

const RPS: &str = "grep . /sys/class/net/*/queues/rx-*/rps_cpus";
/// The remedy for packets that virtual interfaces or RPS bring to these CPUs.
const SENDERS: &str =
    "# keep threads that send to virtual interfaces (veth, bridges, lo) off these CPUs, and these CPUs out of rps_cpus";
const PINNED: &str = "The scheduler moves no thread onto these CPUs, so the application must pin its own.";

/// Explains NET_RX softirqs that outnumber the interrupts of network devices. A poll that uses up its budget raises
/// another softirq (net/core/dev.c, net_rx_action). [`without_device`] names the other sources. `interrupts` is a lower
/// bound, because an interrupt that was freed is no longer counted (kernel/irq/irqdesc.c, free_desc).
fn with_others(mut judgement: Judgement, interrupts: u64) -> Judgement {
    judgement.found.push_str(&format!(
        "; the present network devices raised {interrupts} interrupts here, so most NET_RX came from repeated polls, virtual \
         interfaces or RPS"
    ));
    judgement
        .see_as(format!("{interrupts} interrupts of network devices on these CPUs"), "/proc/interrupts")
        .look(RPS)
        .now(ALL_TO_HOUSEKEEPING)
        .now(SENDERS)
        .costs(format!("{QUEUES_STAY} {PINNED}"))
}

/// Explains NET_RX softirqs on CPUs that received no interrupt of a network device. Moving interrupts does not move
/// these softirqs. They are raised by threads that send to virtual interfaces (drivers/net/veth.c, veth_xmit;
/// net/core/dev.c, netif_rx), or by other CPUs through RPS (networking/scaling.rst).
fn without_device(mut judgement: Judgement) -> Judgement {
    judgement.found.push_str(
        "; the present network devices raised no interrupt here, so most NET_RX came from virtual interfaces or RPS",
    );
    judgement
        .see_as("no interrupt of a network device on these CPUs", "/proc/interrupts")
        .because(Cause::SchedulerIsolation)
        .look(RPS)
        .now(SENDERS)
        .for_good("isolcpus=managed_irq,domain,{isolated}")
        .costs(PINNED)
}

/// Explains NET_TX softirqs on CPUs without NET_RX softirqs. A sender raises them on its own CPU if it uses up its
/// quota, or if its queueing discipline waits (net/core/dev.c, __netif_reschedule; net/sched/sch_generic.c,
/// __qdisc_run).
fn sent_here(mut judgement: Judgement) -> Judgement {
    judgement.found.push_str("; there is no NET_RX, so the NET_TX are packets that were sent from these CPUs");
    judgement
        .see_as("no interrupt of a network device on these CPUs", "/proc/interrupts")
        .because(Cause::SchedulerIsolation)
        .now("# keep threads that send packets through the kernel off these CPUs")
        .for_good("isolcpus=managed_irq,domain,{isolated}")
        .costs(PINNED)
}

/// Whether an interrupt belongs to a network device, according to the class of its PCI device. If the class is not
/// known, false if all users of the interrupt are known not to be network devices. `None` if neither decides it.
fn sends_packets(facts: &Facts, hit: &Hit) -> Option<bool> {
    const OTHERS: [&str; 12] =
        ["timer", "i8042", "rtc", "acpi", "ttyS", "dmar", "AMD-Vi", "i801_smbus", "nvme", "ahci", "megasas", "mpt3sas"];
    let irq = facts.irqs.irq(hit.label.parse().ok()?)?;
    let device = irq.pci.as_deref().and_then(|address| facts.pci.device(address));
    if let Some(is_network) = device.and_then(|device| device.is_network()) {
        return Some(is_network);
    }
    let users = irq.actions.value()?;
    let others = users.iter().all(|user| OTHERS.iter().any(|name| user.starts_with(name)));
    (others && !users.is_empty()).then_some(false)
}

fn judge_hits(facts: &Facts, context: &Context, what: &str, source: &Source, wanted: impl Fn(&Hit) -> bool) -> Judged {
    known(&facts.counters.interrupts)?;
    let isolated = &context.isolated.value;
    let hits = hits(facts, isolated).ok_or_else(|| Skip::unknown("the interrupts' counters are not known"))?;
    let stray: Vec<&Hit> = hits.list.iter().filter(|hit| wanted(hit)).collect();
    if stray.is_empty() {
        let found = format!("no {what} hit the isolated CPUs");
        return Judgement::pass_for(isolated, found).see_as("no count", source).alone();
    }
    let total: u64 = stray.iter().map(|hit| hit.total).sum();
    let of_each = |hit: &&Hit| format!("{} {}", hit.total, hit.label);
    let what = match stray.as_slice() {
        stray if stray.iter().all(|hit| hit.kind == HitKind::Softirq) => {
            format!("{} softirqs", enumerated(&stray.iter().map(of_each).collect::<Vec<_>>()))
        }
        _ => format!("{total} {what}"),
    };
    let is_managed = |hit: &&&Hit| {
        let irq = hit.label.parse().ok().and_then(|number| facts.irqs.irq(number));
        hit.kind == HitKind::Device && irq.is_some_and(|irq| irq.managed.get() == Some(true))
    };
    let managed = stray.iter().filter(is_managed).map(|hit| hit.total).sum();
    let (span, of_drivers) = (span(hits.during), of_drivers(managed, total));
    let judgement = Judgement::warn_for(isolated, format!("{what} hit the isolated CPUs {span}{of_drivers}"));
    stray.iter().take(NAMED).fold(judgement, |judgement, hit| judgement.see_as(often(hit, hits.during), source)).alone()
}

/// The interrupts of an interface: those of its queues if known, otherwise those of its device, otherwise those whose
/// name contains the interface's name.
pub(super) fn of_link<'a>(facts: &'a Facts, link: &'a Link) -> Vec<&'a Irq> {
    if !link.queue_irqs.is_empty() {
        return link.queue_irqs.iter().filter_map(|queue| facts.irqs.irq(queue.irq)).collect();
    }
    let of_device = |irq: &&Irq| irq.pci.is_some() && irq.pci.as_ref() == link.pci.value();
    let by_device: Vec<&Irq> = facts.irqs.iter().filter(of_device).collect();
    if !by_device.is_empty() {
        return by_device;
    }
    let its = |user: &String| carries_name(user, &link.name);
    facts.irqs.iter().filter(|irq| irq.actions.is(|users| users.iter().any(its)) == Some(true)).collect()
}

/// Whether the name of an interrupt's user contains the interface's name as a word: `ice-ens3f0-TxRx-3` contains
/// `ens3f0`.
pub(super) fn carries_name(user: &str, interface: &str) -> bool {
    user.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == interface)
}

/// The interrupts that can occur, each with the CPUs to which it is directed. An interrupt without a row in
/// /proc/interrupts is left out: it has no handler, and has never occurred (kernel/irq/proc.c, show_interrupts).
pub(super) fn placed(facts: &Facts) -> Result<Vec<(&Irq, &CpuSet)>, Skip> {
    known(&facts.irqs.list)?;
    let rows: Option<BTreeSet<u32>> =
        facts.counters.interrupts.value().map(|table| table.rows.iter().filter_map(CountRow::irq).collect());
    let can_come = |irq: &&Irq| rows.as_ref().is_none_or(|rows| rows.contains(&irq.number));
    let used = facts.irqs.iter().filter(can_come);
    let placed: Vec<_> =
        used.filter_map(|irq| Some((irq, irq.effective.value().or_else(|| irq.affinity.value())?))).collect();
    match placed.is_empty() {
        true => Err(Skip::unknown("where the interrupts go was not recorded")),
        false => Ok(placed),
    }
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] =
    &[tests::WHERE, tests::WHAT, rates::tests::CASES, balance::tests::CASES, queues::tests::CASES];

#[cfg(test)]
mod tests {
    use crate::testing::{Case, Host, host};

    /// Interrupt 55 of a NIC at these CPUs, which hit CPU 3 so often.
    fn irq(effective: &str, hits: u64) -> Host {
        host()
            .isolated("2-7")
            .nic("ens1f0")
            .file("/proc/irq/55/effective_affinity_list", effective)
            .file("/proc/irq/55/smp_affinity_list", effective)
            .file(
                "/proc/interrupts",
                &format!(
                    "           CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n 55: 7 0 0 {hits} 0 0 0 0 PCI-MSIX-0000:04:00.0 3-edge ens1f0-TxRx-3\n"
                ),
            )
    }

    fn default_mask(mask: &str) -> Host {
        host().isolated("2-7").file("/proc/irq/default_smp_affinity", mask)
    }

    fn softirqs(on_3: u64) -> Host {
        irq("0", 0).file(
            "/proc/softirqs",
            &format!(
                "                    CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n      NET_RX: 9 0 0 {on_3} 0 0 0 0\n"
            ),
        )
    }

    pub(super) const WHERE: &[Case] = &[
        Case::pass("irq.on-iso", || irq("0", 0)),
        Case::fail("irq.on-iso", || irq("3", 100)),
        Case::unknown("irq.on-iso", || host().isolated("2-7")),
        Case::not_applicable("irq.on-iso", host),
        Case::pass("irq.default-affinity", || default_mask("03")),
        Case::warn("irq.default-affinity", || default_mask("ff")),
        Case::unknown("irq.default-affinity", || host().isolated("2-7")),
    ];

    pub(super) const WHAT: &[Case] = &[
        Case::pass("irq.hits-iso", || irq("0", 0)),
        Case::warn("irq.hits-iso", || irq("0", 12)),
        Case::unknown("irq.hits-iso", || host().isolated("2-7")),
        Case::pass("irq.softirq-iso", || softirqs(0)),
        Case::warn("irq.softirq-iso", || softirqs(4)),
        Case::unknown("irq.softirq-iso", || irq("0", 0)),
    ];

    #[test]
    fn softirqs_are_seen_where_they_are_counted() {
        for on_3 in [0, 4] {
            assert_eq!(softirqs(on_3).judge("irq.softirq-iso")[0].evidence[0].source, "/proc/softirqs");
        }
        assert_eq!(irq("3", 12).judge("irq.hits-iso")[0].evidence[0].source, "/proc/interrupts");
    }

    /// telco-master: an interrupt that was moved away still has its hits of before.
    #[test]
    fn an_interrupt_that_was_moved_away_is_no_evidence() {
        let host = irq("3", 5).file("/proc/irq/56/effective_affinity_list", "0").file(
            "/proc/interrupts",
            "           CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n 55: 7 0 0 5 0 0 0 0 PCI-MSIX-0000:04:00.0 3-edge ens1f0-TxRx-3\n 56: 7 0 0 4711 0 0 0 0 PCI-MSIX-0000:04:00.0 4-edge ens1f0-TxRx-4\n",
        );
        let judgement = host.judge("irq.on-iso").remove(0);
        let seen: Vec<&str> = judgement.evidence.iter().map(|seen| seen.value.as_str()).collect();
        assert_eq!(seen, ["1 interrupts", "ens1f0-TxRx-3 (IRQ 55): 5 on these CPUs since boot"]);
    }

    /// telco-worker1: of 4373 hits 2012 were of queues that nobody can move.
    #[test]
    fn hits_of_managed_interrupts_are_counted_apart() {
        let found = |managed: &str, moved: &str| {
            let rows = format!(
                "     CPU0 CPU1 CPU2 CPU3\n 55: 7 0 0 {moved} PCI-MSIX-0000:04:00.0 3-edge ens1f0-TxRx-3\n 61: 0 0 0 {managed} PCI-MSIX-0000:05:00.0 3-edge nvme0q3\n"
            );
            let host = irq("0", 0).file("/proc/interrupts", &rows).file("/proc/irq/61/smp_affinity_list", "3");
            crate::wording::singular(&host.judge("irq.hits-iso")[0].found)
        };
        let hit = "device interrupts hit the isolated CPUs since boot";
        assert_eq!(found("9", "12"), format!("21 {hit}, 9 of them managed by the kernel"));
        assert_eq!(found("0", "12"), format!("12 {hit}"));
        assert_eq!(found("9", "0"), format!("9 {hit}, all of them managed by the kernel"));
    }

    #[test]
    fn the_most_frequent_are_named_with_their_counts() {
        let judgements = irq("3", 4711).judge("irq.on-iso");
        assert_eq!(judgements[0].found, "1 of 1 interrupts are directed to isolated CPUs");
        assert!(
            judgements[0].evidence.iter().any(|e| e.value == "ens1f0-TxRx-3 (IRQ 55): 4711 on these CPUs since boot"),
            "{judgements:?}"
        );
    }

    /// kvm-guest-sno: packets between pods raise softirqs where no NIC interrupts.
    #[test]
    fn softirqs_of_virtual_interfaces_are_not_moved_with_interrupts() {
        let of = |on_3: &str, class: &str| {
            irq("0", 7)
                .file("/sys/bus/pci/devices/0000:04:00.0/class", class)
                .file(
                    "/proc/interrupts",
                    &format!("     CPU0 CPU1 CPU2 CPU3\n 55: 7 0 0 {on_3} PCI-MSIX-0000:04:00.0 3-edge x\n"),
                )
                .file(
                    "/proc/softirqs",
                    "     CPU0 CPU1 CPU2 CPU3\nNET_TX: 0 0 0 4\nNET_RX: 9 0 0 32623\nBLOCK: 0 0 0 19\n",
                )
                .judge("irq.softirq-iso")
                .remove(0)
        };
        let counts = "32623 NET_RX, 19 BLOCK and 4 NET_TX softirqs hit the isolated CPUs since boot";
        let no_nic = "; the present network devices raised no interrupt here, so most NET_RX came from virtual interfaces or RPS";
        // A NIC that interrupts elsewhere, and a disk that interrupts here.
        for (on_3, class) in [("0", "0x020000"), ("5", "0x010802")] {
            let judgement = of(on_3, class);
            assert_eq!(judgement.found, format!("{counts}{no_nic}"));
            assert!(judgement.now[0].contains("rps_cpus") && !judgement.now[0].contains("smp_affinity"));
            assert_eq!(judgement.for_good, ["isolcpus=managed_irq,domain,{isolated}"]);
        }
        // A NIC that interrupts here, and a device of which nothing is known.
        for (on_3, class) in [("17000", "0x020000"), ("5", "")] {
            let judgement = of(on_3, class);
            assert_eq!((judgement.found.as_str(), judgement.now.len()), (counts, 0));
        }
        let others = "; the present network devices raised 5 interrupts here, so most NET_RX came from repeated polls, virtual interfaces or RPS";
        let judgement = of("5", "0x020000");
        assert_eq!(judgement.found, format!("{counts}{others}"));
        // What no device brings stays where its interrupts leave.
        let (now, cost) = (judgement.now.join("\n"), judgement.cost.unwrap_or_default());
        assert!(now.contains("smp_affinity_list") && now.contains("rps_cpus"), "{now}");
        assert!(cost.contains("housekeeping CPUs handle all interrupts") && cost.contains("pin its own"), "{cost}");
    }

    /// telco-master: NET_TX is raised by senders of any interface, and no interrupt brings it.
    #[test]
    fn sent_packets_are_not_counted_as_received_ones() {
        let of = |on_3: &str, received: u64, sent: u64| {
            let table = format!("     CPU0 CPU1 CPU2 CPU3\nNET_TX: 0 0 0 {sent}\nNET_RX: 9 0 0 {received}\n");
            let rows = format!("     CPU0 CPU1 CPU2 CPU3\n 55: 7 0 0 {on_3} PCI-MSIX-0000:04:00.0 3-edge x\n");
            let host = irq("0", 7).file("/sys/bus/pci/devices/0000:04:00.0/class", "0x020000");
            host.file("/proc/interrupts", &rows).file("/proc/softirqs", &table).judge("irq.softirq-iso").remove(0)
        };
        let only = of("0", 0, 90);
        assert!(only.found.ends_with("the NET_TX are packets that were sent from these CPUs"), "{}", only.found);
        assert!(!only.now.concat().contains("rps_cpus") && !only.found.contains("RPS"), "{only:?}");
        let enough = of("5", 6, 90);
        assert!(!enough.found.contains("NET_RX came"), "{enough:?}");
    }

    /// telco-worker1: 11 directories of /proc/irq have no handler, and nothing comes by them.
    #[test]
    fn interrupts_without_a_handler_go_nowhere() {
        let host =
            irq("3", 5).file("/proc/irq/7/effective_affinity_list", "3").file("/proc/irq/7/smp_affinity_list", "0-7");
        assert_eq!(host.judge("irq.on-iso")[0].found, "1 of 1 interrupts are directed to isolated CPUs");
        let host = irq("0", 0).file("/proc/irq/7/effective_affinity_list", "3");
        assert_eq!(host.judge("irq.on-iso")[0].found, "none of 1 interrupts is directed to isolated CPUs");
    }
}
