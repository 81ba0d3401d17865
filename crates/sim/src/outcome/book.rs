//! Where a core's time and energy went: one entry for each thing done at each frequency.

use units::{Hertz, Microwatts, Nanojoules, Nanos};

/// What a core does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Activity {
    /// Works on frames, or for the sake of them: receives, sends, handles interrupts, switches threads.
    Working,
    /// Polls, and finds nothing; a host that polls for its virtual CPU, too.
    Polling,
    /// Waits in its cheapest running state (`pause`).
    Pausing,
    /// Executes nothing, because its frequency changes.
    Stalled,
    /// Comes back from an idle state.
    Waking,
    /// Runs something else: a task that shares the core.
    Other,
    /// Is in the idle state of this number.
    Idle(usize),
}

/// Time and power of one activity at one frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Residency {
    /// What was done.
    pub activity: Activity,
    /// The core's frequency; in an idle state, that which it has when it wakes.
    pub frequency: Hertz,
    /// For how long, within the window.
    pub time: Nanos,
    /// The power meanwhile.
    pub power: Microwatts,
}

impl Residency {
    /// The energy in femtojoules, which are microwatts times nanoseconds: exact.
    pub fn femtojoules(&self) -> u128 {
        u128::from(self.power.as_microwatts()) * u128::from(self.time.as_nanos())
    }
}

/// A closed book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Book {
    /// What was done, for how long, at which power; by activity and frequency, without what took no time.
    pub entries: Vec<Residency>,
    /// The energy as it was integrated on the way, rounded down.
    pub metered: Nanojoules,
}

impl Book {
    /// The sum of all times: the window's length.
    pub fn time(&self) -> Nanos {
        self.time_in(|_| true)
    }

    /// The time spent in some activities.
    pub fn time_in(&self, of: impl Fn(Activity) -> bool) -> Nanos {
        self.entries.iter().filter(|e| of(e.activity)).fold(Nanos::ZERO, |sum, e| sum + e.time)
    }

    /// The sum of all powers times their times, in femtojoules.
    pub fn femtojoules(&self) -> u128 {
        self.entries.iter().map(Residency::femtojoules).sum()
    }
}
