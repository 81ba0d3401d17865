//! Rules that compare loads with capacities.

use std::collections::BTreeMap;

use host::Facts;
use host::facts::{CpuSet, CpuTimes, Link, PciDevice};
use units::{BitRate, Nanos};

use super::formulas::{pcie_rate, percent};
use crate::{
    Applies, Cause, Context, Fix, Hit, HitKind, Judged, Judgement, Magnitude, Rule, Skip, Subject, hits, known,
};

const PLATFORM: &str = "DPDK Getting Started Guide for Linux, nic_perf_intel_platform";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "math.pcie-bw",
        cause: Cause::PcieBandwidth,
        title: "A card's slot carries the traffic of all its ports",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: slot,
        why: "All ports of a card share its PCI Express link. What the link carries is lanes x transfers, less the \
              line code, less 26 bytes for each packet of the transaction layer; descriptors and their write-back come \
              on top. A card in a slot that is too narrow drops frames in its own buffer, whatever the rings are.",
        magnitude: Magnitude::untimed(
            "x8 at 8 GT/s carries 52 Gbit/s in payloads of 128 bytes: two ports of 25 Gbit/s, and not one of 100",
            "PCI Express Base Specification 6.0, 2.2, 3.6 and 4.2; DPDK Getting Started Guide for Linux, nic_perf_intel_platform",
        ),
        fix: Fix::boot(
            "use another slot (lspci -vv shows LnkSta and LnkCap), or change bifurcation and link speed in the \
            firmware",
        ),
        cost: "The host is down while the card is moved, and slots are scarce.",
        references: &[PLATFORM, "PCI Express Base Specification 6.0"],
    },
    Rule {
        id: "math.hugepage-fit",
        cause: Cause::HugePages,
        title: "Huge pages in use are on the interfaces' node",
        applies: Applies::LINUX.with_nic(),
        judge: huge_pages,
        why: "Packet buffers that did not fit into the huge pages of the card's node were taken from another node. Each \
         cache line of each packet then crosses the link between the sockets, twice with DMA.",
        magnitude: Magnitude::slower(
            "60 to 100 ns per cache line on another node, and some of the link's bandwidth",
            "DPDK Getting Started Guide for Linux, nic_perf_intel_platform, names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::boot("reserve as many huge pages on the card's node as the application asks for: hugepages=0:4,1:16 gives node 1 \
         sixteen").after("grep . /sys/devices/system/node/node*/hugepages/hugepages-*/free_hugepages"),
        cost: "Nothing else can use this memory.",
        references: &[PLATFORM, "Linux Documentation/admin-guide/kernel-parameters.txt, hugepages="],
    },
    Rule {
        id: "math.hk-capacity",
        cause: Cause::Housekeeping,
        title: "The housekeeping CPUs can handle the work that isolation moves to them",
        applies: Applies::LINUX.isolated(),
        judge: housekeeping,
        why: "Work that is kept off the isolated CPUs runs on the housekeeping CPUs. They must be able to carry two \
         loads: their own, and the interrupts and softirqs that isolated CPUs still serve. Demand = busy time of \
         housekeeping CPUs + time of interrupts and softirqs on isolated ones; capacity = number of housekeeping CPUs \
         x the time. Near the capacity, interrupts, timers, RCU and the shell all wait.",
        magnitude: Magnitude::untimed(
            "waiting grows with 1 / (1 - load): three times the work's time at 70 %, ten times at 90 %",
            "M/M/1 queue; openshift/cluster-node-tuning-operator: \"reserved CPUs are not enough to handle networking interrupts\"",
        ),
        fix: Fix::for_good("isolate fewer CPUs, or give the interface fewer queues (ethtool -L)"),
        cost: "The application gets fewer CPUs.",
        references: &["openshift/cluster-node-tuning-operator", "Linux Documentation/admin-guide/cpu-isolation.rst"],
    },
    Rule {
        id: "math.isolation-leak-rank",
        cause: Cause::KernelWork,
        title: "Interruptions take less than 0.01 % of the isolated CPUs' time",
        applies: Applies::LINUX.isolated(),
        judge: leaks,
        why: "Each source of interruptions has a rate and a cost; their product says which to fix first. The costs are \
              typical values, so rely on the order of the sources rather than on the sum.",
        magnitude: Magnitude::untimed(
            "100 us per second are 0.01 %: one packet in ten thousand meets an interruption",
            "arithmetic; the costs of each class are in the table COSTS of the code, estimates",
        ),
        fix: Fix::look("apus irqs --cpu {isolated} --watch # then apply the fixes of irq.* and kthr.* for the first one"),
        cost: "The cost depends on the source of the interruptions.",
        references: &[
            "Intel P-state guide (637284-001US, 2021), appendix A",
            "Linux Documentation/admin-guide/cpu-isolation.rst",
        ],
    },
];

