//! Rules on interrupt moderation: how long the card delays an interrupt.

use host::Facts;
use host::facts::{Coalescing, Link};
use units::Nanos;

use crate::rules::interfaces::{by_link, offered};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known};

const I40E: &str = "Linux Documentation/networking/device_drivers/ethernet/intel/i40e.rst";
const GUIDE: &str = "Intel Ethernet 700 Series Linux performance tuning guide (334019)";
const DIM: &str = "Linux Documentation/networking/net_dim.rst";
const ETHTOOL: &str = "ethtool(8), -C";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "nic.adaptive",
        cause: Cause::Moderation,
        title: "Moderation does not follow the load",
        applies: Applies::LINUX.with_nic(),
        judge: adaptive,
        why: "Adaptive moderation lengthens the interval between interrupts as traffic grows, and favours throughput. It \
         reacts to past traffic, so after a change of load packets still wait according to the old setting.",
        magnitude: Magnitude::late(
            Nanos::from_micros(64),
            "4 % fewer transactions a second (TCP_RR: 19,513 instead of 20,360); up to 256 us per interrupt at the \
                   highest level of the kernel's table",
            "DIM slides (Gospodarek), TCP_RR; Linux lib/dim/net_dim.c, NET_DIM_RX_EQE_PROFILES (64 us is its middle level)",
        ),
        fix: Fix::runtime("ethtool -C {nic} adaptive-rx off adaptive-tx off").against(&[
            "Linux Documentation/networking/net_dim.rst: adaptive moderation saves interrupts at high rates",
        ]),
        cost: "There are more interrupts at high rates, so more CPU time is used.",
        references: &[DIM, I40E, GUIDE],
    },
    Rule {
        id: "nic.rx-usecs",
        cause: Cause::Moderation,
        title: "The card delays receive interrupts no longer than the budget",
        applies: Applies::LINUX.with_nic(),
        judge: receive,
        why: "The first packet after a pause waits up to rx-usecs for its interrupt, unless rx-frames packets arrive \
         before. The defaults favour throughput.",
        magnitude: Magnitude::late(
            Nanos::from_micros(50),
            "up to rx-usecs per packet: 50 us by default with i40e",
            "Linux Documentation/networking/device_drivers/ethernet/intel/i40e.rst, Interrupt Rate Limiting; the default is from drivers/net/ethernet/intel/i40e",
        ),
        fix: Fix::runtime("ethtool -C {nic} adaptive-rx off rx-usecs 0"),
        cost: "At low rates, each packet causes an interrupt; at high rates NAPI handles several packets per \
               interrupt.",
        references: &[
            I40E,
            GUIDE,
            "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015)",
            ETHTOOL,
        ],
    },
    Rule {
        id: "nic.rx-usecs-semantics",
        cause: Cause::Moderation,
        title: "rx-usecs is a time, not the name of a mode",
        applies: Applies::LINUX.with_nic().driven_by(&["e1000e", "igb", "igbvf", "igc", "ixgbe", "ixgbevf"]),
        judge: semantics,
        why: "With Intel's 1G and 10G drivers some small values are not microseconds. They select moderation that \
         follows the load, while adaptive-rx is shown as off. These values are 1 and 3 with e1000e, igb and igc \
         (also 4 with e1000e), 2 and 3 with igbvf, 1 with ixgbe and ixgbevf.",
        magnitude: Magnitude::late(
            Nanos::from_micros(50),
            "depending on the load, 20,000 to 4,000 interrupts a second with the value 3, and 70,000 to 4,000 with the value 1 of igb: 14 to 250 us apart",
            "Linux Documentation/networking/device_drivers/ethernet/intel/e1000e.rst, InterruptThrottleRate (20,000 to 4,000); Linux drivers/net/ethernet/intel/igb/igb_main.c, igb_set_itr, with IGB_70K_ITR of igb.h; the typical value is 20,000 a second",
        ),
        fix: Fix::runtime("ethtool -C {nic} rx-usecs 0"),
        cost: "There are more interrupts.",
        references: &[
            "Linux Documentation/networking/device_drivers/ethernet/intel/e1000e.rst, InterruptThrottleRate",
            "Linux drivers/net/ethernet/intel/ixgbe/ixgbe_ethtool.c, ixgbe_set_coalesce, and the same of the other drivers",
            "GitHub scylladb/scylladb#1974",
        ],
    },
    Rule {
        id: "nic.rx-usecs-high",
        cause: Cause::Moderation,
        title: "No interrupt rate limit overrides rx-usecs",
        applies: Applies::LINUX.with_nic().driven_by(&["i40e", "iavf", "ice"]),
        judge: limit,
        why: "rx-usecs-high limits how often an interrupt vector of these cards fires, whatever rx-usecs says: 20 us \
         mean 50,000 interrupts per second for receiving and sending together.",
        magnitude: Magnitude::late(
            Nanos::from_micros(20),
            "up to rx-usecs-high per packet",
            "Linux Documentation/networking/device_drivers/ethernet/intel/i40e.rst, Interrupt Rate Limiting",
        ),
        fix: Fix::runtime("ethtool -C {nic} rx-usecs-high 0"),
        cost: "There are more interrupts.",
        references: &[I40E],
    },
    Rule {
        id: "nic.dim-profile",
        cause: Cause::Moderation,
        title: "The levels of adaptive moderation fit the budget",
        applies: Applies::LINUX.with_nic(),
        judge: profile,
        why: "Dynamic interrupt moderation chooses from a table of levels. From Linux 6.11 on this table can be \
              changed, so that adaptive moderation stays on and its longest interval is still within the budget.",
        magnitude: Magnitude::late(
            Nanos::from_micros(256),
            "1, 8, 64, 128, 256 us in the kernel's own table",
            "Linux lib/dim/net_dim.c, NET_DIM_RX_EQE_PROFILES",
        ),
        fix: Fix::runtime("ethtool -C {nic} rx-profile 1,256,n_2,256,n_4,256,n_8,256,n_8,256,n"),
        cost: "There are more interrupts at high rates.",
        references: &[DIM],
    },
    Rule {
        id: "nic.queue-coalesce",
        cause: Cause::Moderation,
        title: "All queues use the interface's moderation",
        applies: Applies::LINUX.with_nic(),
        judge: by_queue,
        why: "Moderation can be set by queue. A queue with another interval serves its flows later than the others, \
              and ethtool -c shows only the first queue.",
        magnitude: Magnitude::late(
            Nanos::from_micros(50),
            "the difference of the intervals, for the flows of that queue",
            "ethtool(8), --per-queue; the typical value is i40e's default interval",
        ),
        fix: Fix::runtime("ethtool --per-queue {nic} queue_mask 0xffff --coalesce rx-usecs 0"),
        cost: "There are more interrupts on those queues.",
        references: &["ethtool(8), --per-queue", "Linux Documentation/networking/ethtool-netlink.rst"],
    },
    Rule {
        id: "nic.coalesce-effective",
        cause: Cause::Moderation,
        title: "Interrupts come no more often than moderation allows",
        applies: Applies::LINUX.with_nic(),
        judge: effective,
        why: "The value that ethtool reads back is not always in force: some ENA instances accept rx-usecs and ignore \
         it. The interrupt rate shows this.",
        magnitude: Magnitude::untimed(
            "the difference between the setting and the value in force",
            "GitHub amzn/amzn-drivers#159 and #290",
        ),
        fix: Fix::look(
            "apus audit --interval 5s # while there is traffic: judges the real delay instead of the \
            setting",
        ),
        cost: "None.",
        references: &["GitHub amzn/amzn-drivers#159", "GitHub amzn/amzn-drivers#290"],
    },
];

