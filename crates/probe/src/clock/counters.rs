//! The time-stamp counters of two CPUs, compared over a shared cache line.
//!
//! ```text
//!   CPU a   t1 ── ask ──►          ◄── answer ── t3
//!   CPU b              t2 ─────────┘
//! ```
//! t2 lies between t1 and t3, so b's counter is ahead of a's by t2 - (t1 + t3) / 2, to within (t3 - t1) / 2. Of all
//! exchanges, the shortest one gives the tightest bound; a delay only makes an exchange longer, so delayed exchanges
//! are not used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tester::host::Reading;
use units::{Cycles, Hertz, Nanos};

use super::sys::tsc;
use crate::Error;
use crate::detail::clock::TscPair;
use crate::place::Place;
use crate::record::Recorder;

/// Round trips in one comparison.
const ROUNDS: u64 = 3_000;
/// Counter ticks after which a waiting side yields its CPU for a moment, because the other side may be waiting for this
/// CPU.
const PATIENCE: u64 = 1_000_000;

/// One comparison of two counters.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub from: usize,
    pub to: usize,
    /// The readings (t1, t2, t3) of each round trip.
    rounds: Vec<[u64; 3]>,
}

/// Compares the counter of each CPU with the counter of the first CPU. Empty on an architecture without a counter.
pub(super) fn compare(cpus: &[usize], priority: Option<u8>) -> Result<Vec<Comparison>, Error> {
    if tsc().is_none() {
        return Ok(Vec::new());
    }
    cpus[1..].iter().map(|to| pair(cpus[0], *to, priority)).collect()
}

fn pair(from: usize, to: usize, priority: Option<u8>) -> Result<Comparison, Error> {
    let (asked, answered, answer, gone) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let place = |cpu| Place { cpu, priority, slack: Nanos::from_nanos(1) };
    // A thread that cannot be placed signals that it leaves. Otherwise the other one would wait forever.
    let leave = |error: Error| {
        gone.store(true, Ordering::Relaxed);
        error
    };
    let rounds = std::thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<(), Error> {
            place(to).take("apus-tsc-b").map_err(leave)?;
            for round in 1..=ROUNDS {
                if !until(|| asked.load(Ordering::Acquire) == round, &gone) {
                    break;
                }
                answer.store(tsc().unwrap_or(0), Ordering::Relaxed);
                answered.store(round, Ordering::Release);
            }
            Ok(())
        });
        let mine = scope.spawn(|| -> Result<Vec<[u64; 3]>, Error> {
            place(from).take("apus-tsc-a").map_err(leave)?;
            let mut rounds = Vec::with_capacity(ROUNDS as usize);
            for round in 1..=ROUNDS {
                let t1 = tsc().unwrap_or(0);
                asked.store(round, Ordering::Release);
                if !until(|| answered.load(Ordering::Acquire) == round, &gone) {
                    break;
                }
                let t3 = tsc().unwrap_or(0);
                rounds.push([t1, answer.load(Ordering::Relaxed), t3]);
            }
            Ok(rounds)
        });
        let mine = mine.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        mine
    })?;
    Ok(Comparison { from, to, rounds })
}

/// Loops until `done` returns true. Returns false if the other side has left.
fn until(done: impl Fn() -> bool, gone: &AtomicBool) -> bool {
    let mut began = tsc().unwrap_or(0);
    while !done() {
        if gone.load(Ordering::Relaxed) {
            return false;
        }
        let now = tsc().unwrap_or(0);
        if now.wrapping_sub(began) > PATIENCE {
            std::thread::yield_now();
            began = now;
        }
        std::hint::spin_loop();
    }
    true
}

impl Comparison {
    /// Offset of the second counter and the maximum error of this offset, in ticks, from the shortest round trip.
    /// `None` without a usable round trip.
    fn offset(&self) -> Option<(i64, u64)> {
        let shortest = self.rounds.iter().filter(|[t1, _, t3]| t3 > t1).min_by_key(|[t1, _, t3]| t3 - t1)?;
        let [t1, t2, t3] = shortest.map(i128::from);
        Some(((t2 - (t1 + t3) / 2) as i64, ((t3 - t1) / 2) as u64))
    }

