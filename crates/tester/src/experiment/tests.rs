use super::result::{About, ExperimentResult};
use super::*;
use crate::host::Reading;

/// A simulated device with known effects: factor 0 helps, factor 1 does nothing, factors 2 and 3 help only together.
/// Its latency also has noise and a drift, and an occasional run is disturbed.
struct Simulated {
    random: Random,
    clock: Nanos,
}

const GOOD: usize = 0;
const PAIR: (usize, usize) = (2, 3);
/// Duration of a run.
const RUN: Nanos = Nanos::from_millis(500);

impl Simulated {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x5eed), clock: Nanos::ZERO }
    }

    /// The latency of a run with the factors `on`, in us.
    fn run(&mut self, on: u32) -> f64 {
        let is = |factor: usize| f64::from(on >> factor & 1);
        let effect = -0.25 * is(GOOD) - 0.15 * is(PAIR.0) * is(PAIR.1);
        // A drift of 0.2 % per minute, as of a machine that warms up.
        let drift = 0.002 * (self.clock.as_nanos() as f64 / 60e9);
        let disturbed = if self.random.unit() < 0.02 { 0.3 * self.random.unit() } else { 0.0 };
        self.clock += RUN;
        100.0 * (effect + drift + disturbed + 0.03 * self.normal()).exp()
    }

    /// A random number from the standard normal distribution (Box-Muller method).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.random.unit().ln()).sqrt() * (std::f64::consts::TAU * self.random.unit()).cos()
    }
}

fn settings(design: Design, factors: &[&str], seed: u64) -> Settings {
    Settings {
        factors: factors.iter().map(|name| (*name).to_owned()).collect(),
        design,
        less_is_better: true,
        smallest: 0.03,
        alpha: 0.05,
        budget: Nanos::from_secs(3_600),
        seed,
    }
}

fn conduct(
    mut experiment: Experiment,
    mut value: impl FnMut(u32) -> Result<f64, String>,
    run: Nanos,
) -> (Experiment, Nanos) {
    let mut now = Nanos::ZERO;
    while let Some(step) = experiment.next(now) {
        now += run;
        experiment.record(value(step.on), now);
    }
    (experiment, now)
}

#[test]
fn all_are_ranked_rightly_in_ten_of_ten_seeds() {
    let truth = ((-0.25f64).exp() - 1.0) * 100.0;
    let mut covered = 0;
    for seed in 0..10 {
        let mut device = Simulated::new(seed);
        let factors = ["good", "neutral", "one", "other"];
        let experiment = Experiment::new(settings(Design::Factorial, &factors, seed)).unwrap();
        let (experiment, took) = conduct(experiment, |on| Ok(device.run(on)), RUN);
        let about = About { name: "simulated".into(), metric: "latency_p50_ns".into() };
        let result = ExperimentResult::new(&experiment, &about, Reading::unknown("simulated"), false);
        let ranking: Vec<(String, &str)> =
            result.ranking.iter().map(|ranked| (ranked.label(), ranked.verdict.as_str())).collect();
        let table = result.table();
        assert_eq!(ranking[0], ("good".into(), "helps"), "seed {seed}\n{table}");
        assert_eq!(ranking[1], ("one + other".into(), "helps"), "seed {seed}\n{table}");
        let mut rest: Vec<(String, &str)> = ranking[2..].to_vec();
        rest.sort();
        let nothing = |name: &str| (name.to_owned(), "no_difference");
        assert_eq!(
            rest,
            [nothing("neutral"), nothing("one (without other)"), nothing("other (without one)")],
            "seed {seed}\n{table}"
        );
        let neutral = result.ranking.iter().find(|ranked| ranked.label() == "neutral").unwrap();
        assert!(neutral.says.starts_with("no difference found; it is below "), "{}", neutral.says);
        assert!(neutral.smaller_than_percent.unwrap() < 3.0, "seed {seed}: decided means ruled out\n{table}");
        assert_eq!(result.ended, "decided", "seed {seed} after {took}\n{table}");
        assert!(result.noise_floor_is_sound, "seed {seed}\n{table}");
        let good = result.ranking[0].effect.value.unwrap();
        covered += usize::from(good.low_percent < truth && truth < good.high_percent);
    }
    assert!(covered >= 9, "the interval holds the truth {covered} times of 10");
}

