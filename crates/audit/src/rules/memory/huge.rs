//! Rules on huge pages: those that applications reserve, and transparent ones.

use host::facts::{KernelVersion, Mount};
use host::{Facts, Source};
use units::Nanos;

use crate::remedy::Operator;
use crate::rules::common::is_operated;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const DPDK: &str = "DPDK guide Getting Started for Linux, How to get best performance with NICs on Intel platforms";
const TRANSPARENT: &str = "Linux Documentation/admin-guide/mm/transhuge.rst";
const RESERVED: Applies = Applies::LINUX.to(&[Workload::Poll, Workload::KvmHost]);

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "mem.hugepages-node",
        cause: Cause::HugePages,
        title: "The interface's NUMA node has huge pages",
        applies: RESERVED.with_nic(),
        judge: on_node,
        why: "A packet whose buffer is on another node crosses between the sockets twice. Without huge pages on \
              the interface's node, DPDK takes them from another node, or does not start.",
        magnitude: Magnitude::slower(
            "60 to 100 ns more for each access to the other socket's memory",
            "DPDK guide names the effect (How to get best performance with NICs on Intel platforms); the figure is general knowledge",
        ),
        // The judge knows the node and its memory.
        fix: Fix::boot("reserve huge pages on the interface's node: hugepages=1:16 gives node 1 sixteen (Linux 5.16 and later); before that a systemd unit that writes nr_hugepages of the node").decided(),
        cost: "Nothing else can use the reserved memory.",
        references: &[DPDK, "Linux Documentation/admin-guide/mm/hugetlbpage.rst"],
    },
    Rule {
        id: "mem.hugetlbfs",
        cause: Cause::HugePages,
        title: "Huge pages can be mapped as files",
        applies: RESERVED,
        judge: mounted,
        why: "DPDK and QEMU map their huge pages through files of hugetlbfs. Pages of a size that is not mounted \
              cannot be mapped this way.",
        magnitude: Magnitude::slower(
            "the application does not start, or falls back to small pages and their TLB misses (a few hundred \
                   nanoseconds per buffer)",
            DPDK,
        ),
        fix: Fix::both(
            "mkdir -p /dev/hugepages1G && mount -t hugetlbfs -o pagesize=1G none /dev/hugepages1G",
            "the same mount in /etc/fstab",
        ),
        cost: "None.",
        references: &[DPDK, "Linux Documentation/admin-guide/mm/hugetlbpage.rst"],
    },
    Rule {
        id: "mem.thp",
        cause: Cause::MemoryManagement,
        title: "Only applications that request transparent huge pages get them",
        applies: Applies::LINUX,
        judge: transparent,
        why: "With always, page faults may wait for compaction, and khugepaged moves pages of running applications: each move interrupts all CPUs that \
              use them.",
        magnitude: Magnitude::late(
            Nanos::from_millis(1),
            "compaction takes milliseconds; each collapsed page flushes TLBs by inter-processor interrupts",
            "Linux Documentation/admin-guide/mm/transhuge.rst names the stalls; the figure is general knowledge",
        ),
        fix: Fix::runtime_or_boot(
            "echo never > /sys/kernel/mm/transparent_hugepage/enabled",
            "transparent_hugepage=never",
        ),
        cost: "Applications without huge pages of their own have more TLB misses.",
        references: &[TRANSPARENT, "tuned profile network-latency", "rigtorp.se, Low latency tuning guide"],
    },
    Rule {
        id: "mem.thp-defrag",
        cause: Cause::MemoryManagement,
        title: "Page faults do not wait for compaction",
        applies: Applies::LINUX,
        judge: defrag,
        why: "With defrag set to always, a page fault itself reclaims and compacts memory until it gets a huge page. \
         With madvise this happens only for memory that asks for it.",
        magnitude: Magnitude::late(
            Nanos::from_millis(1),
            "milliseconds for a page fault that compacts memory",
            "Linux Documentation/admin-guide/mm/transhuge.rst names the stalls; the figure is general knowledge",
        ),
        fix: Fix::runtime("echo never > /sys/kernel/mm/transparent_hugepage/defrag"),
        cost: "There are fewer huge pages if memory is fragmented.",
        references: &[TRANSPARENT],
    },
    Rule {
        id: "mem.compaction",
        cause: Cause::MemoryManagement,
        title: "Memory is not compacted in advance",
        applies: Applies::LINUX,
        judge: compaction,
        why: "If vm.compaction_proactiveness is above 0, kcompactd checks twice per second whether memory is \
         fragmented. If it is, it moves pages of running applications.",
        magnitude: Magnitude::late(
            Nanos::from_micros(3),
            "a TLB flush by inter-processor interrupts per moved page, 1 to 5 us each",
            "Linux Documentation/admin-guide/sysctl/vm.rst, compaction_proactiveness, warns of latency spikes; the figure is general knowledge",
        ),
        fix: Fix::runtime("sysctl -w vm.compaction_proactiveness=0"),
        cost: "Fewer huge pages are available at run time.",
        references: &["Linux Documentation/admin-guide/sysctl/vm.rst, compaction_proactiveness"],
    },
];

