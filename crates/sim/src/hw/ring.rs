//! Descriptor rings, and when the frames in them become visible to software.

use units::Nanos;

use super::{ModelError, check};
use crate::At;

/// A receive ring. A frame takes a descriptor when it arrives. The descriptor becomes free when the software has taken
/// the frame and returned a batch of descriptors.
#[derive(Clone, Debug)]
pub struct RxRing {
    size: u32,
    refill: u32,
    fill: u32,
    held: u32,
    accepted: u64,
    overflowed: u64,
}

/// Whether a ring had a free descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Pushed {
    /// The frame is in the ring.
    Accepted,
    /// No descriptor was free. The frame is lost or must wait in front of the ring.
    Overflow,
}

impl RxRing {
    /// Makes a ring of `size` descriptors. The software returns them in batches of `refill` (DPDK: `rx_free_thresh`,
    /// default 32; Linux drivers: 16 or 32).
    pub fn new(size: u32, refill: u32) -> Result<Self, ModelError> {
        check(size > 0, "receive ring", || "0 descriptors: give at least 1".into())?;
        check(refill > 0 && refill <= size, "receive ring", || {
            format!("{refill} descriptors given back at a time: from 1 to the ring's {size}")
        })?;
        Ok(Self { size, refill, fill: 0, held: 0, accepted: 0, overflowed: 0 })
    }

    /// Adds a frame that arrived. Returns whether there was a descriptor for it.
    pub fn push(&mut self) -> Pushed {
        if self.fill + self.held < self.size {
            self.fill += 1;
            self.accepted += 1;
            Pushed::Accepted
        } else {
            self.overflowed += 1;
            Pushed::Overflow
        }
    }

    /// Takes up to `most` frames for the software. Returns how many it took.
    pub fn take(&mut self, most: u32) -> u32 {
        let taken = self.fill.min(most);
        self.fill -= taken;
        self.held += taken;
        // Only whole batches of descriptors are returned.
        self.held %= self.refill;
        taken
    }

    /// Number of waiting frames.
    pub const fn fill(&self) -> u32 {
        self.fill
    }
    /// Number of free descriptors.
    pub const fn free(&self) -> u32 {
        self.size - self.fill - self.held
    }
    /// Number of descriptors in the ring.
    pub const fn size(&self) -> u32 {
        self.size
    }
    /// Number of frames so far that found a descriptor.
    pub const fn accepted(&self) -> u64 {
        self.accepted
    }
    /// Number of frames so far that found no descriptor.
    pub const fn overflowed(&self) -> u64 {
        self.overflowed
    }
}

/// A transmit ring. A descriptor is taken when a frame is queued, done when the frame has been sent, and free once the
/// software has reclaimed it.
#[derive(Clone, Debug)]
pub struct TxRing {
    size: u32,
    waiting: u32,
    done: u32,
    refused: u64,
}

impl TxRing {
    /// Makes a ring of `size` descriptors.
    pub fn new(size: u32) -> Result<Self, ModelError> {
        check(size > 0, "transmit ring", || "0 descriptors: give at least 1".into())?;
        Ok(Self { size, waiting: 0, done: 0, refused: 0 })
    }

    /// Queues a frame from the software. Returns whether there was a descriptor for it.
    pub fn push(&mut self) -> Pushed {
        if self.waiting + self.done < self.size {
            self.waiting += 1;
            Pushed::Accepted
        } else {
            self.refused += 1;
            Pushed::Overflow
        }
    }

    /// Marks up to `frames` queued frames as sent by the controller. Returns the number of frames marked.
    pub fn sent(&mut self, frames: u32) -> u32 {
        let sent = self.waiting.min(frames);
        self.waiting -= sent;
        self.done += sent;
        sent
    }

    /// Reclaims the descriptors of sent frames for the software. Returns how many it reclaimed.
    pub fn reclaim(&mut self) -> u32 {
        std::mem::take(&mut self.done)
    }

    /// Number of frames not yet sent.
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }
    /// Number of frames sent but not reclaimed.
    pub const fn done(&self) -> u32 {
        self.done
    }
    /// Number of free descriptors.
    pub const fn free(&self) -> u32 {
        self.size - self.waiting - self.done
    }
    /// Number of descriptors in the ring.
    pub const fn size(&self) -> u32 {
        self.size
    }
    /// Number of frames so far that found no descriptor.
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

/// When received frames become visible to software.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteBackModel {
    /// Number of descriptors that are written back together, usually a cache line of them. With 1, each is written back
    /// at once.
    pub batch: u32,
    /// The maximum time that an incomplete batch waits. On i40e this is the queue's ITR: "30 us of latency when
    /// flushing out packets remaining in its buffers when traffic stops" (Intel 637284-001, A.9).
    pub flush: Nanos,
}

impl WriteBackModel {
    /// Returns an error if the batch is 0.
    pub fn validate(&self) -> Result<(), ModelError> {
        check(self.batch > 0, "descriptor write-back", || "a batch of 0 descriptors: give at least 1".into())
    }
}