    /// Number of readings that were lower than an earlier reading on the other CPU.
    fn warps(&self) -> u64 {
        self.rounds.iter().filter(|[t1, t2, t3]| t2 < t1 || t3 < t2).count() as u64
    }

    /// Half of each round trip time, converted with `hz` ticks per second.
    pub(super) fn ways(&self, hz: u64) -> Recorder {
        let mut ways = Recorder::new();
        for [t1, _, t3] in &self.rounds {
            ways.record(Cycles::new(t3.saturating_sub(*t1) / 2) / Hertz::new(hz));
        }
        ways
    }
}

impl TscPair {
    pub(super) fn new(first: &Comparison, second: &Comparison, hz: Option<u64>) -> Self {
        let ns = |ticks: f64| hz.map(|hz| ticks * 1e9 / hz as f64);
        let end = second.offset();
        let known = |value: Option<f64>| Reading::or_unknown(value, "no complete round trip was measured");
        let drift = first.offset().zip(end).and_then(|((a, _), (b, _))| ns((b - a) as f64));
        Self {
            from: second.from,
            to: second.to,
            ahead_ns: known(end.and_then(|(ahead, _)| ns(ahead as f64))),
            bound_ns: known(end.and_then(|(_, bound)| ns(bound as f64))),
            drift_ns: known(drift),
            warps: first.warps() + second.warps(),
        }
    }
}

/// Ticks per second, computed from two readings of the counter and the clock.
pub(super) fn rate(from: (Option<u64>, i128), to: (Option<u64>, i128)) -> Reading<u64> {
    let (Some(a), Some(b)) = (from.0, to.0) else {
        return Reading::unknown("this architecture has no time stamp counter that user space can read");
    };
    match u128::try_from(to.1 - from.1) {
        Ok(span @ 1_000_000..) => Reading::known((u128::from(b.saturating_sub(a)) * 1_000_000_000 / span) as u64),
        _ => Reading::unknown("the measurement lasted less than a millisecond"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_bounds_the_offset() {
        // b's counter is 100 ticks ahead. The round trips take 60, 20 and 2000 ticks. In the second one, the two
        // directions are uneven, so that the offset seems to be 104.
        let rounds = vec![[1_000, 1_130, 1_060], [2_000, 2_114, 2_020], [3_000, 3_100, 5_000]];
        let comparison = Comparison { from: 0, to: 1, rounds };
        assert_eq!(comparison.offset(), Some((104, 10)));
        assert_eq!(comparison.warps(), 2);
        assert_eq!(comparison.ways(1_000_000_000).max(), Some(Nanos::from_nanos(1_000)));
        assert_eq!(Comparison { rounds: vec![], ..comparison }.offset(), None);
    }

    #[test]
    fn drift_is_the_difference_of_two_comparisons() {
        let at = |ahead: u64| Comparison { from: 0, to: 1, rounds: vec![[1_000, 1_010 + ahead, 1_020]] };
        let pair = TscPair::new(&at(0), &at(6), Some(2_000_000_000));
        assert_eq!((pair.ahead_ns.value, pair.bound_ns.value, pair.drift_ns.value), (Some(3.0), Some(5.0), Some(3.0)));
        assert_eq!(pair.warps, 0);
        assert_eq!(TscPair::new(&at(0), &at(6), None).ahead_ns.value, None);
    }

    #[test]
    fn the_rate_needs_a_counter_and_time() {
        assert_eq!(rate((Some(5), 0), (Some(2_000_005), 1_000_000)).value, Some(2_000_000_000));
        assert!(rate((None, 0), (Some(1), 1_000_000)).unknown_because.is_some());
        assert!(rate((Some(1), 0), (Some(2), 10)).unknown_because.is_some());
    }
}
