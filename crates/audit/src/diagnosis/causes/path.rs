//! Causes between the ends.

use super::super::{Case, End, Experiment, Hit, PossibleCause, grade};
use super::{LAN_US, percent, time};

pub(super) const CAUSES: &[PossibleCause] = &[
    PossibleCause {
        id: "loss",
        why: "Frames are lost between the ends: because of a bad cable or transceiver, a full switch, or a queueing discipline that \
              drops on purpose. TCP retransmits them one round trip or one timeout later, and slows down.",
        reference: "Mathis et al., The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm (1997); tc-netem(8)",
        judge: loss,
    },
    PossibleCause {
        id: "delay",
        why: "The path between the ends is slow: because of distance, a tunnel, a full switch buffer, or a queueing discipline that \
              delays on purpose. TCP sends at most one window per round trip.",
        reference: "RFC 6349, section 3.1; tc-netem(8)",
        judge: delay,
    },
];

/// Limits for the share of retransmitted segments. Clean local networks stay below the first limit. At the second (one
/// segment in 500), the loss counts fully.
const RETRANSMITTED: (f64, f64) = (5e-4, 2e-3);
/// A share is meaningful only if there are at least this many segments.
const FEW_SEGMENTS: f64 = 100.0;

fn loss(case: &Case) -> Option<Hit> {
    let stated = case.worst(|end, _| {
        let (_, loss) = end.netem.filter(|(_, loss)| *loss > 0.0)?;
        Some(
            Hit::new(
                98.0 * grade(loss, 1e-5, 1e-3),
                Some(end),
                format!("netem drops {} of the packets that {} sends", percent(loss), end.interface),
                remove_netem(end),
            )
            .see(format!("netem: loss {}", percent(loss)), format!("tc -s qdisc show dev {}", end.interface)),
        )
    });
    let seen = case.worst(|end, peer| {
        let (again, all) = retransmissions(end)?;
        // The host's counters show which share of its retransmissions was needless.
        let needless = end.duplicates.zip(end.retransmitted).map_or(0.0, |(twice, (again, _))| (twice / again.max(1.0)).min(1.0));
        // If most were needless, segments overtook each other. Then the others do not prove a loss either: an
        // acknowledgement reports at most one duplicate (RFC 2883, section 4), so some duplicates are never reported.
        let overtaken = grade(needless, 0.5, 0.9);
        let again = again * (1.0 - needless);
        let share = again / all.max(1.0);
        // Drops at the ends explain the same number of retransmissions.
        let dropped = |end: &End| -> f64 {
            let ring: f64 = end.drops.first().map_or(0.0, |drops| drops.count as f64);
            // TCP counts duplicates as drops.
            let udp = end.sockets.iter().filter(|socket| socket.transport == "udp");
            ring + udp.map(|socket| socket.drops).sum::<f64>()
        };
        let own = dropped(end) + peer.map_or(0.0, dropped);
        let unexplained = (again - own).max(0.0) / again.max(1.0);
        let hit = Hit::new(
            96.0 * grade(share, RETRANSMITTED.0, RETRANSMITTED.1) * unexplained * grade(again, 2.0, 8.0) * (1.0 - overtaken),
            None,
            format!("{} of the TCP segments are retransmitted, and neither end dropped them", percent(share)),
            Experiment::text("compare the frames that one end sent with those that the other end received (`ip -s link` on both at the same time), then check each hop in between; replace the cable, or use another port"),
        )
        .see(format!("{again:.0} of {all:.0} segments retransmitted, not counting those that the receiver reported as duplicates"), "tcp_info, or Tcp.RetransSegs of /proc/net/snmp; TcpExt.TCPDSACKRecvSegs")
        .see(format!("drops in the rings and sockets of the watched ends: {own:.0}"), "counters");
        Some(hit)
    });
    match (stated, seen) {
        (Some(a), Some(b)) => Some(if a.likelihood_percent >= b.likelihood_percent { a } else { b }),
        (a, b) => a.or(b),
    }
}

/// Number of retransmitted segments, and number of all segments: of the sockets or, if not known, of the whole host.
fn retransmissions(end: &End) -> Option<(f64, f64)> {
    let of_sockets = end.tcp().filter_map(|tcp| tcp.retransmitted.zip(tcp.segments));
    let summed = of_sockets.reduce(|a, b| (a.0 + b.0, a.1 + b.1));
    summed.or(end.retransmitted).filter(|(_, all)| *all >= FEW_SEGMENTS)
}

fn remove_netem(end: &End) -> Experiment {
    Experiment::text(format!("remove it (`tc qdisc del dev {} root`), and measure again", end.interface))
}

fn delay(case: &Case) -> Option<Hit> {
    let stated = case.worst(|end, _| {
        let (delay, _) = end.netem.filter(|(delay, _)| *delay > 0.0)?;
        Some(
            Hit::new(
                98.0 * grade(delay, 1.0, LAN_US / 2.0),
                Some(end),
                format!("netem delays packets that {} sends by {}", end.interface, time(delay)),
                remove_netem(end),
            )
            .see(format!("netem: delay {}", time(delay)), format!("tc qdisc show dev {}", end.interface)),
        )
    });
    let seen = case.worst(|end, peer| {
        let least = end.tcp().filter_map(|tcp| tcp.min_rtt_us).reduce(f64::min)?;
        let holds = end.hold_us() + peer.map_or(0.0, End::hold_us);
        let expected = case.symptom.expected_ping_ns.map_or(LAN_US, |ns| ns as f64 / 1e3 * 2.0);
        let rest = least - holds;
        // Long transmit completions show that the card holds frames back: then the delay is at this end.
        let inside = end
            .tcp()
            .filter_map(|tcp| Some(tcp.in_transmission? / tcp.segments_s.filter(|rate| *rate > 0.0)? / 1500.0 * 1e6))
            .fold(0.0, f64::max);
        let elsewhere = 1.0 - grade(inside / least.max(1.0), 0.1, 0.4);
        let likelihood = 95.0 * grade(rest, expected, 2.0 * expected) * elsewhere;
        let hit = Hit::new(
            likelihood,
            None,
            format!("The path between the ends is slow: the shortest round trip takes {}", time(least)),
            Experiment::text("measure each hop (`mtr`, or `ping` the nearest switch or router); compare with the distance: 100 km of fibre add 1 ms per round trip"),
        )
        .see(format!("shortest round trip: {}", time(least)), "tcp_info, tcpi_min_rtt")
        .see(format!("interrupt moderation at the watched ends: up to {}", time(holds)), "settings in force");
        Some(hit)
    });
    match (stated, seen) {
        (Some(a), Some(b)) => Some(if a.likelihood_percent >= b.likelihood_percent { a } else { b }),
        (a, b) => a.or(b),
    }
}
