//! How a core's time and energy were spent: one entry for each activity at each frequency.

use units::{Hertz, Microwatts, Nanojoules, Nanos};

/// What a core does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Activity {
    /// Works on frames or for them: receives, sends, handles interrupts, switches threads.
    Working,
    /// Polls and finds nothing. Includes a host that polls for its virtual CPU.
    Polling,
    /// Waits with `pause`, its cheapest running state.
    Pausing,
    /// Executes nothing, because its frequency changes.
    Stalled,
    /// Returns from an idle state.
    Waking,
    /// Runs something else: a task that shares the core.
    Other,
    /// Is in the idle state with this index.
    Idle(usize),
}

/// Time and power of one activity at one frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Residency {
    /// What the core did.
    pub activity: Activity,
    /// The core's frequency. For an idle state, the frequency that the core has when it wakes.
    pub frequency: Hertz,
    /// Time spent in this activity within the window.
    pub time: Nanos,
    /// The power during this time.
    pub power: Microwatts,
}

impl Residency {
    /// The exact energy in femtojoules, which are microwatts times nanoseconds.
    pub fn femtojoules(&self) -> u128 {
        u128::from(self.power.as_microwatts()) * u128::from(self.time.as_nanos())
    }
}

/// How a core spent its time and energy within the window, as an [`Outcome`](super::Outcome) reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Book {
    /// Time and power per activity and frequency, without entries of zero time.
    pub entries: Vec<Residency>,
    /// The energy of all entries, computed independently as a check, by integrating the power over time. Rounded down.
    pub metered: Nanojoules,
}

impl Book {
    /// The sum of all times: the length of the window.
    pub fn time(&self) -> Nanos {
        self.time_in(|_| true)
    }

    /// The total time of the activities for which `of` is true.
    pub fn time_in(&self, of: impl Fn(Activity) -> bool) -> Nanos {
        self.entries.iter().filter(|e| of(e.activity)).fold(Nanos::ZERO, |sum, e| sum + e.time)
    }

    /// The energy of all entries, in femtojoules.
    pub fn femtojoules(&self) -> u128 {
        self.entries.iter().map(Residency::femtojoules).sum()
    }
}
