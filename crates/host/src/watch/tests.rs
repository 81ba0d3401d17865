//! Tests with traffic between two network namespaces over a veth with NAPI.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_getaffinity, sched_setaffinity};

use super::*;
use crate::knob::{Access, napis_of};
use crate::testing::{in_own_namespace, ip};

/// A veth pair: v0 (192.0.2.1) here, which is watched, and v1 (192.0.2.2) in a separate namespace that a process keeps
/// open.
struct Lab {
    other: Child,
    namespace: File,
}

impl Lab {
    fn new() -> Self {
        let other = Command::new("unshare").args(["--net", "sleep", "120"]).spawn().unwrap();
        let path = format!("/proc/{}/ns/net", other.id());
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        while std::fs::read_link(&path).map_or(true, |theirs| theirs == own) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let lab = Self { namespace: File::open(path).unwrap(), other };
        // With these settings, a veth receives through NAPI: GRO here, and no segmentation by the sender
        // (drivers/net/veth.c).
        for words in [["-K", "v0", "gro", "on"], ["-K", "v1", "tso", "off"]] {
            assert!(Command::new("ethtool").args(words).status().unwrap().success());
        }
        ip(&["link", "set", "v1", "netns", &lab.other.id().to_string()]);
        ip(&["addr", "add", "192.0.2.1/24", "dev", "v0"]);
        ip(&["link", "set", "lo", "up"]);
        lab.inside(|| {
            ip(&["addr", "add", "192.0.2.2/24", "dev", "v1"]);
            ip(&["link", "set", "v1", "up"]);
        });
        lab
    }

    /// Runs `work` in the other namespace.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Sends `number` datagrams from the other namespace. Each contains its number.
    fn send(&self, to: &str, number: u32) {
        self.inside(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for n in 0..number {
                assert_eq!(socket.send_to(&n.to_ne_bytes(), to).unwrap(), 4);
            }
        });
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.other.kill().unwrap();
        self.other.wait().unwrap();
    }
}

/// Pins this thread, and threads that it starts later, to the first CPU that it may use. A veth receives packets on the
/// CPU that sends them.
fn on_one_cpu() {
    let mine = sched_getaffinity(None).unwrap();
    let mut first = CpuSet::new();
    first.set((0..CpuSet::MAX_CPU).find(|cpu| mine.is_set(*cpu)).unwrap());
    sched_setaffinity(None, &first).unwrap();
}

fn napis() -> Vec<u32> {
    let napis = napis_of(&Access::live().unwrap(), "v0", &[]).unwrap();
    assert!(!napis.is_empty());
    napis.into_iter().map(|(_, id)| id).collect()
}

fn watch() -> NapiWatch {
    let watch = NapiWatch::new(&napis()).unwrap();
    watch.measures_datagrams().unwrap();
    watch
}

/// Makes an instance defer its interrupts.
fn defer(napi: u32, timeout_ns: u64) {
    let settings = crate::nic::NapiSettings {
        defer_hard_irqs: Some(1),
        gro_flush_timeout_ns: Some(timeout_ns),
        ..Default::default()
    };
    crate::nic::Client::new().set_napi(napi, &settings).unwrap();
}

/// The sum of the counts of all instances.
fn all(watch: &NapiWatch) -> NapiCounts {
    let mut all =
        NapiCounts { packets: 0, bytes: 0, polls: 0, full_polls: 0, delays: [0; BUCKETS], held: [0; BUCKETS] };
    let watched = watch.watched().napis.len();
    for place in 0..watched {
        let one = watch.read(place).unwrap();
        all.packets += one.packets;
        all.bytes += one.bytes;
        all.polls += one.polls;
        all.full_polls += one.full_polls;
        all.delays.iter_mut().zip(one.delays).for_each(|(all, one)| *all += one);
        all.held.iter_mut().zip(one.held).for_each(|(all, one)| *all += one);
    }
    all
}

fn measured(watch: &NapiWatch) -> u64 {
    all(watch).delays.iter().sum()
}

/// Number of times in buckets that begin at `ms` milliseconds or later.
fn from_ms(times: &[u64; BUCKETS], ms: u64) -> u64 {
    (0..BUCKETS).filter(|bucket| bounds(*bucket).0 >= Nanos::from_millis(ms)).map(|bucket| times[bucket]).sum()
}

