//! The index arithmetic of a ring that Apus and the kernel share: it decides which side may access which entries.
//!
//! The code is safe and works on atomics, so tests can run it on plain memory. Indices increase without limit and wrap
//! at 2^32. The position (`place`) of an entry in the ring is `index & (entries - 1)`, where `entries` is a power of
//! two. Source: include/uapi/linux/if_xdp.h; net/xdp/xsk_queue.h, "The structure of the shared state".
//!
//! ```text
//!   producer: wait for free ──(Acquire consumer)──► write entries ──(Release producer)──►
//!   consumer: wait for filled ─(Acquire producer)─► read entries ───(Release consumer)──►
//! ```

use std::sync::atomic::{AtomicU32, Ordering};

/// The producer's side of a ring: Apus's side of the fill ring and the TX ring.
#[derive(Debug)]
pub(super) struct Producer {
    entries: u32,
    /// Index of the next entry to write. Counts entries that are written but not published yet.
    next: u32,
    /// The consumer's index when it was last read.
    consumed: u32,
}

impl Producer {
    /// Starts at the ring's current indices.
    pub(super) fn new(entries: u32, producer: &AtomicU32, consumer: &AtomicU32) -> Self {
        debug_assert!(entries.is_power_of_two());
        Self { entries, next: producer.load(Ordering::Relaxed), consumed: consumer.load(Ordering::Acquire) }
    }

    /// Number of entries that may be written. Reads the kernel's index only if fewer than `wanted` are known to be
    /// free.
    #[inline]
    pub(super) fn free(&mut self, wanted: u32, consumer: &AtomicU32) -> u32 {
        let known = self.entries - self.next.wrapping_sub(self.consumed);
        if known >= wanted {
            return known;
        }
        self.consumed = consumer.load(Ordering::Acquire);
        self.entries - self.next.wrapping_sub(self.consumed)
    }

    /// Claims the next entry to write, and returns its position in the ring. The caller must have checked with
    /// [`free`](Self::free) that there is one.
    #[inline]
    pub(super) fn claim(&mut self) -> u32 {
        let place = self.next & (self.entries - 1);
        self.next = self.next.wrapping_add(1);
        place
    }

    /// Publishes all claimed entries to the other side.
    #[inline]
    pub(super) fn publish(&self, producer: &AtomicU32) {
        producer.store(self.next, Ordering::Release);
    }

    /// Number of published entries that the other side has not consumed yet.
    #[inline]
    pub(super) fn pending(&mut self, consumer: &AtomicU32) -> u32 {
        self.consumed = consumer.load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed)
    }

    /// Indices of the entries that the other side had not yet consumed when its index was last read.
    pub(super) fn unconsumed(&self) -> impl Iterator<Item = u32> + use<> {
        let (from, entries) = (self.consumed, self.next.wrapping_sub(self.consumed));
        (0..entries).map(move |i| from.wrapping_add(i))
    }
}

/// The consumer's side of a ring: Apus's side of the RX ring and the completion ring.
#[derive(Debug)]
pub(super) struct Consumer {
    entries: u32,
    /// Index of the next entry to read. Counts entries that are read but not released yet.
    next: u32,
    /// The producer's index when it was last read.
    produced: u32,
}

impl Consumer {
    /// Starts at the ring's current indices.
    pub(super) fn new(entries: u32, producer: &AtomicU32, consumer: &AtomicU32) -> Self {
        debug_assert!(entries.is_power_of_two());
        Self { entries, next: consumer.load(Ordering::Relaxed), produced: producer.load(Ordering::Acquire) }
    }

    /// Number of entries that may be read. Reads the kernel's index only if fewer than `wanted` are known to be filled.
    #[inline]
    pub(super) fn filled(&mut self, wanted: u32, producer: &AtomicU32) -> u32 {
        let known = self.produced.wrapping_sub(self.next);
        if known >= wanted {
            return known;
        }
        self.produced = producer.load(Ordering::Acquire);
        self.produced.wrapping_sub(self.next)
    }

