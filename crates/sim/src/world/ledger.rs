//! Records how a core spends its time and energy: one entry per activity and frequency.

use units::{Hertz, Microwatts, Nanos};

use crate::At;
use crate::hw::cstate::{CStateModel, Gate};
use crate::hw::power::{Meter, PowerModel};
use crate::outcome::{Activity, Book, Residency};

/// Energy drawn since the start of the simulation, in femtojoules.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Drawn {
    /// The energy drawn in all activities.
    pub all: u128,
    /// The energy drawn in idle states.
    pub idle: u128,
}

/// The record of a core's time and energy. Its entries cover only the window.
#[derive(Clone, Debug)]
pub struct Ledger {
    model: PowerModel,
    idle: CStateModel,
    window: (At, At),
    since: At,
    current: usize,
    entries: Vec<Residency>,
    /// The energy of all entries, integrated over time independently as a check.
    meter: Meter,
    /// Energy since time 0 in femtojoules, inside and outside the window.
    drawn: Drawn,
}

impl Ledger {
    /// Starts the record of a core that polls at `frequency` from time 0 on. Only the time within `window` is recorded.
    pub fn new(model: &PowerModel, idle: &CStateModel, window: (At, At), frequency: Hertz) -> Self {
        let mut ledger = Self {
            model: model.clone(),
            idle: idle.clone(),
            window,
            since: At::ORIGIN,
            current: 0,
            entries: Vec::with_capacity(64),
            meter: Meter::new(window.0, Microwatts::new(0)),
            drawn: Drawn::default(),
        };
        ledger.current = ledger.entry(Activity::Polling, frequency);
        ledger.meter.set(window.0, ledger.entries[0].power);
        ledger
    }

    /// Notes that the core does `activity` at `frequency` from `now` on. If `now` is before the last change, the time
    /// of that change is used.
    #[inline]
    pub fn set(&mut self, now: At, activity: Activity, frequency: Hertz) {
        let current = &self.entries[self.current];
        if current.activity == activity && current.frequency == frequency {
            return;
        }
        self.settle(now);
        self.current = self.entry(activity, frequency);
        self.meter.set(self.within(self.since), self.entries[self.current].power);
    }

    fn within(&self, at: At) -> At {
        at.clamp(self.window.0, self.window.1)
    }

    fn settle(&mut self, now: At) {
        let now = now.max(self.since);
        let span = self.within(now).since(self.within(self.since)).unwrap_or(Nanos::ZERO);
        self.drawn = self.drawn_until(now);
        self.entries[self.current].time += span;
        self.since = now;
    }

    /// Energy drawn from time 0 to `now`, in femtojoules.
    pub fn drawn_until(&self, now: At) -> Drawn {
        let span = now.since(self.since).unwrap_or(Nanos::ZERO);
        let entry = &self.entries[self.current];
        let energy = u128::from(entry.power.as_microwatts()) * u128::from(span.as_nanos());
        let idle = if matches!(entry.activity, Activity::Idle(_)) { energy } else { 0 };
        Drawn { all: self.drawn.all + energy, idle: self.drawn.idle + idle }
    }

    /// How long a core would have to poll at `frequency` to draw `femtojoules`.
    pub fn awake_for(&self, femtojoules: u128, frequency: Hertz) -> Nanos {
        let power = self.model.active(frequency, 1_000).as_microwatts().max(1);
        Nanos::from_nanos(u64::try_from(femtojoules / u128::from(power)).unwrap_or(u64::MAX))
    }

    fn entry(&mut self, activity: Activity, frequency: Hertz) -> usize {
        let known = self.entries.iter().position(|e| e.activity == activity && e.frequency == frequency);
        known.unwrap_or_else(|| {
            let power = match activity {
                Activity::Idle(index) => self.model.idle(self.idle.states[index].gate, frequency),
                // The clock is stopped until the new frequency is stable.
                Activity::Stalled => self.model.idle(Gate::Clock, frequency),
                // Polling is assumed to draw as much as working; no source distinguishes them.
                _ => self.model.active(frequency, 1_000),
            };
            self.entries.push(Residency { activity, frequency, time: Nanos::ZERO, power });
            self.entries.len() - 1
        })
    }

    /// Ends the record at the end of the window.
    pub fn finish(mut self) -> Book {
        self.settle(self.window.1);
        let metered = self.meter.energy(self.window.1);
        let mut entries = self.entries;
        entries.retain(|entry| entry.time > Nanos::ZERO);
        entries.sort_unstable_by_key(|entry| (entry.activity, entry.frequency));
        Book { entries, metered }
    }
}
