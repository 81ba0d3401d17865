//! Compares two results of `apus bench rfc2544`, and writes the document `apus.bench-compare/1`. Each repetition counts
//! as one sample; frames are not samples.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::PacketRate;

use super::result::{BackToBack, Repeated, Rfc2544Document, SizeResult};
use crate::document::Name;
use crate::host::Reading;
use crate::statistics::{mann_whitney, ratio_of_medians, smallest_p};

/// Name and version of the schema.
pub const COMPARE_SCHEMA: &str = "apus.bench-compare/1";
/// Significance level: a difference is significant if p is below 0.05.
const ALPHA: f64 = 0.05;
/// Minimum number of repetitions of each result for the U test to reach the significance level: with 4 and 4, the
/// smallest possible p is 0.029.
const LEAST: usize = 4;
const RESAMPLES: usize = 2_000;

units::named! {
    /// The quantities that are compared.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Compared {
        /// Throughput in frames per second.
        Throughput = "throughput_pps",
        /// Mean latency of the streams in ns.
        MeanLatency = "mean_latency_ns",
        /// Typical latency in ns.
        TypicalLatency = "typical_latency_ns",
        /// Worst case latency in ns.
        WorstCaseLatency = "worst_case_latency_ns",
        /// Longest burst without loss, in frames.
        BackToBack = "back_to_back_frames",
        /// Recovery time in ns.
        Recovery = "recovery_ns",
    }
}

impl Compared {
    /// The options with which `apus bench rfc2544` repeats the test of this quantity more often.
    fn repeated_by(self) -> &'static str {
        match self {
            Self::Throughput => "--searches",
            Self::MeanLatency | Self::TypicalLatency | Self::WorstCaseLatency => "--streams",
            Self::BackToBack => "--bursts",
            Self::Recovery => "without --quick, there are 20",
        }
    }
}

/// The JSON document of `apus bench compare`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareDocument {
    /// Version of Apus.
    pub apus: String,
    /// `apus.bench-compare/1`
    #[schemars(extend("const" = COMPARE_SCHEMA))]
    pub schema: String,
    /// Name of the first result.
    pub a: String,
    /// Name of the second result.
    pub b: String,
    /// Differences between the conditions of the two results. They may explain differences between the values.
    pub conditions: Vec<String>,
    /// One entry for each frame size and quantity that both results have.
    pub comparisons: Vec<Comparison>,
    /// Frame sizes that only one of the two results has.
    pub only_in_one: Vec<String>,
}

/// Comparison of one quantity at one frame size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The frame size.
    pub frames: String,
    /// The quantity.
    pub quantity: Name<Compared>,
    /// Median over the repetitions of the first result, in the unit of the quantity.
    pub a: f64,
    /// Whether `a` is only a lower bound, for example because the highest rate lost no frame.
    pub a_at_least: bool,
    /// Median over the repetitions of the second result, in the unit of the quantity.
    pub b: f64,
    /// Whether `b` is only a lower bound.
    pub b_at_least: bool,
    /// Number of repetitions of the first result.
    pub a_n: u64,
    /// Number of repetitions of the second result.
    pub b_n: u64,
    /// `b` divided by `a`; null if `a` is 0, or if one of the two is only a lower bound.
    pub ratio: Option<f64>,
    /// Lower end of the ratio's 95 % bootstrap confidence interval; null if there are too few repetitions, or if there
    /// is no ratio.
    pub ratio_ci95_low: Option<f64>,
    /// Upper end of the ratio's 95 % bootstrap confidence interval; null if there are too few repetitions, or if there
    /// is no ratio.
    pub ratio_ci95_high: Option<f64>,
    /// Two-sided p-value of the Mann-Whitney U test, corrected for the number of comparisons (Holm), or why there is
    /// none.
    pub p: Reading<f64>,
    /// Whether `p` is below 0.05. Unknown if a value is only a lower bound, or if the repetitions are too few for any
    /// difference to reach 0.05.
    pub significant: Reading<bool>,
}

