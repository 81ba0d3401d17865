//! The procedures of RFC 2544 for each frame size. Throughput and loss are in this module, latency is in [`timing`],
//! and the other tests are in [`overload`].

use units::PacketRate;

use super::effort::{Effort, Test};
use super::measure::{Bench, Halt};
use super::result::{AnomalyCounts, Ended, LossRow, Repeated, Rfc2544Result, SizeResult};
use super::{Measurer, overload, timing};
use crate::document::Name;
use crate::host::Reading;
use crate::search::{BinarySearch, End, LossCurve, Search as _, SearchTrial, Verdict};
use crate::sizes::Sizes;

/// The plan of `apus bench rfc2544`: sizes, tests and limits.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Frame sizes, each measured separately.
    pub sizes: Vec<Sizes>,
    /// Tests to run. Throughput is always run.
    pub tests: Vec<Test>,
    /// Durations and repetitions.
    pub effort: Effort,
    /// Lowest rate to try, per direction.
    pub min_pps: u64,
    /// Highest rate to try, per direction. `None` if the user does not limit it.
    pub max_pps: Option<u64>,
    /// Speed of the slower link in bits per second; `None` if unknown.
    pub line_bits_per_s: Option<u64>,
    /// For each frame size, the throughput of the tester alone (with its ports connected to each other) in frames per
    /// second, from an earlier result.
    pub alone: Vec<(String, f64)>,
    /// Deviations from RFC 2544 in addition to those of `effort`, for example because of the ports.
    pub deviations: Vec<String>,
}

/// Runs the plan. `progress` is called with the name of each step. If the user stops the run or a trial fails, the
/// result contains the measurements made so far.
pub fn run<M: Measurer + ?Sized>(measurer: &mut M, plan: &Plan, progress: &mut dyn FnMut(&str)) -> Rfc2544Result {
    let mut sizes = Vec::new();
    let mut halted = None;
    for size in &plan.sizes {
        let bench = Bench::new(&mut *measurer, plan.effort, size.clone());
        let (result, halt) = one_size(bench, plan, progress);
        sizes.push(result);
        if halt.is_some() {
            halted = halt;
            break;
        }
    }
    let mut deviations = plan.effort.deviations(&plan.tests);
    deviations.extend(plan.deviations.iter().cloned());
    let standard = match (plan.effort.full, deviations.is_empty()) {
        (true, true) => "RFC 2544".to_owned(),
        (true, false) => "RFC 2544, with the deviations listed".to_owned(),
        (false, _) => "not RFC 2544: quick trials, to check that a setup works".to_owned(),
    };
    Rfc2544Result {
        standard,
        conforms: deviations.is_empty(),
        deviations,
        tests: plan.tests.iter().map(Name::of).collect(),
        ended: Ended { complete: halted.is_none(), because: halted.map(|halt| halt.to_string()) },
        sizes,
    }
}

fn one_size<M: Measurer + ?Sized>(
    mut bench: Bench<'_, M>,
    plan: &Plan,
    progress: &mut dyn FnMut(&str),
) -> (SizeResult, Option<Halt>) {
    let sizes = bench.sizes.clone();
    let octets: u64 = sizes.pattern().iter().map(|size| u64::from(size.octets())).sum();
    let name = sizes.to_string();
    let not_asked = "not requested";
    let mut result = SizeResult {
        mean_octets: octets as f64 / sizes.pattern().len() as f64,
        line_rate_pps: Reading::or_unknown(
            plan.line_bits_per_s.map(|speed| sizes.line_rate_pps(speed)),
            "the speed of the link is unknown",
        ),
        tester_ceiling_pps: Reading::unknown("not measured"),
        tester_alone_pps: Reading::or_unknown(
            plan.alone.iter().find(|(of, _)| *of == name).map(|(_, pps)| *pps),
            "not measured: connect the tester's ports directly to each other, run this command with -o FILE, and then pass --tester FILE",
        ),
        frames: name,
        max_pps: Reading::unknown("not measured"),
        throughput_pps: Reading::unknown("not measured"),
        at_least: false,
        latency: Reading::unknown(not_asked),
        loss: Reading::unknown(not_asked),
        back_to_back: Reading::unknown(not_asked),
        recovery_ns: Reading::unknown(not_asked),
        reset_ns: Reading::unknown(not_asked),
        anomalies: AnomalyCounts::default(),
        tester: bench.quality(),
        warnings: Vec::new(),
        trials: Vec::new(),
    };
    let halt = measure(&mut bench, plan, progress, &mut result).err();
    result.anomalies = bench.anomalies.into();
    result.tester = bench.quality();
    result.warnings = bench.warnings("trials");
    let alone = result.tester_alone_pps.value;
    if let (Some(alone), Some(found)) = (alone, &result.throughput_pps.value)
        && found.median > 0.95 * alone
    {
        result.warnings.push(
            "the throughput is within 5 % of that of the tester alone: the tester may be the limit, not the device"
                .into(),
        );
    }
    result.trials = std::mem::take(&mut bench.trials);
    (result, halt)
}