/// The frames that are in the ring but not yet visible.
///
/// ```text
///   frame ──► pending ── batch complete ──► visible
///                 └───── flush elapsed ───► visible
/// ```
#[derive(Clone, Debug)]
pub struct WriteBack {
    model: WriteBackModel,
    pending: u32,
    flush_at: Option<At>,
}

impl WriteBack {
    /// Makes a write-back state without pending frames.
    pub fn new(model: WriteBackModel) -> Result<Self, ModelError> {
        model.validate()?;
        Ok(Self { model, pending: 0, flush_at: None })
    }

    /// Adds a frame whose descriptor is complete. Returns the number of frames that this made visible.
    pub fn frame(&mut self, now: At) -> u32 {
        self.pending += 1;
        if self.pending >= self.model.batch || self.model.flush == Nanos::ZERO {
            return self.flush();
        }
        self.flush_at.get_or_insert(now + self.model.flush);
        0
    }

    /// When an incomplete batch will be written back. `None` if no batch is incomplete.
    pub const fn poll_at(&self) -> Option<At> {
        self.flush_at
    }

    /// Writes back an incomplete batch if it is due. Returns the number of frames that this made visible.
    pub fn poll(&mut self, now: At) -> u32 {
        match self.flush_at {
            Some(at) if at <= now => self.flush(),
            _ => 0,
        }
    }

    /// Writes back everything, before an interrupt or when the driver asks for it. Returns the number of frames that
    /// this made visible.
    pub fn flush(&mut self) -> u32 {
        self.flush_at = None;
        std::mem::take(&mut self.pending)
    }

    /// Number of frames in the ring that are not visible yet.
    pub const fn pending(&self) -> u32 {
        self.pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_ring_overflows_until_a_whole_batch_is_given_back() {
        let mut ring = RxRing::new(64, 32).unwrap();
        for _ in 0..64 {
            assert_eq!(ring.push(), Pushed::Accepted);
        }
        assert_eq!(ring.push(), Pushed::Overflow);
        assert_eq!(ring.take(31), 31);
        assert_eq!(ring.push(), Pushed::Overflow);
        assert_eq!(ring.take(1), 1);
        assert_eq!(ring.push(), Pushed::Accepted);
        assert_eq!((ring.accepted(), ring.overflowed(), ring.free()), (65, 2, 31));
        assert!(RxRing::new(0, 1).is_err() && RxRing::new(8, 9).is_err());
    }

    #[test]
    fn a_transmit_ring_is_full_until_it_is_reclaimed() {
        let mut ring = TxRing::new(2).unwrap();
        assert_eq!([ring.push(), ring.push(), ring.push()], [Pushed::Accepted, Pushed::Accepted, Pushed::Overflow]);
        assert_eq!(ring.sent(5), 2);
        assert_eq!(ring.push(), Pushed::Overflow);
        assert_eq!((ring.reclaim(), ring.free(), ring.refused()), (2, 2, 2));
    }

    #[test]
    fn the_last_frames_wait_for_the_flush() {
        let model = WriteBackModel { batch: 4, flush: Nanos::from_micros(32) };
        let mut back = WriteBack::new(model).unwrap();
        let visible: Vec<u32> = (0..6).map(|i| back.frame(At::from_nanos(i * 1_000))).collect();
        assert_eq!(visible, [0, 0, 0, 4, 0, 0]);
        assert_eq!(back.poll_at(), Some(At::from_nanos(4_000 + 32_000)));
        assert_eq!(back.poll(At::from_nanos(35_999)), 0);
        assert_eq!(back.poll(At::from_nanos(36_000)), 2);
        assert_eq!((back.pending(), back.poll_at()), (0, None));
    }

    proptest! {
        #[test]
        fn no_frame_is_lost_uncounted(size in 1u32..64, steps in prop::collection::vec((0u32..20, 0u32..20), 1..80)) {
            let mut rx = RxRing::new(size, 1 + size / 3).unwrap();
            let mut tx = TxRing::new(size).unwrap();
            let (mut offered, mut taken, mut queued, mut reclaimed) = (0u64, 0u64, 0u64, 0u64);
            for (arrive, take) in steps {
                for _ in 0..arrive {
                    let _ = rx.push();
                    offered += 1;
                    queued += u64::from(tx.push() == Pushed::Accepted);
                }
                taken += u64::from(rx.take(take));
                tx.sent(take);
                reclaimed += u64::from(tx.reclaim());
                prop_assert!(rx.fill() + rx.free() <= size);
            }
            prop_assert_eq!(offered, rx.accepted() + rx.overflowed());
            prop_assert_eq!(rx.accepted(), taken + u64::from(rx.fill()));
            prop_assert_eq!(queued, reclaimed + u64::from(tx.waiting() + tx.done()));
            prop_assert_eq!(offered, queued + tx.refused());
        }
    }
}
