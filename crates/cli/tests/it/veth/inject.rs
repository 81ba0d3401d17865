use std::time::{Duration, Instant};

use live::device::Device as _;
use live::device::afxdp::{AfXdpDevice, Filter, Interface, InterfaceConfig, SocketConfig, XskContext};
use live::pool::{Frame, Pool, PoolConfig};

use super::Bed;

/// IEEE 802, local experimental EtherType 1: the only frames that the injector keeps from the kernel.
pub const EXPERIMENTAL: u16 = 0x88b5;

/// Sends frames of any content out of an interface, whose other traffic the kernel keeps.
pub struct Injector {
    pool: Pool,
    device: AfXdpDevice,
    batch: Vec<Frame>,
}

impl Injector {
    pub fn new(bed: &Bed, role: &str, interface: &str) -> Self {
        let filter = Filter::EtherTypes(vec![EXPERIMENTAL]);
        let config = InterfaceConfig { filter, ..InterfaceConfig::new(interface) };
        let sockets = SocketConfig::default();
        let mut pool = Pool::new(PoolConfig { frames: sockets.slots_per_queue(), ..PoolConfig::default() }).unwrap();
        let device = bed.inside(role, || {
            let interface = Interface::attach(&config).unwrap();
            let mut context = XskContext::new(&pool);
            AfXdpDevice::open(&interface, &[0], &sockets, &mut context, &mut pool).unwrap()
        });
        Self { pool, device, batch: Vec::new() }
    }

    /// Sends `count` frames, of which `fill` makes each in a buffer of 1514 octets and says its
    /// length; returns when the kernel has taken all. Frames for us are thrown away.
    pub fn send(&mut self, count: u32, mut fill: impl FnMut(&mut [u8]) -> usize) {
        let mut left = count;
        let deadline = Instant::now() + Duration::from_secs(20);
        while left > 0 || self.device.occupancy(0).tx > 0 {
            assert!(Instant::now() < deadline, "the injector's ring never emptied");
            while left > 0 && self.batch.len() < 64 {
                let Some(mut frame) = self.pool.take() else { break };
                assert!(self.pool.set_len(&mut frame, 1514));
                let len = fill(self.pool.bytes_mut(&mut frame));
                assert!(self.pool.set_len(&mut frame, len));
                self.batch.push(frame);
                left -= 1;
            }
            self.device.tx(0, &mut self.pool, &mut self.batch);
            let mut got = Vec::new();
            self.device.rx(0, &mut self.pool, &mut got, 256);
            got.into_iter().for_each(|frame| self.pool.give(frame));
        }
    }
}

/// A small generator of numbers that look random: SplitMix64 (Steele, Lea and Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_ne_bytes()[..part.len()]);
        }
    }
}