/// Where to reserve huge pages, and how many.
pub(in crate::rules) struct Proposal {
    /// The NUMA node on which to reserve the pages. `None` means any node: the host has only one, or no node is
    /// preferred.
    pub node: Option<u32>,
    /// The amount to reserve in GB: a quarter of the node's memory, but at least 1 and at most [`MOST`]. [`UNKNOWN`] if
    /// the amount of memory is not known.
    pub gib: u64,
    /// Size of a page that is reserved at boot, in bytes: 1 GB, or 2 MB if the processor has no larger pages.
    pub size: u64,
    /// A human-readable remark on the number of pages.
    pub note: String,
    /// The amount of memory in bytes, and its source. `None` if it is not known.
    pub memory: Option<(u64, Source)>,
}

/// `MOST` is the maximum number of GB that is proposed; `UNKNOWN` GB are proposed if the amount of memory is not known.
/// Only the application knows how much it needs.
const MOST: u64 = 16;
const UNKNOWN: u64 = 4;

/// Bytes of the largest and of the smallest huge page of x86.
pub(in crate::rules) const GIB: u64 = 1 << 30;
pub(in crate::rules) const MIB_2: u64 = 2 << 20;

/// Whether the host supports pages of 1 GB: the kernel lists them, or the CPUs have the flag `pdpe1gb` of x86, which
/// many models of virtual CPUs lack. Without flags of x86, the list decides. True if neither is known.
pub(in crate::rules) fn has_gib_pages(facts: &Facts) -> bool {
    let mut pools = facts.memory.huge_pages.iter().chain(facts.cpus.nodes.iter().flat_map(|node| &node.huge_pages));
    let by_flag = facts.cpus.flags.is(|flags| flags.contains("pdpe1gb"));
    let unlisted = || !facts.cpus.flags.is_absent() || facts.memory.huge_pages.is_empty();
    pools.any(|pool| pool.page_bytes == GIB) || by_flag.unwrap_or_else(unlisted)
}

impl Proposal {
    /// Makes a proposal for an application on this node, or on any node.
    pub fn of(facts: &Facts, node: Option<u32>) -> Self {
        let several = facts.cpus.nodes.len() > 1;
        let node = node.filter(|_| several);
        let of_node = |node: u32| {
            let fact = &facts.cpus.nodes.iter().find(|other| other.id == node)?.memory_bytes;
            Some((fact.get()?, fact.source().clone()))
        };
        let of_host = || {
            let total = facts.memory.meminfo.value()?.get("MemTotal")?;
            Some((*total, facts.memory.meminfo.source().clone()))
        };
        // If the nodes of the host are not recorded, half of the memory would be a guess.
        let memory = match node {
            Some(node) => of_node(node),
            None => of_host(),
        };
        let gib = memory.as_ref().map_or(UNKNOWN, |(bytes, _)| (bytes >> 32).clamp(1, MOST));
        let at = node.map(|node| format!(" of node {node}")).unwrap_or_default();
        let size = if has_gib_pages(facts) { GIB } else { MIB_2 };
        let (pages, _) = named(size);
        let note = match &memory {
            Some((bytes, _)) => {
                format!("{gib} of the {} GB{at}, in pages of {pages}: adjust it to the application", bytes >> 30)
            }
            None => format!(
                "{gib} GB{at} in pages of {pages}: adjust it to the application and to the memory, which is not recorded"
            ),
        };
        Self { node, gib, size, note, memory }
    }

    /// Makes a proposal for the application's CPUs: on their node if they all have the same.
    pub fn of_cpus(facts: &Facts, context: &Context) -> Self {
        let isolated = &context.isolated.value;
        let nodes: std::collections::BTreeSet<Option<u32>> =
            isolated.iter().map(|cpu| facts.cpus.node_of(cpu)).collect();
        let one = if nodes.len() == 1 { nodes.into_iter().next().flatten() } else { None };
        Self::of(facts, one)
    }

