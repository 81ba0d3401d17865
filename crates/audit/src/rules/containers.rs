//! Containers and Kubernetes. The rules judge what is in force on the node, not what a manifest requests.

use host::Facts;
use host::facts::{Cgroup, CpuSet};
use units::Nanos;

use super::common::without_balancing;
use super::interrupts::placed;
use super::scheduling::{is_of_kubernetes, judge_quotas};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, known, settled};

const KUBERNETES: &str = "Kubernetes documentation, Control CPU Management Policies on the Node";
const NTO: &str = "openshift/cluster-node-tuning-operator, performance profile";
const CRIO: &str = "CRI-O documentation, high performance hooks";

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[KUBELET, PODS];

/// Rules on the configuration of the kubelet.
const KUBELET: &[Rule] = &[
    Rule {
        id: "k8s.cpu-manager",
        cause: Cause::SchedulerIsolation,
        title: "The kubelet gives guaranteed pods their own CPUs",
        applies: Applies::LINUX,
        judge: cpu_manager,
        why: "With the policy none all pods share all CPUs by weights and quotas. With static a guaranteed pod that \
              asks for whole CPUs gets them for itself. If the state file was written for another policy or for other \
              reserved CPUs, the kubelet does not start, or it follows the state file instead of its configuration.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "a time slice of other pods, up to 3 ms, and a stop by the quota, up to 100 ms",
            "Linux kernel/sched/fair.c, sysctl_sched_base_slice; Documentation/scheduler/sched-bwc.rst",
        ),
        fix: Fix::runtime_or_boot(
            "systemctl stop kubelet; rm /var/lib/kubelet/cpu_manager_state; systemctl start kubelet # after the file was changed; drain the node first",
            "kubelet configuration: cpuManagerPolicy: static, reservedSystemCPUs: \"{housekeeping}\"",
        ),
        cost: "Fewer pods fit on the node.",
        references: &[KUBERNETES, NTO],
    },
    Rule {
        id: "k8s.topology-manager",
        cause: Cause::Placement,
        title: "A pod's CPUs, memory and devices are on one node",
        applies: Applies::LINUX,
        judge: topology_manager,
        why: "Without the topology manager the CPU manager, the device plugins and the memory manager choose \
              separately: the network function can be on one socket, its CPUs and huge pages on another.",
        magnitude: Magnitude::slower(
            "60 to 100 ns more for each cache line of another node, several lines per packet",
            "OpenShift node tuning operator asks for it; the figure is general knowledge",
        ),
        fix: Fix::boot("kubelet configuration: topologyManagerPolicy: single-numa-node (or restricted)"),
        cost: "Pods that fit on no single node are refused.",
        references: &["Kubernetes documentation, Control Topology Management Policies on a node", NTO],
    },
];

