//! The formulas of this group. Times are in nanoseconds, rates in bits per second, and frame sizes in octets, including
//! the check sequence. Times and rates are rounded down and saturate.

use units::{BitRate, Nanos};

/// Octets on the wire in addition to each frame: 8 for preamble and start of frame, 12 for the gap (IEEE 802.3, 3.2.1
/// and 4.4.2).
pub(super) const AROUND: u64 = 20;
/// Size of the smallest frame in octets, including its check sequence (IEEE 802.3, 4.4.2, minFrameSize).
pub(super) const SMALLEST: u64 = 64;
/// Octets of a frame in addition to its payload: 14 for the header, 4 for the check sequence (IEEE 802.3, 3.1.1).
const HEADER: u64 = 18;

/// Size in octets of a frame with a payload of `mtu` octets.
pub(super) fn frame(mtu: u32) -> u64 {
    (u64::from(mtu) + HEADER).max(SMALLEST)
}

/// The time that `slots` frames, each of `octets` octets, take on the wire at `rate`:
///
/// > time = slots x (octets + 20) x 8 / rate
///
/// If the reader of a ring is away for longer than this, the ring overflows. Examples at 40 Gbit/s: 1024 frames of 1518
/// octets take 315 us, 256 of them take 79 us, and 1024 of 64 octets take 17 us. [`Nanos::MAX`] for a rate of 0.
pub(super) fn ring_time(slots: u64, octets: u64, rate: BitRate) -> Nanos {
    let bits = u128::from(slots).saturating_mul(u128::from(octets.saturating_add(AROUND)) * 8);
    match rate.as_bps() {
        0 => Nanos::MAX,
        bps => {
            Nanos::from_nanos(u64::try_from(bits.saturating_mul(1_000_000_000) / u128::from(bps)).unwrap_or(u64::MAX))
        }
    }
}

/// Minimum number of slots with which a ring does not overflow while its reader is away for `absence`: the inverse of
/// [`ring_time`], rounded up. 0 if `absence` is 0.
pub(super) fn slots_for(absence: Nanos, octets: u64, rate: BitRate) -> u64 {
    let bits = u128::from(absence.as_nanos()) * u128::from(rate.as_bps());
    let one = u128::from(octets.saturating_add(AROUND)) * 8 * 1_000_000_000;
    u64::try_from(bits.div_ceil(one)).unwrap_or(u64::MAX)
}

/// The longest time until the driver can reuse the buffers of sent frames. It can do so after the interrupt, which the
/// device delays by `usecs` microseconds or until `frames` frames are sent, whichever comes first (`frames` 0: no such
/// limit).
///
/// > time = min(usecs, frames x (octets + 20) x 8 / rate)
pub(super) fn reclaim(usecs: u32, frames: u32, octets: u64, rate: BitRate) -> Nanos {
    let by_time = Nanos::from_micros(usecs.into());
    match frames {
        0 => by_time,
        n => by_time.min(ring_time(n.into(), octets, rate)),
    }
}

/// The intervals that a device can use instead of `usecs` if it counts in units of `unit_us`: the nearest multiples
/// below and above `usecs`. Both are `usecs` if it is a multiple itself.
///
/// > below = usecs - usecs mod unit; above = below + unit, or usecs
pub(super) fn multiples(usecs: u32, unit_us: u32) -> (u32, u32) {
    let below = usecs - usecs % unit_us.max(1);
    (below, if below == usecs { usecs } else { below.saturating_add(unit_us) })
}

/// Maximum number of interrupts per second if they are at least `interval` apart. `None` (no limit) if `interval` is 0.
pub(super) fn interrupts_a_second(interval: Nanos) -> Option<u64> {
    1_000_000_000_u64.checked_div(interval.as_nanos())
}

/// The rate at which a PCI Express link carries payload in one direction:
///
/// > rate = lanes x transfers x code x payload / (payload + 26)
///
/// The code is 8/10 up to 5 GT/s, 128/130 up to 32 GT/s, 242/256 above (PCI Express Base Specification 6.0, 4.2.1,
/// 4.2.2, 4.2.3). A packet of the transaction layer has 26 octets around its payload: framing 4, sequence 2, header 16,
/// LCRC 4 (2.2, 3.6). Acknowledgements and flow control, which take a few percent, are left out.
pub(super) fn pcie_rate(lanes: u32, megatransfers: u32, payload: u32) -> BitRate {
    let (numerator, denominator) = match megatransfers {
        0..=5_000 => (8_u128, 10_u128),
        5_001..=32_000 => (128, 130),
        _ => (242, 256),
    };
    let raw = u128::from(lanes) * u128::from(megatransfers) * 1_000_000;
    let rate = raw * numerator / denominator * u128::from(payload) / (u128::from(payload) + 26);
    BitRate::new(u64::try_from(rate).unwrap_or(u64::MAX))
}

