//! The routing table of `l3fwd`, and the TOML file from which it is read.
//!
//! ```toml
//! finish_checksums = false    # optional: TCP and UDP checksums that a veth sender left to hardware
//!
//! [[port]]                    # optional: what this router answers for
//! name = "vethA"              # as on the command line
//! mac = "02:00:00:00:00:0a"   # optional: instead of the interface's own
//! addresses = ["10.0.0.1/24", "fd00::1/64"]
//!
//! [[route]]
//! prefix = "10.1.0.0/16"
//! port = "vethB"
//! mac = "02:00:00:00:00:02"   # the next hop's
//! ```
//!
//! Unknown keys, duplicates and contradictions are errors that name the line.

use super::headers::Mac;
use super::responder::Responder;
use super::{PortInfo, headers};
use crate::Error;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::Path;
use toml::Spanned;

/// Where a packet with a matching route goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hop {
    /// To a next hop, out of a port.
    Via {
        /// The outgoing port's number, from 0.
        port: usize,
        /// The MAC address of the next hop.
        destination: Mac,
        /// The MAC address of the outgoing port.
        source: Mac,
    },
    /// To the router itself.
    Local,
    /// To all hosts of a directly connected network. The router does not forward such packets (RFC 2644).
    Broadcast,
}

/// Routes and the router's own addresses. The addresses are stored as host routes, so that one look-up finds both.
#[derive(Clone, Debug)]
pub struct Table {
    v4: PrefixMap<Ipv4Net, Hop>,
    v6: PrefixMap<Ipv6Net, Hop>,
    pub(super) responders: Box<[Responder]>,
    pub(super) finish_checksums: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    finish_checksums: bool,
    #[serde(default)]
    port: Vec<PortEntry>,
    #[serde(default)]
    route: Vec<RouteEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortEntry {
    name: Spanned<String>,
    mac: Option<Spanned<String>>,
    #[serde(default)]
    addresses: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteEntry {
    prefix: Spanned<String>,
    port: Spanned<String>,
    mac: Spanned<String>,
}

impl Table {
    /// Reads the file at `path` for a router with the ports `ports`, in order of their numbers.
    pub fn read(path: &Path, ports: &[PortInfo]) -> Result<Self, Error> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Error::Invalid {
            what: name.clone(),
            why: format!("{error}; give a readable TOML file with routes"),
        })?;
        Self::parse(&text, &name, ports)
    }

    /// Parses the text of a file. Error messages call the file `name`.
    pub fn parse(text: &str, name: &str, ports: &[PortInfo]) -> Result<Self, Error> {
        let source = Source { text, name };
        let file: File = toml::from_str(text)
            .map_err(|error| source.error(error.span().map_or(0, |span| span.start), error.message().trim()))?;
        if file.route.is_empty() {
            return Err(Error::Invalid {
                what: name.into(),
                why: "no routes; add at least one [[route]] with prefix, port and mac".into(),
            });
        }

        let mut table = Self {
            v4: PrefixMap::new(),
            v6: PrefixMap::new(),
            responders: Box::default(),
            finish_checksums: file.finish_checksums,
        };
        let mut macs: Vec<Mac> = ports.iter().map(|port| port.mac).collect();
        let mut addresses: Vec<Vec<IpAddr>> = vec![Vec::new(); ports.len()];
        let mut described = vec![false; ports.len()];
        for entry in &file.port {
            let port = source.port(&entry.name, ports)?;
            if std::mem::replace(&mut described[port], true) {
                return Err(source.at(&entry.name, "this port is described above; merge the two"));
            }
            if let Some(mac) = &entry.mac {
                macs[port] = source.mac(mac)?;
            }
            for text in &entry.addresses {
                let network: IpNet = text.get_ref().parse().map_err(|_| {
                    source.at(text, "not an address with its prefix length; write it as 10.0.0.1/24 or fd00::1/64")
                })?;
                table.add_address(network).map_err(|why| source.at(text, why))?;
                addresses[port].push(network.addr());
            }
        }
        for entry in &file.route {
            let port = source.port(&entry.port, ports)?;
            let prefix: IpNet = entry
                .prefix
                .get_ref()
                .parse()
                .map_err(|_| source.at(&entry.prefix, "not a prefix; write it as 10.1.0.0/16 or fd00:1::/32"))?;
            if prefix.trunc() != prefix {
                let why = format!("has bits set beyond its length; did you mean {}?", prefix.trunc());
                return Err(source.at(&entry.prefix, &why));
            }
            let hop = Hop::Via { port, destination: source.mac(&entry.mac)?, source: macs[port] };
            if table.insert(prefix, hop).is_some() {
                let why = "a route above or the address of a port already has this prefix; remove one of them";
                return Err(source.at(&entry.prefix, why));
            }
        }
        table.responders = macs.iter().zip(addresses).map(|(mac, own)| Responder::new(*mac, own)).collect();
        Ok(table)
    }

