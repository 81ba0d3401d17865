//! The netlink family `ethtool` (Documentation/netlink/specs/ethtool.yaml), and the ethtool ioctl.

use super::message::{Attributes, Message};
use super::numbers::{Channels, Coalescing, Field, Numbers, Pause, Rings, of_words, push, read, to_words};
use super::socket::Wants;
use super::{Client, Error, Interface, sys};

const FAMILY: &str = "ethtool";

/// Numbers of the netlink commands (include/uapi/linux/ethtool_netlink.h, `ETHTOOL_MSG_*`).
const LINKMODES_GET: u8 = 4;
const FEATURES_SET: u8 = 12;
const PRIVFLAGS_SET: u8 = 14;
const EEE_GET: u8 = 23;
const TSINFO_GET: u8 = 25;
const FEC_GET: u8 = 29;

/// Number of the attribute that is the header of every message (`ETHTOOL_A_HEADER_*`).
const HEADER: u16 = 1;
const HEADER_DEV_INDEX: u16 = 1;
const HEADER_FLAGS: u16 = 3;
/// Flag that requests bitsets as words, not as lists of names.
const FLAG_COMPACT_BITSETS: u32 = 1;

const LINKMODES_AUTONEG: u16 = 2;
const EEE_ENABLED: u16 = 5;
const FEC_ACTIVE: u16 = 4;
const TSINFO_TIMESTAMPING: u16 = 2;
const TSINFO_PHC_INDEX: u16 = 5;
const COALESCE_RX_PROFILE: u16 = 29;
const PROFILE_IRQ_MODERATION: u16 = 1;
const MODERATION_USEC: u16 = 1;
const MODERATION_PKTS: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const PRIVFLAGS_FLAGS: u16 = 2;

/// Attributes of a bitset (Documentation/networking/ethtool-netlink.rst, "Bit sets").
const BITSET_BITS: u16 = 3;
const BITSET_VALUE: u16 = 4;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// Bit of `SOF_TIMESTAMPING_TX_HARDWARE` (include/uapi/linux/net_tstamp.h).
const TX_HARDWARE: u32 = 1 << 0;
const RX_HARDWARE: u32 = 1 << 2;
/// Link mode numbers that stand for forward error correction, with its name (include/uapi/linux/ethtool.h,
/// `ETHTOOL_LINK_MODE_FEC_*_BIT`).
const FEC_MODES: [(u64, &str); 4] = [(49, "Off"), (50, "RS"), (51, "BaseR"), (74, "LLRS")];

/// A group of settings that both the netlink family `ethtool` and the ioctl can read.
pub trait EthtoolGroup: Numbers {
    /// The netlink commands that read and set the group.
    #[doc(hidden)]
    const COMMANDS: (u8, u8);
    /// The ioctl command that reads the group, and the size of its structure in 32-bit words.
    #[doc(hidden)]
    const IOCTL: (u32, usize);
}

impl EthtoolGroup for Coalescing {
    const COMMANDS: (u8, u8) = (19, 20);
    const IOCTL: (u32, usize) = (sys::ETHTOOL_GCOALESCE, sys::COALESCE);
}

impl EthtoolGroup for Rings {
    const COMMANDS: (u8, u8) = (15, 16);
    const IOCTL: (u32, usize) = (sys::ETHTOOL_GRINGPARAM, 9);
}

impl EthtoolGroup for Channels {
    const COMMANDS: (u8, u8) = (17, 18);
    const IOCTL: (u32, usize) = (sys::ETHTOOL_GCHANNELS, 9);
}

impl EthtoolGroup for Pause {
    const COMMANDS: (u8, u8) = (21, 22);
    const IOCTL: (u32, usize) = (sys::ETHTOOL_GPAUSEPARAM, 4);
}

/// The driver of an interface, as the driver describes itself (`ethtool -i`). Fields that it does not report are empty
/// or `N/A`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Driver {
    pub name: String,
    pub version: String,
    pub firmware: String,
    pub bus: String,
}

/// One offload or other feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Feature {
    /// Whether the feature is on.
    pub on: bool,
    /// Whether someone requested the feature. A requested feature is on as soon as the features that it depends on
    /// allow it. For a fixed feature, this is the same as `on`.
    pub wanted: bool,
    /// Whether the feature cannot be changed.
    pub fixed: bool,
}

/// One level of dynamic interrupt moderation (Documentation/networking/net_dim.rst).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DimLevel {
    /// Delay from a packet's arrival to the interrupt, in microseconds.
    pub usecs: u32,
    /// Number of frames after which the interrupt is raised earlier. `None` if the driver has no such limit.
    pub frames: Option<u32>,
}

