//! S0.7: the power saved by running at a lower frequency.

use super::setup::{run, scenario};
use super::tuning::{Knob, Standing, Tuning};
use super::{FigureError, Input, Kind, Made, Plan, Role, Row, Theirs, inputs_of};
use crate::machine::Machine;

/// Number of cores that forward.
const BUSY: u32 = 30;
/// The processor's thermal design power in watts, as the document states it.
const DESIGN_POWER: f64 = 185.0;

pub(super) const PLAN: Plan = Plan {
    id: "s0.7",
    title: "Power of 30 forwarding cores at two frequencies",
    document: "Enhanced Power Management for Low-Latency Workloads (Intel 637284-001US), section 4.3, figure 8",
    null_model: Some("at the base frequency the package takes its thermal design power, 185 W"),
    // 15 % more is 0.85 V. A slope of 0.25 V per GHz above 1.5 GHz would give nearly the same, 0.875 V.
    knobs: &[
        Knob { parameter: "processor.power.curve.2", standing: Standing::Fitted, percent: 15 },
        Knob::estimate("processor.power.uncore.1"),
    ],
    make,
};

fn make(seed: u64, tuning: &Tuning) -> Result<Made, FigureError> {
    let watts = |at: &str| -> Result<f64, FigureError> {
        let text = format!(
            "machine = \"xeon-gold-6338n\"\nnic = \"x710\"\nwarm_up = \"0s\"\nduration = \"5ms\"\n\
             [[traffic]]\nkind = \"constant\"\nrate = \"1Mpps\"\n\
             [worker]\ndriver = \"user\"\nwait = \"poll\"\ncores = 1\nalike = {}\n\
             [idle]\ndeepest = \"C1\"\n[frequency]\npolicy = \"fixed\"\nat = \"{at}\"\n",
            BUSY - 1
        );
        let scenario = scenario(&text, tuning)?;
        let outcome = run(&scenario, seed)?;
        Ok(outcome.package.power(outcome.duration).as_microwatts() as f64 / 1e6)
    };
    let (before, after) = (watts("2.2GHz")?, watts("800MHz")?);
    let row =
        |role, case: &str, quantity, unit, value| Row::new(role, case, quantity, unit, Kind::Typical).modelled(value);
    let rows = vec![
        row(Role::Simulated, "30 cores at 2.2 GHz", "package power", "W", before)
            .theirs(Theirs::Value(176.0))
            .null(DESIGN_POWER),
        row(Role::Calibrated, "30 cores at 800 MHz", "package power", "W", after).theirs(Theirs::Value(123.0)),
        row(Role::Arithmetic, "2.2 GHz to 800 MHz", "saving", "%", (before - after) / before * 100.0)
            .theirs(Theirs::Value(30.0)),
        row(Role::Arithmetic, "2.2 GHz to 800 MHz", "saving a core", "W", (before - after) / f64::from(BUSY))
            .theirs(Theirs::Value(1.8)),
    ];
    let machine = Machine::named("xeon-gold-6338n")?;
    let mut inputs = inputs_of(&machine, &["processor.power"]);
    inputs.push(Input::new(
        "activity of a polling core",
        "that of a working one",
        "assumption: a loop that polls keeps the core as busy as what the thermal design power is stated for",
    ));
    inputs.push(Input::new(
        "the other two cores",
        "C1",
        "assumption: they run the operating system, and are mostly idle in a shallow state",
    ));
    Ok(Made {
        method: "Worlds of one core that polls, with 29 alike, at two fixed frequencies; two cores are in C1, the uncore \
                 stays at its highest frequency. The package's power is its thermal design power, shared out between uncore \
                 and cores, and scaled with frequency and voltage. Calibrated: the voltage at 2.2 GHz, on the 123 W at 800 \
                 MHz. The two savings are differences of the rows above: no evidence of their own."
            .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}
