//! Real machines, recorded by others: each reads without a fact that was not understood, and what is known
//! about it is as the machine was.

use host::facts::{CpuSet, Facts, Generation, KernelVersion, ResumeLatency, Root, Vendor, Why, bits};
use units::{Hertz, Nanos};

use crate::support::recorded_hosts;

/// The facts of one recorded host; `None`, said aloud, where the recordings are not there.
fn host(name: &str) -> Option<Facts> {
    let Some(folder) = recorded_hosts() else {
        testkit::skip("there are no recorded hosts (a folder shared/hosts beside the checkout)");
        return None;
    };
    let root = Root::open(folder.join(format!("{name}.tar.gz"))).unwrap();
    assert_eq!(root.notes(), &[] as &[String], "{name}");
    let facts = Facts::read(&root);
    let text = format!("{facts:?}");
    assert!(!text.contains("Malformed"), "{name}: {}", &text[text.find("Malformed").unwrap()..][..200]);
    Some(facts)
}

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

#[test]
fn telco_worker1_a_tuned_realtime_node() {
    let Some(facts) = host("telco-worker1") else { return };
    let cpus = &facts.cpus;
    assert_eq!(cpus.present.value(), None, "it was not recorded");
    assert_eq!(cpus.all(), CpuSet::below(80));
    assert_eq!((cpus.vendor.get(), cpus.generation.get()), (Some(Vendor::Intel), Some(Generation::CascadeLake)));
    assert_eq!(cpus.cpu(7).unwrap().siblings.value(), Some(&CpuSet::from([7, 47])));
    assert_eq!((cpus.node_of(0), cpus.node_of(1), cpus.nodes.len()), (Some(0), Some(1), 2));
    assert_eq!(cpus.nodes[0].distances.value(), Some(&vec![10, 21]));
    let has = |flag: &str| cpus.flags.is(|flags| flags.contains(flag));
    assert!(has("nonstop_tsc") == Some(true) && has("hypervisor") == Some(false));

    let line = facts.cmdline.value().unwrap();
    let isolated = line.last("isolcpus").unwrap().cpu_set(&CpuSet::below(80)).unwrap();
    assert_eq!(isolated, set("0-4,11-79"));
    assert_eq!(line.last("isolcpus").unwrap().flags().collect::<Vec<_>>(), ["managed_irq"]);
    assert_eq!((line.all("tsc").count(), line.all("skew_tick").count()), (2, 2), "twice each");
    assert_eq!((line.value("idle"), line.value("mce")), (Some("poll"), Some("off")));
    assert_eq!(CpuSet::parse_mask(line.value("tuned.non_isolcpus").unwrap()), Ok(set("5-10")));
    assert_eq!(facts.kernel.version.get(), Some(KernelVersion::new(5, 14)));
    assert_eq!(facts.kernel.realtime.get(), Some(true), "by the release's name");

    assert_eq!(facts.irqs.list.value().unwrap().len(), 554);
    let strays: Vec<_> =
        facts.irqs.iter().filter(|irq| irq.effective.is(|set| set.intersects(&isolated)) == Some(true)).collect();
    assert_eq!(strays.len(), 513);
    let table = facts.counters.interrupts.value().unwrap();
    assert_eq!(table.cpus.len(), 80);
    let on_isolated = |part: &str| -> u64 {
        let rows = table.rows.iter().filter(|row| row.irq().is_some() && row.description.contains(part));
        rows.map(|row| table.within(row, &isolated)).sum()
    };
    let network = on_isolated("i40e") + on_isolated("eno") + on_isolated("ens") + on_isolated("mlx5");
    assert!((4_500_000..6_000_000).contains(&network), "{network} interrupts of network cards");
    let tick = table.row("LOC").unwrap();
    assert!(table.within(tick, &isolated) > table.within(tick, &set("5-10")), "the tick runs on isolated CPUs");
    assert!(facts.counters.softirqs.value().unwrap().row("NET_RX").is_some());

    assert_eq!(facts.dmi.product_name.value().map(String::as_str), Some("PowerEdge R740xd"));
    assert_eq!(facts.dmi.bios_date.value().map(String::as_str), Some("02/19/2024"));
    assert_eq!(facts.virtualisation.guest.get(), Some(false));
    let devices = facts.pci.devices.value().unwrap();
    assert!(devices.iter().any(|device| device.is_network() == Some(true) && device.node.get().is_some()));
    assert!(devices.iter().any(|device| device.upstream.is_some()));
    // What was not recorded says nothing about the host.
    for unknown in [facts.idle.driver.why(), facts.scaling.no_turbo.why(), facts.links.why(), facts.tasks.why()] {
        assert_eq!(unknown, Some(&Why::NotRecorded));
    }
    assert!(facts.interval.is_unknown() && facts.cpus.list[0].idle_states.is_unknown());
}