/// A socket that waits at most 10 s for a datagram.
fn bound(to: &str) -> UdpSocket {
    // Tries again for a while: a closed socket stays open in a process that another test is just starting, until that
    // process executes its program.
    let began = Instant::now();
    let socket = loop {
        match UdpSocket::bind(to) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && began.elapsed().as_secs() < 10 => {}
            bound => break bound.unwrap(),
        }
    };
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// Reads `number` datagrams, in their order.
fn read(socket: &UdpSocket, number: u32) {
    let mut bytes = [0; 4];
    for n in 0..number {
        assert_eq!(socket.recv(&mut bytes).unwrap(), 4);
        assert_eq!(u32::from_ne_bytes(bytes), n);
    }
}

#[test]
fn buckets_follow_one_another() {
    assert_eq!(bounds(0), (Nanos::ZERO, Nanos::from_nanos(128)));
    assert_eq!(bounds(8), (Nanos::from_nanos(1_024), Nanos::from_nanos(1_152)));
    for bucket in 1..BUCKETS {
        assert_eq!(bounds(bucket).0, bounds(bucket - 1).1, "{bucket}");
    }
    // The last bucket begins an eighth of an octave below 2^34 ns. bucket() of the program puts all longer times into
    // it too.
    assert_eq!(bounds(BUCKETS - 1), (Nanos::from_nanos((1 << 34) - (1 << 30)), Nanos::MAX));
}

#[test]
fn each_packet_that_an_application_reads_is_measured() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let watch = watch();
        let socket = bound("192.0.2.1:7000");
        lab.send("192.0.2.1:7000", 50);
        read(&socket, 50);
        let seen = all(&watch);
        assert_eq!(seen.delays.iter().sum::<u64>(), 50, "{seen:?}");
        // ARP and IPv6 packets are counted too.
        assert!((50..80).contains(&seen.packets) && seen.polls > 0, "{seen:?}");
        // 20 bytes of IP header, 8 of UDP header, 4 of content.
        assert!(seen.bytes >= 50 * 32, "{seen:?}");
        let counters = watch.counters(0).unwrap();
        assert_eq!(counters.packets, watch.read(0).unwrap().packets);
        let watched = watch.watched().napis.len();
        assert!(watch.read(watched).unwrap_err().to_string().contains("are watched"));
        assert!(watch.counters(watched).unwrap_err().to_string().contains("are watched"));
    });
}

/// The kernel soon reuses the memory of unread packets for loopback and UNIX sockets on the same CPU.
#[test]
fn packets_that_nobody_reads_leave_nothing_behind() {
    in_own_namespace(|| {
        on_one_cpu();
        let lab = Lab::new();
        let watch = watch();
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:7002").unwrap();
        let mut c = TcpStream::connect("127.0.0.1:7002").unwrap();
        let mut d = listener.accept().unwrap().0;
        let local = bound("127.0.0.1:7003");
        let mut bytes = [0; 8];
        for _ in 0..20 {
            lab.send("192.0.2.1:7001", 100); // nobody listens
            for n in 0_u32..100 {
                a.write_all(&n.to_ne_bytes()).unwrap();
                c.write_all(&n.to_ne_bytes()).unwrap();
                assert_eq!(local.send_to(&n.to_ne_bytes(), "127.0.0.1:7003").unwrap(), 4);
                b.read_exact(&mut bytes[..4]).unwrap();
                d.read_exact(&mut bytes[..4]).unwrap();
                assert_eq!(local.recv(&mut bytes).unwrap(), 4);
            }
        }
        let seen = all(&watch);
        assert!(seen.packets >= 2_000, "{seen:?}");
        assert_eq!(seen.delays.iter().sum::<u64>(), 0, "nothing of the watched interface was read: {seen:?}");
    });
}

