use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use live::device::Statistics;
use live::telemetry::Counts;
use serde_json::Value;
use tester::lab::Lab;

use super::inject::Random;
use super::run::Apus;
use super::{Bed, collect, wait_for};
use crate::support::{Running, text};

/// What waits as a user would have it: our own mode, above the clients in rank.
const ADAPTIVE: [&str; 8] = ["--mode", "adaptive", "--goal", "p99=60us", "--cpu", "1", "--fifo", "50"];

/// With APUS_LONG_TESTS=1 tests last as long as SPEC.md says; else as long as `make test` can afford.
fn seconds(short: u64, long: u64) -> u64 {
    if std::env::var("APUS_LONG_TESTS").is_ok_and(|value| value == "1") { long } else { short }
}

fn pair(name: &str) -> Lab {
    Lab::pair(name).address("tx", "tx0", [10, 78, 0, 1], 24)
}

fn echo(bed: &Bed) -> Apus {
    Apus::start(bed, "dut", "echo", &[&["udp-echo", "dut0", "--address", "10.78.0.2"], &ADAPTIVE[..]].concat())
}

/// TCP fills whatever queue lies before the slowest part of its way, until its window ends: 6 MiB
/// (tcp(7), tcp_rmem), or 4,345 frames of 1,448 octets. Rings that hold these lose none of a stream;
/// the 2,048 that are the default may, if the worker is the slowest part.
const TCP_RING: &str = "8192";

fn forwarder(bed: &Bed, more: &[&str]) -> Apus {
    let words = [&["l2fwd", "dutl", "dutr"], &["--ring", TCP_RING][..], &ADAPTIVE, more].concat();
    Apus::start(bed, "dut", "wire", &words)
}

/// A worker that waited longer for its CPU than this was disturbed: the machine was not its own.
const DISTURBED: Duration = Duration::from_millis(10);

/// What TCP sends through a veth pair here is below this.
const MOST_FRAMES_A_MILLISECOND: u128 = 500;

/// Apus lost nothing, nor did its ports; but while others have the worker's CPU a ring can overflow.
/// Returns how many frames it so lost.
#[track_caller]
fn assert_lossless(apus: &Apus) -> (Counts, u64) {
    let (counts, waited) = (apus.settled(), apus.kept_waiting());
    assert_eq!(counts.received_frames, counts.sent_frames, "dropped {:?}", counts.dropped);
    let mut overflow = 0;
    for port in &counts.ports {
        let mut rest = port.statistics;
        overflow += std::mem::take(&mut rest.rx_ring_full);
        assert_eq!(rest, Statistics::default(), "{}", port.name);
    }
    if overflow > 0 {
        println!("DISTURBED: the worker was kept from its CPU for {waited:?}; its rings lost {overflow} frames");
        let explained = waited > DISTURBED && u128::from(overflow) <= waited.as_millis() * MOST_FRAMES_A_MILLISECOND;
        assert!(explained, "{overflow} frames lost, and only {waited:?} without a CPU: {:?}", counts.ports);
    }
    (counts, overflow)
}

/// Each frame that the hosts sent, the kernel's counters say, was received, forwarded, and came out.
#[track_caller]
fn assert_conserved(bed: &Bed, apus: &Apus) {
    let (counts, overflow) = assert_lossless(apus);
    let (sent, received) = bed.hosts();
    println!("left {:?}, right {:?}", bed.link("left", "left0"), bed.link("right", "right0"));
    assert_eq!(sent, counts.received_frames + overflow, "sent by the hosts = received");
    assert_eq!(received, counts.sent_frames, "sent = received by the hosts");
}

