//! Rules on flow control, features of the NIC's firmware, and lost frames.

use std::collections::BTreeMap;

use host::Facts;
use host::facts::Link;
use units::Nanos;

use crate::rules::interfaces::{by_link, counted, offered, on_wire, span};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known};

const I40E: &str = "Linux Documentation/networking/device_drivers/ethernet/intel/i40e.rst";

const PAUSE: Magnitude = Magnitude::late(
    Nanos::from_micros(336),
    "up to 65,535 times 512 bit times per pause frame: 3.4 ms at 10 Gbit/s, 336 us at 100",
    "IEEE 802.3, Annex 31B",
);

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "nic.pause",
        cause: Cause::Pause,
        title: "Pause frames are off",
        applies: Applies::LINUX.with_nic(),
        judge: pause,
        why: "A receiver that cannot keep up stops its sender with pause frames, and with it every flow on that link, \
         even those whose receiver is idle.",
        magnitude: PAUSE,
        fix: Fix::runtime("ethtool -A {nic} autoneg off rx off tx off")
            .against(&["storage and RDMA over converged Ethernet need a link without loss"]),
        cost: "Frames are lost instead when a ring overflows; RDMA over Ethernet needs priority flow control.",
        references: &["DPDK guide, nics/mlx4 and mlx5, Performance tuning", I40E, "FreeBSD manual, ixl(4)"],
    },
    Rule {
        id: "nic.pause-frames",
        cause: Cause::Pause,
        title: "No pause frame was received or sent",
        applies: Applies::LINUX.with_nic(),
        judge: paused,
        why: "Counters show whether a sender was stopped, whatever the settings say.",
        magnitude: PAUSE,
        fix: Fix::runtime("ethtool -A {nic} autoneg off rx off tx off")
            .after("ethtool -S {nic} # shows who pauses whom")
            .decided(),
        cost: "Frames are lost instead when a ring overflows.",
        references: &["IEEE 802.3, Annex 31B", I40E],
    },
    Rule {
        id: "nic.drops",
        cause: Cause::Rings,
        title: "The card dropped nothing for lack of buffers",
        applies: Applies::LINUX.with_nic(),
        judge: drops,
        why: "A frame is lost if no slot is free: the CPU was away for longer than the ring lasts, or the link to memory \
         was too slow.",
        magnitude: Magnitude::untimed(
            "a lost packet; with TCP a round trip or more until it is sent again",
            "Linux include/uapi/linux/if_link.h, rtnl_link_stats64, rx_missed_errors (shown in Documentation/networking/statistics.rst)",
        ),
        fix: Fix::for_good(
            "use a longer ring (ethtool -G), or remove the load that keeps the queue's CPU busy (apus irqs)",
        )
        .after("ethtool -S {nic} | grep -iE 'miss|drop|no_buf'"),
        cost: "A longer ring adds queueing delay.",
        references: &[
            "Linux Documentation/networking/statistics.rst",
            "Intel Ethernet 700 Series Linux performance tuning guide (334019)",
        ],
    },
    Rule {
        id: "nic.fw-lldp",
        cause: Cause::NicDriver,
        title: "The card's firmware leaves LLDP to the host",
        applies: Applies::LINUX.with_nic().driven_by(&["i40e", "ice"]),
        judge: lldp,
        why: "The firmware's own agent takes LLDP frames before the host sees them, and may enable priority flow control \
         at the request of the switch.",
        magnitude: Magnitude::untimed(
            "flow control that nobody set: up to 336 us per pause at 100 Gbit/s",
            "Linux Documentation/networking/device_drivers/ethernet/intel/i40e.rst and ice.rst, LLDP; IEEE 802.3, Annex 31B",
        ),
        fix: Fix::runtime("ethtool --set-priv-flags {nic} disable-fw-lldp on fw-lldp-agent off"),
        cost: "The port is reset. Without an agent on the host there is no LLDP.",
        references: &[I40E, "Linux Documentation/networking/device_drivers/ethernet/intel/ice.rst"],
    },
    Rule {
        id: "nic.priv-flags",
        cause: Cause::NicDriver,
        title: "No private flag of the driver selects a slow path",
        applies: Applies::LINUX.with_nic(),
        judge: flags,
        why: "legacy-rx of Intel's drivers copies each frame as older versions did. It exists for debugging.",
        magnitude: Magnitude::slower(
            "a copy and an allocation per frame: about 0.1 to 0.5 us",
            "Linux drivers/net/ethernet/intel (private flag legacy-rx); the figure is an estimate",
        ),
        fix: Fix::runtime("ethtool --set-priv-flags {nic} legacy-rx off"),
        cost: "The port is reset.",
        references: &[
            "Linux drivers/net/ethernet/intel/i40e/i40e_ethtool.c, legacy-rx",
            "ethtool(8), --set-priv-flags",
        ],
    },
];