/// Limits on the load of the housekeeping CPUs, in percent of their capacity. The rule warns at `HIGH`, and fails at
/// `FULL`.
const HIGH: u64 = 70;
const FULL: u64 = 90;
/// Share of a CPU's time that interruptions may take, in parts per million: 100 us per second.
const ALLOWED_PPM: u64 = 100;
/// Maximum number of interrupt sources that a finding names.
const NAMED: usize = 3;
/// CPU time of one interruption, by kind; [`OTHER`] for all other kinds. These times are estimates; `apus probe`
/// measures them.
const COSTS: [(&str, Nanos); 11] = [
    ("NET_RX", Nanos::from_micros(50)),
    ("NET_TX", Nanos::from_micros(20)),
    ("BLOCK", Nanos::from_micros(20)),
    ("LOC", Nanos::from_micros(3)),
    ("TIMER", Nanos::from_micros(5)),
    ("SCHED", Nanos::from_micros(5)),
    ("RCU", Nanos::from_micros(5)),
    ("CAL", Nanos::from_micros(3)),
    ("TLB", Nanos::from_micros(3)),
    ("RES", Nanos::from_micros(2)),
    ("NMI", Nanos::from_micros(5)),
];
const OTHER: Nanos = Nanos::from_micros(5);

/// The part of a PCI address that all ports of a card share, such as `0000:3b:00` for `0000:3b:00.1`.
fn card(address: &str) -> &str {
    address.rsplit_once('.').map_or(address, |(card, _)| card)
}

fn slot(facts: &Facts, context: &Context) -> Judged {
    known(&facts.pci.devices)?;
    let links = known(&facts.links)?;
    let mut cards: BTreeMap<&str, (&PciDevice, Vec<&Link>)> = BTreeMap::new();
    for link in links {
        let Some(device) = link.pci.value().and_then(|address| facts.pci.device(address)) else { continue };
        // A virtual function does not have its own slot.
        if device.physical_function.is_none() {
            cards.entry(card(&device.address)).or_insert((device, Vec::new())).1.push(link);
        }
    }
    cards.retain(|_, (_, ports)| ports.iter().any(|port| context.nics.value.contains(&port.name)));
    if cards.is_empty() {
        return Err(Skip::unknown("no interface's PCI device is known"));
    }
    let one = |card: &str, device: &PciDevice, ports: &[&Link]| {
        let (lanes, speed) = (*known(&device.width)?, *known(&device.speed_mts)?);
        let payload = device.max_payload.get().unwrap_or(128);
        let carries = pcie_rate(lanes, speed, payload);
        // A port without a carrier has no rate, and carries no packets.
        let rates: Vec<u64> = ports.iter().filter_map(|port| port.speed.get()).map(BitRate::as_bps).collect();
        if rates.is_empty() {
            return Err(Skip::unknown("no port of the card reports its rate"));
        }
        let needs: u64 = rates.iter().sum();
        let giga = |bps: u64| format!("{}.{}", bps / 1_000_000_000, bps / 100_000_000 % 10);
        let found = format!(
            "its slot carries {} Gbit/s (x{lanes} at {speed} MT/s, payload {payload}), its {} ports with a link {} Gbit/s",
            giga(carries.as_bps()),
            rates.len(),
            giga(needs)
        );
        let subject = Subject::Device(card.to_owned());
        let judgement = match (needs > carries.as_bps(), needs > carries.as_bps() / 10 * 9) {
            (true, _) => Judgement::fail_for(subject, found),
            (false, true) => Judgement::warn_for(subject, format!("{found}; descriptors need additional bandwidth")),
            (false, false) => Judgement::pass_for(subject, found),
        };
        Ok(judgement.see(&device.width).see(&device.speed_mts).see(&device.max_payload))
    };
    let judged = cards.into_iter().map(|(card, (device, ports))| (card, one(card, device, &ports)));
    Ok(judged
        .map(|(card, judged)| judged.unwrap_or_else(|skip| Judgement::skipped(Subject::Device(card.to_owned()), skip)))
        .collect())
}

