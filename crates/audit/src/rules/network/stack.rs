//! Rules on the network stack between network card and sockets: budgets, connection tracking, and drivers that are
//! loaded together with the card's driver.

use host::facts::{Irq, Softnet};
use host::{Fact, Facts};
use units::Nanos;

use crate::rules::interfaces::span;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Workload, known, settled};

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "net.softnet-drops",
        cause: Cause::NetworkStack,
        title: "No packet was dropped from a CPU's backlog",
        applies: Applies::LINUX,
        judge: dropped,
        why: "Packets that another CPU or a virtual interface hands over wait in a backlog of netdev_max_backlog \
              packets; what does not fit is dropped.",
        magnitude: Magnitude::untimed(
            "a lost packet; with TCP a round trip or more until it is sent again",
            "Linux Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog",
        ),
        fix: Fix::for_good("double net.core.netdev_max_backlog"),
        cost: "Packets can wait longer in a longer backlog.",
        references: &["Linux Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog", "GitHub nawaz1991/lltune"],
    },
    Rule {
        id: "net.softnet-squeezed",
        cause: Cause::NetworkStack,
        title: "Network softirqs finished their work in time",
        applies: Applies::LINUX,
        judge: squeezed,
        why: "A softirq stops after netdev_budget packets or netdev_budget_usecs, even if packets remain. These wait \
         until ksoftirqd gets the CPU, or until the next round.",
        magnitude: Magnitude::late(
            Nanos::from_millis(1),
            "until ksoftirqd runs: a scheduling delay, up to milliseconds next to a busy thread",
            "Linux net/core/dev.c, net_rx_action; Documentation/admin-guide/sysctl/net.rst, netdev_budget; the figure is an estimate",
        ),
        fix: Fix::for_good(
            "double net.core.netdev_budget and net.core.netdev_budget_usecs; better: spread the queues over more CPUs",
        )
        .against(&["a longer budget keeps real-time threads of that CPU waiting"]),
        cost: "Other work on that CPU waits longer.",
        references: &["Linux Documentation/admin-guide/sysctl/net.rst, netdev_budget", "GitHub nawaz1991/lltune"],
    },
    Rule {
        id: "net.conntrack",
        cause: Cause::NetworkStack,
        title: "Connections are not tracked",
        applies: Applies::LINUX.to(&[Workload::Interrupt, Workload::Rt, Workload::KvmHost]),
        judge: tracking,
        why: "Connection tracking looks up each packet in a table with locks and creates an entry for each new flow. \
         When the table is full, packets are dropped.",
        magnitude: Magnitude::slower(
            "about 0.1 to 1 us per packet, and drops when the table is full",
            "Linux Documentation/networking/nf_conntrack-sysctl.rst names the table; the figure is an estimate",
        ),
        fix: Fix::both(
            "nft add table inet untracked\n\
             nft add chain inet untracked prerouting '{ type filter hook prerouting priority -300; }'\n\
             nft add chain inet untracked output '{ type filter hook output priority -300; }'\n\
             # exempt the application's flows alone, by their ports and in both directions, for example: nft add rule inet \
             untracked prerouting iifname {nic} udp dport 5000 notrack; nft add rule inet untracked output oifname {nic} udp \
             sport 5000 notrack. A rule for all packets of {nic} can lock you out: the firewall then no longer recognises \
             the replies of established connections such as those of ssh",
            "use only stateless rules, or no rules; blacklist nf_conntrack if nothing needs it",
        )
        .after("nft list ruleset # shows the rules that need connection tracking (ct, nat, masquerade)")
        .decided()
        .against(&["firewalls, containers and Kubernetes need it"]),
        cost: "Stateful rules, address translation and Kubernetes services no longer see the flows that are exempt.",
        references: &["Linux Documentation/networking/nf_conntrack-sysctl.rst", "Mellanox mlnx-tools, mlnx_tune"],
    },
    Rule {
        id: "net.irdma",
        cause: Cause::Rdma,
        title: "The card's RDMA driver is loaded only if it is used",
        applies: Applies::LINUX,
        judge: rdma,
        why: "irdma, the RDMA driver of Intel's NICs, is loaded together with the drivers ice and i40e. It allocates \
              an interrupt for RDMA completions on each CPU, including isolated CPUs.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "a few microseconds for each interrupt that fires; one host with 112 CPUs has 452 interrupts of irdma",
            "counted on a host in the test data of OpenShift cluster-node-tuning-operator; the microseconds are general knowledge",
        ),
        fix: Fix::runtime_or_boot(
            "rmmod irdma # only if rdma resource show lists no queue pair of an application",
            "module_blacklist=irdma",
        )
        .after("rdma resource show # queue pairs in use")
        .decided(),
        cost: "RDMA stops: applications and storage (NFS over RDMA, NVMe over Fabrics) that use it lose their connections.",
        references: &[
            "OpenShift vDU/RAN reference configuration",
            "Linux Documentation/admin-guide/kernel-parameters.txt, module_blacklist",
        ],
    },
];

