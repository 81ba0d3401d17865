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

/// A timestamp that is further than this from the reference time, in units of 16 ns (1.07 s), is converted with a new
/// clock reading: the thread or the whole process was stopped meanwhile, or no frame has arrived for long.
const FAR: u64 = 1 << 26;
/// How much later than the clock a timestamp may be, in units of 16 ns (0.5 s). Clocks of
/// different CPUs differ by far less.
const LATER: u32 = 1 << 25;

/// Converts timestamps to times. A timestamp has the low 32 bits of the time in units of 16 ns. The upper bits come
/// from a reference time: the last converted timestamp, or the last clock reading. If the timestamp is not close to it,
/// they come from the clock: the frame arrived within the last 68 s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    near: Instant<Monotonic>,
    /// What is added to a timestamp, in units of 16 ns: the offset of this process's clock.
    offset: u32,
}

impl Stamps {
    /// `offset` is [`clock_offset`](crate::os::clock_offset).
    pub(super) fn new(now: Instant<Monotonic>, offset: i64) -> Self {
        Self { near: now, offset: (offset >> STAMP_SHIFT) as u32 }
    }

    /// Updates the reference time, so that fewer timestamps need a clock reading.
    pub(super) fn see(&mut self, now: Instant<Monotonic>) {
        self.near = now;
    }

    /// Sets the frame's arrival time from the timestamp that is stored in front of its data. If the timestamp equals
    /// the previous one in this slot, the current frame has none, and it is ignored. `now` reads the clock.
    ///
    /// The timestamp is not cleared, so that its cache line stays with the CPU that writes timestamps; on veth, that is
    /// the sender's CPU.
    #[inline]
    pub(super) fn read(&mut self, pool: &mut Pool, frame: &mut Frame, now: impl FnOnce() -> Instant<Monotonic>) {
        let Some(stamp) = pool.new_stamp(frame).map(|stamp| stamp.wrapping_add(self.offset)) else { return };
        let mut near = self.near.as_nanos() >> STAMP_SHIFT;
        let mut away = i64::from(stamp.wrapping_sub(near as u32) as i32);
        if away.unsigned_abs() > FAR {
            near = now().as_nanos() >> STAMP_SHIFT;
            let before_the_latest = (near as u32).wrapping_add(LATER).wrapping_sub(stamp);
            away = i64::from(LATER) - i64::from(before_the_latest);
        }
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
        let mut stamps = Stamps::new(Instant::from_nanos(1_000_000), 0);
        let mut frame = pool.take().unwrap();
        let now = || Instant::from_nanos(1_030_000);
        stamps.read(&mut pool, &mut frame, now);
        assert_eq!(frame.arrived(), None, "no stamp was written");
        pool.write_stamp(&frame, 64_000);
        stamps.read(&mut pool, &mut frame, now);
        assert_eq!(frame.arrived(), Some(Instant::from_nanos(1_024_000)));
        pool.give(frame);
        let mut next = pool.take().unwrap();
        stamps.read(&mut pool, &mut next, now);
        assert_eq!(next.arrived(), None, "the slot's next frame had none");
    }

    #[test]
    fn a_stamp_finds_its_time_across_the_wrap() {
        let mut pool = Pool::new(PoolConfig { frames: 1, ..PoolConfig::default() }).unwrap();
        let wrap = 5u64 << 36; // here the 32-bit timestamp wraps
        for (seen, at) in [(wrap - 1_600, wrap + 32_000), (wrap + 1_600, wrap - 32_000), (wrap, wrap + 34_000_000_000)]
        {
            let mut stamps = Stamps::new(Instant::from_nanos(seen), 0);
            let mut frame = pool.take().unwrap();
            pool.write_stamp(&frame, (at >> 4) as u32);
            stamps.read(&mut pool, &mut frame, || Instant::from_nanos(at + 1_000));
            assert_eq!(frame.arrived(), Some(Instant::from_nanos(at)));
            pool.give(frame);
        }
    }

