//! Rules on hardware threads, NUMA nodes and caches.

use std::collections::BTreeMap;

use host::Facts;
use host::facts::{CpuSet, Source};

use crate::remedy::words;
use crate::rules::choices::{Side, choose};
use crate::rules::common::enumerated;
use crate::rules::{can_spare, cores};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Workload, known};

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "smt.state",
        cause: Cause::Siblings,
        title: "No second thread disturbs the application's cores",
        applies: Applies::LINUX.on_hardware(),
        judge: smt,
        why: "Two threads of a core share its execution ports, its L1 and L2 caches, and its idle states.",
        magnitude: Magnitude::slower(
            "up to half of the core's throughput while the sibling is busy",
            "general knowledge; the FlexRAN real-time platform slides (2018) advise one thread per core; they found about the same latency with SMT on, if the other thread of the core was disabled",
        ),
        fix: Fix::runtime(
            "echo off > /sys/devices/system/cpu/smt/control # for good: nosmt on the kernel command line",
        )
        .decided()
        .traded()
        .against(&[
            "off: FlexRAN slides, cpu-isolation.rst, rigtorp.se",
            "on: OpenShift vDU reference configuration, intel/PerfSpect",
        ]),
        cost: "You lose the second thread of each core. Where two threads made good use of a core, one thread alone does up to a third less work on it.",
        references: &[
            "Linux Documentation/admin-guide/cpu-isolation.rst",
            "FlexRAN real-time platform slides (2018), Processor Optimizations",
        ],
    },
    Rule {
        id: "topo.snc",
        cause: Cause::Placement,
        title: "Sockets are split into nodes only if the application is placed accordingly",
        applies: Applies::LINUX.on_hardware().isolated(),
        judge: clusters,
        why: "With sub-NUMA clusters (or NPS2 and NPS4) a socket has several nodes. Memory and cache of a CPU's own \
              node are nearer, those of the other nodes farther away. An application with CPUs on several nodes of a \
              socket pays for it.",
        magnitude: Magnitude::slower(
            "10 to 20 ns between the nodes of a socket, 60 to 100 ns to another socket",
            "general knowledge; FlexRAN real-time platform slides (2018) ask to disable clusters that are not needed",
        ),
        fix: Fix::boot("firmware setting Sub-NUMA Clustering: disabled (AMD: NPS1), or isolate CPUs of one node"),
        cost: "Without clusters the nearest memory is a little farther away.",
        references: &[
            "FlexRAN real-time platform slides (2018), Memory Optimizations",
            "OpenShift vDU reference configuration, host firmware",
        ],
    },
    Rule {
        id: "topo.l3-domain",
        cause: Cause::Placement,
        title: "Threads that share packets share a last-level cache",
        applies: Applies::LINUX.on_hardware().isolated(),
        judge: caches,
        why: "Threads pass packets to each other through the last-level cache that they share. If there are several such \
         caches (one per CCX on EPYC), the packet crosses the fabric.",
        magnitude: Magnitude::slower(
            "about 100 ns more per cache line that crosses between caches of a socket",
            "Linux Documentation/core-api/real-time/hardware.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::boot("isolate CPUs of one cache (lscpu --extended shows which), or keep each pipeline within one"),
        cost: "There are fewer CPUs to choose from.",
        references: &["Linux Documentation/core-api/real-time/hardware.rst"],
    },
];

fn smt(facts: &Facts, context: &Context) -> Judged {
    let active = &facts.cpus.smt_active;
    if !*known(active)? {
        return Judgement::pass("each core runs one thread").see_whether(active, "active", "not active").alone();
    }
    let critical = context.critical(facts);
    let online = facts.cpus.all();
    let mut shared = CpuSet::new();
    for cpu in critical.iter().filter_map(|id| facts.cpus.cpu(id)) {
        if known(&cpu.siblings)?.intersection(&online).len() > 1 {
            shared.insert(cpu.id);
        }
    }
    let judgement = match shared.is_empty() {
        true => Judgement::pass("some cores run two threads, but none of the application's cores does"),
        false => {
            const OFF: Side = Side {
                is: "each core runs one thread",
                want: "one thread per core",
                who: "FlexRAN slides, cpu-isolation.rst and rigtorp.se",
                of: &[Workload::Poll],
            };
            const ON: Side = Side {
                is: "two threads run on each core",
                want: "two threads per core",
                who: "OpenShift's reference for 5G distributed units and intel/PerfSpect",
                of: &[],
            };
            let judgement = choose(context, [&OFF, &ON], 1);
            let judgement = Judgement { subject: (&shared).into(), ..judgement };
            match context.isolated.value.is_empty() {
                true => judgement,
                false => alone(facts, context, judgement),
            }
        }
    };
    judgement.see_whether(active, "active", "not active").see(&facts.cpus.smt_control).alone()
}

