//! Energy of a demo's runs, for its table and its report.

use crate::demo::result::DemoResult;
use crate::document::{Energy, MeasuredEnergy};

/// One line for each mode at each load below a title, or one line with the reason why no power is known.
pub(super) fn lines(result: &DemoResult) -> Vec<String> {
    let known = |energy: &Energy| energy.measured.value.is_some() || energy.modelled.is_some();
    if !result.runs.iter().any(|run| known(&run.latency.energy)) {
        return vec![format!("Power: {}.", reason(result))];
    }
    let width = result.plan.modes.iter().map(|mode| mode.name.chars().count()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for load in &result.plan.loads {
        for mode in &result.plan.modes {
            // The last round: a machine that warms up draws more at the end.
            let of = |run: &&super::result::Run| run.mode == mode.name && run.load == load.id;
            if let Some(run) = result.runs.iter().rfind(of) {
                let energy = &run.latency.energy;
                let measured = energy.measured.value.as_ref().map(MeasuredEnergy::says);
                let said: Vec<String> = measured.into_iter().chain(energy.modelled_says()).collect();
                lines.push(format!("  {:<width$}  {}: {}", mode.name, load.title, said.join("; ")));
            }
        }
    }
    let measured = result.runs.iter().any(|run| run.latency.energy.measured.value.is_some());
    let title = match measured {
        true => "Power, of everything that the meters count:".to_owned(),
        false => format!("Power: {}. By a model:", reason(result)),
    };
    lines.insert(0, title);
    lines
}

/// Why no meter measured the energy of any run.
pub(super) fn reason(result: &DemoResult) -> String {
    let mut reasons = result.runs.iter().filter_map(|run| run.latency.energy.measured.unknown_because.clone());
    reasons.next().unwrap_or_else(|| "not measured, as there was no run".into())
}

/// The energy of each run of the last round and of each run near the highest loss-free rate, with the name of its mode
/// and load.
pub(super) fn named(result: &DemoResult) -> Vec<(String, &Energy)> {
    let last = result.runs.iter().map(|run| run.round).max().unwrap_or(0);
    let runs = result.runs.iter().filter(|run| run.round == last || run.load == super::result::NEAR);
    runs.map(|run| (format!("{}, {}", run.mode, run.load), &run.latency.energy)).collect()
}
