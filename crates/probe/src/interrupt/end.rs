//! One end of the frame's path: an AF_XDP socket or a UDP socket.

use units::{Instant, Monotonic};

use super::frame::Stamps;
use super::udp::UdpEnd;
use super::xsk::XskEnd;
use crate::Error;

/// One end of the path: where frames leave and arrive.
pub(super) enum End {
    /// An AF_XDP socket; frames go to this address.
    Xsk(Box<XskEnd>, [u8; 6]),
    /// A UDP socket.
    Udp(UdpEnd),
}

/// A frame that came back, with its time stamps, arrival time and pick-up time.
pub(super) struct Back {
    pub stamps: Stamps,
    pub arrived: u64,
    pub picked: u64,
}

impl End {
    /// Sends frame `sequence`; returns whether the device accepted it.
    pub(super) fn send(&mut self, sequence: u32) -> bool {
        let stamps = Stamps { sequence, ..Stamps::default() };
        match self {
            Self::Xsk(end, destination) => end.send(*destination, stamps).is_some(),
            Self::Udp(end) => end.send(stamps).is_some(),
        }
    }

    /// Waits until `until` for frame `sequence` to come back. Other frames are too late, and are discarded.
    pub(super) fn back(&mut self, sequence: u32, until: Instant<Monotonic>) -> Result<Option<Back>, Error> {
        loop {
            let mut found = None;
            match self {
                Self::Xsk(end, _) => {
                    let (frames, picked) = end.receive(until)?;
                    if frames.is_empty() {
                        return Ok(None);
                    }
                    for frame in frames {
                        let stamps = end.stamps(&frame).filter(|stamps| stamps.sequence == sequence);
                        found = stamps.map(|stamps| Back { stamps, arrived: frame.arrived, picked }).or(found);
                        end.done(frame);
                    }
                }
                Self::Udp(end) => {
                    let Some((datagram, picked)) = end.receive(until)? else { return Ok(None) };
                    let stamps = end.stamps(&datagram).filter(|stamps| stamps.sequence == sequence);
                    found = stamps.map(|stamps| Back { stamps, arrived: datagram.arrived, picked });
                }
            }
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Sends back each frame that arrives until `until`.
    pub(super) fn serve(&mut self, until: Instant<Monotonic>) -> Result<(), Error> {
        match self {
            Self::Xsk(end, _) => {
                let (frames, picked) = end.receive(until)?;
                frames.into_iter().for_each(|frame| end.answer(frame, picked));
            }
            Self::Udp(end) => {
                if let Some((datagram, picked)) = end.receive(until)? {
                    end.answer(&datagram, picked);
                }
            }
        }
        Ok(())
    }

    /// Whether kernel busy polling or IRQ suspension can take effect; `None` if not requested, or if nothing has
    /// arrived yet.
    pub(super) fn polls_driver(&self) -> Option<bool> {
        match self {
            Self::Xsk(end, _) => end.busy_poll(),
            Self::Udp(end) => Some(end.has_napi()),
        }
    }

    /// MAC address of the interface; a UDP socket needs none.
    pub(super) fn mac(&self) -> Option<[u8; 6]> {
        match self {
            Self::Xsk(end, _) => Some(end.mac()),
            Self::Udp(_) => None,
        }
    }
}
