//! Detects frequency changes in a series of timed work items. This module does no I/O.
//!
//! ```text
//!  unit's
//!  duration      ┌ stall                      old, new: medians of the units before the request and after all has settled
//!     │          █                            effect:   the first unit from which on the next ones lie closer to new
//!     │ ▄▄▄▄▄▄▄▄▄█                            stall:    the longest unit from the request to just behind the effect,
//!     │          █▄▄▄▄▄▄▄▄▄ new                         above the longer of both medians
//!     └──────┬───┬─────────► time
//!        request effect
//! ```
//! The method is taken from the microbenchmark in Intel's P-state guide (637284-001US, figures 4 and 5), and from
//! ftalat (Mazouz et al., "Evaluation of CPU frequency transition latency", 2014). As in ftalat, several items in a row
//! must *stay* at the new duration, because a single item may reach it by chance.

use units::{Instant, Monotonic, Nanos};

/// One timed work item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// When the work item started.
    pub start: Instant<Monotonic>,
    /// How long the work item took.
    pub took: Nanos,
}

/// A frequency request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// When the call that made the request began.
    pub at: Instant<Monotonic>,
    /// When the call that made the request returned.
    pub done: Instant<Monotonic>,
}

/// The effect of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Median duration of a work item before the change.
    pub before: Nanos,
    /// Median duration of a work item after the change.
    pub after: Nanos,
    /// Time from the request to the start of the first item at the new speed; `None` if the speed did not change.
    pub effect: Option<Nanos>,
    /// How much longer the slowest item around the change took than the longer of the two medians. Zero if none took
    /// longer.
    pub stall: Nanos,
}

/// Number of consecutive items that are examined for the new speed: a single one may be fast by chance, or interrupted.
const STAY: usize = 8;
/// Of [`STAY`] consecutive items, this many must have the new speed: an interrupt may disturb some.
const OF_THEM: usize = 6;
/// Smallest difference of two medians, in percent, that counts as a change of speed. P-states are 100 MHz apart, which
/// makes a difference of at least 3 %.
const LEAST_CHANGE_PERCENT: u64 = 2;
/// To count as a change of speed, a difference must exceed this many times the variation without a request.
const UNREST: u64 = 3;
/// Number of items after the effect that still count as part of the change.
const BEHIND: usize = 3;

/// Finds the effect of `request`. `units` are all work items in order. `previous` and `next` are the times of the
/// requests before and after (or of the start and the end of the run). `None` unless there are items both before and
/// after the request.
pub fn transition(
    units: &[Unit],
    previous: Instant<Monotonic>,
    request: Request,
    next: Instant<Monotonic>,
) -> Option<Transition> {
    let index = |at: Instant<Monotonic>| units.partition_point(|unit| unit.start < at);
    let (first, at, end) = (index(previous), index(request.at), index(next));
    // The second half of each segment is settled: the slowest request takes about half a millisecond (P-state guide,
    // "transition model"), and segments are much longer.
    let (old, new) = (&units[first + (at - first) / 2..at], &units[at + (end - at) / 2..end]);
    let (before, after) = (median(old)?, median(new)?);
    let segment = &units[at..end];
    let unrest = unrest(old).max(unrest(new));
    let effect = changed(before, after, unrest).then(|| settled(segment, before, after)).flatten();
    // The item that runs during the request may already contain the stall.
    let from = at.saturating_sub(1);
    let to = match effect {
        Some(n) => (at + n + BEHIND).min(end),
        // Without an effect, the change lasts as long as the request's call.
        None => index(request.done).max(at).min(end),
    };
    let longest = units[from..to].iter().map(|unit| unit.took).max().unwrap_or(Nanos::ZERO);
    Some(Transition {
        before,
        after,
        effect: effect.map(|n| segment[n].start.since(request.at).unwrap_or(Nanos::ZERO)),
        stall: longest.saturating_sub(before.max(after)),
    })
}

