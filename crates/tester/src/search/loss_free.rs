//! The search for the highest loss-free rate.
//!
//! ```text
//!        fails at most                  passes                  interval <= width
//!  max ───────────────► bisect lower..upper ◄──┐ ──────────────────────────────► confirm lower ──► done
//!    └── passes ───────────────────────────────┼─────────────────────────────────────▲   │
//!                                              └──────── a confirmation fails ───────────┘
//! ```
//! After each trial, the bounds are computed anew from all trials. The upper bound is the lowest load that failed. The
//! lower bound is the highest load that passed *below the upper bound*. A load that passed above one that failed (loss
//! inversion) does not count. RFC 9971 has the same rule.

use std::collections::BTreeMap;

use units::Nanos;

use super::{Outcome, Search, Step, Verdict, exceeds};
use crate::Error;

/// What to search for, and with how much effort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SearchConfig {
    /// Lowest rate to try, in frames per second.
    pub min_pps: u64,
    /// Highest rate to try, in frames per second, for example the highest rate at which the tester can send.
    pub max_pps: u64,
    /// The search ends when the bounds are this close, in ppm of the upper bound.
    pub width_ppm: u32,
    /// Duration of a trial that narrows the search.
    pub trial: Nanos,
    /// Duration of a trial that confirms a bound.
    pub confirm_trial: Nanos,
    /// Number of confirming trials that the result must pass.
    pub confirmations: u32,
    /// Share of the sent frames that may be lost, in ppm; 0 means none.
    pub loss_tolerance_ppm: u32,
    /// Share of the due frames that the tester may fail to send, in ppm. If it fails to send a larger share, the trial
    /// counts as limited by the tester.
    pub unsent_tolerance_ppm: u32,
    /// Number of failed trials after which a rate counts as failed. 1 is strict; 2 tolerates one disturbance by the
    /// host at each rate.
    pub failures_needed: u32,
    /// Maximum number of trials.
    pub max_trials: u32,
}

impl SearchConfig {
    /// A search that takes about 6 s in total and finds the rate to within 5 %. It does not conform to RFC 2544, which
    /// requires trials of 60 s (section 24) and rejects a rate at which a single frame is lost.
    pub fn short(min_pps: u64, max_pps: u64) -> Self {
        Self {
            min_pps,
            max_pps,
            width_ppm: 50_000,
            trial: Nanos::from_millis(300),
            confirm_trial: Nanos::from_secs(1),
            confirmations: 2,
            loss_tolerance_ppm: 0,
            unsent_tolerance_ppm: 100_000,
            failures_needed: 2,
            max_trials: 24,
        }
    }

    /// A search for the rate to within 0.5 %, with trials of 60 s and no loss allowed: RFC 2544, 24 and 26.1.
    pub fn rfc2544(min_pps: u64, max_pps: u64) -> Self {
        Self {
            width_ppm: 5_000,
            trial: Nanos::from_secs(60),
            confirm_trial: Nanos::from_secs(60),
            confirmations: 1,
            unsent_tolerance_ppm: 0,
            failures_needed: 1,
            max_trials: 60,
            ..Self::short(min_pps, max_pps)
        }
    }
}

/// A trial of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SearchTrial {
    /// The step that was requested.
    pub step: Step,
    /// The outcome that was measured.
    pub outcome: Outcome,
    /// The verdict on the outcome.
    pub verdict: Verdict,
}

/// Why a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The bounds are close enough, and the lower bound is confirmed.
    Converged,
    /// Even the highest rate passed, so the result is a lower bound.
    MaximumPassed,
    /// The tester could not send faster, so the result is a lower bound; without a bound, it could not even send at
    /// the lowest rate.
    TesterLimited,
    /// Even the lowest rate failed.
    MinimumFailed,
    /// The maximum number of trials was reached. The bounds are valid, but too far apart or unconfirmed.
    GaveUp,
}

/// The result of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Highest rate that passed and is below the lowest rate that failed; `None` if no rate passed.
    pub lower_pps: Option<u64>,
    /// Lowest rate that failed; `None` if no rate failed.
    pub upper_pps: Option<u64>,
    /// Why the search ended.
    pub end: End,
}

#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    passes: u32,
    confirmed: u32,
    losses: u32,
    tester_limited: u32,
}

/// A binary search for the highest loss-free rate. It halves the interval geometrically.
#[derive(Clone, Debug)]
pub struct BinarySearch {
    config: SearchConfig,
    trials: Vec<SearchTrial>,
    loads: BTreeMap<u64, Tally>,
}

