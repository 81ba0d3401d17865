//! The content of a frame: the time stamps of its path, so that the receiver at the end knows all of them.
//!
//! ```text
//!  Ethernet (14) │ magic "Aq" (2) │ sequence (4) │ sent (8) │ far: arrived (8) │ picked up (8) │ sent (8)   60 bytes
//! ```
//! Times are nanoseconds of `CLOCK_MONOTONIC`, big endian; 0 is unknown.

/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;
const MAGIC: [u8; 2] = *b"Aq";
/// Bytes after the Ethernet header that carry the stamps.
pub(super) const PAYLOAD: usize = 38;
/// Length in bytes of a frame as it is passed to a device: the shortest Ethernet frame, which is 64 bytes with its
/// check sequence.
pub(super) const FRAME: usize = 60;

/// The time stamps of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stamps {
    pub sequence: u32,
    pub sent: u64,
    pub far_arrived: u64,
    pub far_picked: u64,
    pub far_sent: u64,
}

impl Stamps {
    /// Writes the stamps to a payload of at least [`PAYLOAD`] bytes.
    pub(super) fn write(&self, payload: &mut [u8]) {
        payload[..2].copy_from_slice(&MAGIC);
        payload[2..6].copy_from_slice(&self.sequence.to_be_bytes());
        for (at, time) in [self.sent, self.far_arrived, self.far_picked, self.far_sent].into_iter().enumerate() {
            payload[6 + at * 8..14 + at * 8].copy_from_slice(&time.to_be_bytes());
        }
    }

    /// Reads the stamps of a payload; `None` if it is not a frame of the probe.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let payload = payload.get(..PAYLOAD)?;
        if payload[..2] != MAGIC {
            return None;
        }
        let mut sequence = [0; 4];
        sequence.copy_from_slice(&payload[2..6]);
        let time = |at: usize| {
            let mut octets = [0; 8];
            octets.copy_from_slice(&payload[6 + at * 8..14 + at * 8]);
            u64::from_be_bytes(octets)
        };
        Some(Self {
            sequence: u32::from_be_bytes(sequence),
            sent: time(0),
            far_arrived: time(1),
            far_picked: time(2),
            far_sent: time(3),
        })
    }
}

/// Writes the Ethernet header, and clears the rest of a frame.
pub(super) fn lay_out(frame: &mut [u8], destination: [u8; 6], source: [u8; 6], ethertype: u16) {
    frame.fill(0);
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    frame[12..ETHERNET].copy_from_slice(&ethertype.to_be_bytes());
}

/// The payload of a frame; empty if it is too short for a header.
pub(super) fn payload(frame: &[u8]) -> &[u8] {
    frame.get(ETHERNET..).unwrap_or_default()
}

/// The payload of a frame, for writing.
pub(super) fn payload_mut(frame: &mut [u8]) -> &mut [u8] {
    frame.get_mut(ETHERNET..).unwrap_or_default()
}

/// Swaps the addresses of a frame, to return it.
pub(super) fn turn_round(frame: &mut [u8]) {
    if let Some((destination, rest)) = frame.split_at_mut_checked(6)
        && let Some(source) = rest.get_mut(..6)
    {
        destination.swap_with_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const _: () = assert!(ETHERNET + PAYLOAD <= FRAME);

    proptest! {
        #[test]
        fn what_is_written_is_read(sequence: u32, sent: u64, far_arrived: u64, far_picked: u64, far_sent: u64) {
            let stamps = Stamps { sequence, sent, far_arrived, far_picked, far_sent };
            let mut frame = [0; FRAME];
            lay_out(&mut frame, [1; 6], [2; 6], 0x88b5);
            stamps.write(payload_mut(&mut frame));
            turn_round(&mut frame);
            prop_assert_eq!(Stamps::read(payload(&frame)), Some(stamps));
            prop_assert_eq!(&frame[..12], &[2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1][..]);
        }

        #[test]
        fn any_octets_are_taken(mut octets in proptest::collection::vec(any::<u8>(), 0..80)) {
            turn_round(&mut octets);
            let _ = Stamps::read(payload(&octets));
            let _ = payload_mut(&mut octets);
        }
    }
}
