//! A network controller's figures. Its moving parts are in `link.rs`, `ring.rs` and `interrupt.rs`.

use units::{BitRate, Nanos};

use super::interrupt::ModerationModel;
use super::link::LinkModel;
use super::ring::WriteBackModel;
use super::{ModelError, check};

/// What a controller is, with the settings that its driver gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicModel {
    /// Line rate and the way through both PHYs.
    pub link: LinkModel,
    /// Receive descriptors of a queue.
    pub rx_descriptors: u32,
    /// Transmit descriptors of a queue.
    pub tx_descriptors: u32,
    /// Receive moderation.
    pub rx_moderation: ModerationModel,
    /// Transmit moderation: how late sent descriptors are reclaimed by interrupt.
    pub tx_moderation: ModerationModel,
    /// How received frames become visible.
    pub write_back: WriteBackModel,
    /// From a frame's last bit to its descriptor in memory, besides the frame's own transfer; at least.
    pub receive: Nanos,
    /// From the doorbell to the first bit on the wire, besides the frame's own transfer: descriptor and
    /// data are fetched, two round trips on PCI Express; at least.
    pub transmit: Nanos,
    /// What both together vary by, evenly from 0 to this: arbitration, write-back, memory.
    pub jitter: Nanos,
    /// Octets a second that the controller moves to or from memory, in bits: PCI Express less its
    /// overhead. Frames take their length over this on each of the two ways.
    pub bus: BitRate,
}

impl NicModel {
    /// Refuses what no controller could be.
    pub fn validate(&self) -> Result<(), ModelError> {
        self.link.validate()?;
        self.write_back.validate()?;
        check(self.rx_descriptors > 0 && self.tx_descriptors > 0, "controller", || {
            "a ring of 0 descriptors: give at least 1".into()
        })?;
        check(self.bus >= self.link.rate, "controller", || {
            format!("a bus of {} bit/s cannot keep up with the line: give at least the line's rate", self.bus.as_bps())
        })
    }

    /// The time that `octets` octets take to or from memory, rounded up.
    pub const fn bus_time(&self, octets: u64) -> Nanos {
        LinkModel { rate: self.bus, latency: Nanos::ZERO }.time_of(octets)
    }

    /// How long a receive ring lasts against frames of `octets` octets at line rate: the ring bound.
    pub const fn ring_time(&self, octets: u64) -> Nanos {
        self.link.rate.frames_of(octets).time_for(self.rx_descriptors as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten() -> NicModel {
        NicModel {
            link: LinkModel { rate: BitRate::new(10_000_000_000), latency: Nanos::from_nanos(600) },
            rx_descriptors: 512,
            tx_descriptors: 512,
            rx_moderation: ModerationModel::OFF,
            tx_moderation: ModerationModel::OFF,
            write_back: WriteBackModel { batch: 1, flush: Nanos::ZERO },
            receive: Nanos::from_nanos(800),
            transmit: Nanos::from_nanos(1_500),
            jitter: Nanos::from_nanos(500),
            bus: BitRate::new(50_000_000_000),
        }
    }

    #[test]
    fn times_of_a_frame() {
        let nic = ten();
        nic.validate().unwrap();
        assert_eq!(nic.bus_time(1_500), Nanos::from_nanos(240));
        assert_eq!(nic.ring_time(64).as_micros_floor(), 34);
    }

    #[test]
    fn a_bus_slower_than_the_line_is_refused() {
        let error = NicModel { bus: BitRate::new(8_000_000_000), ..ten() }.validate().unwrap_err();
        assert!(error.to_string().contains("line"), "{error}");
    }
}
