//! Compares two sets of measurements, term by term.
//!
//! Each round of a profile gives one median and one 99th percentile. These values are compared with an exact
//! Mann-Whitney test. The result also contains the ratio of their medians and its bootstrap interval. With many terms,
//! some differ by chance, so p is adjusted for the number of comparisons (Holm, "A simple sequentially rejective
//! multiple test procedure", 1979). All rounds of one profile share the same boot, hour and neighbours. So a difference
//! found here is a difference between two occasions. To show that two *settings* differ, measure more profiles of each.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tester::host::Reading;
use tester::quantile::minimum_samples;
use tester::statistics::{mann_whitney, median, ratio_of_medians};
use units::Quantile;

use crate::conditions::Conditions;
use crate::measured::{Measured, Name, Round};
use crate::observe::cpu_list;

/// Largest adjusted p-value at which a difference counts as significant.
pub const SIGNIFICANT: f64 = 0.05;
/// Number of bootstrap resamples. The seed is fixed, so that the same profiles give the same numbers.
const RESAMPLES: usize = 2_000;
const SEED: u64 = 1;
/// The compared quantiles.
const QUANTITIES: [Quantile; 2] = [Quantile::P50, Quantile::P99];

/// Comparison of one quantity of one term between the sets A and B.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TermComparison {
    /// The probe that measured the term.
    pub probe: Name,
    /// Variant of the probe, such as `clock_nanosleep`.
    pub variant: String,
    /// Name of the term, such as `lateness`.
    pub term: String,
    /// The compared quantile of each round, `p50` or `p99`, from the back-filled series if the term has one.
    pub quantity: String,
    /// Number of rounds in A that have enough samples for the quantity.
    pub a_rounds: u64,
    /// Number of rounds in B that have enough samples for the quantity.
    pub b_rounds: u64,
    /// Median of the quantity over the rounds of A, in nanoseconds; null without rounds.
    pub a_ns: Option<f64>,
    /// Median of the quantity over the rounds of B, in nanoseconds; null without rounds.
    pub b_ns: Option<f64>,
    /// `b_ns` divided by `a_ns`; null if either set has fewer than six rounds.
    pub ratio: Option<f64>,
    /// Lower end of the 95 % confidence interval of `ratio`; null if `ratio` is null.
    pub ratio_low: Option<f64>,
    /// Upper end of the 95 % confidence interval of `ratio`; null if `ratio` is null.
    pub ratio_high: Option<f64>,
    /// Two-sided p-value of the Mann-Whitney test, 0 to 1; null without rounds.
    pub p: Option<f64>,
    /// `p` adjusted for the number of compared quantities (Holm); null if `p` is null.
    pub p_adjusted: Option<f64>,
    /// What the test shows.
    pub verdict: Verdict,
}

/// What a comparison shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The quantity is significantly longer in B than in A.
    Longer,
    /// The quantity is significantly shorter in B than in A.
    Shorter,
    /// No significant difference was found. More rounds might still show one.
    NotShown,
    /// There are too few rounds to show any difference.
    TooFewRounds,
    /// Too many rounds have too few samples for the quantile. More rounds do not help, but longer ones do.
    TooFewSamples,
    /// The term is only in A.
    OnlyInA,
    /// The term is only in B.
    OnlyInB,
}

/// Compares all terms of two sets of measurements. Terms that only one set has are listed with [`Verdict::OnlyInA`] or
/// [`Verdict::OnlyInB`].
pub fn compare(a: &[Measured], b: &[Measured]) -> Vec<TermComparison> {
    let mut all = Vec::new();
    for of_a in a {
        let of_b = b.iter().find(|other| other.probe == of_a.probe && other.variant == of_a.variant);
        for term in &of_a.terms {
            let other = of_b.and_then(|of_b| of_b.terms.iter().find(|other| other.name == term.name));
            for quantity in QUANTITIES {
                all.push(match other {
                    Some(other) => both(of_a, &term.name, quantity, (&term.rounds, &other.rounds)),
                    None => one(of_a, &term.name, quantity, &term.rounds, Verdict::OnlyInA),
                });
            }
        }
    }
    for of_b in b {
        let of_a = a.iter().find(|other| other.probe == of_b.probe && other.variant == of_b.variant);
        let is_new = |name: &str| of_a.is_none_or(|of_a| of_a.terms.iter().all(|term| term.name != name));
        for term in of_b.terms.iter().filter(|term| is_new(&term.name)) {
            for quantity in QUANTITIES {
                all.push(one(of_b, &term.name, quantity, &term.rounds, Verdict::OnlyInB));
            }
        }
    }
    adjust(&mut all);
    all
}

