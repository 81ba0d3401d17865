//! Helpers that convert descriptors to frames: they read arrival timestamps and join the parts of a jumbo frame.

use units::{Instant, Monotonic};

use crate::pool::{Frame, Pool};

/// The received parts of a frame that arrives in several descriptors.
#[derive(Debug)]
pub(super) enum Partial {
    None,
    /// The parts joined so far.
    Frame(Frame),
    /// The frame is longer than a slot. Its remaining parts must be discarded.
    Discard,
}

/// The unit of the timestamp is 2^`STAMP_SHIFT` ns = 16 ns, as in bpf/xdp.bpf.c.
const STAMP_SHIFT: u32 = 4;

/// Converts timestamps to times. A timestamp has the low 32 bits of the time in units of 16 ns. The upper bits come
/// from a reference time that is at most 34 s away: the last converted timestamp, or the last clock reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    near: Instant<Monotonic>,
}

impl Stamps {
    pub(super) fn new(now: Instant<Monotonic>) -> Self {
        Self { near: now }
    }

    /// Updates the reference time. Must be called every few seconds while no frames arrive.
    pub(super) fn see(&mut self, now: Instant<Monotonic>) {
        self.near = now;
    }

    /// Sets the frame's arrival time from the timestamp that is stored in front of its data. If the timestamp equals
    /// the previous one in this slot, the current frame has none, and it is ignored.
    ///
    /// The timestamp is not cleared, so that its cache line stays with the CPU that writes timestamps; on veth, that is
    /// the sender's CPU.
    #[inline]
    pub(super) fn read(&mut self, pool: &mut Pool, frame: &mut Frame) {
        let Some(stamp) = pool.new_stamp(frame) else { return };
        let near = self.near.as_nanos() >> STAMP_SHIFT;
        let away = i64::from(stamp.wrapping_sub(near as u32) as i32);
        if let Some(at) = near.checked_add_signed(away) {
            self.near = Instant::from_nanos(at << STAMP_SHIFT);
            frame.set_arrived(self.near);
        }
    }
}

/// Copies `part` to the end of `whole`. Returns `false` if the slot of `whole` has no room.
pub(super) fn append(pool: &mut Pool, whole: &mut Frame, part: &Frame) -> bool {
    let mut copy = [0u8; 4096];
    let (before, len) = (whole.len(), part.len());
    let Some(copy) = copy.get_mut(..len) else { return false };
    if !pool.set_len(whole, before + len) {
        return false;
    }
    copy.copy_from_slice(pool.bytes(part));
    pool.bytes_mut(whole)[before..].copy_from_slice(copy);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolConfig;

    #[test]
    fn a_stamp_is_believed_once() {
        let mut pool = Pool::new(PoolConfig { frames: 1, ..PoolConfig::default() }).unwrap();
        let mut stamps = Stamps::new(Instant::from_nanos(1_000_000));
        let mut frame = pool.take().unwrap();
        stamps.read(&mut pool, &mut frame);
        assert_eq!(frame.arrived(), None, "no stamp was written");
        pool.write_stamp(&frame, 64_000);
        stamps.read(&mut pool, &mut frame);
        assert_eq!(frame.arrived(), Some(Instant::from_nanos(1_024_000)));
        pool.give(frame);
        let mut next = pool.take().unwrap();
        stamps.read(&mut pool, &mut next);
        assert_eq!(next.arrived(), None, "the slot's next frame had none");
    }

    #[test]
    fn a_stamp_finds_its_time_across_the_wrap() {
        let mut pool = Pool::new(PoolConfig { frames: 1, ..PoolConfig::default() }).unwrap();
        let wrap = 5u64 << 36; // here the 32-bit timestamp wraps
        for (seen, at) in [(wrap - 1_600, wrap + 32_000), (wrap + 1_600, wrap - 32_000), (wrap, wrap + 34_000_000_000)]
        {
            let mut stamps = Stamps::new(Instant::from_nanos(seen));
            let mut frame = pool.take().unwrap();
            pool.write_stamp(&frame, (at >> 4) as u32);
            stamps.read(&mut pool, &mut frame);
            assert_eq!(frame.arrived(), Some(Instant::from_nanos(at)));
            pool.give(frame);
        }
    }

    #[test]
    fn parts_are_put_together_up_to_the_slots_end() {
        let config = PoolConfig { frames: 2, frame_size: 8192, huge_pages: false };
        let mut pool = Pool::new(config).unwrap();
        let (mut whole, mut part) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.set_len(&mut whole, 3840) && pool.set_len(&mut part, 3840));
        pool.bytes_mut(&mut part).fill(7);
        assert!(append(&mut pool, &mut whole, &part));
        assert_eq!(whole.len(), 7680);
        assert!(pool.bytes(&whole)[..3840].iter().all(|b| *b == 0));
        assert!(pool.bytes(&whole)[3840..].iter().all(|b| *b == 7));
        assert!(!append(&mut pool, &mut whole, &part), "7936 octets fit");
        assert_eq!(whole.len(), 7680);
    }
}
