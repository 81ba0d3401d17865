//! What the waits may spend of the late packets that the goal allows.

use units::Nanos;

/// Credit is counted in millionths of a packet; this is one late packet.
const ONE_LATE: i64 = 1_000_000;
/// No kind of wait hoards more credit than this many late packets...
const MOST_CREDIT: i64 = 4 * ONE_LATE;
/// ...or owes more, so that a bad moment of the machine is not paid for without end.
const MOST_DEBT: i64 = -ONE_LATE;
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

    pub(super) fn pay(&mut self, packets: u64) {
        self.credit = (self.credit - packets as i64 * ONE_LATE).max(MOST_DEBT);
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
    /// In millionths of a nanosecond.
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

    pub(super) fn relax(&mut self, packets: u64) {
        self.span = self.span.saturating_sub(packets * self.step * self.share);
    }

    pub(super) fn raise(&mut self, packets: u64) {
        self.span = (self.span + packets.min(2) * self.step * 1_000_000).min(self.most);
    }

    pub(super) fn span(&self) -> Nanos {
        Nanos::from_nanos(self.span / 1_000_000)
    }
}
