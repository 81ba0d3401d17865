//! Writes cases as CSV, one row each. An unknown value is empty.

use crate::documents::goals::Case;

const COLUMNS: [&str; 30] = [
    "machine",
    "nic",
    "traffic",
    "load_percent",
    "rate_pps",
    "deepest",
    "peak_pps",
    "goal",
    "duration_ns",
    "verdict",
    "marginal",
    "adaptive_uw",
    "adaptive_late_ppm",
    "adaptive_late_ppm_ci95_low",
    "adaptive_late_ppm_ci95_high",
    "adaptive_lost",
    "rival",
    "rival_tuned",
    "rival_uw",
    "rival_late_ppm",
    "rival_seeds",
    "because",
    "ring_ns",
    "power_multiple",
    "power_multiple_ci95_low",
    "power_multiple_ci95_high",
    "bound_uw",
    "bound_multiple",
    "first_second_multiple_median",
    "first_second_multiple_max",
];

/// Column names of the CSV file.
pub fn head() -> Vec<String> {
    COLUMNS.map(str::to_owned).to_vec()
}

/// Formats the row of a case.
pub fn row(case: &Case) -> Vec<String> {
    let ours = case.ways.last();
    let rival = case.ways.iter().find(|way| Some(&way.way) == case.rival.as_ref());
    let real = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
    let first = &case.first_second_multiples;
    let (late, power) = (ours.and_then(|ours| ours.late_ppm_ci95), case.power_multiple_ci95);
    vec![
        case.machine.clone(),
        case.nic.clone(),
        case.traffic.clone(),
        known(case.load_percent),
        known(case.rate_pps),
        case.deepest.clone(),
        known(case.peak_pps),
        case.goal.clone(),
        case.duration_ns.to_string(),
        case.verdict.to_string(),
        case.marginal.to_string(),
        known(ours.map(|ours| ours.power_uw)),
        real(ours.map(|ours| ours.late_ppm)),
        real(late.map(|(low, _)| low)),
        real(late.map(|(_, high)| high)),
        known(ours.map(|ours| ours.lost)),
        known(case.rival.clone()),
        known(rival.map(|rival| rival.tuned)),
        known(rival.map(|rival| rival.power_uw)),
        real(rival.map(|rival| rival.late_ppm)),
        known(rival.map(|rival| rival.seeds)),
        known(case.because),
        case.ring_ns.to_string(),
        real(case.power_multiple),
        real(power.map(|(low, _)| low)),
        real(power.map(|(_, high)| high)),
        known(case.bound_uw),
        real(case.bound_multiple),
        real(tester::statistics::median(first)),
        real(first.iter().copied().reduce(f64::max)),
    ]
}

fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
