//! The kernel's counters of a CPU and a thread, and which of them changed between two readings.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use tester::cpu::{ThreadCpu, Threads, sample};
use units::{Instant, Nanos};

use super::{Cause, Charge};
use crate::conditions::steal_ms;

/// `MSR_SMI_COUNT`: number of system management interrupts since reset. Intel SDM volume 4, table 2-21 and others.
const SMI_COUNT: u64 = 0x34;
/// Assumed maximum duration of one interrupt. `SOFTIRQ` is the maximum of a run of softirqs, which ends after two
/// jiffies or ten rounds (kernel/softirq.c, MAX_SOFTIRQ_TIME, MAX_SOFTIRQ_RESTART). Most end far earlier.
const INTERRUPT: Nanos = Nanos::from_micros(20);
const SOFTIRQ: Nanos = Nanos::from_millis(2);

/// The counters at one point in time. A counter that is not readable is left out, so it cannot be named as a cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Counters {
    /// Interrupt counts by the first word of their line in /proc/interrupts, with the rest of the line as the name.
    interrupts: BTreeMap<String, (String, u64)>,
    softirqs: BTreeMap<String, u64>,
    steal_ms: Option<u64>,
    smis: Option<u64>,
    thread: Option<ThreadCpu>,
}

impl Counters {
    /// Reads the counters of `cpu`, and of the thread `tid` of this process, below `root`.
    pub(super) fn read(root: &Path, cpu: usize, tid: Option<u32>) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let thread = tid.and_then(|tid| {
            let threads = Threads::These(vec![tid]);
            let found = sample(root, std::process::id(), &threads, Instant::ORIGIN).ok()?;
            found.threads.get(&tid).copied()
        });
        Self {
            interrupts: table(&text("proc/interrupts"), cpu),
            softirqs: table(&text("proc/softirqs"), cpu).into_iter().map(|(name, (_, n))| (name, n)).collect(),
            steal_ms: steal_ms(root, &[cpu]).ok(),
            smis: smis(root, cpu),
            thread,
        }
    }

    /// Reads only the counters that distinguish the hypervisor from the firmware. This is cheap, so it can be called
    /// often.
    pub(super) fn read_outside(root: &Path, cpu: usize) -> Self {
        Self {
            interrupts: BTreeMap::new(),
            softirqs: BTreeMap::new(),
            steal_ms: steal_ms(root, &[cpu]).ok(),
            smis: smis(root, cpu),
            thread: None,
        }
    }

    /// The firmware or the hypervisor as the cause, if its counter increased between these readings and `later`.
    pub(super) fn outside(&self, later: &Self) -> Option<Cause> {
        let moved = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| b > a);
        if moved(self.smis, later.smis) {
            return Some(Cause::Smi);
        }
        moved(self.steal_ms, later.steal_ms).then_some(Cause::Steal)
    }

    /// The likely cause if the thread was off the CPU for `length` between these readings and `later`, and all counters
    /// that increased. `usual` contains the increases in quiet times.
    pub(super) fn likely(&self, later: &Self, usual: &Usual, length: Nanos) -> (Cause, Vec<Charge>) {
        let mut moved: Vec<(Cause, u64, Nanos)> = Vec::new();
        for (line, (name, after)) in &later.interrupts {
            let before = self.interrupts.get(line).map_or(0, |(_, n)| *n);
            let n = after.saturating_sub(before);
            let cause = match line.parse() {
                Ok(irq) => Cause::Interrupt { irq, name: device(name) },
                Err(_) if line == "NMI" => Cause::Nmi,
                Err(_) => Cause::Vector { name: vector(line, name) },
            };
            moved.push((cause, n, INTERRUPT * n.saturating_sub(usual.of(line))));
        }
        for (name, after) in &later.softirqs {
            let n = after.saturating_sub(self.softirqs.get(name).copied().unwrap_or(0));
            let excess = n.saturating_sub(usual.of(name));
            moved.push((Cause::Softirq { name: name.clone() }, n, SOFTIRQ * excess));
        }
        let thread = self.thread.zip(later.thread);
        let delay = thread
            .map(|(a, b)| (b.run_delay.saturating_sub(a.run_delay), b.involuntary_switches - a.involuntary_switches));
        if let Some((delay, switches)) = delay {
            moved.push((
                Cause::Thread { name: "?".into(), pid: None },
                switches.max(u64::from(delay > Nanos::ZERO)),
                Nanos::ZERO,
            ));
        }
        let outside = self.outside(later);
        let charges = |moved: &[(Cause, u64, Nanos)]| {
            let there = moved.iter().filter(|(_, n, _)| *n > 0);
            let mut all: Vec<Charge> =
                there.map(|(cause, n, _)| Charge { cause: cause.clone(), ns: 0, times: *n }).collect();
            all.sort_by_key(|charge| std::cmp::Reverse(charge.times));
            all
        };
        let all = charges(&moved);
        // The time for which a thread was ready but did not run is exact, so no other counter is needed.
        if delay.is_some_and(|(delay, _)| delay * 2 >= length) {
            return (Cause::Thread { name: "?".into(), pid: None }, all);
        }
        if let Some(outside) = outside {
            return (outside, all);
        }
        let most = moved.into_iter().max_by_key(|(_, _, could)| *could);
        match most {
            Some((cause, _, could)) if could * 2 >= length => (cause, all),
            _ => (Cause::Unaccounted, all),
        }
    }

    /// By how much the counters increased until `later`, by the name of their line.
    pub(super) fn moved(&self, later: &Self) -> BTreeMap<String, u64> {
        let interrupts = later
            .interrupts
            .iter()
            .map(|(line, (_, n))| (line.clone(), n.saturating_sub(self.interrupts.get(line).map_or(0, |(_, n)| *n))));
        let softirqs = later
            .softirqs
            .iter()
            .map(|(name, n)| (name.clone(), n.saturating_sub(self.softirqs.get(name).copied().unwrap_or(0))));
        interrupts.chain(softirqs).collect()
    }
}

