//! Side effects of a change: other settings that the kernel resets, limits or forgets when a setting is written.
//!
//! Before a change, the transaction also records the settings that the change may affect. A rollback first restores the
//! changed setting and then the affected settings, in the order listed here. The order matters: the governor comes
//! before the governor's tunables. Affected settings that did not change are not written.
//!
//! Each rule cites the kernel code that causes the side effect (6.18, and 6.1 if that differs).

use super::cpufreq::file as of_policy;
use super::{
    Access, AnySetting, CgroupFile, CoalesceQueue, CpuMask, Epp, Error, Features, File, Governor, HugePages,
    HwpRequest, IrqAffinity, IrqEffective, Limits, Sysctl, ThreadAffinity, UncoreLimits, irqs, napi, policies,
    policy_cpus, thread, uncore_domains,
};

const CPUS: &str = "/sys/devices/system/cpu";
const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";

/// The settings that a change of `setting` by a controller affects lastingly. When turbo is switched back on, the kernel
/// itself restores the limits of the policies from what their users requested (drivers/cpufreq/cpufreq.c,
/// `cpufreq_update_policy`), so only intel_pstate's `min_perf_pct` must be restored. If the limits were restored too,
/// changes that others made to them meanwhile would be lost.
pub(crate) fn along_when_steered(access: &Access, setting: &AnySetting) -> Result<Vec<AnySetting>, Error> {
    match setting {
        AnySetting::Turbo(_) => Ok(vec![File::new(format!("{CPUS}/intel_pstate/min_perf_pct")).into()]),
        _ => along(access, setting),
    }
}

/// The settings that may change on this machine as a side effect of changing `setting`.
pub(crate) fn along(access: &Access, setting: &AnySetting) -> Result<Vec<AnySetting>, Error> {
    match setting {
        AnySetting::Governor(it) => of_path(access, &of_policy(it.policy, "scaling_governor")),
        AnySetting::Limits(it) => of_path(access, &of_policy(it.policy, "scaling_max_freq")),
        AnySetting::Epp(it) => of_path(access, &of_policy(it.policy, "energy_performance_preference")),
        AnySetting::Turbo(_) => turbo(access),
        AnySetting::File(it) => of_path(access, &it.path),
        AnySetting::Sysctl(it) => of_path(access, &it.path()),
        AnySetting::HugePages(it) if it.node.is_none() => nodes(access, it.size_kb),
        AnySetting::IrqAffinity(it) => Ok(vec![IrqEffective::new(it.irq).into()]),
        AnySetting::UncoreLimits(it) => clusters(access, &it.domain),
        AnySetting::CgroupController(_) | AnySetting::CgroupFile(_) => pinned_threads(access),
        // Most drivers close and reopen the device when these change (ethtool-netlink: "may reset").
        AnySetting::Channels(it) => reopened(access, &it.interface),
        AnySetting::Rings(it) => reopened(access, &it.interface),
        AnySetting::PrivateFlags(it) => reopened(access, &it.interface),
        // veth has NAPI only while GRO is on (drivers/net/veth.c, veth_set_features).
        AnySetting::Features(it) => napis(access, &it.interface),
        AnySetting::Coalesce(it) => coalesced_queues(access, &it.interface),
        _ => Ok(Vec::new()),
    }
}

