//! Differences between two readings of counters.

use std::collections::BTreeMap;

use units::Nanos;

use super::{CountRow, CountTable, Counters, CpuTimes, Fact, IdleCounts, Softnet, TaskCounts, Throttles};

impl Counters {
    /// The increase of each counter since an earlier reading. A counter is left out if only one reading contains it, or
    /// if its value decreased (a reset, or a CPU that was removed and added again).
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            interrupts: both(&self.interrupts, &earlier.interrupts, |a, b| a.since(b)),
            softirqs: both(&self.softirqs, &earlier.softirqs, |a, b| a.since(b)),
            cpu_times: both(&self.cpu_times, &earlier.cpu_times, each),
            context_switches: number(&self.context_switches, &earlier.context_switches),
            softnet: both(&self.softnet, &earlier.softnet, each),
            snmp: both(&self.snmp, &earlier.snmp, each),
            idle: each(&self.idle, &earlier.idle),
            throttles: each(&self.throttles, &earlier.throttles),
            smis: both(&self.smis, &earlier.smis, each),
            links: each(&self.links, &earlier.links),
            tasks: each(&self.tasks, &earlier.tasks),
            vmstat: both(&self.vmstat, &earlier.vmstat, each),
            corrected_errors: number(&self.corrected_errors, &earlier.corrected_errors),
        }
    }
}

impl CountTable {
    /// The difference per row and CPU. CPUs that only one table contains are left out. Rows with a label that occurs
    /// twice, as in a damaged recording, are left out too.
    pub fn since(&self, earlier: &Self) -> Self {
        let columns: Vec<(usize, usize)> = self
            .cpus
            .iter()
            .enumerate()
            .filter_map(|(now, cpu)| Some((now, earlier.cpus.binary_search(cpu).ok()?)))
            .collect();
        let (rows_then, rows_now) = (earlier.by_label(), self.by_label());
        let row = |now: &CountRow| {
            rows_now.get(&*now.label)?;
            let then = rows_then.get(&*now.label).filter(|then| then.description == now.description)?;
            let counts: Option<Box<[u64]>> = match (now.counts.len(), then.counts.len()) {
                (a, b) if a == self.cpus.len() && b == earlier.cpus.len() => {
                    columns.iter().map(|(a, b)| now.counts[*a].checked_sub(then.counts[*b])).collect()
                }
                (1, 1) => now.counts[0].checked_sub(then.counts[0]).map(|n| [n].into()),
                _ => None,
            };
            Some(CountRow { label: now.label.clone(), description: now.description.clone(), counts: counts? })
        };
        Self {
            cpus: columns.iter().map(|(now, _)| self.cpus[*now]).collect(),
            rows: self.rows.iter().filter_map(row).collect(),
        }
    }

    /// The rows with a unique label.
    fn by_label(&self) -> BTreeMap<&str, &CountRow> {
        let mut rows: BTreeMap<&str, Option<&CountRow>> = BTreeMap::new();
        for row in &self.rows {
            rows.entry(&row.label).and_modify(|known| *known = None).or_insert(Some(row));
        }
        rows.into_iter().filter_map(|(label, row)| Some((label, row?))).collect()
    }
}

/// A value that can be subtracted from a later one. There is no difference if the value decreased.
trait Change: Sized {
    fn change(&self, earlier: &Self) -> Option<Self>;
}

impl Change for u64 {
    fn change(&self, earlier: &Self) -> Option<Self> {
        self.checked_sub(*earlier)
    }
}

impl Change for Nanos {
    fn change(&self, earlier: &Self) -> Option<Self> {
        self.checked_sub(*earlier)
    }
}

impl<T: Change> Change for Option<T> {
    fn change(&self, earlier: &Self) -> Option<Self> {
        match (self, earlier) {
            (Some(now), Some(then)) => now.change(then).map(Some),
            _ => Some(None),
        }
    }
}

