//! The plan of the demo: what it runs, and how it divides its time budget among the runs and searches.

use std::fmt;

use live::mode::Mode;
use units::{Nanos, PacketRate};

use crate::Error;
use crate::schedule::Schedule;
use crate::search::SearchConfig;

/// Time allowed for creating and removing the lab, and for the report.
const FIXED: Nanos = Nanos::from_secs(1);
/// Time allowed for starting and stopping an instance and the tester's device.
const SESSION: Nanos = Nanos::from_millis(200);
/// Time of a trial in addition to its duration: settling, draining, sorting.
const TRIAL: Nanos = Nanos::from_millis(30);
/// Percentage of the remaining time for the paced loads; the searches get the rest.
const PACED_PERCENT: u64 = 70;
/// Longest time for a mode to learn the traffic.
const LEARN: Nanos = Nanos::from_millis(500);
/// Run time that gives enough samples for p99.9: at one packet every 350 us, 3,714 samples, of which p99.9 needs 3,688.
const LONG_ENOUGH: Nanos = Nanos::from_millis(1300);
/// Shortest useful run.
const SHORTEST_RUN: Nanos = Nanos::from_millis(20);
/// Minimum number of rounds: fewer do not give a useful median.
const ROUNDS: u32 = 3;
/// Maximum number of rounds; more would hardly improve the result.
const MOST_ROUNDS: u32 = 15;

/// Range of the searches: the lower rate is one that every mode can forward, the upper one is too high for any veth.
const SEARCH_PPS: (u64, u64) = (20_000, 1_200_000);
/// Resolution of a search, in ppm of the rate.
const SEARCH_WIDTH_PPM: u32 = 60_000;
/// Length of a search in trials of normal length: about 10 trials to narrow the range, and 2 confirming trials, each
/// twice as long.
const SEARCH_TRIALS: u64 = 14;
/// Number of trials after which a search gives up. Without this limit, it would never end on a machine with constant
/// disturbance.
const SEARCH_MOST_TRIALS: u32 = 20;
/// Percentage of a mode's highest loss-free rate at which latency is measured. At the highest rate itself, any
/// disturbance fills a queue, and the measured latency would be mostly queueing time.
pub const NEAR_PERCENT: u64 = 90;

/// What a demo runs, and for how long.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Time for the whole demo.
    pub budget: Nanos,
    /// The waiting modes to compare.
    pub modes: Vec<Mode>,
    /// The paced loads, whose rate is set in advance. All modes are compared at each of them.
    pub loads: Vec<Schedule>,
    /// Number of runs of each mode at each paced load.
    pub rounds: u32,
    /// Time to send traffic before each run, so that the mode learns the traffic.
    pub learn: Nanos,
    /// Duration of a run at a paced load.
    pub run: Nanos,
    /// Duration of the search for a mode's highest loss-free rate.
    pub search: Nanos,
    /// Duration of the run near a mode's highest loss-free rate.
    pub near: Nanos,
}

impl Plan {
    /// Plans all modes at all loads within the budget.
    pub fn for_budget(budget: Nanos) -> Result<Self, Error> {
        let (modes, loads) = (modes(), loads());
        let (m, l) = (modes.len() as u64, loads.len() as u64);
        let cut = |rounds: u32| {
            let runs = u64::from(rounds) * m * l;
            let overhead = FIXED + SESSION * (u64::from(rounds) + 1) * m + TRIAL * 2 * (runs + m);
            let left = budget.saturating_sub(overhead);
            let slot = left.scale(PACED_PERCENT, 100) / runs;
            let learn = LEARN.min(slot / 4);
            let own = left.scale(100 - PACED_PERCENT, 100) / m;
            let near = own / 5;
            let (learn, run, near) = (learn, slot.saturating_sub(learn), near.saturating_sub(learn.min(near / 2)));
            let search = own.scale(4, 5);
            Self { budget, modes: modes.clone(), loads: loads.clone(), rounds, learn, run, search, near }
        };
        // The largest odd number of rounds that leaves each run long enough, otherwise 3 if each run still has a
        // quarter of that time, otherwise 1.
        let rounds = (ROUNDS..=MOST_ROUNDS).rev().step_by(2).find(|rounds| cut(*rounds).run >= LONG_ENOUGH);
        let plan = cut(rounds.unwrap_or(if cut(ROUNDS).run >= LONG_ENOUGH / 4 { ROUNDS } else { 1 }));
        if plan.run < SHORTEST_RUN {
            return Err(Error::invalid(
                format!("cannot run a demo of {budget}"),
                format!("{} modes need a longer budget; the default is 150s", plan.modes.len()),
            ));
        }
        Ok(plan)
    }

