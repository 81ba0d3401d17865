//! Rules on the network card: its slot and NUMA node, errors, virtual functions, driver and firmware.

use host::Facts;
use host::facts::{CpuSet, PciDevice};
use units::Nanos;

use crate::rules::common::messages;
use crate::rules::interfaces::{USER_SPACE, by_device, by_link, offered, path};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

const DPDK: &str = "DPDK guide Getting Started for Linux, How to get best performance with NICs on Intel platforms";
const DRIVERS: &str = "DPDK guide Getting Started for Linux, Linux Drivers";
const TUNE: &str = "Mellanox mlnx-tools, mlnx_tune";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "pci.numa-node",
        cause: Cause::Placement,
        title: "The card is plugged into the socket of its application",
        applies: Applies::LINUX.with_nic(),
        judge: node,
        why: "Frames go to the memory and cache of the card's socket. An application on another socket fetches each one \
         over the link between the sockets.",
        magnitude: Magnitude::slower(
            "60 to 100 ns more per cache line from the other socket's memory",
            "general knowledge; DPDK's guide and FlexRAN real-time platform slides (2018) ask for one socket without a number",
        ),
        fix: Fix::boot(
            "run the application on CPUs of the card's node, or move the card to a slot of their socket; if the node \
            is -1, update the firmware",
        ),
        cost: "Moving the card interrupts service and needs a free slot. Moving the application needs free CPUs on \
               the card's node.",
        references: &[DPDK, TUNE, "Linux Documentation/networking/device_drivers/ethernet/intel/i40e.rst"],
    },
    Rule {
        id: "pci.aer",
        cause: Cause::PcieBandwidth,
        title: "The card's link has had no errors",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: errors,
        why: "A packet that arrives damaged is sent again, and those behind it wait. Many errors indicate a bad \
              contact or a marginal slot.",
        magnitude: Magnitude::late(
            Nanos::from_micros(1),
            "about a microsecond per replay",
            "PCI Express Base Specification, 3.6 (Ack/Nak, replay timer); the figure is general knowledge",
        ),
        fix: Fix::boot("reseat the card, use another slot, or set a lower link speed in the firmware"),
        cost: "The card must be taken out of service for inspection.",
        references: &["Linux Documentation/PCI/pcieaer-howto.rst"],
    },
    Rule {
        id: "pci.sriov",
        cause: Cause::PcieBandwidth,
        title: "Virtual functions received their resources",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: functions,
        why: "Virtual functions need addresses above 4 GB. If the firmware provides none, they do not appear, or have \
              fewer queues.",
        magnitude: Magnitude::untimed(
            "guests use a software bridge instead: tens of microseconds",
            "FlexRAN real-time platform slides (2018) ask for MMIO above 4G; the figure is general knowledge",
        ),
        fix: Fix::boot("firmware settings: Above 4G decoding and SR-IOV enabled; pci=realloc"),
        cost: "None known.",
        references: &["Linux Documentation/PCI/pci-iov-howto.rst", "Linux drivers/pci/iov.c"],
    },
    Rule {
        id: "nic.driver-messages",
        cause: Cause::NicDriver,
        title: "The card's driver and firmware fit each other",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: complaints,
        why: "At start, drivers report card firmware that is older or newer than they were made for, or a missing \
              package for its pipeline. Then features are off, one queue is used instead of many, or known faults are \
              present.",
        magnitude: Magnitude::untimed(
            "depends on the fault: ice without its package has one queue",
            "Linux Documentation/networking/device_drivers/ethernet/intel/ice.rst, Safe Mode",
        ),
        fix: Fix::boot(
            "flash the firmware that matches the driver (nvmupdate64e, mlxfwmanager), or install linux-firmware",
        ),
        cost: "The update interrupts service. If it fails, it can destroy the card.",
        references: &[
            DPDK,
            "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015)",
            "Intel Ethernet 700 Series Linux performance tuning guide (334019)",
        ],
    },
    Rule {
        id: "nic.binding",
        cause: Cause::NicDriver,
        title: "Cards driven from user space are bound to vfio-pci",
        applies: Applies::LINUX.to(&[Workload::Poll]),
        judge: binding,
        why: "uio_pci_generic and igb_uio provide one interrupt for the whole card or none, and no protection by the \
         IOMMU. vfio-pci provides one interrupt per queue, which an application needs to wait for packets.",
        magnitude: Magnitude::untimed(
            "without an interrupt per queue the application can only poll",
            "DPDK guide Getting Started for Linux, Linux Drivers",
        ),
        fix: Fix::both("dpdk-devbind.py -b vfio-pci {device}", "driverctl set-override {device} vfio-pci"),
        cost: "The host needs an IOMMU, or vfio must use its mode without one.",
        references: &[DRIVERS, "Linux Documentation/driver-api/vfio.rst"],
    },
];

