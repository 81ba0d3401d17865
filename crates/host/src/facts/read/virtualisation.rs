//! Virtualisation: the hypervisor on which this host runs, and the guests that run on this host.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{Context, Cpus, Dmi, Fact, Guest, Kernel, Root, Task, Virtualisation, Why};

const VIRTIO: &str = "sys/bus/virtio/devices";

pub(super) fn read(
    context: &Context,
    cpus: &Cpus,
    dmi: &Dmi,
    kernel: &Kernel,
    tasks: &Fact<Vec<Task>>,
) -> Virtualisation {
    let root = context.root;
    let guest = is_guest(root, &cpus.flags, dmi);
    let kvm_modules = kernel.modules.as_ref().map(|modules| modules.iter().any(|module| module == "kvm"));
    let kvm_device = root.list("sys/devices/virtual/misc/kvm").map(|_| true);
    Virtualisation {
        hypervisor: hypervisor(root, &guest, dmi, kernel),
        // The device file shows it if kvm is built in; the module shows it if sysfs was not recorded.
        kvm_host: match kvm_modules.get() {
            Some(true) => kvm_modules,
            _ => kvm_device.or_else(|| kvm_modules),
        },
        guest,
        guests: tasks.as_ref().map(|tasks| guests(tasks)),
        virtio: root.list(VIRTIO).map(|devices| {
            let mut drivers: BTreeMap<String, u32> = BTreeMap::new();
            for driver in
                devices.iter().filter_map(|name| root.link_name(&format!("{VIRTIO}/{name}/driver")).into_value())
            {
                *drivers.entry(driver).or_default() += 1;
            }
            drivers
        }),
    }
}

/// Whether a host is a guest. On x86, the flag `hypervisor` says so, which every hypervisor sets. Other processors have
/// no such flag; there, a hypervisor is known only by its name, and its absence proves nothing.
pub(super) fn is_guest(root: &Root, flags: &Fact<BTreeSet<String>>, dmi: &Dmi) -> Fact<bool> {
    if flags.is_known() {
        return flags.as_ref().map(|flags| flags.contains("hypervisor"));
    }
    if says(&dmi.system_vendor, "Amazon EC2") && dmi.product_name.is(|name| name.contains(".metal")) == Some(true) {
        return dmi.product_name.as_ref().map(|_| false);
    }
    if let Some(name) = by_firmware(root, dmi) {
        return name.map(|_| true);
    }
    match flags.is_absent() {
        true => Fact::missing(
            Why::Unsupported("no hypervisor is named there, which does not prove that there is none".into()),
            "/sys/class/dmi/id, /sys/hypervisor, /sys/firmware/devicetree",
        ),
        false => flags.as_ref().map(|_| false),
    }
}

/// Vendors of hypervisors who also build machines, each with the product name of their virtual ones.
const ALSO_REAL: [(&str, &str); 2] =
    [("Google", "Google Compute Engine"), ("Microsoft Corporation", "Virtual Machine")];

fn says(fact: &Fact<String>, start: &str) -> bool {
    fact.is(|text| text.starts_with(start)) == Some(true)
}

/// The hypervisor. Absent on a host that is not a guest.
fn hypervisor(root: &Root, guest: &Fact<bool>, dmi: &Dmi, kernel: &Kernel) -> Fact<String> {
    if guest.get() == Some(false) {
        return guest.clone().and_then(|_| Fact::absent("/proc/cpuinfo flag hypervisor"));
    }
    if let Some(name) = by_firmware(root, dmi).or_else(|| by_kernel(kernel)) {
        return name;
    }
    match guest.get() {
        Some(true) => Fact::missing(
            Why::Unsupported("a guest whose firmware does not name its hypervisor".into()),
            dmi.system_vendor.source().clone(),
        ),
        _ => Fact::not_recorded("/sys/hypervisor/type"),
    }
}

