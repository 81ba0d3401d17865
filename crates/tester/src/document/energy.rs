//! The energy of a run, in every document that reports one.
//!
//! Only `host` reads meters, and `tester` does not depend on it: whoever runs a trial is given an [`EnergyMeter`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::Reading;

/// Counts energy while something runs.
pub trait EnergyMeter: Send {
    /// A run begins.
    fn start(&mut self);

    /// The run has ended. `frames` are the frames that it received; `None` if it is not about frames. `work` is the
    /// CPU time of what was tested, or why that is unknown.
    fn stop(&mut self, frames: Option<u64>, work: Result<Work, String>) -> Energy;
}

/// CPU time and wake-ups of the tested threads during a run, from which a model estimates the energy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// CPU time of the measured threads.
    pub cpu_ns: u64,
    /// Number of times that these threads woke up; `None` if unknown.
    pub wakeups: Option<u64>,
}

/// The energy of a run.
///
/// Meters count all that the machine did meanwhile, not the tested program alone: compare runs on a machine that does
/// nothing else. Where there is no meter, `cpu_ns` is what there is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// Energy of the meters that may be added up, or why it is unknown.
    pub measured: Reading<MeasuredEnergy>,
    /// Each meter of the machine on its own; some include others. Empty if there is none.
    pub meters: Vec<MeterEnergy>,
    /// CPU time of the tested threads.
    pub cpu_ns: Reading<u64>,
    /// `cpu_ns` divided by the frames.
    pub cpu_per_frame_ns: Option<f64>,
    /// Frames by which the figures per frame are divided: those that were received; null if the run is not about frames.
    pub frames: Option<u64>,
    /// Energy that the same work would take on another machine, according to a model; null unless a machine was named.
    pub modelled: Option<Reading<ModelledEnergy>>,
}

/// Energy by meters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredEnergy {
    /// The energy.
    pub energy_uj: u64,
    /// The energy divided by the frames; null without frames.
    pub energy_per_frame_nj: Option<f64>,
    /// The mean power; null if no time passed.
    pub power_uw: Option<u64>,
    /// Time between the two readings.
    pub interval_ns: u64,
    /// The meters that were added up: `package-0 + package-0 dram`.
    pub meter: String,
    /// What the sum includes.
    pub includes: String,
    /// The least difference that the sum can show; null if the meters show power.
    pub resolution_nj: Option<u64>,
}

/// The energy of one meter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeterEnergy {
    /// Name of the meter: `package-0`.
    pub meter: String,
    /// The interface through which the meter was read: `powercap`, `perf`, `msr`, `acpi` or `hwmon`.
    pub interface: String,
    /// Path, event or register.
    pub place: String,
    /// What the meter includes.
    pub includes: String,
    /// Whether the sum in `measured` includes this meter.
    pub counted: bool,
    /// The energy, or why it is unknown.
    pub energy_uj: Reading<u64>,
    /// The mean power; null if the energy is unknown.
    pub power_uw: Option<u64>,
    /// The least difference of two readings; null for a meter that shows power.
    pub resolution_nj: Option<u64>,
    /// How often the meter is updated; null if that is not known.
    pub update_interval_ns: Option<u64>,
    /// The accuracy that the meter's maker claims, in ppm; null if none is claimed.
    pub accuracy_ppm: Option<u32>,
}

/// Energy by a model. It is no measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelledEnergy {
    /// The modelled machine.
    pub machine: String,
    /// How the figure is made from the measured CPU time, and what it includes.
    pub includes: String,
    /// The modelled energy of one core.
    pub energy_uj: u64,
    /// Modelled energy per frame; null without frames.
    pub energy_per_frame_nj: Option<f64>,
    /// The mean modelled power.
    pub power_uw: Option<u64>,
}

impl Energy {
    /// An energy result without figures; `why` is the reason.
    pub fn unmeasured(why: &str) -> Self {
        Self { measured: Reading::unknown(why), cpu_ns: Reading::unknown(why), ..Self::default() }
    }

    /// Fills the figures per frame from powers and a rate, for a run whose frames are counted for only a part of its time.
    /// `cpu_share` is the CPU time of the tested threads as a share of one CPU.
    pub fn at_rate(mut self, pps: Option<f64>, cpu_share: Option<f64>) -> Self {
        let Some(pps) = pps.filter(|pps| *pps > 0.0) else { return self };
        // Microwatts a thousand times are nanowatts, and nJ a frame is nW by frames a second.
        let per_frame = |uw: Option<u64>| uw.map(|uw| uw as f64 * 1e3 / pps);
        if let Some(of) = &mut self.measured.value {
            of.energy_per_frame_nj = per_frame(of.power_uw);
        }
        if let Some(of) = self.modelled.as_mut().and_then(|modelled| modelled.value.as_mut()) {
            of.energy_per_frame_nj = per_frame(of.power_uw);
        }
        self.cpu_per_frame_ns = cpu_share.map(|share| share * 1e9 / pps);
        self
    }

