mod sys;

use std::any::TypeId;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use live::Error;
use live::app::{App, Verdict};
use live::device::memory::LinkState;
use live::device::{Capabilities, Device, Health, InPlace, Statistics};
use live::pool::packets::{HEADER_LEN, Header, Packets};
use live::pool::{Frame, Pool};
use live::telemetry::{Counts, DropReason};
use policy::wait::Mode;
use proptest::prelude::*;
use units::Nanos;

use super::scripted::{Ended, Event, Script};

/// How often a worker used the packet buffers.
#[derive(Clone, Default)]
struct Uses {
    received: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
}

/// A device with packet buffers: a header at the start of each slot.
struct Headed {
    inner: Box<dyn Device>,
    /// Number of frames that one call sends.
    tx_room: usize,
    uses: Uses,
}

impl Headed {
    /// Takes a packet buffer back from the driver.
    fn frame(pool: &mut Pool, address: usize) -> Frame {
        let header = sys::read_header(address);
        let at = address + HEADER_LEN + usize::from(header.offset) - pool.memory().range().0.addr();
        pool.receive(at, u32::from(header.len)).expect("its slot is lent")
    }
}

impl InPlace for Headed {
    fn kind(&self) -> TypeId {
        TypeId::of::<Self>()
    }

    fn rx_packets(&mut self, queue: usize, pool: &mut Pool, packets: &mut Packets, room: usize) {
        let mut frames = Vec::new();
        self.inner.rx(queue, pool, &mut frames, room);
        self.uses.received.fetch_add(frames.len() as u64, Relaxed);
        let memory = pool.memory();
        let headers: Vec<usize> = frames
            .into_iter()
            .map(|frame| {
                let (len, pieces) = (frame.len() as u16, 1 + u16::from(pool.bytes(&frame)[0] == Kind::Pieces as u8));
                let at = pool.lend_frame(frame);
                let start = at - at % pool.frame_size() as usize;
                let buffer = start + HEADER_LEN;
                let (offset, buffer) = ((at - buffer) as u16, (memory.range().0.addr() + buffer) as u64);
                let header = Header { buffer, iova: 0, offset, owners: 1, pieces, port: 7, unread: [0; 4], len };
                sys::write_header(&memory, start, header)
            })
            .collect();
        sys::fill(packets, &memory, self.kind(), &headers);
    }

    fn tx_packets(&mut self, queue: usize, pool: &mut Pool, packets: &mut Packets) -> usize {
        assert!(packets.belong_to(&pool.memory(), self.kind()));
        let room = packets.len().min(self.tx_room);
        let mut frames: Vec<Frame> = packets.headers()[..room].iter().map(|at| Self::frame(pool, *at)).collect();
        let sent = self.inner.tx(queue, pool, &mut frames);
        for frame in frames {
            pool.lend_frame(frame);
        }
        self.uses.sent.fetch_add(sent as u64, Relaxed);
        packets.remove_first(sent);
        sent
    }

    fn make_frames(&mut self, pool: &mut Pool, packets: &mut Packets, count: usize, out: &mut Vec<Frame>) {
        let count = count.min(packets.len());
        out.extend(packets.headers()[..count].iter().map(|at| Self::frame(pool, *at)));
        packets.remove_first(count);
    }
}

impl Device for Headed {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn queues(&self) -> usize {
        self.inner.queues()
    }
    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        self.inner.rx(queue, pool, out, room)
    }
    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let mut rest = frames.split_off(frames.len().min(self.tx_room));
        let sent = self.inner.tx(queue, pool, frames);
        frames.append(&mut rest);
        sent
    }
    fn backlog(&self, queue: usize) -> usize {
        self.inner.backlog(queue)
    }
    fn arm(&mut self, queue: usize) -> Result<(), Error> {
        self.inner.arm(queue)
    }
    fn disarm(&mut self, queue: usize) {
        self.inner.disarm(queue);
    }
    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.inner.wait_handle(queue)
    }
    fn health(&mut self) -> Result<Health, Error> {
        self.inner.health()
    }
    fn statistics(&mut self, queue: usize) -> Statistics {
        self.inner.statistics(queue)
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        Some(self)
    }
}

