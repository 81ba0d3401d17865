//! The least power that could have held a goal: what a clairvoyant would need.
//!
//! It knows every arrival of the world's run with this seed, to the nanosecond, and pays the least that the machine's
//! model asks for each thing. Nothing that runs in the world draws less and holds the goal; how far it lies above is
//! what [`Bound::multiple`] says.
//!
//! ```text
//!   energy ≥ base · T                     every core, all the time, in the allowed idle state that draws the least
//!          + work · (packets − allowed)   each packet's cycles, at the frequency at which a cycle is cheapest
//!          + schedule                     wake-ups and time awake: [`schedule`]
//!          − stalls                       what standing still during a change of frequency saves a core that polls
//!   energy ≥ Σ a · w + s · cycles         over parts w of the window, with the cycles that have to be done within one, for
//!                                         any line a + s f below the power of all states: how fast the core has to be
//! ```
//! The larger of the two counts. **Relaxed**, each in the bound's disfavour:
//! - A wake-up takes the least of its [spreads](crate::hw::spread::Spread), by timer or by interrupt, whichever costs less,
//!   and comes exactly when it is wanted: a clairvoyant sets a timer ahead of the way back from rest.
//! - Each idle period is spent in the best allowed state, which draws what it draws at the lowest frequency.
//! - The frequency changes at once and for nothing: each cycle runs where it is cheapest, and deadlines are reckoned at
//!   the highest frequency, turbo included.
//! - A packet waits for nothing but its fetch, its own service and its own way out: not for a batch, for the packets before
//!   it, for a written-back descriptor, or for the wire. A poll takes all that is there, for the work of one burst.
//! - Rings do not overflow, nobody else takes the core, and polls that find nothing are free.
//! - The first rest's wake-up is free, and a packet whose deadline lies after the window need not be served.
//!
//! Arrival and fetch are not relaxed: they do not depend on what the worker does.
//!
//! **Premise.** A goal is held if late and lost packets, those that still wait at the window's end after their deadline
//! included, are at most the allowed share of all that came.

mod arrivals;
mod cpu;
mod prices;
pub mod schedule;

pub use cpu::{Costs, least_cpu_time};

use policy::Goal;
use units::Microwatts;

use crate::hw::ModelError;
use crate::scenario::{Scenario, Wait, Worker};
use arrivals::Arrivals;
use prices::Machine;

/// The least mean power of the simulated cores together with which the goal can be held.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The latency goal that the power is enough for.
    pub goal: Goal,
    /// No run with this goal held draws less on average over the window.
    pub power: Microwatts,
    /// Packets that arrived within the window.
    pub packets: u64,
    /// Those of them that could be late.
    pub may_be_late: u64,
    /// Which of the two inequalities gave it.
    pub by: By,
}

/// What the bound is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Wake-ups and deadlines.
    Schedule,
    /// The cycles that the packets take.
    Work,
}

impl By {
    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Work => "work",
        }
    }
}

impl Bound {
    /// `power` as a multiple of the least.
    pub fn multiple(&self, power: Microwatts) -> f64 {
        power.as_microwatts() as f64 / self.power.as_microwatts().max(1) as f64
    }
}

/// Why there is no bound.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Why {
    /// Without a goal the least is to forward nothing.
    #[error("the scenario has no goal")]
    NoGoal,
    /// Arrivals follow answers.
    #[error("the traffic waits for answers, so arrivals depend on the mode")]
    Closed,
    /// Threads share queues.
    #[error("threads share a queue (metronome), so it is unknown which of them serves a packet")]
    Shared,
    /// The worker is a guest.
    #[error("the worker runs in a virtual machine, whose exits the bound does not count")]
    Guest,
    /// Another task has the core when the worker rests.
    #[error("a background task keeps the core awake")]
    Background,
    /// More packets are late than may be, whatever is done.
    #[error("no mode can meet the goal: {late} packets are late even if served at once, but only {allowed} may be")]
    Impossible {
        /// Those that nobody can serve in time.
        late: u64,
        /// Those that may be late.
        allowed: u64,
    },
    /// No world could be so.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// The least power with which the scenario's goal can be held, on the arrivals of its run with this seed; the
/// scenario's own, if none is given. How the scenario waits and which frequency it asks for changes nothing.
pub fn least_power(scenario: &Scenario, seed: Option<u64>) -> Result<Bound, Why> {
    let goal = scenario.goal.ok_or(Why::NoGoal)?.latency;
    match &scenario.worker {
        Worker::User { wait: Wait::Metronome(_), .. } => return Err(Why::Shared),
        _ if scenario.host.vcpu.is_some() => return Err(Why::Guest),
        _ if scenario.host.scheduler.background.is_some() => return Err(Why::Background),
        _ => {}
    }
    let machine = Machine::new(scenario);
    let arrivals = Arrivals::new(scenario, seed.unwrap_or(scenario.seed), goal, &machine)?;
    let may_be_late = share(arrivals.packets, goal.quantile.above_ppm());
    let allowed =
        may_be_late.checked_sub(arrivals.late).ok_or(Why::Impossible { late: arrivals.late, allowed: may_be_late })?;
    let window = scenario.duration.as_nanos() as f64;
    let cores = arrivals.lines.len() as f64;
    let work = machine.work(&arrivals.lines, allowed as f64);
    let base = cores * window * machine.base;
    let waits = machine
        .stalls(cores, window)
        .into_iter()
        .map(|(prices, saved)| base + schedule::least(&arrivals.lines, &prices, allowed as f64, base).cost - saved);
    let waits = waits.fold(base, f64::max);
    let (energy, by) = if work > waits { (work, By::Work) } else { (waits, By::Schedule) };
    let power = Microwatts::new((energy / window.max(1.0)) as u64);
    Ok(Bound { goal, power, packets: arrivals.packets, may_be_late, by })
}

/// So many parts per million of `packets`, rounded down.
fn share(packets: u64, ppm: u32) -> u64 {
    (u128::from(packets) * u128::from(ppm) / 1_000_000) as u64
}

#[cfg(test)]
mod tests;
