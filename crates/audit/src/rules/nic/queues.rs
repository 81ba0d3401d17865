//! Rules on the queues of an interface: their number and length, the distribution of flows among them, and the CPUs
//! that serve them.

use std::collections::{BTreeMap, BTreeSet};

use host::Facts;
use host::facts::{CpuSet, Link, TxQueue};
use units::Nanos;

use crate::rules::interfaces::{by_link, offered, shortest_ring};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known};

const I40E: &str = "Linux Documentation/networking/device_drivers/ethernet/intel/i40e.rst";
const SCALING: &str = "Linux Documentation/networking/scaling.rst";
const THREAD: &str = "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015)";

/// The cost of an inter-processor interrupt, including the time that the target CPU takes to leave an idle state.
const IPI: Magnitude = Magnitude::late(
    Nanos::from_micros(3),
    "one to a few microseconds for the interrupt to the other CPU, and that CPU's exit from idle",
    "Linux Documentation/networking/scaling.rst names the interrupt; the figure is general knowledge",
);

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "nic.queues",
        cause: Cause::Queues,
        title: "The card has no more queues than there are housekeeping CPUs",
        applies: Applies::LINUX.isolated().with_nic(),
        judge: count,
        why: "Drivers create one queue per CPU, each with its own interrupt. With more queues than housekeeping CPUs, \
         isolated CPUs serve some of them, or one CPU serves several.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "a few microseconds per interrupt on an isolated CPU",
            "Intel P-state guide (637284-001US, 2021), appendix A; the microseconds are general knowledge",
        ),
        fix: Fix::runtime("ethtool -L {nic} combined 4"),
        cost: "Fewer CPUs share the load of the kernel's traffic.",
        references: &[
            THREAD,
            "Intel Ethernet 700 Series Linux performance tuning guide (334019)",
            "OpenShift cluster-node-tuning-operator, userLevelNetworking",
        ],
    },
    Rule {
        id: "nic.ring",
        cause: Cause::Rings,
        title: "The receive ring is neither too short nor too long",
        applies: Applies::LINUX.with_nic(),
        judge: ring,
        why: "A ring that fills while its CPU is away drops the rest. A ring of many thousands of slots never stays in \
              the cache: each frame then comes from memory, and a full ring is a long queue.",
        magnitude: Magnitude::untimed(
            "256 slots of the shortest frames last 4.3 us at 40 Gbit/s, 4096 last 27.5 us at 100 Gbit/s",
            "arithmetic: slots x 84 bytes / rate; DPDK guide for hns3 asks for 1024 to 2048, the FreeBSD \
                     thread for 256",
        ),
        fix: Fix::runtime("ethtool -G {nic} rx 1024").against(&["256: the FreeBSD thread; 1024 to 2048: DPDK's guide for hns3"]),
        cost: "The interface is briefly reset. A shorter ring drops frames sooner; a longer one adds queueing delay.",
        references: &[THREAD, "DPDK guide, nics/hns3", "ethtool(8), -G"],
    },
    Rule {
        id: "nic.rss",
        cause: Cause::Queues,
        title: "Flows are spread over queues that housekeeping CPUs serve",
        applies: Applies::LINUX.with_nic(),
        judge: spread,
        why: "The indirection table assigns flows to queues. A queue whose interrupt goes to an isolated CPU brings its \
         share of all flows there. If the table contains only one queue, the other CPUs have no work.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "a few microseconds per interrupt on an isolated CPU",
            "Intel P-state guide (637284-001US, 2021), appendix A; the microseconds are general knowledge",
        ),
        fix: Fix::both(
            "# ethtool -X {nic} weight, with 1 for each queue whose interrupt goes to housekeeping CPUs and 0 for each other",
            "set the same in a udev rule",
        ),
        cost: "Fewer CPUs share the load.",
        references: &[SCALING, I40E, "ethtool(8), -X"],
    },
    Rule {
        id: "nic.steering",
        cause: Cause::Queues,
        title: "The card does not move flows between queues by itself",
        applies: Applies::LINUX.with_nic().driven_by(&["i40e", "ixgbe"]),
        judge: steering,
        why: "Application targeted routing (ATR) learns from sent packets which queue a flow belongs to. When a thread \
         moves to another CPU, packets of its flow are on two queues for a while and arrive out of order.",
        magnitude: Magnitude::untimed(
            "a retransmission if TCP takes reordering for loss: a round trip or more",
            "FreeBSD thread on accelerations with bad effects; general knowledge of ATR",
        ),
        fix: Fix::runtime("ethtool --set-priv-flags {nic} flow-director-atr off").against(&[
            "Linux Documentation/networking/scaling.rst, accelerated RFS: steering to the application saves cache misses",
        ]),
        cost: "Flows are served where RSS puts them, not where their application runs.",
        references: &[I40E, THREAD, "Linux commit ef17178cf5ab (i40e: use priv flags to control flow director)"],
    },
    Rule {
        id: "nic.rps",
        cause: Cause::Queues,
        title: "Receive packet steering is off, or stays on housekeeping CPUs",
        applies: Applies::LINUX.with_nic(),
        judge: steered,
        why: "RPS passes each packet to another CPU by an inter-processor interrupt. If isolated CPUs are in the mask, \
              they receive packets too.",
        magnitude: IPI,
        fix: Fix::both(
            "for q in /sys/class/net/{nic}/queues/rx-*; do echo 0 > $q/rps_cpus; done",
            "sysctl: net.core.rps_default_mask = 0 (from Linux 6.3 on)",
        ).against(&["OpenShift's performance profile sets RPS masks of housekeeping CPUs for virtual interfaces"]),
        cost: "One CPU does all the work of a queue.",
        references: &[SCALING, "OpenShift cluster-node-tuning-operator", "Mellanox mlnx-tools, mlnx_tune"],
    },
    Rule {
        id: "nic.xps",
        cause: Cause::Queues,
        title: "Each CPU has its own transmit queue",
        applies: Applies::LINUX.with_nic(),
        judge: transmit,
        why: "Without a map from CPUs to transmit queues, a hash selects a packet's queue. CPUs then contend for the \
         queues' locks, and completions arrive on another CPU.",
        magnitude: Magnitude::late(
            Nanos::from_micros(1),
            "about 0.1 to 1 us when two CPUs use the same queue",
            "Linux Documentation/networking/scaling.rst, XPS, names the contention; the figure is general knowledge",
        ),
        fix: Fix::runtime("# give each CPU a transmit queue, in the files xps_cpus below /sys/class/net/{nic}/queues").against(&[
            "Linux Documentation/networking/device_drivers/ethernet/intel/i40e.rst: XPS off for virtual machines",
        ]),
        cost: "None known if there are as many queues as CPUs.",
        references: &[SCALING, "Mellanox mlnx-tools, mlnx_tune"],
    },
];