fn changed(before: Nanos, after: Nanos, unrest: Nanos) -> bool {
    let (low, high) = (before.min(after), before.max(after));
    let difference = high.saturating_sub(low);
    difference.as_nanos() * 100 > low.as_nanos() * LEAST_CHANGE_PERCENT && difference > unrest * UNREST
}

/// The variation without a request: how far the medians of the two halves of `units` differ. For example, a busy
/// neighbor lengthens items for a while.
fn unrest(units: &[Unit]) -> Nanos {
    let (first, second) = units.split_at(units.len() / 2);
    match (median(first), median(second)) {
        (Some(a), Some(b)) => a.max(b).saturating_sub(a.min(b)),
        _ => Nanos::ZERO,
    }
}

/// The first item from which items stay closer to `after` than to `before`.
fn settled(units: &[Unit], before: Nanos, after: Nanos) -> Option<usize> {
    let distance = |a: Nanos, b: Nanos| a.as_nanos().abs_diff(b.as_nanos());
    let is_new = |unit: &Unit| distance(unit.took, after) < distance(unit.took, before);
    (0..units.len()).find(|n| {
        let window = &units[*n..(n + STAY).min(units.len())];
        is_new(&units[*n]) && window.len() >= OF_THEM && window.iter().filter(|unit| is_new(unit)).count() >= OF_THEM
    })
}

/// Returns the items that started at or after `from` and before `to`. Empty if `to` is earlier than `from`, which
/// happens after a late request.
pub fn between(units: &[Unit], from: Instant<Monotonic>, to: Instant<Monotonic>) -> &[Unit] {
    let index = |at: Instant<Monotonic>| units.partition_point(|unit| unit.start < at);
    &units[index(from).min(index(to))..index(to)]
}

/// Median duration of the items; `None` without items.
pub fn median(units: &[Unit]) -> Option<Nanos> {
    let mut spans: Vec<Nanos> = units.iter().map(|unit| unit.took).collect();
    let middle = spans.len() / 2;
    (!spans.is_empty()).then(|| *spans.select_nth_unstable(middle).1)
}