    /// Regression test: the data of frames that were not received began where the stamp is. If the driver then
    /// received into the slot and left no room for a stamp, the data were taken for one.
    #[test]
    fn the_data_of_a_frame_are_no_stamp() {
        let mut pool = Pool::new(PoolConfig { frames: 1, ..PoolConfig::default() }).unwrap();
        let mut sent = pool.take().unwrap();
        let slot = sent.addr() & !2047;
        assert!(pool.set_len(&mut sent, 60));
        pool.bytes_mut(&mut sent).fill(0xab);
        pool.give(sent);
        // Where the kernel puts the data of a received frame: after its own headroom and the headroom of the UMEM.
        let _ = pool.take_addr().unwrap();
        let mut received = pool.frame_at(slot + 256 + 4, 60).unwrap();
        let hour = Instant::from_nanos(3_600_000_000_000);
        Stamps::new(hour, 0).read(&mut pool, &mut received, || hour);
        assert_eq!(received.arrived(), None);
    }

    /// Regression test: in a time namespace, the stamps were taken for times of the process's own clock.
    #[test]
    fn a_stamp_of_the_kernels_clock_becomes_one_of_ours() {
        let at = 3_600_000_000_000_u64;
        for offset in [1_000_000_000_000_i64, -1_000_000_000_000, 16, 0] {
            let mut pool = Pool::new(PoolConfig { frames: 1, ..PoolConfig::default() }).unwrap();
            let ours = Instant::from_nanos(at.checked_add_signed(offset).unwrap());
            let mut frame = pool.take().unwrap();
            pool.write_stamp(&frame, (at >> 4) as u32);
            Stamps::new(ours, offset).read(&mut pool, &mut frame, || ours);
            assert_eq!(frame.arrived(), Some(ours), "{offset}");
        }
    }

    /// Regression test: frames that waited while the process was stopped for more than 34 s were dated 69 s off.
    #[test]
    fn a_stamp_finds_its_time_after_a_long_stop() {
        let mut pool = Pool::new(PoolConfig { frames: 1, ..PoolConfig::default() }).unwrap();
        let seconds = |s: u64| 1_000_000_000_000 + s * 1_000_000_000;
        let mut date = |stamps: &mut Stamps, at: u64, now: u64| {
            let mut frame = pool.take().unwrap();
            pool.write_stamp(&frame, (at >> 4) as u32);
            stamps.read(&mut pool, &mut frame, || Instant::from_nanos(now));
            let arrived = frame.arrived().map(Instant::as_nanos);
            pool.give(frame);
            assert_eq!(arrived, Some(at >> 4 << 4), "at {at}, found at {now}");
        };
        let mut stamps = Stamps::new(Instant::from_nanos(seconds(0)), 0);
        // The process was stopped from 0 to 60 s. Frames came just after the stop, and after the end of it.
        date(&mut stamps, seconds(0) + 5_000, seconds(60));
        date(&mut stamps, seconds(60) + 2_000, seconds(60) + 3_000);
        // The clock was read before the frames were.
        stamps.see(Instant::from_nanos(seconds(120)));
        date(&mut stamps, seconds(60) + 8_000, seconds(120) + 100);
        date(&mut stamps, seconds(120) + 50, seconds(120) + 200);
        // A stamp of another CPU may be a little later than the clock.
        date(&mut stamps, seconds(120) + 1_000, seconds(120) + 300);
    }

    #[test]
    fn parts_are_put_together_up_to_the_slots_end() {
        let config = PoolConfig { frames: 2, frame_size: 8192, huge_pages: false };
        let mut pool = Pool::new(config).unwrap();
        let (mut whole, mut part) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.set_len(&mut whole, 3836) && pool.set_len(&mut part, 3836));
        pool.bytes_mut(&mut part).fill(7);
        assert!(append(&mut pool, &mut whole, &part));
        assert_eq!(whole.len(), 7672);
        assert!(pool.bytes(&whole)[..3836].iter().all(|b| *b == 0));
        assert!(pool.bytes(&whole)[3836..].iter().all(|b| *b == 7));
        assert!(!append(&mut pool, &mut whole, &part), "7932 octets fit");
        assert_eq!(whole.len(), 7672);
    }
}
