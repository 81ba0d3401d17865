//! S0.4: how long a frequency change takes, from the request to the new frequency.

use units::{Hertz, Nanos};

use super::{Figure, Input, Kind, Row, Summary, Theirs, inputs_of, us};
use crate::At;
use crate::hw::pstate::{PState, PStateModel};
use crate::machine::{Machine, MachineError};
use crate::random::Random;

/// Requests a case.
const REQUESTS: u64 = 20_000;

pub(super) fn figure(seed: u64) -> Result<Figure, MachineError> {
    let second = Machine::named("xeon-platinum-8260l")?;
    let third = Machine::named("xeon-platinum-8360y")?;
    let mut rows = Vec::new();
    let seen = transitions(second.processor()?.pstates, seed);
    let case = "2nd Generation";
    // The shortest is the block by itself, which is an input.
    rows.push(row(case, "minimum transition", Theirs::Value(12.0), seen.least()).calibrated());
    rows.push(row(case, "maximum transition", Theirs::Value(530.0), seen.most()));
    rows.push(row(case, "mean transition", Theirs::Nothing, seen.average()));
    for (case, period_us) in [("3rd Generation, timer 500 us", 500), ("timer 50 us", 50), ("timer 0 us", 0)] {
        let model = PStateModel { period: Nanos::from_micros(period_us), ..third.processor()?.pstates };
        let seen = transitions(model, seed ^ period_us);
        let most = if period_us == 500 { Theirs::Between(500.0, 530.0) } else { Theirs::Nothing };
        // "A few hundred nanoseconds": from 200 to 900.
        rows.push(row(case, "minimum transition", Theirs::Between(0.2, 0.9), seen.least()).calibrated());
        rows.push(row(case, "maximum transition", most, seen.most()));
    }
    let mut inputs = inputs_of(&second, &["processor.pstates"]);
    inputs.extend(inputs_of(&third, &["processor.pstates.period", "processor.pstates.block"]));
    inputs.push(Input::new("requests", format!("{REQUESTS} at random moments"), "the figure shows the two extremes"));
    Ok(Figure {
        id: "s0.4",
        title: "A frequency change, from request to new frequency",
        document: "Enhanced Power Management for Low-Latency Workloads (Intel 637284-001US), section 4, figure 3",
        method: "Requests at random moments to a core whose sequencing timer runs freely; each change is carried out \
                 before the next request. Timer period and block time are inputs, of the same section; the minimum is \
                 the block by itself, and so calibrated; what is predicted is how the two compose."
            .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}

fn row(case: &str, quantity: &'static str, theirs: Theirs, modelled: f64) -> Row {
    Row::predicted(case, quantity, "us", Kind::Extreme).theirs(theirs).modelled(us(modelled))
}

fn transitions(model: PStateModel, seed: u64) -> Summary {
    let mut random = Random::stream(seed, 40);
    let phase = At::from_nanos(random.below(model.period.as_nanos().max(1)));
    let (low, high) = (model.lowest, Hertz::new(model.lowest.as_hertz() + 2 * model.step.as_hertz()));
    let mut core = PState::new(model, low, phase).expect("a machine's P-states are sound");
    let (mut now, mut seen) = (At::from_nanos(1_000_000), Summary::default());
    for i in 0..REQUESTS {
        now = now + random.uniform(Nanos::from_micros(600), Nanos::from_micros(5_600));
        core.request(now, if i % 2 == 0 { high } else { low });
        let due = core.poll_at().expect("a request is pending");
        let change = core.poll(due).expect("another frequency");
        seen.add((change.at + change.blocked).since(now).unwrap_or(Nanos::ZERO));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_are_block_and_block_with_period() {
        let rows = figure(3).unwrap().rows;
        let value = |i: usize| rows[i].modelled.unwrap();
        assert!((12.0..12.2).contains(&value(0)), "{}", value(0));
        assert!((511.0..=512.0).contains(&value(1)), "{}", value(1));
        assert!((255.0..269.0).contains(&value(2)), "{}", value(2));
        assert_eq!(value(7), 0.3);
    }
}
