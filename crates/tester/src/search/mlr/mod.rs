//! MLRsearch (RFC 9971): finds bounds and conditional throughput for several goals in one search.
//!
//! ```text
//!  trial at the maximum ► at the rate that it forwarded ► once more ► ┌─► each goal wishes for a trial ──┐
//!                                                                     └── the lowest load is run ◄───────┘
//!                                                                    no goal wishes for one ──► done
//! ```
//! Short trials narrow the search. Long trials then decide it; their number follows from the goal's duration sum. A
//! goal with an exceed ratio above 0 tolerates this share of disturbed trials, which is necessary on a host that also
//! does other work.
//!
//! The search chooses loads in the same way as the reference controller of the RFC's authors (the Python package
//! MLRsearch 1.2.1), and a test compares the two. [`classify`] follows the RFC.

pub mod classify;
mod goal;
mod grid;
mod select;
#[cfg(test)]
mod tests;

use units::Nanos;

use super::{Outcome, Search, Step, Verdict};
use crate::Error;
use classify::{Class, Target, Trial, Trials};
pub use goal::{Goal, Preset};
use grid::{Grid, Load, Width};
use select::{Candidate, Selector, within};

/// Number of coarser targets that precede the final target of a goal. The reference controller has the same default.
const PRECEDING: i32 = 2;

/// Configuration of a search: its range, goals and time limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MlrConfig {
    /// Lowest rate to try, in frames per second.
    pub min_pps: u64,
    /// Highest rate to try, in frames per second: the line rate, or the highest rate at which the tester can send.
    pub max_pps: u64,
    /// The goals. There must be at least one.
    pub goals: Vec<Goal>,
    /// Time limit: the search gives up when the total duration of its trials reaches this value.
    pub longest: Nanos,
}

/// The result of the search for one goal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// Relevant Lower Bound in frames per second; `None` if even the lowest rate is not a lower bound.
    pub lower_pps: Option<f64>,
    /// Relevant Upper Bound in frames per second; `None` if even the highest rate is a lower bound.
    pub upper_pps: Option<f64>,
    /// Conditional Throughput in frames per second: the rate that the device forwarded at the relevant lower bound. The
    /// goal's exceed ratio selects the quantile of the trials. `None` if there is no lower bound.
    pub throughput_pps: Option<f64>,
    /// Whether the whole search is complete. If so, the bounds are as close as the goal's width, or the result lies at
    /// an end of the range (an irregular result, RFC 9971, 4.8.1).
    pub reached: bool,
    /// Number of trials at the relevant lower bound.
    pub trials_at_lower: usize,
}

/// A trial that was run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MlrTrial {
    /// The requested load and duration.
    pub step: Step,
    /// Outcome of the trial.
    pub outcome: Outcome,
}

#[derive(Clone, Debug)]
enum State {
    /// The first trial, at the highest load, is next.
    First,
    /// The second trial is next, near the rate that the device forwarded in the first one.
    Second(Load),
    /// The third trial is next, near the load of the second one, so that the main search starts with two loads.
    Third(Load, Load),
    /// The main search, in which the goals nominate trials. `chosen` is the next trial and the index of the goal that
    /// nominated it.
    Main { selectors: Vec<Selector>, global: Width, chosen: Option<(Candidate, usize)> },
    /// The search ended early, because the trials reached the time limit ([`MlrConfig::longest`]).
    GaveUp,
}

/// A multiple loss ratio search (MLRsearch, RFC 9971) for one or more goals.
#[derive(Clone, Debug)]
pub struct MlrSearch {
    config: MlrConfig,
    grid: Grid,
    /// For each goal, its targets from coarse to final.
    targets: Vec<Vec<Target>>,
    trials: Trials,
    log: Vec<MlrTrial>,
    state: State,
}