/// Without PSH and with deferral, GRO holds a segment until the timer's poll.
#[test]
fn what_gro_holds_back_is_told_apart() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let watch = watch();
        let listener = TcpListener::bind("192.0.2.1:7000").unwrap();
        let sender = lab.inside(|| TcpStream::connect("192.0.2.1:7000").unwrap());
        let mut receiver = listener.accept().unwrap().0;
        for napi in napis() {
            defer(napi, 40_000_000);
        }
        std::thread::sleep(Duration::from_millis(100));
        // A full segment with more data to follow, so that TCP does not set PSH (TCP sets it on the last of several
        // segments, tcp_output.c).
        let segment = 1_448;
        assert_eq!(rustix::net::send(&sender, &[1; 1_448], SendFlags::MORE).unwrap(), segment);
        receiver.read_exact(&mut vec![0; segment]).unwrap();
        let seen = all(&watch);
        assert_eq!(from_ms(&seen.held, 30), 1, "{seen:?}");
        assert_eq!(seen.delays.iter().sum::<u64>(), 1, "{seen:?}");
        assert_eq!(from_ms(&seen.delays, 30), 0, "the hold is not part of the delay: {seen:?}");
    });
}

/// A burst that is longer than any list of waiting datagrams, with longer delays than a healthy application has. It is
/// too small to be sampled, however long a busy machine takes for it.
#[test]
fn a_burst_that_is_read_late_is_measured_in_full() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let watch = watch();
        let socket = bound("192.0.2.1:7000");
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20).unwrap();
        for _ in 0..10 {
            lab.send("192.0.2.1:7000", 40);
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..10 {
            read(&socket, 40);
        }
        let seen = all(&watch);
        // Rarely, a packet finds both places for its stamp in use (watch.bpf.c).
        let measured = seen.delays.iter().sum::<u64>();
        assert!((398..=400).contains(&measured), "{measured}: {seen:?}");
        assert_eq!(from_ms(&seen.delays, 80), measured, "{seen:?}");
        assert_eq!(from_ms(&seen.delays, 4_000), 0, "{seen:?}");
    });
}

/// The second piece of a datagram in several pieces is outside the sk_buff's own memory, so the kernel copies it with
/// different code.
#[test]
fn datagrams_in_several_pieces_are_measured_once() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let watch = watch();
        let socket = bound("192.0.2.1:7000");
        for _ in 0..10 {
            lab.inside(|| {
                let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
                sender.connect("192.0.2.1:7000").unwrap();
                for _ in 0..20 {
                    assert_eq!(rustix::net::send(&sender, &[1; 100], SendFlags::MORE).unwrap(), 100);
                    assert_eq!(rustix::net::send(&sender, &[2; 1_000], SendFlags::empty()).unwrap(), 1_000);
                }
            });
            let mut bytes = [0; 2_000];
            for _ in 0..20 {
                assert_eq!(socket.recv(&mut bytes).unwrap(), 1_100);
            }
        }
        assert_eq!(measured(&watch), 200, "{:?}", all(&watch));
    });
}

#[test]
fn readers_that_share_a_socket_are_measured() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let watch = watch();
        let socket = bound("192.0.2.1:7000");
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
        let read = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut bytes = [0; 4];
                    while socket.recv(&mut bytes).unwrap() == 4 {
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..4 {
                lab.send("192.0.2.1:7000", 100);
            }
            while read.load(Ordering::Relaxed) < 400 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Empty datagrams end the readers.
            let sender = UdpSocket::bind("192.0.2.1:0").unwrap();
            for _ in 0..4 {
                assert_eq!(sender.send_to(&[], "192.0.2.1:7000").unwrap(), 0);
            }
        });
        // Each datagram is measured at most once. Of two at the same moment, one may be missed (watch.bpf.c).
        let measured = measured(&watch);
        assert!((300..=400).contains(&measured), "{measured}: {:?}", all(&watch));
    });
}

/// Nobody reads the datagrams of a closed socket. The kernel soon reuses the socket's memory for another socket.
#[test]
fn a_closed_socket_leaves_nothing_behind() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let watch = watch();
        // On a busy machine the reader itself may be late.
        let mut late_reads = 0;
        for _ in 0..20 {
            let socket = bound("192.0.2.1:7000");
            lab.send("192.0.2.1:7000", 20);
            std::thread::sleep(Duration::from_millis(30));
            drop(socket);
            let socket = bound("192.0.2.1:7000");
            let sent = Instant::now();
            lab.send("192.0.2.1:7000", 1);
            read(&socket, 1);
            late_reads += u64::from(sent.elapsed() >= Duration::from_millis(20));
        }
        let seen = all(&watch);
        assert_eq!(seen.delays.iter().sum::<u64>(), 20, "{seen:?}");
        assert!(late_reads <= 10, "the machine is too busy to tell");
        assert!(from_ms(&seen.delays, 25) <= late_reads, "{late_reads} late reads: {seen:?}");
    });
}

