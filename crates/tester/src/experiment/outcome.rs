//! The outcome of an experiment: a ranked list of the factors that help, have no effect, or hurt.

use super::design::Kind;
use super::student::Mean;
use super::{Experiment, LOOKS};

/// The outcome of the runs so far, or of all runs if the experiment has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The factors and pairs of factors, the most helpful first.
    pub entries: Vec<Entry>,
    /// Difference between the two baselines (runs with all factors off); `None` if there are too few runs.
    pub floor: Option<Found>,
    /// Whether the two baselines differ by no more than chance, and by less than [`WIDEST`]. If `false`, no result
    /// can be trusted.
    pub floor_is_sound: bool,
    /// Number of complete replicates.
    pub replicates: usize,
}

/// The effect of one factor, or of two together.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Indices of the factors: one, or two that are on together.
    pub factors: Vec<usize>,
    /// Index of a factor that must be off for this effect; `None` if the effect depends on no other factor.
    pub without: Option<usize>,
    /// The effect; `None` if there are too few runs.
    pub found: Option<Found>,
    /// Whether the effect helps or hurts.
    pub verdict: Verdict,
    /// Whether the verdict is final: either an effect was found, or any effect is smaller than the smallest one of
    /// interest.
    pub decided: bool,
}

/// An effect as a share of the baseline: -0.2 means that the value is 20 % lower.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Found {
    /// The estimated effect.
    pub effect: f64,
    /// Lower end of the effect's confidence interval. The confidence level is that of a single look, one of the planned
    /// tests of the data.
    pub low: f64,
    /// Upper end of the effect's confidence interval, at the same level as `low`.
    pub high: f64,
    /// Probability of an effect this large by chance.
    pub p: f64,
}

units::named! {
    /// Whether an effect helps or hurts.
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub enum Verdict {
        /// The factor improves the metric.
        Helps = "helps",
        /// The factor worsens the metric.
        Hurts = "hurts",
        /// No difference was found. If there is one, it is smaller than `smaller_than`.
        NoDifference {
            /// Upper bound of an undetected difference, as a share of the baseline.
            smaller_than: f64,
        } = "no_difference",
        /// There are too few replicates to judge, or their values vary too much.
        Unknown = "unknown",
    }
}

/// The widest bound of an undetected difference that says anything, as a share of the baseline: a value that could as
/// well be twice as large is unknown.
pub(super) const WIDEST: f64 = 1.0;

/// The estimated value of a contrast, and whether Holm's procedure finds it significant.
struct Estimate {
    kind: Kind,
    mean: Mean,
    significant: bool,
}