/// The first byte of a frame: what becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    ToFirst = 0,
    ToSecond = 1,
    /// Port 2 has no packet buffers.
    ToPlain = 2,
    Nowhere = 3,
    Dropped = 4,
    /// Is in two pieces, and goes to port 0.
    Pieces = 5,
}

/// Does what the first byte says, and counts in the second how often it handled the frame.
#[derive(Clone, Copy)]
struct Sorter;

impl App for Sorter {
    fn handle(&mut self, _port: usize, frame: &mut [u8]) -> Verdict {
        frame[1] += 1;
        match frame[0] {
            kind if kind == Kind::Dropped as u8 => Verdict::Drop(DropReason::Discard),
            kind if kind == Kind::Pieces as u8 => Verdict::Send(0),
            port => Verdict::Send(usize::from(port)),
        }
    }
}

/// A frame of this kind, the `number`th of those that arrive at `port`.
fn frame(kind: Kind, port: usize, number: u32) -> Vec<u8> {
    let mut data = vec![kind as u8, 0, port as u8, 0];
    data.extend(number.to_le_bytes());
    data.resize(60 + number as usize % 200, 0x5a);
    data
}

/// Two ports with packet buffers and one without.
fn world(tx_room: usize) -> (Script, Uses) {
    let (mut script, uses) = (Script::new(3), Uses::default());
    for port in 0..2 {
        let uses = uses.clone();
        script.wrap(port, |inner| Box::new(Headed { inner, tx_room, uses }));
    }
    (script, uses)
}

/// `kinds` arrive at `port` at this time, all at once; `number` counts the port's frames.
fn arrive(script: &mut Script, at: Nanos, port: usize, kinds: &[Kind], number: &mut u32) {
    for kind in kinds {
        script.at(at, Event::Unstamped { port, data: frame(*kind, port, *number).into() });
        *number += 1;
    }
}

/// Received = sent + dropped. Every sent frame was handled once, and those from one port to another are in order.
fn check<P>(ended: &Ended<P>, arrived: u64) -> Counts {
    let counts = ended.snapshot.counts.clone();
    assert_eq!(counts.received_frames, arrived);
    assert_eq!(counts.received_frames, counts.sent_frames + counts.dropped.iter().sum::<u64>());
    let (mut sent, mut octets) = (0, 0);
    // The wires keep so many frames, and count the others.
    let overflow: u64 = ended.wires.iter().map(|wire| wire.sent_overflow(0)).sum();
    for (to, wire) in ended.wires.iter().enumerate() {
        let mut next = [0; 2];
        while let Some(data) = wire.take_sent(0) {
            let number = u32::from_le_bytes(data[4..8].try_into().unwrap());
            let from = usize::from(data[2]);
            assert_eq!((data[1], data.len()), (1, 60 + number as usize % 200), "{to}: {data:?}");
            assert!(usize::from(data[0]) == to || (data[0] == Kind::Pieces as u8 && to == 0));
            assert!(number >= next[from], "{number} after {}", next[from]);
            next[from] = number + 1;
            (sent, octets) = (sent + 1, octets + data.len() as u64);
        }
    }
    assert_eq!(counts.sent_frames, sent + overflow);
    assert!(overflow > 0 || counts.sent_bytes == octets);
    counts
}

