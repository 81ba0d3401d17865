//! What the waits have cost, and how many packets were late: totals, of which a difference is the cost of a period.

use units::Nanos;

/// Late packets enter the cost of a period only if the goal allows at least this many of them in it. Fewer say nothing
/// about their share.
const COUNTS: i128 = 8;

/// Totals since the start: what waits saved, and how many packets were late. The difference of two totals gives the
/// cost of the period between them; see [`Adaptive::paid_since`](super::Adaptive::paid_since).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Paid {
    /// What the waits saved, compared with polling for the same time, in nanoseconds of a polling core.
    saved: i128,
    /// Number of late packets minus the number that the policy aimed at, in millionths.
    late: i128,
}

impl Paid {
    /// Adds a wait that `lasted` so long, and cost as much as polling for `spent`. Both in nanoseconds.
    #[inline]
    pub(super) fn add_wait(&mut self, lasted: u64, spent: u64) {
        self.saved += i128::from(lasted) - i128::from(spent);
    }

    /// Adds packets, some of which were late. The policy aimed at the share `aim`, in millionths.
    #[inline]
    pub(super) fn add_packets(&mut self, packets: u64, late: u64, aim: u64) {
        self.late += i128::from(late) * 1_000_000 - i128::from(packets) * i128::from(aim);
    }

    /// The cost of the last `span`, which began when the totals were `then`, as shares of a polling core in 2^-16:
    /// first that of the waits and the work, and then with the late packets beyond the share that the policy aimed at.
    /// It aims at one late packet in each `each` nanoseconds, which is what one late packet costs.
    pub(super) fn since(&self, then: Self, span: Nanos, each: u64) -> (u64, u64) {
        let (span, each) = (i128::from(span.as_nanos()), i128::from(each));
        // If the goal allows hardly any late packets in that time, a few of them are not counted, because they show no
        // share.
        let counts = span >= each * COUNTS;
        let polls = if counts { (self.late - then.late).max(0) * each / 1_000_000 } else { 0 };
        let paid = (span - (self.saved - then.saved)).max(0);
        let share = |paid: i128, of: i128| u64::try_from((paid << 16) / of.max(1)).unwrap_or(u64::MAX);
        (share(paid, span), share(paid + polls, span + polls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_costs_what_its_waits_did_not_save_and_its_late_packets() {
        let mut paid = Paid::default();
        paid.add_wait(500, 100);
        let then = paid;
        paid.add_wait(800, 50);
        assert_eq!(paid.since(then, Nanos::from_nanos(1_000), 1_000), ((250 << 16) / 1_000, (250 << 16) / 1_000));
        // Of 1,000 packets 10 were aimed at, and 12 were late: two too many, each of which costs 100 ns.
        paid.add_packets(1_000, 12, 10_000);
        let late = |each: u64| paid.since(then, Nanos::from_nanos(1_000), each).1;
        assert_eq!(late(100), ((250 + 200) << 16) / 1_200);
        assert_eq!(late(126), (250 << 16) / 1_000, "fewer than eight were allowed");
    }
}
