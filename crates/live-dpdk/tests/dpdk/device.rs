use std::sync::Arc;

use live::device::Device;
use live::device::afxdp::SocketConfig;
use live::pool::packets::Packets;
use live::pool::{Frame, Pool, PoolConfig};
use live::port::{Backend, OpenPort, Opening, Share};
use live_dpdk::{DpdkPort, FRAME_SIZE};

/// A worker's half: a pool, and the device on it.
struct End {
    device: Box<dyn Device>,
    pool: Pool,
    _port: Box<dyn OpenPort>,
}

impl End {
    fn open(device: &str) -> Self {
        let sockets = SocketConfig::default();
        let opening = Opening { number: 0, workers: 1, sockets: &sockets, peak_rate: None };
        let port = Arc::new(DpdkPort::new(device)).open(&opening).unwrap();
        let mut pool =
            Pool::new(PoolConfig { frames: 8192, frame_size: port.least_frame_size(), huge_pages: false }).unwrap();
        let device = port.device(0, &mut Share::new(&mut pool)).unwrap();
        Self { device, pool, _port: port }
    }

    /// A frame in a slot of the free list, where other devices put theirs.
    fn frame(&mut self, number: u32, len: usize) -> Frame {
        let mut frame = self.pool.take().unwrap();
        assert!(self.pool.set_len(&mut frame, len));
        self.pool.bytes_mut(&mut frame).copy_from_slice(&data(number, len));
        frame
    }

    fn receive(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while self.device.rx(0, &mut self.pool, &mut frames, 64) > 0 {}
        frames
    }

    fn check(&self, frame: &Frame, number: u32, len: usize) {
        assert_eq!(self.pool.bytes(frame), data(number, len), "frame {number}");
    }

    /// Free + lent = all, when no frame is out.
    #[track_caller]
    fn assert_no_slot_lost(&self) {
        assert_eq!(self.pool.free() + self.pool.lent(), self.pool.frames() as usize);
    }
}

fn data(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(7).wrapping_add(number) as u8).collect()
}

/// A `net_ring` returns what it is sent: the same mbufs.
#[test]
fn frames_of_other_devices_and_our_own_pass_through_unchanged() {
    let mut end = End::open("net_ring10");
    // More than there are places for a header in a slot: some frames lie where it must be, and are copied.
    let lens = |number: u32| 60 + (number as usize * 31) % 1455;
    for round in 0..40u32 {
        let mut frames: Vec<Frame> = (0..60).map(|i| end.frame(round * 60 + i, lens(i))).collect();
        assert_eq!(end.device.tx(0, &mut end.pool, &mut frames), 60);
        let mut back = end.receive();
        assert_eq!(back.len(), 60);
        for (i, frame) in back.iter().enumerate() {
            end.check(frame, round * 60 + i as u32, lens(i as u32));
            assert!(frame.was_lent());
        }
        // Once more, now as frames that DPDK received; changed on the way.
        for frame in &mut back {
            end.pool.bytes_mut(frame)[0] ^= 0xff;
        }
        assert_eq!(end.device.tx(0, &mut end.pool, &mut back), 60);
        let again = end.receive();
        assert_eq!(again.len(), 60);
        for (i, frame) in again.into_iter().enumerate() {
            let mut expected = data(round * 60 + i as u32, lens(i as u32));
            expected[0] ^= 0xff;
            assert_eq!(end.pool.bytes(&frame), expected);
            end.pool.give(frame);
        }
        end.assert_no_slot_lost();
    }
}

/// The same without making frames of the driver's packet buffers.
#[test]
fn packet_buffers_pass_through_unchanged() {
    let mut end = End::open("net_ring11");
    let lens = |number: u32| 60 + (number as usize * 31) % 1455;
    let mut frames: Vec<Frame> = (0..30).map(|number| end.frame(number, lens(number))).collect();
    assert_eq!(end.device.tx(0, &mut end.pool, &mut frames), 30);
    let End { device, pool, .. } = &mut end;
    let mut packets = Packets::default();
    for round in 0..200 {
        let device = device.in_place().unwrap();
        assert!(!device.rx_packets(0, pool, &mut packets, 64), "the ring is empty");
        assert_eq!(packets.len(), 30, "round {round}");
        let mut number = 0;
        let handled = pool.each_packet(&mut packets, 2000, |bytes| {
            bytes[0] ^= 0xff;
            let mut expected = data(number, lens(number));
            expected[0] ^= if round % 2 == 0 { 0xff } else { 0 };
            assert_eq!(bytes, expected, "frame {number}");
            number += 1;
            true
        });
        assert_eq!(handled, 30);
        assert_eq!(device.tx_packets(0, pool, &mut packets), 30);
        assert!(packets.is_empty());
    }
    let lent = pool.lent();
    let device = device.in_place().unwrap();
    assert!(device.rx_packets(0, pool, &mut packets, 20), "more are in the ring");
    let mut back = Vec::new();
    device.make_frames(pool, &mut packets, 1, &mut back);
    assert_eq!((packets.len(), back.len(), pool.lent()), (19, 1, lent - 1));
    device.make_frames(pool, &mut packets, 64, &mut back);
    assert_eq!((packets.len(), pool.lent()), (0, lent - 20));
    for (number, frame) in (0..).zip(back) {
        end.check(&frame, number, lens(number));
        end.pool.give(frame);
    }
    assert_eq!(end.receive().into_iter().map(|frame| end.pool.give(frame)).count(), 10);
    end.assert_no_slot_lost();
}

