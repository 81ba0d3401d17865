//! Rules on what a guest can see of its hypervisor and of the physical host.

use host::Facts;
use host::facts::CpuSet;
use units::Nanos;

use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known, settled, spaced};

/// The remedy that gives a guest an invariant TSC (libvirt, Format domain, CPU model and topology).
pub(in crate::rules) const INVTSC: &str =
    "libvirt: <cpu mode='host-passthrough' migratable='off'><feature policy='require' name='invtsc'/></cpu>";
pub(in crate::rules) const MIGRATION: &str = "The guest can no longer migrate to a host with another TSC frequency.";

const FLEXRAN: &str = "FlexRAN real-time platform slides (2018)";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "vm.steal",
        cause: Cause::Hypervisor,
        title: "The hypervisor takes no CPU time away",
        applies: Applies::LINUX.in_guest(),
        judge: steal,
        why: "Steal is time in which a virtual CPU wanted to run but the hypervisor ran something else. Packets wait \
              through all of it, and nothing in the guest can help.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "a time slice of the hypervisor's scheduler each time: up to 3 ms with Linux",
            "proc_stat(5), steal; Linux kernel/sched/fair.c, sysctl_sched_base_slice",
        ),
        fix: Fix::for_good(
            "on the host, pin each virtual CPU to a CPU that nothing else may use (virsh vcpupin); in a cloud, rent dedicated CPUs",
        ),
        cost: "Only this guest can use these CPUs.",
        references: &[FLEXRAN, "proc_stat(5)"],
    },
    Rule {
        id: "vm.invtsc",
        cause: Cause::Clock,
        title: "The guest sees an invariant TSC",
        applies: Applies::LINUX.in_guest(),
        judge: counter,
        why: "Without the flags constant_tsc and nonstop_tsc, the guest's kernel does not trust the TSC alone. It may \
         fall back to a clock that is read through the hypervisor or a device.",
        magnitude: Magnitude::untimed(
            "about 20 ns for the TSC, 1 us and more for a clock with a VM exit",
            "Linux Documentation/virt/kvm/x86/timekeeping.rst; the figures are general knowledge",
        ),
        fix: Fix::boot(INVTSC),
        cost: MIGRATION,
        references: &[FLEXRAN, "Linux Documentation/virt/kvm/x86/timekeeping.rst"],
    },
    Rule {
        id: "vm.balloon-devices",
        cause: Cause::MemoryManagement,
        title: "The guest has no balloon and no emulated devices",
        applies: Applies::LINUX.in_guest(),
        judge: devices,
        why: "A balloon takes memory back while the guest runs, and later accesses cause page faults. Each access to an \
         emulated device (IDE disk, e1000, VGA) exits the guest and waits for the emulator's thread, which is not a \
         real-time thread.",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "10 us or more for each access to an emulated device; in one report, VNC consoles were responsible for 15 of 25 ms",
            "xcp-ng issue 586 for VNC; FlexRAN real-time platform slides (2018) advise against emulated devices; the microseconds are general knowledge",
        ),
        fix: Fix::boot(
            "libvirt: <memballoon model='none'/>, virtio or passed-through devices instead of emulated ones, no graphics",
        ),
        cost: "The host cannot take memory back.",
        references: &[FLEXRAN, "xcp-ng issue 586"],
    },
    Rule {
        id: "vm.guest-cmdline",
        cause: Cause::TimerTick,
        title: "The guest's isolated CPUs stop their tick too",
        applies: Applies::LINUX.in_guest().isolated(),
        judge: tick,
        why: "A tick in the guest costs two exits: one when the guest programs the timer, one when the host's timer \
         fires. Stopping the host's tick does not stop the guest's own tick.",
        magnitude: Magnitude::late(
            Nanos::from_micros(4),
            "two exits of 1 to 2 us per tick, 100 to 1000 ticks per second",
            "FlexRAN real-time platform slides (2018), guest command line; the microseconds are general knowledge",
        ),
        fix: Fix::boot("isolcpus=managed_irq,domain,{isolated} nohz_full={isolated} rcu_nocbs={isolated}"),
        cost: "System calls cost more on those CPUs.",
        references: &[FLEXRAN, "tuned profile realtime-virtual-guest"],
    },
];

/// Drivers of devices that a hypervisor emulates. QEMU emulates real IDE and AHCI controllers, network cards and floppy
/// drives, so guests use the drivers of the real devices.
const EMULATED: [&str; 8] = ["ata_piix", "pata_acpi", "floppy", "e1000", "8139cp", "8139too", "ne2k-pci", "pcnet32"];

