//! A core's idle states: which one is entered, and what waking from it costs.

use units::{Cycles, Nanos};

use super::spread::Spread;
use super::{ModelError, check};
use crate::At;
use crate::random::Random;

/// What a core switches off in a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// Nothing: the idle loop spins (`POLL`).
    Nothing,
    /// The clock (C1).
    Clock,
    /// The clock, and the voltage falls to that of the lowest frequency (C1E).
    ClockLowVoltage,
    /// The clock and the private caches' contents (C3).
    Caches,
    /// The power (C6).
    Power,
}

/// One idle state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdleState {
    /// As cpuidle calls it: `POLL`, `C1`, `C6`.
    pub name: String,
    /// The exit latency that the system states (cpuidle `latency`): the worst case, with which governors
    /// compare the limit. It is not what a wake-up takes; that is [`IdleState::exit`].
    pub stated_exit: Nanos,
    /// cpuidle `residency`: idle periods shorter than this make the state a loss.
    pub residency: Nanos,
    /// How long entering takes. It cannot be broken off: an interrupt meanwhile waits for its end.
    pub entry: Nanos,
    /// How long a wake-up by an interrupt takes.
    pub exit: Spread,
    /// How long a wake-up by the core's own timer takes. Shorter, where the hardware knows the timer
    /// and wakes the core ahead of it ("pre-wake").
    pub timer_exit: Spread,
    /// What is switched off.
    pub gate: Gate,
    /// What the first work afterwards costs more: caches and predictors that were lost.
    pub refill: Cycles,
}

/// The idle states of a core, from the shallowest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CStateModel {
    /// In cpuidle's order: each has a longer stated exit and a longer residency than the one before.
    pub states: Vec<IdleState>,
    /// The deepest that may be entered (`intel_idle.max_cstate`, or states disabled): an index.
    pub deepest: usize,
}

impl CStateModel {
    /// Refuses states out of order.
    pub fn validate(&self) -> Result<(), ModelError> {
        check(!self.states.is_empty(), "idle states", || "none: give at least POLL".into())?;
        check(self.deepest < self.states.len(), "idle states", || {
            format!("the deepest is number {}, but there are {}", self.deepest, self.states.len())
        })?;
        for pair in self.states.windows(2) {
            let ordered = pair[0].stated_exit <= pair[1].stated_exit && pair[0].residency <= pair[1].residency;
            check(ordered, "idle states", || format!("{} comes after {}: swap them", pair[1].name, pair[0].name))?;
        }
        Ok(())
    }

    /// The state called `name`.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.states.iter().position(|state| state.name == name)
    }

    /// The same, but nothing deeper than the state called `name`.
    pub fn limited_to(&self, name: &str) -> Result<Self, ModelError> {
        let deepest = self.index_of(name).ok_or_else(|| ModelError {
            part: "idle states",
            what: format!("there is no {name}: choose a state that the machine has"),
        })?;
        Ok(Self { deepest, ..self.clone() })
    }

    /// The deepest allowed state that pays within `predicted` and whose stated exit keeps `limit`: the
    /// rule of cpuidle's menu and teo governors. The first state, if none does.
    pub fn choose(&self, predicted: Nanos, limit: Nanos) -> usize {
        let fits = |state: &IdleState| state.residency <= predicted && state.stated_exit <= limit;
        self.states[..=self.deepest].iter().rposition(fits).unwrap_or(0)
    }
}

/// Why a core wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakeup {
    /// Its own timer.
    Timer,
    /// Anything else: a device, another core.
    Interrupt,
}

/// One core's idling.
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

/// What cpuidle counts of one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Times entered.
    pub usage: u64,
    /// Time in it, its entry and exit not included.
    pub time: Nanos,
    /// Times that the idle period was shorter than the state's residency.
    pub too_deep: u64,
    /// Times that a deeper allowed state would have paid.
    pub too_shallow: u64,
}

impl CState {
    /// A core that is active.
    pub fn new(model: CStateModel) -> Result<Self, ModelError> {
        model.validate()?;
        let counts = vec![Count::default(); model.states.len()];
        Ok(Self { model, idle: None, counts })
    }

    /// Goes idle in the state that [`CStateModel::choose`] gives; says which.
    pub fn enter(&mut self, now: At, predicted: Nanos, limit: Nanos) -> usize {
        let index = self.model.choose(predicted, limit);
        self.enter_state(now, index);
        index
    }

    /// Goes idle in state `index`, or the deepest allowed.
    pub fn enter_state(&mut self, now: At, index: usize) {
        self.idle = Some(Idle { index: index.min(self.model.deepest), entered: now });
    }

    /// Wakes: how long from the wake-up event at `now` until the core executes. Zero if it was active.
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

    /// The state that the core is in; `None` if it is active.
    pub fn state(&self) -> Option<&IdleState> {
        self.idle.map(|idle| &self.model.states[idle.index])
    }
    /// The index of that state.
    pub fn index(&self) -> Option<usize> {
        self.idle.map(|idle| idle.index)
    }
    /// Since when it is idle.
    pub fn idle_since(&self) -> Option<At> {
        self.idle.map(|idle| idle.entered)
    }
    /// What was counted, one entry a state.
    pub fn counts(&self) -> &[Count] {
        &self.counts
    }
    /// The parameters.
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

    /// As cpuidle states them for a Broadwell-DE Xeon.
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
