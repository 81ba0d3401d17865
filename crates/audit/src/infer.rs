//! Infers what a host is used for from its facts.

use std::collections::BTreeMap;

use host::Facts;
use host::facts::{CpuSet, Link, Os, is_interface_name};

use crate::{Context, Goal, Intended, Workload};

/// What the user stated about the purpose of the host. If a field is `None`, its value is inferred from the host (see
/// [`Context`]).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Intent {
    /// CPUs that are reserved for the application.
    pub isolated: Option<CpuSet>,
    /// The network interfaces that matter, by name.
    pub nics: Option<Vec<String>>,
    /// What the host is used for.
    pub workloads: Option<Vec<Workload>>,
    /// The latency goal. `None` means that there is no goal, because a goal cannot be inferred.
    pub goal: Option<Goal>,
}

impl Context {
    /// Determines the purpose of the host: as the user stated it, otherwise as the host shows it.
    pub fn of(facts: &Facts, intent: &Intent) -> Self {
        let isolated = match &intent.isolated {
            Some(set) => Intended::given(set.clone()),
            None => isolated(facts),
        };
        let nics = match &intent.nics {
            Some(names) => Intended::given(names.clone()),
            None => nics(facts),
        };
        let mut workloads = match &intent.workloads {
            Some(workloads) => Intended::given(workloads.clone()),
            None => workloads(facts, &isolated.value),
        };
        let mut notes = Vec::new();
        // Advice that only guests need is wrong on other hosts.
        let guest = &facts.virtualisation.guest;
        if guest.get() == Some(false) && workloads.value.contains(&Workload::Guest) {
            workloads.value.retain(|workload| *workload != Workload::Guest);
            notes.push(format!("--workload guest is left out: this host is no guest ({})", guest.source()));
        }
        Self { isolated, nics, workloads, goal: intent.goal, notes }
    }
}

/// All CPUs that some isolation mechanism of this host isolates.
fn isolated(facts: &Facts) -> Intended<CpuSet> {
    let present = facts.cpus.all();
    let mut all = CpuSet::new();
    let mut from = Vec::new();
    let mut add = |set: &CpuSet, source: &str| {
        if !set.is_empty() {
            all = all.union(set);
            from.push(source.to_owned());
        }
    };
    let set = |name: &str| facts.cmdline.value()?.last(name)?.cpu_set(&present).ok();
    if let Some(set) = set("isolcpus") {
        add(&set, "isolcpus=");
    } else if let Some(set) = facts.cpus.isolated.value() {
        add(set, facts.cpus.isolated.source().as_str());
    }
    if let Some(set) = set("nohz_full").or_else(|| facts.cpus.nohz_full.value().cloned()) {
        add(&set, "nohz_full");
    }
    for group in facts.cgroups.groups.value().into_iter().flatten() {
        let isolates = group.partition.is(|partition| partition == "isolated") == Some(true);
        if let Some(set) = group.effective.value().filter(|_| isolates) {
            add(set, &format!("the isolated cpuset {}", group.path));
        }
    }
    match all.is_empty() {
        true => Intended::default(),
        false => Intended::inferred(all, from.join(", ")),
    }
}

/// The interfaces that are up and have a device. If some of them have had traffic, only those, the busiest first.
fn nics(facts: &Facts) -> Intended<Vec<String>> {
    if facts.origin.os == Os::FreeBsd {
        let interfaces = facts.freebsd.value().and_then(|bsd| bsd.interfaces.value());
        let up = interfaces
            .into_iter()
            .flatten()
            .filter(|interface| interface.flags.iter().any(|flag| flag == "UP") && !interface.name.starts_with("lo"));
        let names: Vec<String> = up.map(|interface| interface.name.clone()).collect();
        return if names.is_empty() { Intended::default() } else { Intended::inferred(names, "ifconfig: up") };
    }
    let packets = |link: &Link| -> u64 {
        let Some(counts) = facts.counters.links.get(&link.name) else { return 0 };
        ["rx_packets", "tx_packets"].iter().filter_map(|name| counts.get(*name)).sum()
    };
    let hardware = |link: &&Link| {
        link.is_physical() == Some(true) || link.driver.is(|driver| is_virtual_nic(driver)) == Some(true)
    };
    let is_up =
        |link: &&Link| link.carrier.get() == Some(true) || link.operstate.is(|state| state == "up") == Some(true);
    let mut links: Vec<(u64, &str)> = facts
        .links
        .value()
        .into_iter()
        .flatten()
        .filter(hardware)
        .filter(is_up)
        .map(|link| (packets(link), link.name.as_str()))
        .collect();
    links.sort_by_key(|(packets, _)| std::cmp::Reverse(*packets));
    let busy: Vec<String> = links.iter().filter(|(n, _)| *n > 0).map(|(_, name)| (*name).to_owned()).collect();
    match (busy.is_empty(), links.is_empty()) {
        (false, _) => Intended::inferred(busy, "interfaces that are up and have had traffic"),
        (true, false) => {
            Intended::inferred(links.into_iter().map(|(_, name)| name.into()).collect(), "interfaces that are up")
        }
        _ if facts.links.is_unknown() => from_interrupts(facts),
        _ => Intended::default(),
    }
}

