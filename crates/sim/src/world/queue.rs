//! A pair of a receive and a transmit queue of the NIC: the frames that wait in them, and their interrupts.

use std::collections::VecDeque;

use policy::moderation::{PeriodMode, Profile};
use units::Nanos;

use super::metronome::Shared;
use super::tally::Tally;
use crate::At;
use crate::hw::ModelError;
use crate::hw::interrupt::{DelayFrom, Moderation, ModerationModel};
use crate::hw::link::Wire;
use crate::hw::nic::NicModel;
use crate::hw::ring::{Pushed, RxRing, TxRing, WriteBack};

/// Number of descriptors that the driver returns at a time: DPDK's `rx_free_thresh` (ixgbe, i40e: 32), or the whole
/// ring if it is smaller.
const REFILL: u32 = 32;
/// Maximum number of frames for which memory is allocated in advance per queue. The largest rings hold more, but there
/// may be 1,536 queues.
pub const RESERVED: usize = 1_024;
/// Stands for "not visible yet": the frame is in memory, but its descriptor is not.
const NOT_YET: At = At::from_nanos(u64::MAX);

/// A frame in memory.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// When the frame's last bit came off the wire.
    pub arrival: At,
    /// When the frame was in memory and its descriptor could be written.
    pub due: At,
    /// When the frame's descriptor was written, so that software can see it.
    pub visible: At,
    pub octets: u32,
    /// The number of the traffic feed to which the frame belongs.
    pub feed: u32,
    pub tag: u32,
}

/// The state of the two queues.
#[derive(Debug)]
pub struct QueuePair {
    pub number: usize,
    ring: RxRing,
    write_back: WriteBack,
    waiting: VecDeque<Waiting>,
    /// Moderation of the receive interrupt.
    pub rx: Moderation,
    tx_ring: TxRing,
    /// Whether the sender reclaims descriptors when it needs them, as DPDK's drivers do. The kernel's drivers wait for
    /// the transmit interrupt.
    lazy: bool,
    /// Past or future departure times of the frames in the transmit ring.
    leaving: VecDeque<At>,
    /// Number of frames in `leaving` that were reported to the transmit interrupt.
    announced: usize,
    /// Moderation of the transmit interrupt.
    pub tx: Moderation,
    /// When the interrupts were last armed.
    armed_at: At,
    /// Whether the worker skips polls until the next frame; see [`Port::watch`](super::port::Port::watch).
    pub watched: bool,
    /// The lock of the threads that share this queue.
    pub shared: Shared,
    /// Number of interrupts within the window.
    pub interrupts: u64,
}

impl QueuePair {
    pub fn new(number: usize, nic: &NicModel, lazy: bool) -> Result<Self, ModelError> {
        let mut pair = Self {
            number,
            ring: RxRing::new(nic.rx_descriptors, REFILL.min(nic.rx_descriptors))?,
            write_back: WriteBack::new(nic.write_back)?,
            waiting: VecDeque::with_capacity(RESERVED.min(nic.rx_descriptors as usize)),
            rx: Moderation::new(nic.rx_moderation),
            tx_ring: TxRing::new(nic.tx_descriptors)?,
            lazy,
            leaving: VecDeque::with_capacity(RESERVED.min(nic.tx_descriptors as usize)),
            announced: 0,
            tx: Moderation::new(nic.tx_moderation),
            armed_at: At::ORIGIN,
            watched: false,
            shared: Shared::new(),
            interrupts: 0,
        };
        pair.rx.mask();
        pair.tx.mask();
        Ok(pair)
    }

    /// Adds a frame that is in memory. Returns false if the ring had no free descriptor.
    #[inline]
    pub fn arrive(&mut self, mut frame: Waiting) -> bool {
        self.settle(frame.due);
        if self.ring.push() == Pushed::Overflow {
            return false;
        }
        frame.visible = NOT_YET;
        self.waiting.push_back(frame);
        let visible = self.write_back.frame(frame.due);
        self.show(visible, frame.due);
        if !self.rx.is_masked() {
            self.rx.frame(frame.due);
        }
        true
    }

    /// Makes the last `count` frames visible from `at` on, or from the time they are in memory if that is later.
    #[inline]
    fn show(&mut self, count: u32, at: At) {
        match count {
            0 => {}
            1 => self.waiting.back_mut().into_iter().for_each(|frame| frame.visible = at.max(frame.due)),
            _ => {
                let from = self.waiting.len() - count as usize;
                self.waiting.range_mut(from..).for_each(|frame| frame.visible = at.max(frame.due));
            }
        }
    }

    /// Writes back descriptors that have waited long enough.
    #[inline]
    fn settle(&mut self, now: At) {
        if let Some(at) = self.write_back.poll_at().filter(|at| *at <= now) {
            let visible = self.write_back.poll(at);
            self.show(visible, at);
        }
    }

