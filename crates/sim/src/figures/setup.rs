//! Runs the simulated world for the figures, and shows the results as a tester would see them.

use units::Nanos;

use super::tuning::Tuning;
use super::{FigureError, us};
use crate::outcome::{Distribution, Outcome};
use crate::scenario::Scenario;
use crate::world;

/// Reads a scenario and applies the tuning.
pub(super) fn scenario(text: &str, tuning: &Tuning) -> Result<Scenario, FigureError> {
    let mut scenario = Scenario::parse("a figure", text, &[], &mut |_| Err("a figure names no file".into()))?;
    tuning.apply(&mut scenario);
    Ok(scenario)
}

/// Runs a scenario with a seed.
pub(super) fn run(scenario: &Scenario, seed: u64) -> Result<Outcome, FigureError> {
    Ok(world::run(scenario, Some(seed))?)
}

/// Latencies of one or more runs, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub least: f64,
    pub most: f64,
    sum: f64,
    count: u64,
    /// Number of frames lost.
    pub lost: u64,
}

impl Seen {
    pub const NOTHING: Self = Self { least: f64::INFINITY, most: 0.0, sum: 0.0, count: 0, lost: 0 };

    /// The latencies that a tester would measure if it stamped the first bit of each frame on departure and return.
    /// They are the outcome's latencies plus the time through the PHYs of both links. The outcome measures from last
    /// bit to last bit, which gives the same result: in both measurements the length of the frame counts once.
    pub fn of(scenario: &Scenario, outcome: &Outcome) -> Self {
        let phys = us((scenario.host.nic.link.latency * 2).as_nanos() as f64);
        let nanos = |span: Option<Nanos>| us(span.unwrap_or(Nanos::ZERO).as_nanos() as f64);
        let latency = &outcome.latency;
        Self {
            least: nanos(latency.least()) + phys,
            most: nanos(latency.most()) + phys,
            sum: us(latency.sum_ns() as f64) + phys * latency.count() as f64,
            count: latency.count(),
            lost: outcome.lost(),
        }
    }

    /// Merges two runs into one.
    pub fn and(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
            sum: self.sum + other.sum,
            count: self.count + other.count,
            lost: self.lost + other.lost,
        }
    }

    /// This run, but with the larger of the two maxima and the sum of the losses.
    pub fn with_most_of(self, other: &Self) -> Self {
        Self { most: self.most.max(other.most), lost: self.lost + other.lost, ..self }
    }

    pub fn average(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}

/// The mean in microseconds, to fractions of a nanosecond. 0 without samples.
pub(super) fn mean(distribution: &Distribution) -> f64 {
    us(distribution.sum_ns() as f64 / distribution.count().max(1) as f64)
}

/// The result of a closed loop with another host: one request at a time.
pub(super) struct Loop {
    /// Time from one answer to the next, in microseconds.
    pub turn: f64,
    /// The outcome of the run.
    pub outcome: Outcome,
}

/// Runs a closed loop. `DISTANCE` in `text` is replaced by the one-way time to the other host.
pub(super) fn closed_loop(text: &str, distance: Nanos, tuning: &Tuning, seed: u64) -> Result<Loop, FigureError> {
    let scenario = scenario(&text.replace("DISTANCE", &format!("{}ns", distance.as_nanos())), tuning)?;
    let outcome = run(&scenario, seed)?;
    let turn = us(outcome.duration.as_nanos() as f64) / outcome.departed().max(1) as f64;
    Ok(Loop { turn, outcome })
}

/// Finds the one-way time to the other host for which one turn of the loop takes `turn_us`. Zero if a turn takes longer
/// even at distance zero.
pub(super) fn distance_for(text: &str, turn_us: f64, tuning: &Tuning, seed: u64) -> Result<Nanos, FigureError> {
    let mut distance_us = turn_us / 4.0;
    // How the host idles depends on the distance, so a few iterations are needed.
    for _ in 0..4 {
        let distance = Nanos::from_nanos((distance_us * 1_000.0).round() as u64);
        let turn = closed_loop(text, distance, tuning, seed)?.turn;
        distance_us = (distance_us + (turn_us - turn) / 2.0).max(0.0);
    }
    Ok(Nanos::from_nanos((distance_us * 1_000.0).round() as u64))
}
