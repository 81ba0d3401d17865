//! From descriptors to frames: the arrival stamp, and the parts of a jumbo frame.

use units::Instant;

use crate::pool::{Frame, Pool};

use super::interface::STAMP_MAGIC;

/// What has been seen of a frame that comes in several descriptors.
#[derive(Debug)]
pub(super) enum Partial {
    None,
    /// Put together so far.
    Frame(Frame),
    /// Longer than a slot; its rest goes too.
    Discard,
}

/// Reads the arrival stamp from before the data; one that the slot had before is not believed again.
///
/// Nothing is written there: the line stays with the CPU that stamps, which on veth is the sender's.
#[inline]
pub(super) fn stamp(pool: &mut Pool, frame: &mut Frame) {
    let Some(meta) = pool.metadata(frame) else { return };
    let (at, magic) = meta.split_at(8);
    if *magic == STAMP_MAGIC.to_ne_bytes() {
        let at = u64::from_ne_bytes(std::array::from_fn(|i| at[i]));
        if pool.is_new_stamp(frame, at) {
            frame.set_arrived(Instant::from_nanos(at));
        }
    }
}

/// Copies `part` to the end of `whole`; `false` if there is no room in its slot.
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
        let mut frame = pool.take().unwrap();
        stamp(&mut pool, &mut frame);
        assert_eq!(frame.arrived(), None, "no stamp was written");
        let meta = pool.metadata_mut(&frame).unwrap();
        meta[..8].copy_from_slice(&1234u64.to_ne_bytes());
        meta[8..].copy_from_slice(&STAMP_MAGIC.to_ne_bytes());
        stamp(&mut pool, &mut frame);
        assert_eq!(frame.arrived(), Some(Instant::from_nanos(1234)));
        pool.give(frame);
        let mut next = pool.take().unwrap();
        stamp(&mut pool, &mut next);
        assert_eq!(next.arrived(), None, "the slot's next frame had none");
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
