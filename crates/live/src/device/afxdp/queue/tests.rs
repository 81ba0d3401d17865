//! The rings of a queue against a kernel's side that the tests play: memory files take the place of the rings, and a
//! datagram socket that of the AF_XDP socket. Each kick arrives at its other end as an empty datagram.

use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::xdp::XdpRingOffset;

use super::super::sys::Entry;
use super::*;
use crate::pool::PoolConfig;

const CHUNK: u32 = 4096;
const SIZES: RingSizes = RingSizes { fill: 64, rx: 64, tx: 64, completion: 64 };
/// Offset of the data in a slot, as with AF_XDP: XDP_PACKET_HEADROOM and the time stamp.
const DATA: u64 = 260;

/// Maps a ring twice: for the queue, and for the kernel's side.
fn ring<T: Entry>(entries: u32) -> (RingMemory<T>, RingMemory<T>) {
    let file = File::from(memfd_create("ring", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&file, 1 << 16).unwrap();
    let at = XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };
    let map = || RingMemory::map(file.as_fd(), at, entries, 0).unwrap();
    (map(), map())
}

/// The kernel's side of the rings.
struct Kernel {
    fill: RingMemory<u64>,
    completion: RingMemory<u64>,
    rx: RingMemory<Desc>,
    tx: RingMemory<Desc>,
    /// The other end of the queue's socket.
    socket: UnixDatagram,
    /// Descriptors that were taken from the TX ring and are not completed yet.
    sending: Vec<u64>,
}

impl Kernel {
    fn new(zero_copy: bool, frame_size: u32) -> (Self, Queue, Pool) {
        let mut pool = Pool::new(PoolConfig { frames: 256, frame_size, huge_pages: false }).unwrap();
        let (fill, kernels_fill) = ring(SIZES.fill);
        let (completion, kernels_completion) = ring(SIZES.completion);
        let (rx, kernels_rx) = ring(SIZES.rx);
        let (tx, kernels_tx) = ring(SIZES.tx);
        let (ours, socket) = UnixDatagram::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let kernel = Self {
            fill: kernels_fill,
            completion: kernels_completion,
            rx: kernels_rx,
            tx: kernels_tx,
            socket,
            sending: Vec::new(),
        };
        let counts = XdpStatistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: None,
            rx_fill_ring_empty_descs: None,
            tx_ring_empty_descs: None,
        };
        let setup = Setup { id: 0, sizes: SIZES, chunk: frame_size.min(CHUNK), need_wakeup: true };
        let rings = Rings { fill, completion, rx, tx };
        let mut queue =
            Queue::with(setup, Arc::new(ours.into()), rings, (counts, Stamps::new(LinuxCpu.now(), 0)), &mut pool);
        queue.zero_copy = zero_copy;
        (kernel, queue, pool)
    }

    /// Tells the queue whether the driver waits for a kick before it sends.
    fn wants_kicks(&self, wants: bool) {
        self.tx.flags().store(if wants { libc::XDP_RING_NEED_WAKEUP } else { 0 }, Relaxed);
    }

    /// Number of kicks since the last call.
    fn kicks(&self) -> usize {
        std::iter::from_fn(|| self.socket.recv(&mut [0]).ok()).count()
    }

    /// Takes up to `most` descriptors from the TX ring.
    fn take(&mut self, most: u32) -> Vec<Desc> {
        let (from, to) = (self.tx.consumer().load(Relaxed), self.tx.producer().load(Acquire));
        let taken: Vec<Desc> =
            (0..to.wrapping_sub(from).min(most)).map(|i| self.tx.read(from.wrapping_add(i))).collect();
        self.tx.consumer().store(from.wrapping_add(taken.len() as u32), Release);
        self.sending.extend(taken.iter().map(|desc| desc.addr));
        taken
    }

    /// Completes up to `most` descriptors.
    fn complete(&mut self, most: usize) {
        let producer = self.completion.producer();
        for addr in self.sending.drain(..most.min(self.sending.len())) {
            let at = producer.load(Relaxed);
            assert!(
                at.wrapping_sub(self.completion.consumer().load(Acquire)) < SIZES.completion,
                "no room to complete"
            );
            self.completion.write(at, addr);
            producer.store(at.wrapping_add(1), Release);
        }
    }

    /// Receives a frame in as many descriptors as it needs. Returns false if there is no room for it.
    fn receive(&mut self, data: &[u8], pool: &mut Pool) -> bool {
        let parts: Vec<&[u8]> = data.chunks(CHUNK as usize - DATA as usize).collect();
        let (from, filled) = (self.fill.consumer().load(Relaxed), self.fill.producer().load(Acquire));
        let (at, taken) = (self.rx.producer().load(Relaxed), self.rx.consumer().load(Acquire));
        let n = parts.len() as u32;
        if filled.wrapping_sub(from) < n || SIZES.rx - at.wrapping_sub(taken) < n {
            return false;
        }
        for (i, part) in (0..n).zip(&parts) {
            let addr = self.fill.read(from.wrapping_add(i)) + DATA;
            write(pool, addr, part);
            let options = if i + 1 < n { libc::XDP_PKT_CONTD } else { 0 };
            self.rx.write(at.wrapping_add(i), Desc { addr, len: part.len() as u32, options });
        }
        self.fill.consumer().store(from.wrapping_add(n), Release);
        self.rx.producer().store(at.wrapping_add(n), Release);
        true
    }
}