/// `part` as a percentage of `whole`, rounded down. [`u64::MAX`] if `whole` is 0.
pub(super) fn percent(part: u128, whole: u128) -> u64 {
    part.saturating_mul(100).checked_div(whole).map_or(u64::MAX, |share| u64::try_from(share).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const G40: BitRate = BitRate::new(40_000_000_000);

    #[test]
    fn the_figures_of_the_documents() {
        // FreeBSD thread "ixl 40G bad performance": 1024 slots of 1500 octets are 300 us at 40 Gbit/s.
        assert_eq!(ring_time(1024, frame(1500), G40), Nanos::from_nanos(314_982));
        assert_eq!(ring_time(256, frame(1500), G40), Nanos::from_nanos(78_745));
        assert_eq!(ring_time(1024, SMALLEST, G40), Nanos::from_nanos(17_203));
        assert_eq!(ring_time(4096, SMALLEST, BitRate::new(100_000_000_000)), Nanos::from_nanos(27_525));
        // 64-octet frames at 10 Gbit/s: 14,880,952 a second.
        assert_eq!(ring_time(14_880_952, SMALLEST, BitRate::new(10_000_000_000)), Nanos::from_nanos(999_999_974));
        // ixl(4): 62 units of 2 us are 8,000 interrupts a second, 122 are 4,100.
        assert_eq!(interrupts_a_second(Nanos::from_micros(124)), Some(8_064));
        assert_eq!(interrupts_a_second(Nanos::from_micros(244)), Some(4_098));
        assert_eq!(interrupts_a_second(Nanos::ZERO), None);
        // Eight lanes of 8 GT/s carry 52 Gbit/s in payloads of 128 octets, and 57 in those of 256.
        assert_eq!(pcie_rate(8, 8_000, 128).as_bps() / 1_000_000_000, 52);
        assert_eq!(pcie_rate(8, 8_000, 256).as_bps() / 1_000_000_000, 57);
        assert_eq!(pcie_rate(8, 5_000, 256).as_bps() / 1_000_000_000, 29);
    }

    #[test]
    fn nothing_divides_by_nothing() {
        assert_eq!(ring_time(1, 64, BitRate::new(0)), Nanos::MAX);
        assert_eq!((multiples(5, 0), multiples(5, 2), percent(1, 0)), ((5, 5), (4, 6), u64::MAX));
    }

    proptest! {
        #[test]
        fn a_longer_ring_of_longer_frames_lasts_longer(slots in 1_u64..1 << 20, octets in 64_u64..10_000, gbps in 1_u64..800) {
            let rate = BitRate::new(gbps * 1_000_000_000);
            let time = ring_time(slots, octets, rate);
            prop_assert!(ring_time(slots + 1, octets, rate) >= time);
            prop_assert!(ring_time(slots, octets + 1, rate) >= time);
            prop_assert!(ring_time(slots, octets, BitRate::new(gbps * 1_000_000_000 + 1)) <= time);
            // It is the frames' time, one by one, but for the rounding of each.
            let one = ring_time(1, octets, rate);
            prop_assert!(one * slots <= time && time <= (one + Nanos::from_nanos(1)) * slots);
        }

        #[test]
        fn the_slots_for_an_absence_last_so_long_and_one_less_does_not(
            ns in 1_u64..10_000_000, octets in 64_u64..10_000, gbps in 1_u64..800,
        ) {
            let (absence, rate) = (Nanos::from_nanos(ns), BitRate::new(gbps * 1_000_000_000));
            let slots = slots_for(absence, octets, rate);
            prop_assert!(ring_time(slots, octets, rate) >= absence);
            prop_assert!(ring_time(slots - 1, octets, rate) <= absence);
        }

        #[test]
        fn buffers_come_back_no_later_than_either_bound(usecs: u32, frames in 0_u32..1 << 20, gbps in 1_u64..800) {
            let rate = BitRate::new(gbps * 1_000_000_000);
            let time = reclaim(usecs, frames, 1518, rate);
            prop_assert!(time <= Nanos::from_micros(usecs.into()));
            prop_assert!(frames == 0 || time <= ring_time(frames.into(), 1518, rate));
        }

        #[test]
        fn what_a_device_can_hold_is_less_than_a_unit_away(usecs in 0..u32::MAX - 100, unit in 1_u32..100) {
            let (below, above) = multiples(usecs, unit);
            prop_assert!(below <= usecs && usecs <= above && above - below <= unit);
            prop_assert!(below % unit == 0 && above % unit == 0);
            prop_assert_eq!(below == above, usecs % unit == 0);
        }

        #[test]
        fn more_lanes_and_larger_payloads_carry_more(lanes in 1_u32..32, payload in 64_u32..4_096) {
            for speed in [2_500, 5_000, 8_000, 16_000, 32_000, 64_000] {
                let rate = pcie_rate(lanes, speed, payload);
                prop_assert!(pcie_rate(lanes + 1, speed, payload) > rate);
                prop_assert!(pcie_rate(lanes, speed, payload * 2) > rate);
                prop_assert!(rate.as_bps() < u64::from(lanes) * u64::from(speed) * 1_000_000);
            }
        }

        #[test]
        fn any_numbers_are_computed(slots: u64, octets: u64, bps: u64, ns: u64) {
            let rate = BitRate::new(bps);
            let _ = ring_time(slots, octets, rate);
            let _ = slots_for(Nanos::from_nanos(ns), octets, rate);
            let _ = pcie_rate(slots as u32, octets as u32, bps as u32);
        }
    }
}
