//! Rules that check whether all settings isolate the same CPUs, and whether the isolated set is well chosen.

use host::Facts;
use host::facts::CpuSet;

use crate::remedy::Operator;
use crate::rules::common::{QUEUES_STAY, cpus_of, enumerated, line};
use crate::rules::{can_spare, free};
use crate::wording::singular;
use crate::{Applies, Cause, Context, Fix, How, Judged, Judgement, Magnitude, Rule, Skip, Subject, known};

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cmd.sets-agree",
        cause: Cause::SchedulerIsolation,
        title: "All settings describe the same isolated CPUs",
        applies: Applies::LINUX.isolated(),
        judge: sets_agree,
        why: "Isolation is spread over a dozen settings, each with its own list or mask. If one of them leaves out a \
              CPU, that CPU gets the housekeeping work, and nothing reports it.",
        magnitude: Magnitude::untimed(
            "as much as the setting that leaves out the CPU: a tick, an interrupt, a time slice",
            "Linux Documentation/admin-guide/cpu-isolation.rst, which asks for all of them together",
        ),
        // Each judgement rewrites only the settings that differ.
        fix: Fix::look("grep . /proc/cmdline /proc/irq/default_smp_affinity /sys/devices/virtual/workqueue/cpumask"),
        cost: COST,
        references: &["Linux Documentation/admin-guide/cpu-isolation.rst", "tuned profile cpu-partitioning"],
    },
    Rule {
        id: "cmd.smt-siblings-split",
        cause: Cause::Siblings,
        title: "Both threads of each core are isolated, or neither is",
        applies: Applies::LINUX.isolated(),
        judge: siblings,
        why: "The two threads of a core share its execution ports and its L1 and L2 caches. Housekeeping on one \
         thread slows the application on the other, and its interrupts wake the core from idle states.",
        magnitude: Magnitude::slower(
            "up to half of the core's throughput while the sibling is busy",
            "FlexRAN real-time platform slides (2018), Processor Optimizations, Hyper-Threading; the figure is general knowledge",
        ),
        fix: Fix::boot("isolate both threads of a core or none"),
        cost: "Either housekeeping or the application loses a thread on each core of which only one thread is \
               isolated. If you isolate the other thread too, or leave it idle, housekeeping can no longer use it. If \
               you isolate neither, the application loses the thread that it had.",
        references: &[
            "Linux Documentation/admin-guide/cpu-isolation.rst",
            "DPDK guide, older editions, Getting Started for Linux, How to get best performance with NICs on Intel platforms",
        ],
    },
    Rule {
        id: "cmd.hk-per-node",
        cause: Cause::Housekeeping,
        title: "CPU 0 and one CPU of each NUMA node are left to housekeeping",
        applies: Applies::LINUX.isolated(),
        judge: per_node,
        why: "CPU 0 boots the host and, if it can, keeps the kernel's time; some interrupts and kernel work stay on \
              it. If a node has no housekeeping CPU, timers, RCU and the reclaim of that node's memory run on CPUs of \
              another node.",
        magnitude: Magnitude::slower(
            "100 to 200 ns more per access to the other socket; work that cannot leave CPU 0 takes microseconds",
            "Linux Documentation/admin-guide/cpu-isolation.rst; the cost of a remote access is general knowledge",
        ),
        fix: Fix::boot("leave CPU 0, and at least one core of each node, out of isolcpus=, nohz_full= and rcu_nocbs="),
        cost: "The application gets fewer CPUs.",
        references: &[
            "Linux Documentation/admin-guide/cpu-isolation.rst",
            "DPDK guide Getting Started for Linux, Enabling Additional Functionality, Using Linux Core Isolation",
        ],
    },
];

/// A setting, and the CPUs that its present value isolates.
struct Side {
    name: &'static str,
    source: String,
    isolates: CpuSet,
}

