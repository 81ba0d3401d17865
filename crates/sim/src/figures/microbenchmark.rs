//! S0.5: a workload of known duration on a core that changes frequency.

use units::Nanos;

use super::setup::{run, scenario};
use super::tuning::Tuning;
use super::{FigureError, Input, Kind, Made, Plan, Plot, Role, Row, Theirs, inputs_of, us};
use crate::machine::Machine;

/// Duration of the workload at the higher frequency, in microseconds.
const WORK_US: u64 = 10;
const HIGH_MHZ: u64 = 2_400;
const LOW_MHZ: u64 = 2_000;
/// Number of frequency changes, each in a separate batch.
const CHANGES: u64 = 60;
/// Number of frequency changes that the plot shows.
const DRAWN: u64 = 10;

pub(super) const PLAN: Plan = Plan {
    id: "s0.5",
    title: "Run time of a fixed workload on a core that changes frequency",
    document: "Enhanced Power Management for Low-Latency Workloads (Intel 637284-001US), section 4.1, figures 4 and 5",
    null_model: None,
    knobs: &[],
    make,
};

fn make(seed: u64, tuning: &Tuning) -> Result<Made, FigureError> {
    let (mut rows, mut plots, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
    for (case, name, second) in
        [("2nd Generation", "xeon-platinum-8260l", true), ("3rd Generation", "xeon-platinum-8360y", false)]
    {
        let seen = batches(name, seed, tuning)?;
        let spike = if second { Theirs::Between(10.0, 12.0) } else { Theirs::AtMost(1.0) };
        let row = |quantity, kind, value| {
            Row::new(Role::Calibrated, case, quantity, "us", kind).theirs(spike).modelled(value)
        };
        rows.push(row("spike at a change, median", Kind::Typical, seen.spikes[seen.spikes.len() / 2]));
        rows.push(row("spike at a change, least", Kind::Extreme, seen.spikes[0]));
        rows.push(row("spike at a change, most", Kind::Extreme, seen.spikes[seen.spikes.len() - 1]));
        rows.push(
            Row::new(Role::Arithmetic, case, "duration after over before", "", Kind::Typical)
                .theirs(Theirs::Value(HIGH_MHZ as f64 / LOW_MHZ as f64))
                .modelled(seen.slow / seen.fast),
        );
        plots.push(Plot {
            title: format!("{case}: longest run of each batch"),
            x: ("batch", ""),
            y: ("duration", "us"),
            points: seen.drawn.iter().enumerate().map(|(i, &most)| (i as f64, most)).collect(),
            lines: Vec::new(),
        });
        let machine = Machine::named(name)?;
        inputs.extend(inputs_of(&machine, &["processor.pstates.period", "processor.pstates.block"]));
    }
    let chosen = "chosen: the text gives neither workload nor frequencies; the spike does not depend on them, but \
                  how it stands out from the two durations does";
    inputs.push(Input::new("workload", format!("{WORK_US} us at {HIGH_MHZ} MHz"), chosen));
    inputs.push(Input::new("frequencies", format!("{HIGH_MHZ} and {LOW_MHZ} MHz"), chosen));
    Ok(Made {
        method: format!(
            "The workload repeats in a closed loop on a core without disturbances, in batches of 4 ms; a batch with a change \
             of frequency, down and up in turn, stands between batches without. {CHANGES} changes. The spike is the \
             longest run of a batch with a change, minus the longer of the two durations. The spikes are calibrated: \
             the block is that of section 4 of the same document. The ratio of the durations is arithmetic: a workload \
             without memory accesses follows the frequency."
        ),
        inputs,
        rows,
        plots,
    })
}

struct Batches {
    /// Delays caused by frequency changes, in microseconds, in ascending order.
    spikes: Vec<f64>,
    fast: f64,
    slow: f64,
    /// The longest run of each batch that the plot shows, in microseconds.
    drawn: Vec<f64>,
}

fn batches(machine: &str, seed: u64, tuning: &Tuning) -> Result<Batches, FigureError> {
    // Returns the shortest and the longest run of a batch, in microseconds.
    let longest = |frequency: String, seed: u64| -> Result<(f64, f64), FigureError> {
        let text = format!(
            "machine = \"{machine}\"\nnic = \"x710\"\nwarm_up = \"1ms\"\nduration = \"4ms\"\n\
             [[traffic]]\nkind = \"request\"\ndistance = \"1ns\"\n\
             [worker]\ndriver = \"user\"\nwait = \"poll\"\nforward = false\npoll = \"1cycles\"\nburst = \"1cycles\"\n\
             frame = \"{}cycles\"\n[frequency]\n{frequency}\n[scheduler]\ndisturbance = false\n",
            WORK_US * HIGH_MHZ
        );
        let mut scenario = scenario(&text, tuning)?;
        // The next run begins at once, so the frame's way into memory is set to zero as far as possible.
        let nic = &mut scenario.host.nic;
        (nic.jitter, nic.receive, nic.link.latency) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        let latency = run(&scenario, seed)?.latency;
        let nanos = |span: Option<Nanos>| us(span.unwrap_or(Nanos::ZERO).as_nanos() as f64);
        Ok((nanos(latency.least()), nanos(latency.most())))
    };
    let fixed = |mhz: u64| format!("policy = \"fixed\"\nat = \"{mhz}MHz\"");
    let (way, _) = longest(fixed(HIGH_MHZ), seed)?;
    let way = way - WORK_US as f64;
    let (fast, slow) = (longest(fixed(HIGH_MHZ), seed)?.1 - way, longest(fixed(LOW_MHZ), seed)?.1 - way);
    let (mut spikes, mut drawn) = (Vec::new(), Vec::new());
    for change in 0..CHANGES {
        let (from, to) = if change % 2 == 0 { (HIGH_MHZ, LOW_MHZ) } else { (LOW_MHZ, HIGH_MHZ) };
        // There is one change per batch. The sequencing timer decides when it takes effect.
        let toggle = format!("policy = \"toggle\"\nlow = \"{to}MHz\"\nhigh = \"{from}MHz\"\nevery = \"3ms\"");
        let (_, most) = longest(toggle, seed.wrapping_add(change << 20))?;
        spikes.push(most - way - slow);
        if change < DRAWN {
            drawn.extend([if change % 2 == 0 { fast } else { slow }, most - way]);
        }
    }
    spikes.sort_by(f64::total_cmp);
    Ok(Batches { spikes, fast, slow, drawn })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_generation_has_spikes_and_the_third_has_none() {
        let rows = make(5, &Tuning::NONE).unwrap().rows;
        let spikes: Vec<f64> = rows.iter().filter(|r| r.unit == "us").map(|r| r.modelled.unwrap()).collect();
        assert!(spikes[..3].iter().all(|us| (9.9..=12.1).contains(us)), "{spikes:?}");
        assert!(spikes[3..].iter().all(|us| *us <= 0.31), "{spikes:?}");
    }
}
