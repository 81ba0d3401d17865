//! Configuration of an interface and of its AF_XDP sockets.

use units::{Nanos, PacketRate};

use crate::Error;

/// An interface to open, and the part of its traffic that goes to the application.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// The interface's name, for example `eth0`.
    pub name: String,
    /// The receive queues that this instance serves, over all its workers.
    pub queues: Vec<u32>,
    /// Where the XDP program must run.
    pub mode: XdpMode,
    /// Which frames go to the application.
    pub filter: Filter,
    /// Whether the interface receives frames to all MAC addresses, not only to its own address and those of its groups.
    pub promiscuous: bool,
    /// Whether the interface receives the frames of all multicast groups, not only of those that the kernel has joined.
    pub all_multicast: bool,
}

impl InterfaceConfig {
    /// Makes a configuration for queue 0 of the interface `name`: all frames go to the application, by native XDP or,
    /// as a fallback, generic XDP.
    pub fn new(name: impl Into<String>) -> Self {
        let (mode, filter) = (XdpMode::Auto, Filter::All);
        Self { name: name.into(), queues: vec![0], mode, filter, promiscuous: false, all_multicast: false }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let invalid = |why: String| Err(Error::Invalid { what: format!("port {}", self.name), why });
        let mut sorted = self.queues.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if self.queues.is_empty() || sorted.len() != self.queues.len() {
            return invalid(format!("the queues {:?} must be at least one, each given once", self.queues));
        }
        match &self.filter {
            Filter::EtherTypes(types) if types.is_empty() || types.len() > 4 => {
                invalid(format!("{} EtherTypes were given; 1 to 4 are possible", types.len()))
            }
            Filter::UdpPorts { first, last } if first > last => {
                invalid(format!("the UDP port range {first}-{last} is empty"))
            }
            _ => Ok(()),
        }
    }
}

units::named! {
    /// Where the XDP program runs.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum XdpMode {
        /// In the driver; fails if the driver does not support it.
        Native = "native",
        /// In the kernel's network stack, on each frame's skb. Works with any driver, but costs more.
        Generic = "generic",
        /// In the driver if it supports XDP, otherwise in the network stack.
        Auto = "auto",
    }
}

/// Which frames go to the application. The kernel's stack gets all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// All frames.
    All,
    /// Frames with one of up to four EtherTypes, after at most one VLAN tag.
    EtherTypes(Vec<u16>),
    /// UDP datagrams to a port from `first` to `last`, over IPv4 or over IPv6 without extension headers, after at most
    /// one VLAN tag. Fragments go to the kernel.
    UdpPorts {
        /// The lowest UDP port.
        first: u16,
        /// The highest UDP port, inclusive.
        last: u16,
    },
}

/// Settings with which a device creates its AF_XDP sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketConfig {
    /// Number of descriptors in each queue's rings.
    pub rings: RingSizes,
    /// How long the receive rings should take to fill at the port's peak rate. A [`Backend`](crate::port::Backend)
    /// enlarges rings that would fill sooner, to at most [`RingSizes::MOST_ENLARGED`] descriptors. `None` keeps the
    /// sizes in `rings`.
    pub lasting: Option<Nanos>,
    /// Whether the driver receives directly into the pool.
    pub zero_copy: ZeroCopy,
    /// Whether the driver may sleep until the application wakes it, instead of polling the rings. Source: kernel
    /// documentation, networking/af_xdp, "XDP_USE_NEED_WAKEUP bind flag".
    pub need_wakeup: bool,
    /// Maximum number of frames per busy poll, at least 1. With busy polling, every [`rx`](crate::device::Device::rx)
    /// call polls the driver. `None` turns busy polling off.
    pub busy_poll: Option<u16>,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            rings: RingSizes::default(),
            lasting: None,
            zero_copy: ZeroCopy::Auto,
            need_wakeup: true,
            busy_poll: None,
        }
    }
}

impl SocketConfig {
    /// Maximum number of the pool's slots that one queue can hold. A pool needs this many slots for each queue of its
    /// devices, plus slots for the frames that the worker is processing.
    pub fn slots_per_queue(&self) -> u32 {
        let RingSizes { fill, rx, tx, .. } = self.rings;
        fill.saturating_add(rx).saturating_add(tx) // at most `tx` frames are being sent or completed
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let RingSizes { fill, rx, tx, completion } = self.rings;
        for (ring, size) in [("fill", fill), ("rx", rx), ("tx", tx), ("completion", completion)] {
            if !size.is_power_of_two() || !(64..=1 << 20).contains(&size) {
                return Err(Error::Invalid {
                    what: format!("the {ring} ring's size {size}"),
                    why: "it must be a power of two from 64 to 1048576".into(),
                });
            }
        }
        if completion < tx {
            return Err(Error::Invalid {
                what: format!("the completion ring's size {completion}"),
                why: format!(
                    "it must be at least the size of the tx ring, {tx}, because each sent frame comes back through it"
                ),
            });
        }
        if self.busy_poll == Some(0) {
            let why = "it must be at least 1 frame; omit it to disable busy polling".into();
            return Err(Error::Invalid { what: "the busy-poll budget 0".into(), why });
        }
        Ok(())
    }
}