#[test]
fn one_at_a_time_is_cheaper_and_blind_to_the_pair() {
    let mut device = Simulated::new(3);
    let factors = ["good", "neutral", "one", "other"];
    let experiment = Experiment::new(settings(Design::OneAtATime, &factors, 3)).unwrap();
    let (experiment, _) = conduct(experiment, |on| Ok(device.run(on)), RUN);
    let outcome = experiment.outcome();
    assert_eq!((&outcome.entries[0].factors, outcome.entries[0].verdict), (&vec![GOOD], Verdict::Helps));
    for entry in &outcome.entries[1..] {
        assert!(matches!(entry.verdict, Verdict::NoDifference { .. }), "{entry:?}");
    }
}

#[test]
fn nothing_is_found_where_nothing_is() {
    let mut found = 0;
    for seed in 0..40 {
        let mut device = Simulated::new(100 + seed);
        let experiment = Experiment::new(settings(Design::OneAtATime, &["a", "b", "c"], seed)).unwrap();
        let (experiment, _) = conduct(experiment, |_| Ok(device.run(0)), RUN);
        let wrong = |verdict| matches!(verdict, Verdict::Helps | Verdict::Hurts);
        found += usize::from(experiment.outcome().entries.iter().any(|entry| wrong(entry.verdict)));
    }
    assert!(found <= 4, "{found} of 40 experiments found an effect of nothing; 5 % would be 2");
}

#[test]
fn runs_are_mirrored_so_that_drift_cancels() {
    let mut experiment = Experiment::new(settings(Design::OneAtATime, &["a", "b"], 1)).unwrap();
    let mut steps = Vec::new();
    // Values with a drift of 1 % per run and no effect.
    for run in 0..12 + 2 * 4 * 4 {
        let step = experiment.next(Nanos::ZERO).unwrap();
        steps.push(step);
        experiment.record(Ok(100.0 * (0.01 * f64::from(run)).exp()), Nanos::ZERO);
    }
    assert!(steps[..12].iter().all(|step| step.on == 0 && step.replicate.is_none()), "the floor comes first");
    for replicate in steps[12..].chunks(8) {
        let on: Vec<u32> = replicate.iter().map(|step| step.on).collect();
        let back: Vec<u32> = on.iter().rev().copied().collect();
        assert_eq!(on, back);
    }
    for entry in experiment.outcome().entries {
        assert!(entry.found.unwrap().effect.abs() < 1e-9, "{entry:?}");
    }
}

#[test]
fn the_budget_ends_it_between_replicates() {
    let mut settings = settings(Design::OneAtATime, &["a"], 1);
    settings.budget = Nanos::from_secs(40);
    let mut device = Simulated::new(9);
    let (experiment, took) = conduct(Experiment::new(settings).unwrap(), |_| Ok(device.run(0)), Nanos::from_secs(1));
    assert_eq!(experiment.ended(), Some(Ended::Budget));
    assert!(took <= Nanos::from_secs(40) && experiment.outcome().replicates == 4, "{took}");
    assert_eq!(experiment.runs().len(), 12 + 4 * 6);
}

/// Two replicates gave bounds such as 23775726087278600192 %, with exit status 0.
#[test]
fn too_few_replicates_are_no_result() {
    let mut settings = settings(Design::OneAtATime, &["a"], 1);
    settings.budget = Nanos::from_secs(12 + 3 * 6 + 1);
    let mut device = Simulated::new(9);
    let (experiment, _) = conduct(Experiment::new(settings).unwrap(), |_| Ok(device.run(0)), Nanos::from_secs(1));
    let about = About { name: "n".into(), metric: "latency_p50_ns".into() };
    let result = ExperimentResult::new(&experiment, &about, Reading::unknown("simulated"), false);
    assert_eq!((result.replicates, result.is_judged()), (3, false));
    assert_eq!((result.ranking[0].effect.value, result.ranking[0].smaller_than_percent), (None, None));
    assert!(result.table().contains("too few replicates: at least 4 are needed"), "{}", result.table());
}