    /// The order of the modes in round `round`. Every other round runs in reverse order (A B B A), so that a drift of
    /// the machine affects all modes alike. Each round starts with a different mode.
    pub fn order(&self, round: u32) -> Vec<usize> {
        let n = self.modes.len();
        let mut order: Vec<usize> = (0..n).map(|i| (i + round as usize / 2 * 2) % n).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        order
    }

    /// A search that takes about `time`.
    pub fn search_in(time: Nanos) -> SearchConfig {
        let trial = (time / SEARCH_TRIALS).saturating_sub(TRIAL).max(Nanos::from_millis(10));
        SearchConfig {
            width_ppm: SEARCH_WIDTH_PPM,
            trial,
            confirm_trial: trial * 2,
            max_trials: SEARCH_MOST_TRIALS,
            ..SearchConfig::short(SEARCH_PPS.0, SEARCH_PPS.1)
        }
    }

    /// Time that each mode takes in addition to the rounds: to search for its highest loss-free rate, and to run near
    /// that rate. Includes the time to start the session and the trials.
    pub fn own_part(&self) -> Nanos {
        SESSION + TRIAL * 2 + self.search + self.learn.min(self.near) + self.near
    }

    /// Time that each mode takes in one round: it learns and runs at all paced loads.
    pub fn round_part(&self) -> Nanos {
        SESSION + (TRIAL * 2 + self.learn + self.run) * self.loads.len() as u64
    }

    /// Expected time of the whole demo.
    pub fn expected(&self) -> Nanos {
        let m = self.modes.len() as u64;
        FIXED + self.round_part() * m * u64::from(self.rounds) + self.own_part() * m
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |span: Nanos| format!("{:.1} s", span.as_nanos() as f64 / 1e9);
        let loads: Vec<String> = self.loads.iter().map(title).collect();
        let rounds = if self.rounds == 1 { "1 round".into() } else { format!("{} rounds", self.rounds) };
        writeln!(
            f,
            "{} modes: {}",
            self.modes.len(),
            self.modes.iter().map(Mode::to_string).collect::<Vec<_>>().join(", ")
        )?;
        writeln!(
            f,
            "latency at {}: {rounds}, {} per run after {} of learning",
            loads.join(" and at "),
            s(self.run),
            s(self.learn)
        )?;
        write!(
            f,
            "highest loss-free rate: {} per mode, then latency at {NEAR_PERCENT} % of it; about {} in total",
            s(self.search),
            s(self.expected())
        )
    }
}

/// The modes to compare: busy polling and interrupts as the two extremes, two schemes from other projects, and adaptive
/// waiting with three goals.
fn modes() -> Vec<Mode> {
    let adaptive = |us| format!("adaptive p99={us}us").parse().expect("a mode's text");
    let backoff = Mode::Backoff { max: Nanos::from_micros(100) };
    vec![Mode::Poll, Mode::Interrupt, backoff, Mode::Hybrid300, adaptive(30), adaptive(60), adaptive(250)]
}

/// The paced loads: few packets, evenly spaced, and many packets at random times.
fn loads() -> Vec<Schedule> {
    vec![Schedule::ConstantGap(Nanos::from_micros(350)), Schedule::Poisson(PacketRate::new(20_000))]
}

/// Describes a load in words.
pub fn title(load: &Schedule) -> String {
    match load {
        Schedule::ConstantGap(gap) => format!("one packet every {}", spaced(&gap.to_string())),
        Schedule::Poisson(rate) if rate.as_pps() % 1000 == 0 => format!("Poisson, {} kpps", rate.as_pps() / 1000),
        Schedule::Poisson(rate) => format!("Poisson, {rate}"),
        other => other.to_string(),
    }
}

/// Writes `350us` as `350 us`.
pub fn spaced(quantity: &str) -> String {
    match quantity.rfind(|c: char| c.is_ascii_digit()) {
        Some(last) => format!("{} {}", &quantity[..=last], &quantity[last + 1..]),
        None => quantity.into(),
    }
}
