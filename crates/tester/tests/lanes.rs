//! Trials over two ports in virtual time: both directions, loops, several sizes and flows, answers to a router.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use live::device::{Capabilities, Device, Health, Statistics};
use live::pool::{Frame, Pool, PoolConfig};
use tester::clock::TrialClock;
use tester::flows::{Family, Flows};
use tester::frame::{Encapsulation, FrameSize, Layout};
use tester::trial::{Lane, Port, Trial, TrialConfig, run_lanes};
use units::{Instant, Monotonic, Nanos};

/// Each reading takes 100 ns.
#[derive(Clone, Default)]
struct Virtual(Arc<AtomicU64>);
impl TrialClock for Virtual {
    fn now(&self) -> Instant<Monotonic> {
        Instant::from_nanos(self.0.fetch_add(100, Relaxed) + 100)
    }
}

type Wire = Arc<Mutex<VecDeque<(u64, Vec<u8>)>>>;

/// A port whose frames come out of the other end of its wire 5 us later; every `loops`-th comes back instead.
struct Wired {
    clock: Virtual,
    out: Wire,
    into: Wire,
    sent: u64,
    loops: u64,
    gone: bool,
}
impl Device for Wired {
    fn name(&self) -> &str {
        "wired"
    }
    fn queues(&self) -> usize {
        1
    }
    fn rx(&mut self, _: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        let (now, mut wire, mut n) = (self.clock.0.load(Relaxed), self.into.lock().unwrap(), 0);
        while n < room && wire.front().is_some_and(|(at, _)| *at <= now) {
            let (_, octets) = wire.pop_front().unwrap();
            let mut frame = pool.take().unwrap();
            assert!(pool.set_len(&mut frame, octets.len()));
            pool.bytes_mut(&mut frame).copy_from_slice(&octets);
            out.push(frame);
            n += 1;
        }
        n
    }
    fn tx(&mut self, _: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let n = frames.len();
        for frame in frames.drain(..) {
            self.sent += 1;
            let wire = if self.sent.is_multiple_of(self.loops) { &self.into } else { &self.out };
            let at = self.clock.0.load(Relaxed) + 5_000;
            wire.lock().unwrap().push_back((at, pool.bytes(&frame).to_vec()));
            pool.give(frame);
        }
        n
    }
    fn backlog(&self, _: usize) -> usize {
        0
    }
    fn arm(&mut self, _: usize) -> Result<(), live::Error> {
        Ok(())
    }
    fn disarm(&mut self, _: usize) {}
    fn wait_handle(&self, _: usize) -> Option<BorrowedFd<'_>> {
        None
    }
    fn health(&mut self) -> Result<Health, live::Error> {
        match self.gone {
            true => Err(live::Error::PortLost { port: "wired".into(), why: "it was removed".into() }),
            false => Ok(Health::Up),
        }
    }
    fn statistics(&mut self, _: usize) -> Statistics {
        Statistics::default()
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
}

fn lane(stream: u16, tx: usize, rx: usize, sizes: &str, duration: Nanos) -> Lane {
    let flows = Flows { family: Family::V4, vlan: None, count: 100, seed: 1, reverse: tx > rx };
    let layout = Layout {
        destination: [2, 0, 0, 0, 0, rx as u8],
        source: [2, 0, 0, 0, 0, tx as u8],
        encapsulation: Encapsulation::Flows(flows),
        size: FrameSize::SMALLEST,
    };
    let config = TrialConfig {
        sizes: Some(sizes.parse().unwrap()),
        stream,
        warm_up: Nanos::ZERO,
        duration,
        drain: Nanos::from_millis(3),
        ..TrialConfig::new(layout, "constant:100kpps".parse().unwrap())
    };
    Lane { config, tx, rx }
}

/// Two ports and what is on their wires.
struct Pair {
    ports: [Wired; 2],
    pools: [Pool; 2],
    clock: Virtual,
}

