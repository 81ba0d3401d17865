//! The document `apus.experiment/1`, with its report and its table.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::outcome::WIDEST;
use super::{Design, Ended, Entry, Experiment, Found, LOOKS, Verdict};
use crate::document::{Energy, Name};
use crate::host::{HostState, Reading};
use crate::report::model::{Bar, Bars, Cell, Column, Estimate, Fact, Known, Report, Section, Table};

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.experiment/1";

/// The result of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentResult {
    /// Version of Apus that wrote the document.
    pub apus: String,
    /// `apus.experiment/1`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The host on which the experiment was done.
    pub host: Reading<HostState>,
    /// Name of the experiment.
    pub name: String,
    /// The metric with its unit, such as `latency_p50_ns`.
    pub metric: String,
    /// Whether lower values are better.
    pub less_is_better: bool,
    /// How factors were combined.
    pub design: Name<Design>,
    /// Smallest effect of interest, in percent of the baseline; the user sets it.
    pub smallest_percent: f64,
    /// Allowed probability of reporting any effect that does not exist, in percent.
    pub alpha_percent: f64,
    /// Why the experiment ended.
    pub ended: Name<Ending>,
    /// Number of complete replicates, which are the samples.
    pub replicates: u64,
    /// Difference between the two baselines (runs with all factors off), or why it is unknown.
    pub noise_floor: Reading<Effect>,
    /// Whether the two baselines differ by no more than chance, and by less than 100 %. If false, no result
    /// can be trusted.
    pub noise_floor_is_sound: bool,
    /// Effects of the factors, the most helpful first.
    pub ranking: Vec<Ranked>,
    /// All runs, in order.
    pub runs: Vec<Run>,
    /// Why runs failed: one reason for each failed run.
    pub failures: Vec<String>,
}

units::named! {
    /// Why an experiment ended.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Ending {
        /// The verdict on every effect is final.
        Decided = "decided",
        /// No time was left for another replicate.
        Budget = "budget",
        /// The maximum number of replicates is done.
        Replicates = "replicates",
        /// Too many runs in a row failed.
        Failed = "failed",
        /// A run measured 0 or less. Effects are ratios, so such values cannot be compared.
        Zero = "zero",
        /// The experiment was stopped before its end.
        Interrupted = "interrupted",
    }
}

/// An effect, in percent of the baseline.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// The estimated effect.
    pub percent: f64,
    /// Lower end of the effect's confidence interval. The confidence level is that of a single look, one of the planned
    /// tests of the data.
    pub low_percent: f64,
    /// Upper end of the effect's confidence interval, at the same level as `low_percent`.
    pub high_percent: f64,
    /// Probability of an effect this large by chance.
    pub p: f64,
}

/// The effect of one factor, or of two together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ranked {
    /// Names of the factors.
    pub factors: Vec<String>,
    /// Name of a factor that must be off for this effect; null if it depends on none.
    pub without: Option<String>,
    /// Whether the effect helps or hurts.
    pub verdict: Name<Verdict>,
    /// The verdict in words.
    pub says: String,
    /// The estimated effect, or why there is none.
    pub effect: Reading<Effect>,
    /// Upper bound of an undetected difference, in percent of the baseline; null if an effect was found, if there are
    /// too few replicates, or if the bound would be above 100 %.
    pub smaller_than_percent: Option<f64>,
    /// Whether the verdict is final: more runs would not change it.
    pub decided: bool,
}

/// One run of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Names of the factors that were on.
    pub on: Vec<String>,
    /// When the run started, in nanoseconds from the start of the experiment.
    pub at_ns: u64,
    /// The measured value in the unit of the metric; `null` if the run failed.
    pub value: Option<f64>,
    /// Energy from the start of the run's command to its end. The CPU time in `energy` is that of the tested program,
    /// if the command reports it.
    #[serde(default)]
    pub energy: Energy,
}

impl From<Found> for Effect {
    fn from(found: Found) -> Self {
        let percent = |share: f64| share * 100.0;
        Self {
            percent: percent(found.effect),
            low_percent: percent(found.low),
            high_percent: percent(found.high),
            p: found.p,
        }
    }
}

