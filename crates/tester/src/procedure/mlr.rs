//! MLRsearch (RFC 9971) for each frame size, and its document: `apus.bench-mlr/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Nanos, PacketRate};

use super::effort::{Effort, Test};
use super::measure::{Bench, Halt};
use super::result::{AnomalyCounts, Ended, Setup, TesterQuality};
use super::{Measurer, Offer};
use crate::document::Distribution;
use crate::host::{HostState, Reading};
use crate::search::mlr::{Goal, GoalResult, MlrConfig, MlrSearch};
use crate::search::{Search as _, WarmedUp};
use crate::sizes::Sizes;

/// Name and version of the schema.
pub const MLR_SCHEMA: &str = "apus.bench-mlr/1";

/// The JSON document of `apus bench mlr`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MlrDocument {
    /// Version of Apus.
    pub apus: String,
    /// `apus.bench-mlr/1`
    #[schemars(extend("const" = MLR_SCHEMA))]
    pub schema: String,
    /// The host of the tester.
    pub host: HostState,
    /// The ports and the traffic.
    pub setup: Setup,
    /// The results of the search.
    pub result: MlrResult,
}

/// The results of all frame sizes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MlrResult {
    /// The standard that the numbers follow, and how to compare them.
    pub standard: String,
    /// Whether all searches were completed, and if not, why.
    pub ended: Ended,
    /// One entry for each frame size.
    pub sizes: Vec<MlrSize>,
}

/// The results for one frame size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MlrSize {
    /// Frame size in bytes, including the frame check sequence, or an IMIX genome (RFC 6985).
    pub frames: String,
    /// Theoretical maximum rate of the link, in frames per second and direction.
    pub line_rate_pps: Reading<f64>,
    /// Highest rate at which the tester can send, in frames per second and direction. It is measured before the search.
    pub tester_ceiling_pps: Reading<u64>,
    /// Highest rate of the search (Max Load in RFC 9971), in frames per second and direction.
    pub max_pps: Reading<u64>,
    /// One entry for each goal, in the order in which the user gave them.
    pub goals: Vec<MlrGoal>,
    /// Number of trials, including the warm-up and those that were repeated.
    pub trials: u64,
    /// Total time of all trials, without pauses.
    pub trials_ns: u64,
    /// Anomalous frames, by kind: duplicate, corrupted, reordered and so on.
    pub anomalies: AnomalyCounts,
    /// Quality of the tester's own work.
    pub tester: TesterQuality,
    /// Problems of this result, each with its remedy.
    pub warnings: Vec<String>,
}

/// One goal with its result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MlrGoal {
    /// The goal as text in the form of RFC 9971, A.1: final trial duration (s), duration sum (s), loss ratio (%),
    /// exceed ratio (%).
    pub goal: String,
    /// Goal Loss Ratio (RFC 9971) in ppm: a trial with a higher share of lost frames is a high-loss trial.
    pub loss_ratio_ppm: u32,
    /// Goal Exceed Ratio (RFC 9971) in ppm: share of the trial time at a load that high-loss trials may take.
    pub exceed_ratio_ppm: u32,
    /// Goal Width (RFC 9971) in ppm: the search ends when the two bounds are this close.
    pub width_ppm: u32,
    /// Goal Initial Trial Duration (RFC 9971): duration of the first, shortest trials.
    pub initial_trial_ns: u64,
    /// Goal Final Trial Duration (RFC 9971): duration of the trials that decide.
    pub final_trial_ns: u64,
    /// Goal Duration Sum (RFC 9971): total trial time at a load after which the search decides about this load.
    pub duration_sum_ns: u64,
    /// Relevant Lower Bound (RFC 9971): highest load that meets the goal and is below the relevant upper bound.
    pub lower_pps: Reading<f64>,
    /// Relevant Upper Bound (RFC 9971): lowest load that does not meet the goal.
    pub upper_pps: Reading<f64>,
    /// Conditional Throughput (RFC 9971) in frames per second and direction: the result for this goal.
    pub throughput_pps: Reading<f64>,
    /// Whether the search for this goal was completed.
    pub reached: bool,
    /// Number of trials at the relevant lower bound.
    pub trials_at_lower: u64,
    /// Latency at the relevant lower bound, from one additional trial of the final duration.
    pub latency: Reading<Distribution>,
}

/// The plan of `apus bench mlr`.
#[derive(Clone, PartialEq, Debug)]
pub struct MlrPlan {
    /// Frame sizes, each searched separately.
    pub sizes: Vec<Sizes>,
    /// Goals of the search; one search per frame size covers all of them.
    pub goals: Vec<Goal>,
    /// Lowest rate to try, per direction.
    pub min_pps: u64,
    /// Highest rate to try, per direction. `None` if the user does not limit it.
    pub max_pps: Option<u64>,
    /// Speed of the slower link in bits per second; `None` if unknown.
    pub line_bits_per_s: Option<u64>,
    /// Duration of the warm-up trial at the highest rate before each search. Its result does not count.
    pub warm_up: Nanos,
    /// Maximum total duration of the trials of a search. The search ends when this duration is reached.
    pub longest: Nanos,
    /// Pauses before, between and after trials.
    pub effort: Effort,
}

