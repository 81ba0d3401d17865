//! NAPI settings of single instances.
//!
//! Source: kernel documentation, networking/napi, "Software IRQ coalescing", "IRQ suspension", "Threaded NAPI";
//! Documentation/netlink/specs/netdev.yaml, napi-get, napi-set, queue-get.

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::ethtool::{ask, change, parse, shown};
use super::{Access, Error, File, Setting, Value};
use crate::nic::{Client, Direction, Error as NicError, Interface, Napi as Instance, NapiSettings, Numbers as _};

/// The NAPI instance of a receive queue: fields `defer-hard-irqs` (polls), `gro-flush-timeout`, `irq-suspend-timeout`
/// (ns), `threaded` (0 or 1; from Linux 6.19 on, 2 means busy polling). Fields that the kernel does not support are
/// missing (`defer-hard-irqs` and `gro-flush-timeout` came with Linux 6.13).
///
/// `defer-hard-irqs` and `gro-flush-timeout` act as a pair: a count without a timeout defers nothing. NAPI instances
/// get new IDs whenever the interface goes up, so the setting names the receive queue instead. If the driver does not
/// report which instance belongs to which queue (veth), the setting's queue number is the instance's index in the
/// kernel's list.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Napi {
    /// The interface's name.
    pub interface: String,
    /// The number of the receive queue.
    pub queue: u32,
}

/// The two settings of software interrupt coalescing, which act as a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NapiDeferral {
    /// Number of empty polls before the interrupt is enabled again.
    pub defer_hard_irqs: u32,
    /// Time between two polls while the interrupt is off (`gro_flush_timeout`).
    pub gro_flush_timeout: Nanos,
}

impl NapiDeferral {
    /// Returns an error for values that the kernel rejects, or that have no effect.
    pub fn check(&self) -> Result<(), Error> {
        let Self { defer_hard_irqs, gro_flush_timeout } = *self;
        let invalid = |why: &str| Err(Error::invalid("NAPI deferral", why));
        if (defer_hard_irqs == 0) != (gro_flush_timeout == Nanos::ZERO) {
            return invalid("defer_hard_irqs and gro_flush_timeout work only together: set both above 0, or both to 0");
        }
        // The kernel accepts both as signed 32-bit numbers: Documentation/netlink/specs/netdev.yaml, "napi".
        if defer_hard_irqs > i32::MAX as u32 || gro_flush_timeout.as_nanos() > i32::MAX as u64 {
            return invalid("defer_hard_irqs and gro_flush_timeout (in ns) must be below 2^31");
        }
        Ok(())
    }

    /// This deferral as the value of a [`Napi`] setting.
    pub fn value(&self) -> Value {
        Napi::deferral(self.defer_hard_irqs, self.gro_flush_timeout)
    }
}

/// The NAPI instances of the receive queues `queues` of an interface, each with the kernel's ID. If the driver does not
/// report which instance belongs to which queue (veth), the result contains all instances of the interface. Empty if
/// the interface is down or has no instances.
pub fn napis_of(access: &Access, interface: &str, queues: &[u32]) -> Result<Vec<(Napi, u32)>, Error> {
    let found = asked(access, interface)?;
    let ours = found.instances.into_iter().filter(|(queue, _)| !found.named || queues.contains(queue));
    Ok(ours.map(|(queue, instance)| (Napi::new(interface, queue), instance.id)).collect())
}

/// The receive queues of an interface that have a NAPI instance. Empty if the interface is down or has no instances.
pub fn napi_queues(access: &Access, interface: &str) -> Result<Vec<u32>, Error> {
    Ok(asked(access, interface)?.instances.into_iter().map(|(queue, _)| queue).collect())
}

/// Whether the kernel lists NAPI instances over netlink, which it does from Linux 6.8 on.
pub fn lists_napis(access: &Access) -> bool {
    // No NAPI instance has the ID 0 (include/linux/netdevice.h, MIN_NAPI_ID). A kernel that supports the request
    // returns another error than an unknown command.
    access.is_live() && !matches!(access.nic(|client| client.napi(0)), Err(NicError::UnknownToKernel { .. }))
}

/// Whether the kernel defers the interrupts of each NAPI instance separately, as Linux does from 6.13 on. `found` are
/// the instances of an interface. If it is empty, returns whether the kernel lists instances at all.
pub fn defers_each_queue(access: &Access, found: &[(Napi, u32)]) -> Result<bool, Error> {
    let Some((napi, _)) = found.first() else { return Ok(lists_napis(access)) };
    Ok(napi.read(access)?.is_some_and(|value| value.field("gro-flush-timeout").is_some()))
}

/// The interrupt deferral in force for a receive queue. From Linux 6.13 on, it is that of the queue's NAPI instance, on
/// older kernels that of the whole device ([`DeviceDeferral`]). `None` if the kernel reports neither.
pub fn deferral_of(access: &Access, interface: &str, queue: u32) -> Result<Option<Value>, Error> {
    if let Some(own) = Napi::new(interface, queue).read(access)?
        && own.field("gro-flush-timeout").is_some()
    {
        return Ok(Some(own));
    }
    let DeviceDeferral { empty_polls, timeout } = DeviceDeferral::new(interface);
    let (empty_polls, timeout) = (access.number(&empty_polls.path)?, access.number(&timeout.path)?);
    Ok(empty_polls
        .zip(timeout)
        .map(|(polls, nanos)| Value::fields([("defer-hard-irqs", polls), ("gro-flush-timeout", nanos)])))
}

/// The two files that set the interrupt deferral of all NAPI instances of a device (kernel documentation,
/// networking/napi, "Software IRQ coalescing").
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceDeferral {
    /// The file with the number of empty polls before the interrupt is enabled again.
    pub empty_polls: File,
    /// The file with the time between two polls while the interrupt is off, in ns.
    pub timeout: File,
}