/// Values of rx-usecs that stand for a mode rather than a time, by driver (drivers/net/ethernet/intel, the function
/// behind each driver's `set_coalesce`).
const MODES: [(&str, &[u32]); 6] = [
    ("e1000e", &[1, 3, 4]),
    ("igb", &[1, 3]),
    ("igbvf", &[2, 3]),
    ("igc", &[1, 3]),
    ("ixgbe", &[1]),
    ("ixgbevf", &[1]),
];

fn modes(driver: &str) -> Option<&'static [u32]> {
    MODES.iter().find(|(name, _)| *name == driver).map(|(_, modes)| *modes)
}

fn is_mode(link: &Link, usecs: u32) -> bool {
    link.driver.is(|driver| modes(driver).is_some_and(|modes| modes.contains(&usecs))) == Some(true)
}

fn adaptive(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let said = offered(&link.coalesce)?;
        let (rx, tx) = (said.adaptive_rx, said.adaptive_tx);
        let Some(rx) = rx.or(tx) else { return Err(Skip::not_applicable("the driver has no adaptive moderation")) };
        let on = rx || tx == Some(true);
        let judgement = match on {
            true => Judgement::warn("moderation follows the load"),
            false => Judgement::pass("moderation is fixed"),
        };
        let word = |on: Option<bool>| on.map_or("n/a", |on| if on { "on" } else { "off" });
        let text = format!("adaptive-rx {}, adaptive-tx {}", word(said.adaptive_rx), word(tx));
        Ok(judgement.see_as(text, link.coalesce.source()))
    })
}