/// The shortest recommended ring (FreeBSD thread), and the longest ring that still fits in the cache, in slots. DPDK's
/// guides recommend up to 2048; twice as many are allowed here.
const SHORTEST: u32 = 256;
const LONGEST: u32 = 4096;

/// Number of receive queues.
fn receives(link: &Link) -> Result<u32, Skip> {
    let said = offered(&link.channels)?;
    let sum = said.combined.unwrap_or(0).saturating_add(said.rx.unwrap_or(0));
    if sum == 0 { Err(Skip::not_applicable("the driver does not say how many queues it has")) } else { Ok(sum) }
}

fn count(facts: &Facts, context: &Context) -> Judged {
    let housekeeping = context.housekeeping(facts);
    by_link(facts, context, |link| {
        let queues = receives(link)?;
        let cpus = housekeeping.len();
        if cpus == 0 {
            return Err(Skip::unknown("no housekeeping CPU is known"));
        }
        let found = format!("{queues} receive queues for {cpus} housekeeping CPUs");
        let judgement = match queues as usize <= cpus {
            true => Judgement::pass(found),
            false => Judgement::warn(found).now(format!("ethtool -L {} combined {cpus}", link.name)),
        };
        Ok(judgement.see_as(format!("{queues} queues"), link.channels.source()))
    })
}

