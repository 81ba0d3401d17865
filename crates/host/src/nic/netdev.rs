//! The netlink family `netdev` (Documentation/netlink/specs/netdev.yaml, include/uapi/linux/netdev.h): NAPI instances,
//! queues, and the queues' counters.

use super::message::{Attributes, Message};
use super::numbers::{NapiSettings, Numbers as _, QueueCounts, push, read};
use super::socket::Wants;
use super::{Client, Error, Interface};

const FAMILY: &str = "netdev";

/// Numbers of the netlink commands (`NETDEV_CMD_*`).
const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;
const QSTATS_GET: u8 = 12;
const NAPI_SET: u8 = 14;

const NAPI_IFINDEX: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_IRQ: u16 = 3;
const NAPI_PID: u16 = 4;
const QUEUE_ID: u16 = 1;
const QUEUE_IFINDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI_ID: u16 = 4;
const QSTATS_IFINDEX: u16 = 1;
const QSTATS_QUEUE_TYPE: u16 = 2;
const QSTATS_QUEUE_ID: u16 = 3;
const QSTATS_SCOPE: u16 = 4;
/// Value that requests the counters of each queue (`NETDEV_QSTATS_SCOPE_QUEUE`).
const SCOPE_QUEUE: u32 = 1;

/// One NAPI instance. An instance gets a new ID whenever the interface goes up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Napi {
    /// The kernel's ID of the instance.
    pub id: u32,
    /// Number of the instance's interrupt. `None` if it has no interrupt, or if the driver does not report it.
    pub irq: Option<u32>,
    /// ID of the kernel thread that polls the instance. `None` if softirqs poll it.
    pub pid: Option<u32>,
    /// The settings of the instance.
    pub settings: NapiSettings,
}

/// Direction of the packets in a queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// The queue receives packets.
    Rx,
    /// The queue sends packets.
    Tx,
}

/// A queue of an interface. Receive and transmit queues are numbered separately, each from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// The number of the queue.
    pub number: u32,
    /// Whether the queue receives or sends packets.
    pub direction: Direction,
    /// ID of the NAPI instance that polls the queue. `None` if the driver does not report the instance (veth).
    pub napi: Option<u32>,
}

/// The kernel's counters for one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStatistics {
    /// The number of the queue.
    pub number: u32,
    /// Whether the queue receives or sends packets.
    pub direction: Direction,
    /// The values of the counters.
    pub counts: QueueCounts,
}

/// Parses a queue type (`enum netdev_queue_type`). `None` for an unknown type.
fn direction(said: Attributes<'_>, attribute: u16) -> Option<Direction> {
    match said.number(attribute)? {
        0 => Some(Direction::Rx),
        1 => Some(Direction::Tx),
        _ => None,
    }
}

fn napi(said: Attributes<'_>) -> Option<Napi> {
    let id = said.word(NAPI_ID)?;
    Some(Napi { id, irq: said.word(NAPI_IRQ), pid: said.word(NAPI_PID), settings: read(said) })
}

impl Client {
    /// The NAPI instances of an interface, sorted by ID. Empty if the interface is down. Needs Linux 6.8.
    pub fn napis(&mut self, interface: &Interface) -> Result<Vec<Napi>, Error> {
        let mut message = Message::command(NAPI_GET);
        message.number(NAPI_IFINDEX, interface.index());
        let mut all = Vec::new();
        self.ask(FAMILY, message, Wants::Each, |said| all.extend(napi(said)))?;
        all.sort_unstable_by_key(|napi| napi.id);
        Ok(all)
    }

    /// The NAPI instance with this ID, whichever interface it belongs to.
    pub fn napi(&mut self, id: u32) -> Result<Napi, Error> {
        let mut message = Message::command(NAPI_GET);
        message.number(NAPI_ID, id);
        let mut found = None;
        self.ask(FAMILY, message, Wants::One, |said| found = napi(said))?;
        found.ok_or_else(Error::unsaid)
    }

    /// Changes the settings of one NAPI instance. Only fields with a value change. Needs Linux 6.13.
    pub fn set_napi(&mut self, id: u32, settings: &NapiSettings) -> Result<(), Error> {
        let mut message = Message::command(NAPI_SET).named(NapiSettings::FIELDS);
        message.number(NAPI_ID, id);
        push(settings, &mut message);
        self.ask(FAMILY, message, Wants::Done, |_| {})
    }

    /// The queues of an interface that are in use. Empty if the interface is down. Needs Linux 6.8.
    pub fn queues(&mut self, interface: &Interface) -> Result<Vec<Queue>, Error> {
        let mut message = Message::command(QUEUE_GET);
        message.number(QUEUE_IFINDEX, interface.index());
        let mut all = Vec::new();
        self.ask(FAMILY, message, Wants::Each, |said| {
            if let (Some(number), Some(direction)) = (said.word(QUEUE_ID), direction(said, QUEUE_TYPE)) {
                all.push(Queue { number, direction, napi: said.word(QUEUE_NAPI_ID) });
            }
        })?;
        Ok(all)
    }

    /// The kernel's counters for each queue. Needs Linux 6.9. Returns [`Error::Unsupported`] if the driver does not
    /// count per queue; [`Client::driver_statistics`] may then have counters under the driver's own names.
    pub fn queue_statistics(&mut self, interface: &Interface) -> Result<Vec<QueueStatistics>, Error> {
        let mut message = Message::command(QSTATS_GET);
        message.number(QSTATS_IFINDEX, interface.index());
        message.number(QSTATS_SCOPE, SCOPE_QUEUE);
        let mut all = Vec::new();
        self.ask(FAMILY, message, Wants::Each, |said| {
            let queue = said.word(QSTATS_QUEUE_ID).zip(direction(said, QSTATS_QUEUE_TYPE));
            all.extend(queue.map(|(number, direction)| QueueStatistics { number, direction, counts: read(said) }));
        })?;
        Ok(all)
    }
}
