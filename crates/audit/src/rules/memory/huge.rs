//! Huge pages: those that applications reserve, and transparent ones.

use host::Facts;
use units::Nanos;

use crate::{Applies, Cause, Context, Fix, Group, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const DPDK: &str = "DPDK guide Getting Started for Linux, How to get best performance with NICs on Intel platforms";
const TRANSPARENT: &str = "Linux Documentation/admin-guide/mm/transhuge.rst";
const RESERVED: Applies = Applies::LINUX.to(&[Workload::Poll, Workload::KvmHost]);

/// The rules.
pub const RULES: &[Rule] = &[
    Rule {
        id: "mem.hugepages-node",
        cause: Cause::HugePages,
        group: Group::Memory,
        title: "The interface's NUMA node has huge pages",
        applies: RESERVED.with_nic(),
        judge: on_node,
        why: "Buffers on another node than the interface's cross the sockets twice for each packet; without pages on the own node DPDK takes them from \
              the other, or does not start.",
        magnitude: Magnitude {
            text: "60 to 100 ns more for each access to the other socket's memory",
            effect: crate::Effect::Slower,
            source: "DPDK guide names the effect (How to get best performance with NICs on Intel platforms); the size is general knowledge",
        },
        fix: Fix::boot("reserve huge pages on the interface's node: hugepages=0:16,1:16 for each node (Linux 5.16 and later), or a systemd unit that writes nr_hugepages of the node").decided(),
        cost: "Nothing else can use the reserved memory.",
        references: &[DPDK, "Linux Documentation/admin-guide/mm/hugetlbpage.rst"],
        conflicts: &[],
    },
    Rule {
        id: "mem.hugetlbfs",
        cause: Cause::HugePages,
        group: Group::Memory,
        title: "Huge pages can be mapped by files",
        applies: RESERVED,
        judge: mounted,
        why: "DPDK and QEMU map their huge pages by files of hugetlbfs; of a size that is not mounted nothing can be mapped this way.",
        magnitude: Magnitude {
            text: "the application does not start, or falls back to small pages and their TLB misses (some hundred nanoseconds a buffer)",
            effect: crate::Effect::Slower,
            source: DPDK,
        },
        fix: Fix::both(
            "mkdir -p /dev/hugepages1G && mount -t hugetlbfs -o pagesize=1G none /dev/hugepages1G",
            "the same in /etc/fstab",
        ),
        cost: "None.",
        references: &[DPDK, "Linux Documentation/admin-guide/mm/hugetlbpage.rst"],
        conflicts: &[],
    },
    Rule {
        id: "mem.thp",
        cause: Cause::MemoryManagement,
        group: Group::Memory,
        title: "Transparent huge pages are for those who ask",
        applies: Applies::LINUX,
        judge: transparent,
        why: "With always, page faults may wait for compaction, and khugepaged moves pages of running applications: each move interrupts all CPUs that \
              use them.",
        magnitude: Magnitude {
            text: "compaction takes milliseconds; each collapsed page flushes TLBs by inter-processor interrupts",
            effect: crate::Effect::Late(Nanos::from_millis(1)),
            source: "Linux Documentation/admin-guide/mm/transhuge.rst names the stalls; the size is general knowledge",
        },
        fix: Fix::runtime_or_boot(
            "echo never > /sys/kernel/mm/transparent_hugepage/enabled",
            "transparent_hugepage=never",
        ),
        cost: "Applications without huge pages of their own miss the TLB more.",
        references: &[TRANSPARENT, "tuned profile network-latency", "rigtorp.se, Low latency tuning guide"],
        conflicts: &[],
    },
    Rule {
        id: "mem.thp-defrag",
        cause: Cause::MemoryManagement,
        group: Group::Memory,
        title: "Page faults do not wait for compaction",
        applies: Applies::LINUX,
        judge: defrag,
        why: "With defrag always, a page fault reclaims and compacts memory itself until it has a huge page; with madvise only for memory that asks for it.",
        magnitude: Magnitude {
            text: "milliseconds for a fault that compacts",
            effect: crate::Effect::Late(Nanos::from_millis(1)),
            source: "Linux Documentation/admin-guide/mm/transhuge.rst names the stalls; the size is general knowledge",
        },
        fix: Fix::runtime("echo never > /sys/kernel/mm/transparent_hugepage/defrag"),
        cost: "Fewer huge pages where memory is fragmented.",
        references: &[TRANSPARENT],
        conflicts: &[],
    },
    Rule {
        id: "mem.compaction",
        cause: Cause::MemoryManagement,
        group: Group::Memory,
        title: "Memory is not compacted in advance",
        applies: Applies::LINUX,
        judge: compaction,
        why: "With a proactiveness above 0 kcompactd looks twice a second whether memory is fragmented, and moves pages of running applications if it is.",
        magnitude: Magnitude {
            text: "a TLB flush by inter-processor interrupts for each page that moves, 1 to 5 us each",
            effect: crate::Effect::Late(Nanos::from_micros(3)),
            source: "Linux Documentation/admin-guide/sysctl/vm.rst, compaction_proactiveness, warns of latency spikes; the size is general knowledge",
        },
        fix: Fix::runtime("sysctl -w vm.compaction_proactiveness=0"),
        cost: "Huge pages at run time are found less often.",
        references: &["Linux Documentation/admin-guide/sysctl/vm.rst, compaction_proactiveness"],
        conflicts: &[],
    },
];

fn on_node(facts: &Facts, context: &Context) -> Judged {
    let mut judgements = Vec::new();
    let mut skip = None;
    for link in context.links(facts) {
        let node = match known(&link.node) {
            Ok(Some(node)) => *node,
            Ok(None) => 0,
            Err(reason) => {
                skip = Some(reason);
                continue;
            }
        };
        let Some(place) = facts.cpus.nodes.iter().find(|other| other.id == node) else { continue };
        if place.huge_pages.is_empty() {
            skip = Some(Skip::unknown(format!("/sys/devices/system/node/node{node}/hugepages: not recorded")));
            continue;
        }
        let bytes: u64 = place.huge_pages.iter().map(|pool| pool.total.get().unwrap_or(0) * pool.page_bytes).sum();
        let subject = Subject::Link(link.name.clone());
        let judgement = match bytes {
            0 => Judgement::fail(subject, format!("its node {node} has no huge pages")),
            bytes => Judgement::pass(subject, format!("its node {node} has {} MB of huge pages", bytes >> 20)),
        };
        judgements.push(judgement.see_as(
            format!("{} MB", bytes >> 20),
            format!("/sys/devices/system/node/node{node}/hugepages/*/nr_hugepages"),
        ));
    }
    match judgements.is_empty() {
        true => {
            Err(skip.unwrap_or_else(|| Skip::unknown("/sys/devices/system/node: the interfaces' nodes are not known")))
        }
        false => Ok(judgements),
    }
}

fn mounted(facts: &Facts, _: &Context) -> Judged {
    let is_mounted = facts.memory.is_mounted("hugetlbfs");
    known(&is_mounted)?;
    let mounts = known(&facts.memory.mounts)?;
    let of: Vec<&host::facts::Mount> = mounts.iter().filter(|mount| mount.kind == "hugetlbfs").collect();
    let of_nodes = facts.cpus.nodes.iter().flat_map(|node| &node.huge_pages);
    let pools = facts.memory.huge_pages.iter().chain(of_nodes);
    let sizes: Vec<Option<u64>> = of
        .iter()
        .map(|mount| mount.options.split(',').find_map(|option| option.strip_prefix("pagesize=")).and_then(bytes))
        .collect();
    // A mount without a size that is known is of the default size: nothing to complain of.
    let missing = pools
        .filter(|pool| pool.total.get().unwrap_or(0) > 0)
        .map(|pool| pool.page_bytes)
        .find(|pool| !sizes.iter().any(|size| size.is_none_or(|size| size == *pool)));
    let judgement = match (of.is_empty(), missing) {
        (true, _) => Judgement::warn(Subject::Host, "hugetlbfs is not mounted"),
        (false, Some(size)) => {
            let (name, option) = match size >> 30 {
                0 => (format!("{} MB", size >> 20), format!("{}M", size >> 20)),
                gib => (format!("{gib} GB"), format!("{gib}G")),
            };
            Judgement::warn(
                Subject::Host,
                format!("there are pages of {name}, but hugetlbfs is mounted for other sizes only"),
            )
            .now(format!(
                "mkdir -p /dev/hugepages{option} && mount -t hugetlbfs -o pagesize={option} none /dev/hugepages{option}"
            ))
        }
        (false, None) => Judgement::pass(Subject::Host, format!("hugetlbfs is mounted at {}", of[0].place)),
    };
    let text = of.iter().map(|mount| format!("{} {}", mount.place, mount.options)).collect::<Vec<_>>().join("; ");
    let text = if text.is_empty() { "no hugetlbfs".to_owned() } else { text };
    judgement.see_as(text, facts.memory.mounts.source()).alone()
}

/// `1024M`, as /proc/self/mounts has it.
fn bytes(size: &str) -> Option<u64> {
    let unit = match size.chars().last()? {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => return size.parse().ok(),
    };
    size[..size.len() - 1].parse::<u64>().ok()?.checked_shl(unit)
}

fn transparent(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.memory.thp_enabled;
    let judgement = match known(fact)?.as_str() {
        "always" => Judgement::warn(Subject::Host, "all memory may get transparent huge pages"),
        other => Judgement::pass(Subject::Host, format!("transparent huge pages: {other}")),
    };
    judgement.see(fact).alone()
}

fn defrag(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.memory.thp_defrag;
    let enabled = facts.memory.thp_enabled.is(|mode| mode == "never") != Some(true);
    let judgement = match known(fact)?.as_str() {
        "always" if enabled => Judgement::warn(Subject::Host, "page faults compact memory themselves"),
        other => Judgement::pass(Subject::Host, format!("compaction in page faults: {other}")),
    };
    judgement.see(fact).see(&facts.memory.thp_enabled).alone()
}

fn compaction(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.sysctl_number("vm.compaction_proactiveness");
    let judgement = match *known(&fact)? {
        0 => Judgement::pass(Subject::Host, "memory is compacted only on demand"),
        n => Judgement::warn(Subject::Host, format!("the proactiveness is {n} of 100")),
    };
    judgement.see(&fact).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::Link;

    use super::*;
    use crate::testing::{Case, Host, host};

    const MM: &str = "/sys/kernel/mm/transparent_hugepage";

    fn poll() -> Host {
        host().workload(Workload::Poll)
    }

    fn on_node_1(pages: &str) -> Host {
        let place = "/sys/devices/system/node/node1";
        poll()
            .nic("eth0")
            .file(&format!("{place}/cpulist"), "4-7")
            .file(&format!("{place}/hugepages/hugepages-2048kB/nr_hugepages"), pages)
            .edit(|facts| {
                let node = Fact::known(Some(1), "/sys/class/net/eth0/device/numa_node");
                facts.links =
                    Fact::known(vec![Link { name: "eth0".into(), node, ..Link::default() }], "/sys/class/net");
            })
    }

    fn mounts(text: &str) -> Host {
        poll().file("/proc/mounts", text).file("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "4\n")
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("mem.hugepages-node", || on_node_1("1024\n")),
        Case::fail("mem.hugepages-node", || on_node_1("0\n")),
        Case::unknown("mem.hugepages-node", || poll().nic("eth0")),
        Case::pass("mem.hugetlbfs", || mounts("none /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0\n")),
        Case::warn("mem.hugetlbfs", || mounts("none /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n")),
        // telco-worker1: the only pages are of 2 MB, and the mount is for those of 1 GB.
        Case::warn("mem.hugetlbfs", || {
            let place = "/sys/devices/system/node/node0";
            mounts("none /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0\n")
                .file(&format!("{place}/cpulist"), "0-3")
                .file(&format!("{place}/hugepages/hugepages-2048kB/nr_hugepages"), "128\n")
        }),
        Case::warn("mem.hugetlbfs", || mounts("none / ext4 rw 0 0\n")),
        Case::unknown("mem.hugetlbfs", poll),
        Case::unknown("mem.hugetlbfs", || mounts("debugfs /sys/kernel/debug debugfs rw 0 0\n")),
        Case::pass("mem.thp", || host().file(&format!("{MM}/enabled"), "always [madvise] never\n")),
        Case::warn("mem.thp", || host().file(&format!("{MM}/enabled"), "[always] madvise never\n")),
        Case::unknown("mem.thp", host),
        Case::pass("mem.thp-defrag", || {
            host().file(&format!("{MM}/defrag"), "always defer defer+madvise [madvise] never\n")
        }),
        Case::warn("mem.thp-defrag", || {
            host().file(&format!("{MM}/defrag"), "[always] defer defer+madvise madvise never\n")
        }),
        Case::unknown("mem.thp-defrag", host),
        Case::pass("mem.compaction", || host().file("/proc/sys/vm/compaction_proactiveness", "0\n")),
        Case::warn("mem.compaction", || host().file("/proc/sys/vm/compaction_proactiveness", "20\n")),
        Case::unknown("mem.compaction", host),
    ];
}
