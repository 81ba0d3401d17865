//! `macswap`: sends each frame back to its sender, as testpmd's `--forward-mode=macswap` does.

use super::headers::{Malformed, swap_macs};
use super::{App, Verdict};
use crate::telemetry::DropReason;

/// Swaps the MAC addresses of each frame, and sends the frame back on the port on which it arrived.
#[derive(Clone, Copy, Default, Debug)]
pub struct MacSwap;

impl App for MacSwap {
    #[inline]
    fn handle(&mut self, port: usize, frame: &mut [u8]) -> Verdict {
        match swap_macs(frame) {
            Ok(()) => Verdict::Send(port),
            Err(Malformed) => Verdict::Drop(DropReason::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_addresses_change() {
        let mut frame = *b"ddddddssssss\x08\x00payload";
        assert_eq!(MacSwap.handle(1, &mut frame), Verdict::Send(1));
        assert_eq!(&frame, b"ssssssdddddd\x08\x00payload");
    }

    #[test]
    fn thirteen_octets_are_no_frame() {
        assert_eq!(MacSwap.handle(0, &mut [0; 13]), Verdict::Drop(DropReason::Malformed));
        assert_eq!(MacSwap.handle(0, &mut [0; 14]), Verdict::Send(0));
    }
}
