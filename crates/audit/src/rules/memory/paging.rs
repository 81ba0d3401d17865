//! Rules on settings that make the kernel move, merge, write back or reclaim pages.

use host::Facts;
use units::Nanos;

use crate::rules::common::given;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Workload, known};

const FAULT: Magnitude = Magnitude::late(
    Nanos::from_millis(1),
    "reading a page from disk takes 0.1 ms (NVMe) to 10 ms",
    "general knowledge of disks' latency",
);

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "mem.numa-balancing",
        cause: Cause::MemoryManagement,
        title: "The kernel does not move pages between nodes",
        applies: Applies::LINUX,
        judge: balancing,
        why: "Automatic balancing unmaps pages to see who uses them. The next access to each is a fault, and pages are \
              moved while the application uses them.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "1 to 5 us per hinting fault, more for a page that moves, and TLB flushes by inter-processor \
                   interrupts",
            "Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing, names the overhead; the figure is general knowledge",
        ),
        fix: Fix::runtime("sysctl -w kernel.numa_balancing=0").against(&["intel/PerfSpect recommends it on"]),
        cost: "Applications without a NUMA placement stay on the wrong node.",
        references: &[
            "Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",
            "tuned profile network-latency",
            "Mellanox mlnx-tools, mlnx_tune",
        ],
    },
    Rule {
        id: "mem.zone-reclaim",
        cause: Cause::MemoryManagement,
        title: "Memory of another node is used before local memory is reclaimed",
        applies: Applies::LINUX,
        judge: zone_reclaim,
        why: "With zone_reclaim_mode an allocation first frees pages of its own node, and waits for that, although \
              other nodes have free pages.",
        magnitude: FAULT,
        fix: Fix::runtime("sysctl -w vm.zone_reclaim_mode=0"),
        cost: "The kernel uses more memory of other nodes.",
        references: &[
            "Linux Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode",
            "Mellanox mlnx-tools, mlnx_tune",
        ],
    },
    Rule {
        id: "mem.ksm",
        cause: Cause::MemoryManagement,
        title: "The kernel does not search for equal pages",
        applies: Applies::LINUX,
        judge: ksm,
        why: "Kernel samepage merging constantly reads memory to find equal pages, and write-protects them. The next \
         write to such a page causes a page fault and a copy.",
        magnitude: Magnitude::late(
            Nanos::from_micros(3),
            "1 to 5 us per write to a merged page",
            "Linux Documentation/admin-guide/mm/ksm.rst names the copy; the figure is general knowledge",
        ),
        fix: Fix::both("echo 2 > /sys/kernel/mm/ksm/run", "systemctl mask ksm ksmtuned"),
        cost: "Guests with equal pages need more memory.",
        references: &[
            "Linux Documentation/admin-guide/mm/ksm.rst",
            "FlexRAN real-time platform slides (2018): Disable KSM",
        ],
    },
    Rule {
        id: "mem.swap",
        cause: Cause::MemoryManagement,
        title: "Memory is not swapped out",
        applies: Applies::LINUX,
        judge: swap,
        why: "A page that was swapped out must be read from disk before the next access can continue.",
        magnitude: FAULT,
        fix: Fix::both(
            "swapoff -a",
            "remove the swap area from /etc/fstab, and lock the application's memory (mlockall)",
        ),
        cost: "Without swap, the kernel kills processes when memory runs out.",
        references: &[
            "Linux Documentation/admin-guide/sysctl/vm.rst, swappiness",
            "rigtorp.se, Low latency tuning guide",
        ],
    },
    Rule {
        id: "mem.dirty",
        cause: Cause::MemoryManagement,
        title: "Dirty pages are written to disk in small portions",
        applies: Applies::LINUX,
        judge: dirty,
        why: "Up to vm.dirty_ratio percent of memory may hold data that is not yet on disk. Above that, a process \
         that writes must first write such pages to disk itself. The larger the share, the longer the burst.",
        magnitude: Magnitude::untimed(
            "a writer is stopped until its pages are written: seconds in the worst case",
            "Linux Documentation/admin-guide/sysctl/vm.rst, dirty_ratio; the seconds are an estimate",
        ),
        fix: Fix::runtime("sysctl -w vm.dirty_ratio=10 vm.dirty_background_ratio=3"),
        cost: "The kernel writes more often, and merges fewer of the writes.",
        references: &[
            "Linux Documentation/admin-guide/sysctl/vm.rst, dirty_ratio",
            "tuned profile latency-performance",
        ],
    },
    Rule {
        id: "mem.stat-interval",
        cause: Cause::KernelWork,
        title: "Memory statistics are gathered rarely",
        applies: Applies::LINUX.isolated(),
        judge: statistics,
        why: "Every vm.stat_interval, a worker runs on each CPU whose counters have changed, including isolated CPUs, \
              to add them up.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "one run of a worker per second by default, a few microseconds",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst, vmstat_update; how long each takes is general knowledge",
        ),
        fix: Fix::runtime("sysctl -w vm.stat_interval=10"),
        cost: "Tools show older values.",
        references: &[
            "Linux Documentation/admin-guide/sysctl/vm.rst, stat_interval",
            "Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
        ],
    },
    Rule {
        id: "mem.mlock-limits",
        cause: Cause::HugePages,
        title: "Users may lock memory where a limit is set",
        applies: Applies::LINUX.to(&[Workload::Poll, Workload::Rt]),
        judge: limits,
        why: "An application that may not lock its memory takes page faults; DPDK without root fails to pin its buffers.",
        magnitude: FAULT,
        fix: Fix::for_good(
            "@realtime - memlock unlimited in /etc/security/limits.d, or LimitMEMLOCK=infinity in the application's unit",
        ),
        cost: "A user can lock all memory.",
        references: &["DPDK guide Getting Started for Linux, Enabling Additional Functionality", "limits.conf(5)"],
    },
    Rule {
        id: "mem.faults",
        cause: Cause::MemoryManagement,
        title: "No page came from disk, and none was swapped, during the measurement",
        applies: Applies::LINUX,
        judge: faults,
        why: "Counters show what really happens: a page fault that needs the disk stops its thread.",
        magnitude: FAULT,
        fix: Fix::for_good(
            "lock the application's memory (mlockall) and touch it before it is needed; set LimitMEMLOCK=infinity in its unit",
        ),
        cost: "The kernel cannot reclaim locked memory for others.",
        references: &["mlock(2)", "Linux Documentation/timers/no_hz.rst, on keeping applications out of the kernel"],
    },
];

