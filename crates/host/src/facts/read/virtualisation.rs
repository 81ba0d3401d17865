//! Virtualisation: the hypervisor on which this host runs, and the guests that run on this host.

use std::collections::BTreeMap;

use crate::facts::{Context, Cpus, Dmi, Fact, Guest, Kernel, Task, Virtualisation};

const VIRTIO: &str = "sys/bus/virtio/devices";

pub(super) fn read(
    context: &Context,
    cpus: &Cpus,
    dmi: &Dmi,
    kernel: &Kernel,
    tasks: &Fact<Vec<Task>>,
) -> Virtualisation {
    let root = context.root;
    let guest = cpus.flags.as_ref().map(|flags| flags.contains("hypervisor"));
    let kvm_modules = kernel.modules.as_ref().map(|modules| modules.iter().any(|module| module == "kvm"));
    let kvm_device = root.list("sys/devices/virtual/misc/kvm").map(|_| true);
    Virtualisation {
        hypervisor: hypervisor(context, &guest, dmi, kernel),
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

/// The hypervisor, from /sys/hypervisor or from the firmware's names (as in systemd-detect-virt, src/basic/virt.c
/// `dmi_vendor_table`). Absent on a host that is not a guest.
fn hypervisor(context: &Context, guest: &Fact<bool>, dmi: &Dmi, kernel: &Kernel) -> Fact<String> {
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
    if guest.get() == Some(false) {
        return guest.clone().and_then(|_| Fact::absent("/proc/cpuinfo flag hypervisor"));
    }
    let by_type = context.root.text("sys/hypervisor/type");
    if by_type.is_known() {
        return by_type;
    }
    for fact in [&dmi.product_name, &dmi.system_vendor, &dmi.bios_vendor] {
        let name = fact.value().and_then(|text| BY_VENDOR.iter().find(|(start, _)| text.starts_with(start)));
        if let Some((_, name)) = name {
            return Fact::known((*name).to_owned(), fact.source().clone());
        }
    }
    if let Some(name) = by_kernel(kernel) {
        return name;
    }
    match guest.get() {
        Some(true) => Fact::missing(
            crate::facts::Why::Unsupported("a guest whose firmware does not name its hypervisor".into()),
            dmi.system_vendor.source().clone(),
        ),
        _ => Fact::not_recorded("/sys/hypervisor/type"),
    }
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
    use crate::facts::{Facts, Root};

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

    #[test]
    fn guests_are_processes_with_vcpu_threads() {
        let task = |pid, tid, comm: &str| Task { pid, tid, comm: comm.into(), ..Task::default() };
        let tasks = [task(5, 5, "qemu-kvm"), task(5, 6, "CPU 0/KVM"), task(5, 7, "CPU 1/KVM"), task(9, 9, "bash")];
        let guests = guests(&tasks);
        assert_eq!(guests.len(), 1);
        assert_eq!((guests[0].vcpus[&1], guests[0].others.as_slice()), (7, &[5][..]));
    }
}
