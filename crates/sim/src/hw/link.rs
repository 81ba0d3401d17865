//! An Ethernet link: how long a frame takes, and when the next may follow.

use units::{BitRate, Nanos};

use super::{ModelError, check};
use crate::At;

/// Bytes in front of a frame: preamble and start delimiter. IEEE 802.3-2018, 3.2.1 and 3.2.2.
pub const PREAMBLE: u64 = 8;
/// Length of the inter-frame gap, in bytes. IEEE 802.3-2018, 4.4.2.
pub const GAP: u64 = 12;

/// Properties of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkModel {
    /// Line rate, above 0.
    pub rate: BitRate,
    /// Time from one controller to the other, without the serialisation of the frame: both PHYs and the cable.
    pub latency: Nanos,
}

impl LinkModel {
    /// Returns an error if the rate is 0.
    pub fn validate(&self) -> Result<(), ModelError> {
        check(self.rate.as_bps() > 0, "link", || "a rate of 0: give one such as 10Gbps".into())
    }

    /// The time that `octets` bytes take on the wire, rounded up.
    pub const fn time_of(&self, octets: u64) -> Nanos {
        let bits = octets as u128 * 8_000_000_000;
        Nanos::from_nanos(bits.div_ceil(self.rate.as_bps() as u128) as u64)
    }

    /// Time from a frame's first bit to the next frame's first bit at line rate, rounded up: preamble, frame (with its
    /// check sequence) and gap. For 64 bytes at 10 Gbit/s it is 67.2 ns.
    pub const fn spacing(&self, octets: u64) -> Nanos {
        self.time_of(octets + PREAMBLE + GAP)
    }
}

/// One direction of a link. Times are kept to fractions of a nanosecond, so that a long run at line rate stays at line
/// rate.
#[derive(Clone, Debug)]
pub struct Wire {
    rate: u64,
    latency: Nanos,
    /// When the next frame may begin: whole nanoseconds, and the rest in units of `1 ns / rate`.
    free: (u64, u64),
}

/// The times of a frame on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passage {
    /// When the frame's first bit is sent.
    pub begins: At,
    /// When the frame's last bit is sent.
    pub ends: At,
    /// When the frame's last bit is received at the other end.
    pub received: At,
}

impl Wire {
    /// Makes a wire that is free.
    pub fn new(model: &LinkModel) -> Result<Self, ModelError> {
        model.validate()?;
        Ok(Self { rate: model.rate.as_bps(), latency: model.latency, free: (0, 0) })
    }

    /// Sends a frame of `octets` bytes (with its check sequence) once the wire is free, at `now` at the earliest.
    pub fn send(&mut self, now: At, octets: u64) -> Passage {
        if now.as_nanos() > self.free.0 {
            self.free = (now.as_nanos(), 0);
        }
        let begins = self.free;
        let ends = self.later(begins, PREAMBLE + octets);
        self.free = self.later(begins, PREAMBLE + octets + GAP);
        let up = |(whole, rest): (u64, u64)| At::from_nanos(whole.saturating_add(u64::from(rest > 0)));
        Passage { begins: up(begins), ends: up(ends), received: up(ends) + self.latency }
    }

    const fn later(&self, (whole, rest): (u64, u64), octets: u64) -> (u64, u64) {
        let parts = octets * 8_000_000_000 + rest;
        (whole.saturating_add(parts / self.rate), parts % self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEN: LinkModel = LinkModel { rate: BitRate::new(10_000_000_000), latency: Nanos::from_nanos(300) };

    #[test]
    fn ten_million_frames_at_line_rate_take_exactly_their_time() {
        let mut wire = Wire::new(&TEN).unwrap();
        for _ in 0..10_000 {
            wire.send(At::ORIGIN, 64);
        }
        assert_eq!(wire.free, (672_000, 0));
        assert_eq!(TEN.spacing(64), Nanos::from_nanos(68));
    }

    #[test]
    fn a_frame_alone() {
        let passage = Wire::new(&TEN).unwrap().send(At::from_nanos(1_000), 1_242);
        assert_eq!((passage.begins, passage.ends), (At::from_nanos(1_000), At::from_nanos(2_000)));
        assert_eq!(passage.received, At::from_nanos(2_300));
        assert!(Wire::new(&LinkModel { rate: BitRate::new(0), ..TEN }).is_err());
    }

    #[test]
    fn the_end_of_time_is_no_start() {
        let mut wire = Wire::new(&TEN).unwrap();
        for now in [u64::MAX - 1, u64::MAX, u64::MAX] {
            let passage = wire.send(At::from_nanos(now), 64);
            assert_eq!((passage.ends, passage.received), (At::from_nanos(u64::MAX), At::from_nanos(u64::MAX)));
        }
    }

    proptest! {
        #[test]
        fn frames_neither_overlap_nor_leave_early(
            rate in 1_000_000u64..400_000_000_000,
            frames in prop::collection::vec((0u64..3_000, 64u64..9_600), 1..60),
        ) {
            let mut wire = Wire::new(&LinkModel { rate: BitRate::new(rate), latency: Nanos::ZERO }).unwrap();
            let (mut now, mut before) = (At::ORIGIN, At::ORIGIN);
            for (gap, octets) in frames {
                now = now + Nanos::from_nanos(gap);
                let passage = wire.send(now, octets);
                prop_assert!(passage.begins >= now && passage.begins >= before);
                prop_assert!(passage.ends >= passage.begins);
                before = passage.ends;
            }
        }
    }
}