/// Why no result can be trusted if the noise floor is not sound.
const UNSOUND: &str = "repeated runs of the same setup differ by more than chance, or by more than 100 %";

/// Why there is no effect before the first planned test of the data.
fn few() -> String {
    format!("too few replicates: at least {} are needed; allow a larger budget", LOOKS[0])
}

/// Names of the experiment and of its metric, for the document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// Name of the experiment.
    pub name: String,
    /// The metric with its unit.
    pub metric: String,
}

impl ExperimentResult {
    /// Builds the document from the runs of the experiment so far.
    pub fn new(experiment: &Experiment, about: &About, host: Reading<HostState>, interrupted: bool) -> Self {
        let settings = experiment.settings();
        let outcome = experiment.outcome();
        let names = |on: u32| -> Vec<String> {
            let places = (0..settings.factors.len()).filter(|place| on >> place & 1 == 1);
            places.map(|place| settings.factors[place].clone()).collect()
        };
        let ended = match experiment.ended() {
            _ if interrupted => Ending::Interrupted,
            Some(Ended::Decided) => Ending::Decided,
            Some(Ended::Replicates) => Ending::Replicates,
            Some(Ended::Failed) => Ending::Failed,
            Some(Ended::Zero) => Ending::Zero,
            Some(Ended::Budget) | None => Ending::Budget,
        };
        Self {
            apus: env!("CARGO_PKG_VERSION").into(),
            schema: SCHEMA.into(),
            host,
            name: about.name.clone(),
            metric: about.metric.clone(),
            less_is_better: settings.less_is_better,
            design: settings.design.into(),
            smallest_percent: settings.smallest * 100.0,
            alpha_percent: settings.alpha * 100.0,
            ended: ended.into(),
            replicates: outcome.replicates as u64,
            noise_floor: Reading::or_unknown(outcome.floor.map(Effect::from), &few()),
            noise_floor_is_sound: outcome.floor_is_sound,
            ranking: outcome.entries.iter().map(|entry| Ranked::of(entry, &settings.factors)).collect(),
            runs: experiment
                .runs()
                .iter()
                .map(|run| Run {
                    on: names(run.on),
                    at_ns: run.at.as_nanos(),
                    value: run.value,
                    energy: Energy::unmeasured("energy was not measured"),
                })
                .collect(),
            failures: experiment.failures.clone(),
        }
    }

    /// Whether at least one effect was found, or bounded.
    pub fn is_judged(&self) -> bool {
        self.ranking.iter().any(|ranked| ranked.verdict != Name::of(&Verdict::Unknown))
    }

    /// Adds the energy of each run; `energies` has the same order as the runs.
    pub fn with_energy(mut self, energies: Vec<Energy>) -> Self {
        self.runs.iter_mut().zip(energies).for_each(|(run, energy)| run.energy = energy);
        self
    }

