//! The state of TCP and UDP sockets, from the netlink family `sock_diag` (sock_diag(7),
//! include/uapi/linux/inet_diag.h).
//!
//! A query of all sockets takes one send, and one receive for about every 60 sockets. It lists the sockets in the
//! network namespace of the thread that first used the client.

use super::message::{Attributes, Message};
use super::socket::{Socket, Wants};
use super::{Client, Error};

/// Type of the requests: `SOCK_DIAG_BY_FAMILY` (include/uapi/linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// Size of `struct inet_diag_req_v2` in bytes.
const REQUEST: usize = 56;
const ANSWER: usize = 72;
/// Number of the extension `INET_DIAG_INFO`. Bit N - 1 of a request asks for the extension with number N.
const INFO: u16 = 2;
const SKMEMINFO: u16 = 7;
/// First of the states in which a TCP socket can transfer data. They go from TCP_ESTABLISHED to TCP_CLOSING, without
/// LISTEN, TIME_WAIT and similar ones (include/net/tcp_states.h).
const ESTABLISHED: u32 = 1;
const CLOSE_WAIT: u32 = 8;

units::named! {
    /// Transport protocol of a socket.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Transport {
        /// Transmission Control Protocol.
        Tcp = "tcp",
        /// User Datagram Protocol.
        Udp = "udp",
    }
}

/// The state of one socket at the time of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketState {
    /// Transport protocol of the socket.
    pub transport: Transport,
    /// A number that is unique among all sockets until the next boot.
    pub cookie: u64,
    /// Inode of the socket, which `/proc/PID/fd` shows as `socket:[INODE]`. 0 if no process has the socket open.
    pub inode: u32,
    /// Local port.
    pub local_port: u16,
    /// Remote port. 0 if the socket is not connected.
    pub remote_port: u16,
    /// Whether both ends of the connection are on this host, according to their addresses.
    pub loopback: bool,
    /// Number of bytes waiting in the receive queue for the application to read.
    pub rx_queue_bytes: u32,
    /// Number of bytes that the application wrote and that were not yet acknowledged (TCP) or sent (UDP).
    pub tx_queue_bytes: u32,
    /// Memory of the socket. `None` if the kernel did not report it.
    pub memory: Option<SocketMemory>,
    /// The state of the TCP connection. `None` for UDP.
    pub tcp: Option<TcpInfo>,
}

/// The memory of a socket in bytes, including the kernel's overhead for each packet (`SK_MEMINFO_*`, net/core/sock.c,
/// `sk_get_meminfo`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct SocketMemory {
    pub received: u32,
    pub receive_limit: u32,
    /// Memory, in bytes, of the packets on their way from the socket to the driver's transmit completion.
    pub in_transmission: u32,
    pub send_limit: u32,
    /// Number of packets dropped because the receive buffer was full.
    pub drops: u32,
}

/// The state of a TCP connection (`struct tcp_info` of include/uapi/linux/tcp.h). A field is `None` if the kernel is
/// too old to report it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct TcpInfo {
    pub rtt_us: Option<u32>,
    pub min_rtt_us: Option<u32>,
    pub send_mss: Option<u32>,
    pub receive_mss: Option<u32>,
    /// Number of retransmitted segments.
    pub total_retrans: Option<u32>,
    pub segments_out: Option<u32>,
    pub segments_in: Option<u32>,
    pub data_segments_out: Option<u32>,
    pub data_segments_in: Option<u32>,
    pub bytes_acked: Option<u64>,
    pub bytes_received: Option<u64>,
    /// Time during which the connection had data to send, in microseconds.
    pub busy_us: Option<u64>,
    /// Time during which the receiver's window stopped the sender, in microseconds.
    pub rwnd_limited_us: Option<u64>,
    /// Time during which the send buffer stopped the sender, in microseconds.
    pub sndbuf_limited_us: Option<u64>,
    /// Window that the remote end offers, in bytes. Needs Linux 5.4.
    pub send_window: Option<u32>,
    /// Window that this host offers, in bytes. Needs Linux 6.2.
    pub receive_window: Option<u32>,
}

