//! Finds out which settings of a machine help: repeats the same measurement with different combinations of settings.
//!
//! [`Experiment`] says which factors (settings) must be on for the next run, and the caller tells it the result of the
//! run. It measures nothing and reads no clock. Runs are interleaved: a replicate runs every combination once, in
//! random order, and then again in the reverse order (A B B A), so that a drift of the machine affects all combinations
//! alike. Each replicate contains two combinations with all factors off (the baseline). The difference between these
//! two combinations is the noise floor. It is measured before the first replicate, and again in every replicate.
//!
//! ```text
//!   floor: A A' A' A ×3 ─► replicates ─► look: decided? ──yes──► end
//!                              ▲           │ no, and time is left
//!                              └───────────┘
//! ```
//!
//! A sample is one replicate, made of several runs; frames are not samples. Values are compared as logarithms, so that
//! an effect is a ratio. The data are tested only after fixed numbers of replicates (looks). Each look gets an equal
//! share of the allowed probability of error (Bonferroni); within a look, Holm's procedure is used. An effect counts
//! only if it is also larger than the noise floor. If no effect is found, the result says how large an undetected
//! effect could be.

pub mod result;

mod design;
mod outcome;
mod student;

use units::Nanos;

use crate::{Error, Random};
use design::Layout;
pub use design::{Design, MOST_FACTORS};
pub use outcome::{Entry, Found, Outcome, Verdict};

/// What an experiment tests, and with which probability of error.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Names of the factors.
    pub factors: Vec<String>,
    /// How the factors are combined.
    pub design: Design,
    /// Whether lower values are better, as for latency and CPU time, rather than higher ones, as for a rate.
    pub less_is_better: bool,
    /// Smallest effect of interest, as a share: 0.02 for 2 %.
    pub smallest: f64,
    /// Allowed probability of reporting any effect that does not exist, such as 0.05.
    pub alpha: f64,
    /// Time budget of the whole experiment. It ends when no time is left for another replicate.
    pub budget: Nanos,
    /// Random seed for the order of the runs.
    pub seed: u64,
}

/// The next run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The factors to turn on: bit i stands for factor i of [`Settings::factors`].
    pub on: u32,
    /// Number of the replicate; `None` while the noise floor is measured.
    pub replicate: Option<usize>,
}

/// Number of replicates of the baseline alone, before the factors are compared. Their differences show the noise floor.
const FLOOR: usize = 3;
/// Numbers of replicates after which the results are tested. Each is about a third larger than the previous one.
const LOOKS: [usize; 10] = [4, 6, 8, 11, 15, 20, 27, 36, 48, 64];
/// Number of consecutive failed runs after which the experiment ends, because the failures are not occasional.
const MOST_FAILURES: usize = 10;

/// A running experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    settings: Settings,
    layout: Layout,
    random: Random,
    /// The combinations of the current replicate, in the order in which they are run.
    order: Vec<usize>,
    /// Logarithms of the values measured so far in this replicate.
    given: Vec<f64>,
    /// Differences between the two baselines, one per replicate of the noise floor.
    floor: Vec<f64>,
    /// For each complete replicate, the mean logarithm of the values of each combination.
    replicates: Vec<Vec<f64>>,
    runs: Vec<RunRecord>,
    failures: Vec<String>,
    failed_in_a_row: usize,
    started: Nanos,
    /// Longest mean time per run of a complete replicate.
    longest_run: Nanos,
    now: Nanos,
    ended: Option<Ended>,
}

/// A run and its result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunRecord {
    /// The factors that were on: bit i stands for factor i of [`Settings::factors`].
    pub on: u32,
    /// When the run started, from the start of the experiment.
    pub at: Nanos,
    /// The measured value; `None` if the run failed.
    pub value: Option<f64>,
}

/// Why an experiment ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The verdict on every effect is final.
    Decided,
    /// No time was left for another replicate.
    Budget,
    /// The maximum number of replicates is done.
    Replicates,
    /// Too many runs in a row failed.
    Failed,
    /// A run measured 0 or less. Effects are ratios, and repeating this run would leave out the best or worst values.
    Zero,
}

