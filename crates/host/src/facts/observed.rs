//! What was seen of packets in flight while a load ran: sockets, queueing disciplines and NAPI instances, sampled many
//! times between the two readings of the counters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was seen during an interval. A snapshot that was taken with `--watch` has it as `commands/apus_observed`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    /// The time from the first to the last sample.
    pub length_ns: u64,
    /// Number of samples of the sockets.
    pub samples: u32,
    /// Sockets that existed in at least two samples and moved data, and connected UDP sockets, the busiest first; connections within the host are
    /// left out.
    pub sockets: Vec<SocketSeen>,
    /// Why there are no sockets. `None` if they were read.
    pub sockets_unknown: Option<String>,
    /// Queueing disciplines by interface.
    pub qdiscs: BTreeMap<String, Vec<QdiscSeen>>,
    /// NAPI instances, in the order of interfaces and of their numbers, which is that of the queues.
    pub napis: Vec<NapiSeen>,
    /// Why there are no NAPI instances. `None` if they were watched.
    pub napis_unknown: Option<String>,
}

/// One socket.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketSeen {
    /// `tcp` or `udp`.
    pub transport: String,
    /// Its port here.
    pub local_port: u16,
    /// The port at the other end; 0 if it is not connected.
    pub remote_port: u16,
    /// The process that has it. `None` if it was not found.
    pub pid: Option<u32>,
    /// Number of samples in which it was seen.
    pub samples: u32,
    /// Mean number of bytes that were received and not read yet.
    pub rx_queue_mean_bytes: f64,
    /// Share of samples in which at least half of the receive buffer was in use.
    pub rx_half_full_share: Option<f64>,
    /// The limit of the receive buffer at the end, with the kernel's overhead.
    pub receive_limit_bytes: Option<u64>,
    /// The limit of the send buffer at the end, with the kernel's overhead.
    pub send_limit_bytes: Option<u64>,
    /// Mean memory of packets that were given to queueing discipline and driver, and not reported as sent.
    pub in_transmission_mean_bytes: Option<f64>,
    /// Datagrams or segments that the socket dropped.
    pub drops: Option<u64>,
    /// TCP: what the connection did. `None` for UDP.
    pub tcp: Option<TcpSeen>,
}

/// What a TCP connection did. A field is `None` if the kernel did not tell.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpSeen {
    /// Mean of the smoothed round-trip time.
    pub rtt_mean_us: Option<f64>,
    /// The shortest round-trip time that the kernel remembers.
    pub min_rtt_us: Option<u64>,
    /// The largest segment that it sends.
    pub send_mss_bytes: Option<u64>,
    /// Segments sent, with and without data.
    pub segments_out: Option<u64>,
    /// Segments with data sent.
    pub data_segments_out: Option<u64>,
    /// Segments with data received.
    pub data_segments_in: Option<u64>,
    /// Segments sent again.
    pub retransmitted: Option<u64>,
    /// Bytes sent and acknowledged.
    pub bytes_acked: Option<u64>,
    /// Bytes received.
    pub bytes_received: Option<u64>,
    /// Time with data to send.
    pub busy_us: Option<u64>,
    /// Time in which the other end's window stopped the sender.
    pub rwnd_limited_us: Option<u64>,
    /// Time in which its own send buffer stopped the sender.
    pub sndbuf_limited_us: Option<u64>,
    /// Mean window that the other end offered.
    pub send_window_mean_bytes: Option<f64>,
    /// Mean window that this end offered.
    pub receive_window_mean_bytes: Option<f64>,
}

/// One queueing discipline.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QdiscSeen {
    /// Its kind: `fq_codel`, `netem`, `tbf`.
    pub kind: String,
    /// Packets that it passed on.
    pub packets: Option<u64>,
    /// Packets that it dropped.
    pub drops: Option<u64>,
    /// How often it held packets back.
    pub overlimits: Option<u64>,
    /// Mean number of bytes that waited in it.
    pub backlog_mean_bytes: Option<f64>,
    /// The delay that `netem` adds.
    pub netem_delay_ns: Option<u64>,
    /// The share of packets that `netem` drops.
    pub netem_loss_ppm: Option<u32>,
    /// The rate that `tbf` allows.
    pub tbf_bps: Option<u64>,
}

/// One NAPI instance.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NapiSeen {
    /// The interface.
    pub interface: String,
    /// Its place among those of the interface, from 0.
    pub place: u32,
    /// The number of its interrupt. `None` if it has none.
    pub irq: Option<u32>,
    /// The number of its thread. `None` if softirqs poll it.
    pub thread: Option<u32>,
    /// Packets received.
    pub packets: u64,
    /// Polls.
    pub polls: u64,
    /// Polls that left packets waiting.
    pub full_polls: u64,
    /// Median time from the poll to the application's read. `None` if too few packets were measured.
    pub delay_p50_ns: Option<u64>,
    /// 99th percentile of that time. `None` with fewer than 368 measured packets.
    pub delay_p99_ns: Option<u64>,
    /// NAPI deferral in force: the time for which it holds packets.
    pub gro_flush_timeout_ns: Option<u64>,
    /// NAPI deferral in force: 0 is off.
    pub defer_hard_irqs: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_with_an_unknown_key_is_refused() {
        let text = serde_json::to_string(&Observed { samples: 3, ..Observed::default() }).unwrap();
        assert_eq!(serde_json::from_str::<Observed>(&text).unwrap().samples, 3);
        assert!(serde_json::from_str::<Observed>(&text.replace("samples", "sample")).is_err());
    }
}
