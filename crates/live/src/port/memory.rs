//! The memory backend: a port that delivers the same frame again and again. Every worker has its own source.

use crate::Error;
use crate::app::PortInfo;
use crate::app::headers::Mac;
use crate::device::Device;
use crate::device::memory::MemoryDevice;
use crate::port::{Backend, OpenPort, Opening, PeakRate, PortKind, PortReport, SLOTS_WITHOUT_KERNEL, Share};

/// Configuration of a memory port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// The frame to deliver, without frame check sequence.
    pub frame: Vec<u8>,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// Number of frames per worker after which the port is finished. `None` means that it never ends.
    pub frames: Option<u64>,
}

#[derive(Debug)]
struct Open {
    name: String,
    config: MemoryConfig,
    peak: Option<PeakRate>,
}

impl Backend for MemoryConfig {
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn OpenPort>, Error> {
        let name = format!("memory-{}", opening.number);
        Ok(Box::new(Open { name, config: self.clone(), peak: opening.stated_peak() }))
    }
}

impl OpenPort for Open {
    fn info(&self) -> PortInfo {
        PortInfo { name: self.name.clone(), mac: Mac::new(self.config.mac) }
    }

    fn report(&self) -> PortReport {
        PortReport {
            name: self.name.clone(),
            kind: PortKind::Memory,
            driver: None,
            rx_descriptors: SLOTS_WITHOUT_KERNEL,
            rx_room: SLOTS_WITHOUT_KERNEL,
            peak: self.peak,
        }
    }

    fn slots(&self, _worker: usize) -> u32 {
        SLOTS_WITHOUT_KERNEL
    }

    fn device(&self, _worker: usize, share: &mut Share<'_>) -> Result<Box<dyn Device>, Error> {
        let frame = &self.config.frame;
        let room = share.pool.longest_frame();
        if frame.len() > room {
            return Err(Error::Invalid {
                what: format!("frames of {} bytes", frame.len()),
                why: format!("a slot holds at most {room} bytes; use larger slots"),
            });
        }
        let source = MemoryDevice::source(&self.name, frame, frame.len() as u32)?;
        Ok(Box::new(match self.config.frames {
            Some(frames) => source.limited(frames),
            None => source,
        }))
    }
}
