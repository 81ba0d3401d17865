//! A device wrapper that injects faults. The same seed always gives the same faults.

mod lane;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::wakeup::Wakeup;
use super::{Capabilities, Device, Health, Injected, Statistics};
use crate::Error;
use crate::pool::{Frame, Pool};
use lane::{Lane, MOST_HELD, SplitMix64};

/// 100 % in parts per million.
const MILLION: u32 = 1_000_000;

/// Rate of each kind of fault, in ppm of the frames of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    /// Rate at which frames disappear.
    pub drop_ppm: u32,
    /// Rate at which frames are duplicated: a copy follows the frame.
    pub duplicate_ppm: u32,
    /// Rate at which one bit of a frame is flipped.
    pub corrupt_ppm: u32,
    /// Rate at which frames are truncated. A truncated frame loses at least one byte and keeps at least one.
    pub truncate_ppm: u32,
    /// Rate at which frames are held back for [`hold_polls`](Self::hold_polls) polls of their queue.
    pub delay_ppm: u32,
    /// Rate at which frames are held back until the next frame has overtaken them. If no frame arrives within
    /// [`hold_polls`](Self::hold_polls) polls, the frame is delivered without being overtaken.
    pub reorder_ppm: u32,
    /// Number of polls (calls of `rx`) for which a frame is held back.
    pub hold_polls: u32,
}

/// A fault of the whole port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outage {
    /// The port disappears and does not come back.
    Lost,
    /// The link goes down. It comes up again after [`Device::health`] has reported it as down `health_checks` times (a
    /// worker checks a few times per second). No further outage follows.
    Down {
        /// Number of health checks that report the link as down.
        health_checks: u32,
    },
}

/// All faults to inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// Seed of the random numbers. The same seed and the same frames give the same faults.
    pub seed: u64,
    /// Rates for received frames.
    pub rx: FaultRates,
    /// Rates for frames to be sent.
    pub tx: FaultRates,
    /// The number of frames, over both directions and all queues, after which an outage begins, and the kind of outage.
    /// `None` means no outage.
    pub fail_after: Option<(u64, Outage)>,
}

/// Numbers of frames and faults so far, in one direction.
///
/// Every frame is counted: `seen + duplicated = passed + dropped + lost + held`, where `held` is the number of frames
/// that are still held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Frames that reached the wrapper, before any fault.
    pub seen: u64,
    /// Frames passed on to the worker or to the device.
    pub passed: u64,
    /// Frames that were dropped on purpose.
    pub dropped: u64,
    /// Copies that were made.
    pub duplicated: u64,
    /// Copies that could not be made, because the pool had no free slot.
    pub not_duplicated: u64,
    /// Frames in which a bit was flipped.
    pub corrupted: u64,
    /// Frames that were truncated.
    pub truncated: u64,
    /// Frames that were held back.
    pub delayed: u64,
    /// Frames that another frame overtook.
    pub reordered: u64,
    /// Frames that were lost in an outage.
    pub lost: u64,
}

/// Defines the shared form of the counters (atomics), and its conversion to [`FaultCounts`].
macro_rules! counters {
    ($($name:ident),*) => {
        #[derive(Debug, Default)]
        struct Counters { $($name: AtomicU64),* }
        impl Counters {
            fn read(&self) -> FaultCounts {
                FaultCounts { $($name: self.$name.load(Relaxed)),* }
            }
        }
    };
}
counters!(seen, passed, dropped, duplicated, not_duplicated, corrupted, truncated, delayed, reordered, lost);

/// Adds to a counter with a plain load and store. This is enough because there is only one writer, and it avoids a
/// locked instruction.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

/// Reads the counters of a [`Faulty`] device. It can be used from any thread.
#[derive(Clone, Debug)]
pub struct FaultMeter {
    rx: Arc<Counters>,
    tx: Arc<Counters>,
}

impl FaultMeter {
    /// Counts for received frames.
    pub fn rx(&self) -> FaultCounts {
        self.rx.read()
    }
    /// Counts for frames to be sent.
    pub fn tx(&self) -> FaultCounts {
        self.tx.read()
    }
}