fn steal(facts: &Facts, context: &Context) -> Judged {
    let interval = facts.interval.value();
    let times = known(&interval.map_or(&facts.counters, |interval| &interval.change).cpu_times)?;
    let cpus = context.critical(facts);
    let taken = cpus.iter().filter_map(|cpu| Some((times.get(&cpu)?.steal, cpu)));
    let Some((most, cpu)) = taken.max() else {
        return Err(Skip::unknown("/proc/stat has no line for the application's CPUs"));
    };
    let span = interval.map_or("since boot".to_owned(), |interval| format!("in {}", interval.length));
    let of_cpu = &times[&cpu];
    let busy = of_cpu.user + of_cpu.system + of_cpu.irq + of_cpu.softirq + of_cpu.nice;
    let all = busy + of_cpu.idle + of_cpu.iowait + most;
    let lost = if context.isolated.value.is_empty() { "lost" } else { "of the application lost" };
    // One packet in ten thousand: rarer delays do not show in any quantile up to p99.99.
    match u128::from(most.as_nanos()) * 10_000 <= u128::from(all.as_nanos()) {
        true => Judgement::pass_for(
            &cpus,
            format!(
                "{span}, the hypervisor took at most {} from any of these CPUs, less than a ten-thousandth of the time",
                spaced(most)
            ),
        ),
        false => Judgement::warn_for(
            cpu,
            format!(
                "{span}, the hypervisor took {} from this CPU, which was busy for {}; no other CPU {lost} more",
                spaced(most),
                spaced(busy)
            ),
        ),
    }
    .see_as(format!("steal {most} of CPU {cpu}"), "/proc/stat")
    .alone()
}

fn counter(facts: &Facts, _: &Context) -> Judged {
    let flags = known(&facts.cpus.flags)?;
    if !flags.contains("tsc") {
        return Err(Skip::not_applicable("the processor has no time stamp counter of x86"));
    }
    let missing: Vec<&str> =
        ["constant_tsc", "nonstop_tsc"].into_iter().filter(|flag| !flags.contains(*flag)).collect();
    let seen: Vec<&str> =
        ["constant_tsc", "nonstop_tsc", "tsc_known_freq"].into_iter().filter(|f| flags.contains(*f)).collect();
    match missing.is_empty() {
        true => Judgement::pass("the counter is invariant"),
        false => Judgement::warn(format!("the guest's CPUs lack {}", missing.join(", "))),
    }
    .see_as(if seen.is_empty() { "none of the flags".into() } else { seen.join(" ") }, facts.cpus.flags.source())
    .see(&facts.kernel.clocksource)
    .alone()
}

fn devices(facts: &Facts, _: &Context) -> Judged {
    let virtio = settled(&facts.virtualisation.virtio)?;
    let pci = settled(&facts.pci.devices)?;
    let mut found = Vec::new();
    if virtio.is_some_and(|drivers| drivers.contains_key("virtio_balloon")) {
        found.push("a memory balloon".to_owned());
    }
    for device in pci.into_iter().flatten() {
        if let Some(driver) = device.driver.value().filter(|driver| EMULATED.contains(&driver.as_str())) {
            found.push(format!("{driver} at {}", device.address));
        }
    }
    match found.is_empty() {
        true => Judgement::pass("the guest has neither a balloon nor a known emulated device"),
        false => Judgement::warn(format!("the guest has {}", found.join(", "))),
    }
    .see_as(
        format!("{} kinds of virtio devices", virtio.map_or(0, |drivers| drivers.len())),
        facts.virtualisation.virtio.source(),
    )
    .see_as(format!("{} PCI devices", pci.map_or(0, |devices| devices.len())), facts.pci.devices.source())
    .alone()
}

fn tick(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    let stopped = settled(&facts.cpus.nohz_full)?.cloned().unwrap_or_else(CpuSet::new);
    let left = isolated.difference(&stopped);
    match left.is_empty() {
        true => Judgement::pass_for(isolated, "their tick can stop"),
        false => Judgement::warn_for(left, "their tick continues whatever the host does"),
    }
    .see(&facts.cpus.nohz_full)
    .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    const NOHZ: &str = "/sys/devices/system/cpu/nohz_full";

    fn guest() -> Host {
        host().guest()
    }

    fn stat(steal: u64) -> Host {
        guest().file("/proc/stat", &format!("cpu0 9 0 9 900 0 0 0 {steal} 0 0\nctxt 1\n"))
    }

    fn flags(flags: &str) -> Host {
        guest().file("/proc/cpuinfo", &format!("processor : 0\nvendor_id : GenuineIntel\nflags : hypervisor {flags}\n"))
    }

    fn driver(name: &'static str) -> Host {
        let link = format!("../../../../bus/virtio/drivers/{name}");
        guest()
            .file("/sys/bus/virtio/devices/virtio0/modalias", "virtio:d00000005v00001AF4")
            .link("/sys/bus/virtio/devices/virtio0/driver", &link)
            .edit(|facts| facts.pci.devices = host::Fact::known(vec![], "/sys/bus/pci/devices"))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("vm.steal", || stat(0)),
        Case::warn("vm.steal", || stat(7)),
        Case::unknown("vm.steal", guest),
        Case::not_applicable("vm.steal", host),
        Case::pass("vm.invtsc", || flags("tsc constant_tsc nonstop_tsc")),
        Case::warn("vm.invtsc", || flags("tsc constant_tsc")),
        Case::unknown("vm.invtsc", guest),
        Case::pass("vm.balloon-devices", || driver("virtio_net")),
        Case::warn("vm.balloon-devices", || driver("virtio_balloon")),
        Case::unknown("vm.balloon-devices", guest),
        Case::pass("vm.guest-cmdline", || guest().isolated("2-7").file(NOHZ, "2-7\n")),
        Case::warn("vm.guest-cmdline", || guest().isolated("2-7").file(NOHZ, "(null)\n")),
        Case::unknown("vm.guest-cmdline", || guest().isolated("2-7")),
    ];
}
