//! The minimum power that a policy needs to meet a goal if it knows the future.
//!
//! This clairvoyant policy knows every arrival of the simulated run in advance, to the nanosecond. Each of its actions
//! has the lowest cost that the machine's model allows. No simulated policy can draw less power and still meet the
//! goal. [`Bound::multiple`] says how far a policy's power lies above the bound.
//!
//! ```text
//!   energy ≥ base · T                     every core, all the time, in the allowed idle state with the lowest power
//!          + work · (packets − allowed)   each packet's cycles, at the frequency at which a cycle is cheapest
//!          + schedule                     wake-ups and time awake: [`schedule`]
//!          − stalls                       what standing still during a change of frequency saves a core that polls
//!   energy ≥ Σ a · w + s · cycles         over parts w of the window, with the cycles that have to be done within one, for
//!                                         any line a + s f below the power of all states: how fast the core has to be
//! ```
//! The larger of the two values is the bound. The following is **relaxed**, which always makes the bound lower:
//! - A wake-up takes the minimum of its [spread](crate::hw::spread::Spread), by timer or by interrupt, whichever costs
//!   less. The core is awake exactly when it must be: a clairvoyant policy sets its timer early enough.
//! - Each idle period is spent in the best allowed state, at that state's power for the lowest frequency.
//! - A change of frequency takes no time and costs nothing. Each cycle runs at the frequency where it is cheapest, but
//!   deadlines are computed for the highest frequency, turbo included.
//! - A packet waits only for its fetch, its own service and its own transmission. It never waits for a batch, for
//!   earlier packets, for the write-back of a descriptor, or for the wire. A poll takes all waiting packets for the
//!   work of one burst.
//! - Rings do not overflow, no other task takes the core, and polls that find nothing are free.
//! - The wake-up from the first rest is free, and a packet whose deadline lies after the window need not be served.
//! - The simulation rounds the time of each piece of work down to nanoseconds. The cycles that this may skip are free.
//!
//! The arrival and the fetch of a packet are not relaxed, because they do not depend on the worker.
//!
//! **Premise.** A goal is met if late and lost packets are at most the allowed share of all packets that arrived.
//! Packets that are still waiting at the end of the window count as late if their deadline has passed.

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

/// The minimum mean power that any policy needs to meet the goal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The latency goal that a run must meet at this [`power`](Self::power) or above.
    pub goal: Goal,
    /// The bound, summed over the simulated cores. No run that meets the goal draws less on average over the window.
    /// For several seeds, no runs that meet the goal together draw less on average over all runs.
    pub power: Microwatts,
    /// Number of packets that arrived within the window, over all seeds.
    pub packets: u64,
    /// Number of packets that the goal allows to be late.
    pub may_be_late: u64,
    /// Which of the two inequalities gave the bound.
    pub by: By,
}

units::named! {
    /// The inequality that gave the bound.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum By {
        /// The first inequality: wake-ups and deadlines.
        Schedule = "schedule",
        /// The second inequality: the cycles of the packets.
        Work = "work",
    }
}

impl Bound {
    /// `power` as a multiple of the bound.
    pub fn multiple(&self, power: Microwatts) -> f64 {
        power.as_microwatts() as f64 / self.power.as_microwatts().max(1) as f64
    }
}

/// Why there is no bound.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Why {
    /// The scenario has no goal. Without a goal, forwarding nothing would draw the lowest power.
    #[error("the scenario has no goal")]
    NoGoal,
    /// The traffic waits for answers, so the arrivals depend on the wait mode.
    #[error("the traffic waits for answers, so arrivals depend on the mode")]
    Closed,
    /// Several threads share a queue (Metronome).
    #[error("threads share a queue (metronome), so it is unknown which of them serves a packet")]
    Shared,
    /// The worker runs in a guest.
    #[error("the worker runs in a virtual machine, whose exits the bound does not count")]
    Guest,
    /// Another task uses the core while the worker rests.
    #[error("a background task keeps the core awake")]
    Background,
    /// More packets are late than the goal allows, whatever the worker does.
    #[error("no mode can meet the goal: {late} packets are late even if served at once, but only {allowed} may be")]
    Impossible {
        /// Number of packets that cannot be served in time.
        late: u64,
        /// Number of packets that may be late.
        allowed: u64,
    },
    /// The scenario describes an impossible world.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Computes the minimum power that meets the scenario's goal, for the arrivals of its run with `seed`. `None` uses the
/// scenario's own seed. The scenario's wait and frequency policies have no influence.
pub fn least_power(scenario: &Scenario, seed: Option<u64>) -> Result<Bound, Why> {
    least_power_over(scenario, &[seed.unwrap_or(scenario.seed)])
}

/// Computes the minimum mean power of runs with all these `seeds` that meet the scenario's goal together: the late
/// packets of all runs are at most the allowed share of the packets of all runs. How the late packets are distributed
/// over the runs is free, as it is in [`Tried::held`](crate::goals::Tried::held). So the result can be lower than the
/// mean of the bounds of the single seeds.
pub fn least_power_over(scenario: &Scenario, seeds: &[u64]) -> Result<Bound, Why> {
    let goal = scenario.goal.ok_or(Why::NoGoal)?.latency;
    match &scenario.worker {
        Worker::User { wait: Wait::Metronome(_), .. } => return Err(Why::Shared),
        _ if scenario.host.vcpu.is_some() => return Err(Why::Guest),
        _ if scenario.host.scheduler.background.is_some() => return Err(Why::Background),
        _ => {}
    }
    let machine = Machine::new(scenario);
    let mut arrivals = Arrivals::NONE;
    for seed in seeds {
        arrivals.add(scenario, *seed, goal, &machine)?;
    }
    let may_be_late = share(arrivals.packets, goal.quantile.above_ppm());
    let allowed =
        may_be_late.checked_sub(arrivals.late).ok_or(Why::Impossible { late: arrivals.late, allowed: may_be_late })?;
    let window = scenario.duration.as_nanos() as f64;
    // The runs do not influence each other, so their cores are like the cores of one run.
    let cores = arrivals.lines.len() as f64;
    let work = machine.work(&arrivals.lines, allowed as f64);
    let base = cores * window * machine.base;
    let waits = machine
        .stalls(cores, window)
        .into_iter()
        .map(|(prices, saved)| base + schedule::least(&arrivals.lines, &prices, allowed as f64, base).cost - saved);
    let waits = waits.fold(machine.floor(cores, window), f64::max);
    let (energy, by) = if work > waits { (work, By::Work) } else { (waits, By::Schedule) };
    let power = Microwatts::new((energy / (window * seeds.len() as f64).max(1.0)) as u64);
    Ok(Bound { goal, power, packets: arrivals.packets, may_be_late, by })
}

/// The share `ppm` (parts per million) of `packets`, rounded down.
fn share(packets: u64, ppm: u32) -> u64 {
    (u128::from(packets) * u128::from(ppm) / 1_000_000) as u64
}

#[cfg(test)]
mod tests;