/// The longest receive moderation of the interface and its queues, in microseconds. `None` if no setting is a time.
fn longest(link: &Link, said: &Coalescing) -> Option<u32> {
    let of_queues = link.queue_coalesce.values().filter_map(|fact| fact.value()?.rx_usecs);
    of_queues.chain(said.rx_usecs).filter(|usecs| !is_mode(link, *usecs)).max()
}

fn receive(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let said = offered(&link.coalesce)?;
        if said.adaptive_rx == Some(true) {
            return Err(Skip::not_applicable("moderation is adaptive: the driver chooses the interval"));
        }
        let Some(set) = said.rx_usecs else { return Err(Skip::not_applicable("the driver has no rx-usecs")) };
        let Some(usecs) = longest(link, said) else {
            return Err(Skip::not_applicable(format!("rx-usecs {set} names a mode of this driver")));
        };
        let frames = said.rx_frames;
        let wait = Nanos::from_micros(usecs.into());
        let found = format!("a receive interrupt waits up to {wait}");
        let judgement = match (frames, wait <= context.budget()) {
            (Some(1), _) => Judgement::pass("each packet interrupts (rx-frames 1)"),
            (_, true) => Judgement::pass(found),
            (_, false) => Judgement::warn(found).takes(wait),
        };
        let frames = frames.map_or_else(|| "n/a".into(), |frames| frames.to_string());
        Ok(judgement.see_as(format!("rx-usecs {set}, rx-frames {frames}"), link.coalesce.source()))
    })
}

fn semantics(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let said = offered(&link.coalesce)?;
        let Some(usecs) = said.rx_usecs else { return Err(Skip::not_applicable("the driver has no rx-usecs")) };
        let Some(modes) = modes(known(&link.driver)?) else {
            return Err(Skip::not_applicable("for Intel's 1G and 10G drivers"));
        };
        let judgement = match usecs {
            0 => Judgement::pass("moderation is off"),
            n if !modes.contains(&n) => Judgement::pass(format!("rx-usecs {n} is a time")),
            3 => Judgement::warn("rx-usecs 3 is not a time: moderation follows the load, conservatively"),
            n => Judgement::warn(format!("rx-usecs {n} is not a time: moderation follows the load")),
        };
        Ok(judgement.see_as(format!("rx-usecs {usecs}"), link.coalesce.source()).see(&link.driver))
    })
}