/// The increases in quiet times: for each counter, the largest increase between two readings with nothing to explain.
#[derive(Clone, Default, Debug)]
pub(super) struct Usual(BTreeMap<String, u64>);

impl Usual {
    /// Learns from the increases in a time span in which there was nothing to explain.
    pub(super) fn learn(&mut self, moved: BTreeMap<String, u64>) {
        for (line, n) in moved {
            let most = self.0.entry(line).or_default();
            *most = (*most).max(n);
        }
    }

    fn of(&self, line: &str) -> u64 {
        self.0.get(line).copied().unwrap_or(0)
    }
}

/// The column of `cpu` in /proc/interrupts or /proc/softirqs. Maps the name of each line to the text after the columns
/// and the count. Columns are found by their heading, because offline CPUs have no column.
fn table(text: &str, cpu: usize) -> BTreeMap<String, (String, u64)> {
    let mut lines = text.lines();
    let heading: Vec<&str> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
    let Some(column) = heading.iter().position(|name| *name == format!("CPU{cpu}")) else { return BTreeMap::new() };
    let row = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let count = words.get(column)?.parse().ok()?;
        let after = words.get(heading.len()..).unwrap_or_default().join(" ");
        Some((name.trim().to_owned(), (after, count)))
    };
    lines.filter_map(row).collect()
}

/// The name of a device interrupt: the last word after the counts.
fn device(rest: &str) -> String {
    rest.split_ascii_whitespace().last().unwrap_or("?").to_owned()
}

/// The tracepoint names of lines in /proc/interrupts (arch/x86/kernel/irq.c, arch_show_interrupts).
fn vector(line: &str, rest: &str) -> String {
    match line {
        "LOC" => "local_timer".into(),
        "RES" => "reschedule".into(),
        "CAL" => "call_function".into(),
        "TRM" => "thermal_apic".into(),
        "IWI" => "irq_work".into(),
        _ if rest.is_empty() => line.to_owned(),
        _ => rest.to_owned(),
    }
}

