//! One client for all properties and settings of network interfaces that netlink and the ethtool ioctl offer.
//!
//! A [`Client`] keeps its sockets open. A query takes one send and one receive, into a buffer that is reused; a dump
//! takes one more receive for every 32 KiB. So a NIC can be read hundreds of times per second. Numeric settings form
//! groups ([`Numbers`]). Each field of a group is declared once, with its attribute, its name and its maximum value.
//!
//! ```text
//! facts::live ──┐            ┌── ethtool.rs  family `ethtool`, and the ioctl where that is missing or says more
//! knob ─────────┼─► Client ──┼── netdev.rs   family `netdev`: NAPI instances, queues and their counters
//! controllers ──┘            ├── qdisc.rs    queueing disciplines; sockets.rs  TCP and UDP sockets
//!                            └── socket.rs, message.rs; sys.rs: the system calls, and what only the ioctl says
//! ```
//!
//! **Sources.** Documentation/netlink/specs/ethtool.yaml and netdev.yaml, Documentation/networking/ethtool-netlink.rst
//! and napi.rst, include/uapi/linux/ethtool.h, ethtool_netlink.h and netdev.h.
//!
//! **Units and ranges** are in the documentation of the fields. Requests refer to the network namespace of the thread
//! that first used the client.
//!
//! **Errors** show whether the interface is gone, a capability is missing, the driver does not support the request, the
//! kernel does not know the request, or the value is rejected. They contain the explanation, the field and the range
//! from the kernel's extended acknowledgement.

mod counted;
mod error;
mod ethtool;
mod message;
mod netdev;
mod numbers;
mod qdisc;
mod shared;
mod socket;
mod sockets;
mod sys;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use message::{Attributes, Message};
use socket::{Socket, Wants};

pub use counted::Counted;
pub use error::{Error, Said};
pub use ethtool::{DimLevel, Driver, EthtoolGroup, Feature, TimeStamping};
pub use netdev::{Direction, Napi, Queue, QueueStatistics};
pub use numbers::{Channels, Coalescing, Field, NapiSettings, Numbers, Pause, QueueCounts, Rings};
pub use qdisc::{Netem, Qdisc};
pub(crate) use shared::Shared;
pub use sockets::{SocketMemory, SocketState, TcpInfo, Transport};

/// A network interface. If it is renamed, netlink still finds it, by its index; the ioctl finds it only by its name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Interface {
    name: String,
    index: u32,
}

impl Interface {
    /// Makes an interface from a known name and index.
    pub fn new(name: impl Into<String>, index: u32) -> Self {
        Self { name: name.into(), index }
    }

    /// Name that the interface had when it was found.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Index of the interface (`ifindex`). It stays the same when the interface is renamed.
    pub fn index(&self) -> u32 {
        self.index
    }
}

/// A generic netlink family of the kernel.
#[derive(Clone, Copy, Debug)]
struct Family {
    name: &'static str,
    id: u16,
    /// The commands that the kernel supports: bit N stands for command N.
    commands: [u64; 4],
}

/// Reads and changes the settings of network interfaces. Sockets are opened when first needed, in the calling thread's
/// network namespace. A change needs CAP_NET_ADMIN both when the socket is opened and when the change is made.
#[derive(Debug, Default)]
pub struct Client {
    generic: Option<Socket>,
    route: Option<Socket>,
    sockets: Option<Socket>,
    /// The socket through which ioctls are made.
    control: Option<OwnedFd>,
    families: Vec<Family>,
}

/// Number of the generic netlink controller family (include/uapi/linux/genetlink.h). Its command and attributes follow.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_OPS: u16 = 6;
const CTRL_ATTR_OP_ID: u16 = 1;
/// Type of a request about a link (include/uapi/linux/rtnetlink.h).
const RTM_GETLINK: u16 = 18;
const IFLA_QDISC: u16 = 6;
/// Size of `struct ifinfomsg` in bytes.
const IFINFOMSG: usize = 16;
const IFI_INDEX: usize = 4;

