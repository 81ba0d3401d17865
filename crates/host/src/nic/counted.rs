//! Counts the packets that a NIC received, and the packets that it dropped because no buffer or descriptor was free.

use super::message::{Attributes, Message};
use super::socket::{Socket, Wants};
use super::{Client, Direction, Error, IFI_INDEX, IFINFOMSG, Interface, RTM_GETLINK};

/// Number of the attribute `IFLA_STATS64` (include/uapi/linux/if_link.h).
const IFLA_STATS64: u16 = 23;
/// Index of the counter in `struct rtnl_link_stats64` (include/uapi/linux/if_link.h), in 64-bit numbers.
const RX_PACKETS: usize = 0;
const RX_DROPPED: usize = 6;
const RX_OVER_ERRORS: usize = 11;
const RX_FIFO_ERRORS: usize = 14;
const RX_MISSED_ERRORS: usize = 15;

/// Repeatedly reads the counters of an interface, or of one of its receive queues.
#[derive(Debug)]
pub struct Counted {
    client: Client,
    interface: Interface,
    queue: Option<u32>,
}

impl Counted {
    /// Opens the counters of the interface with this name in the calling thread's network namespace. If `queue` is
    /// given, only the counters of that receive queue are read. This needs a driver that counts per queue
    /// ([`Client::queue_statistics`]).
    pub fn new(name: &str, queue: Option<u32>) -> Result<Self, Error> {
        let mut client = Client::new();
        let interface = client.interface(name)?;
        let mut counted = Self { client, interface, queue };
        counted.read()?;
        Ok(counted)
    }

    /// The name that the interface had when the counters were opened.
    pub fn interface(&self) -> &str {
        self.interface.name()
    }

    /// Number of packets received, and number of packets dropped because no buffer or descriptor was free, since the
    /// interface was created. Frames that XDP consumes (AF_XDP) are included if the driver counts them.
    pub fn read(&mut self) -> Result<(u64, u64), Error> {
        match self.queue {
            None => self.client.received(&self.interface),
            Some(number) => {
                let all = self.client.queue_statistics(&self.interface)?;
                let queue = all.iter().find(|queue| (queue.number, queue.direction) == (number, Direction::Rx));
                let counts = queue.ok_or_else(Error::unsaid)?.counts;
                let lost = counts.rx_alloc_fail.unwrap_or(0) + counts.rx_hw_drop_overruns.unwrap_or(0);
                Ok((counts.rx_packets.ok_or_else(Error::unsaid)?, lost))
            }
        }
    }
}

impl Client {
    /// Number of packets that an interface received, and number of packets that it dropped because no buffer or
    /// descriptor was free, both since the interface was created.
    pub fn received(&mut self, interface: &Interface) -> Result<(u64, u64), Error> {
        let mut own = [0; IFINFOMSG];
        own[IFI_INDEX..IFI_INDEX + 4].copy_from_slice(&interface.index().to_ne_bytes());
        let mut found = None;
        let socket = match &mut self.route {
            Some(socket) => socket,
            none => none.insert(Socket::route()?),
        };
        socket.request(&mut Message::new(&own), RTM_GETLINK, Wants::One, |body| {
            let said = Attributes(body.get(IFINFOMSG..).unwrap_or_default());
            found = said.find(IFLA_STATS64).and_then(|numbers| {
                let at = |place: usize| {
                    let octets = numbers.get(place * 8..place * 8 + 8)?;
                    Some(u64::from_ne_bytes(octets.try_into().ok()?))
                };
                // `rx_missed_errors` is not part of `rx_dropped`, and `rx_fifo_errors` may repeat the same number
                // (Documentation/networking/statistics.rst). So the sum may count a drop twice; what matters is whether
                // it increases.
                let lost = [RX_DROPPED, RX_OVER_ERRORS, RX_FIFO_ERRORS, RX_MISSED_ERRORS].map(at);
                let lost = lost.into_iter().flatten().fold(0u64, u64::wrapping_add);
                Some((at(RX_PACKETS)?, lost))
            });
        })?;
        found.ok_or_else(Error::unsaid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_own_namespace, ip};

    #[test]
    fn packets_of_a_veth_are_counted() {
        in_own_namespace(|| {
            ip(&["addr", "add", "192.0.2.1/24", "dev", "v1"]);
            ip(&["neigh", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "v1"]);
            let mut counted = Counted::new("v0", None).unwrap();
            let (before, _) = counted.read().unwrap();
            let socket = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
            for _ in 0..10 {
                socket.send_to(b"x", "192.0.2.2:9").unwrap();
            }
            let (after, _) = counted.read().unwrap();
            assert!(after - before >= 10, "{before} {after}");
            assert!(matches!(Counted::new("v9", None), Err(Error::NoDevice(_))));
            // veth has no counters per queue.
            assert!(Counted::new("v0", Some(0)).is_err());
        });
    }
}