#[test]
fn runs_that_vary_wildly_are_no_result() {
    let mut settings = settings(Design::OneAtATime, &["a"], 1);
    settings.budget = Nanos::from_secs(12 + 4 * 6 + 1);
    let mut device = Simulated::new(9);
    let wild = |_: u32| Ok((20.0 * device.normal()).exp());
    let (experiment, _) = conduct(Experiment::new(settings).unwrap(), wild, Nanos::from_secs(1));
    let about = About { name: "n".into(), metric: "latency_p50_ns".into() };
    let result = ExperimentResult::new(&experiment, &about, Reading::unknown("simulated"), false);
    assert_eq!((result.replicates, result.is_judged(), result.noise_floor_is_sound), (4, false, false));
    let table = result.table();
    assert!(table.contains("over +1000)") && table.contains("WARNING: do not trust"), "{table}");
    assert!(table.contains("a difference of 100 % could be undetected"), "{table}");
}

#[test]
fn failed_runs_are_tried_again() {
    let mut n = 0;
    let mut device = Simulated::new(1);
    let fail_some = |on: u32| {
        n += 1;
        if n % 9 == 0 { Err("no frame came back".to_owned()) } else { Ok(device.run(on)) }
    };
    let mut settings = settings(Design::OneAtATime, &["good"], 1);
    settings.budget = Nanos::from_secs(600);
    let (experiment, _) = conduct(Experiment::new(settings.clone()).unwrap(), fail_some, RUN);
    assert!(experiment.outcome().replicates >= 4 && !experiment.failures.is_empty());
    assert_eq!(experiment.outcome().entries[0].verdict, Verdict::Helps);
    let (experiment, _) = conduct(Experiment::new(settings).unwrap(), |_| Err("no frame came back".into()), RUN);
    assert_eq!((experiment.ended(), experiment.outcome().entries[0].verdict), (Some(Ended::Failed), Verdict::Unknown));
}

/// Such runs were repeated, so only those with a value above 0 were compared.
#[test]
fn a_value_of_zero_ends_it() {
    for value in [0.0, -1.0] {
        let experiment = Experiment::new(settings(Design::OneAtATime, &["good"], 1)).unwrap();
        let (experiment, _) = conduct(experiment, |_| Ok(value), RUN);
        assert_eq!((experiment.ended(), experiment.runs().len()), (Some(Ended::Zero), 1));
        assert!(experiment.failures[0].contains("choose another metric"), "{:?}", experiment.failures);
    }
}

#[test]
fn wrong_settings_are_refused() {
    let wrong = |change: fn(&mut Settings)| {
        let mut settings = settings(Design::Factorial, &["a", "b"], 1);
        change(&mut settings);
        Experiment::new(settings).is_err()
    };
    assert!(wrong(|s| s.smallest = 0.0) && wrong(|s| s.alpha = 1.0) && wrong(|s| s.factors.clear()));
    assert!(wrong(|s| s.factors.truncate(1)), "a factorial design needs two");
}

#[test]
fn the_document_is_as_its_schema_says() {
    let mut device = Simulated::new(1);
    let experiment = Experiment::new(settings(Design::OneAtATime, &["good", "<b>"], 1)).unwrap();
    let (experiment, _) = conduct(experiment, |on| Ok(device.run(on & 1)), RUN);
    let about = About { name: "n".into(), metric: "latency_p50_ns".into() };
    let result = ExperimentResult::new(&experiment, &about, Reading::unknown("simulated"), true);
    let schema = serde_json::to_value(schemars::schema_for!(ExperimentResult)).unwrap();
    let document = serde_json::to_value(&result).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    let html = crate::report::render(&result.report());
    assert!(html.contains("Ranking") && html.contains("&lt;b&gt;"), "{html}");
    assert_eq!(result.ended, "interrupted");
}