impl Client {
    /// Makes a client. It opens its sockets when they are first needed.
    pub fn new() -> Self {
        Self::default()
    }

    /// The interface with this name.
    pub fn interface(&mut self, name: &str) -> Result<Interface, Error> {
        let index = netdevice::name_to_index(self.control()?, name)?;
        Ok(Interface::new(name, index))
    }

    /// The interface with this index, with its current name.
    pub fn interface_numbered(&mut self, index: u32) -> Result<Interface, Error> {
        let name = netdevice::index_to_name(self.control()?, index)?;
        Ok(Interface { name, index })
    }

    /// The name of an interface's root queueing discipline.
    pub fn qdisc(&mut self, interface: &Interface) -> Result<String, Error> {
        let mut own = [0; IFINFOMSG];
        own[IFI_INDEX..IFI_INDEX + 4].copy_from_slice(&interface.index.to_ne_bytes());
        let mut name = None;
        let socket = match &mut self.route {
            Some(socket) => socket,
            none => none.insert(Socket::route()?),
        };
        socket.request(&mut Message::new(&own), RTM_GETLINK, Wants::One, |body| {
            name = Attributes(body.get(IFINFOMSG..).unwrap_or_default()).text(IFLA_QDISC);
        })?;
        name.ok_or_else(Error::unsaid)
    }

    fn control(&mut self) -> Result<&OwnedFd, Error> {
        Ok(match &mut self.control {
            Some(control) => control,
            none => none.insert(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?),
        })
    }

    /// Sends a request to a generic netlink family, and calls `each` with the attributes of each answer.
    fn ask(
        &mut self,
        family: &'static str,
        mut message: Message,
        wants: Wants,
        mut each: impl FnMut(Attributes<'_>),
    ) -> Result<(), Error> {
        let Family { id, commands, .. } = self.family(family)?;
        let command = message.of_command();
        if commands[usize::from(command / 64)] >> (command % 64) & 1 == 0 {
            return Err(Error::no_command(command, family));
        }
        self.request(&mut message, id, wants, |body| each(attributes(body)))
    }

    fn request(
        &mut self,
        message: &mut Message,
        kind: u16,
        wants: Wants,
        each: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let socket = match &mut self.generic {
            Some(socket) => socket,
            none => none.insert(Socket::generic()?),
        };
        let asked = socket.request(message, kind, wants, each);
        // Closes the socket: an incomplete dump would disturb the next request.
        if matches!(asked, Err(Error::System(_))) {
            self.generic = None;
        }
        asked
    }

    /// The generic netlink family with this name. A family keeps its number until the next boot.
    fn family(&mut self, name: &'static str) -> Result<Family, Error> {
        if let Some(known) = self.families.iter().find(|family| family.name == name) {
            return Ok(*known);
        }
        let mut message = Message::command(CTRL_CMD_GETFAMILY);
        message.text(CTRL_ATTR_FAMILY_NAME, name);
        let mut found = None;
        let asked = self.request(&mut message, GENL_ID_CTRL, Wants::One, |body| {
            let said = attributes(body);
            let mut commands = [0; 4];
            for (_, operation) in said.nest(CTRL_ATTR_OPS).iter().flat_map(|all| all.iter()) {
                if let Some(command) = Attributes(operation).number(CTRL_ATTR_OP_ID).filter(|command| *command < 256) {
                    commands[(command / 64) as usize] |= 1 << (command % 64);
                }
            }
            found = said.number(CTRL_ATTR_FAMILY_ID).map(|id| Family { name, id: id as u16, commands });
        });
        match asked {
            Err(Error::NoDevice(_)) => return Err(Error::no_family(name)),
            asked => asked?,
        }
        let family = found.ok_or_else(|| Error::torn(format!("the netlink family {name} has no number")))?;
        self.families.push(family);
        Ok(family)
    }
}

/// The attributes of a generic netlink message, which follow `struct genlmsghdr`.
fn attributes(body: &[u8]) -> Attributes<'_> {
    Attributes(body.get(4..).unwrap_or_default())
}
