//! The results of a run: counts, the distributions of delays and of their terms, time and energy.

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

/// The results of a run. Only frames that arrived within the window count.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed that was used.
    pub seed: u64,
    /// Length of the window.
    pub duration: Nanos,
    /// The frames of each queue.
    pub queues: Vec<QueueOutcome>,
    /// Number of bytes sent, including check sequences.
    pub octets: u64,
    /// Time from the arrival of a frame's last bit to the departure of its answer's last bit. Without an answer, the
    /// time ends when the frame has been processed.
    pub latency: Distribution,
    /// How long the frames in flight had been in the system at the window's end.
    pub waiting: Distribution,
    /// The terms of the delays, in the order of [`Term::ALL`], to two digits. For each frame they add up to its delay.
    pub terms: Vec<Distribution>,
    /// The evaluation of the goal. `None` if the scenario has no goal.
    pub goal: Option<GoalOutcome>,
    /// The results of each core.
    pub cores: Vec<CoreOutcome>,
    /// The energy of the package in femtojoules, by component.
    pub package: Package,
    /// Number of frames whose terms exceeded their delay. Always 0, unless the simulator has a bug.
    pub unsound: u64,
    /// Amount of simulation work: events, workers' steps between events, and queue checks.
    pub steps: u64,
}

/// The frames and interrupts of one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueOutcome {
    /// Number of frames that came off the wire.
    pub offered: u64,
    /// Number of frames whose answer left within the window.
    pub departed: u64,
    /// Number of lost frames per reason, in the order of [`Drop::ALL`].
    pub dropped: [u64; Drop::COUNT],
    /// Number of frames that were still in the system at the window's end.
    pub in_flight: u64,
    /// Number of interrupts of the queue pair, receive and transmit.
    pub interrupts: u64,
    /// The history of the queue's moderation. `None` unless the kernel controls it.
    pub moderation: Option<Moderated>,
    /// Counts for a queue that several threads share (Metronome). All zero for other queues.
    pub shared: Cycle,
}

/// The history of a queue's moderation within the window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moderated {
    /// The number of the queue, from 0.
    pub queue: usize,
    /// The profiles that were in force, and the total time of each.
    pub profiles: Vec<(Profile, Nanos)>,
    /// Number of times a profile was programmed.
    pub changes: u64,
}

/// The cycles of a queue that several threads share (Metronome). A cycle is a vacation, in which no thread has the
/// queue's lock, and the busy period after it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cycle {
    /// Number of cycles.
    pub count: u64,
    /// Number of times a thread found the lock taken.
    pub refused: u64,
    /// Total time of the vacations, in which no thread held the queue's lock.
    pub vacation: Nanos,
    /// Total time in which a thread held the queue's lock.
    pub busy: Nanos,
}

/// The results of one core within the window.
#[derive(Clone, Debug)]
pub struct CoreOutcome {
    /// Number of polls. A poll covers all queues of the worker; in the kernel, one queue.
    pub polls: u64,
    /// Number of polls that found no frame.
    pub empty_polls: u64,
    /// Number of decisions of the wait policy per reason, in the order of [`Reason::ALL`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Number and total time of waits per kind, in the order of [`WaitKind::ALL`].
    pub waits: [(u64, Nanos); WaitKind::ALL.len()],
    /// Number of decisions of the frequency policy, per reason.
    pub frequency_reasons: [u64; frequency::Reason::ALL.len()],
    /// Number of decisions of the moderation policies, per reason.
    pub moderation_reasons: [u64; moderation::Reason::ALL.len()],
    /// Number of times the core was woken.
    pub wakeups: u64,
    /// Number of frequency changes that were carried out.
    pub frequency_changes: u64,
    /// Number of frequency requests.
    pub frequency_requests: u64,
    /// Number of times that the wait policy changed how deep the core may idle.
    pub idle_limit_changes: u64,
    /// How the core spent its time and energy.
    pub book: Book,
    /// What cpuidle would count for each idle state, from the beginning of the run, including the warm-up.
    pub idle: Vec<(String, Count)>,
}