/// Tries again what went wrong while others had the worker's CPU, or though each frame came out (a
/// client that waits for two round trips leaves too early on a busy machine); and only then.
#[track_caller]
fn undisturbed(bed: &Bed, apus: &Apus, mut attempt: impl FnMut() -> Result<(), String>) {
    for _ in 0..10 {
        let before = apus.kept_waiting();
        let Err(wrong) = attempt() else { return };
        let waited = apus.kept_waiting() - before;
        let counts = apus.settled();
        let none_lost = counts.received_frames == counts.sent_frames
            && counts.ports.iter().all(|port| port.statistics == Statistics::default());
        let all_out = none_lost && bed.hosts() == (counts.received_frames, counts.sent_frames);
        assert!(waited > DISTURBED || all_out, "{wrong}");
        println!("DISTURBED: without a CPU for {waited:?}, all frames out: {all_out}; again, as: {}", wrong.trim());
    }
    panic!("the machine is too busy for this test");
}

#[test]
fn ping_floods_without_loss() {
    let Some(bed) = Bed::new(&["ping"], pair) else { return };
    let apus = echo(&bed);
    undisturbed(&bed, &apus, || {
        let said = bed.sh("tx", "ping -f -q -c 10000 10.78.0.2");
        let said = text(&said.stdout);
        println!("{}", said.trim());
        let all = said.contains("10000 packets transmitted, 10000 received, 0% packet loss");
        if all && !said.contains("duplicates") && !said.contains("corrupted") { Ok(()) } else { Err(said.to_owned()) }
    });
    assert!(assert_lossless(&apus).0.received_frames >= 10_000);
    apus.stop();
}

#[test]
fn udp_clients_get_each_datagram_back_once_and_in_order() {
    let Some(bed) = Bed::new(&[], pair) else { return };
    let apus = echo(&bed);
    // A window of datagrams of any length, numbered; what comes back must be the next, and the same.
    bed.inside("tx", || {
        let socket = UdpSocket::bind("10.78.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.connect("10.78.0.2:7").unwrap();
        let (mut random, mut data, mut back) = (Random(1), vec![0; 1472], [0; 2000]);
        random.fill(&mut data);
        let datagram = |data: &mut [u8], number: u64| {
            data[..8].copy_from_slice(&number.to_be_bytes());
            8 + (number * 7919 % 1465) as usize
        };
        // The neighbour first: what Linux holds back until ARP has its answer goes out after what is sent just then
        // (neigh_update() opens the entry before it sends the queue), so that the first datagrams would overtake
        // each other on the sender's side.
        socket.send(b"neighbour").unwrap();
        assert_eq!(socket.recv(&mut back).expect("an echo"), b"neighbour".len());
        let (count, window) = (20_000, 32);
        for number in 0..count + window {
            if number < count {
                let len = datagram(&mut data, number);
                socket.send(&data[..len]).unwrap();
            }
            if let Some(expected) = number.checked_sub(window) {
                let got = socket.recv(&mut back).expect("an echo");
                let len = datagram(&mut data, expected);
                assert!(back[..got] == data[..len], "instead of datagram {expected} came {:?}", &back[..8]);
            }
        }
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut back).is_err(), "more came back than was sent");
    });
    assert_lossless(&apus);
    apus.stop();
}

#[test]
fn sockperf_ping_pong_loses_nothing() {
    let programs = &["sockperf"];
    // A pure echo is no sockperf server: its answers differ from their questions in bit 0 of octet 9,
    // "from the client", and a client passes over what has that set. So what comes back from udp-echo
    // goes through a relay that clears it, and sockperf counts what was lost on the way there and back.
    if let Some(bed) = Bed::new(programs, pair) {
        let apus = echo(&bed);
        let (over, relayed) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|threads| {
            threads.spawn(|| bed.inside("tx", || relay("127.0.0.1:11111", "10.78.0.2:11111", &over, &relayed)));
            undisturbed(&bed, &apus, || {
                sockperf(&bed.sh("tx", &format!("sockperf pp -i 127.0.0.1 -p 11111 -t {}", seconds(2, 10))))
            });
            over.store(true, Ordering::Relaxed);
        });
        let (counts, _) = assert_lossless(&apus);
        println!("{} frames through udp-echo for {relayed:?} messages", counts.sent_frames);
        assert!(counts.sent_frames >= relayed.load(Ordering::Relaxed));
        apus.stop();
    }
    // And a real server, on the other side of l2fwd.
    if let Some(bed) = Bed::new(programs, Lab::wire) {
        let apus = forwarder(&bed, &[]);
        let command = ["sockperf", "server", "-i", "10.77.0.2", "-p", "11111"];
        let server = Server::start(&bed, &command, "udp", 11_111);
        undisturbed(&bed, &apus, || {
            sockperf(&bed.sh("left", &format!("sockperf pp -i 10.77.0.2 -p 11111 -t {}", seconds(2, 10))))
        });
        server.end();
        assert_conserved(&bed, &apus);
        apus.stop();
    }
}

