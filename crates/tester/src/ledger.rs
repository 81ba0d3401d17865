//! What became of each intended frame: 12 octets a frame.

use units::Nanos;

/// The highest latency held; above, only that it was higher (4.29 s).
pub const HIGHEST_LATENCY_NS: u32 = u32::MAX - 3;
const OVERFLOW: u32 = u32::MAX - 2;
const UNSENT: u32 = u32::MAX - 1;
const MISSING: u32 = u32::MAX;

/// What became of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Picked up this long after its intended send time.
    Received(Nanos),
    /// Picked up, but later than [`HIGHEST_LATENCY_NS`] after its intended send time.
    ReceivedTooLate,
    /// Sent, and not seen again.
    Missing,
    /// Never handed to the device: the tester's failure, not the tested device's.
    Unsent,
}

/// The intended frames of a trial in order of sequence number, with the offset from its start at which
/// each was due.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    intended: Vec<u64>,
    fate: Vec<u32>,
}

impl Ledger {
    /// With room for `frames`, whose memory is touched now, so that no page fault delays the loop.
    pub fn with_room(frames: usize) -> Self {
        let mut ledger = Self { intended: vec![1; frames], fate: vec![1; frames] };
        ledger.intended.clear();
        ledger.fate.clear();
        ledger
    }

    /// The next intended frame, so far missing; returns its sequence number.
    #[inline]
    pub fn intend(&mut self, offset: Nanos) -> u64 {
        self.intended.push(offset.as_nanos());
        self.fate.push(MISSING);
        (self.fate.len() - 1) as u64
    }

    /// Notes that a frame was never sent.
    pub fn unsent(&mut self, sequence: u64) {
        self.fate[sequence as usize] = UNSENT;
    }

    /// Notes a frame's first arrival; `false` if it had arrived before, or had never been sent.
    #[inline]
    pub fn received(&mut self, sequence: u64, latency: Nanos) -> bool {
        let Some(fate) = usize::try_from(sequence).ok().and_then(|i| self.fate.get_mut(i)) else { return false };
        if *fate != MISSING {
            return false;
        }
        *fate = match u32::try_from(latency.as_nanos()) {
            Ok(nanos) if nanos <= HIGHEST_LATENCY_NS => nanos,
            _ => OVERFLOW,
        };
        true
    }

    /// When a frame was due.
    #[inline]
    pub fn offset(&self, sequence: u64) -> Option<Nanos> {
        self.intended.get(usize::try_from(sequence).ok()?).copied().map(Nanos::from_nanos)
    }

    /// Intended frames.
    pub fn len(&self) -> u64 {
        self.fate.len() as u64
    }
    /// Whether no frame was intended.
    pub fn is_empty(&self) -> bool {
        self.fate.is_empty()
    }
    /// Offset and fate of each frame, in order of sequence number.
    pub fn iter(&self) -> impl Iterator<Item = (Nanos, Fate)> {
        self.intended.iter().zip(&self.fate).map(|(offset, fate)| {
            let fate = match *fate {
                MISSING => Fate::Missing,
                UNSENT => Fate::Unsent,
                OVERFLOW => Fate::ReceivedTooLate,
                nanos => Fate::Received(Nanos::from_nanos(nanos.into())),
            };
            (Nanos::from_nanos(*offset), fate)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_has_one_fate() {
        let mut ledger = Ledger::with_room(2);
        for i in 0..5 {
            assert_eq!(ledger.intend(Nanos::from_nanos(i)), i);
        }
        assert!(ledger.received(0, Nanos::from_nanos(7)));
        assert!(!ledger.received(0, Nanos::from_nanos(9)), "a duplicate changes nothing");
        assert!(ledger.received(1, Nanos::from_secs(5)));
        assert!(ledger.received(2, Nanos::from_nanos(HIGHEST_LATENCY_NS.into())));
        ledger.unsent(3);
        assert!(!ledger.received(3, Nanos::ZERO));
        assert!(!ledger.received(9, Nanos::ZERO));
        let fates: Vec<_> = ledger.iter().map(|(_, fate)| fate).collect();
        let longest = Nanos::from_nanos(HIGHEST_LATENCY_NS.into());
        let expected = [
            Fate::Received(Nanos::from_nanos(7)),
            Fate::ReceivedTooLate,
            Fate::Received(longest),
            Fate::Unsent,
            Fate::Missing,
        ];
        assert_eq!(fates, expected);
    }
}