/// The interfaces that appear in the names of interrupts, such as `eno3-TxRx-0` and `i40e-ens1f0-TxRx-3`. Used if the
/// interfaces of the host are not known.
fn from_interrupts(facts: &Facts) -> Intended<Vec<String>> {
    let Some(table) = facts.counters.interrupts.value() else { return Intended::default() };
    let mut names: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &table.rows {
        let queue = row.description.split_whitespace().next_back().and_then(|user| user.split_once("-TxRx-"));
        if let Some((name, _)) = queue {
            let name = ["i40e-", "ice-", "iavf-"].iter().find_map(|driver| name.strip_prefix(driver)).unwrap_or(name);
            *names.entry(name).or_default() += row.total();
        }
    }
    names.retain(|name, total| *total > 0 && is_interface_name(name));
    let mut names: Vec<(u64, &str)> = names.into_iter().map(|(name, total)| (total, name)).collect();
    names.sort_by(|a, b| b.cmp(a));
    let names: Vec<String> = names.into_iter().map(|(_, name)| name.to_owned()).collect();
    if names.is_empty() {
        Intended::default()
    } else {
        Intended::inferred(names, "the names of interrupts that have fired")
    }
}

/// Whether the driver is for interfaces that a hypervisor provides. Such interfaces need not be PCI devices.
fn is_virtual_nic(driver: &str) -> bool {
    ["virtio_net", "hv_netvsc", "xen-netfront", "vif", "ena", "gve", "vmxnet3"].contains(&driver)
}

fn workloads(facts: &Facts, isolated: &CpuSet) -> Intended<Vec<Workload>> {
    let mut found = Vec::new();
    let mut add = |workload: Workload, from: String| found.push((workload, from));
    if facts.virtualisation.guest.get() == Some(true) {
        add(Workload::Guest, format!("guest from {}", facts.virtualisation.guest.source()));
    }
    if facts.kernel.realtime.get() == Some(true) {
        add(Workload::Rt, format!("rt from {}", facts.kernel.realtime.source()));
    }
    if facts.virtualisation.guests.is(|guests| !guests.is_empty()) == Some(true) {
        add(Workload::KvmHost, "kvm-host from the threads of virtual CPUs".into());
    }
    if let Some(from) = polls(facts) {
        add(Workload::Poll, format!("poll from {from}"));
    } else if !isolated.is_empty() && facts.cmdline.is(|line| line.has("nohz_full")) == Some(true) {
        add(Workload::Poll, "poll from nohz_full=, which is meant for threads that never sleep".into());
    } else if facts.links.is(|links| !links.is_empty()) == Some(true) || facts.origin.os == Os::FreeBsd {
        add(Workload::Interrupt, "interrupt because no application was found that polls".into());
    }
    if found.is_empty() {
        return Intended::default();
    }
    let (workloads, from): (Vec<Workload>, Vec<String>) = found.into_iter().unzip();
    Intended::inferred(workloads, from.join("; "))
}

/// The evidence that an application polls its interfaces. `None` if nothing shows this.
fn polls(facts: &Facts) -> Option<String> {
    let names = [
        "dpdk-worker",
        "lcore-worker-",
        "lcore-slave-",
        "rte_mp_handle",
        "eal-intr-thread",
        "pmd-c",
        "vpp_wk_",
        "testpmd",
        "dpdk-testpmd",
        "dpdk-l3fwd",
    ];
    let thread = facts.tasks().find(|task| names.iter().any(|name| task.comm.starts_with(name)));
    if let Some(thread) = thread {
        return Some(format!("thread {} ({})", thread.comm, thread.tid));
    }
    let user_space = ["vfio-pci", "igb_uio", "uio_pci_generic"];
    let device = facts.pci.iter().find(|device| {
        let bound = device.driver.is(|driver| user_space.contains(&driver.as_str())) == Some(true);
        bound && device.is_network() == Some(true)
    });
    device.map(|device| format!("network device {}, which is bound to {}", device.address, device.driver))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::How;
    use crate::testing::host;

    #[test]
    fn what_was_said_counts_and_the_rest_is_inferred_and_said_so() {
        let facts = host().cmdline("isolcpus=managed_irq,2-3 nohz_full=2-4").facts();
        let context = Context::of(&facts, &Intent::default());
        assert_eq!(context.isolated, Intended::inferred("2-4".parse().unwrap(), "isolcpus=, nohz_full"));
        assert!(context.is(Workload::Poll) && !context.is(Workload::Guest));
        let said = Intent { isolated: Some("5".parse().unwrap()), ..Intent::default() };
        let context = Context::of(&facts, &said);
        assert_eq!((context.isolated.value.to_string().as_str(), context.isolated.how), ("5", How::Given));
    }

    #[test]
    fn nothing_is_inferred_from_nothing() {
        let context = Context::of(&Facts::default(), &Intent::default());
        assert_eq!(context, Context::default());
    }
    /// A bare-metal host that `--workload` calls a guest: it gets no advice for guests, and the user is told so.
    #[test]
    fn a_guest_that_is_none_gets_no_advice_for_guests() {
        let intent = Intent {
            isolated: Some("2-7".parse().unwrap()),
            workloads: Some(vec![Workload::Guest, Workload::Poll]),
            ..Intent::default()
        };
        let asks = |host: crate::testing::Host| {
            let report = crate::audit(&host.cmdline("quiet").facts(), &intent);
            let mut words = report.findings.iter().flat_map(|finding| finding.fix.adds());
            (words.any(|word| word.name == "no-kvmapf"), report.context)
        };
        let (asked, context) = asks(host());
        assert!(!asked && context.is(Workload::Poll) && !context.is(Workload::Guest));
        assert_eq!(context.notes, ["--workload guest is left out: this host is no guest (/proc/cpuinfo flags)"]);
        let (asked, context) = asks(host().guest());
        assert!(asked && context.is(Workload::Guest) && context.notes.is_empty());
        // If it is not known whether the host is a guest, the user's statement counts.
        let open = host().edit(|facts| facts.virtualisation.guest = host::Fact::not_recorded("/proc/cpuinfo flags"));
        assert!(asks(open).1.is(Workload::Guest));
    }
}