/// The cost if the application uses only one thread of each core.
const IDLE_COST: &str =
    "Where two threads make good use of a core, one thread alone does up to a third less work on it.";

/// Adds a fix that leaves each core of the application with only one thread, by taking the other threads of these cores
/// offline. Unlike nosmt, the fix takes no housekeeping CPU offline.
fn alone(facts: &Facts, context: &Context, judgement: Judgement) -> Judgement {
    let isolated = &context.isolated.value;
    let of_core = |cpu: u32| facts.cpus.cpu(cpu)?.siblings.value().map(|siblings| siblings.intersection(isolated));
    let is_second = |cpu: &u32| of_core(*cpu).is_some_and(|threads| threads.first().is_some_and(|first| first != *cpu));
    let seconds: CpuSet = isolated.iter().filter(is_second).collect();
    if seconds.is_empty() {
        let siblings = cores(facts, isolated).difference(isolated);
        let (who, them) = (Subject::from(&siblings), pronoun(&siblings));
        return judgement.costs(IDLE_COST).now(match can_spare(facts, context, &siblings) {
            true => format!("# keep {who} idle, or give {them} to the application too (see cmd.smt-siblings-split)"),
            false => "# first do what cmd.smt-siblings-split says".to_owned(),
        });
    }
    let is_half = |cpu: &u32| {
        let siblings = facts.cpus.cpu(*cpu).and_then(|cpu| cpu.siblings.value());
        siblings.is_some_and(|threads| !threads.intersection(&facts.cpus.all()).is_subset(isolated))
    };
    let halves: CpuSet = isolated.iter().filter(is_half).collect();
    let share = match halves.len() {
        0 => None,
        1 => Some("shares its core"),
        _ => Some("share their cores"),
    };
    let first = share.map(|share| {
        format!("# first do what cmd.smt-siblings-split says: {} {share} with other CPUs", Subject::from(&halves))
    });
    let judgement = first.into_iter().fold(judgement, Judgement::now);
    judgement
        .now(format!(
            "for n in {}; do echo 0 > /sys/devices/system/cpu/cpu$n/online; done # echo 1 brings them back, as a reboot does",
            words(&seconds)
        ))
        .costs(format!("The application loses {}: first move its threads off {}.", Subject::from(&seconds), pronoun(&seconds)))
}

fn pronoun(cpus: &CpuSet) -> &'static str {
    if cpus.len() == 1 { "it" } else { "them" }
}

