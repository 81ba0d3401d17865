//! Causes in the applications and their sockets.

use super::super::{Case, End, Experiment, Hit, PossibleCause, Socket, grade};
use super::{bits, bytes, percent, time};

pub(super) const CAUSES: &[PossibleCause] = &[
    PossibleCause {
        id: "slow-app",
        why: "The receiving application reads more slowly than data arrives, so its receive buffer is full. Over TCP, the window \
              closes and the sender waits. Over UDP, the kernel drops datagrams.",
        reference: "tcp(7); udp(7), UdpRcvbufErrors",
        judge: slow_app,
    },
    PossibleCause {
        id: "buffer",
        why: "The application is fast enough, but the socket buffer is too small. A TCP sender must stop if a buffer holds less than \
              is sent in one round trip. The kernel drops UDP datagrams if a burst does not fit the receive buffer.",
        reference: "tcp(7), tcp_rmem, tcp_wmem; socket(7), SO_RCVBUF",
        judge: buffer,
    },
];

/// Size in bytes below which a receive buffer counts as small. It is less than the kernel's defaults: 128 KiB for TCP
/// (tcp(7), tcp_rmem) and 208 KiB for UDP.
const SMALL_BUFFER: f64 = 98_304.0;

/// The sockets of `end`, each with the socket at the other end of the connection if it is known.
fn pairs<'a>(end: &'a End, peer: Option<&'a End>) -> impl Iterator<Item = (&'a Socket, Option<&'a Socket>)> {
    end.sockets.iter().map(move |socket| {
        let of_peer = peer.and_then(|peer| {
            peer.sockets.iter().find(|other| {
                socket.remote_port != 0
                    && other.transport == socket.transport
                    && (other.local_port, other.remote_port) == (socket.remote_port, socket.local_port)
            })
        });
        (socket, of_peer)
    })
}

fn best(hits: impl Iterator<Item = Hit>) -> Option<Hit> {
    hits.max_by_key(|hit| hit.likelihood_percent)
}

fn slow_app(case: &Case) -> Option<Hit> {
    case.worst(|end, peer| {
        best(pairs(end, peer).filter_map(|(socket, sender)| {
            let (full, limit) = (socket.half_full?, socket.receive_limit?);
            let limited = sender.and_then(|sender| sender.window_limited);
            // The evidence: at the other end, TCP waits for the window; or at this end, datagrams are dropped.
            let mark = match socket.transport.as_str() {
                "tcp" => limited.map_or(0.7, |share| 0.4 + 0.6 * grade(share, 0.05, 0.3)),
                _ => grade(socket.drops, 0.0, 20.0),
            };
            // A small buffer is full quickly, however fast the reader is.
            let size = grade(limit, SMALL_BUFFER / 2.0, SMALL_BUFFER);
            let app = socket.process.as_ref();
            let who = app.map_or_else(|| format!("the receiver on port {}", socket.local_port), |(name, _, _)| name.clone());
            let work = app.map(|(_, share, _)| match share {
                share if *share >= 0.8 => format!("{who} uses {} of a CPU: it is limited by its own computation", percent(*share)),
                share => format!("{who} uses {} of a CPU: it mostly waits for something else", percent(*share)),
            });
            let mut hit = Hit::new(
                97.0 * grade(full, 0.2, 0.5) * mark * size,
                Some(end),
                format!("{who} reads more slowly than data arrives: its receive buffer is at least half full for {} of the time", percent(full)),
                Experiment::text("profile the application (`perf top -p PID`, or `strace -c -p PID` if it waits); or replace it with a receiver that discards the data (`iperf3 -s`), and compare"),
            )
            .see(
                format!("port {}: on average {} wait in the receive buffer of {}", socket.local_port, bytes(socket.rx_queue), bytes(limit)),
                "sock_diag",
            );
            if let Some(work) = work {
                hit = hit.see(work, "/proc/PID/task/TID/stat");
            }
            if let Some(limited) = limited {
                hit = hit.see(format!("the sender waits for the receiver's window for {} of the time", percent(limited)), "tcp_info, tcpi_rwnd_limited");
            }
            // TCP counts duplicates as drops.
            if socket.drops > 0.0 && socket.transport == "udp" {
                hit = hit.see(format!("{:.0} datagrams dropped in {:.1} s", socket.drops, end.length_s), "sock_diag, SK_MEMINFO_DROPS");
            }
            Some(hit)
        }))
    })
}

