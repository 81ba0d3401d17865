//! A host of 4 sockets, 512 CPUs, 4,000 interrupts, 16 ports and 6,000 threads, read from an archive.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use audit::{Intent, audit};
use host::facts::{CpuSet, Facts, Root};

const CPUS: u32 = 512;
const IRQS: u32 = 4_000;
const PORTS: u32 = 16;
/// Threads of the kernel on each CPU: there are about a dozen.
const THREADS: u32 = 12;

/// Writes the host as a tar archive.
fn archive(path: &Path) {
    let mut archive = tar::Builder::new(File::create(path).unwrap());
    for (name, text) in files() {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    archive.finish().unwrap();
}

fn files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    let mut add = |path: &str, text: String| files.push((path.to_owned(), text));
    for name in ["present", "online", "possible"] {
        add(&format!("sys/devices/system/cpu/{name}"), "0-511\n".into());
    }
    add("proc/cmdline", "isolcpus=managed_irq,domain,8-511 nohz_full=8-511 irqaffinity=0-7\n".into());
    let mut table = String::from("    ");
    (0..CPUS).for_each(|cpu| write!(table, "       CPU{cpu}").unwrap());
    for n in 0..IRQS {
        write!(table, "\n{:4}:", 24 + n).unwrap();
        (0..CPUS).for_each(|cpu| write!(table, " {:10}", if cpu == n % CPUS { 1000 + n } else { 0 }).unwrap());
        write!(
            table,
            "  IR-PCI-MSIX-0000:{:02x}:00.0 {:4}-edge      ice-ens{}f0-TxRx-{}",
            16 + n / 256,
            n % 256,
            n / 256,
            n % 256
        )
        .unwrap();
    }
    for row in ["LOC", "RES", "CAL", "TLB"] {
        write!(table, "\n{row:>4}:").unwrap();
        (0..CPUS).for_each(|_| write!(table, " {:10}", 123_456_789).unwrap());
        write!(table, "   {row} interrupts").unwrap();
    }
    add("proc/interrupts", table + "\n");
    for n in 0..IRQS {
        let place = format!("proc/irq/{}", 24 + n);
        add(&format!("{place}/smp_affinity_list"), "0-511\n".into());
        add(&format!("{place}/effective_affinity_list"), format!("{}\n", n % CPUS));
        add(&format!("{place}/node"), format!("{}\n", n % 4));
    }
    for cpu in 0..CPUS {
        let place = format!("sys/devices/system/cpu/cpu{cpu}");
        add(&format!("{place}/topology/physical_package_id"), format!("{}\n", cpu / 128));
        add(&format!("{place}/topology/core_id"), format!("{}\n", cpu % 128));
        add(&format!("{place}/topology/thread_siblings_list"), format!("{}\n", CpuSet::from([cpu, cpu ^ 1])));
        for (state, name, latency) in [(0, "POLL", 0), (1, "C1", 1), (2, "C1E", 2), (3, "C6", 290)] {
            let state = format!("{place}/cpuidle/state{state}");
            add(&format!("{state}/name"), format!("{name}\n"));
            add(&format!("{state}/latency"), format!("{latency}\n"));
            add(&format!("{state}/disable"), "0\n".into());
        }
        let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
        add(&format!("{policy}/affected_cpus"), format!("{cpu}\n"));
        add(&format!("{policy}/scaling_governor"), "powersave\n".into());
        add(&format!("{policy}/scaling_min_freq"), "800000\n".into());
        add(&format!("{policy}/scaling_max_freq"), "3800000\n".into());
    }
    for node in 0..4 {
        add(&format!("sys/devices/system/node/node{node}/cpulist"), format!("{}-{}\n", node * 128, node * 128 + 127));
    }
    for port in 0..PORTS {
        let (name, address) = (format!("ens{port}f0"), format!("0000:{:02x}:00.0", 16 + port));
        let place = format!("sys/class/net/{name}");
        for (file, text) in [("mtu", "1500"), ("operstate", "up"), ("carrier", "1"), ("speed", "100000"), ("type", "1")]
        {
            add(&format!("{place}/{file}"), format!("{text}\n"));
        }
        add(&format!("{place}/statistics/rx_packets"), "1000000\n".into());
        for queue in 0..IRQS / PORTS {
            add(&format!("{place}/queues/rx-{queue}/rps_cpus"), "00000000\n".into());
            add(&format!("{place}/queues/tx-{queue}/xps_cpus"), format!("{}\n", CpuSet::from([queue]).to_mask()));
        }
        add(&format!("commands/ethtool_-i_{name}"), format!("driver: ice\nbus-info: {address}\n"));
        add(
            &format!("commands/ethtool_-c_{name}"),
            "Adaptive RX: on  TX: on\nrx-usecs: 50\nrx-frames: n/a\nrx-usecs-high: 0\n".into(),
        );
        let device = format!("sys/bus/pci/devices/{address}");
        add(&format!("{device}/class"), "0x020000\n".into());
        add(&format!("{device}/numa_node"), format!("{}\n", port % 4));
        add(&format!("{device}/current_link_speed"), "16.0 GT/s PCIe\n".into());
        add(&format!("{device}/current_link_width"), "16\n".into());
    }
    let (mut stats, mut statuses) = (String::new(), String::new());
    for n in 0..CPUS * THREADS {
        let (tid, cpu) = (100 + n, n / THREADS);
        let name = format!("kworker/{cpu}:{}", n % THREADS);
        writeln!(
            stats,
            "{tid} ({name}) S 2 0 0 0 -1 69238880 0 0 0 0 5 7 0 0 20 0 1 0 1 0 0 18446744073709551615 0 0 0 0 0 0 0 \
             2147483647 0 0 0 0 17 {cpu} 0 0 0 0 0 0 0 0 0 0 0 0 0"
        )
        .unwrap();
        writeln!(statuses, "Name:\t{name}\nTgid:\t{tid}\nPid:\t{tid}\nCpus_allowed_list:\t{cpu}").unwrap();
    }
    add("tasks/stat", stats);
    add("tasks/status", statuses);
    files
}

