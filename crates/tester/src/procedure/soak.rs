//! A soak sends one load for a long time, and reports it window by window in the document `apus.bench-soak/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::Measurer;
use super::effort::{Effort, Test};
use super::measure::{Bench, Halt};
use super::result::{AnomalyCounts, Ended, Setup, TesterQuality};
use crate::document::Distribution;
use crate::histogram::Histogram;
use crate::host::{HostState, Reading};
use crate::sizes::Sizes;

/// Name and version of the schema.
pub const SOAK_SCHEMA: &str = "apus.bench-soak/1";
/// Losses count as clustered if more than half of them lie in this percentage of the windows.
const FEW_PERCENT: usize = 10;

/// The JSON document of `apus bench soak`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SoakDocument {
    /// Version of Apus.
    pub apus: String,
    /// `apus.bench-soak/1`
    #[schemars(extend("const" = SOAK_SCHEMA))]
    pub schema: String,
    /// The host of the tester.
    pub host: HostState,
    /// The ports and the traffic.
    pub setup: Setup,
    /// The measured values.
    pub result: SoakResult,
}

/// The result of a soak.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SoakResult {
    /// Frame size in bytes, including the frame check sequence, or an IMIX genome (RFC 6985).
    pub frames: String,
    /// Load in frames per second and direction.
    pub load_pps: u64,
    /// Length of a window.
    pub window_ns: u64,
    /// How the soak ended.
    pub ended: Ended,
    /// Frames sent.
    pub sent: u64,
    /// Frames not forwarded.
    pub lost: u64,
    /// Number of due frames that the tester failed to send.
    pub unsent: u64,
    /// Upper bound of the loss ratio at 95 % confidence. Without loss, it is 3 / `sent` ("rule of three"). The bound
    /// assumes independent losses, so it is unknown if losses cluster in a few windows.
    pub loss_ratio_below: Reading<f64>,
    /// Latency of all frames.
    pub latency: Distribution,
    /// Anomalous frames, by kind: duplicate, corrupted, reordered and so on.
    pub anomalies: AnomalyCounts,
    /// Quality of the tester's own work.
    pub tester: TesterQuality,
    /// Problems of this result, each with its remedy.
    pub warnings: Vec<String>,
    /// The windows, in order. The last one may be shorter than the others.
    pub windows: Vec<SoakWindow>,
}

/// Frames and latency of one window of the soak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SoakWindow {
    /// Frames sent.
    pub sent: u64,
    /// Frames not forwarded.
    pub lost: u64,
    /// Number of due frames that the tester failed to send.
    pub unsent: u64,
    /// Median latency; null if there were too few frames.
    pub p50_ns: Option<u64>,
    /// 99th percentile of the latency; null if there were too few frames.
    pub p99_ns: Option<u64>,
    /// Maximum latency; null if no frame came back, or if it is above the histogram's range.
    pub max_ns: Option<u64>,
}

/// The plan of a soak: what to send, and for how long.
#[derive(Clone, PartialEq, Debug)]
pub struct SoakPlan {
    /// Sizes of the frames.
    pub sizes: Sizes,
    /// Load per direction.
    pub load_pps: u64,
    /// Length of the soak.
    pub duration: Nanos,
    /// Length of a window.
    pub window: Nanos,
}

impl SoakPlan {
    /// Number of windows.
    pub fn windows(&self) -> u64 {
        self.duration.as_nanos().div_ceil(self.window.as_nanos().max(1))
    }
}

/// Runs the plan. If the user stops the run or a trial fails, the result contains the measurements made so far.
pub fn run<M: Measurer + ?Sized>(measurer: &mut M, plan: &SoakPlan, progress: &mut dyn FnMut(&str)) -> SoakResult {
    // No pauses, so that the load is interrupted only briefly between windows.
    let effort =
        Effort { after_learning: Nanos::ZERO, between: Nanos::ZERO, residue: Nanos::from_millis(50), ..Effort::FULL };
    let mut bench = Bench::new(measurer, effort, plan.sizes.clone());
    let (mut windows, mut latency) = (Vec::new(), Histogram::new());
    let halted = soak(&mut bench, plan, progress, &mut windows, &mut latency).err();
    let sum = |of: fn(&SoakWindow) -> u64| windows.iter().map(of).sum::<u64>();
    let (sent, lost) = (sum(|window| window.sent), sum(|window| window.lost));
    SoakResult {
        frames: plan.sizes.to_string(),
        load_pps: plan.load_pps,
        window_ns: plan.window.as_nanos(),
        ended: Ended { complete: halted.is_none(), because: halted.as_ref().map(Halt::to_string) },
        sent,
        lost,
        unsent: sum(|window| window.unsent),
        loss_ratio_below: bound(sent, lost, &windows),
        latency: (&latency).into(),
        anomalies: bench.anomalies.into(),
        tester: bench.quality(),
        warnings: bench.warnings("windows"),
        windows,
    }
}