fn limit(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let said = offered(&link.coalesce)?;
        let Some(usecs) = said.rx_usecs_high else {
            return Err(Skip::not_applicable("the driver has no rx-usecs-high"));
        };
        let wait = Nanos::from_micros(usecs.into());
        let judgement = match wait <= context.budget() {
            true => Judgement::pass("no limit beyond the budget"),
            false => Judgement::warn(format!("a vector fires at most once per {wait}")).takes(wait),
        };
        Ok(judgement.see_as(format!("rx-usecs-high {usecs}"), link.coalesce.source()))
    })
}

fn profile(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let said = offered(&link.coalesce)?;
        if said.adaptive_rx != Some(true) {
            return Err(Skip::not_applicable("adaptive moderation is off"));
        }
        let levels = offered(&link.rx_profile)?;
        let list: Vec<String> = levels.iter().map(|level| level.usecs.to_string()).collect();
        let longest = Nanos::from_micros(levels.iter().map(|level| level.usecs).max().unwrap_or(0).into());
        let judgement = match longest <= context.budget() {
            true => Judgement::pass(format!("its longest level is {longest}")),
            false => Judgement::warn(format!("its longest level is {longest}")).takes(longest),
        };
        Ok(judgement.see_as(format!("{} us", list.join(", ")), link.rx_profile.source()))
    })
}

fn by_queue(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let said = offered(&link.coalesce)?;
        if link.queue_coalesce.is_empty() {
            return Err(Skip::unknown(format!(
                "ethtool --per-queue {} --show-coalesce: not recorded, or the driver does not support it",
                link.name
            )));
        }
        let known = link.queue_coalesce.iter().filter_map(|(queue, fact)| Some((queue, fact.value()?)));
        let other = known.filter(|(_, queue)| {
            queue.rx_usecs != said.rx_usecs || queue.adaptive_rx.unwrap_or(false) != said.adaptive_rx.unwrap_or(false)
        });
        let list: Vec<String> = other
            .map(|(queue, said)| match (said.adaptive_rx, said.rx_usecs) {
                (Some(true), _) => format!("queue {queue}: adaptive"),
                (_, Some(usecs)) => format!("queue {queue}: rx-usecs {usecs}"),
                _ => format!("queue {queue}: n/a"),
            })
            .collect();
        let source = link.queue_coalesce.values().next().map_or(link.coalesce.source(), |fact| fact.source());
        Ok(match list.is_empty() {
            true => {
                Judgement::pass(format!("{} queues have the same settings as the interface", link.queue_coalesce.len()))
                    .see_as("no difference", source)
            }
            false => {
                Judgement::warn(format!("{} queues have other moderation settings than the interface", list.len()))
                    .see_as(list.into_iter().take(8).collect::<Vec<_>>().join(", "), source)
            }
        })
    })
}

/// Share of the allowed interrupt rate, in percent, below which there is too little traffic for a verdict.
const BUSY: u64 = 50;
/// Share of the allowed interrupt rate, in percent, above which the moderation evidently does not take effect. It is
/// more than 100 because the counters are not all read at the same instant.
const TOO_MANY: u64 = 110;