/// State of the port.
///
/// ```text
///   Until(n) ──n frames──► Down(k) ──health() k times──► Sound
///        └────n frames──► Lost
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Port {
    Sound,
    Until(u64, Outage),
    Down(u32),
    Lost,
}

impl Port {
    fn settle(self) -> Self {
        match self {
            Self::Until(0, Outage::Lost) => Self::Lost,
            Self::Until(0, Outage::Down { health_checks }) => Self::Down(health_checks).settle(),
            Self::Down(0) => Self::Sound,
            other => other,
        }
    }

    /// Counts one more frame. Returns whether the frame gets through the port.
    fn admit(&mut self) -> bool {
        match *self {
            Self::Sound => true,
            Self::Until(left, outage) => {
                *self = Self::Until(left - 1, outage).settle();
                true
            }
            Self::Down(_) | Self::Lost => false,
        }
    }
}

/// A device into which the faults of a plan are injected.
///
/// While frames are held back, `wait_handle` is readable, so that a worker does not block but polls until they are
/// delivered. Held frames are kept while the link is down, and are lost if the port is lost.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    port: Port,
    /// For each queue, the receiving and the sending direction.
    lanes: Vec<[Lane; 2]>,
    meter: FaultMeter,
    /// The frames that the last call of `tx` dropped.
    injected: Injected,
    arriving: Vec<Frame>,
    scratch: Box<[u8]>,
    always: Wakeup,
}

impl<D: Device> Faulty<D> {
    /// Wraps `inner`. The meter can be read while the device is in use and afterwards.
    pub fn new(inner: D, plan: FaultPlan) -> Result<(Self, FaultMeter), Error> {
        for (direction, rates) in [("rx", plan.rx), ("tx", plan.tx)] {
            check(direction, rates)?;
        }
        let meter = FaultMeter { rx: Arc::default(), tx: Arc::default() };
        let mut seeds = SplitMix64(plan.seed);
        let mut lane = |rates, counts: &Arc<Counters>| Lane::new(seeds.next(), rates, counts.clone());
        let lanes = (0..inner.queues()).map(|_| [lane(plan.rx, &meter.rx), lane(plan.tx, &meter.tx)]).collect();
        let port = plan.fail_after.map_or(Port::Sound, |(frames, outage)| Port::Until(frames, outage).settle());
        let arriving = Vec::with_capacity(MOST_HELD);
        // Size of the largest slot that a pool can have.
        let scratch = vec![0; 65_536].into();
        let (always, injected) = (Wakeup::new(true)?, Injected::default());
        let faulty = Self { inner, port, lanes, meter: meter.clone(), injected, arriving, scratch, always };
        Ok((faulty, meter))
    }

    /// Number of frames held back at the moment.
    pub fn held(&self) -> usize {
        self.lanes.iter().flatten().map(Lane::held).sum()
    }

    /// Sends the frames that are ready.
    fn flush(&mut self, queue: usize, pool: &mut Pool) {
        let ready = &mut self.lanes[queue][1].ready;
        if !ready.is_empty() {
            let sent = self.inner.tx(queue, pool, ready);
            add(&self.meter.tx.passed, sent as u64);
        }
    }
}

fn check(direction: &str, rates: FaultRates) -> Result<(), Error> {
    let FaultRates { drop_ppm, duplicate_ppm, corrupt_ppm, truncate_ppm, delay_ppm, reorder_ppm, hold_polls } = rates;
    let invalid = |why: String| Err(Error::Invalid { what: format!("fault plan, {direction}"), why });
    for ppm in [drop_ppm, duplicate_ppm, corrupt_ppm, truncate_ppm, delay_ppm, reorder_ppm] {
        if ppm > MILLION {
            return invalid(format!("{ppm} ppm is more than all frames; give at most {MILLION} ppm"));
        }
    }
    if hold_polls == 0 && (delay_ppm > 0 || reorder_ppm > 0) {
        return invalid("delayed and reordered frames need hold of at least 1 poll, such as hold=10".into());
    }
    Ok(())
}