/// The hypervisor that /sys/hypervisor, the firmware or the device tree names (as in systemd-detect-virt,
/// src/basic/virt.c, `dmi_vendor_table` and `detect_vm_device_tree`). `None` if none of them names one.
fn by_firmware(root: &Root, dmi: &Dmi) -> Option<Fact<String>> {
    const BY_VENDOR: [(&str, &str); 11] = [
        ("KVM", "kvm"),
        ("OpenStack", "kvm"),
        ("KubeVirt", "kvm"),
        ("Amazon EC2", "amazon"),
        ("Google", "google"),
        ("QEMU", "kvm"),
        ("VMware", "vmware"),
        ("innotek GmbH", "virtualbox"),
        ("Xen", "xen"),
        ("Parallels", "parallels"),
        ("Microsoft Corporation", "microsoft"),
    ];
    // The root of the device tree that QEMU and other KVM monitors make (hw/arm/virt.c, hw/ppc/spapr.c).
    const BY_TREE: [(&str, &str); 2] = [("linux,dummy-virt", "kvm"), ("qemu,pseries", "kvm")];
    // What a hypervisor says of itself in the device tree (Documentation/devicetree/bindings/arm/xen.txt).
    const BY_NODE: [(&str, &str); 3] = [("xen", "xen"), ("vmware", "vmware"), ("kvm", "kvm")];
    const TREE: &str = "sys/firmware/devicetree/base";
    let by_type = root.text("sys/hypervisor/type");
    if by_type.is_known() {
        return Some(by_type);
    }
    let is_real =
        |(vendor, product): &(&str, &str)| says(&dmi.system_vendor, vendor) && !says(&dmi.product_name, product);
    let vendors = [&dmi.product_name, &dmi.system_vendor, &dmi.bios_vendor];
    for fact in vendors.into_iter().filter(|_| !ALSO_REAL.iter().any(is_real)) {
        let name = fact.value().and_then(|text| BY_VENDOR.iter().find(|(start, _)| text.starts_with(start)));
        if let Some((_, name)) = name {
            return Some(Fact::known((*name).to_owned(), fact.source().clone()));
        }
    }
    let node = root.text(&format!("{TREE}/hypervisor/compatible"));
    let (tree, names, other) = match node.is_known() {
        true => (node, &BY_NODE[..], Some("other")),
        false => (root.text(&format!("{TREE}/compatible")), &BY_TREE[..], None),
    };
    let text = tree.value()?;
    let name = names.iter().find(|(word, _)| text.contains(*word)).map(|(_, name)| *name).or(other)?;
    Some(Fact::known(name.to_owned(), tree.source().clone()))
}

/// The hypervisor according to the kernel: from the message "Hypervisor detected: KVM", or from a clock source that
/// only one hypervisor offers.
fn by_kernel(kernel: &Kernel) -> Option<Fact<String>> {
    let messages = kernel.messages.value().into_iter().flatten();
    let said = messages.filter_map(|line| line.split_once("Hypervisor detected: ")).map(|(_, name)| name).next();
    if let Some(name) = said.and_then(|name| name.split_whitespace().next()) {
        return Some(Fact::known(name.to_ascii_lowercase(), kernel.messages.source().clone()));
    }
    const CLOCKS: [(&str, &str); 3] = [("kvm-clock", "kvm"), ("hyperv_clocksource", "microsoft"), ("xen", "xen")];
    let offered = kernel.clocksources.value()?;
    let (_, name) = CLOCKS.iter().find(|(clock, _)| offered.iter().any(|offer| offer.starts_with(clock)))?;
    Some(Fact::known((*name).to_owned(), kernel.clocksources.source().clone()))
}

