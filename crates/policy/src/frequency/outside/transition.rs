//! What a frequency change costs, and how often it may happen.

use units::{Hertz, Nanos, Quantile};

use super::{ONE, scale};

/// How long a frequency change takes, and how long the core halts meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The longest time from a request until the hardware begins the change.
    pub sequencing: Nanos,
    /// Time for which the core halts during a frequency change.
    pub stall: Nanos,
}

/// The values of 2nd Gen Intel Xeon Scalable, the slowest that Intel describes: a request waits for a timer of 500 us
/// (about 530 us until the end of the change), and then the core halts for about 12 us. On the 3rd Gen, the stall is a
/// few hundred nanoseconds. Source: Intel 637284-001US, section 4.
impl Default for Transition {
    fn default() -> Self {
        Self { sequencing: Nanos::from_micros(530), stall: Nanos::from_micros(12) }
    }
}

/// Without a latency goal, stalls may take at most `1 / STALL_TIME_PART` of the time.
const STALL_TIME_PART: u64 = 1_000;
/// With a latency goal, stalls may cause at most `1 / STALL_LATE_PART` of the late packets that the goal allows, as in
/// the policy inside the loop.
const STALL_LATE_PART: u64 = 4;
/// A lower frequency must save at least this many times the work that its two stalls cost: one on the way down, one on
/// the way up.
const WORTH: u64 = 100;

impl Transition {
    /// The longest time from a request to the end of the change.
    pub fn settling(&self) -> Nanos {
        self.sequencing + self.stall
    }

    /// The shortest time between two changes. It ensures that stalls alone cause at most a quarter of the late packets
    /// that `quantile` allows or, without a goal, take at most one thousandth of the time.
    pub fn patience(&self, quantile: Option<Quantile>) -> Nanos {
        let part = match quantile {
            Some(quantile) => scale(STALL_LATE_PART, u64::from(ONE), u64::from(quantile.above_ppm().max(1))),
            None => STALL_TIME_PART,
        };
        (self.stall * part).max(self.settling())
    }

    /// How long the frequency must stay at `to`, after a step down from `from`, to be worth the stalls. Power is
    /// assumed to be proportional to the frequency, which underestimates the savings of a lower voltage.
    pub fn worth_after(&self, from: Hertz, to: Hertz) -> Nanos {
        let saved = from.as_hertz().saturating_sub(to.as_hertz());
        if saved == 0 {
            return Nanos::MAX;
        }
        Nanos::from_nanos(scale(self.stall.as_nanos() * 2 * WORTH, from.as_hertz(), saved))
    }

    /// Share of the time, in ppm, for which the core halts because of `changes` frequency changes within `span`.
    pub fn share_ppm(&self, changes: u64, span: Nanos) -> u64 {
        scale(self.stall.as_nanos().saturating_mul(changes), u64::from(ONE), span.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::outside::tests::mhz;

    #[test]
    fn stalls_cost_at_most_their_part() {
        let transition = Transition::default();
        assert_eq!(transition.patience(None), Nanos::from_millis(12));
        // 12 us each 4.8 ms are 0.25 % of the time, a quarter of 1 %.
        assert_eq!(transition.patience(Some(Quantile::P99)), Nanos::from_micros(4_800));
        assert_eq!(transition.patience(Some(Quantile::P99_9)), Nanos::from_millis(48));
        assert_eq!(transition.share_ppm(10, Nanos::from_secs(1)), 120);
        let quick = Transition { sequencing: Nanos::from_micros(50), stall: Nanos::from_nanos(100) };
        assert_eq!(quick.patience(None), Nanos::from_micros(100), "not less than a change takes");
    }

    #[test]
    fn a_small_step_must_last_longer_than_a_large_one() {
        let transition = Transition::default();
        assert_eq!(transition.worth_after(mhz(3_000), mhz(1_500)), Nanos::from_micros(4_800));
        assert_eq!(transition.worth_after(mhz(3_000), mhz(2_700)), Nanos::from_millis(24));
        assert_eq!(transition.worth_after(mhz(800), mhz(800)), Nanos::MAX);
    }
}