    /// Adds to the judgement the commands that reserve the pages: 2 MB pages now, because they are easier to find on a
    /// running host, and at boot the largest pages that the processor has.
    pub fn fixes(&self, facts: &Facts, judgement: Judgement) -> Judgement {
        let judgement = match &self.memory {
            Some((bytes, source)) => judgement.see_as(format!("{} GB of memory", bytes >> 30), source),
            None => judgement,
        };
        let Self { node, gib, size, note, .. } = self;
        let small = gib * 256;
        let count = if *size == GIB { *gib } else { small };
        let (_, option) = named(*size);
        if is_operated(facts) {
            let node = node.map(|node| format!(", node: {node}")).unwrap_or_default();
            // The kubelet counts huge pages only when it starts.
            return judgement.now("# nothing: the kubelet counts huge pages only when it starts").for_good(format!(
                "PerformanceProfile of OpenShift, spec.hugepages: defaultHugepagesSize: {option}, and under pages, size: \
                 {option}, count: {count}{node} # {note}"
            ));
        }
        let folder = match node {
            Some(node) => format!("/sys/devices/system/node/node{node}/hugepages"),
            None => "/sys/kernel/mm/hugepages".to_owned(),
        };
        // The number is a target, not an addition (hugetlbpage.rst): a number below the present one would free pages.
        let pools = match node {
            Some(node) => facts.cpus.nodes.iter().find(|other| other.id == *node).map(|other| &other.huge_pages),
            None => Some(&facts.memory.huge_pages),
        };
        let there = pools.and_then(|pools| pools.iter().find(|pool| pool.page_bytes == MIB_2)?.total.get());
        let place = format!("{folder}/hugepages-2048kB/nr_hugepages");
        let fit = format!("reserves {} MB in pages of 2 MB: adjust the number to the application", small * 2);
        let judgement = match there {
            Some(total) if total >= small => {
                judgement.now(format!("# nothing: {total} pages of 2 MB are there already"))
            }
            Some(_) => judgement.now(format!("echo {small} > {place} # {fit}")),
            None => judgement.look(format!("cat {place}")).now(format!(
                "echo {small} > {place} # {fit}. Read the file first: if it holds a number above \
                {small}, this would release pages"
            )),
        };
        let sizes = format!("default_hugepagesz={option} hugepagesz={option}");
        let by_node = facts.kernel.version.get().is_some_and(|version| version >= BY_NODE);
        let boot = match node {
            Some(node) if by_node => format!("{sizes} hugepages={node}:{count} # or at boot, {note}"),
            // The kernel distributes the pages evenly over all nodes (mm/hugetlb.c, hugetlb_hstate_alloc_pages).
            Some(node) => format!(
                "{sizes} hugepages={} # or at boot, {note}: the kernel shares them out over {} nodes, and those of \
                 node {node} are the application's",
                count * facts.cpus.nodes.len() as u64,
                facts.cpus.nodes.len()
            ),
            None => format!("{sizes} hugepages={count} # or at boot, {note}"),
        };
        judgement.for_good(boot)
    }
}