/// Maximum number of CPUs that a finding names.
const NAMED: usize = 4;

/// Counts by CPU, and the length of the interval in which they were counted. `None` if they were counted since boot.
type ByCpu = (Vec<(u32, u64)>, Option<Nanos>);

/// One backlog counter of each CPU on which it is above 0, the largest first.
fn backlog(facts: &Facts, get: fn(&Softnet) -> u64) -> Result<ByCpu, Skip> {
    let interval = facts.interval.value().filter(|interval| interval.length > Nanos::ZERO);
    let table = interval.map_or(&facts.counters.softnet, |interval| &interval.change.softnet);
    let mut found: Vec<(u32, u64)> =
        known(table)?.iter().map(|(cpu, counts)| (*cpu, get(counts))).filter(|(_, n)| *n > 0).collect();
    found.sort_by_key(|(cpu, n)| (std::cmp::Reverse(*n), *cpu));
    Ok((found, interval.map(|interval| interval.length)))
}

fn named(judgement: Judgement, found: &[(u32, u64)], facts: &Facts) -> Judgement {
    let one = |judgement: Judgement, (cpu, n): &(u32, u64)| {
        judgement.see_as(format!("CPU {cpu}: {n}"), facts.counters.softnet.source())
    };
    found.iter().take(NAMED).fold(judgement, one)
}

/// A command that doubles the known values of some settings. A fixed number could be less than the present value.
/// `None` if no value is known.
fn twice(settings: &[(&str, &Fact<i64>)]) -> Option<String> {
    let double = |(name, fact): &(&str, &Fact<i64>)| {
        let now = fact.get().filter(|now| *now > 0)?;
        // The kernel stores them as int.
        Some(format!("{name}={}", now.saturating_mul(2).min(i64::from(i32::MAX))))
    };
    let words: Vec<String> = settings.iter().filter_map(double).collect();
    (!words.is_empty()).then(|| format!("sysctl -w {}", words.join(" ")))
}

fn dropped(facts: &Facts, _: &Context) -> Judged {
    let (found, during) = backlog(facts, |counts| counts.dropped)?;
    let (total, span) = (found.iter().map(|(_, n)| n).sum::<u64>(), span(during));
    let limit = facts.sysctl_number("net.core.netdev_max_backlog");
    let judgement = match total {
        0 => Judgement::pass(format!("no backlog overflowed {span}")).see_as("all 0", facts.counters.softnet.source()),
        n => {
            named(Judgement::warn(format!("{n} packets were dropped because a backlog was full {span}")), &found, facts)
        }
    }
    .see(&limit);
    match twice(&[("net.core.netdev_max_backlog", &limit)]) {
        Some(command) => judgement.now(command),
        None => judgement,
    }
    .alone()
}

fn squeezed(facts: &Facts, _: &Context) -> Judged {
    let (found, during) = backlog(facts, |counts| counts.squeezed)?;
    let (total, span) = (found.iter().map(|(_, n)| n).sum::<u64>(), span(during));
    let (packets, usecs) =
        (facts.sysctl_number("net.core.netdev_budget"), facts.sysctl_number("net.core.netdev_budget_usecs"));
    let judgement = match total {
        0 => Judgement::pass(format!("no softirq ran out of budget {span}"))
            .see_as("all 0", facts.counters.softnet.source()),
        n => named(
            Judgement::warn(format!("softirqs ran out of budget {n} times and left packets behind {span}")),
            &found,
            facts,
        ),
    }
    .see(&packets)
    .see(&usecs);
    match twice(&[("net.core.netdev_budget", &packets), ("net.core.netdev_budget_usecs", &usecs)]) {
        Some(command) => judgement.now(command),
        None => judgement,
    }
    .alone()
}

