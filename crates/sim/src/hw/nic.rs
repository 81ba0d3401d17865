//! The parameters of a network controller. Its behaviour is modelled in `link.rs`, `ring.rs` and `interrupt.rs`.

use units::{BitRate, Nanos};

use super::interrupt::ModerationModel;
use super::link::LinkModel;
use super::ring::WriteBackModel;
use super::{ModelError, check};

/// A controller with the settings that its driver gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicModel {
    /// Line rate, and the time through both PHYs.
    pub link: LinkModel,
    /// Number of receive descriptors per queue.
    pub rx_descriptors: u32,
    /// Number of transmit descriptors per queue.
    pub tx_descriptors: u32,
    /// Moderation of receive interrupts.
    pub rx_moderation: ModerationModel,
    /// Moderation of transmit interrupts, which report that descriptors of sent frames can be reclaimed.
    pub tx_moderation: ModerationModel,
    /// When the descriptors of received frames are written back, which makes the frames visible to software.
    pub write_back: WriteBackModel,
    /// The minimum time from a frame's last bit to its descriptor in memory, without the transfer of the frame itself.
    pub receive: Nanos,
    /// The minimum time from the doorbell to the first bit on the wire, without the transfer of the frame itself.
    /// Descriptor and data are fetched in two round trips on PCI Express.
    pub transmit: Nanos,
    /// The maximum random delay of a frame, by arbitration, write-back and memory. The delay is uniformly distributed
    /// from 0 to this value. It covers `receive` and `transmit` together, and is added on reception.
    pub jitter: Nanos,
    /// Rate at which the controller moves data to or from memory, in bits per second: PCI Express less its overhead.
    /// Moving a frame in either direction takes the frame's length divided by this rate.
    pub bus: BitRate,
}

impl NicModel {
    /// Returns an error if the parameters are impossible.
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

    /// The time that `octets` bytes take to or from memory, rounded up.
    pub const fn bus_time(&self, octets: u64) -> Nanos {
        LinkModel { rate: self.bus, latency: Nanos::ZERO }.time_of(octets)
    }

    /// Time to fill an empty receive ring with frames of `octets` bytes at line rate.
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
