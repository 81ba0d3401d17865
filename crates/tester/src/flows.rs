//! Addresses and ports of many flows, from the ranges that the IETF reserves for benchmarks.
//!
//! A flow goes from host h of network n on the near side to host h of network n on the far side. All IPv4 networks of a
//! side are in one prefix: 198.18.0.0/16 for the near side, 198.19.0.0/16 for the far side. The IPv6 networks have the
//! number n on the near side and 0x8000 + n on the far side. So a router needs only two routes, and a device that
//! distributes flows by a hash sees many different flows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Error;
use crate::Random;

/// Largest number of flows: 256 networks with 250 hosts each.
pub const MOST: u32 = 64_000;
/// Number of networks: RFC 2544, 12, asks for traffic to 256 networks.
const NETWORKS: u32 = 256;
/// Source and destination port of a single flow: RFC 2544, C.2.6.4.
const SINGLE: (u16, u16) = (0xc020, 7);
/// Range of the source ports of many flows: RFC 4814, 4.
const SOURCE_PORTS: (u16, u16) = (1024, 65_535);
const DESTINATION_PORTS: (u16, u16) = (1, 49_151);

units::named! {
    /// The IP version.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Family {
        /// IPv4, from 198.18.0.0/15 (RFC 2544, C.2.2).
        V4 = "ipv4",
        /// IPv6, from 2001:2::/48 (RFC 5180, 8).
        V6 = "ipv6",
    }
}

/// The flows of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flows {
    /// The IP version of all flows.
    pub family: Family,
    /// VLAN of the frames, 1 to 4094; `None` for frames without a VLAN tag.
    pub vlan: Option<u16>,
    /// Number of flows, 1 to [`MOST`].
    pub count: u32,
    /// Seed from which the port numbers are drawn.
    pub seed: u64,
    /// Whether source and destination are swapped, for the opposite direction of the same flows.
    pub reverse: bool,
}

/// Addresses and ports of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl Flows {
    /// Returns an error if the number of flows or the VLAN is out of range.
    pub fn check(&self) -> Result<(), Error> {
        if self.count == 0 || self.count > MOST {
            return Err(Error::invalid(format!("{} flows", self.count), format!("expected 1 to {MOST}")));
        }
        match self.vlan {
            Some(vlan) if !(1..=4094).contains(&vlan) => {
                Err(Error::invalid(format!("VLAN {vlan}"), "expected 1 to 4094 (IEEE 802.1Q, 9.6)"))
            }
            _ => Ok(()),
        }
    }

    /// Flow number `index`.
    pub fn flow(&self, index: u32) -> Flow {
        let (network, host) = ((index % NETWORKS) as u8, 2 + (index / NETWORKS % 250) as u8);
        let (near, far): (IpAddr, IpAddr) = match self.family {
            Family::V4 => (Ipv4Addr::new(198, 18, network, host).into(), Ipv4Addr::new(198, 19, network, host).into()),
            Family::V6 => {
                let at = |net: u16| Ipv6Addr::new(0x2001, 2, 0, net, 0, 0, 0, u16::from(host));
                (at(network.into()).into(), at(0x8000 + u16::from(network)).into())
            }
        };
        let (from, to) = if self.count == 1 {
            SINGLE
        } else {
            let mut random = Random::new(self.seed ^ u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut port = |(low, high): (u16, u16)| low + random.up_to(u64::from(high - low)) as u16;
            (port(SOURCE_PORTS), port(DESTINATION_PORTS))
        };
        if self.reverse {
            Flow { source: far, destination: near, source_port: to, destination_port: from }
        } else {
            Flow { source: near, destination: far, source_port: from, destination_port: to }
        }
    }

    /// Whether a flow goes from or to `address`. Other addresses of the same networks may be those of a router.
    pub fn has(&self, address: IpAddr) -> bool {
        let (network, host) = match (self.family, address) {
            (Family::V4, IpAddr::V4(v4)) => match v4.octets() {
                [198, 18 | 19, network, host] => (u32::from(network), u32::from(host)),
                _ => return false,
            },
            (Family::V6, IpAddr::V6(v6)) => match v6.segments() {
                [0x2001, 2, 0, network, 0, 0, 0, host] => (u32::from(network & 0x7fff), u32::from(host)),
                _ => return false,
            },
            _ => return false,
        };
        network < NETWORKS && (2..252).contains(&host) && network + NETWORKS * (host - 2) < self.count
    }

    /// Index of the flow of frame number `sequence`. Frames go to all flows in turn.
    #[inline]
    pub fn of(&self, sequence: u64) -> u32 {
        (sequence % u64::from(self.count)) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn flows(family: Family, count: u32) -> Flows {
        Flows { family, vlan: None, count, seed: 7, reverse: false }
    }

    #[test]
    fn every_flow_is_another_and_in_the_ranges() {
        for family in Family::ALL {
            let flows = flows(family, MOST);
            let all: HashSet<(IpAddr, IpAddr)> =
                (0..MOST).map(|i| flows.flow(i)).map(|flow| (flow.source, flow.destination)).collect();
            assert_eq!(all.len(), MOST as usize);
            assert!(all.iter().all(|(source, destination)| flows.has(*source) && flows.has(*destination)));
            let flow = flows.flow(12_345);
            assert!(flow.source_port >= 1024 && (1..=49_151).contains(&flow.destination_port));
            let back = Flows { reverse: true, ..flows }.flow(12_345);
            assert_eq!((back.source, back.source_port), (flow.destination, flow.destination_port));
        }
        assert_eq!(flows(Family::V4, 1).flow(0).destination_port, 7);
    }

    #[test]
    fn only_addresses_of_flows_are_ours() {
        let has = |family, count, address: &str| flows(family, count).has(address.parse().unwrap());
        for (family, count, ours, others) in [
            (Family::V4, 7, ["198.18.0.2", "198.19.6.2"], ["198.18.0.1", "198.19.7.2", "198.18.0.3", "198.18.0.254"]),
            (Family::V4, 300, ["198.18.255.2", "198.19.43.3"], ["198.19.44.3", "198.20.0.2", "10.0.0.1", "2001:2::2"]),
            (Family::V4, MOST, ["198.18.9.251", "198.19.255.251"], ["198.18.9.252", "198.18.9.0", "::", "0.0.0.0"]),
            (
                Family::V6,
                7,
                ["2001:2::2", "2001:2:0:8006::2"],
                ["2001:2::1", "2001:2:0:8007::2", "fe80::2", "198.18.0.2"],
            ),
        ] {
            assert!(ours.iter().all(|address| has(family, count, address)), "{count} of {family}");
            assert!(others.iter().all(|address| !has(family, count, address)), "{count} of {family}");
        }
    }

    #[test]
    fn refuses_what_cannot_be_sent() {
        assert!(flows(Family::V4, 0).check().is_err() && flows(Family::V4, MOST + 1).check().is_err());
        assert!(Flows { vlan: Some(4095), ..flows(Family::V6, 1) }.check().is_err());
        assert!(Flows { vlan: Some(5), ..flows(Family::V6, 1) }.check().is_ok());
    }
}
