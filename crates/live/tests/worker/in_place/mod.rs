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
use policy::wait::{Decision, Mode, Observation, WaitPolicy};
use proptest::prelude::*;
use units::{Monotonic, Nanos};

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
    /// Maximum number of frames that one call receives, and that one call sends.
    burst: usize,
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

    fn rx_packets(&mut self, queue: usize, pool: &mut Pool, packets: &mut Packets, room: usize) -> bool {
        let (mut frames, room) = (Vec::new(), room.min(self.burst));
        self.inner.rx(queue, pool, &mut frames, room);
        self.uses.received.fetch_add(frames.len() as u64, Relaxed);
        let full = frames.len() == room;
        let (memory, slot) = (pool.memory(), pool.frame_size() as usize);
        let headers: Vec<usize> = frames
            .into_iter()
            .map(|frame| {
                let (len, pieces) = (frame.len() as u16, 1 + u16::from(pool.bytes(&frame)[0] == Kind::Pieces as u8));
                let at = pool.lend_frame(frame);
                let start = at - at % slot;
                let buffer = start + HEADER_LEN;
                let (offset, buffer) = ((at - buffer) as u16, (memory.range().0.addr() + buffer) as u64);
                let header = Header { buffer, iova: 0, offset, owners: 1, pieces, port: 7, unread: [0; 4], len };
                sys::write_header(&memory, start, header)
            })
            .collect();
        sys::fill(packets, &memory, self.kind(), slot - HEADER_LEN, &headers);
        full
    }

    fn tx_packets(&mut self, queue: usize, pool: &mut Pool, packets: &mut Packets) -> usize {
        let (memory, kind, room) = (pool.memory(), self.kind(), packets.len().min(self.tx_room));
        let sent = sys::send(packets, &memory, kind, |headers| {
            let mut frames: Vec<Frame> = headers[..room].iter().map(|at| Self::frame(pool, *at)).collect();
            let sent = self.inner.tx(queue, pool, &mut frames);
            for frame in frames {
                pool.lend_frame(frame);
            }
            sent
        });
        self.uses.sent.fetch_add(sent as u64, Relaxed);
        sent
    }

    fn make_frames(&mut self, pool: &mut Pool, packets: &mut Packets, count: usize, out: &mut Vec<Frame>) {
        let headers = sys::take(packets, &pool.memory(), self.kind(), count);
        out.extend(headers.into_iter().map(|at| Self::frame(pool, at)));
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

/// What happens to a frame. Its first byte says so.
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
        script.wrap(port, |inner| Box::new(Headed { inner, burst: 64, tx_room, uses }));
    }
    (script, uses)
}

/// `kinds` arrive at `port` at this time, all at once; `number` counts the port's frames. Returns how many bytes they are.
fn arrive(script: &mut Script, at: Nanos, port: usize, kinds: &[Kind], number: &mut u32) -> u64 {
    let mut octets = 0;
    for kind in kinds {
        let data = frame(*kind, port, *number);
        octets += data.len() as u64;
        script.at(at, Event::Unstamped { port, data: data.into() });
        *number += 1;
    }
    octets
}

/// Received = sent + dropped. Every sent frame was handled once, and those from one port to another are in order.
fn check<P>(ended: &Ended<P>, frames: u64, octets: u64) -> Counts {
    let counts = ended.snapshot.counts.clone();
    assert_eq!((counts.received_frames, counts.received_bytes), (frames, octets));
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
        tx_room in prop_oneof![3 => Just(usize::MAX), 1 => 0usize..70],
    ) {
        let (mut script, _) = world(tx_room);
        let (mut numbers, mut at, mut arrived, mut octets) = ([0; 2], 0, 0, 0);
        for (port, kinds) in &bursts {
            at += 500;
            octets += arrive(&mut script, Nanos::from_micros(at), *port, kinds, &mut numbers[*port]);
            arrived += kinds.len() as u64;
        }
        script.at(Nanos::from_micros(at + 20_000), Event::Stop);
        let ended = script.run(Sorter, Mode::Poll.policy());
        check(&ended, arrived, octets);
    }
}