fn effective(facts: &Facts, context: &Context) -> Judged {
    let interval = known(&facts.interval)?;
    let table = known(&interval.change.interrupts)?;
    by_link(facts, context, |link| {
        let said = offered(&link.coalesce)?;
        let usecs = match (said.adaptive_rx, said.rx_usecs) {
            (Some(true), _) => return Err(Skip::not_applicable("moderation is adaptive")),
            (_, None | Some(0)) => return Err(Skip::not_applicable("nothing is held back")),
            (_, Some(usecs)) if is_mode(link, usecs) => {
                return Err(Skip::not_applicable("rx-usecs names a mode of this driver"));
            }
            (_, Some(usecs)) => usecs,
        };
        let rows =
            link.queue_irqs.iter().filter(|queue| queue.rx).filter_map(|queue| table.row(&queue.irq.to_string()));
        let nanos = u128::from(interval.length.as_nanos().max(1));
        let rates = rows.map(|row| (u128::from(row.total()) * 1_000_000_000 / nanos) as u64);
        let Some(most) = rates.max() else { return Err(Skip::unknown("the interrupts of its queues are not known")) };
        let allowed = 1_000_000 / u64::from(usecs);
        let found =
            format!("its busiest queue had {most} interrupts per second, and rx-usecs {usecs} allows {allowed}");
        let judgement = match most * 100 / allowed.max(1) {
            share if share > TOO_MANY => Judgement::warn(found),
            share if share >= BUSY => Judgement::pass(found),
            _ => return Err(Skip::unknown(format!("too little traffic for a verdict: {found}"))),
        };
        Ok(judgement
            .see_as(format!("{most} a second"), table_source(facts))
            .see_as(format!("rx-usecs {usecs}"), link.coalesce.source()))
    })
}

