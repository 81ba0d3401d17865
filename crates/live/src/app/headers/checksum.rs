//! The internet checksum, computed in full (RFC 1071) or updated after a change (RFC 1624).
//!
//! Swapping source and destination keeps a checksum valid, because one's complement addition is commutative (RFC 1071
//! section 2 A).

/// A one's complement sum before it is folded to 16 bits.
///
/// The sum is kept in the machine's byte order. Since byte order does not affect the sum (RFC 1071 section 2 B), bytes
/// are swapped once at the end instead of once per word. There is room for 2^32 additions.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum(u64);

impl Sum {
    /// The sum of `octets` as 16-bit words. If the number of bytes is odd, a zero byte is added at the end.
    ///
    /// If you add the sums of several pieces of data, only the last piece may have an odd length.
    #[inline]
    pub fn of(octets: &[u8]) -> Self {
        let mut words = octets.chunks_exact(4);
        let mut sum: u64 = words.by_ref().map(|w| u64::from(u32::from_ne_bytes([w[0], w[1], w[2], w[3]]))).sum();
        let mut last = [0; 4];
        let rest = words.remainder();
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_ne_bytes(last));
        Self(sum)
    }

    /// The sum of one 16-bit word.
    #[inline]
    pub const fn word(word: u16) -> Self {
        Self(word.to_be() as u64)
    }

    /// Adds two sums.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// The sum folded to 16 bits, not complemented. It is 0xffff if the data include a correct checksum.
    #[inline]
    pub const fn fold(self) -> u16 {
        let mut sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        u16::from_be(sum as u16)
    }

    /// The checksum: the complement of the folded sum.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Whether the data, which must include their checksum, are intact.
    #[inline]
    pub const fn is_intact(self) -> bool {
        self.fold() == 0xffff
    }
}

/// The sum of the pseudo-header, which the checksums of TCP, UDP (RFC 768, RFC 9293 section 3.1) and ICMPv6 (RFC 8200
/// section 8.1) include. `addresses` is the sum of the source and destination addresses.
#[inline]
pub const fn pseudo_header(addresses: Sum, protocol: u8, length: u16) -> Sum {
    addresses.and(Sum::word(protocol as u16)).and(Sum::word(length))
}

/// The checksum after one 16-bit word of the data changed from `old` to `new`: RFC 1624 section 3, equation 3.
#[inline]
pub const fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    let mut sum = !checksum as u32 + !old as u32 + new as u32;
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071_section_3() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&data).fold(), 0xddf2);
        assert_eq!(Sum::of(&data).checksum(), !0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_section_4() {
        assert_eq!(updated(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn all_ones_for_a_long_time_do_not_overflow() {
        assert_eq!(Sum::of(&[0xff; 65_536]).fold(), 0xffff);
        assert_eq!(Sum::of(&[0xff; 65_535]).fold(), 0xff00);
        assert_eq!(Sum::of(&[]).fold(), 0);
    }

    proptest! {
        #[test]
        fn the_sum_equals_a_word_by_word_one(data in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(Sum::of(&data).fold(), testing::slow_sum(&data));
        }

        #[test]
        fn pieces_add_up(data in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..100) {
            let cut = (cut * 2).min(data.len());
            let (left, right) = data.split_at(cut);
            if left.len() % 2 == 0 {
                prop_assert_eq!(Sum::of(left).and(Sum::of(right)).fold(), testing::slow_sum(&data));
            }
        }

        #[test]
        fn the_update_equals_the_full_sum(mut data in proptest::collection::vec(any::<u8>(), 2..60), at in 0usize..29, new: u16) {
            data.truncate(data.len() & !1);
            data[0] |= 1; // not all zero, as no header is (RFC 1624 section 3)
            let at = (at * 2 + 2).min(data.len() - 2);
            prop_assume!(at >= 2);
            let before = Sum::of(&data).checksum();
            let old = u16::from_be_bytes([data[at], data[at + 1]]);
            data[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(updated(before, old, new), Sum::of(&data).checksum());
        }
    }
}
