//! Rules on the interrupts of network interfaces: their NUMA nodes, queues that share a CPU, and interrupt threads.

use std::collections::{BTreeMap, BTreeSet};

use host::Facts;
use host::facts::{CpuSet, Irq, Link, SchedClass, Task};
use units::Nanos;

use super::{AFFINITY, GUIDE, NAMED, ONE_INTERRUPT, of_link};
use crate::rules::scheduling::{application, named};
use crate::{Applies, Cause, Context, Fix, How, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const SLIDES: &str = "Interrupt-mode DPDK slides (2017)";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "irq.numa",
        cause: Cause::Placement,
        title: "Interrupts of an interface are served on its NUMA node",
        applies: Applies::LINUX.with_nic(),
        judge: nodes,
        why: "The device writes descriptors and packets into memory and cache of its own node. A CPU of another node \
         reads each of these cache lines over the link between the sockets.",
        magnitude: Magnitude::slower(
            "60 to 100 ns more for each cache line of another node, several lines per packet",
            "DPDK Getting Started Guide for Linux, nic_perf_intel_platform, names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::for_good("send the queues' interrupts to housekeeping CPUs of the card's node (smp_affinity_list)")
            .after("cat /sys/class/net/{nic}/device/local_cpulist"),
        cost: "The CPUs of that node handle the load.",
        references: &[
            "DPDK Getting Started Guide for Linux, nic_perf_intel_platform",
            "Linux Documentation/networking/device_drivers/ethernet/intel/i40e.rst",
            "Mellanox mlnx-tools, mlnx_tune",
        ],
    },
    Rule {
        id: "irq.collision",
        cause: Cause::Queues,
        title: "Busy queues do not share a CPU",
        applies: Applies::LINUX.with_nic(),
        judge: collisions,
        why: "Two busy queues on one CPU wait for each other: a packet of one is delayed by the work for the other, up \
              to the budget of a softirq, while other CPUs have no work.",
        magnitude: Magnitude::late(
            Nanos::from_micros(50),
            "up to 64 packets of the other queue for each poll of its own: 30 to 60 us at 0.5 to 1 us per packet",
            "Linux include/linux/netdevice.h, NAPI_POLL_WEIGHT; FreeBSD thread \"ixl 40G bad performance\" \
                     (2015); the time per packet is an estimate",
        ),
        fix: Fix::for_good("send each queue's interrupt to a CPU of its own on the same node (smp_affinity_list)")
            .after("apus irqs --cpu {housekeeping}"),
        cost: "More CPUs do this work.",
        references: &[AFFINITY, SLIDES],
    },
    Rule {
        id: "irq.unused-nic",
        cause: Cause::DeviceInterrupts,
        title: "Interfaces that the application does not use have no interrupts on isolated CPUs",
        applies: Applies::LINUX.isolated().with_nic(),
        judge: unused,
        why: "Drivers with many queues place one interrupt on each CPU. An interface that is up but unused interrupts \
         these CPUs for broadcasts, its link timer and its statistics.",
        magnitude: ONE_INTERRUPT,
        fix: Fix::runtime("ethtool -L {nic} combined 1 # or, if nobody needs it, leave it down").decided(),
        cost: "The interface is down, or slower.",
        references: &[GUIDE, "Intel CommsPowerManagement ansible roles"],
    },
    Rule {
        id: "irq.thread-prio",
        cause: Cause::Priorities,
        title: "Interrupt threads come before the threads that wait for them",
        applies: Applies::LINUX.to(&[Workload::Rt]).with_nic(),
        judge: thread_priorities,
        why: "On a real-time kernel an interrupt only wakes a thread (irq/N-name, SCHED_FIFO 50), which then does the \
              work. If the application has the same or a higher priority on the same CPU and waits for that work by \
              spinning, neither makes progress.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "up to the application's whole run; without the inversion about 5 us for the thread to be scheduled",
            "Interrupt-mode DPDK slides (2017) on the delay of threaded interrupts; the microseconds are an estimate",
        ),
        fix: Fix::both(
            "# raise the interface's interrupt threads to the application's priority + 1 (chrt -f -p), or lower an application \
             that has 98 or 99",
            "the same priorities in tuned, section scheduler",
        ),
        cost: "The interrupt's work delays the application.",
        references: &[SLIDES, "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst"],
    },
    Rule {
        id: "irq.uio-intr",
        cause: Cause::Priorities,
        title: "Interrupts for user space are not threaded",
        applies: Applies::LINUX,
        judge: user_space,
        why: "A DPDK application that sleeps is woken through vfio-pci or igb_uio. If the handler runs in a thread (a \
              real-time kernel, threadirqs), one more thread has to be scheduled before the wake-up. The interrupt-mode DPDK slides name the patches: DPDK 19855 for igb_uio, patchwork 7493081 of the kernel for vfio-pci.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "part of the improvement from 105 us to 14 us on average, together with other changes",
            "Interrupt-mode DPDK slides (2017): DPDK patch 19855; the typical value is an estimate",
        ),
        fix: Fix::boot("use a newer igb_uio, or vfio-pci; do not boot with threadirqs"),
        cost: "The device stops while its driver is replaced.",
        references: &[SLIDES],
    },
];