/// Number of descriptors in each ring: a power of two from 64 to 1,048,576.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSizes {
    /// Size of the ring of free slots, into which the kernel receives frames.
    pub fill: u32,
    /// Size of the ring of received frames.
    pub rx: u32,
    /// Size of the ring of frames to be sent.
    pub tx: u32,
    /// Size of the ring of slots whose frames were sent; at least the size of the `tx` ring.
    pub completion: u32,
}

impl RingSizes {
    /// Rings are enlarged to at most this many descriptors ([`SocketConfig::lasting`]). With 2 KiB for each frame, the
    /// two receive rings of a queue then have 32 MiB of slots.
    pub const MOST_ENLARGED: u32 = 8192;

    /// These sizes, with receive rings that take `span` to fill at `rate`, if that needs no more than
    /// [`Self::MOST_ENLARGED`] descriptors; otherwise with that many. Never smaller than these sizes.
    #[must_use]
    pub fn lasting(self, span: Nanos, rate: PacketRate) -> Self {
        let frames = rate.packets_in(span).min(u64::from(Self::MOST_ENLARGED)) as u32;
        let enlarged = |size: u32| {
            // The descriptors that may lack a slot do not count.
            let needed = frames + self.refill();
            size.max(needed.next_power_of_two().min(Self::MOST_ENLARGED))
        };
        Self { fill: enlarged(self.fill), rx: enlarged(self.rx), ..self }
    }

    /// The fill ring is refilled when it lacks this many slots: 64, or half of a smaller ring.
    pub(super) fn refill(&self) -> u32 {
        (self.fill / 2).min(64)
    }

    /// Number of frames that can arrive while the worker waits, before one is lost. When the wait begins, the fill ring
    /// may lack one slot less than a refill.
    pub fn rx_room(&self) -> u32 {
        self.rx.min(self.fill - self.refill().saturating_sub(1))
    }
}

impl Default for RingSizes {
    /// 2048 descriptors in each ring, libxdp's default. At 1.5 Mpps, an RX ring of this size fills in 1.3 ms.
    fn default() -> Self {
        Self { fill: 2048, rx: 2048, tx: 2048, completion: 2048 }
    }
}

units::named! {
    /// Whether the driver receives directly into the pool.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ZeroCopy {
        /// Zero copy if the driver supports it.
        Auto = "auto",
        /// Always zero copy; fails if the driver does not support it.
        Force = "force",
        /// Never zero copy; frames are copied.
        Off = "off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_rings_are_enlarged_to_last() {
        let line_rate = PacketRate::new(14_880_952);
        let lasting = |us: u64| RingSizes::default().lasting(Nanos::from_micros(us), line_rate);
        // 131 us: a ring of 2,048 of which 63 may lack a slot.
        assert_eq!([lasting(30), lasting(131)], [RingSizes::default(); 2]);
        for (us, size) in [(140, 4_096), (260, 4_096), (280, 8_192), (500, 8_192), (100_000, 8_192)] {
            let rings = lasting(us);
            assert_eq!((rings.fill, rings.rx, rings.tx, rings.completion), (size, size, 2_048, 2_048), "{us} us");
            let lasts = line_rate.time_for(rings.rx_room().into());
            assert!(lasts >= Nanos::from_micros(us) || size == RingSizes::MOST_ENLARGED, "{us} us: {lasts}");
        }
        let large = RingSizes { fill: 16_384, rx: 16_384, ..RingSizes::default() };
        assert_eq!(large.lasting(Nanos::from_millis(100), line_rate), large, "they do not shrink");
    }

    #[test]
    fn refuses_what_cannot_be() {
        let good = InterfaceConfig::new("eth0");
        assert!(good.check().is_ok());
        let bad = [
            InterfaceConfig { queues: vec![], ..good.clone() },
            InterfaceConfig { queues: vec![1, 0, 1], ..good.clone() },
            InterfaceConfig { filter: Filter::EtherTypes(vec![1; 5]), ..good.clone() },
            InterfaceConfig { filter: Filter::UdpPorts { first: 2, last: 1 }, ..good },
        ];
        for config in bad {
            assert!(matches!(config.check(), Err(Error::Invalid { .. })), "{config:?} was taken");
        }
        let good = SocketConfig::default();
        assert!(good.check().is_ok());
        for rx in [0, 32, 1000, 1 << 21] {
            let rings = RingSizes { rx, ..RingSizes::default() };
            assert!(SocketConfig { rings, ..good }.check().is_err(), "{rx} was taken");
        }
        assert!(SocketConfig { busy_poll: Some(0), ..good }.check().is_err());
    }

    /// The loss bound once counted on slots that the fill ring may lack: half of them in the smallest ring.
    #[test]
    fn a_wait_counts_on_no_slot_that_the_fill_ring_may_lack() {
        let room = |fill, rx| RingSizes { fill, rx, ..RingSizes::default() }.rx_room();
        assert_eq!([room(64, 64), room(128, 128), room(2048, 2048)], [33, 65, 1985]);
        assert_eq!(room(2048, 64), 64, "the RX ring fills first");
    }
}