fn table_source(facts: &Facts) -> &host::facts::Source {
    facts.counters.interrupts.source()
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::{CountRow, CountTable, DimLevel, Interval, QueueIrq};
    use units::Nanos;

    use crate::testing::{Case, Host, host};

    /// An interface with this driver and these lines of `ethtool -c`.
    fn set(driver: &str, lines: &str) -> Host {
        bare()
            .command("ethtool -i eth0", &format!("driver: {driver}\n"))
            .command("ethtool -c eth0", &format!("Coalesce parameters for eth0:\n{lines}"))
    }

    fn bare() -> Host {
        host().nic("eth0").file("/sys/class/net/eth0/mtu", "1500\n")
    }

    fn adaptive(on: &str) -> Host {
        set("ice", &format!("Adaptive RX: {on}  TX: {on}\nrx-usecs: 50\n"))
    }

    fn usecs(driver: &str, usecs: u32) -> Host {
        set(driver, &format!("Adaptive RX: off  TX: off\nrx-usecs: {usecs}\nrx-frames: n/a\n"))
    }

    fn high(usecs: u32) -> Host {
        set("i40e", &format!("Adaptive RX: off  TX: off\nrx-usecs: 0\nrx-usecs-high: {usecs}\n"))
    }

    fn levels(longest: u32) -> Host {
        set(
            "mlx5_core",
            &format!(
                "Adaptive RX: on  TX: off\nrx-usecs: 8\nrx-profile:\n{{.usec = 1, .pkts = 256, .comp = n/a,}},\n{{.usec = {longest}, .pkts = 256, .comp = n/a,}}\n"
            ),
        )
    }

    fn queues(second: u32) -> Host {
        usecs("ice", 0).command(
            "ethtool --per-queue eth0 --show-coalesce",
            &format!("Queue: 0\nAdaptive RX: off  TX: off\nrx-usecs: 0\n\nQueue: 1\nAdaptive RX: off  TX: off\nrx-usecs: {second}\n"),
        )
    }

    /// Queue 0 of an interface with rx-usecs 50, which allow 20,000 a second, and its interrupts in one second.
    fn rate(count: u64) -> Host {
        let host = usecs("ice", 50);
        match count {
            0 => host.edit(|facts| busy(facts, 10)),
            19_000 => host.edit(|facts| busy(facts, 19_000)),
            _ => host.edit(|facts| busy(facts, 90_000)),
        }
    }

    fn busy(facts: &mut host::Facts, count: u64) {
        if let Fact::Known { value, .. } = &mut facts.links {
            value[0].queue_irqs = vec![QueueIrq { queue: 0, rx: true, tx: true, irq: 55 }];
        }
        let row = CountRow { label: "55".into(), description: "eth0-TxRx-0".into(), counts: vec![count].into() };
        let mut interval = Interval { length: Nanos::from_secs(1), ..Interval::default() };
        interval.change.interrupts = Fact::known(CountTable { cpus: vec![0], rows: vec![row] }, "/proc/interrupts");
        facts.interval = Fact::known(interval, "/proc/uptime");
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("nic.adaptive", || adaptive("off")),
        Case::warn("nic.adaptive", || adaptive("on")),
        Case::unknown("nic.adaptive", bare),
        Case::unknown("nic.adaptive", || host().nic("eth0")),
        Case::not_applicable("nic.adaptive", || host().complete()),
        Case::unknown("nic.adaptive", host),
        Case::not_applicable("nic.adaptive", || {
            bare().command("ethtool -c eth0", "netlink error: Operation not supported\n")
        }),
        Case::pass("nic.rx-usecs", || usecs("ice", 8)),
        Case::warn("nic.rx-usecs", || usecs("ice", 50)),
        Case::pass("nic.rx-usecs", || usecs("ice", 50).goal(Nanos::from_micros(100))),
        Case::pass("nic.rx-usecs", || set("mlx5_core", "Adaptive RX: off  TX: off\nrx-usecs: 50\nrx-frames: 1\n")),
        Case::warn("nic.rx-usecs", || queues(100)),
        Case::not_applicable("nic.rx-usecs", || adaptive("on")),
        Case::not_applicable("nic.rx-usecs", || usecs("ixgbe", 1)),
        Case::unknown("nic.rx-usecs", bare),
        Case::pass("nic.rx-usecs-semantics", || usecs("ixgbe", 0)),
        Case::warn("nic.rx-usecs-semantics", || usecs("ixgbe", 1)),
        Case::warn("nic.rx-usecs-semantics", || usecs("igb", 3)),
        Case::pass("nic.rx-usecs-semantics", || usecs("ixgbe", 3)),
        Case::warn("nic.rx-usecs-semantics", || usecs("e1000e", 4)),
        Case::warn("nic.rx-usecs-semantics", || usecs("igbvf", 2)),
        Case::pass("nic.rx-usecs-semantics", || usecs("igb", 4)),
        Case::unknown("nic.rx-usecs-semantics", || bare().command("ethtool -i eth0", "driver: igb\n")),
        Case::not_applicable("nic.rx-usecs-semantics", || usecs("ice", 1)),
        Case::pass("nic.rx-usecs-high", || high(0)),
        Case::warn("nic.rx-usecs-high", || high(20)),
        Case::unknown("nic.rx-usecs-high", || bare().command("ethtool -i eth0", "driver: i40e\n")),
        Case::pass("nic.dim-profile", || levels(8)),
        Case::warn("nic.dim-profile", || levels(256)),
        Case::unknown("nic.dim-profile", || adaptive("on")),
        Case::not_applicable("nic.dim-profile", || adaptive("off")),
        Case::pass("nic.queue-coalesce", || queues(0)),
        Case::warn("nic.queue-coalesce", || queues(50)),
        Case::unknown("nic.queue-coalesce", || usecs("ice", 0)),
        Case::pass("nic.coalesce-effective", || rate(19_000)),
        Case::warn("nic.coalesce-effective", || rate(90_000)),
        Case::unknown("nic.coalesce-effective", || rate(0)),
        Case::unknown("nic.coalesce-effective", || usecs("ice", 50)),
    ];

    #[test]
    fn the_wait_is_the_effect() {
        let judgements = usecs("ice", 50).judge("nic.rx-usecs");
        assert_eq!(judgements[0].effect, Some(crate::Effect::Late(Nanos::from_micros(50))));
        assert_eq!(judgements[0].evidence[0].value, "rx-usecs 50, rx-frames n/a");
        let levels = levels(256).facts();
        let expected = vec![DimLevel { usecs: 1, frames: Some(256) }, DimLevel { usecs: 256, frames: Some(256) }];
        assert_eq!(levels.link("eth0").unwrap().rx_profile.value(), Some(&expected));
    }
}
