//! Reads all counters at one time, and computes the differences between two readings.

use std::collections::BTreeMap;

use units::Nanos;

use super::links::statistics;
use super::{memory, tables, tasks};
use crate::facts::{
    Context, Counters, CpuSet, CpuTimes, Fact, IdleCounts, Interval, Root, Softirqs, Softnet, Source, Task, Throttles,
    live, msr,
};

/// The counters of `/proc/vmstat` that rules use.
const VMSTAT: [&str; 12] = [
    "compact_stall",
    "numa_hint_faults",
    "numa_pages_migrated",
    "oom_kill",
    "pgmajfault",
    "pgmigrate_success",
    "pswpin",
    "pswpout",
    "thp_collapse_alloc",
    "thp_fault_alloc",
    "thp_split_page",
    "zone_reclaim_failed",
];
/// Address of the register MSR_SMI_COUNT (Intel 64 and IA-32 Software Developer's Manual, volume 4).
const SMI_COUNT: u32 = 0x34;

/// One reading of all counters.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Time since boot.
    pub at: Fact<Nanos>,
    pub counters: Counters,
    pub tasks: Fact<Vec<Task>>,
}

/// Takes the first reading of the counters if `place` is empty, or the second one if it is `again/`.
pub(super) fn read(context: &Context, cpus: &CpuSet, place: &str) -> Sample {
    let root = context.root;
    let at = root.text(&format!("{place}proc/uptime")).parse(|text| uptime(&text));
    let stat = root.text_up_to(&format!("{place}proc/stat"), crate::facts::root::TABLE_LIMIT);
    let both = tasks::read(context, place);
    let (tasks, by_thread) = match both {
        Fact::Known { value, source } => {
            let counts = value.iter().map(|(task, counts)| (task.tid, *counts)).collect();
            (Fact::known(value.into_iter().map(|(task, _)| task).collect(), source), counts)
        }
        Fact::Missing { why, source } => (Fact::missing(why, source), BTreeMap::new()),
    };
    let mut counters = Counters {
        interrupts: tables::interrupts(root, place),
        softirqs: tables::softirqs(root, place),
        cpu_times: stat.clone().parse(|text| cpu_times(&text)),
        context_switches: stat.parse(|text| context_switches(&text)),
        softnet: root.text(&format!("{place}proc/net/softnet_stat")).parse(|text| softnet(&text)),
        snmp: snmp(root, place),
        smis: smis(context, cpus, place),
        links: statistics(context, place),
        tasks: by_thread,
        vmstat: root.text(&format!("{place}proc/vmstat")).map(|text| vmstat(&text)),
        corrected_errors: memory::corrected_errors(root, place),
        ..Counters::default()
    };
    for cpu in cpus.iter() {
        of_cpu(root, place, cpu, &mut counters);
    }
    Sample { at, counters, tasks }
}

impl Softirqs {
    /// Reads the time in softirqs and the number of NET_RX runs of each online CPU. Reads only two files, so it can be
    /// called every second.
    pub fn read(root: &Root) -> Fact<BTreeMap<u32, Self>> {
        let counts = tables::softirqs(root, "").into_value();
        let net_rx = |cpu| {
            let counts = counts.as_ref()?;
            counts.on(counts.row("NET_RX")?, cpu)
        };
        let stat = root.text_up_to("proc/stat", crate::facts::root::TABLE_LIMIT);
        stat.parse(|text| cpu_times(&text)).map(|times| {
            times.into_iter().map(|(cpu, times)| (cpu, Self { time: times.softirq, net_rx: net_rx(cpu) })).collect()
        })
    }
}

/// Reads the idle state and throttling counters of one CPU into `counters`.
fn of_cpu(root: &Root, place: &str, cpu: u32, counters: &mut Counters) {
    let cpu_place = format!("{place}sys/devices/system/cpu/cpu{cpu}");
    let names = root.list(&format!("{cpu_place}/cpuidle")).into_value().unwrap_or_default();
    for state in names.iter().filter_map(|name| name.strip_prefix("state")?.parse::<u32>().ok()).take(32) {
        let number = |name: &str| root.number::<u64>(&format!("{cpu_place}/cpuidle/state{state}/{name}")).get();
        if let Some(usage) = number("usage") {
            let counts = IdleCounts {
                usage,
                time_us: number("time").unwrap_or(0),
                above: number("above").unwrap_or(0),
                below: number("below").unwrap_or(0),
                rejected: number("rejected").unwrap_or(0),
            };
            counters.idle.insert((cpu, state), counts);
        }
    }
    let throttle = |name: &str| root.number::<u64>(&format!("{cpu_place}/thermal_throttle/{name}")).get();
    if let Some(core) = throttle("core_throttle_count") {
        let package = throttle("package_throttle_count").unwrap_or(0);
        counters.throttles.insert(cpu, Throttles { core, package });
    }
}