impl Side {
    /// Describes the work that the setting allows on the CPUs of its mask. `None` if the setting is not a mask of the
    /// running host.
    fn mask(&self) -> Option<&'static str> {
        match self.name {
            DEFAULT => Some("new interrupts may go to"),
            WORKQUEUES => Some("unbound kernel work may run on"),
            _ => None,
        }
    }

    /// Says which CPUs the setting isolates or, if it is a mask, which CPUs it allows. `all` are the CPUs of the host.
    fn says(&self, all: &CpuSet) -> String {
        match self.mask() {
            Some(what) => format!("{what} {}", Subject::from(all.difference(&self.isolates))),
            None => format!("{} isolates {}", self.name, self.isolates),
        }
    }

    /// The name of the setting, for use in a sentence.
    fn called(&self) -> String {
        match self.source == "/proc/cmdline" {
            true => format!("{}=", self.name),
            false => format!("the {}", self.name),
        }
    }

    /// The cost of changing this setting. `None` if the cost of the rule already covers it.
    fn cost(&self) -> Option<&'static str> {
        match self.name {
            DEFAULT | "irqaffinity" => Some(QUEUES_STAY),
            WORKQUEUES => Some("Unbound kernel work runs only on the housekeeping CPUs."),
            _ => None,
        }
    }

    /// Whether the setting isolates exactly the intended CPUs. For `nohz_full=`, the boot CPU is ignored, because
    /// `nohz_full=` cannot contain it (kernel/time/tick-sched.c, tick_nohz_init).
    fn agrees(&self, wanted: &CpuSet, all: &CpuSet) -> bool {
        let (isolates, wanted) = (self.isolates.intersection(all), wanted.intersection(all));
        let boot = CpuSet::from([0]);
        match self.name {
            "nohz_full" => isolates.difference(&boot) == wanted.difference(&boot),
            _ => isolates == wanted,
        }
    }

    /// Adds a fix that makes the setting isolate the intended CPUs, on the running host or from the next boot on.
    fn mend(&self, judgement: Judgement, wanted: &CpuSet, all: &CpuSet) -> Judgement {
        let others = all.difference(wanted);
        if others.is_empty() {
            return judgement.for_good("isolate fewer CPUs: leave at least one CPU of each node to housekeeping");
        }
        match self.name {
            "isolcpus" => judgement.for_good("isolcpus=managed_irq,domain,{isolated}"),
            "nohz_full" | "rcu_nocbs" => judgement.for_good(format!("{}={{isolated}}", self.name)),
            "irqaffinity" | "kthread_cpus" | "systemd.cpu_affinity" => {
                judgement.for_good(format!("{}={{housekeeping}}", self.name))
            }
            "tuned.non_isolcpus" => judgement.for_good("tuned.non_isolcpus={housekeeping-mask}"),
            DEFAULT => judgement.now("echo {housekeeping-mask} > /proc/irq/default_smp_affinity"),
            WORKQUEUES => judgement.now("echo {housekeeping-mask} > /sys/devices/virtual/workqueue/cpumask"),
            _ => judgement.for_good("CPUAffinity={housekeeping} in /etc/systemd/system.conf"),
        }
    }
}

/// The cost of settings that have rules of their own.
const COST: &str = "The CPUs that a setting newly covers bear the cost of that setting (see cmd.isolcpus, cmd.nohz-full and cmd.rcu-nocbs).";
const DEFAULT: &str = "default interrupt affinity";
const WORKQUEUES: &str = "workqueue cpumask";

