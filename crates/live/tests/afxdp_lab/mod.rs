//! Namespaces, veth pairs and ends of them, for the tests of the AF_XDP backend.

use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant as Wall};

use live::Error;
use live::device::afxdp::{AfXdpDevice, Interface, InterfaceConfig, RingSizes, SocketConfig, XskContext};
use live::device::{Device, Statistics};
use live::pool::{Frame, Pool, PoolConfig};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use units::{Instant, Monotonic};

/// Whether these tests can run; says so if not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        testkit::skip("needs root, for network namespaces and XDP");
    }
    root
}

pub fn sh(command: &str) {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two namespaces, `a` with `va` (10.9.0.1) and `b` with `vb` (10.9.0.2), removed on drop.
pub struct Lab {
    pub a: String,
    pub b: String,
}

impl Lab {
    pub fn new(veth_options: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("apus-t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let (a, b) = (format!("{name}-a"), format!("{name}-b"));
        let lab = Self { a, b };
        let Self { a, b } = &lab;
        sh(&format!(
            "for n in {a} {b}; do ip netns add $n
             ip netns exec $n sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1; done
             ip link add va netns {a} {veth_options} type veth peer name vb netns {b} {veth_options}
             ip -n {a} addr add 10.9.0.1/24 dev va; ip -n {b} addr add 10.9.0.2/24 dev vb
             ip -n {a} link set va up; ip -n {b} link set vb up"
        ));
        lab
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in [&self.a, &self.b] {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// Runs `work` on a thread of its own in the namespace: setns(2) is per thread.
pub fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|threads| {
        let run = || {
            let namespace = File::open(format!("/run/netns/{namespace}")).unwrap();
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        threads.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub fn now() -> Instant<Monotonic> {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

pub const RINGS: RingSizes = RingSizes { fill: 256, rx: 256, tx: 256, completion: 256 };

pub fn sockets() -> SocketConfig {
    SocketConfig { rings: RINGS, ..SocketConfig::default() }
}

/// A worker's half: a pool, and the devices on it.
pub struct End {
    pub pool: Pool,
    pub context: XskContext,
    pub devices: Vec<AfXdpDevice>,
}

/// A frame as it was picked up.
pub struct Got {
    pub data: Vec<u8>,
    pub arrived: Option<Instant<Monotonic>>,
    pub picked_up: Instant<Monotonic>,
}

impl End {
    pub fn empty(config: PoolConfig) -> Self {
        let pool = Pool::new(config).unwrap();
        let context = XskContext::new(&pool);
        Self { pool, context, devices: Vec::new() }
    }

    pub fn new() -> Self {
        Self::empty(PoolConfig { frames: 2048, ..PoolConfig::default() })
    }

    /// Attaches to an interface and opens its queues, as one device.
    pub fn open(mut self, namespace: &str, config: &InterfaceConfig) -> Result<Self, Error> {
        let interface = inside(namespace, || Interface::attach(config))?;
        let End { pool, context, devices } = &mut self;
        devices
            .push(inside(namespace, || AfXdpDevice::open(&interface, interface.queues(), &sockets(), context, pool))?);
        Ok(self)
    }

    pub fn send(&mut self, device: usize, queue: usize, data: &[Vec<u8>]) {
        let mut frames: Vec<Frame> = data
            .iter()
            .map(|data| {
                let mut frame = self.pool.take().expect("a free slot");
                assert!(self.pool.set_len(&mut frame, data.len()));
                self.pool.bytes_mut(&mut frame).copy_from_slice(data);
                frame
            })
            .collect();
        let end = Wall::now() + Duration::from_secs(5);
        while !frames.is_empty() {
            self.devices[device].tx(queue, &mut self.pool, &mut frames);
            assert!(Wall::now() < end, "the TX ring never emptied");
        }
    }

    /// Picks up frames until there are `wanted`, or nothing has come for 300 ms.
    pub fn receive(&mut self, device: usize, queue: usize, wanted: usize) -> Vec<Got> {
        self.receive_patiently(device, queue, wanted, Duration::from_millis(300))
    }

    /// The same with another patience than 300 ms.
    pub fn receive_patiently(&mut self, device: usize, queue: usize, wanted: usize, patience: Duration) -> Vec<Got> {
        let (mut got, mut frames) = (Vec::new(), Vec::new());
        let mut end = Wall::now() + patience;
        while got.len() < wanted && Wall::now() < end {
            if self.devices[device].rx(queue, &mut self.pool, &mut frames, 64) > 0 {
                end = Wall::now() + patience;
            }
            let picked_up = now();
            for frame in frames.drain(..) {
                let data = self.pool.bytes(&frame).to_vec();
                got.push(Got { data, arrived: frame.arrived(), picked_up });
                self.pool.give(frame);
            }
        }
        got
    }

    pub fn statistics(&mut self) -> Statistics {
        self.devices[0].statistics(0)
    }

    /// fill + rx + tx + in flight + completion + free = all.
    #[track_caller]
    pub fn assert_no_slot_lost(&mut self) {
        let mut held = 0;
        for device in &mut self.devices {
            for queue in 0..device.queues() {
                let occupancy = device.occupancy(queue);
                println!("{} queue {queue}: {occupancy:?}", device.name());
                held += occupancy.slots() as usize;
            }
        }
        assert_eq!(held + self.pool.free(), self.pool.frames() as usize, "in rings + free = all");
    }
}

/// An Ethernet frame of the local experimental type (IEEE 802, 0x88b5), of `len` octets, that says
/// its number.
pub fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut data = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5];
    data.extend(number.to_be_bytes());
    data.extend((data.len()..len).map(|i| (i as u32 ^ number) as u8));
    data
}
