//! Tests of MLRsearch on simulated devices of known capacity, and comparisons with the reference controller of the
//! RFC's authors.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::*;
use crate::search::WarmedUp;
use crate::search::devices::{Device, Kind, RANGE, Score, run};

const SEEDS: u64 = 1_000;
const KINDS: [Kind; 5] = [
    Kind::Steady,
    Kind::Noisy { every_s: 5.0 },
    Kind::Inverted,
    Kind::Cold { for_s: 2.0 },
    Kind::Changing { share: 0.003 },
];

fn config(goals: Vec<Goal>) -> MlrConfig {
    MlrConfig { min_pps: RANGE.0, max_pps: RANGE.1, goals, longest: Nanos::from_secs(100_000) }
}

/// Runs the goals of `preset` on 1,000 devices of a kind. Scores each goal on each device.
fn score(preset: Preset, kind: Kind) {
    let mut scores: Vec<Score> = preset.goals().iter().map(|_| Score::default()).collect();
    for seed in 0..SEEDS {
        let mut device = Device::new(kind, seed);
        let search = MlrSearch::new(config(preset.goals())).unwrap();
        let mut search = WarmedUp::new(search, RANGE.1, Nanos::from_secs(2));
        run(&mut search, &mut device);
        assert!(!search.search().gave_up());
        for (result, score) in search.search().results().iter().zip(&mut scores) {
            let truths = device.truths(ratio(result.goal.loss_ratio_ppm));
            score.add(&device, &truths, (result.lower_pps, result.upper_pps), ratio(result.goal.width_ppm));
        }
    }
    for (goal, score) in preset.goals().iter().zip(scores) {
        score.require(&format!("MLRsearch {} {kind:?}", goal.code()));
    }
}

#[test]
fn csit_goals_find_each_device() {
    for kind in KINDS {
        score(Preset::Csit, kind);
    }
}

#[test]
fn an_rfc_2544_goal_finds_each_device_that_does_not_lose_at_random() {
    for kind in [Kind::Steady, Kind::Inverted, Kind::Cold { for_s: 2.0 }, Kind::Changing { share: 0.003 }] {
        score(Preset::Rfc2544, kind);
    }
}

#[test]
fn tst009_forgives_a_disturbance() {
    // One disturbance every 2,000 s affects 3 % of the trials of 60 s.
    for kind in [Kind::Steady, Kind::Noisy { every_s: 2_000.0 }] {
        score(Preset::Tst009, kind);
    }
}

#[test]
fn ends_of_the_range_are_irregular_results() {
    let step = |capacity: f64| {
        let mut search = MlrSearch::new(config(Preset::Csit.goals())).unwrap();
        while let Some(step) = search.next_step() {
            let sent = step.load_pps;
            let lost = (sent as f64 - capacity).max(0.0) as u64;
            search.record(step, Outcome { sent, lost, unsent: 0 });
        }
        search.results()
    };
    for result in step(1e9) {
        assert_eq!((result.lower_pps, result.upper_pps), (Some(2_000_000.0), None));
        assert_eq!(result.throughput_pps, Some(2_000_000.0));
    }
    for result in step(100.0) {
        assert_eq!((result.lower_pps, result.upper_pps, result.throughput_pps), (None, Some(10_000.0), None));
    }
}

#[test]
fn gives_up_in_time_and_keeps_what_it_knows() {
    let mut search =
        MlrSearch::new(MlrConfig { longest: Nanos::from_secs(20), ..config(Preset::Csit.goals()) }).unwrap();
    run(&mut search, &mut Device::new(Kind::Steady, 1));
    assert!(search.gave_up() && search.results().iter().all(|result| !result.reached));
    assert!(search.trials().len() >= 20);
}

#[test]
fn invalid_goals_are_refused() {
    let refused = |goal: Goal| MlrSearch::new(config(vec![goal])).unwrap_err().to_string();
    assert!(refused(Goal { exceed_ratio_ppm: 1_000_000, ..Goal::RFC2544 }).contains("below 100 %"));
    assert!(refused(Goal { duration_sum: Nanos::from_secs(1), ..Goal::RFC2544 }).contains("final trial"));
    assert!(refused(Goal { width_ppm: 0, ..Goal::RFC2544 }).contains("width"));
    assert!(MlrSearch::new(config(Vec::new())).is_err());
}

/// The reference controller in Python, which asks this process for each trial.
struct Reference(Child);