/// Lists in words how the settings and conditions of the two sets differ. Each difference may be the cause of differing
/// latencies. Empty if nothing differs.
pub fn differences(a: &[Measured], b: &[Measured]) -> Vec<String> {
    let mut found = Vec::new();
    for of_a in a {
        let Some(of_b) = b.iter().find(|other| other.probe == of_a.probe && other.variant == of_a.variant) else {
            continue;
        };
        let names: BTreeSet<&String> = of_a.settings.keys().chain(of_b.settings.keys()).collect();
        for name in names {
            let [a, b] = [of_a, of_b].map(|of| of.settings.get(name).map_or("-", String::as_str));
            if a != b {
                found.push(format!("{} {name}: {a} and {b}", of_a.probe));
            }
        }
        let pairs = conditions(&of_a.conditions).into_iter().zip(conditions(&of_b.conditions));
        let differing = pairs.filter(|((_, a), (_, b))| a != b);
        found.extend(differing.map(|((name, a), (_, b))| format!("{name}: {a} and {b}")));
    }
    found.sort();
    found.dedup();
    found
}

/// Each condition that may explain a difference, with its name.
fn conditions(of: &Conditions) -> [(&'static str, String); 12] {
    let Conditions {
        cpus,
        scheduling,
        timer_slack_ns,
        memory_locked,
        cpu_dma_latency_us,
        sched_rt_runtime_us,
        sched_rt_period_us,
        clocksource,
        smt_active,
        transparent_hugepages,
        load,
        virtualised,
        // These differ between any two measurements.
        load_average: _,
        steal_ms: _,
    } = of;
    let class = scheduling.value.as_ref().map_or_else(unknown, |class| match class.rt_priority {
        0 => class.policy.clone(),
        priority => format!("{} {priority}", class.policy),
    });
    [
        ("measured CPUs", cpu_list(cpus)),
        ("scheduling", class),
        ("timer slack", shown(timer_slack_ns, "ns")),
        ("memory locked", shown(memory_locked, "")),
        ("cpu_dma_latency", shown(cpu_dma_latency_us, "us")),
        ("sched_rt_runtime_us", shown(sched_rt_runtime_us, "")),
        ("sched_rt_period_us", shown(sched_rt_period_us, "")),
        ("clock source", shown(clocksource, "")),
        ("SMT", shown(smt_active, "")),
        ("transparent huge pages", shown(transparent_hugepages, "")),
        ("load", load.clone()),
        ("virtual machine", shown(virtualised, "")),
    ]
}

fn shown<T: fmt::Display>(of: &Reading<T>, unit: &str) -> String {
    of.value.as_ref().map_or_else(unknown, |value| format!("{value}{unit}"))
}

fn unknown() -> String {
    "not known".into()
}

fn value(round: &Round, quantity: Quantile) -> Option<u64> {
    if quantity == Quantile::P50 { round.p50_ns } else { round.p99_ns }
}

fn values(rounds: &[Round], quantity: Quantile) -> Vec<f64> {
    rounds.iter().filter_map(|round| value(round, quantity)).map(|ns| ns as f64).collect()
}

/// Whether a round has no value because it has too few samples.
fn lacks_samples(rounds: &[Round], quantity: Quantile) -> bool {
    let lacks = |round: &Round| value(round, quantity).is_none() && round.count < minimum_samples(quantity);
    rounds.iter().any(lacks)
}

fn both(of: &Measured, term: &str, quantity: Quantile, (a, b): (&[Round], &[Round])) -> TermComparison {
    let verdict = match lacks_samples(a, quantity) || lacks_samples(b, quantity) {
        true => Verdict::TooFewSamples,
        false => Verdict::TooFewRounds,
    };
    let (a, b) = (values(a, quantity), values(b, quantity));
    let test = mann_whitney(&b, &a);
    let ratio = ratio_of_medians(&b, &a, RESAMPLES, SEED);
    TermComparison {
        probe: of.probe,
        variant: of.variant.clone(),
        term: term.into(),
        quantity: quantity.to_string(),
        a_rounds: a.len() as u64,
        b_rounds: b.len() as u64,
        a_ns: median(&a),
        b_ns: median(&b),
        ratio: ratio.map(|ratio| ratio.ratio),
        ratio_low: ratio.map(|ratio| ratio.ci95_low),
        ratio_high: ratio.map(|ratio| ratio.ci95_high),
        p: test.map(|test| test.p),
        p_adjusted: None,
        // What it is if nothing can be shown.
        verdict,
    }
}

fn one(of: &Measured, term: &str, quantity: Quantile, rounds: &[Round], verdict: Verdict) -> TermComparison {
    let (values, in_a) = (values(rounds, quantity), verdict == Verdict::OnlyInA);
    let n = values.len() as u64;
    TermComparison {
        a_rounds: if in_a { n } else { 0 },
        b_rounds: if in_a { 0 } else { n },
        a_ns: median(&values).filter(|_| in_a),
        b_ns: median(&values).filter(|_| !in_a),
        verdict,
        ..both(of, term, quantity, (&[], &[]))
    }
}

/// Holm's adjustment: multiplies the smallest p by the number of tests, the next one by one less, and so on. An
/// adjusted p is never below that of a smaller p.
fn adjust(all: &mut [TermComparison]) {
    let mut order: Vec<usize> = (0..all.len()).filter(|n| all[*n].p.is_some()).collect();
    order.sort_by(|a, b| all[*a].p.unwrap_or(1.0).total_cmp(&all[*b].p.unwrap_or(1.0)));
    let (mut left, mut last) = (order.len(), 0.0f64);
    let tests = order.len() as f64;
    for n in order {
        let of = &mut all[n];
        let p = of.p.unwrap_or(1.0);
        last = last.max((p * left as f64).min(1.0));
        left -= 1;
        of.p_adjusted = Some(last);
        of.verdict = if least_p(of.a_rounds, of.b_rounds) * tests > SIGNIFICANT {
            of.verdict
        } else if last > SIGNIFICANT {
            Verdict::NotShown
        } else if of.b_ns > of.a_ns {
            Verdict::Longer
        } else {
            Verdict::Shorter
        };
    }
}

/// The smallest two-sided p that this many rounds can give: 2 divided by the number of ways to assign the rounds to two
/// sets of these sizes.
fn least_p(a: u64, b: u64) -> f64 {
    let choices = (1..=b).fold(1.0, |product, n| product * (a + n) as f64 / n as f64);
    (2.0 / choices).min(1.0)
}

/// Number of rounds that each set needs so that one of `tests` tests can be significant after Holm's adjustment; at
/// most 60.
pub fn rounds_needed(tests: usize) -> u64 {
    (1..60).find(|rounds| least_p(*rounds, *rounds) * tests as f64 <= SIGNIFICANT).unwrap_or(60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Conditions;
    use crate::detail::Detail;
    use crate::detail::switch::{SwitchDetail, Via};
    use crate::measured::{Counter, Term};
    use crate::record::Recorder;
    use std::collections::BTreeMap;
    use std::path::Path;
    use tester::host::Reading;
    use units::Nanos;

    /// A measurement of a term for each list of rounds, in microseconds.
    fn measured(terms: &[(&str, &[u64])]) -> Measured {
        let term = |(name, rounds): &(&str, &[u64])| {
            let mut recorder = Recorder::new();
            rounds.iter().for_each(|us| recorder.record(Nanos::from_micros(*us)));
            let round =
                |us: &u64| Round { count: 1000, p50_ns: Some(us * 1_000), p99_ns: Some(us * 2_000), max_ns: None };
            let mut term = Term::new(*name, recorder.series(None), None, None);
            term.rounds = rounds.iter().map(round).collect();
            term
        };
        Measured {
            probe: Name::Switch,
            variant: "futex".into(),
            settings: BTreeMap::from([("cpu".to_owned(), "1".to_owned())]),
            counter: Counter { counts: String::new(), resolution_ns: 1, highest_ns: 1, blind_spots: Vec::new() },
            overhead: Vec::new(),
            conditions: Conditions::of_this_thread(Path::new("/nonexistent"), &[1], &Reading::known(true), "none"),
            duration_ns: Some(1),
            interrupted: false,
            terms: terms.iter().map(term).collect(),
            detail: Detail::Switch(SwitchDetail { via: Via::Futex.into(), same_cpu: true, pause_ns: 1 }),
            exceeded: None,
            marks: Vec::new(),
        }
    }

    #[test]
    fn a_clear_difference_is_shown_and_noise_is_not() {
        let a = measured(&[("x", &[10, 11, 12, 13, 14, 15, 16]), ("y", &[10, 12, 14, 16, 18, 20, 22])]);
        let b = measured(&[("x", &[30, 31, 32, 33, 34, 35, 36]), ("y", &[11, 13, 15, 17, 19, 21, 9])]);
        let found = compare(&[a], &[b]);
        assert_eq!(found.len(), 4);
        let x = &found[0];
        assert_eq!((x.term.as_str(), x.quantity.as_str(), x.verdict), ("x", "p50", Verdict::Longer));
        assert!((x.p.unwrap() - 2.0 / 3432.0).abs() < 1e-9 && x.p_adjusted.unwrap() > x.p.unwrap());
        assert!((x.ratio.unwrap() - 33.0 / 13.0).abs() < 1e-9 && x.ratio_low.unwrap() > 1.5);
        assert_eq!(found[2].verdict, Verdict::NotShown);
    }

    #[test]
    fn too_few_rounds_are_not_no_difference() {
        let a = measured(&[("x", &[10, 11, 12])]);
        let b = measured(&[("x", &[30, 31, 32])]);
        let found = compare(&[a], &[b]);
        assert!(found.iter().all(|of| of.verdict == Verdict::TooFewRounds && of.ratio.is_none()), "{found:?}");
    }

    #[test]
    fn rounds_that_are_too_short_are_not_too_few() {
        let mut a = measured(&[("x", &[10, 11, 12, 13, 14, 15, 16])]);
        let b = measured(&[("x", &[30, 31, 32, 33, 34, 35, 36])]);
        let verdicts = |a: &Measured| {
            compare(std::slice::from_ref(a), std::slice::from_ref(&b)).iter().map(|of| of.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&a), [Verdict::Longer, Verdict::Longer]);
        // 367 samples have a median, and no 99th percentile.
        for round in &mut a.terms[0].rounds {
            (round.count, round.p99_ns) = (367, None);
        }
        assert_eq!(verdicts(&a), [Verdict::Longer, Verdict::TooFewSamples]);
        // One good round is still too few.
        (a.terms[0].rounds[0].count, a.terms[0].rounds[0].p99_ns) = (368, Some(20_000));
        assert_eq!(verdicts(&a), [Verdict::Longer, Verdict::TooFewSamples]);
        // Refused for another reason: more rounds help.
        a.terms[0].rounds.iter_mut().for_each(|round| round.count = 1_000);
        assert_eq!(verdicts(&a), [Verdict::Longer, Verdict::TooFewRounds]);
    }

    #[test]
    fn profiles_of_the_default_rounds_can_differ() {
        assert_eq!([1, 2, 85, 86, 126, 400].map(rounds_needed), [4, 5, 7, 8, 8, 9]);
        let rounds = u64::from(crate::platform::ROUNDS);
        assert!(rounds_needed(400) <= rounds);
        // 200 terms with two quantiles each. One term takes longer.
        let names: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let (low, high): (Vec<u64>, Vec<u64>) = ((10..10 + rounds).collect(), (90..90 + rounds).collect());
        let set = |last: &[u64]| {
            let of = |(n, name)| (String::as_str(name), if n == 199 { last } else { low.as_slice() });
            measured(&names.iter().enumerate().map(of).collect::<Vec<_>>())
        };
        let found = compare(&[set(&low)], &[set(&high)]);
        assert_eq!(found.iter().filter(|of| of.verdict == Verdict::Longer).count(), 2);
        assert_eq!(found.iter().filter(|of| of.verdict == Verdict::NotShown).count(), 398);
    }

    #[test]
    fn what_stands_in_one_only_is_listed() {
        let found = compare(&[measured(&[("x", &[1, 2])])], &[measured(&[("y", &[3])])]);
        let verdicts: Vec<Verdict> = found.iter().map(|of| of.verdict).collect();
        assert_eq!(verdicts, [Verdict::OnlyInA, Verdict::OnlyInA, Verdict::OnlyInB, Verdict::OnlyInB]);
        assert_eq!((found[0].a_ns, found[0].b_ns, found[2].b_ns), (Some(1_500.0), None, Some(3_000.0)));
    }

    #[test]
    fn differences_in_the_conditions_are_named() {
        let a = measured(&[("x", &[1])]);
        let mut b = a.clone();
        assert!(differences(std::slice::from_ref(&a), std::slice::from_ref(&b)).is_empty());
        b.settings.insert("cpu".into(), "2".into());
        b.settings.insert("priority".into(), "50".into());
        b.conditions.load = "cpu".into();
        b.conditions.memory_locked = Reading::known(false);
        b.conditions.smt_active = Reading::known(true);
        b.conditions.transparent_hugepages = Reading::known("never".into());
        b.conditions.sched_rt_period_us = Reading::known(500_000);
        b.conditions.virtualised = Reading::known(true);
        b.conditions.load_average = Reading::known("9 9 9".into());
        let expected = [
            "SMT: not known and true",
            "load: none and cpu",
            "memory locked: true and false",
            "sched_rt_period_us: not known and 500000",
            "switch cpu: 1 and 2",
            "switch priority: - and 50",
            "transparent huge pages: not known and never",
            "virtual machine: not known and true",
        ];
        assert_eq!(differences(std::slice::from_ref(&a), std::slice::from_ref(&b)), expected);
    }

    #[test]
    fn the_smallest_p_as_tabulated() {
        for (a, b, p) in [(3, 3, 0.1), (4, 4, 2.0 / 70.0), (7, 7, 2.0 / 3432.0), (1, 1, 1.0), (0, 5, 1.0)] {
            assert!((least_p(a, b) - p).abs() < 1e-12, "{a} {b}");
        }
    }
}