/// The most memory that this process has had, in KiB (proc_pid_status(5), VmHWM).
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The CPU time of this thread so far, whatever else runs: fields 14 and 15 of its stat, in hundredths of a second
/// (proc_pid_stat(5); USER_HZ).
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// Reading and judging it may take 2 s of CPU time and 300 MB in a release build; the debug build is given room for its
/// slowness. The memory is that of all tests of this file's process together.
#[test]
fn is_judged_in_time() {
    let path: PathBuf = std::env::temp_dir().join(format!("apus-large-{}.tar", std::process::id()));
    archive(&path);
    let start = on_cpu();
    let facts = Facts::read(&Root::open(&path).unwrap());
    let read = on_cpu() - start;
    let report = audit(&facts, &Intent::default());
    let (took, peak) = (on_cpu() - start, peak_kib());
    println!("read in {read:?}, judged in {:?}; peak {peak} KiB; {} findings", took - read, report.findings.len());
    match std::env::var_os("APUS_KEEP_LARGE") {
        Some(kept) => drop(std::fs::copy(&path, kept).unwrap()),
        None => println!("APUS_KEEP_LARGE=FILE keeps the archive"),
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(facts.irqs.list.value().unwrap().len(), IRQS as usize);
    assert_eq!(facts.tasks().count(), (CPUS * THREADS) as usize);
    assert_eq!(report.context.nics.value.len(), PORTS as usize);
    let limit = if cfg!(debug_assertions) { Duration::from_secs(60) } else { Duration::from_secs(2) };
    assert!(took < limit, "{took:?}");
    assert!(peak < 300_000, "{peak} KiB");
    // One finding a CPU or an interrupt would bury everything else.
    assert!(report.findings.len() < 2_000, "{} findings", report.findings.len());
}