/// Substrings of drivers' messages about a firmware version that does not match the driver, or about firmware errors
/// (i40e_main.c, ice_main.c, ixgbe; mlx5 and bnxt).
const COMPLAINTS: [&str; 4] = ["nvm image", "ddp package file was not found", "entering safe mode", "recovery mode"];
/// If the first kernel message is later than this many seconds after boot, the messages of the boot are missing.
const BOOT_SECONDS: u64 = 10;
/// Substrings of kernel messages about missing address space for virtual functions (drivers/pci/iov.c).
const NO_ROOM: [&str; 2] = ["not enough mmio resources for sr-iov", "can't enable sr-iov"];

fn node(facts: &Facts, context: &Context) -> Judged {
    by_device(facts, context, |device| {
        let nodes = &facts.cpus.nodes;
        if nodes.is_empty() {
            return Err(Skip::unknown("/sys/devices/system/node: the host's nodes are not known"));
        }
        if nodes.len() == 1 {
            return Ok(Judgement::pass("the host has one node").see_as("one node", "/sys/devices/system/node"));
        }
        let at = known(&device.node)?;
        let Some(at) = at else {
            return Ok(Judgement::warn("the firmware does not say which node the card belongs to")
                .see_as("-1", device.node.source()));
        };
        if context.isolated.value.is_empty() {
            let reason = format!("the card belongs to node {at}; name the application's CPUs with --isolated");
            return Err(Skip::unknown(reason));
        }
        let near = |cpu: &u32| facts.cpus.node_of(*cpu) == Some(*at);
        let near: CpuSet = context.isolated.value.iter().filter(near).collect();
        let judgement = match near.is_empty() {
            true => Judgement::warn(format!("none of the isolated CPUs is on its node {at}")),
            false => {
                let far = context.isolated.value.difference(&near);
                match far.is_empty() {
                    true => Judgement::pass(format!("isolated CPUs {near} are on its node {at}")),
                    false => Judgement::pass(format!(
                        "{} of {} isolated CPUs are on its node {at} ({near}): run the card's application there",
                        near.len(),
                        context.isolated.value.len()
                    )),
                }
            }
        };
        Ok(judgement.see_as(at.to_string(), device.node.source()))
    })
}

fn errors(facts: &Facts, context: &Context) -> Judged {
    by_device(facts, context, |device| {
        let corrected = *known(&device.aer_correctable)?;
        let sum = |get: fn(&PciDevice) -> Option<u64>| path(facts, device).into_iter().filter_map(get).sum::<u64>();
        let lost = sum(|part| part.aer_nonfatal.get()).saturating_add(sum(|part| part.aer_fatal.get()));
        let above = sum(|part| part.aer_correctable.get());
        let judgement = match (lost, above) {
            (0, 0) => Judgement::pass("no error since boot, on the card and the ports above it"),
            (0, n) => Judgement::warn(format!("{n} corrected errors since boot, on the card and the ports above it")),
            (n, _) => Judgement::fail(format!("{n} uncorrected errors since boot, on the card and the ports above it")),
        };
        Ok(judgement
            .see_as(format!("{corrected} corrected"), device.aer_correctable.source())
            .see(&device.aer_nonfatal)
            .see(&device.aer_fatal))
    })
}