/// Peeking at a datagram does not count as reading. Errors do not count as datagrams.
#[test]
fn a_look_is_no_reading_and_the_queue_of_errors_is_another() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let watch = watch();
        let socket = bound("192.0.2.1:7000");
        sys::queue_errors(&socket).unwrap();
        lab.send("192.0.2.1:7000", 3);
        std::thread::sleep(Duration::from_millis(40));
        let before = measured(&watch);
        // Port 9 is closed there, so an ICMP message arrives.
        assert_eq!(socket.send_to(&[1], "192.0.2.2:9").unwrap(), 1);
        let mut bytes = [0; 4];
        let began = Instant::now();
        while rustix::net::recv(&socket, &mut bytes[..], RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "there is no error");
        }
        let of_error = measured(&watch) - before;
        assert!(of_error <= 1, "at most the ICMP message itself: {of_error}");
        std::thread::sleep(Duration::from_millis(40));
        for _ in 0..3 {
            assert_eq!(rustix::net::recv(&socket, &mut bytes[..], RecvFlags::PEEK).unwrap().0, 4);
        }
        read(&socket, 3);
        let seen = all(&watch);
        assert_eq!(seen.delays.iter().sum::<u64>(), 3 + of_error, "{seen:?}");
        assert_eq!(from_ms(&seen.delays, 70), 3, "{seen:?}");
    });
}

/// The kernel passes a packet of a tunnel or bridge through the tracepoints twice: when it arrives, and when it leaves
/// the tunnel or bridge.
#[test]
fn packets_of_tunnels_and_bridges_are_counted_once() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let tunnel = |own: &str, of: &str, other: &str| {
            ip(&["link", "add", "x", "type", "vxlan", "id", "7", "dstport", "4789", "remote", other, "dev", of]);
            ip(&["addr", "add", own, "dev", "x"]);
            ip(&["link", "set", "x", "up"]);
        };
        tunnel("198.51.100.1/24", "v0", "192.0.2.2");
        lab.inside(|| tunnel("198.51.100.2/24", "v1", "192.0.2.1"));
        let socket = bound("0.0.0.0:7000");
        let watch = watch();
        let begin = |to: &str| {
            // The watch learns the instances' device from their first polls.
            lab.send(to, 1);
            read(&socket, 1);
            let seen = all(&watch);
            (seen.packets, seen.delays.iter().sum::<u64>())
        };
        let check = |to: &str, (packets, measured): (u64, u64)| {
            lab.send(to, 200);
            read(&socket, 200);
            let seen = all(&watch);
            assert!((200..250).contains(&(seen.packets - packets)), "{to}: {packets} before, {seen:?}");
            assert_eq!(seen.delays.iter().sum::<u64>() - measured, 200, "{to}: {seen:?}");
        };
        let before = begin("198.51.100.1:7000");
        check("198.51.100.1:7000", before);
        ip(&["link", "add", "br0", "type", "bridge"]);
        ip(&["link", "set", "br0", "up"]);
        ip(&["link", "set", "v0", "master", "br0"]);
        ip(&["addr", "flush", "dev", "v0"]);
        ip(&["addr", "add", "192.0.2.1/24", "dev", "br0"]);
        // The bridge port learns and forwards at once, without the spanning tree protocol.
        lab.inside(|| ip(&["neigh", "flush", "dev", "v1"]));
        let before = begin("192.0.2.1:7000");
        check("192.0.2.1:7000", before);
    });
}