fn measure<M: Measurer + ?Sized>(
    bench: &mut Bench<'_, M>,
    plan: &Plan,
    progress: &mut dyn FnMut(&str),
    result: &mut SizeResult,
) -> Result<(), Halt> {
    let frames = result.frames.clone();
    let mut say = |what: &str| progress(&format!("{frames}: {what}"));
    say("what the tester can send");
    let ceiling = bench.ceiling(bench.effort.trial)?;
    result.tester_ceiling_pps = Reading::known(ceiling);
    let line = result.line_rate_pps.value.map_or(u64::MAX, |pps| pps as u64);
    let max_pps = ceiling.min(line).min(plan.max_pps.unwrap_or(u64::MAX));
    if max_pps <= plan.min_pps {
        let why = format!("the tester can send only {}, no more than the lowest rate", PacketRate::new(max_pps));
        result.throughput_pps = Reading::unknown(why);
        return Ok(());
    }
    result.max_pps = Reading::known(max_pps);
    say("throughput");
    let found = throughput(bench, plan.min_pps, max_pps)?;
    result.at_least = found.iter().any(|(_, at_least)| *at_least);
    let rates: Vec<f64> = found.iter().map(|(pps, _)| *pps as f64).collect();
    let repeated = Repeated::of(&rates).filter(|repeated| repeated.max > 0.0);
    let rate = repeated.as_ref().map_or(0, |repeated| repeated.median as u64);
    let why = match (rates.is_empty(), &repeated) {
        (true, _) => "the tester could not send in time even at the lowest rate: see the warnings, or lower --min-rate",
        (_, None) => {
            "no rate passed: does the device forward frames of this size (MTU, buffers) to the receiving port?"
        }
        (_, Some(_)) => "at least half of the throughput searches found no rate",
    };
    result.throughput_pps = Reading::or_unknown(repeated, why);
    if rate == 0 {
        result.recovery_ns = Reading::unknown(why);
        result.reset_ns = Reading::unknown(why);
        result.loss = Reading::unknown(why);
        result.latency = Reading::unknown(why);
        result.back_to_back = Reading::unknown(why);
        return Ok(());
    }
    for test in Test::ALL.into_iter().filter(|test| plan.tests.contains(test)) {
        if test != Test::Throughput {
            say(test.name());
        }
        match test {
            Test::Throughput => {}
            Test::Latency => result.latency = timing::latency(bench, rate)?.map(Box::new).into(),
            Test::Loss => result.loss = Reading::known(loss(bench, max_pps)?),
            Test::BackToBack => result.back_to_back = overload::back_to_back(bench, rate, max_pps)?.into(),
            Test::Recovery => result.recovery_ns = overload::recovery(bench, rate, max_pps)?.into(),
            Test::Reset => result.reset_ns = overload::reset(bench, rate)?.into(),
        }
    }
    Ok(())
}

/// Runs `effort.searches` throughput searches. Returns each rate found, and whether it is only a lower bound because
/// the highest rate passed or the tester was the limit. A search in which the device failed even at the lowest rate found 0. A search without a
/// rate for any other reason says nothing about the device, and is left out.
fn throughput<M: Measurer + ?Sized>(
    bench: &mut Bench<'_, M>,
    min_pps: u64,
    max_pps: u64,
) -> Result<Vec<(u64, bool)>, Halt> {
    let effort = bench.effort;
    let config = effort.search(min_pps, max_pps);
    let mut found = Vec::new();
    let [mut failed, mut left_out] = [0; 2];
    for _ in 0..effort.searches {
        let mut search = BinarySearch::new(config).map_err(Halt::Failed)?;
        while let Some(step) = search.next_step() {
            let offer = bench.constant(step.load_pps, step.duration);
            let seen = bench.run(Test::Throughput, &offer)?;
            search.record(step, seen.judged());
        }
        let Some(end) = search.found() else { continue };
        let of_device = |trial: &SearchTrial| trial.step.load_pps <= min_pps && trial.verdict == Verdict::Loss;
        match end.lower_pps {
            Some(lower) => found.push((lower, matches!(end.end, End::MaximumPassed | End::TesterLimited))),
            None if search.trials().iter().any(of_device) => {
                failed += 1;
                found.push((0, false));
            }
            None => left_out += 1,
        }
    }
    let (all, lowest) = (effort.searches, PacketRate::new(min_pps));
    if failed > 0 && failed < all {
        bench.notes.push(format!(
            "{failed} of the {all} throughput searches count as 0, because the device lost frames even at {lowest}: \
             lower --min-rate, or find out what disturbs the device"
        ));
    }
    if left_out > 0 {
        bench.notes.push(format!(
            "{left_out} of the {all} throughput searches are left out, because the tester could not send even \
             {lowest} in time: give it an isolated CPU (--cpu, --fifo)"
        ));
    }
    Ok(found)
}

/// Measures the loss curve (RFC 2544, 26.3).
fn loss<M: Measurer + ?Sized>(bench: &mut Bench<'_, M>, max_pps: u64) -> Result<Vec<LossRow>, Halt> {
    let effort = bench.effort;
    let mut curve = LossCurve::new(max_pps, effort.loss_step_ppm, effort.trial).map_err(Halt::Failed)?;
    while let Some(step) = curve.next_step() {
        let offer = bench.constant(step.load_pps, step.duration);
        let seen = bench.run(Test::Loss, &offer)?;
        curve.record(step, seen.outcome);
    }
    let row = |point: &crate::search::LossPoint| {
        let outcome = point.outcome;
        LossRow {
            load_percent: 100.0 * point.step.load_pps as f64 / max_pps as f64,
            load_pps: point.step.load_pps,
            sent: outcome.sent,
            lost: outcome.lost,
            unsent: outcome.unsent,
            loss_percent: (outcome.sent > 0).then(|| 100.0 * outcome.lost as f64 / outcome.sent as f64),
        }
    };
    Ok(curve.points().iter().map(row).collect())
}