    /// The route with the longest prefix that matches an IPv4 address. `None` if there is no route.
    #[inline]
    pub fn find_v4(&self, address: [u8; 4]) -> Option<&Hop> {
        self.v4.get_lpm(&Ipv4Net::from(std::net::Ipv4Addr::from(address))).map(|(_, hop)| hop)
    }

    /// The route with the longest prefix that matches an IPv6 address. `None` if there is no route.
    #[inline]
    pub fn find_v6(&self, address: [u8; 16]) -> Option<&Hop> {
        self.v6.get_lpm(&Ipv6Net::from(std::net::Ipv6Addr::from(address))).map(|(_, hop)| hop)
    }

    /// Inserts a route. Returns the previous route with this prefix, if any.
    fn insert(&mut self, prefix: IpNet, hop: Hop) -> Option<Hop> {
        match prefix {
            IpNet::V4(prefix) => self.v4.insert(prefix, hop),
            IpNet::V6(prefix) => self.v6.insert(prefix, hop),
        }
    }

    fn add_address(&mut self, network: IpNet) -> Result<(), &'static str> {
        let address = network.addr();
        if address.is_multicast() || address.is_unspecified() || address.is_loopback() {
            return Err("not an address for the port of a router; give a unicast address");
        }
        if self.insert(address.into(), Hop::Local).is_some() {
            return Err(
                "this address is already used by a port or as the broadcast address of a network; choose another",
            );
        }
        // There is no broadcast address in IPv6, nor in IPv4 networks of one or two addresses (RFC 3021 section 2.1).
        if let IpNet::V4(network) = network
            && network.prefix_len() < 31
            && self.v4.insert(network.broadcast().into(), Hop::Broadcast) == Some(Hop::Local)
        {
            return Err("a port has the broadcast address of this network; choose another");
        }
        Ok(())
    }
}

/// The text of the file and its name, to build errors that name the line.
struct Source<'a> {
    text: &'a str,
    name: &'a str,
}

