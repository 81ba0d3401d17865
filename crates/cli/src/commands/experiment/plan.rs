//! The plan of an experiment: a TOML file. Unknown keys are errors.
//!
//! The baseline and each factor are profiles as in `apus tune`. The summary of a profile serves as the factor's name.

use std::path::Path;

use host::profile::{Layer, Profile, ProfileFile};
use serde::Deserialize;
use tester::experiment::{Design, Settings};
use toml::Spanned;
use units::Nanos;

use super::measure::{Measure, Metric};
use crate::Failure;
use crate::args::values::{parts, span_with_hours};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    /// Name of the experiment, shown in the report.
    name: String,
    /// The metric to compare, such as `latency_p99`.
    metric: Spanned<String>,
    /// `one-at-a-time` or `factorial`.
    design: Option<Spanned<String>>,
    /// Time for the whole experiment, such as `10m`.
    budget: Spanned<String>,
    /// Effects below this share are ignored, such as `2%`.
    smallest: Option<Spanned<String>>,
    /// Allowed probability of a false effect, such as `5%`.
    alpha: Option<Spanned<String>>,
    /// Random seed for the order of the runs.
    seed: Option<u64>,
    /// How to measure.
    measure: MeasureSection,
    /// Settings that hold in all runs.
    baseline: Option<ProfileFile>,
    /// Settings to try, one table per factor.
    factor: Vec<ProfileFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasureSection {
    /// Arguments of `apus bench`.
    bench: Option<Vec<String>>,
    /// A command and its arguments; the last line of its output must be a number.
    command: Option<Vec<String>>,
    /// With `command`: whether a lower number is better.
    less_is_better: Option<bool>,
    /// With `command`: unit of the number.
    unit: Option<String>,
    /// Time between changing the settings and measuring.
    settle: Option<Spanned<String>>,
}

/// An experiment, parsed and checked.
pub struct Plan {
    /// Name of the experiment, shown in the report.
    pub name: String,
    /// The number by which settings are compared.
    pub metric: Metric,
    /// Design, budget and statistics.
    pub settings: Settings,
    /// The command that measures.
    pub measure: Measure,
    /// Time between changing the settings and measuring.
    pub settle: Nanos,
    /// Settings that hold in all runs.
    pub baseline: Option<Profile>,
    /// Settings to try, one profile per factor.
    pub factors: Vec<Profile>,
}

impl Plan {
    /// Reads and checks a plan file.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("cannot read the plan {}", path.display());
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::wrong(what(), e, "give a TOML file; docs/experiment.md has an example"))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let at = |offset: usize| format!("{name}:{}", text.get(..offset).unwrap_or_default().matches('\n').count() + 1);
        let wrong = |offset: usize, why: String| host::profile::Error { place: at(offset), why };
        let file: PlanFile = toml::from_str(text).map_err(|e: toml::de::Error| {
            wrong(e.span().map_or(0, |span| span.start), e.message().trim().replace('\n', "; "))
        })?;
        let share = |text: &Option<Spanned<String>>, default: f64| match text {
            None => Ok(default),
            Some(text) => {
                parts(text.get_ref()).map(|ppm| f64::from(ppm) / 1e6).map_err(|why| wrong(text.span().start, why))
            }
        };
        let design = match file.design.as_ref().map(|design| (design.get_ref().as_str(), design.span().start)) {
            None | Some(("one-at-a-time", _)) => Design::OneAtATime,
            Some(("factorial", _)) => Design::Factorial,
            Some((other, at)) => {
                return Err(wrong(at, format!("{other:?}: expected one-at-a-time or factorial")).into());
            }
        };
        let budget = span_with_hours(file.budget.get_ref()).map_err(|why| wrong(file.budget.span().start, why))?;
        let settle = match &file.measure.settle {
            None => Nanos::from_millis(50),
            Some(text) => text.get_ref().parse().map_err(|e| wrong(text.span().start, format!("{e}")))?,
        };
        let metric_at = file.metric.span().start;
        let (metric, measure) = measured(&file).map_err(|why| wrong(metric_at, why))?;
        let folder = path.parent();
        let profile = |file: ProfileFile| Profile::within(Layer::within(&name, folder, text, file));
        let factors = file.factor.into_iter().map(profile).collect::<Result<Vec<_>, _>>()?;
        let settings = Settings {
            factors: factors.iter().map(|factor| factor.name.clone()).collect(),
            design,
            less_is_better: metric.less_is_better,
            smallest: share(&file.smallest, 0.02)?,
            alpha: share(&file.alpha, 0.05)?,
            budget,
            seed: file.seed.unwrap_or(1),
        };
        let baseline = file.baseline.map(profile).transpose()?;
        Ok(Self { name: file.name, metric, settings, measure, settle, baseline, factors })
    }
}

