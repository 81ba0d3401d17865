//! Observations made under load: sockets, queueing disciplines and NAPI instances, sampled many times between the two
//! readings of the counters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was observed during an interval. Snapshots taken with `--watch` contain it as `commands/apus_observed`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    /// The time from the first to the last sample, in nanoseconds.
    pub length_ns: u64,
    /// Number of samples of the sockets.
    pub samples: u32,
    /// Sockets that existed in at least two samples and transferred, queued or dropped data, and connected UDP sockets;
    /// the busiest first. Connections within the host are left out.
    pub sockets: Vec<SocketSeen>,
    /// Why the sockets are unknown. `None` if they were read.
    pub sockets_unknown: Option<String>,
    /// Queueing disciplines by interface.
    pub qdiscs: BTreeMap<String, Vec<QdiscSeen>>,
    /// NAPI instances, sorted by interface and ID, so that they are in the order of the queues.
    pub napis: Vec<NapiSeen>,
    /// Why the NAPI instances are unknown. `None` if they were observed.
    pub napis_unknown: Option<String>,
}

/// A socket, as observed during an interval.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketSeen {
    /// Transport protocol: `tcp` or `udp`.
    pub transport: String,
    /// Local port.
    pub local_port: u16,
    /// Remote port; 0 if the socket is not connected.
    pub remote_port: u16,
    /// Process that has the socket open. `None` if it was not found.
    pub pid: Option<u32>,
    /// Number of samples that contain the socket.
    pub samples: u32,
    /// Mean number of bytes waiting in the receive queue for the application to read.
    pub rx_queue_mean_bytes: f64,
    /// Share of samples, from 0 to 1, in which at least half of the receive buffer was in use. `None` if unknown.
    pub rx_half_full_share: Option<f64>,
    /// Size limit of the receive buffer at the last sample, in bytes, including the kernel's overhead. `None` if
    /// unknown.
    pub receive_limit_bytes: Option<u64>,
    /// Size limit of the send buffer at the last sample, in bytes, including the kernel's overhead. `None` if unknown.
    pub send_limit_bytes: Option<u64>,
    /// Mean memory, in bytes, of the packets on their way from the socket to the driver's transmit completion. `None`
    /// if unknown.
    pub in_transmission_mean_bytes: Option<f64>,
    /// Minimum memory, in bytes, of the packets on their way from the socket to the driver's transmit completion. Only
    /// samples with a data packet in transmission count, so this is usually the memory of one packet. `None` if there
    /// was no such sample, or if the recording was made by an older version.
    #[serde(default)]
    pub in_transmission_least_bytes: Option<u64>,
    /// Number of datagrams or segments that the socket dropped. `None` if unknown.
    pub drops: Option<u64>,
    /// Values of the TCP connection. `None` for UDP.
    pub tcp: Option<TcpSeen>,
}

/// Values of a TCP connection. A field is `None` if the kernel did not report it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpSeen {
    /// Mean of the smoothed round-trip time, in microseconds.
    pub rtt_mean_us: Option<f64>,
    /// The kernel's minimum round-trip time (`tcpi_min_rtt`), in microseconds.
    pub min_rtt_us: Option<u64>,
    /// Maximum segment size when sending, in bytes.
    pub send_mss_bytes: Option<u64>,
    /// Segments sent, with and without data.
    pub segments_out: Option<u64>,
    /// Segments with data sent.
    pub data_segments_out: Option<u64>,
    /// Segments with data received.
    pub data_segments_in: Option<u64>,
    /// Retransmitted segments.
    pub retransmitted: Option<u64>,
    /// Bytes sent and acknowledged by the receiver.
    pub bytes_acked: Option<u64>,
    /// Bytes received.
    pub bytes_received: Option<u64>,
    /// Time during which the connection had data to send, in microseconds.
    pub busy_us: Option<u64>,
    /// Time during which the receiver's window stopped the sender, in microseconds.
    pub rwnd_limited_us: Option<u64>,
    /// Time during which the send buffer stopped the sender, in microseconds.
    pub sndbuf_limited_us: Option<u64>,
    /// Mean window that the remote end offered, in bytes.
    pub send_window_mean_bytes: Option<f64>,
    /// Mean window that this host offered, in bytes.
    pub receive_window_mean_bytes: Option<f64>,
}

/// A queueing discipline, as observed during an interval.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QdiscSeen {
    /// Kind, such as `fq_codel`, `netem` or `tbf`.
    pub kind: String,
    /// Number of packets that the queueing discipline sent.
    pub packets: Option<u64>,
    /// Number of packets that the queueing discipline dropped.
    pub drops: Option<u64>,
    /// Number of times that the queueing discipline delayed packets.
    pub overlimits: Option<u64>,
    /// Mean number of bytes in the queue.
    pub backlog_mean_bytes: Option<f64>,
    /// The delay that `netem` adds, in nanoseconds. `None` for other kinds.
    pub netem_delay_ns: Option<u64>,
    /// The share of packets that `netem` drops, in ppm. `None` for other kinds.
    pub netem_loss_ppm: Option<u32>,
    /// The rate that `tbf` allows, in bit/s. `None` for other kinds.
    pub tbf_bps: Option<u64>,
}

/// A NAPI instance, as observed during an interval.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NapiSeen {
    /// The name of the NAPI instance's interface.
    pub interface: String,
    /// Index of the NAPI instance on its interface, from 0.
    pub place: u32,
    /// Number of the interrupt that schedules the NAPI instance. `None` if there is none.
    pub irq: Option<u32>,
    /// Number of the kernel thread that polls the NAPI instance. `None` if softirqs poll it.
    pub thread: Option<u32>,
    /// Number of packets that the NAPI instance received.
    pub packets: u64,
    /// Number of polls of the NAPI instance.
    pub polls: u64,
    /// Number of polls that used their whole budget, so packets may have been left in the queue.
    pub full_polls: u64,
    /// Median time from the poll that received a packet to the application's read, in nanoseconds. `None` if no packet
    /// was measured.
    pub delay_p50_ns: Option<u64>,
    /// 99th percentile of the time from the poll that received a packet to the application's read, in nanoseconds.
    /// `None` with fewer than 368 measured packets.
    pub delay_p99_ns: Option<u64>,
    /// The `gro_flush_timeout` of the NAPI instance, in nanoseconds: how long its interrupts stay deferred at most.
    /// `None` if unknown.
    pub gro_flush_timeout_ns: Option<u64>,
    /// Number of empty polls for which the interrupts of the NAPI instance stay deferred (`defer_hard_irqs`). 0 means
    /// off. `None` if unknown.
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