fn sets_agree(facts: &Facts, context: &Context) -> Judged {
    line(facts)?;
    let wanted = &context.isolated.value;
    let all = facts.cpus.all();
    let mut sides: Vec<Side> = Vec::new();
    let mut side = |name: &'static str, source: String, isolates: CpuSet| sides.push(Side { name, source, isolates });
    for name in ["isolcpus", "nohz_full", "rcu_nocbs"] {
        if let Some(set) = cpus_of(facts, name) {
            side(name, "/proc/cmdline".into(), set);
        }
    }
    // nohz_full implies rcu_nocbs, so a missing rcu_nocbs says nothing; these parameters name the other CPUs.
    for name in ["irqaffinity", "kthread_cpus", "systemd.cpu_affinity"] {
        if let Some(set) = cpus_of(facts, name) {
            side(name, "/proc/cmdline".into(), all.difference(&set));
        }
    }
    let mask = facts.cmdline.value().and_then(|line| line.value("tuned.non_isolcpus"));
    if let Some(set) = mask.and_then(|mask| CpuSet::parse_mask(mask).ok()) {
        side("tuned.non_isolcpus", "/proc/cmdline".into(), all.difference(&set));
    }
    let masks = [
        (DEFAULT, &facts.irqs.default_affinity),
        ("CPUAffinity= of systemd", &facts.services.systemd_cpu_affinity),
        (WORKQUEUES, &facts.workqueues.cpumask),
    ];
    for (name, fact) in masks {
        if let Some(set) = fact.value() {
            side(name, fact.source().to_string(), all.difference(set));
        }
    }
    if sides.is_empty() {
        return Err(Skip::not_applicable("no setting describes isolated CPUs"));
    }
    let (agreeing, wrong): (Vec<&Side>, Vec<&Side>) = sides.iter().partition(|side| side.agrees(wanted, &all));
    let judgement = match wrong.as_slice() {
        [] => Judgement::pass_for(wanted, format!("{} settings describe the isolated CPUs {wanted}", sides.len())),
        wrong => {
            let each: Vec<String> = wrong.iter().map(|side| side.says(&all)).collect();
            let agreeing: Vec<String> = agreeing.iter().map(|side| side.called()).collect();
            let meant = match (wrong.iter().any(|side| side.mask().is_some()), agreeing.as_slice()) {
                (false, _) => format!(", not {wanted}"),
                (true, []) => format!("; the isolated CPUs are {wanted}"),
                (true, [one]) => format!(", while {one} isolates {wanted}"),
                (true, many) => format!(", while {} isolate {wanted}", enumerated(many)),
            };
            let judgement = Judgement::warn_for(wanted, format!("{}{meant}", each.join(", ")));
            let judgement = wrong.iter().fold(judgement, |judgement, side| side.mend(judgement, wanted, &all));
            let mut costs: Vec<&str> = wrong.iter().map(|side| side.cost().unwrap_or(COST)).collect();
            costs.sort_unstable();
            costs.dedup();
            let judgement = judgement.costs(costs.join(" "));
            // On a node of OpenShift, only the operator's settings are permanent.
            let is_node = facts.cmdline.value().and_then(Operator::of).is_some();
            match judgement.for_good.is_empty() && is_node && wrong.iter().any(|side| side.name == DEFAULT) {
                true => judgement.for_good("irqaffinity={housekeeping}"),
                false => judgement,
            }
        }
    };
    let see = |judgement: Judgement, side: &Side| {
        judgement.see_as(format!("{} isolates {}", side.name, side.isolates), &side.source)
    };
    sides.iter().fold(judgement, see).alone()
}

/// Describes the alternative to isolating whole cores: leaving the sibling threads idle.
fn kept_idle(isolated: &CpuSet, others: &CpuSet) -> String {
    let whose = if isolated.len() == 1 { "its" } else { "their" };
    let threads = if others.len() == 1 { "thread" } else { "threads" };
    format!(". Or keep CPUs {isolated} isolated, and leave {whose} sibling {threads}, CPUs {others}, idle")
}