/// Writes `data` to a slot that the kernel's side has.
fn write(pool: &mut Pool, addr: u64, data: &[u8]) {
    let mut frame = pool.frame_at(addr, data.len() as u32).unwrap();
    pool.bytes_mut(&mut frame).copy_from_slice(data);
}

fn frame(pool: &mut Pool, len: usize) -> Frame {
    let mut frame = pool.take().unwrap();
    assert!(pool.set_len(&mut frame, len));
    frame
}

/// Regression test: the room in the TX ring was read again only if it was less than the number of frames, each of which
/// can take several descriptors. With zero copy, jumbo frames were dropped although the ring was empty.
#[test]
fn a_jumbo_frame_finds_the_room_in_the_ring() {
    let (mut kernel, mut queue, mut pool) = Kernel::new(true, 16_384);
    kernel.wants_kicks(false);
    for number in 0..200 {
        let mut frames = vec![frame(&mut pool, 9_014)];
        assert_eq!(queue.send(&mut pool, &mut frames), 1, "frame {number}; the ring is empty");
        let lens: Vec<u32> = kernel.take(u32::MAX).iter().map(|desc| desc.len).collect();
        assert_eq!((lens.len(), lens.iter().sum()), (3, 9_014));
        kernel.complete(usize::MAX);
    }
}

/// Regression test: with zero copy, a kick that failed was not repeated, and the frames stayed in the TX ring until the
/// next ones were sent.
#[test]
fn a_kick_that_failed_is_repeated() {
    let (mut kernel, mut queue, mut pool) = Kernel::new(true, 2048);
    kernel.wants_kicks(true);
    // The socket's queue is full, so that send(2) returns EAGAIN, as it does while a driver is being reconfigured.
    while rustix::net::send(&queue.fd, &[], SendFlags::DONTWAIT).is_ok() {}
    let mut frames = vec![frame(&mut pool, 60)];
    assert_eq!(queue.send(&mut pool, &mut frames), 1);
    kernel.kicks();
    queue.receive(&mut pool, &mut Vec::new(), 64);
    assert_eq!(kernel.kicks(), 1, "the frame is still in the ring");
    kernel.take(1);
    for _ in 0..3 {
        queue.receive(&mut pool, &mut Vec::new(), 64);
    }
    assert_eq!(kernel.kicks(), 0, "the driver has the frame");
}

/// Regression test: a driver that finds the ring empty, asks for kicks and stops at the moment when a frame is put into
/// the ring, once left the frame there until the next ones were sent.
#[test]
fn a_driver_that_stops_just_now_is_kicked() {
    let (mut kernel, mut queue, mut pool) = Kernel::new(true, 2048);
    kernel.wants_kicks(false);
    let mut frames = vec![frame(&mut pool, 60)];
    assert_eq!(queue.send(&mut pool, &mut frames), 1);
    queue.receive(&mut pool, &mut Vec::new(), 64);
    assert_eq!(kernel.kicks(), 0, "the driver is sending by itself");
    kernel.wants_kicks(true);
    queue.receive(&mut pool, &mut Vec::new(), 64);
    assert_eq!(kernel.kicks(), 1);
    queue.receive(&mut pool, &mut Vec::new(), 64);
    assert_eq!(kernel.kicks(), 0, "one kick is enough");
    kernel.take(1);
    kernel.complete(1);
}

