//! S0.4: how long a frequency change takes, from the request to the new frequency.

use units::Nanos;

use super::tuning::Tuning;
use super::{FigureError, Kind, Made, Plan, Role, Row, Theirs, inputs_of, us};
use crate::hw::pstate::PStateModel;
use crate::machine::Machine;

pub(super) const PLAN: Plan = Plan {
    id: "s0.4",
    title: "Time from a frequency request to the new frequency",
    document: "Enhanced Power Management for Low-Latency Workloads (Intel 637284-001US), section 4, figure 3",
    null_model: None,
    knobs: &[],
    make,
};

/// The seed is unused: no random numbers are needed.
fn make(_seed: u64, _tuning: &Tuning) -> Result<Made, FigureError> {
    let second = Machine::named("xeon-platinum-8260l")?;
    let third = Machine::named("xeon-platinum-8360y")?;
    let mut rows = Vec::new();
    // Timer and block are inputs. A request waits for 0 to 1 periods of the timer.
    let mut add = |case: &str, model: PStateModel, least: Theirs, most: Theirs| {
        let row = |quantity, span: Nanos| {
            Row::new(Role::Arithmetic, case, quantity, "us", Kind::Extreme).modelled(us(span.as_nanos() as f64))
        };
        rows.push(row("minimum transition", model.block).theirs(least));
        rows.push(row("maximum transition", model.longest()).theirs(most));
        rows.push(row("mean transition", model.period / 2 + model.block));
    };
    add("2nd Generation", second.processor()?.pstates, Theirs::Value(12.0), Theirs::Value(530.0));
    for (case, period_us) in [("3rd Generation, timer 500 us", 500), ("timer 50 us", 50), ("timer 0 us", 0)] {
        let model = PStateModel { period: Nanos::from_micros(period_us), ..third.processor()?.pstates };
        let most = if period_us == 500 { Theirs::Between(500.0, 530.0) } else { Theirs::Nothing };
        // "A few hundred nanoseconds": from 200 to 900.
        add(case, model, Theirs::Between(0.2, 0.9), most);
    }
    let mut inputs = inputs_of(&second, &["processor.pstates"]);
    inputs.extend(inputs_of(&third, &["processor.pstates.period", "processor.pstates.block"]));
    Ok(Made {
        method:
            "The block by itself; the timer's period and the block; half the period and the block. Period and block \
                 are stated in the same section, so that agreement says nothing for the simulator. Period and block \
                 are 18 us short of their maximum of about 530 us."
                .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}