fn huge_pages(facts: &Facts, context: &Context) -> Judged {
    if facts.cpus.nodes.is_empty() {
        return Err(Skip::unknown("/sys/devices/system/node: no NUMA node is known"));
    }
    if facts.cpus.nodes.len() == 1 {
        return Err(Skip::not_applicable("the host has one NUMA node"));
    }
    known(&facts.links)?;
    let near: Vec<u32> = context.links(facts).filter_map(|link| link.node.get().flatten()).collect();
    if near.is_empty() {
        return Err(Skip::unknown("no interface reports its node"));
    }
    let (mut far_used, mut near_free, mut total) = (0_u64, 0_u64, 0_u64);
    let mut seen = Vec::new();
    for node in &facts.cpus.nodes {
        for pool in &node.huge_pages {
            let (all, free) = (*known(&pool.total)?, *known(&pool.free)?);
            let used = all.saturating_sub(free);
            total += all;
            if near.contains(&node.id) {
                near_free += free * pool.page_bytes;
            } else {
                far_used += used * pool.page_bytes;
            }
            if all > 0 {
                seen.push(format!("node {}: {used} of {all} pages of {} KiB in use", node.id, pool.page_bytes / 1024));
            }
        }
    }
    if total == 0 {
        return match facts.cpus.nodes.iter().any(|node| !node.huge_pages.is_empty()) {
            true => Err(Skip::not_applicable("the host has no huge pages")),
            false => Err(Skip::unknown("/sys/devices/system/node/node*/hugepages was not recorded")),
        };
    }
    let mib = |octets: u64| octets >> 20;
    let judgement = match (far_used, near_free) {
        (0, _) => Judgement::pass(format!("all huge pages in use are on the interfaces' nodes {near:?}")),
        (far, 0) => Judgement::warn(format!(
            "{} MiB are in use on other nodes, and none are free on the interfaces' nodes",
            mib(far)
        )),
        (far, free) => Judgement::warn(format!(
            "{} MiB are in use on other nodes, while {} MiB are free on the interfaces' nodes",
            mib(far),
            mib(free)
        )),
    };
    seen.into_iter()
        .fold(judgement, |judgement, line| judgement.see_as(line, "/sys/devices/system/node/node*/hugepages"))
        .alone()
}

/// The sum of all time counters of a CPU.
fn total(times: &CpuTimes) -> Nanos {
    // The time of guests is already included in user time (proc_stat(5)).
    times.user + times.nice + times.system + times.idle + times.iowait + times.irq + times.softirq + times.steal
}

fn housekeeping(facts: &Facts, context: &Context) -> Judged {
    let interval = facts.interval.value();
    let times = known(&interval.map_or(&facts.counters, |interval| &interval.change).cpu_times)?;
    let others = context.housekeeping(facts);
    let sum = |cpus: &CpuSet, of: fn(&CpuTimes) -> Nanos| -> u128 {
        cpus.iter().filter_map(|cpu| times.get(&cpu)).map(|times| u128::from(of(times).as_nanos())).sum()
    };
    let capacity = sum(&others, total);
    if capacity == 0 {
        return Err(Skip::unknown("the housekeeping CPUs have counted no time"));
    }
    let busy = sum(&others, |times| total(times).saturating_sub(times.idle + times.iowait));
    let moved = sum(&context.isolated.value, |times| times.irq + times.softirq);
    let (own, all) = (percent(busy, capacity), percent(busy + moved, capacity));
    let span = interval.map_or("since boot".to_owned(), |interval| format!("in {}", interval.length));
    let found = format!(
        "{} housekeeping CPUs were busy for {own} % of their time {span}, {all} % with the interrupts that isolated CPUs still serve",
        others.len()
    );
    match all {
        0..HIGH => Judgement::pass_for(&others, found),
        HIGH..FULL => Judgement::warn_for(&others, found),
        _ => Judgement::fail_for(&others, found),
    }
    .see_as(format!("{own} % and {} %", all - own), "/proc/stat")
    .alone()
}

