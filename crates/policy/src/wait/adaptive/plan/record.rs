//! What was observed of a candidate, and how that corrects the model's expectation.

use super::super::math::product_over;

/// One packet. Late packets are counted in millionths of a packet.
pub(super) const ONE: u64 = 1_000_000;
/// After a change of frequency, the record of the model's error keeps at most this weight: that of eight expected late
/// packets.
const CERTAIN: u64 = 8 * ONE;

/// What was observed of a candidate: its packets, the late ones among them, and those that the model expected to be
/// late. The last two are in millionths of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    packets: u64,
    late: u64,
    expected: u64,
}

impl Record {
    pub(super) const NONE: Self = Self { packets: 0, late: 0, expected: 0 };

    /// Adds `packets`, of which `late` were late. `expected` late ones were expected, in millionths of a packet. If there
    /// are then more packets than `memory`, all counts are halved.
    #[inline]
    pub(super) fn add(&mut self, packets: u64, late: u64, expected: u64, memory: u64) {
        self.packets += packets;
        self.late += late * ONE;
        self.expected += expected;
        if self.packets > memory {
            self.halve();
        }
    }

    pub(super) fn halve(&mut self) {
        *self = Self { packets: self.packets / 2, late: self.late / 2, expected: self.expected / 2 };
    }

    /// The frequency changed: the error of the model is kept, but is less certain at another frequency.
    pub(super) fn change_frequency(&mut self) {
        let expected = self.expected.min(CERTAIN);
        let late = u128::from(self.late.min(self.expected)) * u128::from(expected) / u128::from(self.expected.max(1));
        *self = Self { packets: 0, late: late as u64, expected };
    }

    /// Corrects the number of late packets that the model expects of `packets`. If fewer packets were late than
    /// expected, the number is reduced by the same factor, as if one more late packet had been both expected and seen.
    /// If more were late, the unexpected ones are added, in proportion to the weight of the packets that were seen and
    /// that of the model: that of `model` packets. If the frequency is to be `faster`, they are not added: at a higher
    /// frequency, these packets need not be late.
    pub(super) fn correct(&self, model: u64, packets: u64, late: u64, faster: bool) -> u64 {
        let both = self.late.min(self.expected);
        let known = product_over(late, ONE + both, ONE + self.expected);
        let over = if faster { 0 } else { self.late - both };
        let more = product_over(packets, over, ONE * (model + self.packets));
        (known + more) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_corrects_the_expectation_both_ways() {
        let mut record = Record::NONE;
        assert_eq!(record.correct(100, ONE, ONE / 2, false), ONE / 2, "nothing was observed");
        // All 99 packets were expected to be late, and none was.
        record.add(99, 0, 99 * ONE, 1 << 20);
        assert_eq!(record.correct(100, ONE, ONE / 2, false), ONE / 200);
        // None was expected to be late, and 20 of 100 were.
        let mut record = Record::NONE;
        record.add(100, 20, 0, 1 << 20);
        assert_eq!(record.correct(100, ONE, 0, false), ONE / 10);
        assert_eq!(record.correct(100, ONE, 0, true), 0);
        record.halve();
        assert_eq!(record, Record { packets: 50, late: 10 * ONE, expected: 0 });
    }

    #[test]
    fn a_record_keeps_its_ratio_at_another_frequency() {
        let mut record = Record::NONE;
        record.add(1_000, 50, 100 * ONE, 1 << 20);
        record.change_frequency();
        assert_eq!(record, Record { packets: 0, late: 4 * ONE, expected: 8 * ONE });
    }
}