fn siblings(facts: &Facts, context: &Context) -> Judged {
    let (isolated, online) = (&context.isolated.value, facts.cpus.all());
    let mut split: Vec<(u32, CpuSet)> = Vec::new();
    let mut source = None;
    for cpu in isolated.iter().filter_map(|id| facts.cpus.cpu(id)) {
        let siblings = known(&cpu.siblings)?;
        let others = siblings.intersection(&online).difference(isolated);
        // The file that shows it: the one for the first CPU whose core is split, otherwise the one for the first CPU.
        if !others.is_empty() {
            if split.is_empty() {
                source = Some(cpu.siblings.source());
            }
            split.push((cpu.id, others));
        }
        source.get_or_insert(cpu.siblings.source());
    }
    let source = source.ok_or_else(|| Skip::unknown("the isolated CPUs are not among those that are known"))?;
    // CPUs that a hypervisor shows as threads of a core usually are that. CPUs that it shows as cores need not be
    // cores.
    if split.is_empty() && facts.virtualisation.guest.value() == Some(&true) {
        return Err(Skip::not_applicable("this is a guest: the hypervisor decides which CPUs share a core"));
    }
    let judgement = match split.as_slice() {
        [] => Judgement::pass_for(isolated, "no core is split between the application and housekeeping")
            .see_as("siblings are isolated together", source),
        split => {
            let cpus: CpuSet = split.iter().map(|(cpu, _)| *cpu).collect();
            let others = split.iter().fold(CpuSet::new(), |all, (_, others)| all.union(others));
            // Never the other way round: a sibling that is taken offline may be the only housekeeping CPU.
            let whole = isolated.difference(&cpus);
            let spare = can_spare(facts, context, &others);
            let fix = match (whole.is_empty(), spare) {
                (true, _) => {
                    let idle = if spare { kept_idle(&cpus, &others) } else { String::new() };
                    match cores(facts, split, context) {
                        cores if cores.is_empty() => {
                            format!("isolate whole cores, but not the boot CPU's: this host has no other core{idle}")
                        }
                        cores => format!(
                            "isolate whole cores: run this audit again with --isolated {cores}, and use \
                            the boot line that it then prints{idle}"
                        ),
                    }
                }
                (false, spare) => {
                    let moved = match spare {
                        true => kept_idle(&cpus, &others),
                        false => String::new(),
                    };
                    format!(
                        "isolate whole cores: run this audit again with --isolated {whole}, which leaves CPUs {cpus} \
                        to housekeeping, and use the boot line that it then prints{moved}"
                    )
                }
            };
            let found = format!("CPUs {cpus} share their cores with CPUs {others}, which are not isolated");
            let of_each = |judgement: Judgement, (cpu, others): &(u32, CpuSet)| {
                let source =
                    facts.cpus.cpu(*cpu).map_or_else(|| source.to_string(), |cpu| cpu.siblings.source().to_string());
                judgement.see_as(format!("siblings of CPU {cpu}: {others}"), source)
            };
            let judgement = split.iter().take(NAMED).fold(Judgement::fail_for(&cpus, found), of_each);
            let judgement = match split.len() > NAMED {
                true => {
                    let rest: Vec<String> =
                        split[NAMED..].iter().map(|(cpu, others)| format!("CPU {cpu}: {others}")).collect();
                    judgement.see_as(format!("siblings of {}", rest.join("; ")), "the same files of these CPUs")
                }
                false => judgement,
            };
            match whole.is_empty() {
                true => judgement,
                false => {
                    let or = if spare {
                        format!(", or housekeeping gives up {}", Subject::from(&others))
                    } else {
                        String::new()
                    };
                    judgement.costs(format!("The application gives up {}{or}.", Subject::from(&cpus)))
                }
            }
            .for_good(singular(&fix))
        }
    };
    judgement.alone()
}

/// Names the source of the set of isolated CPUs.
fn source_of(context: &Context) -> String {
    match &context.isolated.how {
        How::Inferred(from) => from.clone(),
        How::Given | How::Nowhere => "--isolated".to_owned(),
    }
}

/// Maximum number of CPUs whose siblings are listed as evidence.
const NAMED: usize = 2;

/// Whole cores to isolate instead of the single threads in `split`. The cores have at most as many CPUs as are isolated
/// now, so that housekeeping keeps its share, but there is at least one core. The core of the boot CPU is excluded; if
/// `split` has no other core, the result is the first free core of the host.
fn cores(facts: &Facts, split: &[(u32, CpuSet)], context: &Context) -> CpuSet {
    let whole = split.iter().map(|(cpu, others)| others.union(&[*cpu].into()));
    let others = free(facts, context);
    let free = others.iter().map(|cpu| crate::rules::cores(facts, &[cpu].into())).find(|core| !core.contains(0));
    let mut own: Vec<CpuSet> = whole.filter(|core| !core.contains(0)).collect();
    if own.is_empty() {
        own.extend(free);
    }
    let most = context.isolated.value.len();
    own.iter().fold(CpuSet::new(), |all, core| {
        let more = all.union(core);
        if all.is_empty() || more.len() <= most { more } else { all }
    })
}