impl BinarySearch {
    /// Starts a search; returns an error for an invalid configuration.
    pub fn new(config: SearchConfig) -> Result<Self, Error> {
        let SearchConfig { min_pps, max_pps, width_ppm, failures_needed, max_trials, .. } = config;
        if min_pps == 0 || min_pps >= max_pps {
            return Err(Error::invalid(
                format!("search from {min_pps} to {max_pps} pps"),
                "expected a lowest rate of at least 1 pps, and a highest rate above it",
            ));
        }
        if !(1..1_000_000).contains(&width_ppm) || failures_needed == 0 || max_trials == 0 {
            return Err(Error::invalid(
                format!("search to {width_ppm} ppm, {failures_needed} failures, {max_trials} trials"),
                "expected a width of 1 to 999,999 ppm, and at least 1 failure and 1 trial",
            ));
        }
        Ok(Self { config, trials: Vec::new(), loads: BTreeMap::new() })
    }

    /// The result; `None` while the search runs.
    pub fn found(&self) -> Option<Found> {
        self.decide().err()
    }

    /// The lower and the upper bound so far, even if the search was interrupted.
    pub fn bounds(&self) -> (Option<u64>, Option<u64>) {
        let upper = self.upper();
        (self.lower(upper), upper)
    }

    /// All trials, in order.
    pub fn trials(&self) -> &[SearchTrial] {
        &self.trials
    }

    fn judge(&self, outcome: Outcome) -> Verdict {
        // A trial in which no frame was sent says nothing about the device.
        if outcome.sent == 0 || exceeds(outcome.unsent, outcome.sent + outcome.unsent, self.config.unsent_tolerance_ppm)
        {
            return Verdict::TesterLimited;
        }
        if exceeds(outcome.lost, outcome.sent, self.config.loss_tolerance_ppm) { Verdict::Loss } else { Verdict::Pass }
    }

    fn has_failed(&self, tally: &Tally) -> bool {
        tally.losses + tally.tester_limited >= self.config.failures_needed
    }

    fn upper(&self) -> Option<u64> {
        self.loads.iter().find(|(_, tally)| self.has_failed(tally)).map(|(load, _)| *load)
    }

    fn lower(&self, upper: Option<u64>) -> Option<u64> {
        let below = self.loads.range(..upper.unwrap_or(u64::MAX)).rev();
        below.into_iter().find(|(_, tally)| tally.passes > 0).map(|(load, _)| *load)
    }

    /// Chooses the next trial, or ends the search.
    fn decide(&self) -> Result<Step, Found> {
        let config = &self.config;
        let upper = self.upper();
        let lower = self.lower(upper);
        let end = |end| Err(Found { lower_pps: lower, upper_pps: upper, end });
        let tester_limited = |load| self.loads.get(&load).is_some_and(|tally| tally.losses < tally.tester_limited);
        if let Some(load) = upper.filter(|load| *load <= config.min_pps) {
            return end(if tester_limited(load) { End::TesterLimited } else { End::MinimumFailed });
        }
        if self.trials.len() >= config.max_trials as usize {
            return end(End::GaveUp);
        }
        let steer = |load_pps| Ok(Step { load_pps, duration: config.trial, confirms: false });
        // Repeat a load whose trials had losses, but too few of them to count as failed, and none of which passed.
        let undecided = self.loads.range(..upper.unwrap_or(u64::MAX)).rev();
        let undecided =
            undecided.into_iter().find(|(load, tally)| tally.passes == 0 && lower.is_none_or(|l| **load > l));
        if let Some((load, _)) = undecided {
            return steer(*load);
        }
        let (low, high) = match (lower, upper) {
            (None, None) => return steer(config.max_pps),
            (None, Some(high)) => (config.min_pps, high),
            (Some(low), high) => (low, high.unwrap_or(low)),
        };
        let width = u128::from(high) * u128::from(config.width_ppm) / 1_000_000;
        if high - low > 1 && u128::from(high - low) > width {
            return steer(geometric_middle(low, high));
        }
        let Some(lower_pps) = lower else { return steer(config.min_pps) };
        if self.loads.get(&lower_pps).is_none_or(|tally| tally.confirmed < config.confirmations) {
            return Ok(Step { load_pps: lower_pps, duration: config.confirm_trial, confirms: true });
        }
        match upper {
            None => end(End::MaximumPassed),
            Some(load) if tester_limited(load) => end(End::TesterLimited),
            Some(_) => end(End::Converged),
        }
    }
}