fn functions(facts: &Facts, context: &Context) -> Judged {
    let (found, count) = messages(facts, &NO_ROOM)?;
    by_device(facts, context, |device| {
        let total = *known(&device.sriov_totalvfs)?;
        if total == 0 {
            return Err(Skip::not_applicable("the card has no virtual functions"));
        }
        let of_card: Vec<&&str> = found.iter().filter(|line| line.contains(&device.address)).collect();
        let judgement = match of_card.first() {
            Some(line) => Judgement::fail("the kernel found no room for its virtual functions")
                .see_as(**line, facts.kernel.messages.source()),
            None => {
                let found = format!(
                    "{} of {total} virtual functions are enabled, and the kernel reports no problem",
                    device.sriov_numvfs
                );
                Judgement::pass(found).see_as(format!("{count} complaints"), facts.kernel.messages.source())
            }
        };
        Ok(judgement.see(&device.sriov_numvfs))
    })
}

/// Whether the kernel messages begin at boot, when drivers start. Each message begins with `[seconds.micros]`.
fn from_boot(messages: &[String]) -> bool {
    let seconds = |line: &String| {
        let stamp = line.trim_start().strip_prefix('[')?.split(['.', ']']).next()?;
        stamp.trim().parse::<u64>().ok()
    };
    messages.iter().find_map(seconds).is_some_and(|first| first < BOOT_SECONDS)
}

fn complaints(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let driver = known(&link.driver)?;
        let firmware = offered(&link.firmware)?;
        let address = known(&link.pci)?;
        let messages = &facts.kernel.messages;
        let complains = |line: &&String| {
            line.contains(address.as_str()) && COMPLAINTS.iter().any(|words| line.to_ascii_lowercase().contains(words))
        };
        let all = known(messages)?;
        let judgement = match all.iter().find(complains) {
            Some(line) => Judgement::warn(format!("{driver} does not fit its firmware {firmware}"))
                .see_as(line.as_str(), messages.source()),
            None if !from_boot(all) => {
                return Err(Skip::unknown(format!(
                    "{}: the messages of the boot are no longer there",
                    messages.source()
                )));
            }
            None => Judgement::pass(format!("{driver} reports no problem with firmware {firmware}")),
        };
        Ok(judgement.see(&link.driver).see(&link.firmware))
    })
}