fn smis(context: &Context, cpus: &CpuSet, place: &str) -> Fact<BTreeMap<u32, u64>> {
    let name = msr::source(SMI_COUNT);
    if context.is_live() {
        return match context.reading.msrs {
            true => live::msr(SMI_COUNT, cpus),
            false => Fact::missing(crate::facts::Why::NotAsked, name.as_str()),
        };
    }
    context.root.text(&format!("{place}msr/0x34")).parse(|text| super::msrs::parse(&text)).named(name.as_str())
}

/// Parses `/proc/uptime`, such as `35043.67 69911.02`: the first number is the time since boot in seconds.
fn uptime(text: &str) -> Result<Nanos, String> {
    let error = || format!("{text:?} is no time since boot");
    let first = text.split_ascii_whitespace().next().ok_or_else(error)?;
    let (seconds, part) = first.split_once('.').unwrap_or((first, "0"));
    let part: u64 = format!("{part:0<9}").get(..9).and_then(|part| part.parse().ok()).ok_or_else(error)?;
    let seconds: u64 = seconds.parse().ok().filter(|seconds| *seconds < 1 << 33).ok_or_else(error)?;
    Ok(Nanos::from_nanos(seconds * 1_000_000_000 + part))
}

/// Parses lines of `/proc/stat`: `cpu3 user nice system idle iowait irq softirq steal guest guest_nice` (proc_stat(5)).
pub(crate) fn cpu_times(text: &str) -> Result<BTreeMap<u32, CpuTimes>, String> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu: u32 = words.next()?.parse().ok()?;
        let mut ticks = || {
            let ticks = words.next().map_or(Some(0), |word| word.parse::<u64>().ok())?;
            Some(Nanos::from_nanos(ticks.saturating_mul(tasks::TICK.as_nanos())))
        };
        let times = CpuTimes {
            user: ticks()?,
            nice: ticks()?,
            system: ticks()?,
            idle: ticks()?,
            iowait: ticks()?,
            irq: ticks()?,
            softirq: ticks()?,
            steal: ticks()?,
            guest: ticks()?,
            guest_nice: ticks()?,
        };
        Some((cpu, times))
    };
    // Skips the first line, the sum of all CPUs, which has a space instead of a CPU number.
    let lines = text.lines().filter(|line| line.as_bytes().get(3).is_some_and(u8::is_ascii_digit));
    let times: BTreeMap<u32, CpuTimes> = lines.filter_map(line).collect();
    if times.is_empty() { Err("it names no CPU".into()) } else { Ok(times) }
}

fn context_switches(text: &str) -> Result<u64, String> {
    let line = text.lines().find_map(|line| line.strip_prefix("ctxt "));
    line.and_then(|number| number.trim().parse().ok()).ok_or_else(|| "no line ctxt".into())
}

/// Parses hexadecimal columns (net/core/net-procfs.c, `softnet_seq_show`): 0 packets, 1 dropped, 2 squeezed, 9 received
/// through RPS; 12, if present, is the CPU's number. Without column 12, the index of the line is the CPU's number.
pub(crate) fn softnet(text: &str) -> Result<BTreeMap<u32, Softnet>, String> {
    let line = |(index, line): (usize, &str)| {
        let words: Vec<u64> = line
            .split_ascii_whitespace()
            .map(|word| u64::from_str_radix(word, 16))
            .collect::<Result<_, _>>()
            .map_err(|_| format!("{line:?} is not hexadecimal"))?;
        let word = |at: usize| words.get(at).copied();
        let short = || format!("{line:?} is too short");
        let row = Softnet {
            processed: word(0).ok_or_else(short)?,
            dropped: word(1).ok_or_else(short)?,
            squeezed: word(2).ok_or_else(short)?,
            received_rps: word(9).unwrap_or(0),
        };
        let cpu = word(12).and_then(|cpu| u32::try_from(cpu).ok()).unwrap_or(index as u32);
        Ok((cpu, row))
    };
    text.lines().filter(|line| !line.trim().is_empty()).enumerate().map(line).collect()
}

/// Reads `/proc/net/snmp` and `/proc/net/netstat`. They consist of pairs of lines: one with names
/// (`Udp: InDatagrams NoPorts …`), one with values (`Udp: 12 0 …`).
fn snmp(root: &Root, place: &str) -> Fact<BTreeMap<String, u64>> {
    let first = root.text(&format!("{place}proc/net/snmp"));
    let second = root.text(&format!("{place}proc/net/netstat"));
    first.map(|text| {
        let mut all = pairs(&text);
        all.extend(second.value().map(|text| pairs(text)).unwrap_or_default());
        all
    })
}