#[test]
fn telco_master_an_untuned_node() {
    let Some(facts) = host("telco-master") else { return };
    assert_eq!((facts.cpus.list.len(), facts.cpus.generation.get()), (112, Some(Generation::IceLake)));
    assert_eq!(facts.irqs.list.value().unwrap().len(), 1874);
    let of = |driver: &str| {
        let named = |irq: &&host::facts::Irq| irq.actions.is(|names| names.iter().any(|name| name.contains(driver)));
        facts.irqs.iter().filter(|irq| named(irq) == Some(true)).count()
    };
    assert!(of("nvme") > 400 && of("i40e") > 400 && of("ice") > 400, "{} {} {}", of("nvme"), of("i40e"), of("ice"));
    assert!(!facts.cmdline.value().unwrap().has("isolcpus"));
    let pools = &facts.cpus.nodes[0].huge_pages;
    assert_eq!(pools.iter().map(|pool| pool.page_bytes).collect::<Vec<_>>(), [2 << 20, 1 << 30]);
    assert!(facts.memory.meminfo.value().unwrap()["MemTotal"] > 64 << 30);
}

#[test]
fn kvm_guest_sno_a_guest() {
    let Some(facts) = host("kvm-guest-sno") else { return };
    assert_eq!(facts.cpus.all(), CpuSet::below(12));
    assert_eq!(facts.virtualisation.guest.get(), Some(true));
    assert_eq!(facts.virtualisation.hypervisor.value().map(String::as_str), Some("kvm"));
    let irq = facts.irqs.irq(69).unwrap();
    assert_eq!((irq.name().as_str(), irq.pci.as_deref()), ("virtio1-input.0", Some("0000:01:00.0")));
    let table = facts.counters.interrupts.value().unwrap();
    let row = table.row("69").unwrap();
    assert_eq!((table.on(row, 11), table.on(row, 1), row.total()), (Some(17125), Some(15), 17140));
    assert_eq!(table.row("ERR").unwrap().total(), 0);
}

#[test]
fn icx2s0_as_it_comes_from_the_factory() {
    let Some(facts) = host("icx2s0") else { return };
    let cpus = &facts.cpus;
    assert_eq!((cpus.online.value(), cpus.generation.get()), (Some(&CpuSet::below(144)), Some(Generation::IceLake)));
    let cpu = cpus.cpu(5).unwrap();
    let states = cpu.idle_states.value().unwrap();
    let latency = |name: &str| {
        states.iter().find(|state| state.name.is(|n| n == name) == Some(true)).unwrap().exit_latency.get().unwrap()
    };
    assert_eq!(
        (latency("C1"), latency("C1E"), latency("C6")),
        (Nanos::from_micros(1), Nanos::from_micros(4), Nanos::from_micros(170))
    );
    assert_eq!(states[3].disabled.get(), Some(false));
    assert_eq!(facts.idle.driver.value().map(String::as_str), Some("intel_idle"));
    assert_eq!(cpu.frequency.driver.value().map(String::as_str), Some("intel_pstate"));
    assert_eq!(cpu.frequency.governor.value().map(String::as_str), Some("powersave"));
    assert_eq!(cpu.frequency.epp.value().map(String::as_str), Some("balance_performance"));
    assert_eq!(
        (cpu.frequency.scaling_min.get(), cpu.frequency.hardware_max.get()),
        (Some(Hertz::new(800_000_000)), Some(Hertz::new(3_500_000_000)))
    );
    assert_eq!(cpu.resume_latency.get(), Some(ResumeLatency::NoLimit));
    assert_eq!(cpu.energy_perf_bias.get(), Some(6));
    assert_eq!(cpu.siblings.value().unwrap().len(), 2, "from /proc/cpuinfo");

    // EPP 0x80, and the ratios that the kernel asks for: 8 to 35.
    let request = facts.msrs.of(0x774, 5).get().unwrap();
    assert_eq!((bits(request, 31, 24), bits(request, 15, 8), bits(request, 7, 0)), (0x80, 35, 8));
    // The uncore register was written 0x818: 2.4 GHz at most, 0.8 GHz at least.
    let uncore = facts.msrs.of(0x620, 0).get().unwrap();
    assert_eq!((bits(uncore, 6, 0), bits(uncore, 14, 8)), (24, 8));
    let domain = &facts.uncore.value().unwrap()[0];
    assert_eq!((domain.min.get(), domain.max.get()), (Some(Hertz::new(800_000_000)), Some(Hertz::new(2_400_000_000))));
    assert_eq!((domain.package.get(), facts.uncore.value().unwrap().len()), (Some(0), 2));
    assert_eq!(facts.pci.aspm_policy.value().map(String::as_str), Some("default"));
    assert_eq!(facts.msrs.of(0x34, 0).why(), Some(&Why::NotRecorded));
    assert!(facts.counters.idle[&(5, 3)].usage > 0, "C6 is used");
    assert_eq!(facts.kernel.version.get(), Some(KernelVersion::new(7, 0)));
}