/// The first kernel version that supports `hugepages=NODE:COUNT` (commit b5389086ad7b, hugetlbfs: extend the definition
/// of hugepages parameter to support node allocation).
const BY_NODE: KernelVersion = KernelVersion::new(5, 16);

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
            0 => Proposal::of(facts, Some(node))
                .fixes(facts, Judgement::fail_for(subject, format!("its NUMA node ({node}) has no huge pages"))),
            bytes => {
                Judgement::pass_for(subject, format!("its NUMA node ({node}) has {} MB of huge pages", bytes >> 20))
            }
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
    let of: Vec<&Mount> = mounts.iter().filter(|mount| mount.kind == "hugetlbfs").collect();
    let size =
        |mount: &&Mount| mount.options.split(',').find_map(|option| option.strip_prefix("pagesize=")).and_then(bytes);
    let sizes: Vec<Option<u64>> = of.iter().map(size).collect();
    // Each pool that has pages: pools of the host or, without these, of its nodes.
    let on_host = facts.memory.huge_pages.iter().map(|pool| (pool, None));
    let of_nodes =
        facts.cpus.nodes.iter().flat_map(|node| node.huge_pages.iter().map(move |pool| (pool, Some(node.id))));
    let pools = on_host.chain(of_nodes).filter(|(pool, _)| pool.total.get().unwrap_or(0) > 0);
    // A mount without a known size has the default size, so it is fine.
    let missing =
        pools.clone().find(|(pool, _)| !sizes.iter().any(|size| size.is_none_or(|size| size == pool.page_bytes)));
    // The kubelet mounts the pages that a pod requests in the pod's own directory (pkg/volume/emptydir/empty_dir.go,
    // setupHugepages).
    let by_pods = facts.cmdline.value().and_then(Operator::of).is_some()
        || mounts.iter().any(|mount| mount.place.starts_with("/var/lib/kubelet/"));
    const KUBELET: &str = "the kubelet mounts the size that a pod asks for";
    let judgement = match (of.is_empty(), missing) {
        (true, _) if by_pods => Judgement::pass(format!("hugetlbfs is not mounted on the host; {KUBELET}")),
        (true, _) => {
            let judgement = Judgement::warn("hugetlbfs is not mounted");
            if has_gib_pages(facts) { judgement } else { judgement.now(mount(MIB_2)) }
        }
        (false, Some((pool, node))) => {
            let (name, _) = named(pool.page_bytes);
            let total = pool.total.get().unwrap_or(0);
            let at = node.map(|node| format!(" on node {node}")).unwrap_or_default();
            let others: std::collections::BTreeSet<String> =
                sizes.iter().flatten().map(|size| named(*size).0).collect();
            let others = others.into_iter().collect::<Vec<_>>().join(" and ");
            let found = format!(
                "{total} pages of {name}{at} are reserved, but hugetlbfs is mounted for pages of {others} only"
            );
            let judgement = match by_pods {
                true => Judgement::pass(format!("{found}; {KUBELET}")),
                false => Judgement::warn(found).now(mount(pool.page_bytes)),
            };
            judgement.see_as(format!("{total} pages of {name}"), pool.total.source())
        }
        (false, None) => {
            let of_size = sizes[0].map(|size| format!(", for pages of {}", named(size).0)).unwrap_or_default();
            Judgement::pass(format!("hugetlbfs is mounted at {}{of_size}", of[0].place))
        }
    };
    let text = of.iter().map(|mount| format!("{} {}", mount.place, mount.options)).collect::<Vec<_>>().join("; ");
    let text = if text.is_empty() { "no hugetlbfs".to_owned() } else { text };
    judgement.see_as(text, facts.memory.mounts.source()).alone()
}

/// The command that mounts hugetlbfs for pages of this size.
fn mount(size: u64) -> String {
    let (_, option) = named(size);
    format!("mkdir -p /dev/hugepages{option} && mount -t hugetlbfs -o pagesize={option} none /dev/hugepages{option}")
}

/// Formats a page size twice: for a sentence (`2 MB`) and as a mount option (`2M`).
fn named(size: u64) -> (String, String) {
    match (size >> 30, size >> 20) {
        (0, 0) => (format!("{} kB", size >> 10), format!("{}K", size >> 10)),
        (0, mib) => (format!("{mib} MB"), format!("{mib}M")),
        (gib, _) => (format!("{gib} GB"), format!("{gib}G")),
    }
}

/// Parses a size such as `1024M`, as in /proc/self/mounts, into bytes.
pub(in crate::rules) fn bytes(size: &str) -> Option<u64> {
    let unit = match size.chars().last()? {
        'K' | 'k' => 10,
        'M' | 'm' => 20,
        'G' | 'g' => 30,
        _ => return size.parse().ok(),
    };
    size[..size.len() - 1].parse::<u64>().ok()?.checked_shl(unit)
}

fn transparent(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.memory.thp_enabled;
    let judgement = match known(fact)?.as_str() {
        "always" => Judgement::warn("all memory may get transparent huge pages"),
        other => Judgement::pass(format!("transparent huge pages: {other}")),
    };
    judgement.see(fact).alone()
}

fn defrag(facts: &Facts, _: &Context) -> Judged {
    let fact = &facts.memory.thp_defrag;
    let enabled = facts.memory.thp_enabled.is(|mode| mode == "never") != Some(true);
    let judgement = match known(fact)?.as_str() {
        "always" if enabled => Judgement::warn("page faults compact memory themselves"),
        other => Judgement::pass(format!("compaction in page faults: {other}")),
    };
    judgement.see(fact).see(&facts.memory.thp_enabled).alone()
}