pub(crate) fn pairs(text: &str) -> BTreeMap<String, u64> {
    let lines: Vec<&str> = text.lines().collect();
    let mut all = BTreeMap::new();
    for pair in lines.chunks_exact(2) {
        let (Some((group, names)), Some((other, values))) = (pair[0].split_once(':'), pair[1].split_once(':')) else {
            continue;
        };
        if group != other {
            continue;
        }
        for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
            if let Ok(value) = value.parse() {
                all.insert(format!("{group}.{name}"), value);
            }
        }
    }
    all
}

fn vmstat(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        VMSTAT.contains(&name).then(|| Some((name.to_owned(), value.trim().parse().ok()?))).flatten()
    };
    text.lines().filter_map(pair).collect()
}

/// The changes of the counters between two readings. Unknown if the time of a reading is unknown, or if the second
/// reading is not later than the first.
pub(super) fn interval(first: &Sample, second: &Sample) -> Fact<Interval> {
    let times = second.at.clone().zip(first.at.clone());
    times.and_then(|(second_at, first_at)| match second_at.checked_sub(first_at).filter(|span| span.as_nanos() > 0) {
        Some(length) => Fact::known(
            Interval { length, change: second.counters.since(&first.counters) },
            Source::new("two readings of the counters"),
        ),
        None => Fact::malformed("the second reading is not later than the first", "/proc/uptime"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::facts::Facts;

    #[test]
    fn times_of_cpus() {
        let times = cpu_times("cpu  9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu12 1 0 0 0\nintr 5\nctxt 77\n").unwrap();
        assert_eq!(times.keys().copied().collect::<Vec<_>>(), [0, 12]);
        assert_eq!((times[&0].steal, times[&0].user), (Nanos::from_millis(80), Nanos::from_millis(10)));
        assert!(cpu_times("intr 5").is_err());
    }

    #[test]
    fn softirqs_by_cpu() {
        let stat = ("proc/stat", "cpu  9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu3 1 0 0 0 0 0 2\n");
        let counts = ("proc/softirqs", "     CPU0 CPU1 CPU2 CPU3\n NET_TX: 1 2 3 4\n NET_RX: 5 6 7 8\n");
        let read = |files: &[(&str, &str)]| Softirqs::read(&Root::given(files.iter().copied())).into_value();
        let both = read(&[stat, counts]).unwrap();
        assert_eq!(both[&0], Softirqs { time: Nanos::from_millis(70), net_rx: Some(5) });
        assert_eq!((both[&3].time, both[&3].net_rx, both.len()), (Nanos::from_millis(20), Some(8), 2));
        assert_eq!(read(&[stat]).unwrap()[&0].net_rx, None);
        assert_eq!(read(&[counts]), None);
    }

    #[test]
    fn softnet_with_and_without_the_cpus_number() {
        let short = softnet("0000000a 00000001 00000002 0 0 0 0 0 0 00000007\n").unwrap();
        assert_eq!(short[&0], Softnet { processed: 10, dropped: 1, squeezed: 2, received_rps: 7 });
        let long = softnet("1 0 0 0 0 0 0 0 0 0 0 0 00000005 0 0\n").unwrap();
        assert_eq!(long[&5].processed, 1);
        assert!(softnet("x y z").is_err() && softnet("1 2").is_err());
    }

    #[test]
    fn two_readings_give_an_interval() {
        let table = |n| format!("CPU0 CPU1\n 5: {n} 7 chip edge eth0\nLOC: 100 {n} Local timer interrupts\n");
        let facts = Facts::read(&Root::given([
            ("proc/uptime", "100.00 1".to_string()),
            ("again/proc/uptime", "103.50 1".to_string()),
            ("proc/interrupts", table(10)),
            ("again/proc/interrupts", table(45)),
            ("proc/net/snmp", "Udp: InErrors\nUdp: 5\n".to_string()),
            ("again/proc/net/snmp", "Udp: InErrors\nUdp: 8\n".to_string()),
        ]));
        let interval = facts.interval.value().expect("two readings");
        assert_eq!(interval.length, Nanos::from_millis(3500));
        let table = interval.change.interrupts.value().unwrap();
        assert_eq!(&*table.row("5").unwrap().counts, [35, 0]);
        assert_eq!(&*table.row("LOC").unwrap().counts, [0, 35]);
        assert_eq!(interval.change.snmp.value().unwrap()["Udp.InErrors"], 3);
        assert_eq!(facts.counters.interrupts.value().unwrap().row("5").unwrap().total(), 17);
    }

    #[test]
    fn without_a_second_reading_there_is_no_interval() {
        assert!(Facts::read(&Root::given([("proc/uptime", "100.0 1")])).interval.is_unknown());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "((cpu[0-9]|Udp:|ctxt|[0-9a-f]{1,9}) ?){0,9}(\n\\PC{0,20}){0,5}") {
            let _ = (cpu_times(&text), softnet(&text), uptime(&text));
            pairs(&text);
            vmstat(&text);
        }
    }
}
