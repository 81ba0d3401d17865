//! The figures' runs of the simulated world: scenarios as `apus sim run` takes them, and what a tester beside it sees.

use units::Nanos;

use super::tuning::Tuning;
use super::{FigureError, us};
use crate::outcome::{Distribution, Outcome};
use crate::scenario::Scenario;
use crate::world;

/// Reads a scenario.
pub(super) fn scenario(text: &str, tuning: &Tuning) -> Result<Scenario, FigureError> {
    let mut scenario = Scenario::parse("a figure", text, &[], &mut |_| Err("a figure names no file".into()))?;
    tuning.apply(&mut scenario);
    Ok(scenario)
}

/// Runs it with a seed.
pub(super) fn run(scenario: &Scenario, seed: u64) -> Result<Outcome, FigureError> {
    Ok(world::run(scenario, Some(seed))?)
}

/// Latencies of some runs together, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub least: f64,
    pub most: f64,
    sum: f64,
    count: u64,
    /// Frames that were lost.
    pub lost: u64,
}

impl Seen {
    pub const NOTHING: Self = Self { least: f64::INFINITY, most: 0.0, sum: 0.0, count: 0, lost: 0 };

    /// A run as a tester sees it that stamps each frame's first bit where it leaves and where it comes back: the
    /// outcome's latency, which ends with the frame's last bit at each side, and the PHYs of both links. (A frame's
    /// length counts once in both.)
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

    /// This and another run.
    pub fn and(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
            sum: self.sum + other.sum,
            count: self.count + other.count,
            lost: self.lost + other.lost,
        }
    }

    /// This, with the maximum of both and the losses of both.
    pub fn with_most_of(self, other: &Self) -> Self {
        Self { most: self.most.max(other.most), lost: self.lost + other.lost, ..self }
    }

    pub fn average(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}

/// The mean to fractions of a nanosecond, in microseconds; 0 without samples.
pub(super) fn mean(distribution: &Distribution) -> f64 {
    us(distribution.sum_ns() as f64 / distribution.count().max(1) as f64)
}

/// A closed loop of one request at a time with a host: what the world says of its turns.
pub(super) struct Loop {
    /// From one answer to the next, in microseconds.
    pub turn: f64,
    /// The outcome.
    pub outcome: Outcome,
}

/// Runs a closed loop whose text has `DISTANCE` where the way to the other host stands.
pub(super) fn closed_loop(text: &str, distance: Nanos, tuning: &Tuning, seed: u64) -> Result<Loop, FigureError> {
    let scenario = scenario(&text.replace("DISTANCE", &format!("{}ns", distance.as_nanos())), tuning)?;
    let outcome = run(&scenario, seed)?;
    let turn = us(outcome.duration.as_nanos() as f64) / outcome.departed().max(1) as f64;
    Ok(Loop { turn, outcome })
}

/// The way to the other host with which a turn of the loop takes `turn_us`; none, if it takes longer by itself.
pub(super) fn distance_for(text: &str, turn_us: f64, tuning: &Tuning, seed: u64) -> Result<Nanos, FigureError> {
    let mut distance_us = turn_us / 4.0;
    // How the host idles depends on the distance: a few rounds settle both.
    for _ in 0..4 {
        let distance = Nanos::from_nanos((distance_us * 1_000.0).round() as u64);
        let turn = closed_loop(text, distance, tuning, seed)?.turn;
        distance_us = (distance_us + (turn_us - turn) / 2.0).max(0.0);
    }
    Ok(Nanos::from_nanos((distance_us * 1_000.0).round() as u64))
}
