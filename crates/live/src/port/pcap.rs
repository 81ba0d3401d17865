//! The capture-file backend. Only one worker can receive the frames of a file.

use units::{Instant, Monotonic};

use crate::Error;
use crate::app::PortInfo;
use crate::app::headers::Mac;
use crate::device::Device;
use crate::device::pcap::{PcapDevice, PcapPlay};
use crate::port::{Backend, OpenPort, Opening, PeakRate, PortKind, PortReport, SLOTS_WITHOUT_KERNEL, Share, monotonic};

#[derive(Debug)]
struct Open {
    play: PcapPlay,
    number: usize,
    peak: Option<PeakRate>,
}

impl Backend for PcapPlay {
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn OpenPort>, Error> {
        if opening.workers != 1 {
            return Err(Error::Invalid {
                what: format!("{} workers on {}", opening.workers, self.input.display()),
                why: "a file has one queue; use one worker".into(),
            });
        }
        Ok(Box::new(Open { play: self.clone(), number: opening.number, peak: opening.stated_peak() }))
    }
}

impl OpenPort for Open {
    fn info(&self) -> PortInfo {
        // A locally administered address (IEEE 802-2014, 8.4): "apus" and the port's number.
        let mac = [0x02, b'a', b'p', b'u', b's', self.number as u8];
        PortInfo { name: self.play.input.display().to_string(), mac: Mac::new(mac) }
    }

    fn report(&self) -> PortReport {
        PortReport {
            name: self.play.input.display().to_string(),
            kind: PortKind::Pcap,
            driver: None,
            rx_descriptors: SLOTS_WITHOUT_KERNEL,
            rx_room: SLOTS_WITHOUT_KERNEL,
            peak: self.peak,
        }
    }

    fn slots(&self, _worker: usize) -> u32 {
        SLOTS_WITHOUT_KERNEL
    }

    fn device(&self, _worker: usize, _share: &mut Share<'_>) -> Result<Box<dyn Device>, Error> {
        Ok(Box::new(PcapDevice::open(self.play.clone(), monotonic as fn() -> Instant<Monotonic>)?))
    }
}