fn smis(root: &Path, cpu: usize) -> Option<u64> {
    let mut value = [0; 8];
    let file = fs::File::open(root.join(format!("dev/cpu/{cpu}/msr"))).ok()?;
    file.read_exact_at(&mut value, SMI_COUNT).ok()?;
    Some(u64::from_le_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU2       \n \
         36:        100        200 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
         LOC:       1000       2000   Local timer interrupts\n\
         CAL:          5          6   Function call interrupts\n\
         ERR:          0\n";

    fn root(name: &str, interrupts: &str, net_rx: u64, steal: u64, smi: u64) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("apus-counters-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("proc")).unwrap();
        fs::create_dir_all(root.join("dev/cpu/2")).unwrap();
        fs::write(root.join("proc/interrupts"), interrupts).unwrap();
        let softirqs = format!("        CPU0       CPU2\n  TIMER:    1     2\n NET_RX:    7    {net_rx}\n");
        fs::write(root.join("proc/softirqs"), softirqs).unwrap();
        fs::write(root.join("proc/stat"), format!("cpu2 0 0 0 0 0 0 0 {steal} 0 0\n")).unwrap();
        let mut msr = vec![0; 0x34];
        msr.extend(smi.to_le_bytes());
        fs::write(root.join("dev/cpu/2/msr"), msr).unwrap();
        root
    }

    fn after(name: &str, interrupts: &str, net_rx: u64, steal: u64, smi: u64) -> (Counters, Counters) {
        let folder = root(name, INTERRUPTS, 10, 3, 40);
        let before = Counters::read(&folder, 2, None);
        root(name, interrupts, net_rx, steal, smi);
        let later = Counters::read(&folder, 2, None);
        fs::remove_dir_all(folder).unwrap();
        (before, later)
    }

    #[test]
    fn the_column_of_the_cpu_is_read() {
        let found = table(INTERRUPTS, 2);
        assert_eq!(found["36"], ("PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0".into(), 200));
        assert_eq!(found["LOC"].1, 2000);
        assert!(!found.contains_key("ERR"), "a line without a column for the CPU");
        assert!(table(INTERRUPTS, 1).is_empty(), "an offline CPU has no column");
    }

    #[test]
    fn what_moved_most_is_likely() {
        let gap = Nanos::from_millis(2);
        let usual = Usual::default();
        let (before, later) = after("net", INTERRUPTS, 14, 3, 40);
        let (cause, charges) = before.likely(&later, &usual, gap);
        assert_eq!(cause, Cause::Softirq { name: "NET_RX".into() });
        assert_eq!(charges, [Charge { cause, ns: 0, times: 4 }]);
        let many = INTERRUPTS.replace("         6 ", "       906 ");
        let (before, later) = after("ipi", &many, 10, 3, 40);
        assert_eq!(before.likely(&later, &usual, gap).0, Cause::Vector { name: "call_function".into() });
        // A single tick cannot explain two milliseconds.
        let tick = INTERRUPTS.replace("2000", "2001");
        let (before, later) = after("tick", &tick, 10, 3, 40);
        assert_eq!(before.likely(&later, &usual, gap).0, Cause::Unaccounted);
    }

    #[test]
    fn steal_and_smi_are_told_apart() {
        let gap = Nanos::from_millis(2);
        let (before, later) = after("steal", INTERRUPTS, 10, 4, 40);
        assert_eq!(before.likely(&later, &Usual::default(), gap).0, Cause::Steal);
        let (before, later) = after("smi", INTERRUPTS, 10, 3, 41);
        assert_eq!(before.outside(&later), Some(Cause::Smi));
    }

    #[test]
    fn what_is_usual_is_no_cause() {
        let (before, later) = after("usual", INTERRUPTS, 14, 3, 40);
        let mut usual = Usual::default();
        usual.learn(before.moved(&later));
        assert_eq!(before.likely(&later, &usual, Nanos::from_millis(2)).0, Cause::Unaccounted);
    }

    #[test]
    fn nothing_to_read_is_no_cause() {
        let nothing = Counters::read(Path::new("/nonexistent"), 0, Some(1));
        assert_eq!(nothing.likely(&nothing, &Usual::default(), Nanos::from_millis(1)), (Cause::Unaccounted, vec![]));
    }
}
