//! What a run of a world gave: counts, the distribution of delays and of their terms, time and energy.

mod book;
mod budget;
mod distribution;

pub use book::{Activity, Book, Residency};
pub use budget::{Drop, Term};
pub use distribution::{Distribution, HIGHEST_NS, LOWEST_NS, Recorder, SIGNIFICANT_DIGITS, minimum_samples};

use policy::moderation::{self, Profile};
use policy::wait::{Reason, WaitKind};
use policy::{Goal, frequency};
use units::{Microwatts, Nanos};

use crate::hw::cstate::Count;

/// What a run gave. Of the frames, those that arrived within the window count.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed that was used.
    pub seed: u64,
    /// The window's length.
    pub duration: Nanos,
    /// Each queue's frames.
    pub queues: Vec<QueueOutcome>,
    /// Octets that were sent, check sequences included.
    pub octets: u64,
    /// From a frame's last bit in to its answer's last bit out; without an answer, to the end of the work
    /// on it.
    pub latency: Distribution,
    /// The terms of the delays, in [`Term::ALL`]'s order: they add up to the delay, frame by frame.
    /// To two digits.
    pub terms: Vec<Distribution>,
    /// What the goal came to, if there was one.
    pub goal: Option<GoalOutcome>,
    /// Each core.
    pub cores: Vec<CoreOutcome>,
    /// The package's energy in femtojoules, in its parts.
    pub package: Package,
    /// Frames whose terms would have been more than their delay. Always 0, or the world is wrong.
    pub unsound: u64,
    /// What simulating took: events, steps of workers between them, and looks at queues.
    pub steps: u64,
}

/// The frames and interrupts of one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueOutcome {
    /// Frames that came off the wire.
    pub offered: u64,
    /// Frames whose answer left within the window.
    pub departed: u64,
    /// Frames that were lost, in [`Drop::ALL`]'s order.
    pub dropped: [u64; Drop::COUNT],
    /// Frames that were still under way at the window's end.
    pub in_flight: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// What became of its moderation, if the kernel drives it.
    pub moderation: Option<Moderated>,
    /// Vacations and busy periods, if threads share it.
    pub shared: Cycle,
}

/// What became of a queue's moderation within the window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moderated {
    /// The queue.
    pub queue: usize,
    /// The profiles that were in force, and for how long each.
    pub profiles: Vec<(Profile, Nanos)>,
    /// How often it was programmed.
    pub changes: u64,
}

/// Cycles of a queue: each is a vacation and the busy period after it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cycle {
    /// How many.
    pub count: u64,
    /// How often a thread found the lock taken.
    pub refused: u64,
    /// The vacations together.
    pub vacation: Nanos,
    /// The busy periods together.
    pub busy: Nanos,
}

/// What one core did within the window.
#[derive(Clone, Debug)]
pub struct CoreOutcome {
    /// Polls of all queues (in the kernel: of one queue).
    pub polls: u64,
    /// Those that found nothing.
    pub empty_polls: u64,
    /// Decisions of the wait policy by reason, in [`Reason::ALL`]'s order.
    pub reasons: [u64; Reason::ALL.len()],
    /// Waits by kind, in [`WaitKind::ALL`]'s order, and the time that they took.
    pub waits: [(u64, Nanos); WaitKind::ALL.len()],
    /// Decisions of the frequency policy by reason.
    pub frequency_reasons: [u64; frequency::Reason::ALL.len()],
    /// Decisions of the moderation policies by reason.
    pub moderation_reasons: [u64; moderation::Reason::ALL.len()],
    /// Times that the core was woken.
    pub wakeups: u64,
    /// Changes of frequency that were carried out, and requests for one.
    pub frequency_changes: u64,
    /// Requests for a frequency.
    pub frequency_requests: u64,
    /// Where time and energy went.
    pub book: Book,
    /// What cpuidle would count of each idle state, from the world's beginning.
    pub idle: Vec<(String, Count)>,
}

impl CoreOutcome {
    /// The mean power over the window.
    pub fn power(&self, duration: Nanos) -> Microwatts {
        mean_power(self.book.femtojoules(), duration)
    }