impl Client {
    /// All connected sockets of a transport protocol. For UDP, also the sockets that are only bound. Needs Linux 3.3.
    pub fn sockets(&mut self, transport: Transport) -> Result<Vec<SocketState>, Error> {
        let mut all = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let (protocol, states) = match transport {
                Transport::Tcp => (libc::IPPROTO_TCP, 1 << ESTABLISHED | 1 << CLOSE_WAIT),
                Transport::Udp => (libc::IPPROTO_UDP, u32::MAX),
            };
            let mut own = [0; REQUEST];
            own[..3].copy_from_slice(&[family as u8, protocol as u8, 1 << (INFO - 1) | 1 << (SKMEMINFO - 1)]);
            own[4..8].copy_from_slice(&states.to_ne_bytes());
            let socket = match &mut self.sockets {
                Some(socket) => socket,
                none => none.insert(Socket::sockets()?),
            };
            let asked = socket.request(&mut Message::new(&own), BY_FAMILY, Wants::Each, |body| {
                all.extend(state(transport, body));
            });
            match asked {
                Ok(()) => {}
                // A kernel without IPv6 has no IPv6 sockets.
                Err(Error::NoDevice(_)) if family == libc::AF_INET6 => {}
                Err(error) => {
                    self.sockets = None;
                    return Err(error);
                }
            }
        }
        Ok(all)
    }
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn long(octets: &[u8], at: usize) -> Option<u64> {
    octets.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

/// Parses `struct inet_diag_msg` and its attributes.
fn state(transport: Transport, body: &[u8]) -> Option<SocketState> {
    let head = body.get(..ANSWER)?;
    let said = Attributes(&body[ANSWER..]);
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let memory = said.find(SKMEMINFO).and_then(|octets| {
        Some(SocketMemory {
            received: word(octets, 0)?,
            receive_limit: word(octets, 4)?,
            in_transmission: word(octets, 8)?,
            send_limit: word(octets, 12)?,
            drops: word(octets, 32)?,
        })
    });
    Some(SocketState {
        transport,
        cookie: long(head, 44)?,
        inode: word(head, 68)?,
        local_port: port(4),
        remote_port: port(6),
        loopback: head[8..24] == head[24..40] || head[8] == 127,
        rx_queue_bytes: word(head, 56)?,
        tx_queue_bytes: word(head, 60)?,
        memory,
        tcp: said.find(INFO).filter(|_| transport == Transport::Tcp).map(tcp),
    })
}

/// Parses `struct tcp_info` by the offsets of its fields. New kernels only append fields.
fn tcp(octets: &[u8]) -> TcpInfo {
    let (word, long) = (|at| word(octets, at), |at| long(octets, at));
    TcpInfo {
        rtt_us: word(68),
        min_rtt_us: word(148).filter(|rtt| *rtt != u32::MAX),
        send_mss: word(16),
        receive_mss: word(20),
        total_retrans: word(100),
        segments_out: word(136),
        segments_in: word(140),
        data_segments_out: word(156),
        data_segments_in: word(152),
        bytes_acked: long(120),
        bytes_received: long(128),
        busy_us: long(168),
        rwnd_limited_us: long(176),
        sndbuf_limited_us: long(184),
        send_window: word(228),
        receive_window: word(232),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    /// The kernel reports how much data the sockets of this process transferred.
    #[test]
    fn connections_and_datagrams_of_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 3000]).unwrap();
        let mut first = [0; 1000];
        server.read_exact(&mut first).unwrap();
        let port = client.local_addr().unwrap().port();
        let mut asked = Client::new();
        let all = asked.sockets(Transport::Tcp).unwrap();
        let sender = all.iter().find(|socket| socket.local_port == port).unwrap();
        let receiver = all.iter().find(|socket| socket.remote_port == port).unwrap();
        assert_eq!(sender.remote_port, listener.local_addr().unwrap().port());
        assert_eq!(receiver.rx_queue_bytes, 2000);
        assert!(sender.loopback && sender.inode > 0 && sender.cookie != receiver.cookie);
        let memory = receiver.memory.unwrap();
        assert!(memory.received >= 2000 && memory.receive_limit > memory.received, "{memory:?}");
        assert_eq!(sender.tcp.unwrap().total_retrans, Some(0));
        assert_eq!(receiver.tcp.unwrap().bytes_received, Some(3000));

        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&[1; 100], receiver.local_addr().unwrap()).unwrap();
        let all = asked.sockets(Transport::Udp).unwrap();
        let port = receiver.local_addr().unwrap().port();
        let state = all.iter().find(|socket| socket.local_port == port).unwrap();
        assert!(state.rx_queue_bytes >= 100 && state.tcp.is_none() && state.memory.unwrap().drops == 0);
    }

    #[test]
    fn a_torn_answer_is_no_socket() {
        assert_eq!(state(Transport::Tcp, &[0; ANSWER - 1]), None);
        let short = tcp(&[1; 120]);
        assert_eq!((short.rtt_us, short.bytes_acked), (Some(0x0101_0101), None));
        let bare = state(Transport::Udp, &[0; ANSWER]).unwrap();
        assert!(bare.memory.is_none() && bare.tcp.is_none());
    }
}
