//! A core's idle states: which one is entered, and what it costs to wake from it.

use units::{Cycles, Nanos};

use super::spread::Spread;
use super::{ModelError, check};
use crate::At;
use crate::random::Random;

/// The longest entry to and exit from an idle state; real ones take less than a thousandth of it.
const LONGEST_TRANSITION: Nanos = Nanos::from_secs(1);

/// What a core switches off in an idle state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// Nothing is off: the idle loop spins (`POLL`).
    Nothing,
    /// The clock is off (C1).
    Clock,
    /// The clock is off, and the voltage falls to the level of the lowest frequency (C1E).
    ClockLowVoltage,
    /// The clock is off, and the private caches lose their contents (C3).
    Caches,
    /// The power supply is off (C6).
    Power,
}

/// One idle state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdleState {
    /// The name in cpuidle: `POLL`, `C1`, `C6`.
    pub name: String,
    /// The worst-case exit latency that the system reports (cpuidle `latency`). Governors compare it with the latency
    /// limit. The time that a wake-up really takes is [`IdleState::exit`].
    pub stated_exit: Nanos,
    /// cpuidle `residency`: in an idle period shorter than this, the state costs more than it saves.
    pub residency: Nanos,
    /// Time to enter the state. An interrupt during entry waits until the entry is complete.
    pub entry: Nanos,
    /// Time that a wake-up by an interrupt takes.
    pub exit: Spread,
    /// Time that a wake-up by the core's own timer takes. It is shorter if the hardware knows the timer and wakes the
    /// core ahead of it ("pre-wake").
    pub timer_exit: Spread,
    /// What the core switches off in this state.
    pub gate: Gate,
    /// Additional cost of the first work after the wake-up, because caches and predictors lost their contents.
    pub refill: Cycles,
}

/// The idle states of a core, from the shallowest to the deepest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CStateModel {
    /// The states in cpuidle's order: each has a longer reported exit latency and a longer residency than the one
    /// before.
    pub states: Vec<IdleState>,
    /// Index of the deepest state that may be entered (`intel_idle.max_cstate`, or disabled states).
    pub deepest: usize,
}

impl CStateModel {
    /// Returns an error if the states are out of order.
    pub fn validate(&self) -> Result<(), ModelError> {
        check(!self.states.is_empty(), "idle states", || "none: give at least POLL".into())?;
        check(self.deepest < self.states.len(), "idle states", || {
            format!("the deepest is number {}, but there are {}", self.deepest, self.states.len())
        })?;
        for IdleState { name, entry, exit, timer_exit, .. } in &self.states {
            let longest = exit.most().max(timer_exit.most());
            check((*entry).max(longest) <= LONGEST_TRANSITION, "idle states", || {
                format!("{name} takes {entry} to enter and {longest} to leave: at most {LONGEST_TRANSITION} each")
            })?;
        }
        for pair in self.states.windows(2) {
            let ordered = pair[0].stated_exit <= pair[1].stated_exit && pair[0].residency <= pair[1].residency;
            check(ordered, "idle states", || format!("{} comes after {}: swap them", pair[1].name, pair[0].name))?;
        }
        Ok(())
    }

    /// The index of the state called `name`. `None` if there is none.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.states.iter().position(|state| state.name == name)
    }

    /// The model without the states that are deeper than the one called `name`.
    pub fn limited_to(&self, name: &str) -> Result<Self, ModelError> {
        let deepest = self.index_of(name).ok_or_else(|| ModelError {
            part: "idle states",
            what: format!("there is no {name}: choose a state that the machine has"),
        })?;
        Ok(Self { deepest, ..self.clone() })
    }

    /// The deepest allowed state whose residency is at most `predicted` and whose reported exit latency is at most
    /// `limit`: the rule of cpuidle's menu and teo governors. If no state qualifies, the first state.
    pub fn choose(&self, predicted: Nanos, limit: Nanos) -> usize {
        let fits = |state: &IdleState| state.residency <= predicted && state.stated_exit <= limit;
        self.states[..=self.deepest].iter().rposition(fits).unwrap_or(0)
    }
}

/// What wakes a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakeup {
    /// The CPU's own timer.
    Timer,
    /// An interrupt of a device or of another core.
    Interrupt,
}

/// The idle state of one core.
///
/// ```text
///   Active ── enter ──► Idle (first the entry, which cannot be broken off) ── wake ──► Active
/// ```
#[derive(Clone, Debug)]
pub struct CState {
    model: CStateModel,
    idle: Option<Idle>,
    counts: Vec<Count>,
}

#[derive(Clone, Copy, Debug)]
struct Idle {
    index: usize,
    entered: At,
}

/// cpuidle's counters for one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Number of times the state was entered.
    pub usage: u64,
    /// Time spent in the state, without entry and exit.
    pub time: Nanos,
    /// Number of idle periods that were shorter than the state's residency.
    pub too_deep: u64,
    /// Number of idle periods that were long enough for the next deeper state, if that was allowed.
    pub too_shallow: u64,
}

impl CState {
    /// Makes a core that is active.
    pub fn new(model: CStateModel) -> Result<Self, ModelError> {
        model.validate()?;
        let counts = vec![Count::default(); model.states.len()];
        Ok(Self { model, idle: None, counts })
    }

    /// Goes idle in the state that [`CStateModel::choose`] selects. Returns its index.
    pub fn enter(&mut self, now: At, predicted: Nanos, limit: Nanos) -> usize {
        let index = self.model.choose(predicted, limit);
        self.enter_state(now, index);
        index
    }

    /// Goes idle in the state with this index, or in the deepest allowed state if that is shallower.
    pub fn enter_state(&mut self, now: At, index: usize) {
        self.idle = Some(Idle { index: index.min(self.model.deepest), entered: now });
    }