/// Whether sockperf counted no message as lost, doubled or out of order; else what it said.
fn sockperf(output: &Output) -> Result<(), String> {
    // Without the colours: from an escape to the next "m".
    let (said, mut coloured) = (text(&output.stdout), false);
    let mut plain = String::new();
    for c in said.chars() {
        coloured |= c == '\x1b';
        if !coloured {
            plain.push(c);
        }
        coloured &= c != 'm';
    }
    let telling = |line: &&str| ["Total", "# dropped", "Summary"].iter().any(|word| line.contains(word));
    println!("{}", plain.lines().filter(telling).collect::<Vec<_>>().join("\n"));
    let none = "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0";
    if output.status.success() && plain.contains(none) {
        return Ok(());
    }
    Err(format!("{plain}{}", text(&output.stderr)))
}

/// Passes datagrams from a client to a server and back, there as they are, back as from a server.
fn relay(listen: &str, server: &str, over: &AtomicBool, relayed: &AtomicU64) {
    let server: SocketAddr = server.parse().unwrap();
    let near = UdpSocket::bind(listen).unwrap();
    let far = UdpSocket::bind("10.78.0.1:0").unwrap();
    let wait = Some(Duration::from_millis(50));
    near.set_read_timeout(wait).unwrap();
    far.set_read_timeout(wait).unwrap();
    let mut data = [0; 2000];
    while !over.load(Ordering::Relaxed) {
        let Ok((len, client)) = near.recv_from(&mut data) else { continue };
        far.send_to(&data[..len], server).unwrap();
        let Ok((len, from)) = far.recv_from(&mut data) else { continue };
        assert_eq!(from, server);
        data[9] &= !1;
        near.send_to(&data[..len], client).unwrap();
        relayed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A server program in the namespace `right`.
struct Server(Running);

impl Server {
    /// Starts it and waits until it listens on `port`, as /proc/net says.
    fn start(bed: &Bed, command: &[&str], protocol: &str, port: u16) -> Self {
        let mut running = bed.start("right", Command::new(command[0]).args(&command[1..]));
        for pipe in [running.0.stdout.take().map(collect), running.0.stderr.take().map(collect)] {
            drop(pipe); // read to its end, by nobody
        }
        let table = format!("/proc/{}/net/{protocol}", running.0.id());
        let listens = format!(":{port:04X} 00000000:0000 ");
        wait_for("a server that listens", Duration::from_secs(10), || {
            assert!(running.0.try_wait().unwrap().is_none(), "{command:?} ended");
            std::fs::read_to_string(&table).is_ok_and(|t| t.contains(&listens)).then_some(())
        });
        Self(running)
    }

    fn end(mut self) {
        self.0.end(rustix::process::Signal::TERM);
    }
}

#[test]
fn iperf3_streams_through_without_loss() {
    let Some(bed) = Bed::new(&["iperf3"], Lab::wire) else { return };
    let apus = forwarder(&bed, &[]);
    for (more, seconds) in [("", seconds(5, 20)), ("--reverse", 2), ("--reverse -P 4", 2)] {
        let _server = Server::start(&bed, &["iperf3", "-4", "-s", "-1"], "tcp", 5201);
        let said = bed.good("left", &format!("iperf3 -4 -J -c 10.77.0.2 -t {seconds} {more}"));
        let result: Value = serde_json::from_str(&said).unwrap();
        let (sent, received) = (&result["end"]["sum_sent"], &result["end"]["sum_received"]);
        let again = sent["retransmits"].as_u64().expect(&said);
        let rate = received["bits_per_second"].as_f64().expect(&said) / 1e6;
        println!("iperf3 -t {seconds} {more}: {rate:.0} Mbit/s, {again} retransmissions");
        assert!(received["bytes"].as_u64().expect(&said) > 1_000_000, "{said}");
    }
    // Whatever TCP had to repeat, it was not lost here: all that went in came out. What the senders'
    // own ends had to drop, before the wire, they counted.
    assert_conserved(&bed, &apus);
    apus.stop();
}

#[test]
fn a_gibibyte_arrives_identical() {
    let Some(bed) = Bed::new(&[], Lab::wire) else { return };
    // As the lab is: senders finish their checksums.
    let features = bed.good("left", "ethtool -k left0");
    for off in ["tx-checksumming: off", "tcp-segmentation-offload: off", "generic-segmentation-offload: off"] {
        assert!(features.contains(off), "{features}");
    }
    let apus = forwarder(&bed, &[]);
    transfer(&bed, 1 << 30);
    // Without receive offload each frame's checksum is looked at by itself.
    for (role, end) in [("left", "left0"), ("right", "right0")] {
        bed.good(role, &format!("ethtool -K {end} gro off"));
    }
    transfer(&bed, 1 << 26);
    assert_conserved(&bed, &apus);
    apus.stop();
}

#[test]
fn checksums_left_to_hardware_are_finished_on_request() {
    let Some(bed) = Bed::new(&[], Lab::wire) else { return };
    for (role, end) in [("left", "left0"), ("right", "right0")] {
        bed.good(role, &format!("ethtool -K {end} tx on tso off gso off"));
    }
    let apus = forwarder(&bed, &["--finish-checksums"]);
    transfer(&bed, 1 << 27);
    assert_conserved(&bed, &apus);
    apus.stop();
    // Without it, not one connection comes about: this shows that there was something to finish.
    let apus = forwarder(&bed, &[]);
    let refused = bed.inside("left", || {
        TcpStream::connect_timeout(&"10.77.0.2:7001".parse().unwrap(), Duration::from_millis(500)).unwrap_err()
    });
    assert_eq!(refused.kind(), std::io::ErrorKind::TimedOut, "{refused}");
    apus.stop();
}

/// Octets of a block of the transfer. Each block is another part of one random buffer, so that a lost,
/// doubled, swapped or changed block differs from what is expected.
const BLOCK: usize = 64 << 10;

fn block(buffer: &[u8], number: usize) -> &[u8] {
    let start = number.wrapping_mul(40_503) % (buffer.len() - BLOCK);
    &buffer[start..start + BLOCK]
}

/// Sends `len` octets over TCP from `left` to `right`, which compares each with what was sent.
fn transfer(bed: &Bed, len: usize) {
    let mut buffer = vec![0; 4 << 20];
    Random(2).fill(&mut buffer);
    let (buffer, began) = (&buffer, Instant::now());
    let patience = Duration::from_secs(60);
    let listener = bed.inside("right", || TcpListener::bind("10.77.0.2:7000").unwrap());
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let mut stream = bed
                .inside("left", || TcpStream::connect_timeout(&"10.77.0.2:7000".parse().unwrap(), patience))
                .unwrap();
            stream.set_write_timeout(Some(patience)).unwrap();
            (0..len / BLOCK).for_each(|number| stream.write_all(block(buffer, number)).unwrap());
        });
        listener.set_nonblocking(true).unwrap();
        let (mut stream, _) = wait_for("a connection", Duration::from_secs(10), || listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(patience)).unwrap();
        let mut got = vec![0; BLOCK];
        for number in 0..len / BLOCK {
            stream.read_exact(&mut got).unwrap();
            assert!(got == block(buffer, number), "block {number} (of {BLOCK} octets) is not what was sent");
        }
        assert_eq!(stream.read(&mut got).unwrap(), 0, "more came than was sent");
    });
    let seconds = began.elapsed().as_secs_f64();
    println!("{len} octets arrived identical in {seconds:.1} s, {:.0} Mbit/s", len as f64 * 8e-6 / seconds);
}