    /// Renders the ranked table as text.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let floor = self.noise_floor.value.map_or("unknown".into(), |floor| floor.to_string());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{}: {}, {}; {} replicates, ended: {}",
            self.name, self.metric, self.design, self.replicates, self.ended
        );
        let _ = writeln!(text, "noise floor (the baseline compared with itself): {floor}");
        if !self.noise_floor_is_sound {
            let _ = writeln!(text, "WARNING: do not trust these results: {UNSOUND}");
        }
        let width = self.ranking.iter().map(|ranked| ranked.label().chars().count()).max().unwrap_or(0).max(6);
        for (place, ranked) in self.ranking.iter().enumerate() {
            let effect = ranked.effect.value.map_or("unknown".into(), |effect| effect.to_string());
            let _ = writeln!(text, "{:>3}. {:<width$}  {:<34} {}", place + 1, ranked.label(), effect, ranked.says);
        }
        if !self.failures.is_empty() {
            let _ = writeln!(
                text,
                "{} runs failed, the last: {}",
                self.failures.len(),
                self.failures[self.failures.len() - 1]
            );
        }
        text
    }

    /// Builds the report: a figure and the table.
    pub fn report(&self) -> Report {
        let estimate = |effect: Effect| Estimate {
            value: effect.percent,
            interval: Some((effect.low_percent, effect.high_percent)),
        };
        let bars = self
            .ranking
            .iter()
            .filter_map(|ranked| Some(Bar { series: ranked.label(), value: estimate(ranked.effect.value?) }));
        let floor = self
            .noise_floor
            .value
            .map(|effect| Bar { series: "baseline, against itself".into(), value: estimate(effect) });
        let rows = self.ranking.iter().map(|ranked| {
            vec![
                Cell::Text(ranked.label()),
                ranked.effect.value.map_or(Cell::Unknown(few()), |effect| Cell::Number(estimate(effect))),
                ranked
                    .effect
                    .value
                    .map_or(Cell::Unknown(few()), |effect| Cell::Number(Estimate { value: effect.p, interval: None })),
                Cell::Text(ranked.says.clone()),
            ]
        });
        let column = |quantity: &str, unit: &str| Column { quantity: quantity.into(), unit: unit.into() };
        let direction = if self.less_is_better { "less is better" } else { "more is better" };
        let fact = |name: &str, value: String| Fact { name: name.into(), value: Known::Value(value) };
        Report {
            title: self.name.clone(),
            lead: format!(
                "Which settings change {} ({direction})? Runs are interleaved, with and without each setting; bars are 95 % intervals or wider.",
                self.metric
            ),
            host: Vec::new(),
            conditions: vec![
                fact("Design", self.design.to_string()),
                fact("Replicates", self.replicates.to_string()),
                fact("Ended", self.ended.to_string()),
                fact("Smallest effect of interest", format!("{} %", self.smallest_percent)),
            ],
            notes: if self.noise_floor_is_sound {
                Vec::new()
            } else {
                vec![format!("Do not trust these results: {UNSOUND}.")]
            },
            results: serde_json::to_value(self).unwrap_or_default(),
            sections: vec![
                Section::Bars(Bars {
                    title: format!("Change of {}", self.metric),
                    caption: "Compared with the baseline, where all factors are off.".into(),
                    quantity: "change".into(),
                    unit: "%".into(),
                    bars: bars.chain(floor).collect(),
                }),
                Section::Table(Table {
                    title: "Ranking".into(),
                    caption: String::new(),
                    columns: vec![column("factor", ""), column("change", "%"), column("p", ""), column("verdict", "")],
                    rows: rows.collect(),
                }),
            ],
        }
    }
}

impl Ranked {
    fn of(entry: &Entry, factors: &[String]) -> Self {
        let (says, smaller_than) = match entry.verdict {
            Verdict::NoDifference { smaller_than } => {
                let bound = smaller_than * 100.0;
                (format!("no difference found; it is below {bound:.1} %"), Some(bound))
            }
            Verdict::Unknown if entry.found.is_none() => (few(), None),
            Verdict::Unknown => (
                format!("unknown: the runs vary so much that a difference of {} % could be undetected", WIDEST * 100.0),
                None,
            ),
            Verdict::Helps | Verdict::Hurts => (entry.verdict.name().into(), None),
        };
        Self {
            factors: entry.factors.iter().map(|factor| factors[*factor].clone()).collect(),
            without: entry.without.map(|factor| factors[factor].clone()),
            verdict: (&entry.verdict).into(),
            says,
            effect: Reading::or_unknown(entry.found.map(Effect::from), &few()),
            smaller_than_percent: smaller_than,
            decided: entry.decided,
        }
    }

    /// Label of an effect: `defer`, `defer + timeout` or `defer (without timeout)`.
    pub fn label(&self) -> String {
        let together = self.factors.join(" + ");
        self.without.as_ref().map_or(together.clone(), |without| format!("{together} (without {without})"))
    }
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A number of many digits would look like a measurement.
        const MOST: f64 = 1000.0;
        let shown = |percent: f64| match percent > MOST {
            true => format!("over +{MOST}"),
            false => format!("{percent:+.1}"),
        };
        let [percent, low, high] = [self.percent, self.low_percent, self.high_percent].map(shown);
        write!(f, "{percent} % ({low} to {high})")
    }
}