fn ring(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let said = offered(&link.rings)?;
        let Some(slots) = said.rx else {
            return Err(Skip::not_applicable("the driver does not say how many slots it has"));
        };
        let lasts = link.speed.get().map_or(String::new(), |speed| {
            format!(", which the shortest frames fill in {}", shortest_ring(slots, speed))
        });
        let found = format!("{slots} slots{lasts}");
        let judgement = if slots < SHORTEST {
            Judgement::warn(format!("a short ring: {found}"))
        } else if slots > LONGEST {
            Judgement::warn(format!("a long ring: {found}"))
        } else {
            Judgement::pass(found)
        };
        let most = said.rx_max.map_or_else(|| "n/a".into(), |most| most.to_string());
        Ok(judgement.see_as(format!("rx {slots} of {most}"), link.rings.source()).see(&speed_of(link)))
    })
}

/// The speed of the link as text, for evidence.
fn speed_of(link: &Link) -> host::Fact<String> {
    link.speed.clone().map(|speed| crate::rules::interfaces::gigabits(speed.as_bps()))
}

fn spread(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let table = offered(&link.rss_table)?;
        let mut used: Vec<u32> = table.clone();
        used.sort_unstable();
        used.dedup();
        let queues = link.channels.get().map_or(0, |all| all.combined.unwrap_or(0).saturating_add(all.rx.unwrap_or(0)));
        let strayed: Vec<String> = used
            .iter()
            .filter_map(|queue| {
                let cpus = served_by(facts, link, *queue)?.intersection(&context.isolated.value);
                (!cpus.is_empty()).then(|| format!("queue {queue} on CPU {cpus}"))
            })
            .collect();
        let spread = || {
            let command = Receive::of(facts, context, link).and_then(|queues| queues.spread(&link.name));
            command.unwrap_or_else(|| MOVE_FIRST.to_owned())
        };
        let judgement = if !strayed.is_empty() {
            let found = format!("{} of {} queues in the table are served by isolated CPUs", strayed.len(), used.len());
            Judgement::warn(found).now(spread()).see_as(
                strayed.into_iter().take(8).collect::<Vec<_>>().join(", "),
                "/proc/irq/*/effective_affinity_list",
            )
        } else if used.len() == 1 && queues > 1 {
            Judgement::warn(format!("all flows go to queue {} of {queues}", used[0]))
                .now(spread())
                .costs("More CPUs share the load.")
        } else {
            Judgement::pass(format!("flows spread over {} queues", used.len()))
        };
        Ok(judgement.see_as(format!("{} entries, {} queues", table.len(), used.len()), link.rss_table.source()))
    })
}

/// What to do first if no other queue of the interface is known to be served by a housekeeping CPU.
const MOVE_FIRST: &str = "# first send the interrupts of its queues to housekeeping CPUs (smp_affinity_list, irq.on-iso): no other \
     queue is known to be served there";

/// The CPUs to which the interrupt of a receive queue is directed. `None` if they are not known.
fn served_by<'a>(facts: &'a Facts, link: &Link, queue: u32) -> Option<&'a CpuSet> {
    let irq = facts.irqs.irq(link.queue_irqs.iter().find(|irq| irq.queue == queue && irq.rx)?.irq)?;
    irq.effective.value().or(irq.affinity.value())
}

/// The receive queues of an interface.
struct Receive {
    /// Number of receive queues, used or not.
    all: u32,
    /// Those that no isolated CPU serves.
    good: BTreeSet<u32>,
    /// Those in the indirection table.
    used: BTreeSet<u32>,
}

impl Receive {
    /// `None` if the number of queues or the indirection table is not known.
    fn of(facts: &Facts, context: &Context, link: &Link) -> Option<Self> {
        let all = receives(link).ok().filter(|queues| *queues <= MOST_QUEUES)?;
        let used = link.rss_table.value()?.iter().copied().collect();
        let isolated = &context.isolated.value;
        let is_good = |queue: u32| {
            isolated.is_empty() || served_by(facts, link, queue).is_some_and(|cpus| !cpus.intersects(isolated))
        };
        Some(Self { all, good: (0..all).filter(|queue| is_good(*queue)).collect(), used })
    }