    /// An amount divided by the frames; `None` without frames.
    pub fn per_frame(amount: f64, frames: Option<u64>) -> Option<f64> {
        frames.filter(|frames| *frames > 0).map(|frames| amount / frames as f64)
    }

    /// One line for people: watts and energy per frame, or why there are none.
    pub fn says(&self) -> String {
        let measured = self.measured.value.as_ref().map(MeasuredEnergy::says).unwrap_or_else(|| {
            let cpu = self.cpu_per_frame_ns.map_or(String::new(), |ns| format!("; CPU time {ns:.0} ns a frame"));
            let why = self.measured.unknown_because.as_deref().unwrap_or("no reason given");
            // A list of all the places where nothing was found is for the document.
            let why = match why.split_once(": ") {
                Some((short, _)) if why.len() > LONGEST_REASON => format!("{short}; see apus power watch"),
                _ => why.to_owned(),
            };
            format!("unknown ({why}){cpu}")
        });
        match self.modelled_says() {
            Some(modelled) => format!("{measured}; {modelled}"),
            None => measured,
        }
    }

    /// The modelled figure, or why there is none; `None` if no machine was named.
    pub fn modelled_says(&self) -> Option<String> {
        let modelled = self.modelled.as_ref()?;
        Some(match &modelled.value {
            Some(of) => format!(
                "MODELLED on {}: {}{}",
                of.machine,
                of.power_uw.map_or("unknown".to_owned(), watts),
                per_frame(of.energy_per_frame_nj)
            ),
            None => format!("no modelled figure: {}", modelled.unknown_because.as_deref().unwrap_or_default()),
        })
    }
}

impl MeasuredEnergy {
    /// Power, energy and energy per frame, for people.
    pub fn says(&self) -> String {
        let power = self.power_uw.map_or("unknown".to_owned(), watts);
        let energy = joules(self.energy_uj as f64 * 1e3);
        format!("{power}, {energy}{} ({})", per_frame(self.energy_per_frame_nj), self.meter)
    }
}

fn per_frame(nj: Option<f64>) -> String {
    nj.map_or(String::new(), |nj| format!(", {} a frame", joules(nj)))
}

/// The longest reason that fits in a line of text, in bytes.
const LONGEST_REASON: usize = 100;

fn watts(uw: u64) -> String {
    format!("{:.3} W", uw as f64 / 1e6)
}

/// An energy in nanojoules, with the unit that suits it.
fn joules(nj: f64) -> String {
    match nj {
        nj if nj >= 1e9 => format!("{:.3} J", nj / 1e9),
        nj if nj >= 1e6 => format!("{:.3} mJ", nj / 1e6),
        nj if nj >= 1e3 => format!("{:.3} uJ", nj / 1e3),
        nj => format!("{nj:.1} nJ"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_has_units_and_reasons() {
        let mut energy = Energy::unmeasured("no energy meter here");
        assert_eq!(energy.says(), "unknown (no energy meter here)");
        energy.cpu_per_frame_ns = Some(812.4);
        energy.modelled = Some(Reading::known(ModelledEnergy {
            machine: "m".into(),
            includes: "one core".into(),
            energy_uj: 2_000_000,
            energy_per_frame_nj: Some(2_500.0),
            power_uw: Some(1_800_000),
        }));
        let said = energy.says();
        assert_eq!(
            said,
            "unknown (no energy meter here); CPU time 812 ns a frame; MODELLED on m: 1.800 W, 2.500 uJ a frame"
        );
        energy.measured = Reading::known(MeasuredEnergy {
            energy_uj: 45_000_000,
            energy_per_frame_nj: Energy::per_frame(45e9, Some(1_000_000)),
            power_uw: Some(45_000_000),
            interval_ns: 1_000_000_000,
            meter: "package-0".into(),
            includes: "a package".into(),
            resolution_nj: Some(61_036),
        });
        assert!(energy.says().starts_with("45.000 W, 45.000 J, 45.000 uJ a frame (package-0)"), "{}", energy.says());
        assert_eq!(Energy::per_frame(1.0, Some(0)), None, "no frame, no figure");
    }
}