/// The CPU time that one interruption takes.
fn cost(hit: &Hit) -> Nanos {
    COSTS.iter().find(|(label, _)| *label == hit.label).map_or(OTHER, |(_, cost)| *cost)
}

fn leaks(facts: &Facts, context: &Context) -> Judged {
    known(&facts.counters.interrupts)?;
    let isolated = &context.isolated.value;
    let hits = hits(facts, isolated).ok_or_else(|| Skip::unknown("the interrupts' counters are not known"))?;
    let Some(during) = hits.during else {
        return Err(Skip::unknown("the counters were read once only: rates are not known (--interval 5s)"));
    };
    let mut ranked: Vec<(Nanos, &Hit)> = hits.list.iter().map(|hit| (cost(hit) * hit.total, hit)).collect();
    ranked.sort_by_key(|(takes, _)| std::cmp::Reverse(*takes));
    let sum = ranked.iter().fold(Nanos::ZERO, |sum, (takes, _)| sum + *takes);
    // The worst CPU counts, because a mean over many CPUs would hide it.
    let mut of_cpus: BTreeMap<u32, Nanos> = isolated.iter().map(|cpu| (cpu, Nanos::ZERO)).collect();
    for hit in &hits.list {
        for (cpu, count) in &hit.counts {
            *of_cpus.entry(*cpu).or_default() += cost(hit) * *count;
        }
    }
    let Some((worst, cpu)) = of_cpus.into_iter().map(|(cpu, takes)| (takes, cpu)).max() else {
        return Err(Skip::not_applicable("no CPU is isolated"));
    };
    let ppm = u128::from(worst.as_nanos()) * 1_000_000 / u128::from(during.as_nanos().max(1));
    let found = format!(
        "interruptions took {sum} from all of them in {during}; CPU {cpu} lost the most, {worst} ({ppm} ppm of its \
         time)"
    );
    let judgement = match ppm <= u128::from(ALLOWED_PPM) {
        true => Judgement::pass_for(isolated, found),
        false => Judgement::warn_for(isolated, found),
    };
    let judgement = match ranked.first() {
        Some((_, first)) => judgement.takes(cost(first)),
        None => judgement.see_as("no interruption", "/proc/interrupts, /proc/softirqs"),
    };
    ranked
        .iter()
        .take(NAMED)
        .fold(judgement, |judgement, (takes, hit)| {
            let what = if hit.kind == HitKind::Device {
                format!("{} (IRQ {})", hit.name, hit.label)
            } else {
                hit.label.clone()
            };
            judgement.see_as(
                format!("{what}: {} times at {}, {takes}", hit.total, cost(hit)),
                "/proc/interrupts, /proc/softirqs",
            )
        })
        .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::{Facts, PciDevice};

    use super::*;
    use crate::testing::{Case, Host, host};

    /// A card with one port of 40 Gbit/s in a slot of so many lanes at 8 GT/s.
    fn lanes(facts: &mut Facts, lanes: u32) {
        let place = "/sys/bus/pci/devices/0000:3b:00.0";
        let device = PciDevice {
            address: "0000:3b:00.0".into(),
            width: Fact::known(lanes, place),
            speed_mts: Fact::known(8_000, place),
            max_payload: Fact::known(256, place),
            ..PciDevice::default()
        };
        facts.pci.devices = Fact::known(vec![device], "/sys/bus/pci/devices");
        let port = Link {
            name: "eth0".into(),
            pci: Fact::known("0000:3b:00.0".into(), "/sys/class/net/eth0/device"),
            speed: Fact::known(BitRate::new(40_000_000_000), "/sys/class/net/eth0/speed"),
            node: Fact::known(Some(1), "/sys/class/net/eth0/device/numa_node"),
            ..Link::default()
        };
        facts.links = Fact::known(vec![port], "/sys/class/net");
    }

    fn nic() -> Host {
        host().nic("eth0")
    }

    /// So many pages of nodes 0 and 1 are in use, of 8 each; the interface is on node 1.
    fn pages(free: [&str; 2]) -> Host {
        (0..2).fold(nic().edit(|f| lanes(f, 8)), |host, node| {
            let place = format!("/sys/devices/system/node/node{node}");
            let pool = format!("{place}/hugepages/hugepages-1048576kB");
            host.file(&format!("{place}/cpulist"), if node == 0 { "0-3\n" } else { "4-7\n" })
                .file(&format!("{pool}/nr_hugepages"), "8\n")
                .file(&format!("{pool}/free_hugepages"), free[node])
                .file(&format!("{pool}/surplus_hugepages"), "0\n")
        })
    }

    /// Two housekeeping CPUs, busy and idle for so many ticks each.
    fn load(busy: u64, idle: u64) -> Host {
        let one = |cpu: u32| format!("cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0\n");
        let text = format!("{}{}cpu2 900 0 0 0 0 5 5 0 0 0\nctxt 1\n", one(0), one(1));
        host().isolated("2-7").file("/proc/stat", &text)
    }

    fn counted(ticks: u64) -> Host {
        let table = |n: u64| format!("      CPU0 CPU1 CPU2 CPU3\nLOC: 5 5 1 {n} Local timer interrupts\n");
        host()
            .isolated("2-3")
            .file("/proc/interrupts", &table(1))
            .file("/again/proc/interrupts", &table(1 + ticks))
            .file("/proc/uptime", "100.00 1")
            .file("/again/proc/uptime", "110.00 1")
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("math.pcie-bw", || nic().edit(|f| lanes(f, 8))),
        Case::fail("math.pcie-bw", || nic().edit(|f| lanes(f, 4))),
        Case::warn("math.pcie-bw", || {
            nic().edit(|f| lanes(f, 8)).edit(|facts| {
                if let Fact::Known { value, .. } = &mut facts.links {
                    value[0].speed = Fact::known(BitRate::new(55_000_000_000), "/sys/class/net/eth0/speed");
                }
            })
        }),
        Case::unknown("math.pcie-bw", nic),
        Case::pass("math.hugepage-fit", || pages(["8\n", "2\n"])),
        Case::warn("math.hugepage-fit", || pages(["5\n", "0\n"])),
        Case::warn("math.hugepage-fit", || pages(["5\n", "8\n"])),
        Case::unknown("math.hugepage-fit", nic),
        Case::pass("math.hk-capacity", || load(300, 700)),
        Case::warn("math.hk-capacity", || load(750, 250)),
        Case::fail("math.hk-capacity", || load(950, 50)),
        Case::unknown("math.hk-capacity", || host().isolated("2-7")),
        Case::pass("math.isolation-leak-rank", || counted(10)),
        Case::warn("math.isolation-leak-rank", || counted(10_000)),
        Case::unknown("math.isolation-leak-rank", || host().isolated("2-3")),
    ];

    #[test]
    fn what_isolated_cpus_still_serve_is_added_to_the_load() {
        let judgement = load(690, 310).judge("math.hk-capacity").remove(0);
        assert!(judgement.found.contains("69 % of their time"), "{}", judgement.found);
        // 100 ms of interrupts on CPU 2 are half a percent of the 20 s of the two others.
        assert_eq!(judgement.verdict, crate::Verdict::Pass);
        let more = load(695, 305).judge("math.hk-capacity").remove(0);
        assert_eq!(more.verdict, crate::Verdict::Warn, "{}", more.found);
    }

    #[test]
    fn the_sources_are_ranked_by_rate_times_cost() {
        let judgement = counted(10_000).judge("math.isolation-leak-rank").remove(0);
        assert_eq!(judgement.evidence[0].value, "LOC: 10000 times at 3us, 30ms");
        assert!(judgement.found.contains("CPU 3 lost the most, 30ms (3000 ppm of its time)"), "{}", judgement.found);
    }
}