/// Regression test: if the pool was empty because all slots were in the completion ring, no frame came in any more.
#[test]
fn a_small_pool_gets_its_sent_slots_back() {
    let (mut kernel, mut queue, mut pool) = Kernel::new(true, 2048);
    let mut hoard: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
    let mut frames = Vec::new();
    for _ in 0..SIZES.fill {
        assert!(kernel.receive(&[1; 60], &mut pool));
    }
    assert_eq!(queue.receive(&mut pool, &mut frames, 64), 64);
    assert_eq!(queue.send(&mut pool, &mut frames), 64);
    kernel.take(u32::MAX);
    kernel.complete(usize::MAX);
    assert!(!kernel.receive(&[2; 60], &mut pool), "there is no slot");
    queue.receive(&mut pool, &mut frames, 64);
    assert!(kernel.receive(&[2; 60], &mut pool), "the sent slots are free");
    assert_eq!(queue.receive(&mut pool, &mut frames, 64), 1);
    pool.give_many(&mut frames);
    pool.give_many(&mut hoard);
}

#[derive(Clone, Debug)]
enum Step {
    /// A frame of this length arrives.
    Arrive(usize),
    /// The worker polls, and sends all frames that it has.
    Forward(usize),
    /// The driver takes so many descriptors, and completes so many.
    Send(u32, usize),
    /// The driver asks for kicks, or no longer does.
    Wakeup(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        prop_oneof![14usize..100, 3_700usize..4_000, 7_600usize..16_000].prop_map(Step::Arrive),
        (0usize..70).prop_map(Step::Forward),
        (0u32..70, 0usize..70).prop_map(|(taken, completed)| Step::Send(taken, completed)),
        any::<bool>().prop_map(Step::Wakeup),
    ];
    proptest::collection::vec(step, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the two sides do, each frame that arrived leaves once, whole and in order, and no slot is lost.
    #[test]
    fn frames_pass_whole_and_no_slot_is_lost(
        zero_copy: bool, frame_size in prop::sample::select(vec![4096u32, 16_384]), steps in steps(),
    ) {
        let (mut kernel, mut queue, mut pool) = Kernel::new(zero_copy, frame_size);
        let (mut arrived, mut left, mut whole) = (Vec::new(), Vec::new(), Vec::new());
        let mut frames = Vec::new();
        let longest = pool.longest_frame().min(frame_size as usize - DATA as usize);
        let mut leave = |kernel: &mut Kernel, pool: &Pool, most, completed| {
            for desc in kernel.take(most) {
                let part = pool.frame_at(desc.addr, desc.len).unwrap();
                whole.extend_from_slice(pool.bytes(&part));
                if desc.options & libc::XDP_PKT_CONTD == 0 {
                    left.push(std::mem::take(&mut whole));
                }
            }
            kernel.complete(completed);
        };
        for step in steps {
            match step {
                Step::Arrive(len) if len > longest => {}
                Step::Arrive(len) => {
                    let data: Vec<u8> = (0..len).map(|i| (i ^ arrived.len()) as u8).collect();
                    if kernel.receive(&data, &mut pool) {
                        arrived.push(data);
                    }
                }
                Step::Forward(room) => {
                    queue.receive(&mut pool, &mut frames, room);
                    queue.send(&mut pool, &mut frames);
                }
                Step::Send(taken, completed) => leave(&mut kernel, &pool, taken, completed),
                Step::Wakeup(wants) => kernel.wants_kicks(wants),
            }
            kernel.kicks();
            let held = queue.occupancy().slots() as usize;
            // A jumbo frame that is being sent has one slot, but several descriptors.
            let in_rings = queue.held.iter().filter(|held| **held > 0).count();
            let partial = usize::from(matches!(queue.partial, Partial::Frame(_)));
            prop_assert!(held >= in_rings);
            prop_assert_eq!(in_rings + partial + frames.len() + pool.free(), pool.frames() as usize);
        }
        for _ in 0..10 {
            queue.receive(&mut pool, &mut frames, usize::MAX);
            queue.send(&mut pool, &mut frames);
            leave(&mut kernel, &pool, u32::MAX, usize::MAX);
        }
        prop_assert!(arrived == left, "{} frames arrived, {} left", arrived.len(), left.len());
        queue.reclaim(&mut pool);
        queue.zero_copy = false;
        queue.close(&mut pool);
        prop_assert_eq!(pool.free(), pool.frames() as usize);
    }
}
