use super::*;

/// The rules of the module: all figures exist, all inputs have sources, all differences are explained, calibrated rows
/// agree, and each prediction has a null model.
#[test]
fn every_figure_keeps_the_rules() {
    let figures = all(1).unwrap();
    assert_eq!(figures.iter().map(|f| f.id).collect::<Vec<_>>(), ids().collect::<Vec<_>>());
    for figure in &figures {
        assert!(!figure.inputs.is_empty() && !figure.rows.is_empty() && figure.method.len() > 40, "{}", figure.id);
        assert!(figure.inputs.iter().all(|input| input.source.len() > 10), "{}: an input has no source", figure.id);
        for row in &figure.rows {
            let verdict = row.verdict();
            let place = format!("{}: {}, {}: {row:?}", figure.id, row.case, row.quantity);
            assert!(row.modelled.is_none_or(f64::is_finite), "{place}");
            assert!(row.modelled.is_some() || row.explanation.is_some(), "absent without a reason: {place}");
            assert!(verdict != Verdict::Differs || row.explanation.is_some(), "off without a reason: {place}");
            let off = row.deviation_percent().is_some_and(|percent| percent.abs() > 3.0);
            assert!(verdict != Verdict::Calibrated || !off, "calibrated, but not on this: {place}");
            let predicted = row.role == Role::Simulated && verdict != Verdict::NotCompared;
            assert!(!predicted || row.null_agrees().is_some(), "no null model beside it: {place}");
            assert!(row.null.is_none() || figure.null_model.is_some(), "{place}");
        }
        for sensitivity in &figure.sensitivity {
            let Sensitivity { knob, value, down, up } = sensitivity;
            let place = format!("{}: {sensitivity:?}", figure.id);
            assert!(!value.is_empty(), "{place}: {} is no input of the figure", knob.parameter);
            assert!(down.percent != 0.0 || up.percent != 0.0, "turns nothing: {place}");
        }
        let predicts = figure.rows.iter().any(|row| row.role == Role::Simulated && row.theirs != Theirs::Nothing);
        assert!(!predicts || !figure.sensitivity.is_empty(), "{}: predictions without sensitivity", figure.id);
    }
}

fn made(id: &str, seed: u64, tuning: &Tuning) -> Vec<Row> {
    let plan = PLANS.iter().find(|plan| plan.id == id).unwrap_or_else(|| panic!("{id}"));
    (plan.make)(seed, tuning).unwrap().rows
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_others() {
    for id in ["s0.6", "s1-latency", "s2.4", "s3.5-native"] {
        let make = |seed| made(id, seed, &Tuning::SHORT);
        assert_eq!(make(7), make(7), "{id}");
        assert_ne!(make(7), make(8), "{id}");
    }
    assert!(named("s9", 1).is_none());
}

/// A figure's latency is what `apus sim run` gives for its scenario, plus the PHYs of both links.
#[test]
fn a_figure_says_what_the_world_says() {
    let text = "machine = \"xeon-e5-2699v3\"\nnic = \"x540\"\nwarm_up = \"0s\"\nduration = \"2s\"\n\
                [[traffic]]\nkind = \"slots\"\nperiod = \"350us\"\njitter = \"350ns\"\nstart = \"100us\"\n\
                [worker]\ndriver = \"user\"\nwait = \"hybrid300\"\n[moderation]\npolicy = \"off\"\n\
                [scheduler]\nnohz_full = false\n[idle]\ndeepest = \"C1\"\n[frequency]\npolicy = \"fixed\"\nat = \"2.3GHz\"\n";
    let scenario = setup::scenario(text, &Tuning::NONE).unwrap();
    let outcome = crate::world::run(&scenario, Some(1)).unwrap();
    let expected = setup::mean(&outcome.latency) + 2.0 * 2.147;
    let rows = made("s1-idle", 1, &Tuning::NONE);
    let row = find(&rows, "maximum C-state C1", "average latency");
    assert!((row.modelled.unwrap() - expected).abs() < 1e-6, "{row:?}, {expected}");
}

fn find<'a>(rows: &'a [Row], case: &str, quantity: &str) -> &'a Row {
    rows.iter().find(|row| row.case == case && row.quantity == quantity).unwrap_or_else(|| panic!("{case}, {quantity}"))
}

/// If the simulator misses a document's number, the figure reports the miss instead of fitting a parameter to the
/// number.
#[test]
fn known_misses_are_told() {
    let rows = made("s0.6", 1, &Tuning::SHORT);
    let least = find(&rows, "2nd Generation", "least of the maxima of a second");
    assert_eq!((least.verdict(), least.role), (Verdict::Differs, Role::Simulated), "{least:?}");
    let rows = made("s1-idle", 1, &Tuning::SHORT);
    for state in ["C3", "C6"] {
        let row = find(&rows, &format!("maximum C-state {state}"), "average latency");
        assert_eq!((row.verdict(), row.role), (Verdict::Differs, Role::Simulated), "{row:?}");
    }
}
