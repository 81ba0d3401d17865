//! S2.4: request and response under static and adaptive moderation, and the interrupts saved.

use units::Nanos;

use super::setup::{closed_loop, distance_for, run, scenario};
use super::tuning::{Knob, Tuning};
use super::{FigureError, Input, Kind, Made, Plan, Role, Row, Theirs, inputs_of};
use crate::machine::Machine;

/// Transactions per second with static coalescing. The rest of the round trip is fitted to this row.
const STATIC_RATE: f64 = 20_360.0;
/// Transactions per second with adaptive coalescing.
const ADAPTIVE_RATE: f64 = 19_513.0;
/// Name of the fitted input.
const ROUND_TRIP: &str = "round trip without moderation";

pub(super) const PLAN: Plan = Plan {
    id: "s2.4",
    title: "TCP_RR with static and with adaptive interrupt moderation, and the interrupts that the adaptive one saves",
    document: "Dynamic Interrupt Moderation (Gospodarek), maintaining TCP_RR performance; improved CPU utilization",
    null_model: Some("adaptive moderation changes nothing"),
    knobs: &[Knob::fitted(ROUND_TRIP)],
    make,
};

/// A host that answers each request of the other host.
fn text(moderation: &str) -> String {
    format!(
        "machine = \"xeon-e5-2699v3\"\nnic = \"x710\"\nwarm_up = \"100ms\"\nduration = \"500ms\"\n\
         [[traffic]]\nkind = \"request\"\nframe = 70\ndistance = \"DISTANCE\"\n\
         [worker]\ndriver = \"kernel\"\n[idle]\ndeepest = \"C1\"\n[moderation]\n{moderation}\n"
    )
}

fn make(seed: u64, tuning: &Tuning) -> Result<Made, FigureError> {
    // Static moderation interrupts at once if the ring was idle, as it is with one transaction at a time.
    let (fixed_text, dim_text) = (text("policy = \"off\""), text("policy = \"dim\"\nmode = \"rx-eqe\"\nprofile = 0"));
    let turn = 1e6 / STATIC_RATE * tuning.factor(ROUND_TRIP);
    let distance = distance_for(&fixed_text, turn, tuning, seed)?;
    let fixed = closed_loop(&fixed_text, distance, tuning, seed)?;
    let dim = closed_loop(&dim_text, distance, tuning, seed)?;
    let changes: u64 = dim
        .outcome
        .queues
        .iter()
        .filter_map(|queue| queue.moderation.as_ref())
        .map(|moderated| moderated.changes)
        .sum();
    let seconds = dim.outcome.duration.as_nanos() as f64 / 1e9;
    let row =
        |role, case: &str, quantity, unit, value| Row::new(role, case, quantity, unit, Kind::Typical).modelled(value);
    let mut rows = vec![
        row(Role::Calibrated, "static", "transactions", "1/s", 1e6 / fixed.turn).theirs(Theirs::Value(STATIC_RATE)),
        row(Role::Simulated, "adaptive on the host that answers", "transactions", "1/s", 1e6 / dim.turn)
            .theirs(Theirs::Value(ADAPTIVE_RATE))
            .null(STATIC_RATE),
        row(
            Role::Assumption,
            "adaptive on both hosts, alike",
            "transactions",
            "1/s",
            1e6 / (fixed.turn + 2.0 * (dim.turn - fixed.turn)),
        )
        .theirs(Theirs::Value(ADAPTIVE_RATE)),
        row(Role::Simulated, "adaptive on the host that answers", "profile changes", "1/s", changes as f64 / seconds),
    ];
    for (case, rate) in [("30 kpps", 30_000), ("300 kpps", 300_000)] {
        let interrupts = |moderation: &str| -> Result<f64, FigureError> {
            let text = format!(
                "machine = \"xeon-e5-2699v3\"\nnic = \"x710\"\nwarm_up = \"200ms\"\nduration = \"{}ms\"\n\
                 [[traffic]]\nkind = \"poisson\"\nrate = \"{rate}pps\"\n\
                 [worker]\ndriver = \"kernel\"\nforward = true\n[idle]\ndeepest = \"C1\"\n\
                 [moderation]\n{moderation}\nsent = \"1ms\"\n",
                tuning.count(500, 100)
            );
            Ok(run(&scenario(&text, tuning)?, seed)?.interrupts() as f64)
        };
        let fixed = interrupts("policy = \"static\"\ndelay = \"14us\"\nframes = 30")?;
        let dim = interrupts("policy = \"dim\"\nmode = \"rx-eqe\"\nprofile = 1")?;
        let case = format!("receive {case}, Poisson");
        rows.push(row(Role::Simulated, &case, "interrupts saved", "%", (1.0 - dim / fixed) * 100.0));
    }
    Ok(Made {
        method: "A closed loop of one transaction at a time with a host that the kernel drives; what the rest of the round \
                 trip takes is set by the static row. Adaptive is DIM bit for bit as the kernel has it \
                 (policy::moderation::NetDim). Static interrupts at once when the ring was idle, as bnxt_en's does. The \
                 world has one host: that the other one, if adaptive as well, loses as much again is an assumption. The \
                 document's ratio (0.96) and reduction (about 4 %) are the same number as its second row, and stand here \
                 once. It draws the CPU that is saved without a number: interrupts saved are Apus's own, against bnxt_en's \
                 static 14 us and 30 frames."
            .into(),
        inputs: inputs(distance)?,
        rows,
        plots: Vec::new(),
    })
}

fn inputs(distance: Nanos) -> Result<Vec<Input>, FigureError> {
    let mut inputs = inputs_of(&Machine::named("xeon-e5-2699v3")?, &["processor.delivery"]);
    inputs.extend([
        Input::new(
            ROUND_TRIP,
            format!("{:.1} us, of which {distance} one way to the other host", 1e6 / STATIC_RATE),
            "calibrated on the static row, 20,360 a second",
        ),
        Input::new(
            "DIM profiles",
            "receive, EQE: 1, 8, 64, 128, 256 us",
            "Linux include/linux/dim.h and lib/dim/net_dim.c (7.0)",
        ),
        Input::new(
            "static moderation",
            "14 us, 30 buffers; at once when the ring was idle",
            "Linux drivers/net/ethernet/broadcom/bnxt/bnxt.c, bnxt_init_dflt_coal and RING_IDLE (4.17)",
        ),
        Input::new(
            "hosts that are adaptive",
            "the one that answers; both in the row that says so",
            "assumption: the slides do not say which host was set",
        ),
    ]);
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptive_costs_transactions_and_saves_interrupts() {
        let rows = make(1, &Tuning::NONE).unwrap().rows;
        let value = |i: usize| rows[i].modelled.unwrap();
        assert!((value(0) / STATIC_RATE - 1.0).abs() < 0.002, "{}", value(0));
        assert!(value(2) < value(1) && value(1) < value(0), "{} {} {}", value(0), value(1), value(2));
        let saved = rows.iter().find(|row| row.case.contains("300 kpps")).and_then(|row| row.modelled).unwrap();
        assert!(saved > 50.0, "{saved}");
    }
}