fn clusters(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    let mut packages = BTreeMap::<u32, Vec<u32>>::new();
    let mut places: Vec<(CpuSet, u32)> = Vec::new();
    let mut sources: Vec<String> = Vec::new();
    let mut clusters = 0;
    for node in &facts.cpus.nodes {
        let cpus = known(&node.cpus)?;
        let Some(first) = cpus.first().and_then(|id| facts.cpus.cpu(id)) else { continue };
        let package = *known(&first.package)?;
        for source in [node.cpus.source(), first.package.source()] {
            let source = source.to_string();
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        clusters += u32::from(packages.contains_key(&package));
        let nodes = packages.entry(package).or_default();
        if cpus.intersects(isolated) {
            nodes.push(node.id);
            places.push((cpus.intersection(isolated), node.id));
        }
    }
    if packages.is_empty() {
        return Err(Skip::unknown("/sys/devices/system/node: no NUMA node is known"));
    }
    let spread = packages.iter().find(|(_, nodes)| nodes.len() > 1);
    let judgement = match spread {
        None => {
            let each = if clusters == 0 { "each socket is one node" } else { "on each socket only one node is used" };
            // Long lists are replaced by their number of CPUs, because the evidence contains them.
            let long = places.iter().any(|(cpus, _)| cpus.to_string().len() > 24);
            let place = |(cpus, node): &(CpuSet, u32)| match long {
                true => format!("{} CPUs on node {node}", cpus.len()),
                false => format!("{cpus} on node {node}"),
            };
            let what = if long { "" } else { "CPUs " };
            let places: Vec<String> = places.iter().map(place).collect();
            let text = format!("{each}; the application has {what}{}", enumerated(&places));
            Judgement::pass_for(isolated, text)
        }
        Some((package, nodes)) => {
            Judgement::warn_for(isolated, format!("on socket {package} they are spread over nodes {nodes:?}"))
        }
    };
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (nodes, sockets) = (count(facts.cpus.nodes.len(), "node"), count(packages.len(), "socket"));
    let judgement = judgement.see_as(format!("{nodes} on {sockets}"), sources.join(", "));
    let see = |judgement: Judgement, (cpus, node): &(CpuSet, u32)| {
        judgement
            .see_as(format!("isolated on node {node}: {cpus}"), format!("/sys/devices/system/node/node{node}/cpulist"))
    };
    places.iter().fold(judgement, see).alone()
}

/// Judges the caches of the isolated CPUs. Several caches are a problem only if threads of one process that pass
/// packets to each other are pinned to CPUs with different caches.
fn caches(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    // Each cache, and the file that shows it.
    let mut caches: Vec<(&CpuSet, &Source)> = Vec::new();
    for cpu in isolated.iter().filter_map(|id| facts.cpus.cpu(id)) {
        let shared = known(&cpu.l3)?;
        if !caches.iter().any(|(known, _)| *known == shared) {
            caches.push((shared, cpu.l3.source()));
        }
    }
    if caches.is_empty() {
        return Err(Skip::unknown("the isolated CPUs are not among those that are known"));
    }
    if let [(cache, source)] = caches[..] {
        let judgement = Judgement::pass_for(isolated, "they share one last-level cache");
        return judgement.see_as(cache.to_string(), source).alone();
    }
    known(&facts.tasks)?;
    if facts.tasks().all(|task| !task.affinity.is_known()) {
        return Err(Skip::unknown("where the threads may run was not recorded"));
    }
    let mut processes: BTreeMap<u32, (&str, CpuSet)> = BTreeMap::new();
    for task in facts.tasks().filter(|task| !task.kernel) {
        let pinned = task.affinity.value().filter(|cpus| cpus.len() == 1 && cpus.is_subset(isolated));
        if let Some(cpu) = pinned {
            let (_, cpus) = processes.entry(task.pid).or_insert_with(|| (&task.process, CpuSet::new()));
            *cpus = cpus.union(cpu);
        }
    }
    let judge = |(pid, (name, cpus)): (u32, (&str, CpuSet))| {
        let subject = Subject::Named(format!("process {name} ({pid})"));
        let parts: Vec<_> = caches.iter().filter(|(cache, _)| cache.intersects(&cpus)).collect();
        let judgement = match parts.len() {
            1 => Judgement::pass_for(subject, format!("its threads on CPUs {cpus} share one last-level cache")),
            n => Judgement::warn_for(subject, format!("its threads on CPUs {cpus} span {n} last-level caches")),
        };
        let seen =
            parts.iter().fold(judgement, |judgement, (cache, source)| judgement.see_as(cache.to_string(), source));
        seen.see_as(format!("pinned to CPUs {cpus}"), facts.tasks.source())
    };
    let several = processes.into_iter().filter(|(_, (_, cpus))| cpus.len() > 1);
    let judgements: Vec<Judgement> = several.map(judge).collect();
    match judgements.is_empty() {
        true => Err(Skip::not_applicable("no process has several threads pinned to the isolated CPUs")),
        false => Ok(judgements),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    const ACTIVE: &str = "/sys/devices/system/cpu/smt/active";

    fn iso() -> Host {
        host().isolated("2-7")
    }

    fn each(host: Host, file: &str, text: fn(u32) -> String) -> Host {
        (0..8).fold(host, |host, n| host.file(&format!("/sys/devices/system/cpu/cpu{n}/{file}"), &text(n)))
    }

    fn two_caches(host: Host) -> Host {
        each(host, "cache/index3/shared_cpu_list", |n| if n < 4 { "0-3".into() } else { "4-7".into() })
    }

    /// Threads: process, thread, CPUs.
    fn threads(host: Host, list: &[(u32, u32, &str)]) -> Host {
        let (mut stats, mut statuses) = (String::new(), String::new());
        for (pid, tid, cpus) in list {
            stats += &format!(
                "{tid} (lcore-worker-{tid}) R 2 0 0 0 -1 4194304 0 0 0 0 5 7 0 0 20 0 1 0 1 0 0 18446744073709551615 0 0 0 0 0 0 0 \
                 2147483647 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            );
            statuses += &format!("Name:\tlcore-worker-{tid}\nTgid:\t{pid}\nPid:\t{tid}\nCpus_allowed_list:\t{cpus}\n");
        }
        host.file("/tasks/stat", &stats).file("/tasks/status", &statuses)
    }

    fn pairs() -> Host {
        each(iso().file(ACTIVE, "1\n"), "topology/thread_siblings_list", |n| format!("{}-{}", n & !1, n | 1))
    }

    fn nodes(host: Host) -> Host {
        let place = "/sys/devices/system/node/node";
        host.file(&format!("{place}0/cpulist"), "0-3").file(&format!("{place}1/cpulist"), "4-7")
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("smt.state", || host().file(ACTIVE, "0\n")),
        Case::disagree("smt.state", pairs),
        Case::unknown("smt.state", host),
        Case::pass("topo.snc", || each(nodes(iso()), "topology/physical_package_id", |n| (n / 4).to_string())),
        Case::warn("topo.snc", || each(nodes(iso()), "topology/physical_package_id", |_| "0".into())),
        Case::unknown("topo.snc", iso),
        Case::pass("topo.l3-domain", || each(iso(), "cache/index3/shared_cpu_list", |_| "0-7".into())),
        // What a hypervisor shows of caches is its own model.
        Case::not_applicable("topo.l3-domain", || {
            each(iso(), "cache/index3/shared_cpu_list", |_| "0-7".into()).guest()
        }),
        // Two caches, and nobody known who shares data across them.
        Case::unknown("topo.l3-domain", || two_caches(iso())),
        Case::not_applicable("topo.l3-domain", || threads(two_caches(iso()), &[(9, 9, "3"), (10, 10, "5")])),
        Case::pass("topo.l3-domain", || threads(two_caches(iso()), &[(9, 9, "2"), (9, 10, "3"), (9, 11, "0-1")])),
        Case::warn("topo.l3-domain", || threads(two_caches(iso()), &[(9, 9, "3"), (9, 10, "5")])),
        Case::unknown("topo.l3-domain", iso),
    ];

    #[test]
    fn only_second_threads_of_the_application_go_offline() {
        let now = |isolated: &str| pairs().isolated(isolated).judge("smt.state").remove(0).now;
        let offline = |words: &str| {
            format!(
                "for n in {words}; do echo 0 > /sys/devices/system/cpu/cpu$n/online; done # echo 1 brings them back, as a reboot does"
            )
        };
        assert_eq!(now("2-7"), [offline("3 5 7")]);
        // CPU 3 is the only thread of its core that the application has.
        let shares = "# first do what cmd.smt-siblings-split says: CPU 3 shares its core with other CPUs";
        assert_eq!(now("3-5"), [shares.to_owned(), offline("5")]);
        // gnr0, rome0: cores that are the application's for one half are named.
        let share = "# first do what cmd.smt-siblings-split says: CPUs 3,6 share their cores with other CPUs";
        assert_eq!(now("3-6"), [share.to_owned(), offline("5")]);
        // telco-worker1: their siblings are no housekeeping's either.
        assert_eq!(
            now("3,5"),
            ["# keep CPUs 2,4 idle, or give them to the application too (see cmd.smt-siblings-split)"]
        );
        assert!(crate::rules::find("smt.state").unwrap().fix.persistent.is_none(), "what needs no reboot says so");
    }

    /// bdwde0 with CPUs 8-15 of 16: their siblings are all that housekeeping has. icx2s3: the boot CPU is among them.
    #[test]
    fn cpus_that_housekeeping_needs_are_not_kept_idle() {
        let now = |isolated: &str, step: u32| {
            let host = (0..8).fold(iso().file(ACTIVE, "1\n"), |host, n| {
                let file = format!("/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list");
                host.file(&file, &format!("{},{}", n % step, n % step + step))
            });
            host.isolated(isolated).judge("smt.state").remove(0).now
        };
        let first = ["# first do what cmd.smt-siblings-split says"];
        assert_eq!(now("4-7", 4), first);
        assert_eq!(now("4", 4), first);
        assert!(now("5", 4)[0].starts_with("# keep CPU 1 idle, or give it"));
    }

    /// The file's text, and not what was made of it.
    #[test]
    fn what_a_file_says_is_quoted() {
        let host = each(iso(), "cache/index3/shared_cpu_list", |_| "0-7".into());
        assert_eq!(host.judge("topo.l3-domain")[0].evidence[0].value, "0-7");
        let packages: String = (0..8).map(|n| format!("processor : {n}\nphysical id : 0\n\n")).collect();
        let judgement = nodes(iso()).file("/proc/cpuinfo", &packages).judge("topo.snc").remove(0);
        let seen = &judgement.evidence[0];
        assert!(!seen.source.contains("physical_package_id") && seen.source.contains("/proc/cpuinfo"), "{seen:?}");
        assert_eq!(seen.value, "2 nodes on 1 socket");
    }
}
