//! NAPI settings, per instance.
//!
//! Source: kernel documentation, networking/napi, "Software IRQ coalescing", "IRQ suspension", "Threaded NAPI";
//! Documentation/netlink/specs/netdev.yaml, napi-get, napi-set, queue-get.

use std::io;

use netlink_bindings::netdev;
use netlink_socket2::NetlinkSocket;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::ethtool::index;
use super::{Access, Error, Setting, Value};

/// The NAPI instance of a receive queue: fields `defer-hard-irqs` (polls), `gro-flush-timeout`, `irq-suspend-timeout`
/// (ns), `threaded` (0, 1; 2 for busy polling from Linux 6.19 on). Fields that the kernel does not have are missing
/// (the first two came with 6.13).
///
/// The first two act as a pair: a count without a timeout defers nothing. Instances get new numbers whenever the
/// interface goes up, so they are named by their queue. If the driver does not say which instance belongs to which
/// queue (veth), they are named by their order.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Napi {
    /// The interface's name.
    pub interface: String,
    /// The number of the receive queue.
    pub queue: u32,
}

/// The two settings of software interrupt moderation, which act as a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NapiDeferral {
    /// Number of empty polls before the interrupt is enabled again.
    pub defer_hard_irqs: u32,
    /// Time between two polls while the interrupt is off.
    pub gro_flush_timeout: Nanos,
}

impl NapiDeferral {
    /// Returns an error if the kernel rejects the values, or if they have no effect.
    pub fn check(&self) -> Result<(), Error> {
        let Self { defer_hard_irqs, gro_flush_timeout } = *self;
        let invalid = |why: &str| Err(Error::invalid("NAPI deferral", why));
        if (defer_hard_irqs == 0) != (gro_flush_timeout == Nanos::ZERO) {
            return invalid("defer_hard_irqs and gro_flush_timeout work only together: set both above 0, or both to 0");
        }
        // The kernel takes both as signed 32-bit: Documentation/netlink/specs/netdev.yaml, "napi".
        if defer_hard_irqs > i32::MAX as u32 || gro_flush_timeout.as_nanos() > i32::MAX as u64 {
            return invalid("defer_hard_irqs and gro_flush_timeout (in ns) must be below 2^31");
        }
        Ok(())
    }

    /// The deferral as the value of a knob.
    pub fn value(&self) -> Value {
        Napi::deferral(self.defer_hard_irqs, self.gro_flush_timeout)
    }
}

/// The NAPI instances that serve the receive queues `queues` of an interface, with the kernel's IDs. If the driver does
/// not say which instance belongs to which queue (veth), all instances of the interface. Empty if the interface is down
/// or has none.
pub fn napis_of(access: &Access, interface: &str, queues: &[u32]) -> Result<Vec<(Napi, u32)>, Error> {
    if !access.is_live() {
        return Ok(Vec::new());
    }
    let Some(index) = index(interface) else { return Ok(Vec::new()) };
    let read = |e: io::Error| Error::of(format!("read the NAPI settings of {interface}"), &e);
    let named = self::queues(index).map_err(read)?.iter().any(|(_, napi)| napi.is_some());
    let all = instances(interface)?.unwrap_or_default().into_iter();
    let ours = all.filter(|(queue, _)| !named || queues.contains(queue));
    Ok(ours.map(|(queue, instance)| (Napi::new(interface, queue), instance.id)).collect())
}

#[derive(Clone, Debug)]
struct Instance {
    id: u32,
    fields: Vec<(&'static str, u32)>,
}

const FIELDS: [&str; 4] = ["defer-hard-irqs", "gro-flush-timeout", "irq-suspend-timeout", "threaded"];

/// The receive queues of an interface that have a NAPI instance. Empty if it is down or has none.
pub fn napi_queues(access: &Access, interface: &str) -> Result<Vec<u32>, Error> {
    if !access.is_live() {
        return Ok(Vec::new());
    }
    let Some(instances) = instances(interface)? else { return Ok(Vec::new()) };
    Ok(instances.into_iter().map(|(queue, _)| queue).collect())
}

impl Napi {
    /// Makes the setting for receive queue `queue` of `interface`.
    pub fn new(interface: impl Into<String>, queue: u32) -> Self {
        Self { interface: interface.into(), queue }
    }

    /// The value for a deferral: this many empty polls, and this time between polls.
    pub fn deferral(defer_hard_irqs: u32, gro_flush_timeout: Nanos) -> Value {
        Value::fields([
            ("defer-hard-irqs", u64::from(defer_hard_irqs)),
            ("gro-flush-timeout", gro_flush_timeout.as_nanos()),
        ])
    }

