//! S4.3: how long a full transmit ring keeps the line busy, and the effect of late reclaiming of descriptors.

use units::PacketRate;

use super::tuning::Tuning;
use super::{FigureError, Input, Kind, Made, Plan, Role, Row, Theirs, inputs_of, us};
use crate::machine::Machine;

/// Frame size that the document assumes, in bytes.
const OCTETS: u64 = 1_500;

pub(super) const PLAN: Plan = Plan {
    id: "s4.3",
    title: "Time to send a full transmit ring, and share of line rate if its slots are freed every 250 or 320 us",
    document: "ixl 40G bad performance (FreeBSD, 2015), interrupt moderation and queue sizes",
    null_model: None,
    knobs: &[],
    make,
};

/// The seed is unused: no random numbers are needed.
fn make(_seed: u64, _tuning: &Tuning) -> Result<Made, FigureError> {
    let machine = Machine::named("xl710")?;
    let nic = machine.nic()?;
    let size = u64::from(nic.tx_descriptors);
    let bare = PacketRate::new(nic.link.rate.as_bps() / (OCTETS * 8));
    let framed = nic.link.rate.frames_of(OCTETS);
    let row = |case: &str, quantity, unit, value| {
        Row::new(Role::Arithmetic, case, quantity, unit, Kind::Typical).modelled(value)
    };
    let lasts = |rate: PacketRate| us(rate.time_for(size).as_nanos() as f64);
    let mut rows = vec![
        row("1024 slots of 1500 octets", "queued", "MB", (size * OCTETS) as f64 / 1e6).theirs(Theirs::Value(1.5)),
        row("1024 slots, the frames' octets alone", "lasts", "us", lasts(bare)).theirs(Theirs::Value(300.0)),
        row("1024 slots, as frames on the wire", "lasts", "us", lasts(framed)).theirs(Theirs::Value(300.0)),
    ];
    // A sender that always has frames refills the ring at each reclaim. The line sends them, then waits for the next
    // reclaim.
    for (slots, reclaim_us) in [(1024u64, 250.0), (1024, 320.0), (512, 250.0), (256, 250.0)] {
        let share = (us(framed.time_for(slots).as_nanos() as f64) / reclaim_us).min(1.0) * 100.0;
        rows.push(row(&format!("{slots} slots, reclaimed every {reclaim_us} us"), "share of line rate", "%", share));
    }
    let mut inputs = inputs_of(&machine, &["nic.rate", "nic.tx_descriptors", "nic.tx_moderation"]);
    let source = "ixl 40G bad performance (FreeBSD, 2015): 1024 slots, about 1.5 MB";
    inputs.push(Input::new("frame", "1500 octets", source));
    inputs.push(Input::new("reclaim", "every 250 us", "the same: 4k transmit interrupts a second"));
    Ok(Made {
        method:
            "Slots times octets, and that over the line rate. The shares of line rate are Apus's own: what a ring that \
                 is reclaimed every so often carries at most. They say what “dangerously close” and “possibly half of \
                 that” would mean."
                .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_reclaim_starves_the_line() {
        let rows = make(0, &Tuning::NONE).unwrap().rows;
        let shares: Vec<f64> = rows[3..].iter().map(|row| row.modelled.unwrap()).collect();
        assert!(shares[0] == 100.0, "{shares:?}");
        assert!((shares[1] - 97.3).abs() < 0.1 && (shares[2] - 62.3).abs() < 0.1, "{shares:?}");
        assert!((rows[1].modelled.unwrap() - 307.2).abs() < 0.3);
    }
}
