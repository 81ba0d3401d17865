//! Whether a queue met its goal.

use steer::moderation::{Lateness, Moderate as Controller};
use units::{Monotonic, Quantile};

use crate::documents::moderate::Verdict;

/// One-sided significance level, half of the usual two-sided 5 %. A goal counts as met only after enough packets: if
/// the true share of late packets were the allowed share, the probability of seeing none late must be at most this
/// level.
const BY_CHANCE: f64 = 0.025;

/// A verdict. If it is [`Verdict::Unmeasured`], also the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdicts {
    pub(super) verdict: Verdict,
    /// Why nothing could be judged. `None` unless the verdict is [`Verdict::Unmeasured`].
    pub(super) why: Option<String>,
}

/// Judges all packets since control began. `not_measured` says why delays cannot be measured; `None` if they can.
pub(super) fn judge(
    controller: &Controller<Monotonic>,
    is_lost: bool,
    dry_run: bool,
    not_measured: Option<String>,
) -> Verdicts {
    if is_lost {
        return unmeasured("Apus stopped controlling it before the end");
    }
    if let Some(why) = not_measured {
        return unmeasured(&format!("its latency cannot be measured: {}", why.replace('\n', "; ")));
    }
    let bound = controller.bound().is_some();
    by(controller.goal().quantile, controller.lateness(), bound, dry_run)
}

fn by(quantile: Quantile, lateness: Lateness, has_bound: bool, dry_run: bool) -> Verdicts {
    let share = f64::from(quantile.above_ppm()) / 1e6;
    // At least one packet: without any, even a goal that allows all packets to be late is not judged.
    let least = (BY_CHANCE.ln() / (1.0 - share).ln()).ceil().max(1.0);
    let Lateness { packets, late } = lateness;
    let all = packets as f64;
    if !has_bound && packets == 0 {
        return unmeasured(
            "the NIC may delay packets for an unknown time: its moderation is adaptive, or cannot be read",
        );
    }
    // Too many packets are late, even if all further ones up to `least` were in time. So a miss can be proven with
    // fewer packets than a success.
    let missed = late > share * all.max(least);
    if !missed && all < least {
        return unmeasured(&format!("only {packets} packets were measured; judging the goal needs at least {least}"));
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
    fn no_packet_proves_nothing() {
        for ppm in [0, 1, 500_000, 999_999] {
            let quantile = Quantile::from_ppm(ppm).unwrap();
            let verdict = by(quantile, Lateness::default(), true, false).verdict;
            assert_eq!(verdict, Verdict::Unmeasured, "{ppm}");
        }
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
