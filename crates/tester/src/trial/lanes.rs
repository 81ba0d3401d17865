//! A trial over several ports. Each lane (direction) sends on one port and receives on the same or another port. All
//! lanes run in one busy loop, so one CPU can load both directions of a device at the same time.

use std::iter::Peekable;
use std::sync::atomic::{AtomicBool, Ordering};

use live::device::{Device, Health, Statistics};
use live::pool::{Frame, Pool};
use units::{Instant, Monotonic, Nanos};

use super::spin::{HEALTH_PERIOD, RX_BATCH, Run};
use super::{Trial, TrialConfig};
use crate::Error;
use crate::answer::answer;
use crate::clock::TrialClock;
use crate::frame::{Encapsulation, Parsed, parse};
use crate::schedule::Arrivals;

/// A queue of a port, and the pool of its frames.
pub struct Port<'a> {
    /// The device.
    pub device: &'a mut dyn Device,
    /// Queue of the device.
    pub queue: usize,
    /// Pool of the frames that the port sends and receives.
    pub pool: &'a mut Pool,
    /// MAC address of the port. The port answers ARP and neighbor solicitations for the hosts of the flows with this
    /// address. If `None`, it does not answer.
    pub mac: Option<[u8; 6]>,
}

/// One direction.
#[derive(Clone, Debug)]
pub struct Lane {
    /// What to send, and when. Each lane must have a different [`stream`](TrialConfig::stream).
    pub config: TrialConfig,
    /// Index, in the list of ports, of the port that sends.
    pub tx: usize,
    /// Index, in the list of ports, of the port that must receive.
    pub rx: usize,
}

struct Running<'a> {
    run: Run<'a>,
    arrivals: Peekable<Arrivals>,
    span: Nanos,
    before: Statistics,
    drained: bool,
}

/// Runs a trial on the calling thread, which busy-loops. Setting `stop` ends the trial early. Returns a result for each
/// lane.
///
/// All lanes share the loop, so its time and its gaps apply to all of them. A frame counts as looped if it comes back
/// to a port other than its lane's receiving port. If a port disappears, returns an error.
pub fn run_lanes(
    lanes: &[Lane],
    ports: &mut [Port<'_>],
    clock: &impl TrialClock,
    stop: &AtomicBool,
) -> Result<Vec<Trial>, Error> {
    let streams: std::collections::BTreeSet<u16> = lanes.iter().map(|lane| lane.config.stream).collect();
    if lanes.is_empty() || streams.len() < lanes.len() {
        return Err(Error::invalid(
            format!("{} lanes", lanes.len()),
            "expected at least one, each with its own stream",
        ));
    }
    if let Some(lane) = lanes.iter().find(|lane| lane.tx >= ports.len() || lane.rx >= ports.len()) {
        return Err(Error::invalid(
            format!("a lane from port {} to port {}", lane.tx, lane.rx),
            format!("expected two of the {} ports", ports.len()),
        ));
    }
    let mut running = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let port = &mut ports[lane.tx];
        let (arrivals, span, expected) = super::spin::plan(&lane.config, port.device, port.queue)?;
        let before = ports[lane.rx].device.statistics(ports[lane.rx].queue);
        let port = &mut ports[lane.tx];
        let run = Run::new(&lane.config, &arrivals, expected, port.pool, port.device, clock.now())?;
        running.push(Running { run, arrivals: arrivals.peekable(), span, before, drained: false });
    }
    // The preparation took time, so restart all lanes at the same time.
    let now = clock.now();
    running.iter_mut().for_each(|lane| lane.run.begin(now));
    let spun = spin(lanes, &mut running, ports, clock, stop);
    for (lane, state) in lanes.iter().zip(&mut running) {
        state.run.give_back(ports[lane.tx].pool);
    }
    let (interrupted, link_down_seen) = spun?;
    let finish = |(lane, state): (&Lane, Running<'_>)| {
        let port = &mut ports[lane.rx];
        let device = port.device.statistics(port.queue).since(&state.before);
        state.run.finish(state.span, device, link_down_seen, interrupted)
    };
    Ok(lanes.iter().zip(running).map(finish).collect())
}