/// Finds processes with threads called `CPU 0/KVM` (QEMU), `vcpu0` or `fc_vcpu 0` (Cloud Hypervisor, Firecracker).
fn guests(tasks: &[Task]) -> Vec<Guest> {
    let vcpu = |comm: &str| -> Option<u32> {
        let number = comm.strip_prefix("CPU ").and_then(|rest| rest.strip_suffix("/KVM"));
        number.or(comm.strip_prefix("fc_vcpu ")).or(comm.strip_prefix("vcpu"))?.trim().parse().ok()
    };
    let mut guests: BTreeMap<u32, Guest> = BTreeMap::new();
    for task in tasks.iter().filter(|task| !task.kernel) {
        if let Some(cpu) = vcpu(&task.comm) {
            let guest = guests.entry(task.pid).or_default();
            guest.pid = task.pid;
            guest.process = task.process.clone();
            guest.vcpus.insert(cpu, task.tid);
        }
    }
    for task in tasks.iter().filter(|task| vcpu(&task.comm).is_none()) {
        if let Some(guest) = guests.get_mut(&task.pid) {
            guest.others.push(task.tid);
        }
    }
    guests.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    fn of(flags: &str, product: &str) -> Virtualisation {
        let info = format!("processor : 0\nflags : tsc {flags}\n");
        Facts::read(&Root::given([("proc/cpuinfo", info.as_str()), ("sys/class/dmi/id/product_name", product)]))
            .virtualisation
    }

    #[test]
    fn a_guest_says_so_and_its_firmware_says_whose() {
        assert_eq!(of("hypervisor", "KVM").hypervisor.value().map(String::as_str), Some("kvm"));
        assert_eq!(of("hypervisor", "KVM").guest.get(), Some(true));
        assert!(of("", "R740").hypervisor.is_absent() && of("", "R740").guest.get() == Some(false));
        assert!(of("hypervisor", "").hypervisor.is_unknown());
    }

    /// Arm has no flag `hypervisor`: without evidence, neither a guest nor a real machine is claimed.
    #[test]
    fn a_guest_without_flags_is_known_by_what_names_its_hypervisor() {
        let of = |files: &[(&str, &str)]| {
            let info = "processor : 0\nFeatures : fp asimd evtstrm\nCPU implementer : 0x41\n";
            let facts = Facts::read(&Root::given([&[("proc/cpuinfo", info)], files].concat()));
            assert!(facts.cpus.flags.is_absent(), "{:?}", facts.cpus.flags);
            (facts.virtualisation.guest.get(), facts.virtualisation.hypervisor.into_value())
        };
        let guest = |name: &str| (Some(true), Some(name.to_owned()));
        const VENDOR: &str = "sys/class/dmi/id/sys_vendor";
        const PRODUCT: &str = "sys/class/dmi/id/product_name";
        const TREE: &str = "sys/firmware/devicetree/base/compatible";
        assert_eq!(of(&[(VENDOR, "QEMU\n"), (PRODUCT, "KVM Virtual Machine\n")]), guest("kvm"));
        assert_eq!(of(&[(VENDOR, "Amazon EC2\n"), (PRODUCT, "c7g.large\n")]), guest("amazon"));
        assert_eq!(of(&[(VENDOR, "Amazon EC2\n"), (PRODUCT, "c7g.metal\n")]), (Some(false), None));
        assert_eq!(of(&[("sys/hypervisor/type", "xen\n")]), guest("xen"));
        assert_eq!(of(&[(TREE, "linux,dummy-virt\0")]), guest("kvm"));
        assert_eq!(of(&[("sys/firmware/devicetree/base/hypervisor/compatible", "acme,visor\0")]), guest("other"));
        assert_eq!(of(&[(VENDOR, "Microsoft Corporation\n"), (PRODUCT, "Virtual Machine\n")]), guest("microsoft"));
        assert_eq!(of(&[(VENDOR, "Microsoft Corporation\n"), (PRODUCT, "Surface Pro\n")]), (None, None));
        assert_eq!(of(&[(VENDOR, "GIGABYTE\n"), (PRODUCT, "R272-P30\n"), (TREE, "ampere,altra\0")]), (None, None));
        // Where x86 flags were not recorded, the firmware's name still counts.
        let facts = Facts::read(&Root::given([(VENDOR, "QEMU\n")]));
        assert_eq!(facts.virtualisation.guest.get(), Some(true));
    }

    #[test]
    fn guests_are_processes_with_vcpu_threads() {
        let task = |pid, tid, comm: &str| Task { pid, tid, comm: comm.into(), ..Task::default() };
        let tasks = [task(5, 5, "qemu-kvm"), task(5, 6, "CPU 0/KVM"), task(5, 7, "CPU 1/KVM"), task(9, 9, "bash")];
        let guests = guests(&tasks);
        assert_eq!(guests.len(), 1);
        assert_eq!((guests[0].vcpus[&1], guests[0].others.as_slice()), (7, &[5][..]));
    }
}