impl DeviceDeferral {
    /// The two files of an interface, each with its value for `deferral`.
    pub(crate) fn values(interface: &str, deferral: NapiDeferral) -> [(File, Value); 2] {
        let Self { empty_polls, timeout } = Self::new(interface);
        let NapiDeferral { defer_hard_irqs, gro_flush_timeout } = deferral;
        [
            (empty_polls, Value::text(defer_hard_irqs.to_string())),
            (timeout, Value::text(gro_flush_timeout.as_nanos().to_string())),
        ]
    }

    /// The two files of an interface.
    pub fn new(interface: &str) -> Self {
        let file = |name: &str| File::new(format!("/sys/class/net/{interface}/{name}"));
        Self { empty_polls: file("napi_defer_hard_irqs"), timeout: file("gro_flush_timeout") }
    }
}

/// The NAPI instances of an interface.
#[derive(Default)]
struct Instances {
    /// Whether the driver reports which instance belongs to which queue. If not, the index of an instance counts as the
    /// number of its queue.
    named: bool,
    /// The NAPI instances, each with the number of its receive queue.
    instances: Vec<(u32, Instance)>,
}

impl Instances {
    fn of(client: &mut Client, interface: &Interface) -> Result<Self, NicError> {
        let napis = client.napis(interface)?;
        let mut queues = client.queues(interface)?;
        queues.retain(|queue| queue.direction == Direction::Rx);
        if queues.iter().all(|queue| queue.napi.is_none()) {
            return Ok(Self { named: false, instances: (0..).zip(napis).collect() });
        }
        let of = |id| napis.iter().find(|napi| Some(napi.id) == id).copied();
        let instances = queues.into_iter().filter_map(|queue| Some((queue.number, of(queue.napi)?))).collect();
        Ok(Self { named: true, instances })
    }

    fn of_queue(self, queue: u32) -> Option<Instance> {
        self.instances.into_iter().find(|(number, _)| *number == queue).map(|(_, instance)| instance)
    }
}

/// Queries the NAPI instances of an interface. Empty if there is no such interface, or if the kernel does not report
/// them.
fn asked(access: &Access, interface: &str) -> Result<Instances, Error> {
    Ok(ask(access, interface, "NAPI settings", Instances::of)?.unwrap_or_default())
}

impl Napi {
    /// Makes the setting for receive queue `queue` of `interface`.
    pub fn new(interface: impl Into<String>, queue: u32) -> Self {
        Self { interface: interface.into(), queue }
    }

    /// The setting's value for this number of empty polls and this time between polls.
    pub fn deferral(defer_hard_irqs: u32, gro_flush_timeout: Nanos) -> Value {
        Value::fields([
            ("defer-hard-irqs", u64::from(defer_hard_irqs)),
            ("gro-flush-timeout", gro_flush_timeout.as_nanos()),
        ])
    }

    fn parse(&self, value: &Value) -> Result<NapiSettings, Error> {
        parse(&self.label(), value, NapiSettings::FIELDS, " (times in ns)")
    }
}

impl Setting for Napi {
    fn label(&self) -> String {
        format!("NAPI of queue {} of {}", self.queue, self.interface)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let instance = asked(access, &self.interface)?.of_queue(self.queue);
        Ok(instance.and_then(|instance| shown(&instance.settings, NapiSettings::FIELDS)))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let what = format!("set {} to {value}", self.label());
        let gone = || Error::NotThere { what: what.clone(), why: "the interface is down or no longer exists".into() };
        let instance = asked(access, &self.interface)?.of_queue(self.queue).ok_or_else(gone)?;
        let settings = self.parse(value)?;
        change(access, "netlink", &self.interface, &what, |client, _| client.set_napi(instance.id, &settings))
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let wanted = self.parse(value)?;
        // The kernel stores the count in an `int` (net/core/dev.h, napi_set_defer_hard_irqs).
        if wanted.defer_hard_irqs.is_some_and(|count| i32::try_from(count).is_err()) {
            return Err(Error::invalid(self.label(), "defer-hard-irqs is at most 2147483647"));
        }
        let now = asked(access, &self.interface)?.of_queue(self.queue).map(|instance| instance.settings);
        let now = now.filter(|now| !now.is_empty());
        let lacks =
            |field: &&crate::nic::Field| wanted.get(field).is_some() && now.is_some_and(|now| now.get(field).is_none());
        if let Some(field) = NapiSettings::FIELDS.iter().find(lacks) {
            return Err(Error::Refused {
                what: format!("set {} of {}", field.name, self.label()),
                why: "this kernel has no such setting per NAPI instance".into(),
                fix: "use a newer kernel: 6.13 for the timeouts, 6.17 for threaded".into(),
            });
        }
        Ok(())
    }

    /// The two fields of interrupt deferral form a group; every other field acts alone.
    fn group(&self, field: &str) -> Option<&'static str> {
        ["defer-hard-irqs", "gro-flush-timeout"].contains(&field).then_some("deferral")
    }

    fn read_instance(&self, access: &Access) -> Result<Option<(Value, Option<u64>)>, Error> {
        let instance = asked(access, &self.interface)?.of_queue(self.queue);
        Ok(instance.and_then(|instance| {
            Some((shown(&instance.settings, NapiSettings::FIELDS)?, Some(u64::from(instance.id))))
        }))
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
        let napi = Napi::new("x", 0);
        assert!(napi.parse(&Napi::deferral(2, Nanos::from_micros(200))).is_ok());
        for wrong in [Value::fields([("defer", "2")]), Value::fields([("threaded", "yes")]), Value::text("2")] {
            assert!(napi.parse(&wrong).is_err(), "{wrong} was taken");
        }
    }
}