fn kinds() -> impl Strategy<Value = Kind> {
    use Kind::{Dropped, Nowhere, Pieces, ToFirst, ToPlain, ToSecond};
    prop_oneof![
        20 => Just(ToFirst), 20 => Just(ToSecond), 1 => Just(ToPlain), 1 => Just(Nowhere), 1 => Just(Dropped), 1 => Just(Pieces),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is in a burst: each frame is handled once and accounted for.
    #[test]
    fn each_frame_is_handled_once(
        bursts in proptest::collection::vec(
            (0usize..2, prop_oneof![
                proptest::collection::vec(kinds(), 1..150),
                (kinds(), 1usize..200).prop_map(|(kind, count)| vec![kind; count]),
            ]), 1..12),
        // Far apart, so that the worker has tried packet buffers again in between, or not.
        apart in prop_oneof![Just(50u64), Just(5_000)],
        tx_room in prop_oneof![3 => Just(usize::MAX), 1 => 0usize..70],
    ) {
        let (mut script, _) = world(tx_room);
        let (mut numbers, mut at, mut arrived) = ([0; 2], 0, 0);
        for (port, kinds) in &bursts {
            at += apart;
            arrive(&mut script, Nanos::from_micros(at), *port, kinds, &mut numbers[*port]);
            arrived += kinds.len() as u64;
        }
        script.at(Nanos::from_micros(at + 20_000), Event::Stop);
        let ended = script.run(Sorter, Mode::Poll.policy());
        check(&ended, arrived);
    }
}

/// A burst that goes to one port stays in its packet buffers. After another one, the worker receives frames for a while.
#[test]
fn a_burst_for_one_port_is_not_made_frames_of() {
    let (mut script, uses) = world(usize::MAX);
    let mut number = 0;
    let mut at = |script: &mut Script, micros: u64, kinds: &[Kind]| {
        arrive(script, Nanos::from_micros(micros), 0, kinds, &mut number);
    };
    at(&mut script, 100, &[Kind::ToSecond; 64]);
    at(&mut script, 200, &[Kind::ToFirst; 64]);
    at(&mut script, 300, &[Kind::ToFirst, Kind::ToSecond]);
    // 1024 polls with frames that are not tried in place.
    for poll in 0..1024 {
        at(&mut script, 400 + 100 * poll, &[Kind::ToFirst]);
    }
    at(&mut script, 200_000, &[Kind::ToSecond; 10]);
    script.at(Nanos::from_millis(300), Event::Stop);
    let ended = script.run(Sorter, Mode::Poll.policy());
    check(&ended, 64 + 64 + 2 + 1024 + 10);
    assert_eq!((uses.received.load(Relaxed), uses.sent.load(Relaxed)), (64 + 64 + 2 + 10, 64 + 64 + 10));
}

/// One poll passes on several full bursts if the worker has one queue.
#[test]
fn a_poll_passes_on_several_full_bursts() {
    for (ports, polls) in [(1, 2), (2, 5)] {
        let mut script = Script::new(ports);
        let uses = Uses::default();
        script.wrap(0, |inner| Box::new(Headed { inner, tx_room: usize::MAX, uses: uses.clone() }));
        arrive(&mut script, Nanos::from_micros(100), 0, &[Kind::ToFirst; 64 * 5], &mut 0);
        script.at(Nanos::from_millis(1), Event::Stop);
        let ended = script.run(Sorter, Mode::Poll.policy());
        let counts = check(&ended, 64 * 5);
        assert_eq!(counts.polls - counts.empty_polls, polls, "{ports} port(s)");
    }
}

#[test]
fn what_cannot_be_sent_is_dropped_for_its_reason() {
    let (mut script, uses) = world(10);
    arrive(&mut script, Nanos::from_micros(100), 0, &[Kind::ToSecond; 64], &mut 0);
    script.at(Nanos::from_micros(200), Event::Link { port: 1, state: LinkState::Down });
    // The worker looks at its ports ten times a second.
    arrive(&mut script, Nanos::from_millis(300), 0, &[Kind::ToSecond; 7], &mut 64);
    script.at(Nanos::from_millis(400), Event::Stop);
    let ended = script.run(Sorter, Mode::Poll.policy());
    let counts = check(&ended, 71);
    let dropped = |reason: DropReason| counts.dropped[reason as usize];
    assert_eq!((dropped(DropReason::TxFull), dropped(DropReason::LinkDown)), (54, 7));
    assert_eq!((uses.received.load(Relaxed), uses.sent.load(Relaxed)), (71, 10));
}
