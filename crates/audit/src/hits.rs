//! The interrupts and softirqs that occurred on a set of CPUs, with their counts.

use host::Facts;
use host::facts::{CountRow, CountTable, CpuSet};
use units::Nanos;

/// One interrupt or softirq, with the number of times that it occurred on each CPU of a set.
#[derive(Clone, PartialEq, Debug)]
pub struct Hit {
    /// Label of the row in /proc/interrupts or /proc/softirqs, for example `55`, `LOC` or `NET_RX`.
    pub label: String,
    /// Human-readable name of the source, such as `ens1f0-TxRx-3` or `Local timer interrupts`.
    pub name: String,
    /// The kind of interruption.
    pub kind: HitKind,
    /// Number of interruptions by CPU number. CPUs without interruptions are left out.
    pub counts: Vec<(u32, u64)>,
    /// Total number of interruptions on all CPUs of the set.
    pub total: u64,
}

units::named! {
    /// The kind of an interruption.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum HitKind {
        /// An interrupt of a device.
        Device = "device",
        /// An interrupt that no device sends: local timer, inter-processor interrupt, or hardware error.
        Cpu = "cpu",
        /// A softirq: work that an interrupt handler deferred.
        Softirq = "softirq",
    }
}

/// All interrupts and softirqs that interrupted a set of CPUs, and the time over which they were counted.
#[derive(Clone, PartialEq, Debug)]
pub struct Hits {
    /// The interrupts and softirqs, the most frequent first.
    pub list: Vec<Hit>,
    /// Length of the interval in which interruptions were counted. `None` if they were counted since boot.
    pub during: Option<Nanos>,
}

/// Counts what interrupted a set of CPUs: between the two readings if `facts` has two, otherwise since boot. `None` if
/// the interrupts of the host are not known.
pub fn hits(facts: &Facts, cpus: &CpuSet) -> Option<Hits> {
    let interval = facts.interval.value().filter(|interval| interval.length > Nanos::ZERO);
    let counters = interval.map_or(&facts.counters, |interval| &interval.change);
    let mut list = rows(counters.interrupts.value()?, cpus, facts, false);
    if let Some(softirqs) = counters.softirqs.value() {
        list.extend(rows(softirqs, cpus, facts, true));
    }
    list.sort_by(|a, b| (b.total, a.kind, &a.label).cmp(&(a.total, b.kind, &b.label)));
    Some(Hits { list, during: interval.map(|interval| interval.length) })
}

fn rows(table: &CountTable, cpus: &CpuSet, facts: &Facts, softirq: bool) -> Vec<Hit> {
    let one = |row: &CountRow| {
        if row.counts.len() != table.cpus.len() {
            return None;
        }
        let pairs = table.cpus.iter().zip(&row.counts).map(|(cpu, count)| (*cpu, *count));
        let counts: Vec<(u32, u64)> = pairs.filter(|(cpu, count)| *count > 0 && cpus.contains(*cpu)).collect();
        let total = counts.iter().map(|(_, count)| count).sum();
        let (kind, name) = match (softirq, row.irq()) {
            (true, _) => (HitKind::Softirq, row.label.to_string()),
            (false, Some(number)) => {
                let known = facts.irqs.irq(number).map(host::facts::Irq::name);
                (HitKind::Device, known.unwrap_or_else(|| users(&row.description)))
            }
            (false, None) => (HitKind::Cpu, row.description.to_string()),
        };
        (total > 0).then(|| Hit { label: row.label.to_string(), name, kind, counts, total })
    };
    table.rows.iter().filter_map(one).collect()
}

/// The users of an interrupt: what follows the interrupt's chip and trigger in its line of /proc/interrupts.
fn users(description: &str) -> String {
    let triggers = ["edge", "level", "fasteoi", "Edge", "Level"];
    let mut words = description.split_whitespace();
    let has_trigger = words.any(|word| triggers.iter().any(|trigger| word.ends_with(trigger)));
    let rest: Vec<&str> = words.collect();
    if has_trigger && !rest.is_empty() { rest.join(" ") } else { description.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;

    #[test]
    fn the_most_frequent_first_and_only_these_cpus() {
        let facts = host()
            .file(
                "/proc/interrupts",
                "           CPU0       CPU1       CPU2\n 55:   5   0   9   PCI-MSIX-0000:04:00.0   3-edge   eth0-TxRx-3\n\
                 LOC:   100   20   30   Local timer interrupts\nERR:          7\n",
            )
            .facts();
        let hits = hits(&facts, &"1-2".parse().unwrap()).unwrap();
        assert_eq!(hits.during, None);
        let seen: Vec<(&str, u64)> = hits.list.iter().map(|hit| (hit.label.as_str(), hit.total)).collect();
        assert_eq!(seen, [("LOC", 50), ("55", 9)]);
        assert_eq!(hits.list[1].name, "eth0-TxRx-3");
        assert_eq!(hits.list[0].counts, [(1, 20), (2, 30)]);
        assert_eq!(super::hits(&Facts::default(), &CpuSet::below(1)), None);
    }
}
