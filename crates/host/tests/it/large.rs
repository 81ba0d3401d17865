//! A host with 4 sockets, 512 CPUs and 4,000 interrupts, generated as a tree of files.

use std::fmt::Write;
use std::time::{Duration, Instant};

use host::facts::{CpuSet, Facts, Root};

use crate::support::Scratch;

const CPUS: u32 = 512;
const SOCKETS: u32 = 4;
const IRQS: u32 = 4_000;
const FIRST_IRQ: u32 = 24;
/// CPUs and their siblings: cpu N and cpu N + 256 share a core.
const CORES: u32 = CPUS / 2;

/// The socket of a CPU: 64 cores each, siblings in the upper half.
fn socket(cpu: u32) -> u32 {
    cpu % CORES / (CORES / SOCKETS)
}

fn cpus_of(node: u32) -> CpuSet {
    (0..CPUS).filter(|cpu| socket(*cpu) == node).collect()
}

fn interrupts() -> String {
    let mut text = String::from("    ");
    (0..CPUS).for_each(|cpu| write!(text, "       CPU{cpu}").unwrap());
    text.push('\n');
    for n in 0..IRQS {
        let irq = FIRST_IRQ + n;
        write!(text, "{irq:4}:").unwrap();
        (0..CPUS).for_each(|cpu| write!(text, " {:10}", if cpu == n % CPUS { 1000 + n } else { 0 }).unwrap());
        let (card, queue) = (n / 256, n % 256);
        writeln!(text, "  IR-PCI-MSIX-0000:{:02x}:00.0 {queue:4}-edge      ice-ens{card}f0-TxRx-{queue}", 0x10 + card)
            .unwrap();
    }
    for row in ["NMI", "LOC", "RES", "CAL", "TLB"] {
        write!(text, "{row:>4}:").unwrap();
        (0..CPUS).for_each(|_| write!(text, " {:10}", 123_456_789).unwrap());
        writeln!(text, "   {row} interrupts").unwrap();
    }
    text
}

fn cpuinfo() -> String {
    let flags = "fpu vme tsc msr constant_tsc nonstop_tsc tsc_known_freq aperfmperf ".repeat(24);
    let block = |cpu: u32| {
        format!(
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nstepping\t: 8\n\
             microcode\t: 0x2b000603\ncpu MHz\t\t: 2000.000\nphysical id\t: {}\ncore id\t\t: {}\nflags\t\t: {flags}\n\n",
            socket(cpu),
            cpu % (CORES / SOCKETS)
        )
    };
    (0..CPUS).map(block).collect()
}

/// Writes the tree. What sysfs and procfs of such a host show and the reader asks for is in it.
pub fn generate(place: &Scratch) {
    let cpu_place = "sys/devices/system/cpu";
    for name in ["present", "online", "possible"] {
        place.write(format!("{cpu_place}/{name}"), "0-511\n");
    }
    place.write(format!("{cpu_place}/isolated"), "8-255\n");
    place.write(format!("{cpu_place}/nohz_full"), "8-255\n");
    for cpu in 0..CPUS {
        generate_cpu(place, &format!("{cpu_place}/cpu{cpu}"), cpu);
    }
    for node in 0..SOCKETS {
        place.write(format!("sys/devices/system/node/node{node}/cpulist"), cpus_of(node).to_string());
        place.write(format!("sys/devices/system/node/node{node}/distance"), "10 21 21 21\n");
    }
    place.write("proc/interrupts", interrupts());
    place.write("proc/cpuinfo", cpuinfo());
    place.write("proc/cmdline", "isolcpus=managed_irq,domain,8-255 nohz_full=8-255\n");
    place.write("proc/irq/default_smp_affinity", format!("{}\n", CpuSet::below(8).to_mask()));
    for irq in FIRST_IRQ..FIRST_IRQ + IRQS {
        place.write(format!("proc/irq/{irq}/smp_affinity_list"), "0-511\n");
        place.write(format!("proc/irq/{irq}/effective_affinity_list"), format!("{}\n", irq % CPUS));
        place.write(format!("proc/irq/{irq}/node"), "1\n");
        place.write(format!("sys/kernel/irq/{irq}/actions"), "x\n");
    }
    let (mut stats, mut status) = (String::new(), String::new());
    for tid in 1..8_000 {
        writeln!(stats, "{tid} (kworker/{tid}) I 2 0 0 0 -1 69238880 0 0 0 0 0 1 0 0 20 0 1 0 30 0 0 1 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 3 0 0 0 0 0").unwrap();
        writeln!(
            status,
            "Name:\tkworker/{tid}\nTgid:\t{tid}\nPid:\t{tid}\nCpus_allowed_list:\t{}\nvoluntary_ctxt_switches:\t9",
            tid % CPUS
        )
        .unwrap();
    }
    place.write("tasks/stat", stats);
    place.write("tasks/status", status);
}