    /// The command that spreads the flows over all good queues. `None` if there are none, or if the table consists
    /// of them already.
    fn spread(&self, name: &str) -> Option<String> {
        let last = self.good.last().filter(|_| self.good != self.used)?;
        if self.good.len() == self.all as usize {
            return Some(format!("ethtool -X {name} equal {}", self.all));
        }
        // The queues after the last one need no weight.
        let weights: Vec<&str> = (0..=*last).map(|queue| if self.good.contains(&queue) { "1" } else { "0" }).collect();
        Some(format!("ethtool -X {name} weight {}", weights.join(" ")))
    }
}

/// The command that spreads the flows of an interface over all receive queues that no isolated CPU serves. `None` if
/// none of them is idle, or if the queues or the indirection table are not known.
pub(in crate::rules) fn wider(facts: &Facts, context: &Context, link: &Link) -> Option<String> {
    let queues = Receive::of(facts, context, link)?;
    queues.spread(&link.name).filter(|_| !queues.good.is_subset(&queues.used))
}

/// Maximum number of queues for which a command is written. It is more than any card has.
const MOST_QUEUES: u32 = 4096;

fn steering(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let driver = known(&link.driver)?.as_str();
        let ntuple = link.feature("rx-ntuple-filter");
        let on = match driver {
            // If the user has set rules of their own, the card has no room for rules that it learns itself.
            "ixgbe" => !ntuple.ok_or_else(|| Skip::of(&link.features))?,
            "i40e" => match offered(&link.private_flags)?.get("flow-director-atr") {
                Some(on) => *on,
                None => return Err(Skip::not_applicable("the driver has no flag for it")),
            },
            _ => return Err(Skip::not_applicable("for i40e and ixgbe")),
        };
        let judgement = match on {
            true => Judgement::warn("the card learns from which CPU flows are sent, and moves them there"),
            false => Judgement::pass("flows stay where RSS and rules put them"),
        };
        let source = if driver == "i40e" { link.private_flags.source() } else { link.features.source() };
        let rules = link.flow_rules.get().map_or_else(String::new, |n| format!(", {n} rules"));
        Ok(judgement.see_as(format!("learning {}{rules}", if on { "on" } else { "off" }), source))
    })
}

fn steered(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let Some(first) = link.rx_queues.first() else {
            return Err(Skip::unknown(format!("/sys/class/net/{}/queues: not known", link.name)));
        };
        known(&first.rps_cpus)?;
        let mut cpus = CpuSet::new();
        link.rx_queues.iter().filter_map(|queue| queue.rps_cpus.value()).for_each(|mask| cpus = cpus.union(mask));
        let stray = cpus.intersection(&context.isolated.value);
        let judgement = if !stray.is_empty() {
            Judgement::fail(format!("packets are passed to isolated CPUs {stray}"))
        } else if !cpus.is_empty() {
            Judgement::warn(format!("packets are passed to CPUs {cpus}"))
        } else {
            Judgement::pass("packets stay on the CPU of their interrupt")
        };
        let text = if cpus.is_empty() { "0".to_owned() } else { cpus.to_string() };
        Ok(judgement.see_as(format!("{text} of {} queues", link.rx_queues.len()), first.rps_cpus.source()))
    })
}

fn transmit(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let queues = &link.tx_queues;
        match queues.len() {
            0 => return Err(Skip::unknown(format!("/sys/class/net/{}/queues: not known", link.name))),
            1 => return Err(Skip::not_applicable("it has one transmit queue")),
            _ => {}
        }
        known(&queues[0].xps_cpus)?;
        let masks = queues.iter().filter_map(|queue| queue.xps_cpus.value());
        let mut mapped = CpuSet::new();
        masks.for_each(|mask| mapped = mapped.union(mask));
        let left = facts.cpus.all().difference(&mapped);
        let judgement = if mapped.is_empty() {
            Judgement::warn(format!("no CPU has a queue of its own among {}", queues.len())).now(mapping(link, &left))
        } else if !left.is_empty() {
            Judgement::warn(format!("CPUs {left} have no queue of their own")).now(mapping(link, &left))
        } else {
            Judgement::pass("each CPU has its own queue")
        };
        Ok(judgement.see_as(format!("{} queues for CPUs {mapped}", queues.len()), queues[0].xps_cpus.source()))
    })
}