/// The interrupts of an interface that can occur, each with the CPUs to which it is directed.
fn placed<'a>(facts: &'a Facts, link: &'a Link) -> Vec<(&'a Irq, &'a CpuSet)> {
    let its: BTreeSet<u32> = of_link(facts, link).into_iter().map(|irq| irq.number).collect();
    let all = super::placed(facts).unwrap_or_default();
    all.into_iter().filter(|(irq, _)| its.contains(&irq.number)).collect()
}

/// Makes the judgements of each interface. If no interface can be judged, the rule is skipped for the first one's
/// reason.
fn each_link(facts: &Facts, context: &Context, judge: impl Fn(&Link) -> Result<Vec<Judgement>, Skip>) -> Judged {
    known(&facts.irqs.list)?;
    let links: Vec<&Link> = context.links(facts).collect();
    if links.is_empty() {
        known(&facts.links)?;
        return Err(Skip::unknown("none of the interfaces is among those that are known"));
    }
    Ok(links
        .into_iter()
        .flat_map(|link| {
            judge(link).unwrap_or_else(|skip| vec![Judgement::skipped(Subject::Link(link.name.clone()), skip)])
        })
        .collect())
}

fn nodes(facts: &Facts, context: &Context) -> Judged {
    if facts.cpus.nodes.is_empty() {
        return Err(Skip::unknown("/sys/devices/system/node: no NUMA node is known"));
    }
    if facts.cpus.nodes.len() == 1 {
        return Err(Skip::not_applicable("the host has one NUMA node"));
    }
    each_link(facts, context, |link| {
        let subject = Subject::Link(link.name.clone());
        let Some(node) = *known(&link.node)? else {
            return Err(Skip::not_applicable("the firmware does not say which node its device belongs to"));
        };
        let irqs = placed(facts, link);
        if irqs.is_empty() {
            return Err(Skip::unknown("where its interrupts go was not recorded"));
        }
        let far: Vec<&Irq> = irqs
            .iter()
            .filter(|(_, cpus)| cpus.iter().any(|cpu| facts.cpus.node_of(cpu).is_some_and(|other| other != node)))
            .map(|(irq, _)| *irq)
            .collect();
        let judgement = match far.is_empty() {
            true => Judgement::pass_for(subject, format!("its {} interrupts are served on node {node}", irqs.len())),
            false => Judgement::warn_for(
                subject,
                format!("{} of its {} interrupts are served on another node than {node}", far.len(), irqs.len()),
            ),
        };
        let names: Vec<String> =
            far.iter().take(NAMED).map(|irq| format!("{} (IRQ {})", irq.name(), irq.number)).collect();
        let seen = if names.is_empty() { format!("{} interrupts", irqs.len()) } else { names.join(", ") };
        Ok(vec![judgement.see(&link.node.as_ref().map(|_| node)).see_as(seen, "/proc/irq/*/effective_affinity_list")])
    })
}

