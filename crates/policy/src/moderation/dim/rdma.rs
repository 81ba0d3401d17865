//! DIM for RDMA completion queues.

use units::Instant;

use super::profiles::{RDMA_PROFILES, rdma_profile};
use super::{
    Comparison, DimSample, Outcome, Search, Snapshot, State, Stats, Stepped, TuneState, WINDOW_EVENTS, significant,
};
use crate::moderation::{Decision, ModerationPolicy, Profile, Reason, Sample};

/// The last index of the profile table.
const LAST: u8 = RDMA_PROFILES as u8 - 1;
/// In percent per profile index: if the rates have not changed and there are at most `50 % * index` completions per
/// event, moderation gathers too few completions, and the index returns to 0. The 50 is from `rdma_dim_decision()`,
/// `lib/dim/rdma_dim.c`.
const WORTHLESS_RATIO: i32 = 50;

/// Linux `rdma_dim`, one instance per completion queue.
///
/// ```text
///                 better: step                     worse: turn, step
///   GOING_RIGHT ◄──────────────────────────────────────────────────► GOING_LEFT
///        at the edge: turn;  the same, and few completions an event: index 0 at once
/// ```
/// Better means more completions per millisecond, then more completions per event, each by at least 11 %. The search
/// never parks. Each poll of the completion queue counts as one event.
#[derive(Debug)]
pub struct RdmaDim<C> {
    state: State,
    search: Search,
    start: DimSample<C>,
    measuring: DimSample<C>,
    previous: Stats,
    /// Total number of completions in the previous sample, for callers that pass [`Sample`]s.
    last_completions: u64,
}

impl<C> RdmaDim<C> {
    /// Creates an instance that starts as `rdma_dim_init()` in `drivers/infiniband/core/cq.c` does: at index 0, going
    /// right.
    pub const fn new() -> Self {
        let start = DimSample { time: Instant::ORIGIN, packets: 0, bytes: 0, events: 0, completions: 0 };
        Self {
            state: State::StartMeasure,
            search: Search::new(TuneState::GoingRight, 0),
            start,
            measuring: DimSample { ..start },
            previous: Stats { ppms: 0, bpms: 0, epms: 0, cpms: 0, cpe_ratio: 0 },
            last_completions: 0,
        }
    }

    /// Ports `rdma_dim()`: a poll at `now` returned `completions` completions. `restart` is the time at which the next
    /// window starts, for which the kernel reads the clock again.
    pub fn step(&mut self, now: Instant<C>, completions: u64, restart: Instant<C>) -> Outcome {
        self.measuring = DimSample {
            time: now,
            packets: 0,
            bytes: 0,
            events: self.measuring.events.wrapping_add(1),
            completions: self.measuring.completions.wrapping_add(completions as u32),
        };
        let outcome = match self.state {
            State::ApplyNewProfile => return Outcome::Applying,
            State::StartMeasure => Outcome::Measuring,
            State::MeasureInProgress => {
                // An int difference in a u32: it is not masked to 16 bits, so a wrap-around of the counter ends a
                // window early.
                let events = (i32::from(self.measuring.events) - i32::from(self.start.events)) as u32;
                if events < WINDOW_EVENTS {
                    return Outcome::Measuring;
                }
                let Some(current) = Stats::between(&self.start, &self.measuring) else { return Outcome::Measuring };
                if self.decision(current) {
                    self.state = State::ApplyNewProfile;
                    return Outcome::Changed;
                }
                Outcome::Kept
            }
        };
        self.start = DimSample { time: restart, ..self.measuring };
        self.state = State::MeasureInProgress;
        outcome
    }

    /// Call this when the profile has been programmed; in the kernel, the driver's work item does so.
    pub fn finish_applying(&mut self) {
        self.state = State::StartMeasure;
    }

    /// The state of this instance, in the kernel's terms.
    pub fn snapshot(&self) -> Snapshot {
        self.search.snapshot(self.state)
    }

    /// Ports `rdma_dim_decision()`. Returns whether the index has changed.
    fn decision(&mut self, current: Stats) -> bool {
        let before = self.search;
        if matches!(before.tune_state, TuneState::GoingRight | TuneState::GoingLeft) {
            let comparison = compare(&current, &self.previous);
            if comparison == Comparison::Same {
                if current.cpe_ratio <= WORTHLESS_RATIO * i32::from(before.profile_ix) {
                    self.search.profile_ix = 0;
                }
            } else {
                if comparison == Comparison::Worse {
                    self.search.turn();
                }
                if self.search.walk(LAST) == Stepped::OnEdge {
                    self.search.turn();
                }
            }
        }
        self.previous = current;
        self.search.profile_ix != before.profile_ix
    }
}