impl CoreOutcome {
    /// The mean power over the window.
    pub fn power(&self, duration: Nanos) -> Microwatts {
        mean_power(self.book.femtojoules(), duration)
    }

    /// Share of the window that the core spent on the worker, without idle time and other tasks, in ppm.
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

/// The energy in femtojoules of the packages that contain the cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Package {
    /// Energy of the simulated cores.
    pub simulated: u128,
    /// Energy of the cores that are not simulated but behave like the simulated ones.
    pub alike: u128,
    /// Energy of the remaining cores, which are always in the deepest allowed idle state.
    pub others: u128,
    /// Energy of the uncore.
    pub uncore: u128,
}

impl Package {
    /// The sum of all parts.
    pub const fn femtojoules(&self) -> u128 {
        self.simulated + self.alike + self.others + self.uncore
    }

    /// The mean power over `duration`.
    pub fn power(&self, duration: Nanos) -> Microwatts {
        mean_power(self.femtojoules(), duration)
    }
}

/// Whether a goal was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The goal was met.
    Held,
    /// The goal was missed.
    Missed,
    /// There were too few packets for a verdict.
    TooFew,
}

/// The evaluation of a goal. A lost packet counts as late, and so does a packet that was still in the system at the
/// window's end although it should have left within the window. Other packets in flight are not judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoalOutcome {
    /// The goal that was evaluated.
    pub goal: Goal,
    /// The share of packets that may be lost, in ppm. `None` if the scenario does not state it.
    pub loss_ppm: Option<u32>,
    /// Number of packets that were judged: those that departed, were lost, or are late because they did not depart.
    pub packets: u64,
    /// Number of late packets, including lost packets.
    pub late: u64,
    /// Number of lost packets.
    pub lost: u64,
    /// Whether the goal was met.
    pub verdict: Verdict,
}

impl GoalOutcome {
    /// The evaluation of `goal`, with the number of packets that departed and how many of these were late, that were
    /// lost, and that were overdue at the window's end.
    pub(crate) fn new(
        goal: Goal,
        loss_ppm: Option<u32>,
        (departed, late): (u64, u64),
        lost: u64,
        overdue: u64,
    ) -> Self {
        let (packets, late) = (departed + lost + overdue, late + lost + overdue);
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
    /// Number of frames that came off the wire, over all queues.
    pub fn offered(&self) -> u64 {
        self.queues.iter().map(|queue| queue.offered).sum()
    }
    /// Number of frames whose answer left within the window, over all queues.
    pub fn departed(&self) -> u64 {
        self.queues.iter().map(|queue| queue.departed).sum()
    }
    /// Number of frames that were lost for the reason `why`, over all queues.
    pub fn dropped(&self, why: Drop) -> u64 {
        self.queues.iter().map(|queue| queue.dropped[why as usize]).sum()
    }
    /// Number of lost frames, over all queues.
    pub fn lost(&self) -> u64 {
        Drop::ALL.into_iter().map(|why| self.dropped(why)).sum()
    }
    /// Number of frames still in the system at the window's end, over all queues.
    pub fn in_flight(&self) -> u64 {
        self.queues.iter().map(|queue| queue.in_flight).sum()
    }
    /// Number of NIC interrupts, over all queues.
    pub fn interrupts(&self) -> u64 {
        self.queues.iter().map(|queue| queue.interrupts).sum()
    }
    /// The distribution of one term of the delays.
    pub fn term(&self, term: Term) -> &Distribution {
        &self.terms[term as usize]
    }
    /// Number of frames that left, per second.
    pub fn departed_per_second(&self) -> f64 {
        self.departed() as f64 * 1e9 / self.duration.as_nanos() as f64
    }
    /// The mean power of all simulated cores together.
    pub fn core_power(&self) -> Microwatts {
        mean_power(self.package.simulated, self.duration)
    }
}