/// The timestamps that an interface can take.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimeStamping {
    /// Whether the hardware can timestamp sent packets.
    pub hardware_tx: bool,
    /// Whether the hardware can timestamp received packets.
    pub hardware_rx: bool,
    /// Number N of the interface's PTP clock `/dev/ptpN`. `None` if the interface has no PTP clock.
    pub phc: Option<u32>,
}

/// Makes a request about an interface.
fn about(command: u8, interface: &Interface, flags: u32) -> Message {
    let mut message = Message::command(command);
    message.nest(HEADER, |header| {
        header.number(HEADER_DEV_INDEX, interface.index());
        header.number(HEADER_FLAGS, flags);
    });
    message
}

/// Adds a bitset that changes the bits `bits` and no others.
fn push_bits<'a>(message: &mut Message, attribute: u16, bits: impl IntoIterator<Item = (&'a str, bool)>) {
    message.nest(attribute, |set| {
        set.nest(BITSET_BITS, |list| {
            for (name, on) in bits {
                list.nest(BITS_BIT, |bit| {
                    bit.text(BIT_NAME, name);
                    if on {
                        bit.attribute(BIT_VALUE, &[]);
                    }
                });
            }
        });
    });
}

impl Client {
    /// Reads a group of settings: `client.get::<Coalescing>(&interface)`. On kernels before 5.6, which lack the netlink
    /// command, the ioctl is used; then a field that the driver does not support is 0 or `None`.
    pub fn get<G: EthtoolGroup>(&mut self, interface: &Interface) -> Result<G, Error> {
        let mut group = G::default();
        let message = about(G::COMMANDS.0, interface, FLAG_COMPACT_BITSETS);
        match self.ask(FAMILY, message, Wants::One, |said| group = read(said)) {
            Err(Error::UnknownToKernel { .. }) => {
                let (command, words) = G::IOCTL;
                Ok(of_words(&self.words(interface, command)?[..words]))
            }
            asked => asked.map(|()| group),
        }
    }

    /// Sets those fields of a group that have a value. On error, no field changes. The driver may round the values, so
    /// the caller should read them back.
    pub fn set<G: EthtoolGroup>(&mut self, interface: &Interface, group: &G) -> Result<(), Error> {
        let mut message = about(G::COMMANDS.1, interface, 0).named(G::FIELDS);
        push(group, &mut message);
        self.ask(FAMILY, message, Wants::Done, |_| {})
    }

    /// Reads the interrupt moderation of one queue. The driver must support interrupt moderation per queue.
    pub fn queue_coalescing(&mut self, interface: &Interface, queue: u32) -> Result<Coalescing, Error> {
        let words = self.queue_words(interface, queue)?;
        Ok(of_words(&words))
    }

    /// Reads the interrupt moderation of the first `queues` queues, in the order of the queue numbers.
    pub fn queues_coalescing(&mut self, interface: &Interface, queues: u32) -> Result<Vec<Coalescing>, Error> {
        let mut all = vec![[0; sys::COALESCE]; queues.min(sys::MAX_QUEUES) as usize];
        let numbers = 0..all.len() as u32;
        self.queue_structures(interface, sys::ETHTOOL_GCOALESCE, numbers, &mut all)?;
        Ok(all.iter().map(|words| of_words(words)).collect())
    }

    /// Sets the interrupt moderation of one queue. Only fields with a value change. This takes two requests, because
    /// the kernel can only set all fields of a queue together.
    pub fn set_queue_coalescing(
        &mut self,
        interface: &Interface,
        queue: u32,
        wanted: &Coalescing,
    ) -> Result<(), Error> {
        let mut words = self.queue_words(interface, queue)?;
        to_words(wanted, &mut words)
            .map_err(|field: &Field| Error::refused(format!("{}: a queue has no such field", field.name)))?;
        self.queue_structures(interface, sys::ETHTOOL_SCOALESCE, queue..queue + 1, &mut [words])
    }

    fn queue_words(&mut self, interface: &Interface, queue: u32) -> Result<[u32; sys::COALESCE], Error> {
        let mut words = [[0; sys::COALESCE]];
        let queues = queue..queue.saturating_add(1);
        self.queue_structures(interface, sys::ETHTOOL_GCOALESCE, queues, &mut words)?;
        Ok(words[0])
    }

