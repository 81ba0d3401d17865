//! S4.3: how long a ring lasts, and what late reclaim does to it.

use units::{BitRate, Nanos, PacketRate};

use super::{Figure, Input, Kind, Row, Theirs, inputs_of, us};
use crate::At;
use crate::hw::link::Wire;
use crate::hw::nic::NicModel;
use crate::hw::ring::{Pushed, TxRing};
use crate::machine::{Machine, MachineError};

/// Frames of the thread's arithmetic.
const OCTETS: u64 = 1_500;

/// Chance plays no part in it.
pub(super) fn figure(_seed: u64) -> Result<Figure, MachineError> {
    let machine = Machine::named("xl710")?;
    let nic = machine.nic()?;
    let size = u64::from(nic.rx_descriptors);
    let bare = PacketRate::new(nic.link.rate.as_bps() / (OCTETS * 8)).time_for(size);
    let framed = nic.link.rate.frames_of(OCTETS).time_for(size);
    let case = |case: &str, quantity, unit| Row::predicted(case, quantity, unit, Kind::Typical);
    let mut rows = vec![
        case("1024 slots of 1500 octets", "queued", "MB")
            .theirs(Theirs::Value(1.5))
            .modelled((size * OCTETS) as f64 / 1e6),
        case("1024 slots, the frames' octets alone", "lasts", "us")
            .theirs(Theirs::Value(300.0))
            .modelled(us(bare.as_nanos() as f64)),
        case("1024 slots, as frames on the wire", "lasts", "us")
            .theirs(Theirs::Value(300.0))
            .modelled(us(framed.as_nanos() as f64)),
    ];
    // "Dangerously close": what a ring that is reclaimed every so often lets through.
    for (slots, reclaim_us) in [(1024, 250), (1024, 320), (512, 250), (256, 250)] {
        rows.push(
            case(&format!("{slots} slots, reclaimed every {reclaim_us} us"), "share of line rate", "%")
                .modelled(line_share(nic, slots, Nanos::from_micros(reclaim_us))),
        );
    }
    let mut inputs =
        inputs_of(&machine, &["nic.rate", "nic.rx_descriptors", "nic.tx_descriptors", "nic.tx_moderation"]);
    inputs.push(Input::new(
        "frame",
        "1500 octets",
        "ixl 40G bad performance (FreeBSD, 2015): 1024 slots, about 1.5 MB",
    ));
    inputs.push(Input::new("reclaim", "every 250 us", "the same: 4k transmit interrupts a second"));
    Ok(Figure {
        id: "s4.3",
        title: "How long a transmit ring lasts, and how late it may be reclaimed",
        document: "ixl 40G bad performance (FreeBSD, 2015), interrupt moderation and queue sizes",
        method: "A sender that always has a frame fills the ring; the line empties it; descriptors come back only at the \
                 reclaim interrupt. The shares of line rate are Apus's own: they say what “dangerously close” would mean, \
                 and “possibly half of that”."
            .into(),
        inputs,
        rows,
        plots: Vec::new(),
    })
}

/// The share of line rate that a ring of `slots` reclaimed every `every` carries, in percent.
fn line_share(nic: &NicModel, slots: u32, every: Nanos) -> f64 {
    let mut ring = TxRing::new(slots).expect("not empty");
    let mut wire = Wire::new(&nic.link).expect("a machine's link is sound");
    let (periods, mut now, mut sent) = (200u64, At::ORIGIN, 0u64);
    for _ in 0..periods {
        ring.reclaim();
        while ring.push() == Pushed::Accepted {}
        let end = now + every;
        while ring.waiting() > 0 && wire.free_at().max(now) < end {
            wire.send(now, OCTETS);
            ring.sent(1);
            sent += 1;
        }
        now = end;
    }
    let full = BitRate::new(nic.link.rate.as_bps()).frames_of(OCTETS).as_pps() as f64;
    let seconds = (every.as_nanos() * periods) as f64 / 1e9;
    (sent as f64 / (full * seconds) * 100.0).min(100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_reclaim_starves_the_line() {
        let rows = figure(0).unwrap().rows;
        let shares: Vec<f64> = rows[3..].iter().map(|row| row.modelled.unwrap()).collect();
        assert!(shares[0] > 99.0, "{shares:?}");
        assert!(shares[1] < 99.0 && shares[2] < 65.0 && shares[3] < 33.0, "{shares:?}");
        assert!((rows[1].modelled.unwrap() - 307.2).abs() < 0.3);
    }
}
