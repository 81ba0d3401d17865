//! Rules on sockets: UDP buffers and TCP settings.

use host::Facts;
use units::Nanos;

use crate::rules::interfaces::span;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Workload, known};

const IP: &str = "Linux Documentation/networking/ip-sysctl.rst";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "net.udp-drops",
        cause: Cause::NetworkStack,
        title: "No datagram was dropped from a full socket",
        applies: Applies::LINUX,
        judge: overruns,
        why: "A datagram is lost when its socket's buffer is full: the application was away for longer than the buffer \
         lasts.",
        magnitude: Magnitude::untimed(
            "a lost packet",
            "Linux include/uapi/linux/snmp.h, UDP_MIB_RCVBUFERRORS; net/ipv4/udp.c counts it where a datagram is dropped",
        ),
        fix: Fix::both(
            "sysctl -w net.core.rmem_max=16777216 # and SO_RCVBUF in the application",
            "net.core.rmem_max = 16777216 in /etc/sysctl.d",
        )
        .decided(),
        cost: "Data can wait longer in a longer buffer.",
        references: &[
            "Linux include/uapi/linux/snmp.h, UDP_MIB_RCVBUFERRORS",
            "GitHub padalan/latency-audit",
            "socket(7), SO_RCVBUF",
        ],
    },
    Rule {
        id: "net.tcp-slow-start",
        cause: Cause::NetworkStack,
        title: "TCP keeps its window after a pause",
        applies: Applies::LINUX.to(&[Workload::Interrupt]),
        judge: slow_start,
        why: "After a pause as long as a retransmission timeout, TCP starts again with a small window. The first large \
              message then takes several round trips.",
        magnitude: Magnitude::untimed(
            "one round trip for each doubling of the window, which starts at 10 segments",
            "RFC 2861; RFC 6928 (initial window)",
        ),
        fix: Fix::runtime("sysctl -w net.ipv4.tcp_slow_start_after_idle=0")
            .against(&["RFC 2861: the old window is no longer valid after a pause"]),
        cost: "After a pause, TCP may send a burst into a path that has become narrower.",
        references: &[IP, "GitHub nawaz1991/lltune"],
    },
    Rule {
        id: "net.tcp-autocorking",
        cause: Cause::NetworkStack,
        title: "TCP sends small messages at once",
        applies: Applies::LINUX.to(&[Workload::Interrupt]),
        judge: corking,
        why: "With automatic corking, TCP holds a small write back to join it with the next one, as long as an earlier \
         packet of the flow is still in the host's queue or in the card.",
        magnitude: Magnitude::late(
            Nanos::from_micros(50),
            "until the card reports that the earlier packet was sent: up to its tx-usecs, 50 us by default with i40e",
            "Linux Documentation/networking/ip-sysctl.rst, tcp_autocorking; the default is from drivers/net/ethernet/intel/i40e",
        ),
        fix: Fix::runtime("sysctl -w net.ipv4.tcp_autocorking=0").against(&["Linux by default: on"]),
        cost: "TCP sends more and smaller packets.",
        references: &[IP, "GitHub nawaz1991/lltune"],
    },
    Rule {
        id: "net.stale-sysctls",
        cause: Cause::Obsolete,
        title: "No sysctl is set that no longer does anything",
        applies: Applies::LINUX,
        judge: stale,
        why: "net.ipv4.tcp_low_latency has had no effect since Linux 4.14 (the prequeue that it switched off is gone). \
              A profile that sets it promises an effect that it does not have.",
        magnitude: Magnitude::untimed(
            "nothing: the setting has no effect",
            "Linux Documentation/networking/ip-sysctl.rst, tcp_low_latency: a legacy option without effect",
        ),
        fix: Fix::runtime("sysctl -w net.ipv4.tcp_low_latency=0"),
        cost: "None.",
        references: &[IP],
    },
];

fn overruns(facts: &Facts, _: &Context) -> Judged {
    let interval = facts.interval.value().filter(|interval| interval.length > Nanos::ZERO);
    let fact = interval.map_or(&facts.counters.snmp, |interval| &interval.change.snmp);
    let counts = known(fact)?;
    let lost = counts
        .get("Udp.RcvbufErrors")
        .copied()
        .ok_or_else(|| Skip::unknown(format!("{}: no Udp.RcvbufErrors", fact.source())))?;
    let span = span(interval.map(|interval| interval.length));
    let judgement = match lost {
        0 => Judgement::pass(format!("no socket overflowed {span}")),
        n => Judgement::warn(format!("{n} datagrams were dropped because their socket's buffer was full {span}")),
    };
    judgement
        .see_as(format!("Udp RcvbufErrors {lost}"), fact.source())
        .see(&facts.sysctl_number("net.core.rmem_max"))
        .alone()
}

fn slow_start(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.sysctl_number("net.ipv4.tcp_slow_start_after_idle");
    let judgement = match *known(&fact)? {
        0 => Judgement::pass("the window stays as it is"),
        _ => Judgement::warn("after a pause, TCP sends with a small window again"),
    };
    judgement.see(&fact).alone()
}

fn corking(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.sysctl_number("net.ipv4.tcp_autocorking");
    let judgement = match *known(&fact)? {
        0 => Judgement::pass("small writes are sent at once"),
        _ => Judgement::warn(
            "automatic corking is on: a small write may wait until the previous packet of its flow is sent",
        ),
    };
    judgement.see(&fact).alone()
}

fn stale(facts: &Facts, _: &Context) -> Judged {
    let fact = facts.sysctl_number("net.ipv4.tcp_low_latency");
    let judgement = match *known(&fact)? {
        0 => Judgement::pass("tcp_low_latency is not set"),
        _ => Judgement::warn("tcp_low_latency is set but has no effect"),
    };
    judgement.see(&fact).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::Workload;
    use crate::testing::{Case, Host, host};

    fn udp(lost: u64) -> Host {
        host().file(
            "/proc/net/snmp",
            &format!(
                "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 9 0 {lost} 9 {lost} 0\n"
            ),
        )
    }

    fn tcp(name: &str, text: &str) -> Host {
        bare().file(&format!("/proc/sys/net/ipv4/{name}"), text)
    }

    fn bare() -> Host {
        host().workload(Workload::Interrupt)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("net.udp-drops", || udp(0)),
        Case::warn("net.udp-drops", || udp(4)),
        Case::unknown("net.udp-drops", bare),
        Case::pass("net.tcp-slow-start", || tcp("tcp_slow_start_after_idle", "0\n")),
        Case::warn("net.tcp-slow-start", || tcp("tcp_slow_start_after_idle", "1\n")),
        Case::unknown("net.tcp-slow-start", bare),
        Case::pass("net.tcp-autocorking", || tcp("tcp_autocorking", "0\n")),
        Case::warn("net.tcp-autocorking", || tcp("tcp_autocorking", "1\n")),
        Case::unknown("net.tcp-autocorking", bare),
        Case::pass("net.stale-sysctls", || tcp("tcp_low_latency", "0\n")),
        Case::warn("net.stale-sysctls", || tcp("tcp_low_latency", "1\n")),
        Case::unknown("net.stale-sysctls", bare),
    ];
}
