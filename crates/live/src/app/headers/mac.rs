//! MAC addresses.

use crate::Error;
use std::{fmt, str::FromStr};

/// A MAC address (IEEE 802.3 clause 3.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// The address of all stations, ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Makes an address from its bytes, in transmission order.
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// The bytes of the address, in the order in which they are sent.
    #[inline]
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Whether this is a group address: the first bit on the wire, which is the lowest of the first byte, is set.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Invalid {
            what: format!("MAC address {text:?}"),
            why: "not six bytes; write it as 02:00:00:00:00:01".into(),
        };
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *octet = u8::from_str_radix(part.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Self(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses() {
        let mac = Mac::new([0x02, 0xab, 0, 0xff, 9, 1]);
        assert_eq!(mac.to_string(), "02:ab:00:ff:09:01");
        assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
        for wrong in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02:00:00:00:00:0g",
            "+2:00:00:00:00:01",
        ] {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn groups() {
        assert!(Mac::BROADCAST.is_group() && Mac::new([0x33, 0x33, 0, 0, 0, 1]).is_group());
        assert!(!Mac::new([2, 0, 0, 0, 0, 1]).is_group());
    }
}
