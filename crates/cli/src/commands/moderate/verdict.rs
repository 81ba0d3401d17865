//! Whether a queue held its goal.

use steer::moderation::{Lateness, Moderate as Controller};
use units::{Monotonic, Quantile};

use crate::documents::moderate::Verdict;

/// If the true share of late packets were the goal's, none of so many packets would be late with this probability. With
/// fewer packets, a goal is not said to be held: the usual 5 % of a test with two sides, on the one side that counts.
const BY_CHANCE: f64 = 0.025;

/// A verdict, and why there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdicts {
    pub(super) verdict: Verdict,
    /// `Some` if it is [`Verdict::Unmeasured`].
    pub(super) why: Option<String>,
}

/// Judges all packets since the beginning.
pub(super) fn judge(controller: &Controller<Monotonic>, is_lost: bool, dry_run: bool) -> Verdicts {
    if is_lost {
        return unmeasured("it was not steered to the end");
    }
    let bound = controller.bound().is_some();
    by(controller.goal().quantile, controller.lateness(), bound, dry_run)
}

fn by(quantile: Quantile, lateness: Lateness, has_bound: bool, dry_run: bool) -> Verdicts {
    let share = f64::from(quantile.above_ppm()) / 1e6;
    let least = (BY_CHANCE.ln() / (1.0 - share).ln()).ceil();
    let Lateness { packets, late } = lateness;
    let all = packets as f64;
    if !has_bound && packets == 0 {
        return unmeasured("nothing bounds how long its packets gather: the card's moderation is adaptive, or unknown");
    }
    // Too many are late, whatever the others are: a goal is missed by fewer packets than it is held by.
    let missed = late > share * all.max(least);
    if !missed && all < least {
        return unmeasured(&format!("{packets} of its packets were read and measured, and the goal takes {least}"));
    }
    let verdict = match (missed, dry_run) {
        (false, false) => Verdict::Held,
        (true, false) => Verdict::Missed,
        (false, true) => Verdict::WouldHold,
        (true, true) => Verdict::WouldMiss,
    };
    Verdicts { verdict, why: None }
}

fn unmeasured(why: &str) -> Verdicts {
    Verdicts { verdict: Verdict::Unmeasured, why: Some(why.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(packets: u64, late: f64) -> Verdict {
        by(Quantile::P99, Lateness { packets, late }, true, false).verdict
    }

    #[test]
    fn a_goal_is_held_by_enough_packets_only() {
        // 0.99^367 is 0.0250, and 0.99^368 is less.
        assert_eq!((verdict(367, 0.0), verdict(368, 0.0)), (Verdict::Unmeasured, Verdict::Held));
        assert_eq!((verdict(1_000, 10.0), verdict(1_000, 10.5)), (Verdict::Held, Verdict::Missed));
        assert_eq!((verdict(10, 3.0), verdict(10, 4.0)), (Verdict::Unmeasured, Verdict::Missed));
    }

    #[test]
    fn what_has_no_bound_is_not_judged() {
        let none = by(Quantile::P99, Lateness::default(), false, false);
        assert!(none.why.unwrap().contains("adaptive"));
    }

    #[test]
    fn a_dry_run_says_would() {
        let dry = |late| by(Quantile::P99, Lateness { packets: 1_000, late }, true, true).verdict;
        assert_eq!((dry(0.0), dry(50.0)), (Verdict::WouldHold, Verdict::WouldMiss));
    }
}