impl<D: Device> Device for Faulty<D> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn queues(&self) -> usize {
        self.inner.queues()
    }

    fn rx(&mut self, queue: usize, pool: &mut Pool, out: &mut Vec<Frame>, room: usize) -> usize {
        match self.port {
            Port::Lost => {
                self.lanes[queue].iter_mut().for_each(|lane| lane.lose(pool));
                return 0;
            }
            Port::Down(_) => {}
            Port::Sound | Port::Until(..) => {
                self.lanes[queue].iter_mut().for_each(Lane::tick);
                self.flush(queue, pool);
            }
        }
        let wanted = room.saturating_sub(self.lanes[queue][0].ready.len());
        if wanted > 0 {
            self.inner.rx(queue, pool, &mut self.arriving, wanted);
        }
        let lane = &mut self.lanes[queue][0];
        for frame in self.arriving.drain(..) {
            add(&lane.counts.seen, 1);
            if self.port.admit() {
                lane.process(frame, pool, &mut self.scratch);
            } else {
                add(&lane.counts.lost, 1);
                pool.give(frame);
            }
        }
        // Frames that arrived before the link went down wait until it is up again.
        let count = if matches!(self.port, Port::Down(_)) { 0 } else { lane.ready.len().min(room) };
        out.extend(lane.ready.drain(..count));
        add(&lane.counts.passed, count as u64);
        count
    }

    fn tx(&mut self, queue: usize, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        self.injected = Injected::default();
        match self.port {
            Port::Lost => return 0,
            Port::Down(_) => {}
            Port::Sound | Port::Until(..) => {
                self.flush(queue, pool);
                if !self.lanes[queue][1].ready.is_empty() {
                    return 0;
                }
            }
        }
        let count = frames.len();
        let lane = &mut self.lanes[queue][1];
        for frame in frames.drain(..) {
            add(&lane.counts.seen, 1);
            let octets = frame.len() as u64;
            let goes_on = if self.port.admit() {
                lane.process(frame, pool, &mut self.scratch)
            } else {
                add(&lane.counts.lost, 1);
                pool.give(frame);
                false
            };
            if !goes_on {
                self.injected.frames += 1;
                self.injected.octets += octets;
            }
        }
        if !matches!(self.port, Port::Down(_)) {
            self.flush(queue, pool);
        }
        count
    }

    fn finish(&mut self, queue: usize) {
        self.inner.finish(queue);
    }

    fn injected(&self) -> Injected {
        self.injected
    }

    fn backlog(&self, queue: usize) -> usize {
        match self.port {
            Port::Sound | Port::Until(..) => self.inner.backlog(queue) + self.lanes[queue][0].ready.len(),
            Port::Down(_) | Port::Lost => 0,
        }
    }

    fn arm(&mut self, queue: usize) -> Result<(), Error> {
        if self.port == Port::Lost {
            return Err(self.lost());
        }
        self.inner.arm(queue)
    }

    fn disarm(&mut self, queue: usize) {
        self.inner.disarm(queue);
    }

    fn wait_handle(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        let held = self.lanes[queue].iter().any(|lane| lane.held() > 0);
        match self.port {
            Port::Sound | Port::Until(..) if held => Some(self.always.as_fd()),
            Port::Lost => Some(self.always.as_fd()),
            _ => self.inner.wait_handle(queue),
        }
    }

    fn health(&mut self) -> Result<Health, Error> {
        match self.port {
            Port::Lost => Err(self.lost()),
            Port::Down(left) => {
                self.port = Port::Down(left - 1).settle();
                Ok(Health::Down)
            }
            Port::Sound | Port::Until(..) => match self.inner.health()? {
                Health::Finished if self.held() > 0 => Ok(Health::Up),
                health => Ok(health),
            },
        }
    }

    fn statistics(&mut self, queue: usize) -> Statistics {
        self.inner.statistics(queue)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}

impl<D: Device> Faulty<D> {
    fn lost(&self) -> Error {
        Error::PortLost { port: self.inner.name().into(), why: "lost by fault injection (lost_after)".into() }
    }
}

#[cfg(test)]
mod tests;