/// Checks that metric and command go together.
fn measured(file: &PlanFile) -> Result<(Metric, Measure), String> {
    let section = &file.measure;
    match (&section.bench, &section.command) {
        (Some(words), None) => {
            if section.less_is_better.is_some() || section.unit.is_some() {
                return Err("less_is_better and unit are only for `command`".into());
            }
            Ok((Metric::of_bench(file.metric.get_ref())?, Measure::Bench(words.clone())))
        }
        (None, Some(words)) if !words.is_empty() => {
            let less = section.less_is_better.ok_or("set less_is_better in [measure] to true or false")?;
            let unit = section.unit.clone().unwrap_or_default();
            Ok((Metric::own(file.metric.get_ref(), &unit, less), Measure::Command(words.clone())))
        }
        _ => {
            Err("[measure] needs either bench = [arguments of apus bench] or command = [command and arguments]".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "flush"
metric = "latency_p50"
design = "factorial"
budget = "10m"
smallest = "3%"
[measure]
bench = ["latency", "--port", "tx0"]
[baseline]
summary = "deferred"
[baseline.network.dut0]
napi = { defer-hard-irqs = 10, gro-flush-timeout = "200us" }
[[factor]]
summary = "no flush timeout"
[factor.network.dut0]
napi = { gro-flush-timeout = 0 }
[[factor]]
summary = "neutral"
[factor.sysctl]
"net.ipv4.tcp_fastopen" = 3
"#;

    fn parse(text: &str) -> anyhow::Result<Plan> {
        Plan::parse(Path::new("plan.toml"), text)
    }

    #[test]
    fn a_plan_is_read() {
        let plan = parse(GOOD).unwrap();
        assert_eq!(plan.settings.factors, ["no flush timeout", "neutral"]);
        assert_eq!((plan.settings.design, plan.settings.smallest), (Design::Factorial, 0.03));
        assert_eq!((plan.settings.budget, plan.settle), (Nanos::from_secs(600), Nanos::from_millis(50)));
        assert!(plan.settings.less_is_better && plan.baseline.is_some());
        let own =
            GOOD.replace("bench = [\"latency\", \"--port\", \"tx0\"]", "command = [\"./x\"]\nless_is_better = false");
        assert!(!parse(&own).unwrap().settings.less_is_better);
    }

    #[test]
    fn errors_have_their_line() {
        for (from, to, place, part) in [
            ("latency_p50", "latency", "plan.toml:3", "latency_p99"),
            ("\"factorial\"", "\"all\"", "plan.toml:4", "one-at-a-time"),
            ("10m", "10", "plan.toml:5", "10m"),
            ("3%", "lots", "plan.toml:6", ""),
            ("[measure]", "[measur]", "plan.toml:7", "measur"),
            ("summary = \"neutral\"", "sumary = \"neutral\"", "plan.toml:18", "sumary"),
            ("bench =", "less_is_better = true\nbench =", "plan.toml:3", "only for `command`"),
        ] {
            let error = parse(&GOOD.replacen(from, to, 1)).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(place) && error.contains(part), "{from} -> {to}: {error}");
        }
    }
}