impl Search for BinarySearch {
    fn next_step(&self) -> Option<Step> {
        self.decide().ok()
    }

    fn record(&mut self, step: Step, outcome: Outcome) -> Verdict {
        let verdict = self.judge(outcome);
        let tally = self.loads.entry(step.load_pps).or_default();
        match verdict {
            Verdict::Pass => {
                tally.passes += 1;
                tally.confirmed += u32::from(step.confirms);
            }
            Verdict::Loss => tally.losses += 1,
            Verdict::TesterLimited => tally.tester_limited += 1,
        }
        self.trials.push(SearchTrial { step, outcome, verdict });
        verdict
    }
}

/// A load near the geometric mean of `low` and `high`, and strictly between them. `high - low` must be at least 2.
fn geometric_middle(low: u64, high: u64) -> u64 {
    let middle = (low as f64 * high as f64).sqrt() as u64;
    middle.clamp(low + 1, high - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use proptest::prelude::*;

    /// Runs a search in which `outcome` gives the outcome of each trial.
    fn search(config: SearchConfig, mut outcome: impl FnMut(Step) -> Outcome) -> (Found, BinarySearch) {
        let mut search = BinarySearch::new(config).unwrap();
        while let Some(step) = search.next_step() {
            let outcome = outcome(step);
            search.record(step, outcome);
        }
        (search.found().unwrap(), search)
    }
    fn device(capacity: u64, load: u64) -> Outcome {
        Outcome { sent: load, lost: load.saturating_sub(capacity), unsent: 0 }
    }
    fn strict(min: u64, max: u64) -> SearchConfig {
        SearchConfig { failures_needed: 1, max_trials: 60, ..SearchConfig::short(min, max) }
    }

    #[test]
    fn takes_about_six_seconds() {
        let (found, search) = search(SearchConfig::short(20_000, 1_000_000), |step| device(346_000, step.load_pps));
        let total: u64 = search.trials().iter().map(|trial| trial.step.duration.as_nanos()).sum();
        assert_eq!(found.end, End::Converged);
        assert!(total < 6_500_000_000, "{total}");
    }

    #[test]
    fn ends_say_what_they_are() {
        let config = strict(1_000, 1_000_000);
        let (found, run) = search(config, |step| device(2_000_000, step.load_pps));
        assert_eq!((found.lower_pps, found.upper_pps, found.end), (Some(1_000_000), None, End::MaximumPassed));
        assert_eq!(run.trials().len(), 3);
        let (found, _) = search(config, |step| device(10, step.load_pps));
        assert_eq!((found.lower_pps, found.upper_pps, found.end), (None, Some(1_000), End::MinimumFailed));
        let (found, _) = search(config, |step| {
            let sent = step.load_pps.min(300_000);
            Outcome { sent, lost: 0, unsent: step.load_pps - sent }
        });
        assert_eq!(found.end, End::TesterLimited);
        // The device is not to blame for what the tester did not send.
        let (found, _) = search(config, |step| Outcome { sent: 10, lost: 0, unsent: step.load_pps - 10 });
        assert_eq!((found.lower_pps, found.end), (None, End::TesterLimited));
        let (found, _) = search(SearchConfig { max_trials: 2, ..config }, |step| device(300_000, step.load_pps));
        assert_eq!((found.end, found.upper_pps), (End::GaveUp, Some(1_000_000)));
    }

    #[test]
    fn loss_inversion_is_taken_from_below() {
        // The device loses frames at 100-200 kpps and above 400 kpps, but not at 200-400 kpps.
        let inverted = |load: u64| {
            let bad = (100_000..200_000).contains(&load) || load > 400_000;
            Outcome { sent: load, lost: u64::from(bad), unsent: 0 }
        };
        let mut run = BinarySearch::new(strict(10_000, 1_000_000)).unwrap();
        let step = |load_pps| Step { load_pps, duration: Nanos::ZERO, confirms: false };
        for load in [1_000_000, 300_000, 150_000] {
            run.record(step(load), inverted(load));
        }
        assert_eq!(run.bounds(), (None, Some(150_000)));
        while let Some(step) = run.next_step() {
            run.record(step, inverted(step.load_pps));
        }
        let found = run.found().unwrap();
        assert!(found.lower_pps.unwrap() < 100_000 && found.lower_pps.unwrap() >= 94_000, "{found:?}");
    }

    #[test]
    fn a_failed_confirmation_lowers_the_result() {
        let mut failed = false;
        let (found, run) = search(strict(10_000, 1_000_000), |step| {
            let mut outcome = device(346_000, step.load_pps);
            if step.confirms && !failed {
                failed = true;
                outcome.lost = 1;
            }
            outcome
        });
        let first = run.trials().iter().find(|trial| trial.step.confirms).unwrap().step.load_pps;
        assert!(found.lower_pps.unwrap() < first && found.upper_pps == Some(first), "{found:?}");
        assert_eq!(found.end, End::Converged);
    }

    #[test]
    fn one_disturbance_is_forgiven_when_asked_to() {
        let mut n = 0;
        let (found, _) = search(SearchConfig::short(10_000, 1_000_000), |step| {
            n += 1;
            let mut outcome = device(346_000, step.load_pps);
            outcome.lost += u64::from(n % 5 == 0); // never the same load twice here
            outcome
        });
        let lower = found.lower_pps.unwrap();
        assert!((328_000..=346_000).contains(&lower), "{found:?}");
    }

    #[test]
    fn refuses_what_cannot_be_searched() {
        for config in [strict(0, 10), strict(10, 10), SearchConfig { width_ppm: 0, ..strict(1, 10) }] {
            assert!(BinarySearch::new(config).is_err());
        }
    }

    proptest! {
        #[test]
        fn finds_the_capacity_within_the_width(
            capacity in 2_000u64..900_000, width_ppm in 1_000u32..100_000, noise_ppm in 0u64..20_000, seed: u64,
        ) {
            let mut random = Random::new(seed);
            // In each trial, the capacity is lower by a random share of up to noise_ppm.
            let config = SearchConfig { width_ppm, max_trials: 200, ..strict(1_000, 1_000_000) };
            let (found, _) = search(config, |step| {
                device(capacity - capacity * random.up_to(noise_ppm) / 1_000_000, step.load_pps)
            });
            let lowest = (capacity - capacity * noise_ppm / 1_000_000) as f64;
            let lower = found.lower_pps.unwrap() as f64;
            prop_assert_eq!(found.end, End::Converged);
            prop_assert!(lower <= capacity as f64);
            prop_assert!(lower >= lowest * (1.0 - f64::from(width_ppm) / 1e6) - 2.0, "{} of {}", lower, lowest);
            prop_assert!(found.upper_pps.unwrap() as f64 > lowest);
        }

        #[test]
        fn always_ends(outcomes in proptest::collection::vec((0u64..3, 0u64..2), 30)) {
            let mut i = 0;
            let (found, run) = search(SearchConfig::short(10, 1_000_000), |_| {
                let (lost, unsent) = outcomes[i % outcomes.len()];
                i += 1;
                Outcome { sent: 2, lost: lost.min(2), unsent }
            });
            prop_assert!(run.trials().len() <= 24);
            if let (Some(lower), Some(upper)) = (found.lower_pps, found.upper_pps) {
                prop_assert!(lower < upper);
            }
        }
    }

    #[test]
    fn finds_each_simulated_device() {
        use crate::search::WarmedUp;
        use crate::search::devices::{Device, Kind, RANGE, Score, run};
        let quick = |kind| (SearchConfig::short(RANGE.0, RANGE.1), kind);
        let long = |kind| (SearchConfig::rfc2544(RANGE.0, RANGE.1), kind);
        let cold = Kind::Cold { for_s: 2.0 };
        for (config, kind) in [
            quick(Kind::Steady),
            quick(Kind::Noisy { every_s: 40.0 }),
            quick(Kind::Inverted),
            quick(cold),
            quick(Kind::Changing { share: 0.02 }),
            long(Kind::Steady),
            long(Kind::Inverted),
            long(cold),
        ] {
            let mut score = Score::default();
            let width = f64::from(config.width_ppm) / 1e6;
            for seed in 0..1_000 {
                let mut device = Device::new(kind, seed);
                let mut search = WarmedUp::new(BinarySearch::new(config).unwrap(), RANGE.1, Nanos::from_secs(2));
                run(&mut search, &mut device);
                let (lower, upper) = search.search().bounds();
                let bounds = (lower.map(|pps| pps as f64), upper.map(|pps| pps as f64));
                score.add(&device, &device.truths(0.0), bounds, width);
            }
            score.require(&format!("binary search, trials of {}, {kind:?}", config.trial));
        }
    }
}