/// The kernel's counters of frames that were lost because a ring or buffer was full
/// (Documentation/networking/statistics.rst).
const LOST: [&str; 4] = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors", "tx_fifo_errors"];
/// Substrings of the names of drivers' counters for frames that were lost because a ring or buffer was full.
const LOST_TOO: [&str; 6] = ["out_of_buffer", "no_buffer", "no_buf", "no_dma", "rx_missed", "rx_discards_phy"];
/// The longest pause that one pause frame can request, in octets on the wire: 65,535 quanta of 512 bits (IEEE 802.3,
/// Annex 31B).
const LONGEST_PAUSE: u64 = 65_535 * 64;
/// Maximum number of counters that a finding names.
const NAMED: usize = 5;

fn pause(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let said = offered(&link.pause)?;
        let word = |on: bool| if on { "on" } else { "off" };
        let longest = link.speed.get().map(|speed| on_wire(LONGEST_PAUSE, speed));
        let judgement = match (said.rx, said.tx) {
            (false, false) => Judgement::pass("it neither obeys nor sends pause frames"),
            (rx, tx) => {
                let who = match (rx, tx) {
                    (true, true) => "it obeys pause frames, and sends them",
                    (true, false) => "it obeys pause frames",
                    _ => "it sends pause frames",
                };
                let judgement = Judgement::warn(who);
                match longest {
                    Some(longest) => judgement.takes(longest),
                    None => judgement,
                }
            }
        };
        Ok(judgement.see_as(format!("rx {}, tx {}", word(said.rx), word(said.tx)), link.pause.source()))
    })
}

/// The counters that `wanted` selects and that are not 0, largest first.
fn nonzero(counts: &BTreeMap<String, u64>, wanted: impl Fn(&str) -> bool) -> Vec<(&str, u64)> {
    let mut found: Vec<(&str, u64)> =
        counts.iter().filter(|(name, n)| **n > 0 && wanted(name)).map(|(name, n)| (name.as_str(), *n)).collect();
    found.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), *name));
    found
}

fn source(link: &Link) -> String {
    format!("/sys/class/net/{0}/statistics, ethtool -S {0}", link.name)
}

fn see(judgement: Judgement, found: &[(&str, u64)], link: &Link) -> Judgement {
    let one = |judgement: Judgement, (name, n): &(&str, u64)| judgement.see_as(format!("{name} {n}"), source(link));
    found.iter().take(NAMED).fold(judgement, one)
}

fn paused(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let (counts, during) = counted(facts, link)?;
        let is_pause = |name: &str| name.contains("xoff") || name.contains("xon") || name.contains("pause");
        if !counts.keys().any(|name| is_pause(name)) {
            return Err(Skip::unknown(format!("ethtool -S {}: the driver counts no pause frames", link.name)));
        }
        // Durations count the same frames again, and an XON frame ends a pause.
        let found = nonzero(counts, |name| is_pause(name) && !name.contains("duration") && !name.contains("xon"));
        let span = span(during);
        Ok(match found.is_empty() {
            true => Judgement::pass(format!("no pause frame {span}")).see_as("all 0", source(link)),
            false => see(Judgement::warn(format!("pause frames {span}")), &found, link),
        })
    })
}

fn drops(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let (counts, during) = counted(facts, link)?;
        let found = nonzero(counts, |name| {
            LOST.contains(&name)
                || name.strip_prefix("ethtool.").is_some_and(|name| LOST_TOO.iter().any(|part| name.contains(part)))
        });
        let span = span(during);
        Ok(match (found.is_empty(), during) {
            (true, _) => Judgement::pass(format!("no counter shows a frame lost for lack of buffers {span}"))
                .see_as("all 0", source(link)),
            (false, Some(_)) => see(Judgement::fail(format!("frames were lost {span}")), &found, link),
            (false, None) => see(Judgement::warn(format!("frames were lost {span}")), &found, link),
        })
    })
}