impl Experiment {
    /// Starts an experiment; returns an error for invalid settings.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let within = |share: f64| share > 0.0 && share < 1.0;
        if !within(settings.smallest) || !within(settings.alpha) {
            return Err(Error::invalid(
                "the smallest effect of interest, or alpha",
                "expected shares between 0 and 1, such as 2% and 5%",
            ));
        }
        let layout = Layout::new(settings.design, settings.factors.len())?;
        let mut experiment = Self {
            random: Random::new(settings.seed),
            settings,
            layout,
            order: Vec::new(),
            given: Vec::new(),
            floor: Vec::new(),
            replicates: Vec::new(),
            runs: Vec::new(),
            failures: Vec::new(),
            failed_in_a_row: 0,
            started: Nanos::ZERO,
            longest_run: Nanos::ZERO,
            now: Nanos::ZERO,
            ended: None,
        };
        experiment.order = experiment.ordered(true);
        Ok(experiment)
    }

    /// The settings of the experiment.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The next run; `None` when the experiment is over. `now` is the time since the start of the experiment. The caller
    /// must end a run that still runs when the budget is used up.
    pub fn next(&mut self, now: Nanos) -> Option<Step> {
        self.now = now;
        if self.ended.is_none() {
            let begins = self.given.is_empty();
            // Start no replicate that cannot be finished in time, because an incomplete one is useless.
            let needed = if begins { self.longest_run * self.order.len() as u64 } else { Nanos::ZERO };
            if !self.runs.is_empty() && now.saturating_add(needed) >= self.settings.budget {
                self.ended = Some(Ended::Budget);
            }
            if begins {
                self.started = now;
            }
        }
        if self.ended.is_some() {
            return None;
        }
        let combination = self.order[self.given.len()];
        let replicate = (!self.in_floor()).then_some(self.replicates.len());
        Some(Step { on: self.layout.combinations[combination], replicate })
    }

    /// Records the result of the run that [`Experiment::next`] returned: a value, or why the run failed. A failed run is
    /// repeated; a value that is not above 0 ends the experiment. `now` is the time since the start of the experiment.
    pub fn record(&mut self, value: Result<f64, String>, now: Nanos) {
        let on = self.order.get(self.given.len()).map_or(0, |place| self.layout.combinations[*place]);
        let value = value.and_then(|value| match value {
            _ if !value.is_finite() => Err(format!("{value} is not a finite number")),
            _ if value <= 0.0 => {
                self.ended = Some(Ended::Zero);
                Err(format!("it measured {value}, but effects are ratios of values above 0: choose another metric"))
            }
            _ => Ok(value),
        });
        self.runs.push(RunRecord { on, at: self.now, value: value.as_ref().ok().copied() });
        match value {
            Ok(value) => {
                self.failed_in_a_row = 0;
                self.given.push(value.ln());
                if self.given.len() == self.order.len() {
                    self.finish_replicate(now);
                }
            }
            Err(why) => {
                self.failures.push(why);
                self.failed_in_a_row += 1;
                if self.failed_in_a_row >= MOST_FAILURES {
                    self.ended = Some(Ended::Failed);
                }
            }
        }
    }

    /// The outcome of the runs so far.
    pub fn outcome(&self) -> Outcome {
        outcome::of(self)
    }

    /// All runs, in the order in which they were made.
    pub fn runs(&self) -> &[RunRecord] {
        &self.runs
    }

    /// Why the experiment ended; `None` while it runs.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Number of runs until the current replicate is complete.
    pub fn runs_left_in_replicate(&self) -> usize {
        self.order.len() - self.given.len()
    }

    fn in_floor(&self) -> bool {
        self.floor.len() < FLOOR
    }

    /// Every combination once in random order, and then again in the reverse order. While the noise floor is measured
    /// (`floor`), only the two baselines.
    fn ordered(&mut self, floor: bool) -> Vec<usize> {
        let mut order: Vec<usize> = if floor { vec![0, 1] } else { (0..self.layout.combinations.len()).collect() };
        for last in (1..order.len()).rev() {
            order.swap(last, self.random.up_to(last as u64) as usize);
        }
        let back: Vec<usize> = order.iter().rev().copied().collect();
        order.extend(back);
        order
    }

    fn finish_replicate(&mut self, now: Nanos) {
        let runs = self.order.len().max(1) as u64;
        self.longest_run = self.longest_run.max(now.saturating_sub(self.started) / runs);
        let mut sums = vec![0.0; self.layout.combinations.len()];
        for (place, value) in self.order.iter().zip(&self.given) {
            sums[*place] += value / 2.0;
        }
        if self.in_floor() {
            self.floor.push(sums[1] - sums[0]);
        } else {
            self.replicates.push(sums);
        }
        self.given.clear();
        self.order = self.ordered(self.in_floor());
        let looked = LOOKS.contains(&self.replicates.len()) && !self.in_floor();
        if looked && self.outcome().entries.iter().all(|entry| entry.decided) {
            self.ended = Some(Ended::Decided);
        } else if self.replicates.len() >= LOOKS[LOOKS.len() - 1] {
            self.ended = Some(Ended::Replicates);
        }
    }
}

#[cfg(test)]
mod tests;