/// Returns, for each batch of `size` consecutive items, the longest duration with the start time of the batch.
pub fn batches(units: &[Unit], size: usize) -> Vec<Unit> {
    let longest = |row: &[Unit]| Unit {
        start: row[0].start,
        took: row.iter().map(|unit| unit.took).max().unwrap_or(Nanos::ZERO),
    };
    units.chunks_exact(size.max(1)).map(longest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOW: u64 = 26_250; // 10 us of work at 2.1 GHz, done at 800 MHz
    const FAST: u64 = 10_000;

    fn at(nanos: u64) -> Instant<Monotonic> {
        Instant::from_nanos(nanos)
    }

    /// Items of a processor that changes speed `delay` after the request and stops for `stall`.
    fn run(request: u64, delay: u64, stall: u64, (old, new): (u64, u64), end: u64) -> Vec<Unit> {
        let (mut now, mut units) = (0, Vec::new());
        let change = request + delay;
        while now < end {
            let took = if now + old <= change {
                old
            } else if now < change {
                // The item has a part at the old speed, the stall, and the rest at the new speed.
                let part = change - now;
                part + stall + (old - part) * new / old
            } else {
                new
            };
            units.push(Unit { start: at(now), took: Nanos::from_nanos(took) });
            now += took;
        }
        units
    }

    fn found(units: &[Unit], request: u64, end: u64) -> Transition {
        let request = Request { at: at(request), done: at(request + 5_000) };
        transition(units, at(0), request, at(end)).unwrap()
    }

    #[test]
    fn second_generation_takes_half_a_millisecond_and_stands_still_for_12_us() {
        let units = run(50_000_000, 480_000, 12_000, (FAST, SLOW), 100_000_000);
        let transition = found(&units, 50_000_000, 100_000_000);
        assert_eq!((transition.before, transition.after), (Nanos::from_nanos(FAST), Nanos::from_nanos(SLOW)));
        let effect = transition.effect.unwrap().as_nanos();
        assert!(effect.abs_diff(492_000) <= SLOW, "{effect}");
        // The item with the stall has a part at each speed, so up to the difference of two items is not seen.
        let stall = transition.stall.as_nanos();
        assert!(stall <= 12_000 && stall + (SLOW - FAST) >= 12_000, "{stall}");
    }

    #[test]
    fn a_stall_between_equal_speeds_is_seen_whole() {
        // The speed does not change, but the core stands still while the request is made.
        let units = run(50_000_000, 3_000, 12_000, (FAST, FAST), 100_000_000);
        let transition = found(&units, 50_000_000, 100_000_000);
        assert_eq!((transition.effect, transition.stall), (None, Nanos::from_micros(12)));
    }

    #[test]
    fn third_generation_has_no_stall() {
        let units = run(50_000_000, 40_000, 0, (SLOW, FAST), 100_000_000);
        let transition = found(&units, 50_000_000, 100_000_000);
        assert_eq!(transition.stall, Nanos::ZERO);
        assert!(transition.effect.unwrap().as_nanos().abs_diff(40_000) <= SLOW);
    }

    #[test]
    fn a_lucky_unit_and_an_interrupt_do_not_deceive() {
        let mut units = run(50_000_000, 480_000, 0, (SLOW, FAST), 100_000_000);
        let request = units.partition_point(|unit| unit.start < at(50_000_000));
        units[request + 3].took = Nanos::from_nanos(FAST); // one short unit long before the change
        let change = units.iter().position(|unit| unit.start > at(50_480_000)).unwrap();
        units[change + 2].took = Nanos::from_nanos(SLOW + 9_000); // an interrupt soon after it
        let effect = found(&units, 50_000_000, 100_000_000).effect.unwrap().as_nanos();
        assert!(effect.abs_diff(480_000) <= SLOW, "{effect}");
    }

    #[test]
    fn a_restless_neighbour_is_no_change_of_speed() {
        // Items take 30 % longer from a time that does not belong to the request.
        let mut units = run(50_000_000, 0, 0, (FAST, FAST), 100_000_000);
        for unit in units.iter_mut().filter(|unit| unit.start > at(88_000_000)) {
            unit.took = Nanos::from_nanos(FAST * 13 / 10);
        }
        assert_eq!(found(&units, 50_000_000, 100_000_000).effect, None);
    }

    #[test]
    fn without_units_there_is_nothing_to_say() {
        let request = Request { at: at(5), done: at(6) };
        assert_eq!(transition(&[], at(0), request, at(9)), None);
        assert_eq!(median(&[]), None);
        assert!(batches(&[], 10).is_empty());
    }

    /// On a busy machine a request came so late that the next one followed within half a period.
    #[test]
    fn a_request_that_came_late_leaves_nothing_between() {
        let units = run(50_000_000, 0, 0, (FAST, FAST), 100_000_000);
        assert!(between(&units, at(60_000_000), at(40_000_000)).is_empty());
        assert!(!between(&units, at(40_000_000), at(60_000_000)).is_empty());
    }

    proptest! {
        #[test]
        fn the_effect_is_found_to_within_a_unit(
            delay in 0u64..2_000_000, stall in 0u64..30_000, faster: bool, ratio in 105u64..300,
        ) {
            let other = FAST * ratio / 100;
            let speeds = if faster { (other, FAST) } else { (FAST, other) };
            let units = run(50_000_000, delay, stall, speeds, 100_000_000);
            let transition = found(&units, 50_000_000, 100_000_000);
            let effect = transition.effect.expect("speeds differ by 5 % or more").as_nanos();
            // Two items: the one in which the speed changes may be mixed, and it may have begun before the request.
            prop_assert!(effect.abs_diff(delay + stall) <= 2 * other + stall, "{} for {}", effect, delay);
            prop_assert!(transition.stall.as_nanos() <= stall);
        }
    }
}