fn lldp(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        known(&link.driver)?;
        let flags = offered(&link.private_flags)?;
        let (name, agent) = match (flags.get("disable-fw-lldp"), flags.get("fw-lldp-agent")) {
            (Some(disabled), _) => ("disable-fw-lldp", !disabled),
            (_, Some(agent)) => ("fw-lldp-agent", *agent),
            _ => return Err(Skip::not_applicable("the driver has no flag for it")),
        };
        let on = flags.get(name) == Some(&true);
        let judgement = match agent {
            true => Judgement::warn("the firmware takes LLDP frames and may enable flow control"),
            false => Judgement::pass("the firmware does not handle LLDP"),
        };
        Ok(judgement.see_as(format!("{name} {}", if on { "on" } else { "off" }), link.private_flags.source()))
    })
}

fn flags(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let flags = offered(&link.private_flags)?;
        let on: Vec<&str> = flags.iter().filter(|(_, on)| **on).map(|(name, _)| name.as_str()).collect();
        let judgement = match flags.get("legacy-rx") {
            Some(true) => Judgement::warn("frames are copied as older drivers did"),
            _ => Judgement::pass(format!(
                "{} of {} flags are on, none of them selects a slow path",
                on.len(),
                flags.len()
            )),
        };
        let text = if on.is_empty() { "none is on".to_owned() } else { on.join(", ") };
        Ok(judgement.see_as(text, link.private_flags.source()))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use units::Nanos;

    use crate::testing::{Case, Host, host};

    fn bare() -> Host {
        host().nic("eth0").file("/sys/class/net/eth0/mtu", "1500\n")
    }

    fn pause(rx: &str, tx: &str) -> Host {
        bare().file("/sys/class/net/eth0/speed", "10000\n").command(
            "ethtool -a eth0",
            &format!("Pause parameters for eth0:\nAutonegotiate: off\nRX: {rx}\nTX: {tx}\n"),
        )
    }

    fn counts(lines: &str) -> Host {
        bare().command("ethtool -S eth0", &format!("NIC statistics:\n{lines}"))
    }

    fn missed(n: u64) -> Host {
        bare().file("/sys/class/net/eth0/statistics/rx_missed_errors", &format!("{n}\n"))
    }

    fn flags(driver: &str, lines: &str) -> Host {
        bare()
            .command("ethtool -i eth0", &format!("driver: {driver}\n"))
            .command("ethtool --show-priv-flags eth0", &format!("Private flags for eth0:\n{lines}"))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("nic.pause", || pause("off", "off")),
        Case::warn("nic.pause", || pause("on", "off")),
        Case::unknown("nic.pause", bare),
        Case::not_applicable("nic.pause", || {
            bare().command("ethtool -a eth0", "netlink error: Operation not supported\n")
        }),
        Case::pass("nic.pause-frames", || counts("     port.link_xoff_rx: 0\n     port.link_xon_rx: 0\n")),
        Case::warn("nic.pause-frames", || counts("     port.link_xoff_rx: 12\n     port.link_xon_rx: 12\n")),
        Case::unknown("nic.pause-frames", || counts("     rx_packets: 12\n")),
        Case::pass("nic.drops", || missed(0)),
        Case::warn("nic.drops", || missed(7)),
        Case::warn("nic.drops", || counts("     rx_out_of_buffer: 3\n")),
        Case::unknown("nic.drops", bare),
        Case::pass("nic.fw-lldp", || flags("i40e", "disable-fw-lldp: on\n")),
        Case::warn("nic.fw-lldp", || flags("i40e", "disable-fw-lldp: off\n")),
        Case::warn("nic.fw-lldp", || flags("ice", "fw-lldp-agent: on\n")),
        Case::unknown("nic.fw-lldp", || bare().command("ethtool -i eth0", "driver: ice\n")),
        Case::pass("nic.priv-flags", || flags("ice", "legacy-rx: off\nvf-vlan-pruning: on\n")),
        Case::warn("nic.priv-flags", || flags("ice", "legacy-rx: on\n")),
        Case::unknown("nic.priv-flags", bare),
    ];

    #[test]
    fn the_longest_pause_is_the_effect() {
        // 65,535 x 512 bits at 10 Gbit/s.
        assert_eq!(
            pause("on", "on").judge("nic.pause")[0].effect,
            Some(crate::Effect::Late(Nanos::from_nanos(3_355_392)))
        );
    }
}
