//! The PCI Express capability in a device's configuration space (PCI Express Base Specification 5.0,
//! section 7.5.3; PCI Local Bus Specification 3.0, section 6.7 for the list of capabilities).

use crate::facts::{Aspm, Fact, Source, Why};

/// The values of the PCI Express capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Express {
    pub aspm: Aspm,
    pub max_payload: u32,
    pub max_payload_capable: u32,
    pub max_read_request: u32,
    pub extended_tag: bool,
    pub relaxed_ordering: bool,
    pub speed_mts: Option<u32>,
    pub max_speed_mts: Option<u32>,
    pub width: Option<u32>,
    pub max_width: Option<u32>,
}

/// Offset of the status register. One of its bits shows whether the device has a list of capabilities.
const STATUS: usize = 0x06;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const CAPABILITIES: usize = 0x34;
/// ID of the PCI Express capability.
const EXPRESS: u8 = 0x10;
/// Number of bytes of the configuration space that unprivileged users can read.
const VISIBLE_TO_ALL: usize = 64;

/// Finds and decodes the PCI Express capability. Absent for devices without it (conventional PCI, many virtual
/// devices).
pub(crate) fn express(space: &[u8], source: Source) -> Fact<Express> {
    let word = |at: usize| Some(u16::from_le_bytes(space.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_le_bytes(space.get(at..at + 4)?.try_into().ok()?));
    match word(STATUS) {
        None => return Fact::malformed(format!("{} octets are no configuration space", space.len()), source),
        Some(status) if status & STATUS_CAPABILITIES == 0 => return Fact::absent(source),
        Some(_) => {}
    }
    let mut at = space.get(CAPABILITIES).map_or(0, |pointer| usize::from(pointer & !3));
    // At most 48 entries of 4 bytes fit in the 192 bytes after the header. A longer list is a loop.
    for _ in 0..48 {
        if at == 0 {
            return Fact::absent(source);
        }
        if space.len() <= VISIBLE_TO_ALL {
            return Fact::missing(Why::NotPermitted, source);
        }
        let Some(&[id, next]) = space.get(at..at + 2) else { break };
        if id == EXPRESS {
            let fields = (long(at + 4), word(at + 8), long(at + 0x0C), word(at + 0x10), word(at + 0x12));
            return match fields {
                (Some(capable), Some(control), Some(link), Some(link_control), Some(link_status)) => {
                    Fact::known(decode(capable, control, link, link_control, link_status), source)
                }
                _ => Fact::malformed("the PCI Express capability is cut off", source),
            };
        }
        at = usize::from(next & !3);
    }
    Fact::malformed("the list of capabilities does not end", source)
}

fn decode(capable: u32, control: u16, link: u32, link_control: u16, link_status: u16) -> Express {
    let octets = |field: u32| 128 << (field & 7);
    let lanes = |field: u32| Some(field & 0x3F).filter(|lanes| *lanes != 0);
    Express {
        max_payload_capable: octets(capable),
        max_payload: octets(u32::from(control) >> 5),
        max_read_request: octets(u32::from(control) >> 12),
        extended_tag: control & 1 << 8 != 0,
        relaxed_ordering: control & 1 << 4 != 0,
        aspm: Aspm { l0s: link_control & 1 != 0, l1: link_control & 2 != 0 },
        max_speed_mts: megatransfers(link & 0xF),
        max_width: lanes(link >> 4),
        speed_mts: megatransfers(u32::from(link_status) & 0xF),
        width: lanes(u32::from(link_status) >> 4),
    }
}

/// Link speeds by their numbers (section 7.5.3.18, and 8.3 for 64 GT/s).
fn megatransfers(number: u32) -> Option<u32> {
    [2_500, 5_000, 8_000, 16_000, 32_000, 64_000].get((number as usize).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The configuration space of a network card, for which lspci shows MaxPayload 256 of 512, MaxReadReq 4096, L1, and
    /// 8 GT/s x8 of 16 GT/s x16.
    fn space() -> Vec<u8> {
        let mut space = vec![0; 256];
        space[STATUS] = 0x10;
        space[CAPABILITIES] = 0x40;
        space[0x40..0x42].copy_from_slice(&[0x01, 0xA0]);
        space[0xA0..0xA2].copy_from_slice(&[EXPRESS, 0]);
        space[0xA4] = 2;
        space[0xA8..0xAA].copy_from_slice(&(1u16 << 5 | 5 << 12 | 1 << 8).to_le_bytes());
        space[0xAC..0xB0].copy_from_slice(&(4u32 | 16 << 4).to_le_bytes());
        space[0xB0] = 2;
        space[0xB2..0xB4].copy_from_slice(&(3u16 | 8 << 4).to_le_bytes());
        space
    }

    #[test]
    fn the_capability_is_found_and_decoded() {
        let express = express(&space(), "config".into()).into_value().unwrap();
        assert_eq!((express.max_payload, express.max_payload_capable, express.max_read_request), (256, 512, 4096));
        assert_eq!(express.aspm, Aspm { l0s: false, l1: true });
        assert_eq!((express.speed_mts, express.width), (Some(8_000), Some(8)));
        assert_eq!((express.max_speed_mts, express.max_width), (Some(16_000), Some(16)));
        assert!(express.extended_tag && !express.relaxed_ordering);
    }

    #[test]
    fn who_may_not_see_it_is_told_so() {
        assert_eq!(express(&space()[..64], "config".into()).why(), Some(&Why::NotPermitted));
        assert!(express(&[0; 256], "config".into()).is_absent());
        assert!(matches!(express(&[0; 4], "config".into()).why(), Some(Why::Malformed(_))));
    }

    #[test]
    fn a_list_that_runs_in_a_circle_ends() {
        let mut space = space();
        space[0x41] = 0x40;
        assert!(matches!(express(&space, "config".into()).why(), Some(Why::Malformed(_))));
    }

    proptest! {
        #[test]
        fn any_octets_are_decoded_or_refused(mut octets in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(status) = octets.get_mut(STATUS) {
                *status |= 0x10;
            }
            let _ = express(&octets, "config".into());
        }
    }
}