impl MlrSearch {
    /// Starts a search. Returns an error if `config` is invalid.
    pub fn new(config: MlrConfig) -> Result<Self, Error> {
        let MlrConfig { min_pps, max_pps, goals, .. } = &config;
        if *min_pps == 0 || min_pps >= max_pps {
            return Err(Error::invalid(
                format!("search from {min_pps} to {max_pps} pps"),
                "expected a lowest rate of at least 1 pps, and a highest rate above it",
            ));
        }
        if goals.is_empty() {
            return Err(Error::invalid("a search without goals", "expected at least one goal"));
        }
        goals.iter().try_for_each(Goal::check)?;
        let widths: Vec<f64> = goals.iter().map(|goal| ratio(goal.width_ppm)).collect();
        let grid = Grid::new(*min_pps, *max_pps, &widths);
        let targets = goals.iter().map(|goal| targets(goal, &grid)).collect();
        Ok(Self { config, grid, targets, trials: Trials::default(), log: Vec::new(), state: State::First })
    }

    /// The result for each goal, in the order of the goals. While the search runs, the bounds are not final.
    pub fn results(&self) -> Vec<GoalResult> {
        let done = matches!(&self.state, State::Main { chosen: None, .. });
        self.config.goals.iter().zip(&self.targets).map(|(goal, targets)| self.result(goal, targets, done)).collect()
    }

    /// All trials, in order.
    pub fn trials(&self) -> &[MlrTrial] {
        &self.log
    }

    /// Whether the search gave up because its trials reached the time limit ([`MlrConfig::longest`]).
    pub fn gave_up(&self) -> bool {
        matches!(self.state, State::GaveUp)
    }

    fn result(&self, goal: &Goal, targets: &[Target], done: bool) -> GoalResult {
        let last = targets.last();
        let bounds = last.map(|target| self.trials.bounds(target)).unwrap_or_default();
        let at_lower = bounds.lower.map(|load| self.trials.at(load)).unwrap_or_default();
        let throughput_pps = bounds
            .lower
            .zip(last)
            .and_then(|(load, target)| Some(self.grid.rate(load) * (1.0 - target.quantile_loss_ratio(at_lower)?)));
        GoalResult {
            goal: *goal,
            lower_pps: bounds.lower.map(|load| self.grid.rate(load)),
            upper_pps: bounds.upper.map(|load| self.grid.rate(load)),
            throughput_pps,
            reached: done,
            trials_at_lower: at_lower.len(),
        }
    }

    /// The load and the duration in seconds of the next trial. `None` if the search has ended.
    fn wanted(&self) -> Option<(Load, f64)> {
        match &self.state {
            State::First => Some((self.grid.last(), self.initial().1)),
            State::Second(load) | State::Third(_, load) => Some((*load, self.initial().1)),
            State::Main { chosen, .. } => chosen.as_ref().map(|(candidate, _)| (candidate.load, candidate.duration_s)),
            State::GaveUp => None,
        }
    }

    /// Takes the coarsest target of each goal. Returns their minimum loss ratio, maximum trial duration in seconds and
    /// maximum width.
    fn initial(&self) -> (f64, f64, Width) {
        let first = self.targets.iter().filter_map(|targets| targets.first());
        first.fold((f64::INFINITY, 0.0, 0), |(loss, trial, width), target| {
            (target.loss_ratio.min(loss), target.trial_s.max(trial), target.width.max(width))
        })
    }

    /// Estimates the highest load that meets the goals' minimum loss ratio. The estimate assumes that the device always
    /// forwards the rate that it forwarded in a trial at `load`, and loses all frames above that rate.
    fn forwarded(&self, load: Load, loss_ratio: f64) -> Load {
        let rate = self.grid.rate(load) * (1.0 - loss_ratio);
        self.grid.load(rate * (1.0 / (1.0 - self.initial().0)))
    }

    fn advance(&mut self, load: Load, loss_ratio: f64) {
        let (goal_loss, _, width) = self.initial();
        let last = self.grid.last();
        let bounds = |lower, upper| classify::Bounds { lower, upper };
        let state = std::mem::replace(&mut self.state, State::GaveUp);
        self.state = match state {
            State::First => {
                let next = self.forwarded(load, loss_ratio);
                match within(&self.grid, next, width, bounds(None, Some(last))) {
                    Some(next) if next < last => State::Second(next),
                    _ => self.begin(last, last),
                }
            }
            State::Second(second) => {
                let third = if loss_ratio > goal_loss {
                    let next = self.forwarded(second, loss_ratio);
                    within(&self.grid, next, width, bounds(None, Some(second)))
                } else {
                    within(&self.grid, second + width, width, bounds(Some(second), Some(last)))
                };
                third.map_or_else(|| self.begin(second, second), |third| State::Third(second, third))
            }
            State::Third(second, third) => self.begin(second.min(third), second.max(third)),
            State::Main { mut selectors, mut global, chosen } => {
                if let Some((candidate, by)) = chosen {
                    global = candidate.width;
                    global = selectors[by].ran(load, &self.trials).unwrap_or(global);
                }
                self.choose(selectors, global)
            }
            State::GaveUp => State::GaveUp,
        };
    }