impl<C> Default for RdmaDim<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// Ports `rdma_dim_stats_compare`.
fn compare(current: &Stats, previous: &Stats) -> Comparison {
    let more = |current: i32, previous: i32| if current > previous { Comparison::Better } else { Comparison::Worse };
    if previous.cpms == 0 {
        Comparison::Same
    } else if significant(current.cpms, previous.cpms) {
        more(current.cpms, previous.cpms)
    } else if significant(current.cpe_ratio, previous.cpe_ratio) {
        more(current.cpe_ratio, previous.cpe_ratio)
    } else {
        Comparison::Same
    }
}

impl<C> ModerationPolicy<C> for RdmaDim<C> {
    fn profile(&self) -> Profile {
        rdma_profile(self.search.profile_ix).expect("no step leaves the table")
    }

    /// Each sample counts as one poll of the completion queue.
    fn decide(&mut self, sample: &Sample<C>) -> Decision {
        let completions = sample.completions.wrapping_sub(self.last_completions);
        self.last_completions = sample.completions;
        match self.step(sample.now, completions, sample.now) {
            Outcome::Applying => Decision::keep(Reason::Applying),
            Outcome::Measuring => Decision::keep(Reason::Measuring),
            Outcome::Kept => Decision::keep(Reason::Steady),
            Outcome::Changed => Decision::apply(self.profile(), Reason::Rates),
        }
    }

    /// Ignores the profile in force, because DIM continues from the profile that it requested.
    fn applied(&mut self, _: Instant<C>, _: Profile) {
        self.finish_applying();
    }
}

impl<C> Clone for RdmaDim<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for RdmaDim<C> {}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Simulated;

    /// Calls of `completions` each, a microsecond apart, until something is decided.
    fn window(dim: &mut RdmaDim<Simulated>, now_us: &mut u64, us: u64, completions: u64) -> Outcome {
        loop {
            *now_us += us;
            let now = Instant::from_nanos(*now_us * 1_000);
            match dim.step(now, completions, now) {
                Outcome::Measuring => {}
                Outcome::Changed => {
                    dim.finish_applying();
                    return Outcome::Changed;
                }
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn climbs_while_completions_grow_and_turns_when_they_fall() {
        let (mut dim, mut now) = (RdmaDim::new(), 0);
        // The first window has nothing to be compared with, and at index 0 the same changes nothing.
        assert_eq!(window(&mut dim, &mut now, 10, 1), Outcome::Kept);
        for (completions, index) in [(2, 1), (4, 2), (8, 3)] {
            assert_eq!(window(&mut dim, &mut now, 10, completions), Outcome::Changed);
            assert_eq!(dim.snapshot().profile_ix, index);
        }
        assert_eq!(window(&mut dim, &mut now, 10, 4), Outcome::Changed);
        assert_eq!((dim.snapshot().profile_ix, dim.snapshot().tune_state), (2, TuneState::GoingLeft));
    }

    #[test]
    fn the_same_with_few_completions_an_event_falls_to_the_first() {
        let (mut dim, mut now) = (RdmaDim::new(), 0);
        window(&mut dim, &mut now, 10, 1);
        window(&mut dim, &mut now, 10, 2);
        window(&mut dim, &mut now, 5, 2);
        window(&mut dim, &mut now, 2, 2);
        window(&mut dim, &mut now, 1, 2);
        assert_eq!(dim.snapshot().profile_ix, 4);
        // Two completions an event are 200 %, 50 % an index.
        assert_eq!(window(&mut dim, &mut now, 1, 2), Outcome::Changed);
        assert_eq!(dim.snapshot().profile_ix, 0);
    }

    #[test]
    fn the_wrap_around_of_the_event_counter_ends_a_window_early() {
        let (mut dim, mut now) = (RdmaDim::<Simulated>::new(), 0);
        // 65,535 calls: the first and each 64th begin a window, the last one with event 65,473.
        for _ in 0..65_535 {
            now += 1_000;
            dim.step(Instant::from_nanos(now), 1, Instant::from_nanos(now));
        }
        assert_eq!((dim.measuring.events, dim.start.events), (65_535, 65_473));
        now += 1_000;
        assert_eq!(dim.step(Instant::from_nanos(now), 1, Instant::from_nanos(now)), Outcome::Kept);
        assert_eq!(dim.start.events, 0);
    }
}
