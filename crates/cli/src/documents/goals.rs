//! `apus sim goals --json`.

use std::collections::BTreeMap;

use policy::wait::{Reason, WaitKind};
use schemars::JsonSchema;
use serde::Serialize;
use sim::goals::{Because, Case as Judged, Grid, Held, Plan, Tried, Verdict, quartiles};

use tester::document::{Name, by_name};
use units::Nanos;

use super::top::Wait as Waits;

/// Name and version of the schema.
pub const SCHEMA: &str = "apus.sim.goals/2";

/// Compares wait modes: which one meets a latency goal with the least power. All numbers are simulated.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Document {
    /// The version of Apus that wrote this.
    pub apus: String,
    /// Name and version of this schema: `apus.sim.goals/2`.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The set of machines, traffic, loads and goals from which the cases come.
    pub grid: Name<Grid>,
    /// First random seed of the simulation.
    pub seed: u64,
    /// Number of seeds per case. The seeds are consecutive and start with `seed`.
    pub seeds: u64,
    /// Simulated time before the measured window.
    pub warm_up_ns: u64,
    /// Whether `adaptive` chose how long the NIC delays interrupts.
    pub hold_off: bool,
    /// Whether `adaptive` chose how deep the core may idle.
    pub idle_limit: bool,
    /// How the cases were drawn; `null` if the whole grid was used.
    pub sample: Option<Sample>,
    /// Number of planned cases. Fewer are listed if the run was interrupted.
    pub planned: u64,
    /// The results over all cases.
    pub summary: Summary,
    /// The cases.
    pub cases: Vec<Case>,
}

/// How cases were drawn from the grid.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
pub struct Sample {
    /// Number of cases requested.
    pub cases: u64,
    /// Random seed of the draw.
    pub seed: u64,
}

/// The results over all cases.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Summary {
    /// Number of cases by verdict.
    pub verdicts: BTreeMap<Name<Verdict>, u64>,
    /// Number of cases in which more packets are late with `adaptive` than the goal allows, but the 95 % interval over
    /// the seeds includes the allowed share. These goals count as met.
    pub marginal: u64,
    /// Power of `adaptive` divided by the power of the best rival that meets the goal; `null` if no case has such a
    /// rival.
    pub power_multiple: Option<Quartiles>,
    /// Power of `adaptive` divided by the minimum possible power, over the cases in which `adaptive` met the goal;
    /// `null` if the minimum is not known in any of them.
    pub bound_multiple: Option<Quartiles>,
    /// Share of late packets in the first second, divided by the allowed share. The value of a case is the median over
    /// its seeds.
    pub first_second_multiple: Option<Quartiles>,
}

/// The distribution of a number over the cases.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Quartiles {
    /// Number of cases in which the number is known.
    pub cases: u64,
    /// Minimum.
    pub min: f64,
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// Maximum.
    pub max: f64,
}

/// One case: a machine, traffic, a load and a goal.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Case {
    /// Name of the processor.
    pub machine: String,
    /// Name of the network controller.
    pub nic: String,
    /// Kind of traffic, or name of a file.
    pub traffic: String,
    /// Load in percent of the packet rate that the core can forward at its base frequency; `null` for traffic from a
    /// file.
    pub load_percent: Option<f64>,
    /// Mean packet rate, in packets per second. For the traffic `step`, the higher of its two rates. `null` for traffic
    /// from a file.
    pub rate_pps: Option<u64>,
    /// Name of the deepest idle state allowed.
    pub deepest: String,
    /// Peak packet rate that was configured for `adaptive`, in packets per second; `null` if none.
    pub peak_pps: Option<u64>,
    /// The latency goal, such as `p99.9=50us`.
    pub goal: String,
    /// Length of the measured window of each run, in ns.
    pub duration_ns: u64,
    /// How `adaptive` compares with its rivals in this case.
    pub verdict: Name<Verdict>,
    /// Whether more packets are late with `adaptive` than the goal allows, but the 95 % interval over the seeds
    /// includes the allowed share. The goal then counts as met.
    pub marginal: bool,
    /// The mode that beats `adaptive`. If none does, the best mode among those that meet the goal; `null` if no rival
    /// meets it.
    pub rival: Option<String>,
    /// Why the rival meets the goal with less power; `null` unless the verdict is `lost` or `lost_to_tuned`. `ring`:
    /// the rival sleeps longer than the receive ring takes to fill at the highest packet rate. `lateness`: the rival
    /// lets more packets be late than `adaptive` aims for. Otherwise the activity that costs `adaptive` the largest
    /// extra power: `polling`, `awake` (longer awake), `frequency` (a higher frequency while awake) or `idle` (less
    /// deep idle states).
    pub because: Option<Name<Because>>,
    /// Time in which the receive ring fills at the highest packet rate that `adaptive` assumes, in ns. `adaptive` never
    /// sleeps longer.
    pub ring_ns: u64,
    /// Power of `adaptive` divided by the power of `rival`; `null` without a rival.
    pub power_multiple: Option<f64>,
    /// 95 % confidence interval of `power_multiple` over the seeds; `null` with one seed.
    pub power_multiple_ci95: Option<(f64, f64)>,
    /// Minimum power in uW with which the goal could be met if all arrivals were known in advance; `null` if unknown.
    pub bound_uw: Option<u64>,
    /// Power of `adaptive` divided by `bound_uw`; `null` if that is unknown, or if `adaptive` missed the goal.
    pub bound_multiple: Option<f64>,
    /// Share of late packets in the first second, divided by the allowed share: one value per seed. Empty if the first
    /// second was not simulated.
    pub first_second_multiples: Vec<f64>,
    /// The results of each mode; the last is `adaptive`.
    pub ways: Vec<Way>,
}