impl Pair {
    fn new() -> Self {
        let clock = Virtual::default();
        let wires: [Wire; 2] = Default::default();
        let port = |out: usize| Wired {
            clock: clock.clone(),
            out: wires[out].clone(),
            into: wires[1 - out].clone(),
            sent: 0,
            loops: u64::MAX,
            gone: false,
        };
        let pools = [(), ()].map(|()| Pool::new(PoolConfig::default()).unwrap());
        Self { ports: [port(0), port(1)], pools, clock: clock.clone() }
    }

    fn run(&mut self, lanes: &[Lane]) -> Result<Vec<Trial>, tester::Error> {
        let mut ports: Vec<Port<'_>> = self
            .ports
            .iter_mut()
            .zip(&mut self.pools)
            .zip(0u8..)
            .map(|((device, pool), n)| Port { device, queue: 0, pool, mac: Some([2, 0, 0, 0, 0, n]) })
            .collect();
        let trials = run_lanes(lanes, &mut ports, &self.clock, &AtomicBool::new(false));
        assert!(self.pools.iter().all(|pool| pool.free() == 8192), "no slot is lost");
        trials
    }
}

#[test]
fn both_directions_at_once_without_reordering() {
    // At least 10 flows and 3 sizes in both directions.
    let span = Nanos::from_millis(20);
    let mut pair = Pair::new();
    let trials = pair.run(&[lane(1, 0, 1, "imix:aaaddg", span), lane(2, 1, 0, "imix:bbc", span)]).unwrap();
    for trial in &trials {
        let counts = trial.counts;
        assert_eq!((counts.intended, counts.sent, counts.received), (2_000, 2_000, 2_000), "{counts:?}");
        assert_eq!((counts.reordered, counts.duplicates, counts.looped, counts.foreign), (0, 0, 0, 0));
    }
    assert_eq!(pair.ports.map(|port| port.sent), [2_000, 2_000]);
}

#[test]
fn a_frame_that_comes_back_to_its_sender_is_looped_and_lost() {
    let mut pair = Pair::new();
    pair.ports[0].loops = 10;
    let trials = pair.run(&[lane(1, 0, 1, "64", Nanos::from_millis(20))]).unwrap();
    let counts = trials[0].counts;
    assert_eq!((counts.received, counts.looped, counts.lost()), (1_800, 200, 200));
    // On a single port, what comes back is what should.
    let mut pair = Pair::new();
    pair.ports[0].loops = 1;
    let trials = pair.run(&[lane(1, 0, 0, "64", Nanos::from_millis(20))]).unwrap();
    assert_eq!((trials[0].counts.received, trials[0].counts.looped), (2_000, 0));
}

#[test]
fn a_port_that_vanishes_is_an_error_that_names_it() {
    let mut pair = Pair::new();
    pair.ports[1].gone = true;
    let error = pair.run(&[lane(1, 0, 1, "64", Nanos::from_secs(1))]).unwrap_err().to_string();
    assert!(error.contains("wired") && error.contains("removed"), "{error}");
}

#[test]
fn a_router_is_answered_meanwhile() {
    let mut pair = Pair::new();
    let mut request = [[0xff; 6], [2, 0, 0, 0, 0, 7]].concat();
    request.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 7, 198, 18, 0, 1, 0, 0, 0, 0, 0, 0, 198, 19, 3, 2]);
    pair.ports[1].into.lock().unwrap().push_back((0, request));
    let trials = pair.run(&[lane(1, 0, 1, "64", Nanos::from_millis(5))]).unwrap();
    assert_eq!((trials[0].counts.received, trials[0].counts.foreign), (500, 0));
    assert_eq!(pair.ports[1].sent, 1);
}

#[test]
fn refuses_lanes_that_cannot_be_told_apart() {
    let span = Nanos::from_millis(1);
    assert!(Pair::new().run(&[lane(1, 0, 1, "64", span), lane(1, 1, 0, "64", span)]).is_err());
    assert!(Pair::new().run(&[lane(1, 0, 5, "64", span)]).is_err());
    assert!(Pair::new().run(&[]).is_err());
}
