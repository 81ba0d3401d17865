//! Energy in the report of `apus bench`: one figure for measured energy, another for modelled energy, and two table
//! columns.

use super::model::{Bar, Bars, Cell, Column, Estimate};
use crate::document::Energy;

/// The figures of energy per frame: one measured by meters, one estimated by a model. Leaves out a figure for which no
/// result has data.
pub(crate) fn bars(results: &[(&str, &Energy)]) -> Vec<Bars> {
    let figure = |title: &str, caption: String, value: &dyn Fn(&Energy) -> Option<f64>| {
        let bar = |(name, energy): &(&str, &Energy)| {
            Some(Bar { series: (*name).into(), value: Estimate::exact(value(energy)? / 1e3) })
        };
        let bars: Vec<Bar> = results.iter().filter_map(bar).collect();
        let (quantity, unit) = ("energy per frame".into(), "uJ".into());
        (!bars.is_empty()).then(|| Bars { title: title.into(), caption, quantity, unit, bars })
    };
    let measured = |energy: &Energy| energy.measured.value.as_ref()?.energy_per_frame_nj;
    let modelled = |energy: &Energy| energy.modelled.as_ref()?.value.as_ref()?.energy_per_frame_nj;
    let meter = results.iter().find_map(|(_, energy)| energy.measured.value.as_ref());
    let counted = meter.map_or(String::new(), |of| {
        format!("All that {} counted during the measurement, also for other programs: {}.", of.meter, of.includes)
    });
    let model = results.iter().find_map(|(_, energy)| energy.modelled.as_ref()?.value.as_ref());
    let model =
        model.map_or(String::new(), |of| format!("No measurement: a model of {}: {}.", of.machine, of.includes));
    [figure("Energy per frame", counted, &measured), figure("Energy per frame, MODELLED", model, &modelled)]
        .into_iter()
        .flatten()
        .collect()
}

/// The columns that [`cells`] fills.
pub(super) fn columns() -> [Column; 2] {
    [Column::new("power", "W"), Column::new("energy per frame", "uJ")]
}

/// The measured power and energy per frame of a result, or why they are unknown.
pub(super) fn cells(energy: &Energy) -> [Cell; 2] {
    let Some(of) = &energy.measured.value else {
        let why = energy.measured.unknown_because.clone().unwrap_or_default();
        return [Cell::Unknown(why.clone()), Cell::Unknown(why)];
    };
    let cell = |value: Option<f64>, why: &str| match value {
        Some(value) => Cell::Number(Estimate::exact(value)),
        None => Cell::Unknown(why.into()),
    };
    [
        cell(of.power_uw.map(|uw| uw as f64 / 1e6), "no time passed"),
        cell(of.energy_per_frame_nj.map(|nj| nj / 1e3), "no frame came back"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{MeasuredEnergy, ModelledEnergy};
    use crate::host::Reading;

    #[test]
    fn measured_and_modelled_energy_are_never_in_one_figure() {
        let none = Energy::unmeasured("no energy meter here");
        assert!(bars(&[("a", &none)]).is_empty());
        assert_eq!(cells(&none)[0], Cell::Unknown("no energy meter here".into()));
        let measured = MeasuredEnergy {
            energy_uj: 45_000_000,
            energy_per_frame_nj: Some(45_000.0),
            power_uw: Some(45_000_000),
            interval_ns: 1_000_000_000,
            meter: "package-0".into(),
            includes: "the package".into(),
            resolution_nj: Some(61_035),
        };
        let modelled = ModelledEnergy {
            machine: "m".into(),
            includes: "one core".into(),
            energy_uj: 2,
            energy_per_frame_nj: Some(2_000.0),
            power_uw: Some(2),
        };
        let both =
            Energy { measured: Reading::known(measured), modelled: Some(Reading::known(modelled)), ..none.clone() };
        let figures = bars(&[("a", &none), ("b", &both)]);
        let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
        assert_eq!(titles, ["Energy per frame", "Energy per frame, MODELLED"]);
        assert!(figures.iter().all(|figure| figure.bars.len() == 1 && figure.bars[0].series == "b"));
        assert!(figures[1].caption.starts_with("No measurement"));
        assert_eq!(cells(&both)[1], Cell::Number(Estimate::exact(45.0)));
    }
}
