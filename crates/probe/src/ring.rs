//! Passes numbers from the measuring thread to another thread during the measurement. The measuring thread never waits.

use std::sync::atomic::{AtomicU64, Ordering};

/// A lock-free ring that passes groups of `N` numbers from one thread to another.
///
/// ```text
///   measuring thread ── push ──► [ a, b | a, b | … ] ── drain ──► observing thread
/// ```
/// If the ring is full, a group is lost and counted. Nothing that must be complete goes through the ring: the measuring
/// thread keeps such data itself.
#[derive(Debug)]
pub struct Ring<const N: usize> {
    slots: Box<[[AtomicU64; N]]>,
    /// Groups pushed so far; written by the pushing thread.
    head: AtomicU64,
    /// Groups drained so far; written by the draining thread.
    tail: AtomicU64,
    lost: AtomicU64,
}

impl<const N: usize> Ring<N> {
    /// Creates a ring for `groups` groups, at least one.
    pub fn new(groups: usize) -> Self {
        let slots = (0..groups.max(1)).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        Self { slots, head: AtomicU64::new(0), tail: AtomicU64::new(0), lost: AtomicU64::new(0) }
    }

    /// Adds a group, or counts it as lost. Only one thread may push.
    #[inline]
    pub fn push(&self, group: [u64; N]) {
        let head = self.head.load(Ordering::Relaxed);
        if head - self.tail.load(Ordering::Acquire) >= self.slots.len() as u64 {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let slot = &self.slots[(head % self.slots.len() as u64) as usize];
        for (to, from) in slot.iter().zip(group) {
            to.store(from, Ordering::Relaxed);
        }
        self.head.store(head + 1, Ordering::Release);
    }

    /// Removes all available groups and calls `each` with them, in order. Only one thread may drain.
    pub fn drain(&self, mut each: impl FnMut([u64; N])) {
        let head = self.head.load(Ordering::Acquire);
        for at in self.tail.load(Ordering::Relaxed)..head {
            let slot = &self.slots[(at % self.slots.len() as u64) as usize];
            each(std::array::from_fn(|i| slot[i].load(Ordering::Relaxed)));
        }
        self.tail.store(head, Ordering::Release);
    }

    /// Number of groups that were lost because the ring was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let ring = Ring::new(2);
        for n in 0..3 {
            ring.push([n, n + 10]);
        }
        let mut seen = Vec::new();
        ring.drain(|group| seen.push(group));
        assert_eq!((seen, ring.lost()), (vec![[0, 10], [1, 11]], 1));
        ring.push([7, 7]);
        let mut again = Vec::new();
        ring.drain(|group| again.push(group));
        assert_eq!(again, [[7, 7]]);
    }

    #[test]
    fn two_threads_agree_on_order_and_number() {
        const GROUPS: u64 = 100_000;
        let ring = Ring::<2>::new(64);
        let (mut next, mut seen) = (0, 0);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| (0..GROUPS).for_each(|n| ring.push([n, !n])));
            loop {
                let done = thread.is_finished();
                ring.drain(|[a, b]| {
                    assert!(a >= next && b == !a, "{a} after {next}");
                    (next, seen) = (a + 1, seen + 1);
                });
                if done {
                    break;
                }
                std::thread::yield_now();
            }
        });
        assert_eq!(seen + ring.lost(), GROUPS);
    }
}
