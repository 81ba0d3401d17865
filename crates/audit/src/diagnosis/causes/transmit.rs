//! Causes between the socket and the wire, in the transmit direction.

use super::super::{Case, End, Experiment, Hit, PossibleCause, grade};
use super::{bits, factor, percent, time};

pub(super) const CAUSES: &[PossibleCause] = &[
    PossibleCause {
        id: "tx-moderation",
        why: "A packet occupies a slot of the transmit ring and space in the socket's send buffer until the NIC reports its \
              completion. If the moderation of these reports takes about as long as the ring needs to fill, the sender \
              stops. A NIC that gathers frames before it sends them delays each frame.",
        reference: "ixl(4), hw.ixl.tx_itr; freebsd-net, \"ixl 40G bad performance\"; Documentation/networking/ip-sysctl.rst, tcp_limit_output_bytes",
        judge: tx_moderation,
    },
    PossibleCause {
        id: "offloads",
        why: "Without segmentation offload, the network stack processes every frame separately, instead of up to 64 KiB at once. \
              This multiplies the sender's CPU time per byte.",
        reference: "Documentation/networking/segmentation-offloads.rst",
        judge: offloads,
    },
    PossibleCause {
        id: "shaper",
        why: "A queueing discipline delays packets to limit the rate.",
        reference: "tc-tbf(8), tc-htb(8)",
        judge: shaper,
    },
];

/// Bytes that a frame with a payload of 1500 bytes occupies on the wire (IEEE 802.3: header, check sequence, preamble,
/// gap).
const WIRE_BYTES: f64 = 1538.0;
/// Upper limit of the memory that the kernel charges for the smallest TCP segment: a head of 1 KiB and its structures
/// (include/linux/skbuff.h, `SKB_TRUESIZE`; tcp_stream_alloc_skb). Kernels with small heads charge about 800 bytes.
/// Each byte of payload is charged as a little more than one byte.
const SEGMENT_BYTES: f64 = 1280.0;
/// Transmit completions that take up to this time, in us, do no harm: interrupts without moderation take 10 to 50 us.
const HARMLESS_US: f64 = 80.0;

fn tx_moderation(case: &Case) -> Option<Hit> {
    let measured = case.worst(|end, peer| measured_hold(case, end, peer));
    let stated = case.worst(|end, _| stated_hold(case, end));
    match (measured, stated) {
        (Some(a), Some(b)) => Some(if a.likelihood_percent >= b.likelihood_percent { a } else { b }),
        (a, b) => a.or(b),
    }
}

/// Measures how long transmissions take, by Little's law: bytes in transmission divided by the sending rate.
fn measured_hold(case: &Case, end: &End, peer: Option<&End>) -> Option<Hit> {
    let busiest = end.tcp().max_by(|a, b| a.segments_s.unwrap_or(0.0).total_cmp(&b.segments_s.unwrap_or(0.0)))?;
    let (inside, segments) = (busiest.in_transmission?, busiest.segments_s.filter(|rate| *rate >= 50.0)?);
    let payload = busiest.sent_bps.unwrap_or(0.0) / 8.0 / segments;
    let most = SEGMENT_BYTES + payload;
    let each = busiest.in_transmission_least.filter(|least| *least >= payload).map_or(most, |least| least.min(most));
    let takes = inside / (segments * each) * 1e6;
    // A bulk sender always has up to 1 ms of data in transmission (net/ipv4/tcp_output.c, `tcp_small_queue_check`), so
    // this shows nothing.
    if payload > 8192.0 {
        return None;
    }
    // In a veth pair, the receiver's NAPI completes transmissions.
    let elsewhere = peer.map_or(0.0, End::hold_us);
    let hold = takes - elsewhere;
    // If this NAPI runs in a thread, the time includes the thread's wait for a CPU.
    let scheduled = end.driver.as_deref() == Some("veth") && peer.is_some_and(|peer| peer.threaded);
    let rtt = busiest.rtt_us.unwrap_or(takes);
    let likelihood = 93.0 * grade(hold, HARMLESS_US, 2.0 * HARMLESS_US) * grade(hold / rtt.max(1.0), 0.1, 0.3);
    let likelihood = likelihood * if scheduled { 0.45 } else { 1.0 };
    let likelihood = if case.symptom.is_late() { likelihood } else { likelihood * 0.8 };
    Some(
        Hit::new(
            likelihood,
            Some(end),
            format!("After sending, a packet waits {} until the NIC reports its completion", time(takes)),
            Experiment::text(format!(
                "set `ethtool -C {} tx-usecs 0 tx-frames 1` (or the equivalent at the device to which {} sends), and measure again",
                end.interface, end.interface
            )),
        )
        .see(
            format!(
                "on average {inside:.0} bytes of port {} are between the socket and the wire, at {segments:.0} segments/s of about {each:.0} bytes: {inside:.0} / ({segments:.0}/s x {each:.0}) = {}",
                busiest.local_port, time(takes)
            ),
            "sock_diag, SK_MEMINFO_WMEM_ALLOC; Little's law",
        )
        .see(format!("round trips take {} on average", time(rtt)), "tcp_info, tcpi_rtt"),
    )
}

