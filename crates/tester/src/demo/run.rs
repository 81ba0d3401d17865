//! Runs a demo as planned.

use std::sync::atomic::{AtomicBool, Ordering};

use live::mode::Mode;
use units::{Instant, Monotonic, Nanos, PacketRate};

use super::plan::{NEAR_PERCENT, Plan};
use super::result::{BedDocument, DemoResult, NEAR, PlanDocument, Run, SCHEMA, Search};
use crate::Error;
use crate::bed::{Bed, BedConfig, Measurement, Session};
use crate::clock::{MonotonicClock, TrialClock as _};
use crate::document::{Energy, EnergyMeter};
use crate::host::Reading;
use crate::result::LoadResult;
use crate::schedule::Schedule;
use crate::search::SearchConfig;

/// Percentage of its budget that the demo may use before it skips the remaining steps.
const OVERRUN_PERCENT: u64 = 110;

/// How a demo ended.
#[derive(Debug)]
pub struct Ended {
    /// What was measured.
    pub result: DemoResult,
    /// The error that ended the demo early; what was measured before the error is in `result`.
    pub failure: Option<Error>,
}

/// Sets up the bed, runs `plan` and removes the bed. Calls `progress` before each step.
///
/// If `stop` is set, ends early and returns the measurements so far. `meter` counts the energy of each run. Returns an
/// error only if the bed cannot be set up.
pub fn run(
    plan: &Plan,
    config: BedConfig,
    meter: &mut dyn EnergyMeter,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Result<Ended, Error> {
    let began = MonotonicClock.now();
    progress("creating the lab");
    let bed = Bed::up(config)?;
    let mut demo = Demo { plan, bed: &bed, stop, progress, began, result: empty(plan, bed.config()), done: 0 };
    let measured = demo.all(meter);
    let mut result = demo.result;
    let failure = measured.and(bed.down()).err();
    if let Some(error) = &failure {
        result.not_done.push(format!("everything after this: {error}"));
    }
    result.interrupted = stop.load(Ordering::Relaxed);
    result.elapsed_ns = MonotonicClock.now().since(began).unwrap_or(Nanos::ZERO).as_nanos();
    Ok(Ended { result, failure })
}

struct Demo<'a> {
    plan: &'a Plan,
    bed: &'a Bed,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&str),
    began: Instant<Monotonic>,
    result: DemoResult,
    done: usize,
}