fn compaction(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.sysctl_number("vm.compaction_proactiveness");
    let judgement = match *known(&fact)? {
        0 => Judgement::pass("memory is compacted only on demand"),
        n => Judgement::warn(format!("proactive compaction is on, at level {n} of 100")),
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

    /// telco-worker1: 128 pages of 2 MB, and a mount for those of 1 GB.
    #[test]
    fn the_pages_that_are_not_mounted_are_counted() {
        let host = mounts("none / ext4 rw 0 0\nnone /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n");
        let of = |line: &str| host.clone().cmdline(line).judge("mem.hugetlbfs").remove(0);
        let found = "4 pages of 1 GB are reserved, but hugetlbfs is mounted for pages of 2 MB only";
        let judgement = of("quiet");
        assert_eq!((judgement.found.as_str(), judgement.evidence[0].value.as_str()), (found, "4 pages of 1 GB"));
        assert!(judgement.now[0].contains("pagesize=1G"));
        let node = of("ostree=/ostree/boot.0/rhcos/1/0 tuned.non_isolcpus=00000003");
        assert_eq!(node.found, format!("{found}; the kubelet mounts the size that a pod asks for"));
        assert!(node.now.is_empty());
    }

    /// QEMU's default CPU has no pages of 1 GB: with such a line the kernel would reserve none.
    #[test]
    fn pages_of_1_gb_are_not_proposed_where_the_cpu_has_none() {
        let of = |flags: &str, line: &str| {
            let host = poll().file("/proc/cpuinfo", &format!("processor : 0\nflags : fpu tsc {flags}\n"));
            host.cmdline(line).file("/proc/meminfo", "MemTotal: 33554432 kB\n")
        };
        let pages = |host: Host, total: &str| {
            host.file("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", total).judge("cmd.hugepages").remove(0)
        };
        let small = pages(of("lm", "quiet"), "0\n");
        assert_eq!(small.found, "no huge pages are reserved (this host supports none of 1 GB)");
        let boot = &small.for_good[0];
        assert!(
            boot.starts_with(
                "default_hugepagesz=2M hugepagesz=2M hugepages=2048 # or at boot, 8 of the 32 GB, in pages of 2 MB"
            ),
            "{boot}"
        );
        assert_eq!(pages(of("lm", "quiet"), "512\n").verdict, crate::Verdict::Pass);
        let asked = pages(of("lm", "hugepagesz=1G hugepages=4"), "0\n");
        assert_eq!(asked.found, "the command line reserves 4 pages of 1 GB, which this host does not support");
        assert_eq!((asked.verdict, asked.for_good.len()), (crate::Verdict::Fail, 1));
        let large = pages(of("lm pdpe1gb", "quiet"), "0\n").for_good.remove(0);
        assert!(large.starts_with("default_hugepagesz=1G hugepagesz=1G hugepages=8 "), "{large}");
        let mount = |flags: &str| {
            of(flags, "quiet").file("/proc/mounts", "none / ext4 rw 0 0\n").judge("mem.hugetlbfs").remove(0).now
        };
        assert_eq!(mount("lm"), [super::mount(super::MIB_2)]);
        assert!(mount("pdpe1gb").is_empty());
    }

    /// genoa0: nothing of its memory is recorded, and a service may have reserved more than is proposed.
    #[test]
    fn no_page_is_taken_away() {
        let of = |pages: Option<&str>| {
            let host = poll().cmdline("quiet").file("/proc/meminfo", "MemTotal: 33554432 kB\n");
            let place = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
            let host = pages.map_or(host.clone(), |pages| host.file(place, pages));
            host.judge("cmd.hugepages").remove(0)
        };
        let unknown = of(None);
        assert_eq!(unknown.look, ["cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"]);
        let caution = "Read the file first: if it holds a number above 2048, this would release pages";
        assert!(unknown.now[0].contains(caution), "{unknown:?}");
        let less = of(Some("512\n"));
        assert!(less.look.is_empty() && less.now[0].starts_with("echo 2048 > /sys/kernel/mm/"), "{less:?}");
        for enough in ["2048\n", "4096\n"] {
            assert!(of(Some(enough)).now[0].starts_with("# nothing: "), "{enough}");
        }
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
        // On a node of OpenShift, and of any Kubernetes, the kubelet mounts for each pod.
        Case::pass("mem.hugetlbfs", || mounts("none / ext4 rw 0 0\n").cmdline("ostree=/ostree/boot.0/rhcos/1/0")),
        Case::pass("mem.hugetlbfs", || {
            mounts(
                "none / ext4 rw 0 0\nnone /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\ntmpfs /var/lib/kubelet/pods/x tmpfs rw 0 0\n",
            )
        }),
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
