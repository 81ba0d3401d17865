//! Rules on the port of a network card: link state, speed and error correction.

use host::Facts;
use units::{BitRate, Nanos};

use crate::rules::interfaces::{by_link, gigabits, offered};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known};

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "nic.carrier",
        cause: Cause::Wire,
        title: "The port has a carrier, and sends while it receives",
        applies: Applies::LINUX.with_nic(),
        judge: carrier,
        why: "Without a carrier no frames pass. At half duplex a port waits until the line is free, and repeats frames \
         that collided.",
        magnitude: Magnitude::untimed(
            "half duplex: up to 16 attempts, each after up to 1023 slots of 512 bits",
            "IEEE 802.3, 4.2.3.2.5 (truncated binary exponential backoff)",
        ),
        fix: Fix::runtime("ip link set {nic} up").after("ethtool -m {nic} # cable, transceiver and the other end"),
        cost: "A port that is up receives frames and raises interrupts.",
        references: &["ethtool(8)", "Mellanox mlnx-tools, mlnx_tune"],
    },
    Rule {
        id: "nic.carrier-changes",
        cause: Cause::Wire,
        title: "The carrier is stable",
        applies: Applies::LINUX.with_nic(),
        judge: changes,
        why: "Each loss of the carrier loses the frames on the line, and the link must be trained again.",
        magnitude: Magnitude::untimed(
            "seconds each time: link training and the other end's spanning tree",
            "general knowledge",
        ),
        fix: Fix::for_good("replace cable or transceiver, or repair the other end")
            .after("ethtool -m {nic}; dmesg | grep {nic}"),
        cost: "New parts are needed, and the link is down during the exchange.",
        references: &[
            "Linux Documentation/ABI/testing/sysfs-class-net, carrier_changes",
            "Mellanox mlnx-tools, mlnx_tune",
        ],
    },
    Rule {
        id: "nic.fec",
        cause: Cause::Wire,
        title: "Error correction is no stronger than the cable needs",
        applies: Applies::LINUX.on_hardware().with_nic(),
        judge: correction,
        why: "A block must arrive completely before it can be corrected. Up to 25 Gbit/s, short copper needs no \
         correction or only the short BASE-R code. From 50 Gbit/s per lane on, Reed-Solomon is part of the standard.",
        magnitude: Magnitude::late(
            Nanos::from_nanos(250),
            "about 0.25 us per hop for Reed-Solomon at 25 Gbit/s, under 0.1 us for BASE-R",
            "IEEE 802.3by (25 Gbit/s), clauses 74 and 108; the figures are general knowledge, not read in the standard",
        ),
        fix: Fix::both("ethtool --set-fec {nic} encoding baser", "set the same in a udev rule, and at the other end")
            .against(&["the switch's and the cable's makers may require RS"]),
        cost: "A link that needs stronger correction has errors. Both ends must agree.",
        references: &["ethtool(8), --set-fec", "IEEE 802.3by"],
    },
];

/// Number of carrier changes that setting up a port and training its link once or twice can cause. A higher number
/// means that the link flaps. This is an estimate.
const FEW_CHANGES: u64 = 20;
/// Highest speed at which short copper cables work without Reed-Solomon error correction (IEEE 802.3by).
const WITHOUT_RS: BitRate = BitRate::new(25_000_000_000);

fn carrier(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        // While an interface is down, the kernel does not report whether it has a carrier.
        let down = link.operstate.is(|state| state == "down") == Some(true);
        let carrier = if down { false } else { *known(&link.carrier)? };
        let half = link.duplex.is(|duplex| duplex == "half") == Some(true);
        let speed = link.speed.get().map_or(String::new(), |speed| format!(", {}", gigabits(speed.as_bps())));
        let judgement = match (carrier, half) {
            (false, _) => Judgement::fail("it is down or has no carrier"),
            (true, true) => Judgement::fail(format!("half duplex{speed}")),
            (true, false) => Judgement::pass(format!("it has a carrier{speed}")),
        };
        Ok(judgement.see(&link.operstate).see_whether(&link.carrier, "carrier", "no carrier").see(&link.duplex))
    })
}

fn changes(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let count = *known(&link.carrier_changes)?;
        let found = format!("the carrier has changed {count} times since the interface was created");
        let judgement = match count <= FEW_CHANGES {
            true => Judgement::pass(found),
            false => Judgement::warn(found),
        };
        Ok(judgement.see(&link.carrier_changes))
    })
}

fn correction(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let code = offered(&link.fec)?;
        let strong = code.to_ascii_uppercase().starts_with("RS");
        if !strong {
            return Ok(Judgement::pass(format!("error correction: {code}")).see(&link.fec));
        }
        let speed = *known(&link.speed).map_err(|_| Skip::of(&link.speed))?;
        let judgement = match speed <= WITHOUT_RS {
            true => Judgement::warn(format!("Reed-Solomon at {}", gigabits(speed.as_bps()))),
            false => Judgement::pass(format!("Reed-Solomon, as {} needs", gigabits(speed.as_bps()))),
        };
        Ok(judgement.see(&link.fec))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    fn port(file: &str, text: &str) -> Host {
        host().nic("eth0").file("/sys/class/net/eth0/mtu", "1500\n").file(&format!("/sys/class/net/eth0/{file}"), text)
    }

    fn bare() -> Host {
        port("mtu", "1500\n")
    }

    fn fec(code: &str, speed: &str) -> Host {
        port("speed", speed).command("ethtool --show-fec eth0", &format!("Active FEC encoding: {code}\n"))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("nic.carrier", || port("carrier", "1\n")),
        Case::fail("nic.carrier", || port("carrier", "0\n")),
        Case::fail("nic.carrier", || port("operstate", "down\n")),
        Case::fail("nic.carrier", || port("carrier", "1\n").file("/sys/class/net/eth0/duplex", "half\n")),
        Case::unknown("nic.carrier", bare),
        Case::pass("nic.carrier-changes", || port("carrier_changes", "2\n")),
        Case::warn("nic.carrier-changes", || port("carrier_changes", "812\n")),
        Case::unknown("nic.carrier-changes", bare),
        Case::pass("nic.fec", || fec("BaseR", "25000\n")),
        Case::pass("nic.fec", || fec("RS", "100000\n")),
        Case::warn("nic.fec", || fec("RS", "25000\n")),
        Case::unknown("nic.fec", bare),
        Case::not_applicable("nic.fec", || {
            bare().command("ethtool --show-fec eth0", "netlink error: Operation not supported\n")
        }),
    ];
}
