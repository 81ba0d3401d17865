//! `apus sim goals --json`.

use std::collections::BTreeMap;

use policy::wait::{Reason, WaitKind};
use schemars::JsonSchema;
use serde::Serialize;
use sim::goals::{Case as Judged, Grid, Held, Plan, Tried, Verdict, quartiles};

use tester::document::{Name, by_name};
use units::Nanos;

use super::top::Wait as Waits;

/// The schema's name.
pub const SCHEMA: &str = "apus.sim.goals/2";

/// Which way of waiting holds a goal with the least power. All of it is modelled.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// `apus.sim.goals/2`
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The grid.
    pub grid: Name<Grid>,
    /// The first seed of all that is random.
    pub seed: u64,
    /// Seeds per case, counted up from the first.
    pub seeds: u64,
    /// The time before the window, which counts for nothing.
    pub warm_up_ns: u64,
    /// The draw, if the cases were drawn from the grid.
    pub sample: Option<Sample>,
    /// Cases that were planned; fewer are listed if the run was interrupted.
    pub planned: u64,
    /// What came of the listed cases.
    pub summary: Summary,
    /// Each case.
    pub cases: Vec<Case>,
}

/// How cases were drawn from the grid.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// How many were asked for.
    pub cases: u64,
    /// The seed of the draw.
    pub seed: u64,
}

/// What came of the cases.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Cases by verdict.
    pub verdicts: BTreeMap<Name<Verdict>, u64>,
    /// Cases in which `adaptive` counts as holding the goal only for the 95 % interval over its seeds.
    pub marginal: u64,
    /// The power of `adaptive` as a multiple of the best rival's that holds the goal too.
    pub power_multiple: Option<Quartiles>,
    /// The power of `adaptive` as a multiple of the least possible, where that is known.
    pub bound_multiple: Option<Quartiles>,
    /// The share of late packets in the first second as a multiple of the allowed share: the median over the seeds of each
    /// case.
    pub first_second_multiple: Option<Quartiles>,
}

/// How a number is spread over cases.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Quartiles {
    /// Cases in which it is known.
    pub cases: u64,
    /// The least.
    pub min: f64,
    /// A quarter is at most this.
    pub q1: f64,
    /// Half.
    pub median: f64,
    /// Three quarters.
    pub q3: f64,
    /// The most.
    pub max: f64,
}

/// A machine, traffic, a load and a goal.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The processor.
    pub machine: String,
    /// The NIC.
    pub nic: String,
    /// The kind of traffic, or a file.
    pub traffic: String,
    /// The load in percent of what the core forwards at its base frequency; `null` for traffic from a file.
    pub load_percent: Option<f64>,
    /// Packets a second, on average; of `step` the upper rate; `null` for traffic from a file.
    pub rate_pps: Option<u64>,
    /// The deepest idle state allowed.
    pub deepest: String,
    /// The peak that `adaptive` was told; `null` if none.
    pub peak_pps: Option<u64>,
    /// Such as `p99.9=50us`.
    pub goal: String,
    /// The window of each run.
    pub duration_ns: u64,
    /// What became of it.
    pub verdict: Name<Verdict>,
    /// Whether `adaptive` counts as holding the goal only for the 95 % interval over its seeds.
    pub marginal: bool,
    /// The rival that beats `adaptive`, or the best of those that hold the goal; `null` if none holds it.
    pub rival: Option<String>,
    /// The power of `adaptive` as a multiple of that rival's.
    pub power_multiple: Option<f64>,
    /// Its 95 % interval over the seeds; `null` with one.
    pub power_multiple_ci95: Option<(f64, f64)>,
    /// The least power with which the goal can be kept, all arrivals known; `null` if it is not known.
    pub bound_uw: Option<u64>,
    /// The power of `adaptive` as a multiple of that.
    pub bound_multiple: Option<f64>,
    /// The share of late packets in the first second as a multiple of the allowed share, each seed by itself; empty if it
    /// was not simulated.
    pub first_second_multiples: Vec<f64>,
    /// Each way of waiting; the last is `adaptive`.
    pub ways: Vec<Way>,
}

/// What a way of waiting came to.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Its name: `poll`, `l3fwd-power`, `backoff 50us`, `interrupt`, `poll@800MHz`, `adaptive`.
    pub way: String,
    /// Whether its frequency was chosen in hindsight.
    pub tuned: bool,
    /// Seeds that it was run with. A rival that the first one ruled out was not run with the others.
    pub seeds: u64,
    /// Packets that arrived, with all seeds.
    pub offered: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Those that were later than the goal's bound, the lost ones included.
    pub late: u64,
    /// Their share, in parts per million.
    pub late_ppm: f64,
    /// Its 95 % interval over the seeds; `null` with one.
    pub late_ppm_ci95: Option<(f64, f64)>,
    /// Whether it held the goal. A lost packet is a `no`.
    pub held: Name<Held>,
    /// The delay at the goal's quantile, the middle one of the seeds, lost packets taken as late for ever; `null` if it
    /// lies among those, or if a run had too few packets.
    pub latency_ns: Option<u64>,
    /// The core's mean power.
    pub power_uw: u64,
    /// The share of time in which the core was neither idle nor with another task, in parts per million.
    pub busy_ppm: u64,
    /// Times that it was woken, with all seeds.
    pub wakeups: u64,
    /// Changes of frequency that were carried out.
    pub frequency_changes: u64,
    /// Waits by kind.
    pub waits: BTreeMap<Name<WaitKind>, Waits>,
    /// Decisions by reason; those that came up.
    pub reasons: BTreeMap<Name<Reason>, u64>,
}