fn tracking(facts: &Facts, _: &Context) -> Judged {
    let loaded = |modules: &Vec<String>| modules.iter().any(|name| name == "nf_conntrack");
    // A kernel without modules has no list of modules. If connection tracking is built in, its counter exists without a
    // module.
    let module = settled(&facts.kernel.modules)?.is_some_and(loaded);
    let count = facts.sysctl_number("net.netfilter.nf_conntrack_count");
    let max = facts.sysctl_number("net.netfilter.nf_conntrack_max");
    let judgement = match (module || count.is_known(), count.get(), max.get()) {
        (false, ..) => Judgement::pass("the module nf_conntrack is not loaded"),
        (true, Some(0), _) => Judgement::pass("connection tracking is loaded but tracks nothing"),
        (true, Some(n), Some(max)) if n * 10 >= max * 9 => {
            Judgement::fail(format!("{n} of {max} connections: the table is nearly full"))
        }
        (true, Some(n), _) => Judgement::warn(format!("{n} connections are tracked")),
        (true, None, _) => Judgement::warn("connection tracking is loaded"),
    };
    let text = if module { "nf_conntrack" } else { "no nf_conntrack" };
    judgement.see_as(text, facts.kernel.modules.source()).see(&count).alone()
}

/// Whether an interrupt is for RDMA, according to the names that the driver uses: `irdma-...`, and in earlier versions
/// `CEQ` and `AEQCEQ` for completions (drivers/infiniband/hw/irdma/hw.c, irdma_cfg_ceq_vector).
fn is_rdma(irq: &&Irq) -> bool {
    let is_own = |action: &String| action.starts_with("irdma") || action == "CEQ" || action == "AEQCEQ";
    irq.actions.is(|actions| actions.iter().any(is_own)) == Some(true)
}

