//! What the waits may spend of the late packets that the goal allows.

use units::Nanos;

/// Credit is counted in millionths of a packet; this is one late packet.
const ONE_LATE: i64 = 1_000_000;
/// No kind of wait hoards more credit than this many late packets.
const MOST_CREDIT: i64 = 4 * ONE_LATE;
/// A poll of no more packets than this is no large one.
const FEW: u64 = 8;

/// What a kind of wait may spend of the late packets that the goal allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    credit: i64,
    /// Millionths of a late packet that each packet earns.
    share: i64,
}

impl Account {
    pub(super) fn new(share_ppm: u64) -> Self {
        Self { credit: ONE_LATE, share: share_ppm as i64 }
    }

    pub(super) fn earn(&mut self, packets: u64) {
        self.credit = (self.credit + packets as i64 * self.share).min(MOST_CREDIT);
    }

    /// `late` packets of a poll were late. It never owes more than `most` of them, so that bad moments of the machine
    /// are not paid for without end.
    pub(super) fn pay(&mut self, late: u64, most: u64) {
        let least = self.credit.min(-(most.max(1) as i64 * ONE_LATE));
        self.credit = (self.credit - late as i64 * ONE_LATE).max(least);
    }

    pub(super) fn in_credit(&self) -> bool {
        self.credit >= 0
    }
}

/// An integral controller: late packets shorten the sleep at once, punctual ones lengthen it slowly,
/// so that in the end the share of late packets is the allowed one (stochastic approximation of a
/// quantile: H. Robbins and S. Monro, 1951).
#[derive(Clone, Copy, Debug)]
pub(super) struct Caution {
    /// In millionths of a nanosecond; what is above `most` only takes time to go.
    span: u64,
    most: u64,
    /// What one late packet adds, in nanoseconds.
    step: u64,
    /// The share of late packets that is allowed, in millionths.
    share: u64,
}

impl Caution {
    /// A late packet costs a 32nd of the goal, all of them together at most half of it: what is late
    /// even then is not late because of the sleep.
    pub(super) fn new(latency: Nanos, share: u64) -> Self {
        let latency = latency.as_nanos().min(1_000_000_000);
        Self { span: 0, most: latency / 2 * 1_000_000, step: latency / 32, share }
    }

    /// Begins at `span`, if that is more than it is now.
    pub(super) fn begin_at(&mut self, span: Nanos) {
        let span = span.as_nanos().min(self.most / 1_000_000) * 1_000_000;
        self.span = self.span.max(span);
    }

    /// Of the packets, in millionths, so many may be late.
    pub(super) fn share(&self) -> u64 {
        self.share
    }

    pub(super) fn relax(&mut self, packets: u64) {
        self.span = self.span.saturating_sub(packets * self.step * self.share);
    }

    /// `late` of the `received` packets of a poll were late. Of a few that are late together, often by a stall of the
    /// machine, two count. Where polls are large all of them do, up to `most` of them even if no shorter wait would help:
    /// else many that are late together would cost no more than one.
    pub(super) fn raise(&mut self, late: u64, received: u64, most: u64) {
        let few = received <= FEW;
        let counted = if few { late.min(2) } else { late };
        let beyond = if few { 0 } else { most * self.step * 1_000_000 };
        self.span = (self.span + counted * self.step * 1_000_000).min((self.most + beyond).max(self.span));
    }

    pub(super) fn span(&self) -> Nanos {
        Nanos::from_nanos(self.span.min(self.most) / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_late_packets_are_paid_for_one_by_one() {
        let mut account = Account::new(500);
        account.pay(20, 30);
        // 19 are owed: 38,000 packets at 500 ppm.
        account.earn(37_999);
        assert!(!account.in_credit());
        account.earn(1);
        assert!(account.in_credit());
        // No more than waited, and never less than was owed before.
        account.pay(1_000, 5);
        account.pay(1, 2);
        account.earn(10_000);
        assert!(account.in_credit());
    }

    #[test]
    fn a_few_late_packets_count_as_two_and_many_as_themselves() {
        let caution = |late, received, most| {
            let mut caution = Caution::new(Nanos::from_micros(32), 350);
            caution.raise(late, received, most);
            caution
        };
        // A 32nd of the goal each.
        assert_eq!(caution(5, 5, 5).span(), Nanos::from_micros(2));
        assert_eq!(caution(9, 9, 9).span(), Nanos::from_micros(9));
        // No wait is shorter by more than half the goal, but the rest takes time to go.
        let mut much = caution(40, 40, 40);
        assert_eq!(much.span(), Nanos::from_micros(16));
        much.relax(24 * 1_000_000 / 350);
        assert_eq!(much.span(), Nanos::from_micros(16));
        much.relax(3_000);
        assert!(much.span() < Nanos::from_micros(16));
    }
}