fn buffer(case: &Case) -> Option<Hit> {
    case.worst(|end, peer| {
        best(pairs(end, peer).filter_map(|(socket, other)| receive_buffer(end, socket, other)).chain(send_buffers(end)))
    })
}

fn receive_buffer(end: &End, socket: &Socket, sender: Option<&Socket>) -> Option<Hit> {
    let (full, limit) = (socket.half_full?, socket.receive_limit?);
    let small = grade(limit, 2.0 * SMALL_BUFFER, SMALL_BUFFER);
    let experiment = || {
        Experiment::text(
            "set a larger SO_RCVBUF on the socket, or do not set it, so that the kernel chooses the size (net.ipv4.tcp_rmem, net.core.rmem_default); measure again",
        )
    };
    if socket.transport == "udp" {
        // If the reader is too slow, even a large buffer is always full.
        let reads = 1.0 - grade(full, 0.3, 0.8) * (1.0 - small);
        let hit = Hit::new(
            96.0 * grade(socket.drops, 0.0, 20.0) * reads * (0.55 + 0.45 * small),
            Some(end),
            format!(
                "The receive buffer of port {} ({}) is too small for bursts: {:.0} datagrams dropped",
                socket.local_port,
                bytes(limit),
                socket.drops
            ),
            experiment(),
        );
        return Some(
            hit.see(
                format!("{:.0} datagrams dropped in {:.1} s", socket.drops, end.length_s),
                "sock_diag, SK_MEMINFO_DROPS",
            )
            .see(format!("the buffer is at least half full for only {} of the time", percent(full)), "sock_diag"),
        );
    }
    let sender = sender?;
    let (limited, window) = (sender.window_limited?, sender.send_window?);
    let rtt = sender.rtt_us.filter(|rtt| *rtt > 0.0)?;
    let ceiling = window * 8.0 / rtt * 1e6;
    // On a short path, the window opens again before the sender notices that it has to wait. Then arithmetic shows that
    // the window is always full: the sender always has data, and sends one window per round trip.
    let full_window = sender.sent_bps.unwrap_or(0.0) / ceiling;
    let filled = grade(full_window, 0.5, 0.8) * grade(sender.busy.unwrap_or(0.0), 0.5, 0.9);
    let hit = Hit::new(
        97.0 * grade(limited, 0.05, 0.3).max(filled) * small,
        Some(end),
        format!(
            "The receive buffer of port {} ({}) is too small for one round trip of data",
            socket.local_port,
            bytes(limit)
        ),
        experiment(),
    );
    Some(
        hit.see(
            format!("the sender waits for the receiver's window for {} of the time", percent(limited)),
            "tcp_info, tcpi_rwnd_limited",
        )
        .see(
            format!(
                "a window of {} per round trip of {} allows about {}; the sender reaches {}",
                bytes(window),
                time(rtt),
                bits(ceiling),
                bits(sender.sent_bps.unwrap_or(0.0))
            ),
            "tcp_info, tcpi_snd_wnd, tcpi_bytes_acked; arithmetic",
        )
        .see(format!("the buffer's limit is {}", bytes(limit)), "sock_diag, SK_MEMINFO_RCVBUF"),
    )
}

fn send_buffers(end: &End) -> impl Iterator<Item = Hit> {
    end.tcp().filter_map(|socket| {
        let (limited, limit, rtt) = (socket.sndbuf_limited?, socket.send_limit?, socket.rtt_us?);
        let hit = Hit::new(
            95.0 * grade(limited, 0.1, 0.4) * grade(limit, 2.0 * SMALL_BUFFER, SMALL_BUFFER),
            Some(end),
            format!("The send buffer of port {} ({}) is too small for one round trip of data", socket.local_port, bytes(limit)),
            Experiment::text("set a larger SO_SNDBUF on the socket, or do not set it, so that the kernel chooses the size (net.ipv4.tcp_wmem); measure again"),
        );
        Some(
            hit.see(format!("the sender waits for space in its send buffer for {} of the time", percent(limited)), "tcp_info, tcpi_sndbuf_limited")
                .see(format!("{} per round trip of {} allows at most {}", bytes(limit), time(rtt), bits(limit * 8.0 / rtt * 1e6)), "arithmetic"),
        )
    })
}
