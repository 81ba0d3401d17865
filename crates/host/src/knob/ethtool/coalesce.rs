//! Interrupt coalescing of a device or of one of its queues.
//!
//! Source: kernel documentation, networking/ethtool-netlink, "COALESCE_GET" and "COALESCE_SET";
//! `struct ethtool_coalesce` of include/uapi/linux/ethtool.h.
//!
//! **Traps.** A driver may accept a value and ignore it (amzn-drivers, issues 159 and 290): only the interrupt rate
//! shows the truth. In ixgbe and igb, `rx-usecs` 1 means "dynamic" (scylladb, issue 1974). Setting `rx-usecs` may turn
//! `adaptive-rx` off, and a reset of the device may lose all of these settings.

use serde::{Deserialize, Serialize};

use super::message::Message;
use super::{absent_if_unsupported, get, index, lacks, sys, unshown};
use crate::knob::{Access, Error, Setting, Value};

const GET: u8 = 19;
const SET: u8 = 20;

/// Coalescing of a device: the fields of ethtool-netlink (`rx-usecs`, `rx-max-frames`, …), and `adaptive-rx` and
/// `adaptive-tx` (0 or 1).
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Coalesce {
    /// The interface's name.
    pub interface: String,
}

/// Coalescing of one queue, if the driver supports that. The fields are those of `struct ethtool_coalesce`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct CoalesceQueue {
    /// The interface's name.
    pub interface: String,
    /// The number of the queue.
    pub queue: u32,
}

/// Name, attribute number, 8 bits wide. The first 22 are the fields of `struct ethtool_coalesce`, in its order
/// after `cmd`.
const FIELDS: [(&str, u16, bool); 27] = [
    ("rx-usecs", 2, false),
    ("rx-max-frames", 3, false),
    ("rx-usecs-irq", 4, false),
    ("rx-max-frames-irq", 5, false),
    ("tx-usecs", 6, false),
    ("tx-max-frames", 7, false),
    ("tx-usecs-irq", 8, false),
    ("tx-max-frames-irq", 9, false),
    ("stats-block-usecs", 10, false),
    ("adaptive-rx", 11, true),
    ("adaptive-tx", 12, true),
    ("pkt-rate-low", 13, false),
    ("rx-usecs-low", 14, false),
    ("rx-max-frames-low", 15, false),
    ("tx-usecs-low", 16, false),
    ("tx-max-frames-low", 17, false),
    ("pkt-rate-high", 18, false),
    ("rx-usecs-high", 19, false),
    ("rx-max-frames-high", 20, false),
    ("tx-usecs-high", 21, false),
    ("tx-max-frames-high", 22, false),
    ("rate-sample-interval", 23, false),
    ("cqe-mode-tx", 24, true),
    ("cqe-mode-rx", 25, true),
    ("tx-aggr-max-bytes", 26, false),
    ("tx-aggr-max-frames", 27, false),
    ("tx-aggr-time-usecs", 28, false),
];

impl Coalesce {
    /// Makes the setting for an interface.
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into() }
    }

    /// The fields of `value` that the driver does not declare: the kernel does not show them.
    fn lacking(&self, access: &Access, value: &Value) -> Result<Vec<String>, Error> {
        let now = self.read(access)?;
        Ok(now.map_or(Vec::new(), |now| unshown(&now, value)))
    }
}

impl CoalesceQueue {
    /// Makes the setting for queue `queue` of an interface.
    pub fn new(interface: impl Into<String>, queue: u32) -> Self {
        Self { interface: interface.into(), queue }
    }
}

/// Fields with their numbers, of those that there are.
fn numbers(what: &str, value: &Value, known: usize) -> Result<Vec<(usize, u32)>, Error> {
    let wrong = |name: &str, text: &str| {
        let names: Vec<&str> = FIELDS[..known].iter().map(|field| field.0).collect();
        Error::invalid(what, format!("{name}={text}: expected one of {}, with a whole number", names.join(", ")))
    };
    let fields = value.as_fields().filter(|fields| !fields.is_empty());
    let fields = fields.ok_or_else(|| Error::invalid(what, "expected fields such as rx-usecs=0"))?;
    let number = |(name, text): (&String, &String)| {
        let place = FIELDS[..known].iter().position(|field| field.0 == name).ok_or_else(|| wrong(name, text))?;
        let most = if FIELDS[place].2 { u32::from(u8::MAX) } else { u32::MAX };
        let number = text.parse().ok().filter(|n| *n <= most).ok_or_else(|| wrong(name, text))?;
        Ok((place, number))
    };
    fields.iter().map(number).collect()
}