fn per_node(facts: &Facts, context: &Context) -> Judged {
    let isolated = &context.isolated.value;
    let all = facts.cpus.all();
    if !all.is_empty() && all.is_subset(isolated) {
        return Judgement::fail_for(isolated, "all CPUs are isolated: none is left for housekeeping")
            .with_effect(crate::Effect::Unsized)
            .see_as(all.to_string(), facts.cpus.online.source())
            .alone();
    }
    if isolated.contains(0) {
        return Judgement::warn_for(
            0,
            "CPU 0 is among the application's CPUs, but it boots the host, and some kernel work stays on it",
        )
        .with_effect(crate::Effect::Unsized)
        .see_as(format!("isolated {isolated}"), source_of(context))
        .alone();
    }
    let mut without: Vec<u32> = Vec::new();
    let mut nodes = 0;
    for node in &facts.cpus.nodes {
        let cpus = known(&node.cpus)?.intersection(&facts.cpus.all());
        nodes += usize::from(!cpus.is_empty());
        if !cpus.is_empty() && cpus.is_subset(isolated) {
            without.push(node.id);
        }
    }
    if nodes == 0 {
        return Err(Skip::unknown("/sys/devices/system/node: no NUMA node is known"));
    }
    let source = "/sys/devices/system/node/node*/cpulist";
    let judgement = match without.as_slice() {
        [] if nodes == 1 => Judgement::pass("the only node has a housekeeping CPU"),
        [] => Judgement::pass(format!("each of {nodes} nodes has a housekeeping CPU")),
        without => {
            let names: Vec<String> = without.iter().map(u32::to_string).collect();
            Judgement::warn(format!("node {} has no housekeeping CPU", names.join(", ")))
        }
    };
    let s = if nodes == 1 { "" } else { "s" };
    judgement.see_as(format!("{nodes} node{s}; isolated {isolated}"), source).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    const LINE: &str = "isolcpus=managed_irq,domain,2-7 nohz_full=2-7 irqaffinity=0-1 tuned.non_isolcpus=00000003";

    fn iso() -> Host {
        host().isolated("2-7")
    }

    fn threads(pairs: &[(u32, &str)]) -> Host {
        let sibling = |host: Host, (cpu, list): &(u32, &str)| {
            host.file(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), list)
        };
        pairs.iter().fold(iso(), sibling)
    }

    fn nodes(first: &str, second: &str) -> Host {
        iso()
            .file("/sys/devices/system/node/node0/cpulist", first)
            .file("/sys/devices/system/node/node1/cpulist", second)
    }

    const TOGETHER: &[(u32, &str)] = &[(2, "2-3"), (3, "2-3"), (4, "4-5"), (5, "4-5"), (6, "6-7"), (7, "6-7")];
    const SPLIT: &[(u32, &str)] = &[(2, "0,2"), (3, "1,3"), (4, "4,6"), (5, "5,7"), (6, "4,6"), (7, "5,7")];

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cmd.sets-agree", || iso().cmdline(LINE).file("/proc/irq/default_smp_affinity", "03\n")),
        Case::warn("cmd.sets-agree", || iso().cmdline(LINE).file("/proc/irq/default_smp_affinity", "ff\n")),
        Case::warn("cmd.sets-agree", || iso().cmdline("isolcpus=2-7 nohz_full=2-6")),
        Case::unknown("cmd.sets-agree", iso),
        Case::not_applicable("cmd.sets-agree", || iso().cmdline("quiet")),
        Case::pass("cmd.smt-siblings-split", || threads(TOGETHER)),
        Case::not_applicable("cmd.smt-siblings-split", || threads(TOGETHER).guest()),
        Case::fail("cmd.smt-siblings-split", || threads(SPLIT)),
        Case::fail("cmd.smt-siblings-split", || threads(SPLIT).guest()),
        Case::unknown("cmd.smt-siblings-split", iso),
        Case::pass("cmd.hk-per-node", || nodes("0,2-3", "1,4-7")),
        Case::warn("cmd.hk-per-node", || nodes("0-3", "4-7")),
        Case::fail("cmd.hk-per-node", || host().isolated("0-7")),
        Case::warn("cmd.hk-per-node", || host().isolated("0-6")),
        Case::unknown("cmd.hk-per-node", iso),
    ];

    /// Packets wait for the kernel's work on CPU 0, so the report must not say that no packet waits.
    #[test]
    fn only_a_node_without_housekeeping_makes_the_work_slower() {
        use crate::Effect;
        let effect = |host: Host| host.judge("cmd.hk-per-node")[0].effect;
        assert_eq!(effect(host().isolated("0-7")), Some(Effect::Unsized));
        assert_eq!(effect(host().isolated("0-6")), Some(Effect::Unsized));
        assert_eq!(effect(nodes("0-3", "4-7")), None);
        assert_eq!(crate::rules::find("cmd.hk-per-node").unwrap().magnitude.effect, Effect::Slower);
    }

    #[test]
    fn the_setting_that_differs_is_named_and_no_sibling_is_switched_off() {
        let judgements = iso().cmdline("isolcpus=2-7 nohz_full=2-6").judge("cmd.sets-agree");
        assert_eq!(judgements[0].found, "nohz_full isolates 2-6, not 2-7");
        assert_eq!(judgements[0].for_good, ["nohz_full={isolated}"]);
        // Every setting that differs is rewritten, and no other.
        let rule = crate::rules::find("cmd.sets-agree").unwrap();
        assert_eq!((rule.fix.runtime, rule.fix.persistent), (None, None));
        let line = "isolcpus=managed_irq,domain,2-7 systemd.cpu_affinity=0 tuned.non_isolcpus=00000001";
        let judgement = iso().cmdline(line).file("/proc/irq/default_smp_affinity", "ff\n").judge("cmd.sets-agree");
        assert_eq!(
            judgement[0].for_good,
            ["systemd.cpu_affinity={housekeeping}", "tuned.non_isolcpus={housekeeping-mask}"]
        );
        assert_eq!(judgement[0].now, ["echo {housekeeping-mask} > /proc/irq/default_smp_affinity"]);
        let judgements = threads(SPLIT).judge("cmd.smt-siblings-split");
        assert!(judgements[0].now.is_empty(), "CPUs 0-1 are all that housekeeping has: {judgements:?}");
        assert!(judgements[0].for_good[0].contains("--isolated "), "{judgements:?}");
    }

    /// icx2s3 with `--isolated 2-3`: CPUs 2 and 18 are a core, 3 and 19 another.
    #[test]
    fn as_many_whole_cores_as_hold_the_isolated_cpus_are_named() {
        let fix = |pairs: &[(u32, &str)], isolated: &str| {
            let file = |host: Host, (cpu, list): &(u32, &str)| {
                host.file(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), list)
            };
            let host = pairs.iter().fold(host().isolated(isolated), file);
            host.judge("cmd.smt-siblings-split").remove(0).for_good.remove(0)
        };
        assert!(
            fix(&[(2, "2,6"), (3, "3,7")], "2-3")
                .starts_with("isolate whole cores: run this audit again with --isolated 2,6, and")
        );
        assert!(
            fix(&[(2, "2,6")], "2").starts_with("isolate whole cores: run this audit again with --isolated 2,6, and")
        );
        assert!(
            fix(&[(4, "0,4"), (5, "1,5")], "4-5")
                .starts_with("isolate whole cores: run this audit again with --isolated 1,5")
        );
    }

    /// bdwde0 with CPUs 8-15, icx2s3 with 2-17: the other threads are all that housekeeping has, the boot CPU among them.
    #[test]
    fn siblings_that_housekeeping_needs_are_not_kept_idle() {
        let fix = |isolated: &str, present: &str, step: u32| {
            let cpus = 2 * step;
            let file = |host: Host, cpu: u32| {
                let pair = format!("{},{}", cpu % step, cpu % step + step);
                host.file(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), &pair)
            };
            let host = host().file("/sys/devices/system/cpu/present", present);
            let host = host.file("/sys/devices/system/cpu/online", present).isolated(isolated);
            (0..cpus).fold(host, file).judge("cmd.smt-siblings-split").remove(0)
        };
        let all = fix("2-3", "0-3", 2);
        assert_eq!(
            all.for_good,
            [
                "isolate whole cores: run this audit again with --isolated 1,3, and use the boot line that it then prints"
            ]
        );
        let seen: Vec<&str> = all.evidence.iter().map(|seen| seen.value.as_str()).collect();
        assert_eq!(seen, ["siblings of CPU 2: 0", "siblings of CPU 3: 1"]);
        // The boot CPU's core is no way out.
        assert_eq!(
            fix("4", "0-7", 4).for_good,
            [
                "isolate whole cores: run this audit again with --isolated 1,5, and use the boot line that it then prints"
            ]
        );
        assert_eq!(
            fix("5", "0-7", 4).for_good,
            [
                "isolate whole cores: run this audit again with --isolated 1,5, and use the boot line that it then prints. Or keep CPU 5 isolated, and leave its sibling thread, CPU 1, idle"
            ]
        );
    }

    #[test]
    fn what_names_cpu_0_is_cited() {
        assert_eq!(host().isolated("0-6").judge("cmd.hk-per-node")[0].evidence[0].source, "--isolated");
        let facts = host().cmdline("isolcpus=0-6").facts();
        let judged = super::per_node(&facts, &crate::Context::of(&facts, &crate::Intent::default())).unwrap();
        assert_eq!(judged[0].evidence[0].source, "isolcpus=");
    }

    /// telco-worker1: CPUs 45-50 are split from 5-10; cpu0 has a core of the application's alone.
    #[test]
    fn the_file_that_is_cited_is_that_of_the_cpu() {
        let files = [(2, "2-3"), (3, "2-3"), (4, "4-5"), (5, "4-5"), (6, "1,6"), (7, "0,7")];
        let judgement = threads(&files).judge("cmd.smt-siblings-split").remove(0);
        assert_eq!(judgement.evidence[0].value, "siblings of CPU 6: 1");
        assert_eq!(judgement.evidence[0].source, "/sys/devices/system/cpu/cpu6/topology/thread_siblings_list");
    }

    /// telco-worker1, and the same without its parameters.
    #[test]
    fn a_mask_says_where_interrupts_may_go() {
        let found = |line: &str| {
            iso().cmdline(line).file("/proc/irq/default_smp_affinity", "ff\n").judge("cmd.sets-agree").remove(0)
        };
        let all = "new interrupts may go to CPUs 0-7";
        let judgement = found("isolcpus=2-7 nohz_full=2-7 rcu_nocbs=2-7");
        assert_eq!(judgement.found, format!("{all}, while isolcpus=, nohz_full= and rcu_nocbs= isolate 2-7"));
        assert!(judgement.for_good.is_empty());
        assert_eq!(found("nohz_full=2-7").found, format!("{all}, while nohz_full= isolates 2-7"));
        assert_eq!(found("quiet").found, format!("{all}; the isolated CPUs are 2-7"));
        // What lasts on a node of OpenShift is what its profile writes.
        let node = found("ostree=/ostree/boot.0/rhcos/1/0 tuned.non_isolcpus=00000003 isolcpus=2-7");
        assert_eq!(node.for_good, ["irqaffinity={housekeeping}"]);
        // telco-master: of a MachineConfig too.
        let node = found("ostree=/ostree/boot.0/rhcos/1/0 isolcpus=2-7");
        assert_eq!(node.for_good, ["irqaffinity={housekeeping}"]);
    }

    /// The same command has the same cost in each finding.
    #[test]
    fn what_moves_interrupts_is_not_for_nothing() {
        let cost = |line: &str, mask: &str| {
            let host = iso().cmdline(line).file("/proc/irq/default_smp_affinity", mask);
            host.judge("cmd.sets-agree").remove(0).cost.unwrap()
        };
        assert_eq!(cost("isolcpus=2-7", "ff\n"), super::QUEUES_STAY);
        assert_eq!(cost("isolcpus=2-7 irqaffinity=0-7", "03\n"), super::QUEUES_STAY);
        assert_eq!(cost("isolcpus=2-7 nohz_full=2-6", "03\n"), super::COST);
        let both = cost("isolcpus=2-7 nohz_full=2-6", "ff\n");
        assert!(both.contains(super::COST) && both.contains(super::QUEUES_STAY), "{both}");
        let work = iso().cmdline("isolcpus=2-7").file("/sys/devices/virtual/workqueue/cpumask", "ff\n");
        assert!(work.judge("cmd.sets-agree")[0].cost.as_deref().unwrap().starts_with("Unbound kernel work"));
    }

    /// telco-master with CPU 0 isolated: nohz_full= cannot name it.
    #[test]
    fn the_boot_cpu_is_asked_of_no_nohz_full() {
        let of = |line: &str| host().isolated("0-3").cmdline(line).judge("cmd.sets-agree").remove(0).verdict;
        assert_eq!(of("isolcpus=0-3 nohz_full=1-3"), crate::Verdict::Pass);
        assert_eq!(of("isolcpus=1-3 nohz_full=1-3"), crate::Verdict::Warn);
        let ticks = host().isolated("0-3").cmdline("nohz_full=1-3").file("/sys/devices/system/cpu/nohz_full", "1-3\n");
        let judgement = ticks.judge("cmd.nohz-full").remove(0);
        assert_eq!(judgement.found, "CPU 0 keeps its tick while it is busy: the boot CPU cannot be in nohz_full=");
        assert_eq!(judgement.for_good, ["leave CPU 0 to housekeeping: run this audit again with --isolated 1-3"]);
    }
}