/// The command that gives the CPUs in `left` a transmit queue each: one after the other, the first of those queues that
/// have the fewest CPUs. The other CPUs keep their queues.
fn mapping(link: &Link, left: &CpuSet) -> String {
    let mask = |queue: &TxQueue| Some((queue.index, queue.xps_cpus.value()?.clone()));
    let mut masks: Vec<(u32, CpuSet)> = link.tx_queues.iter().filter_map(mask).collect();
    let mut changed = BTreeMap::new();
    for cpu in left.iter() {
        if let Some((queue, cpus)) = masks.iter_mut().min_by_key(|(_, cpus)| cpus.len()) {
            cpus.insert(cpu);
            changed.insert(*queue, cpus.to_mask());
        }
    }
    let pairs: Vec<String> = changed.iter().map(|(queue, mask)| format!("{queue}:{mask}")).collect();
    format!(
        "for m in {}; do echo ${{m#*:}} > /sys/class/net/{}/queues/tx-${{m%%:*}}/xps_cpus; done # queue and mask of its CPUs",
        pairs.join(" "),
        link.name
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::QueueIrq;

    use crate::testing::{Case, Host, host};

    fn bare() -> Host {
        host().nic("eth0").file("/sys/class/net/eth0/mtu", "1500\n")
    }

    fn channels(combined: u32) -> Host {
        let text = |n| format!("RX: n/a\nTX: n/a\nOther: 1\nCombined: {n}\n");
        bare().command(
            "ethtool -l eth0",
            &format!("Pre-set maximums:\n{}Current hardware settings:\n{}", text(64), text(combined)),
        )
    }

    fn ring(slots: u32) -> Host {
        bare().file("/sys/class/net/eth0/speed", "40000\n").command(
            "ethtool -g eth0",
            &format!("Pre-set maximums:\nRX: 8160\nTX: 8160\nCurrent hardware settings:\nRX: {slots}\nTX: 512\n"),
        )
    }

    fn table(row: &str) -> Host {
        channels(2).command(
            "ethtool -x eth0",
            &format!("RX flow hash indirection table for eth0 with 2 RX ring(s):\n    0:  {row}\n"),
        )
    }

    /// Queue 1's interrupt goes to this CPU.
    fn served(cpu: &str) -> Host {
        table("0 1").isolated("2-7").file("/proc/irq/56/effective_affinity_list", cpu).edit(|facts| {
            if let Fact::Known { value, .. } = &mut facts.links {
                value[0].queue_irqs = vec![QueueIrq { queue: 1, rx: true, tx: true, irq: 56 }];
            }
        })
    }

    fn driver(name: &str) -> Host {
        bare().command("ethtool -i eth0", &format!("driver: {name}\n"))
    }

    fn rps(mask: &str) -> Host {
        bare().file("/sys/class/net/eth0/queues/rx-0/rps_cpus", mask)
    }

    fn xps(first: &str, second: &str) -> Host {
        bare()
            .file("/sys/class/net/eth0/queues/tx-0/xps_cpus", first)
            .file("/sys/class/net/eth0/queues/tx-1/xps_cpus", second)
    }

    /// Four queues, each with an interrupt at this CPU; CPUs 2 to 7 are isolated.
    fn queues(row: &str, cpus: [&str; 4]) -> Host {
        let host = channels(4).isolated("2-7").command(
            "ethtool -x eth0",
            &format!("RX flow hash indirection table for eth0 with 4 RX ring(s):\n    0:  {row}\n"),
        );
        let host = (56..)
            .zip(cpus)
            .fold(host, |host, (irq, cpu)| host.file(&format!("/proc/irq/{irq}/effective_affinity_list"), cpu));
        host.edit(|facts| {
            if let Fact::Known { value, .. } = &mut facts.links {
                let irq = |queue| QueueIrq { queue, rx: true, tx: true, irq: 56 + queue };
                value[0].queue_irqs = (0..4).map(irq).collect();
            }
        })
    }

    /// The first queues are not those of the housekeeping CPUs, and a card may have fewer or more than four.
    #[test]
    fn flows_go_to_the_queues_that_housekeeping_cpus_serve() {
        let now = |host: Host| host.judge("nic.rss").remove(0).now.remove(0);
        assert_eq!(now(queues("0 1 2 3", ["3", "0", "5", "1"])), "ethtool -X eth0 weight 0 1 0 1");
        assert_eq!(now(queues("0 1 2 3", ["0", "1", "2", "3"])), "ethtool -X eth0 weight 1 1");
        assert_eq!(now(queues("0 0 0 0", ["0", "1", "0", "1"])), "ethtool -X eth0 equal 4");
        let nowhere = now(queues("0 1 2 3", ["2", "3", "4", "5"]));
        assert!(nowhere.starts_with("# first send the interrupts"), "{nowhere}");
        assert_eq!(now(table("0 0 0 0")), "ethtool -X eth0 equal 2");
    }

    #[test]
    fn each_cpu_gets_one_of_the_queues_that_there_are() {
        let pairs = |host: Host| {
            let now = host.judge("nic.xps").remove(0).now.remove(0);
            let loop_over = now
                .strip_prefix("for m in ")
                .unwrap()
                .split_once("; do echo ${m#*:} > /sys/class/net/eth0/queues/tx-${m%%:*}/xps_cpus");
            loop_over.unwrap().0.to_owned()
        };
        // CPUs 0 to 7 on two queues, of which none or one has CPUs of its own.
        assert_eq!(pairs(xps("00\n", "00\n")), "0:55 1:aa");
        assert_eq!(pairs(xps("0f\n", "00\n")), "1:f0");
        let one_each = (2..8).fold(xps("00\n", "00\n"), |host, n| {
            host.file(&format!("/sys/class/net/eth0/queues/tx-{n}/xps_cpus"), "00\n")
        });
        assert_eq!(pairs(one_each), "0:1 1:2 2:4 3:8 4:10 5:20 6:40 7:80");
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("nic.queues", || channels(2).isolated("2-7")),
        Case::warn("nic.queues", || channels(8).isolated("2-7")),
        Case::unknown("nic.queues", || bare().isolated("2-7")),
        Case::not_applicable("nic.queues", || channels(8)),
        Case::pass("nic.ring", || ring(1024)),
        Case::warn("nic.ring", || ring(64)),
        Case::warn("nic.ring", || ring(8160)),
        Case::unknown("nic.ring", bare),
        Case::pass("nic.rss", || table("0 1 0 1")),
        Case::warn("nic.rss", || table("0 0 0 0")),
        Case::warn("nic.rss", || served("3")),
        Case::pass("nic.rss", || served("1")),
        Case::unknown("nic.rss", bare),
        Case::pass("nic.steering", || {
            driver("i40e")
                .command("ethtool --show-priv-flags eth0", "Private flags for eth0:\nflow-director-atr: off\n")
        }),
        Case::warn("nic.steering", || {
            driver("i40e").command("ethtool --show-priv-flags eth0", "Private flags for eth0:\nflow-director-atr: on\n")
        }),
        Case::warn("nic.steering", || {
            driver("ixgbe").command("ethtool -k eth0", "Features for eth0:\nntuple-filters: off\n")
        }),
        Case::pass("nic.steering", || {
            driver("ixgbe").command("ethtool -k eth0", "Features for eth0:\nntuple-filters: on\n")
        }),
        Case::unknown("nic.steering", || driver("i40e")),
        Case::unknown("nic.steering", || driver("ixgbe")),
        Case::pass("nic.rps", || rps("00\n")),
        Case::warn("nic.rps", || rps("03\n")),
        Case::fail("nic.rps", || rps("ff\n").isolated("2-7")),
        Case::unknown("nic.rps", bare),
        Case::pass("nic.xps", || xps("0f\n", "f0\n")),
        Case::warn("nic.xps", || xps("00\n", "00\n")),
        Case::warn("nic.xps", || xps("01\n", "02\n")),
        Case::unknown("nic.xps", bare),
    ];
}