fn spin(
    lanes: &[Lane],
    running: &mut [Running<'_>],
    ports: &mut [Port<'_>],
    clock: &impl TrialClock,
    stop: &AtomicBool,
) -> Result<(bool, u64), Error> {
    let (mut interrupted, mut link_down_seen) = (false, 0);
    let mut now = clock.now();
    let mut health_at = now + HEALTH_PERIOD;
    let mut inbox: Vec<Frame> = Vec::with_capacity(RX_BATCH);
    let mut answers: Vec<Frame> = Vec::new();
    loop {
        let (round, mut busy) = (now, false);
        if now >= health_at {
            for port in ports.iter_mut() {
                link_down_seen += u64::from(port.device.health()? == Health::Down);
            }
            health_at = now + HEALTH_PERIOD;
        }
        if !interrupted && stop.load(Ordering::Relaxed) {
            interrupted = true;
            for state in running.iter_mut() {
                state.span = state.span.min(state.run.elapsed(now));
            }
        }
        for (lane, state) in lanes.iter().zip(running.iter_mut()) {
            let port = &mut ports[lane.tx];
            state.run.build(&mut state.arrivals, state.span, now, port.pool);
            busy |= state.run.send(port.device, port.queue, port.pool, clock) > 0;
        }
        for (at, port) in ports.iter_mut().enumerate() {
            if port.device.rx(port.queue, port.pool, &mut inbox, RX_BATCH) == 0 {
                continue;
            }
            busy = true;
            let picked_up = clock.now();
            for frame in inbox.drain(..) {
                sort(lanes, running, port, at, &frame, picked_up, &mut answers);
                port.pool.give(frame);
            }
            if !answers.is_empty() {
                port.device.tx(port.queue, port.pool, &mut answers);
                for frame in answers.drain(..) {
                    port.pool.give(frame);
                }
            }
        }
        now = clock.now();
        let mut done = true;
        for state in running.iter_mut() {
            state.run.pass(round, now, busy);
            state.drained = state.run.is_done(&mut state.arrivals, state.span, now);
            done &= state.drained;
        }
        if done {
            return Ok((interrupted, link_down_seen));
        }
    }
}

/// Finds the lane of a received frame and counts the frame there, or answers an address request.
fn sort(
    lanes: &[Lane],
    running: &mut [Running<'_>],
    port: &mut Port<'_>,
    at: usize,
    frame: &Frame,
    picked_up: Instant<Monotonic>,
    answers: &mut Vec<Frame>,
) {
    let octets = port.pool.bytes(frame);
    let parsed = parse(octets);
    let of = match parsed {
        Parsed::Test(header) => lanes.iter().position(|lane| lane.config.stream == header.stream),
        Parsed::Corrupted => lanes.iter().position(|lane| lane.rx == at),
        Parsed::Foreign => None,
    };
    if let Some(of) = of {
        if lanes[of].rx == at {
            running[of].run.arrived(parsed, picked_up);
        } else {
            running[of].run.looped(picked_up);
        }
        return;
    }
    let flows = lanes.iter().find_map(|lane| match &lane.config.layout.encapsulation {
        Encapsulation::Flows(flows) => Some(flows),
        _ => None,
    });
    if let Some(reply) = port.mac.zip(flows).and_then(|(mac, flows)| answer(octets, mac, flows)) {
        if let Some(mut frame) = port.pool.take() {
            if port.pool.set_len(&mut frame, reply.len()) {
                port.pool.bytes_mut(&mut frame).copy_from_slice(&reply);
                answers.push(frame);
            } else {
                port.pool.give(frame);
            }
        }
        return;
    }
    if let Some(of) = lanes.iter().position(|lane| lane.rx == at) {
        running[of].run.record(Parsed::Foreign, picked_up);
    }
}