impl Document {
    /// The document of these cases, of `planned` ones.
    pub fn new(grid: Grid, plan: &Plan, planned: usize, cases: &[Judged]) -> Self {
        Self {
            apus: super::VERSION.to_owned(),
            schema: SCHEMA.to_owned(),
            grid: grid.into(),
            seed: plan.seed,
            seeds: plan.seeds,
            warm_up_ns: plan.warm_up.as_nanos(),
            sample: plan.sample.map(|(cases, seed)| Sample { cases: cases as u64, seed }),
            planned: planned as u64,
            summary: Summary::of(cases),
            cases: cases.iter().map(Case::from).collect(),
        }
    }
}

impl Summary {
    /// What came of these cases.
    pub fn of(cases: &[Judged]) -> Self {
        let count = |verdict| cases.iter().filter(|case| case.verdict() == verdict).count() as u64;
        let power =
            |case: &Judged| case.ours_holds().then(|| case.best_of_all().map(|best| case.ratio(best))).flatten();
        let first = |case: &Judged| tester::statistics::median(&case.first_second_multiples());
        Self {
            verdicts: by_name(Verdict::ALL.map(|verdict| (verdict, count(verdict)))),
            marginal: cases.iter().filter(|case| case.is_marginal()).count() as u64,
            power_multiple: Quartiles::of(cases.iter().filter_map(power)),
            bound_multiple: Quartiles::of(cases.iter().filter_map(Judged::bound_multiple)),
            first_second_multiple: Quartiles::of(cases.iter().filter_map(first)),
        }
    }
}

impl Quartiles {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        let [min, q1, median, q3, max] = quartiles(&values)?;
        Some(Self { cases: values.len() as u64, min, q1, median, q3, max })
    }
}

impl From<&Judged> for Case {
    fn from(case: &Judged) -> Self {
        let setting = &case.setting;
        let rival = case.rival();
        let all = case.others.iter().chain([&case.ours]);
        Self {
            machine: setting.machine.clone(),
            nic: setting.nic.clone(),
            traffic: setting.pattern.to_string(),
            load_percent: setting.load_percent(),
            rate_pps: setting.rate_pps,
            deepest: setting.deepest.clone(),
            peak_pps: case.peak.map(units::PacketRate::as_pps),
            goal: case.goal.to_string(),
            duration_ns: setting.duration.as_nanos(),
            verdict: case.verdict().into(),
            marginal: case.is_marginal(),
            rival: rival.map(|rival| rival.way.to_string()),
            power_multiple: rival.map(|rival| case.ratio(rival)),
            power_multiple_ci95: rival.and_then(|rival| case.ratio_interval(rival)),
            bound_uw: case.bound.map(units::Microwatts::as_microwatts),
            bound_multiple: case.bound_multiple(),
            first_second_multiples: case.first_second_multiples(),
            ways: all.map(|tried| Way::new(tried, case.goal)).collect(),
        }
    }
}

impl Way {
    fn new(tried: &Tried, goal: policy::Goal) -> Self {
        let sum = |of: fn(&sim::goals::Measured) -> u64| tried.runs.iter().map(of).sum::<u64>();
        let waits = |kind: WaitKind| {
            let of_kind = || tried.runs.iter().map(|run| run.waits[kind as usize]);
            let time = of_kind().fold(Nanos::ZERO, |sum, (_, time)| sum + time);
            Waits { count: of_kind().map(|(count, _)| count).sum(), time_ns: time.as_nanos() }
        };
        let reason = |reason: Reason| tried.runs.iter().map(|run| run.reasons[reason as usize]).sum::<u64>();
        let seeds = tried.runs.len() as u64;
        Self {
            way: tried.way.to_string(),
            tuned: tried.way.is_tuned(),
            seeds,
            offered: sum(|run| run.offered),
            lost: tried.lost(),
            late: tried.late(goal.latency),
            late_ppm: tried.late_share(goal.latency) * 1e6,
            late_ppm_ci95: tried.late_interval(goal.latency).map(|(low, high)| (low * 1e6, high * 1e6)),
            held: tried.held(goal).into(),
            latency_ns: tried.latency(goal.quantile).map(Nanos::as_nanos),
            power_uw: tried.power(tried.runs.len()).round() as u64,
            busy_ppm: sum(|run| run.busy_ppm) / seeds.max(1),
            wakeups: sum(|run| run.wakeups),
            frequency_changes: sum(|run| run.frequency_changes),
            waits: by_name(WaitKind::ALL.map(|kind| (kind, waits(kind)))),
            reasons: by_name(Reason::ALL.map(|r| (r, reason(r))).into_iter().filter(|(_, count)| *count > 0)),
        }
    }
}