/// Rules on paging parameters of the kernel command line.
pub const LINE: &[Rule] = &[Rule {
    id: "cmd.numa-balancing",
    cause: Cause::MemoryManagement,
    title: "numa_balancing= is still in force",
    applies: Applies::LINUX,
    judge: balancing_parameter,
    why: "A service can write kernel.numa_balancing after boot and so override the command line.",
    magnitude: Magnitude::late(
        Nanos::from_micros(5),
        "1 to 5 us per hinting fault",
        "Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing, names the overhead; the figure is general knowledge",
    ),
    fix: Fix::both("sysctl -w kernel.numa_balancing=0", "stop numad where it runs: it writes the setting again"),
    cost: "Applications without a NUMA placement stay on the wrong node.",
    references: &["Linux Documentation/admin-guide/kernel-parameters.txt, numa_balancing"],
}];

fn balancing(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.sysctl_number("kernel.numa_balancing");
    let value = *known(&fact)?;
    let nodes = facts.cpus.nodes.len();
    let judgement = match (value, nodes) {
        (0, _) => Judgement::pass("pages stay where they are"),
        (_, 1) => Judgement::pass("it is on, but the host has only one node"),
        _ => Judgement::warn("pages are unmapped and moved between nodes"),
    };
    judgement.see(&fact).see_as(format!("{nodes} nodes known"), "/sys/devices/system/node").alone()
}