fn binding(facts: &Facts, _: &Context) -> Judged {
    known(&facts.pci.devices)?;
    let network = facts.pci.iter().filter(|device| device.is_network() == Some(true));
    let mut judgements = Vec::new();
    for device in network {
        let Some(driver) = device.driver.value().filter(|driver| USER_SPACE.contains(&driver.as_str())) else {
            continue;
        };
        let subject = Subject::Device(device.address.clone());
        let judgement = match driver.as_str() {
            "vfio-pci" => Judgement::pass_for(subject, "it is bound to vfio-pci"),
            other => Judgement::warn_for(
                subject,
                format!("it is bound to {other}: no interrupt per queue, no protection by the IOMMU"),
            ),
        };
        judgements.push(judgement.see(&device.driver));
    }
    match judgements.is_empty() {
        true => Err(Skip::not_applicable("no network device is driven from user space")),
        false => Ok(judgements),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::link::tests::{card, device, of};
    use crate::Workload;
    use crate::testing::{Case, Host, host};

    const PLACE: &str = "/sys/bus/pci/devices/0000:3b:00.0";

    /// A recording without interfaces: the name comes from an interrupt, the node from the PCI device.
    fn nameless(node: &str) -> Host {
        let place = "/sys/bus/pci/devices/0000:19:00.0";
        host()
            .nic("eno3")
            .isolated("2-3")
            .file("/sys/devices/system/node/node0/cpulist", "0-3\n")
            .file("/sys/devices/system/node/node1/cpulist", "4-7\n")
            .file(&format!("{place}/class"), "0x020000\n")
            .file(&format!("{place}/numa_node"), &format!("{node}\n"))
            .link(&format!("{place}/driver"), "../../../../bus/pci/drivers/i40e")
    }

    fn on_node(node: &str) -> Host {
        card()
            .isolated("2-3")
            .file("/sys/devices/system/node/node0/cpulist", "0-3\n")
            .file("/sys/devices/system/node/node1/cpulist", "4-7\n")
            .file(&format!("{PLACE}/numa_node"), &format!("{node}\n"))
    }

    fn errors(corrected: u64, fatal: u64) -> Host {
        card()
            .file(&format!("{PLACE}/aer_dev_correctable"), &format!("RxErr 0\nTOTAL_ERR_COR {corrected}\n"))
            .file(&format!("{PLACE}/aer_dev_fatal"), &format!("DLP 0\nTOTAL_ERR_FATAL {fatal}\n"))
    }

    fn functions(message: &str) -> Host {
        card()
            .file(&format!("{PLACE}/sriov_totalvfs"), "64\n")
            .file(&format!("{PLACE}/sriov_numvfs"), "8\n")
            .command("dmesg", message)
    }

    fn said(message: &str) -> Host {
        card()
            .command("ethtool -i eth0", "driver: i40e\nfirmware-version: 9.20\nbus-info: 0000:3b:00.0\n")
            .command("dmesg", message)
    }

    fn bound() -> Host {
        host().workload(Workload::Poll).file(&format!("{PLACE}/class"), "0x020000\n")
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("pci.numa-node", || on_node("0")),
        Case::warn("pci.numa-node", || on_node("1")),
        Case::warn("pci.numa-node", || on_node("-1")),
        Case::unknown("pci.numa-node", card),
        Case::warn("pci.numa-node", || nameless("1")),
        Case::pass("pci.numa-node", || nameless("0")),
        // telco-master: without application CPUs it is not known which node is theirs.
        Case::unknown("pci.numa-node", || on_node("0").isolated("")),
        Case::warn("pci.numa-node", || on_node("-1").isolated("")),
        Case::pass("pci.aer", || errors(0, 0)),
        Case::warn("pci.aer", || errors(7, 0)),
        Case::fail("pci.aer", || errors(0, 1)),
        Case::unknown("pci.aer", card),
        Case::pass("pci.sriov", || functions("[1.0] i40e 0000:3b:00.0: fine\n")),
        Case::fail("pci.sriov", || functions("[1.0] i40e 0000:3b:00.0: not enough MMIO resources for SR-IOV\n")),
        Case::unknown("pci.sriov", card),
        Case::pass("nic.driver-messages", || said("[    0.000000] tsc: Detected 2100.000 MHz processor\n")),
        Case::warn("nic.driver-messages", || {
            said(
                "[1.0] i40e 0000:3b:00.0: The driver for the device detected a newer version of the NVM image than expected\n",
            )
        }),
        Case::unknown("nic.driver-messages", || said("[86400.000000] i40e 0000:3b:00.0 eth0: NIC Link is Down\n")),
        Case::pass("nic.binding", || bound().edit(|facts| device(facts).driver = of("vfio-pci".into()))),
        Case::warn("nic.binding", || bound().edit(|facts| device(facts).driver = of("igb_uio".into()))),
        Case::not_applicable("nic.binding", || bound().edit(|facts| device(facts).driver = of("i40e".into()))),
        Case::unknown("nic.binding", || host().workload(Workload::Poll)),
    ];

    /// Two cards on two nodes, and interrupts that say whose they are; no interface was recorded.
    fn two_cards() -> Host {
        let card = |host: Host, (address, node): &(&str, &str)| {
            let place = format!("/sys/bus/pci/devices/{address}");
            host.file(&format!("{place}/class"), "0x020000\n")
                .file(&format!("{place}/numa_node"), &format!("{node}\n"))
                .link(&format!("{place}/driver"), "../../../../bus/pci/drivers/ice")
        };
        let host = host()
            .isolated("2-3")
            .file("/sys/devices/system/node/node0/cpulist", "0-3\n")
            .file("/sys/devices/system/node/node1/cpulist", "4-7\n")
            .file("/proc/irq/55/smp_affinity_list", "0")
            .file("/proc/irq/56/smp_affinity_list", "0")
            .file(
                "/proc/interrupts",
                "     CPU0 CPU1\n 55: 7 0 IR-PCI-MSIX-0000:4b:00.0 1-edge ice-ens3f0-TxRx-0\n \
                 56: 7 0 IR-PCI-MSIX-0000:98:00.0 1-edge ice-ens6f0-TxRx-0\n",
            );
        [("0000:4b:00.0", "0"), ("0000:98:00.0", "1")].iter().fold(host, card)
    }

    /// telco-master with --nic ens3f0: the card on the other node is that of ens6f0, and nobody's concern.
    #[test]
    fn the_card_of_a_named_interface_is_the_one_whose_interrupts_carry_its_name() {
        let said = |host: Host| -> Vec<String> {
            let judgements = host.judge("pci.numa-node");
            judgements.into_iter().map(|one| format!("{} {} {}", one.subject, one.verdict, one.found)).collect()
        };
        let near = "0000:4b:00.0 pass isolated CPUs 2-3 are on its node 0";
        let far = "0000:98:00.0 warn none of the isolated CPUs is on its node 1";
        assert_eq!(said(two_cards().nic("ens3f0")), [format!("{near}; it is the card of ens3f0")]);
        assert_eq!(said(two_cards().nic("ens6f0")), [format!("{far}; it is the card of ens6f0")]);
        // Some of the CPUs are near: the others are named.
        assert!(
            said(two_cards().nic("ens3f0").isolated("2-4"))[0]
                .contains("2 of 3 isolated CPUs are on its node 0 (2-3): run the card's application there; it is")
        );
        let judgement = two_cards().nic("ens3f0").judge("pci.numa-node").remove(0);
        let seen = judgement.evidence.iter().map(|seen| (seen.value.as_str(), seen.source.as_str()));
        assert!(
            seen.clone()
                .any(|seen| { seen == ("IR-PCI-MSIX-0000:4b:00.0 1-edge ice-ens3f0-TxRx-0", "/proc/interrupts") }),
            "{:?}",
            seen.collect::<Vec<_>>()
        );
        // Which card it is stays open: then all are looked at, and it is said.
        let open = "; which card is ens9 is not recorded";
        assert_eq!(said(two_cards().nic("ens9")), [format!("{near}{open}"), format!("{far}{open}")]);
        let both = [format!("{near}; it is the card of ens3f0"), format!("{far}{open}")];
        assert_eq!(said(two_cards().nic("ens3f0").nic("ens9")), both);
    }

    /// A card that user space drives is not judged beside the one that was named.
    #[test]
    fn cards_that_nobody_named_are_left_alone() {
        let other = "/sys/bus/pci/devices/0000:98:00.0";
        let host = on_node("0")
            .file(&format!("{other}/class"), "0x020000\n")
            .file(&format!("{other}/numa_node"), "1\n")
            .link(&format!("{other}/driver"), "../../../../bus/pci/drivers/vfio-pci");
        let judgements = host.judge("pci.numa-node");
        assert_eq!(judgements.len(), 1, "{judgements:?}");
        assert_eq!(judgements[0].subject.to_string(), "0000:3b:00.0");
    }
}