pub(super) fn of(experiment: &Experiment) -> Outcome {
    let settings = &experiment.settings;
    let alpha = settings.alpha / LOOKS.len() as f64;
    let values = |kind: Kind| -> Vec<f64> {
        let contrast = experiment.layout.contrasts.iter().find(|contrast| contrast.kind == kind);
        contrast
            .map(|contrast| experiment.replicates.iter().map(|values| contrast.of(values)).collect())
            .unwrap_or_default()
    };
    let mut nulls = experiment.floor.clone();
    nulls.extend(values(Kind::Null));
    let floor = Mean::of(&nulls);
    // The largest difference between the baselines that chance explains: the end of the interval that is further from
    // 0.
    let reach = floor.map(|floor| floor.interval(settings.alpha)).map_or(0.0, |(low, high)| low.abs().max(high.abs()));
    let mut estimates: Vec<Estimate> = Vec::new();
    for contrast in experiment.layout.contrasts.iter().filter(|contrast| contrast.kind != Kind::Null) {
        if let Some(mean) = enough(&values(contrast.kind)) {
            estimates.push(Estimate { kind: contrast.kind, mean, significant: false });
        }
    }
    holm(&mut estimates, alpha);
    for estimate in &mut estimates {
        estimate.significant &= estimate.mean.mean.abs() > reach;
    }
    let pairs: Vec<(usize, usize)> = estimates
        .iter()
        .filter(|estimate| estimate.significant)
        .filter_map(|estimate| match estimate.kind {
            Kind::Interaction(first, second) => Some((first, second)),
            _ => None,
        })
        .collect();
    // The verdict on a factor stays open while an undetected interaction with another factor could be large. The bound
    // is twice the smallest effect of interest, because an interaction is a difference of two differences.
    let open = |factor: usize| {
        estimates.iter().any(|estimate| match estimate.kind {
            Kind::Interaction(first, second) if factor == first || factor == second => {
                let (low, high) = estimate.mean.interval(alpha);
                !estimate.significant && low.abs().max(high.abs()) > 2.0 * settings.smallest.ln_1p()
            }
            _ => false,
        })
    };
    let judge = Judge { experiment, alpha, reach };
    let mut entries = Vec::new();
    for factor in 0..settings.factors.len() {
        let partner = pairs.iter().find_map(|(first, second)| match factor {
            f if f == *first => Some(*second),
            f if f == *second => Some(*first),
            _ => None,
        });
        let mut entry = match partner {
            // The factor interacts with `partner`: take its effect with `partner` off.
            Some(partner) => {
                let pair = Kind::Interaction(factor.min(partner), factor.max(partner));
                let alone: Vec<f64> =
                    values(Kind::Main(factor)).iter().zip(values(pair)).map(|(main, more)| main - more / 2.0).collect();
                judge.entry(vec![factor], Some(partner), &alone, None)
            }
            None => {
                let tested = estimates.iter().find(|estimate| estimate.kind == Kind::Main(factor));
                judge.entry(vec![factor], None, &values(Kind::Main(factor)), tested.map(|tested| tested.significant))
            }
        };
        entry.decided &= !open(factor);
        entries.push(entry);
    }
    for (first, second) in pairs {
        let both: Vec<f64> = values(Kind::Main(first))
            .iter()
            .zip(values(Kind::Main(second)))
            .map(|(first, second)| first + second)
            .collect();
        entries.push(judge.entry(vec![first, second], None, &both, None));
    }
    let sign = if settings.less_is_better { 1.0 } else { -1.0 };
    let rank = |entry: &Entry| {
        let effect = entry.found.map_or(0.0, |found| found.effect * sign);
        let group = match entry.verdict {
            Verdict::Helps => 0,
            Verdict::NoDifference { .. } | Verdict::Unknown => 1,
            Verdict::Hurts => 2,
        };
        (group, effect)
    };
    entries.sort_by(|a, b| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    Outcome {
        entries,
        floor: floor.map(|floor| found(&floor, alpha)),
        floor_is_sound: reach <= WIDEST.ln_1p()
            && floor.is_none_or(|floor| floor.p() >= alpha || floor.mean.abs() < settings.smallest.ln_1p()),
        replicates: experiment.replicates.len(),
    }
}

/// Marks the significant estimates by Holm's step-down procedure (Scandinavian Journal of Statistics 6, 1979): it
/// compares the k-th smallest of m probabilities with alpha / (m - k + 1), and stops at the first probability that is
/// larger.
fn holm(estimates: &mut [Estimate], alpha: f64) {
    let mut order: Vec<usize> = (0..estimates.len()).collect();
    order.sort_by(|a, b| estimates[*a].mean.p().total_cmp(&estimates[*b].mean.p()));
    for (place, index) in order.into_iter().enumerate() {
        if estimates[index].mean.p() > alpha / (estimates.len() - place) as f64 {
            return;
        }
        estimates[index].significant = true;
    }
}

/// The mean of the replicates; `None` if there are fewer than at the first planned look. With two replicates, a
/// confidence interval reaches from -100 % to more than anything measurable.
fn enough(values: &[f64]) -> Option<Mean> {
    Mean::of(values).filter(|mean| mean.n >= LOOKS[0])
}

struct Judge<'a> {
    experiment: &'a Experiment,
    alpha: f64,
    reach: f64,
}

impl Judge<'_> {
    /// Builds the entry of a contrast. `values` has the value of the contrast in each replicate. `tested` is the result
    /// of Holm's procedure; if `None`, the p-value alone decides.
    fn entry(&self, factors: Vec<usize>, without: Option<usize>, values: &[f64], tested: Option<bool>) -> Entry {
        let settings = &self.experiment.settings;
        let Some(mean) = enough(values) else {
            return Entry { factors, without, found: None, verdict: Verdict::Unknown, decided: false };
        };
        let found = found(&mean, self.alpha);
        let is_one = tested.unwrap_or(mean.p() <= self.alpha) && mean.mean.abs() > self.reach;
        let better = (mean.mean < 0.0) == settings.less_is_better;
        let smaller_than = found.low.abs().max(found.high.abs());
        let verdict = match (is_one, better) {
            (true, true) => Verdict::Helps,
            (true, false) => Verdict::Hurts,
            (false, _) if smaller_than > WIDEST => Verdict::Unknown,
            (false, _) => Verdict::NoDifference { smaller_than },
        };
        let decided = is_one || smaller_than <= settings.smallest;
        Entry { factors, without, found: Some(found), verdict, decided }
    }
}

/// Converts an estimate from logarithms to shares.
fn found(mean: &Mean, alpha: f64) -> Found {
    let (low, high) = mean.interval(alpha);
    Found { effect: mean.mean.exp_m1(), low: low.exp_m1(), high: high.exp_m1(), p: mean.p() }
}