/// Compares the result `b` with the result `a`. Each is given as its name and its document.
pub fn compare(a: (&str, &Rfc2544Document), b: (&str, &Rfc2544Document)) -> CompareDocument {
    let mut comparisons = Vec::new();
    let mut only_in_one = Vec::new();
    for size in &a.1.result.sizes {
        match b.1.result.sizes.iter().find(|other| other.frames == size.frames) {
            Some(other) => comparisons.extend(of_size(size, other)),
            None => only_in_one.push(format!("{} (only in {})", size.frames, a.0)),
        }
    }
    for size in &b.1.result.sizes {
        if a.1.result.sizes.iter().all(|other| other.frames != size.frames) {
            only_in_one.push(format!("{} (only in {})", size.frames, b.0));
        }
    }
    decide(&mut comparisons);
    CompareDocument {
        apus: env!("CARGO_PKG_VERSION").into(),
        schema: COMPARE_SCHEMA.into(),
        a: a.0.into(),
        b: b.0.into(),
        conditions: conditions((a.0, b.0), a.1, b.1),
        comparisons,
        only_in_one,
    }
}

fn of_size(a: &SizeResult, b: &SizeResult) -> Vec<Comparison> {
    let latency = |of: &dyn Fn(&super::LatencyAtThroughput) -> Option<Repeated>| {
        [a, b].map(|size| size.latency.value.as_ref().and_then(|latency| of(latency)))
    };
    let bursts = [a, b].map(|size| size.back_to_back.value.as_ref());
    let values = [
        (Compared::Throughput, [a, b].map(|size| size.throughput_pps.value.clone())),
        (Compared::MeanLatency, latency(&|latency| Some(latency.mean_ns.clone()))),
        (Compared::TypicalLatency, latency(&|latency| latency.typical_ns.value.clone())),
        (Compared::WorstCaseLatency, latency(&|latency| latency.worst_case_ns.value.clone())),
        (Compared::BackToBack, bursts.map(|found| found.map(|found| found.frames.clone()))),
        (Compared::Recovery, [a, b].map(|size| size.recovery_ns.value.clone())),
    ];
    let made = values.into_iter().filter_map(|(quantity, values)| {
        let [Some(first), Some(second)] = values else { return None };
        let at_least = match quantity {
            Compared::Throughput => [a.at_least, b.at_least],
            Compared::BackToBack => bursts.map(|found| found.is_some_and(BackToBack::is_lower_bound)),
            _ => [false, false],
        };
        Some(comparison(&a.frames, quantity, [&first, &second], at_least))
    });
    made.collect()
}

fn comparison(
    frames: &str,
    quantity: Compared,
    [a, b]: [&Repeated; 2],
    [a_at_least, b_at_least]: [bool; 2],
) -> Comparison {
    let (enough, bound) = (a.values.len() >= LEAST && b.values.len() >= LEAST, a_at_least || b_at_least);
    let test = (enough && !bound).then(|| mann_whitney(&a.values, &b.values)).flatten();
    let ratio = (enough && !bound).then(|| ratio_of_medians(&b.values, &a.values, RESAMPLES, 1)).flatten();
    let why = "a value marked >= is only a lower bound, so it is unknown which of the two is larger";
    Comparison {
        frames: frames.into(),
        quantity: Name::of(&quantity),
        a: a.median,
        a_at_least,
        b: b.median,
        b_at_least,
        a_n: a.values.len() as u64,
        b_n: b.values.len() as u64,
        ratio: (!bound && a.median != 0.0).then(|| b.median / a.median),
        ratio_ci95_low: ratio.map(|ratio| ratio.ci95_low),
        ratio_ci95_high: ratio.map(|ratio| ratio.ci95_high),
        p: Reading::or_unknown(test.map(|test| test.p), why),
        significant: Reading::unknown(why),
    }
}

