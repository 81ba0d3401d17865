//! Rules on frame size and queueing discipline.

use host::Facts;

use crate::rules::interfaces::{by_link, frame_time, gigabits};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Verdict, known};
use units::Nanos;

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "nic.mtu",
        cause: Cause::Wire,
        title: "The largest frame does not occupy the wire for longer than the budget",
        applies: Applies::LINUX.with_nic(),
        judge: mtu,
        why: "A frame cannot be interrupted while it is being sent. A short frame behind it waits until it is finished, \
         at each hop.",
        magnitude: Magnitude::late(
            Nanos::from_nanos(7_230),
            "9000 bytes take 7.2 us at 10 Gbit/s, 1500 take 1.2 us",
            "arithmetic: (bytes + 38) x 8 / rate",
        ),
        fix: Fix::both("ip link set dev {nic} mtu 1500", "set the same where the interface is configured")
            .against(&["storage networks use 9000"]),
        cost: "Bulk transfers need more frames and thus more CPU time. All hosts of a segment need the same MTU.",
        references: &["IEEE 802.3", "Mellanox mlnx-tools, mlnx_tune"],
    },
    Rule {
        id: "nic.qdisc",
        cause: Cause::Wire,
        title: "The queueing discipline does not delay packets on purpose",
        applies: Applies::LINUX.with_nic(),
        judge: discipline,
        why: "A shaper holds packets back until their time comes. A discipline for the whole interface has one lock \
              for all CPUs; mq has one for each queue.",
        magnitude: Magnitude::untimed(
            "depends on the shaper's settings; netem exists to add delay",
            "tc(8), classful and classless qdiscs; tc-netem(8)",
        ),
        fix: Fix::both("tc qdisc replace dev {nic} root mq", "sysctl: net.core.default_qdisc = pfifo_fast"),
        cost: "The shaper's function is lost.",
        references: &[
            "tc(8)",
            "Linux Documentation/admin-guide/sysctl/net.rst, default_qdisc",
            "Mellanox mlnx-tools, mlnx_tune",
        ],
    },
];

/// The largest payload of a standard Ethernet frame (IEEE 802.3, 3.2.7).
const STANDARD: u32 = 1500;

/// Queueing disciplines that delay packets or divide a rate among classes.
const SHAPERS: [&str; 7] = ["cake", "cbq", "drr", "hfsc", "htb", "tbf", "hhf"];
/// Queueing disciplines that send immediately, in order or fairly.
const PLAIN: [&str; 9] = ["noqueue", "mq", "mqprio", "pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "multiq"];

fn mtu(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let mtu = *known(&link.mtu)?;
        let speed = *known(&link.speed)?;
        let takes = frame_time(mtu, speed);
        let found = format!("a frame of {mtu} bytes takes {takes} at {}", gigabits(speed.as_bps()));
        let judgement = match takes <= context.budget() {
            true => Judgement::pass(found),
            // An MTU below that of standard Ethernet is not a remedy.
            false if mtu <= STANDARD => Judgement::warn(found)
                .takes(takes)
                .now(format!("# nothing: {mtu} bytes are no more than the standard Ethernet size"))
                .for_good("a faster link"),
            false => Judgement::warn(found).takes(takes),
        };
        Ok(judgement.see(&link.mtu).see_as(gigabits(speed.as_bps()), link.speed.source()))
    })
}

fn discipline(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let kind = known(&link.qdisc)?.as_str();
        let judgement = match kind {
            "netem" => Judgement::fail("netem delays or drops packets on purpose"),
            shaper if SHAPERS.contains(&shaper) => Judgement::warn(format!("{shaper} delays packets")),
            plain if PLAIN.contains(&plain) => Judgement::pass(format!("{plain} delays no packets")),
            other => Judgement::pass(format!("{other} is not known to delay packets")),
        };
        let judgement = match link.tx_queues[..] {
            // mq rejects a device with only one queue (net/sched/sch_mq.c, mq_init).
            [_] if judgement.verdict != Verdict::Pass => {
                judgement.now(format!("tc qdisc replace dev {} root pfifo_fast", link.name))
            }
            _ => judgement,
        };
        Ok(judgement.see(&link.qdisc))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    fn link(mtu: &str, speed: &str) -> Host {
        host().nic("eth0").file("/sys/class/net/eth0/mtu", mtu).file("/sys/class/net/eth0/speed", speed)
    }

    fn qdisc(kind: &str) -> Host {
        link("1500\n", "10000\n").command("tc qdisc show dev eth0", &format!("qdisc {kind} 0: root refcnt 2\n"))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("nic.mtu", || link("1500\n", "10000\n")),
        Case::pass("nic.mtu", || link("9000\n", "10000\n")),
        Case::warn("nic.mtu", || link("9000\n", "1000\n")),
        Case::unknown("nic.mtu", || host().nic("eth0").file("/sys/class/net/eth0/mtu", "9000\n")),
        Case::pass("nic.qdisc", || qdisc("mq")),
        Case::warn("nic.qdisc", || qdisc("htb")),
        Case::fail("nic.qdisc", || qdisc("netem")),
        Case::unknown("nic.qdisc", || link("1500\n", "10000\n")),
    ];

    /// The kernel refuses mq on a device with one queue.
    #[test]
    fn one_queue_gets_a_discipline_that_it_can_have() {
        let queue = |host: Host, n: u32| host.file(&format!("/sys/class/net/eth0/queues/tx-{n}/xps_cpus"), "ff\n");
        let now = |host: Host| host.judge("nic.qdisc").remove(0).now;
        assert_eq!(now(queue(qdisc("htb"), 0)), ["tc qdisc replace dev eth0 root pfifo_fast"]);
        assert_eq!(now(queue(queue(qdisc("htb"), 0), 1)), [""; 0], "the rule's own: mq");
        assert_eq!(now(queue(qdisc("mq"), 0)), [""; 0]);
    }

    /// A port of 1 Gbit/s with standard frames: less is no way out.
    #[test]
    fn an_mtu_that_is_set_is_not_advised() {
        let judgement = link("1500\n", "100\n").judge("nic.mtu").remove(0);
        assert!(judgement.now[0].starts_with("# nothing") && judgement.for_good == ["a faster link"], "{judgement:?}");
        assert_eq!(link("9000\n", "1000\n").judge("nic.mtu").remove(0).now, [""; 0]);
    }
}