#[test]
fn a_watch_follows_an_instance_to_its_new_id() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let watch = watch();
        let socket = bound("0.0.0.0:7000");
        lab.send("192.0.2.1:7000", 20);
        read(&socket, 20);
        assert_eq!(measured(&watch), 20);
        let old = napis();
        ip(&["link", "set", "v0", "down"]);
        ip(&["link", "set", "v0", "up"]);
        let new = napis();
        assert!(old.iter().all(|id| !new.contains(id)), "{old:?} {new:?}");
        lab.send("192.0.2.1:7000", 20);
        read(&socket, 20);
        assert_eq!(measured(&watch), 20, "the new IDs are not watched yet");
        for (place, id) in new.iter().enumerate() {
            watch.follow(place, *id).unwrap();
        }
        lab.send("192.0.2.1:7000", 20);
        read(&socket, 20);
        assert_eq!(measured(&watch), 40, "{watch:?}");
        assert!(watch.follow(new.len() + 1, 1).unwrap_err().to_string().contains("are watched"));
        // A forgotten instance is not counted any more; its earlier counts stay.
        let packets = || (0..new.len()).map(|place| watch.counters(place).unwrap().packets).sum::<u64>();
        (0..new.len()).for_each(|place| watch.forget(place).unwrap());
        let before = packets();
        lab.send("192.0.2.1:7000", 20);
        read(&socket, 20);
        assert_eq!(packets(), before, "{watch:?}");
        new.iter().enumerate().for_each(|(place, id)| watch.follow(place, *id).unwrap());
        let before = (packets(), measured(&watch));
        lab.send("192.0.2.1:7000", 20);
        read(&socket, 20);
        assert!(packets() >= before.0 + 20 && measured(&watch) == before.1 + 20, "{watch:?}");
        // Indexes may exchange their instances.
        let mut turned = new.clone();
        turned.rotate_left(1);
        for (place, id) in turned.iter().enumerate() {
            watch.follow(place, *id).unwrap();
        }
        lab.send("192.0.2.1:7000", 20);
        read(&socket, 20);
        assert_eq!(measured(&watch), before.1 + 40, "{watch:?}");
    });
}

#[test]
fn too_many_instances_are_refused() {
    let error = NapiWatch::new(&vec![1; SLOTS + 1]).unwrap_err();
    assert!(error.to_string().contains("at most 256"), "{error}");
}

/// An error names the required kernel version and the present one.
#[test]
fn errors_name_the_kernel_that_is_needed() {
    let unknown = failed("attach to the tracepoint x", &std::io::Error::from_raw_os_error(libc::EINVAL)).to_string();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(["tracepoint x", "Linux 6.8", "BTF", release.trim()].iter().all(|t| unknown.contains(t)), "{unknown}");
    let denied = failed("attach to the tracepoint x", &std::io::Error::from_raw_os_error(libc::EPERM));
    assert!(matches!(denied, Error::NotPermitted { .. }), "{denied}");
}

/// At a high rate, only some packets are stamped; packets and polls are still all counted. At a low rate, all packets
/// are stamped again.
///
/// Each CPU's sampling depends on its own packet rate, and a CPU may notice a quiet time only from its next packets. So
/// all packets of this test are sent and received on one CPU.
#[test]
fn a_busy_cpu_is_sampled() {
    in_own_namespace(|| {
        on_one_cpu();
        let lab = Lab::new();
        let watch = watch();
        let socket = bound("192.0.2.1:7000");
        let began = Instant::now();
        flood(&lab, &socket, 60_000);
        let lasted = began.elapsed();
        let seen = all(&watch);
        let measured = seen.delays.iter().sum::<u64>();
        assert!((60_000..60_100).contains(&seen.packets), "{seen:?}");
        assert!(measured > 0, "{seen:?}");
        // At most twice the limit of 5,000 per second. It takes 100 ms until the program knows the rate.
        let most = 5_000.0 * 2.0 * (lasted.as_secs_f64() + 0.1) + 10_000.0;
        assert!((measured as f64) < most, "{measured} in {lasted:?}");
        // Two windows for measuring the rate, each with as many polls as may be left out between two stamped ones.
        for _ in 0..3 {
            for _ in 0..150 {
                lab.send("192.0.2.1:7000", 1);
                read(&socket, 1);
            }
            std::thread::sleep(Duration::from_millis(120));
        }
        let before = self::measured(&watch);
        for _ in 0..100 {
            lab.send("192.0.2.1:7000", 1);
            read(&socket, 1);
        }
        assert_eq!(self::measured(&watch) - before, 100);
    });
}