/// Their flags could ask the next port for offloads that it does not have.
#[test]
fn packet_buffers_of_vhost_are_not_passed_on() {
    let socket = std::env::temp_dir().join(format!("apus-vhost-{}", std::process::id()));
    let mut end = End::open(&format!("net_vhost15,iface={}", socket.display()));
    assert!(end.device.in_place().is_none());
    assert!(End::open("net_null16").device.in_place().is_some());
}

/// The packet buffers of another worker's pool could be anywhere.
#[test]
#[should_panic = "packet buffers of another pool"]
fn packet_buffers_of_another_pool_are_not_sent() {
    let (mut one, mut other) = (End::open("net_null12"), End::open("net_null13"));
    let mut packets = Packets::default();
    one.device.in_place().unwrap().rx_packets(0, &mut one.pool, &mut packets, 8);
    assert_eq!(one.pool.each_packet(&mut packets, 2000, |_| true), 8);
    other.device.in_place().unwrap().tx_packets(0, &mut other.pool, &mut packets);
}

/// A packet buffer that was not handled could be shared, or in several pieces.
#[test]
#[should_panic = "packet buffers that were not handled"]
fn packet_buffers_that_were_not_handled_are_not_sent() {
    let mut end = End::open("net_null14");
    let mut packets = Packets::default();
    end.device.in_place().unwrap().rx_packets(0, &mut end.pool, &mut packets, 8);
    assert_eq!(end.pool.each_packet(&mut packets, 2000, |_| true), 8);
    assert_eq!(end.device.in_place().unwrap().tx_packets(0, &mut end.pool, &mut packets), 8);
    end.device.in_place().unwrap().rx_packets(0, &mut end.pool, &mut packets, 8);
    end.device.in_place().unwrap().tx_packets(0, &mut end.pool, &mut packets);
}

/// A frame of another device that has no room behind DPDK's headers: its copy would write into the next slot.
#[test]
fn a_frame_that_has_no_room_behind_the_headers_is_refused() {
    let mut end = End::open("net_ring20");
    let room = end.device.capabilities().longest_frame as usize;
    let (fits, longest) = (room, end.pool.longest_frame());
    assert!(fits < longest, "there are such frames");
    for round in 0..30 {
        let mut frames: Vec<Frame> =
            [fits, longest, 60, fits + 1].into_iter().map(|len| end.frame(round, len)).collect();
        assert_eq!(end.device.tx(0, &mut end.pool, &mut frames), 4);
        let back = end.receive();
        assert_eq!(back.iter().map(Frame::len).collect::<Vec<_>>(), [fits, 60]);
        back.iter().for_each(|frame| end.check(frame, round, frame.len()));
        back.into_iter().for_each(|frame| end.pool.give(frame));
        assert_eq!(end.device.statistics(0).tx_invalid, 2 * u64::from(round + 1));
        end.assert_no_slot_lost();
    }
}

#[test]
fn a_full_ring_takes_no_more_and_the_caller_keeps_the_rest() {
    let mut end = End::open("net_ring30");
    let mut sent = 0;
    loop {
        let mut frames: Vec<Frame> = (0..64).map(|i| end.frame(i, 100)).collect();
        let taken = end.device.tx(0, &mut end.pool, &mut frames);
        assert_eq!(frames.len(), 64 - taken);
        sent += taken;
        frames.into_iter().for_each(|frame| end.pool.give(frame));
        if taken < 64 {
            break;
        }
    }
    end.assert_no_slot_lost();
    assert_eq!(end.receive().len(), sent);
    // Refused is not lost.
    assert_eq!(end.device.statistics(0).tx_dropped, 0);
}

#[test]
fn a_driver_without_interrupts_says_so() {
    let mut end = End::open("net_null40");
    assert!(!end.device.capabilities().wakes);
    assert!(end.device.wait_handle(0).is_none());
    end.device.arm(0).unwrap();
    end.device.disarm(0);
    assert_eq!(FRAME_SIZE, end.pool.frame_size());
    assert!(end.device.capabilities().longest_frame >= 1518);
}

/// Regression test: once, every eighth poll lent 512 slots, which took it 15 us. Its frames waited meanwhile.
#[test]
fn no_poll_lends_many_slots_at_once() {
    let mut end = End::open("net_null41");
    for poll in 0..2000 {
        let (mut frames, before) = (Vec::new(), end.pool.free());
        end.device.rx(0, &mut end.pool, &mut frames, 64);
        assert_eq!(frames.len(), 64, "poll {poll}: the mempool ran dry");
        let lent = before.saturating_sub(end.pool.free());
        assert!(lent <= 128, "poll {poll}: {lent} slots");
        // None is sent, so each must be replaced.
        frames.into_iter().for_each(|frame| end.pool.give(frame));
    }
    end.assert_no_slot_lost();
}