/// Rules on the actual resources of pods.
const PODS: &[Rule] = &[
    Rule {
        id: "k8s.cpu-quota",
        cause: Cause::Quotas,
        title: "No quota stops pods with CPUs of their own",
        applies: Applies::LINUX,
        judge: quotas,
        why: "A limit of CPUs becomes a CFS quota, also for a pod with CPUs of its own. As soon as it uses a little \
              more than the limit, for example because of threads of the runtime in its group, the whole pod stops \
              until the period ends. The annotation cpu-quota.crio.io: disable, with its runtime class, removes the \
              quota.",
        magnitude: Magnitude::late(
            Nanos::from_millis(100),
            "the rest of the period: up to 100 ms with the default period, less the quota",
            "Linux Documentation/scheduler/sched-bwc.rst",
        ),
        fix: Fix::boot(
            "annotation of the pod: cpu-quota.crio.io: \"disable\", and the RuntimeClass of the performance profile",
        ),
        cost: "The pod can use all its CPUs.",
        references: &[NTO, CRIO],
    },
    Rule {
        id: "k8s.cpu-load-balancing",
        cause: Cause::SchedulerIsolation,
        title: "The scheduler leaves CPUs of guaranteed pods alone",
        applies: Applies::LINUX,
        judge: balancing,
        why: "The kubelet keeps only other pods off a pod's CPUs. The scheduler still moves system services and kernel \
         threads there, unless isolcpus=, a cpuset partition or cpu-load-balancing.crio.io: disable removes the \
         CPUs from the scheduler's domains.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "a time slice of others, up to 3 ms",
            "Linux kernel/sched/fair.c, sysctl_sched_base_slice",
        ),
        fix: Fix::boot(
            "annotation of the pod: cpu-load-balancing.crio.io: \"disable\", and the RuntimeClass of the performance profile",
        ),
        cost: "Each thread of the pod must be pinned explicitly.",
        references: &[NTO, CRIO],
    },
    Rule {
        id: "k8s.irq-load-balancing",
        cause: Cause::DeviceInterrupts,
        title: "No device interrupt goes to CPUs of guaranteed pods",
        applies: Applies::LINUX,
        judge: interrupts,
        why: "The kubelet does not manage interrupts. irq-load-balancing.crio.io: disable takes a pod's CPUs out of \
              all interrupt masks and bans them for irqbalance while the pod runs.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "a few us per interrupt, plus its softirqs",
            "Intel P-state guide (637284-001US, 2021), appendix A; the microseconds are general knowledge",
        ),
        fix: Fix::boot(
            "annotation of the pod: irq-load-balancing.crio.io: \"disable\"; the kubelet and CRI-O must know its \
            runtime class",
        ),
        cost: "The other CPUs handle the interrupts.",
        references: &[NTO, CRIO],
    },
    Rule {
        id: "k8s.exclusive-vs-iso",
        cause: Cause::SchedulerIsolation,
        title: "CPUs of guaranteed pods are isolated and on one node",
        applies: Applies::LINUX.isolated(),
        judge: aligned,
        why: "The kubelet gives out all CPUs that are not reserved, isolated or not, and, without the topology \
              manager, on any node. A pod on a CPU that is not isolated gets all of that CPU's noise.",
        magnitude: Magnitude::late(
            Nanos::from_millis(3),
            "a time slice of others, up to 3 ms; 60 to 100 ns for each line of another node",
            "Linux kernel/sched/fair.c, sysctl_sched_base_slice; the nanoseconds are general knowledge",
        ),
        fix: Fix::boot(
            "kubelet configuration: reservedSystemCPUs: \"{housekeeping}\", topologyManagerPolicy: single-numa-node",
        ),
        cost: "Pods get fewer CPUs.",
        references: &["mrVectorz ContainerIRQTool", KUBERNETES],
    },
];

/// Checks that the host is a Kubernetes node: it has a kubelet configuration, or control groups of pods.
fn kubelet(facts: &Facts) -> Result<(), Skip> {
    let pods = facts.cgroups.groups.value().is_some_and(|groups| groups.iter().any(is_of_kubernetes));
    match (facts.services.kubelet.settled(), pods) {
        (Some(Some(_)), _) | (_, true) => Ok(()),
        (Some(None), false) => Err(Skip::not_applicable("no kubelet is configured here")),
        (None, false) => Err(Skip::of(&facts.services.kubelet)),
    }
}

fn cpu_manager(facts: &Facts, context: &Context) -> Judged {
    kubelet(facts)?;
    let settings = known(&facts.services.kubelet)?;
    let policy = settings.get("cpuManagerPolicy").map_or("none", String::as_str);
    let state = &facts.services.cpu_manager;
    let judgement = match (policy, settled(state)?) {
        ("static", Some((running, _))) if running != "static" => {
            Judgement::fail(format!("the policy is static, and the state file is of the policy {running}"))
        }
        ("static", Some((_, shared)))
            if !context.isolated.value.is_empty() && shared.is_subset(&context.isolated.value) =>
        {
            Judgement::warn(format!("the CPUs {shared} that pods share are all isolated ones"))
        }
        ("static", _) => Judgement::pass("guaranteed pods get CPUs of their own"),
        (other, _) => Judgement::warn(format!("all pods share all CPUs: the policy is {other}")),
    };
    let reserved = settings.get("reservedSystemCPUs").map_or("no reservedSystemCPUs", String::as_str);
    let judgement =
        judgement.see_as(format!("cpuManagerPolicy: {policy}, {reserved}"), facts.services.kubelet.source());
    match state.value() {
        Some((running, shared)) => judgement.see_as(format!("{running}, shared CPUs {shared}"), state.source()),
        None => judgement,
    }
    .alone()
}