    /// Number of entries that may be read now. Leaves the stored index unchanged.
    #[inline]
    pub(super) fn backlog(&self, producer: &AtomicU32) -> u32 {
        producer.load(Ordering::Relaxed).wrapping_sub(self.next)
    }

    /// The ring position of the entry that is `ahead` entries after the next one, for prefetching.
    #[inline]
    pub(super) fn place(&self, ahead: u32) -> u32 {
        self.next.wrapping_add(ahead) & (self.entries - 1)
    }

    /// Takes the next entry, and returns its position in the ring. The caller must have checked with
    /// [`filled`](Self::filled) that there is one.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        let place = self.next & (self.entries - 1);
        self.next = self.next.wrapping_add(1);
        place
    }

    /// Returns all taken entries to the other side.
    #[inline]
    pub(super) fn release(&self, consumer: &AtomicU32) {
        consumer.store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Shared {
        producer: AtomicU32,
        consumer: AtomicU32,
        entries: Vec<u64>,
    }

    impl Shared {
        fn new(log2: u32, start: u32) -> Self {
            let (producer, consumer) = (AtomicU32::new(start), AtomicU32::new(start));
            Self { producer, consumer, entries: vec![u64::MAX; 1 << log2] }
        }
        fn sides(&self) -> (Producer, Consumer) {
            let n = self.entries.len() as u32;
            (Producer::new(n, &self.producer, &self.consumer), Consumer::new(n, &self.producer, &self.consumer))
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Produce(u32),
        Consume(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![(0u32..40).prop_map(Step::Produce), (0u32..40).prop_map(Step::Consume)];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// Whatever the two sides do, each value comes out once and in order, also when the indices wrap at 2^32.
        #[test]
        fn nothing_is_lost_or_duplicated(log2 in 0u32..6, below_wrap in 0u32..100, steps in steps()) {
            let mut shared = Shared::new(log2, 0u32.wrapping_sub(below_wrap));
            let (mut producer, mut consumer) = shared.sides();
            let (mut put, mut got) = (0u64, 0u64);
            for step in steps {
                match step {
                    Step::Produce(wanted) => {
                        let n = producer.free(wanted, &shared.consumer).min(wanted);
                        for _ in 0..n {
                            let place = producer.claim() as usize;
                            shared.entries[place] = put;
                            put += 1;
                        }
                        producer.publish(&shared.producer);
                        // All entries must be written unless the ring is full: a stale index must not limit the
                        // producer.
                        prop_assert!(n == wanted || put - got == shared.entries.len() as u64);
                    }
                    Step::Consume(wanted) => {
                        let n = consumer.filled(wanted, &shared.producer).min(wanted);
                        for _ in 0..n {
                            let place = consumer.take() as usize;
                            prop_assert_eq!(shared.entries[place], got);
                            got += 1;
                        }
                        consumer.release(&shared.consumer);
                        prop_assert!(n == wanted || put == got);
                    }
                }
                prop_assert!(put - got <= shared.entries.len() as u64);
                prop_assert_eq!(u64::from(producer.pending(&shared.consumer)), put - got);
                prop_assert_eq!(u64::from(consumer.backlog(&shared.producer)), put - got);
            }
        }
    }

    #[test]
    fn two_threads_pass_each_value_once() {
        use std::sync::atomic::AtomicU64;
        const VALUES: u64 = 100_000;
        let shared = Shared::new(4, u32::MAX - 1000);
        let entries: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(u64::MAX)).collect();
        let (mut producer, mut consumer) = shared.sides();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut value = 0;
                while value < VALUES {
                    if producer.free(1, &shared.consumer) == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    entries[producer.claim() as usize].store(value, Ordering::Relaxed);
                    producer.publish(&shared.producer);
                    value += 1;
                }
            });
            let mut value = 0;
            while value < VALUES {
                if consumer.filled(1, &shared.producer) == 0 {
                    std::thread::yield_now();
                    continue;
                }
                assert_eq!(entries[consumer.take() as usize].load(Ordering::Relaxed), value);
                consumer.release(&shared.consumer);
                value += 1;
            }
        });
    }
}