    fn instance(&self) -> Result<Option<Instance>, Error> {
        let instances = instances(&self.interface)?.unwrap_or_default();
        Ok(instances.into_iter().find(|(queue, _)| *queue == self.queue).map(|(_, instance)| instance))
    }
}

/// The instances, each with its queue; `None` if there is no such interface, or the kernel does not tell.
fn instances(interface: &str) -> Result<Option<Vec<(u32, Instance)>>, Error> {
    let Some(index) = index(interface) else { return Ok(None) };
    let read = |e: io::Error| Error::of(format!("read the NAPI settings of {interface}"), &e);
    let napis = match napis(index).map_err(read) {
        Err(Error::NotThere { .. } | Error::Refused { .. }) => return Ok(None),
        napis => napis?,
    };
    let queues = queues(index).map_err(read)?;
    if queues.iter().all(|(_, napi)| napi.is_none()) {
        return Ok(Some((0..).zip(napis).collect()));
    }
    let of = |id| napis.iter().find(|napi| Some(napi.id) == id).cloned();
    Ok(Some(queues.into_iter().filter_map(|(queue, id)| Some((queue, of(id)?))).collect()))
}

/// The NAPI instances of an interface, by their ids.
fn napis(index: u32) -> io::Result<Vec<Instance>> {
    let mut socket = NetlinkSocket::new();
    let mut request = netdev::Request::new().op_napi_get_dump();
    request.encode().push_ifindex(index);
    let mut reply = socket.request(&request)?;
    let mut napis = Vec::new();
    while let Some(napi) = reply.recv() {
        let napi = napi?;
        let read = [
            napi.get_defer_hard_irqs().ok(),
            napi.get_gro_flush_timeout().ok(),
            napi.get_irq_suspend_timeout().ok(),
            napi.get_threaded().ok(),
        ];
        let fields = FIELDS.into_iter().zip(read).filter_map(|(name, value)| Some((name, value?)));
        napis.push(Instance { id: napi.get_id().map_err(io::Error::other)?, fields: fields.collect() });
    }
    napis.sort_by_key(|napi| napi.id);
    Ok(napis)
}

/// The receive queues, each with its NAPI's id where the driver names it.
fn queues(index: u32) -> io::Result<Vec<(u32, Option<u32>)>> {
    let mut socket = NetlinkSocket::new();
    let mut request = netdev::Request::new().op_queue_get_dump();
    request.encode().push_ifindex(index);
    let mut reply = socket.request(&request)?;
    let mut queues = Vec::new();
    while let Some(queue) = reply.recv() {
        let queue = queue?;
        let id = queue.get_id().map_err(io::Error::other)?;
        if queue.get_type().map_err(io::Error::other)? == netdev::QueueType::Rx as u32 {
            queues.push((id, queue.get_napi_id().ok()));
        }
    }
    Ok(queues)
}

fn numbers(what: &str, value: &Value) -> Result<Vec<(&'static str, u32)>, Error> {
    let fields = value.as_fields().filter(|fields| !fields.is_empty());
    let fields = fields.ok_or_else(|| Error::invalid(what, "expected fields such as defer-hard-irqs=2"))?;
    let number = |(name, text): (&String, &String)| {
        let known = FIELDS.into_iter().find(|field| field == name);
        known.zip(text.parse().ok()).ok_or_else(|| {
            Error::invalid(
                what,
                format!("{name}={text}: expected one of {}, with a whole number (times in ns)", FIELDS.join(", ")),
            )
        })
    };
    fields.iter().map(number).collect()
}

impl Setting for Napi {
    fn label(&self) -> String {
        format!("NAPI of queue {} of {}", self.queue, self.interface)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        if !access.is_live() {
            return Ok(None);
        }
        let fields = self.instance()?.map(|instance| instance.fields).filter(|fields| !fields.is_empty());
        Ok(fields.map(Value::fields))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let what = format!("set {} to {value}", self.label());
        let gone = || Error::NotThere { what: what.clone(), why: "the interface is down or no longer exists".into() };
        let instance = self.instance()?.ok_or_else(gone)?;
        let mut request = netdev::Request::new().op_napi_set_do();
        let mut fields = request.encode().push_id(instance.id);
        for (name, number) in numbers(&self.label(), value)? {
            fields = match name {
                "defer-hard-irqs" => fields.push_defer_hard_irqs(number),
                "gro-flush-timeout" => fields.push_gro_flush_timeout(number),
                "irq-suspend-timeout" => fields.push_irq_suspend_timeout(number),
                _ => fields.push_threaded(number),
            };
        }
        drop(fields);
        let mut socket = NetlinkSocket::new();
        access
            .act("netlink", &what, || -> io::Result<()> { Ok(socket.request(&request)?.recv_ack()?) })
            .map_err(|e| Error::of(&what, &e))
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let wanted = numbers(&self.label(), value)?;
        // include/net/napi: the kernel keeps the count in an int (net/core/dev.h, napi_set_defer_hard_irqs).
        if wanted.iter().any(|(name, number)| *name == "defer-hard-irqs" && i32::try_from(*number).is_err()) {
            return Err(Error::invalid(self.label(), "defer-hard-irqs is at most 2147483647"));
        }
        if let Some(now) = self.read(access)?
            && let Some((name, _)) = wanted.iter().find(|(name, _)| now.field(name).is_none())
        {
            return Err(Error::Refused {
                what: format!("set {name} of {}", self.label()),
                why: "this kernel has no such setting per NAPI instance".into(),
                fix: "use a newer kernel: 6.13 for the timeouts, 6.17 for threaded".into(),
            });
        }
        Ok(())
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deferral_is_a_pair() {
        let check = |defer_hard_irqs, nanos| {
            NapiDeferral { defer_hard_irqs, gro_flush_timeout: Nanos::from_nanos(nanos) }.check().is_ok()
        };
        assert!(check(2, 200_000) && check(0, 0) && check(1, i32::MAX as u64));
        assert!(!check(2, 0) && !check(0, 1) && !check(1, 1 << 31) && !check(1 << 31, 1));
    }

    #[test]
    fn fields_are_whole_numbers() {
        assert!(numbers("x", &Napi::deferral(2, Nanos::from_micros(200))).is_ok());
        for wrong in [Value::fields([("defer", "2")]), Value::fields([("threaded", "yes")]), Value::text("2")] {
            assert!(numbers("x", &wrong).is_err(), "{wrong} was taken");
        }
    }
}