/// The frames of a burst for one port stay in their packet buffers. After another burst, the worker receives frames, for
/// one poll at first, and after each failure in a row for twice as many.
#[test]
fn bursts_for_one_port_stay_in_their_packet_buffers() {
    let (mut script, uses) = world(usize::MAX);
    let (mut number, mut at, mut octets, mut arrived) = (0, 0, 0, 0);
    let mut next = |kinds: &[Kind]| {
        at += 100;
        arrived += kinds.len() as u64;
        octets += arrive(&mut script, Nanos::from_micros(at), 0, kinds, &mut number);
    };
    next(&[Kind::ToSecond; 64]);
    next(&[Kind::ToFirst; 64]);
    // Tries are polls 0, 2, 5, 10, 19 and 36.
    for _ in 0..37 {
        next(&[Kind::ToFirst, Kind::ToSecond]);
    }
    for _ in 0..32 {
        next(&[Kind::ToFirst]);
    }
    // This one succeeds, so the next failure costs a single poll again.
    next(&[Kind::ToSecond; 10]);
    next(&[Kind::ToSecond, Kind::ToFirst]);
    next(&[Kind::ToSecond; 20]);
    next(&[Kind::ToSecond; 30]);
    script.at(Nanos::from_millis(50), Event::Stop);
    let ended = script.run(Sorter, Mode::Poll.policy());
    check(&ended, arrived, octets);
    let (received, sent) = (uses.received.load(Relaxed), uses.sent.load(Relaxed));
    assert_eq!((received, sent), (128 + 6 * 2 + 10 + 2 + 30, 128 + 10 + 30));
}

/// What a policy sees of the polls that found frames: number of frames, those known to wait with them, and whether they
/// were picked up before the decision.
#[derive(Clone, Default)]
struct Seen(Vec<(u32, u32, bool)>);

impl WaitPolicy<Monotonic> for Seen {
    fn decide(&mut self, seen: &Observation<'_, Monotonic>) -> Decision<Monotonic> {
        for queue in seen.queues {
            let Some(arrivals) = queue.arrivals else { continue };
            assert!(!arrivals.stamped && arrivals.last == arrivals.picked_up);
            self.0.push((queue.received, queue.fill, arrivals.picked_up < seen.now));
        }
        Mode::Poll.policy().decide(seen)
    }
}

/// One poll passes on several full bursts: up to 256 frames if the worker has one queue, otherwise as many as any poll
/// takes.
#[test]
fn a_poll_passes_on_several_full_bursts() {
    let one_by_one: Vec<_> = (0..5).map(|poll| (64, 320 - 64 * poll, true)).collect();
    let together = vec![(256, 320, true), (64, 64, true)];
    for (ports, burst, polls) in [(1, 64, &together), (1, 32, &together), (2, 64, &one_by_one), (2, 32, &one_by_one)] {
        let mut script = Script::new(ports);
        script.wrap(0, |inner| Box::new(Headed { inner, burst, tx_room: usize::MAX, uses: Uses::default() }));
        let octets = arrive(&mut script, Nanos::from_micros(100), 0, &[Kind::ToFirst; 64 * 5], &mut 0);
        script.at(Nanos::from_millis(1), Event::Stop);
        let ended = script.run(Sorter, Seen::default());
        check(&ended, 64 * 5, octets);
        assert_eq!(&ended.policy.0, polls, "{ports} port(s), bursts of {burst}");
    }
}

#[test]
fn what_cannot_be_sent_is_dropped_for_its_reason() {
    let (mut script, uses) = world(10);
    let mut octets = arrive(&mut script, Nanos::from_micros(100), 0, &[Kind::ToSecond; 64], &mut 0);
    script.at(Nanos::from_micros(200), Event::Link { port: 1, state: LinkState::Down });
    // The worker looks at its ports ten times a second.
    octets += arrive(&mut script, Nanos::from_millis(300), 0, &[Kind::ToSecond; 7], &mut 64);
    script.at(Nanos::from_millis(400), Event::Stop);
    let ended = script.run(Sorter, Mode::Poll.policy());
    let counts = check(&ended, 71, octets);
    let dropped = |reason: DropReason| counts.dropped[reason as usize];
    assert_eq!((dropped(DropReason::TxFull), dropped(DropReason::LinkDown)), (54, 7));
    assert_eq!((uses.received.load(Relaxed), uses.sent.load(Relaxed)), (71, 10));
}