fn topology_manager(facts: &Facts, _: &Context) -> Judged {
    kubelet(facts)?;
    if facts.cpus.nodes.len() == 1 {
        return Err(Skip::not_applicable("the host has one NUMA node"));
    }
    let settings = known(&facts.services.kubelet)?;
    let policy = settings.get("topologyManagerPolicy").map_or("none", String::as_str);
    match policy {
        "single-numa-node" | "restricted" => Judgement::pass(format!("the policy is {policy}")),
        other => Judgement::warn(format!("the policy is {other}: nothing aligns CPUs, memory and devices")),
    }
    .see_as(format!("topologyManagerPolicy: {policy}"), facts.services.kubelet.source())
    .alone()
}

/// Control groups of pods with exclusive CPUs: none of their CPUs is in the set that other pods share.
fn exclusive(facts: &Facts) -> Result<Vec<(&Cgroup, &CpuSet)>, Skip> {
    kubelet(facts)?;
    let groups = known(&facts.cgroups.groups)?;
    let pods: Vec<&Cgroup> = groups.iter().filter(|group| is_of_kubernetes(group)).collect();
    let Some((_, shared)) = settled(&facts.services.cpu_manager)? else {
        return Err(Skip::unknown(
            "/var/lib/kubelet/cpu_manager_state does not exist, so it is unknown which CPUs the pods share",
        ));
    };
    let own: Vec<(&Cgroup, &CpuSet)> = pods
        .iter()
        .filter(|group| group.populated.get() != Some(false))
        .filter_map(|group| Some((*group, group.cpus.value().or(group.effective.value())?)))
        .filter(|(_, cpus)| !cpus.is_empty() && !cpus.intersects(shared))
        .collect();
    if pods.iter().all(|group| !group.cpus.is_known() && !group.effective.is_known()) && !pods.is_empty() {
        return Err(Skip::unknown("the CPUs of pods were not recorded"));
    }
    match own.is_empty() {
        true => Err(Skip::not_applicable("no pod has CPUs of its own")),
        false => Ok(own),
    }
}

/// The union of the CPUs of all these groups.
fn all(own: &[(&Cgroup, &CpuSet)]) -> CpuSet {
    own.iter().fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus))
}

fn quotas(facts: &Facts, context: &Context) -> Judged {
    kubelet(facts)?;
    judge_quotas(facts, context, is_of_kubernetes)
}

fn balancing(facts: &Facts, _: &Context) -> Judged {
    let own = exclusive(facts)?;
    let cpus = all(&own);
    let alone = without_balancing(facts);
    // In version 1 of control groups, each group has a switch for load balancing instead of a partition.
    let off = own.iter().filter(|(group, _)| group.load_balance.get() == Some(false));
    let off = off.fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus));
    let left = cpus.difference(known(&alone)?).difference(&off);
    match left.is_empty() {
        true => Judgement::pass_for(&cpus, format!("{} groups of pods have CPUs that are not balanced", own.len())),
        false => Judgement::warn_for(left, "they belong to one pod, and are still in the scheduler's domains"),
    }
    .see(&alone)
    .see_as(format!("CPUs of pods {cpus}"), "/sys/fs/cgroup/**/cpuset.cpus")
    .alone()
}

fn interrupts(facts: &Facts, _: &Context) -> Judged {
    let own = exclusive(facts)?;
    let cpus = all(&own);
    let placed = placed(facts)?;
    let stray: Vec<String> = placed
        .iter()
        .filter(|(_, at)| at.intersects(&cpus))
        .map(|(irq, _)| format!("{} (IRQ {})", irq.name(), irq.number))
        .collect();
    let seen = if stray.is_empty() {
        format!("{} interrupts", placed.len())
    } else {
        stray.iter().take(5).cloned().collect::<Vec<_>>().join(", ")
    };
    match stray.len() {
        0 => Judgement::pass_for(&cpus, format!("none of {} interrupts goes there", placed.len())),
        n => Judgement::warn_for(&cpus, format!("{n} of {} interrupts go there", placed.len())),
    }
    .see_as(seen, "/proc/irq/*/effective_affinity_list")
    .alone()
}