fn collisions(facts: &Facts, context: &Context) -> Judged {
    let table = known(&facts.counters.interrupts)?;
    let counters = facts.interval.value().and_then(|interval| interval.change.interrupts.value()).unwrap_or(table);
    each_link(facts, context, |link| {
        let subject = Subject::Link(link.name.clone());
        let irqs = placed(facts, link);
        if irqs.is_empty() {
            return Err(Skip::unknown("where its interrupts go was not recorded"));
        }
        let row = |irq: &Irq| counters.row(&irq.number.to_string());
        let total: u64 = irqs.iter().filter_map(|(irq, _)| Some(row(irq)?.total())).sum();
        // Count only what occurred on the CPU to which the interrupt goes now. Interrupts on other CPUs, before it was
        // moved, do not concern this CPU.
        let here = |irq: &Irq, cpu: u32| row(irq).and_then(|row| counters.on(row, cpu)).unwrap_or(0);
        let mut by_cpu: BTreeMap<u32, BTreeMap<String, Vec<&Irq>>> = BTreeMap::new();
        for (irq, cpus) in irqs.iter().filter(|(_, cpus)| cpus.len() == 1) {
            let cpu = cpus.first().unwrap_or_default();
            // A queue counts as busy if it has more than a tenth of the interrupts.
            if here(irq, cpu) > total / 10 {
                by_cpu.entry(cpu).or_default().entry(pair(link, irq)).or_default().push(irq);
            }
        }
        let shared: Vec<(u32, Vec<&Irq>)> = by_cpu
            .iter()
            .filter(|(_, pairs)| pairs.len() > 1)
            .map(|(cpu, pairs)| (*cpu, pairs.values().flatten().copied().collect()))
            .collect();
        let source = "/proc/irq/*/effective_affinity_list, /proc/interrupts";
        if shared.is_empty() {
            let found = match by_cpu.len() {
                0 => "no queue is busy on the CPU where its interrupt goes".to_owned(),
                busy => format!("its {busy} busy queues have a CPU each"),
            };
            return Ok(vec![Judgement::pass_for(subject, found).see_as(format!("{} interrupts", irqs.len()), source)]);
        }
        let judgement =
            Judgement::warn_for(subject, format!("busy queues share {} CPUs and wait for each other", shared.len()));
        let line = |(cpu, irqs): &(u32, Vec<&Irq>)| {
            let names: Vec<String> = irqs.iter().map(|irq| format!("{} {}", irq.name(), here(irq, *cpu))).collect();
            format!("CPU {cpu}: {}", names.join(", "))
        };
        Ok(vec![shared.iter().take(NAMED).fold(judgement, |judgement, one| judgement.see_as(line(one), source))])
    })
}

/// A name that the receive and transmit interrupts of one queue share: the queue's number, or the interrupt's name
/// without the direction (`virtio0-input.0` and `virtio0-output.0`, `eth0-rx-1` and `eth0-tx-1`).
fn pair(link: &Link, irq: &Irq) -> String {
    if let Some(queue) = link.queue_irqs.iter().find(|queue| queue.irq == irq.number) {
        return format!("queue {}", queue.queue);
    }
    let is_direction = |word: &&str| ["rx", "tx", "input", "output"].contains(&word.to_ascii_lowercase().as_str());
    let name = irq.name();
    let words: Vec<&str> =
        name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !is_direction(word)).collect();
    words.join("-")
}

fn unused(facts: &Facts, context: &Context) -> Judged {
    if context.nics.how != How::Given {
        return Err(Skip::not_applicable("it was not stated which interfaces carry the application's packets (--nic)"));
    }
    let isolated = &context.isolated.value;
    known(&facts.irqs.list)?;
    let others = known(&facts.links)?.iter().filter(|link| !context.nics.value.contains(&link.name));
    let mut judgements = Vec::new();
    let mut seen = 0;
    for link in others.filter(|link| link.is_physical() == Some(true) && link.operstate.is(|s| s == "up") == Some(true))
    {
        let irqs = placed(facts, link);
        seen += 1;
        let stray = irqs.iter().filter(|(_, cpus)| cpus.intersects(isolated)).count();
        if stray > 0 {
            let found = format!(
                "it is up, has no role, and {stray} of its {} interrupts are directed to isolated CPUs",
                irqs.len()
            );
            judgements.push(
                Judgement::warn_for(Subject::Link(link.name.clone()), found)
                    .see_as(format!("{stray} interrupts"), "/proc/irq/*/effective_affinity_list"),
            );
        }
    }
    if judgements.is_empty() {
        let found = format!("{seen} other interfaces are up, and none has an interrupt there");
        judgements.push(Judgement::pass(found).see_as(format!("{seen} interfaces"), facts.links.source()));
    }
    Ok(judgements)
}