/// Refuses what would never interrupt.
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

impl Setting for Coalesce {
    fn label(&self) -> String {
        format!("coalescing of {}", self.interface)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let Some(answer) = get(access, GET, &self.interface, "coalescing")? else { return Ok(None) };
        let fields: Vec<_> =
            FIELDS.iter().filter_map(|(name, number, _)| Some((*name, answer.number(*number)?))).collect();
        Ok((!fields.is_empty()).then(|| Value::fields(fields)))
    }

    /// Sends what is named, without what is 0 because the driver lacks it: the kernel refuses a whole request for one
    /// field that the driver does not declare, whatever its value (net/ethtool/coalesce.c, `ethnl_set_coalesce_validate`).
    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let lacking = self.lacking(access, value)?;
        let mut numbers = numbers(&self.label(), value, FIELDS.len())?;
        numbers.retain(|(place, number)| *number != 0 || !lacking.contains(&FIELDS[*place].0.to_owned()));
        if numbers.is_empty() {
            return Ok(());
        }
        let mut message = Message::new(SET, &self.interface);
        for (place, number) in numbers {
            match FIELDS[place] {
                (_, attribute, true) => message.byte(attribute, number as u8),
                (_, attribute, false) => message.number(attribute, number),
            }
        }
        message.set(access, &format!("set coalescing of {} to {value}", self.interface))
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        numbers(&self.label(), value, FIELDS.len())?;
        check_wanted(&self.label(), value)?;
        let mut lacking = self.lacking(access, value)?;
        lacking.retain(|field| value.field(field) != Some("0"));
        match lacking.is_empty() {
            true => Ok(()),
            false => Err(lacks(&self.label(), &lacking)),
        }
    }

    /// A driver may show zeroes where it has nothing to say.
    fn check_back(&self, _: &Access, before: &Value) -> Result<(), Error> {
        numbers(&self.label(), before, FIELDS.len()).map(|_| ())
    }

    /// The kernel shows a field that the driver does not declare only when it is not zero.
    fn unshown(&self, _: &str) -> Option<&'static str> {
        Some("0")
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }
}

impl Setting for CoalesceQueue {
    fn label(&self) -> String {
        format!("coalescing of queue {} of {}", self.queue, self.interface)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        if !access.is_live() || index(&self.interface).is_none() {
            return Ok(None);
        }
        let read = sys::read_queue(&self.interface, self.queue).map_err(|e| Error::of(self.label(), &e));
        let Some(fields) = absent_if_unsupported(read)? else { return Ok(None) };
        // A field that does not apply reads as all ones.
        let fields: Vec<_> =
            FIELDS.iter().zip(fields).filter(|(_, n)| *n != u32::MAX).map(|((name, ..), n)| (*name, n)).collect();
        Ok(Some(Value::fields(fields)))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let what = format!("set {} to {value}", self.label());
        let mut fields = sys::read_queue(&self.interface, self.queue).map_err(|e| Error::of(&what, &e))?;
        for (place, number) in numbers(&self.label(), value, sys::QUEUE_FIELDS)? {
            fields[place] = number;
        }
        access
            .act("ioctl", &what, || sys::write_queue(&self.interface, self.queue, fields))
            .map_err(|e| Error::of(&what, &e))
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        numbers(&self.label(), value, sys::QUEUE_FIELDS)?;
        check_wanted(&self.label(), value)
    }

    fn check_back(&self, _: &Access, before: &Value) -> Result<(), Error> {
        numbers(&self.label(), before, sys::QUEUE_FIELDS).map(|_| ())
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_fields_are_refused_before_the_driver_sees_them() {
        let check = |fields: &[(&str, &str)]| {
            Coalesce::new("x").check(&Access::live().unwrap(), &Value::fields(fields.iter().copied()))
        };
        assert!(check(&[("rx-usecs", "50"), ("adaptive-rx", "0")]).is_ok());
        for wrong in [
            &[("rx-usec", "50")][..],
            &[("rx-usecs", "-1")],
            &[("adaptive-rx", "256")],
            &[("rx-usecs", "0"), ("rx-max-frames", "0")],
            &[],
        ] {
            assert!(check(wrong).is_err(), "{wrong:?} was taken");
        }
        assert!(
            numbers("x", &Value::fields([("cqe-mode-rx", 1)]), sys::QUEUE_FIELDS).is_err(),
            "a queue has no such field"
        );
    }
}