/// Runs the plan. `progress` is called with the name of each step. If the user stops the run or a trial fails, the
/// result contains the findings so far.
pub fn run<M: Measurer + ?Sized>(measurer: &mut M, plan: &MlrPlan, progress: &mut dyn FnMut(&str)) -> MlrResult {
    let (mut sizes, mut halted) = (Vec::new(), None);
    for size in &plan.sizes {
        let mut bench = Bench::new(&mut *measurer, plan.effort, size.clone());
        let mut result = empty(&bench, plan);
        let halt = one_size(&mut bench, plan, progress, &mut result).err();
        result.trials = bench.trials.len() as u64;
        result.trials_ns = bench.trials.iter().map(|trial| trial.duration_ns).sum();
        result.anomalies = bench.anomalies.into();
        result.tester = bench.quality();
        result.warnings.extend(bench.warnings("trials"));
        sizes.push(result);
        halted = halt;
        if halted.is_some() {
            break;
        }
    }
    MlrResult {
        standard: "MLRsearch, RFC 9971: conditional throughput for the listed goals; compare only results with the \
                   same goals"
            .into(),
        ended: Ended { complete: halted.is_none(), because: halted.map(|halt| halt.to_string()) },
        sizes,
    }
}

fn empty<M: Measurer + ?Sized>(bench: &Bench<'_, M>, plan: &MlrPlan) -> MlrSize {
    MlrSize {
        frames: bench.sizes.to_string(),
        line_rate_pps: Reading::or_unknown(
            plan.line_bits_per_s.map(|speed| bench.sizes.line_rate_pps(speed)),
            "the speed of the link is unknown",
        ),
        tester_ceiling_pps: Reading::unknown("not measured"),
        max_pps: Reading::unknown("not measured"),
        goals: Vec::new(),
        trials: 0,
        trials_ns: 0,
        anomalies: AnomalyCounts::default(),
        tester: bench.quality(),
        warnings: Vec::new(),
    }
}

fn one_size<M: Measurer + ?Sized>(
    bench: &mut Bench<'_, M>,
    plan: &MlrPlan,
    progress: &mut dyn FnMut(&str),
    result: &mut MlrSize,
) -> Result<(), Halt> {
    progress(&format!("{}: what the tester can send", bench.sizes));
    let span = plan.goals.iter().map(|goal| goal.initial_trial).max().unwrap_or(Nanos::from_secs(1));
    let ceiling = bench.ceiling(span)?;
    result.tester_ceiling_pps = Reading::known(ceiling);
    let line = result.line_rate_pps.value.map_or(u64::MAX, |pps| pps as u64);
    let max_pps = ceiling.min(line).min(plan.max_pps.unwrap_or(u64::MAX));
    if max_pps <= plan.min_pps {
        result.max_pps = Reading::unknown("the tester cannot send faster than the lowest rate");
        result.warnings.push(format!("the tester can send only {}: lower --min-rate", PacketRate::new(max_pps)));
        return Ok(());
    }
    result.max_pps = Reading::known(max_pps);
    let config = MlrConfig { min_pps: plan.min_pps, max_pps, goals: plan.goals.clone(), longest: plan.longest };
    let search = MlrSearch::new(config).map_err(Halt::Failed)?;
    let mut search = WarmedUp::new(search, max_pps, plan.warm_up);
    let mut halt = None;
    while let Some(step) = search.next_step() {
        progress(&format!("{}: {} for {}", bench.sizes, PacketRate::new(step.load_pps), step.duration));
        let offer = bench.constant(step.load_pps, step.duration);
        let warms_up = bench.trials.is_empty(); // its outcome does not count
        let ran = if warms_up { bench.once(Test::Throughput, &offer) } else { bench.run(Test::Throughput, &offer) };
        match ran {
            Ok(seen) => drop(search.record(step, seen.outcome)),
            Err(why) => {
                halt = Some(why);
                break;
            }
        }
    }
    if search.search().gave_up() {
        result.warnings.push(format!("the search gave up after {} of trials: see --longest", plan.longest));
    }
    result.goals = search.search().results().iter().map(goal_document).collect();
    if let Some(halt) = halt {
        return Err(halt);
    }
    for (found, goal) in search.search().results().iter().zip(&mut result.goals) {
        let Some(lower) = found.lower_pps else { continue };
        let duration = found.goal.final_trial;
        let offer = Offer { latency_from: duration / 10, ..bench.constant(lower as u64, duration) };
        goal.latency = Reading::known((&bench.run(Test::Latency, &offer)?.latency).into());
    }
    Ok(())
}

fn goal_document(found: &GoalResult) -> MlrGoal {
    let Goal { loss_ratio_ppm, exceed_ratio_ppm, width_ppm, initial_trial, final_trial, duration_sum } = found.goal;
    let known = |value: Option<f64>, why: &str| {
        let why = if found.reached { why } else { "the search did not get that far" };
        Reading::or_unknown(value, why)
    };
    MlrGoal {
        goal: found.goal.code(),
        loss_ratio_ppm,
        exceed_ratio_ppm,
        width_ppm,
        initial_trial_ns: initial_trial.as_nanos(),
        final_trial_ns: final_trial.as_nanos(),
        duration_sum_ns: duration_sum.as_nanos(),
        lower_pps: known(found.lower_pps, "even the lowest rate is an upper bound"),
        upper_pps: known(found.upper_pps, "even the highest rate is a lower bound"),
        throughput_pps: known(found.throughput_pps, "even the lowest rate is an upper bound"),
        reached: found.reached,
        trials_at_lower: found.trials_at_lower as u64,
        latency: Reading::unknown("no lower bound was found, or the procedure ended before"),
    }
}
