use proptest::prelude::*;

use super::super::wakeup::readable;
use super::*;
use crate::pool::PoolConfig;

fn pool(frames: u32) -> Pool {
    Pool::new(PoolConfig { frames, ..PoolConfig::default() }).unwrap()
}

fn link(ring: usize) -> LinkConfig {
    LinkConfig { ring, longest_frame: 100, ..LinkConfig::default() }
}

#[test]
fn a_source_gives_the_template_and_keeps_what_is_written() {
    let (mut pool, mut out) = (pool(4), Vec::new());
    let mut device = MemoryDevice::source("m", &[1, 2, 3], 60).unwrap().limited(6);
    assert_eq!(device.rx(0, &mut pool, &mut out, 3), 3);
    for frame in &mut out {
        assert_eq!((pool.bytes(frame).len(), &pool.bytes(frame)[..4]), (60, &[1, 2, 3, 0][..]));
        pool.bytes_mut(frame)[0] = 9;
    }
    assert_eq!((device.tx(0, &mut pool, &mut out), pool.free()), (3, 4));
    assert_eq!((device.backlog(0), device.health().unwrap()), (3, Health::Up));
    assert!(readable(device.wait_handle(0).unwrap()));
    assert_eq!(device.rx(0, &mut pool, &mut out, 32), 3);
    assert!(out.iter().filter(|f| pool.bytes(f)[0] == 9).count() >= 2);
    assert_eq!((device.rx(0, &mut pool, &mut out, 32), device.health().unwrap()), (0, Health::Finished));
    assert!(!readable(device.wait_handle(0).unwrap()), "an exhausted source wakes nobody");
    assert!(MemoryDevice::source("m", &[1], 0).is_err());
}

#[test]
fn an_armed_port_wakes_for_a_frame_and_no_other() {
    let (mut port, far) = MemoryDevice::scripted("p", link(4)).unwrap();
    let ready = |port: &MemoryDevice| readable(port.wait_handle(0).unwrap());
    far.push(0, &[1], None);
    assert!(!ready(&port), "not armed");
    port.arm(0).unwrap();
    assert!(ready(&port), "armed with a frame waiting");
    port.disarm(0);
    assert!(!ready(&port));
    let (mut pool, mut out) = (pool(4), Vec::new());
    assert_eq!(port.rx(0, &mut pool, &mut out, 4), 1);
    port.arm(0).unwrap();
    assert!(!ready(&port));
    far.push(0, &[1], None);
    assert!(ready(&port));
}

#[test]
fn a_script_sees_what_was_sent_and_gives_arrivals() {
    let (mut port, far) = MemoryDevice::scripted("p", link(4)).unwrap();
    let (mut pool, mut out) = (pool(4), Vec::new());
    let at = Instant::from_nanos(77);
    assert!(far.push(0, &[1, 2], Some(at)) && far.push(0, &[3], None));
    assert!(!far.push(0, &[0; 101], None) && !far.push(0, &[], None));
    assert_eq!(port.rx(0, &mut pool, &mut out, 4), 2);
    assert_eq!((out[0].arrived(), out[1].arrived()), (Some(at), None));
    assert_eq!(port.statistics(0), Statistics { rx_invalid: 2, ..Statistics::default() });
    port.tx(0, &mut pool, &mut out);
    assert_eq!((far.take_sent(0), far.take_sent(0), far.take_sent(0)), (Some(vec![1, 2]), Some(vec![3]), None));
}

#[test]
fn states_of_a_link() {
    let (mut port, far) = MemoryDevice::scripted("p", link(4)).unwrap();
    let (mut pool, mut out) = (pool(4), Vec::new());
    far.push(0, &[1], None);
    far.set_state(LinkState::Finished);
    assert_eq!(port.health().unwrap(), Health::Up, "a frame is left");
    port.rx(0, &mut pool, &mut out, 4);
    assert_eq!(port.health().unwrap(), Health::Finished);
    far.set_state(LinkState::Down);
    port.tx(0, &mut pool, &mut out);
    assert!(!far.push(0, &[1], None));
    assert_eq!((port.health().unwrap(), far.lost(0), far.take_sent(0)), (Health::Down, 2, None));
    far.set_state(LinkState::Lost);
    assert!(matches!(port.health(), Err(Error::PortLost { .. })));
    assert!(readable(port.wait_handle(0).unwrap()), "the worker is to look at its health");
}

#[test]
fn refuses_links_that_cannot_be() {
    for bad in
        [LinkConfig { queues: 0, ..link(1) }, link(0), LinkConfig { longest_frame: 0, ..link(1) }, link(usize::MAX)]
    {
        assert!(MemoryDevice::pair(["a", "b"], bad).is_err());
    }
}

proptest! {
    /// In each pool, all slots are either free or held. In each direction, every sent frame was received, overflowed,
    /// or is in the ring.
    #[test]
    fn a_pair_keeps_slots_and_frames(steps in proptest::collection::vec((any::<bool>(), 0usize..3, 1usize..12), 1..60)) {
        let (a, b) = MemoryDevice::pair(["a", "b"], link(8)).unwrap();
        let mut ends = [(a, pool(10), Vec::new(), 0, 0, 0u8), (b, pool(6), Vec::new(), 0, 0, 0)];
        for (end, what, n) in steps {
            let (device, pool, held, sent, received, _) = &mut ends[usize::from(end)];
            match what {
                0 => *received += device.rx(0, pool, held, n) as u64,
                1 => *sent += device.tx(0, pool, held) as u64,
                _ => for _ in 0..n {
                    let Some(mut frame) = pool.take() else { break };
                    prop_assert!(pool.set_len(&mut frame, n));
                    pool.bytes_mut(&mut frame).fill(n as u8);
                    held.push(frame);
                },
            }
            for (_, pool, held, ..) in &ends {
                prop_assert_eq!(pool.free() + held.len(), pool.frames() as usize);
                for frame in held {
                    prop_assert!(pool.bytes(frame).iter().all(|b| usize::from(*b) == frame.len()));
                }
            }
            let [(a, .., a_sent, a_received, _), (b, .., b_sent, b_received, _)] = &mut ends;
            prop_assert_eq!(*a_sent, *b_received + b.statistics(0).rx_ring_full + b.backlog(0) as u64);
            prop_assert_eq!(*b_sent, *a_received + a.statistics(0).rx_ring_full + a.backlog(0) as u64);
        }
    }
}