impl Source<'_> {
    fn error(&self, at: usize, why: &str) -> Error {
        let line = 1 + self.text.bytes().take(at).filter(|octet| *octet == b'\n').count();
        Error::Invalid { what: format!("{}, line {line}", self.name), why: why.into() }
    }

    fn at(&self, value: &Spanned<String>, why: &str) -> Error {
        self.error(value.span().start, &format!("{:?}: {why}", value.get_ref()))
    }

    fn port(&self, name: &Spanned<String>, ports: &[PortInfo]) -> Result<usize, Error> {
        ports.iter().position(|port| port.name == *name.get_ref()).ok_or_else(|| {
            let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
            self.at(name, &format!("there is no such port; the ports of this run are {}", known.join(", ")))
        })
    }

    fn mac(&self, text: &Spanned<String>) -> Result<Mac, Error> {
        let mac: headers::Mac =
            text.get_ref().parse().map_err(|_| self.at(text, "not a MAC address; write it as 02:00:00:00:00:01"))?;
        if mac.is_group() {
            return Err(self.at(text, "a group address (its first byte is odd); give the address of a single station"));
        }
        Ok(mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::ports;
    use proptest::prelude::*;

    const ROUTE: &str = "[[route]]\nprefix = \"10.1.0.0/16\"\nport = \"p1\"\nmac = \"02:00:00:00:00:02\"\n";

    fn why(text: &str) -> String {
        Table::parse(text, "routes.toml", &ports(2)).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_name_their_line_and_remedy() {
        let route = |prefix: &str, port: &str, mac: &str| {
            format!("[[route]]\nprefix = \"{prefix}\"\nport = \"{port}\"\nmac = \"{mac}\"\n")
        };
        let mac = "02:00:00:00:00:02";
        for (text, line, part) in [
            (route("10.1.0.0/33", "p1", mac), 2, "not a prefix"),
            (route("10.1.0.0", "p1", mac), 2, "not a prefix"),
            (route("10.1.0.5/16", "p1", mac), 2, "did you mean 10.1.0.0/16?"),
            (route("10.1.0.0/16", "eth9", mac), 3, "the ports of this run are p0, p1"),
            (route("10.1.0.0/16", "p1", "02:00"), 4, "02:00:00:00:00:01"),
            (route("10.1.0.0/16", "p1", "ff:ff:ff:ff:ff:ff"), 4, "group address"),
            (format!("{ROUTE}{ROUTE}"), 6, "already has this prefix"),
            (format!("{ROUTE}metric = 1\n"), 5, "unknown field `metric`"),
            (format!("speed = 1\n{ROUTE}"), 1, "unknown field `speed`"),
            (format!("{ROUTE}oops\n"), 5, ""),
            ("[[route]]\nprefix = \"10.1.0.0/16\"\nport = \"p1\"\n".into(), 1, "missing field `mac`"),
            (format!("{ROUTE}[[port]]\nname = \"p7\"\n"), 6, "no such port"),
            (format!("{ROUTE}[[port]]\nname = \"p0\"\n[[port]]\nname = \"p0\"\n"), 8, "described above"),
            (format!("{ROUTE}[[port]]\nname = \"p0\"\naddresses = [\"10.0.0.1\"]\n"), 7, "prefix length"),
            (format!("{ROUTE}[[port]]\nname = \"p0\"\naddresses = [\"224.0.0.1/24\"]\n"), 7, "unicast"),
            (
                format!("{ROUTE}[[port]]\nname = \"p0\"\naddresses = [\"10.0.0.1/24\", \"10.0.0.1/8\"]\n"),
                7,
                "already used",
            ),
            (
                format!("{ROUTE}[[port]]\nname = \"p0\"\naddresses = [\"10.0.0.255/8\", \"10.0.0.1/24\"]\n"),
                7,
                "broadcast",
            ),
        ] {
            let why = why(&text);
            assert!(why.starts_with(&format!("routes.toml, line {line}: ")) && why.contains(part), "{text}\n{why}");
        }
        assert!(why("").contains("[[route]]"));
        let missing = Table::read(Path::new("/nonexistent/r.toml"), &ports(2)).unwrap_err();
        assert!(missing.to_string().starts_with("/nonexistent/r.toml: ") && !missing.lacks());
    }

    #[test]
    fn own_and_broadcast_addresses_are_in_the_table() {
        let text =
            format!("{ROUTE}[[port]]\nname = \"p0\"\naddresses = [\"10.1.0.1/24\", \"fd00::1/64\", \"10.9.0.0/31\"]\n");
        let table = Table::parse(&text, "routes.toml", &ports(2)).unwrap();
        assert_eq!(table.find_v4([10, 1, 0, 1]), Some(&Hop::Local));
        assert_eq!(table.find_v4([10, 1, 0, 255]), Some(&Hop::Broadcast));
        assert_eq!(table.find_v4([10, 9, 0, 0]), Some(&Hop::Local));
        assert_eq!(table.find_v4([10, 9, 0, 1]), None);
        assert!(matches!(table.find_v4([10, 1, 0, 2]), Some(Hop::Via { port: 1, .. })));
        assert_eq!(table.find_v6("fd00::1".parse::<std::net::Ipv6Addr>().unwrap().octets()), Some(&Hop::Local));
        assert_eq!(table.find_v6([0xfd; 16]), None);
    }

    /// The port of the longest matching prefix, found by a scan over all prefixes.
    fn scan(routes: &[(IpNet, usize)], address: IpAddr) -> Option<usize> {
        routes.iter().filter(|(p, _)| p.contains(&address)).max_by_key(|(p, _)| p.prefix_len()).map(|(_, port)| *port)
    }

    fn prefix() -> impl Strategy<Value = IpNet> {
        // Few different high bytes, so that prefixes contain each other.
        let v4 = (0u32..4, any::<u32>(), 0u8..=32).prop_map(|(high, low, len)| {
            IpNet::V4(Ipv4Net::new((high << 24 | low >> 8 & 0x3_00ff).into(), len).unwrap().trunc())
        });
        let v6 = (0u128..4, any::<u32>(), 0u8..=128).prop_map(|(high, low, len)| {
            IpNet::V6(Ipv6Net::new((high << 120 | u128::from(low) & 0x3_00ff).into(), len).unwrap().trunc())
        });
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn longest_match_agrees_with_a_scan(
            prefixes in proptest::collection::btree_set(prefix(), 1..60),
            probes in proptest::collection::vec(prefix(), 1..60),
        ) {
            let routes: Vec<(IpNet, usize)> = prefixes.iter().enumerate().map(|(n, p)| (*p, n % 5)).collect();
            let text: String = routes
                .iter()
                .map(|(p, port)| format!("[[route]]\nprefix = \"{p}\"\nport = \"p{port}\"\nmac = \"02:00:00:00:00:02\"\n"))
                .collect();
            let table = Table::parse(&text, "random", &ports(5)).unwrap();
            for address in probes.iter().chain(&prefixes).flat_map(|p| [p.addr(), p.broadcast()]) {
                let found = match address {
                    IpAddr::V4(a) => table.find_v4(a.octets()),
                    IpAddr::V6(a) => table.find_v6(a.octets()),
                };
                let found = found.map(|hop| match hop {
                    Hop::Via { port, .. } => *port,
                    other => panic!("{other:?}"),
                });
                prop_assert_eq!(found, scan(&routes, address));
            }
        }
    }
}