impl Demo<'_> {
    fn all(&mut self, meter: &mut dyn EnergyMeter) -> Result<(), Error> {
        let plan = self.plan;
        for round in 0..plan.rounds {
            for index in plan.order(round) {
                let mode = plan.modes[index];
                // The first round runs even if the budget is used up: without it there is nothing to compare.
                let what = format!("{mode}, round {} of {}", round + 1, plan.rounds);
                if self.ends_before(&what, round > 0) {
                    continue;
                }
                self.paced(mode, round, &what, meter)?;
            }
        }
        for index in plan.order(0) {
            let mode = plan.modes[index];
            let what = format!("{mode}, highest loss-free rate");
            if !self.ends_before(&what, true) {
                self.highest(mode, &what, meter)?;
            }
        }
        Ok(())
    }

    /// Returns whether to skip the step `what`: the demo was interrupted, or the budget is used up and the step may be
    /// left out. If not, announces the step.
    fn ends_before(&mut self, what: &str, may_be_left_out: bool) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            self.result.not_done.push(format!("{what}: interrupted"));
            return true;
        }
        if may_be_left_out && self.left() == Nanos::ZERO {
            self.result.not_done.push(format!("{what}: the budget was used up"));
            return true;
        }
        let steps = self.plan.modes.len() * (self.plan.rounds as usize + 1);
        self.done += 1;
        (self.progress)(&format!("{:>2}/{steps}  {what}", self.done));
        false
    }

    fn left(&self) -> Nanos {
        let gone = MonotonicClock.now().since(self.began).unwrap_or(Nanos::ZERO);
        self.plan.budget.scale(OVERRUN_PERCENT, 100).saturating_sub(gone)
    }

    /// Runs one mode at all paced loads, in one round.
    fn paced(&mut self, mode: Mode, round: u32, what: &str, meter: &mut dyn EnergyMeter) -> Result<(), Error> {
        let (plan, stop) = (self.plan, self.stop);
        let measured = self.with(mode, |session| {
            let mut measured = Vec::new();
            for load in &plan.loads {
                session.learn(load, plan.learn, stop)?;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // The seed depends on the round: all modes get the same arrival times in a round, and different ones in
                // the next.
                meter.start();
                let run = session.measure(load, u64::from(round) + 1, plan.run, stop)?;
                let energy = run.energy(meter);
                measured.push((load.to_string(), run, energy));
            }
            Ok(measured)
        })?;
        for (load, measurement, energy) in measured {
            self.keep(mode, load, round, (&measurement, energy), what);
        }
        Ok(())
    }

    /// Searches for one mode's highest loss-free rate, and measures latency near it.
    fn highest(&mut self, mode: Mode, what: &str, meter: &mut dyn EnergyMeter) -> Result<(), Error> {
        let (plan, stop) = (self.plan, self.stop);
        // If earlier steps took longer than planned, less time is left for the searches.
        let modes_left = (plan.modes.len() - self.result.searches.len()).max(1) as u64;
        let share = (self.left() / modes_left).min(plan.own_part());
        let config = Plan::search_in(share.min(plan.search));
        let (search, near) = self.with(mode, |session| {
            let search = session.search(config, stop)?;
            let (Some(rate), false) = (search.bounds().0, stop.load(Ordering::Relaxed)) else {
                return Ok((search, None));
            };
            let load = Schedule::ConstantRate(PacketRate::new((rate * NEAR_PERCENT / 100).max(1)));
            session.learn(&load, plan.learn.min(plan.near), stop)?;
            meter.start();
            let near = session.measure(&load, 1, plan.near, stop)?;
            let energy = near.energy(meter);
            Ok((search, Some((near, energy))))
        })?;
        self.keep_search(mode, &config, &search);
        if let Some((near, energy)) = near {
            self.keep(mode, NEAR.into(), 0, (&near, energy), what);
        }
        Ok(())
    }

    fn with<T: Send>(
        &mut self,
        mode: Mode,
        work: impl FnOnce(&mut Session) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let (done, host, ports) = self.bed.with(mode, |session| {
            let host = session.host();
            let ports = session.ports().to_vec();
            work(session).map(|done| (done, host, ports))
        })?;
        self.result.host = Reading::known(host);
        if let Some(port) = ports.first() {
            let bed = &mut self.result.bed;
            bed.rx_descriptors = Reading::known(port.rx_descriptors);
            if let Some(driver) = &port.driver {
                bed.zero_copy = Reading::known(driver.zero_copy);
                if let Some(mode) = driver.xdp_mode {
                    bed.xdp_mode = Reading::known(mode.name().into());
                }
            }
        }
        Ok(done)
    }

    fn keep(
        &mut self,
        mode: Mode,
        load: String,
        round: u32,
        (measurement, energy): (&Measurement, Energy),
        what: &str,
    ) {
        if measurement.trial.interrupted {
            self.result.not_done.push(format!("{what}, {load}: interrupted"));
        }
        let reasons = measurement.counts.decisions().filter(|(_, n)| *n > 0).map(|(name, n)| (name.into(), n));
        self.result.runs.push(Run {
            mode: mode.to_string(),
            load,
            round,
            latency: measurement.document().with_energy(energy),
            reasons: reasons.collect(),
        });
    }

    fn keep_search(&mut self, mode: Mode, config: &SearchConfig, search: &crate::search::BinarySearch) {
        let elsewhere = Err(format!("see the run at the load {NEAR}"));
        let load = LoadResult::new(config, search, elsewhere);
        self.result.searches.push(Search { mode: mode.to_string(), load });
    }
}

fn empty(plan: &Plan, bed: &BedConfig) -> DemoResult {
    const NO_RUN: &str = "no instance was started";
    DemoResult {
        apus: env!("CARGO_PKG_VERSION").into(),
        schema: SCHEMA.into(),
        host: Reading::unknown(NO_RUN),
        plan: PlanDocument::from(plan),
        bed: BedDocument {
            name: bed.name.clone(),
            tester_cpu: bed.tester.cpu.map(|cpu| cpu as u64),
            tested_cpu: bed.tested.cpu.map(|cpu| cpu as u64),
            tested_fifo_priority: bed.tested.fifo,
            frame_octets: bed.frame.octets(),
            peak_rate_pps: bed.peak_rate.as_pps(),
            rx_descriptors: Reading::unknown(NO_RUN),
            xdp_mode: Reading::unknown(NO_RUN),
            zero_copy: Reading::unknown(NO_RUN),
        },
        runs: Vec::new(),
        searches: Vec::new(),
        not_done: Vec::new(),
        interrupted: false,
        elapsed_ns: 0,
    }
}