    /// The levels of adaptive receive moderation, in the driver's order. Empty if the kernel (before 6.11) or the
    /// driver does not report them.
    pub fn rx_profile(&mut self, interface: &Interface) -> Result<Vec<DimLevel>, Error> {
        let mut levels = Vec::new();
        let message = about(Coalescing::COMMANDS.0, interface, FLAG_COMPACT_BITSETS);
        self.ask(FAMILY, message, Wants::One, |said| {
            for (attribute, level) in said.nest(COALESCE_RX_PROFILE).iter().flat_map(|profile| profile.iter()) {
                let level = Attributes(level);
                let usecs = level.word(MODERATION_USEC).filter(|_| attribute == PROFILE_IRQ_MODERATION);
                levels.extend(usecs.map(|usecs| DimLevel { usecs, frames: level.word(MODERATION_PKTS) }));
            }
        })?;
        Ok(levels)
    }

    /// Reads which timestamps the interface can take.
    pub fn time_stamping(&mut self, interface: &Interface) -> Result<TimeStamping, Error> {
        let mut stamps = TimeStamping::default();
        self.ask(FAMILY, about(TSINFO_GET, interface, FLAG_COMPACT_BITSETS), Wants::One, |said| {
            let words = said.nest(TSINFO_TIMESTAMPING).and_then(|set| set.find(BITSET_VALUE)).unwrap_or_default();
            let bits = words.first_chunk().map_or(0, |octets| u32::from_ne_bytes(*octets));
            stamps = TimeStamping {
                hardware_tx: bits & TX_HARDWARE != 0,
                hardware_rx: bits & RX_HARDWARE != 0,
                phc: said.word(TSINFO_PHC_INDEX),
            };
        })?;
        Ok(stamps)
    }

    /// The forward error correction in use. `None` if the link uses none.
    pub fn fec(&mut self, interface: &Interface) -> Result<Option<String>, Error> {
        let mode = self.one_number(FEC_GET, interface, FEC_ACTIVE)?;
        Ok(mode.map(|mode| {
            let known = FEC_MODES.iter().find(|(number, _)| *number == mode);
            known.map_or_else(|| format!("link mode {mode}"), |(_, name)| (*name).to_owned())
        }))
    }

    /// Whether energy-efficient Ethernet is on.
    pub fn eee(&mut self, interface: &Interface) -> Result<bool, Error> {
        Ok(self.one_number(EEE_GET, interface, EEE_ENABLED)?.ok_or_else(Error::unsaid)? != 0)
    }

    /// Whether autonegotiation is on.
    pub fn autoneg(&mut self, interface: &Interface) -> Result<bool, Error> {
        Ok(self.one_number(LINKMODES_GET, interface, LINKMODES_AUTONEG)?.ok_or_else(Error::unsaid)? != 0)
    }

    fn one_number(&mut self, command: u8, interface: &Interface, attribute: u16) -> Result<Option<u64>, Error> {
        let mut number = None;
        let message = about(command, interface, FLAG_COMPACT_BITSETS);
        self.ask(FAMILY, message, Wants::One, |said| number = said.number(attribute))?;
        Ok(number)
    }

    /// Switches offloads on or off. If an offload depends on another one, its state may not change; then only
    /// [`Feature::wanted`] shows the request.
    pub fn set_features<'a>(
        &mut self,
        interface: &Interface,
        wanted: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Result<(), Error> {
        self.switch(FEATURES_SET, interface, FEATURES_WANTED, wanted)
    }

    /// Switches the driver's private flags on or off.
    pub fn set_private_flags<'a>(
        &mut self,
        interface: &Interface,
        wanted: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Result<(), Error> {
        self.switch(PRIVFLAGS_SET, interface, PRIVFLAGS_FLAGS, wanted)
    }

    fn switch<'a>(
        &mut self,
        command: u8,
        interface: &Interface,
        attribute: u16,
        bits: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Result<(), Error> {
        let mut message = about(command, interface, 0);
        push_bits(&mut message, attribute, bits);
        self.ask(FAMILY, message, Wants::Done, |_| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong command number could change something: 20 sets the coalescing, and 27 starts a cable test.
    #[test]
    fn questions_ask_and_changes_set() {
        let questions = [Coalescing::COMMANDS.0, Rings::COMMANDS.0, Channels::COMMANDS.0, Pause::COMMANDS.0];
        assert_eq!(questions, [19, 15, 17, 21]);
        let changes = [Coalescing::COMMANDS.1, Rings::COMMANDS.1, Channels::COMMANDS.1, Pause::COMMANDS.1];
        assert_eq!(changes, questions.map(|command| command + 1));
        assert_eq!([LINKMODES_GET, EEE_GET, TSINFO_GET, FEC_GET], [4, 23, 25, 29]);
        assert_eq!([FEATURES_SET, PRIVFLAGS_SET], [12, 14]);
    }
}
