//! S0.7: what a lower frequency saves.

use units::{Hertz, Microwatts};

use super::{Figure, Input, Kind, Row, Theirs, inputs_of};
use crate::hw::cstate::Gate;
use crate::hw::power::PowerModel;
use crate::machine::{Machine, MachineError};

/// Cores that forward.
const BUSY: u32 = 30;

/// Chance plays no part in it.
pub(super) fn figure(_seed: u64) -> Result<Figure, MachineError> {
    let machine = Machine::named("xeon-gold-6338n")?;
    let power = &machine.processor()?.power;
    let uncore = power.uncore[power.uncore.len() - 1].frequency;
    let watts = |frequency| package(power, frequency, uncore).as_microwatts() as f64 / 1e6;
    let (before, after) = (watts(Hertz::new(2_200_000_000)), watts(Hertz::new(800_000_000)));
    let named = |case: &str, quantity, unit| Row::predicted(case, quantity, unit, Kind::Typical);
    let soft = "The saving is a difference of two powers of about the same size, so that it takes their errors together. \
                The voltage at 0.8 and 2.2 GHz and the leaking share are estimates: 50 mV more at 2.2 GHz, within the same thermal design power, make it about 6 W more.";
    let rows = vec![
        named("30 cores at 2.2 GHz", "package power", "W").theirs(Theirs::Value(176.0)).modelled(before),
        named("30 cores at 800 MHz", "package power", "W").theirs(Theirs::Value(123.0)).modelled(after),
        named("2.2 GHz to 800 MHz", "saving", "%")
            .theirs(Theirs::Value(30.0))
            .modelled((before - after) / before * 100.0)
            .because(soft),
        named("2.2 GHz to 800 MHz", "saving a core", "W")
            .theirs(Theirs::Value(1.8))
            .modelled((before - after) / f64::from(BUSY))
            .because(soft),
    ];
    let mut inputs = inputs_of(&machine, &["processor.power"]);
    inputs.push(Input::new(
        "activity of a polling core",
        "1000 per mille",
        "assumption: a loop that polls keeps the core as busy as what the thermal design power is stated for",
    ));
    inputs.push(Input::new(
        "the other two cores",
        "C1",
        "assumption: they run the operating system, and are mostly idle in a shallow state",
    ));
    Ok(Figure {
        id: "s0.7",
        title: "Power of 30 forwarding cores at two frequencies",
        document: "Enhanced Power Management for Low-Latency Workloads (Intel 637284-001US), section 4.3, figure 8",
        method: "The package's power from its thermal design power, shared out between uncore and cores, and scaled with \
                 frequency and voltage; 30 of 32 cores execute, two are in C1, the uncore stays at its highest frequency. \
                 Nothing was set by either of the two powers."
            .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}

fn package(power: &PowerModel, frequency: Hertz, uncore: Hertz) -> Microwatts {
    let idle = u64::from(power.cores - BUSY) * power.idle(Gate::Clock, frequency).as_microwatts();
    let busy = u64::from(BUSY) * power.active(frequency, 1_000).as_microwatts();
    Microwatts::new(power.uncore(uncore).as_microwatts() + idle + busy)
}