/// The result of one mode.
#[derive(Clone, PartialEq, Serialize, JsonSchema, Debug)]
pub struct Way {
    /// Name of the mode: `poll`, `l3fwd-power`, `backoff 50us`, `interrupt`, `interrupt 50us`,
    /// `poll@800MHz` or `adaptive`.
    pub way: String,
    /// Whether the mode runs at a frequency that was chosen in hindsight for this case.
    pub tuned: bool,
    /// Number of seeds simulated. A rival that cannot win according to its first seed is not simulated with the others.
    pub seeds: u64,
    /// Packets that arrived, over all seeds.
    pub offered: u64,
    /// Lost packets, over all seeds.
    pub lost: u64,
    /// Packets later than the goal's latency bound, over all seeds. They include lost packets, and packets that had
    /// already waited for longer than the bound when the window ended.
    pub late: u64,
    /// Share of late packets, in parts per million of all packets that departed, were lost, or were already late when
    /// the window ended.
    pub late_ppm: f64,
    /// 95 % confidence interval of `late_ppm` over the seeds; `null` with one seed.
    pub late_ppm_ci95: Option<(f64, f64)>,
    /// Whether the mode met the goal; `no` if any packet was lost.
    pub held: Name<Held>,
    /// Delay in ns at the goal's quantile (median over the seeds). Packets that were lost, or were still waiting after
    /// this delay at the end of the run, count as later than any delay. `null` if the quantile falls among them, or if
    /// a run had too few packets.
    pub latency_ns: Option<u64>,
    /// Mean power of the core in uW.
    pub power_uw: u64,
    /// Share of time in which the core was neither idle nor running another task, in parts per million.
    pub busy_ppm: u64,
    /// Number of wake-ups, over all seeds.
    pub wakeups: u64,
    /// Number of frequency changes that took effect, over all seeds.
    pub frequency_changes: u64,
    /// Number and time of the waits, by kind.
    pub waits: BTreeMap<Name<WaitKind>, Waits>,
    /// Decisions by reason; reasons that never occurred are left out.
    pub reasons: BTreeMap<Name<Reason>, u64>,
}

impl Document {
    /// Builds the document from the cases that were simulated. `planned` is the number of cases planned.
    pub fn new(grid: Grid, plan: &Plan, planned: usize, cases: &[Judged]) -> Self {
        Self {
            apus: super::VERSION.to_owned(),
            schema: SCHEMA.to_owned(),
            grid: grid.into(),
            seed: plan.seed,
            seeds: plan.seeds,
            warm_up_ns: plan.warm_up.as_nanos(),
            hold_off: plan.holds_off,
            idle_limit: plan.limits_idle,
            sample: plan.sample.map(|(cases, seed)| Sample { cases: cases as u64, seed }),
            planned: planned as u64,
            summary: Summary::of(cases),
            cases: cases.iter().map(Case::from).collect(),
        }
    }
}

impl Summary {
    /// Summarizes the cases.
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
            because: case.because().map(Name::from),
            ring_ns: case.ring.as_nanos(),
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