fn thread_priorities(facts: &Facts, context: &Context) -> Judged {
    known(&facts.tasks)?;
    if context.is(Workload::Poll) {
        return Err(Skip::not_applicable("the application polls, and waits for no interrupt"));
    }
    let waiting = application(facts, context).filter(|task| task.class.is_realtime());
    let Some(first) = waiting.max_by_key(|task| task.rt_priority) else {
        return Err(Skip::not_applicable("no real-time thread of the application runs on isolated CPUs alone"));
    };
    // Names such as `irq/55-ens1f0-TxRx-3` are cut at 15 octets, but the number is always complete.
    let number = |task: &Task| task.comm.strip_prefix("irq/")?.split('-').next()?.parse::<u32>().ok();
    let numbers: Vec<u32> = context.links(facts).flat_map(|link| of_link(facts, link)).map(|irq| irq.number).collect();
    let threads: Vec<&Task> = facts
        .tasks()
        .filter(|task| task.kernel && number(task).is_some_and(|number| numbers.contains(&number)))
        .collect();
    if threads.is_empty() {
        return Err(Skip::unknown("no thread of the interfaces' interrupts is known"));
    }
    // Of two threads with the same priority, neither takes the CPU from the other (sched(7), SCHED_FIFO).
    let below: Vec<&Task> = threads.iter().copied().filter(|task| task.rt_priority <= first.rt_priority).collect();
    let judgement = match below.is_empty() {
        true => Judgement::pass(format!("{} interrupt threads come before {}", threads.len(), named(first))),
        false => {
            let found = format!(
                "{} of {} interrupt threads do not come before {}, which has {}",
                below.len(),
                threads.len(),
                named(first),
                first.rt_priority
            );
            let above: Vec<&Task> = application(facts, context)
                .filter(|task| task.class.is_realtime() && task.rt_priority >= HIGHEST)
                .collect();
            raised(Judgement::warn(found), &below, &above, (first.rt_priority + 1).min(HIGHEST), number)
        }
    };
    let shown = if below.is_empty() { &threads } else { &below };
    let seen = |judgement: Judgement, task: &&Task| {
        judgement.see_as(format!("{} has {}", named(task), task.rt_priority), facts.tasks.source())
    };
    shown.iter().take(if below.is_empty() { 1 } else { NAMED }).fold(judgement, seen).alone()
}

/// The highest priority that a fix gives to an interrupt thread. 99 is left to the kernel's own threads, such as
/// migration/N, which stop a CPU (kernel/stop_machine.c).
const HIGHEST: u32 = 98;

/// Adds the commands that raise the interrupt threads `below` to `priority`. The application's threads `above`, which
/// have no priority left above them, are lowered first.
fn raised(
    judgement: Judgement,
    below: &[&Task],
    above: &[&Task],
    priority: u32,
    number: impl Fn(&Task) -> Option<u32>,
) -> Judgement {
    let of = |tasks: &[&Task], class: &str, priority: u32| -> String {
        let tids: Vec<String> = tasks.iter().map(|task| task.tid.to_string()).collect();
        format!("for p in {}; do chrt {class} -p {priority} $p; done", tids.join(" "))
    };
    let lowered = |judgement: Judgement, class: SchedClass, option: &str| {
        let tasks: Vec<&Task> = above.iter().copied().filter(|task| task.class == class).collect();
        match tasks.is_empty() {
            true => judgement,
            false => judgement.now(of(&tasks, option, priority - 1)),
        }
    };
    let judgement = lowered(judgement, SchedClass::Fifo, "-f");
    let judgement = lowered(judgement, SchedClass::RoundRobin, "-r");
    let numbers: Vec<String> = below.iter().filter_map(|task| Some(number(task)?.to_string())).collect();
    let judgement = judgement.now(of(below, "-f", priority)).for_good(format!(
        "tuned: [scheduler] group.irq=0:f:{priority}:*:^irq/({})- # the numbers can change at the next boot",
        numbers.join("|")
    ));
    match above.is_empty() {
        true => judgement,
        false => judgement.for_good(format!("start the application with priority {} at most", priority - 1)),
    }
}