/// Compares the moderation setting with the time in which the ring fills up. The FreeBSD thread warns of values that
/// are close to each other.
fn stated_hold(case: &Case, end: &End) -> Option<Hit> {
    let (hold, slots, speed) = (end.tx_hold_us.filter(|hold| *hold > 0.0)?, end.tx_slots? as f64, end.speed_bps?);
    let lasts = slots * 1500.0 * 8.0 / speed * 1e6;
    let on_wire = slots * WIRE_BYTES * 8.0 / speed * 1e6;
    let likelihood = 78.0 * grade(hold / lasts, 0.25, 0.75);
    Some(
        Hit::new(
            if case.symptom.is_slow() { likelihood } else { likelihood * 0.8 },
            Some(end),
            format!(
                "The NIC reports completions only every {}, and the transmit ring fills in {}",
                time(hold),
                time(lasts)
            ),
            Experiment::text(format!(
                "shorten the transmit moderation of {} to 20 us, and measure the throughput again",
                end.interface
            ))
            .with(factor("transmit moderation of 20 us on", end, "coalesce = { tx-usecs = 20 }")),
        )
        .see(
            format!("transmit moderation of {}: at most {:.0} interrupts/s", time(hold), 1e6 / hold),
            "the driver's setting",
        )
        .see(
            format!(
                "{slots:.0} slots x 1500 bytes = {:.2} MB; x 8 / {} = {} ({} with the Ethernet overhead)",
                slots * 1500.0 / 1e6,
                bits(speed),
                time(lasts),
                time(on_wire)
            ),
            "arithmetic",
        )
        .see(
            format!(
                "{} / {} = {}: the sender stops if one completion report is late",
                time(hold),
                time(lasts),
                percent(hold / lasts)
            ),
            "arithmetic",
        ),
    )
}

/// Rate in bit/s below which a core can easily send each frame separately: 1 Gbit/s is 81,000 full frames per second.
const BULK_BPS: f64 = 300e6;

fn offloads(case: &Case) -> Option<Hit> {
    case.worst(|end, peer| {
        if end.length_s == 0.0 {
            return offloads_in_doubt(case, end);
        }
        let off = end.offloads_off.first()?;
        let sent = end.tcp().filter_map(|tcp| tcp.sent_bps).fold(0.0, f64::max);
        let size = end.tx_bytes? / end.tx_packets?.max(1.0);
        let mss_like = grade(size, 4000.0, 2000.0);
        // The hypervisor takes a CPU away only while the guest has work for it, so stolen time is no idle time.
        let stolen = |cpu: &u32| end.steal.get(cpu).copied().unwrap_or(0.0);
        let busy = end.busy.iter().map(|(cpu, busy)| busy + stolen(cpu)).fold(0.0, f64::max);
        let one_side = peer.is_some_and(|peer| peer.offloads_on.contains(off));
        let window = end.tcp().filter_map(|tcp| tcp.window_limited).fold(0.0, f64::max);
        let hit = Hit::new(
            if one_side { 92.0 } else { 75.0 }
                * grade(sent, BULK_BPS / 2.0, BULK_BPS)
                * mss_like
                * grade(busy, 0.5, 0.8)
                * (1.0 - 0.3 * window),
            Some(end),
            format!("{} of {} is off, so the sender processes every frame separately", end.offloads_off.join(" and "), end.interface),
            Experiment::text(format!(
                "switch it on (`ethtool -K {} tso on gso on`), one offload at a time, at both ends, and compare the throughput",
                end.interface
            ))
            .with(factor(
                "segmentation offload on",
                end,
                "features = { tx-tcp-segmentation = \"on\", tx-generic-segmentation = \"on\" }",
            )),
        )
        .see(format!("{} is off, but the driver supports it", end.offloads_off.join(" and ")), format!("ethtool -k {}", end.interface))
        .see(format!("frames sent have {size:.0} bytes on average, at {}", bits(sent)), format!("counters of {}", end.interface))
        .see(format!("the busiest CPU is busy, or taken by the hypervisor, {} of the time", percent(busy)), "/proc/stat");
        Some(match one_side {
            true => hit.see("at the other end it is on", "ethtool -k"),
            false => hit,
        })
    })
}

/// Suspects offloads that are on, because some drivers have bugs in them. For a recording without traffic. The FreeBSD
/// thread advises turning offloads off on both sides, and then back on one at a time.
fn offloads_in_doubt(case: &Case, end: &End) -> Option<Hit> {
    if end.offloads_on.is_empty() || !case.symptom.is_slow() {
        return None;
    }
    let hit = Hit::new(
        45.0,
        Some(end),
        format!("Offloads with bugs in some drivers are on: {}", end.offloads_on.join(", ")),
        Experiment::text(
            "switch all of them off at both ends (`ifconfig IF -tso4 -tso6 -lro -rxcsum -txcsum`), measure, then switch them on one at a time",
        ),
    );
    Some(hit.see(end.offloads_on.join(", "), format!("ifconfig {}", end.interface)))
}

fn shaper(case: &Case) -> Option<Hit> {
    case.worst(|end, _| {
        let (kind, rate, held) = end.shaper.clone()?;
        let often = held / end.length_s.max(f64::MIN_POSITIVE);
        let what = rate.map_or_else(
            || format!("the queueing discipline {kind}"),
            |rate| format!("{kind}, which allows {}", bits(rate)),
        );
        Some(
            Hit::new(
                94.0 * grade(often, 1.0, 20.0),
                Some(end),
                format!("A traffic shaper delays packets that {} sends: {what}", end.interface),
                Experiment::text(format!(
                    "replace it (`tc qdisc replace dev {} root fq_codel`), measure, and restore it",
                    end.interface
                )),
            )
            .see(
                format!("it delayed packets {often:.0} times per second"),
                format!("tc -s qdisc show dev {}: overlimits", end.interface),
            ),
        )
    })
}