fn aligned(facts: &Facts, context: &Context) -> Judged {
    let own = exclusive(facts)?;
    let isolated = &context.isolated.value;
    let one = |(group, cpus): &(&Cgroup, &CpuSet)| {
        let outside = cpus.difference(isolated);
        let mut nodes: Vec<u32> = cpus.iter().filter_map(|cpu| facts.cpus.node_of(cpu)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let subject = Subject::Named(format!("group {}", group.path));
        let judgement = match (outside.is_empty(), nodes.len() > 1) {
            (true, false) => {
                Judgement::pass_for(subject, format!("its CPUs {cpus} are isolated, and belong to one node"))
            }
            (true, true) => Judgement::warn_for(subject, format!("its CPUs {cpus} are of nodes {nodes:?}")),
            (false, _) => Judgement::warn_for(subject, format!("of its CPUs {cpus}, {outside} are not isolated")),
        };
        judgement.see_as(cpus.to_string(), group.cpus.source())
    };
    Ok(own.iter().map(one).collect())
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[tests::CASES];

#[cfg(test)]
mod tests {
    use crate::testing::{Case, Host, host};

    const CONF: &str = "/var/lib/kubelet/config.yaml";
    const STATE: &str = "/var/lib/kubelet/cpu_manager_state";
    const POD: &str = "/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cri-a.scope";

    fn conf(text: &str) -> Host {
        host().isolated("2-7").file(CONF, text).file(STATE, "{\"policyName\":\"static\",\"defaultCpuSet\":\"0-1,6-7\"}")
    }

    /// A node with a pod on these CPUs.
    fn pod(cpus: &str) -> Host {
        conf("cpuManagerPolicy: static\n")
            .file("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n")
            .file(&format!("{POD}/cpuset.cpus"), cpus)
            .file(&format!("{POD}/cgroup.procs"), "9\n")
            .file("/sys/devices/system/cpu/isolated", "2-3\n")
            .file("/proc/irq/55/effective_affinity_list", "4\n")
            .file("/sys/devices/system/node/node0/cpulist", "0-3\n")
            .file("/sys/devices/system/node/node1/cpulist", "4-7\n")
    }

    fn max(host: Host, quota: &str, stopped: u64) -> Host {
        host.file(&format!("{POD}/cpu.max"), quota)
            .file(&format!("{POD}/cpu.stat"), &format!("nr_throttled {stopped}\nthrottled_usec 70\n"))
    }

    pub(super) const CASES: &[Case] = &[
        Case::pass("k8s.cpu-manager", || conf("cpuManagerPolicy: static\n")),
        Case::warn("k8s.cpu-manager", || conf("cpuManagerPolicy: none\n")),
        Case::fail("k8s.cpu-manager", || {
            conf("cpuManagerPolicy: static\n").file(STATE, "{\"policyName\":\"none\",\"defaultCpuSet\":\"\"}")
        }),
        Case::unknown("k8s.cpu-manager", host),
        Case::not_applicable("k8s.cpu-manager", || host().complete()),
        Case::pass("k8s.topology-manager", || conf("topologyManagerPolicy: single-numa-node\n")),
        Case::warn("k8s.topology-manager", || conf("topologyManagerPolicy: best-effort\n")),
        Case::unknown("k8s.topology-manager", host),
        Case::pass("k8s.cpu-quota", || max(pod("2-3\n"), "max 100000\n", 0)),
        Case::warn("k8s.cpu-quota", || max(pod("2-3\n"), "200000 100000\n", 9)),
        Case::unknown("k8s.cpu-quota", host),
        Case::pass("k8s.cpu-load-balancing", || pod("2-3\n")),
        Case::warn("k8s.cpu-load-balancing", || pod("3-4\n")),
        Case::unknown("k8s.cpu-load-balancing", host),
        Case::not_applicable("k8s.cpu-load-balancing", || pod("0-1\n")),
        Case::pass("k8s.irq-load-balancing", || pod("2-3\n")),
        Case::warn("k8s.irq-load-balancing", || pod("3-4\n")),
        Case::unknown("k8s.irq-load-balancing", host),
        Case::pass("k8s.exclusive-vs-iso", || pod("2-3\n")),
        Case::warn("k8s.exclusive-vs-iso", || pod("3-4\n")),
        Case::warn("k8s.exclusive-vs-iso", || pod("4-5\n").isolated("2-4")),
        Case::unknown("k8s.exclusive-vs-iso", || host().isolated("2-7")),
    ];
}