/// Corrects the p-values for the number of comparisons, and decides about significance. A comparison whose repetitions
/// could not reach the significance level even if every difference were as clear as possible has no verdict.
fn decide(comparisons: &mut [Comparison]) {
    let mut values: Vec<&mut Comparison> =
        comparisons.iter_mut().filter(|one| !one.a_at_least && !one.b_at_least).collect();
    let family = values.len();
    let needed = (LEAST as u64..).find(|n| smallest_p(*n, *n) * (family as f64) < ALPHA).unwrap_or(u64::MAX);
    let too_few = |quantity: &Name<Compared>| {
        let how = Compared::ALL.into_iter().find(|one| Name::of(one) == *quantity).map_or("", Compared::repeated_by);
        let family = if family == 1 { "1 comparison".to_owned() } else { format!("{family} comparisons") };
        format!("too few repetitions for {family}: each side needs at least {needed} ({how})")
    };
    for one in values.iter_mut().filter(|one| one.p.value.is_none()) {
        (one.p, one.significant) = (Reading::unknown(too_few(&one.quantity)), Reading::unknown(too_few(&one.quantity)));
    }
    let mut tested: Vec<&mut Comparison> = values.into_iter().filter(|one| one.p.value.is_some()).collect();
    let seen = holm(tested.iter().filter_map(|one| one.p.value));
    let least = holm(tested.iter().map(|one| smallest_p(one.a_n, one.b_n)));
    for ((one, seen), least) in tested.iter_mut().zip(seen).zip(least) {
        one.p = Reading::known(seen);
        one.significant = match least < ALPHA {
            true => Reading::known(seen < ALPHA),
            false => Reading::unknown(too_few(&one.quantity)),
        };
    }
}

/// Corrects p-values for their number. S. Holm, Scandinavian Journal of Statistics 6, 1979.
fn holm(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut corrected: Vec<f64> = values.collect();
    let mut order: Vec<usize> = (0..corrected.len()).collect();
    order.sort_by(|x, y| corrected[*x].total_cmp(&corrected[*y]));
    let (count, mut least) = (order.len(), 0.0f64);
    for (rank, at) in order.into_iter().enumerate() {
        least = least.max(corrected[at] * (count - rank) as f64).min(1.0);
        corrected[at] = least;
    }
    corrected
}

fn conditions(names: (&str, &str), a: &Rfc2544Document, b: &Rfc2544Document) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            found.push(format!("{what}: {a} against {b}"));
        }
    };
    let text = |reading: &Reading<String>| reading.value.clone().unwrap_or_else(|| "unknown".into());
    let device = |of: &Rfc2544Document| of.setup.device.clone().unwrap_or_else(|| "not named".into());
    differ("device", device(a), device(b));
    differ("standard", a.result.standard.clone(), b.result.standard.clone());
    differ("traffic", a.setup.traffic.clone(), b.setup.traffic.clone());
    differ("flows", a.setup.flows.to_string(), b.setup.flows.to_string());
    differ("bidirectional", a.setup.bidirectional.to_string(), b.setup.bidirectional.to_string());
    differ("CPU", text(&a.host.cpu_model), text(&b.host.cpu_model));
    differ("kernel", text(&a.host.kernel), text(&b.host.kernel));
    differ("version of Apus", a.apus.clone(), b.apus.clone());
    for size in &a.result.sizes {
        let other = b.result.sizes.iter().find(|other| other.frames == size.frames);
        let rate =
            |of: &SizeResult| of.latency.value.as_ref().map(|latency| PacketRate::new(latency.rate_pps).to_string());
        if let Some((a, b)) = rate(size).zip(other.and_then(rate)) {
            differ(&format!("rate of the latency test at {}", size.frames), a, b);
        }
    }
    for (one, of, other) in [(names.0, a, b), (names.1, b, a)] {
        let only = of.result.deviations.iter().filter(|deviation| !other.result.deviations.contains(deviation));
        found.extend(only.map(|deviation| format!("only {one} deviates: {deviation}")));
    }
    found
}