    /// The share of the window in which the core worked for the worker, idle and other tasks left out, in
    /// parts per million.
    pub fn busy_ppm(&self, duration: Nanos) -> u64 {
        let idle = |activity| matches!(activity, Activity::Idle(_) | Activity::Other);
        let busy = self.book.time_in(|activity| !idle(activity));
        busy.scale(1_000_000, duration.as_nanos()).as_nanos()
    }
}

fn mean_power(femtojoules: u128, duration: Nanos) -> Microwatts {
    let mean = femtojoules.checked_div(u128::from(duration.as_nanos())).unwrap_or(0);
    Microwatts::new(u64::try_from(mean).unwrap_or(u64::MAX))
}

/// The energy in femtojoules of the packages that the cores are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Package {
    /// The simulated cores.
    pub simulated: u128,
    /// The cores that do the same.
    pub alike: u128,
    /// The other cores: in the deepest idle state allowed, all the time.
    pub others: u128,
    /// The uncore.
    pub uncore: u128,
}

impl Package {
    /// All of it.
    pub const fn femtojoules(&self) -> u128 {
        self.simulated + self.alike + self.others + self.uncore
    }

    /// The mean power over `duration`.
    pub fn power(&self, duration: Nanos) -> Microwatts {
        mean_power(self.femtojoules(), duration)
    }
}

/// Whether a goal was held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It was.
    Held,
    /// It was not.
    Missed,
    /// Too few packets came to tell.
    TooFew,
}

/// What a goal came to. A lost packet is later than any bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoalOutcome {
    /// The goal.
    pub goal: Goal,
    /// The share of packets that could be lost, if that was said.
    pub loss_ppm: Option<u32>,
    /// Packets that departed or were lost.
    pub packets: u64,
    /// Those of them that were later than the bound, the lost ones included.
    pub late: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Whether it was held.
    pub verdict: Verdict,
}

impl GoalOutcome {
    pub(crate) fn new(goal: Goal, loss_ppm: Option<u32>, departed: u64, late: u64, lost: u64) -> Self {
        let (packets, late) = (departed + lost, late + lost);
        let more_than = |part: u64, ppm: u32| u128::from(part) * 1_000_000 > u128::from(packets) * u128::from(ppm);
        let missed = more_than(late, goal.quantile.above_ppm()) || loss_ppm.is_some_and(|ppm| more_than(lost, ppm));
        let verdict = if packets < minimum_samples(goal.quantile) {
            Verdict::TooFew
        } else if missed {
            Verdict::Missed
        } else {
            Verdict::Held
        };
        Self { goal, loss_ppm, packets, late, lost, verdict }
    }
}

impl Outcome {
    /// Frames that came off the wire.
    pub fn offered(&self) -> u64 {
        self.queues.iter().map(|queue| queue.offered).sum()
    }
    /// Frames whose answer left within the window.
    pub fn departed(&self) -> u64 {
        self.queues.iter().map(|queue| queue.departed).sum()
    }
    /// Frames that were lost for `why`.
    pub fn dropped(&self, why: Drop) -> u64 {
        self.queues.iter().map(|queue| queue.dropped[why as usize]).sum()
    }
    /// Frames that were lost.
    pub fn lost(&self) -> u64 {
        Drop::ALL.into_iter().map(|why| self.dropped(why)).sum()
    }
    /// Frames that were still under way at the window's end.
    pub fn in_flight(&self) -> u64 {
        self.queues.iter().map(|queue| queue.in_flight).sum()
    }
    /// Interrupts of the NIC.
    pub fn interrupts(&self) -> u64 {
        self.queues.iter().map(|queue| queue.interrupts).sum()
    }
    /// The distribution of one term of the delays.
    pub fn term(&self, term: Term) -> &Distribution {
        &self.terms[term as usize]
    }
    /// Frames that left, a second.
    pub fn departed_per_second(&self) -> f64 {
        self.departed() as f64 * 1e9 / self.duration.as_nanos() as f64
    }
    /// The mean power of the simulated cores together.
    pub fn core_power(&self) -> Microwatts {
        mean_power(self.package.simulated, self.duration)
    }
}