impl Reference {
    /// Starts the controller. If the package is not installed, prints that the test is skipped, and returns `None`.
    fn start() -> Option<Self> {
        let home = std::env::var("HOME").unwrap_or_default();
        let installed = format!("{home}/.cache/apus/mlrsearch/bin/python3");
        let python = if std::path::Path::new(&installed).exists() { installed } else { "python3".into() };
        let has = Command::new(&python).args(["-c", "import MLRsearch"]).stderr(Stdio::null()).status();
        if !has.is_ok_and(|status| status.success()) {
            testkit::skip("the Python package MLRsearch is not installed (tools/setup.sh ci)");
            return None;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/mlrsearch.py");
        let child = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Some(Self(child.unwrap()))
    }

    /// Searches with `goals` on `device`. Returns lower bound, upper bound and conditional throughput of each goal.
    fn search(&mut self, goals: &[Goal], device: &mut Device) -> Vec<[Option<f64>; 3]> {
        let goals: Vec<Value> = goals
            .iter()
            .map(|goal| {
                json!({
                    "loss_ratio_ppm": goal.loss_ratio_ppm,
                    "exceed_ratio_ppm": goal.exceed_ratio_ppm,
                    "width_ppm": goal.width_ppm,
                    "initial_trial_ns": goal.initial_trial.as_nanos(),
                    "final_trial_ns": goal.final_trial.as_nanos(),
                    "duration_sum_ns": goal.duration_sum.as_nanos(),
                })
            })
            .collect();
        self.say(&json!({ "min_pps": RANGE.0, "max_pps": RANGE.1, "goals": goals }));
        let mut lines = BufReader::new(self.0.stdout.take().unwrap());
        let results = loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the reference ended early");
            let said: Value = serde_json::from_str(&line).unwrap();
            if let Some(results) = said["results"].as_array() {
                let numbers =
                    |result: &Value| ["lower_pps", "upper_pps", "throughput_pps"].map(|key| result[key].as_f64());
                break results.iter().map(numbers).collect();
            }
            let step = Step {
                load_pps: said["load_pps"].as_u64().unwrap(),
                duration: Nanos::from_nanos(said["duration_ns"].as_u64().unwrap()),
                confirms: false,
            };
            let outcome = device.run(step);
            self.say(&json!({ "sent": outcome.sent, "lost": outcome.lost }));
        };
        // The buffer is empty, because the reference writes only when it is asked.
        assert!(lines.buffer().is_empty());
        self.0.stdout = Some(lines.into_inner());
        results
    }

    fn say(&mut self, what: &Value) {
        let stdin = self.0.stdin.as_mut().unwrap();
        writeln!(stdin, "{what}").unwrap();
        stdin.flush().unwrap();
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn agrees_with_the_authors_controller_on_every_seed() {
    let Some(mut reference) = Reference::start() else { return };
    let mut sets = vec![Preset::Rfc2544.goals(), Preset::Tst009.goals(), Preset::Csit.goals()];
    sets.push(vec![
        Goal { width_ppm: 20_000, ..Goal::RFC2544 },
        Goal { loss_ratio_ppm: 1_000, exceed_ratio_ppm: 200_000, ..Goal::TST009 },
        Goal { width_ppm: 10_000, ..Goal::CSIT_PDR },
    ]);
    // The most difficult devices for a search: their losses depend on all earlier trials.
    let kinds = [
        Kind::Noisy { every_s: 2.0 },
        Kind::Noisy { every_s: 60.0 },
        Kind::Inverted,
        Kind::Changing { share: 0.05 },
        Kind::Cold { for_s: 20.0 },
    ];
    let mut compared = 0;
    for seed in 0..200u64 {
        let (kind, goals) = (kinds[seed as usize % kinds.len()], &sets[seed as usize / kinds.len() % sets.len()]);
        let mut device = Device::new(kind, seed);
        let theirs = reference.search(goals, &mut device);
        let mut ours = Device::new(kind, seed);
        let mut search = MlrSearch::new(config(goals.clone())).unwrap();
        run(&mut search, &mut ours);
        assert_eq!(ours.trials, device.trials, "number of trials, seed {seed} {kind:?}");
        for (result, theirs) in search.results().iter().zip(theirs) {
            let same = [result.lower_pps, result.upper_pps, result.throughput_pps];
            for (ours, theirs) in same.into_iter().zip(theirs) {
                let equal = match (ours, theirs) {
                    (Some(a), Some(b)) => (a - b).abs() <= b * 1e-12,
                    (a, b) => a == b,
                };
                assert!(equal, "seed {seed} {kind:?} {}: {same:?} against {theirs:?}", result.goal.code());
            }
            compared += 1;
        }
    }
    println!("{compared} goals on 200 seeds: the same bounds, throughput and number of trials");
}
