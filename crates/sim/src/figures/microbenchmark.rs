//! S0.5: a workload of known duration, with frequency changes in between.

use units::{Cycles, Hertz, Nanos};

use super::{Figure, Input, Kind, Plot, Row, Theirs, inputs_of, us};
use crate::At;
use crate::hw::pstate::{PState, PStateModel};
use crate::machine::{Machine, MachineError};
use crate::random::Random;

/// The workload, at the higher frequency.
const WORK: Nanos = Nanos::from_micros(10);
/// Runs a batch; the longest of each is what is shown.
const BATCH: u32 = 500;
/// Batches from one request to the next.
const BATCHES_BETWEEN: usize = 8;
/// Requests, up and down in turn.
const REQUESTS: usize = 200;

pub(super) fn figure(seed: u64) -> Result<Figure, MachineError> {
    let machines = [("2nd Generation", "xeon-platinum-8260l"), ("3rd Generation", "xeon-platinum-8360y")];
    let (mut rows, mut plots, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (case, name)) in machines.into_iter().enumerate() {
        let machine = Machine::named(name)?;
        let model = machine.processor()?.pstates;
        let seen = run(model, Random::stream(seed, 50 + number as u64));
        let second = number == 0;
        let spike = if second { Theirs::Between(10.0, 12.0) } else { Theirs::AtMost(1.0) };
        let named = |quantity, kind| Row::predicted(case, quantity, "us", kind);
        // The spike is the block, and the durations are as the frequencies: both are inputs, and what is shown is that
        // nothing else happens.
        let spike = |quantity, kind, q| named(quantity, kind).theirs(spike).modelled(us(seen.spike(q))).calibrated();
        rows.push(spike("spike at a change, median", Kind::Typical, 0.5));
        rows.push(spike("spike at a change, least", Kind::Extreme, 0.0));
        rows.push(spike("spike at a change, most", Kind::Extreme, 1.0));
        let ratio = seen.slow as f64 / seen.fast as f64;
        rows.push(
            Row::predicted(case, "duration after over before", "", Kind::Typical)
                .theirs(Theirs::Value(HIGH_MHZ as f64 / LOW_MHZ as f64))
                .modelled(ratio)
                .calibrated(),
        );
        plots.push(plot(case, &seen));
        inputs.extend(inputs_of(&machine, &["processor.pstates.period", "processor.pstates.block"]));
    }
    let chosen = "chosen: the text gives neither workload nor frequencies; the spike does not depend on them, but \
                  how it stands out from the two durations does";
    inputs.push(Input::new("workload", format!("{WORK} at {HIGH_MHZ} MHz"), chosen));
    inputs.push(Input::new("frequencies", format!("{HIGH_MHZ} and {LOW_MHZ} MHz"), chosen));
    Ok(Figure {
        id: "s0.5",
        title: "A workload of known duration on a core that changes frequency",
        document: "Enhanced Power Management for Low-Latency Workloads (Intel 637284-001US), section 4.1, figures 4 and 5",
        method: format!(
            "The workload repeats on a core without disturbances, {BATCH} runs a batch, and the longest run of each \
             batch is kept; every {BATCHES_BETWEEN} batches another frequency is asked for. The spike is what the \
             batch with the change has above the longer of the two durations beside it. “Duration follows the \
             frequency” is read as: in the inverse ratio of the frequencies. All rows are calibrated: the block is that of \
             section 4, and a workload without memory accesses follows the frequency by construction."
        ),
        inputs,
        rows,
        plots,
    })
}

const HIGH_MHZ: u64 = 2_400;
const LOW_MHZ: u64 = 2_000;

#[derive(Default)]
struct Seen {
    /// The longest run of each batch.
    batches: Vec<u64>,
    /// Spikes, sorted.
    spikes: Vec<u64>,
    fast: u64,
    slow: u64,
}

impl Seen {
    fn spike(&self, quantile: f64) -> f64 {
        self.spikes[((self.spikes.len() - 1) as f64 * quantile) as usize] as f64
    }
}

fn run(model: PStateModel, mut random: Random) -> Seen {
    let (high, low) = (Hertz::new(HIGH_MHZ * 1_000_000), Hertz::new(LOW_MHZ * 1_000_000));
    let phase = At::from_nanos(random.below(model.period.as_nanos()));
    let mut core = PState::new(model, high, phase).expect("a machine's P-states are sound");
    let work = high.cycles_in(WORK);
    let (mut now, mut seen) = (At::from_nanos(1), Seen::default());
    let duration = |f: Hertz| (Cycles::new(work.count()) / f).as_nanos();
    (seen.fast, seen.slow) = (duration(high), duration(low));
    for request in 0..REQUESTS {
        let wanted = if request % 2 == 0 { low } else { high };
        // Not in step with the batches.
        now = now + random.uniform(Nanos::ZERO, WORK * 50);
        core.request(now, wanted);
        let mut longest = 0;
        for _ in 0..BATCHES_BETWEEN {
            let mut most = 0;
            for _ in 0..BATCH {
                let end = core.execute(now, work);
                most = most.max(end.since(now).map_or(0, Nanos::as_nanos));
                now = end;
            }
            seen.batches.push(most);
            longest = longest.max(most);
        }
        seen.spikes.push(longest.saturating_sub(seen.slow));
    }
    seen.spikes.sort_unstable();
    seen
}

fn plot(case: &str, seen: &Seen) -> Plot {
    let batches = seen.batches.iter().take(20 * BATCHES_BETWEEN).enumerate();
    let points = batches.map(|(i, &most)| (i as f64, us(most as f64))).collect();
    Plot {
        title: format!("{case}: longest of {BATCH} runs"),
        x: ("batch", ""),
        y: ("duration", "us"),
        points,
        lines: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_generation_has_spikes_and_the_third_has_none() {
        let figure = figure(5).unwrap();
        let spikes: Vec<f64> = figure.rows.iter().filter(|r| r.unit == "us").map(|r| r.modelled.unwrap()).collect();
        assert!(spikes[..3].iter().all(|us| (9.9..=12.1).contains(us)), "{spikes:?}");
        assert!(spikes[3..].iter().all(|us| *us <= 0.31), "{spikes:?}");
    }
}
