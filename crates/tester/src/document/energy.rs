//! The energy of a run, in every document that reports one.
//!
//! Only the crate `host` reads meters, and `tester` does not depend on `host`. So the caller passes an [`EnergyMeter`]
//! to the code that runs a trial.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::Reading;

/// Measures the energy of a run.
pub trait EnergyMeter: Send {
    /// Called when a run begins.
    fn start(&mut self);

    /// Called when the run has ended. `frames` is the number of frames received in the run; `None` if the run does not
    /// count frames. `work` is the CPU time of the tested threads, or why it is unknown.
    fn stop(&mut self, frames: Option<u64>, work: Result<Work, String>) -> Energy;
}

/// CPU time and wake-ups of the tested threads during a run, from which a model estimates the energy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// CPU time of the tested threads.
    pub cpu_ns: u64,
    /// Number of times that the tested threads woke up; `None` if unknown.
    pub wakeups: Option<u64>,
}

/// The energy of a run.
///
/// Meters count everything that the machine did during the run, not only what the tested program did. So compare only
/// runs on a machine that does nothing else. Without a meter, compare `cpu_ns`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// The sum over meters that do not include each other, or why the sum is unknown.
    pub measured: Reading<MeasuredEnergy>,
    /// Each meter of the machine separately. Some meters include others, so do not add them up. Empty if the machine
    /// has none.
    pub meters: Vec<MeterEnergy>,
    /// CPU time of the tested threads.
    pub cpu_ns: Reading<u64>,
    /// `cpu_ns` divided by `frames`; null if either is unknown.
    pub cpu_per_frame_ns: Option<f64>,
    /// Number of frames received, by which the figures per frame are divided; null if the run does not count frames.
    pub frames: Option<u64>,
    /// Energy that a model estimates for the same work on another machine; null unless the user named that machine.
    pub modelled: Option<Reading<ModelledEnergy>>,
}

/// Energy measured by meters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredEnergy {
    /// The energy that the meters measured during the run.
    pub energy_uj: u64,
    /// The energy divided by the frames; null without frames.
    pub energy_per_frame_nj: Option<f64>,
    /// The mean power; null if no time passed.
    pub power_uw: Option<u64>,
    /// Time between the readings at the start and at the end of the run.
    pub interval_ns: u64,
    /// The meters that were added up, such as `package-0 + package-0 dram`.
    pub meter: String,
    /// Which parts of the machine the sum includes.
    pub includes: String,
    /// The smallest energy difference that the sum can show; null if the meters show power.
    pub resolution_nj: Option<u64>,
}

/// The energy of one meter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeterEnergy {
    /// Name of the meter, such as `package-0`.
    pub meter: String,
    /// The interface through which the meter was read: `powercap`, `perf`, `msr`, `acpi` or `hwmon`.
    pub interface: String,
    /// The file path, perf event or register that was read.
    pub place: String,
    /// Which parts of the machine the meter includes.
    pub includes: String,
    /// Whether this meter is part of the sum in `measured`.
    pub counted: bool,
    /// The energy that the meter counted during the run, or why it is unknown.
    pub energy_uj: Reading<u64>,
    /// The mean power; null if the energy is unknown.
    pub power_uw: Option<u64>,
    /// The smallest energy difference that the meter can show; null for a meter that shows power.
    pub resolution_nj: Option<u64>,
    /// How often the meter is updated; null if that is not known.
    pub update_interval_ns: Option<u64>,
    /// The accuracy that the meter's maker claims, in ppm; null if none is claimed.
    pub accuracy_ppm: Option<u32>,
}

/// Energy according to a model. It is an estimate, not a measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelledEnergy {
    /// The modelled machine.
    pub machine: String,
    /// How the model computes the energy from the measured CPU time, and what the energy includes.
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

    /// Computes the figures per frame as power divided by the frame rate `pps`. Use this for a run that counts frames
    /// during only part of its time. `cpu_share` is the CPU time of the tested threads as a share of one CPU.
    pub fn at_rate(mut self, pps: Option<f64>, cpu_share: Option<f64>) -> Self {
        let Some(pps) = pps.filter(|pps| *pps > 0.0) else { return self };
        // 1 uW is 1000 nW, and nJ per frame is nW divided by frames per second.
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

    /// `amount` divided by the number of frames; `None` without frames.
    pub fn per_frame(amount: f64, frames: Option<u64>) -> Option<f64> {
        frames.filter(|frames| *frames > 0).map(|frames| amount / frames as f64)
    }

    /// One line for people: power and energy per frame, or why they are unknown.
    pub fn says(&self) -> String {
        let measured = self.measured.value.as_ref().map(MeasuredEnergy::says).unwrap_or_else(|| {
            let cpu = self.cpu_per_frame_ns.map_or(String::new(), |ns| format!("; CPU time {ns:.0} ns a frame"));
            let why = self.measured.unknown_because.as_deref().unwrap_or("no reason given");
            // The full list of places that were searched is only in the document.
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

    /// One line for people: the modelled power and energy, or why they are unknown; `None` if the user named no machine
    /// to model.
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

/// Formats an energy, given in nJ, in J, mJ, uJ or nJ.
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