fn user_space(facts: &Facts, _: &Context) -> Judged {
    let drivers = ["vfio-pci", "igb_uio", "uio_pci_generic"];
    let bound = known(&facts.pci.devices)?
        .iter()
        .filter(|device| device.driver.is(|driver| drivers.contains(&driver.as_str())) == Some(true))
        .count();
    if bound == 0 {
        return Err(Skip::not_applicable("no device is bound to a driver for user space"));
    }
    known(&facts.tasks)?;
    let is_threaded = |task: &&Task| {
        let rest = task.comm.strip_prefix("irq/").and_then(|rest| rest.split_once('-'));
        task.kernel
            && rest.is_some_and(|(_, user)| ["vfio", "igb_uio", "uio"].iter().any(|name| user.starts_with(name)))
    };
    let threads: Vec<&Task> = facts.tasks().filter(is_threaded).collect();
    match threads.first() {
        None => Judgement::pass(format!("{bound} devices are bound, and no interrupt thread serves them"))
            .see_as("no thread irq/N-vfio", facts.tasks.source()),
        Some(first) => Judgement::warn(format!("{} interrupt threads serve {bound} devices", threads.len()))
            .see_as(named(first), facts.tasks.source()),
    }
    .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::Facts;

    use super::*;
    use crate::rules::scheduling::samples::{fifo, kernel, put, task};
    use crate::testing::{Case, Host, host};

    /// Interface eth0 on node 1 with two queues at these CPUs; node 0 is CPUs 0-3.
    fn nic(first: &str, second: &str) -> Host {
        host()
            .nic("eth0")
            .file("/sys/devices/system/node/node0/cpulist", "0-3\n")
            .file("/sys/devices/system/node/node1/cpulist", "4-7\n")
            .file("/sys/class/net/eth0/operstate", "up\n")
            .file("/proc/irq/55/effective_affinity_list", first)
            .file("/proc/irq/56/effective_affinity_list", second)
            .file(
                "/proc/interrupts",
                "      CPU0 CPU1\n 55: 700 0 PCI-MSIX-0000:04:00.0 3-edge eth0-TxRx-0\n 56: 800 0 PCI-MSIX-0000:04:00.0 4-edge eth0-TxRx-1\n",
            )
            .edit(|facts| link(facts, |link| link.node = Fact::known(Some(1), "/sys/class/net/eth0/device/numa_node")))
    }

    /// Counts of two queues on CPUs 0 and 1.
    fn counted(first: (u64, u64), second: (u64, u64), kind: &str) -> String {
        let row = |irq: u32, (a, b): (u64, u64)| {
            format!(" {irq}: {a} {b} PCI-MSIX-0000:04:00.0 {irq}-edge eth0-{kind}-{}\n", irq - 55)
        };
        format!("      CPU0 CPU1\n{}{}", row(55, first), row(56, second))
    }

    fn link(facts: &mut Facts, edit: impl Fn(&mut Link)) {
        if let Fact::Known { value, .. } = &mut facts.links {
            value.iter_mut().for_each(edit);
        }
    }

    /// The same, and eth0 has no role.
    fn other(first: &str) -> Host {
        nic(first, first).isolated("2-7").edit(|facts| {
            link(facts, |link| link.pci = Fact::known("0000:04:00.0".into(), "/sys/class/net/eth0/device"));
        })
    }

    fn real_time(of_thread: u32, of_application: u32, facts: &mut Facts) {
        let own = fifo(task(9, "l1app", "3"), of_application);
        let disk = fifo(kernel(21, "irq/61-nvme0q3", "3"), 50);
        put(facts, vec![own, fifo(kernel(20, "irq/55-eth0-TxR", "3"), of_thread), disk]);
    }

    fn bound(facts: &mut Facts) {
        let device = host::facts::PciDevice {
            address: "0000:04:00.0".into(),
            driver: Fact::known("vfio-pci".into(), "/sys/bus/pci/devices"),
            ..Default::default()
        };
        facts.pci.devices = Fact::known(vec![device], "/sys/bus/pci/devices");
    }

    fn rt() -> Host {
        nic("3", "3").isolated("2-7").workload(Workload::Rt)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("irq.numa", || nic("4", "5")),
        Case::warn("irq.numa", || nic("4", "1")),
        Case::unknown("irq.numa", || host().nic("eth0")),
        Case::pass("irq.collision", || nic("4", "5")),
        Case::warn("irq.collision", || nic("1", "1").file("/proc/interrupts", &counted((0, 700), (0, 800), "TxRx"))),
        Case::pass("irq.collision", || nic("1", "1").file("/proc/interrupts", &counted((700, 0), (0, 800), "TxRx"))),
        Case::unknown("irq.collision", || host().nic("eth0")),
        Case::pass("irq.unused-nic", || other("0").nic("eth0")),
        Case::warn("irq.unused-nic", || {
            let mut host = other("3").nic("eth1");
            host.forget_nic("eth0");
            host
        }),
        Case::unknown("irq.unused-nic", || host().isolated("2-7").nic("eth0")),
        Case::pass("irq.thread-prio", || rt().edit(|f| real_time(52, 51, f))),
        Case::warn("irq.thread-prio", || rt().edit(|f| real_time(51, 51, f))),
        Case::warn("irq.thread-prio", || rt().edit(|f| real_time(50, 51, f))),
        Case::unknown("irq.thread-prio", rt),
        Case::pass("irq.uio-intr", || host().edit(bound).edit(|f| put(f, vec![]))),
        Case::warn("irq.uio-intr", || host().edit(bound).edit(|f| put(f, vec![kernel(20, "irq/55-vfio-msi", "3")]))),
        Case::unknown("irq.uio-intr", host),
    ];

    /// An application at 80 stays above threads at 51, and threads of other devices need no change.
    #[test]
    fn only_the_interfaces_threads_are_raised_and_above_the_application() {
        let fix = |edit: fn(&mut Facts)| {
            let judgement = rt().edit(edit).judge("irq.thread-prio").remove(0);
            (judgement.now, judgement.for_good[0].clone())
        };
        let (now, tuned) = fix(|facts| real_time(50, 80, facts));
        assert_eq!(now, ["for p in 20; do chrt -f -p 81 $p; done"]);
        assert!(tuned.starts_with("tuned: [scheduler] group.irq=0:f:81:*:^irq/(55)-"), "{tuned}");
        assert_eq!(fix(|facts| real_time(50, 97, facts)).0, ["for p in 20; do chrt -f -p 98 $p; done"]);
        // Above 98 and 99 nothing is left.
        for edit in [|facts: &mut Facts| real_time(50, 98, facts), |facts: &mut Facts| real_time(99, 99, facts)] {
            let lowered = ["for p in 9; do chrt -f -p 97 $p; done", "for p in 20; do chrt -f -p 98 $p; done"];
            assert_eq!(fix(edit).0, lowered);
        }
    }

    /// Live: 4419 interrupts since boot of a queue that came to CPU 0 late; its column there has 43.
    #[test]
    fn a_cpu_is_charged_what_its_column_says() {
        let moved = |column: u64| {
            let table = format!(
                "      CPU0 CPU1\n 55: 5000 0 PCI-MSIX-0000:04:00.0 3-edge eth0-TxRx-0\n 56: {column} 4376 PCI-MSIX-0000:04:00.0 4-edge eth0-TxRx-1\n"
            );
            nic("0", "0").file("/proc/interrupts", &table).judge("irq.collision").remove(0)
        };
        assert_eq!(moved(43).verdict, crate::Verdict::Pass);
        let shared = moved(4419);
        assert_eq!(shared.evidence[0].value, "CPU 0: eth0-TxRx-0 5000, eth0-TxRx-1 4419");
    }

    #[test]
    fn both_directions_of_a_queue_are_one_queue() {
        let verdict = |names: [&str; 2]| {
            let table = format!(
                "      CPU0 CPU1\n 55: 700 0 PCI-MSIX-0000:04:00.0 3-edge {}\n 56: 800 0 PCI-MSIX-0000:04:00.0 4-edge {}\n",
                names[0], names[1]
            );
            nic("0", "0").file("/proc/interrupts", &table).edit(by_names).judge("irq.collision").remove(0).verdict
        };
        assert_eq!(verdict(["eth0-rx-0", "eth0-tx-0"]), crate::Verdict::Pass);
        assert_eq!(verdict(["virtio0-input.0", "virtio0-output.0"]), crate::Verdict::Pass);
        assert_eq!(verdict(["eth0-rx-0", "eth0-tx-1"]), crate::Verdict::Warn);
        assert_eq!(verdict(["virtio0-input.0", "virtio0-output.1"]), crate::Verdict::Warn);
    }

    /// The link's device is the one of both interrupts, and no queue is known but by name.
    fn by_names(facts: &mut Facts) {
        link(facts, |link| {
            link.pci = Fact::known("0000:04:00.0".into(), "/sys/class/net/eth0/device");
            link.queue_irqs.clear();
        });
    }
}
