//! The minimum CPU time that a recorded run would have needed to meet a goal.

use policy::Goal;
use units::Nanos;

use super::schedule::{Line, Packets, Prices, Rest, least};

/// What wake-ups and frames cost in a recorded run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// CPU time to give up the core and get it back.
    pub wake: Nanos,
    /// CPU time for processing one frame.
    pub frame: Nanos,
}

/// Computes the minimum CPU time that the frames need within `window` to meet the goal. Each `(first, last, count)`
/// stands for `count` frames that arrived between the times `first` and `last`, in nanoseconds; `first` never
/// decreases. The core polls or rests, and each rest costs [`Costs::wake`]. A frame is in time if the core is awake at
/// any moment between its arrival and the end of the goal's latency. The size of the ring, and the time that earlier
/// frames take, are ignored.
pub fn least_cpu_time(
    goal: Goal,
    window: (u64, u64),
    frames: impl IntoIterator<Item = (u64, u64, u64)>,
    costs: Costs,
) -> Nanos {
    let mut line = Line { window, packets: Vec::new() };
    let close =
        (goal.latency.as_nanos() / super::arrivals::SHARE).max((window.1 - window.0) / super::arrivals::ENTRIES);
    let mut all = 0;
    for (first, last, count) in frames {
        all += count;
        let deadline = last.saturating_add(goal.latency.as_nanos());
        if deadline < window.1 {
            line.push(Packets { release: first, deadline, count }, close);
        }
    }
    let rests = vec![Rest { slope: 0.0, wake: costs.wake.as_nanos() as f64 }];
    let prices = Prices { awake: 1.0, rests, packet: costs.frame.as_nanos() as f64, batch: 0.0 };
    let allowed = super::share(all, goal.quantile.above_ppm());
    let bound = least(&[line], &prices, allowed as f64, 0.0);
    Nanos::from_nanos(bound.cost.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { wake: Nanos::from_micros(5), frame: Nanos::from_nanos(400) };

    /// Compares within the precision of the search.
    #[track_caller]
    fn near(spent: Nanos, expected: Nanos) {
        let apart = spent.as_nanos().abs_diff(expected.as_nanos());
        assert!(apart * 1_000 <= expected.as_nanos(), "{spent} is not about {expected}");
    }

    #[test]
    fn one_wake_up_for_all_frames_of_a_period() {
        let goal: Goal = "p99=100us".parse().unwrap();
        // One frame per millisecond for a second. Each needs a wake-up, except the 1 % that may be late and the first.
        let lone = (1..1_000).map(|n| (n * 1_000_000, n * 1_000_000, 1));
        let spent = least_cpu_time(goal, (0, 1_000_000_000), lone, COSTS);
        near(spent, COSTS.wake * (999 - 9 - 1) + COSTS.frame * (999 - 9));
        // Groups of ten frames need no more wake-ups. The 99 frames that may be late save about ten wake-ups.
        let tens = (1..1_000).map(|n| (n * 1_000_000, n * 1_000_000 + 1_000, 10));
        let spent = least_cpu_time(goal, (0, 1_000_000_000), tens, COSTS);
        near(spent, COSTS.wake * (999 - 10 - 1) + COSTS.frame * (9_990 - 99));
    }

    #[test]
    fn a_looser_goal_never_needs_more() {
        let frames = || (1u64..5_000).map(|n| n * n % 7_919 * 20_000).collect::<std::collections::BTreeSet<_>>();
        let spent = ["p99.9=20us", "p99=20us", "p99=50us", "p90=50us", "p90=500us"].map(|goal| {
            let frames = frames().into_iter().map(|at| (at, at, 1));
            least_cpu_time(goal.parse().unwrap(), (0, 200_000_000), frames, COSTS)
        });
        assert!(spent.is_sorted_by(|a, b| a > b), "{spent:?}");
    }
}
