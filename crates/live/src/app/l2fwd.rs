//! `l2fwd`: a wire between two ports.

use super::headers::{Ethernet, Mac, set_macs};
use super::{App, Verdict, offload};
use crate::telemetry::DropReason;

/// Forwards each frame that arrives on one of two ports to the other port.
#[derive(Clone, Copy, Debug)]
pub struct L2Fwd {
    /// The MAC addresses of the two ports. If `None`, the addresses in the frames stay unchanged.
    rewrite: Option<[Mac; 2]>,
    finish_checksums: bool,
}

impl L2Fwd {
    /// Forwards frames unchanged, as a wire does, so that the hosts on both sides need no configuration.
    pub const fn transparent() -> Self {
        Self { rewrite: None, finish_checksums: false }
    }

    /// Forwards frames and rewrites their MAC addresses as DPDK's l2fwd does (`l2fwd_mac_updating` in its `main.c`).
    /// The source becomes the address of the outgoing port, from `macs`. The destination becomes 02:00:00:00:00:NN,
    /// where NN is the number of the outgoing port.
    pub const fn rewriting(macs: [Mac; 2]) -> Self {
        Self { rewrite: Some(macs), finish_checksums: false }
    }

    /// If `yes`, also completes TCP and UDP checksums that a sender on a veth pair left to hardware; see [`offload`].
    /// Otherwise, such senders need `ethtool -K DEV tx off`.
    #[must_use]
    pub const fn finish_checksums(self, yes: bool) -> Self {
        Self { finish_checksums: yes, ..self }
    }
}

impl App for L2Fwd {
    #[inline]
    fn handle(&mut self, port: usize, frame: &mut [u8]) -> Verdict {
        let out = match port {
            0 => 1,
            1 => 0,
            _ => return Verdict::Drop(DropReason::NotHandled),
        };
        if frame.len() < Ethernet::MIN_LEN {
            return Verdict::Drop(DropReason::Malformed);
        }
        if self.finish_checksums {
            offload::finish_frame(frame);
        }
        match self.rewrite.map(|macs| set_macs(frame, Mac::new([2, 0, 0, 0, 0, out as u8]), macs[out])) {
            None | Some(Ok(())) => Verdict::Send(out),
            Some(Err(malformed)) => Verdict::Drop(malformed.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::{self, Frame};

    #[test]
    fn a_wire_has_two_ends() {
        let whole = *b"ddddddssssss\x08\x00payload";
        let mut frame = whole;
        assert_eq!(L2Fwd::transparent().handle(0, &mut frame), Verdict::Send(1));
        assert_eq!(L2Fwd::transparent().handle(1, &mut frame), Verdict::Send(0));
        assert_eq!(frame, whole);
        assert_eq!(L2Fwd::transparent().handle(2, &mut frame), Verdict::Drop(DropReason::NotHandled));
        assert_eq!(L2Fwd::transparent().handle(0, &mut frame[..13]), Verdict::Drop(DropReason::Malformed));
    }

    #[test]
    fn addresses_as_dpdk_writes_them() {
        let macs = [Mac::new(*b"\x02port0"), Mac::new(*b"\x02port1")];
        let mut frame = *b"ddddddssssss\x08\x00payload";
        assert_eq!(L2Fwd::rewriting(macs).handle(0, &mut frame), Verdict::Send(1));
        assert_eq!(&frame, b"\x02\x00\x00\x00\x00\x01\x02port1\x08\x00payload");
        assert_eq!(L2Fwd::rewriting(macs).handle(1, &mut frame), Verdict::Send(0));
        assert_eq!(&frame, b"\x02\x00\x00\x00\x00\x00\x02port0\x08\x00payload");
    }

    #[test]
    fn checksums_are_finished_on_request_only() {
        let whole = Frame::v4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(b"data").build();
        let mut left = whole.clone();
        testing::leave_checksum_to_hardware(&mut left);
        let mut frame = left.clone();
        assert_eq!(L2Fwd::transparent().handle(0, &mut frame), Verdict::Send(1));
        assert_eq!(frame, left);
        assert_eq!(L2Fwd::transparent().finish_checksums(true).handle(0, &mut frame), Verdict::Send(1));
        assert_eq!(frame, whole);
    }
}