#[test]
fn clx2s0_and_spr1_two_more_generations_of_servers() {
    let Some(facts) = host("clx2s0") else { return };
    assert_eq!((facts.cpus.list.len(), facts.cpus.generation.get()), (96, Some(Generation::CascadeLake)));
    let states = facts.cpus.list[0].idle_states.value().unwrap();
    assert_eq!(
        states.iter().map(|state| state.exit_latency.get().unwrap().as_micros_floor()).collect::<Vec<_>>(),
        [0, 2, 10, 92]
    );
    let Some(facts) = host("spr1") else { return };
    assert_eq!((facts.cpus.list.len(), facts.cpus.generation.get()), (320, Some(Generation::SapphireRapids)));
    assert_eq!(facts.cpus.nodes.len(), 4);
    assert_eq!(facts.cpus.list[0].idle_states.value().unwrap()[3].exit_latency.get(), Some(Nanos::from_micros(290)));
    assert_eq!(facts.uncore.value().unwrap().len(), 4);
}

#[test]
fn bdwde0_and_skld0_two_small_servers() {
    let Some(facts) = host("bdwde0") else { return };
    assert_eq!((facts.cpus.list.len(), facts.cpus.generation.get()), (16, Some(Generation::Broadwell)));
    let names: Vec<_> =
        facts.cpus.list[3].idle_states.value().unwrap().iter().map(|s| s.name.value().unwrap().as_str()).collect();
    assert_eq!(names, ["POLL", "C1", "C1E", "C3", "C6"]);
    assert_eq!(facts.scaling.intel_pstate.value().map(String::as_str), Some("passive"));
    let Some(facts) = host("skld0") else { return };
    assert_eq!((facts.cpus.list.len(), facts.cpus.generation.get()), (16, Some(Generation::Skylake)));
    assert_eq!(facts.cpus.list[0].frequency.governor.value().map(String::as_str), Some("schedutil"));
}

#[test]
fn rome0_and_genoa0_of_another_maker() {
    for (name, cpus, generation, c2) in [("rome0", 256, Generation::Zen2, 400), ("genoa0", 128, Generation::Zen4, 800)]
    {
        let Some(facts) = host(name) else { return };
        assert_eq!((facts.cpus.list.len(), facts.cpus.vendor.get()), (cpus, Some(Vendor::Amd)), "{name}");
        assert_eq!(facts.cpus.generation.get(), Some(generation), "{name}");
        assert_eq!(facts.idle.driver.value().map(String::as_str), Some("acpi_idle"), "{name}");
        let states = facts.cpus.list[0].idle_states.value().unwrap();
        assert_eq!(states[2].exit_latency.get(), Some(Nanos::from_micros(c2)), "{name}");
        assert_eq!(facts.scaling.turbo().get(), Some(true), "{name}");
        assert_eq!(facts.msrs.of(0x774, 0).why(), Some(&Why::NotRecorded), "{name}");
        assert!(facts.cpus.list[0].l3.value().unwrap().len() < cpus, "{name}: the cache is shared by a few");
    }
}
