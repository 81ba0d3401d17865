//! A core's frequency: requests, the sequencing timer that collects them, and the stall of a change.

use units::{Cycles, Hertz, Nanos};

use super::{ModelError, check};
use crate::At;

/// How a processor generation changes its frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PStateModel {
    /// Period of the sequencing timer. Requests take effect when the timer expires; the last one wins. The period is
    /// about 500 us; on 3rd Generation Xeon it is 500, 50 or 0 us (Intel 637284-001, section 4). With 0, requests take
    /// effect at once.
    pub period: Nanos,
    /// How long a change stops the core: about 12 us on 2nd Generation Xeon, a few hundred nanoseconds on the 3rd
    /// (Intel 637284-001, section 4).
    pub block: Nanos,
    /// The lowest frequency, above 0.
    pub lowest: Hertz,
    /// The highest frequency that may be requested.
    pub highest: Hertz,
    /// The bus clock, usually 100 MHz; frequencies are multiples of it. Above 0.
    pub step: Hertz,
}

impl PStateModel {
    /// Returns an error if the parameters are impossible.
    pub fn validate(&self) -> Result<(), ModelError> {
        let (lowest, highest, step) = (self.lowest.as_hertz(), self.highest.as_hertz(), self.step.as_hertz());
        check(step > 0 && step <= lowest, "P-states", || {
            format!("steps of {step} Hz: from 1 Hz to the lowest frequency, {lowest} Hz")
        })?;
        check(lowest <= highest, "P-states", || format!("the lowest frequency, {lowest} Hz, exceeds the highest"))?;
        check(self.period == Nanos::ZERO || self.block < self.period, "P-states", || {
            format!("a change blocks for {}, not less than the timer's {}", self.block, self.period)
        })
    }

    /// The frequency that the core gets if `wanted` is requested: rounded down to a step, within the range.
    pub fn granted(&self, wanted: Hertz) -> Hertz {
        let step = self.step.as_hertz();
        let stepped = Hertz::new(wanted.as_hertz() / step * step);
        stepped.clamp(self.lowest, self.highest)
    }

    /// The maximum time from a request to the new frequency.
    pub fn longest(&self) -> Nanos {
        self.period + self.block
    }
}

/// The frequency of one core.
///
/// ```text
///   Steady ── request ──► Waiting ── the timer expires ──► Blocked ── block ──► Steady (new frequency)
///                          │    ▲
///                          └────┘ request: the last one wins; the present frequency again: Steady at expiry
/// ```
#[derive(Clone, Debug)]
pub struct PState {
    model: PStateModel,
    /// When the free-running timer first expired.
    phase: At,
    frequency: Hertz,
    wanted: Option<(Hertz, At)>,
    blocked_until: At,
    changes: u64,
    requests: u64,
}

/// A change that was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// When the stall of the change began.
    pub at: At,
    /// The frequency before the change.
    pub from: Hertz,
    /// The frequency after the change.
    pub to: Hertz,
    /// Length of the stall, in which the core executes nothing.
    pub blocked: Nanos,
}

impl PState {
    /// Makes a core that runs at `frequency`, rounded as by [`PStateModel::granted`]. Its timer expires at `phase` and
    /// every period from then on. In hardware the timer is not synchronised to anything, so draw the phase at random.
    pub fn new(model: PStateModel, frequency: Hertz, phase: At) -> Result<Self, ModelError> {
        model.validate()?;
        Ok(Self {
            model,
            phase,
            frequency: model.granted(frequency),
            wanted: None,
            blocked_until: At::ORIGIN,
            changes: 0,
            requests: 0,
        })
    }

    /// Requests a frequency. Returns the frequency that the core will get if no other request follows.
    pub fn request(&mut self, now: At, wanted: Hertz) -> Hertz {
        let granted = self.model.granted(wanted);
        self.requests += 1;
        // Requests are collected: a later one of the same period has the same expiry.
        let due = self.wanted.map_or_else(|| self.expiry(now), |(_, due)| due.max(self.expiry(now)));
        self.wanted = Some((granted, due));
        granted
    }

    /// When the pending request takes effect. `None` if there is none.
    pub fn poll_at(&self) -> Option<At> {
        self.wanted.map(|(_, due)| due)
    }

    /// Carries out a request that is due. Returns `None` if there is none, or if it is for the current frequency.
    pub fn poll(&mut self, now: At) -> Option<Change> {
        let (to, due) = self.wanted?;
        if due > now {
            return None;
        }
        self.wanted = None;
        if to == self.frequency {
            return None;
        }
        let change = Change { at: due, from: self.frequency, to, blocked: self.model.block };
        self.frequency = to;
        self.blocked_until = due + self.model.block;
        self.changes += 1;
        Some(change)
    }

    /// Executes `work` from `now` on, including all frequency changes while it runs. Returns when the work ends. Work
    /// that begins during a stall starts after the stall.
    pub fn execute(&mut self, now: At, work: Cycles) -> At {
        let (mut now, mut left) = (now, work);
        loop {
            // A change that was due before `now` counts from its due time.
            while self.poll_at().is_some_and(|due| due <= now) {
                self.poll(now);
            }
            now = now.max(self.blocked_until);
            let ends = now + left / self.frequency;
            match self.poll_at() {
                Some(due) if due < ends => {
                    let ran = due.since(now).unwrap_or(Nanos::ZERO);
                    let done = self.frequency.cycles_in(ran).count();
                    left = Cycles::new(left.count().saturating_sub(done));
                    now = due;
                }
                _ => return ends,
            }
        }
    }