fn generate_cpu(place: &Scratch, at: &str, cpu: u32) {
    let sibling = (cpu + CORES) % CPUS;
    let pair = CpuSet::from([cpu, sibling]);
    for (name, text) in [
        ("online", "1\n".to_owned()),
        ("topology/physical_package_id", format!("{}\n", socket(cpu))),
        ("topology/die_id", "0\n".to_owned()),
        ("topology/core_id", format!("{}\n", cpu % (CORES / SOCKETS))),
        ("topology/thread_siblings_list", format!("{pair}\n")),
        ("cache/index3/shared_cpu_list", format!("{}\n", cpus_of(socket(cpu)))),
        ("power/pm_qos_resume_latency_us", "0\n".to_owned()),
        ("power/energy_perf_bias", "6\n".to_owned()),
        ("thermal_throttle/core_throttle_count", "0\n".to_owned()),
        ("thermal_throttle/package_throttle_count", "0\n".to_owned()),
    ] {
        place.write(format!("{at}/{name}"), text);
    }
    for (state, name, latency) in [(0, "POLL", 0), (1, "C1", 1), (2, "C1E", 2), (3, "C6", 290)] {
        for (file, text) in [
            ("name", format!("{name}\n")),
            ("desc", "MWAIT 0x20\n".to_owned()),
            ("latency", format!("{latency}\n")),
            ("residency", format!("{}\n", latency * 3)),
            ("disable", "0\n".to_owned()),
            ("usage", "12345\n".to_owned()),
            ("time", "678910\n".to_owned()),
            ("above", "1\n".to_owned()),
            ("below", "2\n".to_owned()),
            ("rejected", "0\n".to_owned()),
        ] {
            place.write(format!("{at}/cpuidle/state{state}/{file}"), text);
        }
    }
    let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
    for (file, text) in [
        ("affected_cpus", format!("{cpu}\n")),
        ("scaling_driver", "intel_pstate\n".to_owned()),
        ("scaling_governor", "performance\n".to_owned()),
        ("scaling_min_freq", "800000\n".to_owned()),
        ("scaling_max_freq", "3800000\n".to_owned()),
        ("scaling_cur_freq", "2000000\n".to_owned()),
        ("cpuinfo_min_freq", "800000\n".to_owned()),
        ("cpuinfo_max_freq", "3800000\n".to_owned()),
        ("base_frequency", "2000000\n".to_owned()),
        ("energy_performance_preference", "performance\n".to_owned()),
    ] {
        place.write(format!("{policy}/{file}"), text);
    }
}

/// In a release build it must take less than 1.5 s; the debug build is given room for its slowness and for a
/// busy machine.
#[test]
fn is_read_whole_and_in_time() {
    let place = Scratch::in_memory();
    generate(&place);
    let root = Root::open(place.path()).unwrap();
    let start = Instant::now();
    let facts = Facts::read(&root);
    let took = start.elapsed();
    println!("read in {took:?}");
    assert_eq!((facts.cpus.list.len(), facts.cpus.nodes.len()), (512, 4));
    assert_eq!(facts.irqs.list.value().unwrap().len(), 4_000);
    assert_eq!(facts.tasks.value().unwrap().len(), 7_999);
    let table = facts.counters.interrupts.value().unwrap();
    assert_eq!((table.rows.len(), table.cpus.len()), (4_005, 512));
    assert_eq!(table.row("1024").unwrap().counts[1000 % 512], 2000);
    let irq = facts.irqs.irq(1024).unwrap();
    assert_eq!((irq.pci.as_deref(), irq.effective.value()), (Some("0000:13:00.0"), Some(&CpuSet::from([0]))));
    assert_eq!(facts.cpus.cpu(300).unwrap().siblings.value(), Some(&CpuSet::from([44, 300])));
    assert_eq!(facts.counters.idle.len(), 512 * 4);
    let limit = if cfg!(debug_assertions) { Duration::from_secs(30) } else { Duration::from_millis(1_500) };
    assert!(took < limit, "{took:?}");
}