    fn begin(&self, lower: Load, upper: Load) -> State {
        let selectors = self.targets.iter().filter_map(|targets| Selector::new(targets, lower, upper)).collect();
        self.choose(selectors, upper - lower)
    }

    fn choose(&self, mut selectors: Vec<Selector>, global: Width) -> State {
        let mut chosen: Option<(Candidate, usize)> = None;
        for (by, selector) in selectors.iter_mut().enumerate() {
            let Some(candidate) = selector.nominate(&self.trials, &self.grid, global) else { continue };
            if !chosen.is_some_and(|(first, _)| first.precedes(&candidate)) {
                chosen = Some((candidate, by));
            }
        }
        State::Main { selectors, global, chosen }
    }
}

impl Search for MlrSearch {
    fn next_step(&self) -> Option<Step> {
        let (load, seconds) = self.wanted()?;
        let load_pps = self.grid.rate(load).round() as u64;
        Some(Step { load_pps, duration: Nanos::from_nanos((seconds * 1e9).round() as u64), confirms: false })
    }

    /// Returns the verdict on this single trial, judged by the strictest loss ratio of the goals. The goals themselves
    /// judge a load by all trials at that load.
    fn record(&mut self, step: Step, outcome: Outcome) -> Verdict {
        let strictest = self.config.goals.iter().map(|goal| ratio(goal.loss_ratio_ppm)).fold(1.0, f64::min);
        let loss_ratio = outcome.loss_ratio();
        self.log.push(MlrTrial { step, outcome });
        if let Some((load, duration_s)) = self.wanted() {
            self.trials.add(load, Trial { duration_s, loss_ratio });
            let spent: u64 = self.log.iter().map(|trial| trial.step.duration.as_nanos()).sum();
            self.advance(load, loss_ratio);
            if spent >= self.config.longest.as_nanos() && self.wanted().is_some() {
                self.state = State::GaveUp;
            }
        }
        if outcome.sent == 0 || outcome.unsent > outcome.lost && loss_ratio > strictest {
            Verdict::TesterLimited
        } else if loss_ratio > strictest {
            Verdict::Loss
        } else {
            Verdict::Pass
        }
    }
}

impl MlrSearch {
    /// Classifies a load for the goal with index `goal`, by the trials so far. The load is the highest one on the grid
    /// that is at most `pps`. `None` if there is no such goal.
    pub fn class_at(&self, goal: usize, pps: f64) -> Option<Class> {
        let target = self.targets.get(goal)?.last()?;
        Some(target.classify(self.trials.at(self.grid.load(pps))))
    }
}

fn ratio(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

fn seconds(span: Nanos) -> f64 {
    span.as_nanos() as f64 / 1e9
}

/// The targets of a goal, from coarse to final. Each target has half the width of the previous one. Its duration sum is
/// longer by a constant factor.
fn targets(goal: &Goal, grid: &Grid) -> Vec<Target> {
    let (first, last, sum) = (seconds(goal.initial_trial), seconds(goal.final_trial), seconds(goal.duration_sum));
    let shrink = (first / sum).powf(1.0 / f64::from(PRECEDING));
    let target = |stage: i32| {
        let sum_s = match stage {
            0 => sum,
            PRECEDING => first,
            _ => sum * shrink.powf(f64::from(stage)),
        };
        Target {
            loss_ratio: ratio(goal.loss_ratio_ppm),
            exceed_ratio: ratio(goal.exceed_ratio_ppm),
            width: grid.width(ratio(goal.width_ppm)) << stage,
            trial_s: last.min(sum_s),
            sum_s,
        }
    };
    (0..=PRECEDING).rev().map(target).collect()
}
