use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use live::Error;
use live::app::AppConfig;
use live::app::udp_echo::UdpPorts;
use live::instance::Instance;
use live::telemetry::State;
use live_dpdk::DpdkPort;
use policy::wait::{Mode, WaitKind};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::instance::{accounted, config};

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        testkit::skip("needs root, for network namespaces");
    }
    root
}

fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Network namespaces, removed on drop.
struct Spaces(Vec<String>);

impl Spaces {
    fn new(count: usize) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = || format!("apus-dpdk{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let spaces = Self((0..count).map(|_| name()).collect());
        for space in &spaces.0 {
            sh(&format!(
                "ip netns add {space}; ip -n {space} link set lo up; ip netns exec {space} sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
            ));
        }
        spaces
    }

    /// A veth pair: `va` (10.9.0.1) in the first namespace, `vb` in the second. Checksums are computed, as an echo would
    /// return those that are left to hardware.
    fn with_veth() -> Self {
        let spaces = Self::new(2);
        let (a, b) = (&spaces.0[0], &spaces.0[1]);
        sh(&format!(
            "ip link add va netns {a} type veth peer name vb netns {b}
             ip -n {a} addr add 10.9.0.1/24 dev va; ip -n {a} link set va up; ip -n {b} link set vb up
             ip netns exec {a} ethtool -K va tx off >/dev/null"
        ));
        spaces
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for space in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", space]).output();
        }
    }
}

/// Runs `work` on a thread of its own in the namespace: setns(2) is per thread.
fn inside<T: Send>(space: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|threads| {
        let run = || {
            let namespace = File::open(format!("/run/netns/{space}")).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        threads.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn echo() -> AppConfig {
    AppConfig::UdpEcho { addresses: vec!["10.9.0.2".parse().unwrap()], ports: UdpPorts::ANY, verify_checksum: true }
}

/// Sends `count` datagrams, each after the answer to the last one. Returns the longest time to an answer.
fn ask(count: u32) -> Duration {
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.connect("10.9.0.2:7").unwrap();
    // Until both ends know that the link is up, frames get lost.
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let (end, mut answer) = (Instant::now() + Duration::from_secs(20), [0; 64]);
    while socket.send(b"up?").is_err() || socket.recv(&mut answer).is_err() {
        assert!(Instant::now() < end, "no answer");
    }
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut longest = Duration::ZERO;
    for number in 0..count {
        let began = Instant::now();
        socket.send(&number.to_be_bytes()).unwrap();
        let len = loop {
            let len = socket.recv(&mut answer).unwrap_or_else(|e| panic!("no answer to {number}: {e}"));
            if answer[..len] != *b"up?" {
                break len;
            }
        };
        assert_eq!(answer[..len], number.to_be_bytes());
        longest = longest.max(began.elapsed());
    }
    longest
}

fn blocks(instance: &Instance) -> u64 {
    let snapshot = &instance.snapshots()[0];
    let index = WaitKind::ALL.iter().position(|kind| *kind == WaitKind::Block).unwrap();
    snapshot.counts.waits[index].count
}

/// `net_tap` has receive interrupts: the worker blocks on them, and no packet is left waiting between arming and
/// blocking. (A missed wake-up would show as a wait of 100 ms, the longest block.)
#[test]
fn receive_interrupts_end_blocks() {
    if !is_root() {
        return;
    }
    let spaces = Spaces::new(1);
    let space = &spaces.0[0];
    for (number, mode) in [Mode::Interrupt, Mode::ADAPTIVE].into_iter().enumerate() {
        let (device, interface) = (format!("net_tap9{number},iface=apustap"), "apustap");
        let config = config(&format!("tap{number}"), vec![Arc::new(DpdkPort::new(&device))], echo(), mode);
        let instance = inside(space, || Instance::start(&config)).unwrap();
        assert_eq!(instance.ports()[0].driver.as_ref().unwrap().wakes, Some(true), "{device}");
        sh(&format!("ip -n {space} addr add 10.9.0.1/24 dev {interface}; ip -n {space} link set {interface} up"));
        // The link is up when the worker's health check says so.
        let longest = inside(space, || ask(2000));
        println!("{mode:?}: longest answer {longest:?}, {} blocks", blocks(&instance));
        // `adaptive` may find another wait cheaper, on a machine that wakes up slowly.
        let least = if mode == Mode::Interrupt { 100 } else { 0 };
        assert!(blocks(&instance) > least, "it did not block");
        let outcome = instance.finish();
        outcome.workers[0].result.as_ref().unwrap();
        accounted(&outcome);
    }
}

#[test]
fn af_xdp_forwards_within_the_pool_and_leaves_the_interface_as_it_was() {
    if !is_root() {
        return;
    }
    for (number, mode) in [Mode::Poll, Mode::ADAPTIVE].into_iter().enumerate() {
        // Each on a pair of its own: DPDK 22.11's driver keeps the socket of a closed port until the process ends.
        let spaces = Spaces::with_veth();
        let before = sh(&format!("ip -n {} -d link show vb", spaces.0[1]));
        let device = format!("net_af_xdp6{number},iface=vb,force_copy=1,busy_budget=0");
        let name = format!("xdp{number}");
        let config = config(&name, vec![Arc::new(DpdkPort::new(device))], echo(), mode);
        let instance = inside(&spaces.0[1], || Instance::start(&config)).unwrap();
        println!("{mode:?}: longest answer {:?}", inside(&spaces.0[0], || ask(1500)));
        let outcome = instance.finish();
        outcome.workers[0].result.as_ref().unwrap();
        let counts = accounted(&outcome);
        assert!(counts[0].sent_frames >= 1500);
        // The worker had given up its privileges; DPDK's main thread took the program off.
        let after = sh(&format!("ip -n {} -d link show vb", spaces.0[1]));
        let shown = |text: &str| ["xdp", "PROMISC"].map(|word| text.contains(word));
        assert_eq!(shown(&after), shown(&before), "{after}");
    }
}

#[test]
fn a_port_whose_interface_is_deleted_ends_the_worker_with_its_name() {
    if !is_root() {
        return;
    }
    let spaces = Spaces::with_veth();
    let device = "net_af_xdp70,iface=vb,force_copy=1,busy_budget=0";
    let config = config("gone", vec![Arc::new(DpdkPort::new(device))], echo(), Mode::ADAPTIVE);
    let instance = inside(&spaces.0[1], || Instance::start(&config)).unwrap();
    inside(&spaces.0[0], || ask(20));
    let becomes = |state: State| {
        let end = Instant::now() + Duration::from_secs(30);
        while instance.snapshots()[0].state != Some(state) {
            assert!(Instant::now() < end, "not {state:?}: {:?}", instance.snapshots()[0].state);
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    // While the worker takes the link to be down, it sends nothing. So first see that it noticed both changes.
    sh(&format!("ip -n {} link set vb down", spaces.0[1]));
    becomes(State::LinkDown);
    sh(&format!("ip -n {} link set vb up", spaces.0[1]));
    becomes(State::Running);
    inside(&spaces.0[0], || ask(20));
    sh(&format!("ip -n {} link del va", spaces.0[0]));
    becomes(State::Failed);
    let outcome = instance.finish();
    let error = outcome.workers[0].result.as_ref().unwrap_err();
    assert!(matches!(error, Error::PortLost { port, .. } if port == "net_af_xdp70"), "{error}");
    accounted(&outcome);
}
