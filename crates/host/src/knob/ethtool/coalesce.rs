//! Interrupt coalescing of a device or of one of its queues.
//!
//! Source: kernel documentation, networking/ethtool-netlink, "COALESCE_GET" and "COALESCE_SET";
//! `struct ethtool_coalesce` of include/uapi/linux/ethtool.h.
//!
//! **Traps.** A driver may accept a value and ignore it (amzn-drivers, issues 159 and 290): only the interrupt rate
//! shows which value is in force. In ixgbe and igb, `rx-usecs` 1 means "dynamic" (scylladb, issue 1974). Setting
//! `rx-usecs` may turn `adaptive-rx` off, and a reset of the device may lose all of these settings. In e1000e with
//! MSI-X, a value can be overwritten by the next interrupt, with an interval that the driver's dynamic mode computed
//! earlier (Linux, drivers/net/ethernet/intel/e1000e/netdev.c, `set_itr`).

use serde::{Deserialize, Serialize};

use super::{ask, change, check, parse, read, shown, write};
use crate::knob::{Access, Error, Setting, Value};
use crate::nic::{Coalescing, Numbers as _};

/// Coalescing of a device: the fields of ethtool-netlink (`rx-usecs`, `rx-max-frames`, …), and `adaptive-rx` and
/// `adaptive-tx` (0 or 1).
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Coalesce {
    /// The interface's name.
    pub interface: String,
}

/// Coalescing of one queue, if the driver supports it for single queues. The fields are those of
/// `struct ethtool_coalesce`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct CoalesceQueue {
    /// The interface's name.
    pub interface: String,
    /// The number of the queue.
    pub queue: u32,
}

impl Coalesce {
    /// Makes the setting for an interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into() }
    }
}

impl CoalesceQueue {
    /// Makes the setting for queue `queue` of an interface.
    pub fn new(interface: impl Into<String>, queue: u32) -> Self {
        Self { interface: interface.into(), queue }
    }
}

/// Returns an error for values with which the device would never interrupt.
fn check_wanted(what: &str, value: &Value) -> Result<(), Error> {
    for side in ["rx", "tx"] {
        let zero = |field: &str| value.field(&format!("{side}-{field}")) == Some("0");
        if zero("usecs") && zero("max-frames") {
            let why = format!(
                "{side}-usecs=0 with {side}-max-frames=0 would never interrupt; to disable coalescing use {side}-usecs=0 and {side}-max-frames=1"
            );
            return Err(Error::invalid(what, why));
        }
    }
    Ok(())
}

const WHAT: &str = "coalescing";

/// The group of a field, `rx` or `tx`: the timer, the frame count and the adaptive switch of one direction act
/// together.
fn group(field: &str) -> Option<&'static str> {
    ["rx", "tx"].into_iter().find(|side| field.split('-').any(|part| part == *side))
}

/// The value without the fields that the driver changes by itself while adaptive moderation is on.
fn steady(value: Value) -> Value {
    let Value::Fields(mut fields) = value else { return value };
    for side in ["rx", "tx"] {
        if fields.get(&format!("adaptive-{side}")).is_some_and(|on| on != "0") {
            fields.retain(|field, _| !field.starts_with(&format!("{side}-")));
        }
    }
    Value::Fields(fields)
}

impl Setting for Coalesce {
    fn label(&self) -> String {
        format!("{WHAT} of {}", self.interface)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        read::<Coalescing>(access, &self.interface, WHAT)
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        write::<Coalescing>(access, &self.interface, WHAT, value)
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        parse::<Coalescing>(&self.label(), value, Coalescing::FIELDS, "")?;
        check_wanted(&self.label(), value)?;
        check::<Coalescing>(access, &self.interface, WHAT, value)
    }

    /// Checks only the format, because a driver may show zeroes for fields that it does not support.
    fn check_back(&self, _: &Access, before: &Value) -> Result<(), Error> {
        parse::<Coalescing>(&self.label(), before, Coalescing::FIELDS, "").map(|_| ())
    }

    /// Zero, because the kernel shows a field that the driver does not declare only if it is not zero.
    fn unshown(&self, _: &str) -> Option<&'static str> {
        Some("0")
    }

    fn group(&self, field: &str) -> Option<&'static str> {
        group(field)
    }

    fn steady(&self, value: Value) -> Value {
        steady(value)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }
}