    /// The current frequency. During a stall it is the new frequency.
    pub const fn frequency(&self) -> Hertz {
        self.frequency
    }
    /// The end of the last stall. After this time the core executes again.
    pub const fn blocked_until(&self) -> At {
        self.blocked_until
    }
    /// Number of changes carried out so far.
    pub const fn changes(&self) -> u64 {
        self.changes
    }
    /// Number of requests so far.
    pub const fn requests(&self) -> u64 {
        self.requests
    }
    /// The parameters of the model.
    pub const fn model(&self) -> &PStateModel {
        &self.model
    }

    /// The first expiry of the timer after `now` that does not fall into a stall. A request at the very moment of an
    /// expiry waits for the next one.
    fn expiry(&self, now: At) -> At {
        let now = now.max(self.blocked_until);
        if self.model.period == Nanos::ZERO {
            return now;
        }
        let Some(since) = now.since(self.phase) else { return self.phase };
        let periods = since.as_nanos() / self.model.period.as_nanos() + 1;
        self.phase + self.model.period * periods
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_GENERATION: PStateModel = PStateModel {
        period: Nanos::from_micros(500),
        block: Nanos::from_micros(12),
        lowest: Hertz::new(1_000_000_000),
        highest: Hertz::new(2_400_000_000),
        step: Hertz::new(100_000_000),
    };

    fn core() -> PState {
        PState::new(SECOND_GENERATION, Hertz::new(2_400_000_000), At::ORIGIN).unwrap()
    }

    fn us(n: u64) -> At {
        At::from_nanos(n * 1_000)
    }

    #[test]
    fn the_last_request_of_a_period_wins() {
        let mut core = core();
        assert_eq!(core.request(us(20), Hertz::new(1_234_567_890)), Hertz::new(1_200_000_000));
        core.request(us(400), Hertz::new(0));
        assert_eq!((core.poll_at(), core.poll(us(499))), (Some(us(500)), None));
        let change = core.poll(us(500)).unwrap();
        assert_eq!((change.to, change.blocked), (Hertz::new(1_000_000_000), Nanos::from_micros(12)));
        assert_eq!((core.blocked_until(), core.changes(), core.requests()), (us(512), 1, 2));
    }

    #[test]
    fn asking_for_what_is_costs_nothing() {
        let mut core = core();
        core.request(us(1), Hertz::new(2_400_000_000));
        assert_eq!((core.poll(us(500)), core.changes(), core.blocked_until()), (None, 0, At::ORIGIN));
    }

    #[test]
    fn work_across_a_change_takes_both_speeds_and_the_block() {
        let mut core = core();
        core.request(us(10), Hertz::new(1_200_000_000));
        // 10 us of 2.4 GHz work: 5 us before the change, 12 us blocked, then 10 us at half the speed.
        assert_eq!(core.execute(us(495), Cycles::new(24_000)), us(500 + 12 + 10));
    }

    #[test]
    fn without_a_timer_a_request_is_acted_on_at_once() {
        let model = PStateModel { period: Nanos::ZERO, block: Nanos::from_nanos(300), ..SECOND_GENERATION };
        let mut core = PState::new(model, Hertz::new(2_400_000_000), us(77)).unwrap();
        core.request(us(3), Hertz::new(1_000_000_000));
        assert_eq!(core.poll(us(3)).unwrap().at, us(3));
        assert_eq!(model.longest(), Nanos::from_nanos(300));
    }

    #[test]
    fn impossible_processors_are_refused() {
        for model in [
            PStateModel { step: Hertz::new(0), ..SECOND_GENERATION },
            PStateModel { highest: Hertz::new(1), ..SECOND_GENERATION },
            PStateModel { block: Nanos::from_micros(500), ..SECOND_GENERATION },
        ] {
            assert!(PState::new(model, Hertz::new(1), At::ORIGIN).is_err());
        }
    }

    proptest! {
        /// A request takes effect within a period, plus the stall of a change that is under way.
        #[test]
        fn transitions_are_bounded(
            phase in 0u64..500_000, steps in prop::collection::vec((0u64..2_000_000, 8u64..30), 1..60),
        ) {
            let mut core = PState::new(SECOND_GENERATION, Hertz::new(0), At::from_nanos(phase)).unwrap();
            let mut now = At::ORIGIN;
            for (gap, hundreds) in steps {
                now = now + Nanos::from_nanos(gap);
                core.poll(now);
                core.request(now, Hertz::new(hundreds * 100_000_000));
                let due = core.poll_at().unwrap();
                prop_assert!(due > now && due.since(now).unwrap() <= Nanos::from_micros(512 + 500));
                prop_assert!(core.changes() <= core.requests());
            }
        }

        /// Work takes the same time in one piece or in two, except for rounding.
        #[test]
        fn execution_is_additive(at in 0u64..2_000_000, cycles in 0u64..3_000_000, cut in 0u64..3_000_000) {
            let mut whole = core();
            whole.request(At::ORIGIN, Hertz::new(1_000_000_000));
            let mut parts = whole.clone();
            let now = At::from_nanos(at);
            let first = parts.execute(now, Cycles::new(cut.min(cycles)));
            let ends = parts.execute(first, Cycles::new(cycles.saturating_sub(cut)));
            let difference = whole.execute(now, Cycles::new(cycles)).as_nanos().abs_diff(ends.as_nanos());
            prop_assert!(difference <= 4, "{difference}");
        }
    }
}