impl<K: Ord + Clone, T: Change> Change for BTreeMap<K, T> {
    fn change(&self, earlier: &Self) -> Option<Self> {
        Some(each(self, earlier))
    }
}

/// The difference of a record is the difference of each of its fields.
macro_rules! by_field {
    ($type:ident: $($field:ident),+) => {
        impl Change for $type {
            fn change(&self, earlier: &Self) -> Option<Self> {
                Some(Self { $($field: self.$field.change(&earlier.$field)?),+ })
            }
        }
    };
}

by_field!(Softnet: processed, dropped, squeezed, received_rps);
by_field!(IdleCounts: usage, time_us, above, below, rejected);
by_field!(Throttles: core, package);
by_field!(TaskCounts: user, system, major_faults, minor_faults, voluntary_switches, involuntary_switches);

impl Change for CpuTimes {
    /// Idle time and I/O wait time sometimes decrease a little (proc_stat(5)). Then the difference is 0.
    fn change(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            user: self.user.change(&earlier.user)?,
            nice: self.nice.change(&earlier.nice)?,
            system: self.system.change(&earlier.system)?,
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.change(&earlier.irq)?,
            softirq: self.softirq.change(&earlier.softirq)?,
            steal: self.steal.saturating_sub(earlier.steal),
            guest: self.guest.change(&earlier.guest)?,
            guest_nice: self.guest_nice.change(&earlier.guest_nice)?,
        })
    }
}

fn each<K: Ord + Clone, T: Change>(now: &BTreeMap<K, T>, then: &BTreeMap<K, T>) -> BTreeMap<K, T> {
    now.iter().filter_map(|(key, value)| Some((key.clone(), value.change(then.get(key)?)?))).collect()
}

fn both<T, U>(now: &Fact<T>, then: &Fact<T>, change: impl FnOnce(&T, &T) -> U) -> Fact<U> {
    now.as_ref().zip(then.as_ref()).map(|(now, then)| change(now, then))
}

fn number(now: &Fact<u64>, then: &Fact<u64>) -> Fact<u64> {
    now.as_ref().zip(then.as_ref()).parse(|(now, then)| now.checked_sub(*then).ok_or("the count went backwards"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cpus: &[u32], rows: &[(&str, &[u64])]) -> CountTable {
        let row = |(label, counts): &(&str, &[u64])| CountRow {
            label: (*label).into(),
            description: "x".into(),
            counts: (*counts).into(),
        };
        CountTable { cpus: cpus.to_vec(), rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn rows_and_cpus_of_both_readings_count() {
        let then = table(&[0, 1, 2], &[("5", &[1, 2, 3]), ("6", &[9, 9, 9]), ("ERR", &[4])]);
        let now = table(&[0, 2, 3], &[("5", &[4, 5, 6]), ("6", &[1, 1, 1]), ("ERR", &[5]), ("7", &[1, 1, 1])]);
        let change = now.since(&then);
        assert_eq!(change, table(&[0, 2], &[("5", &[3, 2]), ("ERR", &[1])]));
    }

    #[test]
    fn a_label_that_is_there_twice_names_no_row() {
        let twice = table(&[0], &[("5", &[1]), ("5", &[7]), ("6", &[2])]);
        assert_eq!(twice.since(&twice), table(&[0], &[("6", &[0])]));
    }

    #[test]
    fn what_went_backwards_is_left_out() {
        let counts = |usage| IdleCounts { usage, ..IdleCounts::default() };
        let then = Counters { idle: BTreeMap::from([((0, 1), counts(5)), ((1, 1), counts(5))]), ..Counters::default() };
        let now = Counters { idle: BTreeMap::from([((0, 1), counts(9)), ((1, 1), counts(2))]), ..Counters::default() };
        assert_eq!(now.since(&then).idle, BTreeMap::from([((0, 1), counts(4))]));
        assert!(now.since(&then).interrupts.is_unknown());
    }
}