impl CoalesceQueue {
    fn parse(&self, value: &Value) -> Result<Coalescing, Error> {
        parse(&self.label(), value, Coalescing::of_queues(), "")
    }
}

impl Setting for CoalesceQueue {
    fn label(&self) -> String {
        format!("{WHAT} of queue {} of {}", self.queue, self.interface)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let queue =
            ask(access, &self.interface, WHAT, |client, interface| client.queue_coalescing(interface, self.queue))?;
        Ok(queue.and_then(|queue| shown(&queue, Coalescing::of_queues())))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let wanted = self.parse(value)?;
        change(access, "ioctl", &self.interface, &format!("set {} to {value}", self.label()), |client, interface| {
            client.set_queue_coalescing(interface, self.queue, &wanted)
        })
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        self.parse(value)?;
        check_wanted(&self.label(), value)
    }

    fn check_back(&self, _: &Access, before: &Value) -> Result<(), Error> {
        self.parse(before).map(|_| ())
    }

    fn group(&self, field: &str) -> Option<&'static str> {
        group(field)
    }

    fn steady(&self, value: Value) -> Value {
        steady(value)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Knob, Ours};

    #[test]
    fn half_of_what_somebody_else_set_is_not_restored() {
        let knob = Knob(Coalesce::new("x"));
        let before = Value::fields([("rx-usecs", 50), ("adaptive-rx", 1), ("tx-usecs", 8)]);
        let ours = Value::fields([("rx-usecs", 100), ("adaptive-rx", 0), ("tx-usecs", 9)]);
        let theirs = Value::fields([("rx-usecs", 30), ("adaptive-rx", 0), ("tx-usecs", 9)]);
        let ours = Ours { asked: &ours, shown: ours.clone() };
        let way_back = knob.way_back(&before, Some(&ours), &theirs);
        assert_eq!((way_back.write, way_back.theirs), (Some(Value::fields([("tx-usecs", 8)])), true));
    }

    #[test]
    fn what_is_not_moved_is_not_set_to_zero() {
        let knob = Knob(Coalesce::new("x"));
        let before = Value::fields([("rx-usecs", 50)]);
        let now = Value::fields([("rx-usecs", 100), ("tx-usecs", 9)]);
        let write = |now: &Value| knob.way_back(&before, Some(&Ours { asked: now, shown: now.clone() }), now).write;
        assert_eq!(write(&now.fields_of(&before)), Some(before.clone()));
        // In a complete value, a field that was not shown counts as 0.
        assert_eq!(write(&now), Some(Value::fields([("rx-usecs", 50), ("tx-usecs", 0)])));
    }

    #[test]
    fn adaptive_intervals_are_not_what_a_restored_value_is_judged_by() {
        let value = Value::fields([("rx-usecs", 50), ("adaptive-rx", 1), ("tx-usecs", 8)]);
        assert_eq!(steady(value), Value::fields([("adaptive-rx", 1), ("tx-usecs", 8)]));
        let fixed = Value::fields([("rx-usecs", 50), ("adaptive-rx", 0)]);
        assert_eq!(steady(fixed.clone()), fixed);
    }

    #[test]
    fn wrong_fields_are_refused_before_the_driver_sees_them() {
        let check = |fields: &[(&str, &str)]| {
            Coalesce::new("x").check(&Access::live().unwrap(), &Value::fields(fields.iter().copied()))
        };
        assert!(check(&[("rx-usecs", "50"), ("adaptive-rx", "0")]).is_ok());
        for wrong in [
            &[("rx-usec", "50")][..],
            &[("rx-usecs", "-1")],
            &[("adaptive-rx", "2")],
            &[("rx-usecs", "0"), ("rx-max-frames", "0")],
            &[],
        ] {
            assert!(check(wrong).is_err(), "{wrong:?} was taken");
        }
        let queue = CoalesceQueue::new("x", 0);
        assert!(queue.parse(&Value::fields([("rate-sample-interval", 1)])).is_ok());
        assert!(queue.parse(&Value::fields([("cqe-mode-rx", 1)])).is_err(), "a queue has no such field");
    }
}