/// The side effects of settings that are files.
fn of_path(access: &Access, path: &str) -> Result<Vec<AnySetting>, Error> {
    if let Some(name) = path.strip_prefix("/proc/sys/") {
        return sysctl(access, name);
    }
    if let Some((policy, name)) = policy_of(access, path)? {
        return match name.as_str() {
            "scaling_governor" => governor(access, policy),
            "energy_performance_preference" => Ok(registers(access, policy)?),
            "scaling_min_freq" | "scaling_max_freq" => hwp(access, policy),
            "boost" => Ok(vec![Limits::new(policy).into()]),
            _ => Ok(Vec::new()),
        };
    }
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[..] {
        ["sys", "devices", "system", "cpu", "cpufreq", "boost"]
        | ["sys", "devices", "system", "cpu", "intel_pstate", "no_turbo"] => turbo(access),
        ["sys", "devices", "system", "cpu", "intel_pstate" | "amd_pstate", "status"] => driver(access),
        ["sys", "devices", "system", "cpu", "intel_pstate", "max_perf_pct" | "min_perf_pct"] => {
            let policies = policies(access)?.into_iter().map(|policy| hwp(access, policy));
            Ok(policies.collect::<Result<Vec<_>, Error>>()?.concat())
        }
        ["sys", "devices", "system", "cpu", "smt", "control"] => hotplug(access),
        ["sys", "devices", "system", "cpu", cpu, "online"] if cpu.starts_with("cpu") => hotplug(access),
        // mm/khugepaged.c, start_stop_khugepaged: calls set_recommended_min_free_kbytes both when it starts and when it
        // stops.
        ["sys", "kernel", "mm", "transparent_hugepage", "enabled"]
        | ["sys", "kernel", "mm", "transparent_hugepage", _, "enabled"] => {
            Ok(vec![Sysctl::new("vm.min_free_kbytes").into()])
        }
        // mm/ksm.c, advisor_mode_store: set_advisor_defaults.
        ["sys", "kernel", "mm", "ksm", "advisor_mode"] => {
            Ok(vec![File::new("/sys/kernel/mm/ksm/pages_to_scan").into()])
        }
        ["sys", "kernel", "mm", "hugepages", size, "nr_hugepages" | "nr_hugepages_mempolicy"] => {
            match size.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB")?.parse().ok()) {
                Some(size_kb) => nodes(access, size_kb),
                None => Ok(Vec::new()),
            }
        }
        // block/elevator.c, elevator_switch: another scheduler has its own tunables and queue depth. block/blk-wbt.c,
        // wbt_enable_default: the write-back throttling may change too.
        ["sys", "block", device, "queue", "scheduler"] => {
            let queue = format!("/sys/block/{device}/queue");
            let mut along = vec![File::new(format!("{queue}/nr_requests")), File::new(format!("{queue}/wbt_lat_usec"))];
            along.extend(tunables(access, &format!("{queue}/iosched"))?);
            Ok(along.into_iter().map(AnySetting::from).collect())
        }
        // net/core/dev.c, netif_set_gro_flush_timeout and similar functions: a device's value is copied to all its NAPI
        // instances.
        ["sys", "class", "net", interface, "gro_flush_timeout" | "napi_defer_hard_irqs" | "threaded"] => {
            napis(access, interface)
        }
        ["proc", "irq", irq, "smp_affinity" | "smp_affinity_list"] => {
            Ok(irq.parse().map(IrqEffective::new).into_iter().map(AnySetting::from).collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The policy number and the file name in a path below `cpufreq/policyN` or `cpuN/cpufreq`.
fn policy_of(access: &Access, path: &str) -> Result<Option<(u32, String)>, Error> {
    let Some(rest) = path.strip_prefix(CPUS) else { return Ok(None) };
    let parts: Vec<&str> = rest.split('/').skip(1).collect();
    match parts[..] {
        ["cpufreq", policy, name] => {
            Ok(policy.strip_prefix("policy").and_then(|n| n.parse().ok()).map(|n| (n, name.to_owned())))
        }
        [cpu, "cpufreq", name] => {
            let Some(cpu) = cpu.strip_prefix("cpu").and_then(|n| n.parse().ok()) else { return Ok(None) };
            for policy in policies(access)? {
                if policy_cpus(access, policy)?.contains(cpu) {
                    return Ok(Some((policy, name.to_owned())));
                }
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// The writable files in the folder of a governor or an I/O scheduler, which are its tunables.
fn tunables(access: &Access, folder: &str) -> Result<Vec<File>, Error> {
    let names = access.list(folder)?.unwrap_or_default();
    let paths = names.into_iter().map(|name| format!("{folder}/{name}")).filter(|path| access.writable(path));
    Ok(paths.map(File::new).collect())
}

/// The settings that may change with a policy's governor. When no policy uses a governor any more, its tunables are
/// lost, whether there is one set per policy (`have_governor_per_policy`) or one for all
/// (drivers/cpufreq/cpufreq_governor.c, cpufreq_schedutil.c). intel_pstate and amd-pstate also set the
/// energy-performance preference (intel_pstate_hwp_set, amd_pstate_epp_update_limit).
fn governor(access: &Access, policy: u32) -> Result<Vec<AnySetting>, Error> {
    let mut along = Vec::new();
    if let Some(now) = access.line(&of_policy(policy, "scaling_governor"))?.filter(|now| is_name(now)) {
        along.extend(tunables(access, &of_policy(policy, &now))?);
        along.extend(tunables(access, &format!("{CPUFREQ}/{now}"))?);
    }
    let mut along: Vec<AnySetting> = along.into_iter().map(AnySetting::from).collect();
    along.push(Epp::new(policy).into());
    along.extend(registers(access, policy)?);
    Ok(along)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The energy-performance bias of each CPU of a policy, which intel_pstate sets if the CPU has no HWP preference
/// (intel_pstate_set_epb), and the HWP request registers.
fn registers(access: &Access, policy: u32) -> Result<Vec<AnySetting>, Error> {
    let hint = |cpu| File::new(format!("{CPUS}/cpu{cpu}/power/energy_perf_bias"));
    let hints = policy_cpus(access, policy)?.iter().map(|cpu| hint(cpu).into()).collect::<Vec<_>>();
    Ok([hints, hwp(access, policy)?].concat())
}

/// The HWP request registers of a policy's CPUs. In active mode, intel_pstate overwrites them whenever a policy changes
/// (intel_pstate_hwp_set). Empty in passive mode and with dynamic boost, in which intel_pstate writes the registers all
/// the time.
fn hwp(access: &Access, policy: u32) -> Result<Vec<AnySetting>, Error> {
    let says = |name: &str| access.line(&format!("{CPUS}/intel_pstate/{name}"));
    if says("status")?.as_deref() != Some("active") || says("hwp_dynamic_boost")?.as_deref() == Some("1") {
        return Ok(Vec::new());
    }
    Ok(policy_cpus(access, policy)?.iter().map(|cpu| HwpRequest::new(cpu).into()).collect())
}

/// The settings that may change when turbo is switched. The upper frequency limit becomes the new maximum
/// (drivers/cpufreq/freq_table.c and cpufreq.c, cpufreq_boost_set_sw); the global switch does this for each policy.
/// intel_pstate limits min_perf_pct to the new range (intel_pstate.c, store_no_turbo).
fn turbo(access: &Access) -> Result<Vec<AnySetting>, Error> {
    let mut along: Vec<AnySetting> = vec![File::new(format!("{CPUS}/intel_pstate/min_perf_pct")).into()];
    for policy in policies(access)? {
        along.push(File::new(of_policy(policy, "boost")).into());
        along.push(Limits::new(policy).into());
        along.extend(hwp(access, policy)?);
    }
    Ok(along)
}

/// The settings that may change with the frequency driver: another driver starts with new policies (intel_pstate.c,
/// intel_pstate_update_status, and amd-pstate.c).
fn driver(access: &Access) -> Result<Vec<AnySetting>, Error> {
    let mut along: Vec<AnySetting> = ["no_turbo", "max_perf_pct", "min_perf_pct", "hwp_dynamic_boost"]
        .map(|name| File::new(format!("{CPUS}/intel_pstate/{name}")).into())
        .to_vec();
    along.push(File::new(format!("{CPUFREQ}/boost")).into());
    for policy in policies(access)? {
        along.push(Governor::new(policy).into());
        along.push(Limits::new(policy).into());
        along.extend(governor(access, policy)?);
    }
    Ok(along)
}

/// The settings that may change when a CPU goes offline. An interrupt that could use only this CPU is moved to other
/// CPUs (kernel/irq/cpuhotplug.c), and so is a thread (kernel/sched/core.c, select_fallback_rq). A version 1 cpuset
/// loses the CPU (kernel/cgroup/cpuset.c). The governor stops (drivers/cpufreq/cpufreq.c). Writing `smt/control` also
/// brings CPUs online that someone had taken offline.
fn hotplug(access: &Access) -> Result<Vec<AnySetting>, Error> {
    let mut along: Vec<AnySetting> = Vec::new();
    for cpu in access.numbered(CPUS, "cpu")? {
        along.push(File::new(format!("{CPUS}/cpu{cpu}/online")).into());
    }
    for policy in policies(access)? {
        along.push(Governor::new(policy).into());
        along.push(Limits::new(policy).into());
        along.extend(governor(access, policy)?);
    }
    for irq in irqs(access)? {
        along.push(IrqAffinity::new(irq).into());
    }
    if let Some(mount) = super::cpuset_mount(access)?.filter(|mount| !mount.v2) {
        for name in access.list(&mount.path)?.unwrap_or_default() {
            along.push(CgroupFile::new(&format!("{}/{name}", mount.path), "cpuset.cpus").into());
        }
    }
    along.extend(pinned_threads(access)?);
    Ok(along)
}

/// The affinities of pinned threads, which may change when a cpuset is created or changed: before Linux 6.2
/// (`user_cpus_ptr`), the cpuset overwrites the affinity that a thread had chosen (kernel/cgroup/cpuset.c,
/// cpuset_attach, update_tasks_cpumask).
fn pinned_threads(access: &Access) -> Result<Vec<AnySetting>, Error> {
    Ok(thread::pinned(access)?.into_iter().map(|thread| ThreadAffinity { thread }.into()).collect())
}

/// The number of huge pages on each NUMA node, which may change with the total number: the kernel adds and removes
/// pages on all nodes in turn, regardless of the previous numbers (mm/hugetlb.c, set_max_huge_pages).
fn nodes(access: &Access, size_kb: u64) -> Result<Vec<AnySetting>, Error> {
    let nodes = access.numbered("/sys/devices/system/node", "node")?;
    Ok(nodes.into_iter().map(|node| HugePages::new(size_kb, Some(node)).into()).collect())
}

/// The limits of the uncore clusters of a package: the driver writes a package's limits to all its clusters
/// (drivers/platform/x86/intel/uncore-frequency/uncore-frequency-tpmi.c).
fn clusters(access: &Access, domain: &str) -> Result<Vec<AnySetting>, Error> {
    let package = |domain: &str| domain.strip_prefix("package_")?.split('_').next()?.parse::<u64>().ok();
    let Some(package) = package(domain) else { return Ok(Vec::new()) };
    let mut along = Vec::new();
    for cluster in uncore_domains(access)?.into_iter().filter(|name| name.starts_with("uncore")) {
        if access.number(&format!("{CPUS}/intel_uncore_frequency/{cluster}/package_id"))? == Some(package) {
            along.push(UncoreLimits::new(cluster).into());
        }
    }
    Ok(along)
}

fn sysctl(access: &Access, path: &str) -> Result<Vec<AnySetting>, Error> {
    let files = |names: &[&str]| Ok(names.iter().map(|name| Sysctl::at(name).into()).collect());
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        // mm/page-writeback.c, dirty_ratio_handler and the three similar handlers: setting one value of a pair sets the
        // other one to 0.
        ["vm", "dirty_ratio"] => files(&["vm/dirty_bytes"]),
        ["vm", "dirty_bytes"] => files(&["vm/dirty_ratio"]),
        ["vm", "dirty_background_ratio"] => files(&["vm/dirty_background_bytes"]),
        ["vm", "dirty_background_bytes"] => files(&["vm/dirty_background_ratio"]),
        // mm/util.c, overcommit_ratio_handler and overcommit_kbytes_handler.
        ["vm", "overcommit_ratio"] => files(&["vm/overcommit_kbytes"]),
        ["vm", "overcommit_kbytes"] => files(&["vm/overcommit_ratio"]),
        ["vm", "nr_hugepages" | "nr_hugepages_mempolicy"] => {
            let sizes = access.read("/proc/meminfo")?.unwrap_or_default();
            let default = sizes.lines().find_map(|line| line.strip_prefix("Hugepagesize:")?.split_whitespace().next());
            default.and_then(|size| size.parse().ok()).map_or(Ok(Vec::new()), |size_kb| nodes(access, size_kb))
        }
        // kernel/watchdog.c, proc_watchdog: sets both watchdogs at once.
        ["kernel", "watchdog"] => files(&["kernel/nmi_watchdog", "kernel/soft_watchdog"]),
        // net/ipv4/tcp_cong.c, tcp_set_default_congestion_control: the new default is also added to the allowed
        // algorithms.
        ["net", "ipv4", "tcp_congestion_control"] => files(&["net/ipv4/tcp_allowed_congestion_control"]),
        // net/ipv4/devinet.c, inet_forward_change and devinet_copy_dflt_conf; net/ipv6/addrconf.c,
        // addrconf_fixup_forwarding and addrconf_disable_ipv6: the kernel sets all interfaces too. A forwarding
        // interface loses LRO.
        ["net", "ipv4", "ip_forward"] | ["net", "ipv4", "conf", "all", "forwarding"] => {
            let mut along = of_interfaces(access, "ipv4", "forwarding")?;
            along.push(Sysctl::at("net/ipv4/conf/all/accept_redirects").into());
            for interface in access.list("/sys/class/net")?.unwrap_or_default() {
                along.push(Features::new(interface).into());
            }
            Ok(along)
        }
        ["net", "ipv4", "conf", interface, "forwarding"] if interface != "default" => {
            Ok(vec![Features::new(interface).into()])
        }
        ["net", "ipv4", "conf", "default", key] => of_interfaces(access, "ipv4", key),
        ["net", "ipv6", "conf", "all", key @ ("forwarding" | "disable_ipv6" | "disable_policy" | "proxy_ndp")] => {
            of_interfaces(access, "ipv6", key)
        }
        _ => Ok(Vec::new()),
    }
}

/// The parameter `key` of every interface, and its default for new interfaces.
fn of_interfaces(access: &Access, family: &str, key: &str) -> Result<Vec<AnySetting>, Error> {
    let folder = format!("net/{family}/conf");
    let names = access.list(&format!("/proc/sys/{folder}"))?.unwrap_or_default();
    let names = names.into_iter().filter(|name| name != "all");
    Ok(names.map(|name| Sysctl::at(&format!("{folder}/{name}/{key}")).into()).collect())
}

/// Settings that may change when a network device is closed and opened again. The kernel creates new queues
/// (net/core/net-sysfs.c, net_rx_queue_update_kobjects) and NAPI instances. The driver frees its interrupts, requests
/// them again, and may reset its interrupt moderation.
fn reopened(access: &Access, interface: &str) -> Result<Vec<AnySetting>, Error> {
    let mut along: Vec<AnySetting> = vec![super::Coalesce::new(interface).into()];
    along.extend(coalesced_queues(access, interface)?);
    let queues = format!("/sys/class/net/{interface}/queues");
    for queue in access.list(&queues)?.unwrap_or_default() {
        for mask in ["rps_cpus", "xps_cpus", "xps_rxqs"] {
            along.push(CpuMask::new(format!("{queues}/{queue}/{mask}")).into());
        }
        for number in ["rps_flow_cnt", "tx_maxrate"] {
            along.push(File::new(format!("{queues}/{queue}/{number}")).into());
        }
    }
    along.extend(napis(access, interface)?);
    for irq in access.numbered(&format!("/sys/class/net/{interface}/device/msi_irqs"), "")? {
        along.push(IrqAffinity::new(irq).into());
    }
    Ok(along)
}

fn napis(access: &Access, interface: &str) -> Result<Vec<AnySetting>, Error> {
    let queues = napi::napi_queues(access, interface)?;
    Ok(queues.into_iter().map(|queue| super::Napi::new(interface, queue).into()).collect())
}

/// The coalescing of each queue, which may change with that of the device: drivers write the device's values to each
/// queue (net/ethtool/coalesce.c).
fn coalesced_queues(access: &Access, interface: &str) -> Result<Vec<AnySetting>, Error> {
    let queues = access.numbered(&format!("/sys/class/net/{interface}/queues"), "rx-")?;
    Ok(queues.into_iter().map(|queue| CoalesceQueue::new(interface, queue).into()).collect())
}
