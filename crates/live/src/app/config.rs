//! The applications that a user can choose by name, with their options, and [`AnyApp`], which can be any of them.

use super::drop::Drop;
use super::headers::Mac;
use super::l2fwd::L2Fwd;
use super::l3fwd::L3Fwd;
use super::macswap::MacSwap;
use super::routes::Table;
use super::udp_echo::{UdpEcho, UdpPorts};
use super::{App, Verdict};
use crate::Error;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The properties of a port that an application needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// The interface's name, for example `eth0`.
    pub name: String,
    /// The interface's MAC address.
    pub mac: Mac,
}

units::named! {
    /// The application that the user chose, with its options.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum AppConfig {
        /// Discards all frames.
        Drop = "drop",
        /// Swaps the MAC addresses and sends each frame back.
        MacSwap = "macswap",
        /// Forwards frames between two ports.
        L2Fwd {
            /// Whether to rewrite MAC addresses as DPDK's l2fwd does. If false, frames pass unchanged, as through a wire.
            rewrite: bool,
            /// Whether to complete TCP and UDP checksums that a sender on a veth pair left to its (non-existent)
            /// hardware.
            finish_checksums: bool,
        } = "l2fwd",
        /// Returns UDP datagrams to their senders.
        UdpEcho {
            /// The IP addresses to answer for.
            addresses: Vec<IpAddr>,
            /// The UDP ports to answer on.
            ports: UdpPorts,
            /// Whether to drop datagrams with a wrong checksum as malformed. If false, they are returned with their wrong
            /// checksum.
            verify_checksum: bool,
        } = "udp-echo",
        /// Routes IPv4 and IPv6 packets.
        L3Fwd {
            /// The file with the routes; see [`routes`](super::routes).
            path: PathBuf,
        } = "l3fwd",
    }
}

impl AppConfig {
    /// The minimum and maximum number of ports with which the application can run.
    pub fn needed_ports(&self) -> RangeInclusive<usize> {
        match self {
            Self::L2Fwd { .. } => 2..=2,
            Self::Drop | Self::MacSwap | Self::UdpEcho { .. } | Self::L3Fwd { .. } => 1..=usize::MAX,
        }
    }

    /// Creates the application for `ports`, in order of their numbers. Each worker gets a clone of the application.
    pub fn build(&self, ports: &[PortInfo]) -> Result<AnyApp, Error> {
        let needed = self.needed_ports();
        if !needed.contains(&ports.len()) {
            let (start, end) = needed.into_inner();
            return Err(Error::Invalid {
                what: format!("{} with {} port(s)", self.name(), ports.len()),
                why: format!("it needs {}{start} port(s)", if start == end { "exactly " } else { "at least " }),
            });
        }
        let macs: Vec<Mac> = ports.iter().map(|port| port.mac).collect();
        Ok(match self {
            Self::Drop => AnyApp::Drop(Drop),
            Self::MacSwap => AnyApp::MacSwap(MacSwap),
            Self::L2Fwd { rewrite, finish_checksums } => {
                let app = if *rewrite { L2Fwd::rewriting([macs[0], macs[1]]) } else { L2Fwd::transparent() };
                AnyApp::L2Fwd(app.finish_checksums(*finish_checksums))
            }
            Self::UdpEcho { addresses, ports, verify_checksum } => {
                if let Some(wrong) = addresses.iter().find(|a| a.is_multicast() || a.is_unspecified()) {
                    return Err(Error::Invalid {
                        what: format!("udp-echo address {wrong}"),
                        why: "not the address of a single host; give a unicast address".into(),
                    });
                }
                if addresses.is_empty() {
                    return Err(Error::Invalid {
                        what: "udp-echo".into(),
                        why: "it has no address to answer for; give at least one".into(),
                    });
                }
                AnyApp::UdpEcho(UdpEcho::new(&macs, addresses, *ports, *verify_checksum))
            }
            Self::L3Fwd { path } => AnyApp::L3Fwd(L3Fwd::new(Table::read(path, ports)?)),
        })
    }
}

/// Any of the applications. The choice costs one predictable branch per frame. A loop that must avoid this cost uses
/// the inner type directly.
#[derive(Clone, Debug)]
pub enum AnyApp {
    /// Runs `drop`.
    Drop(Drop),
    /// Runs `macswap`.
    MacSwap(MacSwap),
    /// Runs `l2fwd`.
    L2Fwd(L2Fwd),
    /// Runs `udp-echo`.
    UdpEcho(UdpEcho),
    /// Runs `l3fwd`.
    L3Fwd(L3Fwd),
}

impl App for AnyApp {
    #[inline]
    fn handle(&mut self, port: usize, frame: &mut [u8]) -> Verdict {
        match self {
            Self::Drop(app) => app.handle(port, frame),
            Self::MacSwap(app) => app.handle(port, frame),
            Self::L2Fwd(app) => app.handle(port, frame),
            Self::UdpEcho(app) => app.handle(port, frame),
            Self::L3Fwd(app) => app.handle(port, frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing::ports;

    #[test]
    fn each_is_built_for_its_ports() {
        let echo = |addresses: &[&str]| AppConfig::UdpEcho {
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            ports: UdpPorts::ANY,
            verify_checksum: false,
        };
        let wire = AppConfig::L2Fwd { rewrite: true, finish_checksums: false };
        assert!(matches!(AppConfig::Drop.build(&ports(1)), Ok(AnyApp::Drop(_))));
        assert!(matches!(AppConfig::MacSwap.build(&ports(3)), Ok(AnyApp::MacSwap(_))));
        assert!(matches!(wire.build(&ports(2)), Ok(AnyApp::L2Fwd(_))));
        assert!(matches!(echo(&["10.0.0.1", "fd00::1"]).build(&ports(1)), Ok(AnyApp::UdpEcho(_))));
        for (wrong, n, part) in [
            (wire.clone(), 1, "l2fwd with 1 port(s): it needs exactly 2"),
            (wire, 3, "exactly 2"),
            (AppConfig::Drop, 0, "at least 1"),
            (echo(&[]), 1, "at least one"),
            (echo(&["224.0.0.1"]), 1, "unicast"),
            (AppConfig::L3Fwd { path: "/nonexistent".into() }, 1, "/nonexistent"),
        ] {
            let error = wrong.build(&ports(n)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