fn rdma(facts: &Facts, context: &Context) -> Judged {
    let list = known(&facts.irqs.list)?;
    let vectors: Vec<&Irq> = list.iter().filter(is_rdma).collect();
    let loaded = facts.kernel.modules.is(|modules| modules.iter().any(|name| name == "irdma")) == Some(true);
    if vectors.is_empty() && !loaded {
        let used: Vec<&Irq> = list.iter().filter(|irq| irq.actions.is_known()).collect();
        let Some(first) = used.first() else {
            return Err(Skip::unknown("the users of the interrupts are not known"));
        };
        let n = used.len();
        return Judgement::pass(format!("none of {n} interrupts belongs to irdma"))
            .see_as(format!("{n} interrupts with a known user, none of them irdma"), first.actions.source())
            .alone();
    }
    let table = facts.counters.interrupts.value();
    let came: u64 = vectors.iter().filter_map(|irq| table?.row(&irq.number.to_string())).map(|row| row.total()).sum();
    let isolated = &context.isolated.value;
    let stray = vectors
        .iter()
        .filter(|irq| {
            irq.effective
                .value()
                .or(irq.affinity.value())
                .is_some_and(|cpus| cpus.iter().any(|cpu| isolated.contains(cpu)))
        })
        .count();
    let astray = if isolated.is_empty() { String::new() } else { format!(", {stray} of them on isolated CPUs") };
    let found = format!(
        "the RDMA driver irdma has {} interrupts{astray}; they have fired {came} times since boot",
        vectors.len()
    );
    Judgement::warn(found)
        .see_as(format!("{} interrupts of irdma", vectors.len()), facts.irqs.list.source())
        .see_as(format!("fired since boot: {came} times in total"), facts.counters.interrupts.source())
        .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::Workload;
    use crate::testing::{Case, Host, host};

    /// `/proc/net/softnet_stat` of two CPUs: packets, dropped, squeezed.
    fn softnet(dropped: u32, squeezed: u32) -> Host {
        let line = |cpu, d, s| format!("000000ff {d:08x} {s:08x} 0 0 0 0 0 0 0 0 0 {cpu:08x}\n");
        host().file("/proc/net/softnet_stat", &(line(0, 0, 0) + &line(1, dropped, squeezed)))
    }

    fn modules(text: &str) -> Host {
        host().workload(Workload::Interrupt).file("/proc/modules", text)
    }

    fn tracked(count: &str) -> Host {
        modules("nf_conntrack 172032 1 - Live 0x0\n")
            .file("/proc/sys/net/netfilter/nf_conntrack_count", count)
            .file("/proc/sys/net/netfilter/nf_conntrack_max", "1000\n")
    }

    fn irq(user: &str) -> Host {
        host().isolated("2-7").file("/proc/irq/55/effective_affinity_list", "3\n").file(
            "/proc/interrupts",
            &format!("           CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n 55: 7 0 0 2 0 0 0 0 PCI-MSIX-0000:04:00.0 3-edge {user}\n"),
        )
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("net.softnet-drops", || softnet(0, 0)),
        Case::warn("net.softnet-drops", || softnet(3, 0)),
        Case::unknown("net.softnet-drops", host),
        Case::pass("net.softnet-squeezed", || softnet(0, 0)),
        Case::warn("net.softnet-squeezed", || softnet(0, 9)),
        Case::unknown("net.softnet-squeezed", host),
        Case::pass("net.conntrack", || modules("xfs 1 0 - Live 0x0\n")),
        Case::pass("net.conntrack", || host().workload(Workload::Interrupt).complete()),
        Case::pass("net.conntrack", || tracked("0\n")),
        Case::warn("net.conntrack", || tracked("17\n")),
        Case::fail("net.conntrack", || tracked("990\n")),
        Case::unknown("net.conntrack", || host().workload(Workload::Interrupt)),
        Case::pass("net.irdma", || irq("ice-eth0-TxRx-3")),
        Case::warn("net.irdma", || irq("irdma-ceq-3")),
        Case::warn("net.irdma", || irq("CEQ")),
        Case::unknown("net.irdma", host),
    ];

    /// Without a table the rule fails, and for all packets it cuts off SSH behind a stateful firewall.
    #[test]
    fn only_the_applications_flows_are_not_tracked_and_people_decide() {
        let intent = crate::Intent {
            nics: Some(vec!["eth0".into()]),
            workloads: Some(vec![Workload::Interrupt]),
            ..crate::Intent::default()
        };
        let report = crate::audit(&tracked("17\n").facts(), &intent);
        let finding = report.findings.iter().find(|finding| finding.rule.id == "net.conntrack").unwrap();
        let steps: Vec<String> = finding.fix.runtime.iter().map(ToString::to_string).collect();
        assert!(finding.rule.fix.decision && finding.fix.settings().next().is_none());
        assert_eq!(steps[0], "nft add table inet untracked");
        assert!(steps[1].ends_with("'{ type filter hook prerouting priority -300; }'"), "{steps:?}");
        let rules = steps.iter().filter(|step| step.contains("notrack"));
        assert!(rules.clone().all(|step| step.contains("dport") && step.contains("can lock you out")), "{steps:?}");
        assert_eq!(rules.count(), 1);
    }

    /// telco-worker1: 12 of 554 interrupts have no row, and so no user that would be known.
    #[test]
    fn interrupts_without_a_known_user_prove_nothing() {
        let host = irq("ice-eth0-TxRx-3").file("/proc/irq/7/smp_affinity_list", "0-7");
        let judgement = host.judge("net.irdma").remove(0);
        assert_eq!(judgement.found, "none of 1 interrupts belongs to irdma");
        assert_eq!(judgement.evidence[0].source, "/proc/interrupts");
    }

    #[test]
    fn a_budget_grows_from_what_it_is() {
        let of = |usecs: &str| {
            let host = softnet(0, 9).file("/proc/sys/net/core/netdev_budget", "300\n");
            host.file("/proc/sys/net/core/netdev_budget_usecs", usecs).judge("net.softnet-squeezed")[0].now.clone()
        };
        assert_eq!(of("8000\n"), ["sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=16000"]);
        assert_eq!(of("2000\n"), ["sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=4000"]);
        let backlog = softnet(3, 0).file("/proc/sys/net/core/netdev_max_backlog", "8000\n");
        assert_eq!(backlog.judge("net.softnet-drops")[0].now, ["sysctl -w net.core.netdev_max_backlog=16000"]);
        assert_eq!(softnet(3, 0).judge("net.softnet-drops")[0].now, [""; 0]);
    }

    #[test]
    fn the_cpus_and_their_counts_are_named() {
        let judgements = softnet(3, 0).judge("net.softnet-drops");
        assert_eq!(judgements[0].found, "3 packets were dropped because a backlog was full since boot");
        assert_eq!(judgements[0].evidence[0].value, "CPU 1: 3");
        let judgements = irq("irdma-ceq-3").judge("net.irdma");
        assert_eq!(
            judgements[0].found,
            "the RDMA driver irdma has 1 interrupts, 1 of them on isolated CPUs; they have fired 9 times since boot"
        );
    }
}
