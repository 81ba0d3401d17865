//! Searches that go down from the maximum rate in equal steps: the literal throughput procedure of RFC 2544, 26.1, and
//! the loss curve of 26.3.

use units::Nanos;

use super::{Outcome, Search, Step, Verdict, exceeds};
use crate::Error;

/// Loads of 100 %, 100 % - step, 100 % - 2 steps, … of a maximum rate.
#[derive(Clone, Copy, Debug)]
struct Ladder {
    max_pps: u64,
    step_ppm: u32,
    duration: Nanos,
}

impl Ladder {
    fn new(max_pps: u64, step_ppm: u32, duration: Nanos) -> Result<Self, Error> {
        if max_pps == 0 || !(1..1_000_000).contains(&step_ppm) || duration == Nanos::ZERO {
            return Err(Error::invalid(
                format!("steps of {step_ppm} ppm from {max_pps} pps, {duration} each"),
                "expected a rate of at least 1 pps, steps of 1 to 999,999 ppm, and trials longer than 0",
            ));
        }
        Ok(Self { max_pps, step_ppm, duration })
    }

    /// The trial after `steps` steps down; `None` if its load would be 0.
    fn load(&self, steps: usize) -> Option<Step> {
        let down = u64::from(self.step_ppm).checked_mul(steps as u64).filter(|down| *down < 1_000_000)?;
        let load_pps = (u128::from(self.max_pps) * u128::from(1_000_000 - down) / 1_000_000) as u64;
        (load_pps > 0).then_some(Step { load_pps, duration: self.duration, confirms: false })
    }
}

/// Lowers the rate by a fixed step until a trial loses no frame. This is the literal procedure of RFC 2544, 26.1; it is
/// slower than a binary search. Its result is at most one step below the throughput.
#[derive(Clone, Debug)]
pub struct StepDown {
    ladder: Ladder,
    tolerance_ppm: u32,
    steps: usize,
    found: Option<u64>,
}

impl StepDown {
    /// Starts at `max_pps` and goes down in steps of `step_ppm` of `max_pps`, with trials of `duration`. A trial passes
    /// if it loses at most `loss_tolerance_ppm` of its frames.
    pub fn new(max_pps: u64, step_ppm: u32, duration: Nanos, loss_tolerance_ppm: u32) -> Result<Self, Error> {
        let ladder = Ladder::new(max_pps, step_ppm, duration)?;
        Ok(Self { ladder, tolerance_ppm: loss_tolerance_ppm, steps: 0, found: None })
    }

    /// The rate found; `None` while the search runs, or if no rate passed.
    pub fn found(&self) -> Option<u64> {
        self.found
    }
}

impl Search for StepDown {
    fn next_step(&self) -> Option<Step> {
        if self.found.is_some() { None } else { self.ladder.load(self.steps) }
    }

    fn record(&mut self, step: Step, outcome: Outcome) -> Verdict {
        self.steps += 1;
        let verdict = judge(outcome, self.tolerance_ppm);
        if verdict == Verdict::Pass {
            self.found = Some(step.load_pps);
        }
        verdict
    }
}

/// One point of a loss curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossPoint {
    /// Load and duration of the trial.
    pub step: Step,
    /// Outcome of the trial.
    pub outcome: Outcome,
}

/// Measures the frame loss rate (RFC 2544, 26.3) at loads from 100 % of the maximum downwards, in steps of at most 10
/// %, until two successive trials lose no frame.
#[derive(Clone, Debug)]
pub struct LossCurve {
    ladder: Ladder,
    points: Vec<LossPoint>,
}

impl LossCurve {
    /// Starts at `max_pps` and goes down in steps of `step_ppm` of `max_pps`, with trials of `duration`.
    pub fn new(max_pps: u64, step_ppm: u32, duration: Nanos) -> Result<Self, Error> {
        Ok(Self { ladder: Ladder::new(max_pps, step_ppm, duration)?, points: Vec::new() })
    }

    /// The points so far, from the highest load down.
    pub fn points(&self) -> &[LossPoint] {
        &self.points
    }
}

impl Search for LossCurve {
    fn next_step(&self) -> Option<Step> {
        let loss_free = |point: &LossPoint| judge(point.outcome, 0) == Verdict::Pass;
        match self.points.last_chunk::<2>() {
            Some(last) if last.iter().all(loss_free) => None,
            _ => self.ladder.load(self.points.len()),
        }
    }

    fn record(&mut self, step: Step, outcome: Outcome) -> Verdict {
        self.points.push(LossPoint { step, outcome });
        judge(outcome, 0)
    }
}

fn judge(outcome: Outcome, tolerance_ppm: u32) -> Verdict {
    match outcome {
        Outcome { sent: 0, .. } => Verdict::TesterLimited,
        Outcome { unsent, .. } if unsent > 0 => Verdict::TesterLimited,
        Outcome { sent, lost, .. } if exceeds(lost, sent, tolerance_ppm) => Verdict::Loss,
        _ => Verdict::Pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(search: &mut impl Search, capacity: u64) -> Vec<u64> {
        let mut loads = Vec::new();
        while let Some(step) = search.next_step() {
            loads.push(step.load_pps);
            let lost = step.load_pps.saturating_sub(capacity);
            search.record(step, Outcome { sent: step.load_pps, lost, unsent: 0 });
        }
        loads
    }

    #[test]
    fn steps_down_to_the_first_rate_that_passes() {
        let mut search = StepDown::new(1000, 100_000, Nanos::from_secs(60), 0).unwrap();
        assert_eq!(run(&mut search, 750), [1000, 900, 800, 700]);
        assert_eq!(search.found(), Some(700));
        let mut search = StepDown::new(1000, 300_000, Nanos::from_secs(60), 0).unwrap();
        assert_eq!((run(&mut search, 0), search.found()), (vec![1000, 700, 400, 100], None));
    }

    #[test]
    fn a_loss_curve_ends_after_two_loss_free_loads() {
        let mut search = LossCurve::new(1000, 100_000, Nanos::from_secs(60)).unwrap();
        assert_eq!(run(&mut search, 750), [1000, 900, 800, 700, 600]);
        assert_eq!(search.points()[0].outcome.loss_ratio(), 0.25);
        let mut search = LossCurve::new(1000, 100_000, Nanos::from_secs(60)).unwrap();
        assert_eq!(run(&mut search, 0).len(), 10, "down to 10 %");
        assert!(LossCurve::new(1000, 1_000_000, Nanos::from_secs(60)).is_err());
    }

    #[test]
    fn what_the_tester_did_not_send_is_no_pass() {
        let mut search = LossCurve::new(1000, 100_000, Nanos::from_secs(60)).unwrap();
        let step = search.next_step().unwrap();
        assert_eq!(search.record(step, Outcome { sent: 900, lost: 0, unsent: 100 }), Verdict::TesterLimited);
    }
}
