//! Applies faults to the frames of one queue in one direction.

use std::sync::Arc;

use super::{Counters, FaultRates, MILLION, add};
use crate::pool::{Frame, Pool};

/// Maximum number of frames held back in one direction of one queue. While this many are held back, no other frame is
/// delayed. It is four batches of 64, so that held frames never exhaust a pool of thousands of slots.
pub(super) const MOST_HELD: usize = 256;

/// The random number generator SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
/// 2014; constants as in Vigna's splitmix64.c. It works with any seed, and its quality is more than sufficient here.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A random number from 0 to `bound` - 1, by multiplication. The bias is below 2^-32.
    fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }
    fn happens(&mut self, ppm: u32) -> bool {
        self.below(MILLION) < ppm
    }
}

/// The state of one queue in one direction.
#[derive(Debug)]
pub(super) struct Lane {
    rng: SplitMix64,
    rates: FaultRates,
    pub(super) counts: Arc<Counters>,
    /// Delayed frames, each with the number of polls that it still waits. They are ordered from oldest to newest, which
    /// is also the order in which they become ready.
    delayed: Vec<(u32, Frame)>,
    /// The frame that the next frame will overtake, with the number of polls that it still waits.
    overtaken: Option<(u32, Frame)>,
    /// Frames that are ready to be passed on.
    pub(super) ready: Vec<Frame>,
}

impl Lane {
    pub(super) fn new(seed: u64, rates: FaultRates, counts: Arc<Counters>) -> Self {
        Self {
            rng: SplitMix64(seed),
            rates,
            counts,
            delayed: Vec::with_capacity(MOST_HELD),
            overtaken: None,
            ready: Vec::with_capacity(2 * MOST_HELD),
        }
    }

    /// Counts one poll. Frames that were held back for long enough become ready.
    pub(super) fn tick(&mut self) {
        let mut due = 0;
        for (left, _) in &mut self.delayed {
            *left -= 1;
            due += usize::from(*left == 0);
        }
        self.ready.extend(self.delayed.drain(..due).map(|(_, frame)| frame));
        if let Some((left, _)) = &mut self.overtaken {
            *left -= 1;
            if *left == 0 {
                self.ready.extend(self.overtaken.take().map(|(_, frame)| frame));
            }
        }
    }

    /// Applies faults to a frame at random, in the order of the fields of [`FaultRates`]. Returns `false` if it
    /// dropped the frame.
    pub(super) fn process(&mut self, mut frame: Frame, pool: &mut Pool, scratch: &mut [u8]) -> bool {
        let FaultRates { drop_ppm, duplicate_ppm, corrupt_ppm, truncate_ppm, delay_ppm, reorder_ppm, hold_polls } =
            self.rates;
        // All random numbers are drawn for every frame, so that changing one rate does not change the other faults.
        let [drop, duplicate, corrupt, truncate, delay, reorder] =
            [drop_ppm, duplicate_ppm, corrupt_ppm, truncate_ppm, delay_ppm, reorder_ppm].map(|p| self.rng.happens(p));
        let (bit, cut) = (self.rng.next(), self.rng.next());
        if drop {
            add(&self.counts.dropped, 1);
            pool.give(frame);
            return false;
        }
        let len = frame.len();
        if corrupt && len > 0 {
            let bit = bit % (len as u64 * 8);
            pool.bytes_mut(&mut frame)[bit as usize / 8] ^= 1 << (bit % 8);
            add(&self.counts.corrupted, 1);
        }
        if truncate && len > 1 && pool.set_len(&mut frame, 1 + (cut % (len as u64 - 1)) as usize) {
            add(&self.counts.truncated, 1);
        }
        let copy = if duplicate { self.copy(&frame, pool, scratch) } else { None };
        if delay && self.delayed.len() < MOST_HELD {
            self.delayed.push((hold_polls, frame));
            add(&self.counts.delayed, 1);
        } else if reorder && self.overtaken.is_none() {
            self.overtaken = Some((hold_polls, frame));
        } else {
            self.pass(frame);
        }
        if let Some(copy) = copy {
            self.pass(copy);
        }
        true
    }

    fn pass(&mut self, frame: Frame) {
        self.ready.push(frame);
        if let Some((_, overtaken)) = self.overtaken.take() {
            self.ready.push(overtaken);
            add(&self.counts.reordered, 1);
        }
    }

    fn copy(&self, frame: &Frame, pool: &mut Pool, scratch: &mut [u8]) -> Option<Frame> {
        let Some(mut copy) = pool.take() else {
            add(&self.counts.not_duplicated, 1);
            return None;
        };
        let data = &mut scratch[..frame.len()];
        data.copy_from_slice(pool.bytes(frame));
        if !pool.set_len(&mut copy, frame.len()) {
            pool.give(copy);
            add(&self.counts.not_duplicated, 1);
            return None;
        }
        pool.bytes_mut(&mut copy).copy_from_slice(data);
        if let Some(at) = frame.arrived() {
            copy.set_arrived(at);
        }
        add(&self.counts.duplicated, 1);
        Some(copy)
    }

    pub(super) fn held(&self) -> usize {
        self.delayed.len() + self.ready.len() + usize::from(self.overtaken.is_some())
    }

    /// Drops all frames that are held back, and counts them as lost.
    pub(super) fn lose(&mut self, pool: &mut Pool) {
        add(&self.counts.lost, self.held() as u64);
        let delayed = self.delayed.drain(..).map(|(_, frame)| frame);
        let overtaken = self.overtaken.take().map(|(_, frame)| frame);
        for frame in self.ready.drain(..).chain(delayed).chain(overtaken) {
            pool.give(frame);
        }
    }
}