/// Sends `number` datagrams as fast as it can, while they are read.
fn flood(lab: &Lab, socket: &UdpSocket, number: u32) {
    std::thread::scope(|scope| {
        scope.spawn(|| lab.send("192.0.2.1:7000", number));
        let mut bytes = [0; 4];
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        while socket.recv(&mut bytes).is_ok() {}
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    });
}

/// Prints the cost of the programs per packet, and the cost of reading the counters. A measurement, not a check: `cargo
/// test -p host --lib watch::tests::what_the_watch_costs -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn what_the_watch_costs() {
    in_own_namespace(|| {
        let lab = Lab::new();
        let socket = bound("192.0.2.1:7000");
        let listener = TcpListener::bind("192.0.2.1:7001").unwrap();
        let stream = lab.inside(|| TcpStream::connect("192.0.2.1:7001").unwrap());
        let mut receiver = listener.accept().unwrap().0;
        // The CPU time of this process, which sends, receives and runs the softirqs, with the watch and without.
        let cpu = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
        };
        let mut with = [Vec::new(), Vec::new()];
        for round in 0..20 {
            let watched = (round % 2 == 0).then(watch);
            let before = cpu();
            flood(&lab, &socket, 100_000);
            with[usize::from(watched.is_some())].push((cpu() - before).as_nanos() / 100_000);
        }
        let [without, with] = with.map(|mut all| {
            all.sort_unstable();
            all
        });
        println!("CPU time a datagram, ns: without {without:?}, with {with:?}");
        // The kernel measures the programs' run time until this is closed (BPF_ENABLE_STATS). The measurement adds to
        // each run; a program that returns at once shows how much.
        let _timing = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
        let times = |watch: &NapiWatch| -> Vec<(String, Duration, u64)> {
            let one = |(name, program): (&str, &aya::programs::Program)| {
                let info = program.info().unwrap();
                (name.to_owned(), info.run_time(), info.run_count())
            };
            watch._programs.programs().map(one).collect()
        };
        let report = |what: &str, work: &mut dyn FnMut()| {
            let watch = watch();
            let before = times(&watch);
            let began = Instant::now();
            work();
            let lasted = began.elapsed();
            let after = times(&watch);
            let seen = all(&watch);
            let packets = seen.packets;
            let delays = seen.delays.iter().sum::<u64>();
            println!("{what}: {packets} packets, {} polls, {delays} reads in {lasted:?}", seen.polls);
            let mut sum = Duration::ZERO;
            for ((name, from, ran), (_, to, all)) in before.iter().zip(&after) {
                let (time, ran) = (*to - *from, all - ran);
                sum += time;
                if ran > 0 {
                    println!("  {name}: {ran} times, {} ns each", time.as_nanos() / u128::from(ran));
                }
            }
            println!("  all: {} ns a packet", sum.as_nanos() / u128::from(packets.max(1)));
        };
        report("UDP", &mut || {
            flood(&lab, &socket, 300_000);
        });
        for napi in napis() {
            defer(napi, 100_000);
        }
        report("UDP, deferral of 100 us", &mut || {
            flood(&lab, &socket, 300_000);
        });
        report("TCP", &mut || {
            let all: usize = 1 << 29;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let block = vec![0; 1 << 16];
                    (0..all / block.len()).for_each(|_| (&stream).write_all(&block).unwrap());
                });
                let mut block = vec![0; 1 << 16];
                let mut rest = all;
                while rest > 0 {
                    rest -= receiver.read(&mut block).unwrap();
                }
            });
        });
        let watch = NapiWatch::new(&(1_000_000..1_000_064).collect::<Vec<_>>()).unwrap();
        for (what, read) in [
            ("read", (|watch, place| _ = std::hint::black_box(watch.read(place).unwrap())) as fn(&NapiWatch, usize)),
            ("counters", |watch, place| _ = std::hint::black_box(watch.counters(place).unwrap())),
        ] {
            let began = Instant::now();
            (0..100).for_each(|_| (0..64).for_each(|place| read(&watch, place)));
            println!("{what}: {:?} for 64 instances 100 times", began.elapsed());
        }
    });
}
