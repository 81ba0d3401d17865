//! Rules on parameters for memory and devices.

use host::Facts;
use units::Nanos;

use crate::rules::common::{given, line, see_parameter};
use crate::rules::memory::{GIB, MIB_2, Proposal, bytes, has_gib_pages};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const DPDK: &str = "DPDK guide Getting Started for Linux, How to get best performance with NICs on Intel platforms";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cmd.hugepages",
        cause: Cause::HugePages,
        title: "The huge pages that the command line reserves exist",
        applies: Applies::LINUX.to(&[Workload::Poll, Workload::KvmHost]),
        judge: hugepages,
        why: "Pages of 1 GB need contiguous memory, which exists only at boot. Without huge pages each packet buffer \
              causes TLB misses. If there are fewer than the application needs, it does not start.",
        magnitude: Magnitude::slower(
            "a page walk of tens to a few hundred nanoseconds for each buffer that is not in the TLB",
            "general knowledge of page walks; the DPDK guide Getting Started for Linux asks for 1 GB pages",
        ),
        fix: Fix::runtime_or_boot(
            // The judge knows the amount of memory and the node.
            "echo 2048 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages # reserves 4 GB in pages of 2 MB: \
            adjust the number to the application",
            "default_hugepagesz=1G hugepagesz=1G hugepages=4 # or at boot, 4 GB in pages of 1 GB: adjust it to the application",
        )
        .decided(),
        cost: "Nothing else can use the reserved memory.",
        references: &[DPDK, "Linux Documentation/admin-guide/mm/hugetlbpage.rst"],
    },
    Rule {
        id: "cmd.iommu-pt",
        cause: Cause::Iommu,
        title: "The kernel's own devices bypass the IOMMU",
        applies: Applies::LINUX.with_nic().on_hardware(),
        judge: iommu,
        why: "With translation, each packet buffer is mapped before its transfer and unmapped after it, and the IOMMU's \
         own cache must be flushed. In pass-through mode the kernel's drivers use an identity mapping, while \
         vfio-pci still gets its own mapping.",
        magnitude: Magnitude::slower(
            "a few hundred nanoseconds per packet for the mapping, more for each flush",
            "Linux Documentation/admin-guide/kernel-parameters.txt, iommu.passthrough, names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::boot("iommu=pt"),
        cost: "A device that the kernel drives can reach all memory.",
        references: &[
            "DPDK guide Getting Started for Linux, Linux Drivers, VFIO",
            "Intel Ethernet 700 Series Linux Performance Tuning Guide (334019)",
        ],
    },
    Rule {
        id: "cmd.thp",
        cause: Cause::MemoryManagement,
        title: "transparent_hugepage= is never or madvise, and still in force",
        applies: Applies::LINUX,
        judge: transparent,
        why: "With always, page faults may compact memory, and khugepaged moves pages of running applications. Each move \
         interrupts all CPUs that use the pages.",
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
        references: &["Linux Documentation/admin-guide/mm/transhuge.rst", "tuned profile network-latency"],
    },
    Rule {
        id: "cmd.usb-autosuspend",
        cause: Cause::LinkPower,
        title: "USB devices are not suspended and resumed",
        applies: Applies::LINUX.to(&[Workload::Rt]).on_hardware(),
        judge: usb,
        why: "A USB hub that is suspended and resumed causes work in the kernel. With legacy support in the firmware, it \
         also causes system management interrupts.",
        magnitude: Magnitude::untimed(
            "tens of milliseconds of work in a worker thread for each resume",
            "Linux Documentation/driver-api/usb/power-management.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::runtime_or_boot("echo -1 > /sys/module/usbcore/parameters/autosuspend", "usbcore.autosuspend=-1"),
        cost: "Idle USB devices use some power.",
        references: &[
            "FlexRAN real-time platform slides (2018), kernel command line",
            "Linux Documentation/driver-api/usb/power-management.rst",
        ],
    },
    Rule {
        id: "cmd.vfio-d3",
        cause: Cause::LinkPower,
        title: "Unused vfio devices do not sleep",
        applies: Applies::LINUX.to(&[Workload::Poll, Workload::KvmHost]),
        judge: vfio,
        why: "vfio-pci puts a device that nobody uses into D3hot. Opening it then includes the way back to D0, for \
              many devices with a reset.",
        magnitude: Magnitude::untimed(
            "10 ms and more for the transition from D3hot to D0, when the device is opened",
            "PCI Express Base Specification, section 5.9, PCI Function Power State Transitions: 10 ms from D3hot",
        ),
        fix: Fix::boot("options vfio-pci disable_idle_d3=1 in /etc/modprobe.d/vfio.conf"),
        cost: "Idle devices use more power.",
        references: &["OpenShift vDU reference configuration", "Linux drivers/vfio/pci/vfio_pci.c, disable_idle_d3"],
    },
    Rule {
        id: "cmd.pcie-aspm",
        cause: Cause::LinkPower,
        title: "PCI Express links do not sleep",
        applies: Applies::LINUX.on_hardware(),
        judge: aspm,
        why: "A link in L1 must be trained awake before the next packet's descriptor can cross it. pcie_aspm=off does \
              not switch this off: it makes the kernel keep what the firmware chose.",
        magnitude: Magnitude::untimed(
            "the link's exit latency, which each device reports in its Link Capabilities (lspci -vv, LnkCap)",
            "PCI Express Base Specification, 7.5.3.6, L0s and L1 Exit Latency fields",
        ),
        fix: Fix::runtime_or_boot(
            "echo performance > /sys/module/pcie_aspm/parameters/policy",
            "pcie_aspm.policy=performance",
        ),
        cost: "Each device uses some watts more.",
        references: &[
            "Linux Documentation/admin-guide/kernel-parameters.txt, pcie_aspm",
            "Linux Documentation/core-api/real-time/hardware.rst",
            "FlexRAN real-time platform slides (2018), IO Optimizations",
        ],
    },
    Rule {
        id: "cmd.efi-runtime",
        cause: Cause::Firmware,
        title: "Calls to EFI services stay on housekeeping CPUs",
        applies: Applies::LINUX.to(&[Workload::Rt]).isolated(),
        judge: efi,
        why: "A call into the firmware runs with preemption off for as long as the firmware likes, and some firmware \
              stops all CPUs. Real-time kernels disable these services by default, others enable them; efi=runtime and \
              efi=noruntime override this.",
        magnitude: Magnitude::late(
            Nanos::from_micros(500),
            "hundreds of microseconds or more to write a variable",
            "Linux Documentation/core-api/real-time/hardware.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::runtime_or_boot(
            "echo {housekeeping-mask} > /sys/devices/virtual/workqueue/efi_runtime/cpumask",
            "efi=noruntime",
        ),
        cost: "Without runtime services the boot entries cannot be changed from Linux.",
        references: &["Linux Documentation/core-api/real-time/hardware.rst", "OpenShift vDU reference configuration"],
    },
];

fn hugepages(facts: &Facts, context: &Context) -> Judged {
    let line = line(facts)?;
    let pool = pages_of(facts, GIB);
    let subject = Subject::Parameter("hugepages".into());
    // The pages of 1 GB that the line reserves: the counts that follow a size of 1G, or follow the default size if that
    // is 1G.
    let is_gib = |value: Option<&str>| value.and_then(bytes) == Some(GIB);
    let mut size_is_gib = is_gib(line.value("default_hugepagesz"));
    let mut asked: Option<u64> = None;
    let mut word = if line.has("hugepages") { "no hugepages= of 1 GB" } else { "no hugepages=" }.to_owned();
    for parameter in &line.parameters {
        match parameter.name.as_str() {
            "hugepagesz" => size_is_gib = is_gib(parameter.value.as_deref()),
            "hugepages" if size_is_gib => {
                asked = parameter.value.as_deref().and_then(pages).or(asked);
                word = format!("{parameter} of 1 GB");
            }
            _ => {}
        }
    }
    let propose = |judgement: Judgement| Proposal::of_cpus(facts, context).fixes(facts, judgement);
    let judgement = match (asked.filter(|asked| *asked > 0), pool) {
        (Some(asked), _) if !has_gib_pages(facts) => propose(Judgement::fail_for(
            subject,
            format!("the command line reserves {asked} pages of 1 GB, which this host does not support"),
        )),
        (None, None) if !has_gib_pages(facts) => small_pages(facts, subject, propose),
        (Some(_), None) => {
            return Err(Skip::unknown("/sys/kernel/mm/hugepages/hugepages-1048576kB: not recorded"));
        }
        (Some(asked), Some(pool)) => match *known(&pool)? {
            total if total >= asked => {
                Judgement::pass_for(subject, format!("the host has {total} pages of 1 GB")).see(&pool)
            }
            total => Judgement::fail_for(
                subject,
                format!("the command line reserves {asked} pages of 1 GB, but the host has {total}"),
            )
            .look("dmesg | grep -i hugetlb")
            .now(format!(
                "echo {asked} > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages # gets as many pages as \
                there is contiguous memory for"
            ))
            .for_good("reserve no more than each node has in contiguous memory at boot")
            .see(&pool),
        },
        (None, pool) => match pool.as_ref().and_then(host::Fact::get) {
            Some(0) => propose(Judgement::warn_for(subject, "no pages of 1 GB are reserved")),
            Some(total) => {
                Judgement::pass_for(subject, format!("the host has {total} pages of 1 GB, reserved after boot"))
            }
            None => propose(Judgement::warn_for(
                subject,
                "the command line reserves no pages of 1 GB; it is not recorded whether a service reserves some",
            )),
        }
        .see_if(pool.as_ref()),
    };
    judgement.see_as(word, facts.cmdline.source()).alone()
}

/// Judges the pages of 2 MB of a host that supports none of 1 GB.
fn small_pages(facts: &Facts, subject: Subject, propose: impl Fn(Judgement) -> Judgement) -> Judgement {
    let pool = pages_of(facts, MIB_2);
    match pool.as_ref().and_then(host::Fact::get) {
        Some(0) => {
            propose(Judgement::warn_for(subject, "no huge pages are reserved (this host supports none of 1 GB)"))
        }
        Some(total) => {
            Judgement::pass_for(subject, format!("the host has {total} pages of 2 MB (it supports none of 1 GB)"))
        }
        None => propose(Judgement::warn_for(
            subject,
            "this host supports no pages of 1 GB, and whether pages of 2 MB are reserved is not recorded",
        )),
    }
    .see_if(pool.as_ref())
}

/// Parses a number of pages, such as `16`. If there is one number per node, such as `0:8,1:8`, returns their sum
/// (kernel-parameters.txt, hugepages).
fn pages(value: &str) -> Option<u64> {
    let count = |part: &str| part.rsplit(':').next()?.parse::<u64>().ok();
    value.split(',').map(count).sum()
}

/// Number of pages of this size: the kernel's count for the host, otherwise the sum over all nodes. `None` if
/// neither is known.
fn pages_of(facts: &Facts, size: u64) -> Option<host::Fact<u64>> {
    let of = |pools: &[host::facts::HugePages]| pools.iter().find(|pool| pool.page_bytes == size)?.total.get();
    if let Some(pool) = facts.memory.huge_pages.iter().find(|pool| pool.page_bytes == size) {
        return Some(pool.total.clone());
    }
    let nodes = facts.cpus.nodes.iter().map(|node| of(&node.huge_pages));
    let total: u64 = nodes.collect::<Option<Vec<u64>>>().filter(|nodes| !nodes.is_empty())?.into_iter().sum();
    let source = format!("/sys/devices/system/node/node*/hugepages/hugepages-{}kB/nr_hugepages", size >> 10);
    Some(host::Fact::known(total, source.as_str()))
}

fn iommu(facts: &Facts, context: &Context) -> Judged {
    let groups = known(&facts.pci.iommu_groups)?;
    let mut judgements = Vec::new();
    for link in context.links(facts) {
        let Some(address) = link.pci.value() else { continue };
        let Some(device) = facts.pci.device(address) else { continue };
        let group = known(&device.iommu_group)?;
        let Some(kind) = groups.get(group) else { continue };
        let subject = Subject::Link(link.name.clone());
        let judgement = match kind.as_str() {
            "identity" => Judgement::pass_for(subject, "its transfers are not translated"),
            kind => Judgement::warn_for(subject, format!("its transfers are translated (domain {kind})")),
        };
        let source = format!("/sys/kernel/iommu_groups/{group}/type");
        judgements.push(see_parameter(judgement.see_as(kind.as_str(), source), facts, "iommu"));
    }
    match judgements.is_empty() {
        true if groups.is_empty() => Err(Skip::not_applicable("no IOMMU is in use")),
        true => Err(Skip::unknown("/sys/kernel/iommu_groups: the interfaces' groups are not known")),
        false => Ok(judgements),
    }
}

fn transparent(facts: &Facts, _: &Context) -> Judged {
    let asked = given(facts, "transparent_hugepage")?.value.as_deref().unwrap_or_default();
    let now = &facts.memory.thp_enabled;
    let subject = Subject::Parameter("transparent_hugepage".into());
    let judgement = match known(now)?.as_str() {
        "always" if asked != "always" => Judgement::warn_for(
            subject,
            format!("the command line sets {asked}, but something has set always since boot"),
        ),
        "always" => Judgement::warn_for(subject, "the command line sets always"),
        now => Judgement::pass_for(subject, format!("{now} is in force")),
    };
    see_parameter(judgement.see(now), facts, "transparent_hugepage").alone()
}

fn usb(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.parameter("usbcore.autosuspend");
    let judgement = match known(&fact)?.trim() {
        "-1" => Judgement::pass("USB devices stay awake"),
        seconds => Judgement::warn(format!("USB devices sleep after {seconds} s")),
    };
    see_parameter(judgement.see(&fact), facts, "usbcore.autosuspend").alone()
}

fn vfio(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.parameter("vfio_pci.disable_idle_d3");
    let judgement = match known(&fact)?.trim() {
        "Y" | "1" => Judgement::pass("unused vfio devices stay awake"),
        _ => Judgement::warn("vfio-pci puts unused devices to sleep"),
    };
    judgement.see(&fact).alone()
}

fn aspm(facts: &Facts, _: &Context) -> Judged {
    let policy = &facts.pci.aspm_policy;
    let off = facts.cmdline.value().is_some_and(|line| line.value("pcie_aspm") == Some("off"));
    let judgement = match known(policy)?.as_str() {
        "performance" if !off => Judgement::pass("links stay awake"),
        // Only the devices' Link Control registers show what the firmware chose; the rule pci.aspm reads them.
        "default" => return Err(as_the_firmware_chose(policy, "the policy default")),
        _ if off => return Err(as_the_firmware_chose(policy, "pcie_aspm=off")),
        policy => Judgement::warn(format!("the policy is {policy}: links may sleep")),
    };
    see_parameter(judgement.see(policy), facts, "pcie_aspm").alone()
}

fn as_the_firmware_chose(policy: &host::Fact<String>, by: &str) -> Skip {
    let source = policy.source();
    Skip::unknown(format!("{source}: {by} leaves links as the firmware set them; pci.aspm checks each device"))
}

fn efi(facts: &Facts, context: &Context) -> Judged {
    let subject = Subject::Parameter("efi".into());
    let line = line(facts)?;
    if line.has("noefi") || line.has_value("efi", "noruntime") {
        return see_parameter(Judgement::pass_for(subject, "EFI runtime services are off"), facts, "efi").alone();
    }
    // CONFIG_EFI_DISABLE_RUNTIME is y by default only for real-time kernels (drivers/firmware/efi/Kconfig). Without
    // runtime services, efivarfs cannot be mounted (fs/efivarfs/super.c).
    let mounted = facts.memory.is_mounted("efivarfs");
    if !line.has_value("efi", "runtime") && *known(&facts.kernel.realtime)? && mounted.get() != Some(true) {
        let realtime = &facts.kernel.realtime;
        let judgement = match mounted.get() {
            Some(_) => Judgement::pass_for(
                subject,
                "EFI runtime services are off: no efivarfs is mounted, and they are off by default on a real-time \
                 kernel",
            )
            .see_whether(&mounted, "efivarfs", "no efivarfs"),
            None => Judgement::pass_for(
                subject,
                "EFI runtime services are off, as they are by default on a real-time kernel",
            ),
        };
        let judgement = judgement.see_whether(realtime, "a real-time kernel", "not a real-time kernel");
        return see_parameter(judgement, facts, "efi").alone();
    }
    let Some(mask) = facts.workqueues.each.get("efi_runtime") else {
        return Err(Skip::unknown("/sys/devices/virtual/workqueue/efi_runtime/cpumask: not recorded"));
    };
    let stray = known(mask)?.intersection(&context.isolated.value);
    let judgement = match stray.is_empty() {
        true => Judgement::pass_for(subject, "calls of runtime services stay on housekeeping CPUs"),
        false => Judgement::warn_for(&stray, format!("calls of runtime services may run on CPUs {stray}")),
    };
    see_parameter(judgement.see(mask), facts, "efi").alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use host::Fact;
    use host::facts::{Link, PciDevice};

    use super::*;
    use crate::testing::{Case, Host, host};

    const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";
    const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    const USB: &str = "/sys/module/usbcore/parameters/autosuspend";
    const D3: &str = "/sys/module/vfio_pci/parameters/disable_idle_d3";
    const ASPM: &str = "/sys/module/pcie_aspm/parameters/policy";
    const EFI: &str = "/sys/devices/virtual/workqueue/efi_runtime/cpumask";
    const LINE: &str = "default_hugepagesz=1G hugepagesz=1G hugepages=16 hugepagesz=2M hugepages=0";

    fn poll(line: &str) -> Host {
        host().workload(Workload::Poll).cmdline(line)
    }

    /// Two nodes with these pages of 1 GB, and no count for the host.
    fn on_nodes(host: Host, first: &str, second: &str) -> Host {
        [(0, first), (1, second)].into_iter().fold(host, |host, (node, pages)| {
            let place = format!("/sys/devices/system/node/node{node}");
            host.file(&format!("{place}/cpulist"), &format!("{}-{}", node * 4, node * 4 + 3))
                .file(&format!("{place}/hugepages/hugepages-1048576kB/nr_hugepages"), pages)
        })
    }

    /// telco-master, kvm-guest-sno: the nodes' counts are recorded; telco-worker1: hugepages=0 is of 2 MB.
    #[test]
    fn pages_of_each_node_are_counted_and_another_size_is_no_evidence() {
        let judgement = on_nodes(poll("hugepagesz=2M hugepages=0"), "0\n", "0\n").judge("cmd.hugepages").remove(0);
        assert_eq!(judgement.found, "no pages of 1 GB are reserved");
        let seen: Vec<&str> = judgement.evidence.iter().map(|seen| seen.value.as_str()).collect();
        assert_eq!(seen, ["0", "no hugepages= of 1 GB"]);
        let judgement = on_nodes(poll("quiet"), "3\n", "1\n").judge("cmd.hugepages").remove(0);
        assert!(judgement.found.starts_with("the host has 4 pages of 1 GB"), "{judgement:?}");
        let open = poll("quiet").judge("cmd.hugepages").remove(0);
        assert!(open.found.contains("not recorded") && open.evidence.len() == 1, "{open:?}");
    }

    /// gnr0: of 16 pages over two nodes, 8 are of no use to an application on one. telco-worker1: the profile has them.
    #[test]
    fn pages_are_asked_for_in_proportion_and_where_they_are_used() {
        let fix = |line: &str, release: &str, isolated: &str, total: &str, node: &str| {
            let host =
                on_nodes(poll(line), "0\n", "0\n").isolated(isolated).file("/proc/sys/kernel/osrelease", release);
            let host = host.file("/proc/meminfo", &format!("MemTotal: {total} kB\n"));
            let place = "/sys/devices/system/node/node1/meminfo";
            let mut judgement =
                host.file(place, &format!("Node 1 MemTotal: {node} kB\n")).judge("cmd.hugepages").remove(0);
            (judgement.now.remove(0), judgement.for_good.remove(0))
        };
        // Nodes of CPUs 0-3 and 4-7; 32 GB on one of them, 64 GB on both.
        let (now, boot) = fix("quiet", "6.1.0", "5-7", "67108864", "33554432");
        assert!(now.starts_with("echo 2048 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB"), "{now}");
        assert!(
            boot.starts_with("default_hugepagesz=1G hugepagesz=1G hugepages=1:8 # or at boot, 8 of the 32 GB"),
            "{boot}"
        );
        let (_, boot) = fix("quiet", "5.14.0", "5-7", "67108864", "33554432");
        assert!(boot.contains("hugepages=16 ") && boot.contains("shares them out over 2 nodes"), "{boot}");
        let (now, boot) = fix("quiet", "6.1.0", "2-7", "8388608", "4194304");
        assert!(boot.contains(" hugepages=2 ") && now.starts_with("echo 512 > /sys/kernel/mm"), "{now} {boot}");
        let node = "ostree=/ostree/boot.0/rhcos/1/0 tuned.non_isolcpus=00000003";
        let (now, boot) = fix(node, "6.1.0", "5-7", "67108864", "33554432");
        assert!(boot.contains("spec.hugepages") && boot.contains("count: 8, node: 1"), "{boot}");
        assert!(now.starts_with("# nothing"), "{now}");
    }

    fn rt() -> Host {
        host().workload(Workload::Rt).isolated("2-7")
    }

    fn in_group(facts: &mut Facts, kind: &str) {
        let link =
            Link { name: "eth0".into(), pci: Fact::known("0000:03:00.0".into(), "ethtool -i eth0"), ..Link::default() };
        let group = Fact::known(7, "/sys/bus/pci/devices/0000:03:00.0/iommu_group");
        let device = PciDevice { address: "0000:03:00.0".into(), iommu_group: group, ..PciDevice::default() };
        facts.links = Fact::known(vec![link], "/sys/class/net");
        facts.pci.devices = Fact::known(vec![device], "/sys/bus/pci/devices");
        facts.pci.iommu_groups = Fact::known(BTreeMap::from([(7, kind.into())]), "/sys/kernel/iommu_groups");
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cmd.hugepages", || poll(LINE).file(POOL, "16\n")),
        Case::fail("cmd.hugepages", || poll(LINE).file(POOL, "9\n")),
        Case::warn("cmd.hugepages", || poll("quiet").file(POOL, "0\n")),
        Case::unknown("cmd.hugepages", || poll(LINE)),
        Case::fail("cmd.hugepages", || on_nodes(poll(LINE), "8\n", "2\n")),
        Case::pass("cmd.hugepages", || on_nodes(poll("hugepagesz=1G hugepages=0:8,1:2"), "8\n", "2\n")),
        Case::pass("cmd.iommu-pt", || host().nic("eth0").edit(|facts| in_group(facts, "identity"))),
        Case::warn("cmd.iommu-pt", || host().nic("eth0").edit(|facts| in_group(facts, "DMA-FQ"))),
        Case::unknown("cmd.iommu-pt", || host().nic("eth0")),
        Case::pass("cmd.thp", || host().cmdline("transparent_hugepage=never").file(THP, "always madvise [never]\n")),
        Case::warn("cmd.thp", || host().cmdline("transparent_hugepage=never").file(THP, "[always] madvise never\n")),
        Case::unknown("cmd.thp", || host().cmdline("transparent_hugepage=never")),
        Case::not_applicable("cmd.thp", || host().cmdline("quiet").file(THP, "[always] madvise never\n")),
        Case::pass("cmd.usb-autosuspend", || rt().file(USB, "-1\n")),
        Case::warn("cmd.usb-autosuspend", || rt().file(USB, "2\n")),
        Case::unknown("cmd.usb-autosuspend", rt),
        Case::pass("cmd.vfio-d3", || poll("").file(D3, "Y\n")),
        Case::warn("cmd.vfio-d3", || poll("").file(D3, "N\n")),
        Case::unknown("cmd.vfio-d3", || poll("")),
        Case::pass("cmd.pcie-aspm", || host().file(ASPM, "default [performance] powersave\n")),
        Case::warn("cmd.pcie-aspm", || host().file(ASPM, "default performance [powersave]\n")),
        Case::unknown("cmd.pcie-aspm", || host().file(ASPM, "[default] performance powersave\n")),
        Case::unknown("cmd.pcie-aspm", || host().file(ASPM, "default [performance]\n").cmdline("pcie_aspm=off")),
        Case::unknown("cmd.pcie-aspm", host),
        Case::pass("cmd.efi-runtime", || rt().cmdline("quiet").file("/sys/kernel/realtime", "1\n")),
        // Where variables of the firmware are mounted, the services are on.
        Case::warn("cmd.efi-runtime", || {
            let host = rt().cmdline("quiet").file("/sys/kernel/realtime", "1\n").file(EFI, "ff\n");
            host.file("/proc/mounts", "/dev/sda1 / xfs rw 0 0\nefivarfs /sys/firmware/efi/efivars efivarfs rw 0 0\n")
        }),
        Case::pass("cmd.efi-runtime", || rt().cmdline("efi=noruntime").file("/sys/kernel/realtime", "0\n")),
        Case::unknown("cmd.efi-runtime", || rt().cmdline("quiet").file("/sys/kernel/realtime", "0\n")),
        Case::warn("cmd.efi-runtime", || rt().cmdline("quiet").file("/sys/kernel/realtime", "0\n").file(EFI, "ff\n")),
        Case::warn("cmd.efi-runtime", || rt().cmdline("efi=runtime").file(EFI, "ff\n")),
        Case::unknown("cmd.efi-runtime", || rt().cmdline("efi=runtime")),
    ];
}
