//! Records what happened to each intended frame, in 12 bytes per frame.

use units::Nanos;

/// Highest latency that is stored exactly, in ns (4.29 s). For a higher latency, the ledger stores only that it exceeds
/// this limit.
pub const HIGHEST_LATENCY_NS: u32 = u32::MAX - 3;
const OVERFLOW: u32 = u32::MAX - 2;
const UNSENT: u32 = u32::MAX - 1;
const MISSING: u32 = u32::MAX;

/// Memory that the record of one frame takes, in bytes.
pub const OCTETS_PER_FRAME: u64 = 12;
const _: () = assert!(OCTETS_PER_FRAME == (size_of::<u64>() + size_of::<u32>()) as u64, "see the fields of Ledger");

/// What happened to one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The frame was received this long after the time at which it was due to be sent.
    Received(Nanos),
    /// The frame was received more than [`HIGHEST_LATENCY_NS`] after its due send time.
    ReceivedTooLate,
    /// The frame was sent, but not received.
    Missing,
    /// The tester did not hand the frame to its device. This is a failure of the tester, not of the device under test.
    Unsent,
}

/// The frames of a trial in order of sequence number, each with its due time from the start of the trial.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    intended: Vec<u64>,
    fate: Vec<u32>,
}

impl Ledger {
    /// Creates a ledger for `frames`, and touches its memory now, so that no page fault delays the loop.
    pub fn with_room(frames: usize) -> Self {
        let mut ledger = Self { intended: vec![1; frames], fate: vec![1; frames] };
        ledger.intended.clear();
        ledger.fate.clear();
        ledger
    }

    /// Adds the next frame, as missing, and returns its sequence number.
    #[inline]
    pub fn intend(&mut self, offset: Nanos) -> u64 {
        self.intended.push(offset.as_nanos());
        self.fate.push(MISSING);
        (self.fate.len() - 1) as u64
    }

    /// Records that a frame was not sent.
    pub fn unsent(&mut self, sequence: u64) {
        self.fate[sequence as usize] = UNSENT;
    }

    /// Records the first arrival of a frame. Returns `false`, and changes nothing, if the frame had arrived before or
    /// was never sent.
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

    /// Due time of a frame, from the start of the trial.
    #[inline]
    pub fn offset(&self, sequence: u64) -> Option<Nanos> {
        self.intended.get(usize::try_from(sequence).ok()?).copied().map(Nanos::from_nanos)
    }

    /// Number of frames.
    pub fn len(&self) -> u64 {
        self.fate.len() as u64
    }
    /// Whether the ledger has no frames.
    pub fn is_empty(&self) -> bool {
        self.fate.is_empty()
    }
    /// Due time and fate of each frame, in order of sequence number.
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