fn balancing_parameter(facts: &Facts, _: &Context) -> Judged {
    let asked = given(facts, "numa_balancing")?.value.as_deref() == Some("enable");
    let fact = facts.sysctl_number("kernel.numa_balancing");
    let on = *known(&fact)? != 0;
    let judgement = match asked == on {
        true => Judgement::pass("the setting of the command line is in force"),
        false => Judgement::warn("the command line asks for one value, but the other is in force"),
    };
    judgement
        .see(&fact)
        .see_as(format!("numa_balancing={}", if asked { "enable" } else { "disable" }), facts.cmdline.source())
        .alone()
}

fn zone_reclaim(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.sysctl_number("vm.zone_reclaim_mode");
    let judgement = match *known(&fact)? {
        0 => Judgement::pass("memory of other nodes is taken first"),
        n => Judgement::warn(format!("the own node is reclaimed first (mode {n})")),
    };
    judgement.see(&fact).alone()
}

fn ksm(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.memory.ksm_run;
    let shared = facts.memory.ksm_pages_shared.get().unwrap_or(0);
    let judgement = match *known(fact)? {
        1 => Judgement::warn("equal pages are searched for and merged"),
        0 if shared > 0 => Judgement::warn(format!("the search has stopped, but {shared} merged pages remain")),
        _ => Judgement::pass("pages are not merged"),
    };
    judgement.see(fact).see(&facts.memory.ksm_pages_shared).alone()
}

/// The highest value of vm.swappiness at which pages of applications stay in memory (mlnx_tune, tuned).
const SWAPPINESS: i64 = 10;

fn swap(facts: &Facts, _: &Context) -> Judged {
    let areas = known(&facts.memory.swaps)?;
    let source = facts.memory.swaps.source();
    if areas.is_empty() {
        return Judgement::pass("there is no swap area").see_as("none", source).alone();
    }
    let used: u64 = areas.iter().map(|area| area.used_bytes).sum();
    let swappiness = facts.sysctl_number("vm.swappiness");
    let judgement = match (used, swappiness.get()) {
        (0, Some(n)) if n <= SWAPPINESS => Judgement::pass(format!("swap is not used, and swappiness is {n}")),
        (0, _) => Judgement::warn("swap is not used yet, but may be"),
        (used, _) => Judgement::warn(format!("{} MB are swapped out", used >> 20)),
    };
    judgement.see_as(format!("{} areas, {} MB used", areas.len(), used >> 20), source).see(&swappiness).alone()
}

fn dirty(facts: &Facts, _: &Context) -> Judged {
    let bytes = facts.sysctl_number("vm.dirty_bytes");
    let ratio = facts.sysctl_number("vm.dirty_ratio");
    let judgement = match (bytes.get(), *known(&ratio)?) {
        (Some(bytes), _) if bytes > 0 => {
            Judgement::pass(format!("at most {} MB wait to be written to disk", bytes >> 20))
        }
        (_, ratio) if ratio <= 10 => {
            Judgement::pass(format!("at most {ratio} % of memory holds data that is not yet written to disk"))
        }
        (_, ratio) => {
            Judgement::warn(format!("up to {ratio} % of memory may hold data that is not yet written to disk"))
        }
    };
    judgement.see(&ratio).see(&bytes).alone()
}

fn statistics(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.sysctl_number("vm.stat_interval");
    let judgement = match *known(&fact)? {
        seconds if seconds >= 10 => Judgement::pass(format!("statistics are collected every {seconds} s")),
        seconds => Judgement::warn(format!("statistics are collected every {seconds} s")),
    };
    judgement.see(&fact).alone()
}

fn limits(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.services.limits;
    let lines: Vec<&String> = known(fact)?.iter().filter(|line| line.contains("memlock")).collect();
    let unlimited = |line: &&&String| line.ends_with("unlimited") || line.ends_with("infinity") || line.ends_with("-1");
    let good = lines.iter().filter(unlimited).count();
    let judgement = match (lines.len(), good) {
        (0, _) => Judgement::warn("no limit for locked memory is set: users have the kernel's default of 8 MB or less"),
        (_, 0) => Judgement::warn("users may lock only part of their memory"),
        (_, n) => Judgement::pass(format!("{n} entries allow users to lock all memory")),
    };
    let text = lines.iter().map(|line| line.as_str()).take(5).collect::<Vec<_>>().join("; ");
    judgement.see_as(if text.is_empty() { "no memlock".to_owned() } else { text }, fact.source()).alone()
}