fn soak<M: Measurer + ?Sized>(
    bench: &mut Bench<'_, M>,
    plan: &SoakPlan,
    progress: &mut dyn FnMut(&str),
    windows: &mut Vec<SoakWindow>,
    latency: &mut Histogram,
) -> Result<(), Halt> {
    let count = plan.windows();
    let mut left = plan.duration;
    bench.learn()?;
    for number in 1..=count {
        progress(&format!("window {number} of {count}"));
        let length = plan.window.min(left);
        left = left.saturating_sub(length);
        let seen = bench.go_on(Test::Loss, &bench.constant(plan.load_pps, length))?;
        latency.add(&seen.latency);
        let of = Distribution::from(&seen.latency);
        let (p50_ns, p99_ns, max_ns) = (of.p50_ns, of.p99_ns, of.max_ns);
        let outcome = seen.outcome;
        let (sent, lost, unsent) = (outcome.sent, outcome.lost, outcome.unsent);
        windows.push(SoakWindow { sent, lost, unsent, p50_ns, p99_ns, max_ns });
        if seen.interrupted {
            return Err(Halt::Interrupted);
        }
    }
    Ok(())
}

/// One-sided upper 95 % bound of a Poisson count, divided by the frames sent. The bound is 3.0 without loss. With at
/// least one loss, it is the approximation of Wilson and Hilferty, with an error of at most 1 %.
fn bound(sent: u64, lost: u64, windows: &[SoakWindow]) -> Reading<f64> {
    const NORMAL_95: f64 = 1.644_853_6;
    if sent == 0 {
        return Reading::unknown("no frame was sent");
    }
    let mut by_loss: Vec<u64> = windows.iter().map(|window| window.lost).collect();
    by_loss.sort_unstable_by(|a, b| b.cmp(a));
    let few = (windows.len() * FEW_PERCENT / 100).max(1);
    let worst: u64 = by_loss.iter().take(few).sum();
    if lost >= 10 && windows.len() >= 10 && 2 * worst > lost {
        return Reading::unknown("losses cluster: 10 % of the windows contain half of them; see the list of windows");
    }
    if lost == 0 {
        return Reading::known((-0.05f64.ln() / sent as f64).min(1.0));
    }
    let n = (lost + 1) as f64;
    let upper = n * (1.0 - 1.0 / (9.0 * n) + NORMAL_95 / (3.0 * n.sqrt())).powi(3);
    Reading::known((upper / sent as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{Simulated, Tamper};
    use super::*;
    use crate::frame::FrameSize;

    fn plan(load_pps: u64) -> SoakPlan {
        let sizes = Sizes::one(FrameSize::SMALLEST);
        SoakPlan { sizes, load_pps, duration: Nanos::from_secs(600), window: Nanos::from_secs(10) }
    }

    #[test]
    fn states_how_rare_a_loss_is_at_most() {
        let result = run(&mut Simulated::new(1), &plan(900), &mut |_| {});
        assert_eq!((result.windows.len(), result.sent, result.lost), (60, 540_000, 0));
        let below = result.loss_ratio_below.value.unwrap();
        assert!((below * 540_000.0 - 3.0).abs() < 0.03, "{below}"); // -ln 0.05 = 2.996
        // One frame of each window is damaged.
        let mut device = Simulated { each: 5_000, tamper: Tamper::Corrupt, ..Simulated::new(1) };
        let result = run(&mut device, &plan(900), &mut |_| {});
        assert_eq!(result.lost, 60, "one in each window of 9,000");
        let below = result.loss_ratio_below.value.unwrap() * 540_000.0;
        assert!((74.0..75.0).contains(&below), "{below}"); // chi-squared: 74.39
    }

    #[test]
    fn an_interrupted_soak_keeps_its_windows() {
        // Trial 1 sends the learning frames; trial 11 is the window that the user stops.
        let mut device = Simulated { stops_at: Some(11), ..Simulated::new(1) };
        let result = run(&mut device, &plan(900), &mut |_| {});
        assert_eq!((result.windows.len(), result.ended.complete), (10, false));
        let said = &super::super::table::soak_table(&result)[0];
        assert!(said.contains("10 windows of 10s, the last one cut short: "), "{said}");
    }

    /// A soak of 1 s with windows of 300 ms once took 1.2 s; learning frames went before each window.
    #[test]
    fn a_soak_sends_for_its_duration() {
        let plan = SoakPlan { duration: Nanos::from_secs(1), window: Nanos::from_millis(300), ..plan(100) };
        let mut device = Simulated::new(1);
        let result = run(&mut device, &plan, &mut |_| {});
        assert_eq!(result.windows.iter().map(|window| window.sent).collect::<Vec<_>>(), [30, 30, 30, 10]);
        assert_eq!((result.sent, device.trials), (100, 1 + 4));
    }

    #[test]
    fn a_loss_ratio_is_at_most_1() {
        let window = SoakWindow { sent: 2, lost: 0, unsent: 0, p50_ns: None, p99_ns: None, max_ns: None };
        assert_eq!(bound(2, 0, &[window]).value, Some(1.0));
        assert_eq!(bound(2, 2, &[SoakWindow { lost: 2, ..window }]).value, Some(1.0));
    }

    #[test]
    fn clustered_losses_have_no_bound() {
        let window = |lost| SoakWindow { sent: 1_000, lost, unsent: 0, p50_ns: None, p99_ns: None, max_ns: None };
        let mut windows = vec![window(0); 20];
        windows[3] = window(50);
        let reading = bound(20_000, 50, &windows);
        assert!(reading.unknown_because.unwrap().contains("cluster"));
    }
}