    /// Wakes the core. Returns the time from the wake-up event at `now` until the core executes; zero if it was active.
    pub fn wake(&mut self, now: At, wakeup: Wakeup, random: &mut Random) -> Nanos {
        let Some(Idle { index, entered }) = self.idle.take() else { return Nanos::ZERO };
        let state = &self.model.states[index];
        let idle = now.since(entered).unwrap_or(Nanos::ZERO);
        let count = &mut self.counts[index];
        count.usage += 1;
        count.time += idle.saturating_sub(state.entry);
        count.too_deep += u64::from(idle < state.residency);
        let deeper = self.model.states.get(index + 1).filter(|_| index < self.model.deepest);
        count.too_shallow += u64::from(deeper.is_some_and(|deeper| idle >= deeper.residency));
        let exit = match wakeup {
            Wakeup::Timer => state.timer_exit,
            Wakeup::Interrupt => state.exit,
        };
        state.entry.saturating_sub(idle) + exit.sample(random)
    }

    /// The current idle state. `None` if the core is active.
    pub fn state(&self) -> Option<&IdleState> {
        self.idle.map(|idle| &self.model.states[idle.index])
    }
    /// The index of the current idle state. `None` if the core is active.
    pub fn index(&self) -> Option<usize> {
        self.idle.map(|idle| idle.index)
    }
    /// The counters, one entry per state.
    pub fn counts(&self) -> &[Count] {
        &self.counts
    }
    /// The parameters of the model.
    pub const fn model(&self) -> &CStateModel {
        &self.model
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn state(name: &str, exit_us: u64, residency_us: u64, gate: Gate) -> IdleState {
        let exit = Spread::exactly(Nanos::from_micros(exit_us));
        IdleState {
            name: name.into(),
            stated_exit: Nanos::from_micros(exit_us),
            residency: Nanos::from_micros(residency_us),
            entry: Nanos::from_nanos(exit_us * 500),
            exit,
            timer_exit: Spread::exactly(Nanos::from_nanos(exit_us * 100)),
            gate,
            refill: Cycles::new(0),
        }
    }

    /// The states that cpuidle reports for a Broadwell-DE Xeon.
    pub fn model() -> CStateModel {
        let states = vec![
            state("POLL", 0, 0, Gate::Nothing),
            state("C1", 2, 2, Gate::Clock),
            state("C1E", 10, 20, Gate::ClockLowVoltage),
            state("C3", 40, 100, Gate::Caches),
            state("C6", 133, 400, Gate::Power),
        ];
        CStateModel { deepest: states.len() - 1, states }
    }

    fn us(n: u64) -> At {
        At::from_nanos(n * 1_000)
    }

    #[test]
    fn the_deepest_that_pays_and_keeps_the_limit() {
        let choose = |predicted, limit| {
            let model = model();
            model.states[model.choose(Nanos::from_micros(predicted), Nanos::from_micros(limit))].name.clone()
        };
        assert_eq!(choose(1, 1_000), "POLL");
        assert_eq!(choose(50, 1_000), "C1E");
        assert_eq!(choose(10_000, 1_000), "C6");
        assert_eq!(choose(10_000, 50), "C3");
        assert_eq!(choose(10_000, 0), "POLL");
        assert_eq!(model().limited_to("C1").unwrap().choose(Nanos::MAX, Nanos::MAX), 1);
        assert!(model().limited_to("C10").unwrap_err().to_string().contains("C10"));
    }

    #[test]
    fn an_interrupt_during_entry_waits_for_it() {
        let mut core = CState::new(model()).unwrap();
        let mut random = Random::stream(0, 0);
        core.enter_state(us(0), 4);
        assert_eq!(core.wake(us(20), Wakeup::Interrupt, &mut random), Nanos::from_nanos(46_500 + 133_000));
        core.enter_state(us(1_000), 4);
        assert_eq!(core.wake(us(2_000), Wakeup::Timer, &mut random), Nanos::from_nanos(13_300));
        assert_eq!(core.wake(us(2_000), Wakeup::Timer, &mut random), Nanos::ZERO);
        let count = core.counts()[4];
        assert_eq!((count.usage, count.too_deep, count.time), (2, 1, Nanos::from_nanos(1_000_000 - 66_500)));
    }

    #[test]
    fn too_shallow_is_counted_only_where_deeper_was_allowed() {
        let mut random = Random::stream(0, 0);
        for (deepest, expected) in [(4, 1), (1, 0)] {
            let mut core = CState::new(CStateModel { deepest, ..model() }).unwrap();
            core.enter_state(us(0), 1);
            core.wake(us(300), Wakeup::Interrupt, &mut random);
            assert_eq!(core.counts()[1].too_shallow, expected);
        }
    }

    #[test]
    fn states_out_of_order_are_refused() {
        let mut model = model();
        model.states.swap(1, 3);
        assert!(CState::new(model.clone()).is_err());
        model.states.clear();
        assert!(CState::new(model).is_err());
    }

    proptest! {
        #[test]
        fn waking_costs_at_most_entry_and_exit(idle_us in 0u64..1_000, index in 0usize..9, deepest in 0usize..5, timer: bool) {
            let model = CStateModel { deepest, ..model() };
            let mut core = CState::new(model.clone()).unwrap();
            core.enter_state(us(5), index);
            let entered = core.index().unwrap();
            prop_assert!(entered <= deepest);
            let state = &model.states[entered];
            let wakeup = if timer { Wakeup::Timer } else { Wakeup::Interrupt };
            let cost = core.wake(us(5 + idle_us), wakeup, &mut Random::stream(1, 1));
            prop_assert!(cost <= state.entry + state.exit.most());
            prop_assert!(core.state().is_none());
        }
    }
}