    /// Moves up to `most` frames that software can see at `now` to the end of `batch`. Returns the number of visible
    /// frames before the move.
    #[inline]
    pub fn take(&mut self, now: At, most: usize, batch: &mut Vec<Waiting>) -> u32 {
        self.settle(now);
        let fill = match self.waiting.back() {
            None => 0,
            Some(last) if last.visible <= now => self.waiting.len(),
            Some(_) => self.waiting.partition_point(|frame| frame.visible <= now),
        };
        let count = fill.min(most);
        batch.extend(self.waiting.drain(..count));
        self.ring.take(count as u32);
        fill as u32
    }

    /// When software can see the oldest frame in memory, as far as known now. `None` if no frame is in memory, or if
    /// the time of its write-back is not set yet.
    #[inline]
    pub fn next_visible(&self) -> Option<At> {
        let first = self.waiting.front()?;
        if first.visible == NOT_YET { self.write_back.poll_at() } else { Some(first.visible) }
    }

    /// Arms the interrupts. Frames already in memory start the moderation delay at the time they arrived there.
    pub fn arm(&mut self, now: At) {
        self.complete(now);
        self.tx_ring.reclaim();
        self.rx.taken();
        for frame in &self.waiting {
            self.rx.frame(frame.due);
        }
        self.tx.taken();
        self.announced = 0;
        self.armed_at = now;
        self.rx.unmask();
        self.tx.unmask();
    }

    /// Masks the interrupts.
    pub fn disarm(&mut self) {
        self.rx.mask();
        self.tx.mask();
    }

    /// Whether the interrupts are unmasked.
    pub fn is_armed(&self) -> bool {
        !self.rx.is_masked()
    }

    /// When the interrupt will fire. `None` if no interrupt is due. `with_tx` says whether software is also notified of
    /// sent frames.
    pub fn interrupt_at(&self, with_tx: bool) -> Option<At> {
        let tx = if with_tx { self.tx.poll_at() } else { None };
        [self.rx.poll_at(), tx].into_iter().flatten().min().map(|at| at.max(self.armed_at))
    }

    /// When the transmit interrupt is to be notified of the next sent frame. `None` if it is masked or no frame is
    /// left.
    pub fn next_completion(&self) -> Option<At> {
        if self.tx.is_masked() { None } else { self.leaving.get(self.announced).copied() }
    }

    /// Notifies the transmit interrupt of the frames whose last bit left by `now`.
    pub fn announce(&mut self, now: At) {
        while let Some(at) = self.next_completion().filter(|at| *at <= now) {
            self.tx.frame(at);
            self.announced += 1;
        }
    }

    /// Lets the interrupt fire, which masks it until software arms it again. All descriptors are written back.
    pub fn fire(&mut self, now: At, tally: &Tally) {
        let fired = self.rx.fire(now).is_some() | self.tx.fire(now).is_some();
        if fired {
            self.interrupts += u64::from(tally.within(now));
        }
        self.disarm();
        let visible = self.write_back.flush();
        self.show(visible, now);
    }

    /// Sends a frame for the software at `now`. Returns when the frame's last bit leaves. `None` if the ring is full.
    #[inline]
    pub fn send(&mut self, now: At, octets: u32, nic: &NicModel, way: Nanos, out: &mut Wire) -> Option<At> {
        if self.lazy && self.tx_ring.free() == 0 {
            self.complete(now);
            self.tx_ring.reclaim();
        }
        if self.tx_ring.push() == Pushed::Overflow {
            return None;
        }
        let departure = out.send(now + nic.transmit + way, octets.into()).ends;
        self.leaving.push_back(departure);
        Some(departure)
    }

    /// Marks the frames that left by `now` as sent.
    pub fn complete(&mut self, now: At) {
        while self.leaving.front().is_some_and(|at| *at <= now) {
            self.leaving.pop_front();
            self.announced = self.announced.saturating_sub(1);
            self.tx_ring.sent(1);
        }
    }

    /// Reclaims the descriptors of the frames that left by `now`.
    pub fn reclaim(&mut self, now: At) {
        self.complete(now);
        self.tx_ring.reclaim();
        self.tx.taken();
    }

    /// Programs another moderation profile for the receive interrupt. The vector's throttling interval does not change.
    pub fn program(&mut self, now: At, profile: Profile) {
        let interval = self.rx.model().interval;
        self.rx.set(now, ModerationModel { interval, ..moderation_of(profile) });
    }

    /// Counts the frames that are still waiting as in flight.
    pub fn finish(&self, tally: &mut Tally) {
        self.waiting.iter().for_each(|frame| tally.in_flight(self.number, frame.arrival));
    }
}

/// The NIC settings that correspond to a policy's profile.
pub fn moderation_of(profile: Profile) -> ModerationModel {
    let from = match profile.mode {
        PeriodMode::Eqe => DelayFrom::FirstFrame,
        PeriodMode::Cqe => DelayFrom::LastFrame,
    };
    let delay = profile.timer().unwrap_or(Nanos::ZERO);
    // Without a timer, a count above 1 would leave the last frames waiting forever. The hardware then raises an
    // interrupt for each frame.
    let frames = if profile.usecs == 0 { 1 } else { profile.frames };
    ModerationModel { delay, from, frames, interval: Nanos::ZERO }
}
