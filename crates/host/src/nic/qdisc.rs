//! Queueing disciplines with their counters, and the settings of the disciplines that delay or drop packets on purpose
//! (include/uapi/linux/rtnetlink.h, pkt_sched.h, gen_stats.h).

use super::message::{Attributes, Message};
use super::socket::{Socket, Wants};
use super::{Client, Error, Interface};

const RTM_GETQDISC: u16 = 38;
/// Size of `struct tcmsg` in bytes: family, padding, ifindex, handle, parent, info.
const TCMSG: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
/// Size of `struct tc_netem_qopt` in bytes. Attributes follow it.
const NETEM_QOPT: usize = 24;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;

/// A queueing discipline of an interface, with its counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Qdisc {
    /// Kind, such as `fq_codel`, `netem` or `tbf`.
    pub kind: String,
    /// Whether this is the root queueing discipline of its interface.
    pub root: bool,
    /// Number of bytes that the queueing discipline sent.
    pub bytes: Option<u64>,
    /// Number of packets that the queueing discipline sent.
    pub packets: Option<u64>,
    /// Number of bytes in the queue. `None` if the kernel does not report it.
    pub backlog_bytes: Option<u32>,
    /// Number of packets that the queueing discipline dropped.
    pub drops: Option<u32>,
    /// How often the queueing discipline delayed packets.
    pub overlimits: Option<u32>,
    /// Settings of `netem`. `None` for other kinds.
    pub netem: Option<Netem>,
    /// The rate that `tbf` allows, in bit/s. `None` for other kinds.
    pub tbf_bps: Option<u64>,
}

/// The delays and losses that `netem` adds on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Netem {
    /// Delay of each packet, in ns. `None` before Linux 4.15, which reports the delay only in clock ticks.
    pub delay_ns: Option<u64>,
    /// Variation of the delay, in ns. `None` before Linux 4.15.
    pub jitter_ns: Option<u64>,
    /// Share of packets to drop (netem `loss`), in parts per million.
    pub loss_ppm: u32,
}

impl Client {
    /// The queueing disciplines of an interface.
    pub fn qdiscs(&mut self, interface: &Interface) -> Result<Vec<Qdisc>, Error> {
        let mut own = [0; TCMSG];
        own[4..8].copy_from_slice(&interface.index().to_ne_bytes());
        let mut all = Vec::new();
        let socket = match &mut self.route {
            Some(socket) => socket,
            none => none.insert(Socket::route()?),
        };
        let asked = socket.request(&mut Message::new(&own), RTM_GETQDISC, Wants::Each, |body| {
            // Kernels before 4.20 list the queueing disciplines of all interfaces.
            if word(body, 4) == Some(interface.index()) {
                all.extend(qdisc(body));
            }
        });
        if matches!(asked, Err(Error::System(_))) {
            self.route = None;
        }
        asked.map(|()| all)
    }
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn qdisc(body: &[u8]) -> Option<Qdisc> {
    let said = Attributes(body.get(TCMSG..)?);
    let kind = said.text(TCA_KIND)?;
    let stats = said.nest(TCA_STATS2).unwrap_or(Attributes(&[]));
    let basic = stats.find(TCA_STATS_BASIC).unwrap_or_default();
    let queue = stats.find(TCA_STATS_QUEUE).unwrap_or_default();
    let options = said.find(TCA_OPTIONS).unwrap_or_default();
    Some(Qdisc {
        // TC_H_ROOT
        root: word(body, 12) == Some(u32::MAX),
        bytes: basic.first_chunk().map(|octets| u64::from_ne_bytes(*octets)),
        packets: stats.number(TCA_STATS_PKT64).or_else(|| word(basic, 8).map(u64::from)),
        backlog_bytes: word(queue, 4),
        drops: word(queue, 8),
        overlimits: word(queue, 16),
        netem: (kind == "netem").then(|| netem(options)).flatten(),
        tbf_bps: (kind == "tbf").then(|| tbf(options)).flatten(),
        kind,
    })
}

/// Parses `struct tc_netem_qopt` {latency, limit, loss, gap, duplicate, jitter} and the attributes after it. A loss of
/// 2^32 - 1 means all packets.
fn netem(options: &[u8]) -> Option<Netem> {
    let loss = u64::from(word(options, 8)?) * 1_000_000 / u64::from(u32::MAX);
    let more = Attributes(options.get(NETEM_QOPT..)?);
    Some(Netem {
        delay_ns: more.number(TCA_NETEM_LATENCY64),
        jitter_ns: more.number(TCA_NETEM_JITTER64),
        loss_ppm: loss as u32,
    })
}

/// Parses the rate of `tbf`, in bit/s: from its 64-bit attribute, or else from `struct tc_tbf_qopt`, which begins with
/// `struct tc_ratespec`. The last word of `struct tc_ratespec` is the rate in bytes per second.
fn tbf(options: &[u8]) -> Option<u64> {
    let said = Attributes(options);
    let small = said.find(TCA_TBF_PARMS).and_then(|parms| word(parms, 8)).map(u64::from);
    said.number(TCA_TBF_RATE64).or(small).map(|bytes| bytes * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as the kernel writes it (net/sched/sch_netem.c, `netem_dump`): 5 ms delay, 1 ms jitter, 2 % loss.
    #[test]
    fn netem_says_what_it_does_to_packets() {
        let mut own = [0; TCMSG];
        own[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        let mut message = Message::new(&own);
        message.text(TCA_KIND, "netem");
        let loss = (f64::from(u32::MAX) * 0.02) as u32;
        let mut options: Vec<u8> =
            [78_125, 1000, loss, 0, 0, 15_625].iter().flat_map(|n: &u32| n.to_ne_bytes()).collect();
        let mut more = Message::new(&[]);
        more.attribute(TCA_NETEM_LATENCY64, &5_000_000_u64.to_ne_bytes());
        more.attribute(TCA_NETEM_JITTER64, &1_000_000_u64.to_ne_bytes());
        options.extend(&more.sealed(0, 0, 0)[super::super::message::HEAD..]);
        message.attribute(TCA_OPTIONS, &options);
        message.nest(TCA_STATS2, |stats| {
            stats.attribute(
                TCA_STATS_QUEUE,
                &[3_u32, 4500, 17, 0, 2].iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<_>>(),
            );
        });
        let octets = message.sealed(0, 0, 0)[super::super::message::HEAD..].to_vec();
        let read = qdisc(&octets).unwrap();
        let netem = read.netem.unwrap();
        assert_eq!((netem.delay_ns, netem.jitter_ns), (Some(5_000_000), Some(1_000_000)));
        assert!((19_990..=20_000).contains(&netem.loss_ppm), "{netem:?}");
        assert!(read.root && read.packets.is_none());
        assert_eq!((read.backlog_bytes, read.drops, read.overlimits), (Some(4500), Some(17), Some(2)));
        for length in 0..octets.len() {
            let _ = qdisc(&octets[..length]);
        }
    }

    #[test]
    fn the_loopback_has_a_discipline() {
        let mut client = Client::new();
        let loopback = client.interface("lo").unwrap();
        // Only newer kernels list `noqueue`. Every listed queueing discipline has a kind.
        assert!(client.qdiscs(&loopback).unwrap().iter().all(|qdisc| !qdisc.kind.is_empty()));
    }
}