fn faults(facts: &Facts, _: &Context) -> Judged {
    let interval = known(&facts.interval)?;
    let fact = &interval.change.vmstat;
    let counts = known(fact)?;
    let of = |name: &str| {
        counts.get(name).copied().ok_or_else(|| Skip::unknown(format!("{}: it has no {name}", fact.source())))
    };
    let (major, swapped) = (of("pgmajfault")?, of("pswpin")?);
    let length = interval.length;
    let text = format!("{major} page faults needed the disk during {length}, {swapped} pages came from swap");
    let judgement = match major + swapped {
        0 => Judgement::pass(text),
        _ => Judgement::warn(text),
    };
    judgement.see_as(format!("pgmajfault {major}, pswpin {swapped}"), fact.source()).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing::{Case, Host, host};

    fn sysctl(name: &str, text: &str) -> Host {
        host().file(&format!("/proc/sys/{name}"), text)
    }

    fn ksm(text: &str) -> Host {
        host().file("/sys/kernel/mm/ksm/run", text)
    }

    fn areas(lines: &str) -> Host {
        host().file("/proc/swaps", &format!("Filename Type Size Used Priority\n{lines}"))
    }

    fn users(text: &str) -> Host {
        host().workload(Workload::Poll).file("/etc/security/limits.conf", text)
    }

    fn twice(second: &str) -> Host {
        host()
            .file("/proc/vmstat", "pgmajfault 5\npswpin 1\n")
            .file("/again/proc/vmstat", second)
            .file("/proc/uptime", "100.00 1")
            .file("/again/proc/uptime", "103.00 1")
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("mem.numa-balancing", || sysctl("kernel/numa_balancing", "0\n")),
        Case::warn("mem.numa-balancing", || sysctl("kernel/numa_balancing", "1\n")),
        Case::unknown("mem.numa-balancing", host),
        Case::pass("cmd.numa-balancing", || sysctl("kernel/numa_balancing", "0\n").cmdline("numa_balancing=disable")),
        Case::warn("cmd.numa-balancing", || sysctl("kernel/numa_balancing", "1\n").cmdline("numa_balancing=disable")),
        Case::unknown("cmd.numa-balancing", || host().cmdline("numa_balancing=disable")),
        Case::pass("mem.zone-reclaim", || sysctl("vm/zone_reclaim_mode", "0\n")),
        Case::warn("mem.zone-reclaim", || sysctl("vm/zone_reclaim_mode", "1\n")),
        Case::unknown("mem.zone-reclaim", host),
        Case::pass("mem.ksm", || ksm("0\n")),
        Case::warn("mem.ksm", || ksm("1\n")),
        Case::unknown("mem.ksm", host),
        Case::pass("mem.swap", || areas("")),
        Case::warn("mem.swap", || areas("/dev/dm-1 partition 4194300 1024 -2\n")),
        Case::unknown("mem.swap", host),
        Case::pass("mem.dirty", || sysctl("vm/dirty_ratio", "10\n")),
        Case::warn("mem.dirty", || sysctl("vm/dirty_ratio", "20\n")),
        Case::unknown("mem.dirty", host),
        Case::pass("mem.stat-interval", || sysctl("vm/stat_interval", "10\n").isolated("2-7")),
        Case::warn("mem.stat-interval", || sysctl("vm/stat_interval", "1\n").isolated("2-7")),
        Case::unknown("mem.stat-interval", || host().isolated("2-7")),
        Case::pass("mem.mlock-limits", || users("@rt - memlock unlimited\n")),
        Case::warn("mem.mlock-limits", || users("@rt - rtprio 99\n")),
        Case::unknown("mem.mlock-limits", || host().workload(Workload::Poll)),
        Case::pass("mem.faults", || twice("pgmajfault 5\npswpin 1\n")),
        Case::warn("mem.faults", || twice("pgmajfault 9\npswpin 1\n")),
        Case::unknown("mem.faults", host),
    ];
}
