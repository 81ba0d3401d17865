//! The parts of a frame's path, computed from its time stamps.

use units::{Instant, Nanos};

use super::frame::Stamps;
use crate::measured::Term;
use crate::record::Recorder;

/// Samples of each part of the path.
#[derive(Clone, Debug, Default)]
pub(super) struct Legs {
    out_arrival: Recorder,
    out_pickup: Recorder,
    turnaround: Recorder,
    back_arrival: Recorder,
    back_pickup: Recorder,
    round_trip: Recorder,
    /// Frames whose stamps are missing or in the wrong order.
    pub unusable: u64,
}

impl Legs {
    /// Records a frame that came back, with its time stamps, its arrival (0 if unknown) and its pick-up. Returns the
    /// round trip time.
    pub(super) fn back(&mut self, stamps: &Stamps, arrived: u64, picked: u64) -> Option<Nanos> {
        let between = |from: u64, to: u64| {
            let known = from != 0 && to != 0;
            Instant::<units::Monotonic>::from_nanos(to).since(Instant::from_nanos(from)).filter(|_| known)
        };
        let round_trip = between(stamps.sent, picked);
        // A port without a far end of Apus returns only our own stamps.
        let alone = stamps.far_arrived == 0 && stamps.far_picked == 0 && stamps.far_sent == 0;
        let legs = if alone {
            [between(stamps.sent, arrived), between(arrived, picked), None, None, None]
        } else {
            [
                between(stamps.sent, stamps.far_arrived),
                between(stamps.far_arrived, stamps.far_picked),
                between(stamps.far_picked, stamps.far_sent),
                between(stamps.far_sent, arrived),
                between(arrived, picked),
            ]
        };
        let needed = if alone { 2 } else { 5 };
        if round_trip.is_none() || legs[..needed].iter().any(Option::is_none) {
            self.unusable += 1;
            return None;
        }
        let recorders = [
            &mut self.out_arrival,
            &mut self.out_pickup,
            &mut self.turnaround,
            &mut self.back_arrival,
            &mut self.back_pickup,
        ];
        for (recorder, leg) in recorders.into_iter().zip(legs) {
            leg.into_iter().for_each(|leg| recorder.record(leg));
        }
        round_trip.into_iter().for_each(|span| self.round_trip.record(span));
        round_trip
    }

    /// Number of counted frames.
    pub(super) fn len(&self) -> u64 {
        self.round_trip.len()
    }

    /// Sum of the medians of the parts.
    pub(super) fn sum_of_medians(&self) -> Option<Nanos> {
        let parts = [&self.out_arrival, &self.out_pickup, &self.turnaround, &self.back_arrival, &self.back_pickup];
        parts.into_iter().filter(|part| !part.is_empty()).map(Recorder::median).sum::<Option<Sum>>().map(|sum| sum.0)
    }

    /// Converts the samples to terms. `stamp` names where the arrival was stamped: XDP, or the kernel's stack.
    pub(super) fn terms(&self, stamp: &str, refused: Option<&str>) -> Vec<Term> {
        [
            (format!("send to {stamp}"), &self.out_arrival),
            (format!("{stamp} to pick-up"), &self.out_pickup),
            ("turnaround".into(), &self.turnaround),
            (format!("back: send to {stamp}"), &self.back_arrival),
            (format!("back: {stamp} to pick-up"), &self.back_pickup),
            ("round trip".into(), &self.round_trip),
        ]
        .into_iter()
        .filter(|(_, recorder)| !recorder.is_empty())
        .map(|(name, recorder)| Term::new(name, recorder.series(refused), None, None))
        .collect()
    }
}

/// Sums `Nanos`, which does not implement `Sum`.
struct Sum(Nanos);
impl std::iter::Sum<Nanos> for Sum {
    fn sum<I: Iterator<Item = Nanos>>(parts: I) -> Self {
        Self(parts.fold(Nanos::ZERO, |sum, part| sum + part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legs_add_up_to_the_round_trip() {
        let mut legs = Legs::default();
        let stamps = Stamps { sequence: 1, sent: 100, far_arrived: 900, far_picked: 5_900, far_sent: 6_000 };
        assert_eq!(legs.back(&stamps, 7_000, 7_100), Some(Nanos::from_nanos(7_000)));
        let terms = legs.terms("XDP", None);
        let names: Vec<&str> = terms.iter().map(|term| term.name.as_str()).collect();
        let expected =
            ["send to XDP", "XDP to pick-up", "turnaround", "back: send to XDP", "back: XDP to pick-up", "round trip"];
        assert_eq!(names, expected);
        let maxima: Vec<u64> = terms.iter().map(|term| term.raw.max_ns.unwrap()).collect();
        assert_eq!(maxima, [800, 5_000, 100, 1_000, 100, 7_000]);
        assert_eq!(legs.sum_of_medians().map(|sum| sum.as_nanos().abs_diff(7_000) < 10), Some(true));
    }

    #[test]
    fn a_port_of_its_own_has_two() {
        let mut legs = Legs::default();
        legs.back(&Stamps { sent: 100, ..Stamps::default() }, 2_100, 2_200);
        let names: Vec<String> = legs.terms("XDP", None).into_iter().map(|term| term.name).collect();
        assert_eq!(names, ["send to XDP", "XDP to pick-up", "round trip"]);
    }

    #[test]
    fn a_missing_or_impossible_stamp_is_counted_and_not_used() {
        let mut legs = Legs::default();
        let good = Stamps { sequence: 1, sent: 100, far_arrived: 900, far_picked: 5_900, far_sent: 6_000 };
        for (stamps, arrived, picked) in [
            (Stamps { far_arrived: 0, ..good }, 7_000, 7_100),
            (Stamps { far_picked: 800, ..good }, 7_000, 7_100),
            (good, 0, 7_100),
            (good, 7_000, 6_999),
        ] {
            assert_eq!(legs.back(&stamps, arrived, picked), None);
        }
        assert_eq!((legs.unusable, legs.len()), (4, 0));
    }
}
